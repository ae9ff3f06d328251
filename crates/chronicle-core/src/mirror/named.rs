//! Which contents a history names.

use std::collections::{HashMap, HashSet};

use crate::entry::{Change, Entry};
use crate::id::ObjectId;

/// The contents that the records of one log name.
#[derive(Debug, Clone, Default)]
pub struct Named {
    objects: HashSet<ObjectId>,
    /// Those of them that may be kept in pieces.
    large: HashSet<ObjectId>,
    /// What clones turned out to be.
    resolved: HashMap<ObjectId, ObjectId>,
}

impl Named {
    pub(super) fn add(&mut self, entry: &Entry) {
        let Some(object) = entry.object() else { return };
        self.objects.insert(object);
        // Of what is no file nobody knows how large it is.
        let small = |file: &crate::entry::File| file.size <= crate::store::WHOLE_MAX as u64;
        if !matches!(entry, Entry::File(file) if small(file)) {
            self.large.insert(object);
        }
    }

    pub(super) fn resolve(&mut self, change: &Change) {
        if let (Some(name), Some(object)) = (change.before.pending(), change.after.object()) {
            self.resolved.insert(name, object);
        }
    }

    /// All of them, once the whole log was read.
    pub fn objects(&self) -> HashSet<ObjectId> {
        self.objects.iter().map(|id| self.content(id)).collect()
    }

    /// Those of them that may be kept in pieces.
    pub fn large(&self) -> HashSet<ObjectId> {
        self.large.iter().map(|id| self.content(id)).collect()
    }

    fn content(&self, id: &ObjectId) -> ObjectId {
        *self.resolved.get(id).unwrap_or(id)
    }
}
