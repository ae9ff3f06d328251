//! The tables, and which version of them there is.

use chronicle_core::Error;
use postgres::Client;

use crate::fault::Fault;

/// The version that this program writes.
pub(crate) const VERSION: i32 = 1;

/// Whoever comes first makes the tables; the lock keeps a second one waiting until they are there.
const CREATE: &str = "
begin;
select pg_advisory_xact_lock(7164187240156);
create schema if not exists chronicle;
create table if not exists chronicle.format (version integer not null);
insert into chronicle.format select 1 where not exists (select from chronicle.format);
create table if not exists chronicle.logs (
    workspace bytea primary key check (length(workspace) = 16),
    seq bigint not null,
    link bytea not null check (length(link) = 32)
);
create table if not exists chronicle.records (
    workspace bytea not null references chronicle.logs,
    seq bigint not null check (seq > 0),
    leaf bytea not null,
    body bytea not null,
    link bytea not null check (length(link) = 32),
    primary key (workspace, seq)
);
create table if not exists chronicle.commits (
    workspace bytea not null references chronicle.logs,
    key bytea not null,
    seq bigint not null,
    link bytea not null check (length(link) = 32),
    primary key (workspace, key)
);
commit";

/// Makes the tables if there are none, and refuses what this program cannot keep its word with.
pub(crate) fn prepare(client: &mut Client, shown: &str) -> Result<(), Fault> {
    let there = client.query_one("select to_regclass('chronicle.commits') is not null", &[])?;
    if !there.get::<_, bool>(0) {
        client.batch_execute(CREATE)?;
    }
    let found: i32 = client.query_one("select max(version) from chronicle.format", &[])?.get(0);
    if found > VERSION {
        let what = format!("The shared log {shown}");
        let (found, known) = (found.unsigned_abs().into(), VERSION.unsigned_abs().into());
        return Err(Error::Newer { what, found, known }.into());
    }
    let row = client.query_one("select current_setting('fsync')", &[])?;
    if row.get::<_, String>(0) != "on" {
        let words =
            "would lose what it acknowledged in a power cut: its server runs with fsync=off";
        return Err(Error::Usage(format!("The shared log {shown} {words}")).into());
    }
    Ok(())
}
