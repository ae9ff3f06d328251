//! Reads git's index (versions 2, 3 and 4, SHA-1 and SHA-256), which says what is tracked.
//!
//! Nothing here writes an index or trusts one: bytes that git could not have written are refused,
//! and no count or length in them is believed before it is checked.

use crate::codec::{DecodeError, Decoder, Encoder};

/// The longest path that is believed, as in the kernel.
const PATH_MAX: usize = 4096;
/// The most bytes that the paths of one index may take when they are all held in memory.
const PATHS_MAX: usize = 1 << 29;

type Result<T> = std::result::Result<T, DecodeError>;

/// One entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry<'a> {
    /// Kind and permissions as git keeps them.
    pub mode: u32,
    /// The staged content's id.
    pub object: &'a [u8],
    /// 0, or the side of an unmerged path.
    pub stage: u8,
    /// Whether git was told not to look at the file.
    pub assume_valid: bool,
    /// Whether a sparse checkout leaves the file out.
    pub skip_worktree: bool,
    /// Whether only the path was added, not yet its content.
    pub intent_to_add: bool,
    /// Where, relative to the top of the working tree; a directory of a sparse index ends with `/`.
    pub path: &'a [u8],
    /// The file's size when git last looked, cut to 32 bits.
    pub size: u32,
    /// The file's modification time when git last looked, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// A tracked path and what the file looked like when git last found it clean.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tracked {
    /// Where, relative to the top of the working tree.
    pub path: Vec<u8>,
    /// Its modification time then, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Its size then, cut to 32 bits.
    pub size: u32,
}

impl Tracked {
    /// Whether a file of this size and time is most likely what git has; a hint, never a proof.
    pub fn looks_clean(&self, size: u64, mtime_ns: i64) -> bool {
        let whole_seconds = self.mtime_ns % 1_000_000_000 == 0;
        let mtime_ns =
            if whole_seconds { mtime_ns - mtime_ns.rem_euclid(1_000_000_000) } else { mtime_ns };
        self.mtime_ns != 0
            && self.mtime_ns == mtime_ns
            && u64::from(self.size) == size & 0xffff_ffff
    }
}

/// What an index says besides its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// Whether most entries lie in another file that this one refers to.
    pub split: bool,
}

/// Calls `visit` for each entry in order, after the whole has been found well formed.
pub fn visit(bytes: &[u8], mut visit: impl FnMut(&IndexEntry<'_>)) -> Result<Shape> {
    for hash_size in [20, 32] {
        if let Ok(shape) = walk(bytes, hash_size, &mut |_| {}) {
            walk(bytes, hash_size, &mut visit)?;
            return Ok(shape);
        }
    }
    Err(DecodeError::Malformed("an index is not in a form that git writes"))
}

/// The tracked paths in order; `None` if the bytes do not tell all of them.
pub fn tracked(bytes: &[u8]) -> Option<Vec<Tracked>> {
    let mut all: Vec<Tracked> = Vec::new();
    let mut total = 0_usize;
    let shape = visit(bytes, |entry| {
        total = total.saturating_add(entry.path.len());
        if total > PATHS_MAX {
            return;
        }
        match all.last_mut() {
            // An unmerged path has an entry for each side, and none that is clean.
            Some(last) if last.path == entry.path => last.mtime_ns = 0,
            _ => all.push(Tracked {
                path: entry.path.to_vec(),
                mtime_ns: entry.mtime_ns,
                size: entry.size,
            }),
        }
    });
    shape.is_ok_and(|shape| !shape.split && total <= PATHS_MAX).then_some(all)
}

/// The index without what git may change at any time: stat data, extensions, format version.
///
/// Bytes that cannot be read are their own normal form.
pub fn normalize(bytes: &[u8]) -> Vec<u8> {
    let mut out = Encoder(b"entries".to_vec());
    let mut last: Vec<u8> = Vec::new();
    let shape = visit(bytes, |entry| {
        let shared = last.iter().zip(entry.path).take_while(|(a, b)| a == b).count();
        let flags = [entry.assume_valid, entry.skip_worktree, entry.intent_to_add];
        let flags = flags.iter().fold(entry.stage, |bits, flag| bits << 1 | u8::from(*flag));
        out.int(shared as u64);
        out.bytes(&entry.path[shared..]);
        out.int(u64::from(entry.mode));
        out.byte(flags);
        out.bytes(entry.object);
        last.clear();
        last.extend_from_slice(entry.path);
    });
    if shape.is_ok_and(|shape| !shape.split) { out.0 } else { bytes.to_vec() }
}

fn walk(bytes: &[u8], hash_size: usize, visit: &mut dyn FnMut(&IndexEntry<'_>)) -> Result<Shape> {
    let body = bytes.len().checked_sub(hash_size).ok_or(DecodeError::Truncated)?;
    let mut input = Decoder(&bytes[..body]);
    if input.fixed(4)? != b"DIRC" {
        return Err(DecodeError::Malformed("an index begins with something else"));
    }
    let (version, count) = (word(&mut input)?, word(&mut input)?);
    if !(2..=4).contains(&version) {
        return Err(DecodeError::Malformed("an index has an unknown version"));
    }
    let mut place = Place { version, hash_size, path: Vec::new(), stage: 0 };
    let mut before = Vec::new();
    for _ in 0..count {
        before.clone_from(&place.path);
        let stage = place.stage;
        read_entry(&mut input, &mut place, visit)?;
        if (&before, stage) >= (&place.path, place.stage) {
            return Err(DecodeError::Malformed("entries of an index are out of order"));
        }
    }
    read_extensions(&mut input)
}

/// Where in an index the reading is: the path and stage are those of the last entry.
struct Place {
    version: u32,
    hash_size: usize,
    path: Vec<u8>,
    stage: u8,
}

fn read_entry(
    input: &mut Decoder<'_>,
    place: &mut Place,
    visit: &mut dyn FnMut(&IndexEntry<'_>),
) -> Result<()> {
    let start = input.0.len();
    let mut stat = [0; 10];
    for field in &mut stat {
        *field = word(input)?;
    }
    let object = input.fixed(place.hash_size)?;
    let flags = half(input)?;
    let extended = match (flags & 0x4000 != 0, place.version) {
        (false, _) => 0,
        (true, 3..) => half(input)?,
        (true, _) => return Err(DecodeError::Malformed("an index has flags of a later version")),
    };
    if place.version == 4 {
        read_shared_path(input, &mut place.path)?;
    } else {
        let fixed = start - input.0.len();
        read_padded_path(input, &mut place.path, fixed)?;
    }
    check_path(&place.path, flags)?;
    place.stage = (flags >> 12 & 3) as u8;
    visit(&IndexEntry {
        mode: stat[6],
        object,
        stage: place.stage,
        assume_valid: flags & 0x8000 != 0,
        skip_worktree: extended & 0x4000 != 0,
        intent_to_add: extended & 0x2000 != 0,
        path: &place.path,
        size: stat[9],
        mtime_ns: i64::from(stat[2]) * 1_000_000_000 + i64::from(stat[3]),
    });
    Ok(())
}

/// A path of versions 2 and 3: up to a NUL, then more of them to a multiple of eight.
fn read_padded_path(input: &mut Decoder<'_>, path: &mut Vec<u8>, fixed: usize) -> Result<()> {
    let end = memchr::memchr(0, input.0).ok_or(DecodeError::Truncated)?;
    let padding = 8 - (fixed + end) % 8;
    path.clear();
    path.extend_from_slice(input.fixed(end)?);
    if input.fixed(padding)?.iter().any(|byte| *byte != 0) {
        return Err(DecodeError::Malformed("an entry of an index is padded wrongly"));
    }
    Ok(())
}

/// A path of version 4: how much of the last one to drop, then what to add, up to a NUL.
fn read_shared_path(input: &mut Decoder<'_>, path: &mut Vec<u8>) -> Result<()> {
    let dropped = offset(input)?;
    let kept = path.len().checked_sub(dropped);
    path.truncate(kept.ok_or(DecodeError::Malformed("an entry of an index drops too much"))?);
    let end = memchr::memchr(0, input.0).ok_or(DecodeError::Truncated)?;
    path.extend_from_slice(input.fixed(end)?);
    input.byte().map(|_| ())
}

/// Git's integer of variable length, in which each further byte also adds one.
fn offset(input: &mut Decoder<'_>) -> Result<usize> {
    let mut byte = input.byte()?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = input.byte()?;
        value = (value + 1) << 7 | usize::from(byte & 0x7f);
        if value > PATH_MAX {
            return Err(DecodeError::Malformed("an entry of an index drops too much"));
        }
    }
    Ok(value)
}

fn check_path(path: &[u8], flags: u16) -> Result<()> {
    let said = usize::from(flags & 0xfff);
    if path.is_empty() || path.len() > PATH_MAX || said != path.len().min(0xfff) {
        return Err(DecodeError::Malformed("an entry of an index has a path of the wrong length"));
    }
    Ok(())
}

fn read_extensions(input: &mut Decoder<'_>) -> Result<Shape> {
    let mut shape = Shape::default();
    while !input.0.is_empty() {
        let name = input.fixed(4)?;
        let size = word(input)?;
        input.fixed(usize::try_from(size).map_err(|_| DecodeError::Truncated)?)?;
        match name {
            b"link" => shape.split = true,
            // A small first letter means that a reader must know it.
            b"sdir" => {}
            _ if name[0].is_ascii_uppercase() => {}
            _ => return Err(DecodeError::Malformed("an index has an unknown extension")),
        }
    }
    Ok(shape)
}

fn word(input: &mut Decoder<'_>) -> Result<u32> {
    input.array().map(u32::from_be_bytes)
}

fn half(input: &mut Decoder<'_>) -> Result<u16> {
    input.array().map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of version 2 with these paths, all with this time.
    fn index(paths: &[&str], seconds: u32) -> Vec<u8> {
        let mut bytes = b"DIRC\0\0\0\x02".to_vec();
        bytes.extend((paths.len() as u32).to_be_bytes());
        for path in paths {
            let start = bytes.len();
            for field in [0, 0, seconds, 0, 0, 0, 0o100_644, 0, 0, 7_u32] {
                bytes.extend(field.to_be_bytes());
            }
            bytes.extend([9; 20]);
            bytes.extend((path.len() as u16).to_be_bytes());
            bytes.extend(path.as_bytes());
            bytes.extend(vec![0; 8 - (bytes.len() - start) % 8]);
        }
        bytes.extend([0; 20]);
        bytes
    }

    #[test]
    fn entries_come_in_order() {
        let found = tracked(&index(&["a", "b/c"], 5)).expect("well formed");
        let paths: Vec<_> = found.iter().map(|entry| &entry.path[..]).collect();
        assert_eq!(paths, [&b"a"[..], b"b/c"]);
        assert!(found[0].looks_clean(7, 5_000_000_123));
        assert!(!found[0].looks_clean(8, 5_000_000_000));
    }

    #[test]
    fn stat_data_does_not_count() {
        let (old, new) = (index(&["a", "b"], 1), index(&["a", "b"], 2));
        assert_eq!(normalize(&old), normalize(&new));
        assert_ne!(normalize(&old), normalize(&index(&["a", "c"], 1)));
        assert_eq!(normalize(b"junk"), b"junk");
    }

    #[test]
    fn damage_is_refused_and_never_panics() {
        let good = index(&["a", "dir/file", "z"], 1);
        assert!(tracked(&index(&["b", "a"], 1)).is_none());
        for end in 0..good.len() {
            assert!(tracked(&good[..end]).is_none(), "cut at {end}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 4, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = tracked(&bad);
                bad[7] = 4;
                let _ = tracked(&bad);
            }
        }
    }

    #[test]
    fn mutated_indexes() {
        let samples = [index(&["a", "b/c", "b/d"], 5), index(&[], 0)];
        crate::fuzz::target("git-index", &samples, |input| {
            let _ = normalize(input);
            tracked(input).is_some()
        });
    }
}
