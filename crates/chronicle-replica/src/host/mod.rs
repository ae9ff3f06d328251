//! The host's side of one connection.
//!
//! One session per connection, made when somebody connects and dropped when [`Effect::Close`] was carried out or
//! the link is gone. A session holds no content and no list of paths: a push is made from the log when the replica has
//! room for it, so that one that is far behind or idle costs next to nothing.
//!
//! Effects may be carried out by other threads and answered in any order, late, or never. Whatever is durable is
//! made so by the effect that says so, before its answer.

mod session;
mod write_back;

use std::sync::Arc;
use std::time::Duration;

use chronicle_core::replica::{Node, Place, Verdict};
use chronicle_core::{ObjectId, Piece, Seq, WorkspaceId, WorkspacePath};

use crate::filter::Filters;
use crate::wire::{FilterSet, Frame, Hello, PushItem, Refused, Run, SentWrite, Wanted};

pub use session::HostSession;

/// What happens to a host's session.
#[derive(Debug)]
pub enum Event {
    /// A frame came.
    Frame(Frame),
    /// Bytes came that are no frame; the words say what is wrong with them.
    Garbage(String),
    /// The time that [`Effect::SetTimer`] named has come; also harmless at any other time.
    Tick,
    /// Answers [`Effect::Admit`]: it may come in.
    Admitted(Admission),
    /// Answers [`Effect::Admit`]: it may not.
    Denied(Refused),
    /// The log has grown, or begun another life. A hint: lost ones cost time only.
    LogGrew(Place),
    /// Answers [`Effect::ReadLog`].
    LogRead(LogRead),
    /// Answers [`Effect::ReadTree`], once for each path, in any order.
    TreeRead(TreeRead),
    /// Answers [`Effect::ReadContent`]; `None` if it may not or cannot be had.
    ContentRead(Run, Option<Vec<u8>>),
    /// Answers [`Effect::ReadManifest`]; `None` if it may not or cannot be had.
    ManifestRead(Wanted, Option<(u64, Vec<Piece>)>),
    /// Answers [`Effect::Lacking`]: these must be sent.
    Lacking {
        /// Of the asked.
        id: u64,
        /// Objects, or pieces, that the replica must send.
        objects: Vec<ObjectId>,
    },
    /// Answers [`Effect::PutContent`] and [`Effect::PutPieces`]: whether the object is what its name says and is kept.
    ContentPut(ObjectId, bool),
    /// Answers [`Effect::TakeWrites`].
    WritesTaken(WritesTaken),
    /// The host's own filters were exchanged for others; `wider` if something goes now that did not before.
    FiltersChanged {
        /// Whether replicas must compare trees.
        wider: bool,
    },
    /// The operator wants it gone: revoked, or the server ends.
    Dismiss(String),
}

/// Who was let in, and to what.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where its log ends.
    pub place: Place,
    /// Whether the replica may write back.
    pub may_write: bool,
    /// Whether the host's file system takes names for the same that differ in case or Unicode form.
    pub folds_names: bool,
    /// The host's own filters.
    pub filters: Arc<Filters>,
}

/// What [`Effect::ReadLog`] found.
#[derive(Debug)]
pub enum LogRead {
    /// What stands at paths that changed.
    Part(LogPart),
    /// The log does not reach back to `from`.
    TooOld(Place),
    /// The workspace could not be read; the link is closed with these words.
    Failed(String),
}

/// A part of what changed after a record.
#[derive(Debug)]
pub struct LogPart {
    /// Who has applied all parts is here. All parts of one push have the same.
    pub to: Place,
    /// What stands at each path that changed after `from` and up to `to`: now, which may be later than `to`. In the order
    /// of paths, without what the filters keep out and with the content of short files. About
    /// [`GATHERED`](crate::limits::GATHERED) bytes are best; more are sent in several frames.
    pub items: Vec<PushItem>,
    /// Whether more paths follow up to the same `to`; the next part begins after the last item's path. Where a range of
    /// records is read whole this is false, and what comes after `to` is asked for by itself.
    pub more: bool,
}

/// What [`Effect::ReadTree`] found.
#[derive(Debug)]
pub struct TreeRead {
    /// Which directory.
    pub path: WorkspacePath,
    /// Where the log ended before it was read.
    pub place: Place,
    /// What is in it, ordered by name, without what the filters keep out; `None` if there is no such directory.
    pub entries: Option<Vec<Node>>,
}

/// What [`Effect::TakeWrites`] did.
#[derive(Debug)]
pub enum WritesTaken {
    /// The batch is answered, now or long ago: a verdict for each write.
    Answered {
        /// Which batch.
        batch: u64,
        /// In the order of its writes.
        verdicts: Vec<Verdict>,
    },
    /// The number is that of other writes, or older than the last: the replica must use one greater than this.
    Renumber {
        /// Which batch.
        batch: u64,
        /// The last number that was used.
        last: u64,
    },
    /// It could not be done; the link is closed with these words, and the replica sends the batch again.
    Failed(String),
}

/// What a host's session wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send this. In the order of effects.
    Send(Frame),
    /// Check token, workspace and room. Answered by [`Event::Admitted`] or [`Event::Denied`].
    Admit(Box<Hello>),
    /// Read what changed. Answered by [`Event::LogRead`].
    ReadLog(ReadLog),
    /// Read these directories. Answered by an [`Event::TreeRead`] for each.
    ReadTree(Vec<WorkspacePath>),
    /// Read a run of content. If it was not `offered`, only if the object stands at the path now and goes to this
    /// replica. Answered by [`Event::ContentRead`].
    ReadContent {
        /// What.
        run: Run,
        /// Whether this connection has offered the object.
        offered: bool,
    },
    /// Say which pieces make an object. If it was not `offered`, as above. Answered by [`Event::ManifestRead`].
    ReadManifest {
        /// What.
        wanted: Wanted,
        /// Whether this connection has offered the object.
        offered: bool,
    },
    /// Which of these must the replica send? All but those which the host gave to this replica or got from it, and which
    /// are still here. Answered by [`Event::Lacking`].
    Lacking {
        /// For the answer.
        id: u64,
        /// Objects, or pieces of one.
        objects: Vec<ObjectId>,
        /// Of pieces: what stood at the path before, whose pieces the replica has if that object is its own.
        base: Option<ObjectId>,
    },
    /// Keep an object, or a piece of one, whose bytes have this name. Durable at the latest with the batch. Answered by
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
    /// Judge these writes, do what is taken, and commit that with number, digest and answer of the batch. **Durable** before
    /// it is answered. The same number with the same digest is answered as before. Answered by [`Event::WritesTaken`].
    TakeWrites(TakeWrites),
    /// How far the replica is; for people, and for what history must be kept. Not answered.
    Progress(Option<Place>),
    /// The replica's own rules for what is pushed or written back, in addition to the host's. Not answered; later reads
    /// heed it.
    Filter(FilterSet),
    /// Send [`Event::Tick`] at this time; the timer before it is void.
    SetTimer(Duration),
    /// Close the link once everything was sent, and drop the session. The words are for the operator.
    Close(String),
}

/// Which part of the log to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLog {
    /// What changed after this, also what is absent since; none is everything that stands, for who has nothing.
    pub from: Option<Seq>,
    /// Of a push that has begun: where it ends, and the path after which to go on.
    pub going_on: Option<(Place, WorkspacePath)>,
}

/// A batch that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeWrites {
    /// Its number.
    pub batch: u64,
    /// What it is.
    pub digest: ObjectId,
    /// The writes, with the contents of short files, which have been compared with their names.
    pub writes: Vec<SentWrite>,
    /// Contents that the replica could not send: writes that need them are rejected as not allowed.
    pub missing: Vec<ObjectId>,
}
