//! What both sides of replication do under the lock: see what stands there, take contents in, and write some paths.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::finish::Ended;
use super::known_cache::KnownCache;
use super::look_around::is_news;
use super::outcomes::Closing;
use super::{Workspace, key};
use crate::apply::{self, DIRECT, Syncing, Task, Unrecorded, Work};
use crate::catalog::{Batch, Durability};
use crate::entry::{Author, Change, Entry, Evidence};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::id::{ObjectId, Seq};
use crate::known::{Known, Part};
use crate::look::Candidate;
use crate::objects::Objects;
use crate::path::WorkspacePath;
use crate::replica::{Owner, Stand, Standing, Step, Version, stays_home};
use crate::secret::{Class, SecretRules};
use crate::store::{ContentStorage, Piece, Row, StoreLock, unpacked_length};

/// How often something is written anew that somebody changed meanwhile.
pub(super) const TRIES: usize = 4;
/// Content up to this size is read as a whole.
const WHOLE: u64 = 4 << 20;
/// Contents up to this size are kept in memory once they were read, and so many bytes of them.
const SMALL: usize = 64 << 10;
const READ_MOST: usize = 64 << 20;
/// How many records of a directory are searched for the last change of a path.
const PAST: u32 = 64;

/// Paths at which nothing stands: nothing is below them either, and nobody need look.
#[derive(Default)]
struct Absences(HashSet<WorkspacePath>);

impl Absences {
    fn stat(&mut self, workspace: &Workspace, path: &WorkspacePath) -> Result<Option<Stat>> {
        let is_below = path.parent().is_some_and(|parent| self.0.contains(&parent));
        let stat = if is_below { None } else { workspace.stat(path)? };
        if stat.is_none() {
            self.0.insert(path.clone());
        }
        Ok(stat)
    }
}

/// What stands in the workspace, for decisions: what is known, and where nothing is, what the disk says.
pub(super) struct OwnTree<'w> {
    workspace: &'w Workspace,
    cache: KnownCache<'w>,
    absences: RefCell<Absences>,
    failure: RefCell<Option<Error>>,
}

impl<'w> OwnTree<'w> {
    pub(super) fn new(workspace: &'w Workspace) -> Result<Self> {
        let cache = KnownCache::new(&workspace.catalog)?;
        let (absences, failure) = (RefCell::default(), RefCell::default());
        Ok(Self { workspace, cache, absences, failure })
    }

    fn version(&self, path: &WorkspacePath) -> Result<Option<Version>> {
        match self.cache.get(path)? {
            Some(known) if known.part != Part::Ordinary => Ok(None),
            Some(known) => Ok(Version::of(&known.entry)),
            None => {
                let stat = self.absences.borrow_mut().stat(self.workspace, path)?;
                Ok(stat.is_none().then_some(Version::Absent))
            }
        }
    }

    /// A decision that was made without knowing everything is none.
    pub(super) fn check(self) -> Result<()> {
        self.failure.into_inner().map_or(Ok(()), Err)
    }

    fn note<T: Default>(&self, result: Result<T>) -> T {
        result.unwrap_or_else(|error| {
            self.failure.borrow_mut().get_or_insert(error);
            T::default()
        })
    }
}

impl Standing for OwnTree<'_> {
    fn at(&self, path: &WorkspacePath) -> Stand {
        Stand { version: self.note(self.version(path)), seq: Seq(0) }
    }

    fn seq(&self, path: &WorkspacePath) -> Seq {
        self.note(self.workspace.last_change(path))
    }

    fn children(&self, directory: &WorkspacePath) -> Vec<WorkspacePath> {
        let names = self.note(match self.workspace.roots.list(directory) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            listed => listed,
        });
        let ours = |name: &&Vec<u8>| !(directory.is_root() && apply::is_staging_name(name));
        names.iter().filter(ours).map(|name| directory.join(name)).collect()
    }
}

/// Contents: those that were given, then the own. Small ones are read once: they are judged, kept and written.
pub(super) struct Supply<'a> {
    given: &'a dyn ContentStorage,
    own: &'a Objects,
    /// What is in neither is at the host, and may stay there.
    lazy: bool,
    /// What was found of that: a store in which something is not looks for it in every corner.
    elsewhere: Mutex<HashMap<ObjectId, bool>>,
    read: Mutex<AlreadyRead>,
}

/// Contents that were read.
#[derive(Default)]
pub(super) struct AlreadyRead {
    contents: HashMap<ObjectId, Vec<u8>>,
    bytes: usize,
}

impl<'a> Supply<'a> {
    pub(super) fn new(given: &'a dyn ContentStorage, own: &'a Objects) -> Self {
        Self::with_read(given, own, AlreadyRead::default())
    }

    /// The same, with what another has read.
    pub(super) fn with_read(
        given: &'a dyn ContentStorage,
        own: &'a Objects,
        read: AlreadyRead,
    ) -> Self {
        let (elsewhere, read) = (Mutex::default(), Mutex::new(read));
        Self { given, own, lazy: false, elsewhere, read }
    }

    /// What it has read.
    pub(super) fn into_read(self) -> AlreadyRead {
        self.read.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, where placeholders stand for what is in neither.
    pub(super) fn lazily(self, lazy: bool) -> Self {
        Self { lazy, ..self }
    }

    fn read(&self) -> MutexGuard<'_, AlreadyRead> {
        // What a thread left that panicked is whole.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentStorage for Supply<'_> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        if let Some(bytes) = self.read().contents.get(id) {
            return Ok(bytes.clone());
        }
        let bytes = match self.given.get(id) {
            Err(Error::Missing(_)) => self.own.get(id),
            got => got,
        }?;
        let mut read = self.read();
        if bytes.len() <= SMALL && read.bytes + bytes.len() <= READ_MOST {
            read.bytes += bytes.len();
            read.contents.insert(*id, bytes.clone());
        }
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        self.own.put(id, bytes)
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        Ok(self.given.exists(id)? || self.own.exists(id)?)
    }

    fn is_elsewhere(&self, id: &ObjectId) -> Result<bool> {
        if !self.lazy {
            return Ok(false);
        }
        let found = || self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(elsewhere) = found().get(id) {
            return Ok(*elsewhere);
        }
        let elsewhere = !self.exists(id)?;
        found().insert(*id, elsewhere);
        Ok(elsewhere)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.own.delete(id)
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        match self.given.reader(id) {
            Err(Error::Missing(_)) => self.own.reader(id),
            reader => reader,
        }
    }

    fn pieces(&self, id: &ObjectId) -> Result<Option<Vec<Piece>>> {
        self.own.pieces(id)
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        self.own.put_stream(source)
    }
}

/// A path, and what is to stand there.
type Goal = (WorkspacePath, Entry);

/// What came of writing some paths, not yet committed.
pub(super) struct Put {
    /// What is known from now on, without records.
    pub(super) batch: Batch,
    /// What was written.
    pub(super) own: Vec<Change>,
    /// What somebody changed meanwhile.
    pub(super) others: Vec<Change>,
    /// What could not be written, and why.
    pub(super) unexpected: HashMap<WorkspacePath, String>,
    /// What must be removed after the commit.
    pub(super) staging: Option<Unrecorded>,
}

impl Workspace {
    /// The record of a path's last change, or if that is long ago, the end of the log.
    fn last_change(&self, path: &WorkspacePath) -> Result<Seq> {
        let Some(parent) = path.parent() else { return Ok(Seq(0)) };
        for seq in self.catalog.touching_newest(&parent, PAST)? {
            let record = self.read_kept(seq)?;
            let here =
                |record: crate::record::Record| record.changes.iter().any(|c| c.path == *path);
            if record.is_some_and(here) {
                return Ok(seq);
            }
        }
        Ok(crate::catalog::Log::head(&self.catalog)?.seq)
    }

    /// Records what stands at some paths and is not known yet: it is about to be replaced. Says whether there was any.
    ///
    /// The flag is whether nothing, or no directory, is about to stand there.
    pub(super) fn record_touched<'p>(
        &mut self,
        paths: impl Iterator<Item = (&'p WorkspacePath, bool)>,
    ) -> Result<bool> {
        let stale = self.stale(paths.filter(|(path, _)| !stays_home(path)))?;
        if stale.is_empty() {
            return Ok(false);
        }
        let look = self.look_at(&stale)?;
        if look.found.is_empty() && look.known.is_empty() {
            return Ok(false);
        }
        let mut batch = Batch::default();
        self.add_outcomes(look, &self.openings()?, &mut batch, &Closing::Nobody)?;
        let news = !batch.records.is_empty();
        let durability = if news { Durability::PowerCut } else { Durability::ProcessDeath };
        self.commit_batch(batch, durability)?;
        Ok(news)
    }

    /// The paths among these, and directories above them, that do not look as they are known.
    fn stale<'p>(
        &self,
        paths: impl Iterator<Item = (&'p WorkspacePath, bool)>,
    ) -> Result<Vec<WorkspacePath>> {
        let cache = KnownCache::new(&self.catalog)?;
        let (mut stale, mut above) = (BTreeSet::new(), HashSet::new());
        let mut absences = Absences::default();
        for (path, goes) in paths {
            for directory in path.ancestors().take_while(|directory| !directory.is_root()) {
                if !above.insert(directory.clone()) {
                    break;
                }
                let was = cache.get(&directory)?.is_some_and(|known| known.entry.is_directory());
                let is = absences.stat(self, &directory)?.is_some_and(|stat| stat.is_directory());
                if was != is {
                    stale.insert(directory);
                }
            }
            let (was, stat) = (cache.get(path)?, absences.stat(self, path)?);
            let part = was.as_ref().map_or(Part::Ordinary, |was| was.part);
            let candidate = Candidate { path: path.clone(), stat, was, part, filtered: false };
            // What a directory held that goes must be known, also what is gone already.
            let whole = goes && candidate.was.as_ref().is_some_and(|was| was.entry.is_directory());
            let differs = !candidate.is_current() && is_news(&candidate);
            if whole || differs && !is_same_directory(&candidate) {
                stale.insert(path.clone());
            }
        }
        Ok(stale.into_iter().collect())
    }

    /// Takes the contents in that some steps need; gives what must ride in the commit.
    pub(super) fn take_contents(
        &self,
        steps: &[Step],
        supply: &Supply<'_>,
    ) -> Result<(Vec<Row>, StoreLock)> {
        let mut intake = self.intake()?;
        let mut named = HashSet::new();
        let files: Vec<_> = steps
            .iter()
            .filter_map(|step| match step.put {
                Version::File { object, size, .. } => Some((object, size)),
                _ => None,
            })
            .filter(|(object, _)| named.insert(*object))
            .collect();
        on_threads(&files, |(object, size)| {
            if supply.is_elsewhere(object)? || supply.own.exists(object)? {
                return Ok(());
            }
            if let Some(stored) = supply.given.stored(object)?
                && unpacked_length(&stored) == Some(*size)
            {
                return intake.take_stored(object, &stored);
            }
            let (found, length) = if *size <= WHOLE {
                let bytes = supply.get(object)?;
                (intake.take(&bytes)?, bytes.len() as u64)
            } else {
                intake.take_stream(&mut supply.given.reader(object)?)?
            };
            if (found, length) != (*object, *size) {
                let why = format!("what was given for it are {length} bytes with another hash");
                return Err(Error::Corrupt { object: *object, why });
            }
            Ok(())
        })?;
        Ok((intake.finish()?, intake.hold()))
    }

    /// Writes some paths; durable on return, and not yet recorded.
    pub(super) fn put_steps(
        &self,
        steps: &[Step],
        supply: &Supply<'_>,
        writer: (Author, Evidence),
    ) -> Result<Put> {
        let taken = self.take_contents(steps, supply)?;
        self.put_taken(steps, supply, writer, (taken, Syncing::Now))
    }

    /// The same after their contents were taken in, and durable only if that is not left for later.
    pub(super) fn put_taken(
        &self,
        steps: &[Step],
        supply: &Supply<'_>,
        writer: (Author, Evidence),
        ((rows, hold), syncing): ((Vec<Row>, StoreLock), Syncing),
    ) -> Result<Put> {
        let (tasks, goals) = self.step_tasks(steps, supply)?;
        let is_kept = |id: &ObjectId| supply.own.exists(id);
        if tasks.is_empty() {
            // Whoever died at the end of his work left only that.
            apply::clear_top(&self.roots, &is_kept)?;
            let batch = Batch { objects: rows, hold: Some(hold), ..Batch::default() };
            let (own, others, unexpected) = (vec![], vec![], HashMap::new());
            return Ok(Put { batch, own, others, unexpected, staging: None });
        }
        let links = self.link_members(&tasks)?;
        let secrets = self.home.secrets().clone();
        let work = Work { id: DIRECT, moves: vec![], tasks, links, touch: false, secrets };
        self.check_root()?;
        let written = apply::put(&self.roots, work, supply, &is_kept, syncing)?;
        let Ended { mut batch, own, others } = self.ended(&goals, &written, writer)?;
        let apply::Written { applied, staging, .. } = written;
        batch.objects.extend(rows);
        batch.state.push((key::RECORDED, Some(staging.nonce.to_vec())));
        let unexpected = applied.unexpected.into_iter().collect();
        drop(hold);
        Ok(Put { batch, own, others, unexpected, staging: Some(staging) })
    }

    /// Commits what was written, and takes its staging away.
    pub(super) fn commit_put(
        &mut self,
        batch: Batch,
        staging: Option<Unrecorded>,
        durability: Durability,
        committed: impl FnOnce(),
    ) -> Result<()> {
        self.commit_batch(batch, durability)?;
        committed();
        staging.map_or(Ok(()), |staging| apply::remove_direct(&self.roots, &staging))
    }

    /// A directory in which names came or went is still the one that is known, with another time.
    fn with_present_names(&self, path: &WorkspacePath, mut known: Known) -> Result<Known> {
        if !matches!(known.entry, Entry::Directory(_)) {
            return Ok(known);
        }
        let (stat, part) = (self.stat(path)?, known.part);
        let was = Some(known.clone());
        let candidate = Candidate { path: path.clone(), stat, was, part, filtered: false };
        if is_same_directory(&candidate)
            && let (Some(stat), Entry::Directory(meta)) = (candidate.stat, &mut known.entry)
        {
            meta.mtime_ns = stat.signature.mtime_ns;
            known.signature = Some(stat.signature);
        }
        Ok(known)
    }

    fn step_tasks(&self, steps: &[Step], supply: &Supply<'_>) -> Result<(Vec<Task>, Vec<Goal>)> {
        let cache = KnownCache::new(&self.catalog)?;
        let root = self.roots.workspace().handle()?;
        let stat = crate::fs::stat_of(root).map_err(|error| Error::Io {
            action: "examine",
            path: self.root.clone(),
            source: error.into(),
        })?;
        let owner = Owner { uid: stat.signature.uid, gid: stat.signature.gid };
        let (mut tasks, mut goals) = (Vec::new(), Vec::new());
        for Step { path, put, .. } in steps {
            let now = cache.get(path)?.unwrap_or(Known {
                entry: Entry::Absent,
                signature: None,
                racy: false,
                part: Part::Ordinary,
            });
            let now = self.with_present_names(path, now)?;
            let mut then = put.entry(&now.entry, owner, self.now());
            if let Entry::File(file) = &mut then
                && supply.is_elsewhere(&file.object)?
            {
                // A placeholder can have none.
                file.meta.xattrs.clear();
            }
            goals.push((path.clone(), then.clone()));
            tasks.push(Task { path: path.clone(), now, then, aside: false });
        }
        tasks.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((tasks, goals))
    }
}

/// Whether a version would be secret here, so that it is not taken as it is.
pub(super) fn is_secret_here(
    rules: &SecretRules,
    path: &WorkspacePath,
    version: &Version,
    supply: &Supply<'_>,
) -> Result<bool> {
    let Version::File { object, size, .. } = version else { return Ok(false) };
    match rules.by_name(path) {
        Some(class) => Ok(class != Class::Plain),
        None if *size > WHOLE || supply.is_elsewhere(object)? => Ok(false),
        None => match supply.get(object) {
            Ok(bytes) => Ok(SecretRules::by_content(&bytes) != Class::Plain),
            Err(Error::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        },
    }
}

/// Whether it is the directory that is known, in which names came or went: they are looked at where they are named.
fn is_same_directory(candidate: &Candidate) -> bool {
    let (Some(was), Some(stat)) = (&candidate.was, &candidate.stat) else { return false };
    let Some(known) = was.signature else { return false };
    let now = stat.signature;
    matches!(was.entry, Entry::Directory(_))
        && stat.is_directory()
        && (known.ino, known.mode, known.uid, known.gid) == (now.ino, now.mode, now.uid, now.gid)
}

/// How many threads work on many contents, and from how many on.
const THREADS: usize = 2;
const WORTH_A_THREAD: usize = 32;
/// How many contents a thread takes at a time.
const SHARE: usize = 16;

/// Does something for each of these, on several threads where they are many; the answers in order.
pub(super) fn on_threads<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if items.len() < WORTH_A_THREAD {
        return items.iter().map(work).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let share = || -> Result<Vec<(usize, R)>> {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let from = next.fetch_add(SHARE, Ordering::Relaxed);
            if from >= items.len() {
                break;
            }
            for (at, item) in (from..).zip(&items[from..items.len().min(from + SHARE)]) {
                let answer = work(item);
                failed.fetch_or(answer.is_err(), Ordering::Relaxed);
                done.push((at, answer?));
            }
        }
        Ok(done)
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(share)).collect();
        let mut done = share()?;
        for other in others {
            done.extend(other.join().expect("BUG: a thread panicked")?);
        }
        Ok::<_, Error>(done)
    })?;
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, answer)| answer).collect())
}
