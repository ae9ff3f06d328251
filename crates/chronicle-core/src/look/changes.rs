//! A look at the paths that somebody saw being touched, with the result of a look at everything.
//!
//! It decides about each name with the very code of the walk, only that it is told which names to
//! look at. It relies on the word that nothing else was touched, and on the rows of the known state
//! that were loaded for it. Where either does not suffice it says so, and everything is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::join::Remembered;
use super::survey::{Here, Task, Worker, work};
use super::walk::{Unit, Walk, flavor, unreadable};
use super::{Survey, SurveyOptions};
use crate::entry::{Entry, Why};
use crate::error::Result;
use crate::filter::Filter;
use crate::fs::{self, Root, Roots, Stat};
use crate::known::{Known, KnownTable};
use crate::path::WorkspacePath;

/// Names in a directory to look at, each with whether to look at everything below it.
pub(crate) type Wanted = BTreeMap<Vec<u8>, bool>;

/// The directories in which something was touched, each of them known, with the names.
pub(crate) type Changes = BTreeMap<WorkspacePath, Wanted>;

/// How far the part of the known state goes that was loaded.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// Directories below which everything is loaded.
    pub(crate) whole: BTreeSet<WorkspacePath>,
}

impl Extent {
    /// Whether everything that is known below a path is loaded.
    pub(super) fn covers(&self, path: &WorkspacePath) -> bool {
        self.whole.contains(path) || path.ancestors().any(|above| self.whole.contains(&above))
    }
}

/// Looks at some names of some directories; `None` if only a look at everything can tell.
pub(crate) fn survey_changes(
    roots: &Roots,
    (known, extent): (&KnownTable, &Extent),
    filter: &Filter,
    changes: &Changes,
    options: &SurveyOptions<'_>,
) -> Result<Option<Survey>> {
    let walk = Walk::new(roots, known, filter, options).within(extent);
    let mut first = Worker::new(&walk);
    for root in roots.iter() {
        first.root(root)?;
    }
    for (directory, only) in changes {
        if walk.doubt.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // A watcher may not know yet that somebody adopted a worktree.
        if !filter.is_apart(directory) {
            first.names(directory, only)?;
        }
    }
    let mut found = if first.own.is_empty() {
        first.found
    } else {
        work(&walk, first, options.threads.max(1))?
    };
    found.sort();
    Ok((!walk.doubt.load(Ordering::Relaxed)).then_some(found))
}

impl<'a> Worker<'a> {
    /// Looks at some names of one directory.
    fn names(&mut self, path: &WorkspacePath, only: &'a Wanted) -> Result<()> {
        let root = self.walk.roots.root_of(path)?;
        // A root that is a single entry was looked at as such.
        if !root.is_directory() {
            return Ok(());
        }
        let Some(unit) = self.unit_of(root, path)? else {
            self.walk.set_doubt();
            return Ok(());
        };
        let Some((directory, stat)) = self.enter(root, path)? else { return Ok(()) };
        let (path, only) = (path.clone(), Some(only));
        let task = Task { root, path, stat, mount: None, unit, reported: true, only };
        let here = Here { task: &task, directory, complete: true };
        for name in task.only.into_iter().flat_map(Wanted::keys) {
            let known = self.walk.known.get(&task.path, name);
            let known = known.map_err(|error| unreadable(&task.path, error))?;
            let known = known.as_ref().map(Remembered::Newer);
            match fs::lstat_at(&here.directory, &name[..]) {
                Ok(Some(stat)) => self.entry(&here, name, stat, known)?,
                found => self.not_there(&here, name, known, found.err())?,
            }
        }
        Ok(())
    }

    /// Opens a directory of which some names are to be looked at; `None` if that tells all there is
    /// to tell, or nothing can be told.
    fn enter(&mut self, root: &Root, path: &WorkspacePath) -> Result<Option<(OwnedFd, Stat)>> {
        // Only of a directory that was listed completely a name that is not known was not there.
        let listed = self.walk.row(path)?.is_some_and(|row| row.listed.is_some());
        let opened = fs::open_directory_at(root.handle()?, root.below(path));
        match opened.and_then(|directory| Ok((fs::stat_of(&directory)?, directory))) {
            Ok((stat, directory)) if listed => return Ok(Some((directory, stat))),
            // It was there when the watcher spoke.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.walk.set_doubt(),
            Err(error) => self.problem(path, Why::Unreadable, error),
        }
        Ok(None)
    }

    /// The repository whose metadata a directory is or lies in. The outer `None` if the disk and the
    /// known state do not agree on what is one: then everything in it has another meaning.
    fn unit_of(&self, root: &Root, path: &WorkspacePath) -> Result<Option<Option<Arc<Unit>>>> {
        let mut above: Vec<_> = std::iter::once(path.clone()).chain(path.ancestors()).collect();
        above.reverse();
        for place in above {
            let inside = place.is_within(root.prefix()) && place != *root.prefix();
            if !inside || !matches!(place.name(), b".git" | b".jj") {
                continue;
            }
            let Some((parent, name)) = self.walk.roots.parent(&place)? else { return Ok(None) };
            let Ok(found) = flavor(parent.as_fd(), name) else { return Ok(None) };
            let was = self.walk.single(&place)?;
            let was = matches!(was, Some(Known { entry: Entry::Repository(_), .. }));
            match found {
                Some(flavor) if was => return Ok(Some(Some(Arc::new(Unit::new(place, flavor))))),
                None if !was => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(None))
    }
}
