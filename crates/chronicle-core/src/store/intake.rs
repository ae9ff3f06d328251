//! Takes content in for one capture: little as rows for the catalog's transaction, much as packs.
//!
//! Several threads may take at once; they hash and compress side by side and meet only to append.
//! Nothing counts before `finish`, and an intake that is dropped before leaves nothing half.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::chunks;
use super::clones::{Cloned, Cloning};
use super::files::{self, Lock};
use super::group::{Class, Group};
use super::local::read_start;
use super::pack::{PackWriter, tend_orphans};
use super::packs::List;
use super::{CODEC_SEALED, FAST_LEVEL, HEADER, LARGE_OBJECT, LEVEL, LocalStore, Stored};
use super::{compressed, corrupt, open_object, pack_secret, with_raw, with_stored, with_stored_at};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::id::ObjectId;
use crate::room::{Limits, Room};
use crate::secret::{SecretKey, SecretRules};

/// Up to so many objects, and so many bytes of them, ride in the catalog's transaction.
const ROWS_MAX: usize = 64;
const ROW_BYTES_MAX: usize = 1 << 20;
const WAITING_PART: usize = 4;

/// What is larger is kept in pieces: against an earlier version it would find nothing, since zstd looks no
/// further back than this.
pub(crate) const WHOLE_MAX: usize = 2 << 20;

/// Content alone in a pack that is compressed fast: where that was measured, it saves a fifth of the time and costs a
/// twentieth of the room.
const FAST: std::ops::RangeInclusive<usize> = (32 << 10) + 1..=512 << 10;

/// A small object that must ride in the catalog's transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub id: ObjectId,
    /// Its stored form, for [`unpack_object`](super::unpack_object).
    pub stored: Vec<u8>,
    /// An earlier version of it: what was kept as it is may be smaller against that.
    pub base: Option<ObjectId>,
}

/// What was taken in and is not durable yet.
enum Gathered {
    Rows { rows: Vec<Row>, bytes: usize },
    Pack(PackWriter),
}

impl Gathered {
    const NOTHING: Self = Self::Rows { rows: Vec::new(), bytes: 0 };
}

/// What the store had when the first object came.
struct Seen {
    packs: List,
    has_loose: bool,
}

/// Why nothing of this intake may count.
enum Failure {
    NoSpace,
    OverBudget(PathBuf, String),
    Other(String),
}

/// Content on its way into the store; the store's lock is held until it is dropped.
pub struct Intake<'s> {
    store: &'s LocalStore,
    claimed: Mutex<HashSet<ObjectId>>,
    gathered: Mutex<Gathered>,
    /// Small objects that will be compressed together, once there is a pack.
    small: Mutex<Group>,
    /// The same for those of middle length.
    middle: Mutex<Group>,
    /// Emptied ones, for their memory.
    spare: Mutex<Vec<Group>>,
    /// The buffer being written, and the right to write: taken while `gathered` is still held.
    writing: Mutex<Vec<u8>>,
    seen: OnceLock<Seen>,
    failed: OnceLock<Failure>,
    unsettled: AtomicBool,
    lock: Lock,
    in_haste: bool,
    /// What large objects are kept as; each counts only once its pieces are durable.
    manifests: Mutex<Vec<(ObjectId, Vec<u8>)>>,
    /// The home and its limits, if there are any, and what is left within them once asked.
    limits: Option<(PathBuf, Limits)>,
    room: OnceLock<Room>,
    rules: Option<SecretRules>,
    /// Large files are cloned, where that can be done.
    cloning: Option<Cloning>,
}

impl<'s> Intake<'s> {
    pub(super) fn new(store: &'s LocalStore) -> Result<Self> {
        let lock = store.hold()?;
        store.intake_opened();
        Ok(Self {
            store,
            claimed: Mutex::default(),
            gathered: Mutex::new(Gathered::NOTHING),
            small: Mutex::default(),
            middle: Mutex::new(Group::of(Class::Middle)),
            spare: Mutex::default(),
            writing: Mutex::default(),
            seen: OnceLock::new(),
            failed: OnceLock::new(),
            unsettled: AtomicBool::new(false),
            lock,
            in_haste: false,
            manifests: Mutex::default(),
            limits: None,
            room: OnceLock::new(),
            rules: None,
            cloning: None,
        })
    }

    /// Leaves little content as it is: compressing it would be a good part of a small capture.
    ///
    /// Whoever has time compresses the rows later.
    pub(crate) fn in_haste(mut self) -> Self {
        self.in_haste = true;
        self
    }

    /// Gathers everything in packs, which are there once they are durable: for content that is needed
    /// before any commit names it.
    pub(crate) fn in_packs(self) -> Result<Self> {
        self.begin_pack()?;
        Ok(self)
    }

    /// Has large files cloned and not read, where their file system can: for who cannot wait.
    pub(crate) fn cloning(mut self) -> Self {
        self.cloning = Some(Cloning::default());
        self
    }

    /// Clones an open file of so many bytes; `None` if it must be read.
    ///
    /// A clone counts as if all its bytes were added, which they are once the file itself changes.
    pub(crate) fn clone_file(
        &self,
        file: &std::fs::File,
        device: u64,
        size: u64,
    ) -> Result<Option<Cloned>> {
        let Some(cloning) = self.cloning.as_ref().filter(|c| c.is_worthwhile(device, size)) else {
            return Ok(None);
        };
        if self.room()?.is_some_and(|room| !room.has(size)) {
            return Ok(None);
        }
        Ok(cloning.take(&self.store.clones, file, device))
    }

    /// Keeps a clone of what has proved to be whole, and says its name.
    pub(crate) fn keep_clone(&self, cloned: Cloned, size: u64) -> Result<ObjectId> {
        let cloning = self.cloning.as_ref().expect("BUG: nothing was cloned");
        let keep = || {
            if let Some(room) = self.room()? {
                room.take(size)?;
            }
            cloning.keep(&self.store.clones, cloned)
        };
        keep().inspect_err(|error| self.fail(error))
    }

    /// Takes no more in than the limits of a home allow.
    pub(crate) fn within(mut self, home: &Path, limits: Limits) -> Self {
        self.limits = Some((home.to_owned(), limits));
        self
    }

    /// What is left within the limits; measured when something new comes for the first time.
    fn room(&self) -> Result<Option<&Room>> {
        let Some((home, limits)) = &self.limits else { return Ok(None) };
        if self.room.get().is_none() {
            let _ = self.room.set(Room::measure(home, *limits)?);
        }
        Ok(self.room.get())
    }

    /// Holds what was taken in also after the intake is gone.
    pub(crate) fn hold(&self) -> Lock {
        self.lock.clone()
    }

    /// Takes in one object and says its name.
    pub fn take(&self, bytes: &[u8]) -> Result<ObjectId> {
        self.take_version(bytes, None)
    }

    /// The same for a later version of something, which may be kept against the earlier one.
    pub(crate) fn take_version(&self, bytes: &[u8], base: Option<ObjectId>) -> Result<ObjectId> {
        let id = ObjectId::of(bytes);
        if lock(&self.claimed).insert(id) {
            self.take_claimed(id, bytes, base).inspect_err(|error| self.fail(error))?;
        }
        Ok(id)
    }

    /// Takes in one object sealed, and says its name; without the key nothing is taken.
    pub(crate) fn take_secret(&self, bytes: &[u8]) -> Result<ObjectId> {
        let key = self.store.secrets.key_or_make()?;
        let id = key.address(bytes);
        if lock(&self.claimed).insert(id) {
            self.take_sealed(key, id, bytes).inspect_err(|error| self.fail(error))?;
        }
        Ok(id)
    }

    /// Takes in an object that was sealed elsewhere, as it is.
    ///
    /// Without the key nobody can tell whether it is what its name says; whoever opens it later can.
    pub fn take_sealed_form(&self, id: &ObjectId, stored: &[u8]) -> Result<()> {
        let parsed = Stored::parse(stored).map_err(|why| corrupt(id, why))?;
        if parsed.codec != CODEC_SEALED {
            return Err(corrupt(id, "it is not sealed"));
        }
        match open_object(id, stored, &self.store.secrets) {
            Err(Error::SecretKey(_)) => {}
            opened => drop(opened?),
        }
        if !lock(&self.claimed).insert(*id) || self.is_kept(id)? {
            return Ok(());
        }
        let taken = match parsed.raw_length > LARGE_OBJECT as u64 {
            true => self.store.loose.put(id, stored),
            false => self.append(*id, &parsed, None),
        };
        taken.inspect_err(|error| self.fail(error))
    }

    /// Takes in an object as another store has it, which was opened and compared with its name.
    pub(crate) fn take_stored(&self, id: &ObjectId, stored: &[u8]) -> Result<()> {
        let parsed = Stored::parse(stored).map_err(|why| corrupt(id, why))?;
        if !lock(&self.claimed).insert(*id) || self.is_kept(id)? {
            return Ok(());
        }
        self.append(*id, &parsed, None).inspect_err(|error| self.fail(error))
    }

    fn take_sealed(&self, key: &SecretKey, id: ObjectId, bytes: &[u8]) -> Result<()> {
        if self.is_kept(&id)? {
            return Ok(());
        }
        if bytes.len() > LARGE_OBJECT {
            return self.store.loose.put_secret_within(&mut &*bytes, self.room()?).map(|_| ());
        }
        let (_, stored) = pack_secret(key, bytes);
        let stored = Stored::parse(&stored).expect("BUG: it was just made");
        self.append(id, &stored, None)
    }

    /// Takes in everything the source gives, sealed, in bounded memory.
    pub(crate) fn take_secret_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        // The key first: nothing of a secret is read into a file without it.
        self.store.secrets.key_or_make()?;
        let start = read_start(source)?;
        if start.len() <= LARGE_OBJECT {
            return Ok((self.take_secret(&start)?, start.len() as u64));
        }
        let room = self.room()?;
        self.store.loose.put_secret_within(&mut start.as_slice().chain(source), room)
    }

    /// Decides by these rules what is secret; without any, nothing is.
    pub(crate) fn judging_by(mut self, rules: SecretRules) -> Self {
        self.rules = self.store.secrets.are_on().then_some(rules);
        self
    }

    /// The rules that decide what is secret.
    pub(crate) fn rules(&self) -> Option<&SecretRules> {
        self.rules.as_ref()
    }

    /// Takes in everything the source gives, in bounded memory, and says its name and length.
    pub fn take_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let start = read_start(source)?;
        if start.len() <= WHOLE_MAX {
            return Ok((self.take(&start)?, start.len() as u64));
        }
        // What ends within the start is not worth threads of its own.
        let threads = if start.len() > LARGE_OBJECT { threads() } else { 1 };
        let mut source = start.as_slice().chain(source);
        self.take_in_pieces(&mut source, threads).inspect_err(|error| self.fail(error))
    }

    /// Takes in a large object in pieces, of which most may be here already.
    fn take_in_pieces(&self, source: &mut dyn Read, threads: usize) -> Result<(ObjectId, u64)> {
        let take = |piece: &[u8]| self.take_piece(piece);
        let (id, manifest) = match threads {
            1 => chunks::cut(source, &take)?,
            _ => chunks::cut_on_threads(source, threads, &take)?,
        };
        let length = manifest.length;
        if lock(&self.claimed).insert(id) && !self.is_kept(&id)? {
            let stored = manifest.encode();
            if let Some(room) = self.room()? {
                room.take(stored.len() as u64)?;
            }
            lock(&self.manifests).push((id, stored));
        }
        Ok((id, length))
    }

    fn take_piece(&self, bytes: &[u8]) -> Result<ObjectId> {
        let id = ObjectId::of(bytes);
        if lock(&self.claimed).insert(id) && !self.is_kept(&id)? {
            self.begin_pack()?;
            with_stored(bytes, |stored| self.append(id, &stored, None))?;
        }
        Ok(id)
    }

    /// From here on what is gathered goes into a pack: a row is found in one catalog only.
    fn begin_pack(&self) -> Result<()> {
        self.pack_in(&mut lock(&self.gathered)).map(|_| ())
    }

    /// The pack that is being gathered, begun if there is none yet.
    fn pack_in<'g>(&self, gathered: &'g mut Gathered) -> Result<&'g mut PackWriter> {
        if let Gathered::Rows { rows, .. } = &*gathered {
            *gathered = Gathered::Pack(self.spill(rows)?);
        }
        match gathered {
            Gathered::Pack(writer) => Ok(writer),
            Gathered::Rows { .. } => unreachable!("BUG: the rows were just spilled"),
        }
    }

    /// Makes durable what was taken in; the rows are durable only with the catalog's commit.
    ///
    /// The store's lock must be held until that commit: by the intake, or by what `hold` gave.
    pub fn finish(&mut self) -> Result<Vec<Row>> {
        self.check()?;
        self.make_durable().inspect_err(|error| self.fail(error))
    }

    fn make_durable(&self) -> Result<Vec<Row>> {
        for class in [Class::Small, Class::Middle] {
            let last = std::mem::replace(&mut *lock(self.group(class)), Group::of(class));
            if !last.is_empty() {
                self.append_group(last)?;
            }
        }
        if self.unsettled.load(Ordering::Acquire) {
            self.store.packs.settle()?;
        }
        if let Some(room) = self.room.get() {
            room.settle()?;
        }
        if let Some(cloning) = &self.cloning {
            cloning.finish(&self.store.clones)?;
        }
        lock(&self.claimed).clear();
        match std::mem::replace(&mut *lock(&self.gathered), Gathered::NOTHING) {
            Gathered::Rows { rows, .. } => self.write_manifests().map(|()| rows),
            Gathered::Pack(writer) => {
                self.store.packs.add(writer.finish()?);
                self.write_manifests().map(|()| Vec::new())
            }
        }
    }

    fn write_manifests(&self) -> Result<()> {
        let manifests = std::mem::take(&mut *lock(&self.manifests));
        if manifests.is_empty() {
            return Ok(());
        }
        failpoint::hit("store_before_manifest");
        self.store.loose.put_all(&manifests)
    }

    fn take_claimed(&self, id: ObjectId, bytes: &[u8], base: Option<ObjectId>) -> Result<()> {
        if self.is_kept(&id)? {
            Ok(())
        } else if bytes.len() > WHOLE_MAX {
            lock(&self.claimed).remove(&id);
            self.take_in_pieces(&mut &*bytes, 1).map(|_| ())
        } else if (self.in_haste || base.is_some()) && self.has_rows() {
            let base = base.filter(|_| !self.in_haste);
            with_raw(bytes, |stored| self.append(id, &stored, base))
        } else if self.has_rows() {
            with_stored(bytes, |stored| self.append(id, &stored, None))
        } else if let Some(class) = Class::of(bytes.len()) {
            self.take_grouped(class, id, bytes)
        } else {
            let level = if FAST.contains(&bytes.len()) { FAST_LEVEL } else { LEVEL };
            with_stored_at(level, bytes, |stored| self.append(id, &stored, None))
        }
    }

    fn group(&self, class: Class) -> &Mutex<Group> {
        match class {
            Class::Small => &self.small,
            Class::Middle => &self.middle,
        }
    }

    /// Whoever fills a group compresses it, while others begin the next.
    fn take_grouped(&self, class: Class, id: ObjectId, bytes: &[u8]) -> Result<()> {
        let mut group = lock(self.group(class));
        let full = (!group.has_room(bytes.len())).then(|| {
            let mut spare = lock(&self.spare);
            let at = spare.iter().position(|spare| spare.class() == class);
            let spare = at.map_or_else(|| Group::of(class), |at| spare.swap_remove(at));
            std::mem::replace(&mut *group, spare)
        });
        group.push(id, bytes);
        drop(group);
        full.map_or(Ok(()), |full| self.append_group(full))
    }

    fn append_group(&self, mut group: Group) -> Result<()> {
        let length = group.compress().len() as u64;
        if let Some(room) = self.room()? {
            room.take(length)?;
        }
        let mut gathered = lock(&self.gathered);
        self.pack_in(&mut gathered)?.append_group(&group);
        self.write_chunk(gathered)?;
        group.clear();
        lock(&self.spare).push(group);
        Ok(())
    }

    fn has_rows(&self) -> bool {
        matches!(*lock(&self.gathered), Gathered::Rows { .. })
    }

    /// Another thread may already count on an object that could not be kept, so that nothing of
    /// this intake may count.
    fn fail(&self, error: &Error) {
        let failure = match error {
            Error::NoSpace(_) => Failure::NoSpace,
            Error::OverBudget { home, why } => Failure::OverBudget(home.clone(), why.clone()),
            other => Failure::Other(other.to_string()),
        };
        // The first failure is the one to tell of.
        let _ = self.failed.set(failure);
    }

    fn check(&self) -> Result<()> {
        let directory = self.store.directory();
        match self.failed.get() {
            None => Ok(()),
            Some(Failure::NoSpace) => Err(Error::NoSpace(directory.to_owned())),
            Some(Failure::OverBudget(home, why)) => {
                Err(Error::OverBudget { home: home.clone(), why: why.clone() })
            }
            Some(Failure::Other(why)) => {
                Err(std::io::Error::other(why.clone())).at("take content into", directory)
            }
        }
    }

    /// Whether the store has the object already.
    fn is_kept(&self, id: &ObjectId) -> Result<bool> {
        let seen = self.seen()?;
        // An index that cannot be read has no say: keeping an object twice is no harm.
        if let Ok(Some(pack)) = self.store.packs.find(id, &seen.packs, false) {
            if !pack.is_settled() {
                self.unsettled.store(true, Ordering::Release);
            }
            return Ok(true);
        }
        let loose = &self.store.loose;
        if !seen.has_loose || !loose.exists(id)? {
            return Ok(false);
        }
        loose.settle(id).map(|()| true)
    }

    fn seen(&self) -> Result<&Seen> {
        if let Some(seen) = self.seen.get() {
            return Ok(seen);
        }
        let has_loose = self.store.loose.is_used()?;
        let seen = Seen { packs: self.store.packs.list_now()?, has_loose };
        Ok(self.seen.get_or_init(|| seen))
    }

    fn append(&self, id: ObjectId, stored: &Stored<'_>, base: Option<ObjectId>) -> Result<()> {
        if let Some(room) = self.room()? {
            room.take((HEADER + stored.payload.len()) as u64)?;
        }
        let mut gathered = lock(&self.gathered);
        match &mut *gathered {
            Gathered::Rows { rows, bytes } => {
                // What waits to be made smaller counts as what will be left of it.
                let part = if base.is_some() { WAITING_PART } else { 1 };
                *bytes += HEADER + stored.payload.len() / part;
                rows.push(Row { id, stored: stored.to_bytes(), base });
                if rows.len() > ROWS_MAX || *bytes > ROW_BYTES_MAX {
                    self.pack_in(&mut gathered)?;
                }
            }
            Gathered::Pack(writer) => writer.append(id, &stored.header(), stored.payload),
        }
        self.write_chunk(gathered)
    }

    fn spill(&self, rows: &[Row]) -> Result<PackWriter> {
        let directories = self.store.packs.directories();
        files::discard_leftovers(&directories.temporary)?;
        tend_orphans(directories, &self.store.secrets)?;
        let mut writer = PackWriter::create(directories)?;
        for row in rows {
            let smaller = compressed(&row.stored);
            writer.append(row.id, &[], smaller.as_ref().unwrap_or(&row.stored));
        }
        Ok(writer)
    }

    /// Writes what was gathered if it is enough, while other threads gather more.
    fn write_chunk(&self, mut gathered: MutexGuard<'_, Gathered>) -> Result<()> {
        let Gathered::Pack(writer) = &mut *gathered else { return Ok(()) };
        if !writer.has_chunk() {
            return Ok(());
        }
        let mut buffer = lock(&self.writing);
        let chunk = writer.take_chunk(&mut buffer);
        let full = writer.is_full().then(|| std::mem::replace(&mut *gathered, Gathered::NOTHING));
        drop(gathered);
        let written = chunk.write(&buffer);
        buffer.clear();
        // Noted while nobody else can write: a pack with a hole must never be finished.
        written.inspect_err(|error| self.fail(error))?;
        if let Some(Gathered::Pack(writer)) = full {
            self.check()?;
            self.store.packs.add(writer.finish()?);
        }
        Ok(())
    }
}

/// How many threads take in the pieces of one large object: others may be at work on the next.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4))
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        self.store.intake_closed();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::unpack_object;
    use super::*;
    use crate::store::ContentStorage;

    fn content(number: usize) -> Vec<u8> {
        format!("file {number} says the same again and again\n").repeat(100).into_bytes()
    }

    #[test]
    fn in_haste_little_is_left_as_it_is_and_much_is_packed_small() {
        let home = tempfile::tempdir().unwrap();
        let store = LocalStore::open(&home.path().join("store")).unwrap();
        let mut intake = store.intake().unwrap().in_haste();
        let id = intake.take(&content(0)).unwrap();
        let rows = intake.finish().unwrap();
        assert_eq!(rows.len(), 1);
        assert!(rows[0].stored.len() > content(0).len());
        let smaller = compressed(&rows[0].stored).unwrap();
        assert!(smaller.len() < content(0).len() / 4);
        assert_eq!(compressed(&smaller), None);
        assert_eq!(unpack_object(&id, &smaller).unwrap(), content(0));
        drop(intake);

        let mut intake = store.intake().unwrap().in_haste();
        let ids: Vec<_> =
            (1..=3 * ROWS_MAX).map(|number| intake.take(&content(number)).unwrap()).collect();
        assert_eq!(intake.finish().unwrap(), []);
        drop(intake);
        for (number, id) in (1..).zip(&ids) {
            assert_eq!(store.get(id).unwrap(), content(number));
        }
        let whole = content(0).len() as u64 * ids.len() as u64;
        assert!(store.stored_bytes().unwrap() < whole / 4);
    }
}
