//! Taking away what nothing needs any more, beside captures that go on.
//!
//! A capture holds the store's lock shared from its first question to its commit. A sweep takes it
//! exclusively for one pack or one handful of files at a time, and asks again what is needed once
//! it has it: whatever was committed in between is needed too.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use super::LocalStore;
use super::files::{self, Lock};
use super::group::is_group;
use super::index::Location;
use super::pack::{Damaged, Pack, tend_orphans};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::id::ObjectId;

/// Files of their own that go under one lock.
const FILES_AT_ONCE: usize = 64;
/// A pack is written anew once this share of it is not needed: one in five.
const WASTE: u64 = 5;
/// How long a sweep waits for captures to end before it leaves the rest for another time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A pack of fewer bytes is joined with others, once there are more than a few of them.
const SMALL_PACK: u64 = 4 << 20;
const FEW: usize = 8;
/// What is joined has about so many bytes.
const JOINED: u64 = 64 << 20;

/// What is needed.
pub(crate) trait Needed {
    /// Adds what was committed since the last time.
    fn refresh(&mut self) -> Result<()>;

    /// Whether anything needs an object.
    fn contains(&self, id: &ObjectId) -> bool;
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// The objects of a pack with the bytes that each takes; the members of a group share theirs.
fn shares(mut objects: Vec<(ObjectId, Location)>) -> Vec<(ObjectId, u64)> {
    objects.sort_unstable_by_key(|(_, location)| location.offset);
    let places = objects.chunk_by(|(_, one), (_, next)| one.offset == next.offset);
    let share = |place: &[(ObjectId, Location)]| {
        let length = u64::from(place[0].1.length) / place.len() as u64;
        place.iter().map(move |(id, _)| (*id, length)).collect::<Vec<_>>()
    };
    places.flat_map(share).collect()
}

impl LocalStore {
    /// Takes away every object that is not needed, but for a little in packs that are mostly needed.
    pub(crate) fn sweep(
        &self,
        needed: &mut dyn Needed,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Swept> {
        let directories = self.packs.directories();
        files::discard_leftovers(&directories.temporary)?;
        tend_orphans(directories, &self.secrets)?;
        let mut swept = Swept::default();
        let packs = self.wasteful_packs(needed)?;
        let loose = self.loose.all()?;
        let total = (packs.len() + loose.len()) as u64;
        // First what may be in pieces: without them it would be taken for content that is here.
        for (done, batch) in loose.chunks(FILES_AT_ONCE).enumerate() {
            progress((done * FILES_AT_ONCE) as u64, total);
            self.sweep_files(batch, needed, &mut swept)?;
        }
        for (done, pack) in packs.iter().enumerate() {
            progress((loose.len() + done) as u64, total);
            self.sweep_pack(pack, needed, &mut swept)?;
        }
        progress(total, total);
        self.sweep_clones(needed, &mut swept)?;
        self.packs.forget()?;
        Ok(swept)
    }

    /// Takes some objects out of every place where they can lie, unless they are needed; says which
    /// are gone.
    pub(crate) fn take_out(
        &self,
        ids: &[ObjectId],
        needed: &mut dyn Needed,
    ) -> Result<Vec<ObjectId>> {
        let directories = self.packs.directories();
        let _lock = Lock::exclusive_within(&self.lock_path(), PATIENCE)?;
        needed.refresh()?;
        files::discard_leftovers(&directories.temporary)?;
        tend_orphans(directories, &self.secrets)?;
        let gone: Vec<_> = ids.iter().copied().filter(|id| !needed.contains(id)).collect();
        gone.iter().try_for_each(|id| self.loose.delete(id))?;
        // One that was read by somebody who died before he removed it may hold what goes.
        self.remove_clones(needed, &mut Swept::default())?;
        self.clear_aside(&gone)?;
        self.packs.delete(&gone.iter().copied().collect())?;
        Ok(gone)
    }

    fn sweep_clones(&self, needed: &mut dyn Needed, swept: &mut Swept) -> Result<()> {
        if self.clones.all()?.iter().all(|(name, _)| needed.contains(name)) {
            return Ok(());
        }
        let _lock = Lock::exclusive_within(&self.lock_path(), PATIENCE)?;
        needed.refresh()?;
        failpoint::hit("gc_before_clones");
        self.remove_clones(needed, swept)
    }

    /// Removes the clones that nothing needs; with the lock held exclusively, so that none of them is
    /// of a capture that goes on.
    fn remove_clones(&self, needed: &dyn Needed, swept: &mut Swept) -> Result<()> {
        for (name, bytes) in self.clones.all()? {
            if !needed.contains(&name) {
                self.clones.remove(&name)?;
                swept.objects += 1;
                swept.bytes += bytes;
            }
        }
        self.clones.sync()
    }

    /// Takes these out of what was put aside, and every damaged group with them: any of them may be in it.
    fn clear_aside(&self, gone: &[ObjectId]) -> Result<()> {
        let aside = self.aside();
        if gone.is_empty() {
            return Ok(());
        }
        let gone: HashSet<String> = gone.iter().map(ObjectId::hex).collect();
        for name in files::names(&aside)? {
            let path = aside.join(&name);
            if gone.contains(&name) || files::open(&path)?.is_some_and(|file| starts_group(&file)) {
                files::remove(&path)?;
            }
        }
        Ok(())
    }

    /// The packs with enough in them that nothing needs; those that give the most for the least
    /// writing first, since there may be no room for more.
    fn wasteful_packs(&self, needed: &dyn Needed) -> Result<Vec<Arc<Pack>>> {
        let mut packs = Vec::new();
        for pack in self.packs.list_again()?.iter() {
            let (mut wanted, mut waste) = (0, 0);
            for (id, length) in shares(pack.objects()?) {
                *if needed.contains(&id) { &mut wanted } else { &mut waste } += length;
            }
            if waste > 0 && waste * WASTE >= wanted + waste {
                packs.push((wanted, Arc::clone(pack)));
            }
        }
        packs.sort_by_key(|(wanted, _)| *wanted);
        Ok(packs.into_iter().map(|(_, pack)| pack).collect())
    }

    /// Joins small packs, so that whoever looks for an object asks few indexes, and small contents that came one
    /// by one are compressed together; says how many packs are fewer.
    pub(crate) fn join_packs(&self) -> Result<u64> {
        let mut small = Vec::new();
        for pack in self.packs.list_again()?.iter() {
            let length = std::fs::metadata(pack.path()).map_or(u64::MAX, |meta| meta.len());
            if length < SMALL_PACK {
                small.push((length, Arc::clone(pack)));
            }
        }
        if small.len() <= FEW {
            return Ok(0);
        }
        let (mut batch, mut bytes, mut fewer) = (Vec::new(), 0, 0);
        for (length, pack) in small {
            batch.push(pack);
            bytes += length;
            if bytes >= JOINED {
                fewer += self.join_batch(&std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        fewer += self.join_batch(&batch)?;
        self.packs.forget()?;
        Ok(fewer)
    }

    fn join_batch(&self, packs: &[Arc<Pack>]) -> Result<u64> {
        if packs.len() < 2 {
            return Ok(0);
        }
        let _lock = Lock::exclusive_within(&self.lock_path(), PATIENCE)?;
        match Pack::join(packs, self.packs.directories()) {
            Ok(()) => Ok(packs.len() as u64 - 1),
            // Nothing is joined where something is damaged, or where there is no room; nothing needs it.
            Err(Error::Corrupt { .. } | Error::NoSpace(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn sweep_pack(&self, pack: &Pack, needed: &mut dyn Needed, swept: &mut Swept) -> Result<()> {
        let _lock = Lock::exclusive_within(&self.lock_path(), PATIENCE)?;
        needed.refresh()?;
        let objects = shares(pack.objects()?);
        let unneeded = objects.iter().filter(|(id, _)| !needed.contains(id));
        let gone: HashSet<ObjectId> = unneeded.map(|(id, _)| *id).collect();
        let Some(first) = gone.iter().next() else { return Ok(()) };
        pack.rewrite_without(&gone, self.packs.directories(), first, Damaged::Stays)?;
        swept.objects += gone.len() as u64;
        let lengths = objects.iter().filter(|(id, _)| gone.contains(id));
        swept.bytes += lengths.map(|(_, length)| length).sum::<u64>();
        Ok(())
    }

    fn sweep_files(
        &self,
        batch: &[(ObjectId, u64)],
        needed: &mut dyn Needed,
        swept: &mut Swept,
    ) -> Result<()> {
        if batch.iter().all(|(id, _)| needed.contains(id)) {
            return Ok(());
        }
        let _lock = Lock::exclusive_within(&self.lock_path(), PATIENCE)?;
        needed.refresh()?;
        for (id, bytes) in batch.iter().filter(|(id, _)| !needed.contains(id)) {
            self.loose.delete(id)?;
            swept.objects += 1;
            swept.bytes += bytes;
        }
        Ok(())
    }
}

/// Whether a file put aside holds a group; one that cannot be read may hold one.
fn starts_group(file: &File) -> bool {
    let mut start = [0];
    file.read_at(&mut start, 0).is_err() || is_group(&start)
}
