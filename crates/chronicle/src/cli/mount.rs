//! The verbs of the mount.

use std::path::PathBuf;

use clap::Args;

use super::logging::LoggingArgs;

/// Mount the workspace at another place, where every change of every process is in the log
///
/// The files stay ordinary files in their directory; MOUNTPOINT shows them, and whatever a process does
/// there is kept before it takes effect, also what lives only for a moment. The past is in
/// MOUNTPOINT/.chronicle: at/TARGET is the whole tree at a moment, query/PATH tells the versions of a file.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The workspace, if it is not the one around the current directory, and an empty directory
    #[arg(value_names = ["DIR", "MOUNTPOINT"], num_args = 1..=2, required = true)]
    pub(crate) places: Vec<PathBuf>,
    /// Stay in this process instead of starting one in the background
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Let other users in too, with the rights that the files give them
    #[arg(long)]
    pub(crate) allow_other: bool,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}

/// End a mount
#[derive(Debug, Args)]
pub(crate) struct UnmountArgs {
    /// Where it is, or its workspace; otherwise that around the current directory
    pub(crate) place: Option<PathBuf>,
    /// Also if somebody still uses it
    #[arg(long)]
    pub(crate) force: bool,
}
