//! `chronicle witness`: who else remembers how far history went.

use std::path::PathBuf;

use chronicle_core::{Home, Place, SCHEMA, WitnessPatience, WitnessView};
use serde_json::json;

use super::Invocation;
use crate::cli::{WitnessArgs, WitnessKind, WitnessVerb};
use crate::error::{CommandError, Outcome};
use crate::render::status;

pub(crate) fn execute(invocation: &mut Invocation, verb: &WitnessVerb) -> Outcome {
    let home = Home::from_env()?;
    match verb {
        WitnessVerb::Add(args) => add(invocation, &home, args),
        WitnessVerb::List => list(invocation, &home),
        WitnessVerb::Remove(args) => remove(invocation, &home, args),
    }
}

fn add(invocation: &mut Invocation, home: &Home, args: &WitnessArgs) -> Outcome {
    let place = place(invocation, args)?;
    if let Ok(workspace) = invocation.open()
        && matches!(place, Place::File(_))
        && place.path().starts_with(workspace.root())
    {
        let why = "A file in the workspace is no witness: it would go back with the workspace";
        return Err(CommandError::usage(why).hinted("Name a file elsewhere"));
    }
    let added = home.add_witness(&place)?;
    if invocation.ui.json() {
        let answer = json!({ "schema": SCHEMA, "added": added, "kind": place.kind(),
            "place": place.path().display().to_string() });
        invocation.ui.data(&answer);
    }
    let name = place.to_string();
    invocation.ui.note(match added {
        true => format!(
            "Heads are handed over to {name} from now on. Take it back with: chronicle witness \
             remove {name}"
        ),
        false => format!("Already a witness: {name}"),
    });
    Ok(0)
}

fn remove(invocation: &mut Invocation, home: &Home, args: &WitnessArgs) -> Outcome {
    let place = place(invocation, args)?;
    let removed = home.remove_witness(&place)?;
    if invocation.ui.json() {
        invocation.ui.data(&json!({ "schema": SCHEMA, "removed": removed }));
    }
    invocation.ui.note(match removed {
        true => format!("Nothing is handed over to {place} any more; it keeps what it has"),
        false => format!("Already no witness: {place}"),
    });
    Ok(0)
}

fn list(invocation: &mut Invocation, home: &Home) -> Outcome {
    let views = match invocation.open() {
        Ok(workspace) => workspace.hand_over(WitnessPatience::Command)?,
        // Outside a workspace there is nothing to hand over.
        Err(_) => home.witnesses()?.iter().map(named).collect(),
    };
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "witnesses": views }));
        return Ok(0);
    }
    if views.is_empty() {
        ui.note("No witness yet. Add one with: chronicle witness add file PATH");
    }
    for view in &views {
        ui.line(status::witness(view));
    }
    Ok(0)
}

fn named(place: &Place) -> WitnessView {
    let (kind, place) = (place.kind().to_owned(), place.path().display().to_string());
    WitnessView { kind, place, size: 0, behind: 0, problem: None }
}

/// The place as it is named in the list: with its real path.
fn place(invocation: &Invocation, args: &WitnessArgs) -> Result<Place, CommandError> {
    let path = invocation.directory.join(&args.path);
    let real = match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (_, Some(parent), Some(name)) => {
            let parent = parent.canonicalize();
            let missing =
                |error| CommandError::io(format!("No place for {}", path.display()), error);
            parent.map_err(missing)?.join(name)
        }
        _ => PathBuf::from(&path),
    };
    Ok(match args.kind {
        WitnessKind::File => Place::File(real),
        WitnessKind::Git => Place::Git(real),
    })
}
