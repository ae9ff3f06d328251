//! The replica's side of replication: whose replica this is, and what becomes of a push.

use std::collections::{BTreeMap, BTreeSet};

use super::replica_registry::decoded;
use super::replica_types::{PushReport, ReplicaState};
use super::replica_write::{OwnTree, Put, Supply, TRIES, is_secret_here, on_threads};
use super::{PATIENCE, Workspace, key};
use crate::apply::Syncing;
use crate::catalog::{Batch, Durability, Local, LocalState, Log};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::entry::{Author, Evidence};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::id::{ReplicaId, Seq, SnapshotId, WorkspaceId};
use crate::path::WorkspacePath;
use crate::record::{Labels, Record};
use crate::replica::{
    Item, LeftAlone, Place, Received, Step, Version, WhyLeft, Write, decode_item, decode_place,
    encode_item, encode_place, receive,
};
use crate::store::ContentStorage;

/// The action of records that hold what a host pushed.
pub(super) const PUSH: &str = "push";
/// The session in whose name they are recorded.
pub(super) const HOST: &str = "host";

impl ReplicaState {
    fn encode(&self, part: u64) -> Vec<u8> {
        let mut out = Encoder::default();
        out.fixed(&self.id.0);
        out.fixed(&self.of.0);
        out.bytes(self.name.as_bytes());
        out.bytes(self.from.as_bytes());
        out.byte(u8::from(self.applied.is_some()) | u8::from(self.under_way) << 1);
        if let Some(place) = &self.applied {
            encode_place(&mut out, place);
        }
        out.int(self.mark.0);
        out.int(part);
        out.int(self.batch);
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<(Self, u64), DecodeError> {
        let mut input = Decoder(bytes);
        let (id, of) = (ReplicaId(input.array()?), WorkspaceId(input.array()?));
        let (name, from, flags) = (input.text()?, input.text()?, input.byte()?);
        let applied = if flags & 1 != 0 { Some(decode_place(&mut input)?) } else { None };
        let (mark, part, batch) = (Seq(input.int()?), input.int()?, input.int()?);
        input.end()?;
        let under_way = flags & 2 != 0;
        Ok((Self { id, name, of, from, applied, mark, batch, under_way }, part))
    }
}

/// The state with what only the journal needs: how many writes of the record after the mark are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) state: ReplicaState,
    pub(super) part: u64,
}

impl Side {
    /// The row to be committed.
    pub(super) fn row(&self) -> (&'static str, Option<Vec<u8>>) {
        (key::REPLICA, Some(self.state.encode(self.part)))
    }
}

/// What is known of the content of a step.
enum Found {
    Missing(crate::id::ObjectId),
    Secret,
    Fine,
}

/// What a push is applied with.
pub(super) struct Push<'a> {
    pub(super) items: Vec<Item>,
    /// The place to remember; `None` where only what was left alone is tried again.
    pub(super) to: Option<Place>,
    pub(super) contents: &'a dyn ContentStorage,
    pub(super) folds: bool,
    /// The items are all that differs: what was left alone before is void.
    pub(super) whole: bool,
    /// Whether it is durable by what is announced, and what it writes is synced later.
    pub(super) syncing: Syncing,
}

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
        let _lock = self.lock(PATIENCE)?;
        let mut side = match self.side()? {
            Some(side) if side.state.of != of => {
                return Err(Error::Usage(format!(
                    "{} is the replica of another workspace: connect another directory",
                    self.root.display()
                )));
            }
            Some(side) => side,
            None => {
                let (id, mark) = (ReplicaId::random(), Seq(0));
                let (name, from) = (String::new(), String::new());
                let (applied, batch, under_way) = (None, 0, false);
                let state = ReplicaState { id, name, of, from, applied, mark, batch, under_way };
                Side { state, part: 0 }
            }
        };
        (side.state.name, side.state.from) = (name.to_owned(), from.to_owned());
        let batch = Batch { state: vec![side.row()], ..Batch::default() };
        self.commit_batch(batch, Durability::PowerCut)?;
        Ok(side.state)
    }

    /// Makes this an ordinary workspace again; conflicts that nobody decided about stay. False if it was none.
    pub fn end_replica(&mut self) -> Result<bool> {
        let _lock = self.lock(PATIENCE)?;
        self.refuse_unfilled("A workspace of its own")?;
        let was = self.side()?.is_some();
        let left = self.catalog.locals(Local::LeftAlone)?.into_iter();
        let local = left.map(|(path, _)| (Local::LeftAlone, path, None)).collect();
        let state = vec![(key::REPLICA, None), (key::UNDER_WAY, None)];
        self.commit_batch(Batch { state, local, ..Batch::default() }, Durability::PowerCut)?;
        Ok(was)
    }

    /// Whose replica this is, if it is one.
    pub fn replica_state(&self) -> Result<Option<ReplicaState>> {
        Ok(self.side()?.map(|side| side.state))
    }

    pub(super) fn side(&self) -> Result<Option<Side>> {
        let Some(bytes) = self.catalog.state(key::REPLICA)? else { return Ok(None) };
        let (state, part) = decoded(ReplicaState::decode(&bytes))?;
        Ok(Some(Side { state, part }))
    }

    pub(super) fn must_be_replica(&self) -> Result<Side> {
        self.side()?.ok_or_else(|| {
            Error::Usage(format!("{} is no replica: connect it first", self.root.display()))
        })
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
        let _lock = self.lock(PATIENCE)?;
        let side = self.must_be_replica()?;
        if side.state.applied.is_some_and(|had| had.epoch == to.epoch && to.seq <= had.seq) {
            return Ok(PushReport { repeated: true, ..PushReport::default() });
        }
        self.keep_within_budget()?;
        let (items, to, syncing) = (items.to_vec(), Some(to), self.syncing()?);
        self.push(Push { items, to, contents, folds, whole: false, syncing })
    }

    /// Applies what comparing both trees found: like a push, but also where the replica is already, and what was left alone
    /// before is void.
    pub fn apply_resync(
        &mut self,
        items: &[Item],
        to: Place,
        contents: &dyn ContentStorage,
        folds: bool,
    ) -> Result<PushReport> {
        let _lock = self.lock(PATIENCE)?;
        self.must_be_replica()?;
        self.keep_within_budget()?;
        let (items, to, syncing) = (items.to_vec(), Some(to), self.syncing()?);
        self.push(Push { items, to, contents, folds, whole: true, syncing })
    }

    /// Tries again what was left alone and waits for nothing any more; needs the lock.
    pub(super) fn try_left_again(&mut self, contents: &dyn ContentStorage) -> Result<PushReport> {
        if self.left_alone()?.is_empty() {
            return Ok(PushReport::default());
        }
        let (items, syncing) = (vec![], Syncing::Now);
        self.push(Push { items, to: None, contents, folds: false, whole: false, syncing })
    }

    pub(super) fn push(&mut self, mut push: Push<'_>) -> Result<PushReport> {
        let named: BTreeSet<_> = push.items.iter().map(|item| item.path.clone()).collect();
        if !push.whole && !self.is_of_another_life(push.to)? {
            let again = self.left_alone()?.into_iter();
            push.items.extend(again.filter(|item| !named.contains(&item.path)));
        }
        let mut tries = 0;
        loop {
            let named = push.items.iter().map(|item| (&item.path, !item.version.is_directory()));
            self.record_touched(named)?;
            match self.try_push(&push) {
                Err(Error::Stopped(Stop::PlanOutdated(_))) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    fn try_push(&mut self, push: &Push<'_>) -> Result<PushReport> {
        let mut side = self.must_be_replica()?;
        let pending = self.pending_writes(&side)?;
        let supply = Supply::new(push.contents, self.objects()?).lazily(self.is_lazy()?);
        let tree = OwnTree::new(self)?;
        let shown = push.to.map_or(Seq(0), |to| to.seq);
        let mut received = receive(&tree, &pending, &push.items, shown, push.folds);
        tree.check()?;
        let mut report = PushReport::default();
        self.leave_what_cannot_be(&mut received, push, &supply, &mut report)?;
        let (mut rows, hold) = self.take_contents(&received.steps, &supply)?;
        let read = supply.into_read();
        let mut syncing = Syncing::Now;
        if push.syncing == Syncing::Later && !received.steps.is_empty() {
            self.announce(push, &received.steps, std::mem::take(&mut rows))?;
            syncing = Syncing::Later;
            failpoint::hit("push_after_announcement");
        }
        let supply =
            Supply::with_read(push.contents, self.objects()?, read).lazily(self.is_lazy()?);
        let writer = (Author::Session(HOST.to_owned()), Evidence::Own);
        let taken = ((rows, hold), syncing);
        let mut put = self.put_taken(&received.steps, &supply, writer, taken)?;
        let staging = put.staging.take();
        report.written = put.own.len() as u64;
        report.equal = received.equal.len() as u64;
        report.unexpected =
            put.unexpected.iter().map(|(p, why)| (p.clone(), why.clone())).collect();
        let as_announced = syncing == Syncing::Later && put.others.is_empty();
        let mut batch = self.push_batch(push, &received, put)?;
        if syncing == Syncing::Later {
            batch.state.push(self.written_as_announced()?);
        }
        note_at_host(&received.steps, &supply, &mut batch)?;
        self.move_on(&mut side, push, &pending, &batch)?;
        batch.state.push(side.row());
        report.left = received.left;
        let nothing = batch.records.is_empty() && batch.local.is_empty();
        if push.to.is_none() && nothing && staging.is_none() {
            return Ok(report);
        }
        failpoint::hit("push_before_commit");
        // What was announced is durable already; what somebody did meanwhile is not.
        let durability = if as_announced { Durability::ProcessDeath } else { Durability::PowerCut };
        self.commit_put(batch, staging, durability, || failpoint::hit("push_after_commit"))?;
        Ok(report)
    }

    /// Leaves alone what would be secret here, and what was left alone before and whose content is not here.
    fn leave_what_cannot_be(
        &self,
        received: &mut Received,
        push: &Push<'_>,
        supply: &Supply<'_>,
        report: &mut PushReport,
    ) -> Result<()> {
        let rules = self.secret_rules()?;
        let all = std::mem::take(&mut received.steps);
        let found = on_threads(&all, |step| match step.put.object() {
            Some(object) if !supply.is_elsewhere(&object)? && !supply.exists(&object)? => {
                Ok(Found::Missing(object))
            }
            _ => match is_secret_here(&rules, &step.path, &step.put, supply)? {
                true => Ok(Found::Secret),
                false => Ok(Found::Fine),
            },
        })?;
        let mut steps = Vec::with_capacity(all.len());
        for (step, found) in all.into_iter().zip(found) {
            match found {
                Found::Fine => steps.push(step),
                Found::Secret => received.left.push(left(step, push, WhyLeft::StaysHome)),
                Found::Missing(object) if !self.is_left_alone(&step.path)? => {
                    return Err(Error::Missing(object));
                }
                Found::Missing(object) => {
                    report.wanted.push(object);
                    received.left.push(left(step, push, WhyLeft::InTheWay));
                }
            }
        }
        received.steps = steps;
        Ok(())
    }

    /// Records what was written, and remembers what was not.
    fn push_batch(&self, push: &Push<'_>, received: &Received, put: Put) -> Result<Batch> {
        let Put { mut batch, own, others, unexpected, .. } = put;
        if !own.is_empty() {
            batch.records = self.outcome_records(self.push_labels(&push.items, own.len()), own);
        }
        if !others.is_empty() {
            batch.records.extend(self.outcome_records(self.meanwhile_labels(), others));
        }
        let mut rows: BTreeMap<WorkspacePath, Option<Item>> =
            push.items.iter().map(|item| (item.path.clone(), None)).collect();
        let alone = received.left.iter().filter(|left| left.why != WhyLeft::StaysHome);
        let kept = alone.map(|left| &left.item).chain(&received.told);
        rows.extend(kept.map(|item| (item.path.clone(), Some(item.clone()))));
        for step in received.steps.iter().filter(|step| unexpected.contains_key(&step.path)) {
            let left = left(step.clone(), push, WhyLeft::InTheWay);
            rows.insert(step.path.clone(), Some(left.item));
        }
        let known: BTreeMap<_, _> = self.catalog.locals(Local::LeftAlone)?.into_iter().collect();
        for path in known.keys().filter(|_| push.whole) {
            if let Ok(path) = WorkspacePath::new(path.clone()) {
                rows.entry(path).or_insert(None);
            }
        }
        if self.is_of_another_life(push.to)? {
            let path = |key: &Vec<u8>| WorkspacePath::new(key.clone()).ok();
            for path in known.keys().filter_map(path) {
                rows.entry(path).or_insert(None);
            }
        }
        for (path, item) in rows {
            let key = path.as_bytes().to_vec();
            let value = item.map(|item| encoded(&item));
            if known.get(&key) != value.as_ref() {
                batch.local.push((Local::LeftAlone, key, value));
            }
        }
        Ok(batch)
    }

    /// Whether a place is of another log than what was applied last: then nothing told before counts.
    fn is_of_another_life(&self, to: Option<Place>) -> Result<bool> {
        let applied = self.side()?.and_then(|side| side.state.applied);
        Ok(matches!((applied, to), (Some(had), Some(to)) if had.epoch != to.epoch))
    }

    pub(super) fn push_labels(&self, items: &[Item], count: usize) -> Labels {
        let what = match items {
            [item] => item.path.to_string(),
            _ => format!("{count} paths"),
        };
        Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some(PUSH.to_owned()),
            summary: Some(format!("{PUSH}: {what}")),
            session: Some(HOST.to_owned()),
            ..Labels::default()
        }
    }

    /// The place is what was shown; if nothing waits for an answer, the mark goes behind what the push records.
    fn move_on(
        &self,
        side: &mut Side,
        push: &Push<'_>,
        pending: &[Write],
        batch: &Batch,
    ) -> Result<()> {
        side.state.applied = push.to.or(side.state.applied);
        let only_pushed = batch.records.iter().all(is_push);
        if pending.is_empty() && only_pushed && !side.state.under_way {
            let head = self.catalog.head()?.seq;
            (side.state.mark, side.part) = (Seq(head.0 + batch.records.len() as u64), 0);
        }
        Ok(())
    }

    /// What the host shows and does not stand here.
    pub(super) fn left_alone(&self) -> Result<Vec<Item>> {
        let rows = self.catalog.locals(Local::LeftAlone)?;
        rows.iter().map(|(_, value)| decoded(decode_item(&mut Decoder(value)))).collect()
    }

    pub(super) fn left_alone_at(&self, path: &WorkspacePath) -> Result<Option<Item>> {
        let row = self.catalog.local(Local::LeftAlone, path.as_bytes())?;
        row.map(|value| decoded(decode_item(&mut Decoder(&value)))).transpose()
    }

    fn is_left_alone(&self, path: &WorkspacePath) -> Result<bool> {
        Ok(self.catalog.local(Local::LeftAlone, path.as_bytes())?.is_some())
    }
}

pub(super) fn encoded(item: &Item) -> Vec<u8> {
    let mut out = Encoder::default();
    encode_item(&mut out, item);
    out.0
}

fn left(step: Step, push: &Push<'_>, why: WhyLeft) -> LeftAlone {
    let had = push.items.iter().find(|item| item.path == step.path).map(|item| item.seq);
    let seq = had.unwrap_or_default().max(push.to.map_or(Seq(0), |to| to.seq));
    LeftAlone { item: Item { path: step.path, seq, version: step.put }, why, holds: vec![] }
}

/// Remembers the contents of files for which placeholders stand now, and where the host has them.
fn note_at_host(steps: &[Step], supply: &Supply<'_>, batch: &mut Batch) -> Result<()> {
    for step in steps {
        if let Version::File { object, size, .. } = &step.put
            && supply.is_elsewhere(object)?
        {
            let shown = [&size.to_le_bytes()[..], step.path.as_bytes()].concat();
            batch.local.push((Local::AtHost, object.0.to_vec(), Some(shown)));
        }
    }
    Ok(())
}

/// Whether a record says what a host pushed, and is no work of this replica.
pub(super) fn is_push(record: &Record) -> bool {
    let by_host = |change: &crate::entry::Change| {
        change.evidence == Evidence::Own
            && matches!(&change.author, Author::Session(session) if session == HOST)
    };
    record.labels.action.as_deref() == Some(PUSH) && record.changes.iter().all(by_host)
}
