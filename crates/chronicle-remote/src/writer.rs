//! Gathers objects into packs, so that many small ones cost few requests.

use std::collections::HashSet;
use std::io::ErrorKind;

use chronicle_core::{Error, ObjectId};

use crate::pack::{PackBuilder, STORED_MAX};
use crate::store::{RemoteStore, corrupt, not_taken};

/// What a writer wrote.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Packs, each with an index.
    pub packs: u64,
    /// Objects in them.
    pub objects: u64,
    /// Objects that were in the bucket already.
    pub known: u64,
}

/// Gathers objects in their stored form and writes a pack whenever one is full.
#[must_use = "what is not in a full pack is written by finish()"]
pub struct RemotePackWriter<'a> {
    store: &'a RemoteStore,
    pack: PackBuilder,
    gathered: HashSet<ObjectId>,
    written: Written,
}

impl<'a> RemotePackWriter<'a> {
    pub(crate) fn new(store: &'a RemoteStore) -> Self {
        let (pack, gathered) = (PackBuilder::new(), HashSet::new());
        Self { store, pack, gathered, written: Written::default() }
    }

    /// Takes an object; it is durable once its pack is full or the writer finished.
    pub fn add(&mut self, id: &ObjectId, stored: &[u8]) -> Result<(), Error> {
        if stored.is_empty() {
            return Err(corrupt(id, "its stored form is empty"));
        }
        if stored.len() > STORED_MAX {
            return Err(not_taken(ErrorKind::FileTooLarge.into()));
        }
        if self.gathered.contains(id) || self.store.is_known(id) {
            self.written.known += 1;
            return Ok(());
        }
        if !self.pack.has_room(stored.len()) {
            self.flush()?;
        }
        self.pack.add(*id, stored);
        self.gathered.insert(*id);
        Ok(())
    }

    /// Writes what is left and says how much it was; everything taken is durable on return.
    pub fn finish(mut self) -> Result<Written, Error> {
        self.flush()?;
        Ok(self.written)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.pack.is_empty() {
            return Ok(());
        }
        let objects = self.pack.count() as u64;
        self.store.upload(std::mem::replace(&mut self.pack, PackBuilder::new()))?;
        self.gathered.clear();
        self.written.packs += 1;
        self.written.objects += objects;
        Ok(())
    }
}
