//! A disk in memory that forgets: what was not synced may be gone after a crash.

use std::collections::{BTreeMap, BTreeSet};

use chronicle_core::WorkspacePath;
use chronicle_core::replica::Version;
use chronicle_testing::dice::Dice;

/// What stands at each path; the root stands always.
pub type Tree = BTreeMap<WorkspacePath, Version>;

#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub live: Tree,
    durable: Tree,
    /// What was done since the last sync, and whether a user did it.
    pending: Vec<(WorkspacePath, Version, bool)>,
}

impl Disk {
    pub fn with(tree: Tree) -> Self {
        Self { live: tree.clone(), durable: tree, pending: Vec::new() }
    }

    pub fn put(&mut self, path: &WorkspacePath, version: &Version, by_user: bool) {
        set(&mut self.live, path, version);
        self.pending.push((path.clone(), version.clone(), by_user));
    }

    pub fn sync(&mut self) {
        self.pending.clear();
        self.durable = self.live.clone();
    }

    /// Loses what was not synced: operations on names in order up to some point, of files overwritten later any.
    /// Answers the paths at which a user's own operation was lost.
    pub fn crash(&mut self, dice: &mut Dice) -> BTreeSet<WorkspacePath> {
        let pending = std::mem::take(&mut self.pending);
        let kept = dice.below(pending.len() + 1);
        let mut lost = BTreeSet::new();
        let mut touched = BTreeSet::new();
        for (at, (path, version, by_user)) in pending.iter().enumerate() {
            let is_file = |version: Option<&Version>| matches!(version, Some(Version::File { .. }));
            let overwrites = is_file(self.durable.get(path)) && is_file(Some(version));
            let survives = at < kept || overwrites && !touched.contains(path) && dice.chance(50);
            if survives {
                set(&mut self.durable, path, version);
            } else {
                touched.insert(path.clone());
                if *by_user {
                    lost.insert(path.clone());
                }
            }
        }
        self.live = self.durable.clone();
        lost
    }
}

/// Puts something at a path of a tree.
pub fn set(tree: &mut Tree, path: &WorkspacePath, version: &Version) {
    match version {
        Version::Absent => drop(tree.remove(path)),
        _ => drop(tree.insert(path.clone(), version.clone())),
    }
}

/// What stands at a path of a tree.
pub fn at(tree: &Tree, path: &WorkspacePath) -> Version {
    tree.get(path).cloned().unwrap_or(Version::Absent)
}

/// The paths at which two trees differ.
pub fn differing(one: &Tree, other: &Tree) -> Vec<WorkspacePath> {
    let paths: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    paths.into_iter().filter(|path| !at(one, path).same_value(&at(other, path))).cloned().collect()
}

/// What a directory holds.
pub fn children(tree: &Tree, directory: &WorkspacePath) -> Vec<WorkspacePath> {
    let below =
        tree.range(directory.join(&[1])..).take_while(|(path, _)| path.is_within(directory));
    below
        .filter(|(path, _)| path.parent().as_ref() == Some(directory))
        .map(|(path, _)| path.clone())
        .collect()
}

/// A directory and everything below it.
pub fn subtree(tree: &Tree, top: &WorkspacePath) -> Vec<WorkspacePath> {
    tree.keys().filter(|path| path.is_within(top)).cloned().collect()
}
