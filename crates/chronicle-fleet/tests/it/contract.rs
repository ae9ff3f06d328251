//! One contract for every log: memory, SQLite and PostgreSQL.

use chronicle_core::{Error, Head, Log, MemoryLog, WorkspaceId, sqlite_log};
use chronicle_testing::log_contract::{WORKSPACE, check, names, record};

use crate::server::Server;

#[test]
fn every_log_keeps_one_contract() {
    let Some(server) = Server::start("every_log_keeps_one_contract") else { return };
    let scratch = tempfile::tempdir().unwrap();
    check(&mut MemoryLog::default());
    check(&mut *sqlite_log(&scratch.path().join("log.db"), WORKSPACE).unwrap());
    check(&mut server.log(WORKSPACE));
    // Whoever comes later reads the same.
    assert_eq!(names(&server.log(WORKSPACE)), ["a", "b", "c", "d"]);
    // Another workspace has a log of its own in the same tables, and keys of its own.
    let mut other = server.log(WorkspaceId([7; 16]));
    check(&mut other);
}

#[test]
fn a_server_that_starts_anew_has_everything_and_is_waited_for() {
    let test = "a_server_that_starts_anew_has_everything_and_is_waited_for";
    let Some(mut server) = Server::start(test) else { return };
    let mut log = server.log(WORKSPACE);
    let one = log.commit(vec![record("one")], Head::EMPTY, None).unwrap();
    server.cluster.stop_at_once();
    server.cluster.start();
    let two = log.commit(vec![record("two")], one, Some(b"two")).unwrap();
    assert_eq!((names(&log), log.head().unwrap()), (vec!["one".to_owned(), "two".to_owned()], two));
}

#[test]
fn newer_tables_and_a_server_that_forgets_are_refused() {
    let test = "newer_tables_and_a_server_that_forgets_are_refused";
    let Some(server) = Server::start(test) else { return };
    let address = chronicle_fleet::Address::parse(&server.url(), None).unwrap();
    let open = || chronicle_fleet::PostgresLog::open(&address, WORKSPACE).map(|_| ());
    open().unwrap();
    server.cluster.sql("update chronicle.format set version = 2");
    assert!(matches!(open(), Err(Error::Newer { found: 2, known: 1, .. })));
    server.cluster.sql("update chronicle.format set version = 1");
    server.cluster.sql("alter system set fsync = off");
    server.cluster.sql("select pg_reload_conf()");
    let said = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        open().err()
    });
    assert!(said.unwrap().to_string().contains("fsync=off"));
}
