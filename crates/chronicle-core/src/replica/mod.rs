//! What replication decides, without a link and without a disk: which writes of a replica a host takes, and
//! what a replica makes of a push. See `docs/decisions/0022-replication.md`.
//!
//! Pure: states in, decisions out. The workspace calls it under its lock, and the simulation calls the same.

use crate::id::{Epoch, ObjectId, Seq};
use crate::path::WorkspacePath;

/// A position in a host's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The life of the log.
    pub epoch: Epoch,
    /// The last record that counts.
    pub seq: Seq,
}

/// What stands at a path, as far as it travels: owners, hard links and holes stay home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// The hash of its bytes.
        object: ObjectId,
        /// Its length.
        size: u64,
        /// Permission bits, without setuid and setgid.
        mode: u32,
        /// Modification time, nanoseconds since 1970.
        mtime_ns: i64,
    },
    /// A directory itself.
    Directory {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, as written.
        target: Vec<u8>,
    },
}

/// What stands at one path of the host by a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where.
    pub path: WorkspacePath,
    /// The record that put it there.
    pub seq: Seq,
    /// What.
    pub version: Version,
}

/// One write of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub path: WorkspacePath,
    /// What it was made on.
    pub base: Version,
    /// What it put there.
    pub after: Version,
    /// How far the replica had seen the host's log (the seed's `master_rowid_seen`).
    pub seen: Seq,
    /// Writes of one batch with the same number are taken together or not at all.
    pub group: u32,
}

/// What a host makes of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It stands there now, by this record.
    Accepted(Seq),
    /// It was not taken.
    Rejected {
        /// Why.
        reason: Rejection,
        /// What stands there.
        theirs: Version,
        /// By which record.
        seq: Seq,
    },
}

/// Why a write is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Something else stands there than what it was made on.
    Changed,
    /// What should hold it is no directory.
    Parent,
    /// A directory that should go holds something that the replica has not seen.
    NotEmpty,
    /// Another write of its group was rejected.
    Group,
    /// The direction's filter names it.
    Filtered,
    /// It may not be written by this replica, or never travels.
    NotAllowed,
    /// A name there differs only in case or in Unicode form.
    Folded,
    /// The host does not know what stands there.
    Unknown,
}
