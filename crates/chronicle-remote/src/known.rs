//! What a store knows of the packs in its bucket, in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chronicle_core::ObjectId;

use crate::index::{Index, Refusal};
use crate::pack::PackName;

/// The packs whose index was read, and those whose index was refused.
#[derive(Default)]
pub(crate) struct Known {
    packs: BTreeMap<PackName, Arc<Index>>,
    refused: BTreeMap<PackName, Refusal>,
    objects: HashMap<ObjectId, Vec<Arc<Index>>>,
    /// Objects of which no copy in the bucket could be read; a put of one is not a repetition.
    damaged: HashSet<ObjectId>,
    /// Packs that somebody means to take away: what only they have is as good as not there.
    doomed: HashSet<PackName>,
}

impl Known {
    pub(crate) fn has_pack(&self, name: &PackName) -> bool {
        self.packs.contains_key(name)
    }

    /// The packs that have the object.
    pub(crate) fn holders(&self, id: &ObjectId) -> Vec<Arc<Index>> {
        self.objects.get(id).cloned().unwrap_or_default()
    }

    /// Whether the object is in the bucket, and not known to be damaged there.
    pub(crate) fn is_kept(&self, id: &ObjectId) -> bool {
        let stays = |holder: &Arc<Index>| !self.doomed.contains(&holder.name);
        self.objects.get(id).is_some_and(|holders| holders.iter().any(stays))
            && !self.damaged.contains(id)
    }

    pub(crate) fn set_doomed(&mut self, packs: HashSet<PackName>) {
        self.doomed = packs;
    }

    /// All packs.
    pub(crate) fn packs(&self) -> Vec<Arc<Index>> {
        self.packs.values().cloned().collect()
    }

    /// A pack whose index cannot be used, if there is one: nothing is missing for sure then.
    pub(crate) fn refusal(&self) -> Option<(&PackName, &Refusal)> {
        self.refused.first_key_value()
    }

    /// Adds a pack that was just written; what it has is good again.
    pub(crate) fn add_written(&mut self, index: Arc<Index>) {
        for (id, _) in &index.objects {
            self.damaged.remove(id);
        }
        self.add(index);
    }

    pub(crate) fn add(&mut self, index: Arc<Index>) {
        self.refused.remove(&index.name);
        if self.packs.contains_key(&index.name) {
            return;
        }
        for (id, _) in &index.objects {
            self.objects.entry(*id).or_default().push(Arc::clone(&index));
        }
        self.packs.insert(index.name, index);
    }

    pub(crate) fn refuse(&mut self, name: PackName, why: Refusal) {
        self.forget(&name);
        self.refused.insert(name, why);
    }

    pub(crate) fn forget(&mut self, name: &PackName) {
        self.refused.remove(name);
        let Some(index) = self.packs.remove(name) else { return };
        for (id, _) in &index.objects {
            let Some(holders) = self.objects.get_mut(id) else { continue };
            holders.retain(|holder| holder.name != *name);
            if holders.is_empty() {
                self.objects.remove(id);
            }
        }
    }

    /// Forgets every pack that is not in this list, and says whether there was one.
    pub(crate) fn keep_only(&mut self, listed: &BTreeMap<PackName, u64>) -> bool {
        let names = self.packs.keys().chain(self.refused.keys());
        let gone: Vec<PackName> =
            names.filter(|name| !listed.contains_key(name)).copied().collect();
        gone.iter().for_each(|name| self.forget(name));
        !gone.is_empty()
    }

    pub(crate) fn mark_damaged(&mut self, id: ObjectId) {
        self.damaged.insert(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Location;

    fn index(name: u8, objects: &[u8]) -> Arc<Index> {
        let location = Location { offset: 16, length: 1 };
        let objects = objects.iter().map(|id| (ObjectId([*id; 32]), location)).collect();
        Arc::new(Index {
            name: PackName([name; 32]),
            length: 100,
            nonce: [0; 24],
            mark: None,
            objects,
        })
    }

    #[test]
    fn object_is_kept_while_one_pack_has_it() {
        let (mut known, id) = (Known::default(), ObjectId([5; 32]));
        known.add(index(1, &[5, 6]));
        known.add(index(2, &[5]));
        known.add(index(2, &[5]));
        assert_eq!(known.holders(&id).len(), 2);
        known.forget(&PackName([1; 32]));
        assert!(known.is_kept(&id) && !known.is_kept(&ObjectId([6; 32])));
        known.keep_only(&BTreeMap::new());
        assert!(!known.is_kept(&id));
    }

    #[test]
    fn damaged_object_is_kept_again_once_it_was_written_again() {
        let (mut known, id) = (Known::default(), ObjectId([5; 32]));
        known.add(index(1, &[5]));
        known.mark_damaged(id);
        assert!(!known.is_kept(&id));
        known.add_written(index(1, &[5]));
        assert!(known.is_kept(&id));
    }

    #[test]
    fn refused_pack_is_known_until_it_is_gone_or_good() {
        let mut known = Known::default();
        known.add(index(1, &[5]));
        known.refuse(PackName([1; 32]), Refusal::Damaged("why"));
        assert!(known.refusal().is_some() && !known.is_kept(&ObjectId([5; 32])));
        known.add(index(1, &[5]));
        assert!(known.refusal().is_none());
    }
}
