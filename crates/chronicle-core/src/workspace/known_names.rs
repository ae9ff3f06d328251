//! What is known of the names in a few directories, for one who asks before every change.

use std::collections::{BTreeMap, HashMap};

use super::Workspace;
use crate::catalog::LocalState;
use crate::error::Result;
use crate::known::Known;
use crate::look::Candidate;
use crate::path::WorkspacePath;

/// Directories that are remembered at once.
const DIRECTORIES_MOST: usize = 256;
/// Names in all of them.
const NAMES_MOST: usize = 200_000;

/// A memory of the known state. It may be old: what a path was recorded as with a signature that it still has
/// is in the store, whatever was recorded since.
#[derive(Default)]
pub struct KnownNames {
    directories: HashMap<WorkspacePath, BTreeMap<Vec<u8>, Known>>,
    names: usize,
}

impl Workspace {
    /// Whether a path is still what is known of it, so that its content is in the store already; mostly
    /// without asking the catalog.
    pub fn is_unchanged_by(&self, names: &mut KnownNames, path: &WorkspacePath) -> Result<bool> {
        let Some(parent) = path.parent() else { return self.is_unchanged(path) };
        if let Some(was) = names.directories.get(&parent).and_then(|known| known.get(path.name())) {
            let (part, stat) = (was.part, self.roots.lstat(path)?);
            let (path, was) = (path.clone(), Some(was.clone()));
            if (Candidate { path, stat, was, part, filtered: false }).is_current() {
                return Ok(true);
            }
        }
        let unchanged = self.is_unchanged(path)?;
        if unchanged {
            names.remember(self, parent)?;
        }
        Ok(unchanged)
    }
}

impl KnownNames {
    fn remember(&mut self, workspace: &Workspace, directory: WorkspacePath) -> Result<()> {
        let Some(known) = workspace.catalog.known_directory(&directory)? else { return Ok(()) };
        if self.directories.len() >= DIRECTORIES_MOST || self.names + known.names.len() > NAMES_MOST
        {
            (self.directories, self.names) = Default::default();
        }
        self.names += known.names.len();
        self.directories.insert(directory, known.names);
        Ok(())
    }
}
