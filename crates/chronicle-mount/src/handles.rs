//! What is open: handles, and for each open file how its data goes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{BackingId, FileHandle};

use crate::errno::Answer;
use crate::magic::MagicFile;

/// One open of one file.
pub(crate) struct Handle {
    pub(crate) node: u64,
    pub(crate) file: OwnedFd,
    pub(crate) writes: bool,
}

/// How the data of an open file goes. All handles of a file go the same way; the kernel insists on it.
#[derive(Clone)]
pub(crate) enum Way {
    /// The kernel reads and writes the backing file itself.
    Passthrough(Arc<BackingId>),
    /// Every read and write is a request, and the kernel caches.
    Requests,
}

struct OpenFile {
    handles: Vec<Arc<Handle>>,
    writers: usize,
    way: Way,
    /// The times and the size that the kernel was told last.
    told: Option<Told>,
    /// How often a write was heard of since it is open for writing.
    heard: u32,
    /// Writes by others are not heard at the moment.
    is_ignored: bool,
}

/// What of a file's attributes changes when it is written.
pub(crate) type Told = (i64, i64, i64, i64, i64);

/// The part of the attributes that tells whether the kernel's are old.
pub(crate) fn told(stat: &rustix::fs::Stat) -> Told {
    let (mtime, ctime) = (stat.st_mtime, stat.st_ctime);
    (stat.st_size, mtime, stat.st_mtime_nsec as i64, ctime, stat.st_ctime_nsec as i64)
}

#[derive(Default)]
struct State {
    handles: HashMap<u64, Arc<Handle>>,
    files: HashMap<u64, OpenFile>,
    magic: HashMap<u64, Arc<dyn MagicFile>>,
    /// How files were when they were last closed after writing.
    closed: HashMap<u64, Told>,
    last: u64,
}

/// What a release came to.
pub(crate) struct Released {
    pub(crate) handle: Arc<Handle>,
    /// It was the last one open for writing.
    pub(crate) last_writer: bool,
    pub(crate) passthrough: bool,
    pub(crate) told: Option<Told>,
    /// Writes by others are not heard until somebody says so.
    pub(crate) was_ignored: bool,
}

/// All that is open.
#[derive(Default)]
pub(crate) struct Handles {
    state: Mutex<State>,
}

impl Handles {
    /// Adds a handle. How its data goes is decided by `choose` if it is the first of its file.
    pub(crate) fn open(
        &self,
        handle: Handle,
        choose: impl FnOnce(&OwnedFd) -> Way,
    ) -> (FileHandle, Way) {
        let mut state = self.state();
        let number = state.number();
        let handle = Arc::new(handle);
        state.handles.insert(number, Arc::clone(&handle));
        let file = state.files.entry(handle.node).or_insert_with(|| OpenFile {
            handles: Vec::new(),
            writers: 0,
            way: choose(&handle.file),
            told: None,
            heard: 0,
            is_ignored: false,
        });
        file.writers += usize::from(handle.writes);
        file.handles.push(handle);
        (FileHandle(number), file.way.clone())
    }

    pub(crate) fn open_magic(&self, file: Box<dyn MagicFile>) -> FileHandle {
        let mut state = self.state();
        let number = state.number();
        state.magic.insert(number, file.into());
        FileHandle(number)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Answer<Arc<Handle>> {
        self.state().handles.get(&handle.0).cloned().ok_or(fuser::Errno::EBADF)
    }

    pub(crate) fn magic(&self, handle: FileHandle) -> Answer<Arc<dyn MagicFile>> {
        self.state().magic.get(&handle.0).cloned().ok_or(fuser::Errno::EBADF)
    }

    /// Any handle of a file; one that may write, if that is needed.
    pub(crate) fn of(&self, node: u64, writes: bool) -> Option<Arc<Handle>> {
        let state = self.state();
        let mut handles = state.files.get(&node)?.handles.iter();
        handles.find(|handle| handle.writes || !writes).cloned()
    }

    /// The kernel is about to hear these attributes.
    pub(crate) fn told(&self, node: u64, stat: &rustix::fs::Stat) {
        if let Some(file) = self.state().files.get_mut(&node) {
            file.told = Some(told(stat));
        }
    }

    /// A write was heard of. Says whether the kernel is writing this file without us, so that it means nothing; after a
    /// few such writes no more are heard.
    pub(crate) fn heard_write(&self, node: u64, ignore: impl FnOnce(&OwnedFd) -> bool) -> bool {
        const ENOUGH: u32 = 4;
        let mut state = self.state();
        let Some(file) = state.files.get_mut(&node) else { return false };
        if file.writers == 0 || !matches!(file.way, Way::Passthrough(_)) {
            return false;
        }
        file.heard += 1;
        if file.heard >= ENOUGH
            && !file.is_ignored
            && let Some(handle) = file.handles.first()
        {
            file.is_ignored = ignore(&handle.file);
        }
        true
    }

    /// Whether the kernel is writing this file without us.
    pub(crate) fn is_written_past_us(&self, node: u64) -> bool {
        self.state().files.get(&node).is_some_and(|file| file.writers > 0)
            && self.is_passthrough(node)
    }

    /// Whether the kernel reads and writes this file without us.
    pub(crate) fn is_passthrough(&self, node: u64) -> bool {
        matches!(self.state().files.get(&node), Some(OpenFile { way: Way::Passthrough(_), .. }))
    }

    /// A file was closed after writing, and the kernel knows that it is like this.
    pub(crate) fn closed(&self, node: u64, how: Told) {
        const MOST: usize = 8192;
        let mut state = self.state();
        if state.closed.len() >= MOST {
            state.closed.clear();
        }
        state.closed.insert(node, how);
    }

    /// Whether a file is as it was when it was closed: what is heard late of our own users is no news.
    pub(crate) fn is_as_closed(&self, node: u64, how: impl FnOnce() -> Option<Told>) -> bool {
        let closed = self.state().closed.get(&node).copied();
        closed.is_some() && closed == how()
    }

    pub(crate) fn release(&self, number: FileHandle) -> Option<Released> {
        let mut state = self.state();
        state.magic.remove(&number.0);
        let handle = state.handles.remove(&number.0)?;
        let file = state.files.get_mut(&handle.node)?;
        file.handles.retain(|other| !Arc::ptr_eq(other, &handle));
        file.writers -= usize::from(handle.writes);
        let last_writer = handle.writes && file.writers == 0;
        let released = Released {
            last_writer,
            was_ignored: last_writer && std::mem::take(&mut file.is_ignored),
            passthrough: matches!(file.way, Way::Passthrough(_)),
            told: file.told,
            handle,
        };
        if file.handles.is_empty() {
            state.files.remove(&released.handle.node);
        }
        Some(released)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
