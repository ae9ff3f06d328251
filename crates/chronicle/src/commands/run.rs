//! `chronicle run`: everything a command did, as one snapshot.

use chronicle_core::SnapshotMetadata;

use super::Invocation;
use crate::cli::RunArgs;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::log::lines;
use crate::render::{diff, printable};
use crate::run;

/// The exit status is the command's; whatever fails on our side is 125.
pub(crate) fn execute(invocation: &mut Invocation, args: &RunArgs) -> Outcome {
    let ours = |error: CommandError| error.of(Kind::Run);
    let mut workspace = invocation.open().map_err(ours)?;
    let summary = args.summary.clone().unwrap_or_else(|| run::words(&args.command));
    let ticket = workspace.run_start(&summary).map_err(|error| ours(error.into()))?;
    let status = run::run(&args.command, &invocation.directory);
    // Whatever became of the command, what it did is recorded.
    let recorded = workspace.run_end(ticket);
    let status = status?;
    let snapshot = recorded.map_err(|error| {
        let told = format!("The command itself ended with status {status}");
        ours(error.into()).hinted(told)
    })?;
    report(invocation, &snapshot);
    Ok(status)
}

/// Runs the command and records nothing.
pub(crate) fn only_run(invocation: &Invocation, args: &RunArgs) -> Outcome {
    run::run(&args.command, &invocation.directory)
}

/// Stdout is the command's, so even data about it goes to stderr.
fn report(invocation: &mut Invocation, snapshot: &SnapshotMetadata) {
    if invocation.ui.json() {
        let line = serde_json::to_string(snapshot).expect("BUG: views are plain data");
        crate::ui::say(&format!("{line}\n"));
        return;
    }
    let summary = printable(&snapshot.action_summary).into_owned();
    if snapshot.changes.is_empty() {
        invocation.ui.note(format!("Recorded {summary}: nothing changed"));
        return;
    }
    let (inserted, deleted) = lines(&snapshot.changes);
    let total = diff::total(snapshot.changes.len() as u64, inserted, deleted);
    let id = &snapshot.short_id;
    invocation.ui.note(format!("Recorded {summary}: {total}. Take back with: chronicle undo {id}"));
}
