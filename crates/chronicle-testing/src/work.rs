//! Random work on a real directory, as editors, builds and hostile shells do it.
//!
//! One seed and one tree give one sequence of operations. It uses plain system calls and knows
//! nothing of Chronicle. An operation that the file system refuses is no operation. No write goes
//! through a symbolic link: some of them point at files of the machine.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, Mode, OFlags, XattrFlags};

use crate::dice::Dice;
use crate::{git, tree};

/// Which operations may happen.
#[derive(Debug, Clone, Copy)]
pub struct Menu {
    /// Renames: of files, over files, of directories.
    pub moves: bool,
    /// Hard links.
    pub links: bool,
    /// Fifos.
    pub specials: bool,
    /// Rarely a file of 64 MiB.
    pub large: bool,
    /// A `.chronicleignore` that nobody accepted, which must change nothing.
    pub filters: bool,
    /// Repositories, worked on with git itself.
    pub git: bool,
}

impl Menu {
    /// Everything but the large file.
    pub const ALL: Self =
        Self { moves: true, links: true, specials: true, large: false, filters: true, git: false };
    /// What leaves every path on its own: no renames, no hard links.
    pub const APART: Self = Self { moves: false, links: false, ..Self::ALL };
    /// Repositories among the rest. Git trips over fifos, and a file with several names in and
    /// outside of a repository is not one that it writes.
    pub const GIT: Self = Self { git: true, specials: false, links: false, ..Self::ALL };
}

/// Does random work below a directory.
#[derive(Debug)]
pub struct Random {
    top: PathBuf,
    dice: Dice,
    menu: Menu,
}

type Operation = fn(&mut Random) -> io::Result<String>;

/// The operations and how often each comes.
const OPERATIONS: [(usize, Operation); 24] = [
    (6, Random::create),
    (3, Random::append),
    (3, Random::write_in_place),
    (3, Random::edit_unseen),
    (2, Random::truncate),
    (3, Random::unlink),
    (2, Random::replace_by_rename),
    (2, Random::rename),
    (2, Random::rename_over),
    (2, Random::rename_directory),
    (2, Random::chmod),
    (1, Random::chmod_directory),
    (2, Random::make_directories),
    (2, Random::remove_directory),
    (2, Random::make_symlink),
    (1, Random::swap_symlink),
    (1, Random::file_to_directory),
    (1, Random::directory_to_file),
    (2, Random::hard_link),
    (2, Random::set_attribute),
    (1, Random::remove_attribute),
    (1, Random::make_fifo),
    (1, Random::write_filter),
    (1, Random::large_file),
];

/// How deep directories may nest, so that random renames do not reach the limits of a path.
const DEPTH_MAX: usize = 8;

impl Random {
    /// Work below this directory; the same seed does the same work on the same tree.
    pub fn new(top: &Path, seed: u64, menu: Menu) -> Self {
        Self { top: top.to_owned(), dice: Dice::new(seed), menu }
    }

    /// One operation, told in words.
    pub fn step(&mut self) -> String {
        if self.menu.git && self.dice.chance(40) {
            return self.git_step().unwrap_or_else(|error| format!("refused: {error}"));
        }
        let total: usize = OPERATIONS.iter().map(|(weight, _)| weight).sum();
        let mut left = self.dice.below(total);
        for (weight, operation) in OPERATIONS {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return operation(self).unwrap_or_else(|error| format!("refused: {error}")),
            }
        }
        unreachable!("BUG: the weights do not add up")
    }

    /// Several operations.
    pub fn steps(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.step()).collect()
    }

    /// A path below the top at which something stands, if anything does.
    pub fn any_path(&mut self) -> Option<Vec<u8>> {
        let all = self.paths(|_| true);
        self.dice.pick_any(&all).cloned()
    }

    fn paths(&self, want: impl Fn(&fs::Metadata) -> bool) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        collect(&self.top, &mut Vec::new(), &want, &mut found);
        found
    }

    fn file(&mut self) -> io::Result<Vec<u8>> {
        let files = self.paths(fs::Metadata::is_file);
        self.dice.pick_any(&files).cloned().ok_or_else(nothing)
    }

    fn directory(&mut self) -> io::Result<Vec<u8>> {
        let directories = self.paths(fs::Metadata::is_dir);
        self.dice.pick_any(&directories).cloned().ok_or_else(nothing)
    }

    /// A directory to put something into: the top or any below.
    fn somewhere(&mut self) -> Vec<u8> {
        let mut directories = self.paths(fs::Metadata::is_dir);
        directories.retain(|path| depth(path) < DEPTH_MAX);
        directories.push(Vec::new());
        self.dice.pick(&directories).clone()
    }

    fn new_path(&mut self) -> Vec<u8> {
        let mut path = self.somewhere();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&self.name());
        path
    }

    fn name(&mut self) -> Vec<u8> {
        const NAMES: [&[u8]; 10] = [
            b"a",
            b"b.txt",
            b"main.rs",
            b".env",
            b"with space",
            b"\xff\xfe-bytes",
            "\u{fc}n\u{ef}".as_bytes(),
            b"-dash",
            b"new\nline",
            b"out",
        ];
        let mut name = self.dice.pick(&NAMES).to_vec();
        if self.dice.chance(3) {
            name = vec![b'x'; 200];
        }
        name.extend_from_slice(self.dice.below(5).to_string().as_bytes());
        name
    }

    fn content(&mut self) -> Vec<u8> {
        match self.dice.below(12) {
            0 => Vec::new(),
            1 => {
                let size = self.dice.between(1, 60_000);
                self.dice.bytes(size)
            }
            2 => vec![b'z'; self.dice.below(300_000)],
            _ => {
                let lines = self.dice.between(1, 60);
                let line = |at| format!("line {at} {}\n", self.dice.below(50)).into_bytes();
                (0..lines).flat_map(line).collect()
            }
        }
    }

    fn real(&self, path: &[u8]) -> PathBuf {
        tree::real(&self.top, path)
    }

    fn create(&mut self) -> io::Result<String> {
        let (path, content) = (self.new_path(), self.content());
        put(&self.real(&path), &content)?;
        Ok(format!("write {} ({} bytes)", path.escape_ascii(), content.len()))
    }

    fn append(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let mut content = self.content();
        content.truncate(500);
        content.push(b'x');
        OpenOptions::new().append(true).open(self.real(&path))?.write_all(&content)?;
        Ok(format!("append to {}", path.escape_ascii()))
    }

    fn write_in_place(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let mut file = OpenOptions::new().write(true).open(self.real(&path))?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let at = self.dice.below(size + 20);
        file.seek(SeekFrom::Start(at as u64))?;
        file.write_all(&self.dice.bytes(5))?;
        Ok(format!("write into {} at {at}", path.escape_ascii()))
    }

    /// The same size and the same time of modification: only the status change time tells.
    ///
    /// Git looks at whole seconds only, and would see it or not as they fall.
    fn edit_unseen(&mut self) -> io::Result<String> {
        self.allowed(!self.menu.git)?;
        let path = self.file()?;
        let mut file = OpenOptions::new().write(true).open(self.real(&path))?;
        let before = file.metadata()?;
        let size = usize::try_from(before.len()).unwrap_or(0);
        if size == 0 {
            return Err(nothing());
        }
        file.seek(SeekFrom::Start(self.dice.below(size) as u64))?;
        file.write_all(&self.dice.bytes(1))?;
        let time = before.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        file.set_modified(time)?;
        Ok(format!("edit {} and put its time back", path.escape_ascii()))
    }

    fn truncate(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let size = self.dice.below(400);
        OpenOptions::new().write(true).open(self.real(&path))?.set_len(size as u64)?;
        Ok(format!("truncate {} to {size}", path.escape_ascii()))
    }

    fn unlink(&mut self) -> io::Result<String> {
        let all = self.paths(|meta| !meta.is_dir());
        let path = self.dice.pick_any(&all).cloned().ok_or_else(nothing)?;
        fs::remove_file(self.real(&path))?;
        Ok(format!("unlink {}", path.escape_ascii()))
    }

    /// As careful editors save: a new file, then a rename over the old.
    fn replace_by_rename(&mut self) -> io::Result<String> {
        let (path, content) = (self.file()?, self.content());
        let aside = self.top.join(".save-aside");
        put(&aside, &content)?;
        fs::rename(&aside, self.real(&path))?;
        Ok(format!("replace {} by rename", path.escape_ascii()))
    }

    fn rename(&mut self) -> io::Result<String> {
        self.allowed(self.menu.moves)?;
        let (from, to) = (self.file()?, self.new_path());
        fs::rename(self.real(&from), self.real(&to))?;
        Ok(format!("rename {} to {}", from.escape_ascii(), to.escape_ascii()))
    }

    fn rename_over(&mut self) -> io::Result<String> {
        self.allowed(self.menu.moves)?;
        let (from, to) = (self.file()?, self.file()?);
        fs::rename(self.real(&from), self.real(&to))?;
        Ok(format!("rename {} over {}", from.escape_ascii(), to.escape_ascii()))
    }

    fn rename_directory(&mut self) -> io::Result<String> {
        self.allowed(self.menu.moves)?;
        let (from, to) = (self.directory()?, self.new_path());
        fs::rename(self.real(&from), self.real(&to))?;
        Ok(format!("rename directory {} to {}", from.escape_ascii(), to.escape_ascii()))
    }

    fn chmod(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let mode = *self.dice.pick(&[0o600, 0o644, 0o755, 0o444, 0o700, 0o4755]);
        fs::set_permissions(self.real(&path), Permissions::from_mode(mode))?;
        Ok(format!("chmod {mode:o} {}", path.escape_ascii()))
    }

    fn chmod_directory(&mut self) -> io::Result<String> {
        let path = self.directory()?;
        let mode = *self.dice.pick(&[0o700, 0o755, 0o1777, 0o2755]);
        fs::set_permissions(self.real(&path), Permissions::from_mode(mode))?;
        Ok(format!("chmod {mode:o} directory {}", path.escape_ascii()))
    }

    fn make_directories(&mut self) -> io::Result<String> {
        let mut path = self.new_path();
        fs::create_dir(self.real(&path))?;
        for _ in 0..self.dice.below(4) {
            path.push(b'/');
            path.extend_from_slice(&self.name());
            fs::create_dir(self.real(&path))?;
        }
        Ok(format!("mkdir -p {}", path.escape_ascii()))
    }

    fn remove_directory(&mut self) -> io::Result<String> {
        let path = self.directory()?;
        fs::remove_dir_all(self.real(&path))?;
        Ok(format!("rm -r {}", path.escape_ascii()))
    }

    fn make_symlink(&mut self) -> io::Result<String> {
        let path = self.new_path();
        let target = *self.dice.pick(&["a0", "/etc/passwd", "../..", "nowhere", "out1"]);
        symlink(target, self.real(&path))?;
        Ok(format!("symlink {} to {target}", path.escape_ascii()))
    }

    fn swap_symlink(&mut self) -> io::Result<String> {
        let all = self.paths(fs::Metadata::is_symlink);
        let path = self.dice.pick_any(&all).cloned().ok_or_else(nothing)?;
        fs::remove_file(self.real(&path))?;
        symlink(format!("other-{}", self.dice.below(9)), self.real(&path))?;
        Ok(format!("point {} elsewhere", path.escape_ascii()))
    }

    fn file_to_directory(&mut self) -> io::Result<String> {
        let path = self.file()?;
        fs::remove_file(self.real(&path))?;
        fs::create_dir(self.real(&path))?;
        put(&self.real(&path).join("in"), b"in")?;
        Ok(format!("replace file {} by a directory", path.escape_ascii()))
    }

    fn directory_to_file(&mut self) -> io::Result<String> {
        let path = self.directory()?;
        fs::remove_dir_all(self.real(&path))?;
        put(&self.real(&path), b"was a directory")?;
        Ok(format!("replace directory {} by a file", path.escape_ascii()))
    }

    fn hard_link(&mut self) -> io::Result<String> {
        self.allowed(self.menu.links)?;
        let (from, to) = (self.file()?, self.new_path());
        fs::hard_link(self.real(&from), self.real(&to))?;
        Ok(format!("link {} as {}", from.escape_ascii(), to.escape_ascii()))
    }

    fn set_attribute(&mut self) -> io::Result<String> {
        let path = self.file()?;
        let size = self.dice.between(1, 40);
        let (value, name) = (self.dice.bytes(size), format!("user.note{}", self.dice.below(2)));
        rustix::fs::setxattr(self.real(&path), &*name, &value, XattrFlags::empty())?;
        Ok(format!("set {name} of {}", path.escape_ascii()))
    }

    fn remove_attribute(&mut self) -> io::Result<String> {
        let path = self.file()?;
        rustix::fs::removexattr(self.real(&path), "user.note0")?;
        Ok(format!("remove user.note0 of {}", path.escape_ascii()))
    }

    fn make_fifo(&mut self) -> io::Result<String> {
        self.allowed(self.menu.specials)?;
        let path = self.new_path();
        rustix::fs::mknodat(CWD, self.real(&path), FileType::Fifo, Mode::from(0o600), 0)?;
        Ok(format!("mkfifo {}", path.escape_ascii()))
    }

    fn write_filter(&mut self) -> io::Result<String> {
        self.allowed(self.menu.filters)?;
        let rule = *self.dice.pick(&["*.txt\n", "out*/\n", "a?\n", ""]);
        put(&self.top.join(".chronicleignore"), rule.as_bytes())?;
        Ok(format!("write {rule:?} to .chronicleignore, not accepted"))
    }

    fn large_file(&mut self) -> io::Result<String> {
        let rarely = self.menu.large && self.dice.chance(20);
        self.allowed(rarely)?;
        let path = self.new_path();
        put(&self.real(&path), &self.dice.bytes(1 << 20).repeat(64))?;
        Ok(format!("write {} (64 MiB)", path.escape_ascii()))
    }

    /// Works on a repository, or makes the first ones.
    fn git_step(&mut self) -> io::Result<String> {
        let mut tops = self.paths(fs::Metadata::is_dir);
        tops.push(Vec::new());
        tops.retain(|path| git::is_repository(&self.real(path)));
        if tops.len() < 2 && self.dice.chance(if tops.is_empty() { 100 } else { 10 }) {
            let top = self.somewhere();
            git::init(&self.real(&top))?;
            return Ok(format!("git init {:?}", top.escape_ascii().to_string()));
        }
        let top = self.dice.pick_any(&tops).cloned().ok_or_else(nothing)?;
        let told = git::step(&self.real(&top), &mut self.dice)?;
        Ok(format!("in {:?}: git {told}", top.escape_ascii().to_string()))
    }

    fn allowed(&self, allowed: bool) -> io::Result<()> {
        if allowed { Ok(()) } else { Err(io::Error::other("not on the menu")) }
    }
}

/// Makes or overwrites a file; a symbolic link is refused and a fifo does not block.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(flags.cast_signed());
    options.open(path)?.write_all(content)
}

fn nothing() -> io::Error {
    io::Error::other("nothing there to work on")
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

fn collect(
    top: &Path,
    at: &mut Vec<u8>,
    want: &impl Fn(&fs::Metadata) -> bool,
    found: &mut Vec<Vec<u8>>,
) {
    // What is in a repository's metadata is git's to change.
    let names = tree::names(&tree::real(top, at)).into_iter().filter(|name| name != b".git");
    for name in names {
        let length = at.len();
        if length > 0 {
            at.push(b'/');
        }
        at.extend_from_slice(&name);
        let meta = fs::symlink_metadata(tree::real(top, at)).expect("a listed name can be read");
        if want(&meta) {
            found.push(at.clone());
        }
        if meta.is_dir() {
            collect(top, at, want, found);
        }
        at.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Options, describe_with, differences};

    fn play(seed: u64) -> (tempfile::TempDir, Vec<String>) {
        let holder = tempfile::tempdir().unwrap();
        let told = Random::new(holder.path(), seed, Menu::ALL).steps(200);
        (holder, told)
    }

    #[test]
    fn one_seed_does_one_work() {
        let ((first, told), (second, again)) = (play(5), play(5));
        assert_eq!(told, again);
        let bare = |top: &Path| {
            let mut tree = describe_with(top, &Options::default());
            tree.nodes.values_mut().for_each(|node| node.mtime_ns = None);
            tree
        };
        assert_eq!(differences(&bare(first.path()), &bare(second.path())), Vec::<String>::new());
    }

    #[test]
    fn every_operation_happens_sooner_or_later() {
        let told: Vec<_> = (0..12).flat_map(|seed| play(seed).1).collect();
        for word in [
            "write ",
            "append",
            "write into",
            "put its time back",
            "truncate",
            "unlink",
            "replace",
            "rename ",
            "over",
            "rename directory",
            "chmod",
            "mkdir",
            "rm -r",
            "symlink",
            "point ",
            "by a directory",
            "by a file",
            "link ",
            "set user",
            "remove user",
            "mkfifo",
            "ignore",
        ] {
            assert!(told.iter().any(|line| line.contains(word)), "no {word:?} in 12 seeds");
        }
    }
}
