//! Putting a store in order again, as far as its own bytes tell: leftovers, lost indexes, damage.
//!
//! Nothing is guessed: an object's name is the hash of what can be read, and what cannot be read is
//! kept aside, so that the next capture of the same content stores it anew.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{self, Lock, Temporary};
use super::group::{Members, is_group};
use super::index::{self, Location};
use super::pack::{self, Damaged, Directories, Pack};
use super::{HEADER, LARGE_OBJECT, LocalStore, corrupt, name_of, open_object};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;
use crate::secret::{Secrets, overhead};

/// How long a repair waits for captures to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was found in disorder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Disorder {
    /// Files that killed processes left.
    pub(crate) leftovers: u64,
    /// Packs whose index was lost or damaged, and the objects that they have.
    pub(crate) reindexed: Vec<(PathBuf, Vec<ObjectId>)>,
    /// Packs of which a part cannot be read any more.
    pub(crate) torn: Vec<PathBuf>,
}

/// What a pack says without its index.
pub(super) struct Scan {
    pub(super) objects: Vec<(ObjectId, Location)>,
    /// Whether something in it could not be read.
    pub(super) torn: bool,
}

impl Scan {
    /// Adds what a stored form holds.
    fn add(&mut self, stored: &[u8], offset: u64, length: u32, secrets: &Secrets) -> Result<()> {
        if is_group(stored) {
            let Ok(members) = Members::open(stored) else {
                self.torn = true;
                return Ok(());
            };
            let ids = members.iter().map(ObjectId::of);
            let place = |(member, id)| (id, Location { offset, length, member });
            self.objects.extend((0..).zip(ids).map(place));
            return Ok(());
        }
        match name_of(stored, secrets)? {
            Some(id) => self.objects.push((id, Location::alone(offset, length))),
            None => self.torn = true,
        }
        Ok(())
    }
}

/// Reads every object off a pack itself: each is preceded by its length, and its hash is its name.
pub(super) fn scan(file: &File, path: &Path, secrets: &Secrets) -> Result<Scan> {
    let end = file.metadata().at("examine", path)?.len();
    let mut scan = Scan { objects: Vec::new(), torn: false };
    let mut start = [0; pack::MAGIC.len()];
    if end < start.len() as u64 {
        return Ok(Scan { torn: true, ..scan });
    }
    file.read_exact_at(&mut start, 0).at("read", path)?;
    // What a pack begins with says nothing of what follows.
    scan.torn = &start != pack::MAGIC;
    let mut at = start.len() as u64;
    while at < end {
        let mut length = [0; 4];
        let fits = end - at >= 4;
        if fits {
            file.read_exact_at(&mut length, at).at("read", path)?;
        }
        let (offset, length) = (at + 4, u32::from_le_bytes(length));
        // From a length that is wrong on, nothing tells where the next object begins.
        if !fits || length as usize > LONGEST || end - offset < u64::from(length) {
            scan.torn = true;
            break;
        }
        let mut stored = vec![0; length as usize];
        file.read_exact_at(&mut stored, offset).at("read", path)?;
        scan.add(&stored, offset, length, secrets)?;
        at = offset + u64::from(length);
    }
    Ok(scan)
}

/// The longest stored form in a pack.
const LONGEST: usize = LARGE_OBJECT + HEADER + overhead(LARGE_OBJECT + HEADER);

/// Gives a pack an index made from the pack itself.
pub(super) fn write_index(scan: &mut Scan, path: &Path, directories: &Directories) -> Result<()> {
    // Damage can make two objects look alike; one name has one place.
    scan.objects.sort_unstable_by_key(|(id, location)| (*id, location.offset));
    scan.objects.dedup_by_key(|(id, _)| *id);
    let mut index = Temporary::create(&directories.temporary)?;
    let bytes = index::encode(scan.objects.clone());
    index.file().write_all_at(&bytes, 0).at("write", index.path())?;
    index.sync()?;
    index.rename(path.with_extension("idx"))?;
    index.keep();
    files::sync_directory(&directories.packs)
}

impl LocalStore {
    /// Looks for what killed processes left and for packs without a good index; repairs both if
    /// told to.
    pub(crate) fn tend(&self, repair: bool) -> Result<Disorder> {
        let _lock = self.hold()?;
        let directories = self.packs.directories();
        let mut disorder = Disorder::default();
        for name in files::names(&directories.temporary)? {
            let path = directories.temporary.join(name);
            if let Some(_lock) = files::abandoned(&path)? {
                disorder.leftovers += 1;
                if repair {
                    files::remove(&path)?;
                }
            }
        }
        for name in files::names(&directories.packs)? {
            let path = directories.packs.join(&name);
            if name.ends_with(".gone") && repair {
                pack::finish_removal(&path)?;
            }
            disorder.leftovers += u64::from(name.ends_with(".gone"));
            let Some(stem) = name.strip_suffix(".pack") else { continue };
            self.tend_pack(stem, &path, repair, &mut disorder)?;
        }
        self.packs.forget()?;
        Ok(disorder)
    }

    fn tend_pack(
        &self,
        stem: &str,
        path: &Path,
        repair: bool,
        disorder: &mut Disorder,
    ) -> Result<()> {
        let directories = self.packs.directories();
        let pack = Pack::new(&directories.packs, stem);
        if files::is_there(&path.with_extension("gone"))? {
            return Ok(());
        }
        if files::is_there(&path.with_extension("idx"))? && pack.objects().is_ok() {
            return Ok(());
        }
        // A living writer names its index in a moment.
        let Some(file) = files::abandoned(path)? else { return Ok(()) };
        let mut scan = scan(&file, path, &self.secrets)?;
        // A pack in which nothing can be found stays as it is: an index would hide that.
        if scan.objects.is_empty() {
            disorder.torn.push(path.to_owned());
            return Ok(());
        }
        if repair {
            write_index(&mut scan, path, directories)?;
        }
        let mut ids: Vec<ObjectId> = scan.objects.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        disorder.reindexed.push((path.to_owned(), ids));
        if scan.torn {
            disorder.torn.push(path.to_owned());
        }
        Ok(())
    }

    /// Takes what is damaged of these objects out of the store and keeps it in a directory beside
    /// it; good copies stay.
    pub(crate) fn quarantine(&self, objects: &HashSet<ObjectId>) -> Result<PathBuf> {
        let aside = self.aside();
        let _lock = Lock::exclusive_within(&self.lock_path(), PATIENCE)?;
        files::make_directory(&aside)?;
        // A piece that is damaged would be taken for one that is here.
        let pieces = objects.iter().flat_map(|id| self.pieces_of(id).unwrap_or_default());
        let objects: HashSet<ObjectId> = objects.iter().copied().chain(pieces).collect();
        for id in &objects {
            if matches!(self.loose.get(id), Err(Error::Corrupt { .. })) {
                self.loose.move_to(id, &aside.join(id.hex()))?;
            }
        }
        for pack in self.packs.list_again()?.iter() {
            let listed = pack.objects()?;
            if listed.iter().any(|(id, _)| objects.contains(id)) {
                self.quarantine_from(pack, &listed, &aside)?;
            }
        }
        files::sync_directory(&aside)?;
        files::sync_directory(self.directory())?;
        self.packs.forget()?;
        Ok(aside)
    }

    /// Where damaged bytes are put aside.
    pub(super) fn aside(&self) -> PathBuf {
        self.directory().join("quarantine")
    }

    /// Everything in a pack that cannot be read goes, asked for or not: a pack is written anew only
    /// from what can.
    fn quarantine_from(
        &self,
        pack: &Pack,
        listed: &[(ObjectId, Location)],
        aside: &Path,
    ) -> Result<()> {
        let Some(file) = files::open(pack.path())? else { return Ok(()) };
        let (mut gone, mut places) = (HashSet::new(), HashSet::new());
        for (id, location) in listed {
            let stored = read_what_is_there(&file, *location);
            if matches!(self.open_at(id, *location, &stored), Err(Error::Corrupt { .. })) {
                // A group is kept under the name of one of its members.
                if places.insert(location.offset) {
                    keep_aside(&aside.join(id.hex()), &stored)?;
                }
                gone.insert(*id);
            }
        }
        match gone.iter().next() {
            Some(first) => {
                pack.rewrite_without(&gone, self.packs.directories(), first, Damaged::Goes)
            }
            None => Ok(()),
        }
    }

    /// The object, if its bytes are what was read from its place.
    fn open_at(&self, id: &ObjectId, location: Location, stored: &[u8]) -> Result<Vec<u8>> {
        if !is_group(stored) {
            return open_object(id, stored, &self.secrets);
        }
        let members = Members::open(stored).map_err(|why| corrupt(id, why))?;
        members.get(id, location.member).map(<[u8]>::to_vec)
    }
}

/// Keeps damaged bytes aside, durably.
pub(crate) fn keep_aside(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path).at("create", path)?;
    file.write_all_at(bytes, 0).at("write", path)?;
    file.sync_all().at("sync", path)
}

/// The bytes of a place in a pack, as far as there are any.
fn read_what_is_there(file: &File, location: Location) -> Vec<u8> {
    let mut bytes = vec![0; (location.length as usize).min(LONGEST)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], location.offset + filled as u64) {
            Ok(count) if count > 0 => filled += count,
            _ => break,
        }
    }
    bytes.truncate(filled);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ContentStorage;

    /// A store with one pack of so many objects.
    fn packed(count: u32) -> (tempfile::TempDir, LocalStore, Vec<ObjectId>) {
        let home = tempfile::tempdir().unwrap();
        let store = LocalStore::open(&home.path().join("store")).unwrap();
        let mut intake = store.intake().unwrap();
        let content = |n: u32| n.to_le_bytes().repeat(300);
        let ids = (0..count).map(|n| intake.take(&content(n)).unwrap()).collect();
        assert_eq!(intake.finish().unwrap(), []);
        drop(intake);
        (home, store, ids)
    }

    fn the_pack(store: &LocalStore) -> PathBuf {
        store.packs.list_again().unwrap()[0].path().to_owned()
    }

    #[test]
    fn a_lost_or_damaged_index_is_made_anew() {
        let (_home, store, ids) = packed(100);
        let index = the_pack(&store).with_extension("idx");
        let bytes = std::fs::read(&index).unwrap();
        for damage in [None, Some(&bytes[..bytes.len() - 1]), Some(&b"nonsense"[..])] {
            match damage {
                None => std::fs::remove_file(&index).unwrap(),
                Some(damaged) => std::fs::write(&index, damaged).unwrap(),
            }
            let found = store.tend(false).unwrap();
            assert_eq!((found.reindexed.len(), found.torn.len()), (1, 0));
            assert_eq!(store.tend(true).unwrap(), found);
            assert_eq!(std::fs::read(&index).unwrap(), bytes);
            assert_eq!(store.tend(true).unwrap(), Disorder::default());
            assert!(ids.iter().all(|id| store.get(id).is_ok()));
        }
    }

    #[test]
    fn no_capture_takes_a_damaged_pack_without_an_index_for_a_leftover() {
        let (_home, store, ids) = packed(100);
        let path = the_pack(&store);
        std::fs::remove_file(path.with_extension("idx")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        // Its beginning and the first length: nothing in it can be found any more.
        file.write_all_at(&[0xff; 16], 0).unwrap();
        pack::tend_orphans(store.packs.directories(), &store.secrets).unwrap();
        assert!(path.exists() && !path.with_extension("idx").exists());
        // With its lengths all of it is found, whatever it begins with.
        file.write_all_at(&whole[12..16], 12).unwrap();
        pack::tend_orphans(store.packs.directories(), &store.secrets).unwrap();
        store.packs.forget().unwrap();
        assert!(ids.iter().all(|id| store.get(id).is_ok()));
    }

    #[test]
    fn what_is_damaged_goes_aside_and_the_rest_stays() {
        let (_home, store, ids) = packed(100);
        let path = the_pack(&store);
        let pack = &store.packs.list_again().unwrap()[0];
        let location = pack.find(&ids[7], true).unwrap().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"XXXXXXXX", location.offset + 10).unwrap();
        assert!(store.get(&ids[7]).is_err());
        let aside = store.quarantine(&HashSet::from([ids[7]])).unwrap();
        assert!(aside.join(ids[7].hex()).exists());
        assert!(matches!(store.get(&ids[7]), Err(crate::Error::Missing(_))));
        assert!(ids.iter().filter(|id| **id != ids[7]).all(|id| store.get(id).is_ok()));
        store.put(&ids[7], &7u32.to_le_bytes().repeat(300)).unwrap();
        assert!(store.get(&ids[7]).is_ok());
    }

    #[test]
    fn a_pack_that_was_cut_off_keeps_what_it_has() {
        let (_home, store, ids) = packed(100);
        let path = the_pack(&store);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        let lost: HashSet<_> = ids.iter().filter(|id| store.get(id).is_err()).copied().collect();
        assert!(lost.len() > 20 && lost.len() < 80);
        store.quarantine(&lost).unwrap();
        assert!(ids.iter().all(|id| store.get(id).is_ok() != lost.contains(id)));
        // Without its index the same pack says the same.
        let path = the_pack(&store);
        std::fs::remove_file(path.with_extension("idx")).unwrap();
        store.tend(true).unwrap();
        assert!(ids.iter().all(|id| store.get(id).is_ok() != lost.contains(id)));
    }
}
