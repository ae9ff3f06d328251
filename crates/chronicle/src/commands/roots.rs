//! `chronicle roots`: what is protected outside the workspace.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use chronicle_core::{Act, escape};

use super::Invocation;
use crate::cli::RootsVerb;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, verb: &RootsVerb) -> Outcome {
    let mut workspace = invocation.open()?;
    match verb {
        RootsVerb::Add(args) => {
            let path = invocation.directory.join(&args.path);
            workspace.add_root(&path)?;
            let shown = shown(&path);
            let way = "Take back with: chronicle roots remove";
            invocation.ui.note(format!("{shown} is protected too. {way} {shown}"));
        }
        RootsVerb::Remove(args) => {
            let path = invocation.directory.join(&args.path);
            workspace.authorize(Act::Roots)?;
            workspace.remove_root(&path)?;
            let shown = shown(&path);
            let way = "Its history stays. Take back with: chronicle roots add";
            invocation.ui.note(format!("{shown} is protected no longer. {way} {shown}"));
        }
        RootsVerb::List => {}
    }
    list(invocation, &workspace, matches!(verb, RootsVerb::List));
    Ok(0)
}

/// The roots, as the answer to `list` and as what a script gets from the others.
fn list(invocation: &mut Invocation, workspace: &chronicle_core::Workspace, asked: bool) {
    let roots: Vec<_> = workspace.roots().iter().map(|root| shown(root)).collect();
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&serde_json::json!({ "schema": chronicle_core::SCHEMA, "roots": roots }));
    } else if asked {
        roots.iter().for_each(|root| ui.line(root));
    }
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes()).into_owned()
}
