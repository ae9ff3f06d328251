//! Reading many objects with few requests: what lies side by side in a pack comes with one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chronicle_core::{Error, ObjectId};

use crate::index::{Index, Location};
use crate::pack::PackName;
use crate::store::RemoteStore;

/// So many bytes that nobody asked for are read along rather than asking twice.
const GAP: u64 = 128 << 10;
/// So many bytes are asked for at once.
const RUN: u64 = 8 << 20;
/// So many bytes behind what was asked for are read along.
const NEIGHBOURS: u64 = 2 << 20;
/// How many requests are under way at a time.
const READERS: usize = 4;

/// Objects that lie close together in one pack.
struct Run {
    index: Arc<Index>,
    objects: Vec<(ObjectId, Location)>,
}

impl Run {
    fn cover(&self) -> Location {
        let (first, last) = (self.objects[0].1, self.objects[self.objects.len() - 1].1);
        let length = last.range().end - first.offset;
        let length = u32::try_from(length).expect("BUG: a run is bounded, and so is an object");
        Location { offset: first.offset, length }
    }

    fn takes(&self, next: Location) -> bool {
        let cover = self.cover().range();
        next.offset <= cover.end + GAP && next.range().end - cover.start <= RUN
    }
}

/// What is done with each object that was read: its name and its stored form, not verified.
type Each<'e> = &'e (dyn Fn(&ObjectId, &[u8]) -> Result<(), Error> + Sync);

impl RemoteStore {
    /// Reads many objects, several requests at a time, and hands each over as soon as it is there.
    ///
    /// One that `each` calls corrupt, or that was moved meanwhile, is read once more on its own.
    pub fn read_many(&self, ids: &[ObjectId], each: Each<'_>) -> Result<(), Error> {
        let (runs, rest) = self.runs(ids);
        let readers = runs.len().min(READERS);
        let left = Mutex::new(runs);
        let lock = || left.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || -> Result<(), Error> {
            loop {
                let Some(run) = lock().pop() else { return Ok(()) };
                // Who fails leaves nothing to the others, since the whole has failed.
                self.read_run(&run, each).inspect_err(|_| lock().clear())?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..readers).map(|_| scope.spawn(work)).collect();
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            results.into_iter().try_for_each(|result| {
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        rest.iter().try_for_each(|id| each(id, &self.get_stored(id)?))
    }

    /// The runs that cover these objects, and those that no known pack has.
    fn runs(&self, ids: &[ObjectId]) -> (Vec<Run>, Vec<ObjectId>) {
        let known = self.known();
        let mut packs: BTreeMap<PackName, Run> = BTreeMap::new();
        let mut rest = Vec::new();
        for id in ids {
            let holder = known.holders(id).into_iter().next();
            match holder.and_then(|index| Some((index.find(id)?, index))) {
                Some((location, index)) => packs
                    .entry(index.name)
                    .or_insert_with(|| Run { index, objects: Vec::new() })
                    .objects
                    .push((*id, location)),
                None => rest.push(*id),
            }
        }
        drop(known);
        (packs.into_values().flat_map(split).collect(), rest)
    }

    /// An object, and what lies behind it in its pack: what one request may as well bring.
    pub(crate) fn neighbours(&self, id: &ObjectId) -> Vec<ObjectId> {
        let Some(index) = self.known().holders(id).into_iter().next() else { return vec![*id] };
        let Some(at) = index.find(id) else { return vec![*id] };
        let end = at.range().end + NEIGHBOURS;
        let behind = index
            .objects
            .iter()
            .filter(|(_, location)| location.offset >= at.offset && location.range().end <= end);
        let mut ids: Vec<ObjectId> = behind.map(|(id, _)| *id).collect();
        if !ids.contains(id) {
            ids.push(*id);
        }
        ids
    }

    fn read_run(&self, run: &Run, each: Each<'_>) -> Result<(), Error> {
        let cover = run.cover();
        let bytes = match self.read_location(&run.index, cover) {
            Ok(Ok(bytes)) if bytes.len() == cover.length as usize => Some(bytes),
            _ => None,
        };
        for (id, location) in &run.objects {
            let start = (location.offset - cover.offset) as usize;
            let stored = bytes.as_ref().map(|b| &b[start..start + location.length as usize]);
            match stored.map(|stored| each(id, stored)) {
                Some(Err(Error::Corrupt { .. })) | None => each(id, &self.get_stored(id)?)?,
                Some(done) => done?,
            }
        }
        Ok(())
    }
}

/// Cuts what is read of one pack into runs.
fn split(mut whole: Run) -> Vec<Run> {
    whole.objects.sort_unstable_by_key(|(_, location)| location.offset);
    whole.objects.dedup_by_key(|(id, _)| *id);
    let mut runs: Vec<Run> = Vec::new();
    for object in whole.objects {
        match runs.last_mut() {
            Some(run) if run.takes(object.1) => run.objects.push(object),
            _ => runs.push(Run { index: Arc::clone(&whole.index), objects: vec![object] }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(places: &[(u64, u32)]) -> Vec<usize> {
        let objects = places.iter().enumerate().map(|(n, (offset, length))| {
            (ObjectId([n as u8; 32]), Location { offset: *offset, length: *length })
        });
        let index = Index {
            name: PackName([0; 32]),
            length: 1 << 30,
            nonce: [0; 24],
            mark: None,
            objects: Vec::new(),
        };
        let whole = Run { index: Arc::new(index), objects: objects.collect() };
        split(whole).iter().map(|run| run.objects.len()).collect()
    }

    #[test]
    fn what_lies_close_together_is_read_at_once_but_not_too_much() {
        assert_eq!(runs(&[(100, 10), (16, 10), (110, 5)]), [3]);
        assert_eq!(runs(&[(16, 10), (26 + (GAP as u32) as u64, 10)]), [2]);
        assert_eq!(runs(&[(16, 10), (27 + GAP, 10)]), [1, 1]);
        let whole: Vec<_> = (0..20).map(|n| (n << 20, 1 << 20)).collect();
        assert_eq!(runs(&whole), [8, 8, 4]);
        // One that is longer than a run is a run of its own.
        assert_eq!(runs(&[(16, 1 << 26), (16 + (1 << 26), 10)]), [1, 1]);
    }
}
