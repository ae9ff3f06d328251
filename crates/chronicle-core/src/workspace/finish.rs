//! The end of a rewind: what stands there now is looked at and recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::attribute::session_of;
use super::known_cache::KnownCache;
use super::{Workspace, key, unit};
use crate::apply::{Applied, Written};
use crate::catalog::{Batch, Catalog, DirectoryUpdate, LocalState, Log};
use crate::codec::{self, DecodeError, Decoder, Encoder, decode_entry, encode_entry};
use crate::entry::{Author, Change, Entry, Evidence, MovedFrom};
use crate::error::{Error, Result};
use crate::fs::Stat;
use crate::id::{LinkHash, ObjectId, PlanId, Seq, SnapshotId, Time};
use crate::known::{Known, Listed, Part, Signature};
use crate::look::{Candidate, examine, is_racy};
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels, Record};
use crate::store::Intake;

/// A rewind past its commit point: everything that is needed to finish it.
pub(super) struct Pending {
    pub(super) id: PlanId,
    /// A rewind, or the outcome of an action whose work was kept elsewhere until now.
    pub(super) kind: Kind,
    pub(super) labels: Labels,
    pub(super) goals: Vec<(WorkspacePath, Entry)>,
    pub(super) moves: Vec<(WorkspacePath, WorkspacePath)>,
    /// What goals take from one path to another.
    pub(super) renames: Vec<(WorkspacePath, WorkspacePath)>,
    pub(super) prepared: Vec<u8>,
}

impl Workspace {
    /// What stands at a path; below a symbolic link nothing of ours does.
    pub(super) fn stat(&self, path: &WorkspacePath) -> Result<Option<Stat>> {
        match self.roots.lstat(path) {
            Err(Error::ThroughSymlink(_)) => Ok(None),
            stat => stat,
        }
    }

    pub(super) fn encode_pending(&self, pending: &Pending) -> Vec<u8> {
        let mut out = Encoder::default();
        out.fixed(&pending.id.0);
        let header = self.record(pending.kind, pending.labels.clone());
        out.bytes(&codec::seal(&header, &LinkHash::ZERO).leaf);
        out.int(pending.goals.len() as u64);
        for (path, then) in &pending.goals {
            out.bytes(path.as_bytes());
            encode_entry(&mut out, then);
        }
        encode_pairs(&mut out, &pending.moves);
        out.bytes(&pending.prepared);
        encode_pairs(&mut out, &pending.renames);
        out.0
    }

    pub(super) fn decode_pending(&self, bytes: &[u8]) -> Result<Pending> {
        let decode = || {
            let mut input = Decoder(bytes);
            let id = PlanId(input.array()?);
            let Record { kind, labels, .. } = codec::decode_header(input.bytes()?)?;
            let goals = decode_goals(&mut input)?;
            let moves = decode_pairs(&mut input)?;
            let prepared = input.bytes()?.to_vec();
            // One that was interrupted before renames were kept has none.
            let renames = if input.0.is_empty() { Vec::new() } else { decode_pairs(&mut input)? };
            input.end()?;
            Ok(Pending { id, kind, labels, goals, moves, renames, prepared })
        };
        decode().map_err(|source| Error::Record { seq: Seq(0), source })
    }

    /// The record of a rewind that was applied, what is known from now on, and how many paths
    /// changed.
    pub(super) fn ending(&self, pending: &Pending, applied: &Applied) -> Result<(Batch, u64)> {
        let hold = Some(self.store.hold()?);
        let mut intake = self.intake_without_limits()?;
        let mut ending = Ending { tops: self.tops(), ..Ending::default() };
        if pending.kind == Kind::Outcome {
            // Nobody else could write where it was kept.
            ending.writer = Some((Author::Session(session_of(&pending.labels)), Evidence::Process));
        }
        let cache = KnownCache::new(&self.catalog)?;
        for (path, then) in &pending.goals {
            let was = cache.get(path)?;
            let known = self.observe(path, then, was.as_ref(), &intake)?;
            self.end_goal(&mut ending, path, (was, then), known, applied, &intake)?;
        }
        for (from, to) in &pending.moves {
            self.end_move(&mut ending, from, to)?;
        }
        ending.follow(&pending.renames, self.catalog.head()?.seq);
        self.refresh_directories(&mut ending, &pending.goals)?;
        drop(cache);
        let objects = intake.finish()?;
        drop(intake);
        let mut batch = Batch { objects, hold, ..Batch::default() };
        batch.known = ending.directories.into_values().collect();
        batch.state.push((key::PENDING_REWIND, None));
        batch.state.push((key::FINISHED_REWIND, Some(pending.id.0.to_vec())));
        let changed = ending.own.iter().filter(|change| change.is_visible()).count() as u64;
        batch.records = match pending.kind {
            Kind::Outcome => self.committed_records(&pending.labels, ending.own),
            _ => self.outcome_records(pending.labels.clone(), ending.own),
        };
        let rewinds = if pending.kind == Kind::Outcome { 0 } else { batch.records.len() };
        for (index, record) in batch.records.iter_mut().take(rewinds).enumerate() {
            record.kind = Kind::Rewind;
            if index > 0 {
                record.labels.taken_back.clear();
                record.labels.brought_back.clear();
                record.labels.redoes = None;
            }
        }
        if !ending.others.is_empty() {
            batch.records.extend(self.outcome_records(self.meanwhile_labels(), ending.others));
        }
        Ok((batch, changed))
    }

    /// What is known after some paths were written directly, and what that changed.
    pub(super) fn ended(
        &self,
        goals: &[(WorkspacePath, Entry)],
        written: &Written,
        writer: (Author, Evidence),
    ) -> Result<Ended> {
        let hold = Some(self.store.hold()?);
        let mut intake = self.intake_without_limits()?;
        let mut ending = Ending { tops: self.tops(), writer: Some(writer), ..Ending::default() };
        let cache = KnownCache::new(&self.catalog)?;
        for (path, then) in goals {
            let was = cache.get(path)?;
            let known = match written.made.get(path) {
                // Whatever somebody does to it from now on, the next look sees.
                Some(signature) => as_made(then, *signature, self.now()),
                None => self.observe(path, then, was.as_ref(), &intake)?,
            };
            self.end_goal(&mut ending, path, (was, then), known, &written.applied, &intake)?;
        }
        self.refresh_directories(&mut ending, goals)?;
        drop(cache);
        let objects = intake.finish()?;
        drop(intake);
        let known = ending.directories.into_values().collect();
        let batch = Batch { objects, hold, known, ..Batch::default() };
        Ok(Ended { batch, own: ending.own, others: ending.others })
    }

    /// The labels of what people changed while something was written.
    pub(super) fn meanwhile_labels(&self) -> Labels {
        Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some("external".to_owned()),
            summary: Some("external: changed while a rewind was going on".to_owned()),
            ..Labels::default()
        }
    }

    fn end_goal(
        &self,
        ending: &mut Ending,
        path: &WorkspacePath,
        (was, then): (Option<Known>, &Entry),
        known: Known,
        applied: &Applied,
        intake: &Intake<'_>,
    ) -> Result<()> {
        let part = was.as_ref().map_or_else(|| ending.part_of_new(self, path), |was| was.part);
        let before = was.map_or(Entry::Absent, |was| was.entry);
        if before.is_directory() && then.is_directory() && !known.entry.is_directory() {
            // Somebody replaced it a moment ago: what went with it is for the next look to see.
            return Ok(());
        }
        if let Entry::Repository(_) = known.entry {
            self.refresh_unit(ending, path, intake)?;
        } else if matches!(before, Entry::Repository(_)) {
            ending.forget_below(self, path)?;
        }
        if known.entry.is_directory() && !before.is_directory() && then.is_directory() {
            // We made it a moment ago, so what it does not hold is known to be absent.
            let listed = Listed { seq: self.catalog.head()?.seq, time: self.now() };
            ending.directory(path).listed = Some((listed, None));
        }
        if before.is_directory() && !known.entry.is_directory() {
            ending.directory(path).gone = true;
        }
        let after = known.entry.clone();
        ending.note(path, (after != Entry::Absent).then_some(Known { part, ..known }));
        let neutral = part == Part::Neutral;
        let change = |before: Entry, after: Entry, (author, evidence)| {
            let path = path.clone();
            Change { path, before, after, from: None, author, evidence, neutral }
        };
        let person = (Author::Person, Evidence::Outside);
        let unexpected = applied.unexpected.iter().any(|(at, _)| at == path) && after != *then;
        let writer = ending.writer.clone().unwrap_or((Author::Chronicle, Evidence::Own));
        if unexpected && before != after {
            ending.others.push(change(before, after, person));
        } else if !unexpected && is_other_content(then, &after) {
            // It was put there, and somebody was at it before it was looked at.
            if before != *then {
                ending.own.push(change(before, then.clone(), writer));
            }
            ending.others.push(change(then.clone(), after, person));
        } else if before != after {
            ending.own.push(change(before, after, writer));
        }
        Ok(())
    }

    /// What stands at a path after the rewind: what we put there if it still looks like it, else
    /// whatever reading it says.
    fn observe(
        &self,
        path: &WorkspacePath,
        then: &Entry,
        was: Option<&Known>,
        intake: &Intake<'_>,
    ) -> Result<Known> {
        let now = self.now();
        let stat = self.stat(path)?;
        if let (Entry::Repository(_), Some(_)) = (then, &stat)
            && let Some((_, known)) = unit::read(&self.roots, path, intake)?
        {
            return Ok(known);
        }
        if let (Some(stat), Some(meta)) = (&stat, then.meta()) {
            let signature = stat.signature;
            let same_size = match then {
                Entry::File(file) => {
                    file.size == signature.size && (stat.nlink > 1) == file.link.is_some()
                }
                Entry::Symlink(link) => link.target.len() as u64 == signature.size,
                _ => true,
            };
            let same_meta = signature.mtime_ns == meta.mtime_ns
                && (signature.uid, signature.gid) == (meta.uid, meta.gid)
                && (signature.mode & 0o7777 == meta.mode || matches!(then, Entry::Symlink(_)));
            if same_size && same_meta && kind_bits(then) == signature.mode & 0o170_000 {
                let racy = is_racy(&signature, now);
                let (entry, part) = (then.clone(), Part::Ordinary);
                return Ok(Known { entry, signature: Some(signature), racy, part });
            }
        }
        if stat.is_none() {
            let (entry, part) = (Entry::Absent, Part::Ordinary);
            return Ok(Known { entry, signature: None, racy: false, part });
        }
        let part = Part::Ordinary;
        let candidate =
            Candidate { path: path.clone(), stat, was: was.cloned(), part, filtered: false };
        let mut examined =
            [(was.cloned(), examine(&self.roots, &candidate, intake, &*self.clock)?)];
        super::link::group_links(&mut examined, &[], &|_| self.born_ns(path));
        let [(_, examined)] = examined;
        Ok(examined.known)
    }

    /// The files inside a repository's metadata have new signatures; what they say is in its value.
    fn refresh_unit(
        &self,
        ending: &mut Ending,
        path: &WorkspacePath,
        intake: &Intake<'_>,
    ) -> Result<()> {
        let Some((bundle, _)) = unit::read(&self.roots, path, intake)? else { return Ok(()) };
        ending.forget_below(self, path)?;
        for (inner, entry) in unit::expand(path, &bundle)?.0 {
            let Some(stat) = self.stat(&inner)? else { continue };
            let racy = is_racy(&stat.signature, self.now());
            let known =
                Known { entry, signature: Some(stat.signature), racy, part: Part::Significant };
            ending.note(&inner, Some(known));
        }
        Ok(())
    }

    /// Everything below a directory that moved away went with it.
    fn end_below(&self, ending: &mut Ending, path: &WorkspacePath) -> Result<()> {
        ending.directory(path).gone = true;
        for (path, known) in self.catalog.known_below(path)? {
            ending.note(&path, None);
            if known.entry.is_directory() {
                ending.directory(&path).gone = true;
            }
            if known.part != Part::Significant && !known.entry.is_unknown() {
                let (before, after) = (known.entry, Entry::Absent);
                let (author, evidence) = (Author::Chronicle, Evidence::Own);
                let neutral = known.part == Part::Neutral;
                ending.own.push(Change {
                    path,
                    before,
                    after,
                    from: None,
                    author,
                    evidence,
                    neutral,
                });
            }
        }
        Ok(())
    }

    fn end_move(
        &self,
        ending: &mut Ending,
        from: &WorkspacePath,
        to: &WorkspacePath,
    ) -> Result<()> {
        let seq = self.catalog.head()?.seq;
        for (path, gone) in [(from, true), (to, false)] {
            let was = self.catalog.known(path)?;
            let before = was.as_ref().map_or(Entry::Absent, |was| was.entry.clone());
            let stat = self.stat(path)?;
            let after = match stat {
                None => Entry::Absent,
                Some(_) => Entry::Unknown(crate::entry::Why::Filtered),
            };
            if gone && after == Entry::Absent {
                self.end_below(ending, path)?;
            }
            let known = stat.map(|stat| Known {
                entry: after.clone(),
                signature: Some(stat.signature),
                racy: false,
                part: Part::Ordinary,
            });
            ending.note(path, known);
            if before != after {
                let (path, author, evidence) = (path.clone(), Author::Chronicle, Evidence::Own);
                // The way forward again is the same move: nothing else has its content.
                let arrived = !gone && after != Entry::Absent;
                ending.own.push(Change {
                    path,
                    before,
                    after,
                    from: arrived.then(|| MovedFrom { path: from.clone(), seq }),
                    author,
                    evidence,
                    neutral: false,
                });
            }
        }
        Ok(())
    }

    /// Directories whose entries we changed have other signatures than before, and nothing else.
    fn refresh_directories(
        &self,
        ending: &mut Ending,
        goals: &[(WorkspacePath, Entry)],
    ) -> Result<()> {
        let parents: BTreeSet<_> = goals.iter().filter_map(|(path, _)| path.parent()).collect();
        let goals: BTreeSet<_> = goals.iter().map(|(path, _)| path).collect();
        // The directory of a root that is a single file is not ours.
        let ours = |path: &&WorkspacePath| self.roots.root_of(path).is_ok();
        for path in parents.iter().filter(|path| !goals.contains(path)).filter(ours) {
            let (Some(known), Some(stat)) = (self.catalog.known(path)?, self.stat(path)?) else {
                continue;
            };
            let same =
                known.entry.meta().is_some_and(|meta| meta.mtime_ns == stat.signature.mtime_ns);
            if same && matches!(known.entry, Entry::Directory(_)) {
                let racy = is_racy(&stat.signature, self.now());
                ending.note(path, Some(Known { signature: Some(stat.signature), racy, ..known }));
            }
        }
        Ok(())
    }
}

/// The contents that an interrupted rewind or commit is about to name: no record does yet.
pub(crate) fn pending_objects(catalog: &Catalog) -> Result<Vec<ObjectId>> {
    let Some(bytes) = catalog.state(key::PENDING_REWIND)? else { return Ok(Vec::new()) };
    let decode = || {
        let mut input = Decoder(&bytes);
        input.fixed(PlanId([0; 16]).0.len())?;
        input.bytes()?;
        decode_goals(&mut input)
    };
    let goals = decode().map_err(|source| Error::Record { seq: Seq(0), source })?;
    Ok(goals.iter().filter_map(|(_, then)| then.object()).collect())
}

fn decode_goals(input: &mut Decoder<'_>) -> Result<Vec<(WorkspacePath, Entry)>, DecodeError> {
    let mut goals = Vec::new();
    for _ in 0..input.count()? {
        goals.push((input.path()?, decode_entry(input)?));
    }
    Ok(goals)
}

fn encode_pairs(out: &mut Encoder, pairs: &[(WorkspacePath, WorkspacePath)]) {
    out.int(pairs.len() as u64);
    for (from, to) in pairs {
        out.bytes(from.as_bytes());
        out.bytes(to.as_bytes());
    }
}

fn decode_pairs(
    input: &mut Decoder<'_>,
) -> std::result::Result<Vec<(WorkspacePath, WorkspacePath)>, DecodeError> {
    let mut pairs = Vec::new();
    for _ in 0..input.count()? {
        pairs.push((input.path()?, input.path()?));
    }
    Ok(pairs)
}

/// What is known of an entry that was made just so.
fn as_made(entry: &Entry, signature: Signature, now: Time) -> Known {
    let known = Known {
        entry: entry.clone(),
        signature: Some(signature),
        racy: false,
        part: Part::Ordinary,
    };
    // What a placeholder says never changes.
    let racy = !super::lazy::is_unfilled(&known) && is_racy(&signature, now);
    Known { racy, ..known }
}

/// Whether what stands there is surely not what was put there; a clone that nobody has read may be.
fn is_other_content(put: &Entry, found: &Entry) -> bool {
    match (put, found) {
        (Entry::File(put), Entry::File(found)) => {
            let known = !put.pending && !found.pending && !put.secret && !found.secret;
            known && put.object != found.object
        }
        (Entry::Symlink(put), Entry::Symlink(found)) => put.target != found.target,
        (Entry::File(_) | Entry::Symlink(_), Entry::Absent | Entry::Directory(_)) => true,
        (Entry::File(_), Entry::Symlink(_)) | (Entry::Symlink(_), Entry::File(_)) => true,
        (Entry::Absent, Entry::File(_) | Entry::Symlink(_)) => true,
        _ => false,
    }
}

fn kind_bits(entry: &Entry) -> u32 {
    match entry {
        Entry::File(_) => 0o100_000,
        Entry::Directory(_) | Entry::Repository(_) => 0o040_000,
        Entry::Symlink(_) => 0o120_000,
        _ => 0,
    }
}

/// What came of paths that were written directly.
pub(super) struct Ended {
    /// What is known from now on, without records.
    pub(super) batch: Batch,
    /// What was written.
    pub(super) own: Vec<Change>,
    /// What somebody changed meanwhile.
    pub(super) others: Vec<Change>,
}

/// What a rewind changed and what is known after it.
#[derive(Default)]
struct Ending {
    tops: Vec<WorkspacePath>,
    own: Vec<Change>,
    others: Vec<Change>,
    /// Whose work it was and how that is known, if it was not a rewind.
    writer: Option<(Author, Evidence)>,
    directories: BTreeMap<WorkspacePath, DirectoryUpdate>,
}

impl Ending {
    /// How a path that nobody knew takes part from now on. A rewind only brings back what was known,
    /// and the next look tells.
    fn part_of_new(&self, workspace: &Workspace, path: &WorkspacePath) -> Part {
        match self.writer.as_ref().and_then(|_| workspace.unit_above(path)) {
            Some(_) => Part::Neutral,
            None => Part::Ordinary,
        }
    }

    fn directory(&mut self, path: &WorkspacePath) -> &mut DirectoryUpdate {
        self.directories
            .entry(path.clone())
            .or_insert_with(|| DirectoryUpdate { path: path.clone(), ..DirectoryUpdate::default() })
    }

    fn note(&mut self, path: &WorkspacePath, known: Option<Known>) {
        match path.parent().filter(|_| !self.tops.contains(path)) {
            Some(parent) => self.directory(&parent).names.push((path.name().to_vec(), known)),
            None => self.directory(path).own = known,
        }
    }

    /// Says of what the rewind took elsewhere where it came from, so that work on it is followed.
    fn follow(&mut self, renames: &[(WorkspacePath, WorkspacePath)], seq: Seq) {
        let places = self.own.iter().enumerate().map(|(at, change)| (change.path.clone(), at));
        let places: HashMap<_, _> =
            if renames.is_empty() { HashMap::new() } else { places.collect() };
        for (from, to) in renames {
            let (Some(left), Some(at)) = (places.get(from), places.get(to)) else { continue };
            if self.own[*left].before.is_present() && self.own[*at].after.is_present() {
                self.own[*at].from = Some(MovedFrom { path: from.clone(), seq });
            }
        }
    }

    /// Nothing is known any more of the significant files below a repository's directory, and of
    /// a directory that moved away.
    fn forget_below(&mut self, workspace: &Workspace, path: &WorkspacePath) -> Result<()> {
        let Some(directory) = workspace.catalog.known_directory(path)? else { return Ok(()) };
        for (name, known) in directory.names {
            let inner = path.join(&name);
            if known.entry.is_directory() {
                self.forget_below(workspace, &inner)?;
            } else if known.part == Part::Significant {
                self.note(&inner, None);
            }
        }
        Ok(())
    }
}
