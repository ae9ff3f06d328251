//! The log as an interface: append records, read them back, know where it ends.
//!
//! No SQL types, so that the same records can lie in SQLite, in memory or in a server.

use std::collections::HashMap;
use std::path::Path;

use super::Catalog;
use crate::chain;
use crate::codec::{self, seal};
use crate::error::{Error, Finding, Result};
use crate::id::{LeafHash, LinkHash, Seq, WorkspaceId};
use crate::record::{Head, Record, Sealed};

/// An append-only sequence of records, each bound to the one before.
pub trait Log {
    /// Where the log ends.
    fn head(&self) -> Result<Head>;

    /// Appends records if the log still ends where the caller thinks, and tells the new end.
    ///
    /// A commit that was already applied under the same `idempotency` key is not applied again.
    fn commit(
        &mut self,
        records: Vec<Record>,
        expected: Head,
        idempotency: Option<&[u8]>,
    ) -> Result<Head>;

    /// The records after a position, at most so many.
    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Sealed>>;
}

/// A log in a SQLite file of its own, made if it is not there; a workspace's log is such a one.
pub fn sqlite_log(path: &Path, workspace: WorkspaceId) -> Result<Box<dyn Log + Send>> {
    let catalog = match path.exists() {
        true => Catalog::open(path)?,
        false => Catalog::create(path, workspace)?,
    };
    Ok(Box::new(catalog))
}

/// What a sealed record says, if it follows a head byte by byte; nobody who keeps a log for others is believed.
pub fn open_next(sealed: &Sealed, before: Head) -> Result<Record> {
    let tampered = |finding, why: &str| {
        Err(Error::Tampered { seq: before.seq.next(), finding, why: why.to_owned() })
    };
    if sealed.seq != before.seq.next() {
        return tampered(Finding::Deleted, "another record stands in its place");
    }
    if chain::leaf_hash(&sealed.leaf) != sealed.leaf_hash
        || chain::link(&before.link, &sealed.leaf_hash) != sealed.link
    {
        return tampered(Finding::Edited, "it is not bound to the record before it");
    }
    let opened = codec::open(&sealed.leaf, &sealed.body);
    let record = opened.map_err(|source| Error::Record { seq: sealed.seq, source })?;
    if record.seq != sealed.seq {
        return tampered(Finding::Inserted, "it was made for another place");
    }
    Ok(record)
}

/// The hash of a record's leaf, and the link that binds it to the record before.
pub fn link_after(before: Head, leaf: &[u8]) -> (LeafHash, LinkHash) {
    let leaf_hash = chain::leaf_hash(leaf);
    (leaf_hash, chain::link(&before.link, &leaf_hash))
}

/// Numbers records from a head on and binds each to the one before.
pub fn seal_all(records: &mut [Record], mut head: Head) -> Vec<Sealed> {
    let mut sealed = Vec::with_capacity(records.len());
    for record in records {
        record.seq = head.seq.next();
        let next = seal(record, &head.link);
        head = Head { seq: next.seq, link: next.link };
        sealed.push(next);
    }
    sealed
}

/// A log in memory.
#[derive(Debug, Default)]
pub struct MemoryLog {
    records: Vec<Sealed>,
    applied: HashMap<Vec<u8>, Head>,
}

impl Log for MemoryLog {
    fn head(&self) -> Result<Head> {
        Ok(self.records.last().map_or(Head::EMPTY, |last| Head { seq: last.seq, link: last.link }))
    }

    fn commit(
        &mut self,
        mut records: Vec<Record>,
        expected: Head,
        idempotency: Option<&[u8]>,
    ) -> Result<Head> {
        if let Some(head) = idempotency.and_then(|key| self.applied.get(key)) {
            return Ok(*head);
        }
        let found = self.head()?;
        if found != expected {
            return Err(Error::Moved { expected: expected.seq, found: found.seq });
        }
        self.records.extend(seal_all(&mut records, expected));
        let head = self.head()?;
        if let Some(key) = idempotency {
            self.applied.insert(key.to_vec(), head);
        }
        Ok(head)
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Sealed>> {
        let start = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(self.records.iter().skip(start).take(limit).cloned().collect())
    }
}
