//! Brings a workspace to what a plan wants: the half of a rewind that touches the disk.
//!
//! New entries are staged beside the workspace and synced, everything is compared with the plan,
//! then the caller makes the script durable: the commit point. Before it nothing has changed; after
//! it each path is replaced by a rename, and a crash is finished from the script's bytes. What is
//! to be done is decided elsewhere.

mod attributes;
mod check;
mod direct;
mod directories;
mod fill;
mod links;
mod onto;
mod outline;
mod recover;
mod script;
mod stage;
mod steps;
#[cfg(test)]
mod tests;
mod trees;
mod volumes;

use std::collections::HashMap;

use crate::entry::Entry;
use crate::error::Result;
use crate::failpoint;
use crate::fs::Roots;
use crate::id::{LinkGroup, PlanId};
use crate::known::Known;
use crate::path::WorkspacePath;
use crate::secret::Secrets;
use crate::store::ContentStorage;

use directories::Directories;
use script::Script;
use stage::Stages;

pub(crate) use direct::{
    DIRECT, Syncing, Unrecorded, Written, clear_direct, clear_top, clear_torn, interrupted, put,
    remove as remove_direct, sync_paths, syncs_as_a_whole,
};
pub use recover::{clean_up, discard_leftovers, recover};
pub(crate) use script::VERSION as SCRIPT_VERSION;
pub(crate) use stage::is_staging_name;

/// One path that must become something else.
#[derive(Debug, Clone)]
pub struct Task {
    /// Where.
    pub path: WorkspacePath,
    /// What the plan knows to stand there.
    pub now: Known,
    /// What must stand there.
    pub then: Entry,
    /// What is not known below it, or at it, is moved aside rather than left in the way.
    pub aside: bool,
}

/// Everything that one rewind does to the disk.
#[derive(Debug, Clone)]
pub struct Work {
    /// The plan.
    pub id: PlanId,
    /// Things whose content is not known, and which go back to where they were: from, to.
    pub moves: Vec<(WorkspacePath, WorkspacePath)>,
    /// The paths that change, each once.
    pub tasks: Vec<Task>,
    /// The present members of the sets of hard links that tasks name.
    pub links: HashMap<LinkGroup, Vec<WorkspacePath>>,
    /// Files that are written get the present time instead of their own.
    pub touch: bool,
    /// The key that the names of secret contents are computed with.
    pub secrets: Secrets,
}

/// What became of a rewind beyond what was planned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Paths that are not what was planned, and why.
    pub unexpected: Vec<(WorkspacePath, String)>,
    /// What was moved aside, and where to.
    pub aside: Vec<(WorkspacePath, WorkspacePath)>,
}

/// A rewind that is staged, synced and checked, and has changed nothing yet.
///
/// Dropped without being applied, it takes its staging away.
#[must_use = "nothing is changed until it is applied"]
#[derive(Debug)]
pub struct Prepared {
    script: Script,
    stages: Stages,
}

/// Stages everything that a rewind writes and checks that the workspace is as the plan knows it.
///
/// Stops with `Stop::PlanOutdated` if it is not. In every error nothing has changed.
pub fn prepare(roots: &Roots, work: &Work, store: &dyn ContentStorage) -> Result<Prepared> {
    for path in work.tasks.iter().map(|task| &task.path).chain(work.moves.iter().flat_map(both)) {
        roots.root_of(path)?;
    }
    let mut directories = Directories::new(roots);
    let seen = check::check(&mut directories, work)?;
    let mut script = outline::draw(&mut directories, work, &seen)?;
    let lanes = stage::lanes_for(script.places().count());
    let stages = Stages::make(&mut directories, &script.holders, &script.id, lanes)?;
    let places = script.places_mut().collect();
    let problems = fill::fill(&stages, &mut directories, places, store, work.touch)?;
    script.problems.extend(problems);
    fill::sync(&stages, &script)?;
    // Handles that were opened before staging may be of directories that are gone by now.
    let mut directories = Directories::new(roots);
    check::check_again(&mut directories, work, &seen, &script.holders)?;
    failpoint::hit("rewind_after_stage");
    Ok(Prepared { script, stages })
}

fn both((from, to): &(WorkspacePath, WorkspacePath)) -> [&WorkspacePath; 2] {
    [from, to]
}

impl Prepared {
    /// What `recover` needs to finish this; durable, it is the commit point.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.script.encode()
    }

    /// Makes the changes, after the commit point.
    ///
    /// What cannot be changed is reported and the rest goes on. An error means that the disk is
    /// full or failing: the changes so far stand, and `recover` finishes them later.
    pub fn apply(self, roots: &Roots) -> Result<Applied> {
        self.apply_steps(roots, None)
    }

    fn apply_steps(mut self, roots: &Roots, limit: Option<usize>) -> Result<Applied> {
        self.stages.keep();
        let applied = steps::run(roots, &self.script, &self.stages, limit, Syncing::Now)?;
        failpoint::hit("rewind_after_apply");
        Ok(applied)
    }
}
