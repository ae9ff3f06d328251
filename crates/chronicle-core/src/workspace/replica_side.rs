//! The replica's side of replication: pushes come in, the own log goes out, and what the host did not take is kept.

use super::Workspace;
use super::replica_types::{
    Answered, Conflict, JournalBatch, PushReport, ReplicaState, Resolution,
};
use crate::error::Result;
use crate::id::{SnapshotId, WorkspaceId};
use crate::replica::{Item, Place, Verdict};
use crate::store::ContentStorage;

impl Workspace {
    /// Makes this the replica of a host's workspace; again, only name and address change.
    ///
    /// Everything that stands here already is a write to send. The replica of another workspace is refused.
    pub fn become_replica(
        &mut self,
        of: WorkspaceId,
        from: &str,
        name: &str,
    ) -> Result<ReplicaState> {
        let _ = (of, from, name);
        unimplemented!()
    }

    /// Whose replica this is, if it is one.
    pub fn replica_state(&self) -> Result<Option<ReplicaState>> {
        unimplemented!()
    }

    /// Applies a push that shows the host's tree at `to`: durable when it returns.
    ///
    /// Whoever calls has made sure that the replica is where the push begins. Local work that is not recorded is recorded
    /// first. The contents of files are looked for in `contents` first, then in the store.
    pub fn apply_push(
        &mut self,
        items: &[Item],
        to: Place,
        contents: &dyn ContentStorage,
        folds: bool,
    ) -> Result<PushReport> {
        let _ = (items, to, contents, folds);
        unimplemented!()
    }

    /// The writes to send next, at most about so many; `None` if there are none. The same until they are answered.
    ///
    /// Only what is recorded counts: settle before.
    pub fn journal_batch(&mut self, limit: usize) -> Result<Option<JournalBatch>> {
        let _ = limit;
        unimplemented!()
    }

    /// Remembers the host's answer to the batch under way: what was not taken becomes a conflict, and the host's version
    /// is put there if its content is here. An answer to another batch is refused.
    pub fn answered(
        &mut self,
        batch: u64,
        verdicts: &[Verdict],
        contents: &dyn ContentStorage,
    ) -> Result<Answered> {
        let _ = (batch, verdicts, contents);
        unimplemented!()
    }

    /// The writes that the host did not take and nobody has decided about, oldest first.
    pub fn conflicts(&self) -> Result<Vec<Conflict>> {
        unimplemented!()
    }

    /// One of them, by its id or a unique part of it.
    pub fn conflict(&self, id: &str) -> Result<Conflict> {
        let _ = id;
        unimplemented!()
    }

    /// The merge of a conflict's three sides, if they are text and merge without a clash and are all here.
    pub fn merged_conflict(&self, conflict: &Conflict) -> Result<Option<Vec<u8>>> {
        let _ = conflict;
        unimplemented!()
    }

    /// Decides about a conflict; what it writes is an ordinary snapshot, whose id comes back and which can be taken
    /// back. `None` if nothing had to be written.
    pub fn resolve_conflict(&mut self, id: &str, how: Resolution) -> Result<Option<SnapshotId>> {
        let _ = (id, how);
        unimplemented!()
    }
}
