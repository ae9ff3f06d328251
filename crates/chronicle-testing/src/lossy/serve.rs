//! Answers the kernel: each request is looked up in the image or becomes one operation of the log.
//!
//! Nothing may be cached beyond a request, since the image below the mount is exchanged.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::State;
use super::image::{Attributes, Content, Image, Ino, Node, Operation};

const NOW: Duration = Duration::ZERO;
const BLOCK: u32 = 4096;
/// As much as is said to be free.
const BLOCKS: u64 = 1 << 28;

/// The file system as the kernel sees it.
pub(super) struct Server(pub(super) Arc<Mutex<State>>);

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        content: Content,
    ) -> Result<FileAttr, Errno> {
        let mut state = self.state();
        if state.image.names(parent.0)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let (ino, time) = (state.next_ino(), SystemTime::now());
        let (uid, gid, mode) = (request.uid(), request.gid(), mode & 0o7777);
        let node = Node { content, mode, uid, gid, mtime: time, ctime: time, links: 0 };
        state.act(Operation::Make { name: (parent.0, name.to_owned()), ino, node });
        attributes(&state.image, ino)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, directory: bool) -> Result<(), Errno> {
        let mut state = self.state();
        let ino = state.image.find(parent.0, name)?;
        let directory = match (&state.image.node(ino)?.content, directory) {
            (Content::Directory(names), true) if names.is_empty() => Some(ino),
            (Content::Directory(_), true) => return Err(Errno::ENOTEMPTY),
            (Content::Directory(_), false) => return Err(Errno::EISDIR),
            (_, true) => return Err(Errno::ENOTDIR),
            (_, false) => None,
        };
        state.act(Operation::Remove { name: (parent.0, name.to_owned()), directory });
        Ok(())
    }

    fn move_name(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        state.image.find(from.0.0, from.1)?;
        let target = state.image.names(to.0.0)?.get(to.1).copied();
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        match target {
            None if exchange => return Err(Errno::ENOENT),
            Some(_) if flags.contains(RenameFlags::RENAME_NOREPLACE) => return Err(Errno::EEXIST),
            Some(ino) if !exchange && state.image.names(ino).is_ok_and(|all| !all.is_empty()) => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        let name = |(parent, name): (INodeNo, &OsStr)| (parent.0, name.to_owned());
        state.act(Operation::Rename { from: name(from), to: name(to), exchange });
        Ok(())
    }

    fn sync(&self, ino: INodeNo, whole: bool, reply: ReplyEmpty) {
        self.state().act(Operation::Sync { ino: ino.0, whole });
        reply.ok();
    }
}

fn attributes(image: &Image, ino: Ino) -> Result<FileAttr, Errno> {
    let node = image.node(ino)?;
    let (kind, size) = match &node.content {
        Content::File(bytes) => (FileType::RegularFile, bytes.len()),
        Content::Directory(_) => (FileType::Directory, BLOCK as usize),
        Content::Symlink(target) => (FileType::Symlink, target.len()),
    };
    let size = size as u64;
    Ok(FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: node.mtime,
        mtime: node.mtime,
        ctime: node.ctime,
        crtime: node.ctime,
        kind,
        perm: u16::try_from(node.mode & 0o7777).expect("twelve bits fit"),
        nlink: node.links,
        uid: node.uid,
        gid: node.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    })
}

fn entry(found: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&NOW, &found, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let image = &self.state().image;
        entry(image.find(parent.0, name).and_then(|ino| attributes(image, ino)), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attributes(&self.state().image, ino.0) {
            Ok(found) => reply.attr(&NOW, &found),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        let ino = ino.0;
        if let Some(size) = size {
            state.act(Operation::Truncate { ino, size });
        }
        let mtime = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        if mode.is_some() || uid.is_some() || gid.is_some() || mtime.is_some() {
            let to = Attributes { mode: mode.map(|mode| mode & 0o7777), uid, gid, mtime };
            state.act(Operation::Attributes { ino, to });
        }
        match attributes(&state.image, ino) {
            Ok(found) => reply.attr(&NOW, &found),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.state().image.node(ino.0).map(|node| &node.content) {
            Ok(Content::Symlink(target)) => reply.data(target.as_encoded_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
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
        _: u32,
        reply: ReplyEntry,
    ) {
        let file = Content::File(Vec::new());
        entry(self.make(request, parent, name, mode & !umask, file), reply);
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
        let directory = Content::Directory(BTreeMap::new());
        entry(self.make(request, parent, name, mode & !umask, directory), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.remove(parent, name, false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.remove(parent, name, true), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let link = Content::Symlink(target.as_os_str().to_owned());
        entry(self.make(request, parent, name, 0o777, link), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(self.move_name((parent, name), (newparent, newname), flags), reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let mut state = self.state();
        if state.image.find(newparent.0, newname).is_ok() {
            return reply.error(Errno::EEXIST);
        }
        let name = (newparent.0, newname.to_owned());
        state.act(Operation::Link { ino: ino.0, name });
        entry(attributes(&state.image, ino.0), reply);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        match state.image.node(ino.0).map(|node| &node.content) {
            Ok(Content::File(bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(size as usize).min(bytes.len());
                reply.data(&bytes[start..end]);
            }
            Ok(_) => reply.error(Errno::EISDIR),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        match state.image.node(ino.0) {
            Ok(_) => {
                state.act(Operation::Write { ino: ino.0, offset, data: data.to_vec() });
                reply.written(u32::try_from(data.len()).expect("a request is small"));
            }
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.sync(ino, !datasync, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(ino, true, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.state();
        let names = match state.image.names(ino.0) {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, ino)) in names.iter().enumerate().skip(skipped) {
            let Ok(found) = attributes(&state.image, *ino) else { continue };
            if reply.add(INodeNo(*ino), at as u64 + 1, found.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK, 255, BLOCK);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(request, parent, name, mode & !umask, Content::File(Vec::new())) {
            Ok(found) => {
                reply.created(&NOW, &found, Generation(0), FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }
}
