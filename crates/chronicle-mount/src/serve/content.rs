//! Requests about what is in files: open, read, write, allocate, sync, release.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{BackingId, Errno, FileHandle, FileType};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom};

use super::Core;
use crate::attributes;
use crate::errno::{Answer, OrErrno, guarded};
use crate::handles::{Handle, Way, told};
use crate::identity;
use crate::nodes::{FileId, ROOT};
use crate::outbox::Notice;
use crate::versions::{Caller, Operation};

/// What of the flags of an open is ours to pass on. The rest is done by the kernel above us.
pub(crate) fn backing_flags(flags: i32) -> OFlags {
    let flags = OFlags::from_bits_retain(flags as u32);
    flags & (OFlags::RWMODE | OFlags::TRUNC | OFlags::NOATIME)
}

impl Core {
    /// Opens a file; before-images are taken here, not at every write.
    pub(crate) fn open(&self, caller: &Caller, node: u64, flags: i32) -> Answer<Handle> {
        let flags = backing_flags(flags);
        let (truncates, writes) =
            (flags.contains(OFlags::TRUNC), flags.intersects(OFlags::WRONLY | OFlags::RDWR));
        self.fill(node)?;
        let handle = |file| {
            self.nodes().pin(node);
            Handle { node, file, writes }
        };
        if !writes && !truncates {
            return self.open_file(node, flags).map(handle);
        }
        let (_held, paths) = self.lock_names(node)?;
        self.change(caller, &Operation::Write { paths: &paths, truncates, opens: true }, || {
            identity::assume(caller, 0);
            self.open_file(node, flags).map(handle)
        })
    }

    /// Brings the content of a placeholder, if that is what a node stands for.
    ///
    /// What stands there then is another file; the node stands for that from now on, with the number that programs have
    /// seen. Where it has another number already, the kernel is told to look it up again.
    pub(crate) fn fill(&self, node: u64) -> Answer<()> {
        let Some(fill) = &self.fill else { return Ok(()) };
        if node == ROOT || self.handles.of(node, false).is_some() {
            return Ok(());
        }
        let looked = self.at_a_place(node, |directory, name| {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok((self.placeholder(directory, name, &stat).is_some(), FileId::from(&stat)))
        });
        // Whatever else is wrong with it is told by what comes next.
        if !looked.unwrap_or(false) {
            return Ok(());
        }
        let place = self.nodes().place(node).ok_or(Errno::ESTALE)?;
        let path = self.path(place.parent, &place.name)?;
        identity::be_oneself();
        guarded(|| fill.fill(&path))?;
        let directory = self.directory(place.parent)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(&*directory, &place.name[..], flags).or_errno()?;
        let is_file = attributes::kind(&stat) == FileType::RegularFile;
        if is_file && self.nodes().filled(node, &place, FileId::from(&stat)) {
            return Ok(());
        }
        self.doubt(place.parent, &place.name);
        Err(Errno::ESTALE)
    }

    /// How the data of a file goes whose first handle this is.
    pub(crate) fn choose_way(
        &self,
        file: &OwnedFd,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> Way {
        if !self.passthrough.load(Ordering::Relaxed) {
            return Way::Requests;
        }
        match register(file) {
            Ok(backing) => Way::Passthrough(Arc::new(backing)),
            Err(error) => {
                if error.raw_os_error() == Some(libc::EPERM) {
                    self.passthrough.store(false, Ordering::Relaxed);
                }
                Way::Requests
            }
        }
    }

    /// Reads from where the file is open.
    pub(crate) fn read(&self, handle: FileHandle, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let handle = self.handles.get(handle)?;
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&handle.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error).or_errno(),
            }
        }
        Ok(done)
    }

    /// Writes to where the file is open.
    pub(crate) fn write(
        &self,
        caller: &Caller,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        strips: bool,
    ) -> Answer<usize> {
        let handle = self.handles.get(handle)?;
        if strips {
            identity::assume(caller, 0);
        } else {
            identity::be_oneself();
        }
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&handle.file, &data[done..], offset + done as u64) {
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error).or_errno(),
            }
        }
        Ok(done)
    }

    /// Sets aside or gives back room.
    pub(crate) fn allocate(
        &self,
        caller: &Caller,
        handle: FileHandle,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Answer<()> {
        let handle = self.handles.get(handle)?;
        let (_held, paths) = self.lock_names(handle.node)?;
        self.change(
            caller,
            &Operation::Write { paths: &paths, truncates: false, opens: false },
            || {
                identity::assume(caller, 0);
                let mode = FallocateFlags::from_bits_retain(mode as u32);
                rustix::fs::fallocate(&handle.file, mode, offset, length).or_errno()
            },
        )
    }

    /// Copies within the backing file system.
    pub(crate) fn copy(
        &self,
        caller: &Caller,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        length: u64,
    ) -> Answer<usize> {
        let (source, target) = (self.handles.get(from.0)?, self.handles.get(to.0)?);
        let (_held, paths) = self.lock_names(target.node)?;
        self.change(
            caller,
            &Operation::Write { paths: &paths, truncates: false, opens: false },
            || {
                identity::assume(caller, 0);
                // The answer has 32 bits for it.
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(1 << 30);
                let (mut read, mut written) = (from.1, to.1);
                rustix::fs::copy_file_range(
                    &source.file,
                    Some(&mut read),
                    &target.file,
                    Some(&mut written),
                    length,
                )
                .or_errno()
            },
        )
    }

    /// Where data or a hole begins.
    pub(crate) fn seek(&self, handle: FileHandle, offset: i64, whence: i32) -> Answer<i64> {
        let handle = self.handles.get(handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let wanted = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        rustix::fs::seek(&handle.file, wanted).or_errno().map(|found| found as i64)
    }

    /// Makes a file durable, and what was recorded of it.
    pub(crate) fn sync(&self, node: u64, handle: FileHandle, data_only: bool) -> Answer<()> {
        let handle = self.handles.get(handle)?;
        if data_only {
            rustix::fs::fdatasync(&handle.file).or_errno()?;
        } else {
            rustix::fs::fsync(&handle.file).or_errno()?;
        }
        self.synced(node)
    }

    /// Makes the names of a directory durable, and what was recorded of them.
    pub(crate) fn sync_directory(&self, node: u64) -> Answer<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = self.directory(node)?;
        let directory =
            rustix::fs::openat(&*directory, ".", flags, rustix::fs::Mode::empty()).or_errno()?;
        rustix::fs::fsync(directory).or_errno()?;
        self.synced(node)
    }

    fn synced(&self, node: u64) -> Answer<()> {
        let paths = self.paths(node);
        guarded(|| self.versions.synced(&paths))
    }

    /// The paths of a node as they were last seen.
    pub(crate) fn paths(&self, node: u64) -> Vec<Vec<u8>> {
        if node == ROOT {
            return vec![Vec::new()];
        }
        let nodes = self.nodes();
        let places = nodes.places(node).into_iter();
        places.filter_map(|place| nodes.path(place.parent, &place.name)).collect()
    }

    /// A handle is closed.
    pub(crate) fn release(&self, caller: &Caller, handle: FileHandle) {
        let Some(released) = self.handles.release(handle) else { return };
        let node = released.handle.node;
        if released.was_ignored
            && let Some(watch) = &self.watch
        {
            watch.ignore_writes(released.handle.file.as_fd(), false);
        }
        if released.last_writer {
            // What was written through a mapping the kernel above did not see.
            if released.passthrough
                && let Ok(stat) = rustix::fs::fstat(&released.handle.file)
            {
                self.handles.closed(node, told(&stat));
                if released.told != Some(told(&stat)) {
                    self.outbox.send(Notice::Attributes(node));
                }
            }
            let (_held, paths) = self.lock_seen_names(node);
            let _ = guarded(|| {
                self.versions.closed(caller, &paths);
                Ok(())
            });
        }
        self.nodes().unpin(node);
    }
}
