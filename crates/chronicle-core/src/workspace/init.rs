//! Adopting a workspace, and the first capture: in batches, so that it can stop and go on.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::capture::{Found, Look};
use super::link::group_links;
use super::look_around::unread;
use super::sketch::Sketch;
use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, Catalog, Durability, LocalState, Log};
use crate::entry::{Author, Change, Entry, Evidence};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::home::{Adopted, Home, inside, private_directory, sync_directory};
use crate::id::{SnapshotId, WorkspaceId};
use crate::known::{Known, KnownTable, Part};
use crate::look::{
    Candidate, ExamineOptions, Examined, Listing, Survey, SurveyOptions, examine_all, survey,
};
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels};
use crate::repository;
use crate::view::KeptView;

/// Files of one batch: enough to fill a pack, few enough to lose little when interrupted.
const BATCH_FILES: usize = 16 * 1024;
/// Bytes of one batch.
const BATCH_BYTES: u64 = 256 << 20;
/// Ignored files up to this size are taken in with the first.
const SMALL: u64 = 1 << 20;

/// How to adopt a workspace.
#[derive(Default)]
pub struct InitOptions<'a> {
    /// Called now and then with how far it is.
    pub progress: Option<&'a (dyn Fn(&Progress) + Sync)>,
    /// Set by somebody who wants it to stop; what is done stays, and the next call goes on.
    pub cancelled: Option<&'a AtomicBool>,
}

/// How far the first capture is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Files taken in.
    pub files_done: u64,
    /// Files to take in.
    pub files_total: u64,
    /// Bytes read.
    pub bytes_done: u64,
}

/// What adopting a workspace did.
#[derive(Debug, Clone)]
pub struct InitReport {
    /// The workspace's id.
    pub workspace: WorkspaceId,
    /// Files taken in now.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The workspace had been adopted before.
    pub already: bool,
    /// What could not be taken in, and why.
    pub problems: Vec<KeptView>,
    /// Directories that filters keep out.
    pub filtered: Vec<String>,
}

impl Workspace {
    /// Adopts a directory: from now on it is a workspace.
    ///
    /// Idempotent; a call that was interrupted is continued by the next.
    pub fn init(
        home: &Home,
        directory: &Path,
        options: &InitOptions<'_>,
    ) -> Result<(Self, InitReport)> {
        let root = directory.canonicalize().at("find", directory)?;
        if !root.is_dir() {
            let why = "it is not a directory".to_owned();
            return Err(Error::CannotAdopt { path: root, why });
        }
        let (mut workspace, already) = match home.lookup(&root)? {
            Some(adopted) => (Self::open(home, &adopted.root)?, true),
            None => (Self::adopt(home, &root)?, false),
        };
        let done = workspace.catalog.state(key::BASELINE)?.is_some();
        let _lock = workspace.lock(PATIENCE)?;
        let mut report = InitReport {
            workspace: workspace.id,
            files: 0,
            bytes: 0,
            already: already && done,
            problems: Vec::new(),
            filtered: Vec::new(),
        };
        if done {
            report.problems = workspace.settle_fully()?.problems;
        } else {
            if already {
                // An earlier call may have ended before the names were durable.
                home.sync()?;
            }
            workspace.take_baseline(options, &mut report)?;
        }
        report.filtered = workspace.filtered_paths()?;
        Ok((workspace, report))
    }

    fn adopt(home: &Home, root: &Path) -> Result<Self> {
        refuse_unsuitable(home, root)?;
        home.create()?;
        private_directory(&home.store())?;
        let id = WorkspaceId::random();
        let directory = home.workspace(id);
        private_directory(&directory)?;
        drop(Catalog::create(&directory.join("catalog.db"), id)?);
        let adopted = Adopted { id, root: root.to_owned() };
        let mut workspace = Self::open_adopted(home, &adopted, true)?;
        let mut batch = Batch::default();
        batch.records.push(workspace.record(Kind::Genesis, Labels::default()));
        batch.state.push((key::ROOT_IDENTITY, Some(workspace.identity_bytes()?)));
        batch.state.push((key::ACCEPTED_FILTER, Some(workspace.current_rules().ignore)));
        workspace.commit_batch(batch, Durability::PowerCut)?;
        // A registration must not outlive the catalog that it names. SQLite syncs the directory of
        // its files too, but does not listen to the answer.
        sync_directory(&directory)?;
        home.sync()?;
        home.register(root, id)?;
        Ok(workspace)
    }

    /// Takes in everything that stands there, most precious first.
    fn take_baseline(&mut self, options: &InitOptions<'_>, report: &mut InitReport) -> Result<()> {
        self.check_root()?;
        let table = self.catalog.known_table()?;
        let filter = self.filter()?;
        let mut survey = survey(&self.roots, &table, &filter, &SurveyOptions::default())?;
        let tracked = Tracked::read(&self.root, &survey);
        survey.candidates.sort_by_cached_key(|candidate| {
            // They come by path, and what is equal here stays in that order.
            (tracked.rank(candidate), candidate.path.parent())
        });
        let total = survey.candidates.len() as u64;
        let mut progress = Progress { files_total: total, ..Progress::default() };
        let mut pending = PendingListings::new(&survey);
        let snapshot = SnapshotId::new(self.now());
        let candidates = std::mem::take(&mut survey.candidates);
        for batch in batches(&candidates) {
            cancelled(options)?;
            let listings = pending.completed_by(batch);
            let taken =
                self.take_batch(batch, &listings, &table, snapshot, options, &mut progress)?;
            report.files += taken.files;
            report.bytes += taken.bytes;
            report.problems.extend(taken.problems);
            failpoint::hit("init_after_batch");
        }
        report.problems.extend(survey.problems.iter().map(|problem| KeptView {
            path: problem.path.to_string(),
            reason: problem.detail.clone(),
        }));
        survey.listings = pending.rest();
        self.finish_baseline(survey, &table)
    }

    /// What is left: repositories as values, listings of directories without news, the end mark.
    fn finish_baseline(&mut self, survey: Survey, table: &KnownTable) -> Result<()> {
        let look = self.examine_survey(Survey { problems: Vec::new(), ..survey }, table)?;
        let mut batch = Batch::default();
        let labels = baseline_labels(SnapshotId::new(self.now()));
        let changes = first_sights(look.found);
        if !changes.is_empty() {
            batch.records.extend(self.outcome_records(labels, changes));
        }
        batch.known.extend(look.known);
        batch.objects.extend(look.rows);
        batch.hold = look.hold;
        let end = self.catalog.head()?.seq.0 + batch.records.len() as u64;
        batch.state.push((key::BASELINE, Some(end.to_le_bytes().to_vec())));
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    fn take_batch(
        &mut self,
        candidates: &[Candidate],
        listings: &[Listing],
        table: &KnownTable,
        snapshot: SnapshotId,
        options: &InitOptions<'_>,
        progress: &mut Progress,
    ) -> Result<Taken> {
        let base = *progress;
        let report = |files: u64, bytes: u64| {
            if let Some(callback) = options.progress {
                let files_done = base.files_done + files;
                callback(&Progress { files_done, bytes_done: base.bytes_done + bytes, ..base });
            }
        };
        let hold = Some(self.store.hold()?);
        let mut intake = self.intake()?;
        let how = ExamineOptions {
            clock: &*self.clock,
            cancelled: options.cancelled,
            progress: Some(&report),
            ..ExamineOptions::default()
        };
        let examined = examine_all(&self.roots, candidates, &intake, &how)?;
        progress.files_done += candidates.len() as u64;
        progress.bytes_done +=
            candidates.iter().filter_map(|c| Some(c.stat?.signature.size)).sum::<u64>();
        let sketch = Sketch::new(table, self.tops(), self.catalog.head()?.seq);
        let mut pairs: Vec<_> = candidates.iter().map(|c| c.was.clone()).zip(examined).collect();
        group_links(&mut pairs, &[], &|index| self.born_ns(&candidates[index].path));
        let taken = Taken::of(candidates, &pairs);
        // Content is made durable while what it means is worked out.
        let (objects, look) = std::thread::scope(|scope| {
            let objects = scope.spawn(|| intake.finish());
            let look = sketch_batch(sketch, candidates, pairs, listings);
            (objects.join().expect("BUG: an intake panicked"), look)
        });
        let mut batch = Batch { objects: objects?, known: look.known, hold, ..Batch::default() };
        drop(intake);
        let changes = first_sights(look.found);
        if !changes.is_empty() {
            batch.records.extend(self.outcome_records(baseline_labels(snapshot), changes));
        }
        self.commit_batch(batch, Durability::PowerCut)?;
        Ok(taken)
    }

    /// Accepts the workspace's present filter rules and settings, and tells what was pending.
    pub fn accept_config(&mut self) -> Result<Vec<String>> {
        let pending = self.pending_config()?;
        let _lock = self.lock(PATIENCE)?;
        let state = vec![
            (key::ACCEPTED_FILTER, Some(self.current_rules().ignore)),
            (key::ACCEPTED_SETTINGS, Some(self.settings_to_accept()?)),
        ];
        self.commit_batch(Batch { state, ..Batch::default() }, Durability::PowerCut)?;
        Ok(pending)
    }

    /// Narrower rules and shorter settings that nobody accepted yet.
    pub fn pending_config(&self) -> Result<Vec<String>> {
        let mut pending = crate::filter::pending(&self.accepted_rules()?, &self.current_rules());
        pending.extend(self.pending_settings()?);
        Ok(pending)
    }
}

/// What a batch of candidates that were read comes to.
fn sketch_batch(
    mut sketch: Sketch<'_>,
    candidates: &[Candidate],
    pairs: Vec<(Option<Known>, Examined)>,
    listings: &[Listing],
) -> Look {
    for (candidate, (_, examined)) in candidates.iter().zip(pairs) {
        sketch.add(candidate, examined, None);
    }
    sketch.add_listings(listings);
    sketch.finish()
}

/// A workspace may not lie in another, hold another, or hold the store; nor be the whole machine. Only a
/// linked worktree inside the workspace of its repository is one of its own.
pub(super) fn refuse_unsuitable(home: &Home, root: &Path) -> Result<()> {
    let refuse = |why: String| Err(Error::CannotAdopt { path: root.to_owned(), why });
    let store = home.path().canonicalize().unwrap_or_else(|_| home.path().to_owned());
    if store.starts_with(root) {
        return refuse(format!("it holds Chronicle's own store {}", store.display()));
    }
    if root.starts_with(&store) {
        return refuse("it lies in Chronicle's own store".to_owned());
    }
    if root == Path::new("/")
        || std::env::var_os("HOME").is_some_and(|home| root.as_os_str() == home)
    {
        return refuse("it is a whole home or machine; adopt a project in it".to_owned());
    }
    for other in home.all()? {
        if root.starts_with(&other.root) && !inside(&other.root).iter().any(|inner| inner == root) {
            return refuse(format!("it lies inside the workspace {}", other.root.display()));
        }
        if other.root.starts_with(root) && !inside(root).contains(&other.root) {
            return refuse(format!("it holds the workspace {}", other.root.display()));
        }
    }
    Ok(())
}

fn cancelled(options: &InitOptions<'_>) -> Result<()> {
    match options.cancelled {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Cancelled),
        _ => Ok(()),
    }
}

/// What came of a batch: only what is in the store counts.
#[derive(Default)]
struct Taken {
    files: u64,
    bytes: u64,
    problems: Vec<KeptView>,
}

impl Taken {
    fn of(candidates: &[Candidate], pairs: &[(Option<Known>, Examined)]) -> Self {
        let mut taken = Self::default();
        for pair in candidates.iter().zip(pairs) {
            if let Entry::File(file) = &pair.1.1.known.entry {
                taken.files += 1;
                taken.bytes += file.size;
            }
            taken.problems.extend(unread(pair));
        }
        taken
    }
}

fn baseline_labels(snapshot: SnapshotId) -> Labels {
    Labels {
        snapshot: Some(snapshot),
        action: Some("init".to_owned()),
        summary: Some("init: what stood there at the beginning".to_owned()),
        ..Labels::default()
    }
}

fn first_sights(found: Vec<Found>) -> Vec<Change> {
    let change = |found: Found| Change {
        path: found.path,
        before: found.before,
        after: found.after,
        from: found.from,
        author: Author::Person,
        evidence: Evidence::Outside,
        neutral: found.neutral,
    };
    found.into_iter().map(change).collect()
}

/// Cuts the candidates into batches by number and by size.
fn batches(candidates: &[Candidate]) -> impl Iterator<Item = &[Candidate]> {
    let mut rest = candidates;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let mut count = 0;
        while count < rest.len() && count < BATCH_FILES && bytes < BATCH_BYTES {
            bytes += rest[count].stat.map_or(0, |stat| stat.signature.size);
            count += 1;
        }
        let (batch, left) = rest.split_at(count);
        rest = left;
        Some(batch)
    })
}

/// Which directories are known completely once the batches so far are in.
struct PendingListings {
    left: HashMap<WorkspacePath, usize>,
    listings: HashMap<WorkspacePath, Listing>,
}

impl PendingListings {
    fn new(survey: &Survey) -> Self {
        let mut left: HashMap<WorkspacePath, usize> = HashMap::new();
        for candidate in &survey.candidates {
            if let Some(parent) = candidate.path.parent() {
                *left.entry(parent).or_default() += 1;
            }
        }
        let listings = survey.listings.iter().cloned();
        Self { left, listings: listings.map(|listing| (listing.path.clone(), listing)).collect() }
    }

    fn completed_by(&mut self, batch: &[Candidate]) -> Vec<Listing> {
        let mut completed = Vec::new();
        for parent in batch.iter().filter_map(|candidate| candidate.path.parent()) {
            let Some(left) = self.left.get_mut(&parent) else { continue };
            *left -= 1;
            if *left == 0 {
                completed.extend(self.listings.remove(&parent));
            }
        }
        completed
    }

    fn rest(self) -> Vec<Listing> {
        self.listings.into_values().collect()
    }
}

/// What git has of the workspace's files, so that what only the workspace has is taken in first.
struct Tracked {
    files: HashMap<WorkspacePath, repository::Tracked>,
}

impl Tracked {
    fn read(root: &Path, survey: &Survey) -> Self {
        let mut files = HashMap::new();
        let units: HashSet<_> = survey.units.iter().collect();
        for unit in units {
            let Some(top) = unit.parent().filter(|_| unit.name() == b".git") else { continue };
            let index = std::fs::read(unit.under(root).join("index")).unwrap_or_default();
            for mut tracked in repository::tracked(&index).unwrap_or_default() {
                let name = std::mem::take(&mut tracked.path);
                let path =
                    if top.is_root() { name } else { [top.as_bytes(), &name[..]].join(&b'/') };
                if let Ok(path) = WorkspacePath::new(path) {
                    files.insert(path, tracked);
                }
            }
        }
        Self { files }
    }

    /// 0: only here, or changed since git saw it. 1: large and not in git. 2: git has it too.
    /// 3: git's own objects.
    fn rank(&self, candidate: &Candidate) -> u8 {
        if candidate.part == Part::Neutral {
            return 3;
        }
        let Some(stat) = &candidate.stat else { return 0 };
        let signature = stat.signature;
        match self.files.get(&candidate.path) {
            Some(tracked) if tracked.looks_clean(signature.size, signature.mtime_ns) => 2,
            Some(_) => 0,
            None => u8::from(signature.size > SMALL),
        }
    }
}

/// Whether a first sight tells anything a person wants to see.
pub(super) fn is_first_sight(change: &Change) -> bool {
    change.before == Entry::Unknown(crate::entry::Why::NotSeen)
}
