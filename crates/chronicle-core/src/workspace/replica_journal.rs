//! The own log as writes to send, and what the host answered to them.

use std::collections::{BTreeMap, BTreeSet};

use super::replica_host::tells_state;
use super::replica_registry::decoded;
use super::replica_side::{Side, encoded, is_push};
use super::replica_types::{Answered, Conflict, JournalBatch};
use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, Durability, Local, LocalState, Log};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::id::{Seq, SnapshotId};
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels, Record};
use crate::replica::{
    Fold, Item, LocalChange, Part, Verdict, Version, Write, decode_write, encode_write, host_shows,
    parts,
};
use crate::store::ContentStorage;

/// The action of records that say what a host did not take.
pub(super) const CONFLICT: &str = "conflict";
/// Records that are read at a time.
const RECORDS: usize = 64;
/// Names that a record about conflicts tells.
const TOLD: usize = 8;

/// A batch that is on its way, and where the mark goes when it is answered.
struct UnderWay {
    mark: Seq,
    part: u64,
    writes: Vec<Write>,
}

impl UnderWay {
    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.int(self.mark.0);
        out.int(self.part);
        out.int(self.writes.len() as u64);
        self.writes.iter().for_each(|write| encode_write(&mut out, write));
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let (mark, part, count) = (Seq(input.int()?), input.int()?, input.count()?);
        let writes = (0..count).map(|_| decode_write(&mut input)).collect::<Result<_, _>>()?;
        input.end()?;
        Ok(Self { mark, part, writes })
    }
}

impl Workspace {
    /// The writes to send next, at most about so many, of the paths for which `passes` says yes; `None` if there are none.
    /// The same until they are answered.
    ///
    /// Only what is recorded counts: settle before.
    pub fn journal_batch(
        &mut self,
        limit: usize,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Result<Option<JournalBatch>> {
        let mut side = self.must_be_replica()?;
        if let Some(under_way) = self.under_way()? {
            return Ok(Some(under_way.batch(side.state.batch)));
        }
        if side.state.mark == self.catalog.head()?.seq {
            return Ok(None);
        }
        let _lock = self.lock(PATIENCE)?;
        side = self.must_be_replica()?;
        let begun = side.clone();
        let next = loop {
            let Some(mut next) = self.next_batch(&side, limit)? else { break None };
            next.writes.retain(|write| {
                passes(&write.path, write.base.is_directory() || write.after.is_directory())
            });
            if !next.writes.is_empty() {
                break Some(next);
            }
            (side.state.mark, side.part) = (next.mark, next.part);
        };
        let Some(next) = next else {
            if side != begun {
                let batch = Batch { state: vec![side.row()], ..Batch::default() };
                self.commit_batch(batch, Durability::ProcessDeath)?;
            }
            return Ok(None);
        };
        (side.state.batch, side.state.under_way) = (side.state.batch + 1, true);
        let state = vec![side.row(), (key::UNDER_WAY, Some(next.encode()))];
        // Durable before it is sent: under the same number it must always be the same.
        self.commit_batch(Batch { state, ..Batch::default() }, Durability::PowerCut)?;
        Ok(Some(next.batch(side.state.batch)))
    }

    /// Gives the batch under way a number greater than this, since the host has used it for other writes.
    pub fn renumber_batch(&mut self, last: u64) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let mut side = self.must_be_replica()?;
        side.state.batch = side.state.batch.max(last.saturating_add(1));
        let batch = Batch { state: vec![side.row()], ..Batch::default() };
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    fn under_way(&self) -> Result<Option<UnderWay>> {
        let bytes = self.catalog.state(key::UNDER_WAY)?;
        bytes.map(|bytes| decoded(UnderWay::decode(&bytes))).transpose()
    }

    /// Folds records behind the mark, up to about so many writes; `None` if there is none.
    fn next_batch(&self, side: &Side, limit: usize) -> Result<Option<UnderWay>> {
        let (mark, seen) = (side.state.mark, side.seen());
        let (mut fold, mut end, mut large) = (Fold::new(limit), mark, None);
        self.for_each_local(mark, &mut |seq, changes| {
            let first = fold.is_empty();
            if !fold.add(&changes) {
                return false;
            }
            end = seq;
            // One record may be more than a batch, and is sent in parts.
            if first && (changes.len() > limit || side.part > 0) {
                large = Some(changes);
                return false;
            }
            true
        })?;
        if end == mark {
            return Ok(None);
        }
        let writes = fold.finish(seen);
        if large.is_none() {
            return Ok(Some(UnderWay { mark: end, part: 0, writes }));
        }
        let from = usize::try_from(side.part).unwrap_or(usize::MAX).min(writes.len());
        let rest = &writes[from..];
        let Some(Part { end: count, .. }) = parts(rest, limit).first().cloned() else {
            return Ok(Some(UnderWay { mark: end, part: 0, writes: vec![] }));
        };
        let last = count == rest.len();
        let (mark, part) = if last { (end, 0) } else { (Seq(end.0 - 1), (from + count) as u64) };
        Ok(Some(UnderWay { mark, part, writes: rest[..count].to_vec() }))
    }

    /// Everything that the host has not answered, in order.
    pub(super) fn pending_writes(&self, side: &Side) -> Result<Vec<Write>> {
        let (mut writes, mut fold) = (Vec::new(), Fold::new(usize::MAX));
        let sent = self.under_way()?;
        let (mark, part) = sent.as_ref().map_or((side.state.mark, side.part), |s| (s.mark, s.part));
        writes.extend(sent.into_iter().flat_map(|sent| sent.writes));
        let mut skip = usize::try_from(part).unwrap_or(usize::MAX);
        self.for_each_local(mark, &mut |_, changes| {
            // A record that is sent in parts has a fold of its own.
            if skip > 0 || !fold.add(&changes) {
                let done = std::mem::replace(&mut fold, Fold::new(usize::MAX)).finish(side.seen());
                writes.extend(done);
                fold.add(&changes);
            }
            if skip > 0 {
                let own = std::mem::replace(&mut fold, Fold::new(usize::MAX)).finish(side.seen());
                writes.extend(own.into_iter().skip(skip));
                skip = 0;
            }
            true
        })?;
        writes.extend(fold.finish(side.seen()));
        Ok(writes)
    }

    /// Gives the own changes of each record after a position, until told to stop.
    fn for_each_local(
        &self,
        after: Seq,
        give: &mut dyn FnMut(Seq, Vec<LocalChange>) -> bool,
    ) -> Result<()> {
        let mut at = after;
        loop {
            let records = self.catalog.read(at, RECORDS)?;
            let Some(last) = records.last() else { return Ok(()) };
            at = last.seq;
            for sealed in records.iter().filter(|sealed| !sealed.leaf.is_empty()) {
                if !give(sealed.seq, local_changes(self.open_sealed(sealed)?)) {
                    return Ok(());
                }
            }
        }
    }

    /// Remembers the host's answer to the batch under way: what was not taken becomes a conflict, and the host's version
    /// is put there if its content is here. An answer to another batch is refused.
    pub fn answered(
        &mut self,
        batch: u64,
        verdicts: &[Verdict],
        contents: &dyn ContentStorage,
    ) -> Result<Answered> {
        let _lock = self.lock(PATIENCE)?;
        let side = self.must_be_replica()?;
        let under_way = self.under_way()?.filter(|_| side.state.batch == batch);
        let Some(under_way) = under_way.filter(|sent| sent.writes.len() == verdicts.len()) else {
            return Err(Error::Usage(format!(
                "Batch {batch} was answered, which is not the one under way: nothing was changed"
            )));
        };
        let conflicts = self.conflicts_of(&under_way.writes, verdicts);
        let commit = self.answer_batch(side, &under_way, verdicts, &conflicts)?;
        self.commit_batch(commit, Durability::PowerCut)?;
        failpoint::hit("answer_after_commit");
        let accepted = (verdicts.len() - conflicts.len()) as u64;
        let put = self.try_left_again(contents)?;
        Ok(Answered { accepted, conflicts, put })
    }

    /// Moves the mark, keeps the conflicts, and notes where the host shows something else.
    fn answer_batch(
        &self,
        mut side: Side,
        under_way: &UnderWay,
        verdicts: &[Verdict],
        conflicts: &[Conflict],
    ) -> Result<Batch> {
        let mut batch = Batch::default();
        (side.state.mark, side.part) = (under_way.mark, under_way.part);
        side.state.under_way = false;
        for item in self.shown_after(under_way, verdicts)? {
            let key = item.path.as_bytes().to_vec();
            batch.local.push((Local::LeftAlone, key, Some(encoded(&item))));
        }
        for conflict in conflicts {
            let key = conflict.id.0.to_vec();
            batch.local.push((Local::Conflict, key, Some(conflict.encode())));
        }
        if let Some(first) = conflicts.first() {
            batch.records.push(self.record(Kind::Outcome, conflict_labels(first, conflicts)));
        }
        batch.state = vec![side.row(), (key::UNDER_WAY, None)];
        Ok(batch)
    }

    /// What the host shows at the paths of a batch, as far as it may differ from what stands here.
    fn shown_after(&self, sent: &UnderWay, verdicts: &[Verdict]) -> Result<Vec<Item>> {
        let mut shown = BTreeMap::new();
        for (write, verdict) in sent.writes.iter().zip(verdicts) {
            let left = self.left_alone_at(&write.path)?;
            let is_taken = matches!(verdict, Verdict::Accepted(_));
            if is_taken && left.is_none() {
                shown.remove(&write.path);
                continue;
            }
            let seq = match verdict {
                Verdict::Accepted(seq) | Verdict::Rejected { seq, .. } => *seq,
            };
            let seq = left.as_ref().map_or(seq, |left| left.seq.max(seq));
            if let Some(version) = host_shows(verdict, &write.after, left.as_ref()) {
                let path = write.path.clone();
                shown.insert(path.clone(), Item { path, seq, version });
            }
        }
        Ok(shown.into_values().collect())
    }

    fn conflicts_of(&self, writes: &[Write], verdicts: &[Verdict]) -> Vec<Conflict> {
        let conflict = |(write, verdict): (&Write, &Verdict)| match verdict {
            Verdict::Accepted(_) => None,
            Verdict::Rejected { reason, theirs, seq } => Some(Conflict {
                id: SnapshotId::new(self.now()),
                path: write.path.clone(),
                base: write.base.clone(),
                mine: write.after.clone(),
                theirs: theirs.clone(),
                reason: *reason,
                seq: *seq,
                time: self.now(),
            }),
        };
        writes.iter().zip(verdicts).filter_map(conflict).collect()
    }
}

impl UnderWay {
    fn batch(self, number: u64) -> JournalBatch {
        let up_to = if self.part > 0 { self.mark.next() } else { self.mark };
        JournalBatch { number, writes: self.writes, up_to }
    }
}

impl Side {
    /// How far the host's log is known here.
    fn seen(&self) -> Seq {
        self.state.applied.map_or(Seq(0), |place| place.seq)
    }
}

/// The own changes of a record, as the host is told of them.
fn local_changes(record: Record) -> Vec<LocalChange> {
    if !tells_state(record.kind) || is_push(&record) {
        return Vec::new();
    }
    let changes = record.changes.into_iter().filter(|change| !change.neutral);
    changes
        .map(|change| LocalChange {
            before: Version::told(&change.before),
            after: Version::told(&change.after),
            from: change.from.map(|from| from.path),
            path: change.path,
        })
        .collect()
}

fn conflict_labels(first: &Conflict, conflicts: &[Conflict]) -> Labels {
    let names: BTreeSet<_> = conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
    let told: Vec<_> = names.iter().take(TOLD).cloned().collect();
    let more = if names.len() > TOLD { ", ..." } else { "" };
    Labels {
        snapshot: Some(first.id),
        action: Some(CONFLICT.to_owned()),
        summary: Some(format!("{CONFLICT}: {}{more}", told.join(", "))),
        note: Some(format!("the host did not take it: {}", first.reason.words())),
        ..Labels::default()
    }
}
