//! `chronicle show`: one snapshot.

use super::Invocation;
use crate::cli::ShowArgs;
use crate::error::Outcome;
use crate::render::{diff, log, time};

pub(crate) fn execute(invocation: &mut Invocation, args: &ShowArgs) -> Outcome {
    let workspace = invocation.open()?;
    let snapshot = workspace.show(&args.id)?;
    let patch = args.patch.then(|| workspace.show_patch(&args.id)).transpose()?;
    let ui = &mut invocation.ui;
    if ui.json() {
        match patch {
            Some(patch) => {
                let mut value = serde_json::to_value(&snapshot).expect("BUG: views are plain data");
                value["patch"] = patch.into();
                ui.data(&value);
            }
            None => ui.data(&snapshot),
        }
        return Ok(0);
    }
    let paint = ui.paint();
    ui.print(&log::snapshot(&snapshot, time::now(), paint));
    if let Some(patch) = patch {
        ui.print("\n");
        ui.print(&diff::patch(&patch, paint));
    }
    Ok(0)
}
