//! What a host and a replica remember and tell of replication.

use crate::fs::Roots;
use crate::id::{ObjectId, ReplicaId, Seq, SnapshotId, Time, WorkspaceId};
use crate::path::WorkspacePath;
use crate::replica::{Admission, Item, LeftAlone, Place, Rejection, Verdict, Version, Write};

/// Where a host's log is, and from where on it can still tell what changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPlace {
    /// The end of the log.
    pub head: Place,
    /// Changes after this record, and after every later one, can be told; `changes_for_replica` says so of
    /// each single one.
    pub oldest: Seq,
}

/// How much one push holds at most.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// Items; one record is never divided, so that it may be some more.
    pub items: usize,
    /// Bytes of items on the wire, about.
    pub bytes: usize,
    /// Contents up to this size count among them: they travel inside.
    pub content: u64,
}

/// What changed in a host's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushChanges {
    /// Up to which record.
    pub to: Place,
    /// What stands at each path that changed, in the order of the paths.
    pub items: Vec<Item>,
    /// Whether there is more after `to`.
    pub more: bool,
}

/// A batch of a replica's writes.
pub struct WriteBack<'a> {
    /// Whose.
    pub replica: ReplicaId,
    /// Its name: the session in whose name the writes are recorded.
    pub name: &'a str,
    /// Its number; larger than that of every batch before it, equal if it is sent again.
    pub batch: u64,
    /// The writes.
    pub writes: &'a [Write],
    /// Whether a path may be written by this replica; the second argument is whether it is a directory.
    pub admit: &'a dyn Fn(&WorkspacePath, bool) -> Admission,
    /// Whether one of the two sides does not tell case and Unicode form apart.
    pub folds: bool,
}

/// What a host made of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The number of the batch.
    pub batch: u64,
    /// One for each write, in order.
    pub verdicts: Vec<Verdict>,
    /// The end of the host's log after it.
    pub head: Place,
    /// Whether it had been answered before, and nothing was done now.
    pub repeated: bool,
}

/// What a host remembers of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Whose.
    pub id: ReplicaId,
    /// Its name.
    pub name: String,
    /// Up to where it has everything, durably; `None` before its first acknowledgement.
    pub acknowledged: Option<Place>,
    /// When it was last heard of.
    pub seen: Time,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes got from it.
    pub received: u64,
    /// The number of its last batch.
    pub batch: u64,
    /// Conflicts that it said it has.
    pub conflicts: u64,
}

/// News of a replica, for its row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaNews {
    /// Its name, if it has another now.
    pub name: Option<String>,
    /// What it acknowledged.
    pub acknowledged: Option<Place>,
    /// Bytes sent to it since the last news.
    pub sent: u64,
    /// Bytes got from it since the last news.
    pub received: u64,
    /// Conflicts that it said it has.
    pub conflicts: Option<u64>,
}

/// Whose replica a workspace is, and how far both directions are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    /// Its own id, made when it became one.
    pub id: ReplicaId,
    /// Its name.
    pub name: String,
    /// The host's workspace.
    pub of: WorkspaceId,
    /// Where the host is reached, as people wrote it.
    pub from: String,
    /// Up to where the host's log is applied here; `None` before the first push.
    pub applied: Option<Place>,
    /// Writes in records up to this one of the own log are answered.
    pub mark: Seq,
    /// The number of the last batch that was made.
    pub batch: u64,
    /// Whether that batch is under way: made and not answered.
    pub under_way: bool,
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushReport {
    /// Paths that were written.
    pub written: u64,
    /// Paths at which the host's version stood already.
    pub equal: u64,
    /// What was left as it is, and why.
    pub left: Vec<LeftAlone>,
    /// What somebody changed while it was written: it was put back, and is tried again with the next push.
    pub unexpected: Vec<(WorkspacePath, String)>,
    /// Contents that are needed for what was left alone earlier, and are not here.
    pub wanted: Vec<ObjectId>,
    /// The push was applied before, and nothing was done.
    pub repeated: bool,
}

/// Writes to send, in a batch that stays the same until it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalBatch {
    /// Its number.
    pub number: u64,
    /// The writes; never none.
    pub writes: Vec<Write>,
    /// The last record of the own log that it covers.
    pub up_to: Seq,
}

/// What became of a batch here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answered {
    /// Writes that the host took.
    pub accepted: u64,
    /// The conflicts that the others became.
    pub conflicts: Vec<Conflict>,
    /// What putting the host's versions in place came to.
    pub put: PushReport,
}

/// A write that the host did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Names it; it is the snapshot that says so in the log.
    pub id: SnapshotId,
    /// Where.
    pub path: WorkspacePath,
    /// What the write was made on.
    pub base: Version,
    /// What it put there.
    pub mine: Version,
    /// What stands there for the host; `None` if it does not tell.
    pub theirs: Option<Version>,
    /// Why it was not taken.
    pub reason: Rejection,
    /// The host's record that put `theirs` there.
    pub seq: Seq,
    /// When the answer came.
    pub time: Time,
}

/// What to do about a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Write mine on top of what stands there.
    KeepMine,
    /// Leave what stands there.
    TakeTheirs,
    /// Write the merge of both, if the three merge by lines without a clash.
    Merge,
    /// Send the same write again, if what it was made on stands there again.
    Retry,
}

/// What pushes wrote that is in the machine's memory and may not be on its disk yet.
pub struct Unsynced {
    /// The end of the log, behind all of it.
    pub(super) up_to: Seq,
    pub(super) roots: Roots,
    pub(super) paths: Vec<WorkspacePath>,
}
