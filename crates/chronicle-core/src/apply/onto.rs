//! Writes content onto a clone of the file that stands there, so that only pieces that differ are read
//! from the store and written.
//!
//! Nobody else has the clone, and each piece of it counts only if it has the hash that it should have,
//! as the whole does in the end: whatever stood there, the result is what was wanted.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

use crate::error::{Context, Error, Result};
use crate::id::ObjectId;
use crate::path::WorkspacePath;
use crate::share;
use crate::store::{ContentStorage, Piece};

/// After so many bytes of which more than half were different, nothing is compared any more.
const TRIAL: u64 = 64 << 20;
/// So much is on its way from the disk while what came before it is hashed: a clone has no part in the cache
/// of the file that it was made from.
const AHEAD: u64 = 32 << 20;

/// Makes a new file a clone of the one that stands there; where that cannot be done it stays empty.
pub(super) fn clone_of(out: &File, present: &File) -> io::Result<bool> {
    match share::share(out, present) {
        Ok(()) => Ok(true),
        Err(_) => out.set_len(0).map(|()| false),
    }
}

/// A file that began as a clone of another.
pub(super) struct Onto<'f> {
    pub(super) out: &'f File,
    pub(super) store: &'f dyn ContentStorage,
    pub(super) path: &'f WorkspacePath,
}

impl Onto<'_> {
    /// Makes it the object that has these pieces; says how many bytes were written.
    pub(super) fn become_object(&self, id: &ObjectId, pieces: &[Piece]) -> Result<u64> {
        let (mut whole, mut buffer) = (blake3::Hasher::new(), Vec::new());
        let (mut offset, mut written, mut asked) = (0, 0, 0);
        for piece in pieces {
            let length = piece.length as usize;
            let compares = offset < TRIAL || written * 2 <= offset;
            if compares && offset + AHEAD / 2 >= asked {
                self.ask_for(asked);
                asked += AHEAD;
            }
            buffer.resize(length, 0);
            let same = compares && self.read(&mut buffer, offset)? == length;
            if !same || ObjectId::of(&buffer) != piece.id {
                buffer = self.store.get(&piece.id)?;
                if buffer.len() != length {
                    let why = "a piece has another length than it should".to_owned();
                    return Err(Error::Corrupt { object: *id, why });
                }
                self.out.write_all_at(&buffer, offset).at("write", self.path.as_path())?;
                written += length as u64;
            }
            whole.update(&buffer);
            offset += length as u64;
        }
        if whole.finalize().as_bytes() != id.as_bytes() {
            let why = "its pieces do not make what its name says".to_owned();
            return Err(Error::Corrupt { object: *id, why });
        }
        // What stood there may be longer.
        self.out.set_len(offset).at("write", self.path.as_path())?;
        Ok(written)
    }

    /// Has the next stretch read from the disk; only a hint.
    fn ask_for(&self, offset: u64) {
        let _ = fadvise(self.out, offset, NonZeroU64::new(AHEAD), Advice::WillNeed);
    }

    /// Reads until the buffer is full or the file ends.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.out.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at("read the staged", self.path.as_path()),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LocalStore;

    /// So many bytes that no piece is like another.
    fn content(length: usize) -> Vec<u8> {
        let mut reader = blake3::Hasher::new().finalize_xof();
        let mut bytes = vec![0; length];
        reader.fill(&mut bytes);
        bytes
    }

    struct Scene {
        _scratch: tempfile::TempDir,
        store: LocalStore,
        file: File,
    }

    impl Scene {
        fn new(present: &[u8]) -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let store = LocalStore::open(&scratch.path().join("store")).unwrap();
            let path = scratch.path().join("file");
            std::fs::write(&path, present).unwrap();
            let file = File::options().read(true).write(true).open(path).unwrap();
            Self { _scratch: scratch, store, file }
        }

        /// Brings the file to this content: how many bytes were written.
        fn bring_to(&self, wanted: &[u8]) -> Result<u64> {
            let mut intake = self.store.intake().unwrap();
            let (id, _) = intake.take_stream(&mut &*wanted).unwrap();
            intake.finish().unwrap();
            let pieces = self.store.pieces(&id).unwrap().expect("it is large");
            let path = WorkspacePath::new("f").unwrap();
            let onto = Onto { out: &self.file, store: &self.store, path: &path };
            onto.become_object(&id, &pieces)
        }

        fn read(&self) -> Vec<u8> {
            let mut bytes = vec![0; self.file.metadata().unwrap().len() as usize];
            self.file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        }
    }

    #[track_caller]
    fn check(present: &[u8], wanted: &[u8], most: u64) {
        let scene = Scene::new(present);
        let written = scene.bring_to(wanted).unwrap();
        assert!(written <= most, "{written} bytes were written");
        assert!(scene.read() == wanted);
    }

    #[test]
    fn only_what_differs_is_written() {
        const PIECES: u64 = 2 << 20;
        let wanted = content(5 << 20);
        check(&wanted, &wanted, 0);
        check(&[&wanted[..], b"and more"].concat(), &wanted, 0);
        check(&wanted[..3 << 20], &wanted, 2 * PIECES);
        let mut edited = wanted.clone();
        edited[3_000_000] ^= 1;
        check(&edited, &wanted, PIECES);
        check(&[&b"!"[..], &wanted].concat(), &wanted, 5 << 20);
        check(b"", &wanted, 5 << 20);
    }

    #[test]
    fn pieces_of_something_else_are_damage() {
        let scene = Scene::new(b"");
        let wanted = content(5 << 20);
        scene.bring_to(&wanted).unwrap();
        let pieces = scene.store.pieces(&ObjectId::of(&wanted)).unwrap().unwrap();
        let path = WorkspacePath::new("f").unwrap();
        let onto = Onto { out: &scene.file, store: &scene.store, path: &path };
        let error = onto.become_object(&ObjectId::of(b"other"), &pieces).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }));
    }
}
