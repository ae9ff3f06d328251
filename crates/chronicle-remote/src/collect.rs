//! Taking away what no history in a bucket needs, while others write to it.
//!
//! Packs are first *doomed*, by an object that names them, and taken away only by a later collection that
//! finds them doomed by an earlier one and still not needed. What is needed is read after the dooming was
//! written. So whoever lists what he needs either is seen by the collector, or sees what is doomed and
//! writes it again: one of the two always happens, since each writes before it reads.

use std::collections::{BTreeMap, HashSet};

use chronicle_core::mirror::Named;
use chronicle_core::{ChunkManifest, Error, ObjectId};

use crate::blob::{Blob, parse_name};
use crate::error::Cause;
use crate::index::{Index, Location};
use crate::pack::{PackBuilder, PackName};
use crate::store::RemoteStore;

/// A pack is written anew when less than so many hundredths of it are needed.
const WORTH: u64 = 50;

/// What somebody means to take away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) generation: u64,
    pub(crate) packs: Vec<PackName>,
    key: String,
}

/// What a collection found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Objects that some history names.
    pub needed: u64,
    /// Packs that the next collection takes away.
    pub doomed: u64,
    /// Packs that were taken away.
    pub packs: u64,
    /// Bytes that they took in the bucket.
    pub bytes: u64,
    /// Objects that were carried over from them.
    pub carried: u64,
}

impl RemoteStore {
    /// Takes away what an earlier collection doomed and nobody needs, and dooms what is not needed now.
    pub fn collect(&self, home: [u8; 16]) -> Result<Collected, Error> {
        let earlier = self.marks()?;
        self.refresh()?;
        let needed = self.needed()?;
        let doomed: Vec<PackName> = self
            .packs()
            .filter(|index| !is_worth_keeping(index, &needed))
            .map(|i| i.name)
            .collect();
        let generation = earlier.iter().map(|mark| mark.generation).max().unwrap_or(0) + 1;
        if !doomed.is_empty() {
            let bytes: Vec<u8> = doomed.iter().flat_map(|name| name.0).collect();
            let of = chronicle_core::to_hex(&home);
            self.put_blob(Blob::Doomed, &of, &format!("{generation:016x}-"), &bytes)?;
        }
        let condemned: HashSet<_> = earlier.iter().flat_map(|mark| mark.packs.clone()).collect();
        let ripe: HashSet<_> = doomed.iter().filter(|name| condemned.contains(name)).collect();
        let mut collected =
            Collected { doomed: (doomed.len() - ripe.len()) as u64, ..Collected::default() };
        // Once more: who listed what he needs since then may count on any of them.
        let needed = self.needed()?;
        collected.needed = needed.len() as u64;
        for index in self.packs().filter(|index| ripe.contains(&index.name)) {
            self.take_out(&index, &needed, &mut collected)?;
        }
        for mark in earlier {
            self.bucket().delete(&mark.key)?;
        }
        Ok(collected)
    }

    /// Carries over what is needed of a pack, and takes the pack away.
    fn take_out(
        &self,
        index: &Index,
        needed: &HashSet<ObjectId>,
        collected: &mut Collected,
    ) -> Result<(), Error> {
        let others = |id: &ObjectId| {
            let holders = self.known().holders(id);
            holders.iter().any(|holder| holder.name != index.name)
        };
        let carried: Vec<_> =
            index.objects.iter().filter(|(id, _)| needed.contains(id) && !others(id)).collect();
        if !carried.is_empty() {
            let plain = self.read_pack(index)?;
            let mut builder = PackBuilder::new();
            for (id, location) in &carried {
                let range = location.range();
                builder.add(*id, &plain[range.start as usize..range.end as usize]);
            }
            self.upload(builder)?;
        }
        collected.carried += carried.len() as u64;
        collected.packs += 1;
        collected.bytes += crate::pack::length_in_bucket(index);
        self.remove(index)
    }

    fn packs(&self) -> impl Iterator<Item = std::sync::Arc<Index>> {
        self.known().packs().into_iter()
    }

    /// Everything that any history in the place needs, and what somebody is about to need.
    fn needed(&self) -> Result<HashSet<ObjectId>, Error> {
        let mut needed = HashSet::new();
        // These first: a push that has come to its end since has a head by now.
        for listed in self.bucket().list(Blob::References.directory())? {
            needed.extend(self.read_references(&listed.key)?);
        }
        for head in self.logs(None)? {
            let mut named = Named::default();
            for at in &head.segments {
                self.read_segment(&head, at)?.name_into(&mut named)?;
            }
            if let Some(standing) = self.read_standing(&head)? {
                standing.name_into(&mut named);
            }
            needed.extend(named.objects());
            for id in named.large() {
                if let Some(manifest) = self.manifest_of(&id)? {
                    needed.extend(manifest.pieces.into_iter().map(|piece| piece.id));
                }
            }
        }
        Ok(needed)
    }

    fn manifest_of(&self, id: &ObjectId) -> Result<Option<ChunkManifest>, Error> {
        if !self.is_known(id) {
            return Ok(None);
        }
        ChunkManifest::of(id, &self.get_stored(id)?)
    }

    fn read_references(&self, key: &str) -> Result<Vec<ObjectId>, Error> {
        let Some((of, before, name)) = take_apart(Blob::References, key) else {
            return Ok(Vec::new());
        };
        match self.get_blob(Blob::References, of, before, &name) {
            // The push that it belonged to has come to its end: a head names what it needs.
            Err(error) if error.cause == Cause::Missing => Ok(Vec::new()),
            read => {
                let (bytes, _) = read?;
                Ok(bytes.as_chunks::<32>().0.iter().map(|id| ObjectId(*id)).collect())
            }
        }
    }

    /// What somebody means to take away.
    pub(crate) fn marks(&self) -> Result<Vec<Mark>, Error> {
        let mut marks = BTreeMap::new();
        for listed in self.bucket().list(Blob::Doomed.directory())? {
            let Some((of, before, name)) = take_apart(Blob::Doomed, &listed.key) else { continue };
            let generation = before.strip_suffix('-').and_then(|g| u64::from_str_radix(g, 16).ok());
            let Some(generation) = generation else { continue };
            let (bytes, _) = match self.get_blob(Blob::Doomed, of, before, &name) {
                Err(error) if error.cause == Cause::Missing => continue,
                read => read?,
            };
            let packs = bytes.as_chunks::<32>().0.iter().map(|name| PackName(*name)).collect();
            marks.insert(listed.key.clone(), Mark { generation, packs, key: listed.key });
        }
        Ok(marks.into_values().collect())
    }
}

/// The parts of a key: whose it is, what stands before its name, its name.
fn take_apart(blob: Blob, key: &str) -> Option<(&str, &str, [u8; 32])> {
    let (of, rest) = key.strip_prefix(blob.directory())?.strip_prefix('/')?.split_once('/')?;
    let (before, name) = parse_name(rest)?;
    Some((of, before, name))
}

fn is_worth_keeping(index: &Index, needed: &HashSet<ObjectId>) -> bool {
    let length = |(_, location): &(ObjectId, Location)| u64::from(location.length);
    let all: u64 = index.objects.iter().map(length).sum();
    let used: u64 = index.objects.iter().filter(|(id, _)| needed.contains(id)).map(length).sum();
    used * 100 >= all * WORTH
}
