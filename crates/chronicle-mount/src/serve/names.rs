//! Requests that make, remove and move names.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chronicle_core::Placeholder;
use fuser::{Errno, FileType, RenameFlags};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use super::{Core, Entry};
use crate::attributes;
use crate::errno::{Answer, OrErrno};
use crate::handles::Handle;
use crate::identity;
use crate::nodes::{FileId, ROOT};
use crate::versions::{Caller, Operation};

/// How a new name is made, all but a file that is opened at once.
pub(crate) enum Making<'a> {
    Directory { mode: u32 },
    Special { mode: u32, device: u32 },
    Symlink { target: &'a Path },
}

/// A file that was made and opened.
pub(crate) struct Created {
    pub(crate) entry: Entry,
    pub(crate) handle: Handle,
}

impl Core {
    /// Makes a name that is not there.
    pub(crate) fn make(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        umask: u32,
        making: &Making<'_>,
    ) -> Answer<Entry> {
        if let Making::Symlink { target } = making
            && self.fill.is_some()
            && Placeholder::parse(target.as_os_str().as_bytes()).is_some()
        {
            // Only who has shown a file may have one stand for it.
            return Err(Errno::EPERM);
        }
        let _held = self.locks.lock([parent].into_iter());
        let path = self.path(parent, name)?;
        self.refuse_magic(parent, name)?;
        let directory = self.directory(parent)?;
        self.change(
            caller,
            &Operation::Create {
                path: &path,
                directory: matches!(making, Making::Directory { .. }),
                opened: false,
            },
            || {
                identity::assume(caller, umask);
                match making {
                    Making::Directory { mode } => {
                        rustix::fs::mkdirat(&*directory, name, Mode::from_raw_mode(*mode))
                            .or_errno()?;
                    }
                    Making::Special { mode, device } => {
                        let kind = rustix::fs::FileType::from_raw_mode(*mode);
                        let device = attributes::device_from_wire(*device);
                        let mode = Mode::from_raw_mode(*mode);
                        rustix::fs::mknodat(&*directory, name, kind, mode, device).or_errno()?;
                    }
                    Making::Symlink { target } => {
                        let target = target.as_os_str().as_bytes();
                        rustix::fs::symlinkat(target, &*directory, name).or_errno()?;
                    }
                }
                self.enter(parent, name)
            },
        )
    }

    /// Makes a file and opens it. With `EEXIST` somebody else was faster.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: OFlags,
    ) -> Answer<Created> {
        let _held = self.locks.lock([parent].into_iter());
        let path = self.path(parent, name)?;
        self.refuse_magic(parent, name)?;
        let directory = self.directory(parent)?;
        self.change(
            caller,
            &Operation::Create { path: &path, directory: false, opened: true },
            || {
                identity::assume(caller, umask);
                let how =
                    flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(mode);
                let file = rustix::fs::openat(&*directory, name, how, mode).or_errno()?;
                let stat = rustix::fs::fstat(&file).or_errno()?;
                let entry = self.enter_stat(parent, &directory, name, stat)?;
                let node = entry.attributes.ino.0;
                self.nodes().pin(node);
                let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
                Ok(Created { entry, handle: Handle { node, file, writes } })
            },
        )
    }

    /// Takes a name away.
    pub(crate) fn remove(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        directory: bool,
    ) -> Answer<()> {
        let _held = self.locks.lock([parent].into_iter());
        let path = self.path(parent, name)?;
        let within = self.directory(parent)?;
        let operation = Operation::Remove { path: &path, directory };
        self.change(caller, &operation, || {
            identity::be_oneself();
            let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            rustix::fs::unlinkat(&*within, name, flags).or_errno()?;
            let mut nodes = self.nodes();
            if directory
                && let Some(file) = nodes.at(parent, name).and_then(|node| nodes.file(node))
            {
                self.directories.remove(file);
            }
            nodes.removed(parent, name);
            Ok(())
        })
    }

    /// Moves a name, over what stands there or in exchange for it.
    pub(crate) fn rename(
        &self,
        caller: &Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: RenameFlags,
    ) -> Answer<()> {
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        let moves_directory =
            self.is_directory(from.0, from.1) || (exchange && self.is_directory(to.0, to.1));
        let _held = if moves_directory {
            self.locks.lock_all()
        } else {
            self.locks.lock([from.0, to.0].into_iter())
        };
        self.refuse_magic(to.0, to.1)?;
        let (old, new) = (self.directory(from.0)?, self.directory(to.0)?);
        let (from_path, to_path) = (self.path(from.0, from.1)?, self.path(to.0, to.1)?);
        let operation = Operation::Rename { from: &from_path, to: &to_path, exchange };
        self.change(caller, &operation, || {
            identity::be_oneself();
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            let moving = {
                let nodes = self.nodes();
                nodes.at(from.0, from.1).and_then(|node| nodes.file(node))
            };
            rustix::fs::renameat_with(&*old, from.1, &*new, to.1, flags).or_errno()?;
            let mut nodes = self.nodes();
            nodes.renamed(from, to, exchange);
            // Whoever checked the old name in between found it gone.
            if let Some(file) = moving {
                nodes.moved(to.0, to.1, file);
            }
            Ok(())
        })
    }

    /// Gives a file one more name.
    pub(crate) fn link(
        &self,
        caller: &Caller,
        node: u64,
        parent: u64,
        name: &[u8],
    ) -> Answer<Entry> {
        self.fill(node)?;
        let places = self.nodes().places(node);
        let _held = self.locks.lock(places.iter().map(|place| place.parent).chain([parent]));
        self.refuse_magic(parent, name)?;
        let to = self.path(parent, name)?;
        let place = self.nodes().place(node);
        let from = place.and_then(|place| self.nodes().path(place.parent, &place.name));
        // An open file without a name could get one back only by /proc; the kernel refuses it as well.
        let from = from.ok_or(Errno::ENOENT)?;
        let directory = self.directory(parent)?;
        let file = self.reference(node)?;
        self.change(caller, &Operation::Link { from: &from, to: &to }, || {
            identity::be_oneself();
            let source = super::link_of(&*file);
            rustix::fs::linkat(rustix::fs::CWD, source, &*directory, name, AtFlags::SYMLINK_FOLLOW)
                .or_errno()?;
            self.enter(parent, name)
        })
    }

    /// Nobody makes a real thing where the magic one is shown.
    fn refuse_magic(&self, parent: u64, name: &[u8]) -> Answer<()> {
        if self.is_magic_name(parent, name) && self.real(parent, name).is_none() {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// Whether this is where the magic tree hangs, if nothing real stands there.
    pub(crate) fn is_magic_name(&self, parent: u64, name: &[u8]) -> bool {
        parent == ROOT && !self.magic_name.is_empty() && name == &self.magic_name[..]
    }

    pub(crate) fn real(&self, parent: u64, name: &[u8]) -> Option<Stat> {
        let directory = self.directory(parent).ok()?;
        rustix::fs::statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    fn is_directory(&self, parent: u64, name: &[u8]) -> bool {
        let known = {
            let nodes = self.nodes();
            nodes.at(parent, name).and_then(|node| nodes.kind(node))
        };
        let real = || self.real(parent, name).map(|stat| attributes::kind(&stat));
        known.or_else(real) == Some(FileType::Directory)
    }

    /// The names of a directory changed outside: forgets what stood under one, if it is not so any more.
    ///
    /// Returns whether it is still the same.
    pub(crate) fn recheck(&self, parent: u64, name: &[u8]) -> bool {
        let known = {
            let nodes = self.nodes();
            nodes.at(parent, name).and_then(|node| nodes.file(node))
        };
        let stat = self.real(parent, name);
        if let Some(stat) = &stat
            && known == Some(FileId::from(stat))
        {
            return true;
        }
        let mut nodes = self.nodes();
        nodes.removed(parent, name);
        // Somebody may stand in a directory that was moved: it goes on under its new name.
        if let Some(stat) = stat
            && attributes::kind(&stat) == FileType::Directory
            && self.directories.get(FileId::from(&stat)).is_some()
        {
            nodes.moved(parent, name, FileId::from(&stat));
        }
        false
    }
}
