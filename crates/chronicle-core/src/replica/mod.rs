//! What replication decides, without a link and without a disk: which writes of a replica a host takes, and
//! what a replica makes of a push. See `docs/decisions/0022-replication.md`.
//!
//! Pure: states in, decisions out. The workspace calls it under its lock, and the simulation calls the same.

mod bytes;
mod digest;
mod fold;
mod judge;
#[cfg(test)]
mod model_tests;
mod names;
mod order;
mod receive;
mod version;

pub use bytes::{
    decode_item, decode_place, decode_verdict, decode_write, encode_item, encode_place,
    encode_verdict, encode_write,
};
pub use digest::{Digest, Listing, Node, ResyncStep, Tree, digest, resync_step};
pub use fold::{Fold, LocalChange, Part, parts};
pub use judge::{Admission, Decision, Judged, Rules, judge};
pub use names::{folded, stays_home};
pub use order::{Step, order};
pub use receive::{LeftAlone, Received, WhyLeft, host_shows, receive};
pub use version::{Owner, merge_conflict};

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
    /// Writes of one batch with the same number are taken together or not at all; 0 stands alone.
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
        /// What stands there; `None` if that is not known, never travels, or is not this replica's business.
        theirs: Option<Version>,
        /// By which record; of a directory that is not empty, the newest record of what it holds.
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

impl Rejection {
    /// Every reason, in the order of their bytes.
    pub const ALL: [Self; 8] = [
        Self::Changed,
        Self::Parent,
        Self::NotEmpty,
        Self::Group,
        Self::Filtered,
        Self::NotAllowed,
        Self::Folded,
        Self::Unknown,
    ];

    /// The stable word of JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Parent => "parent",
            Self::NotEmpty => "not_empty",
            Self::Group => "group",
            Self::Filtered => "filtered",
            Self::NotAllowed => "not_allowed",
            Self::Folded => "folded",
            Self::Unknown => "unknown",
        }
    }

    /// The reason for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Changed => "something else stands there than what it was made on",
            Self::Parent => "what should hold it is no directory",
            Self::NotEmpty => "the directory holds something that was not seen",
            Self::Group => "it belongs to a move of which another part was rejected",
            Self::Filtered => "a filter keeps it out",
            Self::NotAllowed => "it may not be written from here",
            Self::Folded => "a name there differs only in case or in Unicode form",
            Self::Unknown => "the host does not know what stands there",
        }
    }
}

/// What one side knows of its own tree, for decisions.
pub trait Standing {
    /// What stands at a path, and by which record.
    fn at(&self, path: &WorkspacePath) -> Stand;
    /// The record of a path's last change, for people; asked only where it is told.
    fn seq(&self, path: &WorkspacePath) -> Seq {
        self.at(path).seq
    }

    /// Everything that a directory holds, also what is not known, is filtered, or never travels.
    fn children(&self, directory: &WorkspacePath) -> Vec<WorkspacePath>;
}

/// What stands at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stand {
    /// What; `None` if that is not known or never travels, so that it must not be overwritten.
    pub version: Option<Version>,
    /// The record of its last change; 0 if there is none.
    pub seq: Seq,
}
