//! The kinds of failure that a caller may branch on.

use std::path::PathBuf;

use crate::codec::DecodeError;
use crate::id::{ObjectId, Seq};
use crate::path::{InvalidPath, WorkspacePath};

/// What went wrong, with the thing it went wrong with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No workspace was adopted here or above.
    #[error("No workspace at {}", .0.display())]
    NoWorkspace(PathBuf),
    /// A workspace cannot lie inside another, nor hold the store.
    #[error("Cannot adopt {}: {why}", .path.display())]
    CannotAdopt {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The root, or a mount below it, is not the one that was recorded.
    #[error("Workspace {} is not the directory that was recorded: it was replaced, moved or unmounted", .0.display())]
    RootReplaced(PathBuf),
    /// A target does not name any moment.
    #[error("No moment is called {0:?}")]
    UnknownTarget(String),
    /// A part of an id fits several.
    #[error("{given:?} fits several: {}", .candidates.join(", "))]
    Ambiguous {
        /// What was given.
        given: String,
        /// What it fits.
        candidates: Vec<String>,
    },
    /// A path that lies under no root.
    #[error("Path {} lies outside the workspace and every protected root", .0.display())]
    OutsideRoots(PathBuf),
    /// A path that leads through a symbolic link.
    #[error("Path {0} leads through a symbolic link")]
    ThroughSymlink(WorkspacePath),
    /// A path that could not be one.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// Words that do not make sense together.
    #[error("{0}")]
    Usage(String),
    /// What an action is about to touch could not be saved before it.
    #[error("Could not save {path} before the action: {why}")]
    NotCaptured {
        /// The path.
        path: WorkspacePath,
        /// Why, in words.
        why: &'static str,
    },
    /// Somebody else holds the workspace.
    #[error("Workspace is busy: {0}")]
    Busy(String),
    /// The rewind stopped before it changed anything.
    #[error("{0}")]
    Stopped(Stop),
    /// An object's bytes are not the ones its name says.
    #[error("Object {object} is corrupt: {why}")]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// What was found.
        why: String,
    },
    /// An object is not in the store.
    #[error("Object {0} is not in the store")]
    Missing(ObjectId),
    /// A record cannot be read.
    #[error("Could not read record {seq}")]
    Record {
        /// Its position.
        seq: Seq,
        /// The cause.
        source: DecodeError,
    },
    /// The log does not verify.
    #[error("History does not verify at record {seq}: {why}")]
    Tampered {
        /// The first bad record.
        seq: Seq,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else appended first; look again.
    #[error("Log moved on from record {expected} to {found}")]
    Moved {
        /// Where the caller thought the log ended.
        expected: Seq,
        /// Where it ends.
        found: Seq,
    },
    /// A newer program wrote this.
    #[error("{what} has format version {found}, this program knows up to {known}")]
    Newer {
        /// The thing.
        what: String,
        /// Its version.
        found: u64,
        /// The newest version known here.
        known: u64,
    },
    /// The catalog cannot be read or written.
    #[error("Could not use the catalog {}", .path.display())]
    Catalog {
        /// The database file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The disk, the quota or the budget is full.
    #[error("No space left to write {}", .0.display())]
    NoSpace(PathBuf),
    /// The operating system refused.
    #[error("Could not {action} {}", .path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The person interrupted.
    #[error("Cancelled")]
    Cancelled,
}

/// Why a rewind stopped with nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Two sides changed the same thing.
    #[error("{} in conflict: {}", count(.0.len(), "path is", "paths are"), names(.0))]
    Conflict(Vec<WorkspacePath>),
    /// The workspace is not what the plan was made for.
    #[error("Workspace changed since the plan was made: {}", names(.0))]
    PlanOutdated(Vec<WorkspacePath>),
    /// The repository would stay while its files go back.
    #[error("Repository {0} stays where it is, but HEAD was elsewhere then")]
    RepositoryMoved(WorkspacePath),
    /// Another session with an open turn would be hit.
    #[error("Session {0:?} has an open turn and would be hit")]
    OtherSession(String),
    /// A transaction is active.
    #[error("Transaction {0} is active")]
    ActiveTransaction(String),
    /// Nothing is left to undo or redo.
    #[error("Nothing to {0}")]
    Nothing(&'static str),
    /// A person must confirm, and did not.
    #[error("Not confirmed: {0}")]
    NotConfirmed(String),
    /// An agent asked from inside its own call, and has not shown a plan.
    #[error("An agent's own call may only apply a plan that was shown before")]
    NeedsPlan,
}

fn count(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

fn names(paths: &[WorkspacePath]) -> String {
    let mut names: Vec<_> = paths.iter().take(5).map(ToString::to_string).collect();
    if paths.len() > 5 {
        names.push(format!("and {} more", paths.len() - 5));
    }
    names.join(", ")
}

impl Error {
    /// A stable word for the kind, for JSON and scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoWorkspace(_) => "no_workspace",
            Self::CannotAdopt { .. } => "cannot_adopt",
            Self::RootReplaced(_) => "root_replaced",
            Self::UnknownTarget(_) => "unknown_target",
            Self::Ambiguous { .. } => "ambiguous",
            Self::OutsideRoots(_) => "outside_roots",
            Self::ThroughSymlink(_) => "through_symlink",
            Self::InvalidPath(_) => "invalid_path",
            Self::Usage(_) => "usage",
            Self::NotCaptured { .. } => "not_captured",
            Self::Busy(_) => "busy",
            Self::Stopped(Stop::Conflict(_)) => "conflict",
            Self::Stopped(Stop::PlanOutdated(_)) => "plan_outdated",
            Self::Stopped(Stop::RepositoryMoved(_)) => "repository_moved",
            Self::Stopped(Stop::OtherSession(_)) => "other_session",
            Self::Stopped(Stop::ActiveTransaction(_)) => "active_transaction",
            Self::Stopped(Stop::Nothing(_)) => "nothing_to_do",
            Self::Stopped(Stop::NotConfirmed(_)) => "not_confirmed",
            Self::Stopped(Stop::NeedsPlan) => "needs_plan",
            Self::Corrupt { .. } => "corrupt_object",
            Self::Missing(_) => "missing_object",
            Self::Record { .. } => "corrupt_record",
            Self::Tampered { .. } => "tampered",
            Self::Moved { .. } => "moved",
            Self::Newer { .. } => "newer_format",
            Self::Catalog { .. } => "catalog",
            Self::NoSpace(_) => "no_space",
            Self::Io { .. } => "io",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The result of almost everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Gives an error of the operating system the thing it is about.
pub(crate) trait Context<T> {
    /// Says what was tried, on what.
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|error| {
            let (source, path) = (error.into(), path.into());
            let full = [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT];
            match source.raw_os_error() {
                Some(code) if full.iter().any(|errno| errno.raw_os_error() == code) => {
                    Error::NoSpace(path)
                }
                _ => Error::Io { action, path, source },
            }
        })
    }
}
