//! The small contents that rode in a commit, each in its stored form.

use rusqlite::{Connection, OptionalExtension, params};

use super::Catalog;
use crate::error::Result;
use crate::id::ObjectId;
use crate::store::{Row, base_of};

impl Catalog {
    /// A small content that rode in a commit, as it is stored.
    pub(crate) fn object(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT stored FROM object WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement.query_row([&id.0[..]], |row| row.get(0)).optional().map_err(|e| self.error(e))
    }

    /// Whether a small content is here, without reading it.
    pub(crate) fn has_object(&self, id: &ObjectId) -> Result<bool> {
        let sql = "SELECT 1 FROM object WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement.exists([&id.0[..]]).map_err(|e| self.error(e))
    }

    /// Removes a small content.
    pub(crate) fn delete_object(&self, id: &ObjectId) -> Result<()> {
        let sql = "DELETE FROM object WHERE id = ?1";
        self.connection.execute(sql, [&id.0[..]]).map_err(|e| self.error(e))?;
        Ok(())
    }

    /// Adds small contents on their own.
    pub(crate) fn put_objects(&self, rows: &[Row]) -> Result<()> {
        insert(&self.connection, rows).map_err(|e| self.error(e))
    }

    /// All small contents.
    pub(crate) fn all_objects(&self) -> Result<Vec<Row>> {
        let read = || -> rusqlite::Result<Vec<Row>> {
            let mut statement = self.connection.prepare("SELECT id, stored FROM object")?;
            let row = |row: &rusqlite::Row<'_>| {
                Ok(Row { id: ObjectId(row.get(0)?), stored: row.get(1)?, base: None })
            };
            statement.query_map([], row)?.collect()
        };
        read().map_err(|e| self.error(e))
    }

    /// Calls back with the name of every small content, and of what it is kept against: one pass is
    /// cheaper than asking for many.
    pub(crate) fn for_each_object(
        &self,
        visit: &mut dyn FnMut(ObjectId, Option<ObjectId>),
    ) -> Result<()> {
        let mut read = || -> rusqlite::Result<()> {
            let sql = "SELECT id, substr(stored, 1, 42) FROM object";
            let mut statement = self.connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let below = base_of(row.get_ref(1)?.as_blob().unwrap_or_default());
                visit(ObjectId(row.get(0)?), below);
            }
            Ok(())
        };
        read().map_err(|e| self.error(e))
    }

    /// The small contents that are kept against others: each with the one below it.
    pub(crate) fn standing_on(&self) -> Result<Vec<(ObjectId, ObjectId)>> {
        let mut pairs = Vec::new();
        self.for_each_object(&mut |id, below| pairs.extend(below.map(|below| (id, below))))?;
        Ok(pairs)
    }

    /// Exchanges the stored forms of small contents.
    pub(crate) fn restore_objects(&mut self, rows: &[Row]) -> Result<()> {
        let run = || -> rusqlite::Result<()> {
            let sql = "UPDATE object SET stored = ?2 WHERE id = ?1";
            let transaction = self.connection.unchecked_transaction()?;
            for row in rows {
                transaction.prepare_cached(sql)?.execute(params![&row.id.0[..], row.stored])?;
            }
            transaction.commit()
        };
        run().map_err(|e| self.error(e))
    }
}

/// Adds small contents that are not here yet.
pub(super) fn insert(connection: &Connection, rows: &[Row]) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO object (id, stored) VALUES (?1, ?2)";
    let mut statement = connection.prepare_cached(sql)?;
    for row in rows {
        statement.execute(params![&row.id.0[..], row.stored])?;
    }
    Ok(())
}
