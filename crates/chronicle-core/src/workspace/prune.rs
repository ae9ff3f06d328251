//! Dropping old history on purpose: gathers what there is, lets the rules decide, and writes one
//! record that says what went and stands for it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::moment::Moment;
use super::replica_side::is_push;
use super::views::timestamp;
use super::{PATIENCE, Workspace};
use crate::catalog::{Batch, Log, Merged, Open};
use crate::codec::{self, DecodeError};
use crate::entry::{Author, Change, Evidence};
use crate::error::{Error, Finding, Result};
use crate::failpoint;
use crate::grant::{Act, SignedGrant};
use crate::id::Seq;
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels, Pruned, Record, Sealed};
use crate::retention::{Decision, Maker, Past, Policy, Protected, decide, is_lasting};
use crate::view::{PruneReport, SCHEMA};

/// Ranges that one prune record names at most, so that its header stays small.
const RANGES_MAX: usize = 4096;

impl Workspace {
    /// Drops and merges what the rules no longer keep, or only tells what would go.
    ///
    /// Content is not freed here: that is garbage collection's, which looks at every workspace.
    pub fn prune(&mut self, policy: &Policy, reason: &str, dry_run: bool) -> Result<PruneReport> {
        let _lock = self.lock(PATIENCE)?;
        self.prune_locked(policy, reason, dry_run)
    }

    /// The same, for one who holds the lock already.
    pub(super) fn prune_locked(
        &mut self,
        policy: &Policy,
        reason: &str,
        dry_run: bool,
    ) -> Result<PruneReport> {
        let history = self.gather()?;
        let decision = self.decide_prune(&history, policy)?;
        let (ranges, changes) = self.pruned(&history, &decision)?;
        let report = self.prune_report(&history, &ranges, changes.len(), dry_run)?;
        if dry_run || ranges.is_empty() {
            return Ok(report);
        }
        let grant = self.grant_for(Act::Prune)?;
        let labels = Labels {
            grant: grant.as_ref().map(SignedGrant::text),
            summary: Some(format!("prune: {}", report.words())),
            pruned: ranges,
            policy: Some(format!("{reason}: {}", policy.words())),
            ..Labels::default()
        };
        let mut record = self.record(Kind::Prune, labels);
        record.changes = changes;
        failpoint::hit("prune_before_commit");
        let batch = Batch { records: vec![record], ..Batch::default() };
        self.commit_signed(batch)?;
        failpoint::hit("prune_after_commit");
        Ok(report)
    }

    fn decide_prune(&self, history: &[Past], policy: &Policy) -> Result<Decision> {
        let protected = self.protected(history, policy)?;
        let mut decision = decide(history, &protected, policy, self.now(), self.beginning()?);
        decision.runs.truncate(RANGES_MAX - 1);
        Ok(decision)
    }

    /// Every record that is still there, as retention sees it.
    fn gather(&self) -> Result<Vec<Past>> {
        let (mut history, mut named, mut after) = (Vec::new(), HashSet::new(), Seq(0));
        loop {
            let records = self.catalog.read(after, 64)?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            for sealed in records.iter().filter(|sealed| !sealed.leaf.is_empty()) {
                let record = match codec::holds_changes(&sealed.leaf) {
                    true => self.open_sealed(sealed)?,
                    false => self.read_header(sealed.seq)?,
                };
                let labels = &record.labels;
                let refs = labels.taken_back.iter().chain(&labels.brought_back);
                named.extend(refs.map(|at| at.seq));
                history.push(past(&record));
            }
        }
        for record in history.iter_mut().filter(|record| named.contains(&record.seq)) {
            record.maker = Maker::Fixed;
        }
        Ok(history)
    }

    /// What stays whatever the rules say: named moments, what is open, and what a redo needs.
    fn protected(&self, history: &[Past], policy: &Policy) -> Result<Protected> {
        let mut protected = Protected::default();
        let mut names = HashSet::new();
        for seq in self.catalog.of_kind(Kind::Pin)?.into_iter().rev() {
            let labels = self.read_header(seq)?.labels;
            if names.insert(labels.name) {
                protected.pins.extend(labels.target);
            }
        }
        let held = self.checkpoints()?.into_iter().filter(|checkpoint| !checkpoint.dropped);
        protected.pins.extend(held.map(|checkpoint| checkpoint.moment));
        protected.pins.extend(self.isolated_starts()?);
        protected.whole.extend(self.needed_for_replication()?);
        for kind in [Open::Intent, Open::Turn, Open::Transaction] {
            protected.whole.extend(self.catalog.open_things(kind)?.iter().map(|(_, seq)| *seq));
        }
        let oldest = policy.max_age_days.map_or(i64::MIN, |days| {
            self.now().0.saturating_sub(i64::from(days) * 86_400_000_000_000)
        });
        for seq in self.redoable()? {
            let record = self.read_header(seq)?;
            let labels = &record.labels;
            let refs = labels.taken_back.iter().chain(&labels.brought_back);
            let needed = refs.map(|at| at.seq).min().unwrap_or(seq).min(seq);
            let kept = history.first().is_some_and(|first| first.seq <= needed);
            if record.time.0 >= oldest && kept {
                protected.whole.push(needed);
            }
        }
        Ok(protected)
    }

    /// The ranges that a decision means, and the changes that stand for them.
    fn pruned(&self, history: &[Past], decision: &Decision) -> Result<(Vec<Pruned>, Vec<Change>)> {
        let (mut ranges, mut changes) = (Vec::new(), Vec::new());
        if let Some(last) = decision.until {
            let first = self.beginning()?.next();
            ranges.push(Pruned { first, last, merged: None });
        }
        for (first, last) in &decision.runs {
            let merged = self.merge_run(history, *first, *last)?;
            let count = u32::try_from(merged.len()).unwrap_or(u32::MAX);
            ranges.push(Pruned { first: *first, last: *last, merged: Some(count) });
            changes.extend(merged);
        }
        Ok((ranges, changes))
    }

    /// One change for every path that a run of records changed: from what stood there before the
    /// first to what stood there after the last.
    fn merge_run(&self, history: &[Past], first: Seq, last: Seq) -> Result<Vec<Change>> {
        let begin = history.partition_point(|record| record.seq < first);
        let end = history.partition_point(|record| record.seq <= last);
        let mut merged: BTreeMap<WorkspacePath, Change> = BTreeMap::new();
        for record in history[begin..end].iter().filter(|record| record.kind == Kind::Outcome) {
            for change in self.read_record(record.seq)?.changes {
                match merged.get_mut(&change.path) {
                    None => drop(merged.insert(change.path.clone(), change)),
                    Some(whole) => join(whole, change),
                }
            }
        }
        Ok(merged.into_values().filter(|change| change.before != change.after).collect())
    }

    fn prune_report(
        &self,
        history: &[Past],
        ranges: &[Pruned],
        merged_into: usize,
        dry_run: bool,
    ) -> Result<PruneReport> {
        let mut report = PruneReport {
            schema: SCHEMA,
            dry_run,
            dropped_records: 0,
            merged_records: 0,
            merged_changes: merged_into as u64,
            dropped_snapshots: 0,
            oldest_kept_seq: self.beginning()?.0,
            oldest_kept_at: None,
            freed_bytes: 0,
        };
        let mut snapshots = BTreeSet::new();
        for record in history {
            let Some(range) = ranges.iter().find(|range| range.holds(record.seq)) else { continue };
            match range.merged {
                None if !is_lasting(record.kind) => report.dropped_records += 1,
                Some(_) if matches!(record.kind, Kind::Intent | Kind::Outcome) => {
                    report.merged_records += 1;
                    if record.seq == range.last {
                        continue;
                    }
                }
                _ => continue,
            }
            snapshots.extend(record.snapshot.map(|id| id.0));
        }
        if let Some(dropped) = ranges.iter().find(|range| range.merged.is_none()) {
            report.oldest_kept_seq = dropped.last.0;
        }
        let oldest = history.iter().find(|record| record.seq.0 > report.oldest_kept_seq);
        report.oldest_kept_at = oldest.map(|record| timestamp(record.time));
        report.dropped_snapshots = snapshots.len() as u64;
        Ok(report)
    }

    /// The last record that was dropped: the history begins just after it.
    pub(super) fn beginning(&self) -> Result<Seq> {
        let ranges = self.pruned_ranges()?;
        let dropped = ranges.iter().filter(|range| range.merged.is_none());
        Ok(dropped.map(|range| range.last).max().unwrap_or(Seq(0)))
    }

    /// Everything that was ever dropped or merged.
    pub(super) fn pruned_ranges(&self) -> Result<Vec<Pruned>> {
        let prunes = self.catalog.of_kind(Kind::Prune)?;
        let ranges = prunes.into_iter().map(|seq| Ok(self.read_header(seq)?.labels.pruned));
        Ok(ranges.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Refuses a moment that lies before the history begins, or inside what became one change.
    pub(super) fn refuse_pruned(&self, moment: &Moment) -> Result<()> {
        let ranges = self.pruned_ranges()?;
        let inside = |seq: Seq| {
            ranges.iter().any(|range| match range.merged {
                None => seq < range.last,
                Some(_) => range.first <= seq && seq < range.last,
            })
        };
        if !inside(moment.seq) {
            return Ok(());
        }
        let head = self.catalog.head()?.seq.0;
        let earlier = (1..moment.seq.0).rev().map(Seq).find(|seq| !inside(*seq));
        let later = (moment.seq.0..=head).map(Seq).find(|seq| !inside(*seq));
        let nearest = [earlier, later].into_iter().flatten();
        let nearest = nearest.map(|seq| format!("seq:{seq}")).collect();
        Err(Error::Pruned { what: moment.words.clone(), nearest })
    }

    /// A record of which only the hash is left.
    pub(super) fn pruned_record(&self, seq: Seq) -> Error {
        Error::Pruned { what: format!("record {seq}"), nearest: Vec::new() }
    }

    /// A record, if more than its hash is left.
    pub(super) fn read_kept(&self, seq: Seq) -> Result<Option<Record>> {
        match self.read_record(seq) {
            Err(Error::Pruned { .. }) => Ok(None),
            record => record.map(Some),
        }
    }

    /// Opens a record; where it stands for a run of records, with the changes that do.
    pub(super) fn open_sealed(&self, sealed: &Sealed) -> Result<Record> {
        let seq = sealed.seq;
        if sealed.leaf.is_empty() {
            return Err(self.pruned_record(seq));
        }
        match codec::open(&sealed.leaf, &sealed.body) {
            Err(DecodeError::Truncated) if sealed.body.is_empty() => {}
            opened => {
                let mut record = opened.map_err(|source| Error::Record { seq, source })?;
                self.catalog.name_contents(&mut record.changes)?;
                return Ok(record);
            }
        }
        let at = |source| Error::Record { seq, source };
        let Some(merged) = self.catalog.merged(seq)? else {
            return Err(at(DecodeError::Truncated));
        };
        let mut record = codec::decode_header(&sealed.leaf).map_err(at)?;
        record.changes = self.merged_changes(&merged)?;
        Ok(record)
    }

    fn merged_changes(&self, merged: &Merged) -> Result<Vec<Change>> {
        // Neighbouring runs mostly lie in one prune record, which is opened once for all of them.
        let held = self.opened_prune.take();
        let prune = match held {
            Some(prune) if prune.seq == merged.prune => prune,
            _ => self.read_record(merged.prune)?,
        };
        let end = merged.start.saturating_add(merged.count);
        let changes = prune.changes.get(merged.start..end).map(<[Change]>::to_vec);
        let is_prune = prune.kind == Kind::Prune;
        self.opened_prune.set(Some(prune));
        changes.filter(|_| is_prune).ok_or_else(|| {
            let why = "it does not hold what it merged".to_owned();
            Error::Tampered { seq: merged.prune, finding: Finding::Edited, why }
        })
    }
}

fn past(record: &Record) -> Past {
    Past {
        seq: record.seq,
        kind: record.kind,
        time: record.time,
        snapshot: record.labels.snapshot,
        // A host is always at work; that is no conversation somebody may want to take back as a whole.
        session: record.labels.session.clone().filter(|_| !is_push(record)),
        transaction: record.labels.transaction,
        maker: maker(&record.changes),
    }
}

/// Whose changes these are, if they can be merged with others of the same author.
fn maker(changes: &[Change]) -> Maker {
    let Some(first) = changes.first() else { return Maker::Nobody };
    let plain = |change: &Change| {
        change.author == first.author
            && change.from.is_none()
            && !change.before.is_unknown()
            && !change.after.is_unknown()
    };
    match changes.iter().all(plain) && !matches!(first.author, Author::Shared(_)) {
        true => Maker::One(first.author.clone()),
        false => Maker::Fixed,
    }
}

/// Makes a change and a later one of the same path one.
fn join(whole: &mut Change, later: Change) {
    whole.after = later.after;
    whole.neutral &= later.neutral;
    if whole.evidence != later.evidence {
        // The weaker claim holds for both.
        whole.evidence = Evidence::Window;
    }
}
