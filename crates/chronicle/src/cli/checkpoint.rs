//! The words about checkpoints.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done with checkpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointVerb {
    /// Show what a checkpoint would be made of here, and how to declare it
    Detect,
    Create(CheckpointCreateArgs),
    /// List the checkpoints, newest first
    List,
    Show(CheckpointShowArgs),
    Diff(CheckpointDiffArgs),
    Verify(CheckpointVerifyArgs),
    Restore(CheckpointRestoreArgs),
    Prune(CheckpointPruneArgs),
}

/// Freeze everything for a moment and keep it as one checkpoint
///
/// Commands that chronicle.toml declares stop what writes; every part's boundary is taken while it stands
/// still; then everything goes on, and the bytes follow. Whatever fails or takes too long leaves no checkpoint.
#[derive(Debug, Args)]
pub(crate) struct CheckpointCreateArgs {
    /// A name for it
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The driver for data, in place of the fastest that fits
    #[arg(long, value_name = "DRIVER")]
    pub(crate) driver: Option<String>,
    /// How many milliseconds the freeze may last
    #[arg(long, value_name = "MS")]
    pub(crate) limit: Option<u64>,
    /// Why it is made
    #[arg(long, value_name = "WORDS")]
    pub(crate) reason: Option<String>,
}

/// Show one checkpoint, part by part
#[derive(Debug, Args)]
pub(crate) struct CheckpointShowArgs {
    /// Its name, `latest`, or 6 or more digits of its id
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: String,
    /// Print its lock file as it was signed
    #[arg(long)]
    pub(crate) lock: bool,
}

/// Compare two checkpoints, part by part
#[derive(Debug, Args)]
pub(crate) struct CheckpointDiffArgs {
    /// The earlier one
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// The later one
    #[arg(value_name = "TO", default_value = "latest")]
    pub(crate) to: String,
}

/// Read back everything that a checkpoint holds, without restoring it
#[derive(Debug, Args)]
pub(crate) struct CheckpointVerifyArgs {
    /// Which; all of them otherwise
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: Option<String>,
}

/// Bring code and data to a checkpoint, all of it, or refuse before anything is changed
///
/// What stands there now becomes a checkpoint first: restoring that one takes the restore back.
#[derive(Debug, Args)]
pub(crate) struct CheckpointRestoreArgs {
    /// Its name, `latest`, or 6 or more digits of its id
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: String,
    /// Print what the gate answers, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the data into a new directory for a look, change nothing else
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dry_run", "part"])]
    pub(crate) to: Option<PathBuf>,
    /// Only this part; refused without --partial-anyway
    #[arg(long, value_name = "NAME")]
    pub(crate) part: Vec<String>,
    /// Restore only some parts although code and data will be of different moments, for this reason
    #[arg(long, value_name = "REASON", requires = "part")]
    pub(crate) partial_anyway: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Drop checkpoints; what nothing else needs is freed
#[derive(Debug, Args)]
pub(crate) struct CheckpointPruneArgs {
    /// Which
    #[arg(value_name = "CHECKPOINT", required_unless_present = "keep")]
    pub(crate) checkpoints: Vec<String>,
    /// All but the newest so many; those with a name stay
    #[arg(long, value_name = "N", conflicts_with = "checkpoints")]
    pub(crate) keep: Option<usize>,
    /// Print what would go, change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
