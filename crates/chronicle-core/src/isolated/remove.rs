//! Removes the directory of an isolated run, whatever the command left in it.
//!
//! Goes down by handles and follows no link. Directories that keep even their owner out, as the
//! kernel's own and any that the command made, are opened up first.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::frozen::remove_frozen;
use crate::error::{Context, Result};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a directory and all that is in it; one that is not there is no error.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = match rustix::fs::open(parent, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.at("open", parent)?,
    };
    let name = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(name)).unwrap_or_default();
    remove_below(parent, name).at("remove", path)
}

/// One directory on the way down, and what is still to be removed from it.
struct Level {
    handle: OwnedFd,
    name: CString,
    names: Vec<(CString, bool)>,
}

fn remove_below(parent: OwnedFd, name: CString) -> Result<(), Errno> {
    let Some(top) = enter(&parent, name)? else { return Ok(()) };
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        match level.names.pop() {
            Some((name, true)) if remove_frozen(&level.handle, &name) => {}
            Some((name, true)) => {
                let below = enter(&level.handle, name)?;
                levels.extend(below);
            }
            Some((name, false)) => unlink(&level.handle, &name, AtFlags::empty())?,
            None => {
                let done = levels.pop().expect("BUG: it was just there");
                let above = levels.last().map_or(&parent, |level| &level.handle);
                unlink(above, &done.name, AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(())
}

/// Opens a directory and lists it; `None` if it is gone.
fn enter(parent: &OwnedFd, name: CString) -> Result<Option<Level>, Errno> {
    let handle = match rustix::fs::openat(parent, &name, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, &name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(parent, &name, DIRECTORY, Mode::empty())?
        }
        opened => opened?,
    };
    if rustix::fs::fstat(&handle)?.st_mode & 0o300 != 0o300 {
        rustix::fs::fchmod(&handle, Mode::RWXU)?;
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(handle.as_fd())? {
        let entry = entry?;
        let found = entry.file_name();
        if found != c"." && found != c".." {
            let is_directory = match entry.file_type() {
                FileType::Unknown => is_directory(&handle, found)?,
                kind => kind == FileType::Directory,
            };
            names.push((found.to_owned(), is_directory));
        }
    }
    Ok(Some(Level { handle, name, names }))
}

fn is_directory(parent: &OwnedFd, name: &std::ffi::CStr) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn unlink(parent: &OwnedFd, name: &CString, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn everything_goes_and_nothing_outside() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("run");
        let outside = place.path().join("outside");
        std::fs::create_dir_all(top.join("a/closed/inner")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        std::fs::write(top.join("a/closed/inner/f"), "x").unwrap();
        symlink(&outside, top.join("a/link")).unwrap();
        std::fs::set_permissions(top.join("a/closed"), PermissionsExt::from_mode(0o000)).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists() && outside.join("kept").exists());
        remove_tree(&top).unwrap();
    }
}
