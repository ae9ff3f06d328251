//! Describes a real directory exactly, and says how two descriptions differ.
//!
//! Reads with plain system calls and knows nothing of Chronicle, so that it can judge it. What no
//! rewind can bring back (ctime, inode numbers) is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::git;

/// What stands at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is and holds.
    pub kind: Kind,
    /// Permission bits; 0 for a symbolic link.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Modification time; only files' unless [`Options::all_times`] asks for more.
    pub mtime_ns: Option<i64>,
    /// The attributes that people set, `user.*`.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The kinds, with their content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file: length, and BLAKE3 of the bytes in hexadecimal.
    File(u64, String),
    /// A directory.
    Directory,
    /// A symbolic link and where it points.
    Symlink(Vec<u8>),
    /// A fifo, socket or device: the kind bits of its mode.
    Special(u32),
}

/// A whole tree: every path below its top, and which of them are one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Paths relative to the top, as bytes.
    pub nodes: BTreeMap<Vec<u8>, Node>,
    /// Sets of names of one file.
    pub links: BTreeSet<BTreeSet<Vec<u8>>>,
    /// What git says of the repositories, by their tops.
    pub repositories: BTreeMap<Vec<u8>, String>,
}

/// What to describe.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Paths to leave out, with everything below.
    pub skip: Vec<Vec<u8>>,
    /// Whether the times of directories and symbolic links count.
    pub all_times: bool,
    /// Whether what is in a `.git` is told by git, and not by its files.
    pub repositories: bool,
}

/// Describes everything below a directory.
pub fn describe(top: &Path) -> Tree {
    describe_with(top, &Options::default())
}

/// Describes what the options ask for below a directory.
pub fn describe_with(top: &Path, options: &Options) -> Tree {
    let (mut tree, mut inodes) = (Tree::default(), BTreeMap::new());
    walk(top, &mut Vec::new(), options, &mut tree, &mut inodes);
    tree.links = inodes.into_values().filter(|names: &BTreeSet<_>| names.len() > 1).collect();
    tree
}

type Inodes = BTreeMap<(u64, u64), BTreeSet<Vec<u8>>>;

fn walk(top: &Path, at: &mut Vec<u8>, options: &Options, tree: &mut Tree, inodes: &mut Inodes) {
    for name in names(&real(top, at)) {
        let length = at.len();
        if length > 0 {
            at.push(b'/');
        }
        at.extend_from_slice(&name);
        if options.repositories && name == b".git" {
            tree.repositories.insert(at[..length].to_vec(), git::facts(&real(top, &at[..length])));
        } else if !options.skip.contains(at) {
            visit(top, at, options, tree, inodes);
        }
        at.truncate(length);
    }
}

fn visit(top: &Path, at: &mut Vec<u8>, options: &Options, tree: &mut Tree, inodes: &mut Inodes) {
    let path = real(top, at);
    let meta = fs::symlink_metadata(&path).unwrap_or_else(|error| fail("stat", &path, &error));
    tree.nodes.insert(at.clone(), node(&path, &meta, options));
    if meta.is_file() && meta.nlink() > 1 {
        inodes.entry((meta.dev(), meta.ino())).or_default().insert(at.clone());
    }
    if meta.is_dir() {
        walk(top, at, options, tree, inodes);
    }
}

fn node(path: &Path, meta: &Metadata, options: &Options) -> Node {
    let kind = if meta.is_file() {
        Kind::File(meta.len(), hash(path))
    } else if meta.is_dir() {
        Kind::Directory
    } else if meta.is_symlink() {
        let target = fs::read_link(path).unwrap_or_else(|error| fail("read link", path, &error));
        Kind::Symlink(target.as_os_str().as_bytes().to_vec())
    } else {
        Kind::Special(meta.mode() & 0o170_000)
    };
    let timed = meta.is_file() || options.all_times;
    Node {
        kind,
        mode: if meta.is_symlink() { 0 } else { meta.mode() & 0o7777 },
        owner: (meta.uid(), meta.gid()),
        mtime_ns: timed.then(|| meta.mtime() * 1_000_000_000 + meta.mtime_nsec()),
        xattrs: if meta.is_file() || meta.is_dir() { xattrs(path) } else { Vec::new() },
    }
}

fn hash(path: &Path) -> String {
    let mut file = fs::File::open(path).unwrap_or_else(|error| fail("open", path, &error));
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).unwrap_or_else(|error| fail("read", path, &error)) {
            0 => return hasher.finalize().to_hex().to_string(),
            count => hasher.update(&buffer[..count]),
        };
    }
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut list = vec![0; 4096];
    let count = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let mut found: Vec<_> = list[..count]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."))
        .map(|name| (name.to_vec(), xattr(path, name)))
        .collect();
    found.sort();
    found
}

fn xattr(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut value = vec![0; 1 << 16];
    let count = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap_or(0);
    value.truncate(count);
    value
}

/// The names in a directory, in the order of their bytes.
pub fn names(directory: &Path) -> Vec<Vec<u8>> {
    let list = fs::read_dir(directory).unwrap_or_else(|error| fail("list", directory, &error));
    let mut names: Vec<_> = list
        .map(|item| item.unwrap_or_else(|error| fail("list", directory, &error)))
        .map(|item| item.file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    names
}

/// The path of these bytes below a directory.
pub fn real(top: &Path, relative: &[u8]) -> PathBuf {
    if relative.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(relative)) }
}

fn fail(action: &str, path: &Path, error: &std::io::Error) -> ! {
    panic!("could not {action} {}: {error}", path.display())
}

/// How two trees differ, one line a path; empty for equal ones.
pub fn differences(want: &Tree, got: &Tree) -> Vec<String> {
    let paths: BTreeSet<_> = want.nodes.keys().chain(got.nodes.keys()).collect();
    let mut lines: Vec<_> = paths
        .into_iter()
        .filter(|path| want.nodes.get(*path) != got.nodes.get(*path))
        .map(|path| {
            let show = |tree: &Tree| tree.nodes.get(path).map_or("nothing".to_owned(), show);
            format!("{}: want {}, got {}", path.escape_ascii(), show(want), show(got))
        })
        .collect();
    let tops: BTreeSet<_> = want.repositories.keys().chain(got.repositories.keys()).collect();
    for top in tops {
        let (want, got) = (want.repositories.get(top), got.repositories.get(top));
        if want != got {
            lines.push(format!(
                "repository {}:\n    want {want:?}\n    got  {got:?}",
                top.escape_ascii()
            ));
        }
    }
    if want.links != got.links {
        let show = |tree: &Tree| tree.links.iter().map(show_links).collect::<Vec<_>>().join(" ");
        lines.push(format!("hard links: want {}, got {}", show(want), show(got)));
    }
    lines
}

fn show(node: &Node) -> String {
    let what = match &node.kind {
        Kind::File(size, hash) => format!("file of {size} bytes {}", &hash[..12]),
        Kind::Directory => "directory".to_owned(),
        Kind::Symlink(target) => format!("link to {}", target.escape_ascii()),
        Kind::Special(bits) => format!("special {bits:o}"),
    };
    let time = node.mtime_ns.map_or(String::new(), |time| format!(" at {time}"));
    let xattrs = if node.xattrs.is_empty() {
        String::new()
    } else {
        format!(" with {} attributes {:?}", node.xattrs.len(), node.xattrs)
    };
    format!("{what} {:o} of {}:{}{time}{xattrs}", node.mode, node.owner.0, node.owner.1)
}

fn show_links(names: &BTreeSet<Vec<u8>>) -> String {
    format!(
        "{{{}}}",
        names.iter().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>().join(", ")
    )
}

impl Tree {
    /// The part at or below one path, without hard links.
    pub fn part(&self, path: &[u8]) -> Tree {
        self.filter(|other| is_within(other, path))
    }

    /// Everything but the part at or below one path, without hard links.
    pub fn without(&self, path: &[u8]) -> Tree {
        self.filter(|other| !is_within(other, path))
    }

    fn filter(&self, keep: impl Fn(&[u8]) -> bool) -> Tree {
        let nodes = self.nodes.iter().filter(|(path, _)| keep(path));
        let repositories = self.repositories.iter().filter(|(path, _)| keep(path));
        Tree {
            nodes: nodes.map(|(path, node)| (path.clone(), node.clone())).collect(),
            links: BTreeSet::new(),
            repositories: repositories.map(|(top, facts)| (top.clone(), facts.clone())).collect(),
        }
    }
}

fn is_within(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Panics with the differences, if there are any.
#[track_caller]
pub fn assert_same(want: &Tree, got: &Tree, what: &str) {
    let lines = differences(want, got);
    assert!(lines.is_empty(), "{what}:\n  {}", lines.join("\n  "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn sample() -> (tempfile::TempDir, PathBuf) {
        let holder = tempfile::tempdir().unwrap();
        let top = holder.path().join("top");
        fs::create_dir_all(top.join("d/empty")).unwrap();
        fs::write(top.join("d/file"), b"text").unwrap();
        fs::hard_link(top.join("d/file"), top.join("other name")).unwrap();
        symlink("nowhere", top.join("link")).unwrap();
        (holder, top)
    }

    #[test]
    fn an_untouched_tree_equals_itself() {
        let (_holder, top) = sample();
        assert_eq!(differences(&describe(&top), &describe(&top)), Vec::<String>::new());
        assert_eq!(describe(&top).nodes.len(), 5);
    }

    #[test]
    fn every_kind_of_change_is_seen() {
        type Case = (&'static str, fn(&Path));
        let changes: [Case; 6] = [
            ("d/file: want file of 4", |top| fs::write(top.join("d/file"), b"Text").unwrap()),
            ("d/empty: want directory", |top| fs::remove_dir(top.join("d/empty")).unwrap()),
            ("link: want link to nowhere", |top| {
                fs::remove_file(top.join("link")).unwrap();
                symlink("elsewhere", top.join("link")).unwrap();
            }),
            ("d: want directory", |top| {
                fs::set_permissions(top.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
            }),
            ("hard links: want {d/file, other name}", |top| {
                fs::remove_file(top.join("other name")).unwrap();
            }),
            ("new: want nothing", |top| fs::write(top.join("new"), b"").unwrap()),
        ];
        for (expected, change) in changes {
            let (_holder, top) = sample();
            let before = describe(&top);
            change(&top);
            let lines = differences(&before, &describe(&top)).join("\n");
            assert!(lines.contains(expected), "{expected:?} is not in {lines}");
        }
    }

    #[test]
    fn parts_and_the_rest_make_the_whole() {
        let (_holder, top) = sample();
        let tree = describe(&top);
        assert_eq!(tree.part(b"d").nodes.len(), 3);
        assert_eq!(tree.without(b"d").nodes.len(), 2);
    }
}
