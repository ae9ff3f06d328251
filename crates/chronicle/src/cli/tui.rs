//! The verb of the terminal interface.

use clap::Args;

/// Look at the workspace in the terminal: turns, diffs, files at any moment, search, taking back
///
/// Follows the log while agents work. `?` lists the keys; nothing changes without a plan that is shown, and a
/// question. Works in any terminal, also over ssh, with sixteen colours or none (NO_COLOR).
#[derive(Debug, Args)]
pub(crate) struct TuiArgs {}
