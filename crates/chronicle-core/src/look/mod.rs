//! Looking at a workspace: what changed since it was last known, found by `lstat` alone.
//!
//! `survey` finds the paths that may have changed and never opens a file; `examine` then reads
//! only those. Neither decides what a change means or whose it is.

mod changes;
mod compare;
mod examine;
mod join;
mod names;
mod paths;
mod queue;
mod read;
mod survey;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use changes::{Changes, Extent, survey_changes};
pub use examine::{ExamineOptions, Examined, examine, examine_all};
pub use paths::survey_paths;
pub(crate) use read::is_racy;
pub use survey::survey;

use crate::clock::{Clock, SystemClock};
use crate::entry::{Entry, Why};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::id::Time;
use crate::known::{Identity, Known, Part, Signature};
use crate::path::WorkspacePath;

/// What a look found, each list ordered by path.
#[derive(Debug, Default)]
pub struct Survey {
    /// Paths that may have changed and must be examined.
    pub candidates: Vec<Candidate>,
    /// Known paths that are proven to be gone.
    pub vanished: Vec<(WorkspacePath, Known)>,
    /// Directories with news, and those that were never listed completely.
    pub listings: Vec<Listing>,
    /// Repositories of which something significant is new, changed or gone.
    pub units: Vec<WorkspacePath>,
    /// What could not be looked at.
    pub problems: Vec<Problem>,
    /// How many entries other than directories were seen.
    pub files: u64,
    /// How many directories were listed.
    pub directories: u64,
}

/// A path that may have changed.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Where.
    pub path: WorkspacePath,
    /// What `lstat` said; `None` where nothing stands or `lstat` was denied.
    pub stat: Option<Stat>,
    /// What was known of it.
    pub was: Option<Known>,
    /// How it takes part in rewinds.
    pub part: Part,
    /// Whether a filter keeps it out, so that it is named but not read.
    pub filtered: bool,
}

impl Candidate {
    /// Whether what was known still holds, so that reading it again would tell nothing new.
    pub fn is_current(&self) -> bool {
        match (&self.was, &self.stat) {
            (Some(was), Some(stat)) => {
                let trusted = was.entry.is_present() && !was.racy && was.part == self.part;
                trusted && was.signature.is_some_and(|known| same_signature(&known, stat))
            }
            (Some(was), None) => was.entry == Entry::Absent,
            (None, _) => false,
        }
    }
}

/// One listing of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The directory.
    pub path: WorkspacePath,
    /// Whether every name was seen, so that a missing one is proven absent.
    pub complete: bool,
    /// When the listing began.
    pub time: Time,
    /// Which file system is mounted here, if it is not its parent's.
    pub mount: Option<Identity>,
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: WorkspacePath,
    /// Why nothing is known of it, or of what lies below.
    pub why: Why,
    /// The cause in words.
    pub detail: String,
}

/// How to look.
#[derive(Clone, Copy)]
pub struct SurveyOptions<'a> {
    /// How many threads walk.
    pub threads: usize,
    /// Tells when each listing began.
    pub clock: &'a dyn Clock,
    /// Set by somebody else to stop early.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Default for SurveyOptions<'_> {
    fn default() -> Self {
        Self { threads: default_threads(), clock: &SystemClock, cancelled: None }
    }
}

/// As many threads as the machine runs at once, up to four: a walk gains nothing from more.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |count| count.get().min(4))
}

/// Whether a stat is the remembered one. The size of a directory says nothing.
fn same_signature(known: &Signature, stat: &Stat) -> bool {
    let now = &stat.signature;
    *known == *now || stat.is_directory() && *known == Signature { size: known.size, ..*now }
}

fn check_cancelled(cancelled: Option<&AtomicBool>) -> Result<()> {
    match cancelled {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Cancelled),
        _ => Ok(()),
    }
}
