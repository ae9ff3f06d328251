//! In which order paths are written, so that at every step there is a tree.

use std::collections::BTreeSet;

use super::Version;
use crate::path::WorkspacePath;

/// One path to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub path: WorkspacePath,
    /// What is expected to stand there.
    pub expect: Version,
    /// What to put there.
    pub put: Version,
}

/// Orders the steps from one tree to another, at most one for each path: any beginning of them makes a tree.
///
/// What lies below a directory that becomes something else goes first, deepest first. Then what stands there
/// afterwards, from the top down, and last what else goes, so that something moved is never missing. Where
/// names fold, everything that goes does so first: the new name could be the old one.
pub fn order(mut steps: Vec<Step>, folds: bool) -> Vec<Step> {
    let swapped: BTreeSet<_> =
        steps.iter().filter(|step| is_swapped(step)).map(|step| step.path.clone()).collect();
    let first = |step: &Step| folds || step.path.ancestors().any(|above| swapped.contains(&above));
    let stage = |step: &Step| match step.put.is_present() {
        true => 1,
        false if first(step) => 0,
        false => 2,
    };
    steps.sort_by_cached_key(|step| {
        let stage = stage(step);
        let down = (stage == 1).then(|| step.path.clone());
        (stage, down, (stage != 1).then(|| std::cmp::Reverse(step.path.clone())))
    });
    steps
}

/// Whether a directory becomes something else that is there.
fn is_swapped(step: &Step) -> bool {
    step.expect.is_directory() && step.put.is_present() && !step.put.is_directory()
}
