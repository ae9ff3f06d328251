//! The body of a record as its row keeps it: a long one compressed.
//!
//! A first capture is one record that names every file, and would be a tenth of the home. What is short stays
//! as it is: that is what a person waits for.

use std::borrow::Cow;
use std::io::Read;

/// What is shorter is not compressed.
const LONG: usize = 16 << 10;

/// The longest that is unpacked, whatever a row says.
const LONGEST: u64 = 4 << 30;

const LEVEL: i32 = 3;

/// What a row keeps, and how long it is unpacked; 0 if it is kept as it is.
pub(super) fn pack(body: &[u8]) -> (Cow<'_, [u8]>, i64) {
    if body.len() < LONG {
        return (Cow::Borrowed(body), 0);
    }
    match zstd::bulk::compress(body, LEVEL) {
        Ok(packed) if packed.len() < body.len() => (Cow::Owned(packed), body.len() as i64),
        _ => (Cow::Borrowed(body), 0),
    }
}

/// The body that a row keeps. What cannot be unpacked is given as it is: no commitment fits it.
pub(super) fn unpack(kept: &[u8], length: i64) -> Cow<'_, [u8]> {
    if length == 0 || kept.is_empty() {
        return Cow::Borrowed(kept);
    }
    let length = length.cast_unsigned();
    let unpacked = (length <= LONGEST).then(|| read(kept, length)).and_then(Result::ok);
    match unpacked {
        Some(body) if body.len() as u64 == length => Cow::Owned(body),
        _ => Cow::Borrowed(kept),
    }
}

/// Grows with what really comes out, since the length may be a lie.
fn read(kept: &[u8], length: u64) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    crate::store::bounded_decoder(kept)?.take(length + 1).read_to_end(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ones_come_back_and_short_ones_stay() {
        let short = vec![7; LONG - 1];
        assert_eq!(pack(&short), (Cow::Borrowed(&short[..]), 0));
        let long: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let (kept, length) = pack(&long);
        assert!(kept.len() < long.len() / 2);
        assert_eq!(unpack(&kept, length), long);
    }

    #[test]
    fn a_lie_about_the_length_gives_what_is_kept() {
        let long = vec![7; 10 * LONG];
        let (kept, length) = pack(&long);
        for lie in [length - 1, length + 1, i64::MAX, -1, 1] {
            assert_eq!(unpack(&kept, lie), kept, "{lie}");
        }
        assert_eq!(unpack(&long, length), long);
        let cut = &kept[..kept.len() - 1];
        assert_eq!(unpack(cut, length), cut);
        assert!(unpack(&[], length).is_empty());
    }
}
