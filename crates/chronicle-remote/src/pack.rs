//! A pack: stored forms one after the other, each preceded by its length.
//!
//! Layout, numbers little-endian: magic (8), version (4), random bytes (16), then for each object its length
//! (4) and its stored form. Sealing, where it is wanted, goes over all of it.
//!
//! The random bytes make every pack another one, also where it has the same objects: whoever takes a pack
//! away must not take away one that somebody has just written.

use chronicle_core::{ObjectId, to_hex};

use crate::index::{Index, Location, OBJECTS_MAX};
use crate::random::random_bytes;
use crate::seal::{Kind, NONCE, RemoteKey, Sealer, sealed_length};

const MAGIC: &[u8; 8] = b"chr-rpak";
pub(crate) const VERSION: u32 = 1;

/// Bytes before the first object's length.
pub(crate) const PACK_HEAD: u64 = 12 + 16;
/// Bytes of the length before each object.
pub(crate) const LENGTH: u64 = 4;

/// A pack of several objects is not longer than this.
pub const PACK_FULL: usize = 16 << 20;

/// The longest content; what is longer comes in chunks, which are objects of their own.
pub const CONTENT_MAX: usize = 256 << 20;

/// The longest stored form: that of content that does not compress, or was sealed as a secret.
pub(crate) const STORED_MAX: usize = CONTENT_MAX + (64 << 10);

/// Names a pack by the hash of its bytes in the bucket; keyed, where they are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PackName(pub(crate) [u8; 32]);

impl PackName {
    pub(crate) fn of(bytes: &[u8], key: Option<&RemoteKey>) -> Self {
        Self(key.map_or_else(|| *blake3::hash(bytes).as_bytes(), |key| key.name(bytes)))
    }

    pub(crate) fn pack_key(&self) -> String {
        format!("packs/{}.pack", to_hex(&self.0))
    }

    pub(crate) fn index_key(&self) -> String {
        format!("packs/{}.idx", to_hex(&self.0))
    }

    /// The name in a key that ends so.
    pub(crate) fn parse(key: &str, ending: &str) -> Option<Self> {
        let hex = key.strip_prefix("packs/")?.strip_suffix(ending)?;
        let name = hex.parse::<ObjectId>().ok()?.0;
        // Hexadecimal in capitals would be a second key of the same pack.
        (to_hex(&name) == hex).then_some(Self(name))
    }
}

/// How long the pack is in the bucket.
pub(crate) fn length_in_bucket(index: &Index) -> u64 {
    if index.mark.is_some() { sealed_length(index.length) } else { index.length }
}

/// A pack in the making.
pub(crate) struct PackBuilder {
    bytes: Vec<u8>,
    objects: Vec<(ObjectId, Location)>,
}

/// A pack and its index as they go into the bucket.
pub(crate) struct Finished {
    pub(crate) index: Index,
    pub(crate) pack_bytes: Vec<u8>,
    pub(crate) index_bytes: Vec<u8>,
}

impl PackBuilder {
    pub(crate) fn new() -> Self {
        let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &random_bytes::<16>()].concat();
        Self { bytes, objects: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.objects.len()
    }

    /// Whether so many more bytes still fit; into an empty pack everything does.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        let longer = self.bytes.len() + LENGTH as usize + length;
        self.is_empty() || (longer <= PACK_FULL && self.objects.len() < OBJECTS_MAX)
    }

    /// Adds an object that is not in the pack yet.
    pub(crate) fn add(&mut self, id: ObjectId, stored: &[u8]) {
        let length = u32::try_from(stored.len()).expect("BUG: longer forms are refused before");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(stored);
        self.objects.push((id, Location { offset, length }));
    }

    pub(crate) fn finish(mut self, key: Option<&RemoteKey>) -> Finished {
        self.objects.sort_unstable_by_key(|(id, _)| *id);
        let length = self.bytes.len() as u64;
        let (pack_bytes, nonce) = match key {
            None => (self.bytes, [0; NONCE]),
            Some(key) => {
                let sealer = Sealer::random(key, Kind::Pack, &[]);
                (sealer.seal(&self.bytes), sealer.nonce())
            }
        };
        let name = PackName::of(&pack_bytes, key);
        let mark = key.map(|key| *key.mark());
        let index = Index { name, length, nonce, mark, objects: self.objects };
        let plain = index.encode();
        let index_bytes = match key {
            None => plain,
            Some(key) => Sealer::random(key, Kind::Index, &name.0).seal(&plain),
        };
        Finished { index, pack_bytes, index_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_has_its_objects_where_its_index_says() {
        let mut builder = PackBuilder::new();
        let stored: Vec<Vec<u8>> =
            (1..20).map(|length| vec![length; usize::from(length)]).collect();
        stored.iter().for_each(|stored| builder.add(ObjectId::of(stored), stored));
        let finished = builder.finish(None);
        let index = Index::parse(finished.index.name, &finished.index_bytes).unwrap();
        assert_eq!(index, finished.index);
        assert_eq!(index.length, finished.pack_bytes.len() as u64);
        for stored in stored {
            let range = index.find(&ObjectId::of(&stored)).unwrap().range();
            let found = &finished.pack_bytes[range.start as usize..range.end as usize];
            assert_eq!(found, stored);
        }
    }

    /// Two files under one nonce would tell what they differ in.
    #[test]
    fn no_two_files_are_sealed_under_one_nonce() {
        let key = RemoteKey::derive(&[1; 32]);
        let mut nonces = std::collections::HashSet::new();
        for _ in 0..20 {
            let mut builder = PackBuilder::new();
            builder.add(ObjectId::of(b"x"), b"x");
            let finished = builder.finish(Some(&key));
            assert_eq!(finished.pack_bytes[8..8 + NONCE], finished.index.nonce);
            nonces.insert(finished.pack_bytes[8..8 + NONCE].to_vec());
            nonces.insert(finished.index_bytes[8..8 + NONCE].to_vec());
        }
        assert_eq!(nonces.len(), 40);
    }

    /// A collection carried the one object of a pack over into a pack of its own, which was the same pack,
    /// and then took it away.
    #[test]
    fn no_two_packs_have_one_name() {
        let name = || {
            let mut builder = PackBuilder::new();
            builder.add(ObjectId::of(b"x"), b"x");
            builder.finish(None).index.name
        };
        assert_ne!(name(), name());
    }

    #[test]
    fn one_name_has_one_key() {
        let name = PackName([0xab; 32]);
        assert_eq!(PackName::parse(&name.pack_key(), ".pack"), Some(name));
        assert_eq!(PackName::parse(&name.index_key(), ".idx"), Some(name));
        assert_eq!(PackName::parse(&name.index_key(), ".pack"), None);
        let capitals = format!("packs/{}.pack", "AB".repeat(32));
        assert_eq!(PackName::parse(&capitals, ".pack"), None);
    }
}
