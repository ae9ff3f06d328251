//! Comparing two moments: diff, patches, and whether anything changed at all.

use std::collections::{BTreeMap, HashMap};

use super::Workspace;
use super::views::{Counts, change_type, entry_view, object_text, path_text, timestamp};
use crate::catalog::{LocalState, Log};
use crate::entry::{Entry, Why};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::look::{SurveyOptions, survey};
use crate::path::WorkspacePath;
use crate::record::{Kind, Record};
use crate::text;
use crate::view::{Diff, DiffChange, SCHEMA};

/// Which moments to compare.
#[derive(Debug, Clone, Default)]
pub struct DiffRequest {
    /// From here; the start of the last turn where nothing is said.
    pub from: Option<String>,
    /// To here; the present where nothing is said.
    pub to: Option<String>,
    /// Only these paths and what is below them; all where empty.
    pub paths: Vec<WorkspacePath>,
    /// With unified patches.
    pub patch: bool,
    /// Look into at most so many changes; the others are only counted.
    pub most_changes: Option<usize>,
    /// Make no more patches once they are so long together.
    pub most_patch_bytes: Option<usize>,
    /// Only what this turn (`turn:N`) or snapshot did, instead of what lies between two moments.
    pub of: Option<String>,
    /// Only paths behind this one, for whoever goes on where `most_changes` ended.
    pub after: Option<WorkspacePath>,
}

/// What stood at a path at two moments.
#[derive(Debug, Clone)]
pub(super) struct Between {
    pub(super) before: Entry,
    pub(super) after: Entry,
    pub(super) from: Option<WorkspacePath>,
    /// What stood at the place it came from at the earlier moment.
    pub(super) origin: Option<Entry>,
    /// The first record that changed it.
    pub(super) first: Seq,
    /// The last one.
    pub(super) last: Seq,
}

impl Between {
    /// The same at both moments.
    pub(super) fn same(entry: Entry, at: Seq) -> Self {
        Self { before: entry.clone(), after: entry, from: None, origin: None, first: at, last: at }
    }

    /// Of something that is not recorded yet.
    pub(super) fn unrecorded(before: Entry, after: Entry) -> Self {
        Self { before, after, from: None, origin: None, first: Seq(0), last: Seq(0) }
    }
}

/// Two moments, and what changed between them.
pub(super) struct Compared {
    pub(super) changed: BTreeMap<WorkspacePath, Between>,
    from_words: String,
    to_words: String,
    pub(super) end: Seq,
}

impl Workspace {
    /// The difference between two moments, or a moment and the present.
    pub fn diff(&mut self, request: &DiffRequest) -> Result<Diff> {
        let compared = self.compared(request)?;
        let mut diff = Diff {
            schema: SCHEMA,
            from_snapshot: compared.from_words,
            to_snapshot: compared.to_words,
            timestamp: timestamp(self.now()),
            changes: Vec::new(),
            files_changed: 0,
            insertions: 0,
            deletions: 0,
            partial: false,
        };
        let mut patched = 0;
        for (path, between) in compared.changed {
            let wanted =
                request.paths.is_empty() || request.paths.iter().any(|p| path.is_within(p));
            if !wanted || !differs(&between) {
                continue;
            }
            diff.files_changed += 1;
            if request.after.as_ref().is_some_and(|after| path <= *after) {
                continue;
            }
            if request.most_changes.is_some_and(|most| diff.changes.len() >= most) {
                diff.partial = true;
                continue;
            }
            let long = request.most_patch_bytes.is_some_and(|most| patched >= most);
            let change = self.diff_change(&path, &between, request.patch && !long)?;
            diff.partial |= request.patch && long;
            patched += change.patch.as_ref().map_or(0, String::len);
            diff.changes.push(change);
        }
        diff.insertions = diff.changes.iter().map(|change| change.inserted).sum();
        diff.deletions = diff.changes.iter().map(|change| change.deleted).sum();
        Ok(diff)
    }

    /// What a request compares.
    pub(super) fn compared(&mut self, request: &DiffRequest) -> Result<Compared> {
        if let Some(of) = &request.of {
            return self.done_by(of);
        }
        if request.to.is_none() {
            self.settle()?;
        }
        let (start, from_words) = match &request.from {
            Some(target) => {
                let moment = self.moment(target)?;
                (moment.seq, moment.words)
            }
            None => self.default_start()?,
        };
        let (end, to_words) = match &request.to {
            Some(target) => {
                let moment = self.moment(target)?;
                (moment.seq, moment.words)
            }
            None => (self.catalog.head()?.seq, String::new()),
        };
        let (low, high) = (start.min(end), start.max(end));
        let mut changed = self.between(low, high)?;
        if start > end {
            for between in changed.values_mut() {
                std::mem::swap(&mut between.before, &mut between.after);
                (between.from, between.origin) = (None, None);
            }
        } else {
            forget_origins(&mut changed);
        }
        Ok(Compared { changed, from_words, to_words, end })
    }

    /// What one turn or one snapshot did, whatever others did meanwhile.
    fn done_by(&self, of: &str) -> Result<Compared> {
        let start = self.moment(&format!("before:{of}"))?;
        let turn = of.strip_prefix("turn:").map(|number| self.turn_number(number)).transpose()?;
        let snapshot = if turn.is_some() { None } else { Some(self.find_snapshot(of)?) };
        let head = self.catalog.head()?.seq;
        let (end, to_words) = match self.moment(&format!("after:{of}")) {
            Ok(moment) => (moment.seq, moment.words),
            // It goes on.
            Err(Error::UnknownTarget(_)) => (head, String::new()),
            Err(error) => return Err(error),
        };
        let is_part = |record: &Record| match (turn, snapshot) {
            (Some(_), _) => record.labels.turn == turn && record.kind != Kind::Rewind,
            (None, snapshot) => record.labels.snapshot == snapshot,
        };
        // What was still open when its turn ended is told later.
        let last = if turn.is_some() { head } else { end };
        let mut changed = self.between_by(start.seq, last, &is_part)?;
        forget_origins(&mut changed);
        Ok(Compared { changed, from_words: start.words, to_words, end })
    }

    /// The number of a turn as people say it: `3`, or `-1` for the last that ended.
    fn turn_number(&self, text: &str) -> Result<u64> {
        let unknown = || Error::UnknownTarget(format!("turn:{text}"));
        let number: i64 = text.parse().map_err(|_| unknown())?;
        if number >= 0 {
            return Ok(number.unsigned_abs());
        }
        let mut ended: Vec<_> = self.turns()?.into_iter().filter(|t| t.end_seq.is_some()).collect();
        ended.sort_by_key(|turn| turn.end_seq);
        let back = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        let at = ended.len().checked_sub(back).ok_or_else(unknown)?;
        Ok(ended[at].number)
    }

    /// The start of the last turn; without turns, the beginning.
    fn default_start(&self) -> Result<(Seq, String)> {
        match self.turns()?.last() {
            Some(turn) => Ok((Seq(turn.start_seq), format!("just before turn {}", turn.number))),
            None => Ok((self.oldest()?, "the beginning of the history".to_owned())),
        }
    }

    /// Every path that changed between two moments, with what stood there at both.
    pub(super) fn between(&self, start: Seq, end: Seq) -> Result<BTreeMap<WorkspacePath, Between>> {
        self.between_by(start, end, &|_| true)
    }

    /// The same for the changes of some records.
    fn between_by(
        &self,
        start: Seq,
        end: Seq,
        counts: &dyn Fn(&Record) -> bool,
    ) -> Result<BTreeMap<WorkspacePath, Between>> {
        let mut paths: BTreeMap<WorkspacePath, Between> = BTreeMap::new();
        let mut origins: HashMap<WorkspacePath, WorkspacePath> = HashMap::new();
        self.for_each_change(start, &mut |record, _, change| {
            if record.seq > end || change.neutral || !counts(record) {
                return Ok(());
            }
            if let Some(from) = change.from {
                let origin = origins.remove(&from.path).unwrap_or(from.path);
                origins.insert(change.path.clone(), origin);
            }
            // What was seen for the first time had been there all along.
            let first = change.before == Entry::Unknown(Why::NotSeen);
            let before = if first { change.after.clone() } else { change.before };
            let (after, seq) = (change.after.clone(), record.seq);
            let between =
                Between { before, after, from: None, origin: None, first: seq, last: seq };
            let found = paths.entry(change.path).or_insert(between);
            (found.after, found.last) = (change.after, seq);
            Ok(())
        })?;
        for (path, origin) in origins {
            // What came and went in between has moved for neither moment.
            let left = paths
                .get(&origin)
                .filter(|between| between.before.is_present() && between.after == Entry::Absent);
            let stood = left.map(|between| between.before.clone());
            if let Some(between) = paths.get_mut(&path)
                && stood.is_some()
                && between.before == Entry::Absent
                && between.after.is_present()
            {
                (between.from, between.origin) = (Some(origin), stood);
            }
        }
        Ok(paths)
    }

    pub(super) fn diff_change(
        &self,
        path: &WorkspacePath,
        between: &Between,
        patch: bool,
    ) -> Result<DiffChange> {
        let (before, after) = (&between.before, &between.after);
        let origin = &between.origin;
        let counts = self.counts(origin.as_ref().unwrap_or(before), after)?;
        let patch = if patch {
            Some(self.patch(
                path,
                between.from.as_ref(),
                origin.as_ref().unwrap_or(before),
                after,
            )?)
        } else {
            None
        };
        Ok(diff_change(path, between, &counts, patch))
    }

    /// The last file that stood at a path something moved away from.
    pub(super) fn entry_before_move(&self, path: &WorkspacePath) -> Result<Option<Entry>> {
        for seq in self.catalog.touching(&path.parent().unwrap_or_default())?.into_iter().rev() {
            for change in self.read_record(seq)?.changes.into_iter().rev() {
                if change.path == *path && change.before.is_present() {
                    return Ok(Some(change.before));
                }
            }
        }
        Ok(None)
    }

    /// The unified patch of one path.
    pub(super) fn patch(
        &self,
        path: &WorkspacePath,
        from: Option<&WorkspacePath>,
        before: &Entry,
        after: &Entry,
    ) -> Result<String> {
        self.patch_with((path, from), before, after, &|entry| self.countable(entry))
    }

    /// The same where the content of the later one need not be in the store.
    pub(super) fn patch_with(
        &self,
        (path, from): (&WorkspacePath, Option<&WorkspacePath>),
        before: &Entry,
        after: &Entry,
        later: &dyn Fn(&Entry) -> Result<Option<Vec<u8>>>,
    ) -> Result<String> {
        let mut patch = format!("diff a/{} b/{path}\n", from.unwrap_or(path));
        let mode = |entry: &Entry| entry.meta().map(|meta| meta.mode);
        match (mode(before), mode(after)) {
            (Some(old), Some(new)) if old != new => {
                patch.push_str(&format!("old mode {old:04o}\nnew mode {new:04o}\n"));
            }
            (None, Some(new)) => patch.push_str(&format!("new {} mode {new:04o}\n", after.kind())),
            (Some(old), None) => {
                patch.push_str(&format!("deleted {} mode {old:04o}\n", before.kind()))
            }
            _ => {}
        }
        if let Some(from) = from {
            patch.push_str(&format!("rename from {from}\nrename to {path}\n"));
        }
        if before.same_content(after) {
            return Ok(patch);
        }
        if before.is_secret() || after.is_secret() {
            patch.push_str("Secret content is not shown; chronicle cat prints it\n");
            return Ok(patch);
        }
        let (Some(old), Some(new)) = (self.countable(before)?, later(after)?) else {
            patch.push_str("Content is too large to compare by lines\n");
            return Ok(patch);
        };
        if text::is_binary(&old) || text::is_binary(&new) {
            patch.push_str("Binary files differ\n");
            return Ok(patch);
        }
        let old_name = Some(from.unwrap_or(path)).filter(|_| *before != Entry::Absent);
        let new_name = Some(path).filter(|_| *after != Entry::Absent);
        let lines = text::unified(old_name, new_name, &old, &new);
        patch.push_str(&String::from_utf8_lossy(&lines));
        Ok(patch)
    }

    /// Whether anything changed since a moment; stops at the first change it finds.
    pub fn changed(&mut self, target: Option<&str>) -> Result<bool> {
        let since = match target {
            Some(target) => self.moment(target)?.seq,
            None => self.last_end()?,
        };
        if self.between(since, Seq(u64::MAX))?.values().any(differs) {
            return Ok(true);
        }
        self.check_root()?;
        let table = self.catalog.known_table()?;
        let survey = survey(&self.roots, &table, &self.filter()?, &SurveyOptions::default())?;
        if survey.candidates.is_empty() && survey.vanished.is_empty() && survey.units.is_empty() {
            return Ok(false);
        }
        let look = self.examine_survey(survey, &table)?;
        Ok(look.found.iter().any(|found| {
            let between = Between::unrecorded(found.before.clone(), found.after.clone());
            !found.neutral && found.before != Entry::Unknown(Why::NotSeen) && differs(&between)
        }))
    }

    /// The end of the last turn; without turns, the beginning.
    pub(super) fn last_end(&self) -> Result<Seq> {
        let last = self.turns()?.iter().filter_map(|turn| turn.end_seq).max();
        match last {
            Some(seq) => Ok(Seq(seq)),
            None => self.oldest(),
        }
    }

    /// The oldest moment that can be reached, but for the first look.
    pub(super) fn oldest(&self) -> Result<Seq> {
        Ok(self.baseline_end()?.max(self.beginning()?))
    }
}

/// What moved is shown once, where it is now.
pub(super) fn forget_origins(changed: &mut BTreeMap<WorkspacePath, Between>) {
    let origins: Vec<_> = changed.values().filter_map(|between| between.from.clone()).collect();
    for origin in origins {
        changed.remove(&origin);
    }
}

/// What stood at a path at two moments, as callers see it.
pub(super) fn diff_change(
    path: &WorkspacePath,
    between: &Between,
    counts: &Counts,
    patch: Option<String>,
) -> DiffChange {
    let Between { before, after, from, .. } = between;
    let (shown, path_b64) = path_text(path);
    DiffChange {
        path: shown,
        path_b64,
        change_type: change_type(before, after, from.is_some()).to_owned(),
        from: from.as_ref().map(ToString::to_string),
        before_hash: object_text(before),
        after_hash: object_text(after),
        size_bytes: match after {
            Entry::File(file) => file.size,
            _ => 0,
        },
        inserted: counts.inserted,
        deleted: counts.deleted,
        binary: counts.binary,
        before: entry_view(before),
        after: entry_view(after),
        patch,
    }
}

/// Whether people would say that something changed: times of directories alone do not count.
pub(super) fn differs(between: &Between) -> bool {
    let (before, after) = (&between.before, &between.after);
    if between.from.is_some() {
        return true;
    }
    if before.is_unknown() && after.is_unknown() {
        return false;
    }
    !before.same_but_time(after)
}
