//! `chronicle completions`: the completion script for a shell.

use clap::CommandFactory;

use super::Invocation;
use crate::cli::{Cli, CompletionsArgs};
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &CompletionsArgs) -> Outcome {
    // Into memory first: what cannot be printed is for the interface to say.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "chronicle", &mut script);
    invocation.ui.print(&String::from_utf8_lossy(&script));
    Ok(0)
}
