//! Which staging directory serves which directory: a rename cannot leave its volume.

use std::collections::HashMap;

use crate::error::Result;
use crate::path::WorkspacePath;

use super::directories::{Directories, Seen};

/// The volumes that a rewind touches, in the order in which they were met.
#[derive(Default)]
pub(super) struct Volumes {
    holders: Vec<WorkspacePath>,
    volumes: Vec<(u64, u64)>,
    stages: HashMap<WorkspacePath, usize>,
}

impl Volumes {
    /// The staging directory for names in a directory, which need not exist yet.
    ///
    /// The top of a root always gets one before any volume below it: recovery looks for them there.
    pub(super) fn stage_of(
        &mut self,
        directories: &mut Directories<'_>,
        path: &WorkspacePath,
    ) -> Result<usize> {
        if let Some(stage) = self.stages.get(path) {
            return Ok(*stage);
        }
        let seen = directories.look_at(path)?.filter(Seen::is_directory);
        let above = match path.parent() {
            Some(parent) if !directories.is_beginning(path) => {
                Some(self.stage_of(directories, &parent)?)
            }
            _ => None,
        };
        let stage = match (above, seen) {
            (Some(above), None) => above,
            (Some(above), Some(seen)) if self.volumes[above] == seen.volume => above,
            (_, seen) => self.add(path, seen.map_or((0, 0), |seen| seen.volume)),
        };
        self.stages.insert(path.clone(), stage);
        Ok(stage)
    }

    fn add(&mut self, path: &WorkspacePath, volume: (u64, u64)) -> usize {
        self.holders.push(path.clone());
        self.volumes.push(volume);
        self.holders.len() - 1
    }

    /// The directories that hold staging.
    pub(super) fn into_holders(self) -> Vec<WorkspacePath> {
        self.holders
    }
}
