//! The words about isolated runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ConflictWay, FilteredWay, GitWay};

/// Whether a run is isolated, and what becomes of its work.
#[derive(Debug, Args)]
pub(crate) struct IsolationArgs {
    /// Keep the command's work on a layer of its own, away from the workspace
    #[arg(long)]
    pub(crate) isolated: bool,
    /// Bring its work into the workspace if it ends with status 0
    #[arg(long, requires = "isolated", conflicts_with_all = ["discard", "ask"])]
    pub(crate) commit: bool,
    /// Throw its work away
    #[arg(long, requires = "isolated", conflicts_with = "ask")]
    pub(crate) discard: bool,
    /// Show what it changed and ask [default at a terminal; elsewhere it waits for a decision]
    #[arg(long, requires = "isolated")]
    pub(crate) ask: bool,
}

/// What can be done with isolated runs.
#[derive(Debug, Subcommand)]
pub(crate) enum IsolatedVerb {
    /// List the runs that wait for a decision, oldest first
    List,
    /// Show one run and how much it changed
    Show(RunIdArgs),
    Diff(IsolatedDiffArgs),
    /// List the runs with how much each changed, newest first
    Log,
    Commit(IsolatedCommitArgs),
    /// Throw a run's work away, for good
    Discard(RunIdArgs),
}

/// Which run.
#[derive(Debug, Args)]
pub(crate) struct RunIdArgs {
    /// The run; the only one otherwise
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

/// Compare a run's work with the workspace as it was when the run started
#[derive(Debug, Args)]
pub(crate) struct IsolatedDiffArgs {
    /// The run; the only one otherwise
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Show the changed lines
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) patch: bool,
    /// Show only the paths
    #[arg(long)]
    pub(crate) name_only: bool,
    /// Only these paths and what is below them
    #[arg(last = true)]
    pub(crate) paths: Vec<PathBuf>,
}

/// Bring a run's work into the workspace, all of it or nothing
///
/// What changed in the workspace meanwhile stays: text is merged by lines, and where both changed the
/// same thing nothing is done, with the paths named.
#[derive(Debug, Args)]
pub(crate) struct IsolatedCommitArgs {
    #[command(flatten)]
    pub(crate) run: RunIdArgs,
    /// Print the plan, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What to do where the run and the workspace both changed the same thing
    #[arg(long, value_enum, value_name = "WAY", default_value_t = ConflictWay::Stop)]
    pub(crate) on_conflict: ConflictWay,
    /// What to do with repositories that both changed
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) git: Option<GitWay>,
    /// What to do with paths that filters keep out
    #[arg(long, value_enum, value_name = "WAY", default_value_t = FilteredWay::Bring)]
    pub(crate) filtered: FilteredWay,
    /// Wait while the workspace is busy
    #[arg(long)]
    pub(crate) wait: bool,
}
