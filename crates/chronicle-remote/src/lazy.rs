//! The store behind a home's own: connected to when something is asked for that is not at home.
//!
//! What was written together is asked for together, so what lies behind an object in its pack is read with
//! it and kept for a while: a thousand small files are a few requests.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chronicle_core::{ContentStorage, Error, ObjectId, unpack_object};

use crate::store::RemoteStore;

/// Bytes that are kept for those who ask next.
const KEPT: usize = 32 << 20;

/// Connects to a bucket.
type Connect = Box<dyn Fn() -> Result<RemoteStore, Error> + Send + Sync>;

/// A bucket that is connected to at the first question.
pub struct LazyStore {
    connect: Connect,
    connected: OnceLock<RemoteStore>,
    ahead: Mutex<Ahead>,
}

/// What was read along.
#[derive(Default)]
struct Ahead {
    forms: HashMap<ObjectId, Vec<u8>>,
    bytes: usize,
}

impl LazyStore {
    /// The bucket that this connects to.
    pub fn new(connect: impl Fn() -> Result<RemoteStore, Error> + Send + Sync + 'static) -> Self {
        let (connect, connected) = (Box::new(connect), OnceLock::new());
        Self { connect, connected, ahead: Mutex::default() }
    }

    fn store(&self) -> Result<&RemoteStore, Error> {
        if let Some(store) = self.connected.get() {
            return Ok(store);
        }
        let store = (self.connect)()?;
        Ok(self.connected.get_or_init(|| store))
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentStorage for LazyStore {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>, Error> {
        let kept = self.ahead().take(id);
        if let Some(bytes) = kept.and_then(|stored| unpack_object(id, &stored).ok()) {
            return Ok(bytes);
        }
        let store = self.store()?;
        let neighbours = store.neighbours(id);
        if neighbours.len() > 1 {
            // Whatever goes wrong here is told by the question itself.
            let _ = store.read_many(&neighbours, &|id, stored| {
                self.ahead().add(*id, stored);
                Ok(())
            });
            let kept = self.ahead().take(id);
            if let Some(bytes) = kept.and_then(|stored| unpack_object(id, &stored).ok()) {
                return Ok(bytes);
            }
        }
        store.get(id)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<(), Error> {
        self.store()?.put(id, bytes)
    }

    fn exists(&self, id: &ObjectId) -> Result<bool, Error> {
        self.store()?.exists(id)
    }

    fn delete(&self, id: &ObjectId) -> Result<(), Error> {
        self.ahead().take(id);
        self.store()?.delete(id)
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>, Error> {
        self.store()?.reader(id)
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64), Error> {
        self.store()?.put_stream(source)
    }
}

impl Ahead {
    fn add(&mut self, id: ObjectId, stored: &[u8]) {
        // What was not asked for by now will hardly be.
        if self.bytes + stored.len() > KEPT {
            self.forms.clear();
            self.bytes = 0;
        }
        if stored.len() < KEPT && self.forms.insert(id, stored.to_vec()).is_none() {
            self.bytes += stored.len();
        }
    }

    fn take(&mut self, id: &ObjectId) -> Option<Vec<u8>> {
        let stored = self.forms.remove(id)?;
        self.bytes -= stored.len();
        Some(stored)
    }
}
