//! The seam to whoever keeps versions: asked before every change, told after it.

use fuser::{Errno, Request};

/// Something that is about to change, or has just changed.
///
/// Paths are bytes, relative to the root, without a leading slash; the root itself is empty. A file with several
/// hard links is named by every name that the mount knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The content may change: an open for writing, truncate, fallocate, `copy_file_range` into it.
    Write {
        /// Every known name; empty if it has none any more.
        paths: &'a [Vec<u8>],
        /// Whether what stood there is cut off at once.
        truncates: bool,
        /// Whether it may go on until it is closed.
        opens: bool,
    },
    /// A name that is not there is made: a file, a directory, a symlink, a special.
    Create {
        /// The new name.
        path: &'a [u8],
        /// Whether it is a directory.
        directory: bool,
        /// Whether it is a file that is open for writing from now on.
        opened: bool,
    },
    /// A name goes.
    Remove {
        /// The name.
        path: &'a [u8],
        /// Whether it was to be a directory.
        directory: bool,
    },
    /// A name is moved; what stands at `to` is replaced.
    Rename {
        /// The name that goes.
        from: &'a [u8],
        /// The name that comes.
        to: &'a [u8],
        /// Whether both stay and only trade places.
        exchange: bool,
    },
    /// A file gets one more name.
    Link {
        /// A name that it has.
        from: &'a [u8],
        /// The name that it gets.
        to: &'a [u8],
    },
    /// Mode, owner, times or extended attributes change.
    Attributes {
        /// Every known name; empty if it has none any more.
        paths: &'a [Vec<u8>],
    },
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The process, as the mount's own process sees it; 0 if it cannot.
    pub pid: u32,
    /// Its user for file access.
    pub uid: u32,
    /// Its group for file access.
    pub gid: u32,
}

impl From<&Request> for Caller {
    fn from(request: &Request) -> Self {
        Self { pid: request.pid(), uid: request.uid(), gid: request.gid() }
    }
}

/// Who keeps versions of what changes.
///
/// Both calls come while the parents concerned are locked. None may use the mount itself, nor wait for
/// somebody who does; nor follow a symlink of the backing directory, which may lead into the mount: the kernel
/// holds a directory locked until we answer, and nothing can end such a wait, not even killing the process.
pub trait Versions: Send + Sync + 'static {
    /// Called before the operation takes effect. With an error nothing happens and the caller gets it.
    fn before(&self, caller: &Caller, operation: &Operation<'_>) -> Result<(), Errno>;

    /// What came of it. Always called after a `before` that returned `Ok`.
    fn after(&self, caller: &Caller, operation: &Operation<'_>, outcome: Result<(), Errno>);

    /// The last handle that was open for writing was released; without paths if the file has no name any more.
    fn closed(&self, caller: &Caller, paths: &[Vec<u8>]);

    /// The backing file or directory was synced; returns when what was recorded of it is durable too.
    fn synced(&self, paths: &[Vec<u8>]) -> Result<(), Errno>;
}

/// Keeps nothing: the mount is a bare passthrough.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVersions;

impl Versions for NoVersions {
    fn before(&self, _: &Caller, _: &Operation<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn after(&self, _: &Caller, _: &Operation<'_>, _: Result<(), Errno>) {}

    fn closed(&self, _: &Caller, _: &[Vec<u8>]) {}

    fn synced(&self, _: &[Vec<u8>]) -> Result<(), Errno> {
        Ok(())
    }
}

/// Brings content that is not on disk yet.
///
/// With one, links of the backing directory that are [placeholders](chronicle_core::Placeholder) are shown as the files
/// that they stand for.
pub trait Fill: Send + Sync + 'static {
    /// Called where a placeholder stands whose content somebody needs; when it returns `Ok`, the file itself stands there.
    /// It may take as long as bringing the content takes, but not for ever. The rules of [`Versions`] hold for it too.
    fn fill(&self, path: &[u8]) -> Result<(), Errno>;
}
