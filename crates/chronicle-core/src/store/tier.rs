//! Content that may lie further away: the store behind a local one.
//!
//! What is written is written here; getting it there is done by whoever reads the log. What is not here is
//! asked for there, and kept here from then on.

use std::io::Read;
use std::sync::Arc;

use super::ContentStorage;
use crate::error::{Error, Result};
use crate::id::ObjectId;

/// The store behind a home's own, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Tier(Option<Arc<dyn ContentStorage>>);

impl std::fmt::Debug for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Tier" } else { "no tier" })
    }
}

impl Tier {
    pub(crate) fn new(store: Arc<dyn ContentStorage>) -> Self {
        Self(Some(store))
    }

    pub(super) fn store(&self) -> Option<&dyn ContentStorage> {
        self.0.as_deref()
    }

    /// The object's bytes from there; without a store behind, it is missing.
    pub(super) fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        self.store().ok_or(Error::Missing(*id))?.get(id)
    }

    /// Takes away copies that are only caches.
    pub(crate) fn drop_copy(&self, id: &ObjectId) -> Result<()> {
        self.store().map_or(Ok(()), |store| store.drop_copy(id))
    }
}

/// Two stores as one: a near one that everything is written to, and a far one that has more.
///
/// What is put becomes durable in the near one. `flush` brings it to the far one; until then it is in the
/// near one alone, and `delete` takes it out of both.
pub struct TieredStore<N, F> {
    near: N,
    far: F,
    waiting: std::sync::Mutex<std::collections::BTreeSet<ObjectId>>,
}

impl<N: ContentStorage, F: ContentStorage> TieredStore<N, F> {
    /// Puts a near store before a far one.
    pub fn new(near: N, far: F) -> Self {
        Self { near, far, waiting: std::sync::Mutex::default() }
    }

    /// The near one.
    pub fn near(&self) -> &N {
        &self.near
    }

    /// The far one.
    pub fn far(&self) -> &F {
        &self.far
    }

    /// How many objects are in the near one alone.
    pub fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// Brings everything to the far store that waits for it; what fails goes on waiting.
    pub fn flush(&self) -> Result<()> {
        let waiting: Vec<_> = self.lock().iter().copied().collect();
        for id in waiting {
            match self.near.get(&id) {
                Ok(bytes) => self.far.put(&id, &bytes)?,
                // It was deleted since.
                Err(Error::Missing(_)) => {}
                Err(error) => return Err(error),
            }
            self.lock().remove(&id);
        }
        Ok(())
    }

    /// Takes an object out of the near store, if the far one has it; tells whether it did.
    pub fn evict(&self, id: &ObjectId) -> Result<bool> {
        if self.lock().contains(id) || !self.far.exists(id)? {
            return Ok(false);
        }
        self.near.delete(id).map(|()| true)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<ObjectId>> {
        self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<N: ContentStorage, F: ContentStorage> ContentStorage for TieredStore<N, F> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let near = match self.near.get(id) {
            // What is damaged here may be whole there, and is put in its place.
            Err(error @ (Error::Missing(_) | Error::Corrupt { .. })) => error,
            near => return near,
        };
        let bytes = match self.far.get(id) {
            Err(Error::Missing(_)) => return Err(near),
            far => far?,
        };
        // Keeping it here only saves the way.
        let _ = self.near.put(id, &bytes);
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        self.near.put(id, bytes)?;
        self.lock().insert(*id);
        Ok(())
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.near.exists(id)? || self.far.exists(id)?)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.far.delete(id)?;
        self.near.delete(id)?;
        // Last: what could not be deleted is still brought to the far one.
        self.lock().remove(id);
        Ok(())
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        match self.near.reader(id) {
            Err(Error::Missing(_)) => {}
            near => return near,
        }
        let mut far = self.far.reader(id)?;
        match self.near.put_stream(&mut far) {
            Ok((found, _)) if found == *id => self.near.reader(id),
            _ => self.far.reader(id),
        }
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let (id, length) = self.near.put_stream(source)?;
        self.lock().insert(id);
        Ok((id, length))
    }

    fn drop_copy(&self, id: &ObjectId) -> Result<()> {
        self.near.drop_copy(id)?;
        self.far.drop_copy(id)
    }
}
