//! `chronicle push`: a workspace's history into the home's bucket, by command or behind a turn's end.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use chronicle_core::{Clock, Error, Home, Mirrored, SCHEMA, SystemClock, Time, Workspace};
use chronicle_remote::{PushOptions, Pushed, RemoteStore};
use serde_json::json;

use super::Invocation;
use super::bucket::required;
use crate::bucket::{self, BucketSettings};
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, grouped, printable};
use crate::ui::Meter;

/// Exit status when some content could not be sent.
const PARTIAL: u8 = 4;
/// The first pause after a failure, which doubles, and the longest.
const PAUSE_NS: i64 = 30_000_000_000;
const LONGEST_PAUSE_NS: i64 = 3_600_000_000_000;

pub(crate) fn execute(invocation: &mut Invocation) -> Outcome {
    let home = bucket::home()?;
    let settings = required()?;
    let mut workspace = invocation.open()?;
    workspace.settle()?;
    let meter = Meter::new(&invocation.ui);
    let pushed = push(&home, &settings, &workspace, &|done, total| {
        meter.show(|| format!("{} of {} objects", grouped(done), grouped(total)));
    });
    meter.clear();
    let pushed = pushed?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "place": settings.url, "seq": pushed.head.seq.0,
            "head_hash": pushed.head.link.hex(), "records": pushed.records,
            "objects": pushed.written.objects, "packs": pushed.written.packs,
            "rewritten": pushed.rewritten,
            "missing": pushed.missing.iter().map(|id| id.hex()).collect::<Vec<_>>() }));
    } else {
        ui.line(words(&settings.url, &pushed));
    }
    if pushed.missing.is_empty() {
        return Ok(0);
    }
    let lost = count(pushed.missing.len() as u64, "object");
    ui.note(format!("{lost} that history names could not be read: chronicle doctor"));
    Ok(PARTIAL)
}

fn words(place: &str, pushed: &Pushed) -> String {
    let place = printable(place);
    match pushed.records {
        0 if !pushed.rewritten => {
            format!("{place} has everything already, up to seq:{}", pushed.head.seq.0)
        }
        records => format!(
            "Sent {} and {} in {} to {place}, which has everything up to seq:{}",
            count(records, "record"),
            count(pushed.written.objects, "object"),
            count(pushed.written.packs, "pack"),
            pushed.head.seq.0
        ),
    }
}

/// Sends what is new, and remembers how that went.
fn push(
    home: &Home,
    settings: &BucketSettings,
    workspace: &Workspace,
    progress: &dyn Fn(u64, u64),
) -> Result<Pushed, CommandError> {
    let Some(_pushing) = workspace.begin_push()? else {
        return Err(CommandError::failed("busy", "Another process is pushing this history")
            .of(Kind::Busy)
            .hinted("Wait for it, and see: chronicle status"));
    };
    let options = PushOptions {
        home: bucket::home_id(home)?,
        title: title(workspace),
        time: SystemClock.now(),
        progress,
    };
    let done = settings.connect().and_then(|store| {
        let pushed = store.push(workspace, &options)?;
        Ok((store, pushed))
    });
    remember(workspace, &settings.url, done.as_ref().map(|(_, pushed)| pushed))?;
    let (store, pushed) = done?;
    make_room(home, workspace, &settings.url, &store)?;
    Ok(pushed)
}

/// Where the budget is nearly used up, content goes that the bucket has.
fn make_room(
    home: &Home,
    workspace: &Workspace,
    place: &str,
    store: &RemoteStore,
) -> Result<(), CommandError> {
    match workspace.excess()? {
        0 => Ok(()),
        excess => Ok(home.evict(excess, place, &|id| Ok(store.is_known(id))).map(drop)?),
    }
}

fn title(workspace: &Workspace) -> String {
    let name = workspace.root().file_name().unwrap_or(workspace.root().as_os_str());
    name.to_string_lossy().into_owned()
}

fn remember(
    workspace: &Workspace,
    place: &str,
    done: Result<&Pushed, &Error>,
) -> Result<(), CommandError> {
    let before = workspace.mirrored()?.filter(|before| before.place == place).unwrap_or_default();
    let now = SystemClock.now().0;
    let mirrored = match done {
        Ok(pushed) => Mirrored {
            place: place.to_owned(),
            epoch: workspace.position()?.epoch.0,
            seq: pushed.head.seq,
            time: Time(now),
            ..Mirrored::default()
        },
        Err(error) => {
            let failures = before.failures.saturating_add(1);
            let pause = PAUSE_NS << (failures - 1).min(12);
            Mirrored {
                place: place.to_owned(),
                failures,
                next: Time(now + pause.min(LONGEST_PAUSE_NS)),
                error: CommandError::from_ref(error),
                ..before
            }
        }
    };
    Ok(workspace.set_mirrored(&mirrored)?)
}

/// The word with which this program is asked to push the history of the root that follows.
pub(crate) const VERB: &str = "__push";

/// Leaves to another process what a turn's end has no time for. Never a failure: the next turn's end does
/// the same, and until then `status` says what is waiting.
pub(crate) fn leave(home: &Home, workspace: &Workspace) {
    if !is_due(home, workspace).unwrap_or(false) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut command = Command::new(program);
    command.arg(VERB).arg(workspace.root()).env("CHRONICLE_HOME", home.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.spawn();
}

fn is_due(home: &Home, workspace: &Workspace) -> Result<bool, CommandError> {
    let Some(settings) = BucketSettings::read(home)?.filter(|settings| !settings.manual) else {
        return Ok(false);
    };
    let position = workspace.position()?;
    Ok(match workspace.mirrored()?.filter(|mirrored| mirrored.place == settings.url) {
        Some(mirrored) => {
            let same = mirrored.epoch == position.epoch.0 && mirrored.seq == position.head.seq;
            !same && mirrored.next <= SystemClock.now()
        }
        None => true,
    })
}

/// The process that was started for it.
pub(crate) fn detached(arguments: &[OsString]) -> u8 {
    super::watch::detach();
    let Some(root) = arguments.first() else { return 2 };
    let pushed = || -> Result<(), CommandError> {
        let home = bucket::home()?;
        let workspace = Workspace::open(&home, Path::new(root))?;
        if is_due(&home, &workspace)? {
            push(&home, &required()?, &workspace, &|_, _| {})?;
        }
        Ok(())
    };
    u8::from(pushed().is_err())
}
