//! What answers the kernel: every request becomes a system call on the backing directory.
//!
//! `kernel` takes requests and sends replies; the other modules hold what is done for them.

mod content;
mod kernel;
mod listing;
mod magic;
mod metadata;
mod names;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chronicle_core::Placeholder;
use fuser::{Errno, FileAttr, FileType};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};

use crate::attributes;
use crate::directories::Directories;
use crate::errno::{Answer, OrErrno, guarded};
use crate::handles::Handles;
use crate::locks::{Held, Locks};
use crate::magic::Magic;
use crate::nodes::{FileId, Nodes, Place, ROOT};
use crate::outbox::Outbox;
use crate::outside::Watch;
use crate::versions::{Caller, Fill, Operation, Versions};

pub(crate) use kernel::Kernel;
use magic::MagicNodes;

/// How long the kernel may believe what it was told, if it hears of every change.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// The same if it does not.
const SHORT: Duration = Duration::from_secs(1);

/// Deeper than any path; a search for a parent that goes further goes in a circle.
const DEEPEST: usize = 4096;

/// All that the mount knows.
pub(crate) struct Core {
    pub(crate) root: Arc<OwnedFd>,
    pub(crate) nodes: Mutex<Nodes>,
    pub(crate) directories: Directories,
    pub(crate) handles: Handles,
    pub(crate) locks: Locks,
    pub(crate) versions: Arc<dyn Versions>,
    pub(crate) fill: Option<Arc<dyn Fill>>,
    pub(crate) magic: Arc<dyn Magic>,
    pub(crate) magic_name: Vec<u8>,
    pub(crate) magic_nodes: MagicNodes,
    pub(crate) outbox: Outbox,
    /// None if changes from outside are not told.
    pub(crate) watch: Option<Watch>,
    /// Changes somewhere are not told any more, so nothing may be believed for long.
    pub(crate) watch_is_incomplete: AtomicBool,
    pub(crate) passthrough: AtomicBool,
}

/// A file as the kernel hears of it.
pub(crate) struct Entry {
    pub(crate) attributes: FileAttr,
    pub(crate) generation: u64,
    pub(crate) entry_time: Duration,
    pub(crate) attribute_time: Duration,
}

impl Core {
    pub(crate) fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a name may be believed.
    pub(crate) fn entry_time(&self) -> Duration {
        if self.watch.is_none() || self.watch_is_incomplete.load(Ordering::Relaxed) {
            SHORT
        } else {
            LONG
        }
    }

    /// How long it may be believed that nothing stands under a name.
    ///
    /// What is not there has no number, so when not everything was told it cannot be taken back.
    pub(crate) fn absence_time(&self) -> Duration {
        let is_sure = self.watch.as_ref().is_some_and(Watch::is_unlimited);
        if is_sure { self.entry_time() } else { SHORT }
    }

    /// How long attributes may be believed.
    ///
    /// A change through a hard link in a directory that nobody watches is not told. A write takes set-user-id and
    /// set-group-id away, and the kernel does not expect that of a write: it asks each time whether they are there.
    fn attribute_time(&self, node: u64, stat: &Stat) -> Duration {
        let is_directory = attributes::kind(stat) == FileType::Directory;
        if stat.st_mode & 0o6000 != 0 && !is_directory {
            return Duration::ZERO;
        }
        if self.handles.is_written_past_us(node) {
            return SHORT;
        }
        let has_other_names = stat.st_nlink > 1 && !is_directory;
        if has_other_names { SHORT } else { self.entry_time() }
    }

    /// The descriptor of a directory, opened on the way down from one that is open.
    pub(crate) fn directory(&self, node: u64) -> Answer<Arc<OwnedFd>> {
        let mut missing: Vec<(FileId, Place)> = Vec::new();
        let mut at = node;
        let mut open = loop {
            if at == ROOT {
                break Arc::clone(&self.root);
            }
            let nodes = self.nodes();
            let file = nodes.file(at).ok_or(Errno::ESTALE)?;
            if let Some(open) = self.directories.get(file) {
                break open;
            }
            let place = nodes.place(at).filter(|_| missing.len() < DEEPEST).ok_or(Errno::ESTALE)?;
            at = place.parent;
            missing.push((file, place));
        };
        for (file, place) in missing.into_iter().rev() {
            let inner = open_directory(&open, &place.name)?;
            if FileId::from(&rustix::fs::fstat(&inner).or_errno()?) != file {
                return Err(Errno::ESTALE);
            }
            open = self.directories.put(file, inner);
        }
        Ok(open)
    }

    /// What the file of a node is now.
    pub(crate) fn stat(&self, node: u64) -> Answer<Stat> {
        if let Some(handle) = self.handles.of(node, false) {
            return rustix::fs::fstat(&handle.file).or_errno();
        }
        if self.nodes().kind(node) == Some(FileType::Directory) {
            return rustix::fs::fstat(&*self.directory(node)?).or_errno();
        }
        self.at_a_place(node, |directory, name| {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map(|stat| (self.shown(directory, name, stat), FileId::from(&stat)))
        })
    }

    /// The file whose content is not here and that something stands for.
    pub(crate) fn placeholder(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        stat: &Stat,
    ) -> Option<Placeholder> {
        if self.fill.is_none() || attributes::kind(stat) != FileType::Symlink {
            return None;
        }
        let target = rustix::fs::readlinkat(directory, name, Vec::new()).ok()?;
        Placeholder::parse(target.as_bytes())
    }

    /// What is told of something: of a placeholder, what its file will be.
    fn shown(&self, directory: &OwnedFd, name: &[u8], stat: Stat) -> Stat {
        let Some(Placeholder { size, mode, .. }) = self.placeholder(directory, name, &stat) else {
            return stat;
        };
        let mut shown = stat;
        shown.st_mode = rustix::fs::FileType::RegularFile.as_raw_mode() | mode;
        shown.st_size = i64::try_from(size).unwrap_or(i64::MAX);
        // Who sees fewer blocks than bytes may take the rest for zeros without reading.
        shown.st_blocks = i64::try_from(size.div_ceil(512)).unwrap_or(i64::MAX);
        shown.st_nlink = 1;
        shown
    }

    /// Does something under a name of a node, whichever still leads to its file.
    pub(crate) fn at_a_place<T>(
        &self,
        node: u64,
        work: impl Fn(&OwnedFd, &[u8]) -> Result<(T, FileId), rustix::io::Errno>,
    ) -> Answer<T> {
        let (file, place) = {
            let nodes = self.nodes();
            (nodes.file(node).ok_or(Errno::ESTALE)?, nodes.place(node).ok_or(Errno::ESTALE)?)
        };
        let attempt = |place: &Place| -> Answer<T> {
            let directory = self.directory(place.parent)?;
            match work(&directory, &place.name) {
                Ok((done, found)) if found == file => Ok(done),
                Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP) => {
                    Err(Errno::ESTALE)
                }
                other => other.map(|(done, _)| done).or_errno(),
            }
        };
        let mut done = attempt(&place);
        if matches!(&done, Err(error) if error.code() == libc::ESTALE) {
            let others = self.nodes().places(node);
            for other in others.iter().filter(|other| **other != place) {
                done = attempt(other);
                if done.is_ok() {
                    break;
                }
            }
        }
        done
    }

    /// Opens the file of a node, never another that has taken its name.
    pub(crate) fn open_file(&self, node: u64, flags: OFlags) -> Answer<OwnedFd> {
        // Non-blocking, lest a pipe that has taken the name holds us up before we see what it is.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if self.nodes().place(node).is_none()
            && let Some(handle) = self.handles.of(node, false)
        {
            let again =
                rustix::fs::open(link_of(&handle.file), flags - OFlags::NOFOLLOW, Mode::empty());
            return again.or_errno();
        }
        self.at_a_place(node, |directory, name| {
            let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            let found = FileId::from(&rustix::fs::fstat(&file)?);
            Ok((file, found))
        })
    }

    /// Something that stands for the file of a node, whatever kind it is, and only for that.
    pub(crate) fn reference(&self, node: u64) -> Answer<Arc<OwnedFd>> {
        if self.nodes().kind(node) == Some(FileType::Directory) {
            return self.directory(node);
        }
        self.open_file(node, OFlags::PATH).map(Arc::new)
    }

    /// Locks the parents of every name of a node, and says which names it really has.
    pub(crate) fn lock_names(&self, node: u64) -> Answer<(Held<'_>, Vec<Vec<u8>>)> {
        let (held, places) = self.lock_places(node);
        if node == ROOT {
            return Ok((held, vec![Vec::new()]));
        }
        Ok((held, self.true_paths(node, &places)?))
    }

    /// The same with the names that were last seen, for what takes no content away.
    pub(crate) fn lock_seen_names(&self, node: u64) -> (Held<'_>, Vec<Vec<u8>>) {
        let (held, _) = self.lock_places(node);
        (held, self.paths(node))
    }

    fn lock_places(&self, node: u64) -> (Held<'_>, Vec<Place>) {
        let mut places = self.nodes().places(node);
        loop {
            let held = self.locks.lock(places.iter().map(|place| place.parent).chain([node]));
            let now = self.nodes().places(node);
            if now == places {
                return (held, places);
            }
            places = now;
        }
    }

    /// The paths among these that lead to the file of the node; the other names are dropped.
    fn true_paths(&self, node: u64, places: &[Place]) -> Answer<Vec<Vec<u8>>> {
        let file = self.nodes().file(node).ok_or(Errno::ESTALE)?;
        let mut paths = Vec::with_capacity(places.len());
        for place in places {
            let found = self.directory(place.parent).and_then(|directory| {
                rustix::fs::statat(&*directory, &place.name[..], AtFlags::SYMLINK_NOFOLLOW)
                    .or_errno()
            });
            match found {
                Ok(stat) if FileId::from(&stat) == file => {
                    paths.extend(self.nodes().path(place.parent, &place.name));
                }
                Ok(_) => self.nodes().removed(place.parent, &place.name),
                Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.code()) => {
                    self.nodes().removed(place.parent, &place.name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(paths)
    }

    /// The path of a name that may not be there.
    pub(crate) fn path(&self, parent: u64, name: &[u8]) -> Answer<Vec<u8>> {
        self.nodes().path(parent, name).ok_or(Errno::ESTALE)
    }

    /// Asks, does it, and tells what came of it. The locks are the caller's.
    pub(crate) fn change<T>(
        &self,
        caller: &Caller,
        operation: &Operation<'_>,
        work: impl FnOnce() -> Answer<T>,
    ) -> Answer<T> {
        guarded(|| self.versions.before(caller, operation))?;
        // Even a panic is an outcome.
        let done = guarded(work);
        let outcome = done.as_ref().map(drop).map_err(|error| *error);
        let told = guarded(|| {
            self.versions.after(caller, operation, outcome);
            Ok(())
        });
        done.and_then(|done| told.map(|()| done))
    }

    /// Finds out what stands under a name and gives it a number, which the kernel will hear.
    pub(crate) fn enter(&self, parent: u64, name: &[u8]) -> Answer<Entry> {
        let directory = self.directory(parent)?;
        let stat = rustix::fs::statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW).or_errno()?;
        self.enter_stat(parent, &directory, name, stat)
    }

    /// The same of something that was looked at already.
    pub(crate) fn enter_stat(
        &self,
        parent: u64,
        directory: &OwnedFd,
        name: &[u8],
        stat: Stat,
    ) -> Answer<Entry> {
        let plain = attributes::kind(&stat);
        let stat = self.shown(directory, name, stat);
        let kind = attributes::kind(&stat);
        let file = FileId::from(&stat);
        let found = self.nodes().found_as(parent, name, file, kind, 1, kind != plain);
        let mut stat = stat;
        if found.is_new && kind == FileType::Directory {
            // Watched before anything in it is believed. Where that fails it is not believed for long.
            let fresh = self.watch_directory(directory, name, file, found.node);
            stat = fresh.unwrap_or(stat);
        } else if kind == FileType::RegularFile {
            self.handles.told(found.node, &stat);
        }
        Ok(Entry {
            attributes: attributes::of_stat(found.node, &stat),
            generation: found.generation,
            entry_time: self.entry_time(),
            attribute_time: self.attribute_time(found.node, &stat),
        })
    }

    fn watch_directory(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        file: FileId,
        node: u64,
    ) -> Option<Stat> {
        let watch = self.watch.as_ref()?;
        let inner = open_directory(parent, name).ok()?;
        let stat = rustix::fs::fstat(&inner).ok().filter(|stat| FileId::from(stat) == file)?;
        if watch.add(inner.as_fd(), node, file.device).is_err() {
            self.watch_is_incomplete.store(true, Ordering::Relaxed);
        }
        // Once more, since something may have happened before it was watched.
        let fresh = rustix::fs::fstat(&inner).unwrap_or(stat);
        self.directories.put(file, inner);
        Some(fresh)
    }

    /// What the kernel hears of a node that it knows.
    pub(crate) fn attributes(&self, node: u64) -> Answer<(FileAttr, Duration)> {
        let stat = self.stat(node)?;
        self.handles.told(node, &stat);
        // FUSE fixes the root's number only where it names a node.
        let shown = if node == ROOT { stat.st_ino } else { node };
        Ok((attributes::of_stat(shown, &stat), self.attribute_time(node, &stat)))
    }
}

/// Opens a directory below another, without following anything.
pub(crate) fn open_directory(parent: impl AsFd, name: &[u8]) -> Answer<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match rustix::fs::openat2(&parent, name, flags, Mode::empty(), within) {
        // For one component this says the same.
        Err(rustix::io::Errno::NOSYS) => rustix::fs::openat(&parent, name, flags, Mode::empty()),
        // Somebody renames around us; once is enough to say that it is not there.
        Err(rustix::io::Errno::AGAIN) => {
            rustix::fs::openat2(&parent, name, flags, Mode::empty(), within)
        }
        other => other,
    };
    match opened {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            Err(Errno::ESTALE)
        }
        other => other.or_errno(),
    }
}

/// A path to an open file itself, for system calls that take no descriptor of this kind.
pub(crate) fn link_of(file: impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}
