//! Making a checkpoint: everything up to the one record that makes it exist.
//!
//! Before that record nothing counts: contents that nobody names are garbage, and a process that dies
//! leaves at most admission closed, which the next start opens again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use chronicle_core::{
    CheckpointGuard, CheckpointRecord, Checkpointed, Clock, ObjectId, Seq, SnapshotId, SystemClock,
    Workspace, encode_contents, failpoint,
};

use crate::contents::Contents;
use crate::declare::Plan;
use crate::driver::{Captured, Deadline, Driver, Site};
use crate::drivers;
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::remove;
use crate::freeze::{Admission, Freeze};
use crate::kept;
use crate::lockfile::{self, LockFile, LockedPart};
use crate::part::{Part, PartKind};
use crate::schema;

/// How a checkpoint is to be made.
#[derive(Debug, Clone, Default)]
pub struct CreateRequest {
    /// A name for it.
    pub name: Option<String>,
    /// The driver for data, in place of the fastest that fits.
    pub driver: Option<String>,
    /// How long the freeze may last, in place of what the settings say.
    pub limit: Option<Duration>,
    /// Why it is made, in words.
    pub reason: Option<String>,
}

/// A checkpoint that was made.
#[derive(Debug, Clone)]
pub struct Created {
    /// Its record in the log.
    pub record: CheckpointRecord,
    /// Its lock file.
    pub lock: LockFile,
    /// How long everything stood still.
    pub freeze: Duration,
    /// Which driver took which part, and why that one.
    pub chosen: Vec<(String, String, String)>,
}

/// Makes a checkpoint of a workspace: the one function for whoever wants one.
pub fn create(workspace: &mut Workspace, request: &CreateRequest) -> Result<Created> {
    let guard = workspace.checkpoint_guard()?.ok_or(Error::Busy)?;
    crate::recover::recover_held(&guard, workspace)?;
    let plan = Plan::of(workspace)?;
    let limit = request.limit.unwrap_or(plan.limit);
    create_held(&guard, workspace, &plan, request, limit, Hold::Release)
}

/// Who closes and opens admission.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The checkpoint itself.
    Release,
    /// A restore, around more than the checkpoint.
    Theirs,
}

/// What was fixed inside the freeze.
struct Boundary {
    moment: Seq,
    link: String,
    freeze: Duration,
    parts: Vec<(Part, Captured)>,
}

pub(crate) fn create_held(
    _guard: &CheckpointGuard,
    workspace: &mut Workspace,
    plan: &Plan,
    request: &CreateRequest,
    limit: Duration,
    hold: Hold,
) -> Result<Created> {
    check_name(workspace, request.name.as_deref())?;
    // Most of what changed is taken in before anybody has to stand still.
    workspace.settle()?;
    let place = workspace.checkpoint_place()?;
    clear_temporaries(&place)?;
    let store = workspace.content_store()?;
    let mut contents = Contents::taking_in(&store, workspace.checkpoint_intake(&store)?);
    let id = SnapshotId::new(SystemClock.now());
    let previous = kept::newest(workspace);
    let chosen = choose(plan, request)?;
    let mut captured = Vec::new();
    let hex = id.hex();
    let made = {
        let site = |part: &Part| Site {
            contents: &contents,
            place: &place,
            id: &hex,
            previous: previous.as_ref().and_then(|lock| lock.part(&part.name)).map(|p| &p.captured),
        };
        take(workspace, plan, &chosen, &site, limit, hold, &mut captured)
    };
    let (moment, link, freeze) = match made {
        Ok(made) => made,
        Err(error) => {
            discard(&chosen, &captured, &contents, &place, &hex);
            return Err(error);
        }
    };
    let boundary = Boundary { moment, link, freeze, parts: captured };
    let sealed = seal(workspace, plan, request, id, &boundary, &mut contents);
    match sealed {
        Ok((record, lock)) => {
            drop(contents);
            let chosen =
                chosen.into_iter().map(|it| (it.part.name, it.driver.name().to_owned(), it.why));
            Ok(Created { record, lock, freeze, chosen: chosen.collect() })
        }
        Err(error) => {
            discard(&chosen, &boundary.parts, &contents, &place, &hex);
            Err(error)
        }
    }
}

/// A part with the driver that takes it.
struct Chosen {
    part: Part,
    driver: Box<dyn Driver>,
    why: String,
}

fn choose(plan: &Plan, request: &CreateRequest) -> Result<Vec<Chosen>> {
    let one = |part: &Part| {
        let (driver, why) = drivers::choose(part, request.driver.as_deref())?;
        Ok(Chosen { part: part.clone(), driver, why })
    };
    plan.parts.iter().map(one).collect()
}

/// Freezes, takes every boundary, thaws, and brings the bytes in.
fn take<'s>(
    workspace: &mut Workspace,
    plan: &Plan,
    chosen: &'s [Chosen],
    site: &dyn Fn(&Part) -> Site<'s>,
    limit: Duration,
    hold: Hold,
    captured: &mut Vec<(Part, Captured)>,
) -> Result<(Seq, String, Duration)> {
    let mut prepared = Vec::new();
    for it in chosen {
        prepared.push((it.part.clone(), it.driver.prepare(&it.part, &site(&it.part))?));
    }
    failpoint::hit("checkpoint_after_prepare");
    let mut freeze = Freeze::of(prepared);
    let (root, place) = (workspace.root().to_owned(), workspace.checkpoint_place()?);
    let deadline = Deadline::after(limit);
    let commands = if hold == Hold::Release { &plan.commands[..] } else { &[] };
    let begun = std::time::Instant::now();
    let mut admission = Admission::close(commands, &place, &root, &deadline)?;
    // The look comes before anything holds a lock on a database: reading its file would drop that.
    freeze.freeze(true, &deadline)?;
    let moment = look(workspace, plan)?;
    deadline.check("looking at the workspace")?;
    freeze.freeze(false, &deadline)?;
    freeze.boundary(&deadline)?;
    let thawed = freeze.thaw();
    let opened = admission.open();
    let stood = begun.elapsed();
    thawed?;
    opened?;
    failpoint::hit("checkpoint_after_thaw");
    freeze.capture(&mut |part, it| captured.push((part.clone(), it)))?;
    let link = workspace.link_at(moment)?.link.hex();
    Ok((moment, link, stood))
}

/// Records what the workspace is, and where that is in the log; what could not be seen is no checkpoint.
fn look(workspace: &mut Workspace, plan: &Plan) -> Result<Seq> {
    let report = workspace.settle()?;
    let moment = workspace.position()?.head.seq;
    let root = workspace.root();
    let of_part = |path: &str| {
        plan.parts
            .iter()
            .any(|part| !part.kind.is_code() && root.join(path).starts_with(&part.path))
    };
    let missed: Vec<_> = report.problems.iter().filter(|problem| !of_part(&problem.path)).collect();
    match missed.first() {
        None => Ok(moment),
        Some(first) => {
            let why = format!(
                "{} of the workspace's paths could not be captured, {} among them ({})",
                missed.len(),
                first.path,
                first.reason
            );
            let next = "Make them readable, or keep them out with .chronicleignore";
            Err(Problem::new("incomplete", why, next).into())
        }
    }
}

/// Makes everything durable and records the checkpoint.
fn seal(
    workspace: &mut Workspace,
    plan: &Plan,
    request: &CreateRequest,
    id: SnapshotId,
    boundary: &Boundary,
    contents: &mut Contents<'_>,
) -> Result<(CheckpointRecord, LockFile)> {
    let root = workspace.root().to_owned();
    let mut parts = Vec::new();
    for (part, captured) in &boundary.parts {
        parts.push(locked(part, captured, &root)?);
    }
    let list = encode_contents(&LockFile::needs(&parts));
    let lock = LockFile {
        version: lockfile::VERSION,
        id: id.to_string(),
        name: request.name.clone(),
        created: SystemClock.now().rfc3339(),
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        workspace: workspace.id().hex(),
        root: root.display().to_string(),
        moment: boundary.moment.0,
        link: boundary.link.clone(),
        freeze_ms: u64::try_from(boundary.freeze.as_millis()).unwrap_or(u64::MAX),
        contents: contents.put(&list)?,
        files: digests(&plan.artefacts, &root)?,
        parts,
    };
    failpoint::hit("checkpoint_before_seal");
    let text = lock.text(workspace)?;
    let holds = Checkpointed { lock: contents.put(text.as_bytes())?, contents: lock.contents };
    contents.finish()?;
    let summary = summary(&lock, request);
    let (name, moment) = (request.name.clone(), boundary.moment);
    failpoint::hit("checkpoint_before_commit");
    let new = chronicle_core::NewCheckpoint { id, name, summary, moment, holds };
    let record = workspace.record_checkpoint(&new)?;
    failpoint::hit("checkpoint_after_commit");
    Ok((record, lock))
}

fn locked(part: &Part, captured: &Captured, root: &Path) -> Result<LockedPart> {
    let mut captured = captured.clone();
    let found = captured.parameters.remove("schema");
    let path = part.path.strip_prefix(root).unwrap_or(&part.path);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let path = match part.kind {
        PartKind::Database => String::new(),
        _ => path.to_str().map(str::to_owned).ok_or_else(|| {
            Error::Declared(format!("The place of part {:?} is not UTF-8", part.name))
        })?,
    };
    Ok(LockedPart {
        name: part.name.clone(),
        kind: part.kind,
        path,
        schema: schema::by_command(part, root)?.or(found),
        captured,
    })
}

fn digests(files: &[std::path::PathBuf], root: &Path) -> Result<BTreeMap<String, String>> {
    let mut digests = BTreeMap::new();
    for path in files {
        let bytes = std::fs::read(path).at("read", path)?;
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        digests.insert(name, ObjectId::of(&bytes).hex());
    }
    Ok(digests)
}

fn summary(lock: &LockFile, request: &CreateRequest) -> String {
    let names: Vec<_> = lock.parts.iter().map(|part| part.name.as_str()).collect();
    let of = if names.is_empty() { "the workspace".to_owned() } else { names.join(", ") };
    match &request.reason {
        Some(reason) => format!("checkpoint of {of}: {reason}"),
        None => format!("checkpoint of {of}"),
    }
}

/// A name must not be taken for anything else that names a moment, nor be another checkpoint's.
fn check_name(workspace: &Workspace, name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let hexadecimal = name.len() >= 6 && name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let reserved = ["start", "now"].contains(&name) || hexadecimal;
    if !crate::part::is_name(name) || reserved {
        return Err(Error::Declared(format!("{name:?} cannot be the name of a checkpoint")));
    }
    let taken = workspace.checkpoints()?;
    match taken.iter().any(|it| !it.dropped && it.name.as_deref() == Some(name)) {
        true => Err(Error::Declared(format!("Another checkpoint is called {name:?}"))),
        false => Ok(()),
    }
}

/// Files of captures that nobody finished.
fn clear_temporaries(place: &Path) -> Result<()> {
    for item in std::fs::read_dir(place).at("list", place)?.flatten() {
        if item.file_name().to_string_lossy().starts_with("tmp-") {
            remove(&item.path())?;
        }
    }
    Ok(())
}

/// Lets drivers remove what no checkpoint will name; what stays is said by `doctor` and costs only room.
fn discard(
    chosen: &[Chosen],
    captured: &[(Part, Captured)],
    contents: &Contents<'_>,
    place: &Path,
    id: &str,
) {
    for (part, captured) in captured {
        let site = Site { contents, place, id, previous: None };
        if let Some(it) = chosen.iter().find(|it| it.part.name == part.name) {
            let _ = it.driver.discard(captured, &site);
        }
    }
}
