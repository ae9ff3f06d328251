//! Clones that nobody has read yet, and what those that were read turned out to be.
//!
//! `resolved` follows from the records: a resolve says which content a clone's name stands for, and
//! whoever decodes a record that names the clone reads that content's name instead. `pending` is a
//! memory of what is left to read.

use rusqlite::{Connection, OptionalExtension, params};

use super::sum::{Line, Sum};
use super::{Catalog, indexes};
use crate::codec;
use crate::entry::{Change, Entry};
use crate::error::Result;
use crate::id::ObjectId;
use crate::path::WorkspacePath;
use crate::record::{Kind, Record};

/// A clone that nobody has read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingClone {
    /// Its name in the store.
    pub(crate) name: ObjectId,
    /// Where the file stood.
    pub(crate) path: WorkspacePath,
    /// How many bytes it had.
    pub(crate) size: u64,
}

impl Catalog {
    /// What is left to read.
    pub(crate) fn pending_clones(&self) -> Result<Vec<PendingClone>> {
        let read = || -> rusqlite::Result<Vec<(ObjectId, Vec<u8>, u64)>> {
            let mut statement =
                self.connection.prepare_cached("SELECT name, path, size FROM pending")?;
            let row = |row: &rusqlite::Row<'_>| {
                Ok((ObjectId(row.get(0)?), row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned()))
            };
            statement.query_map([], row)?.collect()
        };
        let rows = read().map_err(|e| self.error(e))?.into_iter();
        // A path that is none was written by nobody of ours.
        let clone = |(name, path, size)| {
            Some(PendingClone { name, path: WorkspacePath::new(path).ok()?, size })
        };
        Ok(rows.filter_map(clone).collect())
    }

    /// Gives up reading a clone.
    pub(crate) fn give_up(&self, name: &ObjectId) -> Result<()> {
        remove_pending(&self.connection, name).map_err(|e| self.error(e))
    }

    /// What a clone turned out to be; `None` if nobody has read it.
    pub(crate) fn resolved(&self, name: &ObjectId) -> Result<Option<ObjectId>> {
        resolved(&self.connection, name).map_err(|e| self.error(e))
    }

    /// All clones that were read, and what they turned out to be.
    pub(crate) fn all_resolved(&self) -> Result<Vec<(ObjectId, ObjectId)>> {
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut statement = self.connection.prepare("SELECT name, object FROM resolved")?;
            let row = |row: &rusqlite::Row<'_>| Ok((ObjectId(row.get(0)?), ObjectId(row.get(1)?)));
            statement.query_map([], row)?.collect()
        };
        read().map_err(|e| self.error(e))
    }

    /// Lets changes name the contents that their clones turned out to be.
    pub(crate) fn name_contents(&self, changes: &mut [Change]) -> Result<()> {
        for change in changes {
            for side in [&mut change.before, &mut change.after] {
                name_content(&self.connection, side).map_err(|e| self.error(e))?;
            }
        }
        Ok(())
    }

    /// Remembers anew what is left to read, from the records.
    pub(super) fn remember_pending(&self) -> Result<()> {
        let (_, changes) = indexes::read(&self.connection, &<[Change]>::to_vec)?;
        for change in changes.values().flatten() {
            for (name, size) in [&change.before, &change.after].into_iter().filter_map(clone_of) {
                if self.resolved(&name)?.is_none() {
                    insert_pending(&self.connection, &change.path, &name, size)
                        .map_err(|e| self.error(e))?;
                }
            }
        }
        Ok(())
    }
}

fn resolved(connection: &Connection, name: &ObjectId) -> rusqlite::Result<Option<ObjectId>> {
    let sql = "SELECT object FROM resolved WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([&name.0[..]], |row| row.get(0).map(ObjectId)).optional()
}

/// Lets an entry name the content that its clone turned out to be.
pub(super) fn name_content(connection: &Connection, entry: &mut Entry) -> rusqlite::Result<()> {
    if let Entry::File(file) = entry
        && file.pending
        && let Some(object) = resolved(connection, &file.object)?
    {
        (file.object, file.pending) = (object, false);
    }
    Ok(())
}

fn clone_of(entry: &Entry) -> Option<(ObjectId, u64)> {
    match entry {
        Entry::File(file) if file.pending => Some((file.object, file.size)),
        _ => None,
    }
}

/// Notes the clones that a record names.
pub(super) fn note(connection: &Connection, record: &Record) -> rusqlite::Result<()> {
    for change in &record.changes {
        for (name, size) in [&change.before, &change.after].into_iter().filter_map(clone_of) {
            insert_pending(connection, &change.path, &name, size)?;
        }
    }
    Ok(())
}

fn insert_pending(
    connection: &Connection,
    path: &WorkspacePath,
    name: &ObjectId,
    size: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO pending (name, path, size) VALUES (?1, ?2, ?3)";
    let values = params![&name.0[..], path.as_bytes(), size.cast_signed()];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

fn remove_pending(connection: &Connection, name: &ObjectId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM pending WHERE name = ?1";
    connection.prepare_cached(sql)?.execute([&name.0[..]]).map(drop)
}

/// What the changes of a resolve say: each clone, and its content.
pub(super) fn resolutions(changes: &[Change]) -> impl Iterator<Item = (ObjectId, ObjectId)> {
    let pair = |change: &Change| Some((change.before.pending()?, change.after.object()?));
    changes.iter().filter_map(pair)
}

/// Notes what clones turned out to be; tells the sum of the rows.
pub(super) fn resolve(connection: &Connection, record: &Record) -> rusqlite::Result<Sum> {
    let mut inserted = Sum::default();
    let seq = record.seq.0.cast_signed();
    for (name, object) in resolutions(&record.changes) {
        remove_pending(connection, &name)?;
        insert_resolved(connection, &name.0, &object.0, seq)?;
        inserted.add(&Line::Resolved { name: &name.0, object: &object.0, seq });
    }
    Ok(inserted)
}

pub(super) fn insert_resolved(
    connection: &Connection,
    name: &[u8],
    object: &[u8],
    seq: i64,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO resolved (name, object, seq) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute(params![name, object, seq]).map(drop)
}

/// Forgets what these changes of a record say of clones: their names go with their content.
pub(super) fn forget(connection: &Connection, changes: &[Change]) -> rusqlite::Result<()> {
    for change in changes {
        for (name, _) in [&change.before, &change.after].into_iter().filter_map(clone_of) {
            remove_pending(connection, &name)?;
            let sql = "DELETE FROM resolved WHERE name = ?1";
            connection.prepare_cached(sql)?.execute([&name.0[..]])?;
        }
    }
    Ok(())
}

/// The changes of a body, one for each of these places.
pub(super) fn changes_at(
    body: &[u8],
    places: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<Change>, codec::DecodeError> {
    let raw = crate::skim::raw_changes(body)?.into_iter().enumerate();
    let wanted = raw.filter(|(place, _)| places(*place));
    wanted.map(|(_, bytes)| codec::decode_change(&mut codec::Decoder(bytes))).collect()
}

/// Whether a record's changes name clones as what they are, and not in place of others.
pub(super) fn names_clones(kind: Kind) -> bool {
    !matches!(kind, Kind::Resolve | Kind::Forget)
}

/// What cannot be understood of a body.
pub(super) fn malformed(error: codec::DecodeError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, error.into())
}
