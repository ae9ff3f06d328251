//! Decides which files keep their inode and which become another name of one.
//!
//! Hard links are restored by group: all names of a group end up as one inode, and a name that is
//! to stand alone never shares one. Nothing is changed here.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::entry::Entry;
use crate::error::Result;
use crate::id::LinkGroup;
use crate::path::WorkspacePath;

use super::Work;
use super::check::{hash, hasher};
use super::directories::{Directories, Seen};
use super::fill::link_of;

type Inode = ((u64, u64), u64);

/// What becomes of the inodes of files.
#[derive(Default)]
pub(super) struct Links {
    /// Tasks whose inode has the right content and stays.
    keeps: HashSet<usize>,
    /// For each group that has one, the inode that all its names become, and a path to it.
    keepers: HashMap<LinkGroup, (WorkspacePath, u64)>,
}

impl Links {
    /// Whether a task changes attributes only.
    pub(super) fn keeps(&self, task: usize) -> bool {
        self.keeps.contains(&task)
    }

    /// The path and the inode that an entry becomes another name of.
    pub(super) fn keeper(&self, entry: &Entry) -> Option<&(WorkspacePath, u64)> {
        self.keepers.get(&link_of(entry)?)
    }

    /// Decides for all tasks.
    pub(super) fn decide(
        directories: &mut Directories<'_>,
        work: &Work,
        seen: &[Option<Seen>],
    ) -> Result<Self> {
        let (mut links, mut claimed) = (Self::default(), HashSet::new());
        let groups = groups(work);
        let touched: HashSet<_> = match groups.is_empty() {
            true => HashSet::new(),
            false => work.tasks.iter().map(|task| &task.path).collect(),
        };
        for (group, members) in groups {
            let untouched = work.links.get(&group).into_iter().flatten();
            let untouched = untouched.filter(|path| !touched.contains(path));
            let found = match untouched_keeper(directories, work, members[0], untouched)? {
                None => present_keeper(work, seen, &claimed, &members),
                found => found,
            };
            let Some((path, inode)) = found else { continue };
            claimed.insert(inode);
            links.keepers.insert(group, (path, inode.1));
            links.keeps.extend(members.into_iter().filter(|index| {
                has_content(work, *index) && inode_of(seen, *index) == Some(inode)
            }));
        }
        links.keep_single(work, seen, &mut claimed);
        Ok(links)
    }

    /// A file that is to stand alone keeps its inode if no other name of it remains.
    fn keep_single(&mut self, work: &Work, seen: &[Option<Seen>], claimed: &mut HashSet<Inode>) {
        let names = names(work, seen);
        for (index, task) in work.tasks.iter().enumerate() {
            let Some(seen) = &seen[index] else { continue };
            let inode = (seen.volume, seen.ino());
            let known = names.get(&inode).map_or(0, |count| *count);
            let single = link_of(&task.then).is_none() && has_content(work, index);
            if single && seen.nlink == known && claimed.insert(inode) {
                self.keeps.insert(index);
            }
        }
    }
}

/// How many names of each inode are tasks.
fn names(work: &Work, seen: &[Option<Seen>]) -> HashMap<Inode, u64> {
    let mut names = HashMap::new();
    for (task, seen) in work.tasks.iter().zip(seen) {
        if let (Entry::File(_), Some(seen)) = (&task.now.entry, seen) {
            *names.entry((seen.volume, seen.ino())).or_insert(0) += 1;
        }
    }
    names
}

/// The tasks of each group, in an order that does not depend on chance.
fn groups(work: &Work) -> BTreeMap<LinkGroup, Vec<usize>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (index, task) in work.tasks.iter().enumerate() {
        if let Some(group) = link_of(&task.then) {
            groups.entry(group).or_default().push(index);
        }
    }
    groups
}

/// Whether a task's file already has the content, holes included, that it must get.
fn has_content(work: &Work, index: usize) -> bool {
    let task = &work.tasks[index];
    match (&task.now.entry, &task.then) {
        (Entry::File(now), Entry::File(then)) => {
            now.object == then.object && now.sparse == then.sparse
        }
        _ => false,
    }
}

fn inode_of(seen: &[Option<Seen>], index: usize) -> Option<Inode> {
    seen[index].map(|seen| (seen.volume, seen.ino()))
}

/// The inode of a name which no task touches, if it has the content that the group must get.
fn untouched_keeper<'a>(
    directories: &mut Directories<'_>,
    work: &Work,
    member: usize,
    untouched: impl Iterator<Item = &'a WorkspacePath>,
) -> Result<Option<(WorkspacePath, Inode)>> {
    let Entry::File(then) = &work.tasks[member].then else { return Ok(None) };
    for path in untouched {
        if let Some(found) = directories.look_at(path)?
            && found.kind().is_file()
            && found.signature.size == then.size
            && hash(directories, path, hasher(work, then)?)? == Some(then.object)
        {
            return Ok(Some((path.clone(), (found.volume, found.ino()))));
        }
    }
    Ok(None)
}

/// The inode with the right content that most names of a group have already.
fn present_keeper(
    work: &Work,
    seen: &[Option<Seen>],
    claimed: &HashSet<Inode>,
    members: &[usize],
) -> Option<(WorkspacePath, Inode)> {
    let mut counts: BTreeMap<Inode, (usize, usize)> = BTreeMap::new();
    for index in members.iter().filter(|index| has_content(work, **index)) {
        if let Some(inode) = inode_of(seen, *index).filter(|inode| !claimed.contains(inode)) {
            counts.entry(inode).or_insert((0, *index)).0 += 1;
        }
    }
    let best = counts.into_iter().max_by_key(|(_, (count, _))| *count);
    best.map(|(inode, (_, index))| (work.tasks[index].path.clone(), inode))
}
