//! The index of one pack: which objects it has, and where they lie.
//!
//! Layout, numbers little-endian: magic (8), version (4), count (4), the pack's name (32), its length
//! before sealing (8), its nonce (24, zero where it is not sealed), the objects in order of their names
//! (id 32, offset 8, length 4 each), and the BLAKE3 hash of all that (32).

use chronicle_core::ObjectId;

use crate::keys::Mark;
use crate::pack::{LENGTH, PACK_HEAD, PackName};
use crate::seal::NONCE;

const MAGIC: &[u8; 8] = b"chr-ridx";
pub(crate) const VERSION: u32 = 1;
const HEAD: usize = 8 + 4 + 4 + 32 + 8 + NONCE;
const ENTRY: usize = 32 + 8 + 4;
const CHECKSUM: usize = 32;

/// The most objects in one pack.
pub(crate) const OBJECTS_MAX: usize = 1 << 19;

/// The longest index, before sealing.
pub(crate) const INDEX_MAX: u64 = (HEAD + OBJECTS_MAX * ENTRY + CHECKSUM) as u64;

/// Where an object's stored form lies in its pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Location {
    fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    /// The bytes of the pack that are the stored form.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.end()
    }
}

/// What is known of one pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) name: PackName,
    /// The pack's length before sealing.
    pub(crate) length: u64,
    pub(crate) nonce: [u8; NONCE],
    /// The key that sealed both; not part of the bytes.
    pub(crate) mark: Option<Mark>,
    /// Sorted by id, each only once.
    pub(crate) objects: Vec<(ObjectId, Location)>,
}

/// Why an index is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Damaged(&'static str),
    Newer(u32),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged(why) => f.write_str(why),
            Self::Newer(version) => write!(f, "its format version is {version}"),
        }
    }
}

impl Index {
    /// Where the object lies, if the pack has it.
    pub(crate) fn find(&self, id: &ObjectId) -> Option<Location> {
        let at = self.objects.binary_search_by(|(other, _)| other.cmp(id)).ok()?;
        Some(self.objects[at].1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.objects.len()).expect("BUG: a pack is full before that");
        let mut bytes = Vec::with_capacity(HEAD + self.objects.len() * ENTRY + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&self.name.0);
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        for (id, location) in &self.objects {
            bytes.extend_from_slice(&id.0);
            bytes.extend_from_slice(&location.offset.to_le_bytes());
            bytes.extend_from_slice(&location.length.to_le_bytes());
        }
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        bytes
    }

    /// Reads the index of this pack, and believes nothing of it.
    pub(crate) fn parse(name: PackName, bytes: &[u8]) -> Result<Self, Refusal> {
        let content = verified(bytes)?;
        let (head, entries) = content.split_at(HEAD);
        if head[16..48] != name.0 {
            return Err(Refusal::Damaged("it belongs to another pack"));
        }
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let index = Self {
            name,
            length: read_u64(&head[48..]),
            nonce: *head[56..].first_chunk().expect("BUG: the head is whole"),
            mark: None,
            objects: entries.iter().map(object).collect(),
        };
        index.check_order()?;
        index.check_places()?;
        Ok(index)
    }

    fn check_order(&self) -> Result<(), Refusal> {
        match self.objects.is_sorted_by(|(one, _), (next, _)| one < next) {
            true => Ok(()),
            false => Err(Refusal::Damaged("its objects are out of order")),
        }
    }

    fn check_places(&self) -> Result<(), Refusal> {
        let mut places: Vec<Location> = self.objects.iter().map(|(_, place)| *place).collect();
        places.sort_unstable_by_key(|place| place.offset);
        let mut free = PACK_HEAD;
        for place in places {
            if place.length == 0 || place.end() > self.length {
                return Err(Refusal::Damaged("an object lies outside the pack"));
            }
            if place.offset < free + LENGTH {
                return Err(Refusal::Damaged("its objects overlap"));
            }
            free = place.end();
        }
        Ok(())
    }
}

fn verified(bytes: &[u8]) -> Result<&[u8], Refusal> {
    let head = bytes.get(..HEAD).ok_or(Refusal::Damaged("it is cut off"))?;
    if !head.starts_with(MAGIC) {
        return Err(Refusal::Damaged("it is no index"));
    }
    match read_u32(&head[8..]) {
        VERSION => {}
        version if version > VERSION => return Err(Refusal::Newer(version)),
        _ => return Err(Refusal::Damaged("its version is wrong")),
    }
    let count = read_u32(&head[12..]) as usize;
    if count > OBJECTS_MAX || bytes.len() != HEAD + count * ENTRY + CHECKSUM {
        return Err(Refusal::Damaged("its length is wrong"));
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    match blake3::hash(content).as_bytes() == checksum {
        true => Ok(content),
        false => Err(Refusal::Damaged("its checksum is wrong")),
    }
}

fn object(entry: &[u8; ENTRY]) -> (ObjectId, Location) {
    let (id, rest) = entry.split_first_chunk().expect("BUG: an entry is whole");
    (ObjectId(*id), Location { offset: read_u64(rest), length: read_u32(&rest[8..]) })
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("BUG: the length was checked"))
}

fn read_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("BUG: the length was checked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: PackName = PackName([7; 32]);
    /// Where the first object of a pack lies.
    const FIRST: u64 = PACK_HEAD + LENGTH;

    fn index(places: &[(u8, u64, u32)]) -> Index {
        let object = |&(id, offset, length): &(u8, u64, u32)| {
            (ObjectId([id; 32]), Location { offset, length })
        };
        let objects = places.iter().map(object).collect();
        Index { name: NAME, length: 100, nonce: [9; NONCE], mark: None, objects }
    }

    #[track_caller]
    fn check_refused(places: &[(u8, u64, u32)], why: &'static str) {
        let refused = Index::parse(NAME, &index(places).encode());
        assert_eq!(refused, Err(Refusal::Damaged(why)));
    }

    #[test]
    fn index_comes_back_and_finds_its_objects() {
        let index = index(&[(1, 66, 34), (2, FIRST, 30)]);
        let parsed = Index::parse(NAME, &index.encode()).unwrap();
        assert_eq!(parsed, index);
        assert_eq!(parsed.find(&ObjectId([2; 32])), Some(Location { offset: FIRST, length: 30 }));
        assert_eq!(parsed.find(&ObjectId([3; 32])), None);
    }

    #[test]
    fn index_that_lies_is_refused() {
        check_refused(&[(2, FIRST, 10), (1, 60, 10)], "its objects are out of order");
        check_refused(&[(1, FIRST, 10), (1, 60, 10)], "its objects are out of order");
        check_refused(&[(1, 50, 51)], "an object lies outside the pack");
        check_refused(&[(1, FIRST, 0)], "an object lies outside the pack");
        check_refused(&[(1, u64::MAX - 1, 10)], "an object lies outside the pack");
        check_refused(&[(1, FIRST, 30), (2, 65, 10)], "its objects overlap");
        check_refused(&[(1, FIRST - 1, 10)], "its objects overlap");
        let other = Index::parse(PackName([8; 32]), &index(&[]).encode());
        assert_eq!(other, Err(Refusal::Damaged("it belongs to another pack")));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let bytes = index(&[(1, 16, 30), (2, 50, 50)]).encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::parse(NAME, &damaged).is_err(), "byte {at}");
            assert!(Index::parse(NAME, &bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn newer_index_is_said_to_be_newer() {
        let mut bytes = index(&[]).encode();
        bytes[8] = 2;
        assert_eq!(Index::parse(NAME, &bytes), Err(Refusal::Newer(2)));
    }
}
