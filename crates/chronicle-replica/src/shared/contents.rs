//! Contents that several hosts share, and those that are nearer.

use std::io::Read;

use chronicle_core::{ContentStorage, Error, ObjectId, Piece, Result};

/// Where the contents lie that a shared log names: a bucket, as a rule.
pub trait SharedContents: Send + Sync {
    /// The contents.
    fn storage(&self) -> &dyn ContentStorage;

    /// Makes sure that these objects, with their sizes, are there: durable on return.
    fn keep(&self, objects: &[(ObjectId, u64)], from: &dyn ContentStorage) -> Result<()>;
}

/// Contents from the first of several places that has them.
pub struct Nearest<'a>(pub Vec<&'a dyn ContentStorage>);

impl<'a> Nearest<'a> {
    fn first<T>(
        &self,
        id: &ObjectId,
        read: impl Fn(&'a dyn ContentStorage) -> Result<T>,
    ) -> Result<T> {
        for place in &self.0 {
            match read(*place) {
                Err(Error::Missing(_)) => {}
                read => return read,
            }
        }
        Err(Error::Missing(*id))
    }
}

impl ContentStorage for Nearest<'_> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        self.first(id, |place| place.get(id))
    }

    fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.first(id, |place| place.stored(id))
    }

    fn put(&self, id: &ObjectId, _: &[u8]) -> Result<()> {
        read_only(id)
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        for place in &self.0 {
            if place.exists(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        read_only(id)
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        self.first(id, |place| place.reader(id))
    }

    fn pieces(&self, id: &ObjectId) -> Result<Option<Vec<Piece>>> {
        for place in &self.0 {
            match place.pieces(id) {
                Ok(None) | Err(Error::Missing(_)) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    fn put_stream(&self, _: &mut dyn Read) -> Result<(ObjectId, u64)> {
        Err(Error::Usage("Nothing is put where contents are only looked for".to_owned()))
    }
}

fn read_only<T>(id: &ObjectId) -> Result<T> {
    Err(Error::Usage(format!("{id} is only looked for here")))
}
