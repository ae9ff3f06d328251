//! What stood in the workspace when an isolated run started: the state that its work is compared with.

use std::collections::{BTreeMap, HashMap};

use super::Workspace;
use super::known_cache::KnownCache;
use crate::catalog::LocalState;
use crate::entry::Entry;
use crate::error::Result;
use crate::id::Seq;
use crate::known::Part;
use crate::path::WorkspacePath;
use crate::plan::state_before;

/// The state at a moment, for as many paths as are asked for.
pub(super) struct Base<'w> {
    workspace: &'w Workspace,
    cache: KnownCache<'w>,
    /// What changed since, with what stood there then.
    since: HashMap<WorkspacePath, Entry>,
}

impl<'w> Base<'w> {
    /// The state just after a record.
    pub(super) fn new(workspace: &'w Workspace, start: Seq) -> Result<Self> {
        let mut since = HashMap::new();
        workspace.for_each_change(start, &mut |_, _, change| {
            let then = state_before(&change).clone();
            since.entry(change.path).or_insert(then);
            Ok(())
        })?;
        Ok(Self { workspace, cache: KnownCache::new(&workspace.catalog)?, since })
    }

    /// What stood at a path; absent also where nobody ever looked, which a filter then tells.
    pub(super) fn at(&self, path: &WorkspacePath) -> Result<Entry> {
        if let Some(then) = self.since.get(path) {
            return Ok(then.clone());
        }
        Ok(self.cache.get(path)?.map_or(Entry::Absent, |known| known.entry))
    }

    /// What stood below a directory, but for the files that are parts of a repository's one value.
    pub(super) fn below(&self, path: &WorkspacePath) -> Result<BTreeMap<WorkspacePath, Entry>> {
        let mut below = BTreeMap::new();
        for (inner, known) in self.workspace.catalog.known_below(path)? {
            if known.part != Part::Significant {
                below.insert(inner, known.entry);
            }
        }
        let inside = |inner: &WorkspacePath| inner != path && inner.is_within(path);
        for (inner, then) in self.since.iter().filter(|(inner, _)| inside(inner)) {
            below.insert(inner.clone(), then.clone());
        }
        below.retain(|_, entry| *entry != Entry::Absent);
        Ok(below)
    }
}
