//! Records that were made elsewhere, taken over as they are, and the life that begins with them.

use rusqlite::{Connection, TransactionBehavior, params};

use super::prune::DROPPED;
use super::{Catalog, body, head, heads, log, repair, state};
use super::{forget, prune};
use crate::codec::{self, kind_number};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::id::{Epoch, Seq};
use crate::mirror::{Segment, Standing};
use crate::record::{Head, Kind, Record, Sealed};

impl Catalog {
    /// Adds records to a log in the making; nothing that follows from them is made yet.
    pub(crate) fn add_segment(&mut self, segment: &Segment) -> Result<()> {
        let path = self.path.clone();
        let at = |error| super::catalog_error(&path, error);
        let transaction = self.connection.transaction().map_err(at)?;
        follow(head(&transaction).map_err(at)?, segment)?;
        for sealed in &segment.records {
            insert(&transaction, sealed)?;
        }
        transaction.commit().map_err(at)
    }

    /// Says in which life this log is, as long as it is in the making.
    pub(crate) fn enter_life(&mut self, epoch: Epoch) -> Result<()> {
        self.set_state("epoch", &epoch.0)?;
        self.epoch = epoch;
        Ok(())
    }

    /// Begins a new life on what is there, as one commit: from here on nothing tells that anybody else
    /// could have gone on with the same log.
    ///
    /// What was announced and has not ended stays where it was made, and so do signed heads.
    pub(crate) fn begin_life(&mut self, genesis: Record, standing: &Standing) -> Result<Head> {
        self.continue_with(&[], genesis, standing)
    }

    /// Adds records that follow the last one here, and begins a new life on them, as one commit.
    pub(crate) fn continue_with(
        &mut self,
        segments: &[Segment],
        genesis: Record,
        standing: &Standing,
    ) -> Result<Head> {
        let path = self.path.clone();
        let at = |error| super::catalog_error(&path, error);
        let epoch = genesis.epoch;
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior).map_err(at)?;
        for segment in segments {
            follow(head(&transaction).map_err(at)?, segment)?;
            for sealed in &segment.records {
                insert(&transaction, sealed)?;
                take_away(&transaction, sealed)?;
            }
        }
        let mut records = [genesis];
        let sealed = log::seal_all(&mut records, head(&transaction).map_err(at)?);
        sealed.iter().try_for_each(|sealed| insert(&transaction, sealed))?;
        // What clones turned out to be must be known before what stands there is remembered, and what was
        // touched where is told by numbers of directories, which that gives anew.
        super::indexes::write_derived(&transaction)?;
        repair::remember(&transaction, standing)?;
        super::indexes::write_derived(&transaction)?;
        end_everything(&transaction, epoch).map_err(at)?;
        let end = head(&transaction).map_err(at)?;
        failpoint::hit("receive_before_commit");
        transaction.commit().map_err(at)?;
        self.epoch = epoch;
        self.trusted.set(false);
        Ok(end)
    }
}

/// Makes sure that a run of records goes on where a log ends.
fn follow(end: Head, segment: &Segment) -> Result<()> {
    match segment.after == end {
        true => Ok(()),
        false => Err(Error::Moved { expected: segment.after.seq, found: end.seq }),
    }
}

fn insert(connection: &Connection, sealed: &Sealed) -> Result<()> {
    let kind = match sealed.leaf.is_empty() {
        true => DROPPED,
        false => i64::from(kind_number(header(sealed)?.kind)),
    };
    let (kept, packed) = body::pack(&sealed.body);
    let sql = "INSERT INTO record (seq, kind, leaf_hash, link, leaf, body, packed)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let insert = || {
        connection.prepare_cached(sql)?.execute(params![
            sealed.seq.0.cast_signed(),
            kind,
            &sealed.leaf_hash.0[..],
            &sealed.link.0[..],
            sealed.leaf,
            kept,
            packed,
        ])
    };
    insert().map(drop).map_err(|source| catalog_error(connection, source))
}

fn header(sealed: &Sealed) -> Result<Record> {
    codec::decode_header(&sealed.leaf).map_err(|source| Error::Record { seq: sealed.seq, source })
}

/// Does to older records what a record that takes history away did to them where it was made.
fn take_away(connection: &Connection, sealed: &Sealed) -> Result<()> {
    if sealed.leaf.is_empty() || sealed.body.is_empty() {
        return Ok(());
    }
    let open = || {
        codec::open(&sealed.leaf, &sealed.body)
            .map_err(|source| Error::Record { seq: sealed.seq, source })
    };
    let taken = match header(sealed)?.kind {
        Kind::Prune => prune::apply(connection, &mut state::Directories::new(connection), &open()?),
        Kind::Forget => forget::apply(connection, &open()?),
        _ => return Ok(()),
    };
    taken.map_err(|source| catalog_error(connection, source))
}

/// Nobody is at work any more, and nobody has signed this life yet.
fn end_everything(connection: &Connection, epoch: Epoch) -> rusqlite::Result<()> {
    connection.execute_batch(
        "DELETE FROM by_id WHERE kind IN (1, 2, 3); DELETE FROM local; DELETE FROM plan;
         DELETE FROM applied; DELETE FROM pending;",
    )?;
    heads::forget_all(connection)?;
    let sql = "INSERT OR REPLACE INTO state (key, value) VALUES ('epoch', ?1)";
    connection.execute(sql, [&epoch.0[..]]).map(drop)
}

fn catalog_error(connection: &Connection, source: rusqlite::Error) -> Error {
    super::catalog_error(connection.path().unwrap_or_default().as_ref(), source)
}

impl Catalog {
    /// Up to where a prune dropped records: what stood there is not told by any record.
    pub(crate) fn dropped_up_to(&self) -> Result<Seq> {
        let mut last = Seq(0);
        for seq in self.of_kind(Kind::Prune)? {
            let Some(sealed) = self.record(seq)? else { continue };
            let dropped = header(&sealed)?.labels.pruned.into_iter();
            let dropped = dropped.filter(|range| range.merged.is_none()).map(|range| range.last);
            last = dropped.chain([last]).max().unwrap_or(last);
        }
        Ok(last)
    }

    /// Keeps a value of this machine, on its own.
    pub(crate) fn set_state(&self, key: &str, value: &[u8]) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO state (key, value) VALUES (?1, ?2)";
        self.connection.execute(sql, params![key, value]).map(drop).map_err(|e| self.error(e))
    }
}
