//! The content store as drivers see it: content goes in as a stream and comes out checked.

use std::io::Read;

use chronicle_core::{ContentStorage, Intake, LocalStore, ObjectId};

use crate::error::Result;

/// The content store; in a capture also a way in.
pub struct Contents<'s> {
    store: &'s LocalStore,
    intake: Option<Intake<'s>>,
}

impl<'s> Contents<'s> {
    /// For reading only.
    pub fn read_only(store: &'s LocalStore) -> Self {
        Self { store, intake: None }
    }

    /// For a capture: what is put counts once [`finish`](Self::finish) made it durable, and stays for as
    /// long as this value lives, and then as long as a checkpoint needs it.
    pub fn taking_in(store: &'s LocalStore, intake: Intake<'s>) -> Self {
        Self { store, intake: Some(intake) }
    }

    /// Keeps these bytes.
    pub fn put(&self, bytes: &[u8]) -> Result<ObjectId> {
        Ok(self.intake().take(bytes)?)
    }

    /// Keeps everything that the source gives: its name and its length.
    pub fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        Ok(self.intake().take_stream(source)?)
    }

    fn intake(&self) -> &Intake<'s> {
        self.intake.as_ref().expect("BUG: content is put into a store that was opened for reading")
    }

    /// Makes durable what was put.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(intake) = &mut self.intake {
            let rows = intake.finish()?;
            assert!(rows.is_empty(), "BUG: an intake in packs left rows");
        }
        Ok(())
    }

    /// The bytes of an object, checked.
    pub fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        Ok(self.store.get(id)?)
    }

    /// The same as a stream; damage is an error at the latest at the end.
    pub fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        Ok(self.store.reader(id)?)
    }

    /// Whether an object is there.
    pub fn exists(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.store.exists(id)?)
    }
}
