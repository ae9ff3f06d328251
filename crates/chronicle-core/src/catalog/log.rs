//! The log as an interface: append records, read them back, know where it ends.
//!
//! No SQL types, so that the same records can lie in SQLite, in memory or in a server.

use std::collections::HashMap;

use crate::codec::seal;
use crate::error::{Error, Result};
use crate::id::Seq;
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

/// Numbers records from a head on and binds each to the one before.
pub(crate) fn seal_all(records: &mut [Record], mut head: Head) -> Vec<Sealed> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::codec;
    use crate::id::{Epoch, LinkHash, Time, WorkspaceId};
    use crate::record::{Kind, Labels};

    fn record(name: &str) -> Record {
        Record {
            seq: Seq(0),
            workspace: WorkspaceId([1; 16]),
            epoch: Epoch([2; 16]),
            time: Time(5),
            kind: Kind::Pin,
            labels: Labels { name: Some(name.to_owned()), ..Labels::default() },
            changes: Vec::new(),
        }
    }

    /// What every log promises.
    fn contract(log: &mut dyn Log) {
        assert_eq!(log.head().unwrap(), Head::EMPTY);
        let two = log.commit(vec![record("a"), record("b")], Head::EMPTY, None).unwrap();
        assert_eq!(two.seq, Seq(2));
        let stale = log.commit(vec![record("c")], Head::EMPTY, None);
        assert!(matches!(stale, Err(Error::Moved { expected: Seq(0), found: Seq(2) })));
        let three = log.commit(vec![record("c")], two, Some(b"key")).unwrap();
        assert_eq!(log.commit(vec![record("c")], two, Some(b"key")).unwrap(), three);
        let read = log.read(Seq(0), 10).unwrap();
        assert_eq!(read.iter().map(|sealed| sealed.seq.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(log.read(Seq(1), 1).unwrap()[0], read[1]);
        let mut previous = LinkHash::ZERO;
        for (sealed, name) in read.iter().zip(["a", "b", "c"]) {
            let opened = codec::open(&sealed.leaf, &sealed.body).unwrap();
            assert_eq!(opened.labels.name.as_deref(), Some(name));
            assert_eq!(crate::chain::link(&previous, &sealed.leaf_hash), sealed.link);
            previous = sealed.link;
        }
        assert_eq!(log.head().unwrap(), Head { seq: Seq(3), link: previous });
    }

    #[test]
    fn memory_keeps_the_contract() {
        contract(&mut MemoryLog::default());
    }

    #[test]
    fn sqlite_keeps_the_contract() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("catalog.db");
        contract(&mut Catalog::create(&path, WorkspaceId([1; 16])).unwrap());
        assert_eq!(Catalog::open(&path).unwrap().head().unwrap().seq, Seq(3));
    }
}
