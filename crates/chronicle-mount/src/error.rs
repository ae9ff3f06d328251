//! Why a mount cannot be: the thing, the cause, and what to do next.

use std::io;
use std::path::PathBuf;

impl MountError {
    /// A stable word for its kind.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Backing { .. } | Self::MountPoint { .. } | Self::Serve { .. } => "mount_failed",
            Self::NotADirectory { .. } | Self::NotEmpty { .. } | Self::Inside { .. } => {
                "mount_point"
            }
            Self::AlreadyMounted { .. } => "already_mounted",
            Self::NoFuse { .. } | Self::NoProc | Self::Refused { .. } => "cannot_mount",
        }
    }

    /// All of them.
    pub const CODES: [&str; 4] = ["mount_failed", "mount_point", "already_mounted", "cannot_mount"];
}

/// A mount that was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The directory that was to be mounted cannot be used.
    #[error("Could not open {} to mount it; check that it is a directory that you may read", path.display())]
    Backing {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The place of the mount cannot be used.
    #[error("Could not use {} as a mount point; make the directory first, or name one that you own", path.display())]
    MountPoint {
        /// The place.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A mount point must be a directory.
    #[error("{} is not a directory; name an empty directory as the mount point", path.display())]
    NotADirectory {
        /// The place.
        path: PathBuf,
    },
    /// What is in the mount point would be hidden.
    #[error("{} is not empty, and a mount would hide what is in it; name an empty directory", path.display())]
    NotEmpty {
        /// The place.
        path: PathBuf,
    },
    /// Something of ours is mounted there.
    #[error("{} is mounted already; unmount it first, or name another directory", path.display())]
    AlreadyMounted {
        /// The place.
        path: PathBuf,
    },
    /// One lies in the other, so that the mount would contain itself.
    #[error("{} and {} lie in each other, so the mount would contain itself; name a mount point outside", backing.display(), at.display())]
    Inside {
        /// The directory that was to be mounted.
        backing: PathBuf,
        /// The place.
        at: PathBuf,
    },
    /// There is no FUSE here.
    #[error(
        "/dev/fuse cannot be opened; load the module (modprobe fuse) or give this container the device"
    )]
    NoFuse {
        /// Why.
        source: io::Error,
    },
    /// /proc is needed to touch files without following names.
    #[error(
        "/proc is not mounted, and the mount needs it; mount it first (mount -t proc proc /proc)"
    )]
    NoProc,
    /// The kernel or fusermount3 refused.
    #[error("Could not mount at {}; root may, and others if fusermount3 is installed", at.display())]
    Refused {
        /// The place.
        at: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was mounted, and then it could not be served.
    #[error("Could not serve the mount at {}", at.display())]
    Serve {
        /// The place.
        at: PathBuf,
        /// Why.
        source: io::Error,
    },
}
