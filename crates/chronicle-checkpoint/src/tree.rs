//! A directory in the content store, file by file: what did not change since the last time is not read.
//!
//! The manifest is one object; the files are objects of their own. Its *digest* covers what is restored and
//! nothing else, so that two equal directories have the same.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chronicle_core::{Decoder, Encoder, ObjectId};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::contents::Contents;
use crate::error::{Context, Error, Problem, Result};

/// What makes a manifest one.
const MAGIC: &[u8] = b"chronicle tree 1\n";
/// A file that was touched less than so long before it was read may have been touched again since.
const RACY_NS: i64 = 50_000_000;
/// Directories are not followed deeper.
const DEEPEST: usize = 200;
/// How often a file that changes while it is read is read again.
const TRIES: usize = 3;

/// What stands at one path of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The path below the top, in bytes; empty for the top itself.
    pub path: Vec<u8>,
    /// What it is.
    pub what: What,
    /// Permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Modification time.
    pub mtime_ns: i64,
    /// Extended attributes, by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// By which it is known again as unchanged; not part of the digest.
    seen: Seen,
}

/// The kinds of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A directory.
    Directory,
    /// A file, by its content and its length.
    File(ObjectId, u64),
    /// Another name of a file that came before.
    Link(Vec<u8>),
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket: nothing can be kept of it, and it is of no use without its maker.
    Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    ino: u64,
    ctime_ns: i64,
}

/// A whole tree, ordered as it was walked: what holds something comes before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// What stands in it.
    pub nodes: Vec<Node>,
    /// When the reading of it began: what was touched later is not believed unseen.
    read_at_ns: i64,
}

/// How a tree is read.
#[derive(Clone, Copy)]
pub struct Reading<'r> {
    /// Files may change and vanish while they are read: somebody else makes it whole.
    pub fuzzy: bool,
    /// What was known of the tree before.
    pub known: Option<&'r Tree>,
    /// Whether a path belongs to it; what is below a directory that does not is not looked at.
    pub admits: &'r dyn Fn(&[u8]) -> bool,
}

impl Tree {
    /// Reads a tree into the store.
    pub fn read(top: &Path, contents: &Contents<'_>, reading: Reading<'_>) -> Result<Self> {
        let mut reader = Reader::new(top, Some(contents), reading);
        reader.walk()?;
        Ok(reader.tree)
    }

    /// Reads a tree only to compare it: everything is hashed, nothing is kept.
    pub fn hash(top: &Path, admits: &dyn Fn(&[u8]) -> bool) -> Result<Self> {
        let reading = Reading { fuzzy: false, known: None, admits };
        let mut reader = Reader::new(top, None, reading);
        reader.walk()?;
        Ok(reader.tree)
    }

    /// The hash over everything that is restored.
    pub fn digest(&self) -> ObjectId {
        let mut out = Encoder::default();
        let mut sorted: Vec<_> = self.nodes.iter().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        for node in sorted {
            node.encode(&mut out, false);
        }
        ObjectId::of(&out.0)
    }

    /// The contents that it needs.
    pub fn objects(&self) -> Vec<ObjectId> {
        let file = |node: &Node| match node.what {
            What::File(id, _) => Some(id),
            _ => None,
        };
        self.nodes.iter().filter_map(file).collect()
    }

    /// How many bytes its files have.
    pub fn bytes(&self) -> u64 {
        self.nodes
            .iter()
            .map(|node| if let What::File(_, size) = node.what { size } else { 0 })
            .sum()
    }

    /// Puts a file into it that does not stand there, or not as it should.
    pub fn put(&mut self, path: &[u8], bytes: &[u8], contents: &Contents<'_>) -> Result<()> {
        let id = contents.put(bytes)?;
        let like = self.nodes.first().cloned();
        self.nodes.retain(|node| node.path != path);
        let top = like.ok_or_else(|| Error::Declared("An empty tree has no owner".to_owned()))?;
        self.nodes.push(Node {
            path: path.to_vec(),
            what: What::File(id, bytes.len() as u64),
            mode: 0o600,
            xattrs: Vec::new(),
            seen: Seen::default(),
            ..top
        });
        Ok(())
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(MAGIC.to_vec());
        out.fixed(&self.read_at_ns.to_le_bytes());
        out.int(self.nodes.len() as u64);
        self.nodes.iter().for_each(|node| node.encode(&mut out, true));
        out.0
    }

    /// From bytes; whatever could lead outside when it is written is refused.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bad = |why: &str| {
            Error::from(Problem::new("bad_manifest", format!("a manifest {why}"), ADVICE))
        };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("is not one"))?;
        let mut input = Decoder(rest);
        let cut = |_| bad("is malformed");
        let read_at = input.fixed(8).map_err(cut)?;
        let read_at_ns = i64::from_le_bytes(read_at.try_into().map_err(|_| bad("is cut off"))?);
        let count = input.int().map_err(cut)?;
        let mut nodes: Vec<Node> = Vec::new();
        let mut directories = std::collections::HashSet::new();
        for _ in 0..count {
            let node = Node::decode(&mut input).map_err(cut)?;
            if !is_inside(&node.path, &directories) {
                return Err(bad("names a path that leads outside"));
            }
            if node.what == What::Directory {
                directories.insert(node.path.clone());
            }
            nodes.push(node);
        }
        input.end().map_err(cut)?;
        Ok(Self { nodes, read_at_ns })
    }
}

const ADVICE: &str = "Restore another checkpoint: chronicle checkpoint list";

/// Whether a path lies directly in a directory that came before it, and is no trick.
fn is_inside(path: &[u8], directories: &std::collections::HashSet<Vec<u8>>) -> bool {
    if path.is_empty() {
        return directories.is_empty();
    }
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    let plain = !name.is_empty() && name != b"." && name != b".." && !name.contains(&0);
    plain && directories.contains(parent)
}

impl Node {
    fn encode(&self, out: &mut Encoder, with_seen: bool) {
        out.bytes(&self.path);
        match &self.what {
            What::Directory => out.byte(0),
            What::File(id, size) => {
                out.byte(1);
                out.fixed(&id.0);
                out.int(*size);
            }
            What::Link(to) => {
                out.byte(2);
                out.bytes(to);
            }
            What::Symlink(to) => {
                out.byte(3);
                out.bytes(to);
            }
            What::Fifo => out.byte(4),
            What::Socket => out.byte(5),
        }
        [self.mode, self.uid, self.gid].into_iter().for_each(|number| out.int(number.into()));
        out.fixed(&self.mtime_ns.to_le_bytes());
        out.int(self.xattrs.len() as u64);
        for (name, value) in &self.xattrs {
            out.bytes(name);
            out.bytes(value);
        }
        if with_seen {
            out.int(self.seen.ino);
            out.fixed(&self.seen.ctime_ns.to_le_bytes());
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, chronicle_core::DecodeError> {
        use chronicle_core::DecodeError::Malformed;
        let signed = |input: &mut Decoder<'_>| {
            let bytes = input.fixed(8)?.try_into().map_err(|_| Malformed("a time is cut off"))?;
            Ok::<_, chronicle_core::DecodeError>(i64::from_le_bytes(bytes))
        };
        let path = input.bytes()?.to_vec();
        let what = match input.byte()? {
            0 => What::Directory,
            1 => {
                let id = ObjectId::from_slice(input.fixed(32)?).ok_or(Malformed("a hash"))?;
                What::File(id, input.int()?)
            }
            2 => What::Link(input.bytes()?.to_vec()),
            3 => What::Symlink(input.bytes()?.to_vec()),
            4 => What::Fifo,
            5 => What::Socket,
            _ => return Err(Malformed("a node of an unknown kind")),
        };
        let (mode, uid, gid) = (input.int32()?, input.int32()?, input.int32()?);
        let mtime_ns = signed(input)?;
        let mut xattrs = Vec::new();
        for _ in 0..input.int()? {
            xattrs.push((input.bytes()?.to_vec(), input.bytes()?.to_vec()));
        }
        let seen = Seen { ino: input.int()?, ctime_ns: signed(input)? };
        Ok(Self { path, what, mode, uid, gid, mtime_ns, xattrs, seen })
    }
}

/// Walks a tree by descriptors, following nothing.
struct Reader<'r> {
    top: &'r Path,
    contents: Option<&'r Contents<'r>>,
    reading: Reading<'r>,
    known: HashMap<&'r [u8], &'r Node>,
    names: HashMap<u64, Vec<u8>>,
    tree: Tree,
}

impl<'r> Reader<'r> {
    fn new(top: &'r Path, contents: Option<&'r Contents<'r>>, reading: Reading<'r>) -> Self {
        let known = reading.known.into_iter().flat_map(|tree| &tree.nodes);
        let known = known.map(|node| (&node.path[..], node)).collect();
        let tree = Tree { nodes: Vec::new(), read_at_ns: now_ns() };
        Self { top, contents, reading, known, names: HashMap::new(), tree }
    }

    fn walk(&mut self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::open(self.top, flags, Mode::empty()).at("open", self.top)?;
        let stat = fstat(&top).at("examine", self.top)?;
        self.add(Vec::new(), What::Directory, &stat, xattrs(&top))?;
        self.directory(&top, &[], 0)
    }

    fn directory(&mut self, directory: &OwnedFd, path: &[u8], depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(Error::Declared(format!("{} is too deep", self.shown(path))));
        }
        let mut names = Vec::new();
        for item in Dir::read_from(directory).at("list", self.shown(path))? {
            let name = item.at("list", self.shown(path))?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        for name in names {
            let below = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            if (self.reading.admits)(&below) {
                self.name(directory, &name, below, depth)?;
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if self.reading.fuzzy => return Ok(()),
            stat => stat.at("examine", self.shown(&path))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = match openat(directory, name, flags, Mode::empty()) {
                    Err(Errno::NOENT) if self.reading.fuzzy => return Ok(()),
                    below => below.at("open", self.shown(&path))?,
                };
                self.add(path.clone(), What::Directory, &stat, xattrs(&below))?;
                self.directory(&below, &path, depth + 1)
            }
            FileType::RegularFile => self.file(directory, name, path, &stat),
            FileType::Symlink => {
                let to = readlinkat(directory, name, Vec::new()).at("read", self.shown(&path))?;
                self.add(path, What::Symlink(to.into_bytes()), &stat, Vec::new())
            }
            FileType::Fifo => self.add(path, What::Fifo, &stat, Vec::new()),
            FileType::Socket => self.add(path, What::Socket, &stat, Vec::new()),
            _ => Err(Error::Declared(format!(
                "{} is a device: no checkpoint holds one",
                self.shown(&path)
            ))),
        }
    }

    fn file(&mut self, directory: &OwnedFd, name: &[u8], path: Vec<u8>, stat: &Stat) -> Result<()> {
        if stat.st_nlink > 1 {
            if let Some(first) = self.names.get(&stat.st_ino) {
                let to = first.clone();
                return self.add(path, What::Link(to), stat, Vec::new());
            }
            self.names.insert(stat.st_ino, path.clone());
        }
        if let Some((what, attributes)) = self.unchanged(&path, stat) {
            return self.add(path, what, stat, attributes);
        }
        for _ in 0..TRIES {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match openat(directory, name, flags, Mode::empty()) {
                Err(Errno::NOENT) if self.reading.fuzzy => return Ok(()),
                file => File::from(file.at("open", self.shown(&path))?),
            };
            let before = fstat(&file).at("examine", self.shown(&path))?;
            let attributes = xattrs(&file);
            let (id, size) = self.keep(file.try_clone().at("read", self.shown(&path))?)?;
            let after = fstat(&file).at("examine", self.shown(&path))?;
            if self.reading.fuzzy
                || (same(&before, &after) && size == before.st_size.unsigned_abs())
            {
                return self.add(path, What::File(id, size), &before, attributes);
            }
        }
        let why = format!("{} changes all the while", self.shown(&path));
        let next = "Stop what writes there with a command in [checkpoint], or leave it out";
        Err(Problem::new("changing", why, next).into())
    }

    fn keep(&self, mut file: File) -> Result<(ObjectId, u64)> {
        match self.contents {
            Some(contents) => contents.put_stream(&mut file),
            None => hash_stream(&mut file).at("read", self.top),
        }
    }

    /// What was known of a file, if it is certainly the same still.
    fn unchanged(&self, path: &[u8], stat: &Stat) -> Option<(What, Xattrs)> {
        let known = self.known.get(path)?;
        let read_at = self.reading.known?.read_at_ns;
        let What::File(id, size) = known.what else { return None };
        let seen = Seen { ino: stat.st_ino, ctime_ns: ctime(stat) };
        let same = known.seen == seen
            && size == stat.st_size.unsigned_abs()
            && known.mtime_ns == mtime(stat);
        let settled = ctime(stat) < read_at - RACY_NS;
        let kept = || self.contents.is_some_and(|it| it.exists(&id).unwrap_or(false));
        (same && settled && kept()).then(|| (known.what.clone(), known.xattrs.clone()))
    }

    fn add(&mut self, path: Vec<u8>, what: What, stat: &Stat, xattrs: Xattrs) -> Result<()> {
        // Only what its maker holds open lives longer than it.
        if what == What::Socket {
            return Ok(());
        }
        self.tree.nodes.push(Node {
            path,
            what,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime_ns: mtime(stat),
            xattrs,
            seen: Seen { ino: stat.st_ino, ctime_ns: ctime(stat) },
        });
        Ok(())
    }

    fn shown(&self, path: &[u8]) -> String {
        self.top.join(std::ffi::OsStr::from_bytes(path)).display().to_string()
    }
}

/// Hashes what a file holds.
pub fn hash_stream(source: &mut dyn std::io::Read) -> std::io::Result<(ObjectId, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut size = 0;
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok((ObjectId(*hasher.finalize().as_bytes()), size)),
            Ok(length) => {
                hasher.update(&buffer[..length]);
                size += length as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes that can be brought back; those of a file system that has none are none.
fn xattrs(file: impl AsFd) -> Xattrs {
    let file = file.as_fd();
    let mut list = vec![0; 1 << 16];
    let Ok(length) = rustix::fs::flistxattr(file, &mut list) else { return Vec::new() };
    let mut found = Vec::new();
    for name in list[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(text) = std::ffi::CStr::from_bytes_with_nul(name) else { continue };
        let bytes = text.to_bytes();
        if !bytes.starts_with(b"user.") && !bytes.starts_with(b"system.posix_acl_") {
            continue;
        }
        let mut value = vec![0; 1 << 16];
        if let Ok(length) = rustix::fs::fgetxattr(file, text, &mut value) {
            value.truncate(length);
            found.push((bytes.to_vec(), value));
        }
    }
    found.sort();
    found
}

fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_size, mtime(a), ctime(a)) == (b.st_size, mtime(b), ctime(b))
}

fn mtime(stat: &Stat) -> i64 {
    stat.st_mtime * 1_000_000_000 + i64::try_from(stat.st_mtime_nsec).unwrap_or(0)
}

fn ctime(stat: &Stat) -> i64 {
    stat.st_ctime * 1_000_000_000 + i64::try_from(stat.st_ctime_nsec).unwrap_or(0)
}

fn now_ns() -> i64 {
    use chronicle_core::Clock;
    chronicle_core::SystemClock.now().0
}
