//! `chronicle config`: what is kept out of the history, and the person's word for keeping out more.

use chronicle_core::{Act, Error, Stop};

use super::Invocation;
use crate::cli::{AcceptArgs, ConfigVerb};
use crate::error::{CommandError, Outcome};
use crate::render::printable;
use crate::ui;

pub(crate) fn execute(invocation: &mut Invocation, verb: &ConfigVerb) -> Outcome {
    match verb {
        ConfigVerb::Accept(args) => accept(invocation, args),
        ConfigVerb::Show => show(invocation),
    }
}

/// Only a person at a terminal can agree to less protection: a script may be an agent's.
fn accept(invocation: &mut Invocation, args: &AcceptArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    let pending = workspace.status()?.pending_config;
    if pending.is_empty() {
        report(invocation, &pending);
        return Ok(0);
    }
    if !ui::person_present() {
        let why = "settings that protect less are accepted on a terminal only".to_owned();
        let error = CommandError::from(Error::Stopped(Stop::NotConfirmed(why)));
        return Err(CommandError {
            hints: vec!["Ask a person to run: chronicle config accept".into()],
            ..error
        });
    }
    for change in &pending {
        ui::say(&format!("  {}\n", printable(change)));
    }
    if !args.yes && !invocation.ui.confirm("From now on this is not protected. Accept?") {
        let stop = Stop::NotConfirmed("the settings stay as they were".to_owned());
        return Err(Error::Stopped(stop).into());
    }
    workspace.authorize(Act::Config)?;
    let accepted = workspace.accept_config()?;
    report(invocation, &accepted);
    Ok(0)
}

fn report(invocation: &mut Invocation, accepted: &[String]) {
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&serde_json::json!({ "schema": chronicle_core::SCHEMA, "accepted": accepted }));
    } else if accepted.is_empty() {
        ui.note("Already accepted: nothing is pending");
    } else {
        for change in accepted {
            ui.line(format!("accepted {}", printable(change)));
        }
        ui.note("Take back by restoring the file: protecting more needs nobody's word");
    }
}

fn show(invocation: &mut Invocation) -> Outcome {
    let mut workspace = invocation.open()?;
    let status = workspace.status()?;
    let files: Vec<_> = [".chronicleignore", "chronicle.toml"]
        .into_iter()
        .filter(|name| workspace.root().join(name).symlink_metadata().is_ok())
        .collect();
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": chronicle_core::SCHEMA,
            "workspace": status.workspace,
            "home": status.home,
            "files": files,
            "filtered": status.filtered,
            "pending": status.pending_config,
            "roots": status.roots,
        }));
        return Ok(0);
    }
    ui.line(format!("Workspace  {}", printable(&status.workspace)));
    ui.line(format!("History    {}", printable(&status.home)));
    let files =
        if files.is_empty() { "none: the defaults hold".to_owned() } else { files.join(", ") };
    ui.line(format!("Settings   {files}"));
    for (name, list) in [
        ("Kept out", &status.filtered),
        ("Pending", &status.pending_config),
        ("Root", &status.roots),
    ] {
        for item in list {
            ui.line(format!("{name:<10} {}", printable(item)));
        }
    }
    Ok(0)
}
