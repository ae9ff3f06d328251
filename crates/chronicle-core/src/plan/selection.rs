//! Which part of a plan was asked for: paths, or hunks of text files.

use std::collections::{HashMap, HashSet};

use crate::entry::{Entry, File};
use crate::error::{Error, Result};
use crate::merge::Contents;
use crate::path::WorkspacePath;
use crate::text;

use super::places::Places;
use super::table::{RowId, Table};
use super::{Draft, Goal, Selection};

/// Which rows the selection takes in.
pub(super) fn selected_rows<'t>(
    table: &'t Table<'_>,
    places: &Places,
    selection: &'t Selection,
) -> Vec<bool> {
    let chosen: HashSet<&[u8]> = match selection {
        Selection::All => return vec![true; table.rows.len()],
        Selection::Paths(paths) => paths.iter().map(WorkspacePath::as_bytes).collect(),
        Selection::Hunks(hunks) => hunks.iter().map(|(path, _)| path.as_bytes()).collect(),
    };
    let counterparts = counterparts(table, places);
    let chosen = with_counterparts(table, &counterparts, chosen);
    let within: Vec<_> = table.rows.iter().map(|row| is_within_any(&row.path, &chosen)).collect();
    let taken_along =
        |id: RowId| counterparts.get(&id).into_iter().flatten().any(|other| within[*other]);
    (0..within.len()).map(|id| within[id] || taken_along(id)).collect()
}

/// Adds the other paths of what was chosen itself, so that a moved directory is taken whole.
fn with_counterparts<'t>(
    table: &'t Table<'_>,
    counterparts: &HashMap<RowId, Vec<RowId>>,
    mut chosen: HashSet<&'t [u8]>,
) -> HashSet<&'t [u8]> {
    let named =
        table.rows.iter().enumerate().filter(|(_, row)| chosen.contains(row.path.as_bytes()));
    let others = named.filter_map(|(id, _)| counterparts.get(&id)).flatten();
    let others: Vec<_> = others.map(|other| table.rows[*other].path.as_bytes()).collect();
    chosen.extend(others);
    chosen
}

fn is_within_any(path: &WorkspacePath, chosen: &HashSet<&[u8]>) -> bool {
    let bytes = path.as_bytes();
    let mut ends = (1..bytes.len()).filter(|end| bytes[*end] == b'/');
    chosen.contains(bytes)
        || !path.is_outside() && chosen.contains(&[][..])
        || ends.any(|end| chosen.contains(&bytes[..end]))
}

/// The other paths of moved things: where they are now, in the plan, and at the beginning.
fn counterparts(table: &Table<'_>, places: &Places) -> HashMap<RowId, Vec<RowId>> {
    let mut pairs = Vec::new();
    for (path, place) in places.all() {
        pairs.extend(table.find(&path).zip(table.find(place)));
    }
    for (id, row) in table.rows.iter().enumerate() {
        let others = row.origin.into_iter().chain(row.kept_at);
        pairs.extend(others.filter(|other| *other != id).map(|other| (id, other)));
    }
    let mut counterparts: HashMap<RowId, Vec<RowId>> = HashMap::new();
    for (one, other) in pairs {
        counterparts.entry(one).or_default().push(other);
        counterparts.entry(other).or_default().push(one);
    }
    counterparts
}

/// Leaves of a draft only the chosen hunks of its text files.
pub(super) fn restrict_to_hunks(
    draft: &mut Draft,
    chosen: &[(WorkspacePath, Vec<usize>)],
    contents: &mut Contents<'_>,
) -> Result<()> {
    let mut numbers: HashMap<&WorkspacePath, Vec<usize>> = HashMap::new();
    for (path, hunks) in chosen {
        numbers.entry(path).or_default().extend(hunks);
    }
    let mut goals = Vec::new();
    for goal in &draft.goals {
        if let Some(hunks) = numbers.remove(&goal.path) {
            goals.extend(restrict_goal(goal, &hunks, contents)?);
        }
    }
    let conflicting = |path: &&WorkspacePath| draft.conflicts.iter().any(|it| it.path == **path);
    let mut without: Vec<_> = numbers.into_keys().filter(|path| !conflicting(path)).collect();
    without.sort();
    if let Some(path) = without.first() {
        return Err(Error::Usage(format!("Nothing of {path} differs, so it has no hunks")));
    }
    draft.goals = goals;
    draft.moves.clear();
    Ok(())
}

/// A goal with only some of its hunks; none if that leaves the file as it is.
fn restrict_goal(
    goal: &Goal,
    hunks: &[usize],
    contents: &mut Contents<'_>,
) -> Result<Option<Goal>> {
    let refuse = |why: &str| Error::Usage(format!("{} {why}", goal.path));
    let (Entry::File(now), Entry::File(then)) = (&goal.now, &goal.then) else {
        return Err(refuse("is not a text file on both sides, so it has no hunks"));
    };
    let (new, old) = (contents.get(&now.object)?, contents.get(&then.object)?);
    if text::is_binary(&new) || text::is_binary(&old) {
        return Err(refuse("is binary, so it has no hunks"));
    }
    let Some(bytes) = text::take_back(&old, &new, hunks) else {
        return Err(refuse("does not have that many hunks"));
    };
    if bytes == new {
        return Ok(None);
    }
    let size = bytes.len() as u64;
    let (object, pending) = match bytes == old {
        true => (then.object, then.pending),
        false => (contents.add(bytes), false),
    };
    let secret = now.secret || then.secret;
    let mut file = File { object, secret, pending, size, ..now.clone() };
    file.meta.mtime_ns = then.meta.mtime_ns;
    Ok(Some(Goal { then: Entry::File(file), merged: true, ..goal.clone() }))
}
