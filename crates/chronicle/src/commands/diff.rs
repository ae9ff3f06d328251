//! `chronicle diff`: two moments compared.

use chronicle_core::DiffRequest;

use super::{Invocation, words};
use crate::cli::DiffArgs;
use crate::error::Outcome;
use crate::render::{diff, printable};

pub(crate) fn execute(invocation: &mut Invocation, args: &DiffArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    let mut said = words::split(invocation, &workspace, &args.words, 2)?;
    said.paths.extend(invocation.paths(&workspace, &args.paths)?);
    let mut targets = said.targets.into_iter();
    let request = DiffRequest {
        from: targets.next(),
        to: targets.next(),
        paths: said.paths,
        patch: args.patch,
        ..DiffRequest::default()
    };
    let found = workspace.diff(&request)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&found);
        return Ok(0);
    }
    let to = if found.to_snapshot.is_empty() { "now" } else { &found.to_snapshot };
    ui.note(format!("From {} to {}", printable(&found.from_snapshot), printable(to)));
    let paint = ui.paint();
    if args.patch {
        ui.print(&diff::patches(&found, paint));
    } else if args.name_only {
        ui.print(&diff::names(&found));
    } else {
        ui.print(&diff::stat(&found, paint));
    }
    if found.changes.is_empty() {
        ui.note("Nothing differs");
    }
    Ok(0)
}
