//! What can be wrong with a catalog's file, and what of it the records themselves put right.
//!
//! `record`, `object` and `head` are history and are only ever read here. `touched`, `by_id`, `merged` and
//! `resolved` follow from the records, `directory` and `newer` are a memory: both can be made anew.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::{Catalog, clones, indexes, private_file, schema, state};
use crate::entry::{Change, Entry};
use crate::error::{Context, Error, Result};
use crate::id::{Seq, WorkspaceId};
use crate::known::{Known, Part};
use crate::mirror::Standing;
use crate::path::WorkspacePath;

/// Complaints of SQLite that are worth reading.
const COMPLAINTS: usize = 8;

impl Catalog {
    /// What SQLite finds wrong with the file, in its own words.
    pub(crate) fn complaints(&self) -> Vec<String> {
        complaints(&self.connection)
    }

    /// Has SQLite check that its pages and indexes fit together.
    pub(crate) fn check_pages(&self) -> Result<()> {
        let Some(why) = self.complaints().into_iter().next() else { return Ok(()) };
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        Err(self.error(rusqlite::Error::SqliteFailure(failure, Some(why))))
    }
}

fn complaints(connection: &Connection) -> Vec<String> {
    let ask = || -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare("PRAGMA integrity_check(100)")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
        lines.take(COMPLAINTS).collect()
    };
    let mut lines = ask().unwrap_or_else(|error| vec![error.to_string()]);
    lines.retain(|line| line != "ok");
    lines
}

/// Tables whose rows are copied one by one, with the columns that order them.
const COPIED: [(&str, &str); 11] = [
    ("state", "key"),
    ("record", "seq"),
    ("object", "id"),
    ("head", "size"),
    ("node", "level, number"),
    ("directory", "id"),
    ("newer", "directory, name"),
    ("by_id", "kind, id, seq"),
    ("local", "kind, key"),
    ("applied", "key"),
    ("pending", "name"),
];

/// What could be read of a damaged catalog.
#[derive(Debug, Default)]
pub(crate) struct Rescued {
    /// Tables of which rows could not be read.
    pub(crate) incomplete: Vec<&'static str>,
    /// The first record that could not be read, if any.
    pub(crate) lost_from: Option<Seq>,
}

/// Copies everything that can be read of a damaged catalog into a new one, and makes what follows
/// from the records anew.
///
/// The new one is for use only if no record is missing, which `lost_from` tells, and if it verifies.
pub(crate) fn rescue(from: &Path, to: &Path, workspace: WorkspaceId) -> Result<Rescued> {
    let at = |path: &Path, source| Error::Catalog { path: path.to_owned(), source };
    // Read-only, so that nothing that may still be asked of the damaged file changes.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let old = Connection::open_with_flags(from, flags).map_err(|e| at(from, e))?;
    let found = schema::version(&old).unwrap_or(schema::VERSION);
    if found > schema::VERSION {
        let what = format!("Catalog {}", from.display());
        return Err(Error::Newer { what, found, known: schema::VERSION });
    }
    private_file(to)?;
    let mut new = super::connect(to)?;
    let mut rescued = Rescued::default();
    let mut copy = || -> rusqlite::Result<()> {
        new.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
        schema::migrate(&mut new, 0)?;
        let transaction = new.transaction()?;
        for (table, order) in COPIED {
            if !copy_table(&old, &transaction, table, order)? {
                rescued.incomplete.push(table);
            }
        }
        let sql = "INSERT OR REPLACE INTO state (key, value) VALUES ('workspace', ?1)";
        transaction.execute(sql, [&workspace.0])?;
        rescued.lost_from = first_gap(&transaction)?;
        transaction.commit()
    };
    copy().map_err(|e| at(to, e))?;
    if rescued.lost_from.is_none() {
        let mut catalog = Catalog::open(to)?;
        if rescued.incomplete.iter().any(|table| ["directory", "newer"].contains(table)) {
            catalog.remember_anew()?;
        }
        catalog.rederive()?;
        if rescued.incomplete.contains(&"pending") {
            catalog.remember_pending()?;
        }
    }
    Ok(rescued)
}

/// Copies rows from both ends up to where they cannot be read; says whether that were all.
fn copy_table(
    old: &Connection,
    new: &Connection,
    table: &str,
    order: &str,
) -> rusqlite::Result<bool> {
    let backwards = order.replace(", ", " DESC, ") + " DESC";
    let mut whole = true;
    for order in [order, &backwards] {
        whole = copy_rows(old, new, &format!("SELECT * FROM {table} ORDER BY {order}"), table)?;
        if whole {
            break;
        }
    }
    Ok(whole)
}

fn copy_rows(old: &Connection, new: &Connection, sql: &str, table: &str) -> rusqlite::Result<bool> {
    let Ok(mut statement) = old.prepare(sql) else { return Ok(false) };
    let columns = statement.column_count();
    let marks = vec!["?"; columns].join(", ");
    // By name: an older catalog has fewer columns.
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let names: Vec<String> = statement.column_names().map(quoted).collect();
    let into = format!("INSERT OR IGNORE INTO {table} ({}) VALUES ({marks})", names.join(", "));
    let Ok(mut insert) = new.prepare(&into) else { return Ok(false) };
    let Ok(mut rows) = statement.query([]) else { return Ok(false) };
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(true),
            Err(_) => return Ok(false),
        };
        let values: rusqlite::Result<Vec<Value>> = (0..columns).map(|n| row.get(n)).collect();
        // A row that breaks a rule of its table is no row of ours.
        let copied = values.and_then(|values| insert.execute(rusqlite::params_from_iter(values)));
        if copied.is_err() {
            return Ok(false);
        }
    }
}

/// The first record that is missing, also if it is the very first.
fn first_gap(connection: &Connection) -> rusqlite::Result<Option<Seq>> {
    let (count, last): (i64, Option<i64>) =
        connection.query_row("SELECT count(*), max(seq) FROM record", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if count > 0 && last == Some(count) {
        return Ok(None);
    }
    let sql = "SELECT min(seq) + 1 FROM record
               WHERE seq >= 0 AND seq + 1 NOT IN (SELECT seq FROM record)";
    let gap: Option<i64> = connection.query_row(sql, [], |row| row.get(0))?;
    let first: bool = connection.prepare("SELECT 1 FROM record WHERE seq = 1")?.exists([])?;
    Ok(Some(Seq(if first { gap.unwrap_or(1).cast_unsigned() } else { 1 })))
}

impl Catalog {
    /// Brings everything into the one file, so that it can be moved on its own.
    pub(crate) fn settle_file(self) -> Result<()> {
        let at = |source| Error::Catalog { path: self.path.clone(), source };
        let mut left: i64 = 0;
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection
            .query_row(checkpoint, [], |row| {
                left = row.get(0)?;
                Ok(())
            })
            .map_err(at)?;
        if left != 0 {
            return Err(Error::Busy(format!("somebody reads {}", self.path.display())));
        }
        let path = self.path.clone();
        drop(self);
        for end in ["-wal", "-shm"] {
            let mut file = path.clone().into_os_string();
            file.push(end);
            let _ = std::fs::remove_file(file);
        }
        Ok(())
    }

    /// Removes the damaged catalogs that were put aside beside this one.
    pub(crate) fn drop_damaged(&self) -> Result<()> {
        let Some(directory) = self.path.parent() else { return Ok(()) };
        for entry in std::fs::read_dir(directory).at("list", directory)? {
            let entry = entry.at("list", directory)?;
            if entry.file_name().to_string_lossy().starts_with("damaged-") {
                std::fs::remove_dir_all(entry.path()).at("remove", entry.path())?;
            }
        }
        Ok(())
    }

    /// Makes the known state anew from the records: the last entry of each path, without any
    /// signature, so that the next look reads everything again and compares.
    fn remember_anew(&mut self) -> Result<()> {
        // What clones turned out to be must be known before: what is remembered names contents.
        self.rederive()?;
        let transaction = self.connection.unchecked_transaction().map_err(|e| self.error(e))?;
        remember(&transaction, &Standing::default())?;
        transaction.commit().map_err(|e| self.error(e))
    }
}

/// Makes the known state anew: what stood at a moment, and what the records after it made of that.
pub(super) fn remember(connection: &Connection, standing: &Standing) -> Result<()> {
    let at = |source| Error::Catalog { path: connection.path().unwrap_or_default().into(), source };
    let (_, changed) = indexes::read(connection, &<[Change]>::to_vec)?;
    let mut paths = standing.entries.clone();
    let later = changed.into_iter().filter(|(seq, _)| seq.cast_unsigned() > standing.seq.0);
    for mut change in later.flat_map(|(_, changes)| changes) {
        clones::name_content(connection, &mut change.after).map_err(at)?;
        match change.after {
            Entry::Absent => drop(paths.remove(&change.path)),
            entry => drop(paths.insert(change.path, (entry, change.neutral))),
        }
    }
    let mut updates: BTreeMap<WorkspacePath, state::DirectoryUpdate> = BTreeMap::new();
    for (path, (entry, neutral)) in paths {
        let part = if neutral { Part::Neutral } else { Part::Ordinary };
        let known = Known { entry, signature: None, racy: true, part };
        let at = path.parent().unwrap_or_default();
        let own = path.parent().is_none();
        let update = updates.entry(at.clone()).or_insert_with(|| state::DirectoryUpdate {
            path: at,
            ..state::DirectoryUpdate::default()
        });
        match own {
            true => update.own = Some(known),
            false => update.names.push((path.name().to_vec(), Some(known))),
        }
    }
    let write = || -> rusqlite::Result<()> {
        // What was touched where is told by numbers of directories, which go.
        connection
            .execute_batch("DELETE FROM newer; DELETE FROM touched; DELETE FROM directory")?;
        let mut directories = state::Directories::new(connection);
        updates
            .values()
            .try_for_each(|update| state::update_directory(connection, &mut directories, update))
    };
    write().map_err(at)
}
