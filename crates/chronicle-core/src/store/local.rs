//! The store of one home: packs of small objects, and files of their own for large and single ones.
//!
//! Any number of processes may use it at once. Taking content in holds the store's lock shared,
//! taking objects away holds it exclusively, reading holds nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::away;
use super::clones::Clones;
use super::encrypting::check_form;
use super::files::{self, Lock, Temporary};
use super::loose::Loose;
use super::pack::Directories;
use super::packs::Packs;
use super::tier::Tier;
use super::{
    CODEC_SEALED, ContentStorage, Intake, LARGE_OBJECT, Piece, SOURCE, SealedStorage, corrupt,
    pack_object, unpack_object, verify,
};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;
use crate::secret::Secrets;

pub(super) const FORMAT_VERSION: u64 = 1;
pub(super) const FORMAT_WORDS: &str = "chronicle store ";

/// The content store of a home, on the local filesystem.
pub struct LocalStore {
    directory: PathBuf,
    pub(super) packs: Arc<Packs>,
    pub(super) loose: Loose,
    pub(super) clones: Clones,
    pub(super) secrets: Secrets,
    /// What is not here may be there.
    tier: Tier,
    /// Open intakes of this handle: waiting for them would be waiting for oneself.
    intakes: AtomicUsize,
}

impl LocalStore {
    /// Opens the store in this directory, and makes it if it is not there; it seals nothing.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_with(directory, &Secrets::default())
    }

    /// The same, with the key that seals secrets.
    pub(crate) fn open_with(directory: &Path, secrets: &Secrets) -> Result<Self> {
        Self::open_before(directory, secrets, &Tier::default())
    }

    /// The same, before a store that has more.
    pub(crate) fn open_before(directory: &Path, secrets: &Secrets, tier: &Tier) -> Result<Self> {
        let temporary = directory.join("tmp");
        let directories =
            Directories { packs: directory.join("packs"), temporary: temporary.clone() };
        let packs = Arc::new(Packs::new(directories, secrets.clone()));
        let objects = directory.join("objects");
        let store = Self {
            directory: directory.to_owned(),
            clones: Clones::new(directory.join("clones"), temporary.clone()),
            loose: Loose::new(
                objects,
                temporary,
                secrets.clone(),
                Arc::clone(&packs),
                tier.clone(),
            ),
            packs,
            secrets: secrets.clone(),
            tier: tier.clone(),
            intakes: AtomicUsize::new(0),
        };
        match files::open(&store.format_path())? {
            Some(mut file) => store.check_format(&mut file)?,
            None => store.create()?,
        }
        Ok(store)
    }

    /// Begins to take content in for one capture.
    pub fn intake(&self) -> Result<Intake<'_>> {
        Intake::new(self)
    }

    /// Takes several objects away, rewriting each pack at most once.
    pub fn delete_all(&self, objects: &[ObjectId]) -> Result<()> {
        if self.intakes.load(Ordering::Acquire) > 0 {
            return Err(Error::Busy("content is being taken in".to_owned()));
        }
        let _lock = Lock::exclusive(&self.lock_path())?;
        objects.iter().try_for_each(|id| self.loose.delete(id))?;
        self.packs.delete(&objects.iter().copied().collect::<HashSet<_>>())
    }

    /// The names of the pieces that an object is kept in; none if it is kept whole, or not here.
    pub(crate) fn pieces_of(&self, id: &ObjectId) -> Result<Vec<ObjectId>> {
        let pieces = self.pieces(id)?.unwrap_or_default();
        Ok(pieces.into_iter().map(|piece| piece.id).collect())
    }

    /// What an object that is kept in pieces is kept as, and their names.
    pub(crate) fn manifest_of(&self, id: &ObjectId) -> Result<Option<(Vec<u8>, Vec<ObjectId>)>> {
        let manifest = self.loose.manifest(id)?;
        Ok(manifest.map(|manifest| {
            let pieces = manifest.pieces.iter().map(|piece| piece.id).collect();
            (manifest.encode(), pieces)
        }))
    }

    /// An object as it is stored, if that stands on nothing else and is sealed or whole.
    pub(crate) fn stored_alone(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        if let Some(stored) = self.loose.sealed_form(id)? {
            return Ok(Some(stored));
        }
        let stored = self.packs.stored(id, &self.packs.listed()?)?;
        Ok(stored.filter(|stored| match stored.first() {
            Some(&CODEC_SEALED) => true,
            _ => unpack_object(id, stored).is_ok(),
        }))
    }

    /// The objects with a file of their own, some of which are kept in pieces.
    pub(crate) fn large(&self) -> Result<Vec<ObjectId>> {
        Ok(self.loose.all()?.into_iter().map(|(id, _)| id).collect())
    }

    /// The same objects in the order in which they lie, so that who reads many finds neighbours together.
    pub(crate) fn by_place(&self, ids: &[ObjectId]) -> Result<Vec<ObjectId>> {
        let mut places = HashMap::new();
        for (number, pack) in (1_u64..).zip(self.packs.list_now()?.iter()) {
            // One that cannot be read is told of by who asks for what is in it.
            for (id, location) in pack.objects().unwrap_or_default() {
                places.insert(id, (number, location.offset));
            }
        }
        let mut ids = ids.to_vec();
        ids.sort_by_cached_key(|id| (places.get(id).copied(), *id));
        Ok(ids)
    }

    /// The bytes that the store takes on disk.
    pub fn stored_bytes(&self) -> Result<u64> {
        let mut bytes = directory_bytes(&self.packs.directories().packs)?;
        for name in files::names(self.loose.directory())? {
            bytes += directory_bytes(&self.loose.directory().join(name))?;
        }
        bytes += directory_bytes(self.clones.directory())?;
        Ok(bytes)
    }

    /// Opens a clone that nobody has read yet; `None` if it is not here.
    pub(crate) fn open_clone(&self, name: &ObjectId) -> Result<Option<std::fs::File>> {
        self.clones.open(name)
    }

    /// Removes clones whose content is kept under its hash by now.
    pub(crate) fn remove_clone(&self, name: &ObjectId) -> Result<()> {
        self.clones.remove(name)?;
        self.clones.sync()
    }

    /// Holds the lock under which nothing is taken away.
    pub(crate) fn hold(&self) -> Result<Lock> {
        Lock::shared(&self.lock_path())
    }

    pub(super) fn intake_opened(&self) {
        self.intakes.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn intake_closed(&self) {
        self.intakes.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.directory.join("lock")
    }

    fn format_path(&self) -> PathBuf {
        self.directory.join("format")
    }

    fn check_format(&self, file: &mut dyn Read) -> Result<()> {
        let path = self.format_path();
        let mut text = String::new();
        file.take(256).read_to_string(&mut text).at("read", &path)?;
        match text.strip_prefix(FORMAT_WORDS).map(|version| version.trim_end().parse()) {
            Some(Ok(FORMAT_VERSION)) => Ok(()),
            Some(Ok(found)) if found > FORMAT_VERSION => {
                let what = format!("Store {}", self.directory.display());
                Err(Error::Newer { what, found, known: FORMAT_VERSION })
            }
            _ => Err(std::io::Error::other("it does not name a format")).at("understand", &path),
        }
    }

    /// The format is named last: where it stands, everything else does.
    fn create(&self) -> Result<()> {
        let directories = self.packs.directories();
        make_directories(&self.directory)?;
        files::make_directory(&directories.packs)?;
        files::make_directory(&directories.temporary)?;
        let mut format = Temporary::create(&directories.temporary)?;
        let text = format!("{FORMAT_WORDS}{FORMAT_VERSION}\n");
        format.file().write_all_at(text.as_bytes(), 0).at("write", format.path())?;
        format.sync()?;
        format.rename(self.format_path())?;
        files::sync_directory(&self.directory)?;
        format.keep();
        Ok(())
    }

    /// An object from the packs that are known already; `None` says nothing about others.
    pub(crate) fn at_hand(&self, id: &ObjectId) -> Option<Vec<u8>> {
        self.packs.get(id, &self.packs.listed().ok()?, false).ok().flatten()
    }

    /// An object from the store behind this one, which is kept here from now on.
    fn get_afar(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let bytes = self.tier.get(id)?;
        // Keeping it here only saves the way.
        let _ = self.put(id, &bytes);
        Ok(bytes)
    }

    /// Takes a large object in from the store behind this one, in bounded memory.
    fn bring_near(&self, far: &dyn ContentStorage, id: &ObjectId) -> bool {
        let bring = || -> Result<bool> {
            let mut intake = self.intake()?;
            let (found, length) = intake.take_stream(&mut far.reader(id)?)?;
            // Little content would ride in somebody's commit, and there is none.
            let large = length > super::WHOLE_MAX as u64;
            if large {
                intake.finish()?;
            }
            Ok(large && found == *id)
        };
        bring().unwrap_or(false)
    }

    /// The objects that were taken away because the store behind this one has them.
    pub(crate) fn away(&self) -> Result<BTreeSet<ObjectId>> {
        away::read(&self.directory)
    }

    /// Says that objects are about to be taken away because the store behind this one has them.
    pub(crate) fn say_away(&self, ids: impl IntoIterator<Item = ObjectId>) -> Result<()> {
        let _lock = Lock::exclusive(&self.lock_path())?;
        away::add(&self.directory, ids)
    }

    /// The bytes of a clone. No hash is known that they could be compared with.
    fn read_clone(&self, name: &ObjectId) -> Result<Vec<u8>> {
        let Some(mut clone) = self.clones.open(name)? else { return Err(Error::Missing(*name)) };
        let mut bytes = Vec::new();
        clone.read_to_end(&mut bytes).at("read", self.clones.directory())?;
        Ok(bytes)
    }

    fn find(&self, id: &ObjectId) -> Result<bool> {
        let listed = self.packs.listed()?;
        if matches!(self.packs.find(id, &listed, false), Ok(Some(_))) || self.loose.exists(id)? {
            return Ok(true);
        }
        let packed = self.packs.find(id, &self.packs.list_again()?, true)?.is_some();
        Ok(packed || self.clones.exists(id)?)
    }

    /// Whether the object is here and survives a power cut.
    fn is_kept(&self, id: &ObjectId) -> Result<bool> {
        // An index that cannot be read has no say: keeping an object twice is no harm.
        if let Ok(Some(pack)) = self.packs.find(id, &self.packs.list_again()?, false) {
            if !pack.is_settled() {
                self.packs.settle()?;
            }
            return Ok(true);
        }
        let exists = self.loose.exists(id)?;
        if exists {
            self.loose.settle(id)?;
        }
        Ok(exists)
    }
}

/// Makes a directory and all above it durably, each for its owner alone.
fn make_directories(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if !files::is_there(parent)? {
        make_directories(parent)?;
    }
    if files::make_directory(path)? {
        files::sync_directory(parent)?;
    }
    Ok(())
}

fn directory_bytes(directory: &Path) -> Result<u64> {
    let size = |name| match rustix::fs::lstat(directory.join(name)) {
        Ok(stat) => u64::try_from(stat.st_size).unwrap_or(0),
        Err(_) => 0,
    };
    Ok(files::names(directory)?.into_iter().map(size).sum())
}

impl ContentStorage for LocalStore {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        // The first look trusts what is at hand; only the second may call anything missing.
        if let Ok(Some(bytes)) = self.packs.get(id, &self.packs.listed()?, false) {
            return Ok(bytes);
        }
        let loose = self.loose.get(id);
        if let Ok(Some(bytes)) = loose {
            return Ok(bytes);
        }
        let packed = self.packs.get(id, &self.packs.list_again()?, true);
        match (packed, loose) {
            (Ok(Some(bytes)), _) => Ok(bytes),
            (Err(error), _) | (_, Err(error)) => self.get_afar(id).map_err(|_| error),
            (Ok(None), Ok(_)) => match self.read_clone(id) {
                Err(Error::Missing(_)) => self.get_afar(id),
                clone => clone,
            },
        }
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        verify(id, bytes)?;
        let _lock = self.hold()?;
        // Reading it back lets a damaged object be replaced by a good one.
        if self.is_kept(id)? && self.get(id).is_ok() {
            return Ok(());
        }
        if bytes.len() > LARGE_OBJECT {
            return self.loose.replace(bytes);
        }
        self.loose.put(id, &pack_object(bytes))
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        self.find(id)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.delete_all(&[*id])
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        if let Some(reader) = self.loose.reader(id)? {
            return Ok(Box::new(reader));
        }
        if let Some(clone) = self.clones.open(id)? {
            return Ok(Box::new(clone));
        }
        match self.tier.store() {
            Some(far) if !self.find(id)? && self.bring_near(far, id) => self.reader(id),
            _ => Ok(Box::new(Cursor::new(self.get(id)?))),
        }
    }

    fn pieces(&self, id: &ObjectId) -> Result<Option<Vec<Piece>>> {
        Ok(self.loose.manifest(id)?.map(|manifest| manifest.pieces))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let start = read_start(source)?;
        if start.len() <= LARGE_OBJECT {
            let id = ObjectId::of(&start);
            self.put(&id, &start)?;
            return Ok((id, start.len() as u64));
        }
        let _lock = self.hold()?;
        self.loose.put_stream(&mut start.as_slice().chain(source))
    }
}

impl SealedStorage for LocalStore {
    fn get_sealed(&self, name: &ObjectId) -> Result<Vec<u8>> {
        match self.loose.sealed_form(name)? {
            Some(form) => Ok(form),
            None if self.exists(name)? => Err(corrupt(name, "it is not a sealed form")),
            None => Err(Error::Missing(*name)),
        }
    }

    fn put_sealed(&self, name: &ObjectId, form: &[u8]) -> Result<()> {
        check_form(name, form)?;
        let _lock = self.hold()?;
        self.loose.put(name, form)
    }
}

/// Reads one byte more than a small object has, or everything if there is less.
pub(super) fn read_start(source: &mut dyn Read) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    source.take(LARGE_OBJECT as u64 + 1).read_to_end(&mut start).at("take in", SOURCE)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_format(text: &str, expected: &str) {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b/store");
        LocalStore::open(&directory).unwrap();
        std::fs::write(directory.join("format"), text).unwrap();
        let code = LocalStore::open(&directory).err().map_or("", |error| error.code());
        assert_eq!(code, expected);
    }

    #[test]
    fn store_of_another_format_is_refused() {
        check_format("chronicle store 1\n", "");
        check_format("chronicle store 2\n", "newer_format");
        check_format("chronicle store 0\n", "io");
        check_format("chronicle store", "io");
        check_format("", "io");
    }
}
