//! The seam to whoever shows the past: a read-only tree below one name in the root of the mount.

use fuser::Errno;

/// What an entry of the magic tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MagicKind {
    /// It can be listed.
    Directory,
    /// It can be read.
    File,
    /// It leads elsewhere.
    Symlink,
}

/// What is known of an entry without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MagicEntry {
    /// What it is.
    pub kind: MagicKind,
    /// Bytes of the file or of the symlink's target.
    pub size: u64,
    /// The lowest twelve bits count; nobody may write whatever they say.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was last modified, since 1970.
    pub mtime_ns: i64,
}

/// An open file of the magic tree.
pub trait MagicFile: Send + Sync {
    /// Up to `size` bytes from an offset; fewer only at the end.
    fn read_at(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno>;

    /// How many bytes there are.
    fn size(&self) -> u64;
}

/// The tree itself. Paths are the names below the magic directory.
pub trait Magic: Send + Sync + 'static {
    /// What stands under a name; the magic directory itself is not asked for.
    fn lookup(&self, parent: &[Vec<u8>], name: &[u8]) -> Result<MagicEntry, Errno>;

    /// What a directory holds.
    fn list(&self, directory: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, MagicKind)>, Errno>;

    /// Whether to say how long the files of a directory are costs as much as reading them, so that a list of names should
    /// do without.
    fn is_costly(&self, _directory: &[Vec<u8>]) -> bool {
        false
    }

    /// Opens a file for reading.
    fn open(&self, path: &[Vec<u8>]) -> Result<Box<dyn MagicFile>, Errno>;

    /// Where a symlink leads.
    fn readlink(&self, path: &[Vec<u8>]) -> Result<Vec<u8>, Errno>;
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMagic;

impl Magic for NoMagic {
    fn lookup(&self, _: &[Vec<u8>], _: &[u8]) -> Result<MagicEntry, Errno> {
        Err(Errno::ENOENT)
    }

    fn list(&self, _: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, MagicKind)>, Errno> {
        Ok(Vec::new())
    }

    fn open(&self, _: &[Vec<u8>]) -> Result<Box<dyn MagicFile>, Errno> {
        Err(Errno::ENOENT)
    }

    fn readlink(&self, _: &[Vec<u8>]) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOENT)
    }
}
