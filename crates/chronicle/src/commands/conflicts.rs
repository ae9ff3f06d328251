//! `chronicle conflicts`: writes of this replica that the host did not take, and what becomes of them.

use chronicle_core::replica::Version;
use chronicle_core::{Conflict, Resolution, SCHEMA, Workspace, text_patch};
use serde_json::json;

use super::Invocation;
use crate::cli::{ConflictArgs, ConflictsVerb};
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{printable, short, size};

pub(crate) fn execute(invocation: &mut Invocation, verb: &ConflictsVerb) -> Outcome {
    match verb {
        ConflictsVerb::List => list(invocation),
        ConflictsVerb::Show(args) => show(invocation, args),
        ConflictsVerb::KeepMine(args) => resolve(invocation, args, Resolution::KeepMine),
        ConflictsVerb::TakeTheirs(args) => resolve(invocation, args, Resolution::TakeTheirs),
        ConflictsVerb::Merge(args) => resolve(invocation, args, Resolution::Merge),
        ConflictsVerb::Retry(args) => resolve(invocation, args, Resolution::Retry),
    }
}

fn list(invocation: &mut Invocation) -> Outcome {
    let workspace = invocation.open()?;
    let conflicts = workspace.conflicts()?;
    if invocation.ui.json() {
        let views = conflicts.iter().map(|conflict| workspace.rejected_view(conflict));
        let rows = views.collect::<Result<Vec<_>, _>>()?;
        invocation.ui.data(&json!({ "schema": SCHEMA, "conflicts": rows }));
        return Ok(0);
    }
    for conflict in &conflicts {
        let id = conflict.id.to_string();
        let (path, why) = (conflict.path.to_string(), conflict.reason.words());
        invocation.ui.line(format!("{}  {}  {why}", short(&id), printable(&path)));
    }
    invocation.ui.note(match conflicts.is_empty() {
        true => "There are no conflicts",
        false => {
            "Look at one with: chronicle conflicts show ID; decide with: keep-mine, take-theirs, merge or retry"
        }
    });
    Ok(0)
}

/// The conflict that is meant: by its id, a part of it, or its path.
fn find(
    invocation: &Invocation,
    workspace: &Workspace,
    args: &ConflictArgs,
) -> Result<Conflict, CommandError> {
    let by_path = || -> Option<Conflict> {
        let path = workspace.path(args.which.as_ref(), &invocation.directory).ok()?;
        let conflicts = workspace.conflicts().ok()?;
        conflicts.into_iter().rev().find(|conflict| conflict.path == path)
    };
    match workspace.conflict(&args.which) {
        Ok(conflict) => Ok(conflict),
        Err(error) => by_path().ok_or_else(|| {
            CommandError::from(error).hinted("See them with: chronicle conflicts list")
        }),
    }
}

fn show(invocation: &mut Invocation, args: &ConflictArgs) -> Outcome {
    let workspace = invocation.open()?;
    let conflict = find(invocation, &workspace, args)?;
    if invocation.ui.json() {
        invocation.ui.data(&workspace.rejected_view(&conflict)?);
        return Ok(0);
    }
    let id = conflict.id.to_string();
    let (path, why) = (conflict.path.to_string(), conflict.reason.words());
    invocation.ui.line(format!("{}  {}", short(&id), printable(&path)));
    invocation.ui.line(format!("  not taken: {why}"));
    let theirs = conflict.theirs.as_ref().map_or("not told".to_owned(), words);
    for (name, what) in
        [("base", words(&conflict.base)), ("mine", words(&conflict.mine)), ("theirs", theirs)]
    {
        invocation.ui.line(format!("  {name:<7} {what}"));
    }
    let base = text_of(&workspace, Some(&conflict.base));
    for (name, version) in [("mine", Some(&conflict.mine)), ("theirs", conflict.theirs.as_ref())] {
        let (Some(base), Some(text)) = (&base, text_of(&workspace, version)) else { continue };
        invocation.ui.line(format!("--- base\n+++ {name}"));
        let patch = text_patch(base, &text);
        for line in String::from_utf8_lossy(&patch).lines() {
            invocation.ui.line(printable(line));
        }
    }
    Ok(0)
}

/// A version's content, if it is text that can be shown.
fn text_of(workspace: &Workspace, version: Option<&Version>) -> Option<Vec<u8>> {
    let bytes = match version? {
        Version::Absent => return Some(Vec::new()),
        version => workspace.replica_contents().ok()?.get(&version.object()?).ok()?,
    };
    (!bytes.contains(&0)).then_some(bytes)
}

fn words(version: &Version) -> String {
    match version {
        Version::Absent => "absent".to_owned(),
        Version::File { object, size: bytes, mode, .. } => {
            format!("file, {}, mode {mode:o}, {}", size(*bytes), &object.to_string()[..12])
        }
        Version::Directory { mode } => format!("directory, mode {mode:o}"),
        Version::Symlink { target } => {
            format!("symlink to {}", printable(&String::from_utf8_lossy(target)))
        }
    }
}

fn resolve(invocation: &mut Invocation, args: &ConflictArgs, how: Resolution) -> Outcome {
    let mut workspace = invocation.open()?;
    let conflict = find(invocation, &workspace, args)?;
    if how == Resolution::Merge && workspace.merged_conflict(&conflict)?.is_none() {
        let path = conflict.path.to_string();
        let words = format!("{} does not merge by lines without a clash", printable(&path));
        let error = CommandError::failed("conflict", words).of(Kind::Stopped);
        return Err(error.hinted(
            "Look at both with: chronicle conflicts show ID; then edit the file, and keep that with: take-theirs",
        ));
    }
    let written = workspace.resolve_conflict(&conflict.id.to_string(), how)?;
    let path = conflict.path.to_string();
    if invocation.ui.json() {
        let written = written.map(|id| id.to_string());
        let line =
            json!({ "schema": SCHEMA, "resolved": conflict.id.to_string(), "snapshot": written });
        invocation.ui.data(&line);
    }
    let path = printable(&path);
    invocation.ui.note(match written {
        Some(id) => {
            let id = id.to_string();
            let id = short(&id).to_owned();
            format!("Wrote {path}; it goes to the host. Take back with: chronicle rollback {id}")
        }
        None => format!("Left {path} as it is; this replica's version stays in the log"),
    });
    Ok(0)
}
