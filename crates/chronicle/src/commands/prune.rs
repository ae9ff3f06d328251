//! `chronicle prune` and `chronicle gc`: old history goes by the accepted rules, and what nothing
//! needs any more is freed.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use chronicle_core::{GcReport, Home, PruneReport, Workspace};

use super::Invocation;
use super::watch::close_inherited;
use crate::bucket;
use crate::cli::PruneArgs;
use crate::error::{CommandError, Outcome};
use crate::render::{count, grouped, size};
use crate::ui::Meter;

pub(crate) fn execute(invocation: &mut Invocation, args: &PruneArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    if !args.dry_run {
        workspace.refuse_agents("prune history")?;
    }
    let report = workspace.prune_by_rules(args.dry_run)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&report);
        return Ok(0);
    }
    ui.line(words(&report));
    if let Some(oldest) = report.oldest_kept_at.as_ref().filter(|_| !report.is_empty()) {
        ui.line(format!(
            "History can be reached from {oldest} on (seq:{})",
            report.oldest_kept_seq
        ));
    }
    if report.dry_run && !report.is_empty() {
        ui.note("Nothing was changed. Keep a moment for ever with: chronicle pin TARGET NAME");
    } else if !report.is_empty() {
        ui.note(
            "This cannot be taken back. What stays is set in chronicle.toml, table [retention]",
        );
    }
    Ok(0)
}

/// The word with which this program is asked to prune the root that follows, if that is due.
pub(crate) const PRUNER: &str = "__prune";

/// Starts to prune in the background, at the end of a turn and at most once a day: nobody waits.
pub(crate) fn start_if_due(workspace: &Workspace) {
    if !workspace.prune_is_due().unwrap_or(false) {
        return;
    }
    let (Ok(program), Ok(home)) = (std::env::current_exe(), Home::from_env()) else { return };
    let mut command = Command::new(program);
    let command = command.arg(PRUNER).arg(workspace.root()).env("CHRONICLE_HOME", home.path());
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // If it cannot start, the next turn's end tries again.
    let _ = quiet.current_dir("/").spawn();
}

/// Prunes in the background; what it says nobody hears, and `status` shows what is left to do.
pub(crate) fn detached(arguments: &[OsString]) -> u8 {
    close_inherited();
    // A session of its own, so that no terminal's end is its end. Fails only if it has one already.
    let _ = rustix::process::setsid();
    let Some(root) = arguments.first() else { return 2 };
    u8::from(prune_if_due(Path::new(root)).is_err())
}

fn prune_if_due(root: &Path) -> Result<(), CommandError> {
    let mut workspace = Workspace::open(&bucket::home()?, root)?;
    if workspace.prune_is_due()? {
        workspace.prune_by_rules(false)?;
    }
    Ok(())
}

fn words(report: &PruneReport) -> String {
    if report.is_empty() {
        return "Nothing to prune: the rules keep everything".to_owned();
    }
    let (would, freed) = match report.dry_run {
        true => ("Would drop", String::new()),
        false => ("Dropped", format!("; {} freed", size(report.freed_bytes))),
    };
    format!(
        "{would} {} and merge {} into {}{freed}",
        count(report.dropped_records, "record"),
        count(report.merged_records, "record"),
        count(report.merged_changes, "change"),
    )
}

pub(crate) fn collect_garbage(invocation: &mut Invocation) -> Outcome {
    let meter = Meter::new(&invocation.ui);
    // With its bucket, since what is being forgotten may have copies before it.
    let collected = bucket::home()?.collect_garbage(&|done, total| {
        meter.show(|| format!("{} of {} looked at", grouped(done), grouped(total)));
    });
    meter.clear();
    let report = collected?;
    let GcReport { objects_kept, objects_gone, freed_bytes, .. } = report;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&report);
    } else {
        ui.line(format!(
            "{} freed, {} gone, {} kept",
            size(freed_bytes),
            count(objects_gone, "object"),
            grouped(objects_kept),
        ));
    }
    Ok(0)
}
