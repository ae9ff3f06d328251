//! A lower layer that cannot change: a read-only snapshot of the workspace, where Btrfs makes one for nothing.
//!
//! Without one the kernel does not say what a command sees of a file that somebody changes below.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::ioctl::{Setter, Updater, ioctl, opcode};

use super::support::uses_user_xattrs;

/// The type that the kernel gives Btrfs, and the number that the top of every subvolume has there.
const BTRFS: i64 = 0x9123_683e;
const TOP: u64 = 256;
const READ_ONLY: u64 = 1 << 1;
const GROUP: u8 = 0x94;

/// `struct btrfs_ioctl_vol_args_v2`: what is to be made of which subvolume under which name.
#[repr(C)]
struct Making {
    of: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_vol_args`: the name of what is to go.
#[repr(C)]
struct Removing {
    unused: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_get_subvol_rootref_args`: the subvolumes that lie in another.
#[repr(C)]
struct Inner {
    from: u64,
    found: [[u64; 2]; 255],
    count: u8,
    unused: [u8; 7],
}

const MAKE: u32 = opcode::write::<Making>(GROUP, 23);
const REMOVE: u32 = opcode::write::<Removing>(GROUP, 15);
const LIST: u32 = opcode::read_write::<Inner>(GROUP, 61);

/// Makes a read-only snapshot of a workspace at a path in the home, and says whether there is one now.
///
/// There is none where the workspace is no subvolume of its own, where others lie in it (a snapshot shows them empty),
/// where the home lies on another file system, and for users who could not remove it again.
pub(crate) fn freeze(workspace: impl AsFd, at: &Path) -> bool {
    let is_top = rustix::fs::fstat(&workspace).is_ok_and(|stat| stat.st_ino == TOP);
    let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else { return false };
    if !is_top || uses_user_xattrs() || !is_btrfs(&workspace) || !is_alone(&workspace) {
        return false;
    }
    let Ok(parent) = directory(parent) else { return false };
    // Only this may be read of it, not more than its descriptor stands for.
    let Ok(of) = rustix::fs::openat(&workspace, ".", FLAGS, Mode::empty()) else { return false };
    let name = named(name.as_encoded_bytes());
    let making = Making {
        of: of.as_raw_fd().into(),
        transaction: 0,
        flags: READ_ONLY,
        unused: [0; 4],
        name,
    };
    #[expect(unsafe_code, reason = "rustix does not know this call")]
    // SAFETY: the call reads one value of this very layout, and both descriptors are open.
    let done = unsafe { ioctl(&parent, Setter::<{ MAKE as _ }, _>::new(making)) };
    done.is_ok()
}

/// Removes a subvolume from a directory; says whether it was one and is gone.
pub(super) fn remove_frozen(parent: &OwnedFd, name: &CStr) -> bool {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    if !stat.is_ok_and(|stat| stat.st_ino == TOP) || !is_btrfs(parent) {
        return false;
    }
    let removing = Removing { unused: 0, name: named(name.to_bytes()) };
    #[expect(unsafe_code, reason = "rustix does not know this call")]
    // SAFETY: the call reads one value of this very layout, and the descriptor is open.
    let done = unsafe { ioctl(parent, Setter::<{ REMOVE as _ }, _>::new(removing)) };
    done.is_ok()
}

const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, FLAGS, Mode::empty())
}

#[expect(clippy::unnecessary_cast, reason = "the types differ between architectures")]
#[expect(trivial_numeric_casts, reason = "the types differ between architectures")]
fn is_btrfs(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type as i64 == BTRFS)
}

/// Whether it is known that no other subvolume lies in this one.
fn is_alone(workspace: impl AsFd) -> bool {
    let mut inner = Inner { from: 0, found: [[0; 2]; 255], count: 0, unused: [0; 7] };
    let Ok(open) = rustix::fs::openat(&workspace, ".", FLAGS, Mode::empty()) else { return false };
    #[expect(unsafe_code, reason = "rustix does not know this call")]
    // SAFETY: the call reads and writes one value of this very layout, and the descriptor is open.
    let done = unsafe { ioctl(&open, Updater::<{ LIST as _ }, _>::new(&mut inner)) };
    done.is_ok() && inner.count == 0
}

/// A name with zeros behind it; one that is too long is cut, and then not found.
fn named<const ROOM: usize>(name: &[u8]) -> [u8; ROOM] {
    let mut room = [0; ROOM];
    let length = name.len().min(ROOM - 1);
    room[..length].copy_from_slice(&name[..length]);
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_expects_these_very_numbers() {
        assert_eq!([size_of::<Making>(), size_of::<Removing>(), size_of::<Inner>()], [4096; 3]);
        assert_eq!([MAKE, REMOVE, LIST], [0x5000_9417, 0x5000_940f, 0xd000_943d]);
    }

    #[test]
    fn a_plain_directory_is_not_frozen() {
        let place = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(place.path()).unwrap();
        assert!(!freeze(&directory, &place.path().join("frozen")));
        assert!(!place.path().join("frozen").exists());
    }
}
