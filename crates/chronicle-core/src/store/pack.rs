//! One pack: many small objects in one file that never changes once it has its name.
//!
//! A pack counts from the moment its index has its name; one that lost its index gets another, since
//! each object is preceded by its length. One that is to go has its index renamed first.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::files::{self, Temporary};
use super::group::{Class, Group, Members, is_group};
use super::index::{self, Index, Location};
use super::{
    CODEC_ZSTD, HEADER, LARGE_OBJECT, Stored, corrupt, open_object, repair, unpack_object,
};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::id::ObjectId;
use crate::secret::{Secrets, overhead};

pub(super) const MAGIC: &[u8; 12] = b"chr-pack\x01\0\0\0";

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

    /// Whether both are the same pack.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name
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

    /// Every object in it, and where it lies; nothing if the pack was taken away.
    pub(super) fn objects(&self) -> Result<Vec<(ObjectId, Location)>> {
        self.index.objects(&ObjectId([0; 32]))
    }

    /// Reads and verifies an object at its place in the opened pack.
    pub(super) fn read(
        &self,
        file: &File,
        id: &ObjectId,
        location: Location,
        secrets: &Secrets,
    ) -> Result<Found> {
        let stored = self.read_stored(file, id, location)?;
        if is_group(&stored) {
            return Members::open(&stored).map(Found::Group).map_err(|why| corrupt(id, why));
        }
        // What is larger lies in a file of its own; a few bytes may say that they are terabytes.
        if Stored::parse(&stored).is_ok_and(|stored| stored.raw_length > LARGE_OBJECT as u64) {
            return Err(corrupt(id, format!("{} says it is too long", self.path.display())));
        }
        open_object(id, &stored, secrets).map(Found::Alone)
    }

    /// The object as it is stored, not verified.
    pub(super) fn read_stored(
        &self,
        file: &File,
        id: &ObjectId,
        location: Location,
    ) -> Result<Vec<u8>> {
        let length = location.length as usize;
        if length > LARGE_OBJECT + HEADER + overhead(LARGE_OBJECT + 1) {
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
        damaged: Damaged,
    ) -> Result<()> {
        let mut objects = self.index.objects(asked)?;
        objects.sort_unstable_by_key(|(_, location)| (location.offset, location.member));
        if !objects.iter().all(|(id, _)| gone.contains(id)) {
            self.copy(&objects, gone, directories, damaged)?;
        }
        self.remove()?;
        files::sync_directory(&directories.packs)
    }

    fn copy(
        &self,
        objects: &[(ObjectId, Location)],
        gone: &HashSet<ObjectId>,
        directories: &Directories,
        damaged: Damaged,
    ) -> Result<()> {
        let mut writer = PackWriter::create(directories)?;
        self.copy_into(&mut writer, objects, gone, damaged, None)?;
        writer.finish()?;
        Ok(())
    }

    /// Adds what is not gone to another pack; what is small and lies alone is gathered into groups, if there
    /// is one to gather it in.
    fn copy_into(
        &self,
        writer: &mut PackWriter,
        objects: &[(ObjectId, Location)],
        gone: &HashSet<ObjectId>,
        damaged: Damaged,
        mut gathering: Option<&mut Group>,
    ) -> Result<()> {
        let file = files::open(&self.path)?.ok_or(Errno::NOENT).at("open", &self.path)?;
        for place in objects.chunk_by(|(_, one), (_, next)| one.offset == next.offset) {
            let Some((id, location)) = place.iter().find(|(id, _)| !gone.contains(id)) else {
                continue;
            };
            let stored = self.read_stored(&file, id, *location)?;
            match (is_group(&stored), gathering.as_deref_mut()) {
                (true, _) => writer.append_rest(&stored, place, gone, damaged),
                (false, Some(group)) => writer.gather(*id, &stored, group),
                (false, None) => writer.append(*id, &[], &stored),
            }
            if writer.has_chunk() {
                writer.flush()?;
            }
        }
        Ok(())
    }

    /// Makes one pack of several, which is durable before they go.
    pub(super) fn join(packs: &[Arc<Self>], directories: &Directories) -> Result<()> {
        let mut writer = PackWriter::create(directories)?;
        let (mut seen, mut group) = (HashSet::new(), Group::default());
        for pack in packs {
            let mut objects = pack.objects()?;
            objects.sort_unstable_by_key(|(_, location)| (location.offset, location.member));
            pack.copy_into(&mut writer, &objects, &seen, Damaged::Stays, Some(&mut group))?;
            seen.extend(objects.iter().map(|(id, _)| *id));
        }
        writer.close(&mut group);
        writer.finish()?;
        failpoint::hit("gc_after_joining");
        for pack in packs {
            pack.remove()?;
        }
        files::sync_directory(&directories.packs)
    }

    /// The index goes first, under a name that says so: a pack that merely lost it is worth keeping.
    fn remove(&self) -> Result<()> {
        let gone = self.path.with_extension("gone");
        rustix::fs::rename(self.index.path(), &gone).at("rename to", &gone)?;
        // An index whose pack is gone would promise what nobody has.
        files::sync_directory(self.path.parent().expect("BUG: a pack lies in a directory"))?;
        failpoint::hit("store_after_index_removal");
        finish_removal(&gone)
    }
}

/// What lay at a place in a pack.
pub(super) enum Found {
    Alone(Vec<u8>),
    Group(Members),
}

/// What becomes of a group that cannot be read, when some of its members are to go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Damaged {
    /// All of it stays as it is: `doctor` may make something of it.
    Stays,
    /// It goes: what must be gone is in it.
    Goes,
}

/// Ends the removal of a pack whose index was renamed to this.
pub(super) fn finish_removal(gone: &Path) -> Result<()> {
    files::remove(&gone.with_extension("pack"))?;
    files::remove(gone)
}

/// Ends removals that were interrupted, and gives packs that a killed process left without an index
/// theirs: what it took in is most likely taken in again.
pub(super) fn tend_orphans(directories: &Directories, secrets: &Secrets) -> Result<()> {
    for name in files::names(&directories.packs)? {
        let path = directories.packs.join(&name);
        if name.ends_with(".gone") {
            finish_removal(&path)?;
        }
        if !name.ends_with(".pack") || files::is_there(&path.with_extension("idx"))? {
            continue;
        }
        // A writer keeps its pack locked until the index has its name, so ask again under the lock.
        if let Some(file) = files::abandoned(&path)?
            && !files::is_there(&path.with_extension("idx"))?
            && !files::is_there(&path.with_extension("gone"))?
        {
            match repair::scan(&file, &path, secrets) {
                // What is sealed has no name without the key: it waits for who has it.
                Err(Error::SecretKey(_)) => {}
                // Nothing was written to it yet; more than that is damage, and not ours to delete.
                Ok(scan) if scan.objects.is_empty() => {
                    let length = file.metadata().at("examine", &path)?.len();
                    if length <= MAGIC.len() as u64 {
                        files::remove(&path)?;
                    }
                }
                scan => repair::write_index(&mut scan?, &path, directories)?,
            }
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
        self.objects.push((id, Location::alone(offset, length)));
    }

    /// Adds a group that was compressed.
    pub(super) fn append_group(&mut self, group: &Group) {
        self.append_members(group.stored(), (0..).zip(group.ids().iter().copied()));
    }

    fn append_members(&mut self, stored: &[u8], members: impl Iterator<Item = (u16, ObjectId)>) {
        let length = u32::try_from(stored.len()).expect("BUG: no group is large");
        self.buffer.extend_from_slice(&length.to_le_bytes());
        let offset = self.base + self.buffer.len() as u64;
        self.buffer.extend_from_slice(stored);
        self.objects.extend(members.map(|(member, id)| (id, Location { offset, length, member })));
    }

    /// Adds an object that lay alone, with others if it is small.
    fn gather(&mut self, id: ObjectId, stored: &[u8], group: &mut Group) {
        let small = Stored::parse(stored).ok().filter(|stored| {
            stored.codec <= CODEC_ZSTD
                && Class::of(stored.raw_length as usize) == Some(group.class())
        });
        // What is damaged stays as it is: `doctor` may make something of it.
        match small.and_then(|_| unpack_object(&id, stored).ok()) {
            Some(bytes) => {
                if !group.has_room(bytes.len()) {
                    self.close(group);
                }
                group.push(id, &bytes);
            }
            None => self.append(id, &[], stored),
        }
    }

    /// Adds what was gathered.
    fn close(&mut self, group: &mut Group) {
        if let [id] = group.ids() {
            let id = *id;
            group.compress();
            self.append(id, &[], group.stored());
        } else if !group.is_empty() {
            group.compress();
            self.append_group(group);
        }
        group.clear();
    }

    /// Adds what is left of a group that lay in another pack.
    fn append_rest(
        &mut self,
        stored: &[u8],
        place: &[(ObjectId, Location)],
        gone: &HashSet<ObjectId>,
        damaged: Damaged,
    ) {
        let as_it_is = place.iter().map(|(id, location)| (location.member, *id));
        let members = Members::open(stored);
        let left = place.iter().filter(|(id, _)| !gone.contains(id));
        // What the index does not name must not stay either: nobody could take it away.
        if members.as_ref().is_ok_and(|members| members.len() == left.clone().count()) {
            return self.append_members(stored, as_it_is);
        }
        let (mut group, mut whole) = (Group::default(), true);
        for (id, location) in left {
            match members.as_ref().map(|members| members.get(id, location.member)) {
                Ok(Ok(bytes)) => group.push(*id, bytes),
                _ => whole = false,
            }
        }
        if !whole && damaged == Damaged::Stays {
            self.append_members(stored, as_it_is);
        } else if !group.is_empty() {
            group.compress();
            self.append_group(&group);
        }
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
        // From here on others may count on it, so that it stays also where the sync fails; whoever
        // finds it syncs its name himself.
        index.keep();
        self.data.keep();
        files::sync_directory(&self.directories.packs)?;
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

#[cfg(test)]
mod tests {
    use super::super::{CODEC_ZSTD, ContentStorage, LocalStore, header};
    use super::*;

    /// A few bytes that say they are a terabyte, and would make as much of it as there is memory for.
    #[test]
    fn an_object_longer_than_any_in_a_pack_is_refused_before_it_is_read() {
        let place = tempfile::tempdir().unwrap();
        let store = LocalStore::open(place.path()).unwrap();
        let directories =
            Directories { packs: place.path().join("packs"), temporary: place.path().join("tmp") };
        let id = ObjectId([7; 32]);
        let zeroes = zstd::bulk::compress(&vec![0; 8 << 20], 3).unwrap();
        let mut writer = PackWriter::create(&directories).unwrap();
        writer.append(id, &header(CODEC_ZSTD, 1 << 40), &zeroes);
        writer.finish().unwrap();
        let error = store.get(&id).unwrap_err();
        assert_eq!(error.code(), "corrupt_object");
        assert!(error.to_string().contains("too long"), "{error}");
    }
}
