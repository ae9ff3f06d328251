//! Hears what others do to the backing directory behind the mount's back.
//!
//! Every directory that the kernel knows is marked, not the file system: on a disk that others use all the time, almost
//! everything that a mark of the whole would tell is not ours.

mod fanotify;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use chronicle_core::DirectoryHandle;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::handles::told;
use crate::nodes::ROOT;
use crate::outbox::Notice;
use crate::serve::Core;
use fanotify::{Group, Happening};

/// While only we ourselves work, nothing has to be heard at once: each look wakes a core.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };

/// The marks, and which node each is for.
#[derive(Debug)]
pub(crate) struct Watch {
    group: Group,
    over: OwnedFd,
    directories: Mutex<HashMap<DirectoryHandle, u64>>,
    file_systems: Mutex<HashMap<u64, u64>>,
    /// How often everything that had been told was dealt with.
    rounds: AtomicU64,
}

impl Watch {
    /// Fails where the kernel is too old or does not let us.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            group: Group::new()?,
            over: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            directories: Mutex::default(),
            file_systems: Mutex::default(),
            rounds: AtomicU64::new(0),
        })
    }

    /// Whether it can lose nothing however much happens at once.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.group.is_unlimited
    }

    /// From now on what happens in this directory is heard.
    pub(crate) fn add(
        &self,
        directory: BorrowedFd<'_>,
        node: u64,
        device: u64,
    ) -> Result<(), Errno> {
        let known = self.file_systems().get(&device).copied();
        let file_system = match known {
            Some(known) => known,
            None => {
                let found = rustix::fs::fstatvfs(directory)?.f_fsid;
                self.file_systems().insert(device, found);
                found
            }
        };
        let handle = DirectoryHandle::of(directory, file_system)?;
        // First, so that whatever is told finds it.
        self.directories().insert(handle, node);
        self.group.mark(directory)
    }

    /// Writes to this file need not be told, or must be again.
    pub(crate) fn ignore_writes(&self, file: BorrowedFd<'_>, ignored: bool) -> bool {
        self.group.ignore_writes(file, ignored).is_ok()
    }

    /// Returns when what had happened before has been dealt with.
    pub(crate) fn wait(&self) {
        let begun = self.rounds.load(Ordering::Acquire);
        // The round that is under way may have missed it, the one after it has not.
        while self.rounds.load(Ordering::Acquire) < begun + 2 {
            let _ = rustix::io::write(&self.over, &1_u64.to_ne_bytes());
            sleep(Duration::from_micros(100));
        }
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<DirectoryHandle, u64>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_systems(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.file_systems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears until the mount is over.
pub(crate) fn listen(core: &Core, is_over: impl Fn() -> bool) {
    let Some(watch) = &core.watch else { return };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut room = vec![0; 64 * 1024];
    while !is_over() {
        let (told, woken) = (watch.group.as_fd(), watch.over.as_fd());
        let mut ready = [
            PollFd::from_borrowed_fd(told, PollFlags::IN),
            PollFd::from_borrowed_fd(woken, PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut ready, None);
        if !ready[1].revents().is_empty() {
            let _ = rustix::io::read(&watch.over, &mut [0; 8]);
        }
        let mut is_news = false;
        let drained = watch.group.drain(&mut room, |happening| {
            if happening.is_overflow() {
                core.doubt_all();
            } else if happening.pid != own {
                is_news |= hear(core, watch, &happening);
            }
            if happening.is_end_of_directory()
                && let Some(handle) = &happening.directory
            {
                watch.directories().remove(handle);
            }
        });
        watch.rounds.fetch_add(1, Ordering::Release);
        if drained.is_err() {
            core.watch_is_incomplete.store(true, Ordering::Relaxed);
            core.doubt_all();
            sleep(Duration::from_secs(1));
        } else if !is_news {
            // Not for whoever waits for a round.
            let mut woken = [PollFd::from_borrowed_fd(watch.over.as_fd(), PollFlags::IN)];
            let _ = rustix::event::poll(&mut woken, Some(&NAP));
        }
    }
}

/// Ends [`listen`], whose question says so by now.
pub(crate) fn wake(watch: &Watch) {
    let _ = rustix::io::write(&watch.over, &1_u64.to_ne_bytes());
}

/// Says whether it was news.
fn hear(core: &Core, watch: &Watch, happening: &Happening<'_>) -> bool {
    let Some(handle) = &happening.directory else { return false };
    let Some(parent) = watch.directories().get(handle).copied() else { return false };
    if happening.is_of_itself() {
        core.outbox.send(Notice::Attributes(parent));
        return true;
    }
    if happening.is_of_names() {
        core.doubt(parent, happening.name);
        return true;
    }
    let Some(node) = core.nodes().at(parent, happening.name).filter(|node| *node != ROOT) else {
        return false;
    };
    // Whoever writes through the mount is heard as well, at every write. The kernel keeps nothing of the content
    // then, and believes the attributes of such a file only briefly.
    let ignore = |file: &OwnedFd| watch.ignore_writes(file.as_fd(), true);
    let how = || core.stat(node).ok().map(|stat| told(&stat));
    if happening.is_of_content()
        && (core.handles.heard_write(node, ignore) || core.handles.is_as_closed(node, how))
    {
        return false;
    }
    if core.handles.is_passthrough(node) {
        core.outbox.send(Notice::Attributes(node));
    } else {
        core.outbox.send(Notice::Content(node));
    }
    true
}
