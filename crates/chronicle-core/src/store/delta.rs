//! A version of a file kept as what differs from an earlier one.
//!
//! The stored form names the version it stands on, and how many stand on each other below it: each has
//! fewer than the one above, so that no chain is endless and none a circle.

use std::cell::RefCell;

use zstd::zstd_safe::{CCtx, DCtx, compress_bound};

use super::{
    HEADER, LARGE_OBJECT, LEVEL, Stored, compressed, corrupt, header, open_object, verify, with_raw,
};
use crate::error::{Error, Result};
use crate::id::ObjectId;
use crate::secret::Secrets;

pub(super) const CODEC_DELTA: u8 = 3;

/// Versions that may stand on each other: who reads the last reads them all.
const DEEPEST: u8 = 32;
/// Bytes of the payload before the frame: the depth, and the name of the version below.
const START: usize = 1 + 32;
/// A delta this much smaller than the content needs no comparison with compressing it alone.
const CLEAR_GAIN: usize = 8;
/// How much two versions have in common is guessed from so many samples of so many bytes.
const SAMPLES: usize = 8;
const SAMPLE: usize = 16;
/// What zstd takes for a trained dictionary and not for content.
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

thread_local! {
    // Making a context costs more than a small delta.
    static CONTEXT: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static READER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// The stored form of a delta, taken apart.
struct Delta<'a> {
    depth: u8,
    base: ObjectId,
    raw_length: u64,
    frame: &'a [u8],
}

impl<'a> Delta<'a> {
    /// `None` for what is stored in another form.
    fn parse(stored: &'a [u8]) -> Option<Self> {
        let Stored { codec: CODEC_DELTA, raw_length, payload } = Stored::parse(stored).ok()? else {
            return None;
        };
        let (start, frame) = payload.split_first_chunk::<START>()?;
        let (depth, base) = start.split_first()?;
        let base = ObjectId(base.try_into().ok()?);
        Some(Self { depth: *depth, base, raw_length, frame })
    }

    fn apply(&self, base: &[u8]) -> std::result::Result<Vec<u8>, &'static str> {
        if self.raw_length > LARGE_OBJECT as u64 {
            return Err("it says it is too long");
        }
        let mut bytes = Vec::with_capacity(self.raw_length as usize);
        READER
            .with_borrow_mut(|reader| {
                reader.decompress_using_dict(&mut bytes, self.frame, base).map(drop)
            })
            .map_err(|_| "its payload is damaged")?;
        match bytes.len() as u64 == self.raw_length {
            true => Ok(bytes),
            false => Err("its length is wrong"),
        }
    }
}

/// The version that a stored form stands on, if it does.
pub(crate) fn base_of(stored: &[u8]) -> Option<ObjectId> {
    Delta::parse(stored).map(|delta| delta.base)
}

/// How many versions are below a stored form.
pub(crate) fn depth_of(stored: &[u8]) -> u8 {
    Delta::parse(stored).map_or(0, |delta| delta.depth)
}

/// The smallest stored form of an object that was kept as it is: against an earlier version of which so
/// many are below it, or alone; `None` if nothing is smaller.
pub(crate) fn smaller(
    stored: &[u8],
    base: &ObjectId,
    content: &[u8],
    below: u8,
) -> Option<Vec<u8>> {
    let Stored { payload: bytes, .. } = Stored::parse(stored).ok()?;
    let delta = delta(bytes, base, content, below);
    if delta.as_ref().is_some_and(|delta| delta.len() * CLEAR_GAIN <= bytes.len()) {
        return delta;
    }
    match (delta, compressed(stored)) {
        (Some(delta), Some(alone)) if delta.len() >= alone.len() => Some(alone),
        (delta, alone) => delta.or(alone).filter(|form| form.len() < stored.len()),
    }
}

/// The stored form of a later version of something, as a capture makes it.
pub fn pack_version(bytes: &[u8], base: &ObjectId, content: &[u8]) -> Vec<u8> {
    let stored = with_raw(bytes, |stored| stored.to_bytes());
    smaller(&stored, base, content, 0).unwrap_or(stored)
}

fn delta(bytes: &[u8], base: &ObjectId, content: &[u8], below: u8) -> Option<Vec<u8>> {
    if below >= DEEPEST || content.starts_with(&DICTIONARY_MAGIC) || bytes.len() > LARGE_OBJECT {
        return None;
    }
    if !are_related(bytes, content) {
        return None;
    }
    let mut stored = Vec::with_capacity(HEADER + START + compress_bound(bytes.len()));
    stored.extend_from_slice(&header(CODEC_DELTA, bytes.len() as u64));
    stored.push(below + 1);
    stored.extend_from_slice(base.as_bytes());
    let mut frame = Vec::with_capacity(compress_bound(bytes.len()));
    let made = CONTEXT.with_borrow_mut(|context| {
        context.compress_using_dict(&mut frame, bytes, content, LEVEL).map(drop)
    });
    made.ok()?;
    stored.extend_from_slice(&frame);
    Some(stored)
}

/// Whether an earlier version has any of some samples: a file that was written anew is not worth the try.
fn are_related(bytes: &[u8], content: &[u8]) -> bool {
    let Some(last) = bytes.len().checked_sub(SAMPLE) else { return true };
    let sample = |number: usize| {
        let at = last * number / SAMPLES;
        &bytes[at..at + SAMPLE]
    };
    (0..=SAMPLES).any(|number| memchr::memmem::find(content, sample(number)).is_some())
}

/// Where the versions below a delta are found.
pub(crate) trait Bases {
    /// The stored form of an object that may be a delta itself.
    fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>>;

    /// The content of an object that is kept in no such form.
    fn whole(&self, id: &ObjectId) -> Result<Vec<u8>>;
}

/// The bytes of a stored form, a delta or not, if they are the ones that the name says.
pub(crate) fn open_chain(
    id: &ObjectId,
    stored: Vec<u8>,
    bases: &dyn Bases,
    secrets: &Secrets,
) -> Result<Vec<u8>> {
    let (mut chain, mut next) = (Vec::new(), Some((*id, stored)));
    let mut bytes = loop {
        let Some((name, stored)) = next.take() else {
            let (below, _) = chain.last().and_then(base_in).expect("BUG: a chain has a first");
            break bases.whole(&below).map_err(|error| lost(id, &below, &error))?;
        };
        let Some(delta) = Delta::parse(&stored) else {
            break match chain.is_empty() {
                true => return open_object(&name, &stored, secrets),
                false => {
                    open_object(&name, &stored, secrets).map_err(|error| lost(id, &name, &error))?
                }
            };
        };
        let above = chain.last().and_then(base_in).map_or(DEEPEST + 1, |(_, depth)| depth);
        if delta.depth >= above {
            return Err(corrupt(id, "the versions that it stands on are no chain"));
        }
        let base = delta.base;
        chain.push((name, stored));
        next = bases.stored(&base)?.map(|stored| (base, stored));
    };
    for (name, stored) in chain.iter().rev() {
        let delta = Delta::parse(stored).expect("BUG: only deltas are in a chain");
        bytes = delta.apply(&bytes).map_err(|why| corrupt(name, why))?;
        verify(name, &bytes)?;
    }
    Ok(bytes)
}

fn base_in((_, stored): &(ObjectId, Vec<u8>)) -> Option<(ObjectId, u8)> {
    Delta::parse(stored).map(|delta| (delta.base, delta.depth))
}

/// What cannot be read for want of a version below it is damaged itself.
fn lost(id: &ObjectId, below: &ObjectId, error: &Error) -> Error {
    corrupt(id, format!("{below}, which it was stored against, cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{CODEC_RAW, pack_object};
    use super::*;

    /// Some objects by name.
    #[derive(Default)]
    struct Shelf(HashMap<ObjectId, Vec<u8>>);

    impl Bases for Shelf {
        fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
            Ok(self.0.get(id).cloned())
        }

        fn whole(&self, id: &ObjectId) -> Result<Vec<u8>> {
            Err(Error::Missing(*id))
        }
    }

    impl Shelf {
        /// Keeps a version against the one before it, as a capture does.
        fn keep(&mut self, before: Option<&[u8]>, bytes: &[u8]) -> usize {
            let raw = with_raw(bytes, |stored| stored.to_bytes());
            let stored = before.and_then(|before| {
                let base = ObjectId::of(before);
                smaller(&raw, &base, before, depth_of(&self.0[&base]))
            });
            let stored = stored.unwrap_or_else(|| pack_object(bytes));
            let length = stored.len();
            self.0.insert(ObjectId::of(bytes), stored);
            length
        }

        fn read(&self, id: &ObjectId) -> Result<Vec<u8>> {
            open_chain(id, self.0[id].clone(), self, &Secrets::default())
        }
    }

    fn version(number: usize) -> Vec<u8> {
        let line = |n: usize| format!("line {n} says {}\n", n * 7919 % 1009 + number / (n + 1));
        (0..200).map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn versions_stand_on_each_other_and_all_come_back() {
        let mut shelf = Shelf::default();
        let first = shelf.keep(None, &version(0));
        let mut small = 0;
        for number in 1..100 {
            let length = shelf.keep(Some(&version(number - 1)), &version(number));
            small += usize::from(length * 4 < first);
        }
        // Every chain that is deep enough is followed by a version that stands alone.
        assert!((90..=97).contains(&small), "{small}");
        for number in 0..100 {
            let bytes = version(number);
            assert_eq!(shelf.read(&ObjectId::of(&bytes)).unwrap(), bytes, "{number}");
        }
        assert!(shelf.0.values().all(|stored| depth_of(stored) <= DEEPEST));
    }

    #[test]
    fn what_has_nothing_in_common_stands_alone() {
        let (one, other) = (version(3), crate::id::random_bytes::<3000>());
        let mut shelf = Shelf::default();
        shelf.keep(None, &one);
        shelf.keep(Some(&one), &other);
        assert_eq!(shelf.0[&ObjectId::of(&other)][0], CODEC_RAW);
        shelf.keep(Some(&other), &version(4));
        assert_eq!(base_of(&shelf.0[&ObjectId::of(&version(4))]), None);
        // Content that zstd would take for a trained dictionary is no base.
        let odd = [&DICTIONARY_MAGIC[..], &version(5)].concat();
        shelf.keep(None, &odd);
        shelf.keep(Some(&odd), &version(6));
        assert_eq!(base_of(&shelf.0[&ObjectId::of(&version(6))]), None);
    }

    #[test]
    fn mutated_deltas() {
        let (old, new) = (version(0), version(1));
        let (base, id) = (ObjectId::of(&old), ObjectId::of(&new));
        let mut shelf = Shelf::default();
        shelf.keep(None, &old);
        let stored = pack_version(&new, &base, &old);
        assert_eq!(base_of(&stored), Some(base));
        crate::fuzz::target("delta", &[stored], |input| {
            let read = open_chain(&id, input.to_vec(), &shelf, &Secrets::default());
            read.is_ok_and(|content| content == new)
        });
    }

    #[test]
    fn a_chain_that_lies_is_refused() {
        let (old, new) = (version(0), version(1));
        let (first, second) = (ObjectId::of(&old), ObjectId::of(&new));
        let mut shelf = Shelf::default();
        shelf.keep(None, &old);
        shelf.keep(Some(&old), &new);
        let stored = shelf.0[&second].clone();
        for position in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[position] ^= 0x21;
            shelf.0.insert(second, damaged);
            if let Ok(read) = shelf.read(&second) {
                assert_eq!(read, new, "at {position}");
            }
            shelf.0.insert(second, stored[..position].to_vec());
            assert!(shelf.read(&second).is_err(), "cut at {position}");
        }
        // One that stands on itself, and two that stand on each other.
        let mut circle = stored.clone();
        circle[HEADER + 1..HEADER + START].copy_from_slice(second.as_bytes());
        shelf.0.insert(second, circle);
        assert_eq!(shelf.read(&second).unwrap_err().code(), "corrupt_object");
        let mut other = stored.clone();
        other[HEADER + 1..HEADER + START].copy_from_slice(second.as_bytes());
        shelf.0.insert(first, other);
        shelf.0.insert(second, stored.clone());
        assert_eq!(shelf.read(&second).unwrap_err().code(), "corrupt_object");
        shelf.0.remove(&first);
        let missing = shelf.read(&second).unwrap_err().to_string();
        assert!(missing.contains("stored against"), "{missing}");
        // A length that would take all memory.
        let mut long = stored;
        long[1..HEADER].copy_from_slice(&(1u64 << 40).to_le_bytes());
        shelf.0.insert(second, long);
        shelf.keep(None, &old);
        assert_eq!(shelf.read(&second).unwrap_err().code(), "corrupt_object");
    }
}
