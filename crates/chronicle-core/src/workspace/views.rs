//! Turns records into the plain values that callers see.

use std::collections::HashSet;

use jiff::Timestamp;

use super::Workspace;
use super::effects::effect_view;
use super::init::is_first_sight;
use super::rewind::Planned;
use crate::base64;
use crate::entry::{Author, Change, Entry, Evidence, Why};
use crate::error::{Error, Result};
use crate::id::{LinkHash, ObjectId, Seq, SnapshotId, Time};
use crate::path::WorkspacePath;
use crate::plan::Goal;
use crate::record::{ChangeRef, Kind, Record};
use crate::store::ContentStorage;
use crate::text;
use crate::view::{
    ConflictView, EntryView, FileChange, KeptView, PlanStep, PlanView, SCHEMA, SnapshotMetadata,
};

/// The largest content whose lines are counted.
pub(super) const COUNT_LIMIT: u64 = 16 << 20;

impl Time {
    /// As people and scripts read it: RFC 3339 in UTC.
    pub fn rfc3339(self) -> String {
        timestamp(self)
    }
}

/// A time as RFC 3339, UTC.
pub(super) fn timestamp(time: Time) -> String {
    Timestamp::from_nanosecond(i128::from(time.0)).map(|t| t.to_string()).unwrap_or_default()
}

/// A path with words about it.
pub(super) fn kept(path: &WorkspacePath, reason: String) -> KeptView {
    KeptView { path: path.to_string(), reason }
}

/// A path as text, and exactly in base64 where the text is not exact.
pub(super) fn path_text(path: &WorkspacePath) -> (String, Option<String>) {
    let shown = path.to_string();
    let exact = path.to_str() == Some(&shown[..]) || path.is_root();
    (shown, (!exact).then(|| base64::encode(path.as_bytes())))
}

/// What stands at a path, for people and JSON.
pub(super) fn entry_view(entry: &Entry) -> EntryView {
    EntryView {
        kind: entry.kind().to_owned(),
        // A pending clone has no hash yet.
        hash: entry.object().filter(|_| entry.pending().is_none()).map(|object| object.hex()),
        secret: entry.is_secret(),
        size: match entry {
            Entry::File(file) => Some(file.size),
            _ => None,
        },
        mode: entry.meta().map(|meta| format!("{:04o}", meta.mode)),
        target: match entry {
            Entry::Symlink(link) => Some(crate::path::escape(&link.target).into_owned()),
            _ => None,
        },
        why: match entry {
            Entry::Unknown(why) => Some(why_text(*why).to_owned()),
            _ => None,
        },
    }
}

/// Why something is not known, in words.
pub(super) fn why_text(why: Why) -> &'static str {
    match why {
        Why::NotSeen => "nobody had looked yet",
        Why::Filtered => "a filter keeps it out",
        Why::Unreadable => "it could not be read",
        Why::Changing => "it kept changing while it was read",
        Why::Unmounted => "its file system is not the one that was recorded",
        Why::Secret => "its content is never kept: the settings say so",
        Why::Forgotten => "its content was forgotten on purpose",
        Why::NoKey => "it is secret, and the key for secrets cannot be used",
    }
}

/// What kind of change leads from one entry to another.
pub(super) fn change_type(before: &Entry, after: &Entry, moved: bool) -> &'static str {
    match (before.is_present() || before.is_unknown(), after.is_present() || after.is_unknown()) {
        (_, true) if moved => "renamed",
        (false, _) => "created",
        (_, false) => "deleted",
        _ if before.same_content(after) => "mode",
        _ => "modified",
    }
}

pub(super) fn author_text(author: &Author) -> (String, Vec<String>) {
    match author {
        Author::Person => ("person".to_owned(), Vec::new()),
        Author::Chronicle => ("chronicle".to_owned(), Vec::new()),
        Author::Session(key) => (key.clone(), Vec::new()),
        Author::Shared(keys) => ("shared".to_owned(), keys.clone()),
    }
}

fn evidence_text(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Named => "named",
        Evidence::Process => "process",
        Evidence::Window => "window",
        Evidence::Outside => "outside",
        Evidence::Returned => "returned",
        Evidence::Own => "own",
    }
}

/// Lines added and removed, and whether either side is not text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) inserted: u64,
    pub(super) deleted: u64,
    pub(super) binary: bool,
}

impl Workspace {
    /// The content of an entry as far as lines can be counted in it; empty where there is none.
    pub(super) fn countable(&self, entry: &Entry) -> Result<Option<Vec<u8>>> {
        match entry {
            Entry::File(file) if file.size > COUNT_LIMIT => Ok(None),
            Entry::File(file) => match self.objects()?.get(&file.object) {
                // Nobody waits for the host only to count lines.
                Err(Error::Missing(id)) if self.shown_at_host(&id)?.is_some() => Ok(None),
                got => got.map(Some),
            },
            Entry::Symlink(link) => Ok(Some(link.target.clone())),
            _ => Ok(Some(Vec::new())),
        }
    }

    /// Counts the lines by which two entries differ.
    pub(super) fn counts(&self, before: &Entry, after: &Entry) -> Result<Counts> {
        self.counts_with(before, after, &|entry| self.countable(entry))
    }

    /// The same where the content of the later one need not be in the store.
    pub(super) fn counts_with(
        &self,
        before: &Entry,
        after: &Entry,
        later: &dyn Fn(&Entry) -> Result<Option<Vec<u8>>>,
    ) -> Result<Counts> {
        let comparable = |entry: &Entry| !matches!(entry, Entry::Repository(_) | Entry::Unknown(_));
        if before.same_content(after) || !comparable(before) || !comparable(after) {
            return Ok(Counts::default());
        }
        // Nothing of a secret is read for the sake of a number.
        if before.is_secret() || after.is_secret() {
            return Ok(Counts::default());
        }
        let (Some(old), Some(new)) = (self.countable(before)?, later(after)?) else {
            return Ok(Counts { binary: true, ..Counts::default() });
        };
        if text::is_binary(&old) || text::is_binary(&new) {
            return Ok(Counts { binary: true, ..Counts::default() });
        }
        let lines = text::counts(&old, &new);
        Ok(Counts { inserted: lines.inserted, deleted: lines.deleted, binary: false })
    }

    fn file_change(&self, change: &Change, live: bool, count: bool) -> Result<FileChange> {
        let (path, path_b64) = path_text(&change.path);
        let (author, candidates) = author_text(&change.author);
        let moved = change.from.is_some();
        // Content that is gone makes the counts unknown, not the change.
        let counts = if count { self.counts(&change.before, &change.after).ok() } else { None };
        let text = counts.filter(|counts| !counts.binary);
        Ok(FileChange {
            path,
            path_b64,
            change_type: change_type(&change.before, &change.after, moved).to_owned(),
            from: change.from.as_ref().map(|from| from.path.to_string()),
            author,
            candidates,
            evidence: evidence_text(change.evidence).to_owned(),
            live,
            before: entry_view(&change.before),
            after: entry_view(&change.after),
            inserted: text.map(|counts| counts.inserted),
            deleted: text.map(|counts| counts.deleted),
            binary: counts.is_some_and(|counts| counts.binary),
        })
    }

    /// One snapshot as callers see it right after it was recorded: nothing of it can have been taken
    /// back yet, and nobody waits for lines to be counted.
    pub(super) fn metadata(&self, id: &SnapshotId) -> Result<SnapshotMetadata> {
        self.metadata_with(id, &HashSet::new(), false)
    }

    pub(super) fn first_header(&self, id: &SnapshotId) -> Result<Record> {
        let seqs = self.catalog.of_snapshot(id)?;
        let first = seqs.first().ok_or_else(|| Error::UnknownTarget(id.to_string()))?;
        self.read_header(*first)
    }

    pub(super) fn metadata_with(
        &self,
        id: &SnapshotId,
        dead: &HashSet<ChangeRef>,
        count: bool,
    ) -> Result<SnapshotMetadata> {
        let mut records = Vec::new();
        for seq in self.catalog.of_snapshot(id)? {
            records.push(self.read_record(seq)?);
        }
        let first = records.first().ok_or_else(|| Error::UnknownTarget(id.to_string()))?.seq;
        let last = records[records.len() - 1].seq;
        let links = (self.catalog.link(Seq(first.0 - 1))?, self.catalog.link(last)?);
        self.view_of(id, &records, links, dead, count)
    }

    /// The view of an intent that was just committed.
    pub(super) fn intent_view(
        &self,
        intent: &Record,
        links: (LinkHash, LinkHash),
    ) -> Result<SnapshotMetadata> {
        let id = intent.labels.snapshot.expect("an intent has an id");
        let records = std::slice::from_ref(intent);
        self.view_of(&id, records, links, &HashSet::new(), false)
    }

    fn view_of(
        &self,
        id: &SnapshotId,
        records: &[Record],
        (before, after): (LinkHash, LinkHash),
        dead: &HashSet<ChangeRef>,
        count: bool,
    ) -> Result<SnapshotMetadata> {
        let first = &records[0];
        let labels = first.labels.clone();
        let mut view = SnapshotMetadata {
            schema: SCHEMA,
            id: id.to_string(),
            short_id: id.short(),
            seq: first.seq.0,
            timestamp: timestamp(first.time),
            action_type: labels.action.unwrap_or_default(),
            action_summary: labels.summary.unwrap_or_default(),
            files_backed_up: Vec::new(),
            session: labels.session,
            turn: labels.turn,
            turn_key: labels.turn_key,
            agent: labels.agent,
            tool: labels.tool,
            call_id: labels.call_id,
            transaction_id: labels.transaction.map(|id| id.to_string()),
            previous_hash: before.hex(),
            hash: after.hex(),
            complete: !records.iter().any(|record| record.labels.partial),
            // What is left of a pruned one may be only what it called.
            open: first.kind == Kind::Intent
                && records.iter().all(|it| matches!(it.kind, Kind::Intent | Kind::Effect)),
            changes: Vec::new(),
            effects: records
                .iter()
                .filter(|record| record.kind == Kind::Effect)
                .map(effect_view)
                .collect(),
        };
        for record in records {
            self.add_record_view(&mut view, record, dead, count)?;
        }
        view.files_backed_up.sort();
        view.files_backed_up.dedup();
        Ok(view)
    }

    fn add_record_view(
        &self,
        view: &mut SnapshotMetadata,
        record: &Record,
        dead: &HashSet<ChangeRef>,
        count: bool,
    ) -> Result<()> {
        for (index, change) in record.changes.iter().enumerate() {
            let hidden = change.neutral || is_first_sight(change);
            if change.before.is_present() && !hidden {
                view.files_backed_up.push(change.path.to_string());
            }
            if record.kind != Kind::Intent && is_shown(change) {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                let live = !dead.contains(&ChangeRef { seq: record.seq, index });
                view.changes.push(self.file_change(change, live, count)?);
            }
        }
        Ok(())
    }

    pub(super) fn change_view(&self, change: &Change, live: bool) -> Result<FileChange> {
        self.file_change(change, live, true)
    }
}

/// Whether people want to see a change: not what git does behind the scenes, and not first sights.
pub(super) fn is_shown(change: &Change) -> bool {
    change.is_visible() && !is_first_sight(change)
}

/// A plan as people see it.
pub(super) fn plan_view(
    planned: &Planned,
    now: Time,
    stale_output: Vec<String>,
    runs_by_itself: Vec<String>,
) -> PlanView {
    let draft = &planned.draft;
    let mut view = PlanView {
        schema: SCHEMA,
        plan_id: planned.id.to_string(),
        resolved_target: planned.resolved_words.clone(),
        write: Vec::new(),
        delete: Vec::new(),
        merge: Vec::new(),
        keep: draft.keep.iter().map(|k| kept(&k.path, k.reason.clone())).collect(),
        conflict: Vec::new(),
        unknown: draft
            .unknown
            .iter()
            .map(|(path, why)| kept(path, unknown_text(path, *why)))
            .collect(),
        git: planned.git.clone(),
        irreversible: planned.irreversible.clone(),
        shared: planned.shared.clone(),
        authors: planned.authors.clone(),
        span_seconds: u64::try_from((now.0 - planned.target_time.0) / 1_000_000_000).unwrap_or(0),
        moves_head: planned.moves_head,
        stale_output,
        runs_by_itself,
    };
    for conflict in &draft.conflicts {
        view.conflict.push(ConflictView {
            path: conflict.path.to_string(),
            what: conflict.what.to_owned(),
            mine: entry_view(&conflict.mine),
            then: entry_view(&conflict.then),
        });
    }
    for goal in draft.goals.iter().filter(|goal| is_worth_showing(goal)) {
        let (path, path_b64) = path_text(&goal.path);
        let step =
            PlanStep { path, path_b64, now: entry_view(&goal.now), then: entry_view(&goal.then) };
        match (&goal.then, goal.merged) {
            (Entry::Absent, _) => view.delete.push(step),
            (_, true) => view.merge.push(step),
            _ => view.write.push(step),
        }
    }
    for step in &draft.moves {
        view.keep.push(kept(&step.from, format!("moves back to {}", step.to)));
    }
    view
}

/// Why a path is left alone, and how to make it anew where it is known how.
fn unknown_text(path: &WorkspacePath, why: Why) -> String {
    match crate::filter::recreate_hint(path.name()) {
        Some(hint) if why == Why::Filtered => format!("{}; make it anew: {hint}", why_text(why)),
        _ => why_text(why).to_owned(),
    }
}

/// Directories whose time alone goes back are not worth a line.
fn is_worth_showing(goal: &Goal) -> bool {
    !(goal.now.is_directory() && goal.now.same_but_time(&goal.then))
}

/// An object in the words of `diff`: its hash, for files.
pub(super) fn object_text(entry: &Entry) -> Option<String> {
    entry.object().map(|object: ObjectId| object.hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(timestamp(Time(0)), "1970-01-01T00:00:00Z");
    }
}
