//! `chronicle completions`: the completion script for a shell.

use clap::CommandFactory;

use super::Invocation;
use crate::cli::{Cli, CompletionsArgs};
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &CompletionsArgs) -> Outcome {
    clap_complete::generate(args.shell, &mut Cli::command(), "chronicle", &mut invocation.ui);
    Ok(0)
}
