//! Files that share their blocks with a file of a workspace, made where nobody has the time to read it.
//!
//! A clone has a random name, which says nothing of its bytes; a record that names it makes it count.
//! Whoever has the time reads it, takes its bytes in under their hash, and removes it.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::files::{self, Temporary};
use crate::error::Result;
use crate::failpoint;
use crate::id::{ObjectId, from_hex, random_bytes};
use crate::share;

/// The clones of a store.
pub(super) struct Clones {
    directory: PathBuf,
    temporary: PathBuf,
}

/// A clone without its name, which is removed unless it is kept.
pub(crate) struct Cloned(Temporary);

impl Clones {
    pub(super) fn new(directory: PathBuf, temporary: PathBuf) -> Self {
        Self { directory, temporary }
    }

    fn path(&self, name: &ObjectId) -> PathBuf {
        self.directory.join(name.hex())
    }

    /// Opens a clone; `None` if there is none.
    pub(super) fn open(&self, name: &ObjectId) -> Result<Option<File>> {
        files::open(&self.path(name))
    }

    pub(super) fn exists(&self, name: &ObjectId) -> Result<bool> {
        files::is_there(&self.path(name))
    }

    pub(super) fn remove(&self, name: &ObjectId) -> Result<()> {
        files::remove(&self.path(name))
    }

    /// Makes removals durable, so that no power cut brings back what was to go.
    pub(super) fn sync(&self) -> Result<()> {
        match files::is_there(&self.directory)? {
            true => files::sync_directory(&self.directory),
            false => Ok(()),
        }
    }

    /// Every clone, with the bytes that it has.
    pub(super) fn all(&self) -> Result<Vec<(ObjectId, u64)>> {
        let mut all = Vec::new();
        for name in files::names(&self.directory)? {
            // Whatever else lies there is not ours to take away.
            let Some(id) = from_hex(&name).map(ObjectId) else { continue };
            let stat = rustix::fs::lstat(self.directory.join(name));
            all.push((id, stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))));
        }
        Ok(all)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// The clones of one capture.
#[derive(Default)]
pub(super) struct Cloning {
    /// File systems that cannot share blocks with the store.
    refused: Mutex<HashSet<u64>>,
    /// Those that have a name, and go again unless the capture is finished.
    named: Mutex<Vec<Temporary>>,
}

impl Cloning {
    /// Whether a file of so many bytes on this device is worth trying.
    pub(super) fn is_worthwhile(&self, device: u64, size: u64) -> bool {
        share::is_worthwhile(size) && !lock(&self.refused).contains(&device)
    }

    /// Clones an open file; `None` where that cannot be done, and it must be read.
    pub(super) fn take(&self, clones: &Clones, file: &File, device: u64) -> Option<Cloned> {
        let temporary = Temporary::create(&clones.temporary).ok()?;
        if let Err(error) = share::share(temporary.file(), file) {
            let never = [Errno::XDEV, Errno::OPNOTSUPP, Errno::INVAL, Errno::NOTTY, Errno::NOSYS];
            if never.contains(&error) {
                lock(&self.refused).insert(device);
            }
            return None;
        }
        failpoint::hit("clone_after_sharing");
        Some(Cloned(temporary))
    }

    /// Gives a clone its name; it counts once the capture is finished.
    pub(super) fn keep(&self, clones: &Clones, cloned: Cloned) -> Result<ObjectId> {
        let (name, mut temporary) = (ObjectId(random_bytes()), cloned.0);
        if files::make_directory(&clones.directory)? {
            let above = clones.directory.parent().expect("a store's directory is above");
            files::sync_directory(above)?;
        }
        temporary.rename(clones.path(&name))?;
        lock(&self.named).push(temporary);
        Ok(name)
    }

    /// Makes the clones and their names durable; from here on they stay.
    ///
    /// With their names already given, one sync mostly makes both durable.
    pub(super) fn finish(&self, clones: &Clones) -> Result<()> {
        let named = std::mem::take(&mut *lock(&self.named));
        if named.is_empty() {
            return Ok(());
        }
        named.iter().try_for_each(Temporary::sync)?;
        clones.sync()?;
        failpoint::hit("clone_after_naming");
        named.into_iter().for_each(Temporary::keep);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
