//! What an isolated run changed, for people, before anybody decides about it.

use std::io::Read;

use super::Workspace;
use super::compare::{Between, diff_change, differs};
use super::isolated::{IsolatedRun, take_over};
use super::isolated_changes::{Eyes, Touched};
use super::views::{COUNT_LIMIT, change_type, timestamp};
use crate::entry::Entry;
use crate::error::{Context, Result};
use crate::isolated::{Layer, RunPlace, State, holds_more_than};
use crate::path::WorkspacePath;
use crate::view::{Diff, DiffChange, SCHEMA};

/// How many paths a run created, changed and deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct IsolatedCounts {
    /// Paths that were not there.
    pub created: u64,
    /// Paths that are something else now.
    pub modified: u64,
    /// Paths that are gone.
    pub deleted: u64,
    /// What people do not want to see: times, and what git does behind the scenes.
    pub other: u64,
}

impl IsolatedCounts {
    /// All that people want to see.
    pub fn all(&self) -> u64 {
        self.created + self.modified + self.deleted
    }

    /// Whether the run left everything as it was.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Workspace {
    /// What a run changed, as a diff from where it started.
    pub fn isolated_diff(
        &self,
        id: Option<&str>,
        paths: &[WorkspacePath],
        patch: bool,
    ) -> Result<Diff> {
        let (state, place) = self.find_run(id)?;
        let _alive = take_over(&place)?;
        let layer = Layer::read(&place.upper(), state.user_xattrs)?;
        let name = format!("isolated run {}", state.id.short());
        let mut diff = Diff {
            schema: SCHEMA,
            from_snapshot: format!("the start of {name}"),
            to_snapshot: name,
            timestamp: timestamp(self.now()),
            changes: Vec::new(),
            files_changed: 0,
            insertions: 0,
            deletions: 0,
            partial: false,
        };
        for (path, touched) in self.touches(&state, &layer, &Eyes::Looking { all: true })? {
            let wanted = paths.is_empty() || paths.iter().any(|chosen| path.is_within(chosen));
            if wanted && is_shown(&touched) {
                diff.changes.push(self.isolated_change(&layer, &path, &touched, patch)?);
            }
        }
        diff.files_changed = diff.changes.len() as u64;
        diff.insertions = diff.changes.iter().map(|change| change.inserted).sum();
        diff.deletions = diff.changes.iter().map(|change| change.deleted).sum();
        Ok(diff)
    }

    /// How much a run changed; contents are read only where nothing else tells.
    pub fn isolated_counts(&self, id: Option<&str>) -> Result<IsolatedCounts> {
        let (state, place) = self.find_run(id)?;
        let _alive = take_over(&place)?;
        self.count_changes(&state, &place)
    }

    /// The same for a run whose command has just ended here, and whose caller waits: `None` if the
    /// layer holds more than so many paths.
    pub fn isolated_counts_of_few(
        &self,
        run: &IsolatedRun,
        most: usize,
    ) -> Result<Option<IsolatedCounts>> {
        if holds_more_than(&run.place.upper(), most)? {
            return Ok(None);
        }
        self.count_changes(&run.state, &run.place).map(Some)
    }

    fn count_changes(&self, state: &State, place: &RunPlace) -> Result<IsolatedCounts> {
        let layer = Layer::read(&place.upper(), state.user_xattrs)?;
        let mut counts = IsolatedCounts::default();
        let touches = self.touches(state, &layer, &Eyes::Looking { all: false })?;
        for touched in touches.values() {
            let count = match change_type(&touched.before, &touched.after, false) {
                _ if !is_shown(touched) => &mut counts.other,
                "created" => &mut counts.created,
                "deleted" => &mut counts.deleted,
                _ => &mut counts.modified,
            };
            *count += 1;
        }
        Ok(counts)
    }

    fn isolated_change(
        &self,
        layer: &Layer,
        path: &WorkspacePath,
        touched: &Touched,
        patch: bool,
    ) -> Result<DiffChange> {
        let Touched { before, after, .. } = touched;
        let later = |entry: &Entry| content(layer, path, entry);
        let counts = self.counts_with(before, after, &later)?;
        let patch = match patch {
            true => Some(self.patch_with((path, None), before, after, &later)?),
            false => None,
        };
        let between = Between::unrecorded(before.clone(), after.clone());
        Ok(diff_change(path, &between, &counts, patch))
    }
}

/// Whether people want to see it: not what git does behind the scenes, nor times alone.
fn is_shown(touched: &Touched) -> bool {
    let Touched { before, after, neutral, .. } = touched;
    let between = Between::unrecorded(before.clone(), after.clone());
    !neutral && differs(&between)
}

/// What the layer has of a file, as far as lines can be counted in it.
fn content(layer: &Layer, path: &WorkspacePath, entry: &Entry) -> Result<Option<Vec<u8>>> {
    match entry {
        Entry::File(file) if file.size > COUNT_LIMIT => Ok(None),
        Entry::File(_) => {
            let (file, mut bytes) = (layer.roots.open_file(path)?, Vec::new());
            let real = layer.roots.real(path);
            file.take(COUNT_LIMIT).read_to_end(&mut bytes).at("read", real)?;
            Ok(Some(bytes))
        }
        Entry::Symlink(link) => Ok(Some(link.target.clone())),
        _ => Ok(Some(Vec::new())),
    }
}
