//! The verbs about the operator.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done about the operator.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorVerb {
    /// Make a key, as the user who is to be the operator, and print its public half
    Key(OperatorKeyArgs),
    /// Ask for this operator's grant from now on, before anything takes protection away
    Require(RequireArgs),
    /// Sign a grant, as the operator
    Grant(GrantArgs),
    /// Keep a grant for the act that it is about
    Use(UseArgs),
    /// Show who the operator is and what is granted
    Show,
}

/// Which key.
#[derive(Debug, Args)]
pub(crate) struct OperatorKeyArgs {
    /// The file; made if it is not there
    pub(crate) file: PathBuf,
}

/// Who is to be the operator.
#[derive(Debug, Args)]
pub(crate) struct RequireArgs {
    /// The public half of the operator's key
    pub(crate) key: String,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What is granted.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// prune (as often as the rules say), or once: forget, config, roots, purge, operator
    pub(crate) act: String,
    /// The file with the operator's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// For how many days
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    /// In which workspace, as `operator show` names it; by default the one around
    #[arg(long, value_name = "WORKSPACE/EPOCH")]
    pub(crate) workspace: Option<String>,
}

/// Which grant.
#[derive(Debug, Args)]
pub(crate) struct UseArgs {
    /// The file with the grant, or - for stdin
    pub(crate) file: PathBuf,
}
