//! All packs of a store: which there are, and which of them has an object.
//!
//! Nothing is listed before the first question. Other processes add packs and take them away, so
//! whoever misses something lists again.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::files;
use super::group::Members;
use super::index::Location;
use super::pack::{Damaged, Directories, Found, Pack};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::id::{ObjectId, Time};
use crate::secret::Secrets;

/// Packs that are kept open between reads.
const OPEN_PACKS: usize = 16;
/// Groups that are kept decompressed between reads: who reads one member mostly reads its neighbours.
const OPEN_GROUPS: usize = 16;
/// A directory changed within this time of its listing may have changed again unseen.
const DOUBTFUL_NS: i64 = 2_000_000_000;

pub(super) type List = Arc<Vec<Arc<Pack>>>;

pub(super) struct Packs {
    directories: Directories,
    secrets: Secrets,
    list: Mutex<Option<Listed>>,
    /// The most recently used last.
    open: Mutex<Vec<(String, Arc<File>)>>,
    /// The most recently used last.
    groups: Mutex<Vec<OpenGroup>>,
    /// The pack that answered last: what was taken in together is asked for together, and the index
    /// of every pack that is asked in vain has to be read.
    answered: Mutex<Option<Arc<Pack>>>,
}

/// A group that was read a moment ago, and where it lies.
struct OpenGroup {
    pack: String,
    offset: u64,
    members: Arc<Members>,
}

/// What the directory of packs held, and the directory's time then.
struct Listed {
    list: List,
    /// `None` where the directory changed so lately that another change could leave the same time.
    changed: Option<Time>,
}

impl Packs {
    pub(super) fn new(directories: Directories, secrets: Secrets) -> Self {
        Self {
            directories,
            secrets,
            list: Mutex::new(None),
            open: Mutex::new(Vec::new()),
            groups: Mutex::new(Vec::new()),
            answered: Mutex::new(None),
        }
    }

    pub(super) fn directories(&self) -> &Directories {
        &self.directories
    }

    /// The packs as last listed.
    pub(super) fn listed(&self) -> Result<List> {
        if let Some(listed) = &*lock(&self.list) {
            return Ok(Arc::clone(&listed.list));
        }
        self.list_again()
    }

    /// The packs as they are now, read anew only where the directory's time tells of a change.
    pub(super) fn list_now(&self) -> Result<List> {
        let changed = files::changed_at(&self.directories.packs)?;
        if let Some(listed) = &*lock(&self.list)
            && listed.changed.is_some_and(|time| Some(time) == changed)
        {
            return Ok(Arc::clone(&listed.list));
        }
        self.list_again()
    }

    /// The packs as they are now.
    pub(super) fn list_again(&self) -> Result<List> {
        let now = SystemClock.now().0;
        let changed = files::changed_at(&self.directories.packs)?;
        let changed = changed.filter(|time| now - time.0 > DOUBTFUL_NS);
        let names = files::names(&self.directories.packs)?;
        let mut listed = lock(&self.list);
        let old = listed.iter().flat_map(|listed| listed.list.iter());
        let known: HashMap<&str, &Arc<Pack>> = old.map(|pack| (pack.name(), pack)).collect();
        let stems = names.iter().filter_map(|name| name.strip_suffix(".idx"));
        let pack = |name| match known.get(name) {
            Some(pack) => Arc::clone(pack),
            None => Arc::new(Pack::new(&self.directories.packs, name)),
        };
        let list: List = Arc::new(stems.map(pack).collect());
        *listed = Some(Listed { list: Arc::clone(&list), changed });
        Ok(list)
    }

    /// Adds a pack that this process has just finished.
    pub(super) fn add(&self, pack: Pack) {
        if let Some(listed) = &mut *lock(&self.list) {
            Arc::make_mut(&mut listed.list).push(Arc::new(pack));
        }
    }

    /// The object's bytes from any pack that has it whole.
    pub(super) fn get(
        &self,
        id: &ObjectId,
        list: &List,
        thorough: bool,
    ) -> Result<Option<Vec<u8>>> {
        self.first_success(list, |pack| match pack.find(id, thorough)? {
            Some(location) => self.read(pack, id, location),
            None => Ok(None),
        })
    }

    /// The object as it is stored in any pack that has it whole, not verified.
    pub(super) fn stored(&self, id: &ObjectId, list: &List) -> Result<Option<Vec<u8>>> {
        self.first_success(list, |pack| match pack.find(id, false)? {
            Some(location) => match self.open(pack)? {
                Some(file) => pack.read_stored(&file, id, location).map(Some),
                None => Ok(None),
            },
            None => Ok(None),
        })
    }

    /// The object's bytes, from packs that came since too.
    pub(super) fn look_up(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        if let Ok(Some(bytes)) = self.get(id, &self.listed()?, false) {
            return Ok(Some(bytes));
        }
        self.get(id, &self.list_again()?, true)
    }

    /// The pack that has the object.
    pub(super) fn find(
        &self,
        id: &ObjectId,
        list: &List,
        thorough: bool,
    ) -> Result<Option<Arc<Pack>>> {
        self.first_success(list, |pack| Ok(pack.find(id, thorough)?.map(|_| Arc::clone(pack))))
    }

    /// The first answer of the pack that answered last and the others, newest first; a failure
    /// counts only if nothing else has one.
    fn first_success<T>(
        &self,
        list: &List,
        ask: impl Fn(&Arc<Pack>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let last = lock(&self.answered).clone();
        let others = list.iter().rev().filter(|pack| !last.as_ref().is_some_and(|l| l.is(pack)));
        let mut failure = None;
        for pack in last.iter().chain(others) {
            match ask(pack) {
                Ok(None) => {}
                Ok(answer) => {
                    if !last.as_ref().is_some_and(|last| last.is(pack)) {
                        *lock(&self.answered) = Some(Arc::clone(pack));
                    }
                    return Ok(answer);
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Makes the names of all packs durable, whoever made them.
    pub(super) fn settle(&self) -> Result<()> {
        let list = self.listed()?;
        files::sync_directory(&self.directories.packs)?;
        list.iter().for_each(|pack| pack.settle());
        Ok(())
    }

    /// Takes these objects out of every pack.
    pub(super) fn delete(&self, gone: &HashSet<ObjectId>) -> Result<()> {
        let list = self.list_again()?;
        for pack in list.iter() {
            for id in gone {
                if pack.find(id, true)?.is_some() {
                    pack.rewrite_without(gone, &self.directories, id, Damaged::Goes)?;
                    break;
                }
            }
        }
        self.forget()
    }

    /// Forgets what was there before packs were taken away.
    pub(super) fn forget(&self) -> Result<()> {
        lock(&self.open).clear();
        lock(&self.groups).clear();
        *lock(&self.answered) = None;
        self.list_again().map(|_| ())
    }

    /// `None` if the pack was taken away since it was listed.
    fn read(&self, pack: &Pack, id: &ObjectId, location: Location) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open(pack)? else { return Ok(None) };
        if let Some(members) = self.open_group(pack, location) {
            return members.get(id, location.member).map(|bytes| Some(bytes.to_vec()));
        }
        match pack.read(&file, id, location, &self.secrets)? {
            Found::Alone(bytes) => Ok(Some(bytes)),
            Found::Group(members) => {
                let bytes = members.get(id, location.member)?.to_vec();
                self.keep_open(pack, location, members);
                Ok(Some(bytes))
            }
        }
    }

    fn open_group(&self, pack: &Pack, location: Location) -> Option<Arc<Members>> {
        let mut groups = lock(&self.groups);
        let is_it = |open: &OpenGroup| open.offset == location.offset && open.pack == pack.name();
        let at = groups.iter().rposition(is_it)?;
        groups[at..].rotate_left(1);
        groups.last().map(|open| Arc::clone(&open.members))
    }

    fn keep_open(&self, pack: &Pack, location: Location, members: Members) {
        let mut groups = lock(&self.groups);
        if groups.len() == OPEN_GROUPS {
            groups.remove(0);
        }
        let pack = pack.name().to_owned();
        groups.push(OpenGroup { pack, offset: location.offset, members: Arc::new(members) });
    }

    fn open(&self, pack: &Pack) -> Result<Option<Arc<File>>> {
        let mut open = lock(&self.open);
        if let Some(at) = open.iter().rposition(|(name, _)| name == pack.name()) {
            open[at..].rotate_left(1);
            return Ok(open.last().map(|(_, file)| Arc::clone(file)));
        }
        let Some(file) = files::open(pack.path())?.map(Arc::new) else { return Ok(None) };
        if open.len() == OPEN_PACKS {
            open.remove(0);
        }
        open.push((pack.name().to_owned(), Arc::clone(&file)));
        Ok(Some(file))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
