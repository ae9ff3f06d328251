//! The records of the log: what they say, before and after they are bytes.

use crate::codec::DecodeError;
use crate::entry::Change;
use crate::head::PublicKey;
use crate::id::{
    Epoch, LeafHash, LinkHash, ObjectId, Seq, SnapshotId, Time, TransactionId, WorkspaceId,
};

/// What a record says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The log begins: which workspace, which epoch.
    Genesis,
    /// An action is about to start; its changes hold the befores.
    Intent,
    /// What changed; names its intent, if it had one.
    Outcome,
    /// A turn starts.
    TurnStart,
    /// A turn ends.
    TurnEnd,
    /// A transaction starts.
    TransactionStart,
    /// A transaction ends, committed or rolled back.
    TransactionEnd,
    /// Changes were taken back or brought back.
    Rewind,
    /// A pending clone got its hash.
    Resolve,
    /// A moment got a name.
    Pin,
    /// Something irreversible happened outside.
    Effect,
    /// Code and data were frozen as one.
    Checkpoint,
    /// Old history was dropped on purpose.
    Prune,
    /// Content was removed for good on purpose.
    Forget,
    /// Somebody else takes the say over what takes protection away.
    Operator,
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub seq: Seq,
    /// The workspace it belongs to.
    pub workspace: WorkspaceId,
    /// The life of the log it belongs to.
    pub epoch: Epoch,
    /// When it was made, as the machine's clock said.
    pub time: Time,
    /// What it says happened.
    pub kind: Kind,
    /// Everything else it says.
    pub labels: Labels,
    /// The changes it holds; of an intent, the befores.
    pub changes: Vec<Change>,
}

/// What a record says besides its changes. Every field may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    /// The snapshot this record is a part of.
    pub snapshot: Option<SnapshotId>,
    /// The kind of action: `write_file`, `shell`, `external`, `rewind`, ...
    pub action: Option<String>,
    /// The action in words: `write_file: main.go`.
    pub summary: Option<String>,
    /// The agent's tool.
    pub tool: Option<String>,
    /// The agent's own name for the call.
    pub call_id: Option<String>,
    /// The session's key.
    pub session: Option<String>,
    /// Which agent, or sub-agent.
    pub agent: Option<String>,
    /// The turn's number in this workspace.
    pub turn: Option<u64>,
    /// The agent's own name for the turn.
    pub turn_key: Option<String>,
    /// The first line of the prompt.
    pub prompt: Option<String>,
    /// The transaction it belongs to.
    pub transaction: Option<TransactionId>,
    /// The intent that this outcome belongs to.
    pub intent: Option<SnapshotId>,
    /// The capture saw only a part of what it should have seen.
    pub partial: bool,
    /// The transaction ended by rolling back.
    pub rolled_back: bool,
    /// The name of a pin.
    pub name: Option<String>,
    /// The moment that a rewind or a pin is about: just after this record.
    pub target: Option<Seq>,
    /// The rewind that this redo takes back.
    pub redoes: Option<Seq>,
    /// The changes that a rewind took back.
    pub taken_back: Vec<ChangeRef>,
    /// The changes that a rewind brought back.
    pub brought_back: Vec<ChangeRef>,
    /// The turn or call was told of by an agent's hook, so that its window is the call and not the
    /// turn, and its end may have to be inferred.
    pub by_hook: bool,
    /// Which of the session's sub-agents.
    pub sub_agent: Option<String>,
    /// A change was put aside instead of deleted, or anything else worth telling for ever.
    pub note: Option<String>,
    /// The records that a prune dropped or made one, in order.
    pub pruned: Vec<Pruned>,
    /// Why a prune or a forget took place and by which rules, in words.
    pub policy: Option<String>,
    /// The changes that a forget made say less, in the order of its own changes.
    pub forgotten: Vec<ChangeRef>,
    /// Whose grant is needed from here on.
    pub operator: Option<PublicKey>,
    /// The operator's grant for what this record does.
    pub grant: Option<String>,
    /// What a checkpoint holds.
    pub checkpoint: Option<Checkpointed>,
}

/// What a checkpoint holds, by the names of contents in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpointed {
    /// Its lock file.
    pub lock: ObjectId,
    /// The list of all contents that it needs.
    pub contents: ObjectId,
}

impl Checkpointed {
    /// Reads the two names, one behind the other.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let malformed = || DecodeError::Malformed("what a checkpoint holds has the wrong length");
        let (lock, contents) = bytes.split_at_checked(32).ok_or_else(malformed)?;
        let id = |bytes| ObjectId::from_slice(bytes).ok_or_else(malformed);
        Ok(Self { lock: id(lock)?, contents: id(contents)? })
    }
}

/// Neighbouring records that a prune dropped or made one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// How many changes of the prune record stand for them, from where the range before ended; `None`
    /// if nothing does, because nothing before `last` can be reached any more.
    pub merged: Option<u32>,
}

impl Pruned {
    /// Whether a record is one of them.
    pub fn holds(&self, seq: Seq) -> bool {
        self.first <= seq && seq <= self.last
    }
}

/// Names one change: the record and the change's place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeRef {
    /// The record.
    pub seq: Seq,
    /// The place in it, from 0.
    pub index: u32,
}

/// A record as bytes, with its place in the chain.
///
/// `leaf` is what the chain covers: the header and one salted commitment per change. `body` holds
/// the salts and the changes; it may be dropped later (pruned, forgotten) while the chain still
/// verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The record's position.
    pub seq: Seq,
    /// The bytes that the chain covers.
    pub leaf: Vec<u8>,
    /// Salts and changes, one after the other.
    pub body: Vec<u8>,
    /// The hash of `leaf`.
    pub leaf_hash: LeafHash,
    /// The hash of the link before and `leaf_hash`.
    pub link: LinkHash,
}

/// Where a log ends: what the next record must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last record's position; 0 for an empty log.
    pub seq: Seq,
    /// The last record's link; zeros for an empty log.
    pub link: LinkHash,
}

impl Head {
    /// The head of an empty log.
    pub const EMPTY: Self = Self { seq: Seq(0), link: LinkHash::ZERO };
}
