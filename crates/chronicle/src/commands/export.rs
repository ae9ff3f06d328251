//! `chronicle export`: history as commits in a git repository, under a ref of its own.

use chronicle_core::{ExportReport, ExportRequest};

use super::Invocation;
use crate::cli::ExportArgs;
use crate::error::Outcome;
use crate::render::{count, printable};

/// Digits of a commit's name that people see.
const DIGITS: usize = 12;

pub(crate) fn execute(invocation: &mut Invocation, args: ExportArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    if !args.dry_run {
        workspace.refuse_agents("export history")?;
    }
    let repository = invocation.directory.join(args.git);
    let request = ExportRequest { repository, name: args.name, dry_run: args.dry_run };
    let report = workspace.export(&request)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&report);
        return Ok(0);
    }
    ui.line(words(&report));
    if !report.left_out.is_empty() {
        ui.line(format!("Left out: {}", left_out(&report)));
    }
    for turn in &report.open_turns {
        ui.note(format!("Turn {turn} is open: it follows when it has ended"));
    }
    if report.commit.is_some() {
        let (repository, name) = (printable(&report.repository), printable(&report.git_ref));
        ui.note(format!("See it with: git -C {repository} log --stat {name}"));
        ui.note(format!("Take it back with: git -C {repository} update-ref -d {name}"));
    }
    Ok(0)
}

fn words(report: &ExportReport) -> String {
    let name = printable(&report.git_ref);
    let commit = report.commit.as_deref().unwrap_or_default();
    let short = commit.get(..DIGITS).unwrap_or(commit);
    if report.dry_run {
        let new = count(report.new_commits, "commit");
        return format!("Would add {new} to {name}, {} in all", report.commits);
    }
    match report.previous.as_deref() == Some(commit) {
        true => format!("Already at {short}: {name}, {}", count(report.commits, "commit")),
        false => {
            let new = count(report.new_commits, "commit");
            format!("Added {new} to {name}, {} in all, now at {short}", report.commits)
        }
    }
}

/// `2 secret, 1 special`.
fn left_out(report: &ExportReport) -> String {
    let each = report.left_out.iter();
    let each = each.map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")));
    each.collect::<Vec<_>>().join(", ")
}
