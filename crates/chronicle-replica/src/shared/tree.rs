//! What the shared log says stands where, and whose batches it has answered; pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use chronicle_core::replica::{
    Decision, Item, Judged, Owner, Place, Rejection, Stand, Standing, Step, Verdict, Version,
    stays_home,
};
use chronicle_core::{
    Author, Change, Entry, Epoch, Error, Evidence, Finding, HashedTree, Head, Kind, Labels,
    ObjectId, Record, ReplicaId, Result, Sealed, Seq, SnapshotId, Time, WorkspaceId, WorkspacePath,
    open_next,
};

use super::Asked;

/// Changed paths that are remembered by record; who is further behind compares trees.
const RECENT_PATHS: usize = 1 << 20;
/// Changes in one record.
const CHANGES_MOST: usize = 8192;
/// The action of a record with what a replica wrote.
const WRITE_BACK: &str = "write_back";

/// The letters of an answer: taken, stood there already, or rejected for the reason with this number.
const TAKEN: u8 = b'a';
const STOOD: u8 = b's';
const REJECTED: u8 = b'A';

/// The last batch of a replica that changed something.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answered {
    batch: u64,
    writes: ObjectId,
    by: Seq,
    letters: Vec<u8>,
}

/// What became of a batch before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing.
    New,
    /// It was answered.
    Answered(Vec<Verdict>),
    /// Its number was used for other writes, the last time this one.
    Used(u64),
}

/// The tree at the end of the shared log, as far as it was read.
#[derive(Debug)]
pub(super) struct SharedTree {
    workspace: WorkspaceId,
    epoch: Option<Epoch>,
    head: Head,
    /// Also what is gone, by the record that took it away.
    standing: BTreeMap<WorkspacePath, (Seq, Version)>,
    recent: VecDeque<(Seq, Vec<WorkspacePath>)>,
    recent_paths: usize,
    /// What changed after this record is remembered.
    oldest: Seq,
    batches: HashMap<ReplicaId, Answered>,
}

impl SharedTree {
    pub(super) fn new(workspace: WorkspaceId) -> Self {
        Self {
            workspace,
            epoch: None,
            head: Head::EMPTY,
            standing: BTreeMap::new(),
            recent: VecDeque::new(),
            recent_paths: 0,
            oldest: Seq(0),
            batches: HashMap::new(),
        }
    }

    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// Where the log ends; before its first record it has no life.
    pub(super) fn place(&self) -> Place {
        Place { epoch: self.epoch.unwrap_or(Epoch([0; 16])), seq: self.head.seq }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.epoch.is_some()
    }

    /// The record that begins a log.
    pub(super) fn genesis(&self, now: Time) -> Record {
        self.record(Epoch::random(), now, Kind::Genesis, Labels::default())
    }

    fn record(&self, epoch: Epoch, time: Time, kind: Kind, labels: Labels) -> Record {
        let (seq, workspace, changes) = (Seq(0), self.workspace, Vec::new());
        Record { seq, workspace, epoch, time, kind, labels, changes }
    }

    /// Takes the next record in, if it is one: nothing is believed of who keeps it.
    pub(super) fn add(&mut self, sealed: &Sealed) -> Result<()> {
        let record = open_next(sealed, self.head)?;
        let foreign = |why: &str| {
            let (seq, why) = (sealed.seq, format!("in the shared log, {why}"));
            Err(Error::Tampered { seq, finding: Finding::Foreign, why })
        };
        let begins = record.kind == Kind::Genesis && self.epoch.is_none();
        if record.workspace != self.workspace || !begins && self.epoch != Some(record.epoch) {
            return foreign("it is of another log");
        }
        let mut changes = Vec::with_capacity(record.changes.len());
        for change in &record.changes {
            let sides = (Version::of(&change.before), Version::of(&change.after));
            let (Some(before), Some(after)) = sides else {
                return foreign("it tells what never travels");
            };
            if stays_home(&change.path) || change.path.is_outside() || change.path.is_root() {
                return foreign("it is about what stays at home");
            }
            if !self.version(&change.path).same_value(&before) {
                return foreign("a change begins where nothing ended");
            }
            changes.push((change.path.clone(), after));
        }
        self.epoch = Some(record.epoch);
        self.head = Head { seq: sealed.seq, link: sealed.link };
        self.remember(changes);
        if let Some((replica, answered)) = answer_in(&record) {
            self.batches.insert(replica, answered);
        }
        Ok(())
    }

    fn remember(&mut self, changes: Vec<(WorkspacePath, Version)>) {
        let seq = self.head.seq;
        let paths: Vec<_> = changes.iter().map(|(path, _)| path.clone()).collect();
        self.standing.extend(changes.into_iter().map(|(path, after)| (path, (seq, after))));
        self.recent_paths += paths.len();
        self.recent.push_back((seq, paths));
        while self.recent_paths > RECENT_PATHS {
            let Some((seq, paths)) = self.recent.pop_front() else { break };
            (self.oldest, self.recent_paths) = (seq, self.recent_paths - paths.len());
        }
    }

    fn version(&self, path: &WorkspacePath) -> Version {
        self.standing.get(path).map_or(Version::Absent, |(_, version)| version.clone())
    }

    /// What stands at the paths that changed after a record, or everywhere; `None` if that is too long ago.
    pub(super) fn changes(
        &self,
        after: Option<Seq>,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Option<Vec<Item>> {
        let item = |path: &WorkspacePath| {
            let (seq, version) = self.standing.get(path)?;
            // What is gone may have been either.
            let passes = match version {
                Version::Absent => passes(path, false) && passes(path, true),
                version => passes(path, version.is_directory()),
            };
            let (path, version) = (path.clone(), version.clone());
            passes.then_some(Item { path, seq: *seq, version })
        };
        let Some(after) = after else {
            let all = self.standing.keys().filter_map(item);
            return Some(all.filter(|item| item.version.is_present()).collect());
        };
        if after < self.oldest || after > self.head.seq {
            return None;
        }
        let newer = self.recent.iter().rev().take_while(|(seq, _)| *seq > after);
        let paths: std::collections::BTreeSet<_> = newer.flat_map(|(_, paths)| paths).collect();
        Some(paths.into_iter().filter_map(item).collect())
    }

    /// The whole tree, hashed.
    pub(super) fn hashed(&self, passes: &dyn Fn(&WorkspacePath, bool) -> bool) -> HashedTree {
        let standing = self.standing.iter().map(|(path, (_, version))| (path, version));
        let here = standing.filter(|(path, version)| passes(path, version.is_directory()));
        HashedTree::of(self.place(), here)
    }

    /// What became of a batch before.
    pub(super) fn before(&self, asked: &Asked<'_>) -> Before {
        let Some(known) = self.batches.get(&asked.replica) else { return Before::New };
        if known.batch < asked.batch {
            return Before::New;
        }
        let same = known.batch == asked.batch && known.writes == asked.digest();
        if !same || known.letters.len() != asked.writes.len() {
            return Before::Used(known.batch);
        }
        let verdict = |(write, letter): (&chronicle_core::replica::Write, &u8)| {
            let reason = letter.checked_sub(REJECTED).map(usize::from);
            let reason = reason.and_then(|number| Rejection::ALL.get(number));
            match reason {
                None => Verdict::Accepted(known.by),
                Some(&reason) => {
                    let told = !matches!(reason, Rejection::Filtered | Rejection::NotAllowed);
                    let theirs = told.then(|| self.version(&write.path));
                    Verdict::Rejected { reason, theirs, seq: self.head.seq }
                }
            }
        };
        Before::Answered(asked.writes.iter().zip(&known.letters).map(verdict).collect())
    }

    /// The verdicts of a judgement by which nothing changes.
    pub(super) fn verdicts(&self, judged: Judged) -> Vec<Verdict> {
        let seq = self.head.seq;
        let verdict = |decision: Decision| match decision {
            Decision::Take | Decision::Stands(_) => Verdict::Accepted(seq),
            Decision::Reject { reason, theirs, .. } => Verdict::Rejected { reason, theirs, seq },
        };
        judged.decisions.into_iter().map(verdict).collect()
    }

    /// The records of what is taken; the last one tells the answer, for whoever is asked again.
    pub(super) fn records(&self, asked: &Asked<'_>, judged: &Judged, now: Time) -> Vec<Record> {
        let labels = Labels {
            snapshot: Some(SnapshotId::new(now)),
            action: Some(WRITE_BACK.to_owned()),
            summary: Some(format!(
                "{WRITE_BACK}: {} paths from {}",
                judged.steps.len(),
                asked.name
            )),
            session: Some(asked.name.to_owned()),
            ..Labels::default()
        };
        let epoch = self.place().epoch;
        let mut records: Vec<Record> = judged
            .steps
            .chunks(CHANGES_MOST)
            .map(|steps| {
                let mut record = self.record(epoch, now, Kind::Outcome, labels.clone());
                record.changes = steps.iter().map(|step| self.change(step, asked.name)).collect();
                record
            })
            .collect();
        if let Some(last) = records.last_mut() {
            let number = asked.batch;
            last.labels.call_id =
                Some(format!("{} {number} {}", asked.replica.hex(), asked.digest().hex()));
            last.labels.note = Some(judged.decisions.iter().map(letter).collect());
        }
        records
    }

    fn change(&self, step: &Step, name: &str) -> Change {
        Change {
            path: step.path.clone(),
            before: entry(&self.version(&step.path)),
            after: entry(&step.put),
            from: None,
            author: Author::Session(name.to_owned()),
            evidence: Evidence::Named,
            neutral: false,
        }
    }
}

impl Standing for SharedTree {
    fn at(&self, path: &WorkspacePath) -> Stand {
        let seq = self.standing.get(path).map_or(Seq(0), |(seq, _)| *seq);
        Stand { version: Some(self.version(path)), seq }
    }

    fn children(&self, directory: &WorkspacePath) -> Vec<WorkspacePath> {
        let below = self.standing.range(directory.clone()..);
        below
            .take_while(|(path, _)| path.as_bytes().starts_with(directory.as_bytes()))
            .filter(|(path, (_, version))| {
                version.is_present() && path.parent().as_ref() == Some(directory)
            })
            .map(|(path, _)| path.clone())
            .collect()
    }
}

/// Owners and times of directories are each host's own.
fn entry(version: &Version) -> Entry {
    version.entry(&Entry::Absent, Owner { uid: 0, gid: 0 }, Time(0))
}

fn letter(decision: &Decision) -> char {
    char::from(match decision {
        Decision::Take => TAKEN,
        Decision::Stands(_) => STOOD,
        Decision::Reject { reason, .. } => REJECTED + *reason as u8,
    })
}

/// The answer that a record tells, if it tells one.
fn answer_in(record: &Record) -> Option<(ReplicaId, Answered)> {
    let mut words = record.labels.call_id.as_deref()?.split(' ');
    let replica = words.next()?.parse().ok()?;
    let (batch, writes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let letters = record.labels.note.clone()?.into_bytes();
    Some((replica, Answered { batch, writes, by: record.seq, letters }))
}
