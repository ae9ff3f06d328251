//! The kernel's own name of a directory, whatever its path: what fanotify tells instead of paths.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::fanotify::checked;

/// The most bytes that a handle has, on any file system.
const MOST: usize = 128;

/// A directory on a file system, for as long as it exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirectoryHandle {
    /// The number of the file system, as notices name it.
    pub file_system: u64,
    /// What the file system says the bytes are.
    pub kind: i32,
    /// Its name, which only the file system can read.
    pub bytes: Vec<u8>,
}

/// A handle as the kernel reads and writes it.
#[repr(C)]
struct Raw {
    length: u32,
    kind: i32,
    bytes: [u8; MOST],
}

impl DirectoryHandle {
    /// The handle of an open directory on this file system.
    pub fn of(directory: impl AsFd, file_system: u64) -> Result<Self, Errno> {
        let mut raw = Raw { length: MOST as u32, kind: 0, bytes: [0; MOST] };
        let (fd, mut mount) = (directory.as_fd().as_raw_fd(), 0);
        let handle = (&raw mut raw).cast();
        #[expect(unsafe_code, reason = "rustix has no file handles")]
        // SAFETY: the room that the length names follows it, and the empty path ends with NUL.
        let done = unsafe {
            libc::name_to_handle_at(fd, c"".as_ptr(), handle, &raw mut mount, libc::AT_EMPTY_PATH)
        };
        checked(done)?;
        let bytes = raw.bytes.get(..raw.length as usize).ok_or(Errno::OVERFLOW)?.to_vec();
        Ok(Self { file_system, kind: raw.kind, bytes })
    }

    /// Opens the directory, only to ask where it is; `near` lies on the same file system.
    pub(super) fn open(&self, near: impl AsFd) -> Result<OwnedFd, Errno> {
        let mut raw = Raw { length: self.bytes.len() as u32, kind: self.kind, bytes: [0; MOST] };
        raw.bytes.get_mut(..self.bytes.len()).ok_or(Errno::STALE)?.copy_from_slice(&self.bytes);
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let (near, handle) = (near.as_fd().as_raw_fd(), (&raw mut raw).cast());
        #[expect(unsafe_code, reason = "rustix has no file handles")]
        // SAFETY: the handle is as long as it says, and what is returned is nobody else's.
        unsafe {
            let fd = checked(libc::open_by_handle_at(near, handle, flags))?;
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

/// The number of the file system that an open directory lies on, as notices name it.
pub(super) fn file_system_of(directory: impl AsFd) -> Result<u64, Errno> {
    rustix::fs::fstatvfs(directory).map(|stat| stat.f_fsid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn one_directory_has_one_handle_and_another_another() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let open = |path: &std::path::Path| std::fs::File::open(path).unwrap();
        let handle = |path| {
            let directory = open(path);
            DirectoryHandle::of(&directory, file_system_of(&directory).unwrap())
        };
        let Ok(one) = handle(&inner) else { return };
        std::fs::rename(&inner, place.path().join("moved")).unwrap();
        let moved = place.path().join("moved");
        assert_eq!(handle(&moved), Ok(one.clone()));
        assert_ne!(handle(place.path()), Ok(one.clone()));
        // Only the privileged may open one.
        let Ok(opened) = one.open(open(place.path())) else { return };
        let meta = std::fs::metadata(&moved).unwrap();
        assert_eq!(rustix::fs::fstat(&opened).unwrap().st_ino, meta.ino());
        std::fs::remove_dir(&moved).unwrap();
        drop(opened);
        assert_eq!(one.open(open(place.path())).err(), Some(Errno::STALE));
    }
}
