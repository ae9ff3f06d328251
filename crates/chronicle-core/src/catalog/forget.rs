//! What becomes of the records that a forget names, in the forget record's own transaction; and
//! scrubbing a catalog, so that nothing of what it held is left in its files.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::{Catalog, LocalState, body, clones};
use crate::codec::{DecodeError, Decoder, Encoder, SALT_SIZE, encode_change};
use crate::entry::Change;
use crate::error::{Error, Result};
use crate::id::{ObjectId, Seq};
use crate::record::Record;

/// What a forget has still to take away: the names of objects, none if only scrubbing is left.
pub(crate) const FORGETTING: &str = "forgetting";

/// Puts the redacted changes of a forget record in the place of the old ones, without their salts.
pub(super) fn apply(connection: &Connection, forget: &Record) -> rusqlite::Result<()> {
    let mut by_record: BTreeMap<Seq, BTreeMap<usize, &Change>> = BTreeMap::new();
    for (at, redacted) in forget.labels.forgotten.iter().zip(&forget.changes) {
        by_record.entry(at.seq).or_default().insert(at.index as usize, redacted);
    }
    for (seq, redacted) in by_record {
        let seq = seq.0.cast_signed();
        let sql = "SELECT body, packed FROM record WHERE seq = ?1";
        let body = connection.prepare_cached(sql)?.query_row([seq], |row| {
            Ok(body::unpack(row.get_ref(0)?.as_blob()?, row.get(1)?).into_owned())
        })?;
        let said = clones::changes_at(&body, &mut |place| redacted.contains_key(&place));
        clones::forget(connection, &said.map_err(clones::malformed)?)?;
        let body = redact(&body, &redacted).map_err(clones::malformed)?;
        let (kept, packed) = body::pack(&body);
        let sql = "UPDATE record SET body = ?2, packed = ?3 WHERE seq = ?1";
        connection.prepare_cached(sql)?.execute(params![seq, kept, packed])?;
    }
    // A plan that was shown may mean content that is gone.
    connection.execute("DELETE FROM plan", []).map(drop)
}

/// A body in which some changes have no salt and say less.
fn redact(body: &[u8], redacted: &BTreeMap<usize, &Change>) -> Result<Vec<u8>, DecodeError> {
    let mut input = Decoder(body);
    let mut out = Encoder(Vec::with_capacity(body.len()));
    let mut index = 0;
    while !input.0.is_empty() {
        let (salt, bytes) = (input.fixed(SALT_SIZE)?, input.bytes()?);
        match redacted.get(&index) {
            None => {
                out.fixed(salt);
                out.bytes(bytes);
            }
            Some(change) => {
                let mut scratch = Encoder::default();
                encode_change(&mut scratch, change);
                out.fixed(&[0; SALT_SIZE]);
                out.bytes(&scratch.0);
            }
        }
        index += 1;
    }
    Ok(out.0)
}

impl Catalog {
    /// The objects that a forget has still to take away; `None` if it is done.
    pub(crate) fn forgetting(&self) -> Result<Option<Vec<ObjectId>>> {
        let names = |bytes: Vec<u8>| bytes.chunks_exact(32).filter_map(object).collect();
        Ok(self.state(FORGETTING)?.map(names))
    }

    /// Takes these small contents away and leaves nothing of them in the files, nor of anything else
    /// that is not needed any more. Copies elsewhere that could not be taken away are remembered.
    pub(crate) fn scrub(&mut self, gone: &[ObjectId], copies: &[ObjectId]) -> Result<()> {
        let scrub = || -> rusqlite::Result<bool> {
            // What is overwritten, and the pages that are written anew, begin as zeros.
            self.connection.pragma_update(None, "secure_delete", true)?;
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            let marked = self.delete_objects(gone, copies);
            let end = if marked.is_ok() { "COMMIT" } else { "ROLLBACK" };
            self.connection.execute_batch(end)?;
            marked?;
            // Free space inside pages that nobody cleared when it became free.
            self.connection.execute_batch("VACUUM")?;
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            let busy: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
            if busy == 0 && copies.is_empty() {
                self.connection.execute("DELETE FROM state WHERE key = ?1", [FORGETTING])?;
            }
            Ok(busy == 0)
        };
        match scrub().map_err(|error| self.error(error))? {
            true => Ok(()),
            false => {
                Err(Error::Busy(format!("another process is reading {}", self.path.display())))
            }
        }
    }

    /// Deletes small contents, and says in the same transaction that scrubbing is left, or more.
    fn delete_objects(&self, gone: &[ObjectId], copies: &[ObjectId]) -> rusqlite::Result<()> {
        let mut delete = self.connection.prepare("DELETE FROM object WHERE id = ?1")?;
        for id in gone {
            delete.execute([&id.0[..]])?;
        }
        let left: Vec<u8> = copies.iter().flat_map(|id| id.0).collect();
        let sql = "INSERT OR REPLACE INTO state (key, value) VALUES (?1, ?2)";
        self.connection.execute(sql, rusqlite::params![FORGETTING, left]).map(drop)
    }
}

fn object(bytes: &[u8]) -> Option<ObjectId> {
    bytes.try_into().ok().map(ObjectId)
}
