//! Writes some paths at once, without a commit point of its own.
//!
//! Each path is replaced atomically and only where what is expected stands there, as in a rewind. There is no script to be
//! finished after a crash: whoever asked for it compares and asks again, since all that it replaces is in the
//! store. One sync makes everything durable that is staged, and one that it is in place.

use std::os::fd::AsFd;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::failpoint;
use crate::fs::Roots;
use crate::id::{ObjectId, PlanId};
use crate::path::WorkspacePath;
use crate::store::ContentStorage;

use super::check;
use super::directories::{Directories, see};
use super::fill;
use super::outline;
use super::script::Script;
use super::stage::{self, LANES, Leftover, Stages, TRASH};
use super::steps;
use super::{Applied, Work};

/// The plan of everything that is written so: its staging is found without a listing.
pub(crate) const DIRECT: PlanId = PlanId(*b"chronicle-direct");
/// Up to so many files are made durable one by one; beyond, their whole volume is.
const FEW: usize = 4;

/// Writes everything that a work wants, durable on return.
///
/// Stops with `Stop::PlanOutdated` if something else stands there; then nothing has changed. What somebody
/// changes meanwhile is put back and reported. `is_kept` says whether the store has some content.
pub fn put(
    roots: &Roots,
    work: &Work,
    store: &dyn ContentStorage,
    is_kept: &dyn Fn(&ObjectId) -> Result<bool>,
) -> Result<Applied> {
    assert_eq!(work.id, DIRECT, "BUG: a plan has a commit point");
    let mut directories = Directories::new(roots);
    let seen = check::check(&mut directories, work)?;
    let mut script = outline::draw(&mut directories, work, &seen)?;
    clear(&mut directories, &script.holders, is_kept)?;
    let lanes = stage::lanes_for(script.places().count());
    let mut stages = Stages::make(&mut directories, &script.holders, &DIRECT, lanes)?;
    let places = script.places_mut().collect();
    let problems = fill::fill(&stages, &mut directories, places, store, work.touch)?;
    script.problems.extend(problems);
    let few = script.places().count() <= FEW && script.steps.len() <= 4 * FEW;
    if few {
        fill::sync_few(&stages, &script)?;
    } else {
        fill::sync(&stages, &script)?;
    }
    stages.note_placed(&script).at("write to", "staging")?;
    failpoint::hit("direct_after_stage");
    stages.keep();
    let applied = steps::run(roots, &script, &stages, None)?;
    failpoint::hit("direct_after_steps");
    if few || !stages.sync_as_a_whole().at("examine", "staging")? {
        steps::sync_names(roots, &script)?;
    } else {
        fill::sync(&stages, &script)?;
    }
    failpoint::hit("direct_after_sync");
    remove(&mut directories, &script)?;
    Ok(applied)
}

/// Takes the staging away; all that it holds is in the store or in place.
fn remove(directories: &mut Directories<'_>, script: &Script) -> Result<()> {
    for holder in script.holders.iter().rev() {
        let opened = directories.open(holder).at("open", holder.as_path())?;
        Leftover::open(opened.as_fd(), &DIRECT)
            .and_then(|leftover| leftover.remove())
            .at("remove staging from", holder.as_path())?;
    }
    Ok(())
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
    let began = leftover.is_committed().at("examine", "staging")?;
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
    let placed = leftover.placed();
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
