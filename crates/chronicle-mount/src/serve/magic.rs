//! Requests below the magic name: numbers for what somebody else shows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{Errno, FileAttr};

use super::{Core, Entry};
use crate::attributes;
use crate::errno::Answer;
use crate::magic::{MagicEntry, MagicKind};

/// Numbers from here on are of the magic tree.
const FIRST: u64 = 1 << 63;

/// What is shown may be another thing soon.
const BRIEF: Duration = Duration::from_secs(1);

/// A path below the magic directory, which itself is empty.
pub(crate) type MagicPath = Arc<Vec<Vec<u8>>>;

#[derive(Default)]
struct State {
    by_number: HashMap<u64, (MagicPath, u64)>,
    by_path: HashMap<MagicPath, u64>,
    made: u64,
}

/// The numbers that the kernel was given.
#[derive(Default)]
pub(crate) struct MagicNodes(Mutex<State>);

impl MagicNodes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, number: u64) -> Answer<MagicPath> {
        self.state().by_number.get(&number).map(|(path, _)| Arc::clone(path)).ok_or(Errno::ESTALE)
    }

    fn enter(&self, path: Vec<Vec<u8>>) -> u64 {
        let mut state = self.state();
        let path = Arc::new(path);
        let known = state.by_path.get(&path).copied();
        let number = known.unwrap_or_else(|| {
            state.made += 1;
            let number = FIRST + state.made;
            state.by_path.insert(Arc::clone(&path), number);
            state.by_number.insert(number, (path, 0));
            number
        });
        if let Some((_, lookups)) = state.by_number.get_mut(&number) {
            *lookups += 1;
        }
        number
    }

    pub(crate) fn forget(&self, number: u64, times: u64) {
        let mut state = self.state();
        let Some((_, lookups)) = state.by_number.get_mut(&number) else { return };
        *lookups = lookups.saturating_sub(times);
        if *lookups == 0
            && let Some((path, _)) = state.by_number.remove(&number)
        {
            state.by_path.remove(&path);
        }
    }
}

/// Whether a number is of the magic tree.
pub(crate) fn is_magic(number: u64) -> bool {
    number >= FIRST
}

impl Core {
    /// The magic directory itself.
    pub(crate) fn enter_magic_root(&self) -> Answer<Entry> {
        let number = self.magic_nodes.enter(Vec::new());
        Ok(entry(number, &self.magic_root()?))
    }

    /// It belongs to whom the root belongs to.
    fn magic_root(&self) -> Answer<MagicEntry> {
        let root = self.stat(crate::nodes::ROOT)?;
        Ok(MagicEntry {
            kind: MagicKind::Directory,
            size: 0,
            mode: root.st_mode & 0o555,
            uid: root.st_uid,
            gid: root.st_gid,
            mtime_ns: 0,
        })
    }

    pub(crate) fn enter_magic(&self, parent: u64, name: &[u8]) -> Answer<Entry> {
        let parent = self.magic_nodes.path(parent)?;
        let found = self.magic.lookup(&parent, name)?;
        let mut path = Vec::clone(&parent);
        path.push(name.to_vec());
        Ok(entry(self.magic_nodes.enter(path), &found))
    }

    /// The same for one of many names. Where a length costs too much it is not told, and what is told is believed for
    /// no time, so that whoever wants to know asks.
    pub(crate) fn enter_listed_magic(
        &self,
        parent: u64,
        name: &[u8],
        kind: MagicKind,
    ) -> Answer<Entry> {
        let path = self.magic_nodes.path(parent)?;
        if kind != MagicKind::File || !self.magic.is_costly(&path) {
            return self.enter_magic(parent, name);
        }
        let found = MagicEntry { kind, mode: 0o444, ..self.magic_root()? };
        let mut path = Vec::clone(&path);
        path.push(name.to_vec());
        let entry = entry(self.magic_nodes.enter(path), &found);
        Ok(Entry { attribute_time: Duration::ZERO, ..entry })
    }

    pub(crate) fn magic_attributes(&self, number: u64) -> Answer<(FileAttr, Duration)> {
        let path = self.magic_nodes.path(number)?;
        let found = match path.split_last() {
            None => self.magic_root()?,
            Some((name, parent)) => self.magic.lookup(parent, name)?,
        };
        Ok((attributes::of_magic(number, &found), BRIEF))
    }

    pub(crate) fn magic_list(&self, number: u64) -> Answer<Vec<(Vec<u8>, MagicKind)>> {
        let path = self.magic_nodes.path(number)?;
        let mut all = self.magic.list(&path)?;
        // Offsets are places in the list, so it has one order.
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(all)
    }

    pub(crate) fn magic_open(&self, number: u64) -> Answer<Box<dyn crate::magic::MagicFile>> {
        let path = self.magic_nodes.path(number)?;
        self.magic.open(&path)
    }

    pub(crate) fn magic_link(&self, number: u64) -> Answer<Vec<u8>> {
        let path = self.magic_nodes.path(number)?;
        self.magic.readlink(&path)
    }
}

fn entry(number: u64, found: &MagicEntry) -> Entry {
    Entry {
        attributes: attributes::of_magic(number, found),
        generation: 0,
        entry_time: BRIEF,
        attribute_time: BRIEF,
    }
}
