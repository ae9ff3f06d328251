//! Further roots: files and directories outside the workspace that are protected too.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::{Workspace, key};
use crate::catalog::{Batch, Durability, LocalState};
use crate::error::{Context, Error, Result};
use crate::fs::Roots;
use crate::path::WorkspacePath;

/// The most single files outside the workspace that are protected because they were named.
const NAMED_FILES_MAX: usize = 1000;

/// Reads the list of further roots as it is kept.
pub(super) fn decode(bytes: &[u8]) -> Vec<PathBuf> {
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| PathBuf::from(OsString::from_vec(part.to_vec()))).collect()
}

fn encode(roots: &[PathBuf]) -> Vec<u8> {
    let parts: Vec<&[u8]> = roots.iter().map(|root| root.as_os_str().as_bytes()).collect();
    parts.join(&0)
}

/// Resolves `.` and `..` by words alone, so that a symbolic link on the way is not followed.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// What a person's words for a file mean.
pub(super) fn resolve(
    root: &Path,
    further: &[PathBuf],
    given: &Path,
    current_dir: &Path,
) -> Result<WorkspacePath> {
    let absolute = plain(&current_dir.join(given));
    // The words may name the root through a symbolic link above it.
    let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    let real = parent.zip(absolute.file_name()).map(|(parent, name)| parent.join(name));
    let candidates =
        [Some(absolute.clone()), real, absolute.canonicalize().ok().filter(|p| p == root)];
    for candidate in candidates.into_iter().flatten() {
        if let Ok(relative) = candidate.strip_prefix(root) {
            return Ok(WorkspacePath::new(relative.as_os_str().as_bytes())?);
        }
        if further.iter().any(|further| candidate.starts_with(further)) {
            return Ok(WorkspacePath::new(candidate.as_os_str().as_bytes())?);
        }
    }
    Err(Error::OutsideRoots(absolute))
}

impl Workspace {
    /// The further roots, as they were named.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.further_roots().unwrap_or_default()
    }

    pub(super) fn further_roots(&self) -> Result<Vec<PathBuf>> {
        Ok(decode(&self.catalog.state(key::FURTHER_ROOTS)?.unwrap_or_default()))
    }

    /// Protects a file or directory outside the workspace too.
    pub fn add_root(&mut self, path: &Path) -> Result<()> {
        let absolute = std::path::absolute(path).at("find", path)?;
        let real = absolute.canonicalize().at("find", &absolute)?;
        let overlaps = |other: &Path| real.starts_with(other) || other.starts_with(&real);
        let refused =
            |why: &str| Err(Error::CannotAdopt { path: real.clone(), why: why.to_owned() });
        if overlaps(&self.root) {
            return refused("it lies inside the workspace, or holds it");
        }
        if overlaps(self.home.path()) {
            return refused("it holds Chronicle's own store");
        }
        let mut further = self.further_roots()?;
        if further.contains(&real) {
            return Ok(());
        }
        if further.iter().any(|other| overlaps(other)) {
            return refused("it overlaps another protected root");
        }
        further.push(real);
        self.set_roots(&further)?;
        self.settle().map(drop)
    }

    /// Stops protecting a file or directory outside the workspace; its history stays.
    pub fn remove_root(&mut self, path: &Path) -> Result<()> {
        let absolute = std::path::absolute(path).at("find", path)?;
        let real = absolute.canonicalize().unwrap_or(absolute);
        let mut further = self.further_roots()?;
        let before = further.len();
        further.retain(|root| *root != real);
        if further.len() == before {
            return Err(Error::OutsideRoots(real));
        }
        self.set_roots(&further)
    }

    /// The single files outside that an agent named: captured and taken back only by name.
    pub(super) fn named_files(&self) -> Result<Vec<PathBuf>> {
        Ok(decode(&self.catalog.state(key::NAMED_FILES)?.unwrap_or_default()))
    }

    /// Lets a single file outside the workspace be captured because somebody named it.
    ///
    /// It is looked at only then, and a rewind leaves it alone unless it names it too.
    pub fn protect_named(&mut self, path: &Path) -> Result<WorkspacePath> {
        let refused =
            |why: &str| Err(Error::CannotAdopt { path: path.to_owned(), why: why.to_owned() });
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return refused("it is no file");
        };
        let real = parent.canonicalize().at("find", parent)?.join(name);
        if real.starts_with(self.home.path()) {
            return refused("it lies in Chronicle's own store");
        }
        if real.is_dir() {
            return refused("it is a directory");
        }
        let mut named = self.named_files()?;
        if !named.contains(&real) {
            if named.len() >= NAMED_FILES_MAX {
                return refused("too many files outside the workspace are protected already");
            }
            named.push(real.clone());
            let further = self.further_roots()?;
            let lock = self.lock(super::PATIENCE)?;
            let roots = Roots::open(&self.root, &further, &named)?;
            let state = vec![(key::NAMED_FILES, Some(encode(&named)))];
            self.commit_batch(Batch { state, ..Batch::default() }, Durability::PowerCut)?;
            self.roots = roots;
            self.roots.set_lazy(self.is_lazy()?);
            drop(lock);
        }
        Ok(WorkspacePath::new(real.as_os_str().as_bytes())?)
    }

    fn set_roots(&mut self, further: &[PathBuf]) -> Result<()> {
        let lock = self.lock(super::PATIENCE)?;
        let roots = Roots::open(&self.root, further, &self.named_files()?)?;
        let state = vec![(key::FURTHER_ROOTS, Some(encode(further)))];
        self.commit_batch(Batch { state, ..Batch::default() }, Durability::PowerCut)?;
        self.roots = roots;
        self.roots.set_lazy(self.is_lazy()?);
        drop(lock);
        Ok(())
    }
}
