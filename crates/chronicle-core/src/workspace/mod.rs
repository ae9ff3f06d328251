//! The façade that every face uses: one opened workspace.

mod armed;
mod attribute;
mod before;
mod blame;
mod by_process;
mod calls;
mod capture;
mod checkpoints;
mod clones;
mod compare;
mod conversation;
mod doctor;
mod effects;
mod export;
mod file_diff;
mod finish;
mod forget;
mod heads;
mod history;
mod init;
mod isolated;
mod isolated_base;
mod isolated_changes;
mod isolated_commit;
mod isolated_views;
mod known_cache;
mod known_names;
mod lazy;
mod limits;
mod link;
mod look_around;
mod look_for_changes;
mod mirror;
mod moment;
mod mount_place;
mod mounted;
#[cfg(test)]
mod mounted_tests;
mod operator;
mod outcomes;
mod outline;
#[cfg(test)]
mod outline_tests;
mod past;
mod prune;
mod purge;
mod receive;
mod replica_conflicts;
mod replica_host;
mod replica_journal;
mod replica_redo;
mod replica_registry;
mod replica_side;
mod replica_tree;
mod replica_types;
mod replica_undo;
mod replica_views;
mod replica_write;
mod repository_rule;
mod resolve;
mod rewind;
mod roles;
mod roots;
mod saved_plan;
mod search;
mod sessions;
mod sketch;
mod status;
mod tasks;
mod timeline;
mod timings;
mod touches;
mod turns;
mod unit;
mod verify;
mod verify_chain;
mod verify_heads;
mod views;
#[cfg(test)]
mod watched_tests;
mod watching;
mod witnessed;

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use calls::{Call, CallEnd, CallStart};
pub use capture::{SettleReport, SnapshotRequest};
pub(crate) use checkpoints::contents_of;
pub use checkpoints::{CheckpointGuard, CheckpointRecord, NewCheckpoint, encode_contents};
pub use compare::DiffRequest;
pub use conversation::{News, Prompt};
pub use effects::CheckpointWanted;
pub use export::ExportRequest;
pub(crate) use finish::pending_objects;
pub use forget::Forgettable;
pub use heads::WitnessPatience;
pub use history::LogQuery;
pub use init::{InitOptions, InitReport, Progress};
pub use isolated::IsolatedRun;
pub use isolated_commit::{CommitRequest, FilteredChoice};
pub use isolated_views::IsolatedCounts;
pub use known_names::KnownNames;
pub use lazy::Unfilled;
pub use mirror::{Alone, Mirrored, Position, Pushing};
pub use mount_place::MountPlace;
pub use mounted::{Deed, FoldReport, MountLog, SavedAs};
pub use outline::{
    ChangesOf, FileSpan, FileVersion, LineStat, Outline, SnapshotBrief, Stretch, StretchView,
    exact_path, view_of,
};
pub use purge::HistorySize;
pub use receive::Arrival;
pub(crate) use replica_conflicts::conflict_objects;
pub use replica_tree::HashedTree;
pub use replica_types::{
    Answer, Answered, Conflict, HostPlace, JournalBatch, PushChanges, PushLimits, PushReport,
    ReplicaNews, ReplicaRow, ReplicaState, Resolution, Unsynced, WriteBack,
};
pub use rewind::{GitChoice, RewindKind, RewindRequest};
pub use timeline::TimelineQuery;
pub use touches::{Touch, Touches};
pub use turns::{RunTicket, TurnRequest};
pub use verify::VerifyRequest;

use crate::apply;
use crate::catalog::{Appended, Batch, Catalog, Durability, LocalState, Log};
use crate::clock::{Clock, SystemClock};
use crate::codec::{Decoder, Encoder};
use crate::error::{Context, Error, Result};
use crate::filter::{Filter, FilterRules};
use crate::fs::Roots;
use crate::home::{Adopted, Home, sync_directory};
use crate::id::{PlanId, Time, WorkspaceId};
use crate::known::{Identity, decode_identity, encode_identity};
use crate::lock::Lock;
use crate::objects::{Objects, Versions};
use crate::path::WorkspacePath;
use crate::record::{Head, Kind, Labels, Record};
use crate::store::{ContentStorage, LocalStore};

/// How long a command waits for another that is working on the same workspace.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one waits that was told to wait.
const LONG_PATIENCE: Duration = Duration::from_secs(3600);

/// The keys of this machine's values in the catalog.
mod key {
    pub(super) const ROOT_IDENTITY: &str = "root_identity";
    pub(super) const ACCEPTED_FILTER: &str = "accepted_filter";
    pub(super) const FURTHER_ROOTS: &str = "further_roots";
    pub(super) const NAMED_FILES: &str = "named_files";
    pub(super) const BASELINE: &str = "baseline";
    pub(super) const PENDING_REWIND: &str = "pending_rewind";
    pub(super) const FINISHED_REWIND: &str = "finished_rewind";
    pub(super) const WATCHED: &str = "watched";
    pub(super) const ACCEPTED_SETTINGS: &str = "accepted_settings";
    pub(super) const PRUNED_AT: &str = "pruned_at";
    pub(super) const GRANTS: &str = "grants";
    pub(super) const USED_GRANTS: &str = "used_grants";
    pub(super) const MIRRORED: &str = "mirrored";
    pub(super) const MOUNTED: &str = "mounted";
    pub(super) const RECORDED: &str = "recorded";
    pub(super) const REDO: &str = "redo";
    pub(super) const REPLICA: &str = "replica";
    pub(super) const UNDER_WAY: &str = "under_way";
    pub(super) const LAZY: &str = "lazy";
    /// The sessions whose the active transaction is, a line each.
    pub(super) const TRANSACTION_OF: &str = "transaction_of";
}

/// One opened workspace.
pub struct Workspace {
    home: Home,
    id: WorkspaceId,
    root: PathBuf,
    roots: Roots,
    catalog: Catalog,
    store: LocalStore,
    objects: OnceCell<Objects>,
    clock: Box<dyn Clock>,
    /// The prune record that was read last: see `merged_changes`.
    opened_prune: Cell<Option<Record>>,
    /// Who may be kept waiting by witnesses.
    patience: WitnessPatience,
    /// The settings, as they were when the lock was last taken.
    held: OnceCell<limits::Held>,
    /// Somebody waits for what is done under the lock: large files are cloned, not read.
    in_haste: bool,
    /// The mount through which it was found: paths in there mean those of the root.
    shown_at: Option<PathBuf>,
    /// Who wrote where, while what a mount saw is recorded.
    seen: RefCell<Option<(crate::watch::Witnessed, Vec<String>)>>,
}

impl Workspace {
    /// Opens the nearest workspace at or above a directory.
    ///
    /// A rewind that was interrupted is finished or discarded first.
    pub fn open(home: &Home, directory: &Path) -> Result<Self> {
        let absolute = std::path::absolute(directory).at("find", directory)?;
        let real = absolute.canonicalize().unwrap_or(absolute);
        let (adopted, shown_at) = match home.find(&real)? {
            Some(adopted) => (adopted, None),
            None => match home.find_mounted(&real)? {
                Some((adopted, at)) => (adopted, Some(at)),
                None => return Err(Error::NoWorkspace(real)),
            },
        };
        let mut workspace = Self::open_adopted(home, &adopted, false)?;
        workspace.shown_at = shown_at;
        workspace.recover()?;
        Ok(workspace)
    }

    /// Opens a workspace whose root may be gone: it is written anew.
    pub fn open_to_recreate(home: &Home, directory: &Path) -> Result<Self> {
        let absolute = std::path::absolute(directory).at("find", directory)?;
        let real = absolute.canonicalize().unwrap_or(absolute);
        let adopted = home.find(&real)?.ok_or(Error::NoWorkspace(real))?;
        std::fs::create_dir_all(&adopted.root).at("create", &adopted.root)?;
        Self::open_adopted(home, &adopted, true)
    }

    fn open_adopted(home: &Home, adopted: &Adopted, new_root: bool) -> Result<Self> {
        let directory = home.workspace(adopted.id);
        let catalog = Catalog::open(&directory.join("catalog.db"))?;
        let further = roots::decode(&catalog.state(key::FURTHER_ROOTS)?.unwrap_or_default());
        let named = roots::decode(&catalog.state(key::NAMED_FILES)?.unwrap_or_default());
        let roots = match Roots::open(&adopted.root, &further, &named) {
            Err(Error::Io { .. }) if !adopted.root.exists() => {
                return Err(Error::RootReplaced(adopted.root.clone()));
            }
            roots => roots?,
        };
        let mut workspace = Self {
            home: home.clone(),
            id: adopted.id,
            root: adopted.root.clone(),
            roots,
            catalog,
            store: home.open_store()?,
            objects: OnceCell::new(),
            clock: Box::new(SystemClock),
            opened_prune: Cell::default(),
            patience: WitnessPatience::default(),
            held: OnceCell::new(),
            in_haste: false,
            shown_at: None,
            seen: RefCell::default(),
        };
        if !new_root && let Err(error) = workspace.check_root() {
            // Where a mount lies over the root, the directory itself can be reached beside it.
            let below = workspace.below_mount();
            workspace.roots = Roots::open(&below, &further, &named).map_err(|_| error)?;
            workspace.check_root()?;
        }
        workspace.roots.set_lazy(workspace.is_lazy()?);
        Ok(workspace)
    }

    /// Replaces the clock, for tests.
    pub fn set_clock(&mut self, clock: Box<dyn Clock>) {
        self.clock = clock;
    }

    /// The workspace's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The workspace's id.
    pub fn id(&self) -> WorkspaceId {
        self.id
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn directory(&self) -> PathBuf {
        self.home.workspace(self.id)
    }

    fn catalog_path(&self) -> PathBuf {
        self.directory().join("catalog.db")
    }

    /// All content, for reading from several threads.
    fn objects(&self) -> Result<&Objects> {
        if self.objects.get().is_none() {
            let opened = Objects::open(&self.catalog_path(), &self.home)?;
            let _ = self.objects.set(opened);
        }
        Ok(self.objects.get().expect("it was just set"))
    }

    /// The content that later versions may be kept against.
    fn bases(&self) -> Versions<'_> {
        Versions { catalog: &self.catalog, local: &self.store }
    }

    /// Takes the lock under which the workspace and its history change.
    ///
    /// Whoever held it may have died in the middle of a rewind since this workspace was opened: that
    /// is finished first, so that nobody records half of it as somebody's work.
    fn lock(&mut self, patience: Duration) -> Result<Lock> {
        let lock = self.lock_in_haste(patience)?;
        self.in_haste = false;
        self.resolve_clones()?;
        Ok(lock)
    }

    /// The same for who must not be kept waiting: large files are cloned where that can be done, and
    /// read by whoever has the time.
    fn lock_in_haste(&mut self, patience: Duration) -> Result<Lock> {
        let lock = self.lock_before_folding(patience)?;
        self.fold_versions()?;
        Ok(lock)
    }

    /// The same for whoever brings a mount's journal into the log himself.
    fn lock_before_folding(&mut self, patience: Duration) -> Result<Lock> {
        let lock = Lock::take(&self.directory().join("lock"), patience)?;
        self.held.take();
        self.in_haste = true;
        self.finish_pending()?;
        self.redo_lost()?;
        self.undo_interrupted()?;
        Ok(lock)
    }

    /// Finishes a rewind that was interrupted after its commit point.
    fn recover(&mut self) -> Result<()> {
        let staged = self.staging_mark().exists();
        let lost = self.has_lost()?;
        if !staged && !lost && self.catalog.state(key::PENDING_REWIND)?.is_none() {
            return Ok(());
        }
        // Somebody alive may be in the middle of it: then it is his to finish.
        let Some(lock) = Lock::try_take(&self.directory().join("lock"))? else { return Ok(()) };
        self.finish_pending()?;
        self.redo_lost()?;
        self.discard_leftovers()?;
        drop(lock);
        Ok(())
    }

    /// A file that is there while a rewind has things staged, so that nobody has to list the
    /// workspace to know.
    fn staging_mark(&self) -> PathBuf {
        self.directory().join("staging")
    }

    fn mark_staging(&self) -> Result<()> {
        let mark = self.staging_mark();
        std::fs::write(&mark, b"").at("write", &mark)?;
        // Staging that reaches the disk before its mark would never be looked for.
        sync_directory(&self.directory())
    }

    fn unmark_staging(&self) -> Result<()> {
        match std::fs::remove_file(self.staging_mark()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).at("remove", self.staging_mark())
            }
            _ => Ok(()),
        }
    }

    /// Removes what a rewind staged that never reached its commit point, or whose removal a power
    /// cut took back; needs the lock.
    fn discard_leftovers(&self) -> Result<()> {
        // Whoever passed his commit point is in the catalog, and was finished before this.
        let finished = self.catalog.state(key::FINISHED_REWIND)?;
        let is_recorded = |plan: &PlanId| finished.as_deref() == Some(&plan.0[..]);
        apply::discard_leftovers(&self.roots, None, &is_recorded)?;
        apply::clear_direct(&self.roots, &|id| self.objects()?.exists(id))?;
        self.unmark_staging()
    }

    /// Refuses to work on a root that is not the one that was recorded.
    fn check_root(&self) -> Result<()> {
        let found = self.roots.workspace().identity()?;
        match self.recorded_identity()? {
            Some(recorded) if recorded != found && self.is_seen_from_inside()? => {
                Err(Error::InIsolation(self.root.clone()))
            }
            Some(recorded) if recorded != found => Err(Error::RootReplaced(self.root.clone())),
            _ => Ok(()),
        }
    }

    fn recorded_identity(&self) -> Result<Option<Identity>> {
        let bytes = self.catalog.state(key::ROOT_IDENTITY)?;
        Ok(bytes.and_then(|bytes| decode_identity(&mut Decoder(&bytes)).ok()))
    }

    fn identity_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Encoder::default();
        encode_identity(&mut out, &self.roots.workspace().identity()?);
        Ok(out.0)
    }

    /// The rules in the workspace's own file, if there is one.
    fn current_rules(&self) -> FilterRules {
        // Rules that cannot be read exclude nothing: more is captured, never less.
        FilterRules::read(&self.root).unwrap_or_default()
    }

    fn accepted_rules(&self) -> Result<FilterRules> {
        Ok(FilterRules { ignore: self.catalog.state(key::ACCEPTED_FILTER)?.unwrap_or_default() })
    }

    fn filter(&self) -> Result<Filter> {
        Ok(Filter::new(
            &self.root,
            self.home.path(),
            &self.accepted_rules()?,
            &self.current_rules(),
        ))
    }

    /// A record of now, without changes and without its place in the log.
    fn record(&self, kind: Kind, labels: Labels) -> Record {
        Record {
            seq: crate::id::Seq(0),
            workspace: self.id,
            epoch: self.catalog.epoch(),
            time: self.now(),
            kind,
            labels,
            changes: Vec::new(),
        }
    }

    /// Commits a batch on the present head; the lock makes sure that it is the one looked at.
    fn commit_batch(&mut self, batch: Batch, durability: Durability) -> Result<Head> {
        Ok(self.commit_appended(batch, durability)?.last)
    }

    fn commit_appended(&mut self, batch: Batch, durability: Durability) -> Result<Appended> {
        let head = self.catalog.head()?;
        self.catalog.apply(batch, head, durability)
    }

    /// What a person's words for a file mean: a path under one of the roots.
    pub fn path(&self, given: &Path, current_dir: &Path) -> Result<WorkspacePath> {
        let mut further = self.further_roots()?;
        further.extend(self.named_files()?);
        let real = |path: &Path| match &self.shown_at {
            Some(at) => match path.strip_prefix(at) {
                Ok(below) => self.root.join(below),
                Err(_) => path.to_owned(),
            },
            None => path.to_owned(),
        };
        roots::resolve(&self.root, &further, &real(given), &real(current_dir))
    }
}
