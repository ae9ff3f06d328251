//! Giving contents to the other side: runs of bytes, and which pieces make an object.

use std::collections::HashMap;
use std::sync::Mutex;

use chronicle_core::{ContentStorage, ObjectId, Piece, Result, cut_into_pieces};

use crate::wire::Run;

/// Objects of at most so many bytes are read whole, and the last one is kept for its next run.
const WHOLE_MOST: u64 = 4 << 20;

/// Reads contents for a peer, with a small memory of what was read last.
#[derive(Default)]
pub(super) struct Giving {
    /// The object that was read last, whole.
    whole: Option<(ObjectId, Vec<u8>)>,
    /// The manifest that was read last.
    manifest: Option<(ObjectId, u64, Vec<Piece>)>,
    /// Pieces of objects that are kept whole: where each is found.
    inside: HashMap<ObjectId, (ObjectId, usize, usize)>,
}

/// Objects whose pieces are remembered at most.
const INSIDE_MOST: usize = 64 << 10;

impl Giving {
    /// A run of an object's bytes; an error if it is not here, or has no such run.
    pub(super) fn run(&mut self, contents: &dyn ContentStorage, run: &Run) -> Result<Vec<u8>> {
        let (object, length) = (run.wanted.object, run.length as usize);
        let missing = || chronicle_core::Error::Missing(object);
        if let Some(pieces) = self.pieces_if_large(contents, &object)? {
            return run_of_pieces(contents, &pieces, run.offset, length)
                .and_then(|bytes| if bytes.len() == length { Ok(bytes) } else { Err(missing()) });
        }
        let whole = self.whole(contents, &object)?;
        let from = usize::try_from(run.offset).map_err(|_| missing())?;
        let bytes = whole.get(from..).and_then(|rest| rest.get(..length));
        bytes.map(<[u8]>::to_vec).ok_or_else(missing)
    }

    /// The length of an object and the pieces that make it.
    pub(super) fn manifest(
        &mut self,
        contents: &dyn ContentStorage,
        object: &ObjectId,
    ) -> Result<(u64, Vec<Piece>)> {
        if let Some(pieces) = self.pieces_if_large(contents, object)? {
            let length = pieces.iter().map(|piece| u64::from(piece.length)).sum();
            return Ok((length, pieces));
        }
        let whole = self.whole(contents, object)?.to_vec();
        let pieces = cut(&whole)?;
        self.remember(*object, &pieces);
        Ok((whole.len() as u64, pieces))
    }

    /// Whether a piece is here, by itself or inside of something that was looked into.
    pub(super) fn has(&self, contents: &dyn ContentStorage, piece: &ObjectId) -> Result<bool> {
        Ok(self.inside.contains_key(piece) || contents.exists(piece)?)
    }

    /// A piece's bytes.
    pub(super) fn piece(
        &mut self,
        contents: &dyn ContentStorage,
        piece: &ObjectId,
    ) -> Result<Vec<u8>> {
        let Some((object, from, length)) = self.inside.get(piece).copied() else {
            return contents.get(piece);
        };
        let whole = self.whole(contents, &object)?;
        let bytes = whole.get(from..from + length).map(<[u8]>::to_vec);
        bytes.ok_or(chronicle_core::Error::Missing(*piece))
    }

    fn remember(&mut self, object: ObjectId, pieces: &[Piece]) {
        if self.inside.len() > INSIDE_MOST {
            self.inside.clear();
        }
        let mut from = 0;
        for piece in pieces {
            let length = piece.length as usize;
            self.inside.insert(piece.id, (object, from, length));
            from += length;
        }
    }

    fn pieces_if_large(
        &mut self,
        contents: &dyn ContentStorage,
        object: &ObjectId,
    ) -> Result<Option<Vec<Piece>>> {
        if let Some((kept, _, pieces)) = &self.manifest
            && kept == object
        {
            return Ok(Some(pieces.clone()));
        }
        let pieces = contents.pieces(object)?;
        if let Some(pieces) = &pieces {
            let length = pieces.iter().map(|piece| u64::from(piece.length)).sum();
            self.manifest = Some((*object, length, pieces.clone()));
        }
        Ok(pieces)
    }

    fn whole(&mut self, contents: &dyn ContentStorage, object: &ObjectId) -> Result<&[u8]> {
        if self.whole.as_ref().is_none_or(|(kept, _)| kept != object) {
            let bytes = contents.get(object)?;
            let few = bytes.len() as u64 <= WHOLE_MOST * 16;
            debug_assert!(few, "BUG: {object} has {} bytes and no pieces", bytes.len());
            self.whole = Some((*object, bytes));
        }
        Ok(&self.whole.as_ref().expect("it was just read").1)
    }
}

/// The pieces that the same bytes have everywhere.
fn cut(bytes: &[u8]) -> Result<Vec<Piece>> {
    let pieces = Mutex::new(());
    let take = |piece: &[u8]| {
        let _order = pieces.lock();
        Ok(ObjectId::of(piece))
    };
    Ok(cut_into_pieces(&mut &bytes[..], &take)?.1.pieces)
}

fn run_of_pieces(
    contents: &dyn ContentStorage,
    pieces: &[Piece],
    offset: u64,
    length: usize,
) -> Result<Vec<u8>> {
    let (mut at, end) = (0, offset + length as u64);
    let mut bytes = Vec::with_capacity(length);
    for piece in pieces {
        let next = at + u64::from(piece.length);
        if next > offset && at < end {
            let content = contents.get(&piece.id)?;
            let from = usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX);
            let to = usize::try_from((end - at).min(next - at)).unwrap_or(usize::MAX);
            bytes.extend_from_slice(content.get(from..to).unwrap_or_default());
        }
        at = next;
    }
    Ok(bytes)
}
