//! The kernel's watches: inotify, on directories that are reached through no symbolic link.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// What is told of a watched directory and the names in it.
///
/// Not what happens to files that have no name any more, and nothing of reading.
const TOLD: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);
/// What is told of the workspace's own directory of the home: only that something is gone.
const GOING: WatchFlags = WatchFlags::DELETE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
const BUFFER: usize = 64 * 1024;

/// One thing that happened.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) watch: i32,
    pub(super) what: ReadFlags,
    /// Joins the two halves of a rename.
    pub(super) cookie: u32,
    /// The name in the directory; `None` if it happened to the directory itself.
    pub(super) name: Option<&'a [u8]>,
}

/// The watches of one process.
pub(super) struct Marks {
    kernel: OwnedFd,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Marks {
    pub(super) fn new() -> Result<Self, Errno> {
        let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { kernel, buffer: vec![MaybeUninit::uninit(); BUFFER] })
    }

    /// Watches an open directory; the same directory always has the same number.
    pub(super) fn watch(&self, directory: impl AsFd) -> Result<i32, Errno> {
        self.add(directory, TOLD)
    }

    /// Watches an open directory only for names that go.
    pub(super) fn watch_going(&self, directory: impl AsFd) -> Result<i32, Errno> {
        self.add(directory, GOING)
    }

    /// By the handle and not by the path, which may lead elsewhere by now.
    fn add(&self, directory: impl AsFd, flags: WatchFlags) -> Result<i32, Errno> {
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        inotify::add_watch(&self.kernel, path, flags)
    }

    /// Takes a watch away; one that is gone already is no failure.
    pub(super) fn unwatch(&self, watch: i32) {
        let _ = inotify::remove_watch(&self.kernel, watch);
    }

    /// Tells everything that had happened when this was called, and says whether that was anything.
    ///
    /// Not more than that: somebody who never stops writing must not hold us up.
    pub(super) fn drain(&mut self, mut told: impl FnMut(Event<'_>)) -> Result<bool, Errno> {
        let queued = rustix::io::ioctl_fionread(&self.kernel)?;
        let mut reader = inotify::Reader::new(&self.kernel, &mut self.buffer);
        let mut read = 0;
        while read < queued {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            read += event_size(name);
            let (watch, what, cookie) = (event.wd(), event.events(), event.cookie());
            told(Event { watch, what, cookie, name });
        }
        // What lies in the buffer would be lost with the reader.
        while !reader.is_buffer_empty() {
            let event = reader.next()?;
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            let (watch, what, cookie) = (event.wd(), event.events(), event.cookie());
            told(Event { watch, what, cookie, name });
        }
        Ok(queued > 0)
    }
}

/// How long an event is in the kernel's queue: its head, and its name with at least one NUL.
fn event_size(name: Option<&[u8]>) -> u64 {
    const HEAD: u64 = 16;
    HEAD + name.map_or(0, |name| (name.len() as u64 + 1).next_multiple_of(HEAD))
}

impl AsFd for Marks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }
}
