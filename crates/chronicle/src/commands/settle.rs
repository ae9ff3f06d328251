//! `chronicle settle`: records what changed since the last look.

use chronicle_core::{SCHEMA, SettleReport};

use super::Invocation;
use crate::error::Outcome;
use crate::render::{count, printable};

pub(crate) fn execute(invocation: &mut Invocation) -> Outcome {
    let settled = invocation.open()?.settle()?;
    if invocation.ui.json() {
        invocation.ui.data(&serde_json::json!({
            "schema": SCHEMA,
            "snapshots": settled.snapshots,
            "changes": settled.changes,
            "complete": settled.complete,
            "problems": settled.problems,
            "watched": settled.watched,
        }));
    } else {
        report(invocation, &settled);
    }
    Ok(0)
}

fn report(invocation: &mut Invocation, settled: &SettleReport) {
    let ui = &mut invocation.ui;
    for snapshot in &settled.snapshots {
        ui.line(format!("{}  {}", snapshot.short_id, printable(&snapshot.action_summary)));
    }
    match settled.snapshots.last() {
        Some(last) if settled.changes > 0 => {
            let changes = count(settled.changes, "change");
            let id = &last.short_id;
            ui.note(format!("Recorded {changes}. Take back with: chronicle undo {id}"));
        }
        _ => ui.note("Nothing changed since the last look"),
    }
    for problem in &settled.problems {
        let (path, reason) = (printable(&problem.path), printable(&problem.reason));
        ui.note(format!("Not captured: {path} ({reason})"));
    }
    if !settled.complete {
        ui.note("The look saw only a part of the workspace");
    }
}
