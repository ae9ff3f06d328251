//! Whose a change is and where it is recorded: from what a look found to outcome records.

use std::collections::{BTreeMap, HashMap};

use super::attribute::{Announced, Group, Openings, PERSON, attribute, session_of, takes};
use super::calls::Grace;
use super::capture::{Found, Look};
use super::{Workspace, key};
use crate::catalog::{Batch, Local, Open};
use crate::entry::{Author, Change, Entry, Evidence, Why};
use crate::error::Result;
use crate::id::{Seq, SnapshotId, Time};
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels, Record};

/// The most changes that one record holds; a larger capture is several records of one snapshot.
pub(super) const CHANGES_PER_RECORD: usize = 8192;

/// How many of the agents' newest records in a directory are searched for an entry that came back.
const AGENTS_PAST: u32 = 64;

/// For how long a path that a person changed may still be the person's when it changes again.
const PERSON_NS: i64 = 600 * 1_000_000_000;
/// How many of the newest records in a directory are searched for a person's.
const PERSONS_PAST: u32 = 32;

/// Which announced actions end with a look.
pub(super) enum Closing<'a> {
    /// None.
    Nobody,
    /// These.
    These(&'a [SnapshotId]),
    /// All that nobody is known to be working on.
    Ended,
    /// The same, and all of this session.
    Of(&'a str),
}

impl Closing<'_> {
    fn closes(&self, announced: &Announced) -> bool {
        match self {
            Self::Nobody => false,
            Self::These(ids) => ids.contains(&announced.id),
            Self::Ended => !announced.alive,
            Self::Of(session) => {
                !announced.alive || announced.labels.session.as_deref() == Some(session)
            }
        }
    }
}

impl Workspace {
    /// Turns what a look found into outcome records, and ends announced actions.
    pub(super) fn add_outcomes(
        &self,
        look: Look,
        open: &Openings,
        batch: &mut Batch,
        closing: &Closing<'_>,
    ) -> Result<Vec<SnapshotId>> {
        let partial = !look.problems.is_empty();
        batch.state.extend(look.bookmark.map(|bookmark| (key::WATCHED, Some(bookmark))));
        batch.state.extend(look.journal.map(|journal| (key::MOUNTED, Some(journal))));
        let mut groups = self.group_changes(look.found, open)?;
        if look.everywhere {
            self.forget_ended(batch, open)?;
        }
        for (index, announced) in open.announced.iter().enumerate() {
            if closing.closes(announced) {
                groups.entry(Group::Action(index)).or_default();
                batch.closes.push((Open::Intent, announced.id.0.to_vec()));
            }
        }
        if !groups.is_empty() {
            let forgotten = self.past_graces()?.into_iter();
            batch.local.extend(forgotten.map(|id| (Local::Ended, id.0.to_vec(), None)));
        }
        let mut ids = Vec::new();
        for (group, changes) in groups {
            let mut labels = self.group_labels(group, open, &changes, &look.moves)?;
            labels.partial = partial;
            if group != Group::External && takes(&open.transaction_of, &labels) {
                labels.transaction = labels.transaction.or(open.transaction);
            }
            ids.extend(labels.snapshot);
            let records = self.outcome_records(labels, changes);
            batch.records.extend(records);
        }
        batch.known.extend(look.known);
        batch.objects.extend(look.rows);
        batch.hold = look.hold;
        Ok(ids)
    }

    fn group_changes(
        &self,
        found: Vec<Found>,
        open: &Openings,
    ) -> Result<BTreeMap<Group, Vec<Change>>> {
        let mut groups: BTreeMap<Group, Vec<Change>> = BTreeMap::new();
        let mut past = Past::default();
        let mut verdicts = self.verdicts(&found, open)?;
        for Found { path, mut before, after, from, neutral } in found {
            let by_window = attribute(&path, open);
            let outside = by_window.0 == Group::External;
            let verdict = verdicts.remove(&path).filter(|_| by_window.2 != Evidence::Named);
            let (mut group, mut author, mut evidence) = verdict.unwrap_or(by_window);
            // A tool that writes a new file makes the directories above it.
            if after.is_directory()
                && !before.is_present()
                && let Some(index) = open.announced.iter().rposition(|announced| {
                    announced.absent.iter().any(|named| named.is_within(&path))
                })
            {
                let session = session_of(&open.announced[index].labels);
                (group, author, evidence) =
                    (Group::Action(index), Author::Session(session), Evidence::Named);
            }
            // Where nobody ever listed the directory, the action's own look is the proof.
            if let Group::Action(index) = group
                && before == Entry::Unknown(Why::NotSeen)
                && open.announced[index].absent.contains(&path)
            {
                before = Entry::Absent;
            }
            // What is seen for the first time was not changed by whoever happens to be at work.
            if evidence == Evidence::Window && matches!(before, Entry::Unknown(Why::NotSeen)) {
                (group, author, evidence) = (Group::External, Author::Person, Evidence::Outside);
            }
            if group == Group::External {
                let late = match evidence {
                    Evidence::Process => None,
                    _ => self.late_author(&mut past, &path, &after)?,
                };
                if let Some((grace, session)) = late {
                    (group, author, evidence) = (grace, Author::Session(session), Evidence::Window);
                } else if (outside || evidence != Evidence::Process)
                    && let Some(returned) = self.returned_author(&mut past, &path, &after)?
                {
                    (author, evidence) = (returned, Evidence::Returned);
                }
            } else if let Author::Session(session) = &author
                && evidence == Evidence::Window
                && self.is_hooks(group, open)
                && self.person_was_here(&mut past, &path)?
            {
                author = Author::Shared(vec![PERSON.to_owned(), session.clone()]);
            }
            let change = Change { path, before, after, from, author, evidence, neutral };
            groups.entry(group).or_default().push(change);
        }
        for changes in groups.values_mut() {
            changes.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Ok(groups)
    }

    fn group_labels(
        &self,
        group: Group,
        open: &Openings,
        changes: &[Change],
        moves: &[String],
    ) -> Result<Labels> {
        let fresh = SnapshotId::new(self.now());
        let (mut labels, action) = match group {
            Group::Late(id) => return self.late_labels(&id),
            Group::Action(index) => {
                let announced = &open.announced[index];
                let intent = Some(announced.id);
                return Ok(Labels { intent, ..announced.labels.clone() });
            }
            Group::Window(index) => (open.windows[index].labels.clone(), "shell"),
            Group::Turn(index) => (open.turns[index].clone(), "shell"),
            Group::Past(turn) => (self.labels_of_past_turn(turn)?, "shell"),
            Group::Shared => (Labels::default(), "shell"),
            Group::External if self.seen.borrow().is_some() => (self.seen_labels(changes), "mount"),
            Group::External => (Labels::default(), "external"),
        };
        labels.snapshot = Some(fresh);
        labels.action = Some(action.to_owned());
        labels.summary = Some(summarize(action, changes, moves));
        labels.prompt = None;
        Ok(labels)
    }

    /// One outcome as one record, or as several where it is very large.
    pub(super) fn outcome_records(&self, labels: Labels, mut changes: Vec<Change>) -> Vec<Record> {
        let mut records = Vec::new();
        loop {
            let rest = changes.split_off(changes.len().min(CHANGES_PER_RECORD));
            let mut record = self.record(Kind::Outcome, labels.clone());
            record.changes = changes;
            records.push(record);
            if rest.is_empty() {
                return records;
            }
            changes = rest;
        }
    }

    /// The author of an entry that a change outside every window brought back.
    fn returned_author(
        &self,
        past: &mut Past,
        path: &WorkspacePath,
        after: &Entry,
    ) -> Result<Option<Author>> {
        if !after.is_present() {
            return Ok(None);
        }
        let directory = path.parent().unwrap_or_default();
        if !past.touching.contains_key(&directory) {
            let seqs = self.catalog.touching_by_agents(&directory, AGENTS_PAST)?;
            past.touching.insert(directory.clone(), seqs);
        }
        for seq in &past.touching[&directory] {
            if !past.records.contains_key(seq) {
                past.records.insert(*seq, self.read_record(*seq)?);
            }
            for change in past.records[seq].changes.iter().filter(|change| change.path == *path) {
                let of_agent = matches!(change.author, Author::Session(_) | Author::Shared(_));
                if of_agent && change.after.same_but_time(after) {
                    return Ok(Some(change.author.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Whether changes of this group were seen by a hook's window.
    fn is_hooks(&self, group: Group, open: &Openings) -> bool {
        matches!(group, Group::Action(index) if open.announced[index].labels.by_hook)
    }

    /// The call that wrote a path a moment before, and may have written it once more.
    fn late_author(
        &self,
        past: &mut Past,
        path: &WorkspacePath,
        after: &Entry,
    ) -> Result<Option<(Group, String)>> {
        if past.graces.is_none() {
            past.graces = Some(self.graces()?.0);
        }
        let time = after.meta().map_or(self.now(), |meta| Time(meta.mtime_ns));
        let wrote = |grace: &&Grace| time <= grace.until && grace.paths.contains(path);
        let Some(grace) = past.graces.iter().flatten().rev().find(wrote) else { return Ok(None) };
        let session = session_of(&self.late_labels(&grace.id)?);
        Ok(Some((Group::Late(grace.id), session)))
    }

    /// What a change after the end of a call is labelled with.
    fn late_labels(&self, id: &SnapshotId) -> Result<Labels> {
        let labels = self.first_header(id)?.labels;
        Ok(Labels { intent: Some(*id), ..labels })
    }

    fn past_graces(&self) -> Result<Vec<SnapshotId>> {
        Ok(self.graces()?.1)
    }

    /// Whether a person changed this very path a short while ago.
    fn person_was_here(&self, past: &mut Past, path: &WorkspacePath) -> Result<bool> {
        let directory = path.parent().unwrap_or_default();
        if !past.persons.contains_key(&directory) {
            let seqs = self.catalog.touching_by_people(&directory, PERSONS_PAST)?;
            past.persons.insert(directory.clone(), seqs);
        }
        let since = self.now().0.saturating_sub(PERSON_NS);
        let first = self.baseline_end()?;
        for seq in past.persons[&directory].iter().filter(|seq| **seq > first) {
            if !past.records.contains_key(seq) {
                past.records.insert(*seq, self.read_record(*seq)?);
            }
            let record = &past.records[seq];
            if record.time.0 < since {
                return Ok(false);
            }
            let theirs = |change: &Change| change.path == *path && change.author == Author::Person;
            if record.changes.iter().any(theirs) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What was read of the past while looking for authors.
#[derive(Default)]
struct Past {
    touching: HashMap<WorkspacePath, Vec<Seq>>,
    persons: HashMap<WorkspacePath, Vec<Seq>>,
    graces: Option<Vec<Grace>>,
    records: HashMap<Seq, Record>,
}

/// A snapshot in words: what repositories did, the one path, or how many.
fn summarize(action: &str, changes: &[Change], moves: &[String]) -> String {
    let mut seen = changes.iter().filter(|change| change.is_visible());
    let first = seen.next();
    let rest = seen.count();
    let what = match (first, rest) {
        (None, _) => "times only".to_owned(),
        (Some(change), 0) => change.path.to_string(),
        (Some(_), rest) => format!("{} files", rest + 1),
    };
    match moves {
        [] => format!("{action}: {what}"),
        moves => format!("{}, {what}", moves.join(", ")),
    }
}
