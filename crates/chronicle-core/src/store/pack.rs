//! One pack: many small objects in one file that never changes once it has its name.
//!
//! A pack counts from the moment its index has its name; one without an index is what a killed
//! process left. Each object is preceded by its length, so that an index could be made anew.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::files::{self, Temporary};
use super::index::{self, Index, Location};
use super::{HEADER, LARGE_OBJECT, corrupt, unpack_object};
use crate::error::{Context, Result};
use crate::failpoint;
use crate::id::ObjectId;

const MAGIC: &[u8; 12] = b"chr-pack\x01\0\0\0";

/// Bytes that are written at once.
const CHUNK: usize = 1 << 20;

/// A pack takes no more once it has this many bytes or objects, so that rewriting one stays cheap.
const FULL_BYTES: u64 = 256 << 20;
const FULL_OBJECTS: usize = 1 << 20;

/// Where packs lie, and where they are made.
#[derive(Clone)]
pub(super) struct Directories {
    pub(super) packs: PathBuf,
    pub(super) temporary: PathBuf,
}

/// A pack that can be read.
pub(super) struct Pack {
    name: String,
    path: PathBuf,
    index: Index,
    settled: AtomicBool,
}

impl Pack {
    /// The pack of this name, of which nothing is read yet.
    pub(super) fn new(directory: &Path, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: directory.join(format!("{name}.pack")),
            index: Index::new(directory.join(format!("{name}.idx"))),
            settled: AtomicBool::new(false),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its name is known to survive a power cut.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn find(&self, id: &ObjectId, thorough: bool) -> Result<Option<Location>> {
        self.index.find(id, thorough)
    }

    /// Reads and verifies an object at its place in the opened pack.
    pub(super) fn read(&self, file: &File, id: &ObjectId, location: Location) -> Result<Vec<u8>> {
        unpack_object(id, &self.read_stored(file, id, location)?)
    }

    fn read_stored(&self, file: &File, id: &ObjectId, location: Location) -> Result<Vec<u8>> {
        let length = location.length as usize;
        if length > LARGE_OBJECT + HEADER {
            return Err(corrupt(
                id,
                format!("{} says it is too long", self.index.path().display()),
            ));
        }
        let mut stored = vec![0; length];
        match file.read_exact_at(&mut stored, location.offset) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(corrupt(id, format!("{} is cut off", self.path.display())))
            }
            result => result.map(|()| stored).at("read", &self.path),
        }
    }

    /// Writes a pack without these objects and takes this one away.
    pub(super) fn rewrite_without(
        &self,
        gone: &HashSet<ObjectId>,
        directories: &Directories,
        asked: &ObjectId,
    ) -> Result<()> {
        let mut objects = self.index.objects(asked)?;
        objects.retain(|(id, _)| !gone.contains(id));
        objects.sort_unstable_by_key(|(_, location)| location.offset);
        if !objects.is_empty() {
            self.copy(&objects, directories)?;
        }
        self.remove()?;
        files::sync_directory(&directories.packs)
    }

    fn copy(&self, objects: &[(ObjectId, Location)], directories: &Directories) -> Result<()> {
        let file = files::open(&self.path)?.ok_or(Errno::NOENT).at("open", &self.path)?;
        let mut writer = PackWriter::create(directories)?;
        for (id, location) in objects {
            let stored = self.read_stored(&file, id, *location)?;
            writer.append(*id, &[], &stored);
            if writer.has_chunk() {
                writer.flush()?;
            }
        }
        writer.finish()?;
        Ok(())
    }

    /// The index goes first: a pack without one is a leftover.
    fn remove(&self) -> Result<()> {
        files::remove(self.index.path())?;
        failpoint::hit("store_after_index_removal");
        files::remove(&self.path)
    }
}

/// Removes packs that a killed process left without an index.
pub(super) fn discard_orphans(directory: &Path) -> Result<()> {
    for name in files::names(directory)? {
        let Some(stem) = name.strip_suffix(".pack") else { continue };
        let (path, index) = (directory.join(&name), directory.join(format!("{stem}.idx")));
        if files::is_there(&index)? {
            continue;
        }
        // A writer keeps its pack locked until the index has its name, so ask again under the lock.
        if let Some(_lock) = files::abandoned(&path)?
            && !files::is_there(&index)?
        {
            files::remove(&path)?;
        }
    }
    Ok(())
}

/// A pack in the making; dropped before it is finished, it leaves nothing.
pub(super) struct PackWriter {
    directories: Directories,
    data: Temporary,
    buffer: Vec<u8>,
    /// Where in the file the buffer will lie.
    base: u64,
    objects: Vec<(ObjectId, Location)>,
}

impl PackWriter {
    pub(super) fn create(directories: &Directories) -> Result<Self> {
        let data = Temporary::create(&directories.temporary)?;
        failpoint::hit("store_after_pack_created");
        let mut buffer = Vec::with_capacity(CHUNK + CHUNK / 4);
        buffer.extend_from_slice(MAGIC);
        let directories = directories.clone();
        Ok(Self { directories, data, buffer, base: 0, objects: Vec::new() })
    }

    /// Adds an object's stored form, given in two pieces.
    pub(super) fn append(&mut self, id: ObjectId, head: &[u8], rest: &[u8]) {
        let length =
            u32::try_from(head.len() + rest.len()).expect("BUG: no packed object is large");
        self.buffer.extend_from_slice(&length.to_le_bytes());
        let offset = self.base + self.buffer.len() as u64;
        self.buffer.extend_from_slice(head);
        self.buffer.extend_from_slice(rest);
        self.objects.push((id, Location { offset, length }));
    }

    /// Whether enough is gathered to be written.
    pub(super) fn has_chunk(&self) -> bool {
        self.buffer.len() >= CHUNK
    }

    /// Whether it should be finished and another one begun.
    pub(super) fn is_full(&self) -> bool {
        self.base >= FULL_BYTES || self.objects.len() >= FULL_OBJECTS
    }

    /// Exchanges what was gathered for an empty buffer, to be written while more is gathered.
    pub(super) fn take_chunk(&mut self, spare: &mut Vec<u8>) -> Chunk {
        debug_assert!(spare.is_empty(), "BUG: the spare buffer still holds something");
        std::mem::swap(&mut self.buffer, spare);
        let at = self.base;
        self.base += spare.len() as u64;
        Chunk { file: Arc::clone(self.data.file()), path: self.data.path().to_owned(), at }
    }

    fn flush(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        self.take_chunk(&mut bytes).write(&bytes)?;
        bytes.clear();
        self.buffer = bytes;
        Ok(())
    }

    /// Makes the pack durable and gives it its name.
    pub(super) fn finish(mut self) -> Result<Pack> {
        self.flush()?;
        self.data.sync()?;
        failpoint::hit("store_after_pack_data");
        let mut index = Temporary::create(&self.directories.temporary)?;
        let bytes = index::encode(std::mem::take(&mut self.objects));
        index.file().write_all_at(&bytes, 0).at("write", index.path())?;
        index.sync()?;
        failpoint::hit("store_after_index_data");

        let pack = Pack::new(&self.directories.packs, &files::random_name());
        self.data.rename(pack.path.clone())?;
        failpoint::hit("store_after_pack_rename");
        index.rename(pack.index.path().to_owned())?;
        failpoint::hit("store_after_index_rename");
        files::sync_directory(&self.directories.packs)?;
        index.keep();
        self.data.keep();
        pack.settle();
        Ok(pack)
    }
}

/// Where a buffer full of objects belongs.
pub(super) struct Chunk {
    file: Arc<File>,
    path: PathBuf,
    at: u64,
}

impl Chunk {
    pub(super) fn write(self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.at).at("write", self.path)
    }
}
