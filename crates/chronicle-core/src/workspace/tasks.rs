//! What a plan means for the disk: a task per path, with repositories taken apart.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::known_cache::KnownCache;
use super::rewind::Planned;
use super::{Workspace, unit};
use crate::apply::{Task, Work};
use crate::catalog::LocalState;
use crate::entry::Entry;
use crate::error::Result;
use crate::id::{LinkGroup, ObjectId};
use crate::known::{Known, Part};
use crate::path::WorkspacePath;
use crate::plan::Goal;
use crate::store::ContentStorage;

impl Workspace {
    /// What the plan means for the disk: a task per path, with repositories taken apart.
    pub(super) fn work(&self, planned: &Planned, touch: bool) -> Result<Work> {
        let mut work = Work {
            id: planned.id,
            moves: planned.draft.moves.iter().map(|m| (m.from.clone(), m.to.clone())).collect(),
            tasks: Vec::new(),
            links: HashMap::new(),
            touch,
            secrets: self.home.secrets().clone(),
        };
        for (id, bytes) in &planned.draft.merged {
            match *id == ObjectId::of(bytes) {
                true => self.objects()?.put(id, bytes)?,
                false => drop(self.objects()?.put_secret(bytes)?),
            }
        }
        let cache = KnownCache::new(&self.catalog)?;
        for goal in &planned.draft.goals {
            let repository = |entry: &Entry| matches!(entry, Entry::Repository(_));
            if repository(&goal.now) || repository(&goal.then) {
                self.unit_tasks(goal, &mut work.tasks)?;
            } else {
                let now = Self::known_or_absent(&cache, &goal.path, &goal.now)?;
                let (path, then, aside) = (goal.path.clone(), goal.then.clone(), goal.aside);
                work.tasks.push(Task { path, now, then, aside });
            }
        }
        work.tasks.sort_by(|a, b| a.path.cmp(&b.path));
        work.tasks.dedup_by(|a, b| a.path == b.path);
        work.links = self.link_members(&work.tasks)?;
        Ok(work)
    }

    fn known_or_absent(cache: &KnownCache<'_>, path: &WorkspacePath, now: &Entry) -> Result<Known> {
        let known = cache.get(path)?.filter(|known| known.entry == *now);
        Ok(known.unwrap_or_else(|| Known {
            entry: now.clone(),
            signature: None,
            racy: false,
            part: Part::Ordinary,
        }))
    }

    /// The files of a repository's metadata that differ between its present and its wanted value.
    fn unit_tasks(&self, goal: &Goal, tasks: &mut Vec<Task>) -> Result<()> {
        let expand = |entry: &Entry| -> Result<BTreeMap<WorkspacePath, Entry>> {
            let Entry::Repository(repository) = entry else { return Ok(BTreeMap::new()) };
            let (entries, contents) = unit::expand(&goal.path, &self.bundle(&repository.bundle)?)?;
            for (id, bytes) in contents {
                if !self.objects()?.exists(&id)? {
                    self.objects()?.put(&id, &bytes)?;
                }
            }
            Ok(entries)
        };
        let then = expand(&goal.then)?;
        let mut paths: BTreeSet<_> = then.keys().cloned().collect();
        paths.extend(expand(&goal.now)?.into_keys());
        // Refs may have been packed since the value was recorded: the value is the same, but the
        // files that hold it now must not outlive it.
        let below = self.catalog.known_below(&goal.path)?.into_iter();
        let significant = below.filter(|(_, known)| known.part == Part::Significant);
        paths.extend(significant.map(|(path, _)| path));
        let plain = |entry: &Entry| match entry {
            Entry::Repository(repository) => Entry::Directory(repository.meta.clone()),
            other => other.clone(),
        };
        if plain(&goal.now).kind() != plain(&goal.then).kind() {
            let signature = self.stat(&goal.path)?.map(|stat| stat.signature);
            let now =
                Known { entry: plain(&goal.now), signature, racy: false, part: Part::Ordinary };
            tasks.push(Task {
                path: goal.path.clone(),
                now,
                then: plain(&goal.then),
                aside: goal.aside,
            });
        }
        for path in paths {
            let signature = self.stat(&path)?.map(|stat| stat.signature);
            let known = self.catalog.known(&path)?.filter(|known| known.signature == signature);
            let now = match (known, signature) {
                (Some(known), _) => known,
                (None, None) => absent(),
                // It changed since the look: the check before the commit point will say so.
                (None, Some(_)) => Known { signature: None, ..absent() },
            };
            let then = then.get(&path).cloned().unwrap_or(Entry::Absent);
            if now.entry != then {
                tasks.push(Task { path, now, then, aside: false });
            }
        }
        Ok(())
    }

    /// The present members of every link group that a task joins or leaves.
    pub(super) fn link_members(
        &self,
        tasks: &[Task],
    ) -> Result<HashMap<LinkGroup, Vec<WorkspacePath>>> {
        let group = |entry: &Entry| match entry {
            Entry::File(file) => file.link,
            _ => None,
        };
        let named = |task: &Task| [group(&task.now.entry), group(&task.then)];
        self.members_of(&tasks.iter().flat_map(named).flatten().collect())
    }

    /// The names that are known of each of some link groups.
    pub(super) fn members_of(
        &self,
        groups: &HashSet<LinkGroup>,
    ) -> Result<HashMap<LinkGroup, Vec<WorkspacePath>>> {
        let mut members: HashMap<LinkGroup, Vec<WorkspacePath>> = HashMap::new();
        if groups.is_empty() {
            return Ok(members);
        }
        let table = self.catalog.known_table()?;
        let directories: BTreeSet<_> = table.rows.keys().chain(table.newer.keys()).collect();
        for directory in directories {
            let Ok(known) = table.directory(directory) else { continue };
            for (name, known) in &known.names {
                let Entry::File(file) = &known.entry else { continue };
                if let Some(link) = file.link.filter(|link| groups.contains(link)) {
                    members.entry(link).or_default().push(directory.join(name));
                }
            }
        }
        Ok(members)
    }
}

fn absent() -> Known {
    Known { entry: Entry::Absent, signature: None, racy: false, part: Part::Significant }
}
