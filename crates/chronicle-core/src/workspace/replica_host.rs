//! The host's side of replication: what changed since a record, and what a replica's writes come to.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::replica_registry::Remembered;
use super::replica_types::{Answer, HostPlace, PushChanges, PushLimits, WriteBack};
use super::replica_write::{OwnTree, Put, Supply, TRIES, is_secret_here};
use super::{PATIENCE, Workspace};
use crate::catalog::{Durability, Local, Log};
use crate::codec::Encoder;
use crate::entry::{Author, Evidence};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::id::{ObjectId, Seq, SnapshotId};
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels, Record};
use crate::replica::{
    Admission, Decision, Item, Judged, Place, Rejection, Rules, Verdict, Version, Write,
    encode_write, judge, stays_home,
};
use crate::store::ContentStorage;

/// The action of records that hold a replica's writes.
pub(super) const WRITE_BACK: &str = "write_back";
/// Records that are read at a time.
const RECORDS: usize = 64;
/// Bytes of an item besides its path, about.
const ITEM_BYTES: usize = 64;

impl Workspace {
    /// Where the log is, and from where on it can tell what changed.
    pub fn replica_place(&self) -> Result<HostPlace> {
        Ok(HostPlace { head: self.own_place()?, oldest: self.beginning()? })
    }

    /// The contents that can be sent, for several threads. Whoever serves them gives only what was offered: what is
    /// secret has a name that no item has.
    pub fn replica_contents(&self) -> Result<&dyn ContentStorage> {
        Ok(self.objects()?)
    }

    fn own_place(&self) -> Result<Place> {
        Ok(Place { epoch: self.catalog.epoch(), seq: self.catalog.head()?.seq })
    }

    /// What stands at each path that changed after a record, for which `passes` says yes (its second argument is whether
    /// it is a directory); `None` if the log does not hold that any more, so that a resync is needed.
    pub fn changes_for_replica(
        &mut self,
        after: Seq,
        limits: PushLimits,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Result<Option<PushChanges>> {
        if !self.catalog.pending_clones()?.is_empty() {
            // A clone has no name that travels before it was read.
            drop(self.lock(PATIENCE)?);
        }
        if !self.can_tell_after(after)? {
            return Ok(None);
        }
        let _one_moment = self.catalog.reading()?;
        let head = self.own_place()?;
        let mut push =
            Gathering { at: after, items: BTreeMap::new(), bytes: 0, content: limits.content };
        while push.at < head.seq && push.items.len() < limits.items && push.bytes < limits.bytes {
            let records = self.catalog.read(push.at, RECORDS)?;
            if records.is_empty() {
                break;
            }
            for sealed in records {
                if push.items.len() >= limits.items || push.bytes >= limits.bytes {
                    break;
                }
                push.at = sealed.seq;
                if !sealed.leaf.is_empty() {
                    push.add(self.open_sealed(&sealed)?, passes);
                }
            }
        }
        let to = Place { seq: push.at, ..head };
        let items = push.items.into_values().collect();
        Ok(Some(PushChanges { to, items, more: to.seq < head.seq }))
    }

    /// Whether every change after a record is still told one by one, or merged with none before it.
    fn can_tell_after(&self, after: Seq) -> Result<bool> {
        let inside = |range: &crate::record::Pruned| match range.merged {
            None => after < range.last,
            Some(_) => range.first <= after && after < range.last,
        };
        Ok(after <= self.catalog.head()?.seq && !self.pruned_ranges()?.iter().any(inside))
    }

    /// Takes a batch of writes: decided, written, recorded and remembered in one durable commit.
    ///
    /// The contents of files are looked for in `contents` first, then in the store; whoever calls has made sure that the
    /// replica may name them. A batch that was answered is answered again; an older one, and other writes under the
    /// number of one that was answered, are refused.
    pub fn take_writes(
        &mut self,
        request: &WriteBack<'_>,
        contents: &dyn ContentStorage,
    ) -> Result<Answer> {
        let _lock = self.lock(PATIENCE)?;
        let known = self.remembered(&request.replica)?;
        match &known.answer {
            Some((writes, answer))
                if answer.batch == request.batch && *writes == name_of(request.writes) =>
            {
                return Ok(answer.clone());
            }
            _ if request.batch <= known.row.batch => return Err(old_batch(request, &known)),
            _ => {}
        }
        self.keep_within_budget()?;
        let mut tries = 0;
        loop {
            let goes = |write: &Write| write.base.is_directory() && !write.after.is_directory();
            let named = request.writes.iter().map(|write| (&write.path, goes(write)));
            self.record_touched(named)?;
            match self.try_writes(request, contents, known.clone()) {
                Err(Error::Stopped(Stop::PlanOutdated(_))) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    fn try_writes(
        &mut self,
        request: &WriteBack<'_>,
        contents: &dyn ContentStorage,
        mut known: Remembered,
    ) -> Result<Answer> {
        let supply = Supply::new(contents, self.objects()?);
        let judged = self.judged(request, &supply)?;
        let writer = (Author::Session(request.name.to_owned()), Evidence::Named);
        let mut put = self.put_steps(&judged.steps, &supply, writer)?;
        let staging = put.staging.take();
        let (mut batch, verdicts) = self.write_records(request, judged, put)?;
        let head = self.own_place()?;
        let head = Place { seq: Seq(head.seq.0 + batch.records.len() as u64), ..head };
        let answer = Answer { batch: request.batch, verdicts, head, repeated: false };
        (known.row.batch, known.row.seen) = (request.batch, self.now());
        known.row.name = request.name.to_owned();
        known.answer = Some((name_of(request.writes), answer.clone()));
        batch.local.push((Local::Replica, request.replica.0.to_vec(), Some(known.encode())));
        failpoint::hit("writes_before_commit");
        let committed = || failpoint::hit("writes_after_commit");
        self.commit_put(batch, staging, Durability::PowerCut, committed)?;
        Ok(answer)
    }

    /// Which of some writes would put something secret here, so that it never travels.
    pub fn secret_writes(
        &self,
        writes: &[Write],
        contents: &dyn ContentStorage,
    ) -> Result<HashSet<WorkspacePath>> {
        let (rules, supply) = (self.secret_rules()?, Supply::new(contents, self.objects()?));
        let mut secret = HashSet::new();
        for write in writes.iter().filter(|write| !stays_home(&write.path)) {
            if is_secret_here(&rules, &write.path, &write.after, &supply)? {
                secret.insert(write.path.clone());
            }
        }
        Ok(secret)
    }

    fn judged(&self, request: &WriteBack<'_>, supply: &Supply<'_>) -> Result<Judged> {
        let (rules, mut secret) = (self.secret_rules()?, HashSet::new());
        for write in request.writes.iter().filter(|write| !stays_home(&write.path)) {
            if is_secret_here(&rules, &write.path, &write.after, supply)? {
                secret.insert(&write.path);
            }
        }
        let admit = |path: &WorkspacePath, directory: bool| match secret.contains(path) {
            true => Admission::NotAllowed,
            false => (request.admit)(path, directory),
        };
        let tree = OwnTree::new(self)?;
        let rules = Rules { admit: &admit, folds: request.folds };
        let judged = judge(&tree, request.writes, &rules);
        tree.check()?;
        Ok(judged)
    }

    /// The records of what was written, and what is answered.
    fn write_records(
        &self,
        request: &WriteBack<'_>,
        judged: Judged,
        put: Put,
    ) -> Result<(crate::catalog::Batch, Vec<Verdict>)> {
        let Put { mut batch, own, others, unexpected, .. } = put;
        if !own.is_empty() {
            let labels = self.write_labels(request.name, own.len(), own.first().map(|c| &c.path));
            batch.records = self.outcome_records(labels, own);
        }
        if !others.is_empty() {
            batch.records.extend(self.outcome_records(self.meanwhile_labels(), others));
        }
        let head = self.catalog.head()?.seq;
        let places = (head.0 + 1..).zip(&batch.records);
        let by_path: HashMap<_, _> = places
            .flat_map(|(seq, record)| {
                record.changes.iter().map(move |change| (&change.path, (Seq(seq), change)))
            })
            .collect();
        let verdict = |(write, decision): (&Write, Decision)| {
            let recorded = by_path.get(&write.path);
            let seq = recorded.map_or(head, |(seq, _)| *seq);
            if decision == Decision::Take && unexpected.contains_key(&write.path) {
                let theirs = recorded.and_then(|(_, change)| Version::of(&change.after));
                return Verdict::Rejected { reason: Rejection::Changed, theirs, seq };
            }
            decision.verdict(seq)
        };
        let verdicts = request.writes.iter().zip(judged.decisions).map(verdict).collect();
        drop(by_path);
        Ok((batch, verdicts))
    }

    fn write_labels(&self, name: &str, count: usize, first: Option<&WorkspacePath>) -> Labels {
        let what = match (count, first) {
            (1, Some(path)) => path.to_string(),
            _ => format!("{count} paths"),
        };
        Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some(WRITE_BACK.to_owned()),
            summary: Some(format!("{WRITE_BACK}: {what} from {name}")),
            session: Some(name.to_owned()),
            ..Labels::default()
        }
    }
}

/// What tells the writes of one batch from those of another.
fn name_of(writes: &[Write]) -> ObjectId {
    let mut out = Encoder::default();
    writes.iter().for_each(|write| encode_write(&mut out, write));
    ObjectId::of(&out.0)
}

fn old_batch(request: &WriteBack<'_>, known: &Remembered) -> Error {
    Error::Usage(format!(
        "Replica {:?} sent batch {} after batch {}: it was taken back to an earlier state, and must become a replica anew",
        request.name, request.batch, known.row.batch
    ))
}

/// What a push says so far.
struct Gathering {
    at: Seq,
    items: BTreeMap<WorkspacePath, Item>,
    bytes: usize,
    content: u64,
}

impl Gathering {
    fn add(&mut self, record: Record, passes: &dyn Fn(&WorkspacePath, bool) -> bool) {
        if !tells_state(record.kind) {
            return;
        }
        for change in record.changes.into_iter().filter(|change| !change.neutral) {
            let Some(version) = Version::told(&change.after) else { continue };
            let directory = version.is_directory() || change.before.is_directory();
            if stays_home(&change.path) || !passes(&change.path, directory) {
                continue;
            }
            self.bytes += ITEM_BYTES + change.path.as_bytes().len();
            if let Version::File { size, .. } = &version
                && *size <= self.content
            {
                self.bytes += usize::try_from(*size).unwrap_or(usize::MAX);
            }
            let item = Item { path: change.path.clone(), seq: record.seq, version };
            self.items.insert(change.path, item);
        }
    }
}

/// Whether a record's changes say what stands there since.
pub(super) fn tells_state(kind: Kind) -> bool {
    !matches!(kind, Kind::Intent | Kind::Prune | Kind::Forget | Kind::Resolve)
}
