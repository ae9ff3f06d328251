//! After somebody died in the middle of a push or of taking writes: everything is as it was known, and he may begin anew.
//!
//! Half of it must never be recorded as somebody's work: it would be sent to the other side.

use super::known_cache::KnownCache;
use super::replica_write::Supply;
use super::{Workspace, key};
use crate::apply::{self, DIRECT, Syncing, Task, Work};
use crate::catalog::LocalState;
use crate::entry::{Entry, File, Meta, Symlink};
use crate::error::Result;
use crate::fs::Stat;
use crate::id::ObjectId;
use crate::known::{Known, Part};
use crate::path::WorkspacePath;
use crate::store::{ContentStorage, MemoryStore};

impl Workspace {
    /// Puts back what an interrupted push or write-back replaced, where what it put there, or nothing, stands; needs the
    /// lock.
    pub(super) fn undo_interrupted(&mut self) -> Result<()> {
        let Some(left) = apply::interrupted(&self.roots)? else { return Ok(()) };
        let is_kept = |id: &ObjectId| self.objects()?.exists(id);
        if self.catalog.state(key::RECORDED)?.is_some_and(|nonce| nonce == left.nonce) {
            return apply::clear_top(&self.roots, &is_kept);
        }
        let cache = KnownCache::new(&self.catalog)?;
        let mut tasks = Vec::new();
        for path in left.paths {
            let (known, stat) = (cache.get(&path)?, self.stat(&path)?);
            let is_ours = stat.is_none_or(|stat| left.placed.contains(&stat.signature.ino));
            let then = known.map_or(Entry::Absent, |known| known.entry);
            let is_there =
                |entry: &Entry| !entry.is_unknown() && (entry.is_present() || stat.is_some());
            if is_ours && is_there(&then) {
                let now = self.as_it_looks(&path, stat)?;
                tasks.push(Task { path, now, then, aside: false });
            }
        }
        drop(cache);
        self.put_back(tasks)
    }

    /// Puts what is known in the place of what stands there, and takes all staging away; nothing of it is news.
    pub(super) fn put_back(&self, tasks: Vec<Task>) -> Result<()> {
        let is_kept = |id: &ObjectId| self.objects()?.exists(id);
        if tasks.is_empty() {
            return apply::clear_top(&self.roots, &is_kept);
        }
        let links = self.link_members(&tasks)?;
        let secrets = self.home.secrets().clone();
        let work = Work { id: DIRECT, moves: vec![], tasks, links, touch: false, secrets };
        let nothing = MemoryStore::new();
        let supply = Supply::new(&nothing, self.objects()?).lazily(self.is_lazy()?);
        let written = apply::put(&self.roots, work, &supply, &is_kept, Syncing::Now)?;
        apply::remove_direct(&self.roots, &written.staging)
    }

    /// What stands at a path, as far as it must be told apart from something else.
    pub(super) fn as_it_looks(&self, path: &WorkspacePath, stat: Option<Stat>) -> Result<Known> {
        let Some(stat) = stat else {
            return Ok(known(Entry::Absent, None));
        };
        let found = stat.signature;
        let (mode, mtime_ns) = (found.mode & 0o7777, found.mtime_ns);
        let meta = Meta { mode, uid: found.uid, gid: found.gid, mtime_ns, xattrs: vec![] };
        let entry = match () {
            () if stat.is_directory() => Entry::Directory(meta),
            () if stat.kind().is_symlink() => {
                Entry::Symlink(Symlink { target: self.roots.read_link(path)?, meta })
            }
            () => Entry::File(File {
                object: ObjectId([0; 32]),
                secret: false,
                pending: false,
                size: found.size,
                sparse: false,
                link: None,
                meta,
            }),
        };
        Ok(known(entry, Some(found)))
    }
}

fn known(entry: Entry, signature: Option<crate::known::Signature>) -> Known {
    Known { entry, signature, racy: false, part: Part::Ordinary }
}
