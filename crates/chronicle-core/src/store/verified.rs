//! Objects from a store that is not trusted: nothing comes out but what the name says.

use std::io::{self, Read};

use super::{ContentStorage, corrupt, verify};
use crate::error::Result;
use crate::id::ObjectId;

/// A store whose every byte is checked against the id, on the way out and on the way in.
///
/// Whether an object is there is still the store's word alone: who wants proof reads it.
pub struct Verified<S>(S);

impl<S: ContentStorage> Verified<S> {
    /// Checks what this store gives.
    pub fn new(store: S) -> Self {
        Self(store)
    }

    /// The store itself.
    pub fn inner(&self) -> &S {
        &self.0
    }
}

impl<S: ContentStorage> ContentStorage for Verified<S> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let bytes = self.0.get(id)?;
        verify(id, &bytes)?;
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        verify(id, bytes)?;
        self.0.put(id, bytes)
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        self.0.exists(id)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.0.delete(id)
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        Ok(Box::new(Checked::new(*id, self.0.reader(id)?)))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let mut hashing = Hashing::new(source);
        let said = self.0.put_stream(&mut hashing)?;
        let (id, length) = hashing.so_far();
        match said == (id, length) && hashing.is_at_end() {
            true => Ok(said),
            false => {
                let (other, kept) = said;
                Err(corrupt(&id, format!("the store kept {kept} bytes of it as {other}")))
            }
        }
    }

    fn drop_copy(&self, id: &ObjectId) -> Result<()> {
        self.0.drop_copy(id)
    }
}

/// Says what passed through it.
pub(super) struct Hashing<R> {
    source: R,
    hasher: blake3::Hasher,
    length: u64,
    ended: bool,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, hasher: blake3::Hasher::new(), length: 0, ended: false }
    }

    /// The name and length of what was read by now.
    pub(super) fn so_far(&self) -> (ObjectId, u64) {
        (ObjectId(*self.hasher.finalize().as_bytes()), self.length)
    }

    /// The length alone.
    pub(super) fn so_far_length(&self) -> u64 {
        self.length
    }

    /// Whether everything was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.ended
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.length += count as u64;
        self.ended |= count == 0 && !buffer.is_empty();
        Ok(count)
    }
}

/// A stream that fails at its end if it was not the object.
pub(super) struct Checked<R> {
    id: ObjectId,
    hashing: Hashing<R>,
}

impl<R: Read> Checked<R> {
    pub(super) fn new(id: ObjectId, source: R) -> Self {
        Self { id, hashing: Hashing::new(source) }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.hashing.read(buffer)?;
        if self.hashing.is_at_end() && self.hashing.so_far().0 != self.id {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its bytes have another hash"));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn stream_of_other_bytes_fails_at_its_end_and_goes_on_failing() {
        let mut checked = Checked::new(ObjectId::of(b"this"), &b"that"[..]);
        let mut bytes = Vec::new();
        assert_eq!(checked.read_to_end(&mut bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(checked.read(&mut [0; 4]).is_err());
        assert_eq!(checked.read(&mut []).unwrap_or(0), 0);
    }

    /// A store that stops reading early has not kept the content, whatever it says.
    #[test]
    fn stream_that_was_not_read_to_its_end_is_not_kept() {
        struct Early(MemoryStore);
        impl ContentStorage for Early {
            fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
                self.0.get(id)
            }
            fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
                self.0.put(id, bytes)
            }
            fn exists(&self, id: &ObjectId) -> Result<bool> {
                self.0.exists(id)
            }
            fn delete(&self, id: &ObjectId) -> Result<()> {
                self.0.delete(id)
            }
            fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
                self.0.reader(id)
            }
            fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
                self.0.put_stream(&mut source.take(3))
            }
        }
        let store = Verified::new(Early(MemoryStore::new()));
        assert_eq!(store.put_stream(&mut &b"content"[..]).unwrap_err().code(), "corrupt_object");
    }
}
