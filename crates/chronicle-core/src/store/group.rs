//! Small objects that came together, compressed together: neighbours resemble each other.
//!
//! A group is one stored form in a pack; the index says which of its members an object is. Each member
//! keeps its own name, and is checked against it. A group is small, so that reading one object of it costs
//! little, and it is never changed: what is to go leaves by writing the others anew.
//!
//! Payload, numbers little-endian: how the content is kept (1: 0 as it is, 1 zstd), how many members (2), the
//! length of each (4), and their contents, one after the other.

use std::cell::RefCell;

use zstd::bulk::Compressor;

use super::{
    CODEC_RAW, CODEC_ZSTD, FAST_LEVEL, HEADER, LEVEL, Stored, corrupt, decode, header, pack_object,
    verify,
};
use crate::error::Result;
use crate::id::ObjectId;

pub(super) const CODEC_GROUP: u8 = 5;

/// What a group of small members is filled up to: whoever reads one decompresses all of it.
const FULL_BYTES: usize = 16 << 10;
/// What is longer gains less from such company than scattered reads of it would lose.
const MEMBER_BYTES: usize = 3 << 10;
/// Members of middle length have groups of their own: writing one of them costs more than reading what is around it.
const MIDDLE_FULL_BYTES: usize = 64 << 10;
const MIDDLE_SHORTEST: usize = (6 << 10) + 1;
const MIDDLE_LONGEST: usize = 32 << 10;
const MEMBERS_MAX: usize = 1024;

/// What a reader takes: nothing that says more is looked into.
const CONTENT_MAX: u64 = 256 << 10;

/// Bytes of a payload before the lengths.
const START: usize = 3;

thread_local! {
    static COMPRESSOR: RefCell<Compressor<'static>> =
        RefCell::new(Compressor::new(LEVEL).expect("zstd has this level"));
}

/// Which company an object is kept in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    #[default]
    Small,
    Middle,
}

impl Class {
    /// The class of content of this length; `None` if it is better kept alone.
    pub(super) fn of(length: usize) -> Option<Self> {
        match length {
            ..=MEMBER_BYTES => Some(Self::Small),
            MIDDLE_SHORTEST..=MIDDLE_LONGEST => Some(Self::Middle),
            _ => None,
        }
    }

    fn full_bytes(self) -> usize {
        match self {
            Self::Small => FULL_BYTES,
            Self::Middle => MIDDLE_FULL_BYTES,
        }
    }

    fn level(self) -> i32 {
        match self {
            Self::Small => LEVEL,
            Self::Middle => FAST_LEVEL,
        }
    }
}

/// Objects that will be compressed together.
#[derive(Default)]
pub(super) struct Group {
    class: Class,
    ids: Vec<ObjectId>,
    lengths: Vec<u8>,
    content: Vec<u8>,
    stored: Vec<u8>,
}

impl Group {
    /// An empty one for members of a class.
    pub(super) fn of(class: Class) -> Self {
        Self { class, ..Self::default() }
    }

    /// The class that its members have.
    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Whether it can take this much more.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.content.len() + length <= self.class.full_bytes() && self.ids.len() < MEMBERS_MAX
    }

    pub(super) fn push(&mut self, id: ObjectId, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("BUG: no member is large");
        self.ids.push(id);
        self.lengths.extend_from_slice(&length.to_le_bytes());
        self.content.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The members in their order.
    pub(super) fn ids(&self) -> &[ObjectId] {
        &self.ids
    }

    /// What `compress` made.
    pub(super) fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.lengths.clear();
        self.content.clear();
        self.stored.clear();
    }

    /// The stored form of all members; that of the object itself where there is only one.
    pub(super) fn compress(&mut self) -> &[u8] {
        let out = &mut self.stored;
        out.clear();
        if self.ids.len() < 2 {
            out.extend_from_slice(&pack_object(&self.content));
            return out;
        }
        let count = u16::try_from(self.ids.len()).expect("BUG: a group is full before that");
        out.extend_from_slice(&header(CODEC_GROUP, self.content.len() as u64));
        out.push(CODEC_ZSTD);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&self.lengths);
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(self.content.len()), 0);
        let compressed = COMPRESSOR.with_borrow_mut(|compressor| {
            compressor.set_compression_level(self.class.level())?;
            compressor.compress_to_buffer(&self.content, &mut out[start..])
        });
        match compressed {
            Ok(length) if length < self.content.len() => out.truncate(start + length),
            _ => {
                out.truncate(start);
                out.extend_from_slice(&self.content);
                out[HEADER] = CODEC_RAW;
            }
        }
        out
    }
}

/// Whether this is the stored form of a group.
pub(super) fn is_group(stored: &[u8]) -> bool {
    stored.first() == Some(&CODEC_GROUP)
}

/// The contents of a group.
pub(super) struct Members {
    content: Vec<u8>,
    /// Where each member ends.
    ends: Vec<usize>,
}

impl Members {
    /// Takes a stored form apart; one that does not add up is refused before anything is decompressed.
    pub(super) fn open(stored: &[u8]) -> std::result::Result<Self, &'static str> {
        let Stored { codec: CODEC_GROUP, raw_length, payload } = Stored::parse(stored)? else {
            return Err("it is no group");
        };
        if raw_length > CONTENT_MAX {
            return Err("its group says it is too long");
        }
        let (start, rest) = payload.split_first_chunk::<START>().ok_or("it is cut off")?;
        let count = usize::from(u16::from_le_bytes([start[1], start[2]]));
        if !(2..=MEMBERS_MAX).contains(&count) {
            return Err("its group has a number of members that no group has");
        }
        let (lengths, payload) = rest.split_at_checked(4 * count).ok_or("it is cut off")?;
        let mut end = 0;
        let ends = lengths.as_chunks::<4>().0.iter().map(|length| {
            end += u64::from(u32::from_le_bytes(*length));
            end as usize
        });
        let ends: Vec<usize> = ends.collect();
        if end != raw_length {
            return Err("the members of its group do not add up to its length");
        }
        let codec = match start[0] {
            codec @ (CODEC_RAW | CODEC_ZSTD) => codec,
            _ => return Err("the codec of its group is not known"),
        };
        Ok(Self { content: decode(Stored { codec, raw_length, payload })?, ends })
    }

    /// The contents of all members, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.content[start..*end])
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The content of one member, verified.
    pub(super) fn get(&self, id: &ObjectId, member: u16) -> Result<&[u8]> {
        let bytes = self.iter().nth(usize::from(member));
        let bytes = bytes.ok_or_else(|| corrupt(id, "its group has no such member"))?;
        verify(id, bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::random_bytes;

    fn group(contents: &[Vec<u8>]) -> Group {
        let mut group = Group::default();
        contents.iter().for_each(|bytes| group.push(ObjectId::of(bytes), bytes));
        group
    }

    fn words(number: usize) -> Vec<u8> {
        format!("fn number_{number}() -> usize {{ {number} }}\n").repeat(number % 7).into_bytes()
    }

    #[track_caller]
    fn check(contents: &[Vec<u8>]) -> Vec<u8> {
        let stored = group(contents).compress().to_vec();
        let members = Members::open(&stored).unwrap();
        assert_eq!(members.iter().collect::<Vec<_>>(), contents);
        for (number, bytes) in (0..).zip(contents) {
            assert_eq!(members.get(&ObjectId::of(bytes), number).unwrap(), bytes);
        }
        assert!(members.get(&ObjectId::of(b"other"), 0).is_err());
        assert!(members.get(&ObjectId::of(b""), u16::MAX).is_err());
        stored
    }

    #[test]
    fn members_come_back_and_are_smaller_together() {
        let contents: Vec<_> = (0..100).map(words).collect();
        let alone: usize = contents.iter().map(|bytes| pack_object(bytes).len()).sum();
        assert!(check(&contents).len() < alone / 3);
        check(&[Vec::new(), Vec::new()]);
        let noise = check(&[random_bytes::<500>().to_vec(), random_bytes::<70>().to_vec()]);
        assert_eq!((noise[HEADER], noise.len()), (CODEC_RAW, HEADER + START + 8 + 570));
    }

    #[test]
    fn one_object_alone_is_no_group() {
        let mut group = group(&[words(6)]);
        let stored = group.compress();
        assert!(!is_group(stored));
        assert_eq!(crate::unpack_object(&ObjectId::of(&words(6)), stored).unwrap(), words(6));
    }

    #[test]
    fn a_group_is_full_before_a_reader_refuses_it() {
        let mut group = Group::default();
        while group.has_room(0) {
            group.push(ObjectId::of(b""), b"");
        }
        assert_eq!(Members::open(group.compress()).unwrap().len(), MEMBERS_MAX);
        group.clear();
        let noise = [0; MEMBER_BYTES / 2];
        while group.has_room(noise.len()) {
            group.push(ObjectId::of(&noise), &noise);
        }
        assert_eq!(Members::open(group.compress()).unwrap().len(), FULL_BYTES / noise.len());
        let mut group = Group::of(Class::Middle);
        let noise = [0; MIDDLE_LONGEST];
        while group.has_room(noise.len()) {
            group.push(ObjectId::of(&noise), &noise);
        }
        assert_eq!(Members::open(group.compress()).unwrap().len(), 2);
        assert!(MIDDLE_FULL_BYTES as u64 <= CONTENT_MAX);
    }

    #[test]
    fn what_is_short_or_of_middle_length_has_company_of_its_own_kind() {
        let classes = [0, 3072, 3073, 6144, 6145, 32_768, 32_769].map(Class::of);
        let (small, middle) = (Some(Class::Small), Some(Class::Middle));
        assert_eq!(classes, [small, small, None, None, middle, middle, None]);
    }

    #[test]
    fn lies_are_refused() {
        let stored = check(&[words(5), words(6)]);
        let lie = |at: usize, bytes: &[u8]| {
            let mut lying = stored.clone();
            lying[at..at + bytes.len()].copy_from_slice(bytes);
            Members::open(&lying).err().unwrap_or_default()
        };
        assert_eq!(lie(1, &[0xff; 8]), "its group says it is too long");
        assert_eq!(lie(HEADER, &[2]), "the codec of its group is not known");
        assert!(lie(HEADER + 1, &[1, 0]).contains("number of members"));
        assert!(lie(HEADER + 1, &[0xff, 0xff]).contains("number of members"));
        assert!(lie(HEADER + START, &[0xff; 8]).contains("add up"));
        let bomb = zstd::bulk::compress(&vec![0; 8 << 20], 3).unwrap();
        let table = [&header(CODEC_GROUP, 6)[..], &[1, 2, 0, 3, 0, 0, 0, 3, 0, 0, 0], &bomb];
        assert_eq!(Members::open(&table.concat()).err(), Some("its payload is damaged"));
    }

    #[test]
    fn mutated_groups() {
        let noise = (0..2).map(|n| blake3::hash(&[n]).as_bytes().to_vec()).collect::<Vec<_>>();
        let contents = [vec![words(3), words(5), words(6)], noise];
        let samples = contents.map(|contents| group(&contents).compress().to_vec());
        crate::fuzz::target("group", &samples, |input| {
            let Ok(members) = Members::open(input) else { return false };
            assert!(members.content.len() as u64 <= CONTENT_MAX);
            assert_eq!(members.iter().count(), members.len());
            assert_eq!(members.iter().map(<[u8]>::len).sum::<usize>(), members.content.len());
            true
        });
    }
}
