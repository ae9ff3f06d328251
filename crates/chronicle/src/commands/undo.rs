//! `chronicle undo`: takes back one action or turn and keeps what came later.

use chronicle_core::RewindKind;

use super::taking_back::{Scope, take_back};
use super::{Invocation, words};
use crate::cli::UndoArgs;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &UndoArgs) -> Outcome {
    let workspace = invocation.open()?;
    let said = words::split(invocation, &workspace, &args.words, 1)?;
    let kind = RewindKind::Undo { what: said.targets.into_iter().next() };
    let scope = Scope { paths: said.paths, ..Scope::default() };
    take_back(invocation, workspace, kind, scope, &args.options)
}
