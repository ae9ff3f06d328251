//! `chronicle rewind`: back to a moment, keeping what others did.

use chronicle_core::RewindKind;

use super::Invocation;
use super::taking_back::{Scope, take_back};
use crate::cli::RewindArgs;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: RewindArgs) -> Outcome {
    let workspace = match args.recreate_root {
        true => invocation.open_to_recreate()?,
        false => invocation.open()?,
    };
    let scope = Scope {
        paths: invocation.paths(&workspace, &args.paths)?,
        exact: args.exact,
        session: args.session,
        all_sessions: args.all_sessions,
        recreate_root: args.recreate_root,
    };
    // Without a target there is a plan, which says where to.
    let kind = RewindKind::Rewind { target: args.target.unwrap_or_default() };
    take_back(invocation, workspace, kind, scope, &args.options)
}
