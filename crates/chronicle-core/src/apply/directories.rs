//! Handles of directories below the roots, and what stands in them.
//!
//! Every handle is opened name by name from its root, never through a symbolic link, and kept, so
//! that thousands of steps in one directory look it up once. Nothing here changes anything.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::fs::Roots;
use crate::known::Signature;
use crate::path::WorkspacePath;

/// How many handles are kept open; a process has 1,024 by default.
const KEPT: usize = 256;

/// What `lstat` says, with what a rewind must know beyond the signature.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) signature: Signature,
    pub(super) nlink: u64,
    /// Device and mount: entries can be renamed only where both are equal.
    pub(super) volume: (u64, u64),
    /// An attribute of the file system forbids any change, whatever the mode says.
    pub(super) immutable: bool,
}

impl Seen {
    pub(super) fn ino(&self) -> u64 {
        self.signature.ino
    }

    pub(super) fn kind(&self) -> rustix::fs::FileType {
        rustix::fs::FileType::from_raw_mode(self.signature.mode)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind().is_dir()
    }

    /// Permission bits, with setuid, setgid and sticky.
    pub(super) fn permissions(&self) -> u32 {
        self.signature.mode & 0o7777
    }
}

/// What stands under a name of a directory; `None` if nothing does.
pub(super) fn see(directory: impl AsFd, name: &[u8]) -> Result<Option<Seen>, Errno> {
    match look(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(seen) => Ok(Some(seen)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an open handle is.
pub(super) fn see_handle(handle: impl AsFd) -> Result<Seen, Errno> {
    look(handle, b"", AtFlags::EMPTY_PATH)
}

fn look(directory: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Seen, Errno> {
    let flags = flags | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat = match rustix::fs::statx(directory.as_fd(), name, flags, mask) {
        Err(Errno::NOSYS) => return look_plainly(directory, name, flags),
        other => other?,
    };
    let time = |time: rustix::fs::StatxTimestamp| {
        time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(i64::from(time.tv_nsec))
    };
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    Ok(Seen {
        signature: Signature {
            size: stat.stx_size,
            mtime_ns: time(stat.stx_mtime),
            ctime_ns: time(stat.stx_ctime),
            ino: stat.stx_ino,
            mode: u32::from(stat.stx_mode),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
        },
        nlink: u64::from(stat.stx_nlink),
        volume: (
            u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 { stat.stx_mnt_id } else { 0 },
        ),
        immutable: stat.stx_attributes.intersects(fixed),
    })
}

/// The same where the kernel or a sandbox lacks `statx`.
fn look_plainly(directory: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Seen, Errno> {
    let stat = rustix::fs::statat(directory, name, flags)?;
    let time = |seconds: i64, nanoseconds: u64| {
        seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as i64)
    };
    Ok(Seen {
        signature: Signature {
            size: stat.st_size as u64,
            mtime_ns: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: time(stat.st_ctime, stat.st_ctime_nsec),
            ino: stat.st_ino,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
        },
        nlink: stat.st_nlink,
        volume: (stat.st_dev, 0),
        immutable: false,
    })
}

/// The directories below the roots, opened when they are needed.
pub(super) struct Directories<'r> {
    roots: &'r Roots,
    open: HashMap<WorkspacePath, Rc<OwnedFd>>,
}

impl<'r> Directories<'r> {
    pub(super) fn new(roots: &'r Roots) -> Self {
        Self { roots, open: HashMap::new() }
    }

    /// Whether a path is the top of a root, which has no parent here.
    pub(super) fn is_top(&self, path: &WorkspacePath) -> bool {
        self.roots.is_top(path)
    }

    /// Whether a root's paths begin in a directory: its top, or the one that holds it where it is a
    /// single file. Above it nothing is ours.
    pub(super) fn is_beginning(&self, path: &WorkspacePath) -> bool {
        self.is_top(path) || self.roots.beginning(path).is_some()
    }

    /// The handle of a directory; it allows everything but reading.
    pub(super) fn open(&mut self, path: &WorkspacePath) -> Result<Rc<OwnedFd>, Errno> {
        if let Some(directory) = self.open.get(path) {
            return Ok(directory.clone());
        }
        // A root that was taken out of the configuration is as far away as another device.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match self.roots.beginning(path) {
            Some(handle) => rustix::fs::openat(handle, c".", flags, Mode::empty())?,
            None => {
                self.roots.root_of(path).map_err(|_| Errno::XDEV)?;
                let (parent, name) = self.parent(path)?;
                rustix::fs::openat(&*parent, name, flags, Mode::empty())?
            }
        };
        if self.open.len() >= KEPT {
            self.open.clear();
        }
        let directory = Rc::new(opened);
        self.open.insert(path.clone(), directory.clone());
        Ok(directory)
    }

    /// The handle of the directory that holds a path, and the name in it.
    pub(super) fn parent<'p>(
        &mut self,
        path: &'p WorkspacePath,
    ) -> Result<(Rc<OwnedFd>, &'p [u8]), Errno> {
        let parent = path.parent().ok_or(Errno::BUSY)?;
        Ok((self.open(&parent)?, path.name()))
    }

    /// What stands at a path; `None` only if its parent denies it or is no directory.
    pub(super) fn see(&mut self, path: &WorkspacePath) -> Result<Option<Seen>, Errno> {
        if self.is_top(path) {
            return see_handle(&*self.open(path)?).map(Some);
        }
        match self.parent(path) {
            Ok((directory, name)) => see(&*directory, name),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            // Above the directory of a root that is a single file nothing is ours, but itself is.
            Err(Errno::XDEV | Errno::BUSY) if self.is_beginning(path) => {
                see_handle(&*self.open(path)?).map(Some)
            }
            Err(error) => Err(error),
        }
    }

    /// The same, for the half that may still fail as a whole.
    pub(super) fn look_at(&mut self, path: &WorkspacePath) -> Result<Option<Seen>> {
        self.see(path).at("look at", path.as_path())
    }

    /// Forgets handles that a rename or a removal made wrong.
    pub(super) fn forget(&mut self, path: &WorkspacePath) {
        self.open.retain(|open, _| !open.is_within(path));
    }
}
