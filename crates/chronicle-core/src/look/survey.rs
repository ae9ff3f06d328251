//! The stat-only walk over all roots: compares every name with the known state.
//!
//! An unchanged file costs one `fstatat` and a comparison of bytes. What was not proven to be gone
//! is never reported as vanished: after a failed or doubtful listing, nothing below counts.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::changes::Wanted;
use super::join::{Remembered, join, was_there};
use super::names::{Listed, Names};
use super::queue::Queue;
use super::walk::{Unit, Walk, unreadable};
use super::{Listing, Survey, SurveyOptions, check_cancelled};
use crate::entry::Why;
use crate::error::Result;
use crate::filter::Filter;
use crate::fs::{self, Root, Roots, Stat};
use crate::known::{DirectoryView, Identity, Known, KnownTable, Part};
use crate::path::WorkspacePath;

/// Looks at everything under all roots and says what may differ from the known state.
pub fn survey(
    roots: &Roots,
    known: &KnownTable,
    filter: &Filter,
    options: &SurveyOptions<'_>,
) -> Result<Survey> {
    let walk = Walk::new(roots, known, filter, options);
    let mut first = Worker::new(&walk);
    for root in roots.iter().filter(|root| !root.is_named_only()) {
        first.root(root)?;
    }
    let mut found = work(&walk, first, options.threads.max(1))?;
    found.sort();
    Ok(found)
}

/// Does the first worker's tasks, and all that come of them, on several threads.
pub(super) fn work<'a>(
    walk: &'a Walk<'a>,
    mut first: Worker<'a>,
    workers: usize,
) -> Result<Survey> {
    let queue = Queue::new(std::mem::take(&mut first.own), workers);
    std::thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| Worker::new(walk).run(&queue));
        let others: Vec<_> = (1..workers).map(spawn).collect();
        let mut found = first.run(&queue);
        for other in others {
            let theirs = other.join().expect("BUG: a worker panicked");
            found = found.and_then(|mut found| {
                found.absorb(theirs?);
                Ok(found)
            });
        }
        found
    })
}

impl Survey {
    fn absorb(&mut self, other: Self) {
        self.candidates.extend(other.candidates);
        self.vanished.extend(other.vanished);
        self.listings.extend(other.listings);
        self.units.extend(other.units);
        self.problems.extend(other.problems);
        self.files += other.files;
        self.directories += other.directories;
    }

    pub(super) fn sort(&mut self) {
        self.candidates.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.vanished.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.listings.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.units.sort_unstable();
        self.problems.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// A directory still to be listed.
pub(super) struct Task<'a> {
    pub(super) root: &'a Root,
    pub(super) path: WorkspacePath,
    pub(super) stat: Stat,
    pub(super) mount: Option<Identity>,
    pub(super) unit: Option<Arc<Unit>>,
    /// Whether the directory itself is a candidate already.
    pub(super) reported: bool,
    /// The only names to look at, each with whether to look below it; `None`: all.
    pub(super) only: Option<&'a Wanted>,
}

/// A directory that is being compared.
pub(super) struct Here<'t, 'a> {
    pub(super) task: &'t Task<'a>,
    pub(super) directory: OwnedFd,
    /// Whether a name that was not listed is worth asking for.
    pub(super) complete: bool,
}

/// One thread's share of a look.
pub(super) struct Worker<'a> {
    pub(super) walk: &'a Walk<'a>,
    pub(super) own: Vec<Task<'a>>,
    pub(super) found: Survey,
    names: Names,
}

impl<'a> Worker<'a> {
    pub(super) fn new(walk: &'a Walk<'a>) -> Self {
        Self { walk, own: Vec::new(), names: Names::default(), found: Survey::default() }
    }

    fn run(mut self, queue: &Queue<Task<'a>>) -> Result<Survey> {
        let _guard = queue.guard();
        while let Some(task) = queue.next(&mut self.own) {
            let done =
                check_cancelled(self.walk.options.cancelled).and_then(|()| self.directory(&task));
            if let Err(error) = done {
                queue.stop();
                return Err(error);
            }
        }
        Ok(self.found)
    }

    /// Compares a root itself; a directory is then walked.
    pub(super) fn root(&mut self, root: &'a Root) -> Result<()> {
        let (path, was) = (root.prefix(), self.walk.own(root.prefix())?);
        let stat = match root.handle().map(|handle| fs::lstat_at(handle, root.below(path))) {
            Ok(Ok(stat)) => stat,
            Ok(Err(error)) => {
                self.problem(path, Why::Unreadable, error);
                return Ok(());
            }
            Err(_) => return self.unmounted(path),
        };
        let was_directory = was.as_ref().is_some_and(|was| was.entry.is_directory());
        let is_directory = stat.is_some_and(|stat| stat.is_directory());
        if was_directory && !is_directory || is_directory != root.is_directory() {
            return self.unmounted(path);
        }
        let Some(stat) = stat else {
            self.found.vanished.extend(was.filter(was_there).map(|was| (path.clone(), was)));
            return Ok(());
        };
        // The workspace's own identity is checked, and bound anew, by whoever opened it.
        let mount = if is_directory && path.is_outside() { Some(root.identity()?) } else { None };
        let recorded = self.walk.row(path)?.and_then(|row| row.mount);
        if recorded.is_some() && mount.is_some() && recorded != mount {
            return self.unmounted(path);
        }
        self.root_entry(root, stat, mount, was);
        Ok(())
    }

    fn root_entry(
        &mut self,
        root: &'a Root,
        stat: Stat,
        mount: Option<Identity>,
        was: Option<Known>,
    ) {
        let path = root.prefix().clone();
        let current =
            was.as_ref().is_some_and(|was| Remembered::Newer(was).is_current(&stat, false));
        if !current {
            self.candidate(path.clone(), Some(stat), was, Part::Ordinary);
        }
        if stat.is_directory() {
            let task = Task { root, path, stat, mount, unit: None, reported: !current, only: None };
            // A look at some paths goes into a root by itself.
            if self.walk.extent.is_none() {
                self.own.push(task);
            }
        } else {
            self.found.files += 1;
        }
    }

    /// Lists one directory and compares what it holds with its row.
    fn directory(&mut self, task: &Task<'a>) -> Result<()> {
        let time = self.walk.options.clock.now();
        let mut names = std::mem::take(&mut self.names);
        let handle = task.root.handle()?;
        match names.list(handle, task.root.below(&task.path), &task.path, &task.stat) {
            Ok(listed) => {
                let row = self.walk.row(&task.path)?;
                let before = (self.found.candidates.len(), self.found.vanished.len());
                let complete = self.compare(task, listed, &names, row.as_ref())?;
                let news = before != (self.found.candidates.len(), self.found.vanished.len());
                let settled =
                    row.is_some_and(|row| row.listed.is_some() && row.mount == task.mount);
                if news || !complete || !settled {
                    let (path, mount) = (task.path.clone(), task.mount);
                    self.found.listings.push(Listing { path, complete, time, mount });
                }
            }
            // What the parent listed a moment ago is gone, or is no directory any more.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.gone(task)?,
            Err(error) => {
                self.problem(&task.path, Why::Unreadable, error);
                let (path, mount) = (task.path.clone(), task.mount);
                self.found.listings.push(Listing { path, complete: false, time, mount });
            }
        }
        self.names = names;
        Ok(())
    }

    /// Says whether the listing was complete.
    fn compare(
        &mut self,
        task: &Task<'a>,
        listed: Listed,
        names: &Names,
        row: Option<&DirectoryView<'a>>,
    ) -> Result<bool> {
        self.found.directories += 1;
        let doubt = listed.doubt.or((listed.stat.dev != task.stat.dev).then_some(Errno::BUSY));
        if let Some(error) = doubt {
            let why = if error == Errno::BUSY { Why::Changing } else { Why::Unreadable };
            self.problem(&task.path, why, error);
        }
        let here = Here { task, directory: listed.directory, complete: doubt.is_none() };
        let failed = |error| unreadable(&task.path, error);
        let mut join = join(row, self.walk.known.newer(&task.path));
        let mut next = join.next().map_err(failed)?;
        for index in 0..names.len() {
            let name = names.get(index);
            while let Some((known_name, known)) = next
                && known_name < name.to_bytes()
            {
                self.unlisted(&here, known_name, known)?;
                next = join.next().map_err(failed)?;
            }
            let known = next.filter(|(known_name, _)| *known_name == name.to_bytes());
            if known.is_some() {
                next = join.next().map_err(failed)?;
            }
            let known = known.map(|(_, known)| known);
            match fs::lstat_at(&here.directory, name) {
                Ok(Some(stat)) => self.entry(&here, name.to_bytes(), stat, known)?,
                found => self.not_there(&here, name.to_bytes(), known, found.err())?,
            }
        }
        while let Some((name, known)) = next {
            self.unlisted(&here, name, known)?;
            next = join.next().map_err(failed)?;
        }
        Ok(here.complete)
    }
}
