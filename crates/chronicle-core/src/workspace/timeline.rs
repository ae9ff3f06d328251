//! The timeline: turns, and what happened outside of them, newest first and page by page.
//!
//! Reads the log backwards from where a page begins, so that a page costs what it shows and not how
//! long the history is.

use std::collections::{HashMap, HashSet};

use super::Workspace;
use super::views::{author_text, change_type, is_shown, timestamp};
use crate::catalog::Log;
use crate::codec;
use crate::error::{Error, Result};
use crate::id::{Seq, SnapshotId};
use crate::path::WorkspacePath;
use crate::record::{ChangeRef, Kind, Record, Sealed};
use crate::view::{SCHEMA, TimelineEntry, TimelinePage, TurnView};

/// How many records one page looks at; with a filter, a page may end before it is full.
const RECORDS_MOST: usize = 5_000;
/// How many records are read at once.
const BATCH: usize = 128;
/// How many records behind the page are looked at for the rest of a turn that goes on there.
const REST_MOST: usize = 2_000;
/// How many of an entry's paths are named.
const PATHS_NAMED: usize = 4;
/// How many words of one kind (tools, agents, authors) an entry names.
const WORDS_NAMED: usize = 16;

/// Which part of the timeline.
#[derive(Debug, Clone, Default)]
pub struct TimelineQuery {
    /// Only what began before this record.
    pub before: Option<Seq>,
    /// Of this session only.
    pub session: Option<String>,
    /// In which this tool was used.
    pub tool: Option<String>,
    /// That changed this path or something below it.
    pub path: Option<WorkspacePath>,
    /// At most so many entries.
    pub limit: usize,
}

/// What is known of an entry while its records are gathered.
#[derive(Default)]
struct Gathered {
    entry: TimelineEntry,
    snapshots: HashSet<SnapshotId>,
    ended: Option<(Seq, String)>,
    settled: bool,
    partial_capture: bool,
    touches_path: bool,
}

/// What an entry is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Turn(u64),
    Action(SnapshotId),
}

impl Workspace {
    /// A page of the timeline.
    pub fn timeline(&self, query: &TimelineQuery) -> Result<TimelinePage> {
        let _one_moment = self.catalog.reading()?;
        let head = self.catalog.head()?.seq;
        let dead = self.taken_back(None)?;
        let mut page =
            TimelinePage { schema: SCHEMA, head_seq: head.0, entries: Vec::new(), next: None };
        let begin = query.before.unwrap_or(Seq(u64::MAX));
        let (mut at, mut seen) = (begin, 0);
        let mut gathered: HashMap<Whose, Gathered> = HashMap::new();
        loop {
            let records = self.catalog.read_before(at, BATCH)?;
            if records.is_empty() {
                return Ok(page);
            }
            for sealed in records {
                at = sealed.seq;
                seen += 1;
                let Some((whose, record)) = self.part_of_timeline(&sealed)? else { continue };
                let found = gathered.entry(whose).or_default();
                found.add(&record, &dead, query.path.as_ref());
                if !self.is_first(whose, &record)? {
                    continue;
                }
                let mut found = gathered.remove(&whose).unwrap_or_default();
                if let Whose::Turn(number) = whose {
                    self.add_rest(&mut found, number, begin, &dead, query.path.as_ref())?;
                }
                if found.fits(&record, query) {
                    page.entries.extend(found.finish(whose, record).filter(is_worth_showing));
                }
                if page.entries.len() >= query.limit {
                    page.next = (at.0 > 1).then_some(at.0);
                    return Ok(page);
                }
            }
            if seen >= RECORDS_MOST {
                page.next = (at.0 > 1).then_some(at.0);
                return Ok(page);
            }
        }
    }

    /// A record with its changes, and the entry it belongs to, if it belongs to one.
    fn part_of_timeline(&self, sealed: &Sealed) -> Result<Option<(Whose, Record)>> {
        if sealed.leaf.is_empty() {
            return Ok(None);
        }
        let seq = sealed.seq;
        let mut record =
            codec::decode_header(&sealed.leaf).map_err(|source| Error::Record { seq, source })?;
        let labels = &record.labels;
        let whose = match (record.kind, labels.turn, labels.snapshot) {
            // Who takes something back does not do the turn's work, also while it goes on.
            (Kind::Rewind, _, Some(id)) => Whose::Action(id),
            (Kind::Rewind, ..) => return Ok(None),
            (_, Some(number), _) => Whose::Turn(number),
            (Kind::Intent | Kind::Outcome | Kind::Effect, None, Some(id)) => Whose::Action(id),
            _ => return Ok(None),
        };
        if record.kind != Kind::Intent && codec::holds_changes(&sealed.leaf) {
            record.changes = self.open_sealed(sealed)?.changes;
        }
        Ok(Some((whose, record)))
    }

    /// Whether a record is the first of its entry.
    fn is_first(&self, whose: Whose, record: &Record) -> Result<bool> {
        match whose {
            Whose::Turn(_) => Ok(record.kind == Kind::TurnStart),
            Whose::Action(_) if record.kind == Kind::Rewind => Ok(true),
            Whose::Action(id) => {
                Ok(self.catalog.of_snapshot(&id)?.first().is_none_or(|first| *first >= record.seq))
            }
        }
    }

    /// Adds what a turn did behind the beginning of the page, where others worked at the same time.
    fn add_rest(
        &self,
        found: &mut Gathered,
        number: u64,
        begin: Seq,
        dead: &HashSet<ChangeRef>,
        path: Option<&WorkspacePath>,
    ) -> Result<()> {
        let (mut after, mut seen) = (Seq(begin.0.saturating_sub(1)), 0);
        while found.ended.is_none() && begin.0 != u64::MAX {
            let records = self.catalog.read(after, BATCH)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.seq;
            seen += records.len();
            for sealed in &records {
                if let Some((Whose::Turn(of), record)) = self.part_of_timeline(sealed)?
                    && of == number
                {
                    found.add(&record, dead, path);
                }
            }
            if seen >= REST_MOST {
                found.entry.partial = true;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// An action outside of every turn at which nothing is to see is none for people.
fn is_worth_showing(entry: &TimelineEntry) -> bool {
    let changes = entry.created + entry.modified + entry.deleted + entry.renamed + entry.mode;
    let quiet = matches!(entry.action_type.as_deref(), Some("external" | "init" | "shell"));
    entry.turn.is_some() || changes > 0 || !quiet || !entry.tools.is_empty()
}

fn note(words: &mut Vec<String>, word: Option<&String>) {
    if let Some(word) = word
        && words.len() < WORDS_NAMED
        && !words.contains(word)
    {
        words.push(word.clone());
    }
}

impl Gathered {
    fn add(&mut self, record: &Record, dead: &HashSet<ChangeRef>, path: Option<&WorkspacePath>) {
        let (labels, entry) = (&record.labels, &mut self.entry);
        entry.last_seq = entry.last_seq.max(record.seq.0);
        note(&mut entry.agents, labels.agent.as_ref());
        note(&mut entry.sub_agents, labels.sub_agent.as_ref());
        note(&mut entry.tools, labels.tool.as_ref());
        self.snapshots.extend(labels.snapshot);
        self.partial_capture |= labels.partial;
        match record.kind {
            Kind::TurnEnd => {
                let end = labels.target.unwrap_or(record.seq);
                self.ended = Some((end, timestamp(record.time)));
            }
            Kind::Outcome | Kind::Rewind => self.settled = true,
            _ => {}
        }
        for (index, change) in record.changes.iter().enumerate().filter(|(_, c)| is_shown(c)) {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let at = ChangeRef { seq: record.seq, index };
            entry.taken_back += u64::from(dead.contains(&at));
            let count = match change_type(&change.before, &change.after, change.from.is_some()) {
                "created" => &mut entry.created,
                "deleted" => &mut entry.deleted,
                "renamed" => &mut entry.renamed,
                "mode" => &mut entry.mode,
                _ => &mut entry.modified,
            };
            *count += 1;
            note(&mut entry.authors, Some(&author_text(&change.author).0));
            if entry.paths.len() < PATHS_NAMED {
                note(&mut entry.paths, Some(&change.path.to_string()));
            }
            self.touches_path |= path.is_some_and(|path| change.path.is_within(path));
        }
    }

    fn fits(&self, first: &Record, query: &TimelineQuery) -> bool {
        let session = query.session.as_ref();
        let tool = query.tool.as_ref();
        session.is_none_or(|session| first.labels.session.as_ref() == Some(session))
            && tool.is_none_or(|tool| self.entry.tools.contains(tool))
            && (query.path.is_none() || self.touches_path)
    }

    /// The entry, once its first record is known.
    fn finish(self, whose: Whose, first: Record) -> Option<TimelineEntry> {
        let Self { mut entry, snapshots, ended, settled, partial_capture, .. } = self;
        let labels = first.labels;
        // The log was read backwards, or partly so: the order tells nothing.
        for words in [&mut entry.paths, &mut entry.tools, &mut entry.agents, &mut entry.authors] {
            words.sort();
        }
        entry.seq = first.seq.0;
        entry.timestamp = timestamp(first.time);
        entry.session.clone_from(&labels.session);
        entry.snapshots = snapshots.len() as u64;
        entry.complete = !partial_capture;
        match whose {
            Whose::Turn(number) => {
                entry.kind = "turn".to_owned();
                entry.open = ended.is_none() && !entry.partial;
                entry.turn = Some(TurnView {
                    number,
                    key: labels.turn_key,
                    session: labels.session,
                    prompt: labels.prompt,
                    started_at: entry.timestamp.clone(),
                    ended_at: ended.as_ref().map(|(_, time)| time.clone()),
                    start_seq: first.seq.0,
                    end_seq: ended.map(|(seq, _)| seq.0),
                });
            }
            Whose::Action(id) => {
                let rewind = first.kind == Kind::Rewind;
                entry.kind = if rewind { "rewind" } else { "action" }.to_owned();
                entry.open = !settled && first.kind == Kind::Intent;
                entry.snapshot = Some(id.to_string());
                entry.short_id = Some(id.short());
                entry.action_type = labels.action;
                entry.summary = labels.summary;
            }
        }
        Some(entry)
    }
}
