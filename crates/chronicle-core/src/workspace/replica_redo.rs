//! A push is durable before it is written: what it says is in the catalog, and its contents are in the store.
//!
//! What it then puts in place is synced later, many pushes at once. A power cut before that leaves any part of it, and parts of
//! files. Whoever opens the workspace next brings all of these paths to what is known of them, unless somebody else's work
//! stands there, and then writes the push that was not recorded. A kill loses nothing that was written: there it is undone
//! as everything that was interrupted is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::known_cache::KnownCache;
use super::replica_registry::decoded;
use super::replica_side::{Push, is_push};
use super::replica_types::Unsynced;
use super::{PATIENCE, Workspace, key};
use crate::apply::{self, Syncing, Task};
use crate::catalog::{Batch, Catalog, Durability, LocalState, Log};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::entry::Entry;
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::fs::{Roots, Stat};
use crate::id::{ObjectId, Seq};
use crate::path::WorkspacePath;
use crate::process;
use crate::replica::{
    Item, Place, Step, Version, decode_item, decode_place, encode_item, encode_place,
};
use crate::store::{ContentStorage, MemoryStore, Row};

/// Records that are read at a time.
const RECORDS: usize = 64;

/// What was pushed and is not synced.
struct Redo {
    /// The boot of the machine: what was written since is in its memory, if not on its disk.
    boot: String,
    /// The end of the log before the first of these pushes was recorded.
    since: Seq,
    /// The push that is being written.
    announced: Option<Announced>,
}

struct Announced {
    to: Option<Place>,
    folds: bool,
    whole: bool,
    items: Vec<Item>,
    /// What it writes that no item says.
    puts: Vec<Item>,
}

impl Redo {
    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.bytes(self.boot.as_bytes());
        out.int(self.since.0);
        out.byte(u8::from(self.announced.is_some()));
        if let Some(announced) = &self.announced {
            let Announced { to, folds, whole, items, puts } = announced;
            out.byte(u8::from(to.is_some()) | u8::from(*folds) << 1 | u8::from(*whole) << 2);
            if let Some(to) = to {
                encode_place(&mut out, to);
            }
            for list in [items, puts] {
                out.int(list.len() as u64);
                list.iter().for_each(|item| encode_item(&mut out, item));
            }
        }
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let (boot, since) = (input.text()?, Seq(input.int()?));
        let announced = match input.byte()? {
            0 => None,
            _ => {
                let flags = input.byte()?;
                let to = if flags & 1 != 0 { Some(decode_place(&mut input)?) } else { None };
                let mut list = || -> Result<Vec<_>, DecodeError> {
                    (0..input.count()?).map(|_| decode_item(&mut input)).collect()
                };
                let (items, puts) = (list()?, list()?);
                let (folds, whole) = (flags & 2 != 0, flags & 4 != 0);
                Some(Announced { to, folds, whole, items, puts })
            }
        };
        input.end()?;
        Ok(Self { boot, since, announced })
    }
}

impl Workspace {
    /// Pushes are synced later where a reboot can be told from none. The placeholders of a lazy replica are no part of any
    /// content, so that what a power cut left of them could not be told from somebody's work; they are quickly synced.
    pub(super) fn syncing(&self) -> Result<Syncing> {
        let at_once = process::boot().is_empty() || self.is_lazy()?;
        Ok(if at_once { Syncing::Now } else { Syncing::Later })
    }

    fn redo(&self) -> Result<Option<Redo>> {
        let bytes = self.catalog.state(key::REDO)?;
        bytes.map(|bytes| decoded(Redo::decode(&bytes))).transpose()
    }

    /// Makes durable what a push is about to write; needs the lock.
    pub(super) fn announce(
        &mut self,
        push: &Push<'_>,
        steps: &[Step],
        objects: Vec<Row>,
    ) -> Result<()> {
        let head = self.catalog.head()?.seq;
        let since = self.redo()?.map_or(head, |redo| redo.since);
        let put =
            |step: &Step| Item { path: step.path.clone(), seq: Seq(0), version: step.put.clone() };
        let told: HashMap<_, _> = push.items.iter().map(|it| (&it.path, &it.version)).collect();
        let untold = |step: &&Step| told.get(&step.path) != Some(&&step.put);
        let announced = Some(Announced {
            to: push.to,
            folds: push.folds,
            whole: push.whole,
            items: push.items.clone(),
            puts: steps.iter().filter(untold).map(put).collect(),
        });
        let redo = Redo { boot: process::boot(), since, announced };
        let state = vec![(key::REDO, Some(redo.encode()))];
        let batch = Batch { objects, state, hold: Some(self.store.hold()?), ..Batch::default() };
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    /// The row that goes with the record of what was announced: now only the log is needed to find its paths.
    pub(super) fn written_as_announced(&self) -> Result<(&'static str, Option<Vec<u8>>)> {
        let head = self.catalog.head()?.seq;
        let since = self.redo()?.map_or(head, |redo| redo.since);
        let redo = Redo { boot: process::boot(), since, announced: None };
        Ok((key::REDO, Some(redo.encode())))
    }

    /// What was pushed and is not synced, if anything is: whoever syncs it says so to `synced`.
    pub fn unsynced(&mut self) -> Result<Option<Unsynced>> {
        if self.catalog.state(key::REDO)?.is_none() {
            return Ok(None);
        }
        let _lock = self.lock(PATIENCE)?;
        let Some(redo) = self.redo()? else { return Ok(None) };
        let roots = Roots::open(self.roots.workspace().path(), &[], &[])?;
        let paths = match apply::syncs_as_a_whole(&roots)? {
            true => Vec::new(),
            false => self.pushed_since(redo.since)?.into_keys().collect(),
        };
        Ok(Some(Unsynced { up_to: self.catalog.head()?.seq, roots, paths }))
    }

    /// Notes that it was synced, unless more was pushed meanwhile.
    pub fn synced(&mut self, unsynced: &Unsynced) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let Some(mut redo) = self.redo()? else { return Ok(()) };
        let more = redo.announced.is_some() || self.catalog.head()?.seq > unsynced.up_to;
        redo.since = redo.since.max(unsynced.up_to);
        let state = vec![(key::REDO, more.then(|| redo.encode()))];
        let batch = Batch { state, ..Batch::default() };
        self.commit_batch(batch, Durability::ProcessDeath).map(drop)
    }

    /// Whether a power cut came before everything that was pushed was synced.
    pub(super) fn has_lost(&self) -> Result<bool> {
        Ok(self.redo()?.is_some_and(|redo| redo.boot != process::boot()))
    }

    /// Writes again what a power cut took of pushes, and the one that was announced and not recorded; needs the lock.
    pub(super) fn redo_lost(&mut self) -> Result<()> {
        let Some(redo) = self.redo()?.filter(|redo| redo.boot != process::boot()) else {
            return Ok(());
        };
        let mut versions = self.pushed_since(redo.since)?;
        let puts = redo.announced.iter().flat_map(|it| it.items.iter().chain(&it.puts));
        for put in puts {
            versions.entry(put.path.clone()).or_default().push(put.version.clone());
        }
        apply::clear_torn(&self.roots, &|file| {
            let mut all = versions.values().flatten();
            let file = &file;
            all.try_fold(false, |is, version| Ok(is || self.is_part_of_version(file, version)?))
        })?;
        self.bring_back(&versions)?;
        failpoint::hit("redo_before_push");
        if let (Some(announced), Some(side)) = (redo.announced, self.side()?) {
            self.push_announced(announced, side.state.applied)?;
        }
        let batch = Batch { state: vec![(key::REDO, None)], ..Batch::default() };
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    /// Applies a push that was announced, unless something later was since.
    fn push_announced(&mut self, announced: Announced, applied: Option<Place>) -> Result<()> {
        let Announced { to, folds, whole, items, .. } = announced;
        let had = |had: Place| to.is_some_and(|to| had.epoch == to.epoch && to.seq <= had.seq);
        if !whole && applied.is_some_and(had) {
            return Ok(());
        }
        let (contents, syncing) = (&MemoryStore::default(), Syncing::Now);
        match self.push(Push { items, to, contents, folds, whole, syncing }) {
            // It failed before the power cut, nobody was told of it, and the host says it again.
            Err(Error::Missing(_)) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Every path that pushes wrote after a record, with what they found and left there.
    fn pushed_since(&self, since: Seq) -> Result<BTreeMap<WorkspacePath, Vec<Version>>> {
        let (mut versions, mut at) = (BTreeMap::<_, Vec<_>>::new(), since);
        loop {
            let records = self.catalog.read(at, RECORDS)?;
            let Some(last) = records.last() else { return Ok(versions) };
            at = last.seq;
            for sealed in records.iter().filter(|sealed| !sealed.leaf.is_empty()) {
                let record = self.open_sealed(sealed)?;
                if !is_push(&record) {
                    continue;
                }
                for change in record.changes {
                    let told = [&change.before, &change.after].into_iter().filter_map(Version::of);
                    versions.entry(change.path.clone()).or_default().extend(told);
                }
            }
        }
    }

    /// Puts what is known of some paths where a part of one of these versions, or nothing, stands.
    fn bring_back(&self, versions: &BTreeMap<WorkspacePath, Vec<Version>>) -> Result<()> {
        let cache = KnownCache::new(&self.catalog)?;
        let (mut tasks, mut others) = (Vec::new(), BTreeSet::new());
        for (path, versions) in versions {
            let (known, stat) = (cache.get(path)?, self.stat(path)?);
            let then = known.map_or(Entry::Absent, |known| known.entry);
            let Some(wanted) = Version::of(&then) else { continue };
            if self.stands_as(path, stat.as_ref(), &then)? {
                continue;
            }
            let below_other = path.parent().is_some_and(|parent| others.contains(&parent));
            let mut all = versions.iter().chain([&wanted]);
            if below_other || !self.is_left_of(path, stat.as_ref(), &mut all)? {
                others.insert(path.clone());
                continue;
            }
            let now = self.as_it_looks(path, stat)?;
            tasks.push(Task { path: path.clone(), now, then, aside: false });
        }
        drop(cache);
        self.put_back(tasks)
    }

    /// Whether an entry stands there, as far as a push says what one is; contents are compared.
    fn stands_as(&self, path: &WorkspacePath, stat: Option<&Stat>, entry: &Entry) -> Result<bool> {
        let Some(stat) = stat else { return Ok(!entry.is_present()) };
        let mode = |mode: u32| mode & 0o7777 == stat.signature.mode & 0o7777;
        Ok(match entry {
            Entry::Directory(meta) => stat.is_directory() && mode(meta.mode),
            Entry::Symlink(link) => {
                stat.kind().is_symlink() && self.roots.read_link(path)? == link.target
            }
            Entry::File(file) => {
                stat.kind().is_file()
                    && mode(file.meta.mode)
                    && file.meta.mtime_ns == stat.signature.mtime_ns
                    && file.size == stat.signature.size
                    && self.is_part_of(&self.roots.open_file(path)?, &file.object, true)?
            }
            _ => false,
        })
    }

    /// Whether what stands there may be what a power cut left of one of these versions.
    fn is_left_of(
        &self,
        path: &WorkspacePath,
        stat: Option<&Stat>,
        versions: &mut dyn Iterator<Item = &Version>,
    ) -> Result<bool> {
        let Some(stat) = stat else { return Ok(true) };
        for version in versions {
            let left = match version {
                Version::Directory { .. } => stat.is_directory(),
                Version::Symlink { target } => {
                    stat.kind().is_symlink() && self.roots.read_link(path)? == *target
                }
                Version::File { .. } => {
                    stat.kind().is_file()
                        && self.is_part_of_version(&self.roots.open_file(path)?, version)?
                }
                Version::Absent => false,
            };
            if left {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_part_of_version(&self, file: &File, version: &Version) -> Result<bool> {
        let Version::File { object, size, .. } = version else { return Ok(false) };
        let length = file.metadata().at("examine", "a file")?.len();
        Ok(length <= *size && self.is_part_of(file, object, false)?)
    }

    /// Whether a file holds the beginning of an object, whole or with zeros where something is missing.
    fn is_part_of(&self, file: &File, object: &ObjectId, whole: bool) -> Result<bool> {
        let mut wanted = match self.objects()?.reader(object) {
            // What was there before may have been forgotten since.
            Err(Error::Missing(_)) => return Ok(false),
            reader => reader?,
        };
        let (mut here, mut there) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let mut at = 0;
        loop {
            let size = file.read_at(&mut here, at).at("read", "a file")?;
            if size == 0 {
                return Ok(true);
            }
            at += size as u64;
            let there = &mut there[..size];
            if wanted.read_exact(there).is_err() {
                return Ok(false);
            }
            let mut pairs = here[..size].iter().zip(&*there);
            if !pairs.all(|(found, wanted)| found == wanted || !whole && *found == 0) {
                return Ok(false);
            }
        }
    }
}

/// The contents of a push that is being written.
pub(super) fn announced_objects(catalog: &Catalog) -> Result<Vec<ObjectId>> {
    let Some(bytes) = catalog.state(key::REDO)? else { return Ok(Vec::new()) };
    let redo = decoded(Redo::decode(&bytes))?;
    let all = redo.announced.into_iter().flat_map(|it| it.items.into_iter().chain(it.puts));
    Ok(all.filter_map(|item| item.version.object()).collect())
}

impl Unsynced {
    /// Makes it durable; takes a while, and needs no lock.
    pub fn sync(&self) -> Result<()> {
        apply::sync_paths(&self.roots, &self.paths)
    }
}
