//! Finishes an interrupted rewind, or takes away what it left behind.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::entry::Entry;
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::fs::Roots;
use crate::id::PlanId;
use crate::path::WorkspacePath;
use crate::store::ContentStorage;

use super::Applied;
use super::direct::Syncing;
use super::directories::{Directories, Seen, see};
use super::fill::{self, link_of};
use super::script::{Place, Script};
use super::stage::{Leftover, Stages, plan_of};
use super::steps;

/// Rolls a rewind forward from the bytes that were its commit point; doing so again is harmless.
///
/// What somebody took out of staging meanwhile is staged again from the store.
pub fn recover(roots: &Roots, bytes: &[u8], store: &dyn ContentStorage) -> Result<Applied> {
    let mut script = Script::decode(bytes).map_err(|error| Error::Io {
        action: "read the plan of the interrupted rewind of",
        path: roots.iter().next().map(|root| root.path().to_owned()).unwrap_or_default(),
        source: std::io::Error::new(ErrorKind::InvalidData, error),
    })?;
    let mut directories = Directories::new(roots);
    let lanes = script.places().map(|place| place.slot.lane + 1).max().unwrap_or(1);
    let stages = Stages::reopen(&mut directories, &script.holders, &script.id, lanes)?;
    restage(&stages, &mut directories, &mut script, store)?;
    let applied = steps::run(roots, &script, &stages, None, Syncing::Now)?;
    failpoint::hit("rewind_after_apply");
    Ok(applied)
}

/// Stages again what is neither in place nor in staging.
fn restage(
    stages: &Stages,
    directories: &mut Directories<'_>,
    script: &mut Script,
    store: &dyn ContentStorage,
) -> Result<()> {
    let mut number = script.places().map(|place| place.slot.number).max().unwrap_or(0);
    let (touch, mut done, mut lost) = (script.touch, HashMap::new(), Vec::new());
    for place in script.places_mut() {
        let seen = directories.look_at(&place.path)?;
        if seen.is_some_and(|seen| seen.ino() == place.ino) {
            link_of(&place.then).map(|group| done.insert(group, (place.path.clone(), place.ino)));
        } else if !is_staged(stages, place, touch).at("look at", place.path.as_path())? {
            lost.push(place);
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    for place in &mut lost {
        number = free_number(stages, place, number + 1).at("stage", place.path.as_path())?;
        (place.slot.number, place.slot.lane) = (number, 0);
        if let Some((path, ino)) = link_of(&place.then).and_then(|group| done.get(&group)) {
            (place.link_from, place.ino) = (Some(path.clone()), *ino);
        }
    }
    let problems = fill::fill(stages, directories, lost, store, touch)?;
    script.problems.extend(problems);
    fill::sync(stages, script)
}

/// Whether a slot still holds what was staged in it, or already what it was exchanged for.
fn is_staged(stages: &Stages, place: &Place, touch: bool) -> Result<bool, Errno> {
    let (lane, name) = stages.slot(&place.slot);
    let Some(seen) = see(lane, name.as_bytes())? else { return Ok(false) };
    let exchanged = place.expected.is_some_and(|expected| expected.ino == seen.ino());
    Ok(exchanged || seen.ino() == place.ino && is_untouched(&place.then, &seen, touch))
}

fn is_untouched(then: &Entry, seen: &Seen, touch: bool) -> bool {
    match then {
        Entry::File(file) => {
            file.size == seen.signature.size
                && (touch || file.meta.mtime_ns == seen.signature.mtime_ns)
        }
        _ => true,
    }
}

/// A number that no thread used yet; an earlier recovery may have used some.
fn free_number(stages: &Stages, place: &Place, from: u64) -> Result<u64, Errno> {
    let mut slot = place.slot;
    (slot.number, slot.lane) = (from, 0);
    loop {
        let (lane, name) = stages.slot(&slot);
        if see(lane, name.as_bytes())?.is_none() {
            return Ok(slot.number);
        }
        slot.number += 1;
    }
}

/// Makes an applied rewind durable and takes its staging away; all that it holds is in the store.
pub fn clean_up(roots: &Roots, id: &PlanId) -> Result<()> {
    for (holder, leftover) in leftovers(roots, |plan| plan == id)? {
        // What goes is in the store: it need not wait for what took its place.
        let (synced, removed) = std::thread::scope(|scope| {
            let syncing = scope.spawn(|| leftover.sync());
            let removed = leftover.remove();
            (syncing.join().expect("BUG: the sync panicked"), removed)
        });
        synced.at("sync", holder.as_path())?;
        removed
            .and_then(|()| leftover.sync_removal())
            .at("remove staging from", holder.as_path())?;
    }
    Ok(())
}

/// Takes away what rewinds left that never reached their commit point, and returns the directories
/// in which staging had to stay.
///
/// The staging of a rewind that is still to be recovered (`except`) is left alone; that of a
/// recorded one (`is_recorded`) is cleaned up. Whatever else passed its commit point may hold the
/// only copy of something: it stays and is reported.
pub fn discard_leftovers(
    roots: &Roots,
    except: Option<&PlanId>,
    is_recorded: &dyn Fn(&PlanId) -> bool,
) -> Result<Vec<WorkspacePath>> {
    let mut stayed = Vec::new();
    for (holder, leftover) in
        leftovers(roots, |plan| Some(plan) != except && *plan != super::DIRECT)?
    {
        let removed = match is_recorded(leftover.plan()) {
            true => leftover.remove(),
            false => leftover.discard(),
        };
        match removed.and_then(|()| leftover.sync_removal()) {
            Ok(()) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => stayed.push(holder),
            Err(error) => return Err(error).at("remove staging from", holder.as_path()),
        }
    }
    Ok(stayed)
}

/// The staging directories of plans, on every volume: those below a root's top come first, since
/// it is there that they are named.
pub(super) fn leftovers(
    roots: &Roots,
    wanted: impl Fn(&PlanId) -> bool,
) -> Result<Vec<(WorkspacePath, Leftover)>> {
    let (mut directories, mut found) = (Directories::new(roots), Vec::new());
    for root in roots.iter() {
        let Some(top) = root.beginning() else { continue };
        // Whose directory is gone has nothing left in it.
        if root.is_named_only() && root.handle().is_err() {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listing = rustix::fs::openat(root.handle()?, c".", flags, Mode::empty())
            .and_then(Dir::read_from)
            .at("list", root.path())?;
        let names = listing
            .filter_map(|item| item.ok().and_then(|item| plan_of(item.file_name().to_bytes())));
        for plan in names.filter(&wanted).collect::<Vec<_>>() {
            let Some(leftover) = open(&mut directories, &top, &plan)? else { continue };
            for holder in leftover.elsewhere() {
                if let Some(other) = open(&mut directories, &holder, &plan)? {
                    found.push((holder, other));
                }
            }
            found.push((top.clone(), leftover));
        }
    }
    Ok(found)
}

/// Opens a staging directory; `None` if it is not there, or not a directory.
fn open(
    directories: &mut Directories<'_>,
    holder: &WorkspacePath,
    plan: &PlanId,
) -> Result<Option<Leftover>> {
    let opened =
        directories.open(holder).and_then(|directory| Leftover::open(directory.as_fd(), plan));
    match opened {
        Ok(leftover) => Ok(Some(leftover)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(error) => Err(error).at("open staging in", holder.as_path()),
    }
}
