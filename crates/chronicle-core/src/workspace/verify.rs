//! Reading everything back: the chain from its first link, the objects that records name, and,
//! asked for, every object's bytes.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Workspace;
use crate::catalog::Log;
use crate::error::{Error, Result};
use crate::id::{LinkHash, ObjectId, Seq};
use crate::record::{Record, Sealed};
use crate::store::ContentStorage;
use crate::view::{SCHEMA, VerifyReport};
use crate::{chain, codec};

impl Workspace {
    /// Recomputes the chain and checks that every object is there; `deep` reads each one back.
    pub fn verify(&self, deep: bool, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<VerifyReport> {
        let (mut previous, mut seq) = (LinkHash::ZERO, Seq(0));
        let mut objects = HashSet::new();
        loop {
            let records = self.catalog.read(seq, 64)?;
            if records.is_empty() {
                break;
            }
            for sealed in &records {
                let record = self.verify_record(sealed, seq.next(), &previous)?;
                (previous, seq) = (sealed.link, sealed.seq);
                for change in &record.changes {
                    objects.extend(change.before.object());
                    objects.extend(change.after.object());
                }
            }
        }
        let objects: Vec<ObjectId> = objects.into_iter().collect();
        self.verify_objects(&objects, deep, progress)?;
        Ok(VerifyReport {
            schema: SCHEMA,
            records: seq.0,
            objects: objects.len() as u64,
            objects_read: if deep { objects.len() as u64 } else { 0 },
            head_hash: previous.hex(),
        })
    }

    fn verify_record(&self, sealed: &Sealed, expected: Seq, previous: &LinkHash) -> Result<Record> {
        let bad = |why: &str| Error::Tampered { seq: expected, why: why.to_owned() };
        if sealed.seq != expected {
            return Err(bad("the record is missing"));
        }
        if chain::leaf_hash(&sealed.leaf) != sealed.leaf_hash {
            return Err(bad("the record was edited"));
        }
        if chain::link(previous, &sealed.leaf_hash) != sealed.link {
            return Err(bad("the record does not follow the one before it"));
        }
        let record =
            codec::open(&sealed.leaf, &sealed.body).map_err(|error| bad(&error.to_string()))?;
        if record.seq != expected
            || record.workspace != self.id
            || record.epoch != self.catalog.epoch()
        {
            return Err(bad("the record belongs to another place"));
        }
        Ok(record)
    }

    fn verify_objects(
        &self,
        ids: &[ObjectId],
        deep: bool,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<()> {
        let objects = self.objects()?;
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let check = |id: &ObjectId| -> Result<()> {
            if deep {
                let mut reader = objects.reader(id)?;
                std::io::copy(&mut reader, &mut std::io::sink())
                    .map_err(|error| Error::Corrupt { object: *id, why: error.to_string() })?;
            } else if !objects.exists(id)? {
                return Err(Error::Missing(*id));
            }
            Ok(())
        };
        let work = || {
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                let stop = match check(id) {
                    Ok(()) => false,
                    Err(error) => {
                        failed.lock().expect("no holder panics").get_or_insert(error);
                        true
                    }
                };
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, ids.len() as u64);
                if stop || failed.lock().expect("no holder panics").is_some() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        failed.into_inner().expect("no holder panics").map_or(Ok(()), Err)
    }
}
