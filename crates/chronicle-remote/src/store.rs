//! Objects in the packs of a bucket.
//!
//! Indexes are read once and kept in memory; a miss lists the bucket again, so what another machine
//! wrote is found, and nothing is called missing on old knowledge. An index is written after its pack
//! and deleted before it, so whoever sees an index sees its pack.

use std::collections::{BTreeMap, HashSet};
use std::io::{Cursor, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use chronicle_core::{
    CODEC_SEALED, ChunkManifest, ContentStorage, Error, LARGE_OBJECT, ObjectId, PooledCache,
    cut_into_pieces, pack_object, unpack_object,
};

use crate::bucket::{Bucket, ConditionalPut};
use crate::error::{Cause, RemoteError};
use crate::format;
use crate::index::{INDEX_MAX, Index, Location, Refusal};
use crate::keys::Keyring;
use crate::known::Known;
use crate::pack::{CONTENT_MAX, Finished, PackBuilder, PackName, length_in_bucket};
use crate::seal::{Kind, RemoteKey, Sealer, cover, sealed_length};
use crate::writer::RemotePackWriter;

/// How often an object whose bytes are wrong is read, since a line may have damaged it on the way.
const READS: usize = 2;

/// How many indexes are read at a time.
const READERS: usize = 8;

/// How often it is looked again because others moved objects meanwhile.
const ROUNDS: usize = 8;

/// A store whose objects lie in a bucket.
#[derive(Debug)]
pub struct RemoteStore {
    bucket: Bucket,
    keys: RwLock<Keyring>,
    conditional: ConditionalPut,
    known: Mutex<Known>,
    /// Held while the bucket is listed or packs are taken away, so that no old list undoes a deletion.
    changing: Mutex<()>,
    /// Copies of what was fetched before, if there is a place for them.
    pub(crate) copies: Option<PooledCache>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteStore {
    /// Opens the place, makes it one if it is empty, and reads its indexes; with a key it is sealed.
    pub fn connect(bucket: Bucket, key: Option<RemoteKey>) -> Result<Self, Error> {
        let keys = RwLock::new(format::check_or_make(&bucket, key.as_ref())?);
        let conditional = bucket.probe()?;
        let (known, changing) = (Mutex::default(), Mutex::default());
        let store = Self { bucket, keys, conditional, known, changing, copies: None };
        store.refresh()?;
        Ok(store)
    }

    /// The same store, which reads histories through a pool of copies and leaves copies there.
    #[must_use]
    pub fn with_copies(self, pool: Option<PooledCache>) -> Self {
        Self { copies: pool, ..self }
    }

    /// What puts that must not overwrite do here; nothing depends on it.
    pub fn conditional_put(&self) -> ConditionalPut {
        self.conditional
    }

    /// The place in the bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// A writer that gathers many objects into few packs.
    pub fn writer(&self) -> RemotePackWriter<'_> {
        RemotePackWriter::new(self)
    }

    /// Whether the last listing has the object; asks nobody.
    pub fn is_known(&self, id: &ObjectId) -> bool {
        self.known().is_kept(id)
    }

    /// Counts on none of these packs any more when something is written.
    pub(crate) fn set_doomed(&self, packs: HashSet<PackName>) {
        self.known().set_doomed(packs);
    }

    pub(crate) fn keys(&self) -> RwLockReadGuard<'_, Keyring> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keys_mut(&self) -> RwLockWriteGuard<'_, Keyring> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Lists the bucket again and reads the indexes that are new.
    pub fn refresh(&self) -> Result<(), Error> {
        let _changing = lock(&self.changing);
        self.refresh_now().map(|_| ())
    }

    /// Says whether a pack that was known is gone: then this list may be of two times, page by page.
    fn refresh_now(&self) -> Result<bool, Error> {
        let (mut packs, mut indexes) = (BTreeMap::new(), BTreeMap::new());
        for listed in self.bucket.list("packs")? {
            if let Some(name) = PackName::parse(&listed.key, ".pack") {
                packs.insert(name, listed.length);
            } else if let Some(name) = PackName::parse(&listed.key, ".idx") {
                indexes.insert(name, listed.length);
            }
        }
        let gone = self.known().keep_only(&indexes);
        let new: Vec<_> = {
            let known = self.known();
            let unread = indexes.into_iter().filter(|(name, _)| !known.has_pack(name));
            unread.map(|(name, length)| (name, length, packs.get(&name).copied())).collect()
        };
        self.learn_all(new)?;
        Ok(gone)
    }

    /// Reads new indexes, several at a time: a machine that lost everything has thousands to read.
    fn learn_all(&self, new: Vec<(PackName, u64, Option<u64>)>) -> Result<(), Error> {
        let readers = new.len().min(READERS);
        let left = Mutex::new(new);
        let read = || -> Result<(), Error> {
            loop {
                let Some((name, length, pack)) = lock(&left).pop() else { return Ok(()) };
                // Who fails leaves nothing to the others, since the whole has failed.
                let learned = self.learn(name, length, pack);
                learned.inspect_err(|_| lock(&left).clear())?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Error>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            // All are waited for before the first failure counts.
            threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Reads one index and believes it only if it fits its pack.
    fn learn(&self, name: PackName, length: u64, pack: Option<u64>) -> Result<(), Error> {
        let Some(index) = self.read_index(name, length)? else { return Ok(()) };
        let index = match index {
            Ok(index) => index,
            Err(why) => {
                self.known().refuse(name, why);
                return Ok(());
            }
        };
        // What a list of several pages does not have may have come or gone meanwhile.
        let pack = match pack {
            Some(length) => Some(length),
            None => self.bucket.length(&name.pack_key())?,
        };
        match pack {
            Some(pack) if pack == length_in_bucket(&index) => {
                self.known().add(Arc::new(index));
            }
            Some(_) => self.known().refuse(name, Refusal::Damaged("its pack has another length")),
            None if self.bucket.exists(&name.index_key())? => {
                self.known().refuse(name, Refusal::Damaged("its pack is not there"));
            }
            None => {}
        }
        Ok(())
    }

    /// `None` if it was deleted since it was listed.
    fn read_index(
        &self,
        name: PackName,
        length: u64,
    ) -> Result<Option<Result<Index, Refusal>>, Error> {
        if length > sealed_length(INDEX_MAX) {
            return Ok(Some(Err(Refusal::Damaged("it is too long"))));
        }
        let bytes = match self.bucket.get(&name.index_key()) {
            Err(error) if error.cause == Cause::Missing => return Ok(None),
            bytes => bytes?,
        };
        let opened = self.keys().open(Kind::Index, &name.0, bytes).map_err(Refusal::Damaged);
        let parsed = opened.and_then(|(plain, mark)| {
            Index::parse(name, &plain).map(|index| Index { mark, ..index })
        });
        Ok(Some(parsed))
    }

    /// The packs that have the object, after another look at the bucket if none is known.
    ///
    /// Where packs were seen to go, one list is not enough: it may be of before and after a move.
    fn holders(&self, id: &ObjectId, mut moved: bool) -> Result<Vec<Arc<Index>>, Error> {
        let holders = self.known().holders(id);
        if !holders.is_empty() {
            return Ok(holders);
        }
        let _changing = lock(&self.changing);
        for _ in 0..ROUNDS {
            let gone = self.refresh_now()?;
            if !(gone || moved) || !self.known().holders(id).is_empty() {
                break;
            }
            moved = false;
        }
        let known = self.known();
        let holders = known.holders(id);
        match known.refusal() {
            Some((name, why)) if holders.is_empty() => {
                Err(corrupt(id, format!("the index {} cannot be used: {why}", name.index_key())))
            }
            _ => Ok(holders),
        }
    }

    /// The object in its stored form, verified unless only the owner's key for secrets could.
    pub fn get_stored(&self, id: &ObjectId) -> Result<Vec<u8>, Error> {
        self.read(id, |stored| match stored.first() {
            Some(&CODEC_SEALED) => Ok(stored),
            // What is in pieces is verified as a whole by who puts them together.
            _ if ChunkManifest::of(id, &stored)?.is_some() => Ok(stored),
            _ => unpack_object(id, &stored).map(|_| stored),
        })
    }

    /// Reads the object from the packs that have it until one copy passes.
    fn read<T>(
        &self,
        id: &ObjectId,
        check: impl Fn(Vec<u8>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut moved = false;
        for _ in 0..ROUNDS {
            let mut failed = None;
            let holders = self.holders(id, moved)?;
            for index in &holders {
                match self.read_from(index, id, &check) {
                    Ok(read) => return Ok(read),
                    // It was written anew into another pack, or is gone.
                    Err(Error::Missing(_)) => self.known().forget(&index.name),
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                if matches!(error, Error::Corrupt { .. }) {
                    self.known().mark_damaged(*id);
                }
                return Err(error);
            }
            if holders.is_empty() {
                break;
            }
            moved = true;
        }
        Err(Error::Missing(*id))
    }

    fn read_from<T>(
        &self,
        index: &Index,
        id: &ObjectId,
        check: impl Fn(Vec<u8>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let location = index.find(id).ok_or(Error::Missing(*id))?;
        let mut last = Error::Missing(*id);
        for _ in 0..READS {
            let checked = match self.read_location(index, location) {
                Ok(Ok(stored)) => check(stored),
                Ok(Err(why)) => Err(corrupt(id, why)),
                Err(error) => match error.cause {
                    Cause::Missing => return Err(Error::Missing(*id)),
                    Cause::Damaged => Err(corrupt(id, error.to_string())),
                    _ => return Err(error.into()),
                },
            };
            match checked {
                Err(error @ Error::Corrupt { .. }) => last = error,
                other => return other,
            }
        }
        Err(last)
    }

    pub(crate) fn read_location(
        &self,
        index: &Index,
        location: Location,
    ) -> Result<Result<Vec<u8>, &'static str>, RemoteError> {
        let (range, pack_key) = (location.range(), index.name.pack_key());
        if index.mark.is_none() {
            return self.bucket.get_range(&pack_key, range).map(Ok);
        }
        let cover = cover(&range, index.length);
        let sealed = self.bucket.get_range(&pack_key, cover.sealed)?;
        let keys = self.keys();
        let Some(key) = keys.of(index.mark) else { return Ok(Err("its key is not here")) };
        let sealer = Sealer::new(key, index.nonce, Kind::Pack, &[]);
        let plain = sealer.open_pieces(cover.first, index.length, &sealed);
        let wanted = cover.skip..cover.skip + location.length as usize;
        Ok(plain.and_then(|plain| Ok(plain.get(wanted).ok_or("it is cut off")?.to_vec())))
    }

    /// Writes a pack and then its index.
    pub(crate) fn upload(&self, builder: PackBuilder) -> Result<(), Error> {
        let Finished { index, pack_bytes, index_bytes } = builder.finish(self.keys().newest());
        self.bucket.put(&index.name.pack_key(), pack_bytes)?;
        self.bucket.put(&index.name.index_key(), index_bytes)?;
        self.known().add_written(Arc::new(index));
        Ok(())
    }

    /// Takes objects away: each pack that has one is written anew without, and then deleted.
    ///
    /// Not for several machines at once: each would carry over what the other takes away.
    pub fn delete_all(&self, ids: &[ObjectId]) -> Result<(), Error> {
        let ids: HashSet<ObjectId> = ids.iter().copied().collect();
        let _changing = lock(&self.changing);
        for _ in 0..ROUNDS {
            self.refresh_now()?;
            let mut packs = BTreeMap::new();
            {
                let known = self.known();
                let holders = ids.iter().flat_map(|id| known.holders(id));
                packs.extend(holders.map(|index| (index.name, index)));
            }
            if packs.is_empty() {
                return Ok(());
            }
            packs.values().try_for_each(|index| self.rewrite_without(index, &ids))?;
        }
        Err(Error::Busy(format!(
            "others keep writing what is deleted from {}",
            self.bucket.place()
        )))
    }

    fn rewrite_without(&self, index: &Index, ids: &HashSet<ObjectId>) -> Result<(), Error> {
        let kept = index.objects.iter().filter(|(id, _)| !ids.contains(id));
        let mut builder = PackBuilder::new();
        if kept.clone().next().is_some() {
            let plain = self.read_pack(index)?;
            for (id, location) in kept {
                let range = location.range();
                builder.add(*id, &plain[range.start as usize..range.end as usize]);
            }
            self.upload(builder)?;
        }
        self.remove(index)
    }

    /// Takes a pack away, its index first.
    pub(crate) fn remove(&self, index: &Index) -> Result<(), Error> {
        self.bucket.delete(&index.name.index_key())?;
        self.bucket.delete(&index.name.pack_key())?;
        self.known().forget(&index.name);
        Ok(())
    }

    /// A whole pack, which must be the one that its name says: damage is not carried over.
    pub(crate) fn read_pack(&self, index: &Index) -> Result<Vec<u8>, Error> {
        let key = index.name.pack_key();
        let damaged = |why: &str| {
            let (id, _) = index.objects[0];
            corrupt(&id, format!("the pack {key} that has it cannot be written anew: {why}"))
        };
        let bytes = self.bucket.get(&key)?;
        if PackName::of(&bytes, self.keys().of(index.mark)) != index.name {
            return Err(damaged("its bytes have another hash"));
        }
        let (plain, _) = self.keys().open(Kind::Pack, &[], bytes).map_err(damaged)?;
        match plain.len() as u64 == index.length {
            true => Ok(plain),
            false => Err(damaged("its length is wrong")),
        }
    }
}

impl ContentStorage for RemoteStore {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        match self.open(id)? {
            Opened::Whole(bytes) => return Ok(bytes),
            Opened::Pieces(manifest) => self
                .pieces_reader(*id, manifest)
                .read_to_end(&mut bytes)
                .map_err(|error| unread(id, error))?,
        };
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<(), Error> {
        let found = ObjectId::of(bytes);
        if found != *id {
            return Err(corrupt(id, format!("its bytes have the hash {found}")));
        }
        if bytes.len() > CONTENT_MAX {
            return Err(not_taken(ErrorKind::FileTooLarge.into()));
        }
        let mut writer = self.writer();
        writer.add(id, &pack_object(bytes))?;
        writer.finish().map(|_| ())
    }

    fn exists(&self, id: &ObjectId) -> Result<bool, Error> {
        Ok(!self.holders(id, false)?.is_empty())
    }

    fn delete(&self, id: &ObjectId) -> Result<(), Error> {
        self.delete_all(&[*id])
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>, Error> {
        Ok(match self.open(id)? {
            Opened::Whole(bytes) => Box::new(Cursor::new(bytes)),
            Opened::Pieces(manifest) => Box::new(self.pieces_reader(*id, manifest)),
        })
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64), Error> {
        let mut start = Vec::new();
        source.take(LARGE_OBJECT as u64 + 1).read_to_end(&mut start).map_err(not_taken)?;
        if start.len() <= LARGE_OBJECT {
            let id = ObjectId::of(&start);
            self.put(&id, &start)?;
            return Ok((id, start.len() as u64));
        }
        let writer = Mutex::new(self.writer());
        let mut source = start.as_slice().chain(source);
        let (id, manifest) = cut_into_pieces(&mut source, &|piece| {
            let id = ObjectId::of(piece);
            lock(&writer).add(&id, &pack_object(piece)).map(|()| id)
        })?;
        let mut writer = writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.add(&id, &manifest.encode())?;
        writer.finish()?;
        Ok((id, manifest.length))
    }
}

/// An object that was read: all of it, or what it is made of.
enum Opened {
    Whole(Vec<u8>),
    Pieces(ChunkManifest),
}

impl RemoteStore {
    fn open(&self, id: &ObjectId) -> Result<Opened, Error> {
        self.read(id, |stored| match ChunkManifest::of(id, &stored)? {
            Some(manifest) => Ok(Opened::Pieces(manifest)),
            None => unpack_object(id, &stored).map(Opened::Whole),
        })
    }
}

/// What a stream that failed is called where the whole was asked for.
fn unread(id: &ObjectId, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidData if error.get_ref().is_none_or(|e| !e.is::<RemoteError>()) => {
            corrupt(id, error.to_string())
        }
        _ => Error::Io { action: "read", path: PathBuf::from(id.hex()), source: error },
    }
}

/// The error of content that cannot be taken in.
pub(crate) fn not_taken(source: std::io::Error) -> Error {
    Error::Io { action: "take in", path: PathBuf::from("(content)"), source }
}

pub(crate) fn corrupt(id: &ObjectId, why: impl Into<String>) -> Error {
    Error::Corrupt { object: *id, why: why.into() }
}
