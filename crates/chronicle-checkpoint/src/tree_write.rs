//! Writing a tree from the store into a new directory, exactly and durably.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_OMIT};

use crate::contents::Contents;
use crate::error::{Context, Problem, Result};
use crate::tree::{Node, Tree, What};

/// Zeros of this length become holes.
const HOLE: usize = 4096;

impl Tree {
    /// Writes the tree to a path where nothing stands.
    ///
    /// Directories are ours alone until everything is in them, so that nobody can lead us elsewhere.
    pub fn write(&self, to: &Path, contents: &Contents<'_>) -> Result<()> {
        let at = |path: &[u8]| -> PathBuf {
            if path.is_empty() { to.to_owned() } else { to.join(std::ffi::OsStr::from_bytes(path)) }
        };
        for node in &self.nodes {
            let path = at(&node.path);
            match &node.what {
                What::Directory => {
                    fs::DirBuilder::new().mode(0o700).create(&path).at("create", &path)?;
                }
                What::File(id, size) => {
                    write_file(&path, contents.reader(id)?.as_mut(), *size)?;
                    finish(node, &path)?;
                }
                What::Link(to) => fs::hard_link(at(to), &path).at("link", &path)?,
                What::Symlink(target) => {
                    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &path)
                        .at("link", &path)?;
                    finish(node, &path)?;
                }
                What::Fifo => {
                    let mode = Mode::from_raw_mode(0o600);
                    rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                        .at("create", &path)?;
                    finish(node, &path)?;
                }
                What::Socket => {}
            }
        }
        for node in self.nodes.iter().rev().filter(|node| node.what == What::Directory) {
            finish(node, &at(&node.path))?;
        }
        let top = File::open(to).at("open", to)?;
        rustix::fs::syncfs(&top).at("sync", to)
    }
}

/// Writes content to a new file, with holes where there are only zeros.
pub fn write_file(path: &Path, source: &mut dyn Read, size: u64) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.at("create", path)?;
    let mut buffer = vec![0; 1 << 18];
    let mut offset = 0;
    loop {
        let length = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(path, &error)),
        };
        for (at, block) in buffer[..length].chunks(HOLE).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                let place = offset + (at * HOLE) as u64;
                file.write_all_at(block, place).at("write", path)?;
            }
        }
        offset += length as u64;
    }
    file.set_len(size).at("write", path)?;
    match offset == size {
        true => Ok(()),
        false => Err(Problem::new(
            "bad_length",
            format!("the content for {} has another length than the manifest says", path.display()),
            "Restore another checkpoint: chronicle checkpoint list",
        )
        .into()),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> crate::error::Error {
    let why = format!("the content for {} cannot be read: {error}", path.display());
    let next = "chronicle doctor says what is damaged; restore another checkpoint";
    Problem::new("damaged_content", why, next).into()
}

/// Owner first, since giving a file away takes special bits from its mode; the time last.
fn finish(node: &Node, path: &Path) -> Result<()> {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (node.uid, node.gid) != own {
        let (uid, gid) = (rustix::fs::Uid::from_raw(node.uid), rustix::fs::Gid::from_raw(node.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags).at("give away", path)?;
    }
    for (name, value) in &node.xattrs {
        let name = std::ffi::OsStr::from_bytes(name);
        rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())
            .at("set an attribute of", path)?;
    }
    if !matches!(node.what, What::Symlink(_)) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(node.mode);
        fs::set_permissions(path, mode).at("set the mode of", path)?;
    }
    let modified = Timespec {
        tv_sec: node.mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: node.mtime_ns.rem_euclid(1_000_000_000),
    };
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: modified,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).at("set the time of", path)
}
