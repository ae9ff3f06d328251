//! Reads a repository's metadata as one value, and turns such a value into paths again.

use std::collections::BTreeMap;
use std::io::Read;

use crate::entry::{Entry, File, Meta, Repository, Symlink};
use crate::error::{Context, Error, Result};
use crate::fs::Roots;
use crate::id::ObjectId;
use crate::known::{Known, Part};
use crate::path::WorkspacePath;
use crate::repository::{Bundle, BundleFile, BundleKind, Class, Flavor, classify};
use crate::store::Intake;

/// Reads the significant files of a repository, takes them in as one object and names the value.
///
/// `None` if it is not a directory any more.
pub(super) fn read(
    roots: &Roots,
    path: &WorkspacePath,
    intake: &Intake<'_>,
) -> Result<Option<(Bundle, Known)>> {
    let Some(stat) = roots.lstat(path)? else { return Ok(None) };
    let flavor = if path.name() == b".jj" { Flavor::Jj } else { Flavor::Git };
    let bundle = Bundle::new(significant(roots, path, flavor)?);
    let signature = stat.signature;
    let meta = Meta {
        mode: signature.mode & 0o7777,
        uid: signature.uid,
        gid: signature.gid,
        mtime_ns: signature.mtime_ns,
        xattrs: Vec::new(),
    };
    let (value, encoded) = value_of(&bundle, meta);
    intake.take(&encoded)?;
    let entry = Entry::Repository(value);
    let known = Known { entry, signature: Some(signature), racy: false, part: Part::Ordinary };
    Ok(Some((bundle, known)))
}

/// The files of a repository's metadata that count.
pub(super) fn significant(
    roots: &Roots,
    path: &WorkspacePath,
    flavor: Flavor,
) -> Result<Vec<BundleFile>> {
    let mut files = Vec::new();
    gather(roots, path, &[], flavor, &mut files)?;
    Ok(files)
}

/// The value that such files make, and the bytes of its object.
pub(super) fn value(files: Vec<BundleFile>, meta: Meta) -> (Repository, Vec<u8>) {
    value_of(&Bundle::new(files), meta)
}

fn value_of(bundle: &Bundle, meta: Meta) -> (Repository, Vec<u8>) {
    let encoded = bundle.encode();
    let (identity, head) = (bundle.identity(), bundle.head());
    (Repository { bundle: ObjectId::of(&encoded), identity, head, meta }, encoded)
}

fn gather(
    roots: &Roots,
    unit: &WorkspacePath,
    below: &[u8],
    flavor: Flavor,
    files: &mut Vec<BundleFile>,
) -> Result<()> {
    let directory = if below.is_empty() { unit.clone() } else { join(unit, below)? };
    for name in roots.list(&directory)? {
        let inner = if below.is_empty() { name } else { [below, &name[..]].join(&b'/') };
        let path = join(unit, &inner)?;
        let Some(stat) = roots.lstat(&path)? else { continue };
        let signature = stat.signature;
        match signature.mode & 0o170_000 {
            0o040_000 if may_hold_significant(&inner) => {
                gather(roots, unit, &inner, flavor, files)?
            }
            0o100_000 if counts(flavor, &inner) => {
                let mut content = Vec::new();
                let mut file = match roots.open_file(&path) {
                    Err(Error::Io { source, .. })
                        if source.kind() == std::io::ErrorKind::NotFound =>
                    {
                        continue;
                    }
                    file => file?,
                };
                file.read_to_end(&mut content).at("read", path.as_path())?;
                files.push(bundle_file(inner, &signature, BundleKind::File(content)));
            }
            0o120_000 if counts(flavor, &inner) => {
                let target = roots.read_link(&path)?;
                files.push(bundle_file(inner, &signature, BundleKind::Symlink(target)));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn join(unit: &WorkspacePath, inner: &[u8]) -> Result<WorkspacePath> {
    Ok(WorkspacePath::new([unit.as_bytes(), inner].join(&b'/'))?)
}

fn counts(flavor: Flavor, inner: &[u8]) -> bool {
    matches!(classify(flavor, inner), Class::Significant | Class::Carried)
}

/// The object directories hold by far the most files, and nothing that counts.
fn may_hold_significant(inner: &[u8]) -> bool {
    inner != b"objects" && !inner.ends_with(b"/objects") && inner != b"lfs"
}

fn bundle_file(
    inner: Vec<u8>,
    signature: &crate::known::Signature,
    kind: BundleKind,
) -> BundleFile {
    BundleFile {
        inner,
        mode: signature.mode & 0o7777,
        uid: signature.uid,
        gid: signature.gid,
        mtime_ns: signature.mtime_ns,
        kind,
    }
}

/// The files of a repository's metadata by their paths.
pub(super) type Expanded = BTreeMap<WorkspacePath, Entry>;

/// The contents of such files.
pub(super) type Contents = Vec<(ObjectId, Vec<u8>)>;

/// The paths that a repository's value stands for, and the contents they need.
pub(super) fn expand(unit: &WorkspacePath, bundle: &Bundle) -> Result<(Expanded, Contents)> {
    let (mut entries, mut contents) = (BTreeMap::new(), Vec::new());
    for file in &bundle.files {
        let path = join(unit, &file.inner)?;
        let meta = Meta {
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            mtime_ns: file.mtime_ns,
            xattrs: Vec::new(),
        };
        let entry = match &file.kind {
            BundleKind::File(bytes) => {
                let object = ObjectId::of(bytes);
                contents.push((object, bytes.clone()));
                let size = bytes.len() as u64;
                Entry::File(File {
                    object,
                    secret: false,
                    pending: false,
                    size,
                    sparse: false,
                    link: None,
                    meta,
                })
            }
            BundleKind::Symlink(target) => Entry::Symlink(Symlink { target: target.clone(), meta }),
        };
        entries.insert(path, entry);
    }
    Ok((entries, contents))
}
