//! Writes the new entries of a rewind into staging, on several threads, with one sync at the end.
//!
//! Nothing outside staging is changed here, so a full disk or a damaged store costs nothing but the
//! attempt.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::entry::{Entry, File, Meta, SpecialKind};
use crate::error::{Context, Error, Result};
use crate::id::LinkGroup;
use crate::path::WorkspacePath;
use crate::placeholder::Placeholder;
use crate::share;
use crate::store::ContentStorage;

use super::attributes::{Goal, Handle, is_fatal};
use super::directories::{Directories, see};
use super::onto::{Onto, clone_of};
use super::script::{Place, Script, Slot};
use super::stage::{Stages, THREADS};

/// Content up to this size is read as a whole.
const WHOLE: u64 = 4 << 20;
/// The size of a hole's grain, and the least that is written at once.
const BLOCK: usize = 4096;
/// The most files that are held open to be cloned.
const OPEN_AT_ONCE: usize = 64;
/// How many entries a thread takes at a time.
const SHARE: usize = 16;
/// Fewer entries than this are not worth a thread.
const WORTH_A_THREAD: usize = 32;

/// What could not be brought back, by path.
pub(super) type Problems = Vec<(WorkspacePath, String)>;

/// Stages these entries and writes down where; what could not be done exactly comes back.
pub(super) fn fill(
    stages: &Stages,
    directories: &mut Directories<'_>,
    places: Vec<&mut Place>,
    store: &dyn ContentStorage,
    touch: bool,
) -> Result<Problems> {
    let source = Source { stages, store, touch };
    let (mut groups, mut problems) = (HashSet::new(), Problems::new());
    let (mut leaders, followers): (Vec<_>, Vec<_>) =
        places.into_iter().partition(|place| leads(place, &mut groups));
    let leading: Vec<_> = leaders.iter().map(|place| &**place).collect();
    let present = present_files(directories, &leading);
    let staged = source.write_all(&leading, &present)?;
    let mut slots = HashMap::new();
    for (place, staged) in leaders.iter_mut().zip(staged) {
        (place.slot.lane, place.ino) = (staged.lane, staged.ino);
        problems.extend(staged.problems.into_iter().map(|why| (place.path.clone(), why)));
        slots.extend(link_of(&place.then).map(|group| (group, place.slot)));
    }
    for place in followers {
        let leader = link_of(&place.then).and_then(|group| slots.get(&group));
        problems.extend(source.link(directories, place, leader)?);
    }
    Ok(problems)
}

/// Makes everything staged durable: one sync a volume, or one a file where there is no such thing.
///
/// A sync that fails for another reason is not tried again: what it lost, the next one does not
/// know of.
pub(super) fn sync(stages: &Stages, script: &Script) -> Result<()> {
    for (index, stage) in stages.iter().enumerate() {
        match stage.sync() {
            Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {}
            other => {
                other.at("sync staging in", script.holders[index].as_path())?;
                continue;
            }
        }
        let here = script.places().filter(|place| place.slot.stage == index);
        for place in here.filter(|place| matches!(place.then, Entry::File(_))) {
            sync_one(stages, place).at("sync the staged", place.path.as_path())?;
        }
        stage.sync_names().at("sync staging in", script.holders[index].as_path())?;
    }
    Ok(())
}

/// Makes a few staged files durable, one by one; their names become so where they are placed.
pub(super) fn sync_few(stages: &Stages, script: &Script) -> Result<()> {
    for place in script.places().filter(|place| matches!(place.then, Entry::File(_))) {
        sync_one(stages, place).at("sync the staged", place.path.as_path())?;
    }
    Ok(())
}

fn sync_one(stages: &Stages, place: &Place) -> Result<(), Errno> {
    let (lane, name) = stages.slot(&place.slot);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(lane, name, flags, Mode::empty()) {
        // Recovery finds some of them in their place already; a placeholder is all name.
        Err(Errno::NOENT | Errno::LOOP) => Ok(()),
        opened => rustix::fs::fsync(opened?),
    }
}

/// What stands for a file whose content is elsewhere.
pub(super) fn placeholder_of(file: &File) -> Placeholder {
    Placeholder { object: file.object, size: file.size, mode: file.meta.mode }
}

/// The attributes of the link that does: it can have no others.
pub(super) fn link_meta(file: &File) -> Meta {
    Meta { xattrs: Vec::new(), ..file.meta.clone() }
}

/// The set of hard links that an entry belongs to.
pub(super) fn link_of(entry: &Entry) -> Option<LinkGroup> {
    match entry {
        Entry::File(file) => file.link,
        _ => None,
    }
}

/// Whether an entry is written itself: the first of its links, if it has any.
fn leads(place: &Place, groups: &mut HashSet<LinkGroup>) -> bool {
    if place.link_from.is_some() {
        return false;
    }
    link_of(&place.then).is_none_or(|group| groups.insert(group))
}

/// One entry in staging.
struct Staged {
    lane: usize,
    ino: u64,
    problems: Vec<String>,
}

/// Where entries come from and go to.
pub(super) struct Source<'a> {
    pub(super) stages: &'a Stages,
    pub(super) store: &'a dyn ContentStorage,
    pub(super) touch: bool,
}

impl Source<'_> {
    /// Writes entries, each share of them into one lane, and returns what became of each in order.
    fn write_all(&self, places: &[&Place], present: &Present) -> Result<Vec<Staged>> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let lanes = self.stages.lanes();
        let work = || -> Result<Vec<(usize, Staged)>> {
            let mut done = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let share = next.fetch_add(1, Ordering::Relaxed);
                let from = share * SHARE;
                if from >= places.len() {
                    break;
                }
                let here = &places[from..places.len().min(from + SHARE)];
                for (index, place) in (from..).zip(here) {
                    let staged = self.write(place, share % lanes, present.get(&index));
                    failed.fetch_or(staged.is_err(), Ordering::Relaxed);
                    done.push((index, staged?));
                }
            }
            Ok(done)
        };
        let threads = if places.len() < WORTH_A_THREAD { 1 } else { THREADS };
        let done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut done = work()?;
            for other in others {
                done.extend(other.join().expect("BUG: a staging thread panicked")?);
            }
            Ok::<_, Error>(done)
        });
        let mut done = done?;
        done.sort_unstable_by_key(|(index, _)| *index);
        Ok(done.into_iter().map(|(_, staged)| staged).collect())
    }

    /// Writes one entry, onto a clone of the file that stands there if there is one.
    fn write(&self, place: &Place, lane: usize, present: Option<&fs::File>) -> Result<Staged> {
        let slot = Slot { lane, ..place.slot };
        let (directory, name) = self.stages.slot(&slot);
        let path = place.path.as_path();
        let (ino, problems) = match &place.then {
            Entry::File(file) if self.store.is_elsewhere(&file.object)? => {
                rustix::fs::symlinkat(placeholder_of(file).target(), directory, &name)
                    .at("write", path)?;
                self.give_attributes(directory, &name, &link_meta(file)).at("write", path)?
            }
            Entry::File(file) => self.write_file((directory, &name), file, &place.path, present)?,
            Entry::Symlink(link) => {
                rustix::fs::symlinkat(&*link.target, directory, &name).at("write", path)?;
                self.give_attributes(directory, &name, &link.meta).at("write", path)?
            }
            Entry::Special(special) if special.kind == SpecialKind::Fifo => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(directory, &name, FileType::Fifo, mode, 0).at("write", path)?;
                self.give_attributes(directory, &name, &special.meta).at("write", path)?
            }
            Entry::Directory(_) | Entry::Repository(_) => {
                rustix::fs::mkdirat(directory, &name, Mode::RWXU).at("write", path)?;
                // Its attributes come last, when everything in it is in place.
                (inode(directory, &name).at("write", path)?, Vec::new())
            }
            other => panic!("BUG: a {} cannot be staged", other.kind()),
        };
        Ok(Staged { lane, ino, problems })
    }

    fn give_attributes(
        &self,
        directory: BorrowedFd<'_>,
        name: &str,
        meta: &Meta,
    ) -> Result<(u64, Vec<String>), Errno> {
        let seen = see(directory, name.as_bytes())?.ok_or(Errno::NOENT)?;
        let handle = Handle::open(directory, name.as_bytes(), &seen)?;
        let goal = Goal { meta, remove: &[], touch: false };
        Ok((seen.ino(), handle.bring_to(&goal, &seen)?))
    }

    fn write_file(
        &self,
        (directory, name): (BorrowedFd<'_>, &str),
        file: &File,
        path: &WorkspacePath,
        present: Option<&fs::File>,
    ) -> Result<(u64, Vec<String>)> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody else can enter the directory, so the file may have its rights from the start.
        let mode = Mode::from_raw_mode(file.meta.mode & 0o777);
        let made = rustix::fs::openat(directory, name, flags, mode).at("write", path.as_path())?;
        let mut out = fs::File::from(made);
        if !self.write_onto(&out, file, path, present)? {
            self.write_content(&mut out, file, path)?;
        }
        let handle = Handle::of(out.into());
        let goal = Goal { meta: &file.meta, remove: &[], touch: self.touch };
        let seen = handle.see().at("write", path.as_path())?;
        let problems = handle.bring_to(&goal, &seen).at("write", path.as_path())?;
        Ok((seen.ino(), problems))
    }

    /// Writes a file's content into a new file.
    pub(super) fn write_content(
        &self,
        out: &mut fs::File,
        file: &File,
        path: &WorkspacePath,
    ) -> Result<()> {
        let written = if file.size <= WHOLE {
            let bytes = self.store.get(&file.object)?;
            let written =
                if file.sparse { write_blocks(out, &bytes, 0) } else { out.write_all(&bytes) };
            written.at("write", path.as_path())?;
            bytes.len() as u64
        } else {
            self.write_stream(out, file, path)?
        };
        check_length(written, file)?;
        if file.sparse {
            out.set_len(file.size).at("write", path.as_path())?;
        }
        Ok(())
    }

    fn write_stream(&self, out: &mut fs::File, file: &File, path: &WorkspacePath) -> Result<u64> {
        let mut reader = self.store.reader(&file.object)?;
        let mut buffer = vec![0; 64 * BLOCK];
        let mut offset = 0;
        loop {
            let size = read_full(&mut reader, &mut buffer).map_err(|error| match error.kind() {
                ErrorKind::InvalidData => {
                    Error::Corrupt { object: file.object, why: error.to_string() }
                }
                _ => Error::Io {
                    action: "read the content of",
                    path: path.as_path().into(),
                    source: error,
                },
            })?;
            if size == 0 {
                return Ok(offset);
            }
            let bytes = &buffer[..size];
            let written =
                if file.sparse { write_blocks(out, bytes, offset) } else { out.write_all(bytes) };
            written.at("write", path.as_path())?;
            offset += size as u64;
        }
    }

    /// Writes what differs onto a clone of what stands there, if it can be had and is worth it.
    fn write_onto(
        &self,
        out: &fs::File,
        file: &File,
        path: &WorkspacePath,
        present: Option<&fs::File>,
    ) -> Result<bool> {
        let Some(present) = present else { return Ok(false) };
        let Some(pieces) = self.store.pieces(&file.object)? else { return Ok(false) };
        let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        check_length(length, file)?;
        if !clone_of(out, present).at("write", path.as_path())? {
            return Ok(false);
        }
        Onto { out, store: self.store, path }.become_object(&file.object, &pieces)?;
        Ok(true)
    }

    /// Makes an entry another name of an inode, or a copy where that is not possible.
    fn link(
        &self,
        directories: &mut Directories<'_>,
        place: &mut Place,
        leader: Option<&Slot>,
    ) -> Result<Option<(WorkspacePath, String)>> {
        let linked = match (&place.link_from, leader) {
            (Some(path), _) => directories
                .parent(path)
                .and_then(|(directory, name)| self.link_to(directory.as_fd(), name, place)),
            (None, Some(leader)) => {
                let (lane, name) = self.stages.slot(leader);
                self.link_to(lane, name.as_bytes(), place)
            }
            (None, None) => Err(Errno::NOENT),
        };
        match linked {
            Ok(ino) => {
                place.ino = ino;
                Ok(None)
            }
            // A disk that fails is no reason to make a copy.
            Err(error) if is_fatal(error) => Err(error).at("link", place.path.as_path()),
            Err(error) => {
                let staged = self.write(place, place.slot.lane, None)?;
                place.ino = staged.ino;
                let why = format!("hard link not restored: {}", std::io::Error::from(error));
                Ok(Some((place.path.clone(), why)))
            }
        }
    }

    fn link_to(&self, from: BorrowedFd<'_>, name: &[u8], place: &Place) -> Result<u64, Errno> {
        let (lane, staged) = self.stages.slot(&place.slot);
        rustix::fs::linkat(from, name, lane, &staged, AtFlags::empty())?;
        let ino = inode(lane, &staged)?;
        if place.link_from.is_some() && ino != place.ino {
            // Somebody put another file under that name since it was looked at.
            rustix::fs::unlinkat(lane, &staged, AtFlags::empty())?;
            return Err(Errno::STALE);
        }
        Ok(ino)
    }
}

/// Files that stand where others are to be, by the index of the place.
type Present = HashMap<usize, fs::File>;

/// Opens the large files that stand where large ones are to be: mostly they differ in little.
///
/// A file with holes is written anew, since a clone may have none there.
fn present_files(directories: &mut Directories<'_>, places: &[&Place]) -> Present {
    let mut present = Present::new();
    for (index, place) in places.iter().enumerate() {
        let Entry::File(file) = &place.then else { continue };
        if file.sparse || !share::is_worthwhile(file.size) || present.len() == OPEN_AT_ONCE {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = directories.parent(&place.path).and_then(|(directory, name)| {
            rustix::fs::openat(&*directory, name, flags, Mode::empty())
        });
        // Whatever stands in the way of that only means that all of it is written.
        let Ok(opened) = opened.map(fs::File::from) else { continue };
        if opened.metadata().is_ok_and(|found| found.is_file() && share::is_worthwhile(found.len()))
        {
            present.insert(index, opened);
        }
    }
    present
}

fn check_length(written: u64, file: &File) -> Result<()> {
    if written == file.size {
        return Ok(());
    }
    let why = format!("it has {written} bytes instead of {}", file.size);
    Err(Error::Corrupt { object: file.object, why })
}

fn inode(directory: BorrowedFd<'_>, name: &str) -> Result<u64, Errno> {
    see(directory, name.as_bytes())?.map(|seen| seen.ino()).ok_or(Errno::NOENT)
}

/// Reads until the buffer is full or nothing is left.
fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut size = 0;
    while size < buffer.len() {
        match reader.read(&mut buffer[size..]) {
            Ok(0) => break,
            Ok(count) => size += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(size)
}

/// Writes the blocks that hold something; the others become holes.
fn write_blocks(out: &fs::File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    let mut at = offset;
    for block in bytes.chunks(BLOCK) {
        if block.iter().any(|byte| *byte != 0) {
            out.write_all_at(block, at)?;
        }
        at += block.len() as u64;
    }
    Ok(())
}
