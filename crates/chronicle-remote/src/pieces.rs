//! Content that lies in pieces, as a stream: some pieces ahead are fetched together.

use std::collections::HashMap;
use std::io::{self, Cursor, Read};
use std::sync::{Mutex, PoisonError};

use chronicle_core::{ChunkManifest, Error, ObjectId, Piece, unpack_object};

use crate::store::RemoteStore;

/// Bytes that are fetched ahead.
const AHEAD: u64 = 8 << 20;

/// The pieces of one object, one after the other; each is verified, and at the end the whole.
pub(crate) struct PiecesReader<'s> {
    store: &'s RemoteStore,
    id: ObjectId,
    pieces: std::vec::IntoIter<Piece>,
    current: Cursor<Vec<u8>>,
    hasher: Option<Box<blake3::Hasher>>,
}

impl<'s> PiecesReader<'s> {
    pub(crate) fn new(store: &'s RemoteStore, id: ObjectId, manifest: ChunkManifest) -> Self {
        let (pieces, current) = (manifest.pieces.into_iter(), Cursor::default());
        Self { store, id, pieces, current, hasher: Some(Box::default()) }
    }

    /// Fetches the next pieces; `false` at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let (mut batch, mut length) = (Vec::new(), 0);
        while length < AHEAD
            && let Some(piece) = self.pieces.next()
        {
            length += u64::from(piece.length);
            batch.push(piece);
        }
        if batch.is_empty() {
            return self.finish().map(|()| false);
        }
        let bytes = self.store.read_pieces(&batch).map_err(into_io)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&bytes);
        }
        self.current = Cursor::new(bytes);
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.hasher.take() {
            Some(hasher) if hasher.finalize().as_bytes() != self.id.as_bytes() => {
                let why = "its pieces together have another hash";
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
            _ => Ok(()),
        }
    }
}

impl Read for PiecesReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.current.read(buffer)?;
            if count > 0 || buffer.is_empty() || !self.advance()? {
                return Ok(count);
            }
        }
    }
}

/// An error of ours where only one of input and output can be told.
fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        Error::Corrupt { .. } => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        error => io::Error::other(error.to_string()),
    }
}

impl RemoteStore {
    /// The bytes of some pieces, one after the other.
    fn read_pieces(&self, pieces: &[Piece]) -> Result<Vec<u8>, Error> {
        let ids: Vec<ObjectId> = pieces.iter().map(|piece| piece.id).collect();
        let read: Mutex<HashMap<ObjectId, Vec<u8>>> = Mutex::default();
        self.read_many(&ids, &|id, stored| {
            let bytes = unpack_object(id, stored)?;
            read.lock().unwrap_or_else(PoisonError::into_inner).insert(*id, bytes);
            Ok(())
        })?;
        let read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::new();
        for piece in pieces {
            let piece_bytes = read.get(&piece.id).ok_or(Error::Missing(piece.id))?;
            if piece_bytes.len() != piece.length as usize {
                let why = "a piece does not have the length it should have".to_owned();
                return Err(Error::Corrupt { object: piece.id, why });
            }
            bytes.extend_from_slice(piece_bytes);
        }
        Ok(bytes)
    }

    /// Content that lies in pieces, as a stream.
    pub(crate) fn pieces_reader(&self, id: ObjectId, manifest: ChunkManifest) -> PiecesReader<'_> {
        PiecesReader::new(self, id, manifest)
    }
}
