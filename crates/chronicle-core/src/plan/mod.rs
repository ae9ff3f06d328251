//! Decides what a rewind, rollback, undo or redo will change, without changing it.
//!
//! Planning is pure: the changes since a moment in, what must differ from now out. Reading the
//! log, choosing what is kept, and touching the disk are the caller's.

mod fold;
mod places;
mod selection;
mod settle;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use table::state_before;

use crate::entry::{Change, Entry, Why};
use crate::error::Result;
use crate::id::ObjectId;
use crate::merge::Contents;
use crate::path::WorkspacePath;
use crate::record::ChangeRef;

/// What becomes of a change made after the moment that a plan goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is others' live work and stays.
    Keep,
    /// It is taken back, or was Chronicle's own, or is not live any more.
    Drop,
}

/// A change made after the moment that a plan goes to.
#[derive(Debug, Clone)]
pub struct PastChange {
    /// Where it stands in the log.
    pub at: ChangeRef,
    /// The change.
    pub change: Change,
    /// What becomes of it.
    pub role: Role,
}

/// What to do where kept work and the target changed the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// Return the conflicts, so that the caller stops.
    #[default]
    Stop,
    /// Leave these paths as they are now.
    KeepMine,
    /// Give these paths the state at the target.
    Replace,
}

/// Which part of the workspace a plan may change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// All of it.
    #[default]
    All,
    /// These paths and everything below them; a moved entry may be named by either of its paths.
    Paths(Vec<WorkspacePath>),
    /// These hunks of these text files, numbered as in the patch from the target to now.
    Hunks(Vec<(WorkspacePath, Vec<usize>)>),
}

/// What a plan is made from.
pub struct PlanInput<'a> {
    /// Every change after the moment, in order, of all paths.
    pub changes: Vec<PastChange>,
    /// Reads content from the store, for merging.
    pub content: &'a dyn Fn(&ObjectId) -> Result<Vec<u8>>,
    /// Which part may change.
    pub selection: Selection,
    /// What to do with conflicts.
    pub on_conflict: OnConflict,
}

/// What must change, what stays and why: each list ordered by path.
#[must_use = "a draft changes nothing until it is applied"]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft {
    /// Every path that must differ from now.
    pub goals: Vec<Goal>,
    /// Things that were never known and were moved: they go back by moving them.
    pub moves: Vec<Move>,
    /// Things that goals take from one path to another, so that later work can be followed.
    pub renames: Vec<Move>,
    /// Paths on which work stays.
    pub keep: Vec<Kept>,
    /// Paths on which kept work and the target differ in the same thing.
    pub conflicts: Vec<Conflict>,
    /// Paths that are left alone, because what stood or stands there is not known.
    pub unknown: Vec<(WorkspacePath, Why)>,
    /// Contents that merging made and the store may not have yet.
    pub merged: Vec<(ObjectId, Vec<u8>)>,
}

/// One path that must differ from now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// Where.
    pub path: WorkspacePath,
    /// What stands there now.
    pub now: Entry,
    /// What must stand there.
    pub then: Entry,
    /// Kept work was merged into it.
    pub merged: bool,
    /// Unknown things below it must be moved aside first.
    pub aside: bool,
}

/// A thing that goes from one path to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Where it is now.
    pub from: WorkspacePath,
    /// Where it was.
    pub to: WorkspacePath,
}

/// A path on which work stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where.
    pub path: WorkspacePath,
    /// Why, in words.
    pub reason: String,
    /// Why, for deciding.
    pub cause: KeptCause,
}

/// Why work stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptCause {
    /// Others made it.
    Others,
    /// Several could have made it.
    Shared,
    /// It is in conflict, and conflicts stay as they are.
    Conflict,
    /// A directory that others' work needs.
    HoldsKept,
    /// A directory with something unknown in it.
    HoldsUnknown,
}

/// A path on which kept work and the target differ in the same thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Where the kept work is now.
    pub path: WorkspacePath,
    /// What both changed: content, kind, mode, owner, attributes, link or repository.
    pub what: &'static str,
    /// What both started from.
    pub base: Entry,
    /// The kept side.
    pub mine: Entry,
    /// The target's side.
    pub then: Entry,
}

/// Plans the way from now to the state at a moment plus the changes since that are kept.
pub fn draft(input: PlanInput<'_>) -> Result<Draft> {
    let PlanInput { changes, content, selection, on_conflict } = input;
    let mut contents = Contents::new(content);
    let folded = fold::fold(&changes, &mut contents)?;
    let mut draft = settle::settle(folded, &selection, on_conflict);
    if let Selection::Hunks(chosen) = &selection {
        selection::restrict_to_hunks(&mut draft, chosen, &mut contents)?;
    }
    for goal in &draft.goals {
        if let Some(id) = goal.then.object()
            && let Some(bytes) = contents.take_made(&id)
        {
            draft.merged.push((id, bytes));
        }
    }
    Ok(draft)
}
