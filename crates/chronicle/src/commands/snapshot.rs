//! `chronicle snapshot`: saves paths before an action changes them.

use chronicle_core::SnapshotRequest;

use super::Invocation;
use crate::cli::SnapshotArgs;
use crate::error::Outcome;
use crate::render::printable;

pub(crate) fn execute(invocation: &mut Invocation, args: SnapshotArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    let request = SnapshotRequest {
        paths: invocation.paths(&workspace, &args.paths)?,
        to: args.to.map(|to| invocation.path(&workspace, &to)).transpose()?,
        action: args.action,
        summary: args.summary,
        tool: args.tool,
        call_id: args.call_id,
        session: args.session,
        turn_key: args.turn_key,
        agent: args.agent,
        transaction: args.transaction,
    };
    let snapshot = workspace.snapshot(&request)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&snapshot);
        return Ok(0);
    }
    let id = &snapshot.short_id;
    ui.line(id);
    let summary = printable(&snapshot.action_summary);
    ui.note(format!("Saved before {summary}. Take back with: chronicle rollback {id}"));
    Ok(0)
}
