//! History as bytes that travel: runs of records, and what stood in the workspace at a moment.
//!
//! Pure. Where it travels to is not decided here, and what arrives is trusted for nothing: a segment that
//! decodes is a run of records whose links follow one another, no more.

mod named;
mod segment;
mod standing;

use std::io::Read;

use crate::codec::DecodeError;

pub use crate::codec::{Decoder, Encoder};
pub use named::Named;
pub(crate) use segment::MAGIC as SEGMENT_MAGIC;
pub use segment::Segment;
pub(crate) use standing::MAGIC as STANDING_MAGIC;
pub use standing::Standing;

/// The longest that anything which travels may be before it is compressed.
const RAW_MAX: u64 = 1 << 30;
const LEVEL: i32 = 3;

/// A version and what follows it, compressed.
fn pack(magic: &[u8; 8], raw: &[u8]) -> Vec<u8> {
    let packed = zstd::bulk::compress(raw, LEVEL).expect("BUG: zstd compresses anything");
    [&magic[..], &packed].concat()
}

/// What was compressed; its length is bounded, whatever it says of itself.
fn unpack(magic: &[u8; 8], bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let packed = bytes.strip_prefix(magic).ok_or(DecodeError::Malformed("magic"))?;
    let damaged = |_| DecodeError::Malformed("compression");
    let mut raw = Vec::new();
    let decoder = crate::store::bounded_decoder(packed).map_err(damaged)?;
    decoder.take(RAW_MAX + 1).read_to_end(&mut raw).map_err(damaged)?;
    if raw.len() as u64 > RAW_MAX { Err(DecodeError::Malformed("length")) } else { Ok(raw) }
}
