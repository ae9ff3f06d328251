//! The tree that is known, with hashed directories, for a resync.

use std::collections::{BTreeMap, HashMap};

use super::Workspace;
use super::replica_registry::decoded;
use crate::catalog::{LocalState, Log};
use crate::error::Result;
use crate::known::{KnownTable, Part};
use crate::path::WorkspacePath;
use crate::replica::{Digest, Listing, Node, Place, Tree, Version, digest, stays_home};

/// A workspace's tree at one place, with hashed directories; made in one pass over the known state.
///
/// Implements [`Tree`], for either side of a resync.
pub struct HashedTree {
    /// At which place of the own log.
    pub at: Place,
    directories: HashMap<WorkspacePath, Vec<Node>>,
    root: Digest,
}

impl HashedTree {
    /// The tree of what stands at some paths at a place; what lies in no directory among them is not in it.
    pub fn of<'v>(
        at: Place,
        standing: impl Iterator<Item = (&'v WorkspacePath, &'v Version)>,
    ) -> Self {
        let mut names: HashMap<WorkspacePath, BTreeMap<Vec<u8>, Version>> = HashMap::new();
        for (path, version) in standing.filter(|(_, version)| version.is_present()) {
            if let Some(parent) = path.parent() {
                let name = path.name().to_vec();
                names.entry(parent).or_default().insert(name, version.clone());
            }
        }
        let mut directories = HashMap::new();
        let root = hang(&mut names, &WorkspacePath::root(), &mut directories);
        Self { at, directories, root }
    }

    /// The hash of everything.
    pub fn digest(&self) -> Digest {
        self.root
    }

    /// What a directory holds, for the other side; one that is not there holds nothing.
    pub fn listing(&self, path: &WorkspacePath) -> Listing {
        Listing { path: path.clone(), nodes: self.nodes(path) }
    }
}

impl Tree for HashedTree {
    fn nodes(&self, directory: &WorkspacePath) -> Vec<Node> {
        self.directories.get(directory).cloned().unwrap_or_default()
    }
}

impl Workspace {
    /// The whole tree that is known, hashed, of the paths for which `passes` says yes.
    ///
    /// What is not recorded is not in it: settle before.
    pub fn tree_for_replica(
        &self,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Result<HashedTree> {
        let reading = self.catalog.reading()?;
        let table = self.catalog.known_table()?;
        let at = Place { epoch: self.catalog.epoch(), seq: self.catalog.head()?.seq };
        drop(reading);
        let mut planter = Planter { table, passes, directories: HashMap::new() };
        let root = planter.plant(&WorkspacePath::root())?;
        Ok(HashedTree { at, directories: planter.directories, root })
    }
}

/// Moves what a directory holds into its place, from below.
fn hang(
    names: &mut HashMap<WorkspacePath, BTreeMap<Vec<u8>, Version>>,
    directory: &WorkspacePath,
    directories: &mut HashMap<WorkspacePath, Vec<Node>>,
) -> Digest {
    let mut nodes = Vec::new();
    for (name, version) in names.remove(directory).unwrap_or_default() {
        let below =
            version.is_directory().then(|| hang(names, &directory.join(&name), directories));
        nodes.push(Node { name, version, below });
    }
    let hash = digest(&nodes);
    if !nodes.is_empty() {
        directories.insert(directory.clone(), nodes);
    }
    hash
}

struct Planter<'a> {
    table: KnownTable,
    passes: &'a dyn Fn(&WorkspacePath, bool) -> bool,
    directories: HashMap<WorkspacePath, Vec<Node>>,
}

impl Planter<'_> {
    fn plant(&mut self, directory: &WorkspacePath) -> Result<Digest> {
        let mut nodes = Vec::new();
        for (name, known) in decoded(self.table.directory(directory))?.names {
            if name.is_empty() || known.part != Part::Ordinary {
                continue;
            }
            let path = directory.join(&name);
            let Some(version) = Version::told(&known.entry).filter(Version::is_present) else {
                continue;
            };
            if stays_home(&path) || !(self.passes)(&path, version.is_directory()) {
                continue;
            }
            let below = if version.is_directory() { Some(self.plant(&path)?) } else { None };
            nodes.push(Node { name, version, below });
        }
        let hash = digest(&nodes);
        if !nodes.is_empty() {
            self.directories.insert(directory.clone(), nodes);
        }
        Ok(hash)
    }
}
