//! What a catalog is, for somebody who only looks: nothing is migrated, and not one byte is written to the home.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{BUSY_MS, body, catalog_error, schema};
use crate::chain;
use crate::codec::{self, DecodeError};
use crate::error::{Context, Result};
use crate::id::{Seq, random_bytes, to_hex};

/// Since this version a record's body may be packed.
const WITH_PACKED: u64 = 5;

/// What the catalog says of itself.
#[derive(Debug, Default)]
pub(crate) struct Inspected {
    /// The number of migrations that were applied.
    pub(crate) version: u64,
    /// How many records there are; none are read of a newer catalog.
    pub(crate) records: u64,
    /// The format versions of those that have a leaf.
    pub(crate) formats: BTreeSet<u64>,
    /// Records that are whole and say something this program does not know, and the first of them.
    pub(crate) strange: (u64, Option<Seq>),
    /// Records that are not what was written.
    pub(crate) damaged: (u64, Option<Seq>),
    /// The keys of the machine's own values.
    pub(crate) state: BTreeSet<String>,
}

impl Inspected {
    fn add(&mut self, seq: u64, leaf: &[u8], leaf_hash: &[u8], body: &[u8]) {
        self.records += 1;
        let Some(&format) = leaf.first() else { return };
        self.formats.insert(format.into());
        // Of a body that a prune emptied only the leaf tells.
        let read: Result<(), DecodeError> = match body.is_empty() {
            true => codec::decode_header(leaf).map(drop),
            false => codec::open(leaf, body).map(drop),
        };
        if read.is_ok() {
            return;
        }
        let whole = chain::leaf_hash(leaf).0 == leaf_hash;
        let (count, first) = if whole { &mut self.strange } else { &mut self.damaged };
        *count += 1;
        first.get_or_insert(Seq(seq));
    }
}

/// Reads a catalog as it stands, also one that another process works with.
pub(crate) fn inspect(path: &Path) -> Result<Inspected> {
    let at = |error| catalog_error(path, error);
    let beside = |end: &str| fs::metadata(beside(path, end)).map(|stat| stat.len()).ok();
    let (log, index) = (beside("-wal").unwrap_or(0) > 0, beside("-shm").is_some());
    // Kept until the end: it goes with what is in it.
    let mut copy = None;
    let connection = match (log, index) {
        // There is nothing but the file itself.
        (false, _) => open(path, "mode=ro&immutable=1").map_err(at)?,
        (true, true) => open(path, "mode=ro&readonly_shm=1").map_err(at)?,
        // A home that was copied: the index of its log would be made beside it.
        (true, false) => {
            let copied = copy.insert(Copied::of(path)?);
            open(&copied.file(), "mode=rw").map_err(at)?
        }
    };
    let version = schema::version(&connection).map_err(at)?;
    let mut found = Inspected { version, ..Inspected::default() };
    // What a newer program's tables are is not for this one to guess.
    if version <= schema::VERSION {
        read(&connection, &mut found).map_err(at)?;
    }
    Ok(found)
}

fn read(connection: &Connection, found: &mut Inspected) -> rusqlite::Result<()> {
    let packed = if found.version < WITH_PACKED { "0" } else { "packed" };
    let sql = format!("SELECT seq, leaf, leaf_hash, body, {packed} FROM record ORDER BY seq");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (leaf, hash) = (row.get_ref(1)?.as_blob()?, row.get_ref(2)?.as_blob()?);
        let whole = body::unpack(row.get_ref(3)?.as_blob()?, row.get(4)?);
        found.add(row.get::<_, i64>(0)?.cast_unsigned(), leaf, hash, &whole);
    }
    let mut statement = connection.prepare("SELECT key FROM state")?;
    let keys = statement.query_map([], |row| row.get(0))?;
    found.state = keys.collect::<rusqlite::Result<_>>()?;
    Ok(())
}

/// The name of what SQLite keeps beside a database.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// A database and its log in a directory of their own, for as long as this lives.
struct Copied(PathBuf);

impl Copied {
    fn of(path: &Path) -> Result<Self> {
        let name = format!("chronicle-{}", to_hex(&random_bytes::<16>()));
        let directory = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&directory).at("create", &directory)?;
        let copied = Self(directory);
        for end in ["", "-wal"] {
            let (from, to) = (beside(path, end), beside(&copied.file(), end));
            fs::copy(&from, &to).at("copy", &from)?;
        }
        Ok(copied)
    }

    fn file(&self) -> PathBuf {
        self.0.join("catalog.db")
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // What cannot be removed is for who cleans the directory of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a database without making a file beside it or writing to one, if `how` is one of these ways.
fn open(path: &Path, how: &str) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}?{how}", escaped(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// A path as the part of a URI that it is.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let one = |&byte: &u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.as_os_str().as_bytes().iter().map(one).collect()
}
