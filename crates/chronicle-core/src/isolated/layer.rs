//! Reads the layer that an isolated run wrote: which paths it holds, and what it hides.
//!
//! The command could put anything there, so every access begins at the layer's own handle and
//! follows no link. Only what the layer holds is looked at, never the workspace below it.

use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType};

use crate::error::{Context, Result};
use crate::fs::{Root, Roots, Stat};
use crate::path::WorkspacePath;

/// The mark of a directory that hides all that lies below it, with and without privileges.
const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];
/// What the kernel writes for itself, where users may set the layer's marks.
const MARKS: &[u8] = b"user.overlay.";
/// Such a name of the command's own gets this put into it by the kernel.
const ESCAPED: &[u8] = b"user.overlay.overlay.";

/// What the layer says about one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing stands there any more.
    Gone,
    /// A directory; `alone` hides what was in it.
    Directory {
        /// What the layer does not hold of it is gone.
        alone: bool,
    },
    /// Anything else, whole.
    Other,
}

/// One path of the layer.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) path: WorkspacePath,
    pub(crate) stat: Stat,
    pub(crate) what: What,
}

/// All paths of a layer, in their order.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) roots: Roots,
    pub(crate) items: Vec<Item>,
}

impl Layer {
    /// Reads the names and stats of everything in the layer.
    pub(crate) fn read(upper: &Path, user_xattrs: bool) -> Result<Self> {
        let roots = Roots::new(Root::open(upper)?, Vec::new());
        let mut items = Vec::new();
        let stat = roots.lstat(&WorkspacePath::root())?;
        let stat = stat.ok_or(rustix::io::Errno::NOENT).at("read", upper)?;
        let top = WorkspacePath::root();
        items.push(Item { path: top.clone(), stat, what: What::Directory { alone: false } });
        let mut open = vec![top];
        while let Some(path) = open.pop() {
            for item in list(&roots, &path, user_xattrs)? {
                if matches!(item.what, What::Directory { .. }) {
                    open.push(item.path.clone());
                }
                items.push(item);
            }
        }
        items.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { roots, items })
    }
}

/// Whether a layer holds more than so many paths; nothing but names is read.
pub(crate) fn holds_more_than(upper: &Path, most: usize) -> Result<bool> {
    let roots = Roots::new(Root::open(upper)?, Vec::new());
    let (mut held, mut open) = (0, vec![WorkspacePath::root()]);
    while let Some(path) = open.pop() {
        let directory = roots.open_directory(&path)?;
        for entry in Dir::read_from(&directory).at("list", roots.real(&path))? {
            let entry = entry.at("list", roots.real(&path))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            held += 1;
            if held > most {
                return Ok(true);
            }
            if entry.file_type() == FileType::Directory {
                open.push(path.join(name.to_bytes()));
            }
        }
    }
    Ok(false)
}

fn list(roots: &Roots, path: &WorkspacePath, user_xattrs: bool) -> Result<Vec<Item>> {
    let real = || roots.real(path);
    let directory = roots.open_directory(path)?;
    let mut items = Vec::new();
    for entry in Dir::read_from(&directory).at("list", real())? {
        let entry = entry.at("list", real())?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let child = path.join(name.to_bytes());
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.at("look at", roots.real(&child))?;
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => What::Gone,
            FileType::Directory => What::Directory { alone: is_alone(roots, &child, user_xattrs)? },
            _ => What::Other,
        };
        items.push(Item { path: child, stat: stat.into(), what });
    }
    Ok(items)
}

fn is_alone(roots: &Roots, path: &WorkspacePath, user_xattrs: bool) -> Result<bool> {
    let directory = roots.open_directory(path)?;
    let mut value = [0; 8];
    let name = OPAQUE[usize::from(user_xattrs)];
    match rustix::fs::fgetxattr(&directory, name, &mut value[..]) {
        Ok(length) => Ok(&value[..length] == b"y"),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error).at("read", roots.real(path)),
    }
}

/// The attributes as the command saw them: without the kernel's own, and with its own names.
pub(crate) fn plain_xattrs(xattrs: &mut Vec<(Vec<u8>, Vec<u8>)>) {
    for (name, _) in xattrs.iter_mut() {
        if let Some(rest) = name.strip_prefix(ESCAPED) {
            *name = [b"\0", MARKS, rest].concat();
        }
    }
    xattrs.retain(|(name, _)| !name.starts_with(MARKS));
    for (name, _) in xattrs.iter_mut() {
        if name.first() == Some(&0) {
            name.remove(0);
        }
    }
    xattrs.sort();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[&str], expected: &[&str]) {
        let pair = |name: &&str| (name.as_bytes().to_vec(), b"v".to_vec());
        let mut xattrs: Vec<_> = given.iter().map(pair).collect();
        plain_xattrs(&mut xattrs);
        assert_eq!(xattrs, expected.iter().map(pair).collect::<Vec<_>>());
    }

    #[test]
    fn only_the_kernels_own_marks_are_left_out() {
        check(&["user.a", "user.overlay.opaque", "user.overlay.origin"], &["user.a"]);
        check(&["user.overlay.overlay.opaque", "user.z"], &["user.overlay.opaque", "user.z"]);
    }
}
