//! Contents that came over a link and that nothing names yet: small ones in memory, the rest in files of the home.
//!
//! Nothing here counts. Whoever applies a push or takes a batch brings what it needs into the store, durably, and the rest is
//! thrown away; what a killed process left is thrown away by the next.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chronicle_core::{ContentStorage, Error, ObjectId, Result, usual_floor};

/// Bytes that are held in memory; what is more goes to files.
const MEMORY_MOST: usize = 8 << 20;
/// Bytes that one peer may have on the disk that nothing names.
const DISK_MOST: u64 = 64 << 30;

/// A store for what has just come.
pub(super) struct Incoming {
    directory: PathBuf,
    /// How many bytes of a file system of this size stay free.
    floor: fn(u64) -> u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    memory: HashMap<ObjectId, Vec<u8>>,
    in_memory: usize,
    /// The stored forms of some that are in memory.
    stored: HashMap<ObjectId, Vec<u8>>,
    files: HashMap<ObjectId, u64>,
    on_disk: u64,
    made: bool,
}

impl Held {
    fn hold(&mut self, id: ObjectId, bytes: Vec<u8>) {
        self.in_memory += bytes.len();
        self.memory.insert(id, bytes);
    }
}

impl Incoming {
    /// An empty one, whose files will lie in a directory of its own below this.
    pub(super) fn new(below: &Path, number: u64) -> Self {
        let directory = below.join(format!("{}-{number}", std::process::id()));
        Self { directory, floor: usual_floor, held: Mutex::default() }
    }

    /// Throws away what processes left that are gone.
    pub(super) fn clean(below: &Path) {
        for entry in fs::read_dir(below).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.split('-').next());
            let alive = pid.is_some_and(|pid| Path::new("/proc").join(pid).exists());
            if !alive {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Throws everything away.
    pub(super) fn clear(&self) {
        let mut held = self.held();
        if held.made {
            let _ = fs::remove_dir_all(&self.directory);
        }
        *held = Held::default();
    }

    /// Throws away everything but these.
    pub(super) fn keep_only(&self, needed: &HashSet<ObjectId>) {
        if needed.is_empty() {
            return self.clear();
        }
        let held = self.held();
        let all: Vec<_> = held.memory.keys().chain(held.files.keys()).copied().collect();
        drop(held);
        for object in all.into_iter().filter(|object| !needed.contains(object)) {
            let _ = self.delete(&object);
        }
    }

    /// Keeps bytes that came inside of what names them, which the session has bounded: they are in memory anyway.
    pub(super) fn keep_inline(&self, id: &ObjectId, bytes: Vec<u8>, stored: Option<Vec<u8>>) {
        let mut held = self.held();
        if !held.memory.contains_key(id) && !held.files.contains_key(id) {
            held.hold(*id, bytes);
            held.stored.extend(stored.map(|stored| (*id, stored)));
        }
    }

    /// Keeps bytes whose name was compared already.
    pub(super) fn keep(&self, id: &ObjectId, bytes: Vec<u8>) -> Result<()> {
        let mut held = self.held();
        if held.memory.contains_key(id) || held.files.contains_key(id) {
            return Ok(());
        }
        if held.in_memory + bytes.len() <= MEMORY_MOST {
            held.hold(*id, bytes);
            return Ok(());
        }
        drop(held);
        let (path, mut file) = self.create(id, bytes.len() as u64)?;
        file.write_all(&bytes).map_err(|error| io_error("write", &path, error))?;
        self.held().files.insert(*id, bytes.len() as u64);
        Ok(())
    }

    /// Puts an object together out of parts; false if it then has another name, and nothing is kept.
    pub(super) fn assemble(
        &self,
        id: &ObjectId,
        size: u64,
        parts: impl IntoIterator<Item = Result<Vec<u8>>>,
    ) -> Result<bool> {
        let (path, mut file) = self.create(id, size)?;
        let (mut hasher, mut length) = (blake3::Hasher::new(), 0);
        for part in parts {
            let part = part?;
            length += part.len() as u64;
            if length > size {
                break;
            }
            hasher.update(&part);
            file.write_all(&part).map_err(|error| io_error("write", &path, error))?;
        }
        if length != size || hasher.finalize().as_bytes() != id.as_bytes() {
            let _ = fs::remove_file(&path);
            self.held().on_disk -= size;
            return Ok(false);
        }
        self.held().files.insert(*id, size);
        Ok(true)
    }

    fn create(&self, id: &ObjectId, size: u64) -> Result<(PathBuf, File)> {
        let mut held = self.held();
        if !held.made {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&self.directory);
            made.map_err(|error| io_error("create", &self.directory, error))?;
            held.made = true;
        }
        let free = rustix::fs::statvfs(&self.directory)
            .map_err(|error| io_error("look at", &self.directory, error.into()))?;
        let keep_free = (self.floor)(free.f_blocks * free.f_frsize);
        let available = (free.f_bavail * free.f_frsize).saturating_sub(keep_free);
        if size > available || held.on_disk + size > DISK_MOST {
            return Err(Error::NoSpace(self.directory.clone()));
        }
        held.on_disk += size;
        let path = self.directory.join(id.hex());
        let file = File::create(&path).map_err(|error| io_error("create", &path, error))?;
        Ok((path, file))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        let held = self.held();
        if let Some(bytes) = held.memory.get(id) {
            return Ok(Box::new(io::Cursor::new(bytes.clone())));
        }
        if !held.files.contains_key(id) {
            return Err(Error::Missing(*id));
        }
        let path = self.directory.join(id.hex());
        Ok(Box::new(File::open(&path).map_err(|error| io_error("open", &path, error))?))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.clear();
    }
}

impl ContentStorage for Incoming {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.open(id)?.read_to_end(&mut bytes);
        read.map_err(|error| io_error("read", &self.directory, error))?;
        if ObjectId::of(&bytes) != *id {
            return Err(Error::Missing(*id));
        }
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        self.keep(id, bytes.to_vec())
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        let held = self.held();
        Ok(held.memory.contains_key(id) || held.files.contains_key(id))
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        let mut held = self.held();
        held.stored.remove(id);
        if let Some(bytes) = held.memory.remove(id) {
            held.in_memory -= bytes.len();
        }
        if let Some(size) = held.files.remove(id) {
            held.on_disk -= size;
            let _ = fs::remove_file(self.directory.join(id.hex()));
        }
        Ok(())
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        self.open(id)
    }

    fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        Ok(self.held().stored.get(id).cloned())
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).map_err(|error| io_error("read", &self.directory, error))?;
        let (id, length) = (ObjectId::of(&bytes), bytes.len() as u64);
        self.keep(&id, bytes)?;
        Ok((id, length))
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However full the disk is that the tests run on.
    fn on_any_disk(below: &Path) -> Incoming {
        with_floor(below, |_| 0)
    }

    fn with_floor(below: &Path, floor: fn(u64) -> u64) -> Incoming {
        let mut incoming = Incoming::new(below, 1);
        incoming.floor = floor;
        incoming
    }

    #[test]
    fn small_ones_stay_in_memory_and_large_ones_leave_nothing_behind() {
        let holder = tempfile::tempdir().expect("a directory");
        let incoming = on_any_disk(holder.path());
        let small = b"small".to_vec();
        incoming.keep(&ObjectId::of(&small), small.clone()).expect("kept");
        assert_eq!(fs::read_dir(holder.path()).expect("listed").count(), 0);
        let large = vec![7; MEMORY_MOST];
        let id = ObjectId::of(&large);
        incoming.keep(&id, large.clone()).expect("kept");
        assert_eq!(incoming.get(&id).expect("read"), large);
        assert_eq!(incoming.get(&ObjectId::of(&small)).expect("read"), small);
        incoming.clear();
        assert!(matches!(incoming.get(&id), Err(Error::Missing(_))));
        assert_eq!(fs::read_dir(holder.path()).expect("listed").count(), 0);
    }

    #[test]
    fn parts_make_only_the_object_that_they_are() {
        let holder = tempfile::tempdir().expect("a directory");
        let incoming = on_any_disk(holder.path());
        let id = ObjectId::of(b"abcdef");
        let parts = |texts: &[&str]| -> Vec<Result<Vec<u8>>> {
            texts.iter().map(|text| Ok(text.as_bytes().to_vec())).collect()
        };
        assert!(!incoming.assemble(&id, 6, parts(&["abc", "deg"])).expect("tried"));
        assert!(!incoming.assemble(&id, 6, parts(&["abc"])).expect("tried"));
        assert!(!incoming.assemble(&id, 6, parts(&["abcdef", "more"])).expect("tried"));
        assert!(incoming.assemble(&id, 6, parts(&["abc", "def"])).expect("made"));
        assert_eq!(incoming.get(&id).expect("read"), b"abcdef");
    }

    #[test]
    fn nothing_is_kept_on_a_disk_that_is_full() {
        let holder = tempfile::tempdir().expect("a directory");
        let incoming = with_floor(holder.path(), |total| total);
        let large = vec![7; MEMORY_MOST + 1];
        let kept = incoming.keep(&ObjectId::of(&large), large);
        assert!(matches!(kept, Err(Error::NoSpace(_))));
    }

    #[test]
    fn what_the_dead_left_is_thrown_away() {
        let holder = tempfile::tempdir().expect("a directory");
        fs::create_dir(holder.path().join("4194305-1")).expect("made");
        fs::create_dir(holder.path().join(format!("{}-9", std::process::id()))).expect("made");
        Incoming::clean(holder.path());
        assert_eq!(fs::read_dir(holder.path()).expect("listed").count(), 1);
    }
}
