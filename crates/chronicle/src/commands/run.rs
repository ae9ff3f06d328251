//! `chronicle run`: everything a command did, as one snapshot.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use chronicle_core::{RunTicket, SnapshotMetadata, Workspace};

use super::{Invocation, isolated};
use crate::checkpoint_first;
use crate::cli::RunArgs;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::log::lines;
use crate::render::{diff, printable};
use crate::run;

/// The pause between two exchanges of a conversation, in seconds.
const PAUSE: u64 = 30;
/// How often a workspace is looked at while a command runs.
const OFTEN: Duration = Duration::from_secs(1);
/// How many times longer than a look the time until the next one is, at least.
const SHARE: u32 = 20;

/// The exit status is the command's; whatever fails on our side is 125.
pub(crate) fn execute(invocation: &mut Invocation, args: &RunArgs) -> Outcome {
    if args.isolation.isolated {
        return isolated::run(invocation, args);
    }
    let ours = |error: CommandError| error.of(Kind::Run);
    let mut workspace = invocation.open().map_err(ours)?;
    let words = run::texts(&args.command);
    let checkpoint = checkpoint_first::before_run(&workspace, &words).map_err(ours)?;
    let serving = match args.mount {
        true => Some(run::over::mount(workspace.root(), workspace.below_mount()).map_err(ours)?),
        false => None,
    };
    let summary = args.summary.clone().unwrap_or_else(|| run::words(&args.command));
    let started = workspace.run_start_of(&summary, &words, checkpoint.as_ref());
    let mut ticket = started.map_err(|error| ours(error.into()))?;
    let status = std::thread::scope(|scope| {
        let (ended, end) = std::sync::mpsc::channel();
        let (workspace, ticket) = (&mut workspace, &mut ticket);
        let pause = args.pause.unwrap_or(if run::is_interactive() { PAUSE } else { 0 });
        scope.spawn(move || look_now_and_then(workspace, ticket, pause, &end));
        let status = run::run(&args.command, &invocation.directory);
        drop(ended);
        status
    });
    let turns = ticket.turns();
    // What it saw is in the log before what is left is looked at.
    let seen = serving.map_or(Ok(()), crate::commands::mount::Serving::end);
    // Whatever became of the command, what it did is recorded.
    let recorded = workspace.run_end(ticket);
    let status = status?;
    let snapshot = recorded.map_err(|error| {
        let told = format!("The command itself ended with status {status}");
        ours(error.into()).hinted(told)
    })?;
    report(invocation, &snapshot, turns);
    seen.map_err(ours)?;
    Ok(status)
}

/// Looks while the command runs, so that its pauses can be told. A look that fails is made again:
/// the one at the end counts.
fn look_now_and_then(
    workspace: &mut Workspace,
    ticket: &mut RunTicket,
    pause: u64,
    ended: &Receiver<()>,
) {
    let mut interval = OFTEN;
    while pause > 0 && ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let begun = Instant::now();
        let _ = workspace.run_look(ticket, Duration::from_secs(pause));
        // A large workspace is looked at less often.
        interval = OFTEN.max(begun.elapsed() * SHARE);
    }
}

/// Runs the command and records nothing.
pub(crate) fn only_run(invocation: &Invocation, args: &RunArgs) -> Outcome {
    if args.isolation.isolated {
        let why = "Chronicle is off (CHRONICLE=off), so nothing would isolate the command";
        return Err(CommandError::failed("not_isolated", why).of(Kind::NotIsolated));
    }
    run::run(&args.command, &invocation.directory)
}

/// Stdout is the command's, so even data about it goes to stderr.
fn report(invocation: &mut Invocation, snapshot: &SnapshotMetadata, turns: u32) {
    if invocation.ui.json() {
        let line = serde_json::to_string(snapshot).expect("BUG: views are plain data");
        crate::ui::say(&format!("{line}\n"));
        return;
    }
    let mut summary = printable(&snapshot.action_summary).into_owned();
    if turns > 1 {
        summary = format!("{summary}, in {turns} turns; the last");
    }
    if snapshot.changes.is_empty() {
        invocation.ui.note(format!("Recorded {summary}: nothing changed"));
        return;
    }
    let (inserted, deleted) = lines(&snapshot.changes);
    let total = diff::total(snapshot.changes.len() as u64, inserted, deleted);
    let id = &snapshot.short_id;
    invocation.ui.note(format!("Recorded {summary}: {total}. Take back with: chronicle undo {id}"));
}
