//! Hearing at once that a workspace has something new: a path was touched, or somebody committed.
//!
//! Only ever a hint to look and to read the head: what was missed costs time and never a change.

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::Workspace;
use crate::error::{Context, Result};
use crate::watch;

/// What may be new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touch {
    /// The watcher saw something touched.
    pub touched: bool,
    /// Somebody let go of the workspace's lock, and may have committed.
    pub committed: bool,
}

/// Waits for something new in one workspace, on a thread of its own.
pub struct Touches {
    directory: PathBuf,
    /// The watcher's word; `None` while nobody watches.
    watcher: Option<UnixStream>,
    /// The kernel's, about the lock.
    commits: OwnedFd,
}

impl Workspace {
    /// Something that hears what is new here from now on.
    pub fn hear(&self) -> Result<Touches> {
        let directory = self.directory();
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let commits = inotify::init(flags).at("watch", &directory)?;
        // Whoever commits holds the lock, and closes it when everybody can read what he wrote.
        let closing = WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
        inotify::add_watch(&commits, &directory, closing).at("watch", &directory)?;
        let watcher = watch::follow(&directory);
        Ok(Touches { directory, watcher, commits })
    }
}

impl Touches {
    /// Whether a watcher tells what is touched; without one somebody must look now and then.
    pub fn is_watched(&self) -> bool {
        self.watcher.is_some()
    }

    /// Asks for a watcher again, where there was none or it ended.
    pub fn find_watcher(&mut self) -> bool {
        if self.watcher.is_none() {
            self.watcher = watch::follow(&self.directory);
        }
        self.watcher.is_some()
    }

    /// Waits until something is new, or for so long.
    pub fn wait(&mut self, most: Duration) -> Touch {
        let mut fds = vec![PollFd::new(&self.commits, PollFlags::IN)];
        fds.extend(self.watcher.as_ref().map(|watcher| PollFd::new(watcher, PollFlags::IN)));
        let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        let most = Timespec { tv_sec: seconds, tv_nsec: i64::from(most.subsec_nanos()) };
        if !matches!(poll(&mut fds, Some(&most)), Ok(1..)) {
            return Touch::default();
        }
        let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
        let (committed, touched) = (is_ready(fds.first()), is_ready(fds.get(1)));
        Touch { touched: touched && self.hear(), committed: committed && self.lock_was_closed() }
    }

    /// Waits until nothing was touched for a while, or for so long: whoever writes much is nearly done then. Says what
    /// else is new meanwhile.
    pub fn settle(&mut self, calm: Duration, most: Duration) -> Touch {
        let begun = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let mut new = Touch::default();
        loop {
            let touch = self.wait(calm);
            new.committed |= touch.committed;
            new.touched |= touch.touched;
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let nanos = (now.tv_sec - begun.tv_sec) * 1_000_000_000 + (now.tv_nsec - begun.tv_nsec);
            let spent = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
            if !touch.touched || !self.is_watched() || spent >= most {
                return new;
            }
        }
    }

    /// Takes in what the watcher said; its end is news too, since nobody tells from then on.
    fn hear(&mut self) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        if !matches!(watcher.read(&mut [0; 256]), Ok(1..)) {
            self.watcher = None;
        }
        true
    }

    fn lock_was_closed(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.commits, &mut buffer);
        let mut closed = false;
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            closed |= name.is_none_or(|name| name == b"lock");
        }
        closed
    }
}
