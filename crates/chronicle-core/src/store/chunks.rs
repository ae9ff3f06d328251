//! Large content in pieces, cut where the content says, so that an edit changes few of them.
//!
//! The pieces are objects like any other and lie in packs. What the large object itself is kept as is its
//! manifest, in a file of its own that gets its name only once all pieces are durable.

use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use fastcdc::v2020::{Error as CutError, StreamCDC};

use super::loose::Loose;
use super::{HEADER, LARGE_OBJECT, corrupt, header, parse_header};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;

pub(crate) const CODEC_CHUNKS: u8 = 4;

pub(super) const VERSION: u8 = 1;
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

/// What takes a piece in and says its name; from several threads at once.
pub type Take<'t> = dyn Fn(&[u8]) -> Result<ObjectId> + Sync + 't;

/// Cuts everything the source gives, and hands each piece over; says name, length and pieces.
pub fn cut(source: &mut dyn Read, take: &Take<'_>) -> Result<(ObjectId, ChunkManifest)> {
    let mut ids = Vec::new();
    let (id, lengths) = find_cuts(source, &mut |piece| {
        ids.push(take(&piece)?);
        Ok(())
    })?;
    Ok((id, manifest(ids, &lengths)?))
}

/// The same with pieces taken in on several threads, of which a few are in memory at a time.
pub(super) fn cut_on_threads(
    source: &mut dyn Read,
    threads: usize,
    take: &Take<'_>,
) -> Result<(ObjectId, ChunkManifest)> {
    let crew = Crew { take, ids: Mutex::default(), failure: Mutex::default() };
    let cuts = std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(threads);
        let receive = Arc::new(Mutex::new(receive));
        for _ in 0..threads {
            let (crew, receive) = (&crew, Arc::clone(&receive));
            scope.spawn(move || crew.work(&receive));
        }
        let mut number = 0;
        find_cuts(source, &mut |piece| {
            crew.check()?;
            // Somebody takes it: who cannot take pieces in any more still empties the line.
            let _ = send.send((number, piece));
            number += 1;
            Ok(())
        })
    });
    crew.check()?;
    let (id, lengths) = cuts?;
    let mut ids = crew.ids.into_inner().expect("BUG: a thread panicked");
    ids.sort_unstable_by_key(|(number, _)| *number);
    Ok((id, manifest(ids.into_iter().map(|(_, id)| id).collect(), &lengths)?))
}

/// Threads that take pieces in.
struct Crew<'t> {
    take: &'t Take<'t>,
    ids: Mutex<Vec<(usize, ObjectId)>>,
    failure: Mutex<Option<Error>>,
}

impl Crew<'_> {
    fn work(&self, line: &Mutex<mpsc::Receiver<(usize, Vec<u8>)>>) {
        let next = || line.lock().expect("BUG: a thread panicked").recv();
        while let Ok((number, piece)) = next() {
            if self.failure().is_some() {
                continue;
            }
            match (self.take)(&piece) {
                Ok(id) => self.ids.lock().expect("BUG: a thread panicked").push((number, id)),
                Err(error) => drop(self.failure().get_or_insert(error)),
            }
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().expect("BUG: a thread panicked")
    }

    /// The first failure, once.
    fn check(&self) -> Result<()> {
        self.failure().take().map_or(Ok(()), Err)
    }
}

/// Hands over piece after piece; says the name of the whole and the lengths.
fn find_cuts(
    source: &mut dyn Read,
    hand_over: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<(ObjectId, Vec<u32>)> {
    let mut hasher = blake3::Hasher::new();
    let mut lengths = Vec::new();
    let sizes = [SMALLEST, AVERAGE, LARGEST].map(|size| size as usize);
    for chunk in StreamCDC::new(source, sizes[0], sizes[1], sizes[2]) {
        let chunk = chunk.map_err(io_error).at("take in", super::SOURCE)?;
        hasher.update(&chunk.data);
        lengths.push(u32::try_from(chunk.data.len()).expect("BUG: no piece is that large"));
        hand_over(chunk.data)?;
    }
    Ok((ObjectId(*hasher.finalize().as_bytes()), lengths))
}

fn manifest(ids: Vec<ObjectId>, lengths: &[u32]) -> Result<ChunkManifest> {
    debug_assert_eq!(ids.len(), lengths.len(), "BUG: a piece was not taken in");
    let length = lengths.iter().map(|length| u64::from(*length)).sum();
    let pieces = ids.into_iter().zip(lengths).map(|(id, length)| Piece { id, length: *length });
    let manifest = ChunkManifest { length, pieces: pieces.collect() };
    if (HEADER + START + manifest.pieces.len() * PIECE) as u64 > LONGEST {
        return Err(io::Error::other("it is larger than any manifest can tell"))
            .at("take in", super::SOURCE);
    }
    Ok(manifest)
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
        let name = |piece: &[u8]| Ok(ObjectId::of(piece));
        let cut = cut(&mut &*bytes, &name).unwrap();
        assert_eq!(cut_on_threads(&mut &*bytes, 3, &name).unwrap(), cut);
        cut
    }

    #[test]
    fn a_piece_that_cannot_be_taken_in_stops_all() {
        let bytes = sample(12 << 20);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        let take = |piece: &[u8]| match taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0..5 => Ok(ObjectId::of(piece)),
            _ => Err(Error::Busy("no".to_owned())),
        };
        let error = cut_on_threads(&mut &*bytes, 2, &take).unwrap_err();
        assert_eq!(error.code(), "busy");
        assert!(taken.into_inner() < 12);
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
