//! From what a look saw to what changed and what is known from now on; pure.

use std::collections::{BTreeMap, HashMap};

use super::capture::{Found, Look};
use crate::catalog::DirectoryUpdate;
use crate::entry::{Entry, MovedFrom, Why};
use crate::id::Seq;
use crate::known::{Known, KnownTable, Listed, Part};
use crate::look::{Candidate, Examined, Listing};
use crate::path::WorkspacePath;

/// Collects what a look found: the changes, and what is known from now on.
pub(super) struct Sketch<'t> {
    table: &'t KnownTable,
    tops: Vec<WorkspacePath>,
    seq: Seq,
    pub(super) look: Look,
    directories: BTreeMap<WorkspacePath, DirectoryUpdate>,
    proven: HashMap<WorkspacePath, bool>,
}

impl<'t> Sketch<'t> {
    /// `tops` are the roots themselves, which have no directory of ours above them.
    pub(super) fn new(table: &'t KnownTable, tops: Vec<WorkspacePath>, seq: Seq) -> Self {
        let (look, directories, proven) = Default::default();
        Self { table, tops, seq, look, directories, proven }
    }

    pub(super) fn finish(mut self) -> Look {
        self.look.known = self.directories.into_values().collect();
        self.look
    }

    fn directory(&mut self, path: &WorkspacePath) -> &mut DirectoryUpdate {
        self.directories
            .entry(path.clone())
            .or_insert_with(|| DirectoryUpdate { path: path.clone(), ..DirectoryUpdate::default() })
    }

    /// Notes what is known of a path from now on.
    fn note(&mut self, path: &WorkspacePath, known: Option<Known>) {
        match path.parent().filter(|_| !self.tops.contains(path)) {
            Some(parent) => self.directory(&parent).names.push((path.name().to_vec(), known)),
            None => self.directory(path).own = known,
        }
    }

    pub(super) fn add_vanished(&mut self, vanished: &[(WorkspacePath, Known)]) {
        for (path, was) in vanished {
            self.note(path, None);
            if was.entry.is_directory() {
                self.directory(path).gone = true;
            }
            if was.part != Part::Significant {
                self.look.found.push(Found {
                    path: path.clone(),
                    before: was.entry.clone(),
                    after: Entry::Absent,
                    from: None,
                    neutral: was.part == Part::Neutral,
                });
            }
        }
    }

    pub(super) fn add(
        &mut self,
        candidate: &Candidate,
        examined: Examined,
        from: Option<MovedFrom>,
    ) {
        let mut known = examined.known;
        known.part = candidate.part;
        if !agrees(candidate, &known.entry) {
            // What lies below was not looked at as what it is now. The next look sees all of it; a
            // path that nobody knew must not be taken for absent until then.
            if candidate.was.is_none() {
                let entry = Entry::Unknown(Why::Changing);
                self.note(&candidate.path, Some(Known { entry, signature: None, ..known }));
            }
            return;
        }
        if known.part == Part::Significant {
            let gone = known.entry == Entry::Absent;
            return self.note(&candidate.path, (!gone).then_some(known));
        }
        self.add_with(&candidate.path, candidate.was.clone(), known, from);
    }

    pub(super) fn add_known(&mut self, path: &WorkspacePath, was: Option<Known>, known: Known) {
        self.add_with(path, was, known, None);
    }

    fn add_with(
        &mut self,
        path: &WorkspacePath,
        was: Option<Known>,
        known: Known,
        from: Option<MovedFrom>,
    ) {
        let before = match &was {
            Some(was) => was.entry.clone(),
            None if self.proven_absent(path) => Entry::Absent,
            None => Entry::Unknown(Why::NotSeen),
        };
        let after = known.entry.clone();
        if before.is_directory() && !after.is_directory() && after.is_present() {
            self.directory(path).gone = true;
        }
        let changed = before != after && !(before.is_unknown() && after == Entry::Absent);
        if changed {
            let neutral = known.part == Part::Neutral;
            self.look.found.push(Found { path: path.clone(), before, after, from, neutral });
        }
        if changed || was.as_ref() != Some(&known) {
            self.note(path, (known.entry != Entry::Absent).then_some(known));
        }
    }

    /// Whether a path that is not known was certainly not there when its directory was listed.
    fn proven_absent(&mut self, path: &WorkspacePath) -> bool {
        let Some(parent) = path.parent().filter(|_| !self.tops.contains(path)) else {
            return false;
        };
        if let Some(known) = self.proven.get(&parent) {
            return *known;
        }
        let proven = match self.table.row(&parent) {
            Some(Ok(row)) => row.listed.is_some(),
            Some(Err(_)) => false,
            None => self.parent_was_no_directory(&parent),
        };
        self.proven.insert(parent, proven);
        proven
    }

    /// Whether a directory without a row was itself not there, or was something else.
    fn parent_was_no_directory(&mut self, parent: &WorkspacePath) -> bool {
        let Some(above) = parent.parent() else { return false };
        let known = self
            .table
            .directory(&above)
            .ok()
            .and_then(|mut directory| directory.names.remove(parent.name()));
        match known {
            Some(known) => !(known.entry.is_directory() || known.entry.is_unknown()),
            None => self.proven_absent(parent),
        }
    }

    pub(super) fn add_listings(&mut self, listings: &[Listing]) {
        let seq = self.seq;
        for listing in listings.iter().filter(|listing| listing.complete) {
            let listed = Listed { seq, time: listing.time };
            self.directory(&listing.path).listed = Some((listed, listing.mount));
        }
    }
}

/// Whether a path was a directory, or none, both when its names were looked at and when it was read.
fn agrees(candidate: &Candidate, read: &Entry) -> bool {
    let was_directory = || candidate.was.as_ref().is_some_and(|was| was.entry.is_directory());
    match &candidate.stat {
        _ if read.is_unknown() => true,
        Some(stat) => stat.is_directory() == read.is_directory(),
        // All below it is known to be gone.
        None => !read.is_directory() || was_directory(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Meta, Symlink};
    use crate::fs::Stat;
    use crate::known::Signature;

    const META: Meta = Meta { mode: 0o755, uid: 0, gid: 0, mtime_ns: 1, xattrs: Vec::new() };

    fn entry(kind: &str) -> Entry {
        match kind {
            "directory" => Entry::Directory(META),
            "link" => Entry::Symlink(Symlink { target: b"outside".to_vec(), meta: META }),
            "changing" => Entry::Unknown(Why::Changing),
            other => panic!("no such kind: {other}"),
        }
    }

    fn known(kind: &str) -> Known {
        Known { entry: entry(kind), signature: None, racy: false, part: Part::Ordinary }
    }

    fn stat(kind: &str) -> Stat {
        let mode = if kind == "directory" { 0o040_755 } else { 0o120_777 };
        let (size, mtime_ns, ctime_ns, ino, uid, gid) = (0, 1, 1, 7, 0, 0);
        let signature = Signature { size, mtime_ns, ctime_ns, ino, mode, uid, gid };
        Stat { signature, nlink: 1, blocks: 0, dev: 1 }
    }

    /// What becomes of `d` that was known as one kind, listed as another and read as a third: the
    /// changes, what is known of it anew, and whether what was known below it is forgotten.
    #[track_caller]
    fn check(was: Option<&str>, listed: &str, read: &str, expected: (usize, Option<&str>, bool)) {
        let table = KnownTable::default();
        let mut sketch = Sketch::new(&table, vec![WorkspacePath::root()], Seq(1));
        let path = WorkspacePath::new("d").unwrap();
        let (stat, was, part) = (Some(stat(listed)), was.map(known), Part::Ordinary);
        let candidate = Candidate { path: path.clone(), stat, was, part, filtered: false };
        sketch.add(&candidate, Examined { known: known(read), nlink: 1, dev: 1 }, None);
        let look = sketch.finish();
        let gone = look.known.iter().any(|update| update.path == path && update.gone);
        let names = look.known.iter().flat_map(|update| &update.names);
        let noted = names.filter_map(|(_, known)| known.as_ref()).next();
        let noted = noted.map(|known| known.entry.clone());
        assert_eq!(
            (look.found.len(), noted, gone),
            (expected.0, expected.1.map(entry), expected.2)
        );
    }

    /// A directory was swapped for a link between the listing of its names and the reading of
    /// itself. What was known below it was dropped, and no record said that it was gone.
    #[test]
    fn what_changes_its_kind_while_it_is_looked_at_waits_for_the_next_look() {
        check(Some("directory"), "directory", "link", (0, None, false));
        check(Some("link"), "link", "directory", (0, None, false));
        check(None, "directory", "link", (0, Some("changing"), false));
        check(Some("directory"), "link", "link", (1, Some("link"), true));
        check(Some("link"), "directory", "directory", (1, Some("directory"), false));
    }
}
