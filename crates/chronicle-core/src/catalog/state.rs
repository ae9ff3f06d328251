//! The known state in the catalog: packed rows per directory, and single paths newer than them.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, OptionalExtension, params};

use super::Catalog;
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::known::{DirectoryView, Identity, Known, KnownDirectory, KnownTable, Listed};
use crate::path::WorkspacePath;

/// News that go beside a directory's row however short it is.
const NEWER_PER_UPDATE: usize = 4;
/// How many bytes of a directory's row outweigh one more path beside it: a row of a thousand files
/// is dear to rewrite for a few.
const ROW_PER_NEWER: i64 = 512;
/// A directory with more single paths beside its row than this gets its row written anew.
const NEWER_PER_DIRECTORY: i64 = 64;

/// What this machine knows of the workspace; never leaves it.
pub trait LocalState {
    /// A value by its key.
    fn state(&self, key: &str) -> Result<Option<Vec<u8>>>;

    /// What is known of one path.
    fn known(&self, path: &WorkspacePath) -> Result<Option<Known>>;

    /// Everything known of one directory; `None` if nothing ever was.
    fn known_directory(&self, path: &WorkspacePath) -> Result<Option<KnownDirectory>>;

    /// Adds everything known of one directory to a table.
    fn load_directory(&self, table: &mut KnownTable, path: &WorkspacePath) -> Result<()>;

    /// The directories at and below a path of which something was ever known.
    fn directories_below(&self, path: &WorkspacePath) -> Result<Vec<WorkspacePath>>;

    /// Everything known below a directory.
    fn known_below(&self, path: &WorkspacePath) -> Result<Vec<(WorkspacePath, Known)>>;

    /// The whole known state.
    fn known_table(&self) -> Result<KnownTable>;
}

/// News of one directory.
#[derive(Debug, Default)]
pub struct DirectoryUpdate {
    /// The directory.
    pub path: WorkspacePath,
    /// It was listed completely, and which file system is mounted there.
    pub listed: Option<(Listed, Option<Identity>)>,
    /// Its own entry, for a root.
    pub own: Option<Known>,
    /// Names with what is known of them; `None`: nothing is known any more, it is gone.
    pub names: Vec<(Vec<u8>, Option<Known>)>,
    /// The directory itself is gone.
    pub gone: bool,
}

impl Catalog {
    /// Lends the packed row of each of these directories out, without a copy.
    pub(crate) fn rows_of<'p>(
        &self,
        paths: impl Iterator<Item = &'p WorkspacePath>,
        lend: &mut dyn FnMut(&WorkspacePath, &[u8]),
    ) -> Result<()> {
        let _reading = self.reading()?;
        let read = || -> rusqlite::Result<()> {
            let sql = "SELECT row FROM directory WHERE path = ?1";
            let mut statement = self.connection.prepare_cached(sql)?;
            for path in paths {
                let mut rows = statement.query([path.as_bytes()])?;
                if let Some(row) = rows.next()? {
                    lend(path, row.get_ref(0)?.as_blob().unwrap_or_default());
                }
            }
            Ok(())
        };
        read().map_err(|e| self.error(e))
    }
}

impl LocalState for Catalog {
    fn state(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT value FROM state WHERE key = ?1")
            .map_err(|e| self.error(e))?;
        statement.query_row([key], |row| row.get(0)).optional().map_err(|e| self.error(e))
    }

    fn known(&self, path: &WorkspacePath) -> Result<Option<Known>> {
        let read = || -> rusqlite::Result<Option<Result<Option<Known>, DecodeError>>> {
            // A root's own entry is in its own row; only these can be roots.
            if (path.is_root() || path.is_outside())
                && let Some(id) = directory_id(&self.connection, path)?
                && let Some(bytes) = row(&self.connection, id)?
                && let Ok(DirectoryView { own: Some(own), .. }) = DirectoryView::new(&bytes)
            {
                return Ok(Some(Ok(Some(own))));
            }
            let Some(parent) = path.parent() else { return Ok(None) };
            let Some(id) = directory_id(&self.connection, &parent)? else { return Ok(None) };
            let sql = "SELECT known FROM newer WHERE directory = ?1 AND name = ?2";
            let newer: Option<Option<Vec<u8>>> = self
                .connection
                .prepare_cached(sql)?
                .query_row(params![id, path.name()], |row| row.get(0))
                .optional()?;
            Ok(match newer {
                Some(Some(bytes)) => Some(Known::decode(&mut Decoder(&bytes)).map(Some)),
                Some(None) => None,
                None => row(&self.connection, id)?
                    .map(|bytes| DirectoryView::new(&bytes)?.find(path.name())),
            })
        };
        read().map_err(|e| self.error(e))?.transpose().map(Option::flatten).map_err(damaged)
    }

    fn known_directory(&self, path: &WorkspacePath) -> Result<Option<KnownDirectory>> {
        let read = || {
            let Some(id) = directory_id(&self.connection, path)? else { return Ok(None) };
            merged(&self.connection, id)
        };
        read().map_err(|e| self.error(e))?.transpose().map_err(damaged)
    }

    fn load_directory(&self, table: &mut KnownTable, path: &WorkspacePath) -> Result<()> {
        let mut load = || -> rusqlite::Result<()> {
            let Some(id) = directory_id(&self.connection, path)? else { return Ok(()) };
            if let Some(bytes) = row(&self.connection, id)? {
                let start = table.arena.len();
                table.arena.extend(bytes);
                table.rows.insert(path.clone(), start..table.arena.len());
            }
            for (name, known) in newer(&self.connection, id)? {
                let known = known.and_then(|bytes| Known::decode(&mut Decoder(&bytes)).ok());
                table.newer.entry(path.clone()).or_default().insert(name, known);
            }
            Ok(())
        };
        load().map_err(|e| self.error(e))
    }

    fn directories_below(&self, path: &WorkspacePath) -> Result<Vec<WorkspacePath>> {
        let (low, high) = super::subtree(path);
        let read = || -> rusqlite::Result<Vec<Vec<u8>>> {
            let sql = "SELECT path FROM directory WHERE path = ?1 OR path >= ?2 AND path < ?3";
            let mut statement = self.connection.prepare_cached(sql)?;
            let parameters = [path.as_bytes(), &low, &high];
            statement.query_map(parameters, |row| row.get(0))?.collect()
        };
        Ok(read().map_err(|e| self.error(e))?.into_iter().filter_map(path_of).collect())
    }

    fn known_below(&self, path: &WorkspacePath) -> Result<Vec<(WorkspacePath, Known)>> {
        let mut below = Vec::new();
        for directory in self.directories_below(path)? {
            let Some(known) = self.known_directory(&directory)? else { continue };
            let names = known.names.into_iter();
            below.extend(names.map(|(name, known)| (directory.join(&name), known)));
        }
        Ok(below)
    }

    fn known_table(&self) -> Result<KnownTable> {
        let mut table = KnownTable::default();
        let mut read = || {
            read_rows(&self.connection, &mut table)?;
            read_newer(&self.connection, &mut table)
        };
        read().map_err(|e| self.error(e))?;
        Ok(table)
    }
}

/// A row of the known state that cannot be read: it can be made anew by looking.
fn damaged(source: DecodeError) -> Error {
    Error::Record { seq: Seq(0), source }
}

fn path_of(bytes: Vec<u8>) -> Option<WorkspacePath> {
    WorkspacePath::new(bytes).ok()
}

fn read_rows(connection: &Connection, table: &mut KnownTable) -> rusqlite::Result<()> {
    let sql = "SELECT path, row FROM directory WHERE row IS NOT NULL";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Some(path) = path_of(row.get(0)?) else { continue };
        let start = table.arena.len();
        table.arena.extend_from_slice(row.get_ref(1)?.as_blob().unwrap_or_default());
        table.rows.insert(path, start..table.arena.len());
    }
    Ok(())
}

fn read_newer(connection: &Connection, table: &mut KnownTable) -> rusqlite::Result<()> {
    let sql = "SELECT path, name, known FROM newer JOIN directory ON id = directory";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Some(path) = path_of(row.get(0)?) else { continue };
        let known: Option<Vec<u8>> = row.get(2)?;
        let known = known.and_then(|bytes| Known::decode(&mut Decoder(&bytes)).ok());
        table.newer.entry(path).or_default().insert(row.get(1)?, known);
    }
    Ok(())
}

/// The numbers of directories, looked up once per commit.
pub(super) struct Directories<'c> {
    connection: &'c Connection,
    ids: HashMap<WorkspacePath, i64>,
}

impl<'c> Directories<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, ids: HashMap::new() }
    }

    /// The number of a directory, given to it now if it had none.
    pub(super) fn id(&mut self, path: &WorkspacePath) -> rusqlite::Result<i64> {
        if let Some(id) = self.ids.get(path) {
            return Ok(*id);
        }
        let id = match directory_id(self.connection, path)? {
            Some(id) => id,
            None => {
                let sql = "INSERT INTO directory (path) VALUES (?1)";
                self.connection.prepare_cached(sql)?.execute([path.as_bytes()])?;
                self.connection.last_insert_rowid()
            }
        };
        self.ids.insert(path.clone(), id);
        Ok(id)
    }

    /// Gives a directory its number together with its first row, which would have to move if it came later;
    /// false if it has one already.
    fn add(&mut self, path: &WorkspacePath, row: &dyn Fn() -> Vec<u8>) -> rusqlite::Result<bool> {
        if self.ids.contains_key(path) || directory_id(self.connection, path)?.is_some() {
            return Ok(false);
        }
        let sql = "INSERT INTO directory (path, row) VALUES (?1, ?2)";
        self.connection.prepare_cached(sql)?.execute(params![path.as_bytes(), row()])?;
        self.ids.insert(path.clone(), self.connection.last_insert_rowid());
        Ok(true)
    }
}

fn directory_id(connection: &Connection, path: &WorkspacePath) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT id FROM directory WHERE path = ?1";
    connection.prepare_cached(sql)?.query_row([path.as_bytes()], |row| row.get(0)).optional()
}

fn row(connection: &Connection, id: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT row FROM directory WHERE id = ?1";
    Ok(connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?.flatten())
}

/// A name, and what is known of it as bytes; `None`: it is gone.
type Newer = (Vec<u8>, Option<Vec<u8>>);

/// The paths of a directory that are newer than its row.
fn newer(connection: &Connection, id: i64) -> rusqlite::Result<Vec<Newer>> {
    let sql = "SELECT name, known FROM newer WHERE directory = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// A directory's row with the newer paths in place.
fn merged(
    connection: &Connection,
    id: i64,
) -> rusqlite::Result<Option<Result<KnownDirectory, DecodeError>>> {
    let newer = newer(connection, id)?;
    let row = row(connection, id)?;
    if row.is_none() && newer.is_empty() {
        return Ok(None);
    }
    let decode = || {
        let mut directory = match row {
            Some(bytes) => KnownDirectory::decode(&bytes)?,
            None => KnownDirectory::default(),
        };
        for (name, known) in newer {
            match known {
                Some(bytes) => {
                    directory.names.insert(name, Known::decode(&mut Decoder(&bytes))?);
                }
                None => {
                    directory.names.remove(&name);
                }
            }
        }
        Ok(directory)
    };
    Ok(Some(decode()))
}

/// Writes the news of one directory, beside its row or into it.
pub(super) fn update_directory(
    connection: &Connection,
    directories: &mut Directories<'_>,
    update: &DirectoryUpdate,
) -> rusqlite::Result<()> {
    let small = update.listed.is_none() && update.own.is_none();
    let new_row = || updated(KnownDirectory::default(), update).encode();
    if !update.gone && !small && directories.add(&update.path, &new_row)? {
        return Ok(());
    }
    let id = directories.id(&update.path)?;
    if update.gone {
        connection
            .prepare_cached("UPDATE directory SET row = NULL WHERE id = ?1")?
            .execute([id])?;
        connection.prepare_cached("DELETE FROM newer WHERE directory = ?1")?.execute([id])?;
        return Ok(());
    }
    if small && are_few(connection, id, update.names.len())? {
        return insert_newer(connection, id, &update.names);
    }
    // A damaged row is dropped: it is only a memory of what a look would find again.
    let directory = merged(connection, id)?.and_then(std::result::Result::ok).unwrap_or_default();
    let directory = updated(directory, update);
    let sql = "UPDATE directory SET row = ?2 WHERE id = ?1";
    connection.prepare_cached(sql)?.execute(params![id, directory.encode()])?;
    connection.prepare_cached("DELETE FROM newer WHERE directory = ?1")?.execute([id])?;
    Ok(())
}

/// A directory with its news in place.
fn updated(mut directory: KnownDirectory, update: &DirectoryUpdate) -> KnownDirectory {
    if let Some((listed, mount)) = update.listed {
        directory.listed = Some(listed);
        directory.mount = mount;
    }
    if let Some(own) = &update.own {
        directory.own = Some(own.clone());
    }
    apply_names(&mut directory.names, &update.names);
    directory
}

fn apply_names(names: &mut BTreeMap<Vec<u8>, Known>, news: &[(Vec<u8>, Option<Known>)]) {
    for (name, known) in news {
        match known {
            Some(known) => names.insert(name.clone(), known.clone()),
            None => names.remove(name),
        };
    }
}

/// Whether so many news of a directory are better kept beside its row than written into it.
fn are_few(connection: &Connection, id: i64, news: usize) -> rusqlite::Result<bool> {
    if news > NEWER_PER_UPDATE {
        let sql = "SELECT length(row) FROM directory WHERE id = ?1";
        let size: Option<i64> =
            connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?.flatten();
        if size.unwrap_or(0) / ROW_PER_NEWER < i64::try_from(news).unwrap_or(i64::MAX) {
            return Ok(false);
        }
    }
    Ok(newer_count(connection, id)? < NEWER_PER_DIRECTORY)
}

fn newer_count(connection: &Connection, id: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM newer WHERE directory = ?1";
    connection.prepare_cached(sql)?.query_row([id], |row| row.get(0))
}

fn insert_newer(
    connection: &Connection,
    id: i64,
    names: &[(Vec<u8>, Option<Known>)],
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO newer (directory, name, known) VALUES (?1, ?2, ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    for (name, known) in names {
        let bytes = known.as_ref().map(|known| {
            let mut out = Encoder::default();
            known.encode(&mut out);
            out.0
        });
        statement.execute(params![id, name, bytes])?;
    }
    Ok(())
}
