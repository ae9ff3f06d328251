//! The sealed form: XChaCha20-Poly1305 in segments, the last one marked, in bounded memory.
//!
//! Each segment has a nonce of its own: random bytes of the object, the segment's number, and
//! whether it is the last. So none can be moved, dropped or cut off unnoticed.

use std::io::{self, Read, Write};

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::{KEY_MARK, SecretKey};
use crate::id::random_bytes;

/// Bytes of plain text in a segment.
const SEGMENT: usize = 1 << 20;
/// Bytes by which a sealed segment is longer.
const TAG: usize = 16;
/// Random bytes that begin every nonce of an object.
const PREFIX: usize = 19;
/// Bytes before the first segment: the key's mark, and the nonces' beginning.
const HEAD: usize = KEY_MARK + PREFIX;

/// The most bytes by which sealing makes so many bytes longer.
pub(crate) const fn overhead(length: usize) -> usize {
    HEAD + TAG * (length / SEGMENT + 1)
}

struct Segments {
    cipher: XChaCha20Poly1305,
    prefix: [u8; PREFIX],
    next: u32,
}

impl Segments {
    fn new(key: &SecretKey, prefix: [u8; PREFIX]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(&key.seal.into()), prefix, next: 0 }
    }

    fn nonce(&mut self, last: bool) -> io::Result<XNonce> {
        let mut nonce = [0; 24];
        nonce[..PREFIX].copy_from_slice(&self.prefix);
        nonce[PREFIX..23].copy_from_slice(&self.next.to_be_bytes());
        nonce[23] = u8::from(last);
        let too_long = || io::Error::other("it is too long to be sealed");
        self.next = self.next.checked_add(1).ok_or_else(too_long)?;
        Ok(nonce.into())
    }

    fn seal(&mut self, plain: &[u8], last: bool) -> io::Result<Vec<u8>> {
        let nonce = self.nonce(last)?;
        self.cipher.encrypt(&nonce, plain).map_err(|_| io::Error::other("it cannot be sealed"))
    }

    fn open(&mut self, sealed: &[u8], last: bool) -> io::Result<Vec<u8>> {
        let nonce = self.nonce(last)?;
        self.cipher.decrypt(&nonce, sealed).map_err(|_| damaged())
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its seal is broken")
}

/// Seals what is written to it; nothing counts before `finish`.
pub(crate) struct Sealing<W> {
    out: W,
    segments: Segments,
    /// What is not sealed yet: up to a whole segment, since only the end tells which is the last.
    held: Vec<u8>,
}

impl<W: Write> Sealing<W> {
    pub(crate) fn new(key: &SecretKey, mut out: W) -> io::Result<Self> {
        let prefix = random_bytes();
        out.write_all(&key.mark)?;
        out.write_all(&prefix)?;
        Ok(Self { out, segments: Segments::new(key, prefix), held: Vec::new() })
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        let sealed = self.segments.seal(&self.held, true)?;
        self.out.write_all(&sealed)?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.held.len() == SEGMENT && !bytes.is_empty() {
            let sealed = self.segments.seal(&self.held, false)?;
            self.out.write_all(&sealed)?;
            self.held.clear();
        }
        let count = bytes.len().min(SEGMENT - self.held.len());
        self.held.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Opens what was sealed, as it is read.
pub(crate) struct Unsealing<R> {
    source: R,
    segments: Segments,
    /// The next sealed segment, whole, and one byte more if another follows.
    ahead: Vec<u8>,
    plain: Vec<u8>,
    given: usize,
    ended: bool,
}

/// Why something sealed cannot be opened.
pub(crate) enum Refused {
    /// It was sealed with another key.
    OtherKey,
    /// It cannot be read, or is damaged.
    Io(io::Error),
}

impl<R: Read> Unsealing<R> {
    pub(crate) fn new(key: &SecretKey, mut source: R) -> Result<Self, Refused> {
        let mut head = [0; HEAD];
        source.read_exact(&mut head).map_err(Refused::Io)?;
        let (mark, prefix) = head.split_at(KEY_MARK);
        if *mark != key.mark {
            return Err(Refused::OtherKey);
        }
        let prefix = prefix.try_into().expect("the head has this length");
        let segments = Segments::new(key, prefix);
        let (ahead, plain) = (Vec::new(), Vec::new());
        Ok(Self { source, segments, ahead, plain, given: 0, ended: false })
    }

    fn open_next(&mut self) -> io::Result<()> {
        const WHOLE: usize = SEGMENT + TAG;
        let wanted = (WHOLE + 1 - self.ahead.len()) as u64;
        self.source.by_ref().take(wanted).read_to_end(&mut self.ahead)?;
        let last = self.ahead.len() <= WHOLE;
        let end = self.ahead.len().min(WHOLE);
        self.plain = self.segments.open(&self.ahead[..end], last)?;
        self.ahead.drain(..end);
        (self.given, self.ended) = (0, last);
        Ok(())
    }
}

impl<R: Read> Read for Unsealing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.plain.len() {
            if self.ended {
                return Ok(0);
            }
            self.open_next()?;
        }
        let count = buffer.len().min(self.plain.len() - self.given);
        buffer[..count].copy_from_slice(&self.plain[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

/// Seals bytes that are in memory.
pub(crate) fn seal(key: &SecretKey, plain: &[u8]) -> Vec<u8> {
    let out = Vec::with_capacity(plain.len() + overhead(plain.len()));
    let sealed = Sealing::new(key, out).and_then(|mut sealing| {
        sealing.write_all(plain)?;
        sealing.finish()
    });
    sealed.expect("BUG: what is in memory is not too long to be sealed")
}

/// Opens sealed bytes that are in memory.
pub(crate) fn unseal(key: &SecretKey, sealed: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut plain = Vec::new();
    Unsealing::new(key, sealed)?.read_to_end(&mut plain).map_err(Refused::Io)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SecretKey {
        SecretKey::new(&[5; 32])
    }

    #[test]
    fn what_was_sealed_comes_back_whatever_its_length() {
        for length in [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT] {
            let plain: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let sealed = seal(&key(), &plain);
            assert!(sealed.len() <= plain.len() + overhead(plain.len()), "{length}");
            assert!(unseal(&key(), &sealed).is_ok_and(|opened| opened == plain), "{length}");
        }
    }

    #[test]
    fn same_content_is_never_sealed_the_same() {
        assert_ne!(seal(&key(), b"secret"), seal(&key(), b"secret"));
        assert!(!seal(&key(), b"secret").windows(6).any(|window| window == b"secret"));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let sealed = seal(&key(), b"secret");
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(unseal(&key(), &damaged).is_err(), "byte {at}");
            assert!(unseal(&key(), &sealed[..at]).is_err(), "cut at {at}");
        }
        let long = seal(&key(), &vec![1; SEGMENT + 5]);
        assert!(unseal(&key(), &long[..HEAD + SEGMENT + TAG]).is_err(), "without its last segment");
    }

    #[test]
    fn another_key_is_told_from_damage() {
        let sealed = seal(&key(), b"secret");
        let other = unseal(&SecretKey::new(&[6; 32]), &sealed);
        assert!(matches!(other, Err(Refused::OtherKey)));
    }
}
