//! Large content in pieces, cut where the content says, so that an edit changes few of them.
//!
//! The pieces are objects like any other and lie in packs. What the large object itself is kept as is its
//! manifest, in a file of its own that gets its name only once all pieces are durable.

use std::io::{self, Read};
use std::path::Path;

use fastcdc::v2020::{Error as CutError, StreamCDC};

use super::loose::Loose;
use super::{HEADER, LARGE_OBJECT, corrupt, header, parse_header};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;

pub(crate) const CODEC_CHUNKS: u8 = 4;

const VERSION: u8 = 1;
/// How the cuts are found: FastCDC of 2020, with 64-bit gears and normalization 1.
const FASTCDC_2020: u8 = 1;
const SMALLEST: u32 = 64 << 10;
const AVERAGE: u32 = 256 << 10;
const LARGEST: u32 = 1 << 20;

/// Bytes before the pieces: version, cutter, and the three sizes.
const START: usize = 2 + 3 * 4;
const PIECE: usize = 32 + 4;
/// The longest manifest that is read: that of some four hundred gigabytes.
const LONGEST: u64 = 64 << 20;

/// One piece of a large object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Its name: it is an object like any other.
    pub id: ObjectId,
    /// How many bytes it has.
    pub length: u32,
}

/// Which pieces make an object, in their order; where each begins follows from their lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkManifest {
    /// The length of the whole.
    pub length: u64,
    /// The pieces.
    pub pieces: Vec<Piece>,
}

impl ChunkManifest {
    /// The stored form of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + START + self.pieces.len() * PIECE);
        out.extend_from_slice(&header(CODEC_CHUNKS, self.length));
        out.extend_from_slice(&[VERSION, FASTCDC_2020]);
        for size in [SMALLEST, AVERAGE, LARGEST] {
            out.extend_from_slice(&size.to_le_bytes());
        }
        for piece in &self.pieces {
            out.extend_from_slice(piece.id.as_bytes());
            out.extend_from_slice(&piece.length.to_le_bytes());
        }
        out
    }

    /// Takes a stored form apart; one that does not add up is refused before any piece is read.
    pub fn decode(stored: &[u8]) -> std::result::Result<Self, &'static str> {
        let (head, rest) = stored.split_first_chunk::<HEADER>().ok_or("it is cut off")?;
        let (CODEC_CHUNKS, length) = parse_header(*head) else {
            return Err("it is no manifest");
        };
        let (start, rest) = rest.split_first_chunk::<START>().ok_or("it is cut off")?;
        if start[0] != VERSION {
            return Err("its manifest is of a version that is not known");
        }
        if !rest.len().is_multiple_of(PIECE) {
            return Err("it is cut off");
        }
        // How the cuts were found is of no matter to who puts the pieces together.
        let piece = |bytes: &[u8]| -> Option<Piece> {
            let (id, length) = bytes.split_first_chunk::<32>()?;
            let length = u32::from_le_bytes(length.try_into().ok()?);
            Some(Piece { id: ObjectId(*id), length })
        };
        let pieces: Vec<Piece> = rest.chunks_exact(PIECE).filter_map(piece).collect();
        if pieces.iter().any(|piece| piece.length == 0 || piece.length as usize > LARGE_OBJECT) {
            return Err("a piece has a length that no piece has");
        }
        match pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>() == length {
            true => Ok(Self { length, pieces }),
            false => Err("its pieces do not add up to its length"),
        }
    }

    /// The pieces that a stored form stands for; `None` if it is not kept in pieces.
    pub fn of(id: &ObjectId, stored: &[u8]) -> Result<Option<Self>> {
        match stored.first() {
            Some(&CODEC_CHUNKS) => Self::decode(stored).map(Some).map_err(|why| corrupt(id, why)),
            _ => Ok(None),
        }
    }

    /// Reads the rest of a file whose header says that it holds a manifest.
    pub(super) fn read(
        id: &ObjectId,
        length: u64,
        file: &mut dyn Read,
        path: &Path,
    ) -> Result<Self> {
        let mut stored = header(CODEC_CHUNKS, length).to_vec();
        file.take(LONGEST + 1).read_to_end(&mut stored).at("read", path)?;
        if stored.len() as u64 > LONGEST {
            return Err(corrupt(id, "its manifest is too long"));
        }
        Self::decode(&stored).map_err(|why| corrupt(id, why))
    }
}

/// Cuts everything the source gives, and hands each piece over; says name, length and pieces.
pub fn cut(
    source: &mut dyn Read,
    take: &mut dyn FnMut(&[u8]) -> Result<ObjectId>,
) -> Result<(ObjectId, ChunkManifest)> {
    let mut hasher = blake3::Hasher::new();
    let mut manifest = ChunkManifest { length: 0, pieces: Vec::new() };
    let sizes = [SMALLEST, AVERAGE, LARGEST].map(|size| size as usize);
    for chunk in StreamCDC::new(source, sizes[0], sizes[1], sizes[2]) {
        let chunk = chunk.map_err(io_error).at("take in", super::SOURCE)?;
        hasher.update(&chunk.data);
        let length = u32::try_from(chunk.data.len()).expect("BUG: no piece is that large");
        manifest.pieces.push(Piece { id: take(&chunk.data)?, length });
        manifest.length += u64::from(length);
    }
    if (HEADER + START + manifest.pieces.len() * PIECE) as u64 > LONGEST {
        return Err(io::Error::other("it is larger than any manifest can tell"))
            .at("take in", super::SOURCE);
    }
    Ok((ObjectId(*hasher.finalize().as_bytes()), manifest))
}

fn io_error(error: CutError) -> io::Error {
    match error {
        CutError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// The pieces of a large object, one after the other, each verified; the whole is the reader's to check.
pub(super) struct PiecesReader {
    loose: Loose,
    pieces: std::vec::IntoIter<Piece>,
    current: io::Cursor<Vec<u8>>,
}

impl PiecesReader {
    pub(super) fn new(manifest: ChunkManifest, loose: Loose) -> Self {
        Self { loose, pieces: manifest.pieces.into_iter(), current: io::Cursor::default() }
    }

    fn next(&mut self) -> io::Result<bool> {
        let Some(piece) = self.pieces.next() else { return Ok(false) };
        let bytes = self.loose.piece(&piece.id).map_err(|error| match error {
            Error::Io { source, .. } => source,
            error => damaged(&error.to_string()),
        })?;
        if bytes.len() != piece.length as usize {
            return Err(damaged("a piece does not have the length it should have"));
        }
        self.current = io::Cursor::new(bytes);
        Ok(true)
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Read for PiecesReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.current.read(buffer)?;
            if count > 0 || buffer.is_empty() || !self.next()? {
                return Ok(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut out);
        out
    }

    fn pieces(bytes: &[u8]) -> (ObjectId, ChunkManifest) {
        cut(&mut &*bytes, &mut |piece| Ok(ObjectId::of(piece))).unwrap()
    }

    #[test]
    fn an_edit_changes_few_pieces() {
        let mut bytes = sample(12 << 20);
        let (id, before) = pieces(&bytes);
        assert_eq!((id, before.length), (ObjectId::of(&bytes), 12 << 20));
        // In place, and with everything behind it moved.
        bytes[5 << 20] ^= 1;
        bytes.splice(9 << 20..9 << 20, *b"inserted");
        let (_, after) = pieces(&bytes);
        let old: std::collections::HashSet<_> =
            before.pieces.iter().map(|piece| piece.id).collect();
        let new = after.pieces.iter().filter(|piece| !old.contains(&piece.id)).count();
        assert!((1..=6).contains(&new), "{new} of {}", after.pieces.len());
    }

    /// Where the cuts fall is part of the format: other cuts would keep everything twice.
    #[test]
    fn cuts_stay_where_they_are() {
        let (_, manifest) = pieces(&sample(3 << 20));
        let lengths: Vec<_> = manifest.pieces.iter().map(|piece| piece.length).collect();
        assert_eq!(lengths, CUTS);
    }

    const CUTS: &[u32] =
        &[531_215, 93_777, 506_155, 463_976, 351_611, 67_744, 440_903, 378_761, 311_586];

    #[test]
    fn mutated_manifests() {
        let of = |length| pieces(&sample(length)).1.encode();
        crate::fuzz::target("manifest", &[of(100), of(1 << 20), of(2 << 20)], |input| {
            let Ok(manifest) = ChunkManifest::decode(input) else { return false };
            let pieces = manifest.pieces.iter().map(|piece| u64::from(piece.length));
            assert_eq!(pieces.sum::<u64>(), manifest.length);
            true
        });
    }

    #[test]
    fn a_manifest_that_lies_is_refused() {
        let (_, manifest) = pieces(&sample(2 << 20));
        let stored = manifest.encode();
        assert_eq!(ChunkManifest::decode(&stored).unwrap(), manifest);
        let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut stored = stored.clone();
            change(&mut stored);
            ChunkManifest::decode(&stored).unwrap_err()
        };
        wrong(&|stored| stored[0] = 1);
        wrong(&|stored| stored[1] ^= 1);
        wrong(&|stored| stored[8] = 0xff);
        wrong(&|stored| stored[HEADER] = 9);
        wrong(&|stored| stored.truncate(stored.len() - 1));
        wrong(&|stored| stored.truncate(stored.len() - PIECE));
        wrong(&|stored| stored.extend_from_slice(&[0; PIECE]));
        wrong(&|stored| stored.truncate(HEADER + 1));
        let last = stored.len() - 4;
        wrong(&|stored| stored[last..].copy_from_slice(&u32::MAX.to_le_bytes()));
        wrong(&|stored| stored[last..].copy_from_slice(&0u32.to_le_bytes()));
    }
}
