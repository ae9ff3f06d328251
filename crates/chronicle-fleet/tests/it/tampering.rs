//! The server is not believed: whatever is changed in its tables is found when it is read.

use chronicle_core::{Error, Head, Log, Seq, open_next};
use chronicle_fleet::PostgresLog;
use chronicle_testing::log_contract::{WORKSPACE, record};

use crate::server::Server;

/// Everything as a host reads it: with what the records say.
fn read(log: &PostgresLog) -> Result<usize, Error> {
    let mut head = Head::EMPTY;
    loop {
        let read = log.read(head.seq, 2)?;
        if read.is_empty() {
            return Ok(usize::try_from(head.seq.0).unwrap());
        }
        for sealed in read {
            open_next(&sealed, head)?;
            head = Head { seq: sealed.seq, link: sealed.link };
        }
    }
}

fn filled(server: &Server) -> PostgresLog {
    let mut log = server.log(WORKSPACE);
    let mut head = Head::EMPTY;
    for name in ["a", "b", "c", "d", "e"] {
        let mut said = record(name);
        let path = chronicle_core::WorkspacePath::new(name.as_bytes()).unwrap();
        said.changes.push(chronicle_core::Change {
            path,
            before: chronicle_core::Entry::Absent,
            after: chronicle_core::Entry::Absent,
            from: None,
            author: chronicle_core::Author::Person,
            evidence: chronicle_core::Evidence::Named,
            neutral: false,
        });
        head = log.commit(vec![said], head, None).unwrap();
    }
    log
}

#[test]
fn whatever_is_done_to_rows_is_found() {
    let Some(server) = Server::start("whatever_is_done_to_rows_is_found") else { return };
    assert_eq!(read(&filled(&server)).unwrap(), 5);
    let attacks = [
        "update chronicle.records set leaf = overlay(leaf placing '\\x00' from 20) where seq = 3",
        "update chronicle.records set body = overlay(body placing '\\x00' from 3) where seq = 3",
        "update chronicle.records set body = '' where seq = 2",
        "update chronicle.records set link = decode(repeat('ab', 32), 'hex') where seq = 4",
        "delete from chronicle.records where seq = 3",
        "delete from chronicle.records where seq = 1",
        "update chronicle.records set seq = -seq + 7 where false; \
         update chronicle.records a set leaf = b.leaf, body = b.body from chronicle.records b \
         where (a.seq, b.seq) in ((2, 3), (3, 2))",
        "update chronicle.records set leaf = (select leaf from chronicle.records where seq = 2), \
         body = (select body from chronicle.records where seq = 2) where seq = 4",
    ];
    for attack in attacks {
        server.cluster.sql("create table saved as select * from chronicle.records");
        server.cluster.sql(attack);
        let found = read(&server.log(WORKSPACE));
        assert!(
            matches!(found, Err(Error::Tampered { .. } | Error::Record { .. })),
            "{attack}: {found:?}"
        );
        server.cluster.sql("delete from chronicle.records");
        server.cluster.sql("insert into chronicle.records select * from saved; drop table saved");
        assert_eq!(read(&server.log(WORKSPACE)).unwrap(), 5, "{attack} was undone");
    }
}

#[test]
fn who_has_read_once_notices_another_past() {
    let Some(server) = Server::start("who_has_read_once_notices_another_past") else { return };
    let log = filled(&server);
    assert_eq!(read(&log).unwrap(), 5);
    // All of it anew, as somebody would who rules the server: every link fits, and yet it is another.
    server.cluster.sql("delete from chronicle.records; delete from chronicle.commits");
    server.cluster.sql("delete from chronicle.logs");
    filled(&server);
    let again = log.read(Seq(5), 2);
    assert!(matches!(again, Err(Error::Tampered { seq: Seq(5), .. })), "{again:?}");
}
