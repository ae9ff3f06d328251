//! A directory once more, with the blocks of its files shared.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, IFlags, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT,
    fstat, ioctl_getflags, ioctl_setflags, openat, readlinkat, statat,
};
use rustix::io::Errno;

use crate::error::{Context, Error, Problem, Result};

/// Directories are not followed deeper.
const DEEPEST: usize = 200;
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a tree is cloned.
#[derive(Clone, Copy)]
pub(in crate::drivers) struct Cloning<'c> {
    /// Files may change and vanish meanwhile: somebody else makes it whole.
    pub(in crate::drivers) fuzzy: bool,
    /// Files whose blocks cannot be shared are copied.
    pub(in crate::drivers) may_copy: bool,
    /// Whether a path belongs to it.
    pub(in crate::drivers) admits: &'c dyn Fn(&[u8]) -> bool,
}

/// A file or directory as it was when it was cloned.
struct Seen {
    path: Vec<u8>,
    ino: u64,
    ctime: (i64, u64),
}

struct Walk<'w> {
    from: &'w Path,
    to: &'w Path,
    how: Cloning<'w>,
    names: HashMap<(u64, u64), PathBuf>,
    seen: Vec<Seen>,
}

/// Clones a directory to a path where nothing stands, by descriptors, following nothing.
///
/// What is new is ours alone until everything is in it. Unless it is `fuzzy`, a file that changes
/// before all of them are cloned is an error, since then they were not together at one instant.
pub(in crate::drivers) fn clone_tree(from: &Path, to: &Path, how: Cloning<'_>) -> Result<()> {
    let top = rustix::fs::open(from, READ | OFlags::DIRECTORY, Mode::empty()).at("open", from)?;
    let stat = fstat(&top).at("examine", from)?;
    let mut walk = Walk { from, to, how, names: HashMap::new(), seen: Vec::new() };
    walk.directory(&top, &stat, b"", 0)?;
    if how.fuzzy { Ok(()) } else { walk.nothing_changed() }
}

impl Walk<'_> {
    fn source(&self, path: &[u8]) -> PathBuf {
        below(self.from, path)
    }

    fn directory(&mut self, from: &OwnedFd, stat: &Stat, path: &[u8], depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(Error::Declared(format!("{} is too deep", self.source(path).display())));
        }
        let to = below(self.to, path);
        fs::DirBuilder::new().mode(0o700).create(&to).at("create", &to)?;
        let made = File::open(&to).at("open", &to)?;
        same_blocks_rule(from, &made);
        self.note(path, stat);
        for name in names(from).at("list", self.source(path))? {
            let inner = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            if (self.how.admits)(&inner) {
                self.name(from, &name, &inner, depth)?;
            }
        }
        dress(from, &made, stat).at("finish", &to)
    }

    fn name(&mut self, from: &OwnedFd, name: &[u8], path: &[u8], depth: usize) -> Result<()> {
        let gone = |error: &Errno| self.how.fuzzy && *error == Errno::NOENT;
        let stat = match statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(error) if gone(&error) => return Ok(()),
            stat => stat.at("examine", self.source(path))?,
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let flags = match kind {
            FileType::Directory => READ | OFlags::DIRECTORY,
            FileType::RegularFile => READ | OFlags::NONBLOCK,
            _ => return self.other(from, name, path, &stat, kind),
        };
        let opened = match openat(from, name, flags, Mode::empty()) {
            Err(error) if gone(&error) => return Ok(()),
            opened => opened.at("open", self.source(path))?,
        };
        match kind {
            FileType::Directory => self.directory(&opened, &stat, path, depth + 1),
            _ => self.file(&File::from(opened), path),
        }
    }

    fn file(&mut self, from: &File, path: &[u8]) -> Result<()> {
        let (to, stat) = (below(self.to, path), fstat(from).at("examine", self.source(path))?);
        self.note(path, &stat);
        let id = (stat.st_dev, stat.st_ino);
        if stat.st_nlink > 1
            && let Some(first) = self.names.get(&id)
        {
            return fs::hard_link(first, &to).at("link", &to);
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to);
        let made = made.at("create", &to)?;
        same_blocks_rule(from, &made);
        match rustix::fs::ioctl_ficlone(&made, from) {
            Ok(()) => {}
            Err(_) if self.how.may_copy => {
                io::copy(&mut &*from, &mut &made).map(drop).at("copy", self.source(path))?;
            }
            Err(error) => return Err(error).at("share the blocks of", self.source(path)),
        }
        if stat.st_nlink > 1 {
            self.names.insert(id, to.clone());
        }
        dress(from, &made, &stat).at("finish", &to)
    }

    fn other(
        &mut self,
        from: &OwnedFd,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        kind: FileType,
    ) -> Result<()> {
        let to = below(self.to, path);
        match kind {
            FileType::Symlink => {
                let target = readlinkat(from, name, Vec::new()).at("read", self.source(path))?;
                let target = OsStr::from_bytes(target.to_bytes());
                std::os::unix::fs::symlink(target, &to).at("link", &to)?;
            }
            FileType::Fifo => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
                rustix::fs::mknodat(CWD, &to, FileType::Fifo, mode, 0).at("create", &to)?;
            }
            // Of no use without its maker.
            FileType::Socket => return Ok(()),
            _ => {
                let path = self.source(path);
                let why = format!("{} is a device: no checkpoint holds one", path.display());
                return Err(Error::Declared(why));
            }
        }
        let (user, group) = owner(stat);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(CWD, &to, user, group, flags).at("give away", &to)?;
        rustix::fs::utimensat(CWD, &to, &times(stat), flags).at("set the time of", &to)
    }

    fn note(&mut self, path: &[u8], stat: &Stat) {
        if !self.how.fuzzy {
            let (path, ctime) = (path.to_vec(), ctime(stat));
            self.seen.push(Seen { path, ino: stat.st_ino, ctime });
        }
    }

    fn nothing_changed(&self) -> Result<()> {
        for seen in &self.seen {
            let path = self.source(&seen.path);
            let same = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| (stat.st_ino, ctime(&stat)) == (seen.ino, seen.ctime));
            if !same {
                let why = format!("{} changed while the directory was cloned", path.display());
                let next = "Stop what writes there with a command in [checkpoint], or leave it out";
                return Err(Problem::new("changing", why, next).into());
            }
        }
        Ok(())
    }
}

fn below(top: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(path)) }
}

fn ctime(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime, stat.st_ctime_nsec)
}

fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for item in Dir::read_from(directory)? {
        let name = item?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// On Btrfs only files with the same rule for writing in place can share blocks, and it can be set only
/// while they are empty.
pub(in crate::drivers) fn same_blocks_rule(from: impl AsFd, to: impl AsFd) {
    let in_place = |flags: IFlags| flags.contains(IFlags::NOCOW);
    if let (Ok(wanted), Ok(flags)) = (ioctl_getflags(from), ioctl_getflags(&to))
        && in_place(wanted) != in_place(flags)
    {
        let _ = ioctl_setflags(to, flags ^ IFlags::NOCOW);
    }
}

/// Owner first, since giving a file away takes special bits from its mode; the time last.
fn dress(from: impl AsFd, to: &File, stat: &Stat) -> rustix::io::Result<()> {
    let (user, group) = owner(stat);
    rustix::fs::fchown(to, user, group)?;
    attributes(from, to)?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(to, &times(stat))
}

fn owner(stat: &Stat) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (stat.st_uid, stat.st_gid) == (uid, gid) {
        return (None, None);
    }
    let uid = rustix::fs::Uid::from_raw(stat.st_uid);
    (Some(uid), Some(rustix::fs::Gid::from_raw(stat.st_gid)))
}

fn times(stat: &Stat) -> Timestamps {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: nanoseconds },
    }
}

/// The attributes that people and access lists set; a file system without any has none.
fn attributes(from: impl AsFd, to: &File) -> rustix::io::Result<()> {
    let mut list = vec![0; 1 << 16];
    let Ok(length) = rustix::fs::flistxattr(&from, &mut list) else { return Ok(()) };
    for name in list[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = std::ffi::CStr::from_bytes_with_nul(name) else { continue };
        let bytes = name.to_bytes();
        if bytes.starts_with(b"user.") || bytes.starts_with(b"system.posix_acl_") {
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::fgetxattr(&from, name, &mut value)?;
            let none = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(to, name, &value[..length], none)?;
        }
    }
    Ok(())
}
