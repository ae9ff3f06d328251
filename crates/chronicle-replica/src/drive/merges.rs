//! Conflicts that merge by lines are merged without being asked.

use std::collections::HashSet;

use chronicle_core::{Conflict, ObjectId, Resolution, SnapshotId, Workspace};

/// Merges what can be merged, each conflict once.
#[derive(Default)]
pub(super) struct Merges {
    /// Conflicts that do not merge by themselves.
    hopeless: HashSet<SnapshotId>,
}

impl Merges {
    /// Writes the merges of conflicts that merge by lines; says whether there was one.
    pub(super) fn merge(&mut self, workspace: &mut Workspace) -> bool {
        let mut merged = false;
        for conflict in workspace.conflicts().unwrap_or_default() {
            if self.hopeless.contains(&conflict.id) {
                continue;
            }
            // Contents that are not here yet may come with the next push.
            let Ok(Some(_)) = workspace.merged_conflict(&conflict) else {
                if has_all(workspace, &conflict) {
                    self.hopeless.insert(conflict.id);
                }
                continue;
            };
            let id = conflict.id.to_string();
            merged |= workspace.resolve_conflict(&id, Resolution::Merge).is_ok();
            self.hopeless.insert(conflict.id);
        }
        merged
    }
}

fn has_all(workspace: &Workspace, conflict: &Conflict) -> bool {
    let versions = [Some(&conflict.base), Some(&conflict.mine), conflict.theirs.as_ref()];
    let objects = versions.into_iter().flatten().filter_map(|version| version.object());
    let here = |object: ObjectId| workspace.has_content(&object).unwrap_or(false);
    objects.into_iter().all(here)
}
