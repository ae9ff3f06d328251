//! What must hold before something is mounted.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::MountError;
use crate::attach;

/// Where from and where to, without symlinks and dots.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) backing: PathBuf,
    pub(crate) at: PathBuf,
}

/// Refuses what would go wrong later; a dead mount of ours at the place is cleared first.
pub(crate) fn check(backing: &Path, at: &Path) -> Result<Places, MountError> {
    clear_dead(at);
    let backing_error = |source| MountError::Backing { path: backing.to_owned(), source };
    let backing = std::fs::canonicalize(backing).map_err(backing_error)?;
    let meta = std::fs::metadata(&backing)
        .map_err(|source| MountError::Backing { path: backing.clone(), source })?;
    if !meta.is_dir() {
        let source = io::Error::from_raw_os_error(libc::ENOTDIR);
        return Err(MountError::Backing { path: backing, source });
    }
    let point_error = |source| MountError::MountPoint { path: at.to_owned(), source };
    let at = std::fs::canonicalize(at).map_err(point_error)?;
    let point = std::fs::metadata(&at)
        .map_err(|source| MountError::MountPoint { path: at.clone(), source })?;
    if !point.is_dir() {
        return Err(MountError::NotADirectory { path: at });
    }
    if attach::is_ours(&at) {
        return Err(MountError::AlreadyMounted { path: at });
    }
    let is_same = (meta.dev(), meta.ino()) == (point.dev(), point.ino());
    if !is_same && (at.starts_with(&backing) || backing.starts_with(&at)) {
        return Err(MountError::Inside { backing, at });
    }
    if !is_same && !is_empty(&at)? {
        return Err(MountError::NotEmpty { path: at });
    }
    if !Path::new("/proc/self/fd").exists() {
        return Err(MountError::NoProc);
    }
    Ok(Places { backing, at })
}

fn is_empty(directory: &Path) -> Result<bool, MountError> {
    let error = |source| MountError::MountPoint { path: directory.to_owned(), source };
    Ok(std::fs::read_dir(directory).map_err(error)?.next().is_none())
}

/// A mount whose process was killed answers only that; nothing is lost by taking it away.
fn clear_dead(at: &Path) {
    let is_dead = |error: io::Error| {
        [libc::ENOTCONN, libc::ECONNABORTED].contains(&error.raw_os_error().unwrap_or(0))
    };
    if std::fs::metadata(at).is_err_and(is_dead)
        && let Some(place) = real_place(at)
        && attach::is_ours(&place)
    {
        let _ = attach::clear(&place, true);
    }
}

/// The place without symlinks, though the place itself cannot be looked at.
fn real_place(at: &Path) -> Option<PathBuf> {
    let parent =
        at.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(std::fs::canonicalize(parent).ok()?.join(at.file_name()?))
}
