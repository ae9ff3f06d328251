//! What an isolated run leaves on disk: its directory, its state and the layer that holds its work.
//!
//! Everything here lies in a directory of the run below the home and never touches a workspace.
//! What the layer means for the workspace, and bringing it there, is `workspace::isolated`.

mod frozen;
mod layer;
mod living;
mod remove;
mod state;
mod support;

use std::path::{Path, PathBuf};

pub(crate) use frozen::freeze;
pub(crate) use layer::{Item, Layer, What, holds_more_than, plain_xattrs};
pub(crate) use living::first_process_lives;
pub use living::tell_first_process;
pub(crate) use remove::remove_tree;
pub(crate) use state::{MAGIC as STATE_MAGIC, Stage, State};
pub(crate) use support::{hindrance, is_overlay, uses_user_xattrs};

use crate::id::SnapshotId;

/// Put before the name of a run's directory that is being removed.
pub(crate) const GOING: &str = "going-";

/// The directory of one run and the places in it.
#[derive(Debug, Clone)]
pub(crate) struct RunPlace(PathBuf);

impl RunPlace {
    /// Where a run lies among the others.
    pub(crate) fn new(runs: &Path, id: &SnapshotId) -> Self {
        Self(runs.join(id.hex()))
    }

    /// The directory itself.
    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// Held by the process that runs the command, for as long as it lives.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The layer that takes what the command writes.
    pub(crate) fn upper(&self) -> PathBuf {
        self.0.join("upper")
    }

    /// The workspace as it was when the command started, where it can be had.
    pub(crate) fn frozen(&self) -> PathBuf {
        self.0.join("frozen")
    }

    /// What the kernel needs beside the layer.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Which process is the first in the run's namespaces, in words.
    pub(crate) fn first(&self) -> PathBuf {
        self.0.join("first")
    }

    /// The command's exit status, in words. Not durable: who lost it knows only that the command is over.
    pub(crate) fn ended(&self) -> PathBuf {
        self.0.join("ended")
    }

    /// How the command ended, if anybody came to saying so.
    pub(crate) fn status(&self) -> Option<u8> {
        std::fs::read_to_string(self.ended()).ok()?.trim().parse().ok()
    }

    /// Why the kernel refused to isolate, in words; there only if it did.
    pub(crate) fn refused(&self) -> PathBuf {
        self.0.join("refused")
    }
}
