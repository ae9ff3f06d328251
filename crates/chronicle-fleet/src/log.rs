//! [`Log`] over the tables.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use chronicle_core::{
    Error, Finding, Head, LinkHash, Log, Record, Result, Sealed, Seq, WorkspaceId, link_after,
    seal_all,
};
use postgres::{Client, Row, Transaction};

use crate::address::Address;
use crate::fault::{Fault, unusable};
use crate::schema;

/// How long a request is tried again before it is given up: a server that starts anew is back by then.
const PATIENCE: Duration = Duration::from_secs(15);
/// The pause before the next try.
const PAUSE: Duration = Duration::from_millis(50);

/// One workspace's log in a database that several hosts use.
pub struct PostgresLog {
    address: Address,
    workspace: WorkspaceId,
    client: RefCell<Option<Client>>,
    /// The last record that was read, or written and acknowledged: history up to here must not become another.
    seen: Cell<Head>,
}

impl PostgresLog {
    /// Connects, makes the tables if there are none, and refuses a server that does not keep what it acknowledges.
    pub fn open(address: &Address, workspace: WorkspaceId) -> Result<Self> {
        let (client, seen) = (RefCell::default(), Cell::new(Head::EMPTY));
        let log = Self { address: address.clone(), workspace, client, seen };
        log.attempt(|client| schema::prepare(client, log.address.shown()))?;
        Ok(log)
    }

    /// Does something until it is done, or refused, or patience ends; each try on a link that works.
    fn attempt<T>(&self, act: impl Fn(&mut Client) -> Result<T, Fault>) -> Result<T> {
        let begun = Instant::now();
        loop {
            let error = match self.connected(&act) {
                Ok(done) => return Ok(done),
                Err(Fault::Final(error)) => return Err(error),
                Err(Fault::Refused(error)) => return Err(unusable(self.address.shown(), &error)),
                Err(Fault::Passing(error)) => error,
            };
            // Whatever was under way on it is over: what became of it is asked on the next one.
            self.client.replace(None);
            if begun.elapsed() > PATIENCE {
                return Err(unusable(self.address.shown(), &error));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn connected<T>(&self, act: impl Fn(&mut Client) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut client = self.client.borrow_mut();
        if client.is_none() {
            *client = Some(self.address.connect()?);
        }
        match client.as_mut() {
            Some(client) => act(client),
            None => Err(Error::Usage("The shared log is not connected".to_owned()).into()),
        }
    }

    /// One try of a commit. The row that says where the log ends stays locked to its end, so that whatever an earlier
    /// try left under way on the server is over, one way or the other, before its key is looked for.
    fn try_commit(
        &self,
        client: &mut Client,
        sealed: &[Sealed],
        expected: Head,
        key: &[u8],
    ) -> Result<Head, Fault> {
        let workspace = &self.workspace.0[..];
        let mut transaction = client.transaction()?;
        let found = locked_head(&mut transaction, workspace)?;
        let applied = transaction.query_opt(
            "select seq, link from chronicle.commits where workspace = $1 and key = $2",
            &[&workspace, &key],
        )?;
        if let Some(row) = applied {
            return Ok(head_of(&row)?);
        }
        if found != expected {
            return Err(Error::Moved { expected: expected.seq, found: found.seq }.into());
        }
        let head = sealed.last().map_or(expected, |last| Head { seq: last.seq, link: last.link });
        append(&mut transaction, workspace, sealed)?;
        let (seq, link) = (head.seq.0.cast_signed(), &head.link.0[..]);
        transaction.execute(
            "insert into chronicle.commits values ($1, $2, $3, $4)",
            &[&workspace, &key, &seq, &link],
        )?;
        transaction.execute(
            "update chronicle.logs set seq = $2, link = $3 where workspace = $1",
            &[&workspace, &seq, &link],
        )?;
        transaction.commit()?;
        Ok(head)
    }

    /// Binds rows to the record before them; what does not fit was not written by [`Log::commit`].
    fn checked(&self, after: Seq, rows: &[Row]) -> Result<Vec<Sealed>> {
        let (mut head, mut rows) = (Head::EMPTY, rows);
        if after.0 > 0 {
            let Some((first, rest)) = rows.split_first() else {
                return tampered(after, Finding::Truncated, "it is gone");
            };
            (head, rows) = (head_of(first)?, rest);
            if head.seq != after {
                return tampered(after, Finding::Deleted, "it is gone");
            }
        }
        let seen = self.seen.get();
        if head.seq == seen.seq && head.link != seen.link {
            return tampered(
                after,
                Finding::Forked,
                "it is not the record that stood there before",
            );
        }
        let mut read = Vec::with_capacity(rows.len());
        for row in rows {
            let sealed = sealed_after(head, row)?;
            head = Head { seq: sealed.seq, link: sealed.link };
            read.push(sealed);
        }
        if head.seq > seen.seq {
            self.seen.set(head);
        }
        Ok(read)
    }
}

impl Log for PostgresLog {
    fn head(&self) -> Result<Head> {
        let workspace = &self.workspace.0[..];
        let sql = "select seq, link from chronicle.logs where workspace = $1";
        let row = self.attempt(|client| Ok(client.query_opt(sql, &[&workspace])?))?;
        row.map_or(Ok(Head::EMPTY), |row| head_of(&row))
    }

    fn commit(
        &mut self,
        mut records: Vec<Record>,
        expected: Head,
        idempotency: Option<&[u8]>,
    ) -> Result<Head> {
        // A link that is lost while the server commits leaves open whether it did: the key tells.
        let key = idempotency.map_or_else(random_key, <[u8]>::to_vec);
        let sealed = seal_all(&mut records, expected);
        self.attempt(|client| self.try_commit(client, &sealed, expected, &key))
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Sealed>> {
        let workspace = &self.workspace.0[..];
        // With the record before, to which the first is bound.
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(i64::from(after.0 > 0));
        let from = after.0.cast_signed();
        let sql = "select seq, link, leaf, body from chronicle.records \
                   where workspace = $1 and seq >= $2 order by seq limit $3";
        let rows = self.attempt(|client| Ok(client.query(sql, &[&workspace, &from, &most])?))?;
        self.checked(after, &rows)
    }
}

/// Where the log ends, with the row locked; made if it is the first time.
fn locked_head(transaction: &mut Transaction<'_>, workspace: &[u8]) -> Result<Head, Fault> {
    let sql = "select seq, link from chronicle.logs where workspace = $1 for update";
    if let Some(row) = transaction.query_opt(sql, &[&workspace])? {
        return Ok(head_of(&row)?);
    }
    let zero = &LinkHash::ZERO.0[..];
    transaction.execute(
        "insert into chronicle.logs values ($1, 0, $2) on conflict do nothing",
        &[&workspace, &zero],
    )?;
    Ok(head_of(&transaction.query_one(sql, &[&workspace])?)?)
}

fn append(
    transaction: &mut Transaction<'_>,
    workspace: &[u8],
    sealed: &[Sealed],
) -> Result<(), Fault> {
    let statement =
        transaction.prepare("insert into chronicle.records values ($1, $2, $3, $4, $5)")?;
    for record in sealed {
        let (seq, link) = (record.seq.0.cast_signed(), &record.link.0[..]);
        transaction.execute(&statement, &[&workspace, &seq, &record.leaf, &record.body, &link])?;
    }
    Ok(())
}

fn head_of(row: &Row) -> Result<Head> {
    let (seq, link): (i64, &[u8]) = (row.get(0), row.get(1));
    let seq = Seq(seq.cast_unsigned());
    match LinkHash::from_slice(link) {
        Some(link) => Ok(Head { seq, link }),
        None => tampered(seq, Finding::Edited, "its link is no hash"),
    }
}

fn sealed_after(before: Head, row: &Row) -> Result<Sealed> {
    let (stored, seq) = (head_of(row)?, before.seq.next());
    if stored.seq != seq {
        return tampered(seq, Finding::Deleted, "another record stands in its place");
    }
    let (leaf, body): (Vec<u8>, Vec<u8>) = (row.get(2), row.get(3));
    let (leaf_hash, link) = link_after(before, &leaf);
    if link != stored.link {
        return tampered(seq, Finding::Edited, "it is not bound to the record before it");
    }
    Ok(Sealed { seq, leaf, body, leaf_hash, link })
}

fn tampered<T>(seq: Seq, finding: Finding, why: &str) -> Result<T> {
    Err(Error::Tampered { seq, finding, why: format!("in the shared log, {why}") })
}

fn random_key() -> Vec<u8> {
    let mut key = vec![0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    let filled = rustix::rand::getrandom(&mut key, flags);
    assert!(filled == Ok(16), "BUG: the kernel gives sixteen random bytes");
    key
}
