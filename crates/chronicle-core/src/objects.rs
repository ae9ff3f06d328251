//! All content that a workspace can reach: the small objects in its catalog, then the home's store.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::id::ObjectId;
use crate::secret::Secrets;
use crate::store::{
    Bases, ContentStorage, LocalStore, Piece, Row, compressed, depth_of, open_chain, pack_object,
    pack_secret, smaller, unpacked_length,
};

/// The content of one workspace, readable from several threads.
pub(crate) struct Objects {
    catalog: Mutex<Catalog>,
    local: LocalStore,
    secrets: Secrets,
}

impl Objects {
    /// Opens the content through a connection of its own.
    pub(crate) fn open(catalog: &Path, home: &Home) -> Result<Self> {
        Ok(Self {
            catalog: Mutex::new(Catalog::open(catalog)?),
            local: home.open_store()?,
            secrets: home.secrets().clone(),
        })
    }

    /// Keeps secret bytes sealed, and says their name.
    pub(crate) fn put_secret(&self, bytes: &[u8]) -> Result<ObjectId> {
        let (id, stored) = pack_secret(self.secrets.key_or_make()?, bytes);
        self.catalog().put_objects(&[Row { id, stored, base: None }])?;
        Ok(id)
    }

    /// Reads many objects as of one moment: each look-up alone would lock the catalog anew.
    pub(crate) fn bulk(&self) -> Result<Bulk<'_>> {
        self.catalog().begin_reading()?;
        Ok(Bulk(self))
    }

    /// What a clone turned out to be, if somebody read it after its name was told here.
    fn resolved(&self, name: &ObjectId) -> Result<Option<ObjectId>> {
        self.catalog().resolved(name)
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().expect("no holder panics while it reads")
    }
}

impl Bases for Objects {
    fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.catalog().object(id)
    }

    fn whole(&self, id: &ObjectId) -> Result<Vec<u8>> {
        self.local.get(id)
    }
}

/// The same through a connection that is open already.
pub(crate) struct Versions<'w> {
    pub(crate) catalog: &'w Catalog,
    pub(crate) local: &'w LocalStore,
}

impl Bases for Versions<'_> {
    fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.catalog.object(id)
    }

    fn whole(&self, id: &ObjectId) -> Result<Vec<u8>> {
        self.local.get(id)
    }
}

impl Versions<'_> {
    /// The content of a version, and how many are below it.
    pub(crate) fn get(&self, id: &ObjectId, secrets: &Secrets) -> Result<(Vec<u8>, u8)> {
        match self.catalog.object(id)? {
            Some(stored) => {
                let below = depth_of(&stored);
                Ok((open_chain(id, stored, self, secrets)?, below))
            }
            None => Ok((self.local.get(id)?, 0)),
        }
    }

    /// Rows in the smallest form, each against its earlier version if it has one.
    pub(crate) fn shrink(&self, rows: &mut [Row], secrets: &Secrets) {
        for row in rows {
            let Some(base) = row.base.take() else { continue };
            // A version that cannot be read is no base; whoever asks for it hears why.
            let form = match self.get(&base, secrets) {
                Ok((content, below)) => smaller(&row.stored, &base, &content, below),
                Err(_) => compressed(&row.stored),
            };
            row.stored = form.unwrap_or_else(|| std::mem::take(&mut row.stored));
        }
    }
}

/// Ends the common moment of many reads.
pub(crate) struct Bulk<'o>(&'o Objects);

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        self.0.catalog().end_reading();
    }
}

impl ContentStorage for Objects {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        if let Some(bytes) = self.local.at_hand(id) {
            return Ok(bytes);
        }
        let row = self.catalog().object(id)?;
        match row {
            Some(stored) => open_chain(id, stored, self, &self.secrets),
            None => match self.local.get(id) {
                Err(Error::Missing(_)) => match self.resolved(id)? {
                    Some(object) => self.get(&object),
                    None => Err(Error::Missing(*id)),
                },
                got => got,
            },
        }
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        if ObjectId::of(bytes) != *id {
            return Err(Error::Corrupt { object: *id, why: "the bytes have another hash".into() });
        }
        self.catalog().put_objects(&[Row { id: *id, stored: pack_object(bytes), base: None }])
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        if self.catalog().has_object(id)? || self.local.exists(id)? {
            return Ok(true);
        }
        self.resolved(id)?.map_or(Ok(false), |object| self.exists(&object))
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.catalog().delete_object(id)?;
        self.local.delete(id)
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        let row = self.catalog().object(id)?;
        match row {
            Some(stored) => Ok(Box::new(Cursor::new(open_chain(id, stored, self, &self.secrets)?))),
            None => match self.local.reader(id) {
                Err(Error::Missing(_)) => match self.resolved(id)? {
                    Some(object) => self.reader(&object),
                    None => Err(Error::Missing(*id)),
                },
                reader => reader,
            },
        }
    }

    fn pieces(&self, id: &ObjectId) -> Result<Option<Vec<Piece>>> {
        self.local.pieces(id)
    }

    fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        let stored = self.local.stored_alone(id)?;
        Ok(stored.filter(|stored| unpacked_length(stored).is_some()))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        self.local.put_stream(source)
    }
}
