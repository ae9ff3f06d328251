//! A history out of a bucket, into a home that lacks it or a part of it.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use chronicle_core::mirror::{Named, Segment, Standing};
use chronicle_core::{
    Arrival, CODEC_SEALED, Cached, ChunkManifest, ContentStorage, Error, Home, Intake,
    LARGE_OBJECT, ObjectId, WorkspaceId, unpack_object,
};

use crate::blob::{Blob, key_of, undecodable};
use crate::error::Cause;
use crate::log_head::{LogHead, SegmentRef};
use crate::store::RemoteStore;

/// Objects that become durable together.
const BATCH: usize = 16 * 1024;

/// A history that was fetched, and what stood at its end if its records do not tell.
pub struct Fetched {
    /// The history, put together and not yet in use.
    pub arrival: Arrival,
    /// What stood there.
    pub standing: Option<Standing>,
    /// Contents that it names and that the place does not have.
    pub missing: Vec<ObjectId>,
    /// Objects that came.
    pub objects: u64,
}

impl RemoteStore {
    /// The newest head of every life of every log here, or of one workspace's.
    pub fn logs(&self, workspace: Option<WorkspaceId>) -> Result<Vec<LogHead>, Error> {
        let of = workspace.map(|id| id.hex()).unwrap_or_default();
        let mut newest = BTreeMap::new();
        for name in self.head_names(&of)? {
            let key = (name.workspace.0, name.epoch.0);
            let other = newest.entry(key).or_insert(name);
            if (other.seq, other.generation) < (name.seq, name.generation) {
                *other = name;
            }
        }
        let mut logs = Vec::new();
        for name in newest.into_values() {
            if let Some((_, head)) = self.newest_head(name.workspace, name.epoch)? {
                logs.push(head);
            }
        }
        logs.sort_by_key(|head| (head.workspace.0, std::cmp::Reverse(head.head.seq)));
        Ok(logs)
    }

    /// Fetches a history with all contents that a home lacks.
    pub fn fetch(
        &self,
        home: &Home,
        head: &LogHead,
        has: &dyn Fn(&ObjectId) -> Result<bool, Error>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Fetched, Error> {
        let mut arrival = home.receive(head.workspace)?;
        let mut named = Named::default();
        for at in &head.segments {
            let segment = self.read_segment(head, at)?;
            segment.name_into(&mut named)?;
            arrival.add(&segment)?;
        }
        if arrival.head()? != head.head {
            return Err(undecodable(self, "logs", "its records do not end where its head says"));
        }
        let standing = self.read_standing(head)?;
        standing.iter().for_each(|standing| standing.name_into(&mut named));
        let mut lacking = Vec::new();
        for id in named.objects() {
            if arrival.lacks(&id)? && !has(&id)? {
                lacking.push(id);
            }
        }
        // As they lie in the bucket is as they were written: what is read together lies together.
        self.refresh()?;
        let (present, missing): (Vec<_>, Vec<_>) =
            lacking.into_iter().partition(|id| self.is_known(id));
        self.bring(&arrival, &present, progress)?;
        Ok(Fetched { arrival, standing, missing, objects: present.len() as u64 })
    }

    fn bring(
        &self,
        arrival: &Arrival,
        ids: &[ObjectId],
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), Error> {
        let (total, done) = (ids.len() as u64, Mutex::new(0));
        let count = || {
            let mut done = lock(&done);
            *done += 1;
            progress(*done, total);
        };
        let large: Mutex<Vec<(ObjectId, ChunkManifest)>> = Mutex::default();
        for batch in ids.chunks(BATCH) {
            arrival.take_in(|intake| {
                let mut rest = Vec::new();
                for id in batch {
                    match self.copy_of(id) {
                        Some(bytes) => intake.take(&bytes).map(|_| count())?,
                        None => rest.push(*id),
                    }
                }
                self.read_many(&rest, &|id, stored| {
                    if let Some(manifest) = ChunkManifest::of(id, stored)? {
                        lock(&large).push((*id, manifest));
                    } else if stored.first() == Some(&CODEC_SEALED) {
                        intake.take_sealed_form(id, stored)?;
                    } else {
                        let bytes = unpack_object(id, stored)?;
                        intake.take(&bytes)?;
                        self.leave_copy(id, &bytes);
                    }
                    count();
                    Ok(())
                })
            })?;
        }
        for (id, manifest) in large.into_inner().unwrap_or_else(PoisonError::into_inner) {
            arrival.take_in(|intake| self.bring_large(intake, &id, manifest))?;
        }
        Ok(())
    }

    fn bring_large(
        &self,
        intake: &Intake<'_>,
        id: &ObjectId,
        manifest: ChunkManifest,
    ) -> Result<(), Error> {
        let (found, _) = match &self.copies {
            Some(pool) => intake.take_stream(&mut Cached::unbounded(pool, self).reader(id)?)?,
            None => intake.take_stream(&mut self.pieces_reader(*id, manifest))?,
        };
        match found == *id {
            true => Ok(()),
            false => Err(crate::store::corrupt(id, "its pieces have another hash")),
        }
    }

    /// A small content of which there is a copy; whatever is wrong with that, the bucket has it too.
    fn copy_of(&self, id: &ObjectId) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let reader = self.copies.as_ref()?.reader(id).ok()?;
        // The end shows whether it was right, so that one byte more than fits is read.
        reader.take(LARGE_OBJECT as u64 + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() <= LARGE_OBJECT && ObjectId::of(&bytes) == *id).then_some(bytes)
    }

    fn leave_copy(&self, id: &ObjectId, bytes: &[u8]) {
        if let Some(pool) = &self.copies {
            // It would only save the next one the way.
            let _ = pool.put(id, bytes);
        }
    }

    /// Reads one run of records, which must be the one that the head names.
    pub(crate) fn read_segment(&self, head: &LogHead, at: &SegmentRef) -> Result<Segment, Error> {
        let of = head.workspace.hex();
        let key = key_of(Blob::Segment, &of, "", &at.name);
        let (bytes, _) = match self.get_blob(Blob::Segment, &of, "", &at.name) {
            Err(error) if error.cause == Cause::Missing => {
                // It may have been written anew since the head was read: then there is a newer head.
                return Err(Error::Busy(format!("{key} was just replaced in the bucket")));
            }
            read => read?,
        };
        let damaged = |why: &dyn std::fmt::Display| undecodable(self, &key, why);
        if *blake3::hash(&bytes).as_bytes() != at.digest {
            return Err(damaged(&"it is not the run of records that its head names"));
        }
        let segment = Segment::decode(&bytes).map_err(|why| damaged(&why))?;
        let ends = (segment.after.seq.next(), segment.head().seq);
        match segment.workspace == head.workspace && ends == (at.first, at.last) {
            true => Ok(segment),
            false => Err(damaged(&"it is of another log or place")),
        }
    }

    /// What stood at a moment, if the head names it.
    pub(crate) fn read_standing(&self, head: &LogHead) -> Result<Option<Standing>, Error> {
        let Some((seq, name)) = &head.standing else { return Ok(None) };
        let of = head.workspace.hex();
        let (bytes, _) = self.get_blob(Blob::Standing, &of, "", name)?;
        let damaged = |why: &dyn std::fmt::Display| {
            undecodable(self, &key_of(Blob::Standing, &of, "", name), why)
        };
        let standing = Standing::decode(&bytes).map_err(|why| damaged(&why))?;
        match standing.seq == *seq {
            true => Ok(Some(standing)),
            false => Err(damaged(&"it is of another moment")),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
