//! What travels: frames of bounded length, each with one encoding. `docs/protocol.md` says it byte by byte.
//!
//! Decoding trusts nothing: every length is checked against what is left before anything is allocated, every other
//! encoding than ours is refused, and nothing panics. A path that could leave the workspace does not decode.

mod codec;
mod framer;
#[cfg(test)]
mod tests;

use chronicle_core::replica::{Item, Node, Place, Verdict, Write};
use chronicle_core::{DecodeError, Epoch, ObjectId, Piece, Seq, WorkspaceId, WorkspacePath};

pub use chronicle_core::ReplicaId;
pub use codec::{decode, encode};
pub use framer::{Framer, frame_length};

/// What a connection begins with, so that nobody takes it for something else.
pub const MAGIC: &[u8; 8] = b"chr-repl";

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The length before a frame is beyond what a frame may have.
    #[error("a frame of {0} bytes is longer than any may be")]
    TooLong(usize),
    /// A length of nothing.
    #[error("a frame is empty")]
    Empty,
    /// The fields are not what a frame of its type has.
    #[error("a frame is not understood: {0}")]
    Fields(#[from] DecodeError),
}

/// Which way something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the host to its replicas.
    Push,
    /// From a replica to its host.
    WriteBack,
}

/// One frame. The first byte of its encoding is its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The sandbox begins.
    Hello(Hello),
    /// A Hello of versions that are not spoken here; nothing else of it is known.
    ForeignHello(Versions),
    /// The host lets it in.
    Welcome(Welcome),
    /// The host does not, and the link ends.
    Refused(Refused),
    /// What stands at paths of the host.
    Push(Push),
    /// What a replica has applied and made durable.
    Ack(Ack),
    /// A part of a batch of a replica's writes.
    WriteBack(WriteBack),
    /// What the host made of a batch.
    WriteBackResult(WriteBackResult),
    /// Still there; and how far its log is, or what it has applied.
    Heartbeat(Heartbeat),
    /// The replica is here and wants everything after it.
    CatchupRequest(CatchupRequest),
    /// The log does not reach that far back: compare trees.
    FullResyncRequired(FullResyncRequired),
    /// What stands in these directories?
    TreeRequest(TreeRequest),
    /// This, or a part of it.
    TreeListing(TreeListing),
    /// Which pieces make this object?
    ManifestRequest(Wanted),
    /// These, or a part of them.
    Manifest(Manifest),
    /// Send these runs of contents.
    Fetch(Fetch),
    /// A run of content.
    Content(Content),
    /// An object cannot be had.
    Missing(ObjectId),
    /// The sender's rules for a direction changed.
    FilterSet(FilterSet),
    /// The sender closes the link, and why.
    Goodbye(Goodbye),
}

/// The versions of the protocol that somebody speaks, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Versions {
    /// Those of this program.
    pub const OURS: Self = Self { oldest: crate::OLDEST_VERSION, newest: crate::NEWEST_VERSION };

    /// The newest that both speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest.max(other.oldest)).then_some(version)
    }
}

/// The feature of a sandbox that wants pushes without contents: it asks for those that somebody reads.
pub const BARE_PUSHES: u64 = 1;

/// What a sandbox says first. Up to the versions its layout never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Which versions it speaks.
    pub versions: Versions,
    /// What else it can, one bit each; unknown bits mean nothing.
    pub features: u64,
    /// What lets it in; empty where the kernel vouches for it.
    pub token: Vec<u8>,
    /// Which workspace it is a replica of, if it knows.
    pub workspace: Option<WorkspaceId>,
    /// Which replica.
    pub replica: ReplicaId,
    /// What people call it.
    pub name: String,
    /// How far it has applied the host's log; none if it never did.
    pub place: Option<Place>,
    /// The last batch whose answer it has kept; 0 if none.
    pub answered: u64,
    /// Whether its file system takes names for the same that differ in case or Unicode form.
    pub folds_names: bool,
}

/// What the host says to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both will speak.
    pub version: u16,
    /// What else the host can.
    pub features: u64,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where its log ends.
    pub place: Place,
    /// Whether this replica may write back.
    pub may_write: bool,
    /// Whether the host's file system takes names for the same that differ in case or Unicode form.
    pub folds_names: bool,
    /// Milliseconds without a frame after which the host sends a heartbeat.
    pub heartbeat_ms: u32,
    /// Requests for content that the host lets be under way.
    pub fetches: u32,
    /// Writes that the host takes in one batch.
    pub batch_writes: u32,
}

/// Why somebody is not let in, as a word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedCode {
    /// No version is spoken by both.
    Version,
    /// The token is not known, or not for this.
    Token,
    /// The workspace is not here.
    Workspace,
    /// There are too many already.
    Busy,
    /// The first frame was no Hello.
    Protocol,
    /// Something failed at the host.
    Failed,
}

/// Not let in. Its layout never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Why, for programs.
    pub code: RefusedCode,
    /// Which versions the host speaks.
    pub versions: Versions,
    /// Why, for people, with the next step.
    pub words: String,
}

/// For everything that changed after `from`, what stands there at `to` or later; a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The life of the log.
    pub epoch: Epoch,
    /// What changed after this record; 0 is everything that stands.
    pub from: Seq,
    /// Who has applied all parts is here.
    pub to: Seq,
    /// Which part this is, from 0.
    pub part: u32,
    /// Whether it is the last.
    pub last: bool,
    /// What stands where.
    pub items: Vec<PushItem>,
}

/// One item of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushItem {
    /// What stands where.
    pub item: Item,
    /// The content, if it is a short file.
    pub inline: Option<Vec<u8>>,
    /// The content in the form in which the host's store has it: it travels instead, and what came so is what its name
    /// says.
    pub stored: Option<Vec<u8>>,
}

impl PushItem {
    /// Bytes of content that travel with it.
    pub fn content_length(&self) -> usize {
        self.stored.as_ref().or(self.inline.as_ref()).map_or(0, Vec::len)
    }

    /// Whether its content travels with it.
    pub fn has_content(&self) -> bool {
        self.stored.is_some() || self.inline.is_some()
    }
}

/// The replica has applied everything up to here, durably (the seed's `up_to_sequence`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Up to here; none if it has not applied any push whole.
    pub up_to: Option<Place>,
    /// And has taken so many parts of the push after that, which are not durable: there is room for more.
    pub parts: u32,
}

/// A part of a batch of writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBack {
    /// The number of the batch, which only grows.
    pub batch: u64,
    /// What the batch is: [`digest_of`] all its writes. The same number with another digest is another batch.
    pub digest: ObjectId,
    /// Which part this is, from 0.
    pub part: u32,
    /// Whether it is the last.
    pub last: bool,
    /// The writes.
    pub writes: Vec<SentWrite>,
}

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentWrite {
    /// The write.
    pub write: Write,
    /// The content, if it is a short file.
    pub inline: Option<Vec<u8>>,
}

/// What the host made of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBackResult {
    /// Which batch.
    pub batch: u64,
    /// Which part this is, from 0.
    pub part: u32,
    /// Whether it is the last.
    pub last: bool,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A verdict for each write, in their order.
    Verdicts(Vec<Verdict>),
    /// This number was used for other writes; the next batch must have a greater one than this.
    Renumber(u64),
}

/// Somebody is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// The end of the host's log, or what the replica has applied.
    pub place: Option<Place>,
    /// The sender's clock, in milliseconds since any moment.
    pub now_ms: u64,
}

/// The replica wants everything after this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchupRequest {
    /// How far it has applied the host's log (the seed's `since_sequence`); none if it never did.
    pub since: Option<Place>,
}

/// Why a replica must compare trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResyncReason {
    /// The log does not reach back to where the replica is.
    TooOld,
    /// The log has begun another life since.
    Epoch,
    /// A filter lets through what it did not before.
    Filters,
}

/// The replica must compare trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullResyncRequired {
    /// Why.
    pub why: ResyncReason,
    /// Where the host's log ends.
    pub place: Place,
}

/// Asks what stands in directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRequest {
    /// Which; the root is the empty path.
    pub paths: Vec<WorkspacePath>,
}

/// What stands in one directory, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeListing {
    /// Which.
    pub path: WorkspacePath,
    /// At which moment, or later.
    pub place: Place,
    /// Which part this is, from 0.
    pub part: u32,
    /// Whether it is the last.
    pub last: bool,
    /// Whether there is such a directory.
    pub found: bool,
    /// What is in it, ordered by name over all parts.
    pub entries: Vec<Node>,
}

/// An object, and why it may be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub object: ObjectId,
    /// A path at which it stands.
    pub path: WorkspacePath,
}

/// Which pieces make an object, or a part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Which object.
    pub object: ObjectId,
    /// Its length.
    pub size: u64,
    /// The number of the first of these pieces.
    pub first: u32,
    /// Whether these are the last.
    pub last: bool,
    /// The pieces, in their order.
    pub pieces: Vec<Piece>,
}

/// Asks for runs of contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// Which.
    pub runs: Vec<Run>,
}

/// A run of an object's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Of which object.
    pub wanted: Wanted,
    /// From which byte.
    pub offset: u64,
    /// How many.
    pub length: u32,
}

/// A run of an object's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Of which object.
    pub object: ObjectId,
    /// From which byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The sender's rules for a direction, as lines of an ignore file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSet {
    /// Which direction.
    pub direction: Direction,
    /// The rules.
    pub rules: Vec<u8>,
}

/// The sender closes the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goodbye {
    /// Why, for people.
    pub words: String,
}

/// What a batch of writes is, so that a number used twice is noticed.
pub fn digest_of<'a>(writes: impl IntoIterator<Item = &'a Write>) -> ObjectId {
    codec::digest_of(writes)
}
