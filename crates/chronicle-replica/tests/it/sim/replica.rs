//! A sandbox's driver in the simulation: carries out what its session wants, on a store that may crash under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronicle_core::replica::{
    Fold, Item, Listing, LocalChange, Node, Place, Tree as Hashed, Verdict, Version, Write,
    host_shows, merge_conflict, receive, resync_step,
};
use chronicle_core::{Epoch, ObjectId, Seq, WorkspacePath};
use chronicle_replica::filter::Filters;
use chronicle_replica::sandbox::{ApplyPush, Batch, Begin, Effect, Event};
use chronicle_replica::wire::{ReplicaId, SentWrite};

use super::disk::{self, Tree};
use super::host::INLINE;
use super::oracle::Oracle;
use super::store::{Crashed, Fuse, Store, nodes};

/// A write that the host did not take.
#[derive(Debug, Clone)]
pub struct Conflict {
    pub write: Write,
}

/// What a replica keeps besides its log.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    pub place: Option<Place>,
    answered: u64,
    /// Writes in records up to this one are answered.
    mark: Seq,
    last_number: u64,
    /// The batch under way: its number, up to where in the log it goes, what was seen of the host's.
    batch: Option<(u64, Seq, Seq)>,
    left: BTreeMap<WorkspacePath, Item>,
    pub conflicts: Vec<Conflict>,
}

pub struct Replica {
    pub id: ReplicaId,
    pub number: usize,
    pub store: Store<Kept>,
    pub filters: Arc<Filters>,
}

struct Visible(Tree);

impl Hashed for Visible {
    fn nodes(&self, directory: &WorkspacePath) -> Vec<Node> {
        nodes(&self.0, directory)
    }
}

impl Replica {
    pub fn new(number: usize, life: u8, filters: Arc<Filters>) -> Self {
        let mark = u8::try_from(number).expect("few");
        let store = Store::new(Epoch([100 + mark; 16]), Kept::default());
        Self { id: ReplicaId([mark * 16 + life; 16]), number, store, filters }
    }

    pub fn begin(&self) -> Begin {
        Begin {
            replica: self.id,
            name: format!("sandbox {}", self.number),
            token: Vec::new(),
            workspace: None,
            place: self.store.durable.place,
            answered: self.store.durable.answered,
            folds_names: false,
            push_rules: Vec::new(),
            write_back_rules: Vec::new(),
        }
    }

    /// Every write that the host has not answered.
    pub fn unanswered(&self) -> Vec<Write> {
        self.pending(self.store.durable.mark)
    }

    /// What replication sees of the tree.
    pub fn visible(&self) -> Tree {
        let filter = &self.filters.push;
        let seen = self
            .store
            .known
            .iter()
            .filter(|(path, version)| !filter.is_filtered(path, version.is_directory()));
        seen.map(|(path, version)| (path.clone(), version.clone())).collect()
    }

    /// Carries out an effect that is answered.
    pub fn carry_out(
        &mut self,
        effect: Effect,
        fuse: &mut Fuse,
        oracle: &mut Oracle,
    ) -> Result<Vec<Event>, Crashed> {
        fuse.step()?;
        Ok(match effect {
            Effect::HasContents { id, objects } => {
                let lacks = |object: &ObjectId| self.store.content(object).is_none();
                vec![Event::Lacking { id, objects: objects.into_iter().filter(lacks).collect() }]
            }
            Effect::PutContent { object, bytes } => {
                self.store.stage(object, bytes);
                vec![Event::ContentPut(object, true)]
            }
            Effect::PutPieces { object, .. } => vec![Event::ContentPut(object, false)],
            Effect::ApplyPush(push) => {
                let id = push.id;
                self.apply(push, fuse)?;
                vec![Event::Applied { id }]
            }
            Effect::NextBatch { id, .. } => {
                vec![Event::Batch { id, batch: self.next_batch(fuse)? }]
            }
            Effect::Answered { id, batch, verdicts } => {
                self.answered(batch, &verdicts, fuse, oracle)?;
                vec![Event::AnswerKept { id, more: true }]
            }
            Effect::Renumber { id, last } => {
                let kept = &mut self.store.durable;
                kept.last_number = kept.last_number.max(last) + 1;
                if let Some((number, ..)) = &mut kept.batch {
                    *number = kept.last_number;
                }
                vec![Event::Renumbered { id }]
            }
            Effect::ReadContent(run) => {
                let end = run.offset + u64::from(run.length);
                let content = self.store.content(&run.wanted.object);
                let bytes = content
                    .and_then(|bytes| bytes.get(run.offset as usize..end as usize))
                    .map(<[u8]>::to_vec);
                vec![Event::ContentRead(run, bytes)]
            }
            Effect::ReadManifest(wanted) => vec![Event::ManifestRead(wanted, None)],
            Effect::CompareTree { id, path, shown, entries } => {
                self.store.look();
                let nodes = entries.unwrap_or_default();
                let step = resync_step(&Visible(self.visible()), &[Listing { path, nodes }], shown);
                vec![Event::Compared { id, items: step.items, descend: step.ask }]
            }
            _ => Vec::new(),
        })
    }

    fn apply(&mut self, push: ApplyPush, fuse: &mut Fuse) -> Result<(), Crashed> {
        self.store.look();
        fuse.step()?;
        let mut items: BTreeMap<WorkspacePath, Item> = BTreeMap::new();
        if !push.resync {
            items.clone_from(&self.store.durable.left);
        }
        for sent in push.items {
            if let (Some(bytes), Some(object)) = (sent.inline, sent.item.version.object()) {
                self.store.stage(object, bytes);
            }
            if !self.filters.push.is_filtered(&sent.item.path, sent.item.version.is_directory()) {
                let item = Item { seq: push.shown, ..sent.item };
                items.insert(item.path.clone(), item);
            }
        }
        let mut kept = self.store.durable.clone();
        kept.place = push.advance;
        self.put(&items, self.store.durable.mark, kept, fuse)
    }

    /// Puts what the host shows, except over writes that it may still take.
    fn put(
        &mut self,
        items: &BTreeMap<WorkspacePath, Item>,
        mark: Seq,
        mut kept: Kept,
        fuse: &mut Fuse,
    ) -> Result<(), Crashed> {
        let pending = self.pending(mark);
        let here = |item: &&Item| {
            item.version.object().is_none_or(|object| self.store.content(&object).is_some())
        };
        let can: Vec<Item> = items.values().filter(here).cloned().collect();
        let received = receive(&self.store, &pending, &can, Seq(0), false);
        let cannot = items.values().filter(|item| !here(item)).map(|item| item.path.clone());
        let told = received.told.iter().map(|item| item.path.clone());
        let left =
            received.left.iter().map(|left| left.item.path.clone()).chain(told).chain(cannot);
        kept.left =
            left.filter_map(|path| Some((path.clone(), items.get(&path)?.clone()))).collect();
        self.store.carry_out(received.steps, true, kept, fuse)
    }

    fn own_changes(&self, row: &super::store::Row) -> Vec<LocalChange> {
        let travels = |change: &&LocalChange| {
            let directory =
                [&change.before, &change.after].into_iter().flatten().any(Version::is_directory);
            !self.filters.write_back.is_filtered(&change.path, directory)
        };
        row.changes.iter().filter(travels).cloned().collect()
    }

    /// Folds records after one up to another, as far as they join; answers the writes and where that ends.
    fn fold(&self, after: Seq, up_to: Seq, seen: Seq) -> (Vec<Write>, Seq) {
        let (mut fold, mut end) = (Fold::new(10_000), after);
        for row in self.store.rows.iter().filter(|row| row.seq > after && row.seq <= up_to) {
            if !row.pushed && !fold.add(&self.own_changes(row)) {
                break;
            }
            end = row.seq;
        }
        (fold.finish(seen), end)
    }

    /// Every write after a record that the host has not answered.
    fn pending(&self, mark: Seq) -> Vec<Write> {
        let (mut writes, mut at, head) = (Vec::new(), mark, self.store.head());
        while at < head {
            let (more, end) = self.fold(at, head, Seq(0));
            assert!(end > at, "BUG: a record by itself always joins");
            writes.extend(more);
            at = end;
        }
        writes
    }

    fn next_batch(&mut self, fuse: &mut Fuse) -> Result<Option<Batch>, Crashed> {
        self.store.look();
        fuse.step()?;
        // What was left alone may be put now: what held it may be gone, without a word to the host.
        let (left, mark) = (self.store.durable.left.clone(), self.store.durable.mark);
        if !left.is_empty() {
            self.put(&left, mark, self.store.durable.clone(), fuse)?;
        }
        let seen = self.store.durable.place.map_or(Seq(0), |place| place.seq);
        while self.store.durable.batch.is_none() {
            let kept = &self.store.durable;
            let (writes, end) = self.fold(kept.mark, self.store.head(), seen);
            let kept = &mut self.store.durable;
            match (end > kept.mark, writes.is_empty()) {
                (false, _) => return Ok(None),
                (true, true) => kept.mark = end,
                (true, false) => {
                    kept.last_number += 1;
                    kept.batch = Some((kept.last_number, end, seen));
                }
            }
        }
        fuse.step()?;
        let Some((number, up_to, seen)) = self.store.durable.batch else { return Ok(None) };
        let (writes, _) = self.fold(self.store.durable.mark, up_to, seen);
        let sent = |write: Write| {
            let content = write.after.object().and_then(|object| self.store.content(&object));
            let inline = content.filter(|content| content.len() <= INLINE).cloned();
            SentWrite { write, inline }
        };
        Ok(Some(Batch { number, writes: writes.into_iter().map(sent).collect() }))
    }

    fn answered(
        &mut self,
        batch: u64,
        verdicts: &[Verdict],
        fuse: &mut Fuse,
        oracle: &mut Oracle,
    ) -> Result<(), Crashed> {
        let Some((number, up_to, seen)) = self.store.durable.batch else { return Ok(()) };
        if number != batch {
            return Ok(());
        }
        self.store.look();
        fuse.step()?;
        let (writes, _) = self.fold(self.store.durable.mark, up_to, seen);
        assert_eq!(writes.len(), verdicts.len(), "the same number is always the same writes");
        let mut kept = self.store.durable.clone();
        (kept.mark, kept.batch, kept.answered) = (up_to, None, number);
        let mut items = kept.left.clone();
        let mut merges = Vec::new();
        for (write, verdict) in writes.iter().zip(verdicts) {
            if let Verdict::Rejected { theirs, .. } = verdict {
                kept.conflicts.push(Conflict { write: write.clone() });
                merges.extend(theirs.as_ref().and_then(|theirs| self.merged(write, theirs)));
            }
            let seq = match verdict {
                Verdict::Accepted(seq) | Verdict::Rejected { seq, .. } => *seq,
            };
            if matches!(verdict, Verdict::Accepted(_)) && !items.contains_key(&write.path) {
                continue;
            }
            if let Some(version) = host_shows(verdict, &write.after, items.get(&write.path)) {
                let path = write.path.clone();
                let seq = items.get(&path).map_or(seq, |left| left.seq.max(seq));
                items.insert(path.clone(), Item { path, seq, version });
            }
        }
        self.put(&items, up_to, kept, fuse)?;
        let lost = writes
            .iter()
            .zip(verdicts)
            .filter(|(_, verdict)| matches!(verdict, Verdict::Rejected { .. }));
        lost.for_each(|(write, _)| oracle.rejected(self.number, write));
        for (path, theirs, merged) in merges {
            self.write_merge(&path, &theirs, merged, oracle);
        }
        fuse.step()
    }

    fn merged(&self, write: &Write, theirs: &Version) -> Option<(WorkspacePath, Version, Vec<u8>)> {
        let content = |version: &Version| self.store.content(&version.object()?);
        let (base, mine, other) = (content(&write.base)?, content(&write.after)?, content(theirs)?);
        Some((write.path.clone(), theirs.clone(), merge_conflict(base, mine, other)?))
    }

    /// A clean merge is a new write, on what the host has.
    fn write_merge(
        &mut self,
        path: &WorkspacePath,
        theirs: &Version,
        merged: Vec<u8>,
        oracle: &mut Oracle,
    ) {
        let Version::File { mode, mtime_ns, .. } = theirs else { return };
        if !disk::at(&self.store.known, path).same_value(theirs)
            || !disk::at(&self.store.disk.live, path).same_value(theirs)
        {
            return;
        }
        let size = merged.len() as u64;
        let version = Version::File {
            object: self.store.keep(merged),
            size,
            mode: *mode,
            mtime_ns: *mtime_ns,
        };
        oracle.made(path, &version);
        self.store.disk.put(path, &version, false);
        self.store.disk.sync();
        self.store.look();
    }
}
