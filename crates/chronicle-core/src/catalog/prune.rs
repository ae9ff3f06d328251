//! What becomes of the records that a prune names, in the prune record's own transaction.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::{Catalog, state};
use crate::codec::kind_number;
use crate::error::{Error, Result};
use crate::failpoint;
use crate::id::{ObjectId, Seq};
use crate::record::{Kind, Pruned, Record};

/// The kind of a record of which only the hash of its leaf is left.
pub(super) const DROPPED: i64 = 255;

/// Where the changes lie that stand for a run of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The prune record that holds them.
    pub(crate) prune: Seq,
    /// The place of the first of them in it.
    pub(crate) start: usize,
    /// How many there are.
    pub(crate) count: usize,
    /// The first record of the run.
    pub(crate) first: Seq,
}

impl Catalog {
    /// Where the changes lie that stand for the run that ends with a record.
    pub(crate) fn merged(&self, last: Seq) -> Result<Option<Merged>> {
        let sql = "SELECT prune, start, count, first FROM merged WHERE seq = ?1";
        let read = || -> rusqlite::Result<Option<Merged>> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let row = |row: &rusqlite::Row<'_>| {
                let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.cast_unsigned());
                let place = |at| number(at).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
                let (prune, first) = (Seq(number(0)?), Seq(number(3)?));
                Ok(Merged { prune, start: place(1)?, count: place(2)?, first })
            };
            statement.query_row([last.0.cast_signed()], row).optional()
        };
        read().map_err(|e| self.error(e))
    }
}

impl Catalog {
    /// Takes away the small contents that are not needed: how many, and how many bytes.
    ///
    /// What is needed is asked for once nobody else can commit.
    pub(crate) fn sweep_objects(
        &mut self,
        needed: &mut dyn FnMut(&Self) -> Result<HashSet<ObjectId>>,
    ) -> Result<(u64, u64)> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|e| self.error(e))?;
        let swept = needed(self).and_then(|needed| {
            delete_unneeded(&self.connection, &needed).map_err(|e| self.error(e))
        });
        failpoint::hit("gc_before_commit");
        let end = if swept.is_ok() { "COMMIT" } else { "ROLLBACK" };
        self.connection.execute_batch(end).map_err(|e| self.error(e))?;
        let (objects, bytes) = swept?;
        self.shrink()?;
        Ok((objects, bytes))
    }

    /// Gives pages that hold nothing back to the file system, without room for a copy.
    fn shrink(&self) -> Result<()> {
        let shrink = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare("PRAGMA incremental_vacuum")?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        };
        shrink().map_err(|e| self.error(e))?;
        let copied = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        match copied.map_err(|e| self.error(e)) {
            // Somebody may be reading: then the next one does it.
            Err(Error::Busy(_)) => Ok(()),
            // A sync that failed is told of only once, and what was lost may be the log's own.
            copied => copied,
        }
    }
}

fn delete_unneeded(
    connection: &Connection,
    needed: &HashSet<ObjectId>,
) -> rusqlite::Result<(u64, u64)> {
    let mut select = connection.prepare("SELECT id, length(stored) FROM object")?;
    let row = |row: &rusqlite::Row<'_>| Ok((ObjectId(row.get(0)?), row.get::<_, i64>(1)?));
    let all: Vec<_> = select.query_map([], row)?.collect::<rusqlite::Result<_>>()?;
    let mut delete = connection.prepare("DELETE FROM object WHERE id = ?1")?;
    let (mut objects, mut bytes) = (0, 0);
    for (id, length) in all.into_iter().filter(|(id, _)| !needed.contains(id)) {
        delete.execute([&id.0[..]])?;
        objects += 1;
        bytes += length.cast_unsigned();
    }
    Ok((objects, bytes))
}

/// Drops what a prune record says is dropped, and binds what it merged.
pub(super) fn apply(
    connection: &Connection,
    directories: &mut state::Directories<'_>,
    prune: &Record,
) -> rusqlite::Result<()> {
    let mut gone = HashSet::new();
    let mut start = 0;
    for range in &prune.labels.pruned {
        gone.extend(dropped_in(connection, range)?);
        let Some(count) = range.merged else { continue };
        let last = range.last.0.cast_signed();
        gone.insert(last);
        connection
            .prepare_cached("UPDATE record SET body = x'' WHERE seq = ?1")?
            .execute([last])?;
        let sql = "INSERT OR REPLACE INTO merged (seq, first, prune, start, count)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let (first, at) = (range.first.0.cast_signed(), prune.seq.0.cast_signed());
        connection.prepare_cached(sql)?.execute(params![last, first, at, start as i64, count])?;
        start += count as usize;
    }
    forget_touched(connection, &gone)?;
    let mut start = 0;
    for range in &prune.labels.pruned {
        let Some(count) = range.merged else { continue };
        gone.remove(&range.last.0.cast_signed());
        let changes = &prune.changes[start..start + count as usize];
        super::indexes::insert_touched(connection, directories, range.last, changes)?;
        start += count as usize;
    }
    for seq in gone {
        let sql = "UPDATE record SET leaf = x'', body = x'', kind = ?2 WHERE seq = ?1";
        connection.prepare_cached(sql)?.execute([seq, DROPPED])?;
        connection.prepare_cached("DELETE FROM merged WHERE seq = ?1")?.execute([seq])?;
    }
    let sql = "DELETE FROM by_id WHERE kind = ?1
               AND EXISTS (SELECT 1 FROM record WHERE record.seq = by_id.seq AND record.kind = ?2)";
    connection.execute(sql, [super::OF_SNAPSHOT, DROPPED])?;
    // An earlier prune whose runs were all dropped or merged again holds nothing that is needed.
    let sql = "UPDATE record SET body = x'' WHERE kind = ?1 AND seq < ?2
               AND seq NOT IN (SELECT prune FROM merged)";
    let kind = i64::from(kind_number(Kind::Prune));
    connection.execute(sql, [kind, prune.seq.0.cast_signed()]).map(drop)
}

/// The records of a range of which only the hash stays.
fn dropped_in(connection: &Connection, range: &Pruned) -> rusqlite::Result<Vec<i64>> {
    let sql = match range.merged {
        // What says for ever how the history came to be stays.
        None => {
            "SELECT seq FROM record WHERE seq BETWEEN ?1 AND ?2 AND kind NOT IN (0, 8, 10, 11, 12, 13, 14)"
        }
        Some(_) => "SELECT seq FROM record WHERE seq BETWEEN ?1 AND ?2 AND kind IN (1, 2)",
    };
    let bounds = [range.first.0.cast_signed(), range.last.0.cast_signed()];
    connection.prepare_cached(sql)?.query_map(bounds, |row| row.get(0))?.collect()
}

fn forget_touched(connection: &Connection, gone: &HashSet<i64>) -> rusqlite::Result<()> {
    let mut select = connection.prepare("SELECT directory, by_agent, seq FROM touched")?;
    let row = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
    let all: Vec<[i64; 3]> = select
        .query_map([], row)?
        .filter(|row| row.as_ref().map_or(true, |[_, _, seq]| gone.contains(seq)))
        .collect::<rusqlite::Result<_>>()?;
    let sql = "DELETE FROM touched WHERE directory = ?1 AND by_agent = ?2 AND seq = ?3";
    let mut delete = connection.prepare_cached(sql)?;
    all.into_iter().try_for_each(|key| delete.execute(key).map(drop))
}
