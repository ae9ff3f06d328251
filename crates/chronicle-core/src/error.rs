//! The kinds of failure that a caller may branch on.

use std::path::PathBuf;

use crate::codec::DecodeError;
use crate::grant::Act;
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
    /// A path whose content nobody can show: there was no file, or it was not taken in.
    #[error("There is no content of {path}: {why}")]
    NoContent {
        /// The path.
        path: WorkspacePath,
        /// The reason.
        why: String,
    },
    /// What a target names was pruned.
    #[error("{what} was pruned")]
    Pruned {
        /// The moment or record, in words.
        what: String,
        /// The moments nearest to it that can still be reached, as targets.
        nearest: Vec<String>,
    },
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
        /// What was done to it.
        finding: Finding,
        /// What is wrong with it.
        why: String,
    },
    /// Heads cannot be signed.
    #[error("No head can be signed: {0}")]
    Key(String),
    /// Secret content cannot be sealed or opened, because its key cannot be used.
    #[error("The key for secrets cannot be used: {0}")]
    SecretKey(String),
    /// Content that is shown to its owner alone.
    #[error("The content of {0} is secret and is not shown here")]
    Secret(WorkspacePath),
    /// A witness did not take or give a head.
    #[error("Witness {witness}: {why}")]
    Witness {
        /// The witness, as it was named.
        witness: String,
        /// What is wrong.
        why: String,
    },
    /// A git repository did not take what was exported to it.
    #[error("Repository {} did not take the export: {why}", .repository.display())]
    Export {
        /// The repository.
        repository: PathBuf,
        /// What is wrong, in git's words or ours.
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
    /// A settings file cannot be understood.
    #[error("Could not understand {}: {why}", .path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A directory that must not be a pool of copies.
    #[error("Cannot use {} as a pool: {why}", .path.display())]
    Pool {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The history may not take more room.
    #[error("History in {} may take no more room: {why}", .home.display())]
    OverBudget {
        /// The home.
        home: PathBuf,
        /// Which limit is reached.
        why: String,
    },
    /// A command cannot be kept away from the workspace here.
    #[error("Cannot isolate {}: {why}", .root.display())]
    NotIsolated {
        /// The workspace.
        root: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// No isolated run fits what was said.
    #[error("No isolated run {}", .0.as_deref().map_or_else(|| "waits".to_owned(), |id| format!("is called {id:?}")))]
    NoIsolatedRun(Option<String>),
    /// The directory is what an isolated run's command sees, not the workspace itself.
    #[error("{} is seen from inside an isolated run", .0.display())]
    InIsolation(PathBuf),
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

/// What verification found to have been done to history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A record says something else than it did.
    Edited,
    /// A record is gone while later ones are there.
    Deleted,
    /// A record stands where another did, and the later ones were moved.
    Inserted,
    /// Two records stand in each other's place.
    Swapped,
    /// Records stand in another order.
    Reordered,
    /// A record is of another workspace or another life of the log.
    Foreign,
    /// The newest records were cut off.
    Truncated,
    /// The whole history is an older copy.
    RolledBack,
    /// History went another way than a witness saw it go.
    Forked,
    /// Records were made anew with a chain that fits, but no signed head does.
    Rechained,
    /// Heads are signed with another key than they should be.
    OtherKey,
    /// A stored head is not what was signed.
    HeadEdited,
    /// A stored head is gone.
    HeadDropped,
    /// History was dropped or forgotten, and nobody signed that.
    Unsigned,
    /// A record that takes history away, without the grant of the operator who must allow it.
    Ungranted,
    /// A stored node of the Merkle tree is not the hash of what is below it.
    NodeEdited,
    /// A table by which records are found does not say what they say.
    IndexEdited,
    /// A witness no longer shows what was handed over to it.
    WitnessLost,
}

impl Finding {
    /// A stable word for it, for JSON and scripts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Deleted => "deleted",
            Self::Inserted => "inserted",
            Self::Swapped => "swapped",
            Self::Reordered => "reordered",
            Self::Foreign => "foreign",
            Self::Truncated => "truncated",
            Self::RolledBack => "rolled_back",
            Self::Forked => "forked",
            Self::Rechained => "rechained",
            Self::OtherKey => "other_key",
            Self::HeadEdited => "head_edited",
            Self::HeadDropped => "head_dropped",
            Self::Unsigned => "unsigned",
            Self::Ungranted => "ungranted",
            Self::NodeEdited => "node_edited",
            Self::IndexEdited => "index_edited",
            Self::WitnessLost => "witness_lost",
        }
    }
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
    /// An agent asked for what only a person may do.
    #[error("An agent may not {0}")]
    NotAllowed(&'static str),
    /// The operator has not allowed it.
    #[error("Only the operator may allow to {}", .0.words())]
    NeedsOperator(Act),
    /// What should be forgotten stands in the workspace, and would be taken in again.
    #[error("What should be forgotten still stands in the workspace: {}", names(.0))]
    StillThere(Vec<WorkspacePath>),
    /// What should be forgotten is a part of other workspaces' history too.
    #[error("What should be forgotten is needed in other workspaces: {}", .0.join(", "))]
    NeededElsewhere(Vec<String>),
    /// The ref to export to is there, and no earlier export made it.
    #[error("Ref {0} is there and is not an earlier export of this history")]
    ForeignRef(String),
    /// A place outside has records of this log that are not here.
    #[error("{0} has records of this history that are not here")]
    Diverged(String),
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
    /// A record is not where it should be.
    pub(crate) fn missing_record(seq: Seq) -> Self {
        Self::Tampered { seq, finding: Finding::Deleted, why: "the record is missing".to_owned() }
    }

    /// Whether history itself is damaged, rather than out of reach for now.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Tampered { .. }
            | Self::Corrupt { .. }
            | Self::Missing(_)
            | Self::Record { .. } => true,
            Self::Catalog { source, .. } => {
                matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
            }
            _ => false,
        }
    }

    /// A stable word for the kind, for JSON and scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoWorkspace(_) => "no_workspace",
            Self::CannotAdopt { .. } => "cannot_adopt",
            Self::RootReplaced(_) => "root_replaced",
            Self::UnknownTarget(_) => "unknown_target",
            Self::NoContent { .. } => "no_content",
            Self::Pruned { .. } => "pruned",
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
            Self::Stopped(Stop::NotAllowed(_)) => "not_allowed",
            Self::Stopped(Stop::NeedsOperator(_)) => "needs_operator",
            Self::Stopped(Stop::StillThere(_)) => "still_there",
            Self::Stopped(Stop::NeededElsewhere(_)) => "needed_elsewhere",
            Self::Stopped(Stop::ForeignRef(_)) => "foreign_ref",
            Self::Stopped(Stop::Diverged(_)) => "diverged",
            Self::Stopped(Stop::NeedsPlan) => "needs_plan",
            Self::Corrupt { .. } => "corrupt_object",
            Self::Missing(_) => "missing_object",
            Self::Record { .. } => "corrupt_record",
            Self::Tampered { .. } => "tampered",
            Self::Key(_) => "key",
            Self::Secret(_) => "secret",
            Self::SecretKey(_) => "secret_key_missing",
            Self::Witness { .. } => "witness",
            Self::Export { .. } => "export",
            Self::Moved { .. } => "moved",
            Self::Newer { .. } => "newer_format",
            Self::Catalog { .. } => "catalog",
            Self::Settings { .. } => "settings",
            Self::Pool { .. } => "unsafe_pool",
            Self::OverBudget { .. } => "over_budget",
            Self::NotIsolated { .. } => "not_isolated",
            Self::NoIsolatedRun(_) => "no_isolated_run",
            Self::InIsolation(_) => "in_isolation",
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
