//! The host's side of replication: what changed, what a replica's writes come to, and what is remembered of replicas.

use super::Workspace;
use super::replica_types::{
    Answer, HostPlace, PushChanges, PushLimits, ReplicaNews, ReplicaRow, WriteBack,
};
use crate::error::Result;
use crate::id::{ReplicaId, Seq};
use crate::path::WorkspacePath;
use crate::replica::Place;
use crate::store::ContentStorage;

/// A workspace's tree at one place, with hashed directories; made in one pass over the known state.
///
/// Implements [`Tree`](crate::replica::Tree), for either side of a resync.
pub struct HashedTree {
    /// At which place of the own log.
    pub at: Place,
}

impl Workspace {
    /// Where the log is, and from where on it can tell what changed.
    pub fn replica_place(&self) -> Result<HostPlace> {
        unimplemented!()
    }

    /// What stands at each path that changed after a record, for which `passes` says yes (its second argument is whether
    /// it is a directory); `None` if the log does not hold that any more, so that a resync is needed.
    pub fn changes_for_replica(
        &mut self,
        after: Seq,
        limits: PushLimits,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Result<Option<PushChanges>> {
        let _ = (after, limits, passes);
        unimplemented!()
    }

    /// Takes a batch of writes: decided, written, recorded and remembered in one durable commit.
    ///
    /// The contents of files are looked for in `contents` first, then in the store; whoever calls has made sure that the
    /// replica may name them. A batch that was answered is answered again; an older one is refused.
    pub fn take_writes(
        &mut self,
        request: &WriteBack<'_>,
        contents: &dyn ContentStorage,
    ) -> Result<Answer> {
        let _ = (request, contents);
        unimplemented!()
    }

    /// The replicas that were ever heard of, by name.
    pub fn replicas(&self) -> Result<Vec<ReplicaRow>> {
        unimplemented!()
    }

    /// Remembers news of a replica; a first one makes its row. An acknowledgement of what the log does not have is
    /// refused.
    pub fn note_replica(&mut self, id: &ReplicaId, news: &ReplicaNews) -> Result<()> {
        let _ = (id, news);
        unimplemented!()
    }

    /// Forgets a replica: it holds no history any more. False if there is none.
    pub fn forget_replica(&mut self, id: &ReplicaId) -> Result<bool> {
        let _ = id;
        unimplemented!()
    }

    /// The whole tree that is known, hashed, of the paths for which `passes` says yes.
    pub fn tree_for_replica(
        &self,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Result<HashedTree> {
        let _ = passes;
        unimplemented!()
    }
}
