//! `chronicle redo`: brings back what was taken back last.

use chronicle_core::RewindKind;

use super::Invocation;
use super::taking_back::{Scope, take_back};
use crate::cli::RedoArgs;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &RedoArgs) -> Outcome {
    let workspace = invocation.open()?;
    take_back(invocation, workspace, RewindKind::Redo, Scope::default(), &args.options)
}
