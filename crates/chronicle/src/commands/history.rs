//! `chronicle history`: one file through time.

use chronicle_core::escape;

use super::Invocation;
use crate::cli::HistoryArgs;
use crate::error::Outcome;
use crate::render::{log, time};

pub(crate) fn execute(invocation: &mut Invocation, args: &HistoryArgs) -> Outcome {
    let workspace = invocation.open()?;
    let path = invocation.path(&workspace, &args.path)?;
    let iterations = workspace.history(&path)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        iterations.iter().for_each(|iteration| ui.data(iteration));
        return Ok(0);
    }
    if iterations.is_empty() {
        ui.note(format!("No version of {} is recorded", escape(path.as_bytes())));
    }
    let paint = ui.paint();
    ui.print(&log::history(&iterations, time::now(), paint));
    Ok(0)
}
