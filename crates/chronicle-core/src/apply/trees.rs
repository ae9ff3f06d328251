//! New directories with everything in them: staged whole, and put in place by one rename each.
//!
//! What is new in a directory that is new needs no name of its own in staging, and nobody can have put anything where no
//! directory is. So thousands of files cost what writing them costs.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::entry::{Entry, File, Meta};
use crate::error::{Context, Error, Result};
use crate::known::Signature;
use crate::path::WorkspacePath;

use super::attributes::{Goal, Handle};
use super::directories::{Seen, see};
use super::fill::{Problems, Source, link_meta, placeholder_of};
use super::script::Script;
use super::stage::{Stages, THREADS};
use super::{Applied, Task, Work};

/// How many files of one directory a thread takes at a time.
const SHARE: usize = 64;
/// Fewer files than this are not worth a thread.
const WORTH_A_THREAD: usize = 32;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory that is new, and what lies below it, parents first.
pub(super) struct Tree {
    top: WorkspacePath,
    tasks: Vec<Task>,
}

/// What lies below new directories, once it is staged.
#[derive(Default)]
pub(super) struct Staged {
    /// What each looks like that looks as it should.
    pub(super) made: HashMap<WorkspacePath, Signature>,
    /// The inodes of all of it.
    pub(super) inodes: Vec<u64>,
    pub(super) problems: Problems,
}

/// Takes what lies below new directories out of a work, and leaves the topmost ones in it.
pub(super) fn split(work: &mut Work) -> Vec<Tree> {
    if !work.moves.is_empty() {
        return Vec::new();
    }
    work.tasks.sort_by(|a, b| a.path.cmp(&b.path));
    let mut homes: HashMap<WorkspacePath, usize> = HashMap::new();
    let mut found: Vec<(WorkspacePath, bool)> = Vec::new();
    let mut inside = Vec::with_capacity(work.tasks.len());
    for task in &work.tasks {
        let home = task.path.parent().and_then(|parent| homes.get(&parent).copied());
        let is_new = task.now.entry == Entry::Absent && !task.path.is_outside();
        if is_new && matches!(task.then, Entry::Directory(_)) {
            homes.insert(task.path.clone(), home.unwrap_or(found.len()));
            if home.is_none() {
                found.push((task.path.clone(), true));
            }
        }
        if let Some(tree) = home {
            found[tree].1 &= is_new && is_plain(&task.then);
        }
        inside.push(home);
    }
    let mut trees: Vec<_> =
        found.iter().map(|(top, _)| Tree { top: top.clone(), tasks: Vec::new() }).collect();
    let tasks = std::mem::take(&mut work.tasks);
    for (task, home) in tasks.into_iter().zip(inside) {
        match home.filter(|tree| found[*tree].1) {
            Some(tree) => trees[tree].tasks.push(task),
            None => work.tasks.push(task),
        }
    }
    trees.retain(|tree| !tree.tasks.is_empty());
    trees
}

fn is_plain(entry: &Entry) -> bool {
    match entry {
        Entry::File(file) => file.link.is_none(),
        Entry::Symlink(_) | Entry::Directory(_) => true,
        _ => false,
    }
}

/// Everything that these hold, for whoever must find it again.
pub(super) fn paths(trees: &[Tree]) -> impl Iterator<Item = &WorkspacePath> {
    trees.iter().flat_map(|tree| tree.tasks.iter().map(|task| &task.path))
}

/// Writes what new directories hold into those that are staged for them.
pub(super) fn stage(
    trees: &[Tree],
    stages: &Stages,
    script: &Script,
    source: &Source<'_>,
) -> Result<Staged> {
    let mut staged = Staged::default();
    for tree in trees {
        let place = script.places().find(|place| place.path == tree.top);
        let Some(place) = place else { continue };
        let (lane, name) = stages.slot(&place.slot);
        let top = rustix::fs::openat(lane, name, OPEN, Mode::empty())
            .at("open what is staged for", tree.top.as_path())?;
        Writing { tree, top, source }.write(&mut staged)?;
    }
    Ok(staged)
}

/// Makes all of it durable one by one, where a volume cannot be as a whole.
pub(super) fn sync_each(trees: &[Tree], stages: &Stages, script: &Script) -> Result<()> {
    for tree in trees {
        let Some(place) = script.places().find(|place| place.path == tree.top) else { continue };
        let (lane, name) = stages.slot(&place.slot);
        let top = rustix::fs::openat(lane, name, OPEN, Mode::empty())
            .at("open what is staged for", tree.top.as_path())?;
        for task in tree.tasks.iter().filter(|task| !matches!(task.then, Entry::Symlink(_))) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let synced = match beneath(&top, &tree.top, &task.path, flags) {
                // A placeholder is all name.
                Err(Errno::LOOP) => Ok(()),
                opened => opened.and_then(rustix::fs::fsync),
            };
            synced.at("sync the staged", task.path.as_path())?;
        }
        rustix::fs::fsync(&top).at("sync the staged", tree.top.as_path())?;
    }
    Ok(())
}

/// Says of what lies below a directory that is not in its place that it is not there either.
pub(super) fn report_unplaced(
    trees: &[Tree],
    is_placed: &mut dyn FnMut(&WorkspacePath) -> bool,
    staged: &mut Staged,
    applied: &mut Applied,
) {
    if applied.unexpected.is_empty() {
        return;
    }
    for tree in trees {
        let known = applied.unexpected.iter().any(|(path, _)| *path == tree.top);
        if !known || is_placed(&tree.top) {
            continue;
        }
        for task in &tree.tasks {
            staged.made.remove(&task.path);
            let why = "the directory that holds it could not be made".to_owned();
            applied.unexpected.push((task.path.clone(), why));
        }
    }
}

/// Opens something below a staged directory, which is ours alone; no link is followed all the same.
fn beneath(
    top: &OwnedFd,
    at: &WorkspacePath,
    path: &WorkspacePath,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    if path == at {
        return rustix::fs::openat(top, c".", flags, Mode::empty());
    }
    let rest = &path.as_bytes()[at.as_bytes().len() + 1..];
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(top, rest, flags, Mode::empty(), resolve)
}

/// One tree on its way into staging.
struct Writing<'a> {
    tree: &'a Tree,
    top: OwnedFd,
    source: &'a Source<'a>,
}

/// Files and links of one directory.
type Share<'a> = (WorkspacePath, Vec<&'a Task>);

/// What one entry became.
struct Entered<'a> {
    task: &'a Task,
    seen: Seen,
    problems: Vec<String>,
}

impl<'a> Writing<'a> {
    fn write(&self, staged: &mut Staged) -> Result<()> {
        let (directories, others): (Vec<_>, Vec<_>) =
            self.tree.tasks.iter().partition(|task| matches!(task.then, Entry::Directory(_)));
        self.make_directories(&directories)?;
        for entered in self.write_all(&shares(&others))? {
            staged.note(entered);
        }
        // Their times come when everything in them is written: the deepest first.
        for task in directories.into_iter().rev() {
            staged.note(self.finish(task)?);
        }
        Ok(())
    }

    fn open(&self, directory: &WorkspacePath) -> Result<OwnedFd> {
        beneath(&self.top, &self.tree.top, directory, OPEN)
            .at("open what is staged for", directory.as_path())
    }

    fn make_directories(&self, directories: &[&Task]) -> Result<()> {
        let mut last: Option<(WorkspacePath, OwnedFd)> = None;
        for task in directories {
            let parent = task.path.parent().unwrap_or_default();
            if last.as_ref().is_none_or(|(path, _)| *path != parent) {
                last = Some((parent.clone(), self.open(&parent)?));
            }
            let Some((_, parent)) = &last else { continue };
            rustix::fs::mkdirat(parent, task.path.name(), Mode::RWXU)
                .at("write", task.path.as_path())?;
        }
        Ok(())
    }

    fn write_all(&self, shares: &[Share<'a>]) -> Result<Vec<Entered<'a>>> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = || -> Result<Vec<Entered<'a>>> {
            let mut done = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let Some((directory, tasks)) = shares.get(next.fetch_add(1, Ordering::Relaxed))
                else {
                    break;
                };
                let written = self.write_share(directory, tasks, &mut done);
                failed.fetch_or(written.is_err(), Ordering::Relaxed);
                written?;
            }
            Ok(done)
        };
        let count: usize = shares.iter().map(|(_, tasks)| tasks.len()).sum();
        let threads = if count < WORTH_A_THREAD { 1 } else { THREADS };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut done = work()?;
            for other in others {
                done.extend(other.join().expect("BUG: a staging thread panicked")?);
            }
            Ok::<_, Error>(done)
        })
    }

    fn write_share(
        &self,
        directory: &WorkspacePath,
        tasks: &[&'a Task],
        done: &mut Vec<Entered<'a>>,
    ) -> Result<()> {
        let directory = self.open(directory)?;
        for task in tasks {
            let (name, path) = (task.path.name(), &task.path);
            let (seen, problems) = match &task.then {
                Entry::File(file) if self.source.store.is_elsewhere(&file.object)? => {
                    let target = placeholder_of(file).target();
                    let made = rustix::fs::symlinkat(target, &directory, name);
                    made.and_then(|()| attributes(&directory, name, &link_meta(file)))
                        .at("write", path.as_path())?
                }
                Entry::File(file) => self.write_file(&directory, name, file, path)?,
                Entry::Symlink(link) => {
                    let made = rustix::fs::symlinkat(&*link.target, &directory, name);
                    made.and_then(|()| attributes(&directory, name, &link.meta))
                        .at("write", path.as_path())?
                }
                other => panic!("BUG: a {} is no plain entry", other.kind()),
            };
            done.push(Entered { task, seen, problems });
        }
        Ok(())
    }

    fn write_file(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        file: &File,
        path: &WorkspacePath,
    ) -> Result<(Seen, Vec<String>)> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(file.meta.mode & 0o777);
        let made = rustix::fs::openat(directory, name, flags, mode).at("write", path.as_path())?;
        let mut out = fs::File::from(made);
        self.source.write_content(&mut out, file, path)?;
        let handle = Handle::of(out.into());
        // The time first: mostly nothing else is missing, and one look says so.
        let early = handle.set_time(file.meta.mtime_ns).and_then(|()| handle.see());
        let seen = early.or_else(|_| handle.see()).at("write", path.as_path())?;
        if looks_right(&seen, &file.meta) && file.meta.xattrs.is_empty() {
            return Ok((seen, Vec::new()));
        }
        brought(&handle, &file.meta, &seen).at("write", path.as_path())
    }

    fn finish(&self, task: &'a Task) -> Result<Entered<'a>> {
        let meta = task.then.meta().expect("BUG: a directory has attributes");
        let directory = self.open(&task.path)?;
        let finish = || {
            let handle = Handle::directory(directory.as_fd())?;
            handle.remove_inherited(meta);
            brought(&handle, meta, &handle.see()?)
        };
        let (seen, problems) = finish().at("write", task.path.as_path())?;
        Ok(Entered { task, seen, problems })
    }
}

fn attributes(directory: &OwnedFd, name: &[u8], meta: &Meta) -> Result<(Seen, Vec<String>), Errno> {
    let seen = see(directory, name)?.ok_or(Errno::NOENT)?;
    brought(&Handle::open(directory, name, &seen)?, meta, &seen)
}

fn brought(handle: &Handle, meta: &Meta, seen: &Seen) -> Result<(Seen, Vec<String>), Errno> {
    let problems = handle.bring_to(&Goal { meta, remove: &[], touch: false }, seen)?;
    Ok((handle.see()?, problems))
}

fn looks_right(seen: &Seen, meta: &Meta) -> bool {
    let found = &seen.signature;
    (found.mtime_ns, found.uid, found.gid) == (meta.mtime_ns, meta.uid, meta.gid)
        && (seen.permissions() == meta.mode & 0o7777 || seen.kind().is_symlink())
}

/// Files and links by the directory that holds them, a large one in several shares.
fn shares<'a>(tasks: &[&'a Task]) -> Vec<Share<'a>> {
    let mut shares: Vec<Share<'a>> = Vec::new();
    let mut by_parent: HashMap<WorkspacePath, usize> = HashMap::new();
    for task in tasks {
        let parent = task.path.parent().unwrap_or_default();
        let at = *by_parent.entry(parent.clone()).or_insert(shares.len());
        match shares.get_mut(at) {
            Some((_, share)) if share.len() < SHARE => share.push(task),
            _ => {
                by_parent.insert(parent.clone(), shares.len());
                shares.push((parent, vec![task]));
            }
        }
    }
    shares
}

impl Staged {
    fn note(&mut self, entered: Entered<'_>) {
        let Entered { task, seen, problems } = entered;
        self.inodes.push(seen.ino());
        let right = task.then.meta().is_some_and(|meta| looks_right(&seen, meta));
        if right && problems.is_empty() {
            self.made.insert(task.path.clone(), seen.signature);
        }
        self.problems.extend(problems.into_iter().map(|why| (task.path.clone(), why)));
    }
}
