//! Reading the log from its end, for whoever shows the newest first.

use super::{Catalog, sealed};
use crate::error::Result;
use crate::id::Seq;
use crate::record::Sealed;

impl Catalog {
    /// The records before a position, newest first, at most so many.
    pub(crate) fn read_before(&self, before: Seq, limit: usize) -> Result<Vec<Sealed>> {
        let sql = "SELECT seq, leaf, body, leaf_hash, link, packed FROM record WHERE seq < ?1
                   ORDER BY seq DESC LIMIT ?2";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let before = i64::try_from(before.0).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| self.error(e))?;
        statement
            .query_map([before, limit], sealed)
            .and_then(Iterator::collect)
            .map_err(|e| self.error(e))
    }
}
