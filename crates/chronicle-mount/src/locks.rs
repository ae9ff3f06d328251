//! Who may change names: the locks of parents, held across asking, doing and telling.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SHARDS: usize = 128;

/// One lock for some of the directories each, and one over all.
#[derive(Debug)]
pub(crate) struct Locks {
    /// Whoever moves a directory changes the paths of everything below it.
    whole: RwLock<()>,
    shards: [Mutex<()>; SHARDS],
}

/// Held until dropped.
pub(crate) struct Held<'a> {
    _shards: Vec<MutexGuard<'a, ()>>,
    _whole: Whole<'a>,
}

#[expect(dead_code, reason = "guards are only dropped")]
enum Whole<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self { whole: RwLock::new(()), shards: [const { Mutex::new(()) }; SHARDS] }
    }

    /// Locks these directories, in an order that all keep.
    pub(crate) fn lock(&self, parents: impl Iterator<Item = u64>) -> Held<'_> {
        let whole = Whole::Shared(self.whole.read().unwrap_or_else(PoisonError::into_inner));
        let mut wanted: Vec<usize> = parents.map(|parent| parent as usize % SHARDS).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let shard = |at: usize| self.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
        Held { _shards: wanted.into_iter().map(shard).collect(), _whole: whole }
    }

    /// Locks everything.
    pub(crate) fn lock_all(&self) -> Held<'_> {
        let whole = self.whole.write().unwrap_or_else(PoisonError::into_inner);
        Held { _shards: Vec::new(), _whole: Whole::Alone(whole) }
    }
}
