//! What a file system holds, as a value, and the operations that change it.
//!
//! Inodes are numbered once and for ever, so that two images of one log can be compared and
//! exchanged under a mount that stays.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::Errno;

/// The number of an inode.
pub type Ino = u64;
/// The inode of the topmost directory.
pub const TOP: Ino = 1;

/// A name in a directory.
pub type Name = (Ino, OsString);

/// One writing operation, in the form in which it is logged and replayed.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A new inode under a name.
    Make {
        /// Where.
        name: Name,
        /// Its number.
        ino: Ino,
        /// What it is at first.
        node: Node,
    },
    /// Another name for an inode.
    Link {
        /// The inode.
        ino: Ino,
        /// Its new name.
        name: Name,
    },
    /// A name goes; that of a directory says which one, since the directory goes too.
    Remove {
        /// The name.
        name: Name,
        /// The directory that it named.
        directory: Option<Ino>,
    },
    /// A name becomes another, in place of what has it, or in exchange.
    Rename {
        /// The old name.
        from: Name,
        /// The new one.
        to: Name,
        /// Both change places.
        exchange: bool,
    },
    /// Bytes are written.
    Write {
        /// The file.
        ino: Ino,
        /// Where in it.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// A file gets another length.
    Truncate {
        /// The file.
        ino: Ino,
        /// Its length.
        size: u64,
    },
    /// Mode, owner or time change.
    Attributes {
        /// Of what.
        ino: Ino,
        /// To what; what is `None` stays.
        to: Attributes,
    },
    /// A file or directory is made durable, without its attributes if only its data are asked for.
    Sync {
        /// Which.
        ino: Ino,
        /// Its attributes too.
        whole: bool,
    },
}

/// An operation and when it was done.
#[derive(Debug, Clone)]
pub struct Logged {
    /// What.
    pub operation: Operation,
    /// When.
    pub time: SystemTime,
}

/// Attributes that change.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Modification time.
    pub mtime: Option<SystemTime>,
}

/// One inode.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is and holds.
    pub content: Content,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When its content last changed.
    pub mtime: SystemTime,
    /// When anything of it last changed.
    pub ctime: SystemTime,
    /// How many names it has.
    pub links: u32,
}

/// What an inode holds.
#[derive(Debug, Clone)]
pub enum Content {
    /// The bytes of a file.
    File(Vec<u8>),
    /// The names in a directory.
    Directory(BTreeMap<OsString, Ino>),
    /// The target of a symbolic link.
    Symlink(OsString),
}

/// A whole file system.
#[derive(Debug, Clone)]
pub struct Image {
    nodes: BTreeMap<Ino, Node>,
}

impl Default for Image {
    /// An empty topmost directory.
    fn default() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let content = Content::Directory(BTreeMap::new());
        let (mtime, ctime) = (UNIX_EPOCH, UNIX_EPOCH);
        let top = Node { content, mode: 0o700, uid, gid, mtime, ctime, links: 1 };
        Self { nodes: BTreeMap::from([(TOP, top)]) }
    }
}

impl Image {
    /// One inode.
    pub fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::ENOENT)
    }

    /// The names in a directory.
    pub fn names(&self, ino: Ino) -> Result<&BTreeMap<OsString, Ino>, Errno> {
        match &self.node(ino)?.content {
            Content::Directory(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What a name stands for.
    pub fn find(&self, parent: Ino, name: &OsStr) -> Result<Ino, Errno> {
        self.names(parent)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// The highest number of an inode.
    pub fn highest(&self) -> Ino {
        self.nodes.keys().next_back().copied().unwrap_or(TOP)
    }

    /// Adds an inode that has no name yet.
    pub fn add(&mut self, ino: Ino, node: &Node) {
        self.nodes.insert(ino, Node { links: 0, ..node.clone() });
    }

    /// Does an operation; what has no inode, because a crash lost it, is left out.
    pub fn apply(&mut self, Logged { operation, time }: &Logged) {
        match operation {
            Operation::Make { name, ino, node } => {
                if !self.nodes.contains_key(ino) {
                    self.add(*ino, node);
                }
                self.put(name, *ino, *time);
            }
            Operation::Link { ino, name } => self.put(name, *ino, *time),
            Operation::Remove { name, .. } => drop(self.take(name, *time)),
            Operation::Rename { from, to, exchange } => self.rename(from, to, *exchange, *time),
            Operation::Write { ino, offset, data } => self.write(*ino, *offset, data, *time),
            Operation::Truncate { ino, size } => self.resize(*ino, |_| *size, *time),
            Operation::Attributes { ino, to } => self.set(*ino, to, *time),
            Operation::Sync { .. } => {}
        }
    }

    /// Lets a file reach to an offset, with zeros where nothing was.
    pub fn extend(&mut self, ino: Ino, end: u64, time: SystemTime) {
        self.resize(ino, |size| size.max(end), time);
    }

    fn resize(&mut self, ino: Ino, size: impl FnOnce(u64) -> u64, time: SystemTime) {
        if let Some(Node { content: Content::File(bytes), mtime, ctime, .. }) =
            self.nodes.get_mut(&ino)
        {
            bytes.resize(place(size(bytes.len() as u64)), 0);
            (*mtime, *ctime) = (time, time);
        }
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8], time: SystemTime) {
        let end = offset + data.len() as u64;
        self.extend(ino, end, time);
        if let Some(Node { content: Content::File(bytes), .. }) = self.nodes.get_mut(&ino) {
            bytes[place(offset)..place(end)].copy_from_slice(data);
        }
    }

    fn set(&mut self, ino: Ino, to: &Attributes, time: SystemTime) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.mode = to.mode.unwrap_or(node.mode);
        node.uid = to.uid.unwrap_or(node.uid);
        node.gid = to.gid.unwrap_or(node.gid);
        node.mtime = to.mtime.unwrap_or(node.mtime);
        node.ctime = time;
    }

    fn rename(&mut self, from: &Name, to: &Name, exchange: bool, time: SystemTime) {
        let Some(moved) = self.take(from, time) else { return };
        let other = self.take(to, time);
        self.put(to, moved, time);
        if let (true, Some(other)) = (exchange, other) {
            self.put(from, other, time);
        }
    }

    fn put(&mut self, (parent, name): &Name, ino: Ino, time: SystemTime) {
        let Some(Node { content: Content::Directory(names), mtime, ctime, .. }) =
            self.nodes.get_mut(parent)
        else {
            return;
        };
        names.insert(name.clone(), ino);
        (*mtime, *ctime) = (time, time);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links += 1;
            node.ctime = time;
        }
    }

    fn take(&mut self, (parent, name): &Name, time: SystemTime) -> Option<Ino> {
        let Some(Node { content: Content::Directory(names), mtime, ctime, .. }) =
            self.nodes.get_mut(parent)
        else {
            return None;
        };
        let ino = names.remove(name)?;
        (*mtime, *ctime) = (time, time);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links = node.links.saturating_sub(1);
            node.ctime = time;
        }
        Some(ino)
    }
}

/// An offset in memory.
fn place(offset: u64) -> usize {
    usize::try_from(offset).expect("a test's file is small")
}
