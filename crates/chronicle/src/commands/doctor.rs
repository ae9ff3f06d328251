//! `chronicle doctor`: what is out of order in words, what was put right, what is lost for good.

use chronicle_core::{DoctorReport, Workspace};

use super::Invocation;
use crate::cli::DoctorArgs;
use crate::error::{Kind, Outcome};
use crate::render::{count, grouped, printable};
use crate::ui::Meter;

/// Lost contents that are listed for people; scripts get all.
const LISTED: usize = 40;

pub(crate) fn execute(invocation: &mut Invocation, args: &DoctorArgs) -> Outcome {
    let meter = Meter::new(&invocation.ui);
    let looked = Workspace::doctor(
        &crate::bucket::home()?,
        &invocation.directory,
        !args.dry_run,
        &|done, total| {
            meter.show(|| format!("{} of {} objects read", grouped(done), grouped(total)));
        },
    );
    meter.clear();
    let report = looked?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&report);
    } else {
        lines(&report).into_iter().for_each(|line| ui.line(line));
    }
    Ok(if report.sound { 0 } else { Kind::Verification.exit() })
}

fn lines(report: &DoctorReport) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in &report.findings {
        let mark = if finding.repaired { "Put right" } else { "Found" };
        lines.push(format!("{mark}: {}", printable(&finding.words)));
        lines.extend(finding.next.as_ref().map(|next| format!("  {next}")));
    }
    if report.lost_objects > 0 {
        let objects = count(report.lost_objects, "object");
        lines.push(format!("Lost for good: the content of {objects}, at these places:"));
    }
    for lost in report.lost.iter().take(LISTED) {
        let what = lost.summary.as_deref().unwrap_or("a record without a summary");
        let id = lost.short_id.as_deref().unwrap_or("no snapshot");
        let (path, what) = (printable(&lost.path), printable(what));
        lines.push(format!("  {path}, as it was {} seq {} ({id}, {what})", lost.side, lost.seq));
    }
    if report.lost.len() > LISTED {
        lines.push(format!("  and {} more: see them with --json", report.lost.len() - LISTED));
    }
    let (records, objects) = (count(report.records, "record"), count(report.objects, "object"));
    lines.push(match (report.findings.is_empty() && report.lost.is_empty(), report.sound) {
        (true, _) => format!("Everything is in order: {records}, {objects} read back"),
        (_, true) => format!("Everything is in order again: {records}, {objects} read back"),
        _ => format!("{records}, {objects} looked at; everything else is in order"),
    });
    lines
}
