//! Looking after a workspace: what is out of order, what can be put right, and what is lost for good.
//!
//! Nothing is guessed. What is put right follows from what is there: an index from its pack, tables
//! from records, content from a file that still has its hash. Nothing is deleted but leftovers.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::verify::CheckedObjects;
use super::verify_chain::{self, Which};
use super::views::path_text;
use super::{PATIENCE, Workspace, key};
use crate::catalog::{self, Catalog, LocalState, Log};
use crate::codec::{self, kind_number};
use crate::entry::Entry;
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::home::{Adopted, Home, sync_directory};
use crate::id::{ObjectId, Seq};
use crate::lock::Lock;
use crate::path::WorkspacePath;
use crate::record::Kind;
use crate::skim;
use crate::store::{ContentStorage, Disorder, keep_aside, open_chain};
use crate::view::{DoctorFinding, DoctorReport, LostContent, SCHEMA};

/// Whoever looks after a workspace, and what was found so far.
struct Doctor<'d> {
    repair: bool,
    report: DoctorReport,
    /// Objects that are only out of reach: an index made anew shows them.
    hidden: HashSet<ObjectId>,
    progress: &'d (dyn Fn(u64, u64) + Sync),
}

impl Workspace {
    /// Finds what is out of order in a workspace's history and content, says it in words, and puts
    /// right what can be; without `repair` it only looks.
    pub fn doctor(
        home: &Home,
        directory: &Path,
        repair: bool,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<DoctorReport> {
        let absolute = std::path::absolute(directory).at("find", directory)?;
        let real = absolute.canonicalize().unwrap_or(absolute);
        let adopted = home.find(&real)?.ok_or(Error::NoWorkspace(real))?;
        let report = DoctorReport { schema: SCHEMA, dry_run: !repair, ..DoctorReport::default() };
        let mut doctor = Doctor { repair, report, hidden: HashSet::new(), progress };
        if doctor.look_at_catalog(home, &adopted)? {
            doctor.look_at_store(home)?;
            let mut workspace = Self::open_adopted(home, &adopted, false)?;
            doctor.look_at_history(&workspace);
            doctor.look_at_contents(&workspace)?;
            doctor.look_at_rewind(&mut workspace)?;
            doctor.look_at_isolated(&mut workspace)?;
        }
        let mut report = doctor.report;
        report.sound = report.lost.is_empty() && report.findings.iter().all(|f| f.repaired);
        Ok(report)
    }
}

impl Doctor<'_> {
    fn found(&mut self, code: &'static str, words: String, repaired: bool, next: Option<&str>) {
        let next = next.map(str::to_owned).filter(|_| !repaired);
        self.report.findings.push(DoctorFinding { code, words, repaired, next });
    }

    /// What interrupted isolated runs left, and those that nobody can tell of any more.
    fn look_at_isolated(&mut self, workspace: &mut Workspace) -> Result<()> {
        for (id, place) in workspace.damaged_runs()? {
            let layer = place.upper();
            let words = format!(
                "The state of isolated run {} cannot be read; its work is in {}",
                id.short(),
                layer.display()
            );
            let next = format!(
                "Save what you need of it, then: chronicle isolated discard {}",
                id.short()
            );
            self.found("isolated_damaged", words, false, Some(&next));
        }
        let stale = workspace.stale_runs()?.len();
        if stale > 0 {
            if self.repair {
                let _lock = workspace.lock(PATIENCE)?;
                workspace.sweep_runs()?;
            }
            let words = format!("{stale} isolated runs were left behind half made or half removed");
            self.found("isolated_leftovers", words, self.repair, REPAIR);
        }
        Ok(())
    }

    /// Whether the catalog can be worked with.
    fn look_at_catalog(&mut self, home: &Home, adopted: &Adopted) -> Result<bool> {
        let directory = home.workspace(adopted.id);
        let path = directory.join("catalog.db");
        if self.repair && directory.join(RESCUED).exists() {
            let _lock = Lock::take(&directory.join("lock"), PATIENCE)?;
            swap(&directory)?;
        }
        let complaints = match Catalog::open(&path) {
            Ok(catalog) => catalog.complaints(),
            Err(error @ Error::Catalog { .. }) => vec![error_words(&error)],
            Err(error) => return Err(error),
        };
        if !complaints.is_empty() && !self.rescue(&directory, adopted, &complaints)? {
            return Ok(false);
        }
        let mut catalog = Catalog::open(&path)?;
        let wrong = if self.repair { catalog.rederive() } else { catalog.misfits() };
        match wrong {
            Ok(wrong) if wrong.is_empty() => {}
            Ok(wrong) => {
                let lines = wrong.len();
                let words = format!("{lines} lines of the catalog's indexes did not fit the log");
                self.found("catalog_index", words, self.repair, REPAIR);
            }
            // A record that cannot be read is the history's to tell of.
            Err(Error::Record { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Makes a catalog anew whose file is damaged, if all its records can be read.
    fn rescue(
        &mut self,
        directory: &Path,
        adopted: &Adopted,
        complaints: &[String],
    ) -> Result<bool> {
        let path = directory.join("catalog.db");
        let damaged = format!("The catalog {} is damaged: {}", path.display(), complaints[0]);
        let _lock = Lock::take(&directory.join("lock"), PATIENCE)?;
        let new = directory.join("catalog.rescue");
        remove_database(&new)?;
        let rescued = catalog::rescue(&path, &new, adopted.id);
        let whole = match &rescued {
            Ok(rescued) if rescued.lost_from.is_none() => verify_rescued(&new, adopted),
            Ok(rescued) => {
                let seq = rescued.lost_from.unwrap_or(Seq(1));
                Err(format!("record {seq} and others cannot be read"))
            }
            Err(error) => Err(error_words(error)),
        };
        if let Err(why) = whole {
            remove_database(&new)?;
            let words = format!("{damaged}. It cannot be made anew: {why}");
            let next = "Put back a copy of the home. Nothing was changed, and the contents in the store \
                        are still there";
            self.found("catalog_damaged", words, false, Some(next));
            return Ok(false);
        }
        if !self.repair {
            remove_database(&new)?;
            self.found(
                "catalog_damaged",
                format!("{damaged}. All records are readable"),
                false,
                REPAIR,
            );
            return Ok(false);
        }
        std::fs::rename(&new, directory.join(RESCUED)).at("rename", &new)?;
        sync_directory(directory)?;
        failpoint::hit("doctor_before_swap");
        let aside = swap(directory)?;
        let kept = format!("It was made anew; the damaged file is in {}", aside.display());
        self.found("catalog_damaged", format!("{damaged}. {kept}"), true, None);
        Ok(true)
    }

    fn look_at_store(&mut self, home: &Home) -> Result<()> {
        let Disorder { leftovers, reindexed, torn } = home.open_store()?.tend(self.repair)?;
        if leftovers > 0 {
            let words = format!("{leftovers} files were left by processes that died");
            self.found("leftovers", words, self.repair, REPAIR);
        }
        let readable: HashSet<PathBuf> = reindexed.iter().map(|(pack, _)| pack.clone()).collect();
        for (pack, objects) in reindexed {
            let words = format!(
                "The index of {} was lost or damaged; the pack has {} objects",
                pack.display(),
                objects.len()
            );
            self.hidden.extend(objects);
            self.found("pack_index", words, self.repair, REPAIR);
        }
        for pack in torn {
            // What it cost is told object by object.
            if readable.contains(&pack) {
                let words = format!("{} is damaged: a part of it cannot be read", pack.display());
                self.found("pack_damaged", words, self.repair, REPAIR);
            } else {
                let words = format!("{} is damaged: nothing can be found in it", pack.display());
                let next = "Put back a copy of the file; it was left as it is";
                self.found("pack_damaged", words, false, Some(next));
            }
        }
        Ok(())
    }

    fn look_at_history(&mut self, workspace: &Workspace) {
        match workspace.verify(false, &|_, _| {}) {
            // Content is looked at on its own.
            Ok(_) | Err(Error::Missing(_) | Error::Corrupt { .. }) => {}
            Err(error) => {
                let next = "What was changed by hand cannot be put right: compare with a copy of the home. \
                            Newer moments can still be reached";
                self.found("history", error_words(&error), false, Some(next));
            }
        }
        self.report.records = workspace.catalog.head().map_or(0, |head| head.seq.0);
    }

    fn look_at_contents(&mut self, workspace: &Workspace) -> Result<()> {
        let present = present(workspace)?;
        let mut ids = named(workspace)?;
        ids.extend(present.keys());
        self.report.objects = ids.len() as u64;
        let ids: Vec<ObjectId> = ids.into_iter().collect();
        let CheckedObjects { mut bad, sealed, .. } =
            workspace.check_objects(&ids, true, false, self.progress)?;
        bad.retain(|(id, _)| self.repair || !self.hidden.contains(id));
        if sealed > 0 {
            let words = format!("{sealed} objects are sealed with a key that is not here");
            let next = "Put the key of this home's secrets back: see docs/security.md, The key";
            self.found("secret_key_missing", words, false, Some(next));
        }
        let damaged: HashSet<ObjectId> = bad
            .iter()
            .filter(|(_, error)| matches!(error, Error::Corrupt { .. }))
            .map(|(id, _)| *id)
            .collect();
        if !damaged.is_empty() {
            let aside = if self.repair { Some(workspace.quarantine(&damaged)?) } else { None };
            let kept =
                aside.map(|aside| format!("; what is left of them is in {}", aside.display()));
            let words =
                format!("{} objects are damaged{}", damaged.len(), kept.unwrap_or_default());
            self.found("corrupt_object", words, self.repair, REPAIR);
        }
        let (mut lost, mut again) = (HashSet::new(), Vec::new());
        for (id, _) in bad {
            let still_there = present.get(&id).map(Vec::as_slice).unwrap_or_default();
            match workspace.take_in_again(&id, still_there, self.repair)? {
                Some(path) => again.push(path),
                None => drop(lost.insert(id)),
            }
        }
        if let Some(first) = again.first() {
            let words = format!(
                "{} objects were missing whose content files still have, {first} among them",
                again.len()
            );
            self.found("missing_object", words, self.repair, REPAIR);
        }
        if !lost.is_empty() {
            self.report.lost_objects = lost.len() as u64;
            self.report.lost = workspace.who_needs(&lost)?;
        }
        Ok(())
    }

    /// A rewind that was interrupted is finished, or what it staged is discarded.
    fn look_at_rewind(&mut self, workspace: &mut Workspace) -> Result<()> {
        let pending = workspace.catalog.state(key::PENDING_REWIND)?.is_some();
        if !pending && !workspace.staging_mark().exists() {
            return Ok(());
        }
        let (words, done) = match pending {
            true => ("A rewind was interrupted after its commit point", "it was finished"),
            false => ("A rewind was interrupted before it changed anything", "it was discarded"),
        };
        let tried = if self.repair { workspace.recover() } else { Ok(()) };
        match tried {
            Ok(()) if self.repair => {
                self.found("interrupted_rewind", format!("{words}; {done}"), true, None);
            }
            Ok(()) => self.found("interrupted_rewind", words.to_owned(), false, REPAIR),
            Err(error) => {
                let words = format!("{words}, and it cannot be finished: {}", error_words(&error));
                let next = "Make what it names readable, then run chronicle doctor again";
                self.found("interrupted_rewind", words, false, Some(next));
            }
        }
        Ok(())
    }
}

const REPAIR: Option<&str> = Some("Put right with: chronicle doctor");

/// A whole new catalog that waits for its place.
const RESCUED: &str = "catalog.rescued";

fn error_words(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Whether a catalog that was made anew has the history that it should.
fn verify_rescued(path: &Path, adopted: &Adopted) -> Result<(), String> {
    let check = || -> Result<()> {
        let catalog = Catalog::open(path)?;
        let which = Which::of(&catalog, adopted.id, catalog.head()?.seq)?;
        verify_chain::check(&catalog, path, &which, &[])?;
        catalog.settle_file()
    };
    check().map_err(|error| error_words(&error))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn remove_database(path: &Path) -> Result<()> {
    for end in ["", "-wal", "-shm"] {
        let file = beside(path, end);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).at("remove", &file);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Puts the new catalog in the place of the damaged one, which is kept; goes on where an earlier
/// try stopped. Needs the lock.
fn swap(directory: &Path) -> Result<PathBuf> {
    let aside = (1..)
        .map(|number| directory.join(format!("damaged-{number}")))
        .find(|aside| !aside.join("catalog.db").exists())
        .expect("BUG: numbers do not end");
    std::fs::create_dir_all(&aside).at("create", &aside)?;
    // The write-ahead log first: beside the new file it would be taken for its own.
    for name in ["catalog.db-wal", "catalog.db-shm", "catalog.db"] {
        let from = directory.join(name);
        match std::fs::rename(&from, aside.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).at("rename", &from);
            }
            _ => {}
        }
    }
    sync_directory(directory)?;
    failpoint::hit("doctor_in_swap");
    let rescued = directory.join(RESCUED);
    std::fs::rename(&rescued, directory.join("catalog.db")).at("rename", &rescued)?;
    sync_directory(directory)?;
    Ok(aside)
}

/// Which paths hold which object now, as far as it is known.
fn present(workspace: &Workspace) -> Result<HashMap<ObjectId, Vec<WorkspacePath>>> {
    let mut present: HashMap<ObjectId, Vec<WorkspacePath>> = HashMap::new();
    let below = workspace.catalog.known_below(&WorkspacePath::default())?;
    for (path, known) in below {
        if let Some(id) = known.entry.object() {
            present.entry(id).or_default().push(path);
        }
    }
    Ok(present)
}

/// Every object that a record names, as far as records can be read.
fn named(workspace: &Workspace) -> Result<HashSet<ObjectId>> {
    let mut named = HashSet::new();
    let end = workspace.catalog.head()?.seq;
    workspace.catalog.for_each_row(Seq(0), end, &mut |row| {
        if let Ok(claims) = skim::claims(row.leaf)
            && !row.body.is_empty()
            && row.kind != kind_number(Kind::Resolve)
        {
            let _ = skim::changes(claims.commitments, &row.body, &|_, _| true, &mut |id| {
                named.insert(id);
            });
        }
        true
    })?;
    for (name, object) in workspace.catalog.all_resolved()? {
        if named.remove(&name) {
            named.insert(object);
        }
    }
    Ok(named)
}

impl Workspace {
    /// Moves what is damaged of these objects out of the way, wherever it lies.
    fn quarantine(&self, damaged: &HashSet<ObjectId>) -> Result<PathBuf> {
        let aside = self.store.quarantine(damaged)?;
        for id in damaged {
            let Some(stored) = self.catalog.object(id)? else { continue };
            let opened = open_chain(id, stored.clone(), &self.bases(), self.home.secrets());
            if matches!(opened, Err(Error::Corrupt { .. })) {
                keep_aside(&aside.join(id.hex()), &stored)?;
                self.catalog.delete_object(id)?;
            }
        }
        Ok(aside)
    }

    /// Takes the content of an object in again, from a file that still has it; says which one.
    fn take_in_again(
        &self,
        id: &ObjectId,
        paths: &[WorkspacePath],
        repair: bool,
    ) -> Result<Option<WorkspacePath>> {
        if self.objects()?.reader(id).is_ok_and(|mut reader| drain(&mut reader)) {
            return Ok(paths.first().cloned());
        }
        for path in paths {
            let hashers = [
                Some((blake3::Hasher::new(), false)),
                self.home.secrets().key().ok().map(|key| (key.hasher(), true)),
            ];
            for (mut hasher, secret) in hashers.into_iter().flatten() {
                let Ok(mut file) = self.roots.open_file(path) else { continue };
                let read = hasher.update_reader(&mut file);
                if read.is_err() || hasher.finalize().as_bytes() != &id.0 {
                    continue;
                }
                if !repair || self.take_in(path, secret)? == *id {
                    return Ok(Some(path.clone()));
                }
            }
        }
        Ok(None)
    }

    fn take_in(&self, path: &WorkspacePath, secret: bool) -> Result<ObjectId> {
        let mut file = self.roots.open_file(path)?;
        let mut intake = self.store.intake()?;
        let (id, _) = match secret {
            true => intake.take_secret_stream(&mut file)?,
            false => intake.take_stream(&mut file)?,
        };
        self.catalog.put_objects(&intake.finish()?)?;
        Ok(id)
    }

    /// Which paths and snapshots named objects that are lost.
    fn who_needs(&self, lost: &HashSet<ObjectId>) -> Result<Vec<LostContent>> {
        let mut all = Vec::new();
        let mut after = Seq(0);
        loop {
            let records = self.catalog.read(after, 64)?;
            let Some(last) = records.last() else { return Ok(all) };
            after = last.seq;
            for sealed in records.iter().filter(|sealed| !sealed.body.is_empty()) {
                let Ok(mut record) = codec::open(&sealed.leaf, &sealed.body) else { continue };
                if record.kind == Kind::Resolve {
                    continue;
                }
                self.catalog.name_contents(&mut record.changes)?;
                let snapshot = record.labels.snapshot.as_ref();
                for change in &record.changes {
                    for (side, entry) in [("before", &change.before), ("after", &change.after)] {
                        let Some(id) = entry.object().filter(|id| lost.contains(id)) else {
                            continue;
                        };
                        let (path, path_b64) = path_text(&change.path);
                        all.push(LostContent {
                            object: id.hex(),
                            path,
                            path_b64,
                            seq: record.seq.0,
                            side,
                            snapshot: snapshot.map(ToString::to_string),
                            short_id: snapshot.map(crate::id::SnapshotId::short),
                            summary: record.labels.summary.clone(),
                            size: match entry {
                                Entry::File(file) => Some(file.size),
                                _ => None,
                            },
                        });
                    }
                }
            }
        }
    }
}

/// Whether everything can be read.
fn drain(reader: &mut dyn Read) -> bool {
    std::io::copy(reader, &mut std::io::sink()).is_ok()
}
