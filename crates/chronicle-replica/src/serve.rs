//! Giving contents over a link. The same on both sides; who may have what is decided before.

use chronicle_core::{ObjectId, Piece};

use crate::limits::PIECES_PER_FRAME;
use crate::wire::{Content, Frame, Manifest, Run};

/// What is being read for the peer.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    outstanding: usize,
}

/// The peer asks for more than anybody needs.
#[derive(Debug)]
pub(crate) struct Flood;

impl Serving {
    /// Counts requests; more than `most` unanswered ones are a flood.
    pub(crate) fn asked(&mut self, count: usize, most: usize) -> Result<(), Flood> {
        self.outstanding += count;
        if self.outstanding > most { Err(Flood) } else { Ok(()) }
    }

    /// What to send once a run was read.
    pub(crate) fn content(&mut self, run: &Run, bytes: Option<Vec<u8>>) -> Frame {
        self.outstanding = self.outstanding.saturating_sub(1);
        let object = run.wanted.object;
        match bytes {
            Some(bytes) => Frame::Content(Content { object, offset: run.offset, bytes }),
            None => Frame::Missing(object),
        }
    }

    /// What to send once a list of pieces was read.
    pub(crate) fn manifest(
        &mut self,
        object: ObjectId,
        found: Option<(u64, Vec<Piece>)>,
    ) -> Vec<Frame> {
        self.outstanding = self.outstanding.saturating_sub(1);
        let Some((size, pieces)) = found else { return vec![Frame::Missing(object)] };
        let count = pieces.len().div_ceil(PIECES_PER_FRAME).max(1);
        let part = |number: usize| {
            let start = number * PIECES_PER_FRAME;
            let end = pieces.len().min(start + PIECES_PER_FRAME);
            let first = u32::try_from(start).expect("BUG: a list of pieces is far shorter");
            let (last, pieces) = (number + 1 == count, pieces[start..end].to_vec());
            Frame::Manifest(Manifest { object, size, first, last, pieces })
        };
        (0..count).map(part).collect()
    }
}
