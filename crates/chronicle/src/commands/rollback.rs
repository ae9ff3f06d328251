//! `chronicle rollback`: one snapshot's files, or one transaction, as before it.

use chronicle_core::RewindKind;

use super::Invocation;
use super::taking_back::{Scope, take_back};
use crate::cli::RollbackArgs;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: RollbackArgs) -> Outcome {
    let workspace = invocation.open()?;
    let paths = invocation.paths(&workspace, &args.paths)?;
    // Without an id there is a plan, which says what.
    let kind = RewindKind::Rollback { id: args.id.unwrap_or_default() };
    take_back(invocation, workspace, kind, Scope { paths, ..Scope::default() }, &args.options)
}
