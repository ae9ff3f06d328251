//! Descriptors of the directories that were used last. More would be more than a process may have.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};

use crate::nodes::FileId;

/// Some open directories by the file that each is.
///
/// While a descriptor is open nothing else gets its file's number, so what is found is right.
#[derive(Debug)]
pub(crate) struct Directories {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_file: HashMap<FileId, (Arc<OwnedFd>, u64)>,
    uses: u64,
}

impl Directories {
    /// As many as fit beside everything else that a process opens.
    pub(crate) fn new() -> Self {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16);
        let most = usize::try_from(allowed / 4).unwrap_or(4096).clamp(16, 4096);
        Self { most, open: Mutex::default() }
    }

    pub(crate) fn get(&self, file: FileId) -> Option<Arc<OwnedFd>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        let now = open.uses;
        let (directory, used) = open.by_file.get_mut(&file)?;
        *used = now;
        Some(Arc::clone(directory))
    }

    pub(crate) fn put(&self, file: FileId, directory: OwnedFd) -> Arc<OwnedFd> {
        let directory = Arc::new(directory);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.by_file.len() >= self.most {
            open.close_the_older_half();
        }
        open.uses += 1;
        let now = open.uses;
        open.by_file.insert(file, (Arc::clone(&directory), now));
        directory
    }

    /// It is gone; whoever uses it still has it.
    pub(crate) fn remove(&self, file: FileId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).by_file.remove(&file);
    }
}

impl Open {
    fn close_the_older_half(&mut self) {
        let mut uses: Vec<u64> = self.by_file.values().map(|(_, used)| *used).collect();
        let middle = uses.len() / 2;
        let (_, &mut limit, _) = uses.select_nth_unstable(middle);
        self.by_file.retain(|_, (_, used)| *used >= limit);
    }
}
