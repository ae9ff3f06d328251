//! Directories in the content store: read once before the freeze, and inside it only what changed since.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use chronicle_core::ObjectId;

use crate::contents::Contents;
use crate::driver::{Aside, Capture, Captured, Deadline, End, Restoration, Site, Staged};
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::{Exchange, exists, remove};
use crate::part::{Parameters, Part};
use crate::tree::{Reading, Tree, What};

/// The parameter that names the manifest.
pub(super) const MANIFEST: &str = "manifest";
const OTHER: &str = "Restore another checkpoint: chronicle checkpoint list";

/// Everything belongs to a directory.
pub(super) fn all(_: &[u8]) -> bool {
    true
}

pub(super) struct DirectoryCapture<'s> {
    part: Part,
    site: Site<'s>,
    tree: Option<Tree>,
}

impl<'s> DirectoryCapture<'s> {
    pub(super) fn prepare(part: &Part, site: &Site<'s>) -> Result<Self> {
        let mut capture = Self { part: part.clone(), site: *site, tree: None };
        let previous = known_before(site);
        if exists(&part.path)? {
            let reading = Reading { fuzzy: true, known: previous.as_ref(), admits: &all };
            capture.tree = Some(Tree::read(&part.path, site.contents, reading)?);
        }
        Ok(capture)
    }
}

/// The tree that the newest checkpoint holds of the same part; whatever is wrong with it only costs time.
pub(super) fn known_before(site: &Site<'_>) -> Option<Tree> {
    load(site.previous?, site.contents).ok()
}

impl Capture for DirectoryCapture<'_> {
    fn freeze(&mut self, _limit: &Deadline) -> Result<()> {
        Ok(())
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        if !exists(&self.part.path)? {
            self.tree = None;
            return Ok(());
        }
        let late = Cell::new(false);
        let admits = |_: &[u8]| {
            late.set(late.get() || limit.left().is_zero());
            !late.get()
        };
        let reading = Reading { fuzzy: false, known: self.tree.as_ref(), admits: &admits };
        let read = Tree::read(&self.part.path, self.site.contents, reading)?;
        limit.check(&format!("reading {}", self.part.path.display()))?;
        self.tree = Some(read);
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        match &self.tree {
            Some(tree) => keep(tree, self.site.contents),
            None => Ok(absent()),
        }
    }
}

/// That nothing stood there.
pub(super) fn absent() -> Captured {
    Captured {
        driver: super::universal::NAME.to_owned(),
        version: super::universal::VERSION,
        absent: true,
        digest: ObjectId::of(b""),
        revision: None,
        bytes: 0,
        parameters: Parameters::new(),
        objects: Vec::new(),
        notes: vec!["nothing stood there".to_owned()],
    }
}

/// Keeps the manifest of a tree whose files are kept.
pub(super) fn keep(tree: &Tree, contents: &Contents<'_>) -> Result<Captured> {
    let manifest = contents.put(&tree.encode())?;
    let mut objects = tree.objects();
    objects.push(manifest);
    Ok(Captured {
        absent: false,
        digest: tree.digest(),
        bytes: tree.bytes(),
        parameters: Parameters::from([(MANIFEST.to_owned(), manifest.hex())]),
        objects,
        notes: Vec::new(),
        ..absent()
    })
}

/// The tree that was captured, as its manifest has it.
pub(super) fn load(captured: &Captured, contents: &Contents<'_>) -> Result<Tree> {
    let id = object(captured, MANIFEST)?;
    let bytes = contents.get(&id).map_err(|error| unreadable(error, "manifest"))?;
    let tree = Tree::decode(&bytes)?;
    match tree.digest() == captured.digest {
        true => Ok(tree),
        false => Err(Problem::new(
            "digest_differs",
            "the manifest is not the one whose digest the lock file names",
            OTHER,
        )
        .into()),
    }
}

/// An object that a parameter names.
pub(super) fn object(captured: &Captured, name: &str) -> Result<ObjectId> {
    let text = captured.parameters.get(name);
    let id = text.and_then(|text| text.parse().ok());
    id.ok_or_else(|| {
        let why = format!("the lock file does not say which content is its {name}");
        Problem::new("missing_parameter", why, OTHER).into()
    })
}

/// Reads back a manifest and every file in it.
pub(super) fn verify(captured: &Captured, contents: &Contents<'_>) -> Result<()> {
    if captured.absent {
        return Ok(());
    }
    let tree = load(captured, contents)?;
    let mut read = HashMap::new();
    for node in &tree.nodes {
        let What::File(id, size) = &node.what else { continue };
        let length = match read.get(id) {
            Some(length) => *length,
            None => read_back(id, contents)?,
        };
        read.insert(*id, length);
        if length != *size {
            let path = String::from_utf8_lossy(&node.path);
            let why = format!("{path} has {length} bytes, and its manifest says {size}");
            return Err(Problem::new("bad_length", why, OTHER).into());
        }
    }
    Ok(())
}

/// Reads one object to its end.
pub(super) fn read_back(id: &ObjectId, contents: &Contents<'_>) -> Result<u64> {
    read_back_as(id, contents, "content")
}

/// The same for an object that has a word of its own.
pub(super) fn read_back_as(
    id: &ObjectId,
    contents: &Contents<'_>,
    what: &'static str,
) -> Result<u64> {
    let mut reader = contents.reader(id).map_err(|error| unreadable(error, what))?;
    std::io::copy(&mut reader, &mut std::io::sink()).map_err(|error| {
        let why = format!("{what} {id} cannot be read: {error}");
        Problem::new(codes(what).1, why, OTHER).into()
    })
}

/// The words for an object that is gone, and for one that is not what it was.
fn codes(what: &str) -> (&'static str, &'static str) {
    match what {
        "manifest" => ("missing_manifest", "damaged_manifest"),
        "bundle" => ("missing_bundle", "damaged_bundle"),
        "database" => ("missing_database", "unreadable_database"),
        "dump" => ("missing_dump", "damaged_dump"),
        _ => ("missing_content", "damaged_content"),
    }
}

/// An object that cannot be read, as a reason to refuse.
pub(super) fn unreadable(error: Error, what: &'static str) -> Error {
    let (missing, damaged) = codes(what);
    match error {
        Error::Core(chronicle_core::Error::Missing(id)) => {
            Problem::new(missing, format!("its {what} {id} is not in the store"), OTHER).into()
        }
        Error::Core(error @ chronicle_core::Error::Corrupt { .. }) => {
            Problem::new(damaged, format!("its {what}: {error}"), OTHER).into()
        }
        other => other,
    }
}

/// What stands in the way of restoring a path, whatever it is.
pub(super) fn gate_path(restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
    let (path, mut problems) = (&restoration.part.path, Vec::new());
    let Some(parent) = path.parent() else {
        let why = format!("{} has nothing beside it", path.display());
        return Ok(vec![Problem::new("no_place_beside", why, "Move it into a directory")]);
    };
    let above = match fs::symlink_metadata(parent) {
        Ok(about) if about.is_dir() => about,
        _ => {
            let why = format!("{} is not a directory any more", parent.display());
            let next = format!("Make it again: mkdir -p {}", parent.display());
            return Ok(vec![Problem::new("moved_directory", why, next)]);
        }
    };
    if let Ok(about) = fs::symlink_metadata(path) {
        if about.is_symlink() {
            let why = format!("{} is a symbolic link now", path.display());
            problems.push(Problem::new("symlink_in_place", why, "Remove the link"));
        } else if about.is_dir() && about.dev() != above.dev() {
            let why =
                format!("{} is a file system of its own and cannot be exchanged", path.display());
            problems.push(Problem::new("mount_point", why, "Put the data one directory below it"));
        }
    }
    if rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_err() {
        let why = format!("{} cannot be written by this user", parent.display());
        problems.push(Problem::new("not_writable", why, "Restore as a user who may write there"));
    }
    let free = rustix::fs::statvfs(parent).at("examine", parent)?;
    if free.f_bavail.saturating_mul(free.f_frsize) < restoration.captured.bytes {
        let why =
            format!("{} has no room for {} bytes", parent.display(), restoration.captured.bytes);
        problems.push(Problem::new("no_room", why, "Make room there"));
    }
    Ok(problems)
}

pub(super) fn gate(restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
    let mut problems = gate_path(restoration)?;
    let about = fs::symlink_metadata(&restoration.part.path);
    if about.is_ok_and(|about| !about.is_dir() && !about.is_symlink()) {
        let why = format!("{} is not a directory any more", restoration.part.path.display());
        problems.push(Problem::new("not_a_directory", why, "Move it away"));
    }
    Ok(problems)
}

/// Writes the tree beside its place.
pub(super) fn restore(restoration: &Restoration<'_>) -> Result<Staged> {
    let exchange = Exchange::at(&restoration.part.path, restoration.site.id);
    remove(exchange.new_place())?;
    if !restoration.captured.absent {
        let tree = load(restoration.captured, restoration.site.contents)?;
        tree.write(exchange.new_place(), restoration.site.contents)?;
    }
    exchange.stage()
}

/// Whether the tree at a path is the captured one.
pub(super) fn check(restoration: &Restoration<'_>, admits: &dyn Fn(&[u8]) -> bool) -> Result<()> {
    match is_like(&restoration.part.path, restoration.captured, admits)? {
        true => Ok(()),
        false => {
            let why = format!("{} is not what was captured", restoration.part.path.display());
            Err(Problem::new("not_restored", why, "chronicle doctor").into())
        }
    }
}

pub(super) fn is_like(
    path: &Path,
    captured: &Captured,
    admits: &dyn Fn(&[u8]) -> bool,
) -> Result<bool> {
    if !exists(path)? {
        return Ok(captured.absent);
    }
    Ok(!captured.absent && Tree::hash(path, admits)?.digest() == captured.digest)
}

/// Removes the staging, and what stood there if the checkpoint of the present holds it.
pub(super) fn clear(
    restoration: &Restoration<'_>,
    end: End,
    admits: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<Aside>> {
    let exchange = Exchange::at(&restoration.part.path, restoration.site.id);
    remove(exchange.new_place())?;
    let old = exchange.old_place();
    if end == End::Old || !exists(old)? {
        return Ok(Vec::new());
    }
    let held = match restoration.present {
        Some(present) => is_like(old, present, admits)?,
        None => false,
    };
    if held {
        remove(old)?;
        return Ok(Vec::new());
    }
    let why = "it changed after the checkpoint of the present was made, and nothing else holds it";
    Ok(vec![Aside { at: old.display().to_string(), why: why.to_owned() }])
}
