//! Replicas and rejected writes as callers and `--json` see them.

use super::Workspace;
use super::replica_types::Conflict;
use super::views::timestamp;
use crate::catalog::Log;
use crate::error::Result;
use crate::replica::Version;
use crate::view::{RejectedView, ReplicaView, SCHEMA};

impl Workspace {
    /// The replicas that were ever heard of, by name.
    pub fn replica_views(&self) -> Result<Vec<ReplicaView>> {
        let (head, epoch) = (self.catalog.head()?.seq, self.catalog.epoch());
        let view = |row: super::ReplicaRow| {
            let acknowledged = row.acknowledged.filter(|place| place.epoch == epoch);
            let acknowledged = acknowledged.map(|place| place.seq.0);
            ReplicaView {
                schema: SCHEMA,
                id: row.id.hex(),
                name: row.name,
                acknowledged,
                behind: head.0.saturating_sub(acknowledged.unwrap_or(0)),
                seen_at: timestamp(row.seen),
                sent_bytes: row.sent,
                received_bytes: row.received,
                last_batch: row.batch,
                conflicts: row.conflicts,
            }
        };
        Ok(self.replicas()?.into_iter().map(view).collect())
    }

    /// One rejected write.
    pub fn rejected_view(&self, conflict: &Conflict) -> Result<RejectedView> {
        let object = |version: &Version| version.object().map(|object| object.hex());
        Ok(RejectedView {
            schema: SCHEMA,
            id: conflict.id.to_string(),
            short_id: conflict.id.short(),
            path: conflict.path.to_string(),
            code: conflict.reason.code().to_owned(),
            reason: conflict.reason.words().to_owned(),
            base_kind: conflict.base.kind().to_owned(),
            mine_kind: conflict.mine.kind().to_owned(),
            theirs_kind: conflict.theirs.as_ref().map(|theirs| theirs.kind().to_owned()),
            base_object: object(&conflict.base),
            mine_object: object(&conflict.mine),
            theirs_object: conflict.theirs.as_ref().and_then(object),
            host_seq: conflict.seq.0,
            answered_at: timestamp(conflict.time),
            mergeable: self.merged_conflict(conflict)?.is_some(),
        })
    }
}
