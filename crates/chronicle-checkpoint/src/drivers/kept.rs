//! What those drivers have in common that keep a whole copy of a part on its own file system.
//!
//! The copy lies in the home if that shares blocks with the part, else beside the part. A manifest of it
//! is in the content store, so that a copy that was changed is noticed, and named file by file.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chronicle_core::ObjectId;
use rustix::fs::OFlags;

use super::{directory, postgres};
use crate::driver::{Aside, Captured, End, Restoration, Site, beside};
use crate::error::{Context, Problem, Result};
use crate::exchange::{Exchange, exists};
use crate::part::{Parameters, Part, PartKind};
use crate::tree::{Node, Tree, What};

/// Where the copy lies.
const PLACE: &str = "place";
/// The object that says what is in it.
const MANIFEST: &str = "manifest";
/// In the names of copies that lie beside their part.
const WORD: &str = "kept";
const ANOTHER: &str = "Restore another checkpoint: chronicle checkpoint list";

/// What of a cluster belongs to a server that runs, and to none that will.
const OF_A_SERVER: [&[u8]; 2] = [b"postmaster.pid", b"postmaster.opts"];

/// Whether a path below a part's top belongs to what is kept of it.
pub(super) fn admits(kind: PartKind) -> fn(&[u8]) -> bool {
    match kind {
        PartKind::Postgres => |path| !OF_A_SERVER.contains(&path),
        _ => |_| true,
    }
}

/// Whether files in two directories can share blocks; nothing is left behind by the trial.
pub(super) fn share_blocks(one: &Path, other: &Path) -> bool {
    let unnamed = |directory: &Path| {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(directory)
    };
    let (Ok(mut from), Ok(to)) = (unnamed(one), unnamed(other)) else { return false };
    from.write_all(&[1; 4096]).is_ok() && rustix::fs::ioctl_ficlone(&to, &from).is_ok()
}

/// Where a copy of a part is kept: in the home, out of the way of whoever works beside the part, if blocks
/// can be shared with it there.
pub(super) fn place_for(part: &Part, site: &Site<'_>) -> Result<PathBuf> {
    fs::create_dir_all(site.place).at("create", site.place)?;
    let parent = part.path.parent().unwrap_or(Path::new("/"));
    Ok(match share_blocks(parent, site.place) {
        true => site.place.join(format!("{WORD}-{}-{}", part.name, site.id)),
        false => beside(&part.path, WORD, site.id),
    })
}

/// Has the file system write out what it holds in memory. A snapshot or a clone begins with that, so what is
/// written before the freeze is not waited for inside it.
pub(super) fn write_out(top: &Path) -> Result<()> {
    let opened = File::open(top).at("open", top)?;
    rustix::fs::syncfs(&opened).at("sync", top)
}

/// A copy that goes away again unless it is kept.
pub(super) struct Copy<'s> {
    pub(super) place: PathBuf,
    remove: fn(&Path) -> Result<()>,
    site: Site<'s>,
    kind: PartKind,
    kept: bool,
}

impl<'s> Copy<'s> {
    /// A copy that will be made at this place.
    pub(super) fn new(
        part: &Part,
        site: &Site<'s>,
        remove: fn(&Path) -> Result<()>,
    ) -> Result<Self> {
        let place = place_for(part, site)?;
        Ok(Self { place, remove, site: *site, kind: part.kind, kept: false })
    }

    /// Makes it durable and says what is in it; from now on only `discard` removes it.
    pub(super) fn keep(&mut self, driver: &str, version: u32) -> Result<Captured> {
        let top = File::open(&self.place).at("open", &self.place)?;
        rustix::fs::syncfs(&top).at("sync", &self.place)?;
        let tree = Tree::hash(&self.place, &admits(self.kind))?;
        let manifest = self.site.contents.put(&tree.encode())?;
        let parameters = Parameters::from([
            (PLACE.to_owned(), self.place.display().to_string()),
            (MANIFEST.to_owned(), manifest.hex()),
        ]);
        self.kept = true;
        Ok(Captured {
            driver: driver.to_owned(),
            version,
            absent: false,
            digest: tree.digest(),
            revision: None,
            bytes: tree.bytes(),
            parameters,
            objects: vec![manifest],
            notes: Vec::new(),
        })
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let _ = (self.remove)(&self.place);
        }
    }
}

/// Refuses what a later version of a driver kept.
pub(super) fn is_known(captured: &Captured, version: u32) -> Result<()> {
    if captured.version <= version {
        return Ok(());
    }
    let why = format!(
        "it was captured by version {} of the driver {}, and this is {version}",
        captured.version, captured.driver
    );
    let next = "Use the version of Chronicle that made it, or a later one";
    Err(Problem::new("newer_driver", why, next).into())
}

/// Where what was captured lies.
pub(super) fn place(captured: &Captured) -> Result<PathBuf> {
    let place = captured.parameters.get(PLACE).map(PathBuf::from);
    let ours = |place: &PathBuf| {
        let name = place.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        place.is_absolute()
            && (name.starts_with(b"kept-") || name.starts_with(b".chronicle-staging-kept-"))
    };
    place.filter(ours).ok_or_else(|| {
        let why = "the lock names no place where a copy can lie";
        Problem::new("copy_place_unknown", why, ANOTHER).into()
    })
}

/// What the manifest says was captured.
pub(super) fn manifest(captured: &Captured, site: &Site<'_>) -> Result<Tree> {
    let named = captured.parameters.get(MANIFEST).and_then(|text| text.parse::<ObjectId>().ok());
    let Some(id) = named else {
        let why = "the lock names no manifest of the copy";
        return Err(Problem::new("copy_manifest_unnamed", why, ANOTHER).into());
    };
    if !site.contents.exists(&id)? {
        let why = "the manifest of the copy is not in the store";
        return Err(Problem::new("copy_manifest_missing", why, ANOTHER).into());
    }
    let tree = Tree::decode(&site.contents.get(&id)?)?;
    if tree.digest() != captured.digest {
        let why = "the manifest of the copy is not the one that the lock was made with";
        return Err(Problem::new("copy_manifest_differs", why, ANOTHER).into());
    }
    if tree.bytes() != captured.bytes {
        let why = "the lock says another size than the manifest of the copy";
        return Err(Problem::new("copy_size_differs", why, ANOTHER).into());
    }
    Ok(tree)
}

/// Reads the copy and compares it with its manifest.
pub(super) fn verify(captured: &Captured, site: &Site<'_>) -> Result<()> {
    let (expected, place) = (manifest(captured, site)?, place(captured)?);
    if !exists(&place)? {
        let why = format!("the copy is not at {} any more", place.display());
        return Err(Problem::new("copy_missing", why, ANOTHER).into());
    }
    compare(&expected, &place, "copy")
}

/// Compares what stands at a path with a manifest.
pub(super) fn compare(expected: &Tree, at: &Path, what: &str) -> Result<()> {
    let all = |path: &[u8]| !OF_A_SERVER.contains(&path) || has(expected, path);
    let found = match fs::symlink_metadata(at).at("examine", at)?.is_dir() {
        true => Tree::hash(at, &all)?,
        false => {
            let why = format!("the {what} at {} is no directory", at.display());
            return Err(Problem::new("copy_not_a_directory", why, ANOTHER).into());
        }
    };
    match difference(expected, &found) {
        None => Ok(()),
        Some((code, path, how)) => {
            let path = at.join(std::ffi::OsStr::from_bytes(path));
            let why = format!("the {what} is not what was captured: {} {how}", path.display());
            Err(Problem::new(code, why, ANOTHER).into())
        }
    }
}

fn has(tree: &Tree, path: &[u8]) -> bool {
    tree.nodes.iter().any(|node| node.path == path)
}

type Difference<'t> = (&'static str, &'t [u8], &'static str);

/// The first thing in which two trees differ: a stable word, the path, and how. What is there comes before
/// how it is, and times last, since whatever changes a directory changes its time too.
fn difference<'t>(expected: &'t Tree, found: &'t Tree) -> Option<Difference<'t>> {
    fn by_path(tree: &Tree) -> HashMap<&[u8], &Node> {
        tree.nodes.iter().map(|node| (&node.path[..], node)).collect()
    }
    let (wanted, there) = (by_path(expected), by_path(found));
    let pairs = || {
        let pair = |node: &'t Node| Some((node, *there.get(&node.path[..])?));
        expected.nodes.iter().filter_map(pair)
    };
    let missing = expected.nodes.iter().find(|node| !there.contains_key(&node.path[..]));
    if let Some(node) = missing {
        return Some(("copy_file_missing", &node.path, "is missing"));
    }
    if let Some(node) = found.nodes.iter().find(|node| !wanted.contains_key(&node.path[..])) {
        return Some(("copy_file_added", &node.path, "was not there"));
    }
    let differs = pairs().find_map(|(one, other)| Some((one, node_difference(one, other)?)));
    if let Some((node, (code, how))) = differs {
        return Some((code, &node.path, how));
    }
    let late = pairs().find(|(one, other)| one.mtime_ns != other.mtime_ns);
    late.map(|(node, _)| ("copy_time_changed", &node.path[..], "has another time"))
}

fn node_difference(expected: &Node, found: &Node) -> Option<(&'static str, &'static str)> {
    match (&expected.what, &found.what) {
        (What::File(_, one), What::File(_, other)) if one != other => {
            return Some(("copy_length_changed", "has another length"));
        }
        (What::File(one, _), What::File(other, _)) if one != other => {
            return Some(("copy_bytes_changed", "has other bytes"));
        }
        (What::Symlink(one), What::Symlink(other)) if one != other => {
            return Some(("copy_link_changed", "leads elsewhere"));
        }
        (one, other) if std::mem::discriminant(one) != std::mem::discriminant(other) => {
            return Some(("copy_kind_changed", "is another kind of thing"));
        }
        (one, other) if one != other => return Some(("copy_names_changed", "is another file")),
        _ => {}
    }
    let facts = [
        (expected.mode != found.mode, "copy_mode_changed", "has another mode"),
        (
            (expected.uid, expected.gid) != (found.uid, found.gid),
            "copy_owner_changed",
            "belongs to somebody else",
        ),
        (expected.xattrs != found.xattrs, "copy_attributes_changed", "has other attributes"),
    ];
    facts.into_iter().find(|(differs, ..)| *differs).map(|(_, code, how)| (code, how))
}

/// Every reason why what was captured cannot be brought back to its place.
pub(super) fn gate(restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
    let mut problems = directory::gate(restoration)?;
    if restoration.part.kind == PartKind::Postgres {
        for problem in postgres::gate(restoration)? {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    Ok(problems)
}

/// Removes the staging, and what stood there if the checkpoint of the present holds exactly that.
pub(super) fn clear(
    exchange: &Exchange,
    restoration: &Restoration<'_>,
    end: End,
    remove: fn(&Path) -> Result<()>,
) -> Result<Vec<Aside>> {
    remove(exchange.new_place())?;
    let old = exchange.old_place();
    if end == End::Old || !exists(old)? {
        return Ok(Vec::new());
    }
    let admits = admits(restoration.part.kind);
    let held = match restoration.present {
        Some(present) if !present.absent && old.is_dir() => {
            Tree::hash(old, &admits)?.digest() == present.digest
        }
        _ => false,
    };
    if held {
        remove(old)?;
        return Ok(Vec::new());
    }
    let why = "the checkpoint of the present does not hold exactly this, and nothing else holds it";
    Ok(vec![Aside { at: old.display().to_string(), why: why.to_owned() }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Changes one thing of a tree of two files, a link and a directory; says what is noticed.
    #[track_caller]
    fn check(change: impl FnOnce(&Path), expected: Option<&str>) {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().join("top");
        fs::create_dir_all(top.join("d")).unwrap();
        fs::write(top.join("a"), "one").unwrap();
        fs::write(top.join("d/b"), "two").unwrap();
        symlink("a", top.join("l")).unwrap();
        let before = Tree::hash(&top, &|_| true).unwrap();
        let times = |path: &Path| fs::symlink_metadata(path).unwrap().modified().unwrap();
        let (file, directory) = (times(&top.join("a")), times(&top));
        change(&top);
        let put_back = |path: &Path, time| {
            let Ok(file) = File::open(path) else { return };
            file.set_modified(time).unwrap();
        };
        put_back(&top.join("a"), file);
        put_back(&top, directory);
        let found = Tree::hash(&top, &|_| true).unwrap();
        assert_eq!(difference(&before, &found).map(|found| found.0), expected);
    }

    #[test]
    fn each_way_of_changing_a_copy_has_its_own_word() {
        check(|_| (), None);
        check(|top| fs::write(top.join("a"), "oNe").unwrap(), Some("copy_bytes_changed"));
        check(|top| fs::write(top.join("a"), "ones").unwrap(), Some("copy_length_changed"));
        check(|top| fs::write(top.join("aa"), "").unwrap(), Some("copy_file_added"));
        check(|top| fs::write(top.join("z"), "").unwrap(), Some("copy_file_added"));
        check(|top| fs::remove_file(top.join("a")).unwrap(), Some("copy_file_missing"));
        check(|top| fs::remove_file(top.join("l")).unwrap(), Some("copy_file_missing"));
        let link = |top: &Path| {
            fs::remove_file(top.join("l")).unwrap();
            symlink("b", top.join("l")).unwrap();
        };
        check(link, Some("copy_link_changed"));
        let kind = |top: &Path| {
            fs::remove_file(top.join("a")).unwrap();
            fs::create_dir(top.join("a")).unwrap();
        };
        check(kind, Some("copy_kind_changed"));
        let mode = fs::Permissions::from_mode(0o600);
        check(|top| fs::set_permissions(top.join("a"), mode).unwrap(), Some("copy_mode_changed"));
        let later = |top: &Path| {
            let file = File::open(top.join("d/b")).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        check(later, Some("copy_time_changed"));
    }
}
