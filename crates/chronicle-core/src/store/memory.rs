//! Objects in memory, for tests and for what need not outlive the process.

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::encrypting::check_form;
use super::{ContentStorage, SealedStorage, corrupt, verify};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;

/// A store that lives as long as its process.
#[derive(Default)]
pub struct MemoryStore {
    objects: Mutex<HashMap<ObjectId, Vec<u8>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<ObjectId, Vec<u8>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentStorage for MemoryStore {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let bytes = self.get_sealed(id)?;
        match verify(id, &bytes) {
            // Its name is that of something sealed.
            Err(_) => Err(corrupt(id, "it is sealed")),
            Ok(()) => Ok(bytes),
        }
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        verify(id, bytes)?;
        self.objects().entry(*id).or_insert_with(|| bytes.to_vec());
        Ok(())
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.objects().contains_key(id))
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.objects().remove(id);
        Ok(())
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        Ok(Box::new(Cursor::new(self.get(id)?)))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).at("take in", super::SOURCE)?;
        let id = ObjectId::of(&bytes);
        self.put(&id, &bytes)?;
        Ok((id, bytes.len() as u64))
    }
}

impl SealedStorage for MemoryStore {
    fn get_sealed(&self, name: &ObjectId) -> Result<Vec<u8>> {
        self.objects().get(name).cloned().ok_or(Error::Missing(*name))
    }

    fn put_sealed(&self, name: &ObjectId, form: &[u8]) -> Result<()> {
        check_form(name, form)?;
        self.objects().insert(*name, form.to_vec());
        Ok(())
    }
}
