//! What is known of many paths: each directory is read once.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::catalog::{Catalog, LocalState, Reading};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::known::{Known, KnownTable};
use crate::path::WorkspacePath;

/// Looks paths up directory by directory; stands for one moment between two commits.
pub(super) struct KnownCache<'c> {
    catalog: &'c Catalog,
    _reading: Reading<'c>,
    loaded: RefCell<(HashSet<WorkspacePath>, KnownTable)>,
}

impl<'c> KnownCache<'c> {
    pub(super) fn new(catalog: &'c Catalog) -> Result<Self> {
        let _reading = catalog.reading()?;
        Ok(Self { catalog, _reading, loaded: RefCell::default() })
    }

    /// What is known of one path.
    pub(super) fn get(&self, path: &WorkspacePath) -> Result<Option<Known>> {
        let Some(parent) = path.parent().filter(|_| !path.is_outside()) else {
            return self.catalog.known(path);
        };
        let (directories, table) = &mut *self.loaded.borrow_mut();
        if directories.insert(parent.clone()) {
            self.catalog.load_directory(table, &parent)?;
        }
        table.get(&parent, path.name()).map_err(|source| Error::Record { seq: Seq(0), source })
    }
}
