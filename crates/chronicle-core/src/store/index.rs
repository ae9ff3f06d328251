//! The index of one pack: which objects it has, and where they lie.
//!
//! An index is searched on disk until it is asked often enough to be worth its memory. Only a whole
//! one can be verified, so nothing is called missing on the word of a part.
//!
//! Layout, numbers little-endian: magic (8), version (4), count (4), for each first byte of a name how
//! many objects have that or a lower one (256 x 4), the objects in order of their names (id 32, offset
//! 6, member 2, length 4 each), and the BLAKE3 hash of all that (32). Version 1 knows no members, and an
//! offset of 8 bytes of which the last two are 0: the same bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{corrupt, files};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;

pub(super) const MAGIC: &[u8; 8] = b"chr-indx";
/// The newest; an index without members is written as the one before.
pub(super) const VERSION: u32 = 2;
const WITHOUT_MEMBERS: u32 = 1;
const FANOUT: usize = 16;
const ENTRIES: usize = FANOUT + 256 * 4;
const ENTRY: usize = 32 + 8 + 4;
const CHECKSUM: usize = 32;

/// Lookups on disk before the index is read whole.
const LOOKUPS_ON_DISK: u32 = 8;

/// Bytes of indexes that one process keeps in memory.
const MEMORY_MAX: usize = 128 << 20;

static MEMORY: AtomicUsize = AtomicUsize::new(0);

/// Where an object's stored form lies in its pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) offset: u64,
    pub(super) length: u32,
    /// Which member it is, if a group lies there; else 0.
    pub(super) member: u16,
}

impl Location {
    /// Where an object lies that has a stored form of its own.
    pub(super) fn alone(offset: u64, length: u32) -> Self {
        Self { offset, length, member: 0 }
    }
}

/// Offsets have so many bits in an index: far more than a pack has bytes.
const OFFSET_BITS: u32 = 48;

/// The bytes of an index over these objects.
pub(super) fn encode(mut objects: Vec<(ObjectId, Location)>) -> Vec<u8> {
    objects.sort_unstable_by_key(|(id, _)| *id);
    let mut bytes = Vec::with_capacity(ENTRIES + objects.len() * ENTRY + CHECKSUM);
    bytes.extend_from_slice(MAGIC);
    let members = objects.iter().any(|(_, location)| location.member > 0);
    let version = if members { VERSION } else { WITHOUT_MEMBERS };
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&number(objects.len()).to_le_bytes());
    for first in 0..=u8::MAX {
        let up_to = objects.partition_point(|(id, _)| id.0[0] <= first);
        bytes.extend_from_slice(&number(up_to).to_le_bytes());
    }
    for (id, location) in &objects {
        bytes.extend_from_slice(&id.0);
        debug_assert!(location.offset >> OFFSET_BITS == 0, "BUG: a pack is full before that");
        let place = location.offset | u64::from(location.member) << OFFSET_BITS;
        bytes.extend_from_slice(&place.to_le_bytes());
        bytes.extend_from_slice(&location.length.to_le_bytes());
    }
    let checksum = blake3::hash(&bytes);
    bytes.extend_from_slice(checksum.as_bytes());
    bytes
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("BUG: a pack is full long before that")
}

/// Why an index cannot be used.
#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    Damaged(&'static str),
    Newer(u32),
}

/// The verified bytes of a whole index.
struct Whole(Vec<u8>);

impl Whole {
    fn parse(bytes: Vec<u8>) -> Result<Self, Unusable> {
        let head = bytes.get(..ENTRIES).ok_or(Unusable::Damaged("it is cut off"))?;
        let count = parse_count(head)?;
        if bytes.len() != ENTRIES + count * ENTRY + CHECKSUM {
            return Err(Unusable::Damaged("its length is wrong"));
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        if blake3::hash(content).as_bytes() != checksum {
            return Err(Unusable::Damaged("its checksum is wrong"));
        }
        Ok(Self(bytes))
    }

    fn entries(&self) -> &[u8] {
        &self.0[ENTRIES..self.0.len() - CHECKSUM]
    }

    fn find(&self, id: &ObjectId) -> Option<Location> {
        let range = bucket(&self.0[..ENTRIES], id).ok()?;
        search(self.entries().get(range)?, id)
    }
}

fn parse_count(head: &[u8]) -> Result<usize, Unusable> {
    if &head[..8] != MAGIC {
        return Err(Unusable::Damaged("it is no index"));
    }
    match read_u32(head, 8) {
        WITHOUT_MEMBERS | VERSION => Ok(read_u32(head, 12) as usize),
        version if version > VERSION => Err(Unusable::Newer(version)),
        _ => Err(Unusable::Damaged("its version is wrong")),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("BUG: the head is whole"))
}

/// Which bytes of the entries can hold the object.
fn bucket(head: &[u8], id: &ObjectId) -> Result<std::ops::Range<usize>, Unusable> {
    let first = usize::from(id.0[0]);
    let up_to = |first: usize| read_u32(head, FANOUT + 4 * first) as usize;
    let start = first.checked_sub(1).map_or(0, up_to);
    let end = up_to(first);
    if start > end || end > parse_count(head)? {
        return Err(Unusable::Damaged("its table is out of order"));
    }
    Ok(start * ENTRY..end * ENTRY)
}

fn search(entries: &[u8], id: &ObjectId) -> Option<Location> {
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let at = entries.binary_search_by(|entry| entry[..32].cmp(&id.0)).ok()?;
    Some(location(&entries[at]))
}

fn location(entry: &[u8; ENTRY]) -> Location {
    let (_, rest) = entry.split_at(32);
    let place = u64::from_le_bytes(*rest.first_chunk().expect("BUG: an entry is whole"));
    let member = u16::try_from(place >> OFFSET_BITS).expect("BUG: 16 bits are left");
    Location { offset: place & ((1 << OFFSET_BITS) - 1), length: read_u32(rest, 8), member }
}

/// The index file of one pack.
pub(super) struct Index {
    path: PathBuf,
    lookups: AtomicU32,
    whole: OnceLock<Whole>,
}

impl Index {
    /// An index of which nothing is read yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, lookups: AtomicU32::new(0), whole: OnceLock::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the object lies, if the index has it; a thorough answer reads the whole index.
    ///
    /// An index that was taken away has nothing: its objects are gone, or in a newer pack.
    pub(super) fn find(&self, id: &ObjectId, thorough: bool) -> Result<Option<Location>> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.find(id));
        }
        let Some(file) = files::open(&self.path)? else { return Ok(None) };
        let often = self.lookups.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_ON_DISK;
        if thorough || often && MEMORY.load(Ordering::Relaxed) < MEMORY_MAX {
            let whole = self.read(&file, id)?;
            let found = whole.find(id);
            self.remember(whole);
            Ok(found)
        } else {
            self.find_on_disk(&file, id)
        }
    }

    /// Every object of the pack, asked for on behalf of this one.
    pub(super) fn objects(&self, id: &ObjectId) -> Result<Vec<(ObjectId, Location)>> {
        let Some(file) = files::open(&self.path)? else { return Ok(Vec::new()) };
        let whole = self.read(&file, id)?;
        let (entries, _) = whole.entries().as_chunks::<ENTRY>();
        let name = |entry: &[u8; ENTRY]| ObjectId(*entry.first_chunk().expect("BUG: 44 >= 32"));
        Ok(entries.iter().map(|entry| (name(entry), location(entry))).collect())
    }

    fn read(&self, mut file: &File, id: &ObjectId) -> Result<Whole> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).at("read", &self.path)?;
        Whole::parse(bytes).map_err(|why| self.error(id, &why))
    }

    fn remember(&self, whole: Whole) {
        let size = whole.0.len();
        if MEMORY.fetch_add(size, Ordering::Relaxed) + size > MEMORY_MAX
            || self.whole.set(whole).is_err()
        {
            MEMORY.fetch_sub(size, Ordering::Relaxed);
        }
    }

    fn find_on_disk(&self, file: &File, id: &ObjectId) -> Result<Option<Location>> {
        let mut head = [0; ENTRIES];
        file.read_exact_at(&mut head, 0).at("read", &self.path)?;
        parse_count(&head).map_err(|why| self.error(id, &why))?;
        let range = bucket(&head, id).map_err(|why| self.error(id, &why))?;
        let size = file.metadata().at("examine", &self.path)?.len();
        if (ENTRIES + range.end) as u64 > size {
            return Err(self.error(id, &Unusable::Damaged("it is cut off")));
        }
        let mut entries = vec![0; range.len()];
        file.read_exact_at(&mut entries, (ENTRIES + range.start) as u64).at("read", &self.path)?;
        Ok(search(&entries, id))
    }

    fn error(&self, id: &ObjectId, why: &Unusable) -> Error {
        let name = self.path.display();
        match why {
            Unusable::Damaged(why) => corrupt(id, format!("the index {name} is damaged: {why}")),
            Unusable::Newer(found) => Error::Newer {
                what: format!("Index {name}"),
                found: u64::from(*found),
                known: u64::from(VERSION),
            },
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Some(whole) = self.whole.get() {
            MEMORY.fetch_sub(whole.0.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(count: u64) -> Vec<(ObjectId, Location)> {
        let object = |n: u64| {
            let location = Location { offset: n * 100, length: n as u32, member: n as u16 % 3 };
            (ObjectId::of(&n.to_le_bytes()), location)
        };
        (0..count).map(object).collect()
    }

    /// Every object is found, in memory and as on disk, and no other.
    #[track_caller]
    fn check(count: u64) {
        let bytes = encode(objects(count));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.idx");
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let index = Index::new(path);
        let whole = Whole::parse(bytes).unwrap();
        for (id, location) in objects(count) {
            assert_eq!(whole.find(&id), Some(location));
            assert_eq!(index.find_on_disk(&file, &id).unwrap(), Some(location));
        }
        let other = ObjectId::of(b"other");
        assert_eq!(whole.find(&other), None);
        assert_eq!(index.find_on_disk(&file, &other).unwrap(), None);
        assert_eq!(index.objects(&other).unwrap().len() as u64, count);
    }

    #[test]
    fn every_object_is_found_and_no_other() {
        [0, 1, 2, 255, 3000].into_iter().for_each(check);
    }

    #[test]
    fn damaged_index_is_refused_wherever_it_is_damaged() {
        let bytes = encode(objects(20));
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert!(Whole::parse(damaged).is_err(), "at {position}");
            assert!(Whole::parse(bytes[..position].to_vec()).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn newer_index_says_so() {
        let mut bytes = encode(objects(3));
        bytes[8] = 3;
        assert_eq!(Whole::parse(bytes).err(), Some(Unusable::Newer(3)));
    }

    #[test]
    fn without_members_an_index_is_what_it_always_was() {
        let alone = |n: u8| (ObjectId([n; 32]), Location::alone(12 + u64::from(n) * 9, 9));
        let bytes = encode((0..9).map(alone).collect());
        assert_eq!(bytes[8..12], [1, 0, 0, 0]);
        assert_eq!(bytes[ENTRIES + 32..ENTRIES + ENTRY], [12, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(encode(objects(3))[8..12], [2, 0, 0, 0]);
    }

    #[test]
    fn answer_is_the_same_before_and_after_it_is_read_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.idx");
        std::fs::write(&path, encode(objects(50))).unwrap();
        let index = Index::new(path);
        for _ in 0..2 * LOOKUPS_ON_DISK {
            for (id, location) in objects(50) {
                assert_eq!(index.find(&id, false).unwrap(), Some(location));
            }
        }
        assert!(index.whole.get().is_some());
    }

    /// With a checksum that fits, so that what is behind it is reached.
    #[test]
    fn mutated_indexes() {
        let object = |n: u8| (ObjectId([n; 32]), Location::alone(12, 9));
        let grouped = (0..9)
            .map(|n| (ObjectId([n; 32]), Location { offset: 12, length: 9, member: n.into() }));
        let alone = encode((0..9).map(object).collect());
        let mut samples = vec![alone, encode(Vec::new()), encode(grouped.collect())];
        samples.iter_mut().for_each(|sample| sample.truncate(sample.len() - CHECKSUM));
        crate::fuzz::target("pack-index", &samples, |input| {
            let _ = Whole::parse(input.to_vec());
            let whole = [input, blake3::hash(input).as_bytes()].concat();
            let Ok(whole) = Whole::parse(whole) else { return false };
            for first in 0..=u8::MAX {
                let _ = whole.find(&ObjectId([first; 32]));
            }
            true
        });
    }
}
