//! The tables of the catalog, as numbered migrations.

use rusqlite::Connection;

/// One entry per version; a released one is never edited, only followed by the next.
const MIGRATIONS: [&str; 5] = [
    // `record` holds the log, `directory` the known state (one packed row per directory), `newer`
    // the single paths recorded since their directory's row was written, `touched` which records
    // changed something in which directory, and whether an agent's work was among it, `by_id` which
    // records belong to which snapshot and what is open, `local` what this machine
    // remembers of sessions and calls, `object` the small contents that rode in a commit. Every tree that a capture touches is a page more to sync: ids grow with time, so the
    // newest snapshots and what is open, which sorts behind them, mostly share their page.
    "
    CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE record (
        seq INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        leaf_hash BLOB NOT NULL,
        link BLOB NOT NULL,
        leaf BLOB NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX record_by_kind ON record (kind) WHERE kind NOT IN (1, 2);
    CREATE TABLE directory (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, row BLOB);
    CREATE TABLE newer (
        directory INTEGER NOT NULL,
        name BLOB NOT NULL,
        known BLOB,
        PRIMARY KEY (directory, name)
    ) WITHOUT ROWID;
    CREATE TABLE touched (
        directory INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        by_agent INTEGER NOT NULL,
        PRIMARY KEY (directory, by_agent, seq)
    ) WITHOUT ROWID;
    CREATE TABLE object (id BLOB PRIMARY KEY, stored BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE by_id (
        kind INTEGER NOT NULL,
        id BLOB NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (kind, id, seq)
    ) WITHOUT ROWID;
    CREATE TABLE local (
        kind INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID;
    CREATE TABLE applied (key BLOB PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE plan (id BLOB PRIMARY KEY, created INTEGER NOT NULL, bytes BLOB NOT NULL)
        WITHOUT ROWID;
    ",
    // `head` holds the signed heads with the peaks of their trees, `node` complete subtrees of the
    // Merkle tree at every eighth level. Both are written when a head is made, never by a capture.
    "
    CREATE TABLE head (size INTEGER PRIMARY KEY, note TEXT NOT NULL, peaks BLOB NOT NULL);
    CREATE TABLE node (
        level INTEGER NOT NULL,
        number INTEGER NOT NULL,
        hash BLOB NOT NULL,
        PRIMARY KEY (level, number)
    ) WITHOUT ROWID;
    ",
    // `merged` says which changes of which prune record stand for a run of records, by its last one.
    "
    CREATE TABLE merged (
        seq INTEGER PRIMARY KEY,
        first INTEGER NOT NULL,
        prune INTEGER NOT NULL,
        start INTEGER NOT NULL,
        count INTEGER NOT NULL
    );
    ",
    // `resolved` says what clones turned out to be that records name, and which record says so,
    // `pending` which clones nobody has read yet.
    "
    CREATE TABLE resolved (name BLOB PRIMARY KEY, object BLOB NOT NULL, seq INTEGER NOT NULL)
        WITHOUT ROWID;
    CREATE TABLE pending (name BLOB PRIMARY KEY, path BLOB NOT NULL, size INTEGER NOT NULL)
        WITHOUT ROWID;
    ",
    // How long a body is that is kept compressed; 0 for one that is kept as it is.
    "ALTER TABLE record ADD COLUMN packed INTEGER NOT NULL DEFAULT 0;",
];

/// The newest version that this program knows.
pub(crate) const VERSION: u64 = MIGRATIONS.len() as u64;

/// The version of a database: 0 for an empty one.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

/// Brings a database from the version it has to the newest, in one transaction.
pub(super) fn migrate(connection: &mut Connection, from: u64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for step in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION.cast_signed())?;
    transaction.commit()
}
