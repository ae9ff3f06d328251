//! Which revision of a schema a database has: the tables that migration tools keep, in order of asking.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::Result;
use crate::part::Part;
use crate::programs::Program;

/// How long a command that tells the revision may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Each tool, its table, and how to ask for the newest migration.
pub(crate) const TABLES: [(&str, &str, &str); 8] = [
    ("alembic", "alembic_version", "SELECT max(version_num) FROM alembic_version"),
    (
        "django",
        "django_migrations",
        "SELECT app || '.' || name FROM django_migrations ORDER BY id DESC LIMIT 1",
    ),
    (
        "prisma",
        "_prisma_migrations",
        "SELECT migration_name FROM _prisma_migrations WHERE rolled_back_at IS NULL \
         ORDER BY migration_name DESC LIMIT 1",
    ),
    ("rails", "schema_migrations", "SELECT CAST(max(version) AS TEXT) FROM schema_migrations"),
    (
        "flyway",
        "flyway_schema_history",
        "SELECT version FROM flyway_schema_history WHERE version IS NOT NULL \
         ORDER BY installed_rank DESC LIMIT 1",
    ),
    ("diesel", "__diesel_schema_migrations", "SELECT max(version) FROM __diesel_schema_migrations"),
    ("sqlx", "_sqlx_migrations", "SELECT CAST(max(version) AS TEXT) FROM _sqlx_migrations"),
    ("knex", "knex_migrations", "SELECT name FROM knex_migrations ORDER BY id DESC LIMIT 1"),
];

/// The revision by the part's own command, if it has one.
pub(crate) fn by_command(part: &Part, within: &Path) -> Result<Option<String>> {
    let Some((program, arguments)) = part.revision.as_deref().and_then(<[String]>::split_first)
    else {
        return Ok(None);
    };
    let said = Program::new(program, LIMIT).args(arguments).within(within).run()?;
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().next().map(|line| format!("command {}", line.trim())))
}

/// The revision of a SQLite database, in a word for the tool and one for the migration.
pub(crate) fn of_sqlite(path: &Path) -> Option<String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    connection.busy_timeout(Duration::from_secs(2)).ok()?;
    for (tool, table, question) in TABLES {
        let there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if connection.query_row(there, [table], |_| Ok(())).is_err() {
            continue;
        }
        // A table of that name may be somebody else's.
        if let Ok(Some(revision)) =
            connection.query_row(question, [], |row| row.get::<_, Option<String>>(0))
        {
            return Some(format!("{tool} {revision}"));
        }
    }
    let version =
        connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).ok()?;
    (version != 0).then(|| format!("user_version {version}"))
}
