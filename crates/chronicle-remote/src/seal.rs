//! The sealed form of packs and indexes: XChaCha20-Poly1305 in pieces, so that a part can be read alone.
//!
//! A sealed file begins with a mark of its form and a random nonce. Every piece has a nonce of its own,
//! made of that one and the piece's number; number, kind, context and whether it is the last are
//! authenticated with it. So a piece that was moved, swapped, dropped or cut off does not open.

use std::ops::Range;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::random::random_bytes;

/// Bytes of plain text in a piece.
pub(crate) const PIECE: u64 = 64 << 10;
/// Bytes by which a sealed piece is longer.
const TAG: u64 = 16;
const MAGIC: &[u8; 8] = b"chr-seal";
/// Bytes before the first piece.
const HEAD: u64 = 8 + NONCE as u64;
pub(crate) const NONCE: usize = 24;
pub(crate) const MARK: usize = 8;

const SEAL_CONTEXT: &str = "chronicle 1 remote seal";
const NAME_CONTEXT: &str = "chronicle 1 remote name";
const MARK_CONTEXT: &str = "chronicle 1 remote mark";

/// The key of one place: three made of one secret, so that no use tells anything of another.
#[derive(Clone)]
pub struct RemoteKey {
    secret: [u8; 32],
    seal: [u8; 32],
    name: [u8; 32],
    mark: [u8; MARK],
}

impl std::fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteKey").field(&chronicle_core::to_hex(&self.mark)).finish()
    }
}

impl RemoteKey {
    /// The key that is made of these secret bytes.
    pub fn derive(secret: &[u8; 32]) -> Self {
        let mut mark = [0; MARK];
        mark.copy_from_slice(&blake3::derive_key(MARK_CONTEXT, secret)[..MARK]);
        Self {
            secret: *secret,
            seal: blake3::derive_key(SEAL_CONTEXT, secret),
            name: blake3::derive_key(NAME_CONTEXT, secret),
            mark,
        }
    }

    /// By what the place remembers its key without telling it.
    pub(crate) fn mark(&self) -> &[u8; MARK] {
        &self.mark
    }

    /// What it was made of; leaves this crate only under another key's seal.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The name of a sealed pack.
    pub(crate) fn name(&self, sealed: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.name, sealed).as_bytes()
    }
}

/// What is sealed: nothing that is sealed as one kind opens as the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pack = 1,
    Index = 2,
    Key = 3,
    Segment = 4,
    Standing = 5,
    Head = 6,
    References = 7,
    Doomed = 8,
}

/// The parts of one sealed file that are the same for all its pieces.
pub(crate) struct Sealer<'a> {
    cipher: XChaCha20Poly1305,
    nonce: [u8; NONCE],
    kind: Kind,
    /// What the file must belong to; for an index the name of its pack.
    context: &'a [u8],
}

impl<'a> Sealer<'a> {
    pub(crate) fn new(key: &RemoteKey, nonce: [u8; NONCE], kind: Kind, context: &'a [u8]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(&key.seal.into()), nonce, kind, context }
    }

    /// A sealer for a new file.
    pub(crate) fn random(key: &RemoteKey, kind: Kind, context: &'a [u8]) -> Self {
        Self::new(key, random_bytes(), kind, context)
    }

    pub(crate) fn nonce(&self) -> [u8; NONCE] {
        self.nonce
    }

    /// The sealed file of these bytes.
    pub(crate) fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let count = pieces(plain.len() as u64);
        let mut sealed = Vec::with_capacity(plain.len() + (HEAD + count * TAG) as usize);
        sealed.extend_from_slice(MAGIC);
        sealed.extend_from_slice(&self.nonce);
        for number in 0..count {
            let start = (number * PIECE) as usize;
            let piece = &plain[start..plain.len().min(start + PIECE as usize)];
            let aad = self.aad(number, number + 1 == count);
            let sealed_piece =
                self.cipher.encrypt(&self.nonce_of(number), Payload { msg: piece, aad: &aad });
            sealed.extend(sealed_piece.expect("BUG: a piece is not too long to be sealed"));
        }
        sealed
    }

    /// Opens whole pieces, of which the first has this number, of a file of so many plain bytes.
    pub(crate) fn open_pieces(
        &self,
        first: u64,
        plain_length: u64,
        sealed: &[u8],
    ) -> Result<Vec<u8>, &'static str> {
        let count = pieces(plain_length);
        let mut plain = Vec::with_capacity(sealed.len());
        for (number, piece) in (first..).zip(sealed.chunks((PIECE + TAG) as usize)) {
            if number >= count {
                return Err("it has more pieces than it should");
            }
            let aad = self.aad(number, number + 1 == count);
            let opened =
                self.cipher.decrypt(&self.nonce_of(number), Payload { msg: piece, aad: &aad });
            plain.extend(opened.map_err(|_| "its seal is broken")?);
        }
        Ok(plain)
    }

    fn nonce_of(&self, number: u64) -> XNonce {
        let mut nonce = self.nonce;
        let (_, last) = nonce.split_at_mut(NONCE - 8);
        last.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, with)| *byte ^= with);
        nonce.into()
    }

    fn aad(&self, number: u64, last: bool) -> Vec<u8> {
        let fixed = [self.kind as u8, u8::from(last)];
        [&fixed[..], &number.to_le_bytes(), self.context].concat()
    }
}

/// How many pieces so many bytes make; even nothing is one, whose seal says that nothing is missing.
fn pieces(plain_length: u64) -> u64 {
    plain_length.div_ceil(PIECE).max(1)
}

/// How long the sealed file of so many bytes is.
pub(crate) fn sealed_length(plain_length: u64) -> u64 {
    HEAD + plain_length + TAG * pieces(plain_length)
}

/// How many plain bytes a sealed file of this length has.
fn plain_length(sealed_length: u64) -> Option<u64> {
    let body = sealed_length.checked_sub(HEAD)?;
    let plain = body.checked_sub(TAG * body.div_ceil(PIECE + TAG).max(1))?;
    (self::sealed_length(plain) == sealed_length).then_some(plain)
}

/// The pieces that cover a range: which is the first, where they lie, and how much of it to skip.
pub(crate) struct Cover {
    pub(crate) first: u64,
    pub(crate) sealed: Range<u64>,
    pub(crate) skip: usize,
}

/// Which pieces to fetch for a range that is not empty and lies within so many plain bytes.
pub(crate) fn cover(range: &Range<u64>, plain_length: u64) -> Cover {
    let (first, last) = (range.start / PIECE, (range.end - 1) / PIECE);
    let start = HEAD + first * (PIECE + TAG);
    let end = (HEAD + (last + 1) * (PIECE + TAG)).min(sealed_length(plain_length));
    Cover { first, sealed: start..end, skip: (range.start - first * PIECE) as usize }
}

/// Opens a whole sealed file and gives its nonce too.
pub(crate) fn open(
    key: &RemoteKey,
    kind: Kind,
    context: &[u8],
    sealed: &[u8],
) -> Result<(Vec<u8>, [u8; NONCE]), &'static str> {
    let length = plain_length(sealed.len() as u64).ok_or("it is cut off")?;
    let (head, body) = sealed.split_at(HEAD as usize);
    let nonce = head.strip_prefix(MAGIC).ok_or("it is not sealed")?;
    let nonce = nonce.try_into().expect("BUG: the head has this length");
    let plain = Sealer::new(key, nonce, kind, context).open_pieces(0, length, body)?;
    Ok((plain, nonce))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: usize = PIECE as usize;

    fn key() -> RemoteKey {
        RemoteKey::derive(&[5; 32])
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    fn opened(sealed: &[u8]) -> Result<Vec<u8>, &'static str> {
        open(&key(), Kind::Pack, b"context", sealed).map(|(plain, _)| plain)
    }

    fn sealed(plain: &[u8]) -> Vec<u8> {
        Sealer::random(&key(), Kind::Pack, b"context").seal(plain)
    }

    #[test]
    fn what_was_sealed_comes_back_whatever_its_length() {
        for length in [0, 1, WHOLE - 1, WHOLE, WHOLE + 1, 3 * WHOLE, 3 * WHOLE + 7] {
            let sealed = sealed(&bytes(length));
            assert_eq!(sealed.len() as u64, sealed_length(length as u64));
            assert_eq!(plain_length(sealed.len() as u64), Some(length as u64));
            assert!(opened(&sealed) == Ok(bytes(length)), "{length}");
        }
    }

    #[test]
    fn range_is_read_from_the_pieces_that_cover_it() {
        let plain = bytes(3 * WHOLE + 7);
        let sealer = Sealer::random(&key(), Kind::Pack, b"");
        let (file, length) = (sealer.seal(&plain), plain.len() as u64);
        let ends = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE, length - 1, length];
        for start in ends {
            for end in ends.into_iter().filter(|end| *end > start) {
                let cover = cover(&(start..end), length);
                let sealed = &file[cover.sealed.start as usize..cover.sealed.end as usize];
                let read = sealer.open_pieces(cover.first, length, sealed).unwrap();
                let read = &read[cover.skip..cover.skip + (end - start) as usize];
                assert!(read == &plain[start as usize..end as usize], "{start}..{end}");
            }
        }
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let file = sealed(b"content");
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(opened(&damaged).is_err(), "byte {at}");
            assert!(opened(&file[..at]).is_err(), "cut at {at}");
        }
        assert!(opened(&[&file[..], b"x"].concat()).is_err());
    }

    #[test]
    fn pieces_that_were_moved_dropped_or_taken_from_elsewhere_do_not_open() {
        let (head, whole) = (HEAD as usize, (PIECE + TAG) as usize);
        let (one, other) = (sealed(&bytes(2 * WHOLE)), sealed(&bytes(2 * WHOLE)));
        let piece = |file: &[u8], number: usize| {
            file[head + number * whole..head + (number + 1) * whole].to_vec()
        };
        let with = |pieces: &[Vec<u8>]| opened(&[&one[..head], &pieces.concat()].concat());
        assert!(with(&[piece(&one, 0), piece(&one, 1)]).is_ok());
        assert!(with(&[piece(&one, 1), piece(&one, 0)]).is_err(), "reordered");
        assert!(with(&[piece(&one, 0), piece(&other, 1)]).is_err(), "swapped");
        assert!(with(&[piece(&one, 0)]).is_err(), "without the last");
        assert!(with(&[piece(&one, 0), piece(&one, 0)]).is_err(), "repeated");
        assert!(with(&[piece(&one, 0), piece(&one, 1), piece(&one, 1)]).is_err(), "with one more");
    }

    #[test]
    fn another_key_kind_or_context_does_not_open() {
        let file = sealed(b"content");
        assert!(open(&RemoteKey::derive(&[6; 32]), Kind::Pack, b"context", &file).is_err());
        assert!(open(&key(), Kind::Index, b"context", &file).is_err());
        assert!(open(&key(), Kind::Pack, b"other", &file).is_err());
    }

    #[test]
    fn same_content_is_never_sealed_the_same() {
        assert_ne!(sealed(b"secret"), sealed(b"secret"));
        assert!(!sealed(b"secret").windows(6).any(|window| window == b"secret"));
    }
}
