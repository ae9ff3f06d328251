//! Frames out of a stream of bytes: a length, then so many bytes.

use super::{Frame, WireError, decode};
use crate::limits::FRAME_MAX;

/// How long the frame is that these four bytes announce; refused before anything is allocated.
pub fn frame_length(prefix: [u8; 4]) -> Result<usize, WireError> {
    match usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX) {
        0 => Err(WireError::Empty),
        length if length > FRAME_MAX => Err(WireError::TooLong(length)),
        length => Ok(length),
    }
}

/// Takes a stream of bytes as it comes and gives the frames in it.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    taken: usize,
}

impl Framer {
    /// Takes bytes that have come.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that is complete; after an error the stream is of no more use.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let rest = &self.buffer[self.taken..];
        let Some((prefix, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = frame_length(*prefix)?;
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let frame = decode(bytes)?;
        self.taken += 4 + length;
        if self.taken == self.buffer.len() {
            // What is idle keeps no buffer.
            *self = Self::default();
        }
        Ok(Some(frame))
    }
}
