//! A near store as a cache before a far one.
//!
//! The far one has everything; the near one only saves the way. Nothing that it does or fails to do changes
//! what is read, and nothing that it has counts as kept.

use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::local::read_start;
use super::{ContentStorage, LARGE_OBJECT, Verified};
use crate::error::{Error, Result};
use crate::id::ObjectId;

/// A far store whose objects are read from a near one where that has them.
///
/// What comes out is verified, whichever of them it came from; a damaged or wrong object of the near one is
/// replaced. The near one holds at most so many bytes, of which those used longest ago go first.
pub struct Cached<N, F> {
    near: Verified<N>,
    far: Verified<F>,
    used: Mutex<Used>,
}

impl<N: ContentStorage, F: ContentStorage> Cached<N, F> {
    /// Keeps at most so many bytes in the near store; what lies there already counts once it is read.
    pub fn new(near: N, far: F, bytes: u64) -> Self {
        let used = Mutex::new(Used { limit: bytes, ..Used::default() });
        Self { near: Verified::new(near), far: Verified::new(far), used }
    }

    /// Leaves it to the near store how much it keeps.
    pub fn unbounded(near: N, far: F) -> Self {
        Self::new(near, far, u64::MAX)
    }

    /// The cache.
    pub fn near(&self) -> &N {
        self.near.inner()
    }

    /// The store that has everything.
    pub fn far(&self) -> &F {
        self.far.inner()
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a use, and takes away what there is no room for any more.
    fn note(&self, id: &ObjectId, length: u64) {
        let evicted = self.used().note(id, length);
        for id in evicted {
            // What cannot be taken away is found, or not, like anything that lies there.
            let _ = self.near.delete(&id);
        }
    }

    /// Keeps a copy, in place of a damaged one; if it cannot be kept, the next one goes the far way.
    fn keep(&self, id: &ObjectId, bytes: &[u8], damaged: bool) {
        if bytes.len() as u64 > self.used().limit {
            return;
        }
        if damaged {
            let _ = self.near.delete(id);
        }
        if self.near.put(id, bytes).is_ok() {
            self.note(id, bytes.len() as u64);
        }
    }

    /// An object of the near store as a stream, after it was found to be whole.
    fn near_reader(&self, id: &ObjectId) -> Option<Box<dyn Read + Send + '_>> {
        let whole = || -> Result<(Vec<u8>, u64)> {
            let mut source = self.near.reader(id)?;
            let start = read_start(&mut source)?;
            let rest = std::io::copy(&mut source, &mut std::io::sink());
            let rest = rest.map_err(|error| super::corrupt(id, error.to_string()))?;
            Ok((start, rest))
        };
        match whole() {
            Ok((start, rest)) => {
                self.note(id, start.len() as u64 + rest);
                // Little content is not read twice, so that nobody changes it in between.
                match start.len() <= LARGE_OBJECT {
                    true => Some(Box::new(Cursor::new(start))),
                    false => self.near.reader(id).ok(),
                }
            }
            Err(Error::Missing(_)) => None,
            Err(_) => {
                let _ = self.near.delete(id);
                None
            }
        }
    }
}

impl<N: ContentStorage, F: ContentStorage> ContentStorage for Cached<N, F> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let damaged = match self.near.get(id) {
            Ok(bytes) => {
                self.note(id, bytes.len() as u64);
                return Ok(bytes);
            }
            Err(error) => matches!(error, Error::Corrupt { .. }),
        };
        let bytes = self.far.get(id)?;
        self.keep(id, &bytes, damaged);
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        self.far.put(id, bytes)?;
        self.keep(id, bytes, false);
        Ok(())
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        self.far.exists(id)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.far.delete(id)?;
        self.drop_copy(id)
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        if let Some(near) = self.near_reader(id) {
            return Ok(near);
        }
        let limit = self.used().limit;
        // One byte more than fits shows that it does not.
        let mut far = self.far.reader(id)?.take(limit.saturating_add(1));
        match self.near.put_stream(&mut far) {
            Ok((found, length)) if found == *id && length <= limit => {
                // It is looked at like anything that lies there.
                self.near_reader(id).map_or_else(|| self.far.reader(id), Ok)
            }
            Ok((other, _)) => {
                // The beginning of something too long, or what a line made of it.
                let _ = self.near.delete(&other);
                self.far.reader(id)
            }
            Err(_) => self.far.reader(id),
        }
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        self.far.put_stream(source)
    }

    fn drop_copy(&self, id: &ObjectId) -> Result<()> {
        self.used().forget(id);
        self.near.delete(id)?;
        self.far.drop_copy(id)
    }
}

/// Which objects the cache has, in the order in which they were used.
#[derive(Default)]
struct Used {
    limit: u64,
    bytes: u64,
    /// Counts uses.
    now: u64,
    objects: HashMap<ObjectId, (u64, u64)>,
    by_use: BTreeMap<u64, ObjectId>,
}

impl Used {
    /// Counts a use, and says what has to go for it.
    fn note(&mut self, id: &ObjectId, length: u64) -> Vec<ObjectId> {
        if self.limit == u64::MAX {
            return Vec::new();
        }
        self.forget(id);
        self.now += 1;
        self.objects.insert(*id, (self.now, length));
        self.by_use.insert(self.now, *id);
        self.bytes += length;
        let mut evicted = Vec::new();
        while self.bytes > self.limit
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.forget(&oldest);
            evicted.push(oldest);
        }
        evicted
    }

    fn forget(&mut self, id: &ObjectId) {
        if let Some((when, length)) = self.objects.remove(id) {
            self.by_use.remove(&when);
            self.bytes -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn put(store: &dyn ContentStorage, bytes: &[u8]) -> ObjectId {
        store.put(&ObjectId::of(bytes), bytes).unwrap();
        ObjectId::of(bytes)
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let store = Cached::new(MemoryStore::new(), MemoryStore::new(), 300);
        let ids: Vec<_> = (0..3).map(|number| put(&store, &[number; 100])).collect();
        store.get(&ids[0]).unwrap();
        put(&store, &[9; 100]);
        let near = |id: &ObjectId| store.near().exists(id).unwrap();
        assert_eq!(ids.iter().map(near).collect::<Vec<_>>(), [true, false, true]);
        store.get(&ids[1]).unwrap();
        assert!(near(&ids[1]) && !near(&ids[2]), "read from behind, and kept in another's place");
        assert_eq!(store.used().bytes, 300);
    }

    #[test]
    fn what_is_longer_than_the_cache_is_read_and_not_kept() {
        let store = Cached::new(MemoryStore::new(), MemoryStore::new(), 300);
        let id = put(store.far(), &[7; 301]);
        let mut bytes = Vec::new();
        store.reader(&id).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes == [7; 301] && store.get(&id).unwrap() == [7; 301]);
        assert!(!store.near().exists(&id).unwrap());
        assert!(!store.near().exists(&ObjectId::of(&[7; 300])).unwrap());
        let exact = put(store.far(), &[8; 300]);
        store.reader(&exact).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(store.near().exists(&exact).unwrap());
    }

    #[test]
    fn nothing_in_the_cache_counts_as_kept() {
        let store = Cached::unbounded(MemoryStore::new(), MemoryStore::new());
        let id = put(store.near(), b"only near");
        assert!(!store.exists(&id).unwrap());
        let id = put(&store, b"everywhere");
        store.drop_copy(&id).unwrap();
        assert!(store.exists(&id).unwrap() && !store.near().exists(&id).unwrap());
        assert_eq!(store.get(&id).unwrap(), b"everywhere");
    }
}
