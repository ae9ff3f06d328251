//! A sandbox's side: one session for as long as the process lives, over as many links as it takes.
//!
//! The session applies what the host pushes, sends back what the replica's own log says, and comes back after whatever
//! cuts the link. It is told what is durable when it begins, and after that by the answers to its effects;
//! nothing is acknowledged that was not.
//!
//! Effects may be carried out by other threads and answered in any order, late, or never (a crash).

mod demand;
mod pull;
mod resync;
mod session;
mod write_back;

use std::time::Duration;

use chronicle_core::replica::{Item, Node, Place, Verdict};
use chronicle_core::{ObjectId, Piece, Seq, WorkspaceId, WorkspacePath};

use crate::wire::{
    FilterSet, Frame, PushItem, Refused, ReplicaId, Run, SentWrite, Wanted, Welcome,
};

pub use crate::fetch::Want;
pub use session::SandboxSession;

/// What is durable when a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Which replica.
    pub replica: ReplicaId,
    /// What people call it.
    pub name: String,
    /// What lets it in.
    pub token: Vec<u8>,
    /// Which workspace, once it is known.
    pub workspace: Option<WorkspaceId>,
    /// How far the host's log is applied.
    pub place: Option<Place>,
    /// The last batch whose answer was kept.
    pub answered: u64,
    /// Whether this file system takes names for the same that differ in case or Unicode form.
    pub folds_names: bool,
    /// This side's rules for what is pushed, as lines of an ignore file.
    pub push_rules: Vec<u8>,
    /// This side's rules for what is written back.
    pub write_back_rules: Vec<u8>,
}

/// What happens to a sandbox's session.
#[derive(Debug)]
pub enum Event {
    /// Begin; comes once and first.
    Start,
    /// Answers [`Effect::Connect`].
    Connected,
    /// Answers [`Effect::Connect`]; or the link ended later.
    LinkLost(String),
    /// A frame came.
    Frame(Frame),
    /// Bytes came that are no frame; the words say what is wrong with them.
    Garbage(String),
    /// The time that [`Effect::SetTimer`] named has come; also harmless at any other time.
    Tick,
    /// The replica's log has grown by local work. A hint: lost ones cost time only.
    LocalChanges,
    /// Somebody reads files whose contents are at the host: bring these. Without a link it is nothing; a content that came
    /// is answered by [`Effect::PutContent`] or [`Effect::PutPieces`], one that cannot be had by [`Effect::NotToBeHad`].
    Demand(Vec<Want>),
    /// Answers [`Effect::HasContents`] and [`Effect::WhichContents`]: these are not here.
    Lacking {
        /// Of the asked.
        id: u64,
        /// Objects, or pieces, that are not here.
        objects: Vec<ObjectId>,
    },
    /// Answers [`Effect::PutContent`] and [`Effect::PutPieces`]: whether the object is what its name says and is kept.
    ContentPut(ObjectId, bool),
    /// Answers [`Effect::ApplyPush`]: it is durable.
    Applied {
        /// Of the asked.
        id: u64,
    },
    /// Answers [`Effect::ApplyPush`]: it could not be applied now. It is asked for again later.
    NotApplied {
        /// Of the asked.
        id: u64,
        /// Why.
        words: String,
    },
    /// Answers [`Effect::NextBatch`]: the batch, or that there is nothing to send.
    Batch {
        /// Of the asked.
        id: u64,
        /// What to send.
        batch: Option<Batch>,
    },
    /// Answers [`Effect::Answered`]: it is durable.
    AnswerKept {
        /// Of the asked.
        id: u64,
        /// Whether there may be more to send: merges that were made, or the log has grown meanwhile.
        more: bool,
    },
    /// Answers [`Effect::Renumber`]: it is durable.
    Renumbered {
        /// Of the asked.
        id: u64,
    },
    /// Answers [`Effect::ReadContent`]; `None` if it cannot be had.
    ContentRead(Run, Option<Vec<u8>>),
    /// Answers [`Effect::ReadManifest`]; `None` if it cannot be had.
    ManifestRead(Wanted, Option<(u64, Vec<Piece>)>),
    /// Answers [`Effect::CompareTree`].
    Compared {
        /// Of the asked.
        id: u64,
        /// What stands at the host where something else stands here: also, as absent, everything that stands here and not
        /// there, what lies below it first.
        items: Vec<Item>,
        /// Directories below whose digests differ.
        descend: Vec<WorkspacePath>,
    },
    /// This side's rules changed; the host is told.
    FiltersChanged {
        /// Rules for what is pushed.
        push_rules: Vec<u8>,
        /// Rules for what is written back.
        write_back_rules: Vec<u8>,
    },
    /// Compare trees: what is here may not be what was pushed, because filters changed while there was no link.
    Resync,
    /// End it: the process is about to stop.
    Stop,
}

/// A batch of writes. The same number is always the same writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its number, greater than that of every batch before it.
    pub number: u64,
    /// The writes, with the contents of short files.
    pub writes: Vec<SentWrite>,
}

/// What a sandbox's session wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Connect to the host. Answered by [`Event::Connected`] or [`Event::LinkLost`].
    Connect,
    /// Send this. In the order of effects.
    Send(Frame),
    /// Which of these are not here? Answered by [`Event::Lacking`].
    HasContents {
        /// For the answer.
        id: u64,
        /// Objects, or pieces of one.
        objects: Vec<ObjectId>,
    },
    /// Which of these are needed now and not here? Asked by a lazy replica only. Answered by [`Event::Lacking`].
    WhichContents {
        /// For the answer.
        id: u64,
        /// Objects, and where they are to stand.
        wants: Vec<Want>,
    },
    /// The host does not give a content that was demanded. Not answered.
    NotToBeHad(ObjectId),
    /// Keep an object, or a piece of one, whose bytes have this name. Durable at the latest with the push. Answered by
    /// [`Event::ContentPut`].
    PutContent {
        /// Its name.
        object: ObjectId,
        /// Its bytes, which have been compared with the name.
        bytes: Vec<u8>,
    },
    /// Make an object out of pieces that are here, if it then has its name. Answered by [`Event::ContentPut`].
    PutPieces {
        /// Its name.
        object: ObjectId,
        /// Its length.
        size: u64,
        /// Its pieces.
        pieces: Vec<Piece>,
    },
    /// Look, so that local work is in the log, then apply this over it. All contents are here. **Durable** before it is
    /// answered by [`Event::Applied`].
    ApplyPush(ApplyPush),
    /// What is there to send? The same batch until its answer was kept. Its number and how far in the log it goes are **durable**
    /// before it is answered by [`Event::Batch`].
    NextBatch {
        /// For the answer.
        id: u64,
        /// Writes that it may have.
        most: usize,
    },
    /// Keep this answer: what was rejected becomes a conflict, or a merge that is a new write; the mark in the log moves on.
    /// **Durable** before it is answered by [`Event::AnswerKept`]. A batch that was answered before changes nothing.
    Answered {
        /// For the answer.
        id: u64,
        /// Which batch.
        batch: u64,
        /// A verdict for each write.
        verdicts: Vec<Verdict>,
    },
    /// The batch under way must get a number greater than this. **Durable** before it is answered by [`Event::Renumbered`].
    Renumber {
        /// For the answer.
        id: u64,
        /// The last number that the host knows.
        last: u64,
    },
    /// Read a run of content of the batch under way. Answered by [`Event::ContentRead`].
    ReadContent(Run),
    /// Say which pieces make an object of the batch under way. Answered by [`Event::ManifestRead`].
    ReadManifest(Wanted),
    /// Compare what the host has in a directory with what is here, journal aside. Answered by [`Event::Compared`].
    CompareTree {
        /// For the answer.
        id: u64,
        /// Which directory.
        path: WorkspacePath,
        /// At which record of the host's log, or later.
        shown: Seq,
        /// What the host has there, ordered by name; nothing if it has no such directory (any more).
        entries: Option<Vec<Node>>,
    },
    /// The host's own rules for what is pushed or written back, in addition to this side's. Not answered.
    Filter(FilterSet),
    /// The workspace that this is a replica of is now known, and whether it may write back. Not answered.
    Welcomed(Welcome),
    /// The host does not let it in, for people. It tries again, slowly. Not answered.
    Refused(Refused),
    /// Send [`Event::Tick`] at this time; the timer before it is void.
    SetTimer(Duration),
    /// Close the link, if there is one, once everything was sent. The words are for people. The session goes on; nothing
    /// that comes from that link later may be reported to it.
    Disconnect(String),
    /// The session is over.
    Ended,
}

/// What the host has, to be put here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyPush {
    /// For the answer.
    pub id: u64,
    /// What stands where, with the contents of short files, which have been compared with their names.
    pub items: Vec<PushItem>,
    /// At which record of the host's log, or later, the items stand there.
    pub shown: Seq,
    /// Where the replica is once this is durable.
    pub advance: Option<Place>,
    /// It is all that differs, found by comparing trees: what was remembered of the host's versions before is void.
    pub resync: bool,
}
