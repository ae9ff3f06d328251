//! Writes some paths at once, without a commit point of its own.
//!
//! Each path is replaced atomically and only where what is expected stands there, as in a rewind. There is no script to be
//! finished after a crash: whoever asked for it compares and asks again, since all that it replaces is in the
//! store. One sync makes everything durable that is staged, and one that it is in place.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::failpoint;
use crate::fs::Roots;
use crate::id::{ObjectId, PlanId};
use crate::known::Signature;
use crate::path::WorkspacePath;
use crate::store::ContentStorage;

use super::check;
use super::directories::{Directories, see};
use super::fill::{self, Source};
use super::outline;
use super::script::Script;
use super::stage::{self, LANES, Leftover, Stages, TRASH};
use super::steps;
use super::trees;
use super::{Applied, Work};

/// The plan of everything that is written so: its staging is found without a listing.
pub(crate) const DIRECT: PlanId = PlanId(*b"chronicle-direct");
/// Up to so many files are made durable one by one; beyond, their whole volume is.
const FEW: usize = 4;

/// In up to so many directories names are made durable one by one; beyond, their whole volume is.
const NAMES: usize = 64;

/// When what is written is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncing {
    /// Before `put` returns.
    Now,
    /// Whenever whoever asked does so; until then he can write it again.
    Later,
}

/// What came of writing some paths.
pub(crate) struct Written {
    /// What became of them beyond what was wanted.
    pub(crate) applied: Applied,
    /// What must be removed once they are recorded.
    pub(crate) staging: Unrecorded,
    /// What new entries of new directories look like: nobody need look again.
    pub(crate) made: HashMap<WorkspacePath, Signature>,
}

/// Staging that stays until what was written is recorded, so that whoever finds it can put everything back.
#[must_use = "it must be removed once what was written is recorded"]
pub(crate) struct Unrecorded {
    holders: Vec<WorkspacePath>,
    /// Names this one: the commit that records it says so.
    pub(crate) nonce: [u8; 16],
}

/// Writes everything that a work wants, durable on return unless that was left for later.
///
/// Stops with `Stop::PlanOutdated` if something else stands there; then nothing has changed. What somebody
/// changes meanwhile is put back and reported. `is_kept` says whether the store has some content.
pub fn put(
    roots: &Roots,
    mut work: Work,
    store: &dyn ContentStorage,
    is_kept: &dyn Fn(&ObjectId) -> Result<bool>,
    syncing: Syncing,
) -> Result<Written> {
    assert_eq!(work.id, DIRECT, "BUG: a plan has a commit point");
    let trees = trees::split(&mut work);
    let mut directories = Directories::new(roots);
    let seen = check::check(&mut directories, &work)?;
    let mut script = outline::draw(&mut directories, &work, &seen)?;
    clear(&mut directories, &script.holders, is_kept)?;
    // Whoever syncs later does so where the root lies.
    let elsewhere = script.holders.iter().any(|holder| !holder.is_root());
    let syncing = if elsewhere { Syncing::Now } else { syncing };
    let lanes = stage::lanes_for(script.places().count());
    let mut stages = Stages::make(&mut directories, &script.holders, &DIRECT, lanes)?;
    let places = script.places_mut().collect();
    let problems = fill::fill(&stages, &mut directories, places, store, work.touch)?;
    script.problems.extend(problems);
    let source = Source { stages: &stages, store, touch: work.touch };
    let mut staged = trees::stage(&trees, &stages, &script, &source)?;
    script.problems.append(&mut staged.problems);
    let nonce = crate::id::random_bytes();
    let inodes: Vec<_> =
        script.places().map(|place| place.ino).chain(staged.inodes.iter().copied()).collect();
    let paths = work.tasks.iter().map(|task| &task.path).chain(trees::paths(&trees));
    stages.note_direct(&inodes, paths, &nonce).at("write to", "staging")?;
    if syncing == Syncing::Now {
        sync_staged(&work, &trees, &stages, &script)?;
    }
    failpoint::hit("direct_after_stage");
    stages.keep();
    let mut applied = steps::run(roots, &script, &stages, None, syncing)?;
    failpoint::hit("direct_after_steps");
    // What was staged is durable: what is left are names, and times of directories.
    if syncing == Syncing::Now
        && stages.sync_as_a_whole().at("examine", "staging")?
        && !steps::sync_few_names(roots, &script, NAMES)?
    {
        fill::sync(&stages, &script)?;
    }
    failpoint::hit("direct_after_sync");
    let placed: HashMap<_, _> = script.places().map(|place| (&place.path, place.ino)).collect();
    let mut directories = Directories::new(roots);
    let mut is_placed = |top: &WorkspacePath| {
        let seen = directories.see(top).ok().flatten();
        seen.is_some_and(|seen| placed.get(top) == Some(&seen.ino()))
    };
    trees::report_unplaced(&trees, &mut is_placed, &mut staged, &mut applied);
    let staging = Unrecorded { holders: script.holders, nonce };
    Ok(Written { applied, staging, made: staged.made })
}

/// Makes durable what is staged: a few files one by one, more with their volume.
fn sync_staged(work: &Work, trees: &[trees::Tree], stages: &Stages, script: &Script) -> Result<()> {
    let few = trees.is_empty() && script.places().count() <= FEW && script.steps.len() <= 4 * FEW;
    if few {
        fill::sync_few(stages, script)?;
        // What is one exchange is done or not; everything else could be found half done after a power cut.
        if work.tasks.len() > 1 {
            stages.sync_note().at("sync", "staging")?;
        }
        return Ok(());
    }
    if !stages.sync_as_a_whole().at("examine", "staging")? {
        trees::sync_each(trees, stages, script)?;
        stages.sync_note().at("sync", "staging")?;
    }
    fill::sync(stages, script)
}

/// Whether everything below the root can be made durable by one call.
pub(crate) fn syncs_as_a_whole(roots: &Roots) -> Result<bool> {
    Ok(!stage::is_fuse(&top_of(roots)?).at("examine", roots.workspace().path())?)
}

fn top_of(roots: &Roots) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(roots.workspace().handle()?, c".", flags, Mode::empty())
        .at("open", roots.workspace().path())
}

/// Makes everything durable that lies at some paths, and their names: the volume of the root, where that can be had.
pub(crate) fn sync_paths(roots: &Roots, paths: &[WorkspacePath]) -> Result<()> {
    match stage::sync_volume(&top_of(roots)?) {
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            steps::sync_names_and_all(roots, paths.iter())
        }
        other => other.at("sync", roots.workspace().path()),
    }
}

/// Takes the staging away; all that it holds is in the store or in place.
pub(crate) fn remove(roots: &Roots, written: &Unrecorded) -> Result<()> {
    let mut directories = Directories::new(roots);
    for holder in written.holders.iter().rev() {
        let opened = directories.open(holder).at("open", holder.as_path())?;
        Leftover::open(opened.as_fd(), &DIRECT)
            .and_then(|leftover| leftover.remove())
            .at("remove staging from", holder.as_path())?;
    }
    Ok(())
}

/// What somebody was writing when he died.
pub(crate) struct Interrupted {
    /// The paths that he was writing.
    pub(crate) paths: Vec<WorkspacePath>,
    /// The inodes that he put in place, or was about to.
    pub(crate) placed: HashSet<u64>,
    /// What the commit says that records it.
    pub(crate) nonce: Vec<u8>,
}

/// Whether somebody died while he was writing; costs one look-up where nobody did.
pub(crate) fn interrupted(roots: &Roots) -> Result<Option<Interrupted>> {
    let Ok(top) = roots.workspace().handle() else { return Ok(None) };
    let leftover = match Leftover::open(top, &DIRECT) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.at("open staging in", roots.workspace().path())?,
    };
    let (nonce, placed, paths) = leftover.direct_note();
    // The note is durable before anything is put in place; what tells that it was may not be.
    if paths.is_empty() && !leftover.is_committed().at("examine", "staging")? {
        // What cannot be removed now is in nobody's way, and the next one tries again.
        let _ = leftover.remove();
        return Ok(None);
    }
    Ok(Some(Interrupted { paths, placed, nonce }))
}

/// Takes away what an earlier one left that was interrupted.
fn clear(
    directories: &mut Directories<'_>,
    holders: &[WorkspacePath],
    is_kept: &dyn Fn(&ObjectId) -> Result<bool>,
) -> Result<()> {
    for holder in holders {
        let opened = directories.open(holder).at("open", holder.as_path())?;
        match Leftover::open(opened.as_fd(), &DIRECT) {
            Err(Errno::NOENT) => {}
            other => clear_one(&other.at("open staging in", holder.as_path())?, is_kept)?,
        }
    }
    Ok(())
}

/// The same at the top of the workspace alone: it costs one look-up where there is none.
pub(crate) fn clear_top(roots: &Roots, is_kept: &dyn Fn(&ObjectId) -> Result<bool>) -> Result<()> {
    clear(&mut Directories::new(roots), &[WorkspacePath::root()], is_kept)
}

/// Takes out of what a power cut left of staging the files that were never whole: `is_ours` knows them.
pub(crate) fn clear_torn(
    roots: &Roots,
    is_ours: &dyn Fn(std::fs::File) -> Result<bool>,
) -> Result<()> {
    let leftover = match Leftover::open(roots.workspace().handle()?, &DIRECT) {
        Err(Errno::NOENT) => return Ok(()),
        other => other.at("open staging in", roots.workspace().path())?,
    };
    for lane in (0..LANES).map(|lane| lane.to_string()) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = OFlags::DIRECTORY | flags;
        let lane = match rustix::fs::openat(leftover.top(), &lane, directory, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other.at("open", "staging")?,
        };
        let items: Vec<_> = Dir::read_from(&lane).at("list", "staging")?.collect();
        for item in items {
            let name = item.at("list", "staging")?.file_name().to_owned();
            let seen = see(&lane, name.to_bytes()).at("examine", "staging")?;
            if seen.is_some_and(|seen| seen.kind().is_file()) {
                let file = rustix::fs::openat(&lane, &name, flags, Mode::empty());
                if is_ours(std::fs::File::from(file.at("open", "staging")?))? {
                    let removed = rustix::fs::unlinkat(&lane, &name, AtFlags::empty());
                    removed.at("remove", "staging")?;
                }
            }
        }
    }
    Ok(())
}

/// The same in the roots, wherever it is; for who recovers without writing anything.
pub fn clear_direct(roots: &Roots, is_kept: &dyn Fn(&ObjectId) -> Result<bool>) -> Result<()> {
    for (_, leftover) in super::recover::leftovers(roots, |plan| *plan == DIRECT)? {
        clear_one(&leftover, is_kept)?;
    }
    Ok(())
}

/// Removes staging whose files were staged by it or are in the store. If there is another, somebody put it there while
/// it was exchanged: all of it stays, under another name.
fn clear_one(leftover: &Leftover, is_kept: &dyn Fn(&ObjectId) -> Result<bool>) -> Result<()> {
    let noted = !leftover.direct_note().1.is_empty();
    let began = noted || leftover.is_committed().at("examine", "staging")?;
    if !began || holds_only_known(leftover, is_kept)? {
        return leftover.remove().at("remove", "staging");
    }
    let aside = PlanId(crate::id::random_bytes());
    leftover.rename(&aside).at("rename", "staging")
}

fn holds_only_known(
    leftover: &Leftover,
    is_kept: &dyn Fn(&ObjectId) -> Result<bool>,
) -> Result<bool> {
    let (_, placed, _) = leftover.direct_note();
    let lanes = (0..LANES).map(|lane| lane.to_string()).chain([TRASH.to_owned()]);
    for lane in lanes {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(leftover.top(), &lane, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            other => other.at("open", "staging")?,
        };
        for item in Dir::read_from(&directory).at("list", "staging")? {
            let item = item.at("list", "staging")?;
            let name = item.file_name().to_bytes();
            let Some(seen) = see(&directory, name).at("examine", "staging")? else { continue };
            let staged = placed.contains(&seen.ino());
            if seen.kind().is_file() && !staged && !is_file_kept(&directory, name, is_kept)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn is_file_kept(
    directory: impl AsFd,
    name: &[u8],
    is_kept: &dyn Fn(&ObjectId) -> Result<bool>,
) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).at("open", "staging")?;
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut std::fs::File::from(file), &mut hasher).at("read", "staging")?;
    is_kept(&ObjectId(*hasher.finalize().as_bytes()))
}
