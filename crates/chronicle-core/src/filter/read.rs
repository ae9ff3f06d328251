//! Reads small files that say something about the tree around them.
//!
//! Links are not followed and nothing that could block is opened, since the tree is anybody's.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};

/// The largest ignore file, tag or git file that is read.
const SMALL_MAX: u64 = 1 << 20;

/// The bytes of a regular file; `None` if there is none, it is something else or it is too large.
pub(super) fn read_small(path: &Path) -> Result<Option<Vec<u8>>> {
    read_up_to(path, SMALL_MAX)
}

/// The same with a limit of one's own.
pub(super) fn read_up_to(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error).at("open", path),
    };
    let meta = file.metadata().at("look at", path)?;
    if !meta.is_file() || meta.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    let read = file.take(limit + 1).read_to_end(&mut bytes).at("read", path)?;
    Ok((read as u64 <= limit).then_some(bytes))
}

/// What stands at a path, itself; `None` if nothing does or nobody may know.
pub(super) fn kind(path: &Path) -> Option<FileType> {
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Whether anything stands at a path.
pub(super) fn exists(path: &Path) -> bool {
    kind(path).is_some()
}
