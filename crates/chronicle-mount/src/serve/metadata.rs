//! Requests about what stands around the content: mode, owner, times, extended attributes, symlinks.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileAttr, FileHandle, TimeOrNow};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};

use super::{Core, link_of};
use crate::attributes::timespec;
use crate::errno::{Answer, OrErrno};
use crate::handles::Handle;
use crate::identity;
use crate::versions::{Caller, Operation};

/// What is to be set.
#[derive(Debug, Default)]
pub(crate) struct Setting {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
    pub(crate) handle: Option<FileHandle>,
}

/// The file of a node, open or only referred to.
enum Target {
    Open(Arc<Handle>),
    Reference(Arc<OwnedFd>),
}

impl Core {
    /// Sets what was asked for and says how the file is then.
    pub(crate) fn set(
        &self,
        caller: &Caller,
        node: u64,
        setting: &Setting,
    ) -> Answer<(FileAttr, Duration)> {
        self.fill(node)?;
        let cuts = setting.size.is_some_and(|size| !self.is_plain_write(setting.handle, size));
        let (_held, paths) = if cuts { self.lock_names(node)? } else { self.lock_seen_names(node) };
        if let (Some(size), false) = (setting.size, cuts) {
            identity::assume(caller, 0);
            self.truncate(node, setting.handle, size)?;
        }
        if let Some(size) = setting.size.filter(|_| cuts) {
            self.change(
                caller,
                &Operation::Write { paths: &paths, truncates: true, opens: false },
                || {
                    identity::assume(caller, 0);
                    self.truncate(node, setting.handle, size)
                },
            )?;
        }
        let owner = setting.uid.is_some() || setting.gid.is_some();
        let times = setting.atime.is_some() || setting.mtime.is_some();
        if owner || times || setting.mode.is_some() {
            self.change(caller, &Operation::Attributes { paths: &paths }, || {
                identity::be_oneself();
                self.set_attributes(&self.target(node)?, setting)
            })?;
        }
        self.attributes(node)
    }

    /// Whether a new size through an open handle takes nothing away. It is like any write through that handle then,
    /// of which nobody is told: what stood there is kept since it was opened. Databases do that all the time.
    fn is_plain_write(&self, handle: Option<FileHandle>, size: u64) -> bool {
        let open = handle.and_then(|handle| self.handles.get(handle).ok());
        open.filter(|handle| handle.writes)
            .and_then(|handle| rustix::fs::fstat(&handle.file).ok())
            .is_some_and(|stat| stat.st_size as u64 <= size)
    }

    fn truncate(&self, node: u64, handle: Option<FileHandle>, size: u64) -> Answer<()> {
        let open =
            handle.and_then(|handle| self.handles.get(handle).ok()).filter(|handle| handle.writes);
        match open.or_else(|| self.handles.of(node, true)) {
            Some(handle) => rustix::fs::ftruncate(&handle.file, size).or_errno(),
            None => rustix::fs::ftruncate(self.open_file(node, OFlags::WRONLY)?, size).or_errno(),
        }
    }

    fn set_attributes(&self, target: &Target, setting: &Setting) -> Answer<()> {
        // The owner first: changing it takes bits of the mode away.
        if setting.uid.is_some() || setting.gid.is_some() {
            let (uid, gid) = (setting.uid.map(Uid::from_raw), setting.gid.map(Gid::from_raw));
            rustix::fs::chownat(target.file(), "", uid, gid, AtFlags::EMPTY_PATH).or_errno()?;
        }
        if let Some(mode) = setting.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match target {
                Target::Open(handle) => rustix::fs::fchmod(&handle.file, mode).or_errno()?,
                Target::Reference(file) => rustix::fs::chmod(link_of(&**file), mode).or_errno()?,
            }
        }
        if setting.atime.is_some() || setting.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(setting.atime),
                last_modification: timespec(setting.mtime),
            };
            rustix::fs::utimensat(target.file(), "", &times, AtFlags::EMPTY_PATH).or_errno()?;
        }
        Ok(())
    }

    fn target(&self, node: u64) -> Answer<Target> {
        match self.handles.of(node, false) {
            Some(handle) => Ok(Target::Open(handle)),
            None => self.reference(node).map(Target::Reference),
        }
    }

    /// Where a symlink leads.
    pub(crate) fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        let link = self.reference(node)?;
        rustix::fs::readlinkat(&*link, "", Vec::new()).or_errno().map(std::ffi::CString::into_bytes)
    }

    /// The value of an extended attribute; its length if there is no room.
    pub(crate) fn attribute(&self, node: u64, name: &[u8], room: &mut [u8]) -> Answer<usize> {
        match self.target(node)? {
            Target::Open(handle) => rustix::fs::fgetxattr(&handle.file, name, room).or_errno(),
            Target::Reference(file) => rustix::fs::getxattr(link_of(&*file), name, room).or_errno(),
        }
    }

    /// The names of the extended attributes; their length if there is no room.
    pub(crate) fn attribute_names(&self, node: u64, room: &mut [u8]) -> Answer<usize> {
        match self.target(node)? {
            Target::Open(handle) => rustix::fs::flistxattr(&handle.file, room).or_errno(),
            Target::Reference(file) => rustix::fs::listxattr(link_of(&*file), room).or_errno(),
        }
    }

    /// Sets an extended attribute, or removes it.
    pub(crate) fn set_attribute(
        &self,
        caller: &Caller,
        node: u64,
        name: &[u8],
        value: Option<(&[u8], i32)>,
    ) -> Answer<()> {
        self.fill(node)?;
        let (_held, paths) = self.lock_seen_names(node);
        self.change(caller, &Operation::Attributes { paths: &paths }, || {
            // An access list set by somebody outside the group takes set-group-id away.
            identity::assume(caller, 0);
            let target = self.target(node)?;
            match (value, &target) {
                (Some((value, flags)), Target::Open(handle)) => {
                    rustix::fs::fsetxattr(&handle.file, name, value, xattr_flags(flags)?).or_errno()
                }
                (Some((value, flags)), Target::Reference(file)) => {
                    rustix::fs::setxattr(link_of(&**file), name, value, xattr_flags(flags)?)
                        .or_errno()
                }
                (None, Target::Open(handle)) => {
                    rustix::fs::fremovexattr(&handle.file, name).or_errno()
                }
                (None, Target::Reference(file)) => {
                    rustix::fs::removexattr(link_of(&**file), name).or_errno()
                }
            }
        })
    }
}

impl Target {
    fn file(&self) -> &OwnedFd {
        match self {
            Self::Open(handle) => &handle.file,
            Self::Reference(file) => file,
        }
    }
}

fn xattr_flags(flags: i32) -> Answer<XattrFlags> {
    XattrFlags::from_bits(flags as u32).ok_or(Errno::EINVAL)
}
