//! One name of a directory against what was known of it: the decisions of a look.
//!
//! Only names that are not plainly unchanged come this far, except directories, which are always
//! descended into.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::changes::Wanted;
use super::join::{Remembered, was_there};
use super::survey::{Here, Task, Worker};
use super::walk::{Unit, child, decode, flavor};
use super::{Candidate, Problem};
use crate::entry::{Entry, Why};
use crate::error::Result;
use crate::filter::Exclusion;
use crate::fs::{self, Stat};
use crate::known::{Identity, Known, Part};
use crate::path::WorkspacePath;

/// A name that stands in a directory, with what was known of it.
struct Seen {
    path: WorkspacePath,
    stat: Stat,
    was: Option<Known>,
    /// Whether what was known still holds.
    current: bool,
}

impl<'a> Worker<'a> {
    /// A name that stands in the directory.
    pub(super) fn entry(
        &mut self,
        here: &Here<'_, 'a>,
        name: &[u8],
        stat: Stat,
        known: Option<Remembered<'_>>,
    ) -> Result<()> {
        let in_unit = here.task.unit.is_some();
        let current = known.is_some_and(|known| known.is_current(&stat, in_unit));
        if current && !stat.is_directory() {
            self.found.files += 1;
            return Ok(());
        }
        let path = here.task.path.join(name);
        let was = known.map(|known| decode(&path, known)).transpose()?;
        let seen = Seen { path, stat, was, current };
        let Some(mount) = self.mount(here, &seen)? else { return Ok(()) };
        match &here.task.unit {
            Some(unit) => self.inside_unit(here, unit, seen, mount),
            None => self.ordinary(here, seen, mount),
        }
    }

    fn ordinary(&mut self, here: &Here<'_, 'a>, seen: Seen, mount: Option<Identity>) -> Result<()> {
        // What was taken in stays in, whatever grows beside it: nobody can turn captured work into
        // re-creatable mass by planting a sign.
        let captured = seen.was.as_ref().is_some_and(|was| was.entry.is_directory());
        match self.walk.filter.exclusion(&seen.path, seen.stat.is_directory()) {
            Some(Exclusion::Mass) if captured => {}
            Some(_) => return self.filtered(seen),
            None => {}
        }
        if !seen.stat.is_directory() {
            return self.file(seen, Part::Ordinary);
        }
        match flavor(here.directory.as_fd(), seen.path.name()) {
            Ok(Some(flavor)) => {
                let unit = Arc::new(Unit::new(seen.path.clone(), flavor));
                if !is_same_repository(&seen) {
                    self.report(&unit);
                }
                self.descend(here, seen, mount, Some(unit), true);
            }
            // A repository that cannot be entered is still one; it did not become a directory.
            Err(error) if is_repository(&seen) => self.problem(&seen.path, Why::Unreadable, error),
            _ => self.plain_directory(here, seen, mount, None, Part::Ordinary),
        }
        Ok(())
    }

    /// A name inside a repository's metadata, which no filter concerns.
    fn inside_unit(
        &mut self,
        here: &Here<'_, 'a>,
        unit: &Arc<Unit>,
        seen: Seen,
        mount: Option<Identity>,
    ) -> Result<()> {
        let is_directory = seen.stat.is_directory();
        let Some(part) = unit.part(&seen.path, is_directory) else { return Ok(()) };
        let was_significant = seen.was.as_ref().is_some_and(|was| was.part == Part::Significant);
        if part == Part::Significant || was_significant {
            self.report(unit);
        }
        if is_directory {
            self.plain_directory(here, seen, mount, Some(unit.clone()), part);
            return Ok(());
        }
        let start = self.found.vanished.len();
        self.file(seen, part)?;
        self.report_vanished(Some(unit), start);
        Ok(())
    }

    /// Something other than a directory that is new or not as it was.
    fn file(&mut self, seen: Seen, part: Part) -> Result<()> {
        self.found.files += 1;
        self.replaced(&seen)?;
        self.candidate(seen.path, Some(seen.stat), seen.was, part);
        Ok(())
    }

    /// Where something else took a directory's place, everything below is gone.
    fn replaced(&mut self, seen: &Seen) -> Result<()> {
        let could_hold = |was: &Known| was.entry.is_directory() || was.entry.is_unknown();
        if !seen.stat.is_directory() && seen.was.as_ref().is_some_and(could_hold) {
            self.vanish_below(&seen.path)?;
        }
        Ok(())
    }

    fn plain_directory(
        &mut self,
        here: &Here<'_, 'a>,
        seen: Seen,
        mount: Option<Identity>,
        unit: Option<Arc<Unit>>,
        part: Part,
    ) {
        if !seen.current {
            self.candidate(seen.path.clone(), Some(seen.stat), seen.was.clone(), part);
        }
        let reported = !seen.current;
        self.descend(here, seen, mount, unit, reported);
    }

    fn descend(
        &mut self,
        here: &Here<'_, 'a>,
        seen: Seen,
        mount: Option<Identity>,
        unit: Option<Arc<Unit>>,
        reported: bool,
    ) {
        if here.task.only.is_some_and(|only| !goes_below(only, &seen)) {
            return;
        }
        if self.walk.extent.is_some_and(|extent| !extent.covers(&seen.path)) {
            return self.walk.set_doubt();
        }
        let (root, path, stat) = (here.task.root, seen.path, seen.stat);
        self.own.push(Task { root, path, stat, mount, unit, reported, only: None });
    }

    /// Something that a filter keeps out is named and not entered; what is known below it stays.
    fn filtered(&mut self, seen: Seen) -> Result<()> {
        self.found.files += u64::from(!seen.stat.is_directory());
        if is_same_filtered(&seen) {
            return Ok(());
        }
        self.replaced(&seen)?;
        let Seen { path, stat, was, .. } = seen;
        let part = Part::Ordinary;
        let candidate = Candidate { path, stat: Some(stat), was, part, filtered: true };
        self.found.candidates.push(candidate);
        Ok(())
    }

    /// Which file system is mounted here; the outer `None` if it is not the one that was known.
    fn mount(&mut self, here: &Here<'_, 'a>, seen: &Seen) -> Result<Option<Option<Identity>>> {
        let crosses = seen.stat.is_directory() && seen.stat.dev != here.task.stat.dev;
        if seen.current && !crosses {
            return Ok(Some(None));
        }
        let recorded = self.walk.row(&seen.path)?.and_then(|row| row.mount);
        if !crosses {
            return match recorded {
                None => Ok(Some(None)),
                Some(_) => self.unmounted(&seen.path).map(|()| None),
            };
        }
        let name = seen.path.name();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = fs::open_beneath(&here.directory, name, flags).and_then(fs::identity);
        let identity = match found {
            Ok(identity) => identity,
            Err(error) => {
                self.problem(&seen.path, Why::Unreadable, error);
                return Ok(None);
            }
        };
        // A mount over a directory hides what is known there, which then is neither here nor gone.
        let same = match recorded {
            Some(recorded) => recorded == identity,
            None => !self.walk.has_known_names(&seen.path)?,
        };
        if same { Ok(Some(Some(identity))) } else { self.unmounted(&seen.path).map(|()| None) }
    }

    /// A known name that the listing did not have.
    pub(super) fn unlisted(
        &mut self,
        here: &Here<'_, 'a>,
        name: &[u8],
        known: Remembered<'_>,
    ) -> Result<()> {
        if !here.complete || name.starts_with(fs::STAGING_PREFIX) {
            return Ok(());
        }
        // The directory is asked once more: a rename during the listing can hide a name from it.
        match fs::lstat_at(&here.directory, name) {
            Ok(Some(stat)) => self.entry(here, name, stat, Some(known)),
            found => self.not_there(here, name, Some(known), found.err()),
        }
    }

    /// A name of which the directory says that it is not there, or says nothing.
    pub(super) fn not_there(
        &mut self,
        here: &Here<'_, 'a>,
        name: &[u8],
        known: Option<Remembered<'_>>,
        error: Option<Errno>,
    ) -> Result<()> {
        let path = child(&here.task.path, name)?;
        let was = known.map(|known| decode(&path, known)).transpose()?;
        let unit = here.task.unit.as_ref();
        let part = match unit {
            Some(unit) => {
                unit.part(&path, was.as_ref().is_some_and(|was| was.entry.is_directory()))
            }
            None => Some(Part::Ordinary),
        };
        let Some(part) = part else { return Ok(()) };
        if let Some(error) = error {
            self.problem(&path, Why::Unreadable, error);
            self.candidate(path, None, was, part);
            return Ok(());
        }
        let Some(was) = was.filter(was_there) else { return Ok(()) };
        let start = self.found.vanished.len();
        self.vanish(path, was)?;
        self.report_vanished(unit, start);
        Ok(())
    }

    /// A path that is gone, with everything that was known below it.
    fn vanish(&mut self, path: WorkspacePath, was: Known) -> Result<()> {
        if self.walk.row(&path)?.is_some_and(|row| row.mount.is_some()) {
            return self.unmounted(&path);
        }
        if was.entry.is_directory() || was.entry.is_unknown() {
            self.vanish_below(&path)?;
        }
        self.found.vanished.push((path, was));
        Ok(())
    }

    /// Everything that was known below a path, except what lay on other file systems.
    fn vanish_below(&mut self, path: &WorkspacePath) -> Result<()> {
        let mut hidden: Option<WorkspacePath> = None;
        if self.walk.extent.is_some_and(|extent| !extent.covers(path)) {
            self.walk.set_doubt();
        }
        for directory in self.walk.directories_within(path) {
            if hidden.as_ref().is_some_and(|mount| directory.is_within(mount)) {
                continue;
            }
            if self.walk.row(directory)?.is_some_and(|row| row.mount.is_some()) {
                self.unmounted(directory)?;
                hidden = Some(directory.clone());
                continue;
            }
            self.vanish_names(directory)?;
        }
        Ok(())
    }

    fn vanish_names(&mut self, directory: &WorkspacePath) -> Result<()> {
        let walk = self.walk;
        let done = walk.find_name(directory, |name, known| {
            let path = child(directory, name)?;
            let was = decode(&path, known)?;
            let is_mount = walk.row(&path)?.is_some_and(|row| row.mount.is_some());
            if was_there(&was) && !is_mount {
                self.found.vanished.push((path, was));
            }
            Ok(None::<()>)
        });
        done.map(|_| ())
    }

    /// A directory that stood in its parent's listing and cannot be entered any more.
    pub(super) fn gone(&mut self, task: &Task<'a>) -> Result<()> {
        if !task.reported {
            let part = if task.unit.is_some() { Part::Neutral } else { Part::Ordinary };
            let was = self.walk.single(&task.path)?;
            self.candidate(task.path.clone(), None, was, part);
        }
        if let Some(unit) = &task.unit {
            self.report(unit);
        }
        self.vanish_below(&task.path)
    }

    pub(super) fn candidate(
        &mut self,
        path: WorkspacePath,
        stat: Option<Stat>,
        was: Option<Known>,
        part: Part,
    ) {
        self.found.candidates.push(Candidate { path, stat, was, part, filtered: false });
    }

    pub(super) fn problem(&mut self, path: &WorkspacePath, why: Why, error: Errno) {
        let detail = match why {
            Why::Changing => "It changed each time it was listed".to_owned(),
            _ => std::io::Error::from(error).to_string(),
        };
        self.found.problems.push(Problem { path: path.clone(), why, detail });
    }

    pub(super) fn unmounted(&mut self, path: &WorkspacePath) -> Result<()> {
        let detail = "Another file system or directory stands here than the one recorded";
        let (path, why) = (path.clone(), Why::Unmounted);
        self.found.problems.push(Problem { path, why, detail: detail.to_owned() });
        Ok(())
    }

    /// Reports a repository if something significant vanished since `start`.
    fn report_vanished(&mut self, unit: Option<&Arc<Unit>>, start: usize) {
        let significant = |(_, was): &(_, Known)| was.part == Part::Significant;
        if let Some(unit) = unit
            && self.found.vanished[start..].iter().any(significant)
        {
            self.report(unit);
        }
    }

    fn report(&mut self, unit: &Unit) {
        if unit.report() {
            self.found.units.push(unit.path.clone());
        }
    }
}

/// Whether a look at some names of a directory goes below this one: if it was told to, or if it is
/// not the directory that was known there.
fn goes_below(only: &Wanted, seen: &Seen) -> bool {
    let same = |was: &Known| {
        let ino = was.signature.map(|signature| signature.ino);
        was.entry.is_directory() && ino == Some(seen.stat.signature.ino)
    };
    only.get(seen.path.name()).copied().unwrap_or(true) || !seen.was.as_ref().is_some_and(same)
}

fn is_repository(seen: &Seen) -> bool {
    seen.was.as_ref().is_some_and(|was| matches!(was.entry, Entry::Repository(_)))
}

/// Whether a repository was recorded here with this mode and owner; its times do not count.
fn is_same_repository(seen: &Seen) -> bool {
    let Some(Known { entry: Entry::Repository(repository), .. }) = &seen.was else { return false };
    let (meta, now) = (&repository.meta, &seen.stat.signature);
    (meta.mode, meta.uid, meta.gid) == (now.mode & 0o7777, now.uid, now.gid)
}

/// Whether this very thing is already known to be kept out, whatever happened inside it.
fn is_same_filtered(seen: &Seen) -> bool {
    let Some(was) = &seen.was else { return false };
    let now = &seen.stat.signature;
    was.entry == Entry::Unknown(Why::Filtered)
        && was.signature.is_some_and(|known| (known.ino, known.mode) == (now.ino, now.mode))
}
