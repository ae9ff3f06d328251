//! The host's driver in the simulation: carries out what sessions want, on a store that may crash under it.

use std::collections::{BTreeMap, BTreeSet};

use chronicle_core::replica::{
    Admission as May, Decision, Item, Place, Rules, Verdict, Version, Write, judge,
};
use chronicle_core::{Epoch, ObjectId, Seq, WorkspaceId, WorkspacePath};
use chronicle_replica::filter::{DirectionalFilter, Filters};
use chronicle_replica::host::{
    Admission, Effect, Event, LogPart, LogRead, ReadLog, TakeWrites, TreeRead, WritesTaken,
};
use chronicle_replica::wire::{PushItem, ReplicaId};

use super::Mutation;
use super::disk::{self, Tree};
use super::oracle::Oracle;
use super::store::{Crashed, Fuse, Store, nodes};

/// Contents up to this length travel inside what names them, here.
pub const INLINE: usize = 100;
/// Items in a part of a push, here.
const PART: usize = 3;

/// What the host keeps besides its log.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    batches: BTreeMap<ReplicaId, (u64, ObjectId, Vec<Verdict>)>,
}

pub struct Host {
    pub store: Store<Kept>,
    /// Changes before this are not told any more.
    pub oldest: Seq,
    pub filters: std::sync::Arc<Filters>,
    pub mutation: Mutation,
    /// Which contents each replica may name: it has given them, or was given them.
    own: BTreeSet<(usize, ObjectId)>,
}

impl Host {
    pub fn new(filters: std::sync::Arc<Filters>, mutation: Mutation) -> Self {
        let store = Store::new(Epoch([1; 16]), Kept::default());
        Self { store, oldest: Seq(0), filters, mutation, own: BTreeSet::new() }
    }

    pub fn place(&self) -> Place {
        Place { epoch: self.store.epoch, seq: self.store.head() }
    }

    fn push_filter(&self) -> &DirectionalFilter {
        &self.filters.push
    }

    /// What replicas see of the tree.
    pub fn visible(&self) -> Tree {
        let seen = self.store.known.iter().filter(|(path, version)| {
            !self.push_filter().is_filtered(path, version.is_directory())
        });
        seen.map(|(path, version)| (path.clone(), version.clone())).collect()
    }

    /// Carries out an effect that is answered.
    pub fn carry_out(
        &mut self,
        replica: usize,
        id: ReplicaId,
        effect: Effect,
        fuse: &mut Fuse,
        oracle: &mut Oracle,
    ) -> Result<Vec<Event>, Crashed> {
        fuse.step()?;
        Ok(match effect {
            Effect::Admit(_) => vec![Event::Admitted(Admission {
                workspace: WorkspaceId([1; 16]),
                place: self.place(),
                may_write: true,
                folds_names: false,
                filters: self.filters.clone(),
            })],
            Effect::ReadLog(read) => vec![Event::LogRead(self.read_log(&read))],
            Effect::ReadTree(paths) => {
                paths.into_iter().map(|path| Event::TreeRead(self.read_tree(path))).collect()
            }
            Effect::ReadContent { run, offered } => {
                let bytes = self.readable(&run.wanted.object, &run.wanted.path, offered);
                let end = run.offset + u64::from(run.length);
                let bytes = bytes
                    .and_then(|bytes| bytes.get(run.offset as usize..end as usize))
                    .map(<[u8]>::to_vec);
                self.own.extend(bytes.is_some().then_some((replica, run.wanted.object)));
                vec![Event::ContentRead(run, bytes)]
            }
            Effect::ReadManifest { wanted, .. } => vec![Event::ManifestRead(wanted, None)],
            Effect::Lacking { id, objects, .. } => {
                let must = |object: &ObjectId| {
                    !self.own.contains(&(replica, *object)) || self.store.content(object).is_none()
                };
                vec![Event::Lacking { id, objects: objects.into_iter().filter(must).collect() }]
            }
            Effect::PutContent { object, bytes } => {
                self.own.insert((replica, object));
                self.store.stage(object, bytes);
                vec![Event::ContentPut(object, true)]
            }
            Effect::PutPieces { object, .. } => vec![Event::ContentPut(object, false)],
            Effect::TakeWrites(batch) => {
                vec![Event::WritesTaken(self.take_writes(id, batch, fuse, oracle)?)]
            }
            _ => Vec::new(),
        })
    }

    fn readable(&self, object: &ObjectId, path: &WorkspacePath, offered: bool) -> Option<&Vec<u8>> {
        let stands = self.visible().get(path).and_then(Version::object) == Some(*object);
        (offered || stands).then(|| self.store.content(object)).flatten()
    }

    fn read_log(&self, read: &ReadLog) -> LogRead {
        let to = read.going_on.as_ref().map_or(self.place(), |(to, _)| *to);
        if to.epoch != self.store.epoch {
            return LogRead::Failed("another life".to_owned());
        }
        let mut paths: BTreeSet<WorkspacePath> = match read.from {
            None => self.store.known.keys().cloned().collect(),
            Some(from) if from < self.oldest => return LogRead::TooOld(self.place()),
            Some(from) => {
                let rows = self.store.rows.iter().filter(|row| row.seq > from && row.seq <= to.seq);
                rows.flat_map(|row| row.changes.iter().map(|change| change.path.clone())).collect()
            }
        };
        if let Some((_, after)) = &read.going_on {
            paths = paths.split_off(after);
            paths.remove(after);
        }
        let visible = |path: &WorkspacePath| {
            let was = self
                .store
                .rows
                .iter()
                .flat_map(|row| &row.changes)
                .filter(|change| change.path == *path);
            let mut kinds = was.flat_map(|change| [&change.before, &change.after]).flatten();
            !self.push_filter().is_filtered(path, kinds.any(Version::is_directory))
        };
        let mut items: Vec<_> = paths
            .iter()
            .filter(|path| visible(path))
            .take(PART + 1)
            .map(|path| self.item(path))
            .collect();
        let more = items.len() > PART;
        items.truncate(PART);
        LogRead::Part(LogPart { to, items, more })
    }

    fn item(&self, path: &WorkspacePath) -> PushItem {
        let version = disk::at(&self.store.known, path);
        let seq = self.store.last.get(path).copied().unwrap_or(Seq(0));
        let content = version.object().and_then(|object| self.store.content(&object));
        let inline = content.filter(|content| content.len() <= INLINE).cloned();
        PushItem { item: Item { path: path.clone(), seq, version }, inline, stored: None }
    }

    fn read_tree(&self, path: WorkspacePath) -> TreeRead {
        let visible = self.visible();
        let found = path.is_root() || disk::at(&visible, &path).is_directory();
        let entries = found.then(|| nodes(&visible, &path));
        TreeRead { path, place: self.place(), entries }
    }

    fn take_writes(
        &mut self,
        id: ReplicaId,
        batch: TakeWrites,
        fuse: &mut Fuse,
        oracle: &mut Oracle,
    ) -> Result<WritesTaken, Crashed> {
        let TakeWrites { batch: number, digest, writes, missing } = batch;
        if let Some((last, known, verdicts)) = self.store.durable.batches.get(&id)
            && self.mutation != Mutation::ForgetBatches
            && number <= *last
        {
            if number != *last || digest != *known {
                return Ok(WritesTaken::Renumber { batch: number, last: *last });
            }
            let honest: Vec<Write> = writes.into_iter().map(|sent| sent.write).collect();
            oracle.check_accepted(&self.store.rows, &honest, verdicts);
            oracle.answered(id, number, digest, verdicts);
            return Ok(WritesTaken::Answered { batch: number, verdicts: verdicts.clone() });
        }
        self.store.look();
        fuse.step()?;
        for sent in &writes {
            if let (Some(bytes), Some(object)) = (&sent.inline, sent.write.after.object()) {
                self.store.stage(object, bytes.clone());
            }
        }
        let honest: Vec<Write> = writes.into_iter().map(|sent| sent.write).collect();
        let writes: Vec<Write> = honest.iter().map(|write| self.as_seen(write.clone())).collect();
        let filters = self.filters.clone();
        let gone: BTreeSet<_> = writes
            .iter()
            .filter(|write| write.after.object().is_some_and(|it| missing.contains(&it)))
            .map(|write| write.path.clone())
            .collect();
        let admit = |path: &WorkspacePath, directory: bool| match () {
            () if gone.contains(path) => May::NotAllowed,
            () if filters.write_back.is_filtered(path, directory) => May::Filtered,
            () => May::Allowed,
        };
        let judged = judge(&self.store, &writes, &Rules { admit: &admit, folds: false });
        oracle.judged(&self.store.known, &honest, &judged.decisions);
        let record =
            if judged.steps.is_empty() { self.store.head() } else { self.store.head().next() };
        let verdicts: Vec<_> = judged
            .decisions
            .into_iter()
            .map(|decision: Decision| decision.verdict(record))
            .collect();
        let mut kept = self.store.durable.clone();
        kept.batches.insert(id, (number, digest, verdicts.clone()));
        self.store.carry_out(judged.steps, false, kept, fuse)?;
        oracle.check_accepted(&self.store.rows, &honest, &verdicts);
        oracle.answered(id, number, digest, &verdicts);
        Ok(WritesTaken::Answered { batch: number, verdicts })
    }

    /// A host that does not compare would take everything for made on what stands there.
    fn as_seen(&self, write: Write) -> Write {
        match self.mutation {
            Mutation::IgnoreBase => {
                Write { base: disk::at(&self.store.known, &write.path), ..write }
            }
            _ => write,
        }
    }
}
