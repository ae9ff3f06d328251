//! The catalog: one SQLite database per workspace with its log, its known state and small objects.
//!
//! The only module with SQL. Its transaction is the commit point of everything: records, the known
//! state that follows from them and the small contents they name become visible together or not
//! at all.

mod body;
mod clones;
mod contents;
mod forget;
mod heads;
mod import;
mod indexes;
mod inspect;
mod log;
mod pages;
mod prune;
mod repair;
mod schema;
mod state;
mod sum;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

pub(crate) use clones::PendingClone;
pub(crate) use forget::FORGETTING;
pub(crate) use heads::{HeadOrder, HeadRow, Row as TileRow};
pub(crate) use indexes::misfit;
pub(crate) use inspect::inspect;
pub use log::{Log, MemoryLog, link_after, open_next, seal_all, sqlite_log};
pub(crate) use prune::Merged;
pub(crate) use repair::rescue;
pub(crate) use schema::VERSION as SCHEMA_VERSION;
pub use state::{DirectoryUpdate, LocalState};

use crate::codec::kind_number;
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::head::SignedHead;
use crate::id::{Epoch, LeafHash, LinkHash, PlanId, Seq, SnapshotId, Time, WorkspaceId};
use crate::path::WorkspacePath;
use crate::record::{Head, Kind, Record, Sealed};
use crate::store::{Row, StoreLock};

/// Frames after which a process that goes on copies the write-ahead log back.
const WAL_FRAMES: u32 = 1000;
/// Bytes above which a process that ends copies the write-ahead log back and empties it: whoever
/// opens the catalog next, alone, reads the whole of it.
const WAL_LEFT_BEHIND: u64 = 64 * 4120;
/// Statements that are kept parsed: more than there are.
const STATEMENTS: usize = 64;
/// From so many changes on, records are sealed on a thread of their own.
const MANY_CHANGES: usize = 1000;
/// How long a commit waits for another process's commit.
const BUSY_MS: u64 = 10_000;

/// How safe a commit is when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It survives a power cut.
    PowerCut,
    /// It survives the death of the process, and a power cut from the next commit of the other kind.
    ProcessDeath,
}

/// The records of a snapshot, beside what is open, which sorts behind them.
const OF_SNAPSHOT: i64 = 0;

/// Things that were announced and have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// An action without an outcome yet, by its snapshot id.
    Intent = 1,
    /// A turn, by its number.
    Turn = 2,
    /// A transaction, by its id.
    Transaction = 3,
}

/// What this machine remembers besides the known state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// A session of an agent, by its key.
    Session = 1,
    /// A call that has ended and whose paths may still be written to, by its snapshot id.
    Ended = 2,
    /// A replica of this workspace, by its id.
    Replica = 3,
    /// A write of this replica that its host did not take, by its id.
    Conflict = 4,
    /// What the host shows at a path and does not stand there, by the path.
    LeftAlone = 5,
    /// Where the host has a content that is not in a lazy replica, by the content's name.
    AtHost = 6,
}

/// Everything that becomes visible in one commit.
#[derive(Default)]
pub(crate) struct Batch {
    /// Records to append; their positions are assigned here.
    pub(crate) records: Vec<Record>,
    /// Small contents that the records name.
    pub(crate) objects: Vec<Row>,
    /// Small contents that are here already, in a smaller form.
    pub(crate) smaller: Vec<Row>,
    /// What is known from now on.
    pub(crate) known: Vec<DirectoryUpdate>,
    /// Values of this machine; `None` removes one.
    pub(crate) state: Vec<(&'static str, Option<Vec<u8>>)>,
    /// What this machine remembers of sessions and calls; `None` forgets.
    pub(crate) local: Vec<(Local, Vec<u8>, Option<Vec<u8>>)>,
    /// Things that open with the record of this index in `records`.
    pub(crate) opens: Vec<(Open, Vec<u8>, usize)>,
    /// Things that end.
    pub(crate) closes: Vec<(Open, Vec<u8>)>,
    /// Applied once under this key.
    pub(crate) idempotency: Option<Vec<u8>>,
    /// Asks for a signed head over everything up to the last of these records.
    pub(crate) head: Option<HeadOrder>,
    /// Keeps the content that the records name from being swept until they are committed.
    pub(crate) hold: Option<StoreLock>,
}

/// Where the log ends after a batch.
#[derive(Debug, Clone)]
pub(crate) struct Appended {
    pub(crate) last: Head,
    /// The link of the record before the last.
    pub(crate) previous: LinkHash,
    /// The head that was asked for, if it could be made.
    pub(crate) signed: Option<SignedHead>,
}

/// One workspace's database.
pub(crate) struct Catalog {
    connection: Connection,
    path: PathBuf,
    epoch: Epoch,
    /// What the connection is set to.
    durability: Durability,
    /// The first failure of the disk: what a later sync calls durable may have been lost by then,
    /// so nothing is written any more until the catalog is opened anew.
    failed: Option<rusqlite::ffi::Error>,
    /// The tables by which the past is found were compared with their sum.
    trusted: std::cell::Cell<bool>,
}

impl Catalog {
    /// Makes a new catalog; there must be none.
    pub(crate) fn create(path: &Path, workspace: WorkspaceId) -> Result<Self> {
        private_file(path)?;
        let mut connection = connect(path)?;
        let epoch = Epoch::random();
        let at = |error| catalog_error(path, error);
        // So that what a prune drops can be given back in place, without room for a copy.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(at)?;
        schema::migrate(&mut connection, 0).map_err(at)?;
        let insert = "INSERT INTO state (key, value) VALUES ('workspace', ?1), ('epoch', ?2)";
        connection.execute(insert, params![workspace.0, epoch.0]).map_err(at)?;
        let (path, durability) = (path.to_owned(), Durability::PowerCut);
        let (failed, trusted) = (None, std::cell::Cell::new(false));
        Ok(Self { connection, path, epoch, durability, failed, trusted })
    }

    /// Opens a catalog that is there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut connection = connect(path)?;
        let at = |error| catalog_error(path, error);
        let found = schema::version(&connection).map_err(at)?;
        if found > schema::VERSION {
            let what = format!("Catalog {}", path.display());
            return Err(Error::Newer { what, found, known: schema::VERSION });
        }
        if found < schema::VERSION {
            schema::migrate(&mut connection, found).map_err(at)?;
        }
        let (path, epoch, durability) = (path.to_owned(), Epoch([0; 16]), Durability::PowerCut);
        let (failed, trusted) = (None, std::cell::Cell::new(false));
        let mut catalog = Self { connection, path, epoch, durability, failed, trusted };
        catalog.epoch = Epoch(catalog.fixed_state("epoch")?);
        Ok(catalog)
    }

    fn fixed_state(&self, key: &str) -> Result<[u8; 16]> {
        let value = self.state(key)?.unwrap_or_default();
        value.try_into().map_err(|_| self.error(rusqlite::Error::QueryReturnedNoRows))
    }

    /// The workspace whose log it is.
    pub(crate) fn workspace(&self) -> Result<WorkspaceId> {
        self.fixed_state("workspace").map(WorkspaceId)
    }

    /// The life of the log.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn error(&self, error: rusqlite::Error) -> Error {
        catalog_error(&self.path, error)
    }

    /// Appends and applies a batch if the log still ends where the caller thinks.
    ///
    /// After a failure of the disk it refuses: see `failed`.
    pub(crate) fn apply(
        &mut self,
        batch: Batch,
        expected: Head,
        durability: Durability,
    ) -> Result<Appended> {
        if let Some(first) = self.failed {
            let why = "an earlier write failed, so nothing is written until it is opened anew";
            return Err(self.error(rusqlite::Error::SqliteFailure(first, Some(why.to_owned()))));
        }
        let applied = self.apply_once(batch, expected, durability);
        if let Err(Error::Catalog { source, .. }) = &applied
            && source.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure)
        {
            self.failed = source.sqlite_error().copied();
        }
        applied
    }

    fn apply_once(
        &mut self,
        mut batch: Batch,
        expected: Head,
        durability: Durability,
    ) -> Result<Appended> {
        let path = self.path.clone();
        let at = move |error| catalog_error(&path, error);
        if self.durability != durability {
            let level = match durability {
                Durability::PowerCut => "PRAGMA synchronous = FULL",
                Durability::ProcessDeath => "PRAGMA synchronous = NORMAL",
            };
            self.connection.execute_batch(level).map_err(&at)?;
            self.durability = durability;
        }
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior).map_err(&at)?;
        if let Some(key) = &batch.idempotency
            && let Some(last) = applied(&transaction, key).map_err(&at)?
        {
            return Ok(Appended { last, previous: last.link, signed: None });
        }
        let found = head(&transaction).map_err(&at)?;
        if found != expected {
            return Err(Error::Moved { expected: expected.seq, found: found.seq });
        }
        let mut appended = write(&transaction, &mut batch, expected).map_err(&at)?;
        if let Some(order) = &batch.head {
            appended.signed = heads::make(&transaction, self.epoch, order).map_err(&at)?;
        }
        failpoint::hit("catalog_before_commit");
        transaction.commit().map_err(at)?;
        Ok(appended)
    }

    /// The directory of the workspace in its home.
    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// One record, if the log has it.
    pub(crate) fn record(&self, seq: Seq) -> Result<Option<Sealed>> {
        let sql = "SELECT seq, leaf, body, leaf_hash, link, packed FROM record WHERE seq = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement.query_row([seq.0.cast_signed()], sealed).optional().map_err(|e| self.error(e))
    }

    /// The last record up to a position of which more than the hash is left.
    pub(crate) fn last_whole(&self, seq: Seq) -> Result<Option<Seq>> {
        let sql = "SELECT max(seq) FROM record WHERE seq <= ?1 AND leaf != x''";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        let found = statement.query_row([seq.0.cast_signed()], |row| row.get::<_, Option<i64>>(0));
        Ok(found.map_err(|e| self.error(e))?.map(|seq| Seq(seq.cast_unsigned())))
    }

    /// The link of one record; of none, that from which the first goes on.
    pub(crate) fn link(&self, seq: Seq) -> Result<LinkHash> {
        let sql = "SELECT link FROM record WHERE seq = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        let link = statement.query_row([seq.0.cast_signed()], |row| row.get(0)).optional();
        Ok(link.map_err(|e| self.error(e))?.map_or(LinkHash::ZERO, LinkHash))
    }

    /// The positions of all records of a kind that is neither intent nor outcome, oldest first.
    pub(crate) fn of_kind(&self, kind: Kind) -> Result<Vec<Seq>> {
        let sql = "SELECT seq FROM record WHERE kind = ?1 AND kind NOT IN (1, 2) ORDER BY seq";
        self.seqs(sql, [i64::from(kind_number(kind))])
    }

    /// The positions of the records of one snapshot, oldest first.
    pub(crate) fn of_snapshot(&self, id: &SnapshotId) -> Result<Vec<Seq>> {
        let sql = "SELECT seq FROM by_id WHERE kind = ?1 AND id = ?2 ORDER BY seq";
        self.seqs(sql, params![OF_SNAPSHOT, &id.0[..]])
    }

    /// The ids of all snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Result<Vec<SnapshotId>> {
        self.trust_indexes()?;
        let sql = "SELECT DISTINCT id FROM by_id WHERE kind = ?1 ORDER BY id";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        let ids = statement
            .query_map([OF_SNAPSHOT], |row| row.get::<_, [u8; 16]>(0))
            .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
            .map_err(|e| self.error(e))?;
        Ok(ids.into_iter().map(SnapshotId).collect())
    }

    /// The records that changed something directly in a directory, oldest first.
    pub(crate) fn touching(&self, directory: &WorkspacePath) -> Result<Vec<Seq>> {
        self.trust_indexes()?;
        let sql =
            "SELECT seq FROM touched JOIN directory ON id = directory WHERE path = ?1 ORDER BY seq";
        self.seqs(sql, [directory.as_bytes()])
    }

    /// The newest records in which an agent changed something directly in a directory.
    pub(crate) fn touching_by_agents(
        &self,
        directory: &WorkspacePath,
        most: u32,
    ) -> Result<Vec<Seq>> {
        let sql = "SELECT seq FROM touched JOIN directory ON id = directory
                   WHERE path = ?1 AND by_agent = 1 ORDER BY seq DESC LIMIT ?2";
        self.seqs(sql, params![directory.as_bytes(), most])
    }

    /// The newest records in which nobody but people changed something directly in a directory.
    pub(crate) fn touching_by_people(
        &self,
        directory: &WorkspacePath,
        most: u32,
    ) -> Result<Vec<Seq>> {
        let sql = "SELECT seq FROM touched JOIN directory ON id = directory
                   WHERE path = ?1 AND by_agent = 0 ORDER BY seq DESC LIMIT ?2";
        self.seqs(sql, params![directory.as_bytes(), most])
    }

    /// The newest records that changed something directly in a directory, newest first.
    pub(crate) fn touching_newest(&self, directory: &WorkspacePath, most: u32) -> Result<Vec<Seq>> {
        let sql = "SELECT seq FROM touched JOIN directory ON id = directory
                   WHERE path = ?1 ORDER BY seq DESC LIMIT ?2";
        self.seqs(sql, params![directory.as_bytes(), most])
    }

    /// The records that changed something anywhere below a directory, oldest first.
    pub(crate) fn touching_below(&self, directory: &WorkspacePath) -> Result<Vec<Seq>> {
        self.trust_indexes()?;
        let (low, high) = subtree(directory);
        let sql = "SELECT DISTINCT seq FROM touched JOIN directory ON id = directory
                   WHERE path = ?1 OR path >= ?2 AND path < ?3 ORDER BY seq";
        self.seqs(sql, [directory.as_bytes(), &low, &high])
    }

    fn seqs(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<Seq>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        let seqs = statement
            .query_map(parameters, |row| row.get::<_, i64>(0))
            .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
            .map_err(|e| self.error(e))?;
        Ok(seqs.into_iter().map(|seq| Seq(seq.cast_unsigned())).collect())
    }

    /// What is open of a kind: its id and the record that opened it, oldest first.
    pub(crate) fn open_things(&self, kind: Open) -> Result<Vec<(Vec<u8>, Seq)>> {
        let sql = "SELECT id, seq FROM by_id WHERE kind = ?1 ORDER BY seq";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement
            .query_map([kind as i64], |row| {
                Ok((row.get(0)?, Seq(row.get::<_, i64>(1)?.cast_unsigned())))
            })
            .and_then(Iterator::collect)
            .map_err(|e| self.error(e))
    }

    /// What this machine remembers of one thing.
    pub(crate) fn local(&self, kind: Local, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT value FROM local WHERE kind = ?1 AND key = ?2";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        let found = statement.query_row(params![kind as i64, key], |row| row.get(0)).optional();
        found.map_err(|e| self.error(e))
    }

    /// What this machine remembers of all things of a kind: their keys and values.
    pub(crate) fn locals(&self, kind: Local) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let sql = "SELECT key, value FROM local WHERE kind = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement
            .query_map([kind as i64], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect)
            .map_err(|e| self.error(e))
    }

    /// Holds the state of this moment for the reads that follow.
    pub(crate) fn begin_reading(&self) -> Result<()> {
        self.connection.execute_batch("BEGIN").map_err(|e| self.error(e))
    }

    /// The same, until the guard is dropped; a state that is held already stays.
    pub(crate) fn reading(&self) -> Result<Reading<'_>> {
        if !self.connection.is_autocommit() {
            return Ok(Reading(None));
        }
        self.begin_reading()?;
        Ok(Reading(Some(self)))
    }

    /// Takes over a state that was held with `begin_reading`.
    pub(crate) fn held(&self) -> Reading<'_> {
        Reading(Some(self))
    }

    /// Lets the state go that was held for reading.
    pub(crate) fn end_reading(&self) {
        // A read that failed may have ended it already.
        let _ = self.connection.execute_batch("COMMIT");
    }

    /// Keeps a plan that was shown, and drops those shown before a time.
    pub(crate) fn keep_plan(
        &self,
        id: &PlanId,
        now: Time,
        since: Time,
        bytes: &[u8],
    ) -> Result<()> {
        let run = || {
            self.connection.execute("DELETE FROM plan WHERE created < ?1", [since.0])?;
            let sql = "INSERT INTO plan (id, created, bytes) VALUES (?1, ?2, ?3)";
            self.connection.execute(sql, params![&id.0[..], now.0, bytes])
        };
        run().map(|_| ()).map_err(|e| self.error(e))
    }

    /// The plans that were shown and not dropped: their ids and bytes.
    pub(crate) fn plans(&self) -> Result<Vec<(PlanId, Vec<u8>)>> {
        let mut statement =
            self.connection.prepare("SELECT id, bytes FROM plan").map_err(|e| self.error(e))?;
        statement
            .query_map([], |row| Ok((PlanId(row.get(0)?), row.get(1)?)))
            .and_then(Iterator::collect)
            .map_err(|e| self.error(e))
    }
}

/// Many reads as of one moment; each alone would lock the catalog anew.
pub(crate) struct Reading<'c>(Option<&'c Catalog>);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(catalog) = self.0 {
            catalog.end_reading();
        }
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let large = std::fs::metadata(log).is_ok_and(|log| log.len() > WAL_LEFT_BEHIND);
        if large {
            // It may stay: somebody else may be reading, nobody waits for that, and the next one
            // tries again.
            let _ = self.connection.busy_timeout(std::time::Duration::ZERO);
            let _ = self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        }
    }
}

impl Log for Catalog {
    fn head(&self) -> Result<Head> {
        head(&self.connection).map_err(|e| self.error(e))
    }

    fn commit(
        &mut self,
        records: Vec<Record>,
        expected: Head,
        idempotency: Option<&[u8]>,
    ) -> Result<Head> {
        let idempotency = idempotency.map(<[u8]>::to_vec);
        let batch = Batch { records, idempotency, ..Batch::default() };
        self.apply(batch, expected, Durability::PowerCut).map(|appended| appended.last)
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Sealed>> {
        let sql = "SELECT seq, leaf, body, leaf_hash, link, packed FROM record WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement
            .query_map([after.0.cast_signed(), limit], sealed)
            .and_then(Iterator::collect)
            .map_err(|e| self.error(e))
    }
}

/// The range of paths below a directory, as bytes: from the first possible to one past the last.
fn subtree(directory: &WorkspacePath) -> (Vec<u8>, Vec<u8>) {
    if directory.is_root() {
        return (vec![0], vec![0xff; 2]);
    }
    let with = |end: u8| [directory.as_bytes(), &[end]].concat();
    (with(b'/'), with(b'/' + 1))
}

/// Makes an empty file that only its owner can read; SQLite gives its other files the same mode.
fn private_file(path: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).at("create", path).map(drop)
}

fn connect(path: &Path) -> Result<Connection> {
    let at = |error| catalog_error(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(at)?;
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS)).map_err(at)?;
    // Closing would copy the write-ahead log back and delete it: several flushes at the end of
    // every short process. It stays and is copied back when it has grown.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(at)?;
    // A plan must not depend on the values bound to it: every new value would parse the statement anew.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(at)?;
    set_journal(&connection).map_err(at)?;
    let pragmas = format!(
        "PRAGMA wal_autocheckpoint = {WAL_FRAMES}; PRAGMA synchronous = FULL;
         PRAGMA cache_size = -16384;"
    );
    connection.execute_batch(&pragmas).map_err(at)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Has SQLite write ahead, or fails.
///
/// It answers before it is done: only the step behind the answer says whether that worked, and one
/// that is not asked for leaves the old journal without a word.
fn set_journal(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let answers: Vec<String> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    if answers == ["wal"] {
        return Ok(());
    }
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    let why = "its write-ahead log cannot be had".to_owned();
    Err(rusqlite::Error::SqliteFailure(failure, Some(why)))
}

/// A full disk is its own kind of failure; everything else names the database.
fn catalog_error(path: &Path, source: rusqlite::Error) -> Error {
    match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => Error::NoSpace(path.to_owned()),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            Error::Busy(format!("another process is writing {}", path.display()))
        }
        _ => Error::Catalog { path: path.to_owned(), source },
    }
}

fn head(connection: &Connection) -> rusqlite::Result<Head> {
    let sql = "SELECT seq, link FROM record ORDER BY seq DESC LIMIT 1";
    Ok(connection.prepare_cached(sql)?.query_row([], head_row).optional()?.unwrap_or(Head::EMPTY))
}

fn head_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head { seq: Seq(row.get::<_, i64>(0)?.cast_unsigned()), link: LinkHash(row.get(1)?) })
}

fn sealed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Sealed> {
    Ok(Sealed {
        seq: Seq(row.get::<_, i64>(0)?.cast_unsigned()),
        leaf: row.get(1)?,
        body: body::unpack(row.get_ref(2)?.as_blob()?, row.get(5)?).into_owned(),
        leaf_hash: LeafHash(row.get(3)?),
        link: LinkHash(row.get(4)?),
    })
}

/// Where the log ended after the commit with this key.
fn applied(connection: &Connection, key: &[u8]) -> rusqlite::Result<Option<Head>> {
    let sql = "SELECT seq, link FROM record WHERE seq = (SELECT seq FROM applied WHERE key = ?1)";
    connection.prepare_cached(sql)?.query_row([key], head_row).optional()
}

fn write(connection: &Connection, batch: &mut Batch, from: Head) -> rusqlite::Result<Appended> {
    contents::insert(connection, &batch.objects)?;
    for row in &batch.smaller {
        let sql = "UPDATE object SET stored = ?2 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![&row.id.0[..], row.stored])?;
    }
    let mut directories = state::Directories::new(connection);
    let sealed = seal_beside(&mut batch.records, from, || {
        let mut known = batch.known.iter();
        known.try_for_each(|update| state::update_directory(connection, &mut directories, update))
    })?;
    let (mut inserted, mut fewer) = (sum::Sum::default(), false);
    for (record, (sealed, packed)) in batch.records.iter().zip(&sealed) {
        insert_record(connection, record, sealed, packed.as_ref(), &mut inserted)?;
        if clones::names_clones(record.kind) {
            clones::note(connection, record)?;
        }
        match record.kind {
            Kind::Intent => {}
            Kind::Prune => {
                prune::apply(connection, &mut directories, record)?;
                fewer = true;
            }
            Kind::Forget => {
                forget::apply(connection, record)?;
                fewer = true;
            }
            Kind::Resolve => inserted.absorb(clones::resolve(connection, record)?),
            _ => {
                let changes = &record.changes;
                let touched =
                    indexes::insert_touched(connection, &mut directories, record.seq, changes)?;
                inserted.absorb(touched);
            }
        }
    }
    match fewer {
        true => sum::renew(connection)?,
        false => sum::grow(connection, inserted)?,
    }
    write_small(connection, batch)?;
    let last = sealed.last().map_or(from, |(last, _)| Head { seq: last.seq, link: last.link });
    let previous = sealed.iter().rev().nth(1).map_or(from.link, |(before, _)| before.link);
    if let Some(key) = &batch.idempotency {
        let sql = "INSERT INTO applied (key, seq) VALUES (?1, ?2)";
        connection.execute(sql, params![key, last.seq.0.cast_signed()])?;
    }
    Ok(Appended { last, previous, signed: None })
}

/// A record, sealed, and what its row keeps of its body where that is not the body itself.
type Ready = (Sealed, Option<(Vec<u8>, i64)>);

fn seal(records: &mut [Record], from: Head) -> Vec<Ready> {
    let pack = |sealed: Sealed| {
        let packed = match body::pack(&sealed.body) {
            (Cow::Owned(kept), length) => Some((kept, length)),
            (Cow::Borrowed(_), _) => None,
        };
        (sealed, packed)
    };
    log::seal_all(records, from).into_iter().map(pack).collect()
}

/// Seals records, and does something else meanwhile where there are so many changes that it is worth a thread.
fn seal_beside(
    records: &mut [Record],
    from: Head,
    beside: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<Vec<Ready>> {
    let many = records.iter().map(|record| record.changes.len()).sum::<usize>() > MANY_CHANGES;
    if !many {
        beside()?;
        return Ok(seal(records, from));
    }
    std::thread::scope(|scope| {
        let sealing = scope.spawn(|| seal(records, from));
        beside()?;
        Ok(sealing.join().expect("BUG: sealing panicked"))
    })
}

/// The values of this machine, and what opens and ends.
fn write_small(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for (key, value) in &batch.state {
        match value {
            Some(value) => connection
                .prepare_cached("INSERT OR REPLACE INTO state (key, value) VALUES (?1, ?2)")?
                .execute(params![key, value])?,
            None => {
                connection.prepare_cached("DELETE FROM state WHERE key = ?1")?.execute([key])?
            }
        };
    }
    for (kind, key, value) in &batch.local {
        match value {
            Some(value) => connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO local (kind, key, value) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![*kind as i64, key, value])?,
            None => connection
                .prepare_cached("DELETE FROM local WHERE kind = ?1 AND key = ?2")?
                .execute(params![*kind as i64, key])?,
        };
    }
    for (kind, id, index) in &batch.opens {
        let seq = batch.records[*index].seq.0.cast_signed();
        insert_by_id(connection, *kind as i64, id, seq)?;
    }
    for (kind, id) in &batch.closes {
        let sql = "DELETE FROM by_id WHERE kind = ?1 AND id = ?2";
        connection.prepare_cached(sql)?.execute(params![*kind as i64, id])?;
    }
    Ok(())
}

fn insert_record(
    connection: &Connection,
    record: &Record,
    sealed: &Sealed,
    packed: Option<&(Vec<u8>, i64)>,
    inserted: &mut sum::Sum,
) -> rusqlite::Result<()> {
    let seq = sealed.seq.0.cast_signed();
    let (kept, packed) = packed.map_or((&sealed.body, 0), |(kept, length)| (kept, *length));
    let sql = "INSERT INTO record (seq, kind, leaf_hash, link, leaf, body, packed)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        seq,
        kind_number(record.kind),
        &sealed.leaf_hash.0[..],
        &sealed.link.0[..],
        sealed.leaf,
        kept,
        packed,
    ])?;
    match &record.labels.snapshot {
        Some(id) => {
            inserted.add(&sum::Line::Snapshot { id: &id.0, seq });
            insert_by_id(connection, OF_SNAPSHOT, &id.0, seq)
        }
        None => Ok(()),
    }
}

fn insert_by_id(connection: &Connection, kind: i64, id: &[u8], seq: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO by_id (kind, id, seq) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute(params![kind, id, seq]).map(drop)
}
