//! Reading everything back: the chain from its first link, the objects that records name, the signed
//! heads, what witnesses saw, and, asked for, every object's bytes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Workspace;
use super::verify_chain::{self, Which};
use super::verify_heads::{Outside, Stored, read_all, witness_view};
use crate::base64;
use crate::catalog::{Log, misfit};
use crate::error::{Error, Result};
use crate::head::Anchor;
use crate::id::{ObjectId, ObjectSet, Seq};
use crate::merkle;
use crate::record::Kind;
use crate::store::ContentStorage;
use crate::view::{SCHEMA, VerifyReport};

/// How to verify.
#[derive(Debug, Clone, Default)]
pub struct VerifyRequest {
    /// Read every object back too.
    pub deep: bool,
    /// A head that was noted elsewhere.
    pub anchor: Option<Anchor>,
}

/// How objects are that were looked for.
pub(super) struct CheckedObjects {
    /// Those that are not well.
    pub(super) bad: Vec<(ObjectId, Error)>,
    /// How many are there, but sealed with a key that cannot be used here.
    pub(super) sealed: u64,
    /// How many were taken away because another store has them.
    pub(super) away: u64,
}

impl Workspace {
    /// Recomputes the chain and the tree, compares both with everything that was signed, and checks
    /// that every object is there; `deep` reads each one back.
    pub fn verify(&self, deep: bool, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<VerifyReport> {
        self.verify_with(&VerifyRequest { deep, anchor: None }, progress)
    }

    /// The same, compared with a head that was noted elsewhere too.
    ///
    /// A prune beside it takes away what was about to be read, and so does whoever reads a clone, which
    /// then looks like damage: what is found while one was recorded is looked for again.
    pub fn verify_with(
        &self,
        request: &VerifyRequest,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<VerifyReport> {
        loop {
            let pruned = self.last_removals();
            match self.verify_once(request, progress) {
                Err(error) if error.is_damage() && self.last_removals() != pruned => {}
                verified => return verified,
            }
        }
    }

    /// The newest prune and the newest resolve; nothing where the catalog cannot tell.
    fn last_removals(&self) -> [Option<Seq>; 2] {
        [Kind::Prune, Kind::Resolve].map(|kind| self.catalog.of_kind(kind).ok()?.last().copied())
    }

    /// Takes out of these what lies in the catalog; what that is kept against comes in.
    fn forget_rows(&self, named: &mut ObjectSet) -> Result<()> {
        let mut below = Vec::new();
        self.catalog.for_each_object(&mut |id, base| {
            if named.remove(&id) {
                below.extend(base);
            }
        })?;
        below.sort_unstable();
        below.dedup();
        for id in below {
            if !self.catalog.has_object(&id)? {
                named.insert(id);
            }
        }
        for id in self.store.large()? {
            if named.contains(&id) {
                named.extend(self.store.pieces_of(&id)?);
            }
        }
        Ok(())
    }

    fn verify_once(
        &self,
        request: &VerifyRequest,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<VerifyReport> {
        let stored = self.stored()?;
        let asked = self.ask_witnesses(request.anchor.clone());
        // A witness that is lost is worth less than what the history itself shows.
        let (outside, lost) = match asked {
            Ok(outside) => (outside, None),
            Err(error) => (Outside::default(), Some(error)),
        };
        let end = stored.end;
        let heads = stored.heads.iter().map(|row| row.size);
        let mut sizes: Vec<u64> = heads.chain(outside.sizes()).chain([end.0]).collect();
        sizes.retain(|size| (1..=end.0).contains(size));
        sizes.sort_unstable();
        sizes.dedup();
        let which = Which::of(&self.catalog, self.id, end)?;
        let path = self.catalog_path();
        let mut checked = verify_chain::check(&self.catalog, &path, &which, &sizes)?;
        let mut named = std::mem::take(&mut checked.objects);
        for (name, object) in self.catalog.all_resolved()? {
            if named.remove(&name) {
                named.insert(object);
            }
        }
        let objects = named.len() as u64;
        let (signed, looked) = std::thread::scope(|scope| {
            let signed = scope.spawn(|| read_all(&stored.heads));
            // What is there needs no second look; deep, everything gets one.
            let looked = match request.deep {
                true => Ok(()),
                false => self.forget_rows(&mut named),
            };
            (signed.join().expect("BUG: a checking thread panicked"), looked)
        });
        self.verify_signed(&stored, signed, &outside, &checked)?;
        if let Some(error) = lost {
            return Err(error);
        }
        if request.deep {
            self.catalog.check_pages()?;
            if let Some(seq) = self.catalog.misfits()?.into_iter().min() {
                return Err(misfit(seq));
            }
        }
        let last = checked.at.last();
        let (root, link) = (last.map(|at| at.root), last.map(|at| at.link));
        looked?;
        let ids: Vec<ObjectId> = named.into_iter().collect();
        let CheckedObjects { bad, sealed, away } =
            self.check_objects(&ids, request.deep, true, progress)?;
        if let Some((_, error)) = bad.into_iter().next() {
            return Err(error);
        }
        let seen = outside.witnesses.iter();
        Ok(VerifyReport {
            schema: SCHEMA,
            records: end.0,
            objects,
            objects_read: if request.deep { objects - sealed - away } else { 0 },
            objects_not_read: sealed,
            objects_away: away,
            head_hash: link.unwrap_or(crate::id::LinkHash::ZERO).hex(),
            root: base64::encode(&root.unwrap_or_else(merkle::empty_root)),
            heads: stored.heads.len() as u64,
            witnesses: seen.map(|(place, heads)| witness_view(place, heads, end)).collect(),
            anchored: request.anchor.as_ref().map(Anchor::size),
        })
    }

    /// What the catalog has besides the records, as of one moment.
    fn stored(&self) -> Result<Stored> {
        let _reading = self.catalog.reading()?;
        Ok(Stored {
            end: self.catalog.head()?.seq,
            heads: self.catalog.heads()?,
            nodes: self.catalog.nodes()?,
            pinned: self.catalog.pinned_key()?,
            mentioned: self.catalog.last_mentioned()?,
        })
    }

    /// Looks for objects, and reads each back if `deep`; stops at the first that is not well if `only_first`.
    pub(super) fn check_objects(
        &self,
        ids: &[ObjectId],
        deep: bool,
        only_first: bool,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<CheckedObjects> {
        let ids = &*if deep { self.store.by_place(ids)? } else { ids.to_vec() };
        let objects = self.objects()?;
        let _one_moment = objects.bulk()?;
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let bad: Mutex<Vec<(ObjectId, Error)>> = Mutex::default();
        let (sealed, elsewhere) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut away = self.store.away()?;
        away.extend(self.at_host()?);
        let check = |id: &ObjectId| -> Result<()> {
            if away.contains(id) && !objects.exists(id)? {
                elsewhere.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            if deep {
                let mut reader = match objects.reader(id) {
                    Err(Error::SecretKey(_)) => {
                        sealed.fetch_add(1, Ordering::Relaxed);
                        return Ok(());
                    }
                    reader => reader?,
                };
                std::io::copy(&mut reader, &mut std::io::sink())
                    .map_err(|error| Error::Corrupt { object: *id, why: error.to_string() })?;
            } else if !objects.exists(id)? {
                return Err(Error::Missing(*id));
            }
            Ok(())
        };
        let work = || {
            while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = check(id) {
                    bad.lock().expect("no holder panics").push((*id, error));
                }
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, ids.len() as u64);
                if only_first && !bad.lock().expect("no holder panics").is_empty() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        Ok(CheckedObjects {
            bad: bad.into_inner().expect("no holder panics"),
            sealed: sealed.into_inner(),
            away: elsewhere.into_inner(),
        })
    }
}
