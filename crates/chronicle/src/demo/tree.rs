//! Describes a directory tree exactly, so that two moments of it can be compared.
//!
//! On its own, with nothing of the library's: a proof must not come from what it proves.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Every path below a directory, with all that can be said about it.
pub(super) type Tree = BTreeMap<PathBuf, Described>;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    mode: u32,
    mtime_ns: i128,
    /// A file's bytes, or where a link points.
    content: Option<Vec<u8>>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in order, that is the same file by another name.
    linked_to: Option<PathBuf>,
}

/// Describes everything below a directory.
pub(super) fn describe(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut inodes = BTreeMap::new();
    walk(root, Path::new(""), &mut tree, &mut inodes)?;
    for names in inodes.into_values() {
        let names: Vec<PathBuf> = names;
        for name in &names {
            let entry = tree.get_mut(name).expect("BUG: walked before");
            entry.linked_to = (names.len() > 1).then(|| names[0].clone());
        }
    }
    Ok(tree)
}

fn walk(
    directory: &Path,
    below: &Path,
    tree: &mut Tree,
    inodes: &mut BTreeMap<u64, Vec<PathBuf>>,
) -> io::Result<()> {
    let mut names: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        let stat = fs::symlink_metadata(&path)?;
        tree.insert(name.clone(), one(&path, &stat)?);
        if stat.is_file() {
            inodes.entry(stat.ino()).or_default().push(name);
        } else if stat.is_dir() {
            walk(&path, &name, tree, inodes)?;
        }
    }
    Ok(())
}

fn one(path: &Path, stat: &fs::Metadata) -> io::Result<Described> {
    use std::os::unix::ffi::OsStringExt;
    let content = if stat.is_file() {
        Some(fs::read(path)?)
    } else if stat.is_symlink() {
        Some(fs::read_link(path)?.into_os_string().into_vec())
    } else {
        None
    };
    Ok(Described {
        mode: stat.mode(),
        mtime_ns: i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec()),
        content,
        attributes: attributes(path)?,
        linked_to: None,
    })
}

/// The extended attributes; none where the filesystem has none.
fn attributes(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut list) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut found = BTreeMap::new();
    for name in names {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// What differs between two trees, in words, leaving some paths out.
pub(super) fn differences(wanted: &Tree, found: &Tree, left_out: &[&Path]) -> Vec<String> {
    let all: std::collections::BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
    all.into_iter()
        .filter(|path| !left_out.contains(&path.as_path()))
        .filter_map(|path| {
            let words = differs(wanted.get(path), found.get(path))?;
            Some(format!("{}: {words}", path.display()))
        })
        .collect()
}

fn differs(wanted: Option<&Described>, found: Option<&Described>) -> Option<String> {
    let (wanted, found) = match (wanted, found) {
        (Some(wanted), Some(found)) => (wanted, found),
        (Some(_), None) => return Some("is missing".to_owned()),
        (None, Some(_)) => return Some("should not be there".to_owned()),
        (None, None) => return None,
    };
    let parts = [
        (wanted.mode != found.mode, "kind or mode"),
        (wanted.content != found.content, "content"),
        (wanted.mtime_ns != found.mtime_ns, "time"),
        (wanted.attributes != found.attributes, "attributes"),
        (wanted.linked_to != found.linked_to, "hard links"),
    ];
    let words: Vec<_> =
        parts.iter().filter(|(differs, _)| *differs).map(|(_, what)| *what).collect();
    (!words.is_empty()).then(|| format!("{} differ", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_is_seen() {
        let scratch = tempfile::tempdir().expect("scratch");
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("a"), "1").expect("write");
        fs::hard_link(at("a"), at("b")).expect("link");
        fs::create_dir(at("d")).expect("mkdir");
        std::os::unix::fs::symlink("a", at("l")).expect("symlink");
        let before = describe(scratch.path()).expect("describe");
        assert!(differences(&before, &before, &[]).is_empty());

        fs::remove_file(at("l")).expect("remove");
        fs::remove_file(at("b")).expect("remove");
        fs::write(at("b"), "1").expect("write");
        fs::write(at("d/new"), "x").expect("write");
        let after = describe(scratch.path()).expect("describe");
        let found = differences(&before, &after, &[Path::new("d")]);
        assert_eq!(found[0], "a: hard links differ");
        assert!(found.contains(&"d/new: should not be there".to_owned()), "{found:?}");
        assert!(found.contains(&"l: is missing".to_owned()), "{found:?}");
    }
}
