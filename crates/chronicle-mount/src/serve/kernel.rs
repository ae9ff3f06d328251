//! Takes requests from the kernel and sends replies; what is done for them is elsewhere.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::content::backing_flags;
use super::magic::is_magic;
use super::metadata::Setting;
use super::names::Making;
use super::{Core, Entry};
use crate::crew::Crew;
use crate::errno::{Answer, OrErrno, guarded};
use crate::handles::{Handle, Way};
use crate::identity;
use crate::magic::MagicKind;
use crate::mounted::{Agreed, agree};
use crate::versions::Caller;

/// The file system as fuser drives it.
pub(crate) struct Kernel {
    pub(crate) core: Arc<Core>,
    pub(crate) wants: crate::mounted::Wants,
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
    pub(crate) crew: Arc<Crew>,
}

thread_local! {
    /// What was read, until it is sent.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Does something with so many bytes of room that is used again.
fn with_room<T>(size: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    ROOM.with_borrow_mut(|room| {
        if room.len() < size {
            room.resize(size, 0);
        }
        work(&mut room[..size])
    })
}

/// Nothing: the kernel may believe for a while that there is nothing under a name.
fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The entries `.` and `..`, which the kernel does not count as lookups.
fn uncounted(number: u64) -> Entry {
    let attributes = FileAttr { ino: INodeNo(number), kind: FileType::Directory, ..nothing() };
    let none = Duration::ZERO;
    Entry { attributes, generation: 0, entry_time: none, attribute_time: none }
}

fn reply_entry(found: Answer<Entry>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry_with_ttls(
            &found.attribute_time,
            &found.entry_time,
            &found.attributes,
            Generation(found.generation),
        ),
        Err(error) => reply.error(error),
    }
}

fn reply_empty(done: Answer<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn reply_attributes(found: Answer<(FileAttr, Duration)>, reply: ReplyAttr) {
    match found {
        Ok((found, time)) => reply.attr(&time, &found),
        Err(error) => reply.error(error),
    }
}

impl Kernel {
    fn find(&self, parent: u64, name: &[u8]) -> Answer<Entry> {
        if is_magic(parent) {
            return self.core.enter_magic(parent, name);
        }
        match self.core.enter(parent, name) {
            Err(error) if error.code() == libc::ENOENT && self.core.is_magic_name(parent, name) => {
                self.core.enter_magic_root()
            }
            found => found,
        }
    }

    /// An extended attribute's value or the list of names, as both replies want it.
    fn reply_xattr(size: u32, reply: ReplyXattr, get: impl FnOnce(&mut [u8]) -> Answer<usize>) {
        with_room(size as usize, |room| match guarded(|| get(room)) {
            Ok(length) if size == 0 => reply.size(length as u32),
            Ok(length) => reply.data(&room[..length]),
            Err(error) => reply.error(error),
        });
    }

    /// Opens what was just made by somebody else, as an open without `O_EXCL` does.
    fn open_existing(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        flags: i32,
    ) -> Answer<(Entry, Handle)> {
        let entry = self.core.enter(parent, name)?;
        let node = entry.attributes.ino.0;
        let opened = self.core.open(caller, node, flags);
        if opened.is_err() {
            self.core.nodes().forget(node, 1);
        }
        Ok((entry, opened?))
    }

    fn create_or_open(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        masks: (u32, u32),
        flags: i32,
    ) -> Answer<(Entry, Handle)> {
        if is_magic(parent) {
            return Err(Errno::EROFS);
        }
        let (mode, umask) = masks;
        let created = self.core.create(caller, parent, name, mode, umask, backing_flags(flags));
        match created {
            Ok(created) => Ok((created.entry, created.handle)),
            Err(error) if error.code() == libc::EEXIST && flags & libc::O_EXCL == 0 => {
                self.open_existing(caller, parent, name, flags)
            }
            Err(error) => Err(error),
        }
    }
}

impl Filesystem for Kernel {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let agreed = agree(&self.wants, config);
        self.core.passthrough.store(agreed.passthrough, std::sync::atomic::Ordering::Relaxed);
        let _ = self.agreed.set(agreed);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _duty = self.crew.enter(request.pid());
        match guarded(|| self.find(parent.0, name.as_bytes())) {
            Err(error) if error.code() == libc::ENOENT && !is_magic(parent.0) => {
                reply.entry(&self.core.absence_time(), &nothing(), Generation(0));
            }
            found => reply_entry(found, reply),
        }
    }

    fn forget(&self, request: &Request, node: INodeNo, times: u64) {
        let _duty = self.crew.enter(request.pid());
        self.forget_times(node.0, times);
    }

    fn getattr(&self, request: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _duty = self.crew.enter(request.pid());
        let found = guarded(|| match is_magic(node.0) {
            true => self.core.magic_attributes(node.0),
            false => self.core.attributes(node.0),
        });
        reply_attributes(found, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            return reply.error(Errno::EROFS);
        }
        let setting = Setting { mode, uid, gid, size, atime, mtime, handle };
        reply_attributes(guarded(|| self.core.set(&request.into(), node.0, &setting)), reply);
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        let _duty = self.crew.enter(request.pid());
        let target = guarded(|| match is_magic(node.0) {
            true => self.core.magic_link(node.0),
            false => self.core.read_link(node.0),
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _duty = self.crew.enter(request.pid());
        let making = Making::Special { mode, device: rdev };
        reply_entry(self.make(request, parent, name, umask, &making), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _duty = self.crew.enter(request.pid());
        reply_entry(self.make(request, parent, name, umask, &Making::Directory { mode }), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _duty = self.crew.enter(request.pid());
        reply_entry(self.make(request, parent, name, 0, &Making::Symlink { target }), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _duty = self.crew.enter(request.pid());
        reply_empty(self.remove(request, parent, name, false), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _duty = self.crew.enter(request.pid());
        reply_empty(self.remove(request, parent, name, true), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _duty = self.crew.enter(request.pid());
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        let done = guarded(|| {
            if is_magic(parent.0) || is_magic(newparent.0) {
                return Err(Errno::EROFS);
            }
            self.core.rename(&request.into(), from, to, flags)
        });
        reply_empty(done, reply);
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let _duty = self.crew.enter(request.pid());
        let done = guarded(|| {
            if is_magic(node.0) || is_magic(newparent.0) {
                return Err(Errno::EROFS);
            }
            self.core.link(&request.into(), node.0, newparent.0, newname.as_bytes())
        });
        reply_entry(done, reply);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            return match guarded(|| self.core.magic_open(node.0)) {
                Ok(file) => {
                    reply.opened(self.core.handles.open_magic(file), FopenFlags::FOPEN_DIRECT_IO)
                }
                Err(error) => reply.error(error),
            };
        }
        let caller = Caller::from(request);
        match guarded(|| self.core.open(&caller, node.0, flags.0)) {
            Ok(handle) => {
                let register = |file: &_| {
                    identity::assume(&caller, 0);
                    reply.open_backing(file)
                };
                let choose = |file: &_| self.core.choose_way(file, register);
                let (number, way) = self.core.handles.open(handle, choose);
                match way {
                    Way::Passthrough(backing) => {
                        reply.opened_passthrough(number, FopenFlags::empty(), &backing);
                    }
                    Way::Requests => reply.opened(number, FopenFlags::FOPEN_KEEP_CACHE),
                }
            }
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _duty = self.crew.enter(request.pid());
        let caller = Caller::from(request);
        let name = name.as_bytes();
        match guarded(|| self.create_or_open(&caller, parent.0, name, (mode, umask), flags)) {
            Ok((entry, handle)) => {
                let register = |file: &_| {
                    identity::assume(&caller, 0);
                    reply.open_backing(file)
                };
                let choose = |file: &_| self.core.choose_way(file, register);
                let (number, way) = self.core.handles.open(handle, choose);
                let generation = Generation(entry.generation);
                let time = entry.attribute_time.min(entry.entry_time);
                match way {
                    Way::Passthrough(backing) => {
                        let flags = FopenFlags::empty();
                        reply.created_passthrough(
                            &time,
                            &entry.attributes,
                            generation,
                            number,
                            flags,
                            &backing,
                        );
                    }
                    Way::Requests => {
                        let flags = FopenFlags::FOPEN_KEEP_CACHE;
                        reply.created(&time, &entry.attributes, generation, number, flags);
                    }
                }
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            let file = self.core.handles.magic(handle);
            return match guarded(|| file.and_then(|file| file.read_at(offset, size as usize))) {
                Ok(data) => reply.data(&data),
                Err(error) => reply.error(error),
            };
        }
        with_room(size as usize, |room| match guarded(|| self.core.read(handle, offset, room)) {
            Ok(length) => reply.data(&room[..length]),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _duty = self.crew.enter(request.pid());
        let strips = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match guarded(|| self.core.write(&request.into(), handle, offset, data, strips)) {
            Ok(length) => reply.written(length as u32),
            Err(error) => reply.error(error),
        }
    }

    /// Nothing is kept back here, and locks are the kernel's: it need not ask again.
    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let _duty = self.crew.enter(request.pid());
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _duty = self.crew.enter(request.pid());
        let done = guarded(|| {
            self.core.release(&request.into(), handle);
            Ok(())
        });
        reply_empty(done, reply);
    }

    fn fsync(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _duty = self.crew.enter(request.pid());
        self.crew.will_wait();
        let done = guarded(|| match is_magic(node.0) {
            true => Ok(()),
            false => self.core.sync(node.0, handle, datasync),
        });
        reply_empty(done, reply);
    }

    fn fsyncdir(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _duty = self.crew.enter(request.pid());
        self.crew.will_wait();
        let done = guarded(|| match is_magic(node.0) {
            true => Ok(()),
            false => self.core.sync_directory(node.0),
        });
        reply_empty(done, reply);
    }

    /// Listing needs nothing kept, so where the kernel can do without it does not ask again.
    fn opendir(&self, request: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _duty = self.crew.enter(request.pid());
        if self.agreed.get().is_some_and(|agreed| agreed.no_opendir) {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _duty = self.crew.enter(request.pid());
        let listed = guarded(|| {
            if is_magic(node.0) {
                return self.magic_names(node.0, offset, |name, kind, next| {
                    let kind = crate::attributes::of_magic_kind(kind);
                    reply.add(INodeNo(1 << 63), next, kind, OsStr::from_bytes(name))
                });
            }
            self.core.list(node.0, offset, |listed| {
                let number = self.core.nodes().at(node.0, listed.name).unwrap_or(listed.ino);
                reply.add(INodeNo(number), listed.next, listed.kind, OsStr::from_bytes(listed.name))
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _duty = self.crew.enter(request.pid());
        // Every name that is told counts as a lookup, those that found no room do not.
        let mut add = |name: &[u8], next, entry: Entry| {
            let (number, name) = (entry.attributes.ino, OsStr::from_bytes(name));
            let time = entry.attribute_time.min(entry.entry_time);
            let generation = Generation(entry.generation);
            let is_full = reply.add(number, next, name, &time, &entry.attributes, generation);
            if is_full && !entry.entry_time.is_zero() {
                self.forget_times(number.0, 1);
            }
            is_full
        };
        let listed = guarded(|| {
            if is_magic(node.0) {
                return self.magic_names(node.0, offset, |name, kind, next| {
                    let found = guarded(|| self.core.enter_listed_magic(node.0, name, kind));
                    found.is_ok_and(|entry| add(name, next, entry))
                });
            }
            self.core.list(node.0, offset, |listed| match listed.name {
                b"." => add(listed.name, listed.next, uncounted(node.0)),
                b".." => add(listed.name, listed.next, uncounted(self.core.parent_of(node.0))),
                name => {
                    let found = self.core.enter_listed(node.0, name);
                    found.is_some_and(|entry| add(name, listed.next, entry))
                }
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _duty = self.crew.enter(request.pid());
        match rustix::fs::fstatvfs(&*self.core.root).or_errno() {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                found.f_bsize as u32,
                found.f_namemax as u32,
                found.f_frsize as u32,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            return reply.error(Errno::EROFS);
        }
        let value = Some((value, flags));
        let done =
            guarded(|| self.core.set_attribute(&request.into(), node.0, name.as_bytes(), value));
        reply_empty(done, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            return reply.error(Errno::ENODATA);
        }
        Self::reply_xattr(size, reply, |room| self.core.attribute(node.0, name.as_bytes(), room));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let _duty = self.crew.enter(request.pid());
        let is_magic = is_magic(node.0);
        Self::reply_xattr(size, reply, |room| match is_magic {
            true => Ok(0),
            false => self.core.attribute_names(node.0, room),
        });
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            return reply.error(Errno::EROFS);
        }
        let done =
            guarded(|| self.core.set_attribute(&request.into(), node.0, name.as_bytes(), None));
        reply_empty(done, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _duty = self.crew.enter(request.pid());
        self.crew.will_wait();
        let done = guarded(|| self.core.allocate(&request.into(), handle, mode, offset, length));
        reply_empty(done, reply);
    }

    fn lseek(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _duty = self.crew.enter(request.pid());
        if is_magic(node.0) {
            return reply.error(Errno::ENOSYS);
        }
        match guarded(|| self.core.seek(handle, offset, whence)) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from_node: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _duty = self.crew.enter(request.pid());
        self.crew.will_wait();
        let done = guarded(|| {
            if is_magic(from_node.0) {
                // The caller reads and writes instead.
                return Err(Errno::EXDEV);
            }
            self.core.copy(&request.into(), (from, from_offset), (to, to_offset), length)
        });
        match done {
            Ok(length) => reply.written(length as u32),
            Err(error) => reply.error(error),
        }
    }
}

impl Kernel {
    fn forget_times(&self, node: u64, times: u64) {
        if is_magic(node) {
            self.core.magic_nodes.forget(node, times);
        } else {
            self.core.nodes().forget(node, times);
        }
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        umask: u32,
        making: &Making<'_>,
    ) -> Answer<Entry> {
        guarded(|| {
            if is_magic(parent.0) {
                return Err(Errno::EROFS);
            }
            self.core.make(&request.into(), parent.0, name.as_bytes(), umask, making)
        })
    }

    fn remove(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        directory: bool,
    ) -> Answer<()> {
        guarded(|| {
            let is_magic_root = self.core.is_magic_name(parent.0, name.as_bytes())
                && self.core.real(parent.0, name.as_bytes()).is_none();
            if is_magic(parent.0) || is_magic_root {
                return Err(Errno::EROFS);
            }
            self.core.remove(&request.into(), parent.0, name.as_bytes(), directory)
        })
    }

    fn magic_names(
        &self,
        node: u64,
        offset: u64,
        mut is_full: impl FnMut(&[u8], MagicKind, u64) -> bool,
    ) -> Answer<()> {
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, kind)) in self.core.magic_list(node)?.iter().enumerate().skip(skipped) {
            if is_full(name, *kind, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}
