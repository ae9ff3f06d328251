//! What is agreed with the kernel at the start, and the mount as its owner holds it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use fuser::{InitFlags, KernelConfig};

use crate::attach;
use crate::nodes::ROOT;
use crate::outbox::Notice;
use crate::serve::Core;

/// What is asked of the kernel beyond what is always right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wants {
    pub(crate) passthrough: bool,
    pub(crate) writeback: bool,
    /// How many file systems may lie on each other below.
    pub(crate) depth: u32,
}

/// What the kernel agreed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    pub(crate) passthrough: bool,
    pub(crate) writeback: bool,
    pub(crate) readdirplus: bool,
    pub(crate) access_lists: bool,
    pub(crate) no_opendir: bool,
}

/// Asks for all that makes it faster or more right.
pub(crate) fn agree(wants: &Wants, config: &mut KernelConfig) -> Agreed {
    let mut has = |flag| config.add_capabilities(flag).is_ok();
    for flag in [
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_DONT_MASK,
    ] {
        has(flag);
    }
    let readdirplus = has(InitFlags::FUSE_DO_READDIRPLUS);
    let access_lists = has(InitFlags::FUSE_POSIX_ACL);
    let no_opendir = has(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
    let passthrough = wants.passthrough && has(InitFlags::FUSE_PASSTHROUGH);
    // The kernel refuses both together.
    let writeback = !passthrough && wants.writeback && has(InitFlags::FUSE_WRITEBACK_CACHE);
    if !writeback {
        has(InitFlags::FUSE_AUTO_INVAL_DATA);
    }
    if passthrough {
        let _ = config.set_max_stack_depth(wants.depth);
    }
    let _ = config.set_max_background(64);
    let _ = config.set_max_write(1 << 20);
    Agreed { passthrough, writeback, readdirplus, access_lists, no_opendir }
}

/// How changes made behind the mount's back are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticing {
    /// The kernel tells of each (fanotify).
    Told,
    /// Not at all: what was seen is believed for a second.
    Timeouts,
}

/// What this mount can do on this kernel with these rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// The kernel reads and writes the backing files itself.
    pub passthrough: bool,
    /// Writes stay in the kernel for a while; never together with `passthrough`.
    pub writeback: bool,
    /// Names are listed together with their attributes.
    pub readdirplus: bool,
    /// Access lists are honoured.
    pub access_lists: bool,
    /// How changes from outside are noticed.
    pub noticing: Noticing,
}

/// How an unmount went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody used it.
    Clean,
    /// Somebody has something open: it is gone from the tree, and for them it lives on until they close it.
    Lazily,
    /// It was not mounted any more.
    Already,
}

/// A mount, until it is unmounted. Dropping this unmounts it, lazily if need be.
#[must_use = "dropping this unmounts"]
pub struct Mounted {
    pub(crate) at: PathBuf,
    pub(crate) device: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
    pub(crate) session: Option<JoinHandle<io::Result<()>>>,
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Mounted {
    /// What it can do here.
    pub fn abilities(&self) -> Abilities {
        let agreed = self.agreed.get();
        let told =
            self.core.watch.is_some() && !self.core.watch_is_incomplete.load(Ordering::Relaxed);
        Abilities {
            passthrough: self.core.passthrough.load(Ordering::Relaxed),
            writeback: agreed.is_some_and(|agreed| agreed.writeback),
            readdirplus: agreed.is_some_and(|agreed| agreed.readdirplus),
            access_lists: agreed.is_some_and(|agreed| agreed.access_lists),
            noticing: if told { Noticing::Told } else { Noticing::Timeouts },
        }
    }

    /// How many files the kernel knows at the moment.
    pub fn known_files(&self) -> usize {
        self.core.nodes().count()
    }

    /// These paths were changed below: nothing that was known of them is believed any more.
    ///
    /// Returns at once; [`catch_up`](Self::catch_up) waits. Not to be waited for from within
    /// [`Versions`](crate::Versions).
    pub fn invalidate(&self, paths: &[Vec<u8>]) {
        for path in paths {
            self.core.doubt_path(path);
        }
    }

    /// Anything may have changed below.
    pub fn invalidate_all(&self) {
        self.core.doubt_all();
    }

    /// Returns when the kernel has heard of every change below that was made before this call.
    pub fn catch_up(&self) {
        if let Some(watch) = &self.core.watch {
            watch.wait();
        }
        self.core.outbox.wait();
    }

    /// Takes it away. Who has something open in it keeps that, and the answer says so.
    pub fn unmount(mut self) -> io::Result<Unmounted> {
        self.take_away()
    }

    /// Waits until somebody unmounts it.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    /// Whether it has been unmounted or its connection was cut.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn take_away(&mut self) -> io::Result<Unmounted> {
        if self.is_over() {
            self.join()?;
            return Ok(Unmounted::Already);
        }
        match attach::detach(&self.at, self.device, false) {
            Ok(true) => self.join().map(|()| Unmounted::Clean),
            Ok(false) => Ok(Unmounted::Already),
            // The threads go on until the last user is gone.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                attach::detach(&self.at, self.device, true).map(|_| Unmounted::Lazily)
            }
            Err(error) => Err(error),
        }
    }

    fn join(&mut self) -> io::Result<()> {
        match self.session.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(io::Error::other("the thread that serves the mount panicked")),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && !self.is_over() {
            let _ = self.take_away();
        }
    }
}

impl Core {
    /// Nothing that was known of a path is believed any more.
    pub(crate) fn doubt_path(&self, path: &[u8]) {
        let mut parent = ROOT;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                self.doubt(parent, name);
            }
            let Some(next) = self.nodes().at(parent, name) else { return };
            parent = next;
        }
    }

    /// Something happened to a name outside.
    pub(crate) fn doubt(&self, parent: u64, name: &[u8]) {
        let before = self.nodes().at(parent, name);
        if !self.recheck(parent, name) {
            self.outbox.send(Notice::Entry { parent, name: name.to_vec() });
        }
        self.outbox.send(Notice::Content(parent));
        if let Some(node) = before {
            self.outbox.send(Notice::Content(node));
        }
    }

    /// Nothing is believed any more.
    pub(crate) fn doubt_all(&self) {
        let mut known = Vec::new();
        self.nodes().each(|node, parent, name| known.push((node, parent, name.to_vec())));
        self.outbox.send(Notice::Content(ROOT));
        for (node, parent, name) in known {
            if !self.recheck(parent, &name) {
                self.outbox.send(Notice::Entry { parent, name });
            }
            self.outbox.send(Notice::Content(node));
        }
    }
}
