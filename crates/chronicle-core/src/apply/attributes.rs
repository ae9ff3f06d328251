//! Mode, owner, times and extended attributes of one entry, changed through a handle.
//!
//! A handle names an inode, so nothing that is swapped in under the same name meanwhile is touched.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::directories::{Seen, see_handle};
use crate::entry::Meta;
use crate::path::escape;

/// Access control lists, which new entries may inherit from the directory they are made in.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// An entry, opened without following a link and without waking anybody at a fifo's other end.
pub(super) struct Handle {
    fd: OwnedFd,
    /// Whether it is open for reading; otherwise it only names the inode.
    readable: bool,
}

/// What an entry's attributes must become.
pub(super) struct Goal<'a> {
    pub(super) meta: &'a Meta,
    /// Extended attributes to take away.
    pub(super) remove: &'a [Vec<u8>],
    /// Leaves the present time.
    pub(super) touch: bool,
}

/// Whether an error says that going on is pointless now and may succeed later.
pub(super) fn is_fatal(error: Errno) -> bool {
    let fatal = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::ROFS,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
    ];
    fatal.contains(&error)
}

/// A modification time to set, leaving the access time.
pub(super) fn modified_at(mtime_ns: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: mtime_ns.div_euclid(1_000_000_000),
            tv_nsec: mtime_ns.rem_euclid(1_000_000_000),
        },
    }
}

/// Makes a directory inherit nothing to what is made in it.
pub(super) fn clear_lists(directory: impl AsFd) {
    for list in LISTS {
        let _ = rustix::fs::fremovexattr(directory.as_fd(), list);
    }
}

impl Handle {
    /// Wraps a file that is already open for reading or writing.
    pub(super) fn of(fd: OwnedFd) -> Self {
        Self { fd, readable: true }
    }

    /// Opens what a look saw under a name.
    pub(super) fn open(directory: impl AsFd, name: &[u8], seen: &Seen) -> Result<Self, Errno> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if seen.kind().is_file() || seen.is_directory() {
            let reading = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            match rustix::fs::openat(directory.as_fd(), name, reading, Mode::empty()) {
                Ok(fd) => return Ok(Self { fd, readable: true }),
                Err(Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
        }
        let fd = rustix::fs::openat(directory, name, flags | OFlags::PATH, Mode::empty())?;
        Ok(Self { fd, readable: false })
    }

    /// Wraps a directory that is only named by its handle.
    pub(super) fn directory(directory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, c".", flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, readable: true }),
            Err(Errno::ACCESS) => {
                let fd = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
                Ok(Self { fd, readable: false })
            }
            Err(error) => Err(error),
        }
    }

    /// What it is now.
    pub(super) fn see(&self) -> Result<Seen, Errno> {
        see_handle(&self.fd)
    }

    /// The inode's name for calls that take none but a path.
    fn name(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Sets the permission bits.
    pub(super) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        if self.readable {
            return rustix::fs::fchmod(&self.fd, mode);
        }
        rustix::fs::chmod(self.name(), mode)
    }

    /// Sets the modification time.
    pub(super) fn set_time(&self, mtime_ns: i64) -> Result<(), Errno> {
        let times = modified_at(mtime_ns);
        if self.readable {
            return rustix::fs::futimens(&self.fd, &times);
        }
        rustix::fs::utimensat(&self.fd, c"", &times, AtFlags::EMPTY_PATH)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        rustix::fs::chownat(&self.fd, c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    fn has_attribute(&self, name: &[u8], value: &[u8]) -> bool {
        // One byte more than wanted shows a longer value.
        let mut found = vec![0; value.len() + 1];
        let size = if self.readable {
            rustix::fs::fgetxattr(&self.fd, name, &mut found[..])
        } else {
            rustix::fs::getxattr(self.name(), name, &mut found[..])
        };
        size.is_ok_and(|size| &found[..size] == value)
    }

    fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        if self.readable {
            return rustix::fs::fsetxattr(&self.fd, name, value, XattrFlags::empty());
        }
        rustix::fs::setxattr(self.name(), name, value, XattrFlags::empty())
    }

    fn remove_attribute(&self, name: &[u8]) -> Result<(), Errno> {
        let removed = if self.readable {
            rustix::fs::fremovexattr(&self.fd, name)
        } else {
            rustix::fs::removexattr(self.name(), name)
        };
        match removed {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            other => other,
        }
    }

    /// Takes away lists that a new directory inherited and should not have.
    pub(super) fn remove_inherited(&self, meta: &Meta) {
        for list in LISTS {
            if !meta.xattrs.iter().any(|(name, _)| name == list) {
                let _ = self.remove_attribute(list);
            }
        }
    }

    /// Brings all attributes to the goal; what cannot be done comes back in words.
    ///
    /// Changing the owner clears setuid and capabilities, and a list changes the mode, so the mode
    /// comes after both; the time is last because everything may touch it.
    pub(super) fn bring_to(&self, goal: &Goal<'_>, seen: &Seen) -> Result<Vec<String>, Errno> {
        let mut problems = Problems::default();
        let (meta, mut now) = (goal.meta, *seen);
        let owner = (meta.uid, meta.gid) != (now.signature.uid, now.signature.gid);
        let attributes = !(meta.xattrs.is_empty() && goal.remove.is_empty());
        if owner {
            problems.note("owner", self.set_owner(meta.uid, meta.gid))?;
        }
        if attributes {
            self.bring_attributes_to(goal, &now, &mut problems)?;
        }
        if owner || attributes {
            now = self.see()?;
        }
        if !now.kind().is_symlink() && now.permissions() != meta.mode & 0o7777 {
            problems.note("mode", self.set_mode(meta.mode))?;
        }
        if !goal.touch && now.signature.mtime_ns != meta.mtime_ns {
            problems.note("time", self.set_time(meta.mtime_ns))?;
        }
        Ok(problems.0)
    }

    fn bring_attributes_to(
        &self,
        goal: &Goal<'_>,
        seen: &Seen,
        problems: &mut Problems,
    ) -> Result<(), Errno> {
        // The owner may change the attributes of a read-only file only after making it writable.
        let locked = !seen.kind().is_symlink() && seen.permissions() & 0o200 == 0;
        if locked {
            let _ = self.set_mode(seen.permissions() | 0o200);
        }
        for name in goal.remove {
            problems.note(&format!("attribute {}", escape(name)), self.remove_attribute(name))?;
        }
        for (name, value) in &goal.meta.xattrs {
            if !self.has_attribute(name, value) {
                let what = format!("attribute {}", escape(name));
                problems.note(&what, self.set_attribute(name, value))?;
            }
        }
        Ok(())
    }
}

/// What could not be brought back.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn note(&mut self, what: &str, result: Result<(), Errno>) -> Result<(), Errno> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if is_fatal(error) => Err(error),
            Err(error) => {
                self.0.push(format!("{what} not restored: {}", std::io::Error::from(error)));
                Ok(())
            }
        }
    }
}
