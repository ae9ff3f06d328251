//! `chronicle log`: the snapshots, newest first.

use chronicle_core::LogQuery;

use super::Invocation;
use crate::cli::LogArgs;
use crate::error::Outcome;
use crate::render::{log, time};

pub(crate) fn execute(invocation: &mut Invocation, args: LogArgs) -> Outcome {
    let workspace = invocation.open()?;
    let path = args.path.map(|path| invocation.path(&workspace, &path)).transpose()?;
    let query = LogQuery {
        turn: args.turn,
        session: args.session,
        path,
        limit: args.limit,
        ..LogQuery::default()
    };
    let snapshots = workspace.log(&query)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        snapshots.iter().for_each(|snapshot| ui.data(snapshot));
        return Ok(0);
    }
    if snapshots.is_empty() {
        ui.note("No snapshot fits");
        return Ok(0);
    }
    let turns = workspace.turns()?;
    let paint = ui.paint();
    ui.print(&log::log(&snapshots, &turns, time::now(), paint));
    Ok(0)
}
