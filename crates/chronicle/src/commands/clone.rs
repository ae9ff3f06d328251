//! `chronicle clone`: a history out of a bucket into an empty directory, on a machine that has nothing.

use std::path::{Path, PathBuf};

use chronicle_core::{Error, Home, RewindKind, RewindRequest, SCHEMA, Workspace};
use chronicle_remote::{Fetched, LogHead, RemoteStore};
use serde_json::json;

use super::Invocation;
use super::bucket::{given, log_words};
use crate::bucket::BucketSettings;
use crate::cli::CloneArgs;
use crate::error::{CommandError, Outcome};
use crate::render::{count, grouped, printable};
use crate::ui::Meter;

/// Exit status when some content is nowhere.
const PARTIAL: u8 = 4;
/// How often a history is fetched that is being pushed meanwhile.
const ROUNDS: usize = 5;

pub(crate) fn execute(invocation: &mut Invocation, args: &CloneArgs) -> Outcome {
    let home = Home::from_env()?;
    let settings = given(invocation, &args.url, &args.place, false)?;
    let store = settings.connect()?;
    let root = make_root(&invocation.directory.join(&args.dir))?;
    let meter = Meter::new(&invocation.ui);
    let progress = |done, total| {
        meter.show(|| format!("{} of {} objects", grouped(done), grouped(total)));
    };
    let cloned = clone(&home, &store, args, &root, &progress);
    meter.clear();
    let Cloned { log, objects, missing } = cloned?;
    let mut workspace = Workspace::open_to_recreate(&home, &root)?;
    let restored = workspace.rewind(&fill(log.head.seq.0), &mut |_| true)?;
    let kept = BucketSettings::read(&home)?.is_none();
    if kept {
        settings.write(&home)?;
    }
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "workspace": root.display().to_string(),
            "workspace_id": log.workspace.hex(), "seq": log.head.seq.0, "objects": objects,
            "missing": missing, "partial": restored.partial }));
    } else {
        ui.line(format!(
            "{} is as it was at seq:{}: {} and {} came",
            printable(&root.display().to_string()),
            log.head.seq.0,
            count(log.head.seq.0, "record"),
            count(objects, "object"),
        ));
    }
    for left in &restored.plan.unknown {
        let (path, reason) = (printable(&left.path), printable(&left.reason));
        ui.note(format!("Not brought back: {path} ({reason})"));
    }
    if kept {
        ui.note("This home pushes to the same place from now on: chronicle bucket show");
    }
    ui.note(format!("Prove it with: chronicle -C {} verify --deep", root.display()));
    if missing > 0 {
        ui.note(format!("{} that it names are not in the bucket", count(missing, "object")));
    }
    Ok(if missing > 0 || restored.partial { PARTIAL } else { 0 })
}

/// Back to the last record that came, whatever this machine recorded since.
fn fill(seq: u64) -> RewindRequest {
    RewindRequest {
        recreate_root: true,
        exact: true,
        ..RewindRequest::new(RewindKind::Rewind { target: format!("seq:{seq}") })
    }
}

struct Cloned {
    log: LogHead,
    objects: u64,
    missing: u64,
}

fn clone(
    home: &Home,
    store: &RemoteStore,
    args: &CloneArgs,
    root: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Cloned, CommandError> {
    let mut busy = None;
    for _ in 0..ROUNDS {
        let log = choose(store, args.workspace.as_deref())?;
        if home.can_receive(log.workspace, root)? {
            // An earlier call came so far that only the files are left.
            return Ok(Cloned { log, objects: 0, missing: 0 });
        }
        match store.fetch(home, &log, &|_| Ok(false), progress) {
            Ok(Fetched { arrival, standing, missing, objects }) => {
                let missing = missing.len() as u64;
                arrival.settle(root, standing.as_ref(), log.baseline)?;
                return Ok(Cloned { log, objects, missing });
            }
            Err(Error::Busy(why)) => busy = Some(why),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Busy(busy.unwrap_or_default()).into())
}

/// The history that is meant: the one there is, or the one that is named.
fn choose(store: &RemoteStore, named: Option<&str>) -> Result<LogHead, CommandError> {
    let mut logs = store.logs(None)?;
    let place = printable(store.bucket().place());
    if let Some(name) = named {
        logs.retain(|log| {
            log.title == name || (name.len() >= 6 && log.workspace.hex().contains(name))
        });
    }
    // Of each workspace the life that was pushed last.
    logs.sort_by_key(|log| (log.workspace.0, std::cmp::Reverse((log.time.0, log.head.seq))));
    logs.dedup_by_key(|log| log.workspace);
    match logs.len() {
        1 => Ok(logs.remove(0)),
        0 => Err(CommandError::failed("no_history", format!("No such history is in {place}"))
            .hinted("Check the URL; a history gets there with: chronicle push")),
        _ => {
            let all: Vec<_> = logs.iter().map(log_words).collect();
            let message = format!("{place} has several histories:\n  {}", all.join("\n  "));
            Err(CommandError::usage(message).hinted("Name one with: --workspace ID"))
        }
    }
}

fn make_root(path: &Path) -> Result<PathBuf, CommandError> {
    let words = || format!("Could not make {}", path.display());
    std::fs::create_dir_all(path).map_err(|error| CommandError::io(words(), error))?;
    path.canonicalize().map_err(|error| CommandError::io(words(), error))
}
