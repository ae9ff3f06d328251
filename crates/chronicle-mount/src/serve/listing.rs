//! Requests that list directories. Nothing is kept between them: an offset is the backing directory's own.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use chronicle_core::Placeholder;
use fuser::FileType;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};

use super::{Core, Entry};
use crate::errno::{Answer, OrErrno};
use crate::nodes::ROOT;

/// A name as it was listed.
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    /// Where the listing goes on behind it.
    pub(crate) next: u64,
    pub(crate) ino: u64,
    pub(crate) kind: FileType,
}

impl Core {
    /// Calls with each name from an offset on, until it says that there is no more room.
    pub(crate) fn list(
        &self,
        node: u64,
        offset: u64,
        mut is_full: impl FnMut(&Listed<'_>) -> bool,
    ) -> Answer<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(&*self.directory(node)?, ".", flags, Mode::empty()).or_errno()?;
        if offset > 0 {
            rustix::fs::seek(&directory, SeekFrom::Start(offset)).or_errno()?;
        }
        let mut room = [MaybeUninit::uninit(); 16 * 1024];
        let mut names = RawDir::new(&directory, &mut room);
        while let Some(item) = names.next() {
            let item = item.or_errno()?;
            let (name, mut kind) = (item.file_name().to_bytes(), kind(item.file_type()));
            if kind == FileType::Symlink && self.is_placeholder(&directory, name) {
                kind = FileType::RegularFile;
            }
            let (next, ino) = (item.next_entry_cookie(), item.ino());
            let listed = Listed { name, next, ino, kind };
            if is_full(&listed) {
                break;
            }
        }
        Ok(())
    }

    fn is_placeholder(&self, directory: &OwnedFd, name: &[u8]) -> bool {
        let target = || rustix::fs::readlinkat(directory, name, Vec::new()).ok();
        self.fill.is_some()
            && target().is_some_and(|target| Placeholder::parse(target.as_bytes()).is_some())
    }

    /// What a listed name is, in full; None if it is gone by now.
    pub(crate) fn enter_listed(&self, parent: u64, name: &[u8]) -> Option<Entry> {
        let directory = self.directory(parent).ok()?;
        let stat = rustix::fs::statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        self.enter_stat(parent, &directory, name, stat).ok()
    }

    /// The number that the entry `..` has.
    pub(crate) fn parent_of(&self, node: u64) -> u64 {
        self.nodes().place(node).map_or(ROOT, |place| place.parent)
    }
}

fn kind(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}
