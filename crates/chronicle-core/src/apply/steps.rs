//! Takes the steps of a script, each of which may already have been taken before a crash.
//!
//! Every step looks before it acts and again at what came out. What was not expected is put back
//! and reported; the other steps go on, because after the commit point the way leads only forward.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::entry::{Entry, Meta};
use crate::error::{Context, Result};
use crate::failpoint;
use crate::fs::Roots;
use crate::path::WorkspacePath;

use super::Applied;
use super::attributes::{Goal, Handle, is_fatal};
use super::direct::Syncing;
use super::directories::{Directories, Seen, see, see_handle};
use super::script::{Base, Expected, Place, Rest, Script, Slot, Step};
use super::stage::Stages;

/// Why a step was not taken.
pub(super) enum Trouble {
    /// Something else is there than the plan knows of, or cannot be brought back.
    Unexpected(String),
    /// The operating system refused.
    System(&'static str, Errno),
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Self::Unexpected(why.to_owned())
    }
}

pub(super) type Taken = Result<(), Trouble>;

/// Gives an error the verb that a report needs.
trait Trying<T> {
    fn trying(self, action: &'static str) -> Result<T, Trouble>;
}

impl<T> Trying<T> for Result<T, Errno> {
    fn trying(self, action: &'static str) -> Result<T, Trouble> {
        self.map_err(|error| Trouble::System(action, error))
    }
}

/// Takes all steps, or only so many: a test's way to stop at each of them.
pub(super) fn run(
    roots: &Roots,
    script: &Script,
    stages: &Stages,
    limit: Option<usize>,
    syncing: Syncing,
) -> Result<Applied> {
    let store = |open: fn(&super::stage::Stage) -> Result<OwnedFd, Errno>| {
        stages.iter().map(open).collect::<Result<Vec<_>, _>>().at("open", "staging")
    };
    let mut runner = Runner {
        directories: Directories::new(roots),
        script,
        stages,
        placed: script.places().map(|place| (&place.path, place.ino)).collect(),
        trash: store(|stage| stage.trash())?,
        moved: if script.has_moves() { store(|stage| stage.moved())? } else { Vec::new() },
        applied: Applied { unexpected: script.problems.clone(), aside: Vec::new() },
    };
    let steps = &script.steps[..limit.unwrap_or(script.steps.len()).min(script.steps.len())];
    for step in steps {
        let taken = runner.take(step);
        runner.report(step.path(), taken)?;
        failpoint::hit("rewind_after_step");
    }
    if limit.is_none() {
        runner.put_back_late_writes()?;
        if syncing == Syncing::Now && !stages.sync_as_a_whole().at("examine", "staging")? {
            let ends = |step: &'_ Step| [step.source().cloned(), Some(step.path().clone())];
            let paths: Vec<_> = script.steps.iter().flat_map(ends).flatten().collect();
            sync_names_and_all(roots, paths.iter())?;
        }
    }
    Ok(runner.applied)
}

/// Makes durable what lies at some paths, and the directories it lies in.
pub(super) fn sync_names_and_all<'p>(
    roots: &Roots,
    paths: impl Iterator<Item = &'p WorkspacePath>,
) -> Result<()> {
    let mut done = HashSet::new();
    for path in paths {
        for path in [Some(path.clone()), path.parent()].into_iter().flatten() {
            if roots.root_of(&path).is_ok() && done.insert(path.clone()) {
                sync_path(roots, &path)?;
            }
        }
    }
    Ok(())
}

/// Makes durable the directories in which the steps changed something; false if they are more than so many, and nothing
/// was done.
pub(super) fn sync_few_names(roots: &Roots, script: &Script, most: usize) -> Result<bool> {
    let mut directories = HashSet::new();
    for step in &script.steps {
        if let Step::Finish { path, .. } | Step::Settle { path, .. } = step {
            directories.insert(path.clone());
        }
        let ends = step.source().into_iter().chain([step.path()]);
        directories.extend(ends.filter_map(WorkspacePath::parent));
        if directories.len() > most {
            return Ok(false);
        }
    }
    let ours = directories.iter().filter(|path| roots.root_of(path).is_ok());
    ours.into_iter().try_for_each(|path| sync_path(roots, path)).map(|()| true)
}

fn sync_path(roots: &Roots, path: &WorkspacePath) -> Result<()> {
    let opened = match roots.lstat(path)? {
        Some(stat) if stat.is_directory() => roots.open_directory(path),
        Some(stat) if stat.kind().is_file() => roots.open_file(path).map(OwnedFd::from),
        _ => return Ok(()),
    };
    match opened {
        Ok(file) => rustix::fs::fsync(file).at("sync", roots.real(path)),
        // Somebody took it away meanwhile, or may not read it: its name is synced all the same.
        Err(_) => Ok(()),
    }
}

struct Runner<'a> {
    directories: Directories<'a>,
    script: &'a Script,
    stages: &'a Stages,
    /// The inodes that the script puts in place.
    placed: HashMap<&'a WorkspacePath, u64>,
    trash: Vec<OwnedFd>,
    moved: Vec<OwnedFd>,
    applied: Applied,
}

impl Runner<'_> {
    fn report(&mut self, path: &WorkspacePath, taken: Taken) -> Result<()> {
        let why = match taken {
            Ok(()) => return Ok(()),
            Err(Trouble::System(action, error)) if is_fatal(error) => {
                return Err(error).at(action, path.as_path());
            }
            Err(Trouble::System(action, error)) => {
                format!("could not {action} it: {}", std::io::Error::from(error))
            }
            Err(Trouble::Unexpected(why)) => why,
        };
        // The first step that fails on a path says why; the next ones only follow from it.
        let known = &self.applied.unexpected[self.script.problems.len()..];
        if !known.iter().any(|(known, _)| known == path) {
            self.applied.unexpected.push((path.clone(), why));
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Taken {
        match step {
            Step::Unlock { path, ino, mode } => self.unlock(path, *ino, *mode),
            Step::Remove { path, expected, slot } => self.remove(path, expected, slot),
            Step::RemoveDirectory { path, ino, mode, rest } => {
                self.remove_directory(path, *ino, *mode, rest)
            }
            Step::SetAside { path, ino, to } => self.set_aside(path, *ino, to),
            Step::MoveOut { from, ino, slot } => self.move_out(from, *ino, slot),
            Step::MoveIn { from, to, ino, slot } => self.move_in(from, to, *ino, slot),
            Step::Move { from, to, ino } => self.move_straight(from, to, *ino),
            Step::Place(place) => self.place(place),
            Step::Change { path, expected, meta, remove } => {
                self.change(path, expected, meta, remove)
            }
            Step::Finish { path, meta, remove, base } => self.finish(path, meta, remove, *base),
            Step::Settle { path, ino, mode, mtime_ns } => self.settle(path, *ino, *mode, *mtime_ns),
        }
    }

    fn unlock(&mut self, path: &WorkspacePath, ino: u64, mode: u32) -> Taken {
        // After a crash it may be gone already, or have its last mode, which comes again.
        match self.open_directory(path, ino)? {
            Some((handle, _)) => handle.set_mode(mode).trying("unlock"),
            None => Ok(()),
        }
    }

    /// A directory, if it is still the one with this inode.
    fn open_directory(
        &mut self,
        path: &WorkspacePath,
        ino: u64,
    ) -> Result<Option<(Handle, Seen)>, Trouble> {
        let directory = match self.directories.open(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            other => other.trying("open")?,
        };
        let seen = see_handle(&*directory).trying("look at")?;
        if seen.ino() != ino {
            return Ok(None);
        }
        Ok(Some((Handle::directory(directory.as_fd()).trying("open")?, seen)))
    }

    fn remove(&mut self, path: &WorkspacePath, expected: &Expected, slot: &Slot) -> Taken {
        let Some(seen) = self.directories.see(path).trying("look at")? else { return Ok(()) };
        if self.is_placed(path, &seen) {
            return Ok(());
        }
        if !expected.is(&seen) {
            return Err("it was changed meanwhile".into());
        }
        let (directory, name) = self.directories.parent(path).trying("open the directory of")?;
        let (trash, number) = (self.trash[slot.stage].as_fd(), slot.number.to_string());
        rename_new(&*directory, name, trash, number.as_bytes()).trying("remove")?;
        let out = see(trash, number.as_bytes()).trying("look at")?;
        if out.is_some_and(|out| expected.came_out_as(&out)) {
            return Ok(());
        }
        rename_new(trash, number.as_bytes(), &*directory, name).trying("put back")?;
        Err("it was changed while it was removed, and put back".into())
    }

    /// Whether a later step has already put its entry here.
    fn is_placed(&self, path: &WorkspacePath, seen: &Seen) -> bool {
        self.placed.get(path) == Some(&seen.ino())
    }

    fn remove_directory(
        &mut self,
        path: &WorkspacePath,
        ino: u64,
        mode: u32,
        rest: &Rest,
    ) -> Taken {
        let Some(seen) = self.directories.see(path).trying("look at")? else {
            return self.note_aside(path, ino, rest);
        };
        if !seen.is_directory() || seen.ino() != ino {
            // A file that this rewind placed here, or something new, which that step will meet.
            return self.note_aside(path, ino, rest);
        }
        let (directory, name) = self.directories.parent(path).trying("open the directory of")?;
        match rustix::fs::unlinkat(&*directory, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.directories.forget(path);
                return Ok(());
            }
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(Trouble::System("remove", error)),
        }
        if let Some((handle, seen)) = self.open_directory(path, ino)?
            && seen.permissions() != mode
        {
            handle.set_mode(mode).trying("lock")?;
        }
        match rest {
            Rest::Stays => Err("it holds something unknown".into()),
            Rest::Aside(to) => self.set_aside(path, ino, to),
            Rest::WithParent => Ok(()),
        }
    }

    /// Reports once more what was set aside before a crash.
    fn note_aside(&mut self, path: &WorkspacePath, ino: u64, rest: &Rest) -> Taken {
        if let Rest::Aside(to) = rest
            && self.directories.see(to).trying("look at")?.is_some_and(|seen| seen.ino() == ino)
        {
            self.applied.aside.push((path.clone(), to.clone()));
        }
        Ok(())
    }

    fn set_aside(&mut self, path: &WorkspacePath, ino: u64, to: &WorkspacePath) -> Taken {
        let seen = self.directories.see(path).trying("look at")?;
        if seen.is_some_and(|seen| seen.ino() == ino) {
            self.rename(path, to, ino)?;
        }
        self.note_aside(path, ino, &Rest::Aside(to.clone()))
    }

    fn move_straight(&mut self, from: &WorkspacePath, to: &WorkspacePath, ino: u64) -> Taken {
        match self.directories.see(from).trying("look at")? {
            Some(seen) if seen.ino() == ino => self.rename(from, to, ino),
            _ if self.stands_at(to, ino)? => Ok(()),
            _ => Err("what was to be moved here is not where it was".into()),
        }
    }

    /// Renames within the workspace, to a name that is free, and puts back what was not meant.
    fn rename(&mut self, from: &WorkspacePath, to: &WorkspacePath, ino: u64) -> Taken {
        let (source, name) = self.directories.parent(from).trying("open the directory of")?;
        let (target, new) = self.directories.parent(to).trying("open the directory of")?;
        rename_new(&*source, name, &*target, new).trying("move")?;
        self.directories.forget(from);
        let out = see(&*target, new).trying("look at")?;
        if out.is_some_and(|out| out.ino() == ino) {
            return Ok(());
        }
        rename_new(&*target, new, &*source, name).trying("put back")?;
        Err("it was replaced while it was moved, and put back".into())
    }

    fn stands_at(&mut self, path: &WorkspacePath, ino: u64) -> Result<bool, Trouble> {
        let seen = self.directories.see(path).trying("look at")?;
        Ok(seen.is_some_and(|seen| seen.ino() == ino))
    }

    fn move_out(&mut self, from: &WorkspacePath, ino: u64, slot: &Slot) -> Taken {
        if !self.stands_at(from, ino)? {
            // Taken out before a crash; if it is nowhere, the step that brings it in says so.
            return Ok(());
        }
        let (source, name) = self.directories.parent(from).trying("open the directory of")?;
        let (moved, number) = (self.moved[slot.stage].as_fd(), slot.number.to_string());
        rename_new(&*source, name, moved, number.as_bytes()).trying("move")?;
        self.directories.forget(from);
        Ok(())
    }

    fn move_in(
        &mut self,
        from: &WorkspacePath,
        to: &WorkspacePath,
        ino: u64,
        slot: &Slot,
    ) -> Taken {
        let number = slot.number.to_string();
        let moved = self.moved[slot.stage].try_clone();
        let moved = moved.map_err(|error| Trouble::Unexpected(error.to_string()))?;
        if see(&moved, number.as_bytes()).trying("look at")?.is_none() {
            return match self.stands_at(to, ino)? {
                true => Ok(()),
                false => Err("what was to be moved here is not where it was".into()),
            };
        }
        let Err(error) = self.bring_in(&moved, &number, to) else { return Ok(()) };
        if is_fatal(error) {
            return Err(Trouble::System("move", error));
        }
        // It is nowhere else, so it must not stay in staging.
        self.bring_in(&moved, &number, from).trying("put back what was to be moved to")?;
        Err(Trouble::System("move", error))
    }

    fn bring_in(&mut self, moved: &OwnedFd, number: &str, to: &WorkspacePath) -> Result<(), Errno> {
        let (target, name) = self.directories.parent(to)?;
        rename_new(moved, number.as_bytes(), &*target, name)
    }

    fn place(&mut self, place: &Place) -> Taken {
        let (directory, name) =
            self.directories.parent(&place.path).trying("open the directory of")?;
        let seen = see(&*directory, name).trying("look at")?;
        let (lane, staged) = self.stages.slot(&place.slot);
        match (&place.expected, seen) {
            (_, Some(seen)) if seen.ino() == place.ino => Ok(()),
            (None, None) => match rename_new(lane, staged.as_bytes(), &*directory, name) {
                Err(Errno::EXIST) => Err("something new stands in its place".into()),
                Err(Errno::NOENT) => Err("what was staged for it is gone".into()),
                other => other.trying("create"),
            },
            (Some(expected), Some(seen)) if expected.is(&seen) => {
                exchange(lane, staged.as_bytes(), &*directory, name, expected)
            }
            (_, Some(seen)) if self.is_wanted(place, &seen) => Ok(()),
            (None, Some(_)) => Err("something new stands in its place".into()),
            (Some(_), None) => Err("it was removed meanwhile".into()),
            (Some(_), Some(_)) => Err("it was changed meanwhile".into()),
        }
    }

    /// Whether this looks like what a first recovery put here from content it staged again.
    fn is_wanted(&self, place: &Place, seen: &Seen) -> bool {
        let (Entry::File(file), false) = (&place.then, self.script.touch) else { return false };
        let (meta, found) = (&file.meta, &seen.signature);
        seen.kind().is_file()
            && (file.size, meta.mtime_ns) == (found.size, found.mtime_ns)
            && (meta.mode & 0o7777, meta.uid, meta.gid)
                == (seen.permissions(), found.uid, found.gid)
    }

    fn change(
        &mut self,
        path: &WorkspacePath,
        expected: &Expected,
        meta: &Meta,
        remove: &[Vec<u8>],
    ) -> Taken {
        let (directory, name) = self.directories.parent(path).trying("open the directory of")?;
        let Some(seen) = see(&*directory, name).trying("look at")? else {
            return Err("it was removed meanwhile".into());
        };
        let handle = Handle::open(&*directory, name, &seen).trying("open")?;
        let seen = handle.see().trying("look at")?;
        // A crash may have left it anywhere between the two, but with one of both times.
        let time = seen.signature.mtime_ns;
        let same = (expected.ino, expected.size) == (seen.ino(), seen.signature.size);
        if !same || time != expected.mtime_ns && time != meta.mtime_ns {
            return Err("it was changed meanwhile".into());
        }
        bring(&handle, meta, remove, &seen)
    }

    fn finish(
        &mut self,
        path: &WorkspacePath,
        meta: &Meta,
        remove: &[Vec<u8>],
        base: Base,
    ) -> Taken {
        let directory = self.directories.open(path).trying("open")?;
        let seen = see_handle(&*directory).trying("look at")?;
        let right = match base {
            Base::Kept(ino) => ino == seen.ino(),
            Base::Made => self.is_placed(path, &seen),
        };
        if !right {
            return Err("it was replaced meanwhile".into());
        }
        let handle = Handle::directory(directory.as_fd()).trying("open")?;
        if base == Base::Made {
            handle.remove_inherited(meta);
        }
        bring(&handle, meta, remove, &seen)
    }

    fn settle(
        &mut self,
        path: &WorkspacePath,
        ino: u64,
        mode: Option<u32>,
        mtime_ns: i64,
    ) -> Taken {
        let Some((handle, seen)) = self.open_directory(path, ino)? else { return Ok(()) };
        if let Some(mode) = mode {
            handle.set_mode(mode).trying("lock")?;
        }
        if seen.signature.mtime_ns != mtime_ns {
            // Only an owner can set a time; for others that of the rewind is as good as any.
            match handle.set_time(mtime_ns) {
                Err(Errno::PERM | Errno::ACCESS) => {}
                other => other.trying("restore the time of")?,
            }
        }
        Ok(())
    }

    /// Gives back what somebody who had it open wrote to after it was taken out of its place.
    fn put_back_late_writes(&mut self) -> Result<()> {
        for step in &self.script.steps {
            let taken = match step {
                Step::Remove { path, expected, slot } => {
                    let number = slot.number.to_string();
                    let trash = self.trash[slot.stage].as_fd();
                    late(
                        trash,
                        &number,
                        &mut self.directories,
                        path,
                        expected,
                        RenameFlags::NOREPLACE,
                    )
                }
                Step::Place(place) => match &place.expected {
                    Some(expected) => {
                        let (lane, number) = self.stages.slot(&place.slot);
                        let exchange = RenameFlags::EXCHANGE;
                        late(lane, &number, &mut self.directories, &place.path, expected, exchange)
                    }
                    None => Ok(()),
                },
                _ => Ok(()),
            };
            self.report(step.path(), taken)?;
        }
        Ok(())
    }
}

/// Puts one thing back from staging if it is not what was taken out.
fn late(
    staging: BorrowedFd<'_>,
    number: &str,
    directories: &mut Directories<'_>,
    path: &WorkspacePath,
    expected: &Expected,
    how: RenameFlags,
) -> Taken {
    let Some(out) = see(staging, number.as_bytes()).trying("look at")? else { return Ok(()) };
    if out.ino() != expected.ino || expected.came_out_as(&out) || expected.ctime_ns.is_none() {
        return Ok(());
    }
    let (directory, name) = directories.parent(path).trying("open the directory of")?;
    rustix::fs::renameat_with(staging, number.as_bytes(), &*directory, name, how)
        .trying("put back")?;
    Err("it was written to after it was taken away, and put back".into())
}

/// Renames to a name that must be free.
fn rename_new(from: impl AsFd, name: &[u8], to: impl AsFd, new: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from.as_fd(), name, to.as_fd(), new, RenameFlags::NOREPLACE) {
        // The file system does not know the flag.
        Err(Errno::INVAL) => match see(to.as_fd(), new)? {
            Some(_) => Err(Errno::EXIST),
            None => rustix::fs::renameat(from, name, to, new),
        },
        other => other,
    }
}

/// Puts a staged entry in the place of what is expected there, which comes out into staging.
pub(super) fn exchange(
    lane: BorrowedFd<'_>,
    staged: &[u8],
    directory: impl AsFd,
    name: &[u8],
    expected: &Expected,
) -> Taken {
    let swap = || {
        let flags = RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(lane, staged, directory.as_fd(), name, flags)
    };
    match swap() {
        Err(Errno::INVAL | Errno::NOSYS) => {
            // Without the exchange the old content goes at once; it is in the store.
            return rustix::fs::renameat(lane, staged, directory.as_fd(), name).trying("replace");
        }
        Err(Errno::NOENT) => return Err("it was removed, or what was staged for it is gone".into()),
        other => other.trying("replace")?,
    }
    let out = see(lane, staged).trying("look at")?;
    if out.is_some_and(|out| expected.came_out_as(&out)) {
        return Ok(());
    }
    swap().trying("put back")?;
    Err("it was changed while it was replaced, and put back".into())
}

fn bring(handle: &Handle, meta: &Meta, remove: &[Vec<u8>], seen: &Seen) -> Taken {
    let goal = Goal { meta, remove, touch: false };
    let problems = handle.bring_to(&goal, seen).trying("restore the attributes of")?;
    if problems.is_empty() { Ok(()) } else { Err(Trouble::Unexpected(problems.join("; "))) }
}
