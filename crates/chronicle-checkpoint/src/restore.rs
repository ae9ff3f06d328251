//! Bringing everything to a checkpoint: gate, the present, beside, the commit point, swap, check, admission.
//!
//! The durable state in the home is the commit point: before it says `forward`, nothing that people see has
//! changed; from then on whoever starts next goes on, or goes back if it says so.

use std::path::{Path, PathBuf};

use chronicle_core::{
    CheckpointGuard, CheckpointRecord, LocalStore, RewindReport, Seq, SnapshotId, Workspace,
    failpoint,
};
use serde::{Deserialize, Serialize};

use crate::contents::Contents;
use crate::create::{CreateRequest, Created, Hold, create_held};
use crate::declare::Plan;
use crate::driver::{Aside, Captured, Deadline, Driver, End, Restoration, Site, Staged};
use crate::drivers;
use crate::durable;
use crate::error::{Error, Problem, Result, sentence};
use crate::exchange::remove;
use crate::freeze::Admission;
use crate::gate::{self, Answer, Which, part_now, rewind_to};
use crate::kept;
use crate::lockfile::LockFile;
use crate::part::{Part, PartKind};

/// The file that says how far a restore has come.
const STATE: &str = "restore";

/// How a checkpoint is to be restored.
#[derive(Debug, Clone, Default)]
pub struct RestoreRequest {
    /// Which parts.
    pub which: Which,
    /// Why only some of them, in words: without, that is refused.
    pub anyway: Option<String>,
}

/// A restore that was done.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The checkpoint of what stood there before: restoring it takes this back.
    pub present: CheckpointRecord,
    /// What became of the workspace's files, where they went back.
    pub files: Option<RewindReport>,
    /// What was left beside.
    pub asides: Vec<Aside>,
    /// How long everything stood still, in milliseconds.
    pub still_ms: u64,
}

/// How far a restore has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Things are put beside; nothing counts.
    Beside,
    /// It will be done.
    Forward,
    /// It failed and is taken back.
    Back,
    /// It is done; what is left over goes.
    Clearing,
}

/// What the next process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) checkpoint: String,
    pub(crate) present: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) code: bool,
    /// The parts that go back, with what their drivers noted.
    pub(crate) parts: Vec<(String, Staged)>,
}

impl State {
    pub(crate) fn path(place: &Path) -> PathBuf {
        place.join(STATE)
    }

    fn write(&self, place: &Path) -> Result<()> {
        durable::write(&Self::path(place), self)
    }
}

/// Everything that the steps of a restore need.
pub(crate) struct Job<'j> {
    pub(crate) store: &'j LocalStore,
    pub(crate) place: PathBuf,
    pub(crate) plan: &'j Plan,
    pub(crate) lock: LockFile,
    pub(crate) present: Option<LockFile>,
    pub(crate) state: State,
}

/// A part with its driver and what is known of it.
struct Piece {
    part: Part,
    driver: Box<dyn Driver>,
    captured: Captured,
    present: Option<Captured>,
    staged: Staged,
}

impl Job<'_> {
    fn pieces(&self, workspace: &Workspace) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for (name, staged) in &self.state.parts {
            let locked = self.lock.part(name).ok_or_else(|| Error::Unknown(name.clone()))?;
            let driver = drivers::named(&locked.captured.driver)
                .ok_or_else(|| Error::from(kept::unknown_driver(locked)))?;
            let present = self.present.as_ref().and_then(|lock| lock.part(name));
            pieces.push(Piece {
                part: part_now(workspace, self.plan, locked)?,
                driver,
                captured: locked.captured.clone(),
                present: present.map(|part| part.captured.clone()),
                staged: staged.clone(),
            });
        }
        Ok(pieces)
    }

    fn each(
        &self,
        pieces: &[Piece],
        step: &mut dyn FnMut(&Piece, &Restoration<'_>) -> Result<()>,
    ) -> Result<()> {
        let contents = Contents::read_only(self.store);
        for piece in pieces {
            let site = Site {
                contents: &contents,
                place: &self.place,
                id: &self.state.id,
                previous: None,
            };
            let (part, captured, present) = (&piece.part, &piece.captured, piece.present.as_ref());
            step(piece, &Restoration { part, captured, present, site })?;
        }
        Ok(())
    }

    /// Brings everything to the checkpoint; every step may be done twice.
    pub(crate) fn forward(&mut self, workspace: &mut Workspace) -> Result<Option<RewindReport>> {
        let pieces = self.pieces(workspace)?;
        let files = match self.state.code {
            true => rewind(workspace, &self.lock, Seq(self.lock.moment))?,
            false => None,
        };
        failpoint::hit("restore_after_rewind");
        self.each(&pieces, &mut |piece, it| {
            piece.driver.swap(it, &piece.staged)?;
            failpoint::hit("restore_after_part_swapped");
            Ok(())
        })?;
        self.each(&pieces, &mut |piece, it| piece.driver.check(it))?;
        failpoint::hit("restore_after_check");
        Ok(files)
    }

    /// Brings everything back to what stood there before.
    pub(crate) fn back(&mut self, workspace: &mut Workspace) -> Result<()> {
        self.state.phase = Phase::Back;
        self.state.write(&self.place)?;
        let pieces = self.pieces(workspace)?;
        self.each(&pieces, &mut |piece, it| piece.driver.swap_back(it, &piece.staged))?;
        if let Some(present) = self.present.as_ref().filter(|_| self.state.code) {
            rewind(workspace, present, Seq(present.moment))?;
        }
        self.end(workspace, End::Old).map(drop)
    }

    /// Says in the log that it is done.
    pub(crate) fn note(&mut self, workspace: &mut Workspace, id: SnapshotId) -> Result<()> {
        let which = self.lock.name.clone().unwrap_or_else(|| id.short());
        workspace.note_restore(id, &format!("restore of checkpoint {which}"))?;
        failpoint::hit("restore_after_record");
        self.state.phase = Phase::Clearing;
        self.state.write(&self.place)
    }

    /// Removes what is left over and lets go of everything; then nothing is under way any more.
    pub(crate) fn end(&mut self, workspace: &Workspace, end: End) -> Result<Vec<Aside>> {
        let pieces = self.pieces(workspace)?;
        let mut asides = Vec::new();
        self.each(&pieces, &mut |piece, it| {
            asides.extend(piece.driver.clear(it, &piece.staged, end)?);
            failpoint::hit("restore_after_part_cleared");
            Ok(())
        })?;
        self.each(&pieces, &mut |piece, it| piece.driver.resume(it))?;
        remove(&State::path(&self.place))?;
        failpoint::hit("restore_after_end");
        Ok(asides)
    }
}

/// Brings the workspace's files to a moment; where they are there already, nothing happens.
fn rewind(workspace: &mut Workspace, lock: &LockFile, moment: Seq) -> Result<Option<RewindReport>> {
    let request = rewind_to(workspace, lock, moment);
    let view = workspace.plan(&request)?;
    if view.write.is_empty()
        && view.delete.is_empty()
        && view.merge.is_empty()
        && view.git.is_empty()
    {
        return Ok(None);
    }
    Ok(Some(workspace.rewind(&request, &mut |_| true)?))
}

/// What the gate says to restoring a checkpoint, without restoring it.
pub fn answers(
    workspace: &mut Workspace,
    record: &CheckpointRecord,
    request: &RestoreRequest,
) -> Result<Vec<Answer>> {
    let plan = Plan::accepted(workspace)?;
    let lock = kept::load(workspace, record)?;
    let store = workspace.content_store()?;
    ask(workspace, &plan, record, &lock, request, &store)
}

fn ask(
    workspace: &mut Workspace,
    plan: &Plan,
    record: &CheckpointRecord,
    lock: &LockFile,
    request: &RestoreRequest,
    store: &LocalStore,
) -> Result<Vec<Answer>> {
    let (place, id) = (workspace.checkpoint_place()?, record.id.hex());
    let contents = Contents::read_only(store);
    let site = Site { contents: &contents, place: &place, id: &id, previous: None };
    gate::ask(workspace, plan, record, lock, &request.which, &|part, locked, step| {
        step(&Restoration { part, captured: &locked.captured, present: None, site })
    })
}

/// Restores a checkpoint, or refuses before it changes anything.
pub fn restore(
    workspace: &mut Workspace,
    record: &CheckpointRecord,
    request: &RestoreRequest,
) -> Result<Restored> {
    let guard = workspace.checkpoint_guard()?.ok_or(Error::Busy)?;
    crate::recover::recover_held(&guard, workspace)?;
    refuse_part(request)?;
    let plan = Plan::accepted(workspace)?;
    let lock = kept::load(workspace, record)?;
    let store = workspace.content_store()?;
    let given = ask(workspace, &plan, record, &lock, request, &store)?;
    gate::refuse(&given, request.anyway.is_some())?;
    failpoint::hit("restore_after_gate");
    let (place, root) = (workspace.checkpoint_place()?, workspace.root().to_owned());
    let parts = lock.parts.iter().filter(|part| request.which.holds(part));
    let state = State {
        id: SnapshotId::new(chronicle_core::Clock::now(&chronicle_core::SystemClock)).hex(),
        checkpoint: record.id.hex(),
        present: None,
        phase: Phase::Beside,
        code: request.which.holds_code(&lock),
        parts: parts.map(|part| (part.name.clone(), Staged::new())).collect(),
    };
    let begun = std::time::Instant::now();
    let mut admission =
        Admission::close(&plan.commands, &place, &root, &Deadline::after(plan.limit))?;
    state.write(&place)?;
    let mut job = Job { store: &store, place, plan: &plan, lock, present: None, state };
    let prepared = prepare(&guard, workspace, &mut job);
    let present = match prepared {
        Ok(present) => present,
        Err(error) => {
            job.end(workspace, End::Old)?;
            admission.open()?;
            return Err(error);
        }
    };
    let done = match job.forward(workspace) {
        Ok(files) => finish(workspace, &mut job, record, files),
        Err(error) => {
            job.back(workspace)?;
            admission.open()?;
            return Err(Error::TakenBack(sentence(&error)));
        }
    };
    let (files, asides) = done?;
    admission.open()?;
    let still_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Restored { present: present.record, files, asides, still_ms })
}

fn finish(
    workspace: &mut Workspace,
    job: &mut Job<'_>,
    record: &CheckpointRecord,
    files: Option<RewindReport>,
) -> Result<(Option<RewindReport>, Vec<Aside>)> {
    job.note(workspace, record.id)?;
    let asides = job.end(workspace, End::New)?;
    Ok((files, asides))
}

/// Half a checkpoint is what checkpoints are there to prevent.
fn refuse_part(request: &RestoreRequest) -> Result<()> {
    match (&request.which, request.anyway.as_deref()) {
        (Which::Only(_), None | Some("")) => {
            let why = "only some parts of the checkpoint were asked for: code and data would be of \
                       different moments";
            let next = "Restore all of it, or say why not with --partial-anyway REASON";
            Err(Problem::new("partial", why, next).into())
        }
        _ => Ok(()),
    }
}

/// Everything up to the commit point, and that.
fn prepare(
    guard: &CheckpointGuard,
    workspace: &mut Workspace,
    job: &mut Job<'_>,
) -> Result<Created> {
    let pieces = job.pieces(workspace)?;
    job.each(&pieces, &mut |piece, it| piece.driver.halt(it))?;
    failpoint::hit("restore_after_halt");
    let words =
        format!("before the restore of {}", job.lock.name.as_deref().unwrap_or(&job.lock.id));
    let request = CreateRequest { reason: Some(words), ..CreateRequest::default() };
    let limit = std::time::Duration::from_secs(24 * 3600);
    let present = create_held(guard, workspace, job.plan, &request, limit, Hold::Theirs)?;
    failpoint::hit("restore_after_present");
    job.state.present = Some(present.record.id.hex());
    job.present = Some(present.lock.clone());
    let pieces = job.pieces(workspace)?;
    let mut staged = Vec::new();
    job.each(&pieces, &mut |piece, it| {
        staged.push((piece.part.name.clone(), piece.driver.restore(it)?));
        failpoint::hit("restore_after_part_beside");
        Ok(())
    })?;
    job.state.parts = staged;
    job.state.phase = Phase::Forward;
    failpoint::hit("restore_before_commit");
    job.state.write(&job.place)?;
    failpoint::hit("restore_after_commit");
    Ok(present)
}

/// Writes the data of a checkpoint somewhere else, for a look: nothing in its place is touched.
pub fn restore_to(
    workspace: &Workspace,
    record: &CheckpointRecord,
    to: &Path,
) -> Result<Vec<String>> {
    use crate::error::Context;
    let lock = kept::load(workspace, record)?;
    std::fs::create_dir(to).at("create", to)?;
    let (store, place) = (workspace.content_store()?, workspace.checkpoint_place()?);
    let contents = Contents::read_only(&store);
    let id = record.id.hex();
    let mut written = Vec::new();
    for locked in lock.parts.iter().filter(|part| !part.kind.is_code()) {
        if locked.kind == PartKind::Database {
            let target = to.join(format!("{}.sql", locked.name));
            if !locked.captured.absent {
                drivers::write_dump(&locked.captured, &contents, &target)?;
                written.push(target.display().to_string());
            }
            continue;
        }
        let driver = drivers::named(&locked.captured.driver)
            .ok_or_else(|| Error::from(kept::unknown_driver(locked)))?;
        let target = to.join(&locked.name);
        let part = kept::as_part(locked, workspace.root()).moved_to(&target);
        let site = Site { contents: &contents, place: &place, id: &id, previous: None };
        let it = Restoration { part: &part, captured: &locked.captured, present: None, site };
        let staged = driver.restore(&it)?;
        driver.swap(&it, &staged)?;
        written.push(target.display().to_string());
    }
    let text = kept::lock_text(workspace, record)?;
    let file = to.join("chronicle.lock");
    std::fs::write(&file, text).at("write", &file)?;
    Ok(written)
}
