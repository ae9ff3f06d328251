//! What stands at a path, and how it changed.

use crate::id::{LinkGroup, ObjectId, Seq};
use crate::path::WorkspacePath;

/// What stands at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing, and that is proven: the parent was listed completely, or denied having it.
    Absent,
    /// Something or nothing: Chronicle does not know, and says why.
    Unknown(Why),
    /// A regular file.
    File(File),
    /// A directory itself; what it holds has paths of its own.
    Directory(Meta),
    /// A symbolic link.
    Symlink(Symlink),
    /// A fifo, socket or device: named, never copied.
    Special(Special),
    /// The significant part of a repository's metadata, which goes back whole or not at all.
    Repository(Repository),
}

/// Why an entry is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nobody looked yet.
    NotSeen,
    /// A filter keeps it out.
    Filtered,
    /// Reading it was denied or failed.
    Unreadable,
    /// It changed while it was read, more than once.
    Changing,
    /// The root or mount it lay on is not the one that was recorded.
    Unmounted,
    /// Its content is never kept, because people said so.
    Secret,
    /// What stood there was forgotten on purpose.
    Forgotten,
    /// It is secret, and the key that would seal it cannot be used.
    NoKey,
}

impl Why {
    /// Whether it stands there and should have been kept, but could not be.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Unreadable | Self::Changing | Self::NoKey)
    }
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The name of its content in the store.
    pub object: ObjectId,
    /// Whether it is kept sealed, under a name that only the key's owner can compute.
    pub secret: bool,
    /// Whether its content is a clone that nobody has read yet: then `object` is a random name.
    pub pending: bool,
    /// Its length in bytes.
    pub size: u64,
    /// Whether it had holes.
    pub sparse: bool,
    /// The hard links that it is one of, where it has more than one name.
    pub link: Option<LinkGroup>,
    /// Mode, owner, time and extended attributes.
    pub meta: Meta,
}

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symlink {
    /// Where it points, as written.
    pub target: Vec<u8>,
    /// Owner and time; links have no mode of their own.
    pub meta: Meta,
}

/// A fifo, socket or device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Special {
    /// Which of them.
    pub kind: SpecialKind,
    /// Mode, owner and time.
    pub meta: Meta,
}

/// The kinds of special files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialKind {
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A block device.
    Block,
    /// A character device.
    Character,
}

/// A repository's metadata as one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The significant files, as one object (see `repository`).
    pub bundle: ObjectId,
    /// What the value *is*: equal for two bundles that differ only in what does not count.
    pub identity: ObjectId,
    /// Where HEAD points: `refs/heads/main` or a commit id.
    pub head: Vec<u8>,
    /// The metadata directory itself.
    pub meta: Meta,
}

/// What all kinds have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Extended attributes, ACLs among them, ordered by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Mode, owner, time and attributes, where something stands.
    pub fn meta(&self) -> Option<&Meta> {
        match self {
            Self::Absent | Self::Unknown(_) => None,
            Self::File(file) => Some(&file.meta),
            Self::Directory(meta) => Some(meta),
            Self::Symlink(link) => Some(&link.meta),
            Self::Special(special) => Some(&special.meta),
            Self::Repository(repository) => Some(&repository.meta),
        }
    }

    /// The same, to change it.
    pub fn meta_mut(&mut self) -> Option<&mut Meta> {
        match self {
            Self::Absent | Self::Unknown(_) => None,
            Self::File(file) => Some(&mut file.meta),
            Self::Directory(meta) => Some(meta),
            Self::Symlink(link) => Some(&mut link.meta),
            Self::Special(special) => Some(&mut special.meta),
            Self::Repository(repository) => Some(&mut repository.meta),
        }
    }

    /// Whether something is known to stand here.
    pub fn is_present(&self) -> bool {
        self.meta().is_some()
    }

    /// Whether it is not known what stands here.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Whether this is a directory that may hold other entries.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_) | Self::Repository(_))
    }

    /// The object that holds the content, if any does.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Self::File(file) => Some(file.object),
            Self::Repository(repository) => Some(repository.bundle),
            _ => None,
        }
    }

    /// Whether this is a file whose content is kept sealed.
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::File(file) if file.secret)
    }

    /// The name of a clone that nobody has read yet, if the content is one.
    pub fn pending(&self) -> Option<ObjectId> {
        match self {
            Self::File(file) if file.pending => Some(file.object),
            _ => None,
        }
    }

    /// The kind, in one word of the glossary.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Unknown(_) => "unknown",
            Self::File(_) => "file",
            Self::Directory(_) => "directory",
            Self::Symlink(_) => "symlink",
            Self::Special(_) => "special",
            Self::Repository(_) => "repository",
        }
    }

    /// Whether both are the same thing with the same content, whatever mode, owner and times say.
    pub fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(a), Self::File(b)) => a.object == b.object,
            (Self::Symlink(a), Self::Symlink(b)) => a.target == b.target,
            (Self::Special(a), Self::Special(b)) => a.kind == b.kind,
            (Self::Repository(a), Self::Repository(b)) => a.identity == b.identity,
            (Self::Absent, Self::Absent) | (Self::Directory(_), Self::Directory(_)) => true,
            _ => false,
        }
    }

    /// Whether a person would call them equal: all but times, how many other names a file has and,
    /// for a repository, what does not count.
    pub fn same_but_time(&self, other: &Self) -> bool {
        let meta = |entry: &Self| entry.meta().map(|meta| Meta { mtime_ns: 0, ..meta.clone() });
        self.same_content(other) && meta(self) == meta(other)
    }
}

/// One change to one path, as a record of the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: WorkspacePath,
    /// What stood there; always the `after` of the change before it on this path.
    pub before: Entry,
    /// What stands there now.
    pub after: Entry,
    /// Where it was moved from, where the inode shows it.
    pub from: Option<MovedFrom>,
    /// Whose change it is.
    pub author: Author,
    /// How the author is known.
    pub evidence: Evidence,
    /// Part of a repository that a rewind brings back if it is missing and otherwise leaves alone.
    pub neutral: bool,
}

impl Change {
    /// Whether there is something in it that a person wants to see.
    pub fn is_visible(&self) -> bool {
        // A pending clone may turn out to be what was there already.
        if self.before == self.after {
            return false;
        }
        let only_time = self.before.same_but_time(&self.after);
        !(self.neutral || only_time && !matches!(self.after, Entry::File(_)))
    }
}

/// Where a moved entry was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedFrom {
    /// The path it left.
    pub path: WorkspacePath,
    /// The head of the log when it was last seen there.
    pub seq: Seq,
}

/// Whose change it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Author {
    /// Nobody's call was open: a person, or something a person started.
    Person,
    /// An agent's session, by its key.
    Session(String),
    /// Chronicle itself: a rewind's own writes.
    Chronicle,
    /// Several could have made it; these are the sessions, and a person may be one of them.
    Shared(Vec<String>),
}

/// How an author is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// An action named this path beforehand.
    Named,
    /// The process that wrote was seen.
    Process,
    /// It appeared while this author's window was open.
    Window,
    /// It appeared while no window was open.
    Outside,
    /// It brought back an entry that this author had made before.
    Returned,
    /// Chronicle wrote it.
    Own,
}
