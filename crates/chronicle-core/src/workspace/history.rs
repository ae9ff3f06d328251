//! Reading the log: snapshots, one file through time, and what is in effect.

use std::collections::HashSet;
use std::io::Write;

use super::Workspace;
use super::views::{is_shown, timestamp, why_text};
use crate::catalog::{Batch, Durability, LocalState, Log};
use crate::codec;
use crate::entry::{Change, Entry, Why};
use crate::error::{Context, Error, Result};
use crate::id::{Seq, SnapshotId};
use crate::known::DirectoryView;
use crate::path::WorkspacePath;
use crate::record::{ChangeRef, Kind, Labels, Record};
use crate::store::ContentStorage;
use crate::view::{Iteration, SCHEMA, SnapshotMetadata};

/// Which snapshots to list.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Of this turn only.
    pub turn: Option<u64>,
    /// Of this session only.
    pub session: Option<String>,
    /// That changed this path or something below it.
    pub path: Option<WorkspacePath>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Only those whose first record that fits is before this one.
    pub before: Option<Seq>,
}

impl Workspace {
    /// The snapshots that fit a query, newest first.
    pub fn log(&self, query: &LogQuery) -> Result<Vec<SnapshotMetadata>> {
        let dead = self.taken_back(None)?;
        let mut views = Vec::new();
        for id in self.snapshots_newest_first(query)? {
            if views.len() >= query.limit.unwrap_or(usize::MAX) {
                break;
            }
            let view = self.metadata_with(&id, &dead, true)?;
            if shows(&view, query) {
                views.push(view);
            }
        }
        Ok(views)
    }

    /// All snapshots, oldest first.
    pub fn list(&self) -> Result<Vec<SnapshotMetadata>> {
        let mut all = self.log(&LogQuery::default())?;
        all.reverse();
        Ok(all)
    }

    fn snapshots_newest_first(&self, query: &LogQuery) -> Result<Vec<SnapshotId>> {
        self.catalog.trust_indexes()?;
        let mut ids: Vec<(Seq, SnapshotId)> = Vec::new();
        let mut seen = HashSet::new();
        let mut add = |record: Record| {
            let labels = record.labels;
            let fits = query.turn.is_none_or(|turn| labels.turn == Some(turn))
                && query
                    .session
                    .as_ref()
                    .is_none_or(|session| labels.session.as_ref() == Some(session));
            if let Some(id) = labels.snapshot.filter(|_| fits)
                && seen.insert(id)
            {
                ids.push((record.seq, id));
            }
        };
        match &query.path {
            None => {
                let first = query.turn.map(|number| self.turn_start_seq(number)).transpose()?;
                let first = first.flatten().map_or(0, |seq| seq.0 - 1);
                self.for_each_header(Seq(first), &mut |record| {
                    let more = query.before.is_none_or(|before| record.seq < before);
                    if more {
                        add(record);
                    }
                    Ok(more)
                })?;
            }
            Some(path) => {
                let mut seqs = self.catalog.touching(&path.parent().unwrap_or_default())?;
                seqs.extend(self.catalog.touching_below(path)?);
                seqs.sort_unstable();
                seqs.dedup();
                seqs.retain(|seq| query.before.is_none_or(|before| *seq < before));
                for seq in seqs {
                    let record = self.read_record(seq)?;
                    if record
                        .changes
                        .iter()
                        .any(|change| change.path.is_within(path) && is_shown(change))
                    {
                        add(record);
                    }
                }
            }
        }
        ids.sort_by(|a, b| b.cmp(a));
        Ok(ids.into_iter().map(|(_, id)| id).collect())
    }

    /// One snapshot, by any unique part of its id.
    pub fn show(&self, id: &str) -> Result<SnapshotMetadata> {
        let id = self.find_snapshot(id)?;
        self.metadata_with(&id, &self.taken_back(None)?, true)
    }

    /// What one snapshot changed, as a unified patch.
    pub fn show_patch(&self, id: &str) -> Result<String> {
        let mut patch = String::new();
        for seq in self.catalog.of_snapshot(&self.find_snapshot(id)?)? {
            let record = self.read_record(seq)?;
            if record.kind == Kind::Intent {
                continue;
            }
            for change in record.changes.iter().filter(|change| is_shown(change)) {
                let from = change.from.as_ref().map(|from| &from.path);
                patch.push_str(&self.patch(&change.path, from, &change.before, &change.after)?);
            }
        }
        Ok(patch)
    }

    /// The changes that are not in effect: now, or just after a record.
    pub(super) fn taken_back(&self, until: Option<Seq>) -> Result<HashSet<ChangeRef>> {
        let mut dead = HashSet::new();
        for seq in self.catalog.of_kind(Kind::Rewind)? {
            if until.is_some_and(|until| seq > until) {
                break;
            }
            let labels = self.read_header(seq)?.labels;
            dead.extend(labels.taken_back);
            for at in &labels.brought_back {
                dead.remove(at);
            }
        }
        Ok(dead)
    }

    /// Calls back with every change after a moment, in order; intents hold no changes.
    pub(super) fn for_each_change(
        &self,
        mut after: Seq,
        visit: &mut dyn FnMut(&Record, ChangeRef, Change) -> Result<()>,
    ) -> Result<()> {
        loop {
            let records = self.catalog.read(after, 64)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.seq;
            for sealed in records.iter().filter(|sealed| codec::holds_changes(&sealed.leaf)) {
                let seq = sealed.seq;
                let mut record = self.open_sealed(sealed)?;
                for (index, change) in std::mem::take(&mut record.changes).into_iter().enumerate() {
                    let index = u32::try_from(index).unwrap_or(u32::MAX);
                    visit(&record, ChangeRef { seq, index }, change)?;
                }
            }
        }
    }

    /// One file through time, newest first, across renames.
    pub fn history(&self, path: &WorkspacePath) -> Result<Vec<Iteration>> {
        Ok(self.history_some(path, None, usize::MAX)?.0)
    }

    /// The same from a moment back, at most so many, and whether there are more.
    pub fn history_some(
        &self,
        path: &WorkspacePath,
        before: Option<Seq>,
        most: usize,
    ) -> Result<(Vec<Iteration>, bool)> {
        let dead = self.taken_back(None)?;
        let until = before.map_or(Seq(u64::MAX), |seq| Seq(seq.0.saturating_sub(1)));
        let (mut iterations, mut more) = (Vec::new(), false);
        self.for_each_version(path, until, &mut |record, at, change| {
            more = iterations.len() >= most;
            if !more {
                iterations.push(self.iteration(record, change, !dead.contains(&at))?);
            }
            Ok(!more)
        })?;
        Ok((iterations, more))
    }

    /// Calls back with every change of a file up to a moment, newest first and across renames, until
    /// told to stop; tells whether it was.
    pub(super) fn for_each_version(
        &self,
        path: &WorkspacePath,
        mut until: Seq,
        visit: &mut dyn FnMut(&Record, ChangeRef, &Change) -> Result<bool>,
    ) -> Result<bool> {
        let mut path = path.clone();
        loop {
            let mut moved = None;
            let mut seqs = self.catalog.touching(&path.parent().unwrap_or_default())?;
            seqs.retain(|seq| *seq <= until);
            for seq in seqs.into_iter().rev() {
                let record = self.read_record(seq)?;
                for (index, change) in record.changes.iter().enumerate().rev() {
                    if change.path != path || change.before == change.after {
                        continue;
                    }
                    let index = u32::try_from(index).unwrap_or(u32::MAX);
                    if !visit(&record, ChangeRef { seq, index }, change)? {
                        return Ok(true);
                    }
                    if let Some(from) = &change.from {
                        moved = Some(from.path.clone());
                    }
                }
                if moved.is_some() {
                    until = Seq(seq.0 - 1);
                    break;
                }
            }
            match moved {
                Some(from) => path = from,
                None => return Ok(false),
            }
        }
    }

    fn iteration(&self, record: &Record, change: &Change, live: bool) -> Result<Iteration> {
        let labels = &record.labels;
        Ok(Iteration {
            schema: SCHEMA,
            snapshot: labels.snapshot.map(|id| id.to_string()).unwrap_or_default(),
            seq: record.seq.0,
            timestamp: timestamp(record.time),
            path: change.path.to_string(),
            turn: labels.turn,
            action_summary: labels.summary.clone().unwrap_or_default(),
            change: self.change_view(change, live)?,
        })
    }

    /// What stood at a path at a moment.
    pub(super) fn entry_at(&self, path: &WorkspacePath, moment: Seq) -> Result<Entry> {
        let seqs = self.catalog.touching(&path.parent().unwrap_or_default())?;
        let mut last = None;
        for seq in seqs {
            for change in self.read_record(seq)?.changes.into_iter().filter(|c| c.path == *path) {
                if seq > moment {
                    let first = change.before == Entry::Unknown(Why::NotSeen);
                    return Ok(last.unwrap_or(if first { change.after } else { change.before }));
                }
                last = Some(change.after);
            }
        }
        match last {
            Some(entry) => Ok(entry),
            // Nothing is left of how it came there, and nothing changed it since.
            None => Ok(self.catalog.known(path)?.map_or(Entry::Absent, |known| known.entry)),
        }
    }

    /// Writes the content of a file, now or at a moment.
    pub fn cat(
        &mut self,
        path: &WorkspacePath,
        target: Option<&str>,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.write_content(path, target, true, out)
    }

    /// The same for who must not see secrets: their content is refused.
    pub fn cat_unless_secret(
        &mut self,
        path: &WorkspacePath,
        target: Option<&str>,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.write_content(path, target, false, out)
    }

    fn write_content(
        &mut self,
        path: &WorkspacePath,
        target: Option<&str>,
        secrets: bool,
        out: &mut dyn Write,
    ) -> Result<()> {
        let moment = match target {
            Some(target) => self.moment(target)?.seq,
            None => {
                self.settle()?;
                self.catalog.head()?.seq
            }
        };
        match self.entry_at(path, moment)? {
            Entry::File(file) if file.secret && !secrets => Err(Error::Secret(path.clone())),
            Entry::File(file) => {
                let mut reader = self.objects()?.reader(&file.object)?;
                std::io::copy(&mut reader, out).at("write", path.as_path()).map(drop)
            }
            Entry::Symlink(link) => out.write_all(&link.target).at("write", path.as_path()),
            other => {
                let why = match &other {
                    Entry::Unknown(why) => why_text(*why).to_owned(),
                    Entry::Absent => "nothing stood there at that moment".to_owned(),
                    other => format!("it is a {}", other.kind()),
                };
                Err(Error::NoContent { path: path.clone(), why })
            }
        }
    }

    /// Gives a moment a name; tells which moment it is, in words.
    pub fn pin(&mut self, target: &str, name: &str) -> Result<String> {
        let reserved = ["start", "now"].contains(&name) || name.contains(':') || name.is_empty();
        let is_time = super::moment::parse_time(name, self.now()).is_some();
        if reserved || is_time || name.contains(char::is_control) || super::moment::fits(name, name)
        {
            return Err(Error::Usage(format!("{name:?} cannot be the name of a pin")));
        }
        let _lock = self.lock(super::PATIENCE)?;
        let moment = self.moment(target)?;
        let before = self.pin_moment(name)?.map(|pinned| pinned.seq);
        let labels =
            Labels { name: Some(name.to_owned()), target: Some(moment.seq), ..Labels::default() };
        let records = vec![self.record(Kind::Pin, labels)];
        self.commit_batch(Batch { records, ..Batch::default() }, Durability::PowerCut)?;
        Ok(match before.filter(|before| *before != moment.seq) {
            // Whoever took a name twice hears of it, and how to have the first moment back.
            Some(Seq(seq)) => format!("{}; until now {name} was seq:{seq}", moment.words),
            None => moment.words,
        })
    }

    /// Directories and files that filters keep out.
    pub(super) fn filtered_paths(&self) -> Result<Vec<String>> {
        let table = self.catalog.known_table()?;
        let directories: std::collections::BTreeSet<_> =
            table.rows.keys().chain(table.newer.keys()).collect();
        let filtered = directories.into_iter().filter_map(|path| {
            let view = table.row(path)?.ok()?;
            Some(filtered_in(&view, path))
        });
        Ok(filtered.flatten().map(|path| path.to_string()).collect())
    }
}

/// What filters keep out directly in a directory.
pub(super) fn filtered_in(
    view: &DirectoryView<'_>,
    directory: &WorkspacePath,
) -> Vec<WorkspacePath> {
    let filtered = view.names().filter_map(|item| {
        let (name, known) = item.ok().filter(|(_, known)| known.is_unknown_or_absent())?;
        let known = known.to_known().ok()?;
        (known.entry == Entry::Unknown(Why::Filtered)).then(|| directory.join(name))
    });
    filtered.collect()
}

/// A snapshot with nothing to see is shown only if it is an action somebody announced.
fn shows(view: &SnapshotMetadata, query: &LogQuery) -> bool {
    let quiet = ["external", "init", "shell"].contains(&&view.action_type[..]);
    !view.changes.is_empty() || !quiet || query.turn.is_some() || view.tool.is_some()
}
