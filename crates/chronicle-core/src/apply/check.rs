//! Compares the workspace with the plan: before staging, and again just before the commit point.
//!
//! Any difference stops the rewind with nothing changed. Nothing is written here.

use std::collections::HashSet;
use std::io::Read;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::entry::{Entry, File};
use crate::error::{Context, Error, Result, Stop};
use crate::id::ObjectId;
use crate::known::{Known, Signature};
use crate::path::WorkspacePath;

use super::Work;
use super::directories::{Directories, Seen};

/// Looks at every path of the plan and stops if one is not what the plan was made for.
pub(super) fn check(directories: &mut Directories<'_>, work: &Work) -> Result<Vec<Option<Seen>>> {
    let (mut all, mut outdated) = (Vec::with_capacity(work.tasks.len()), Vec::new());
    for task in &work.tasks {
        let seen = directories.look_at(&task.path)?;
        if !is_as_known(&task.now, seen.as_ref()) || was_changed(directories, work, task)? {
            outdated.push(task.path.clone());
        }
        if seen.is_some_and(|seen| seen.immutable) {
            return Err(Errno::PERM).at("change", task.path.as_path());
        }
        all.push(seen);
    }
    outdated.extend(blocked_moves(directories, work)?);
    stop_if(outdated)?;
    Ok(all)
}

/// Looks again, now that staging is complete, which may have taken long.
pub(super) fn check_again(
    directories: &mut Directories<'_>,
    work: &Work,
    first: &[Option<Seen>],
    holders: &[WorkspacePath],
) -> Result<()> {
    let holders: HashSet<_> = holders.iter().collect();
    let mut outdated = Vec::new();
    for (task, first) in work.tasks.iter().zip(first) {
        let again = directories.look_at(&task.path)?;
        if !is_same(first.as_ref(), again.as_ref(), holders.contains(&task.path)) {
            outdated.push(task.path.clone());
        }
    }
    outdated.extend(blocked_moves(directories, work)?);
    stop_if(outdated)
}

fn stop_if(mut outdated: Vec<WorkspacePath>) -> Result<()> {
    outdated.sort_unstable();
    outdated.dedup();
    if outdated.is_empty() { Ok(()) } else { Err(Error::Stopped(Stop::PlanOutdated(outdated))) }
}

/// Stops because a directory that the plan counts on is not there.
pub(super) fn outdated(paths: Vec<WorkspacePath>) -> Result<()> {
    stop_if(paths)
}

fn is_as_known(now: &Known, seen: Option<&Seen>) -> bool {
    match (&now.entry, &now.signature, seen) {
        (Entry::Absent, _, seen) => seen.is_none(),
        (Entry::Unknown(_), None, _) => true,
        (_, Some(known), Some(seen)) => {
            comparable(*known, seen) == comparable(seen.signature, seen)
        }
        (entry, None, Some(seen)) => entry.is_directory() && seen.is_directory(),
        (_, _, None) => false,
    }
}

/// What counts of a signature. A directory's size and ctime change with staging that was made in it
/// and removed again, so an attempt that failed would spoil the next one.
fn comparable(signature: Signature, seen: &Seen) -> Signature {
    match seen.is_directory() {
        true => Signature { size: 0, ctime_ns: 0, ..signature },
        false => signature,
    }
}

fn is_same(first: Option<&Seen>, again: Option<&Seen>, holds_staging: bool) -> bool {
    let (Some(first), Some(again)) = (first, again) else {
        return first.is_none() && again.is_none();
    };
    let (mut first, mut second) =
        (comparable(first.signature, again), comparable(again.signature, again));
    if holds_staging {
        // Its time was put back, but only its owner can do that.
        (first.mtime_ns, second.mtime_ns) = (0, 0);
    } else if again.nlink > 1 {
        // Staging another name of the same inode changed it.
        (first.ctime_ns, second.ctime_ns) = (0, 0);
    }
    first == second
}

/// Whether a file that was read within the same tick as it was written has other content now.
fn was_changed(directories: &mut Directories<'_>, work: &Work, task: &super::Task) -> Result<bool> {
    match &task.now.entry {
        Entry::File(file) if task.now.racy => {
            let hasher = hasher(work, file)?;
            Ok(hash(directories, &task.path, hasher)? != Some(file.object))
        }
        _ => Ok(false),
    }
}

/// What the name of a file's content is computed with.
pub(super) fn hasher(work: &Work, file: &File) -> Result<blake3::Hasher> {
    match file.secret {
        true => Ok(work.secrets.key()?.hasher()),
        false => Ok(blake3::Hasher::new()),
    }
}

/// The name of a file's content; `None` if there is no file.
pub(super) fn hash(
    directories: &mut Directories<'_>,
    path: &WorkspacePath,
    mut hasher: blake3::Hasher,
) -> Result<Option<ObjectId>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = directories
        .parent(path)
        .and_then(|(directory, name)| rustix::fs::openat(&*directory, name, flags, Mode::empty()));
    let mut file = match opened {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error).at("read", path.as_path()),
    };
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).at("read", path.as_path())? {
            0 => return Ok(Some(ObjectId(*hasher.finalize().as_bytes()))),
            size => hasher.update(&buffer[..size]),
        };
    }
}

/// The ends of moves that do not have something at one and nothing at the other.
fn blocked_moves(directories: &mut Directories<'_>, work: &Work) -> Result<Vec<WorkspacePath>> {
    let mut blocked = Vec::new();
    if work.moves.is_empty() {
        return Ok(blocked);
    }
    let leaves = |task: &&super::Task| !task.then.is_present() && !task.then.is_unknown();
    let vacated: HashSet<_> = work
        .moves
        .iter()
        .map(|(from, _)| from)
        .chain(work.tasks.iter().filter(leaves).map(|task| &task.path))
        .collect();
    for (from, to) in &work.moves {
        if directories.look_at(from)?.is_none() {
            blocked.push(from.clone());
        }
        let free = |path: &WorkspacePath| vacated.contains(path);
        if !(free(to) || to.ancestors().any(|path| free(&path)))
            && directories.look_at(to)?.is_some()
        {
            blocked.push(to.clone());
        }
    }
    Ok(blocked)
}
