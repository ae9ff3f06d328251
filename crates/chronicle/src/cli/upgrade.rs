//! The verb for those who exchange the program.

use clap::Args;

/// Say whether this program can take a home over: what it reads, what it would migrate, what is newer
///
/// Run it with the program that is to be put in place, before it is. It looks at every workspace of the home and
/// writes nothing. Exit 0 if it can, 3 if a newer Chronicle wrote something or room is missing, 12 if something is damaged.
#[derive(Debug, Args)]
pub(crate) struct UpgradeCheckArgs {
    /// Ask the home's bucket too
    #[arg(long)]
    pub(crate) bucket: bool,
    /// List the formats that this program reads and writes, and look at no home
    #[arg(long, conflicts_with = "bucket")]
    pub(crate) formats: bool,
}
