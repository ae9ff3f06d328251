//! A running sum over the tables that follow from the records, so that whoever finds the past by them
//! notices in one pass that a row is not what was written.
//!
//! It is kept in the commit that changes the rows, beside the newest of them, and costs no page more.
//! It only raises a doubt: what the records say decides.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::OF_SNAPSHOT;

/// The row of `by_id` that holds the sum; sorts behind everything that is open.
const SUM: i64 = 4;

/// The sum of what a set of rows hashes to, in any order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum(u128);

/// A row of a table, in the words of the table and not of the file: directories by their path.
pub(super) enum Line<'r> {
    Touched { directory: &'r [u8], by_agent: bool, seq: i64 },
    Snapshot { id: &'r [u8], seq: i64 },
    Merged([i64; 5]),
    Resolved { name: &'r [u8], object: &'r [u8], seq: i64 },
}

impl Sum {
    pub(super) fn add(&mut self, line: &Line<'_>) {
        let mut bytes = Vec::with_capacity(96);
        let mut number = |number: i64| bytes.extend_from_slice(&number.to_le_bytes());
        match *line {
            Line::Touched { directory, by_agent, seq } => {
                number(0);
                number(i64::from(by_agent));
                number(seq);
                bytes.extend_from_slice(directory);
            }
            Line::Snapshot { id, seq } => {
                number(1);
                number(seq);
                bytes.extend_from_slice(id);
            }
            Line::Merged(values) => {
                number(2);
                values.into_iter().for_each(number);
            }
            Line::Resolved { name, object, seq } => {
                number(3);
                number(seq);
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(object);
            }
        }
        let mut half = [0; 16];
        half.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..16]);
        self.absorb(Self(u128::from_le_bytes(half)));
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

/// Adds what a commit inserted to the sum that is kept.
pub(super) fn grow(connection: &Connection, inserted: Sum) -> rusqlite::Result<()> {
    if inserted == Sum::default() {
        return Ok(());
    }
    match kept(connection)? {
        Some(mut sum) => {
            sum.absorb(inserted);
            keep(connection, sum)
        }
        None => renew(connection),
    }
}

/// Makes the sum anew from the rows as they are.
pub(super) fn renew(connection: &Connection) -> rusqlite::Result<()> {
    keep(connection, of_rows(connection)?)
}

/// Whether the rows are those that were written, and each can be found.
pub(super) fn holds(connection: &Connection) -> rusqlite::Result<bool> {
    // A directory is found by an index of its own, which says nothing of whether it is complete.
    let by_path = "SELECT id, path FROM directory INDEXED BY sqlite_autoindex_directory_1";
    let paths = directories(connection, "SELECT id, path FROM directory NOT INDEXED")?;
    Ok(directories(connection, by_path)? == paths
        && kept(connection)? == Some(sum_of(connection, &paths)?))
}

fn kept(connection: &Connection) -> rusqlite::Result<Option<Sum>> {
    let mut statement = connection.prepare_cached("SELECT id FROM by_id WHERE kind = ?1")?;
    let sum: Option<Vec<u8>> = statement.query_row([SUM], |row| row.get(0)).optional()?;
    Ok(sum.and_then(|sum| sum.try_into().ok()).map(|sum| Sum(u128::from_le_bytes(sum))))
}

fn keep(connection: &Connection, sum: Sum) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM by_id WHERE kind = ?1")?.execute([SUM])?;
    let sql = "INSERT INTO by_id (kind, id, seq) VALUES (?1, ?2, 0)";
    connection.prepare_cached(sql)?.execute(params![SUM, sum.0.to_le_bytes()]).map(drop)
}

type Paths = HashMap<i64, Vec<u8>>;

fn directories(connection: &Connection, sql: &str) -> rusqlite::Result<Paths> {
    let mut statement = connection.prepare(sql)?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn of_rows(connection: &Connection) -> rusqlite::Result<Sum> {
    sum_of(connection, &directories(connection, "SELECT id, path FROM directory NOT INDEXED")?)
}

fn sum_of(connection: &Connection, paths: &Paths) -> rusqlite::Result<Sum> {
    let mut sum = Sum::default();
    let mut statement = connection.prepare("SELECT directory, by_agent, seq FROM touched")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // A directory that is not there is no path: an empty name inside one cannot be.
        let directory = paths.get(&row.get(0)?).map_or(&b"\0"[..], Vec::as_slice);
        let by_agent = row.get::<_, i64>(1)? != 0;
        sum.add(&Line::Touched { directory, by_agent, seq: row.get(2)? });
    }
    let mut statement = connection.prepare("SELECT id, seq FROM by_id WHERE kind = ?1")?;
    let mut rows = statement.query([OF_SNAPSHOT])?;
    while let Some(row) = rows.next()? {
        let id = row.get_ref(0)?.as_blob().unwrap_or_default();
        sum.add(&Line::Snapshot { id, seq: row.get(1)? });
    }
    let mut statement = connection.prepare("SELECT seq, first, prune, start, count FROM merged")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let value = |at| row.get::<_, i64>(at);
        sum.add(&Line::Merged([value(0)?, value(1)?, value(2)?, value(3)?, value(4)?]));
    }
    let mut statement = connection.prepare("SELECT name, object, seq FROM resolved")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let bytes = |at| row.get_ref(at).map(|value| value.as_blob().unwrap_or_default());
        sum.add(&Line::Resolved { name: bytes(0)?, object: bytes(1)?, seq: row.get(2)? });
    }
    Ok(sum)
}
