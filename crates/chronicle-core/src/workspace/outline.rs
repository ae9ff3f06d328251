//! The log as people page through it: stretches that are cheap to list, and what one of them holds.
//!
//! Listing costs one number per turn, whatever happened in it; everything else is read only for the
//! stretches that somebody looks at.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::Workspace;
use super::search::path_pattern;
use super::views::{author_text, change_type, entry_view, is_shown, timestamp};
use crate::base64;
use crate::catalog::Log;
use crate::codec;
use crate::entry::{Change, Entry};
use crate::error::{Error, Result};
use crate::id::{ObjectId, Seq, SnapshotId, Time, from_hex};
use crate::path::WorkspacePath;
use crate::record::{ChangeRef, Kind, Record};
use crate::store::ContentStorage;
use crate::text;
use crate::view::{EntryView, TurnView};

/// How many records outside any turn are one stretch at most.
const CHUNK: u64 = 256;
/// How many records are looked through for what belongs to one turn.
const LONGEST: u64 = 20_000;
/// How many ends are tried to find that of one turn.
const TRIED_ENDS: usize = 256;
/// How many snapshots of one stretch are told.
const MOST_SNAPSHOTS: usize = 2_000;

/// A part of the log: a turn, or records outside any turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stretch {
    /// Its first record, which never changes: of a turn, its start.
    pub first: Seq,
    /// The last record before the next stretch.
    pub last: Seq,
    /// Whether it is a turn.
    pub is_turn: bool,
}

/// All stretches of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// The last record that it knows of.
    pub head: u64,
    /// How many turns the log has.
    pub turns: u64,
    /// The stretches, newest first.
    pub stretches: Vec<Stretch>,
}

/// What one stretch holds.
#[derive(Debug, Clone)]
pub struct StretchView {
    /// Which.
    pub stretch: Stretch,
    /// The turn, if it is one.
    pub turn: Option<TurnView>,
    /// The agent of the turn.
    pub agent: Option<String>,
    /// When it began.
    pub time: Time,
    /// How many paths changed.
    pub files: u64,
    /// Whose changes: session keys, `person`, `chronicle` or `shared`.
    pub authors: Vec<String>,
    /// How many changes there are, and how many of them were taken back.
    pub changes: (u64, u64),
    /// What was done, oldest first.
    pub snapshots: Vec<SnapshotBrief>,
    /// Whether there is more than is told.
    pub partial: bool,
}

/// One action, in short.
#[derive(Debug, Clone)]
pub struct SnapshotBrief {
    /// The snapshot's id; a pin or a prune has none.
    pub id: Option<SnapshotId>,
    /// Its first record.
    pub first: Seq,
    /// Its last record.
    pub last: Seq,
    /// When it began.
    pub time: Time,
    /// `write_file`, `shell`, `external`, `rewind`, `pin`, ...
    pub action: String,
    /// In words.
    pub summary: String,
    /// The agent.
    pub agent: Option<String>,
    /// The session's key.
    pub session: Option<String>,
    /// Which of the session's sub-agents.
    pub sub_agent: Option<String>,
    /// How many paths changed.
    pub files: u64,
    /// Whose changes.
    pub authors: Vec<String>,
    /// How many changes there are, and how many of them were taken back.
    pub changes: (u64, u64),
    /// Whether its outcome is not recorded yet.
    pub open: bool,
    /// Whether the capture saw everything it should have seen.
    pub complete: bool,
    /// How many things it called that cannot be taken back.
    pub effects: u64,
}

/// Of what the changed files are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangesOf {
    /// Of a turn, or of what happened outside.
    Stretch(Stretch),
    /// Of one action.
    Snapshot(SnapshotId),
}

/// One path with what stood there before and after.
#[derive(Debug, Clone)]
pub struct FileSpan {
    /// Where.
    pub path: WorkspacePath,
    /// Where it was moved from.
    pub from: Option<WorkspacePath>,
    /// What stood there.
    pub before: Entry,
    /// What stands there after.
    pub after: Entry,
    /// Who changed it.
    pub authors: Vec<String>,
    /// Whether any of it is in effect.
    pub live: bool,
}

/// By how many lines two contents differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineStat {
    /// Lines added.
    pub inserted: u64,
    /// Lines removed.
    pub deleted: u64,
    /// Whether either is not text.
    pub binary: bool,
}

/// One version of one file: what put it there, and the change.
#[derive(Debug, Clone)]
pub struct FileVersion {
    /// The record.
    pub seq: Seq,
    /// When.
    pub time: Time,
    /// The snapshot that made it.
    pub snapshot: Option<SnapshotId>,
    /// The turn's number.
    pub turn: Option<u64>,
    /// What the action was.
    pub summary: String,
    /// The change.
    pub span: FileSpan,
}

impl FileSpan {
    /// `created`, `modified`, `deleted`, `renamed` or `mode`.
    pub fn change_type(&self) -> &'static str {
        change_type(&self.before, &self.after, self.from.is_some())
    }

    /// What stood there and what stands there after, for people.
    pub fn views(&self) -> (EntryView, EntryView) {
        (entry_view(&self.before), entry_view(&self.after))
    }

    fn of(change: Change, live: bool) -> Self {
        let from = change.from.map(|from| from.path);
        let author = author_text(&change.author).0;
        let (path, before, after) = (change.path, change.before, change.after);
        Self { path, from, before, after, authors: vec![author], live }
    }
}

/// What stands at a path, for people and JSON.
pub fn view_of(entry: &Entry) -> EntryView {
    entry_view(entry)
}

/// The path that a view shows; nothing if the text is not exact and nothing else tells.
pub fn exact_path(shown: &str, path_b64: Option<&str>) -> Option<WorkspacePath> {
    match path_b64 {
        Some(exact) => WorkspacePath::new(base64::decode(exact)?).ok(),
        None => WorkspacePath::new(shown).ok().filter(|path| path.to_string() == shown),
    }
}

/// Where turns start and end, for finding what belongs together.
struct Bounds {
    ends: Vec<Seq>,
    head: Seq,
    baseline: Seq,
}

impl Workspace {
    /// Every stretch of the log, newest first.
    pub fn outline(&self) -> Result<Outline> {
        let starts = self.catalog.of_kind(Kind::TurnStart)?;
        let Bounds { ends, head, baseline } = self.bounds()?;
        let mut stretches = Vec::with_capacity(starts.len() * 2);
        let first = starts.first().map_or(head.0, |start| start.0 - 1);
        outside(&mut stretches, 1, first.min(baseline.0));
        outside(&mut stretches, first.min(baseline.0) + 1, first);
        for (index, start) in starts.iter().enumerate() {
            let last = starts.get(index + 1).map_or(head, |next| Seq(next.0 - 1));
            stretches.push(Stretch { first: *start, last, is_turn: true });
            let end = ends[..ends.partition_point(|end| *end <= last)].last();
            if let Some(end) = end.filter(|end| *end > start) {
                outside(&mut stretches, end.0 + 1, last.0);
            }
        }
        stretches.reverse();
        Ok(Outline { head: head.0, turns: starts.len() as u64, stretches })
    }

    /// The stretches in which a path changed that holds the text, or fits the glob.
    pub fn outline_touching(&self, pattern: &str, cancel: &AtomicBool) -> Result<Outline> {
        let pattern = path_pattern(pattern)?;
        let mut outline = self.outline()?;
        let mut hit: BTreeMap<Seq, Option<u64>> = BTreeMap::new();
        self.for_each_change(Seq(0), &mut |record, _, change| {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            if is_shown(&change) && pattern.is_match(change.path.as_bytes()) {
                hit.insert(record.seq, record.labels.turn);
            }
            Ok(())
        })?;
        let wanted = self.stretches_of(&outline.stretches, &hit)?;
        outline.stretches.retain(|it| wanted.contains(&it.first));
        Ok(outline)
    }

    /// The stretches that records belong to: their turn, or without one where they lie.
    fn stretches_of(
        &self,
        stretches: &[Stretch],
        records: &BTreeMap<Seq, Option<u64>>,
    ) -> Result<HashSet<Seq>> {
        let (mut wanted, mut known) = (HashSet::new(), HashMap::new());
        for (seq, turn) in records {
            // Newest first: those that begin before the record are at the end.
            let earlier = &stretches[stretches.partition_point(|it| it.first > *seq)..];
            let found = match turn {
                None => earlier.first().map(|it| it.first),
                Some(number) if known.contains_key(number) => continue,
                Some(number) => {
                    let starts = earlier.iter().filter(|it| it.is_turn).take(TRIED_ENDS);
                    let mut found = None;
                    for start in starts.map(|it| it.first) {
                        if self.read_header(start)?.labels.turn == Some(*number) {
                            found = known.insert(*number, start).or(Some(start));
                            break;
                        }
                    }
                    found
                }
            };
            wanted.extend(found);
        }
        Ok(wanted)
    }

    fn bounds(&self) -> Result<Bounds> {
        let ends = self.catalog.of_kind(Kind::TurnEnd)?;
        Ok(Bounds { ends, head: self.catalog.head()?.seq, baseline: self.baseline_end()? })
    }

    /// What some stretches hold, in the order they were given.
    pub fn stretches(&self, wanted: &[Stretch]) -> Result<Vec<StretchView>> {
        let bounds = self.bounds()?;
        let dead = self.taken_back(None)?;
        wanted.iter().map(|stretch| self.stretch(*stretch, &bounds, &dead)).collect()
    }

    fn stretch(
        &self,
        stretch: Stretch,
        bounds: &Bounds,
        dead: &HashSet<ChangeRef>,
    ) -> Result<StretchView> {
        let mut view = StretchView {
            stretch,
            turn: None,
            agent: None,
            time: Time(0),
            files: 0,
            authors: Vec::new(),
            changes: (0, 0),
            snapshots: Vec::new(),
            partial: false,
        };
        let mut places: HashMap<SnapshotId, usize> = HashMap::new();
        let mut paths = Counted::default();
        if stretch.is_turn {
            (view.turn, view.agent) = self.turn_of(stretch.first, &bounds.ends)?;
        }
        let turn = view.turn.as_ref().map(|turn| (turn.number, turn.end_seq));
        view.partial = self.visit(stretch, turn, bounds, &mut |record| {
            if view.time == Time(0) {
                view.time = record.time;
            }
            let Some(brief) = brief(record) else { return };
            let known = record.labels.snapshot.and_then(|id| places.get(&id).copied());
            let place = known.unwrap_or_else(|| {
                view.snapshots.push(brief);
                view.snapshots.len() - 1
            });
            if let Some(id) = record.labels.snapshot {
                places.insert(id, place);
            }
            let one = &mut view.snapshots[place];
            let mut own = Counted::default();
            own.add(record, dead);
            paths.add(record, dead);
            one.take(record, &own);
        })?;
        view.snapshots.retain(SnapshotBrief::is_worth_showing);
        view.partial |= view.snapshots.len() > MOST_SNAPSHOTS;
        view.snapshots.truncate(MOST_SNAPSHOTS);
        view.files = paths.files();
        view.changes = paths.changes;
        view.authors = paths.authors.into_iter().collect();
        Ok(view)
    }

    /// The turn that starts at a record, with its end if it has one, and its agent.
    fn turn_of(&self, start: Seq, ends: &[Seq]) -> Result<(Option<TurnView>, Option<String>)> {
        let record = self.read_header(start)?;
        let number = record.labels.turn.unwrap_or(0);
        let mut turn = TurnView {
            number,
            key: record.labels.turn_key,
            session: record.labels.session,
            prompt: record.labels.prompt,
            started_at: timestamp(record.time),
            ended_at: None,
            start_seq: start.0,
            end_seq: None,
        };
        let later = &ends[ends.partition_point(|end| *end <= start)..];
        for seq in later.iter().take(TRIED_ENDS) {
            let end = match self.read_header(*seq) {
                Err(Error::Pruned { .. }) => continue,
                end => end?,
            };
            if end.labels.turn == Some(number) {
                turn.ended_at = Some(timestamp(end.time));
                // An inferred end is the last event that was seen of the turn.
                turn.end_seq = Some(end.labels.target.unwrap_or(*seq).0);
                break;
            }
        }
        Ok((Some(turn), record.labels.agent))
    }

    /// Calls back with every record that belongs to a stretch; tells whether some were left out.
    ///
    /// What no turn claims belongs to the turn that was the newest, until that ended. A turn's own
    /// records count until its end, also beyond the start of another session's turn.
    fn visit(
        &self,
        stretch: Stretch,
        turn: Option<(u64, Option<u64>)>,
        bounds: &Bounds,
        visit: &mut dyn FnMut(&Record),
    ) -> Result<bool> {
        let (number, end) = turn.map_or((None, None), |(number, end)| (Some(number), end));
        let claimed_until = end.map_or(stretch.last.0, |end| end.min(stretch.last.0));
        let wanted_until = match number {
            Some(_) => end.map_or(bounds.head.0, |end| end.max(stretch.last.0)),
            None => stretch.last.0,
        };
        let until = wanted_until.min(stretch.first.0 + LONGEST);
        let mut after = Seq(stretch.first.0 - 1);
        while after.0 < until {
            let records = self.catalog.read(after, 64)?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            let whole = |seq: Seq| seq.0 <= until;
            for sealed in records.iter().filter(|it| whole(it.seq) && !it.leaf.is_empty()) {
                let seq = sealed.seq;
                let header = codec::decode_header(&sealed.leaf)
                    .map_err(|source| Error::Record { seq, source })?;
                let ours = match (header.labels.turn, number) {
                    (Some(of), Some(number)) => of == number,
                    (None, Some(_)) => seq.0 <= claimed_until,
                    (of, None) => of.is_none(),
                };
                // Of the first look only the header is of interest, and its changes are many.
                if ours && seq <= bounds.baseline {
                    visit(&header);
                } else if ours {
                    visit(&self.open_sealed(sealed)?);
                }
            }
        }
        Ok(until < wanted_until)
    }

    /// The paths that a stretch or a snapshot changed, each from the first change to the last.
    pub fn changed_files(&self, of: &ChangesOf) -> Result<Vec<FileSpan>> {
        let dead = self.taken_back(None)?;
        let mut spans = Spans::default();
        match of {
            ChangesOf::Snapshot(id) => {
                for seq in self.catalog.of_snapshot(id)? {
                    spans.add(self.read_record(seq)?, &dead);
                }
            }
            ChangesOf::Stretch(stretch) => {
                let bounds = self.bounds()?;
                let turn = match stretch.is_turn {
                    true => self.turn_of(stretch.first, &bounds.ends)?.0,
                    false => None,
                };
                let turn = turn.map(|turn| (turn.number, turn.end_seq));
                self.visit(*stretch, turn, &bounds, &mut |record| {
                    spans.add(record.clone(), &dead);
                })?;
            }
        }
        spans.finish(self)
    }

    /// Counts the lines by which the two sides of a span differ.
    pub fn span_counts(&self, span: &FileSpan) -> Result<LineStat> {
        let counts = self.counts(&span.before, &span.after)?;
        Ok(LineStat { inserted: counts.inserted, deleted: counts.deleted, binary: counts.binary })
    }

    /// The unified patch of a span.
    pub fn span_patch(&self, span: &FileSpan) -> Result<String> {
        self.patch(&span.path, span.from.as_ref(), &span.before, &span.after)
    }

    /// The hunks between two contents that views name, as of the sides of a conflict.
    pub fn compare_views(&self, before: &EntryView, after: &EntryView) -> Result<String> {
        let (Some(old), Some(new)) = (self.viewed(before)?, self.viewed(after)?) else {
            return Ok("The content is secret, or too large to compare by lines\n".to_owned());
        };
        if text::is_binary(&old) || text::is_binary(&new) {
            return Ok("Binary files differ\n".to_owned());
        }
        Ok(String::from_utf8_lossy(&text::patch(&old, &new)).into_owned())
    }

    /// The content that a view names; nothing for what is not shown or too large.
    fn viewed(&self, view: &EntryView) -> Result<Option<Vec<u8>>> {
        if view.secret || view.size.is_some_and(|size| size > super::views::COUNT_LIMIT) {
            return Ok(None);
        }
        let object = view.hash.as_deref().and_then(from_hex).map(ObjectId);
        match (view.kind.as_str(), object) {
            ("file", Some(object)) => self.objects()?.get(&object).map(Some),
            _ => Ok(Some(view.target.clone().unwrap_or_default().into_bytes())),
        }
    }

    /// The newest versions of one file across renames, and whether there are more.
    pub fn versions_of(
        &self,
        path: &WorkspacePath,
        most: usize,
    ) -> Result<(Vec<FileVersion>, bool)> {
        let dead = self.taken_back(None)?;
        let mut versions = Vec::new();
        let more = self.for_each_version(path, Seq(u64::MAX), &mut |record, at, change| {
            if versions.len() >= most {
                return Ok(false);
            }
            let live = !dead.contains(&at);
            let mut span = FileSpan::of(change.clone(), live);
            if let Some(from) = &span.from {
                span.before = self.entry_at(from, Seq(record.seq.0 - 1))?;
            }
            versions.push(FileVersion {
                seq: record.seq,
                time: record.time,
                snapshot: record.labels.snapshot,
                turn: record.labels.turn,
                summary: record.labels.summary.clone().unwrap_or_default(),
                span,
            });
            Ok(true)
        })?;
        Ok((versions, more))
    }
}

/// Adds what lies outside any turn, cut where the numbers say so that the cuts never move.
fn outside(stretches: &mut Vec<Stretch>, mut first: u64, last: u64) {
    while first <= last {
        let cut = (first / CHUNK + 1) * CHUNK - 1;
        let end = cut.min(last);
        stretches.push(Stretch { first: Seq(first), last: Seq(end), is_turn: false });
        first = end + 1;
    }
}

/// Paths, authors and changes, counted over records.
#[derive(Default)]
struct Counted {
    paths: HashSet<WorkspacePath>,
    origins: HashSet<WorkspacePath>,
    arrived: HashSet<WorkspacePath>,
    authors: BTreeSet<String>,
    changes: (u64, u64),
}

impl Counted {
    fn add(&mut self, record: &Record, dead: &HashSet<ChangeRef>) {
        if record.kind == Kind::Intent {
            return;
        }
        for (index, change) in record.changes.iter().enumerate() {
            if !is_shown(change) {
                continue;
            }
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.changes.0 += 1;
            self.changes.1 += u64::from(dead.contains(&ChangeRef { seq: record.seq, index }));
            self.paths.insert(change.path.clone());
            if let Some(from) = &change.from {
                self.origins.insert(from.path.clone());
                self.arrived.insert(change.path.clone());
            }
            self.authors.insert(author_text(&change.author).0);
        }
    }

    /// What moved counts once; what also came back counts under both names.
    fn files(&self) -> u64 {
        let left =
            |path: &&WorkspacePath| self.origins.contains(*path) && !self.arrived.contains(*path);
        self.paths.iter().filter(|path| !left(path)).count() as u64
    }
}

impl SnapshotBrief {
    fn take(&mut self, record: &Record, own: &Counted) {
        self.last = record.seq;
        self.files += own.files();
        self.changes.0 += own.changes.0;
        self.changes.1 += own.changes.1;
        self.authors.extend(own.authors.iter().cloned());
        self.authors.sort();
        self.authors.dedup();
        self.open &= matches!(record.kind, Kind::Intent | Kind::Effect);
        self.effects += u64::from(record.kind == Kind::Effect);
        self.complete &= !record.labels.partial;
    }

    /// A snapshot with nothing to see is shown only if it is an action somebody announced.
    fn is_worth_showing(&self) -> bool {
        let quiet = ["external", "shell"].contains(&self.action.as_str());
        self.changes.0 > 0 || !quiet || self.open || self.effects > 0
    }
}

/// A record in short, before its changes are counted; nothing for what people do not look for.
fn brief(record: &Record) -> Option<SnapshotBrief> {
    let labels = &record.labels;
    let named = |action: &str, summary: String| Some((action.to_owned(), summary));
    let (action, summary) = match (record.kind, labels.snapshot) {
        (Kind::Pin, _) => named("pin", format!("pin: {}", labels.name.as_deref().unwrap_or("")))?,
        (Kind::Prune, _) => named("prune", "prune: old history".to_owned())?,
        (Kind::Forget, _) => named("forget", "forget: content for good".to_owned())?,
        (Kind::TransactionStart, _) => named("begin", "begin: a transaction".to_owned())?,
        (Kind::TransactionEnd, _) if labels.rolled_back => {
            named("rollback", "end: the transaction was rolled back".to_owned())?
        }
        (Kind::TransactionEnd, _) => named("commit", "commit: the transaction".to_owned())?,
        (_, None) => return None,
        (_, Some(_)) => {
            (labels.action.clone().unwrap_or_default(), labels.summary.clone().unwrap_or_default())
        }
    };
    Some(SnapshotBrief {
        id: labels.snapshot,
        first: record.seq,
        last: record.seq,
        time: record.time,
        action,
        summary,
        agent: labels.agent.clone(),
        session: labels.session.clone(),
        sub_agent: labels.sub_agent.clone(),
        files: 0,
        authors: Vec::new(),
        changes: (0, 0),
        open: record.kind == Kind::Intent,
        complete: true,
        effects: 0,
    })
}

/// Paths as they were before the first and after the last of some records.
#[derive(Default)]
struct Spans(BTreeMap<WorkspacePath, FileSpan>);

impl Spans {
    fn add(&mut self, record: Record, dead: &HashSet<ChangeRef>) {
        if record.kind == Kind::Intent {
            return;
        }
        for (index, change) in record.changes.into_iter().enumerate() {
            if !is_shown(&change) {
                continue;
            }
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let live = !dead.contains(&ChangeRef { seq: record.seq, index });
            let new = FileSpan::of(change, live);
            match self.0.get_mut(&new.path) {
                Some(span) => span.extend(new),
                None => drop(self.0.insert(new.path.clone(), new)),
            }
        }
    }

    /// What moved is shown once, where it is now, beside what it was.
    fn finish(mut self, workspace: &Workspace) -> Result<Vec<FileSpan>> {
        let moved: Vec<_> = self.0.values().filter_map(|span| span.from.clone()).collect();
        for origin in moved {
            let left = self.0.get(&origin).is_some_and(|span| span.after == Entry::Absent);
            let Some(left) = left.then(|| self.0.remove(&origin)).flatten() else { continue };
            let mut spans = self.0.values_mut();
            if let Some(span) = spans.find(|span| span.from.as_ref() == Some(&origin)) {
                span.before = left.before;
            }
        }
        for span in self.0.values_mut() {
            if let (Some(from), Entry::Absent) = (&span.from, &span.before) {
                span.before = workspace.entry_before_move(from)?.unwrap_or(Entry::Absent);
            }
        }
        Ok(self.0.into_values().collect())
    }
}

impl FileSpan {
    /// Goes on with a later change of the same path.
    fn extend(&mut self, later: Self) {
        self.after = later.after;
        self.live |= later.live;
        for author in later.authors {
            if !self.authors.contains(&author) {
                self.authors.push(author);
            }
        }
        if self.from.is_none() && self.before == Entry::Absent {
            self.from = later.from;
        }
    }
}
