//! Removing content for good: every record that names it says less from then on, one record tells
//! of it, and the content goes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Read;

use super::{PATIENCE, Workspace};
use crate::catalog::{Batch, DirectoryUpdate, FORGETTING, LocalState, Log};
use crate::codec;
use crate::entry::{Change, Entry, Why};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::grant::{Act, SignedGrant};
use crate::id::{ObjectId, Seq};
use crate::known::Known;
use crate::path::WorkspacePath;
use crate::record::{ChangeRef, Kind, Labels};
use crate::secret::{Class, SecretKey};
use crate::store::ContentStorage;
use crate::view::{ForgetReport, ForgottenView, SCHEMA};

/// What to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgettable {
    /// What ever stood at a path or below it, or what stood there at one moment.
    Path {
        /// Where.
        path: WorkspacePath,
        /// The moment, as a target; `None` for all versions.
        at: Option<String>,
    },
    /// One content, by its name or a part of it that fits no other.
    Object(String),
}

/// The shortest part of an object's name.
const PART_MIN: usize = 12;

impl Workspace {
    /// Forgets content, if `confirm` says yes to what that takes.
    ///
    /// Content that still stands in the workspace, or that another workspace needs, is refused.
    pub fn forget(
        &mut self,
        what: &Forgettable,
        dry_run: bool,
        confirm: &mut dyn FnMut(&ForgetReport) -> bool,
    ) -> Result<ForgetReport> {
        let _lock = self.lock(PATIENCE)?;
        self.finish_pending()?;
        let _ = self.home.finish_forgetting()?;
        self.settle_fully()?;
        let objects = self.with_other_names(self.objects_of(what)?)?;
        let named = self.changes_naming(&objects)?;
        if named.is_empty() {
            return Err(Error::Stopped(Stop::Nothing("forget")));
        }
        let (there, hidden) = self.still_there(&objects)?;
        let wanted: HashSet<ObjectId> = objects.iter().copied().collect();
        let elsewhere = self.home.workspaces_needing(&wanted, self.id)?;
        let mut report = forget_report(objects.len(), &named, dry_run);
        report.still_there = there.iter().map(ToString::to_string).collect();
        report.needed_elsewhere.clone_from(&elsewhere);
        if dry_run {
            return Ok(report);
        }
        self.grant_for(Act::Forget)?;
        if !there.is_empty() {
            return Err(Error::Stopped(Stop::StillThere(there)));
        }
        if !elsewhere.is_empty() {
            return Err(Error::Stopped(Stop::NeededElsewhere(elsewhere)));
        }
        if !confirm(&report) {
            let why = "what is forgotten cannot be brought back".to_owned();
            return Err(Error::Stopped(Stop::NotConfirmed(why)));
        }
        self.commit_forget(what, &objects, named, hidden)?;
        self.opened_prune.set(None);
        match self.home.finish_forgetting()? {
            Some(copies_left) => Err(copies_left),
            None => Ok(report),
        }
    }

    fn commit_forget(
        &mut self,
        what: &Forgettable,
        objects: &BTreeSet<ObjectId>,
        named: Vec<(ChangeRef, Change)>,
        hidden: Vec<(WorkspacePath, Known)>,
    ) -> Result<()> {
        let (forgotten, changes): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let grant = self.grant_for(Act::Forget)?;
        let labels = Labels {
            grant: grant.as_ref().map(SignedGrant::text),
            summary: Some(format!("forget: {} changes say less", forgotten.len())),
            policy: Some(words(what)),
            forgotten,
            ..Labels::default()
        };
        let mut record = self.record(Kind::Forget, labels);
        record.changes = changes.iter().map(|change| redacted(change, objects)).collect();
        // Pieces that other content has too are needed, and stay.
        let pieces = objects.iter().flat_map(|id| self.store.pieces_of(id).unwrap_or_default());
        let names: Vec<u8> = objects.iter().copied().chain(pieces).flat_map(|id| id.0).collect();
        let state = vec![(FORGETTING, Some(names))];
        let known = hidden.into_iter().filter_map(|(path, known)| unknown_update(&path, &known));
        let mut batch =
            Batch { records: vec![record], state, known: known.collect(), ..Batch::default() };
        self.use_up(grant.as_ref(), &mut batch)?;
        failpoint::hit("forget_before_commit");
        self.commit_signed(batch)?;
        failpoint::hit("forget_after_commit");
        Ok(())
    }

    /// The objects that are meant.
    fn objects_of(&self, what: &Forgettable) -> Result<BTreeSet<ObjectId>> {
        match what {
            Forgettable::Object(part) => self.object_called(part).map(|id| [id].into()),
            Forgettable::Path { path, at: Some(target) } => {
                let moment = self.moment(target)?;
                let entry = self.entry_at(path, moment.seq)?;
                file_object(&entry).map(|id| [id].into()).ok_or_else(|| {
                    Error::UnknownTarget(format!("a file at {path} ({})", moment.words))
                })
            }
            Forgettable::Path { path, at: None } => {
                let mut objects = BTreeSet::new();
                self.for_each_named(&mut |_, change| {
                    if change.path.is_within(path) {
                        objects.extend(sides(change).filter_map(file_object));
                    }
                })?;
                Ok(objects)
            }
        }
    }

    fn object_called(&self, part: &str) -> Result<ObjectId> {
        let part = part.to_lowercase();
        let mut fitting = BTreeSet::new();
        self.for_each_named(&mut |_, change| {
            let objects = sides(change).filter_map(file_object);
            fitting.extend(objects.filter(|id| id.hex().starts_with(&part)));
        })?;
        let mut fitting = fitting.into_iter();
        match (fitting.next(), fitting.next()) {
            (Some(id), None) if part.len() >= PART_MIN => Ok(id),
            (Some(_), _) => {
                Err(Error::Ambiguous { given: part, candidates: vec!["several objects".into()] })
            }
            (None, _) => Err(Error::Stopped(Stop::Nothing("forget"))),
        }
    }

    /// The same contents under their other name too: a copy of a secret may have been kept plain,
    /// and what is secret now may not have been once. Only what the log names is left.
    fn with_other_names(&self, objects: BTreeSet<ObjectId>) -> Result<BTreeSet<ObjectId>> {
        let mut all = objects.clone();
        for id in &objects {
            match self.names_of(id) {
                Ok(names) => all.extend(names),
                // What cannot be read is forgotten under the name that it has.
                Err(Error::SecretKey(_) | Error::Missing(_) | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut named = BTreeSet::new();
        self.for_each_named(&mut |_, change| {
            named.extend(sides(change).filter_map(file_object).filter(|id| all.contains(id)));
        })?;
        Ok(named)
    }

    /// The names that a content has as a plain one and, if there is a key, as a secret.
    fn names_of(&self, id: &ObjectId) -> Result<Vec<ObjectId>> {
        let mut hashers = vec![blake3::Hasher::new()];
        hashers.extend(self.home.secrets().key().map(SecretKey::hasher));
        let mut reader = self.objects()?.reader(id)?;
        let mut piece = vec![0; 1 << 16];
        let corrupt =
            |error: std::io::Error| Error::Corrupt { object: *id, why: error.to_string() };
        loop {
            let count = reader.read(&mut piece).map_err(corrupt)?;
            if count == 0 {
                break;
            }
            for hasher in &mut hashers {
                hasher.update(&piece[..count]);
            }
        }
        Ok(hashers.iter().map(|hasher| ObjectId(*hasher.finalize().as_bytes())).collect())
    }

    /// Every change in the log that names one of these, also of intents, prunes and forgets.
    fn changes_naming(&self, objects: &BTreeSet<ObjectId>) -> Result<Vec<(ChangeRef, Change)>> {
        let mut naming = Vec::new();
        self.for_each_named(&mut |at, change| {
            if sides(change).filter_map(file_object).any(|id| objects.contains(&id)) {
                naming.push((at, change.clone()));
            }
        })?;
        Ok(naming)
    }

    /// Visits every change that a record has itself, whatever kind of record it is.
    fn for_each_named(&self, visit: &mut dyn FnMut(ChangeRef, &Change)) -> Result<()> {
        let mut after = Seq(0);
        loop {
            let records = self.catalog.read(after, 64)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.seq;
            for sealed in records.iter().filter(|sealed| !sealed.body.is_empty()) {
                let seq = sealed.seq;
                let mut record = codec::open(&sealed.leaf, &sealed.body)
                    .map_err(|source| Error::Record { seq, source })?;
                self.catalog.name_contents(&mut record.changes)?;
                for (index, change) in record.changes.iter().enumerate() {
                    let index = u32::try_from(index).unwrap_or(u32::MAX);
                    visit(ChangeRef { seq, index }, change);
                }
            }
        }
    }

    /// The known paths that name one of these: those that a look would take in again, and those
    /// that it would not.
    fn still_there(&self, objects: &BTreeSet<ObjectId>) -> Result<StillThere> {
        let (rules, filter) = (self.secret_rules()?, self.filter()?);
        let is_hidden = |path: &WorkspacePath| {
            rules.by_name(path) == Some(Class::Never) || filter.covers(path, false)
        };
        let (mut there, mut hidden) = (Vec::new(), Vec::new());
        for top in self.tops() {
            for (path, known) in self.catalog.known_below(&top)? {
                if !file_object(&known.entry).is_some_and(|id| objects.contains(&id)) {
                    continue;
                }
                match is_hidden(&path) {
                    true => hidden.push((path, known)),
                    false => there.push(path),
                }
            }
        }
        there.sort();
        there.dedup();
        Ok((there, hidden))
    }
}

/// Paths that hold what should be forgotten, and those that are known to and hide it.
type StillThere = (Vec<WorkspacePath>, Vec<(WorkspacePath, Known)>);

fn words(what: &Forgettable) -> String {
    match what {
        Forgettable::Path { path, at: None } => format!("asked for: {path}"),
        Forgettable::Path { path, at: Some(target) } => format!("asked for: {path} at {target}"),
        // Its name would let a guess be tested.
        Forgettable::Object(_) => "asked for: an object".to_owned(),
    }
}

fn sides(change: &Change) -> impl Iterator<Item = &Entry> {
    [&change.before, &change.after].into_iter()
}

/// The content of a file; a repository's bundle is not forgotten by itself.
fn file_object(entry: &Entry) -> Option<ObjectId> {
    match entry {
        Entry::File(file) => Some(file.object),
        _ => None,
    }
}

/// A change that no longer says what was forgotten; attributes go with the content.
fn redacted(change: &Change, objects: &BTreeSet<ObjectId>) -> Change {
    let side = |entry: &Entry| match file_object(entry).is_some_and(|id| objects.contains(&id)) {
        true => Entry::Unknown(Why::Forgotten),
        false => entry.clone(),
    };
    Change { before: side(&change.before), after: side(&change.after), ..change.clone() }
}

/// What is known of a path is what its last change says of it.
fn unknown_update(path: &WorkspacePath, known: &Known) -> Option<DirectoryUpdate> {
    let entry = Entry::Unknown(Why::Forgotten);
    let known = Known { entry, signature: None, racy: false, part: known.part };
    let names = vec![(path.name().to_vec(), Some(known))];
    Some(DirectoryUpdate { path: path.parent()?, names, ..DirectoryUpdate::default() })
}

fn forget_report(objects: usize, named: &[(ChangeRef, Change)], dry_run: bool) -> ForgetReport {
    let mut paths: BTreeMap<&WorkspacePath, Vec<u64>> = BTreeMap::new();
    for (at, change) in named {
        let seqs = paths.entry(&change.path).or_default();
        if seqs.last() != Some(&at.seq.0) {
            seqs.push(at.seq.0);
        }
    }
    ForgetReport {
        schema: SCHEMA,
        dry_run,
        objects: objects as u64,
        changes: named.len() as u64,
        paths: paths
            .into_iter()
            .map(|(path, seqs)| ForgottenView { path: path.to_string(), seqs })
            .collect(),
        still_there: Vec::new(),
        needed_elsewhere: Vec::new(),
    }
}
