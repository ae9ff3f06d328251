//! What a replica's log says, as writes to send: one for each path, with what it was made on.
//!
//! Records are taken in one after the other. What one record says is joined to what the ones before said, path by path,
//! as long as one begins where the other ended; where it does not, because a push lies in between, the
//! batch ends before that record.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Step, Version, Write, order, stays_home};
use crate::id::Seq;
use crate::path::WorkspacePath;

/// One change of a replica's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalChange {
    /// Where.
    pub path: WorkspacePath,
    /// What stood there; `None` if that is not known.
    pub before: Option<Version>,
    /// What stands there since; `None` if that is not known or not told.
    pub after: Option<Version>,
    /// Where it was moved from.
    pub from: Option<WorkspacePath>,
}

/// Records, joined path by path.
#[derive(Debug, Clone, Default)]
pub struct Fold {
    limit: usize,
    paths: BTreeMap<WorkspacePath, (Version, Version)>,
    moves: Vec<(WorkspacePath, WorkspacePath)>,
}

impl Fold {
    /// An empty one that takes records up to so many paths; the first is taken whatever its size.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Takes a record in; `false`, and nothing is changed, if it does not fit behind those before.
    pub fn add(&mut self, record: &[LocalChange]) -> bool {
        let mut next = BTreeMap::new();
        for change in record.iter().filter(|change| !stays_home(&change.path)) {
            let last = next.get(&change.path).or_else(|| self.paths.get(&change.path));
            let Some(joined) = join(last, change) else { return false };
            if let Some(joined) = joined {
                next.insert(change.path.clone(), joined);
            }
        }
        let added = next.keys().filter(|path| !self.paths.contains_key(*path)).count();
        if !self.paths.is_empty() && self.paths.len() + added > self.limit {
            return false;
        }
        self.paths.extend(next);
        let moved =
            record.iter().filter_map(|change| Some((change.from.clone()?, change.path.clone())));
        self.moves.extend(moved);
        true
    }

    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The writes, by a replica that has seen so much of the host's log.
    ///
    /// Any beginning of them that splits no group makes a tree, and a group is never interrupted by others.
    pub fn finish(self, seen: Seq) -> Vec<Write> {
        let is_net = |(base, after): &(Version, Version)| !base.same_value(after);
        let groups = groups(&self.paths, &self.moves);
        let net = self.paths.iter().filter(|(_, values)| is_net(values));
        let steps = net.map(|(path, (base, after))| Step {
            path: path.clone(),
            expect: base.clone(),
            put: after.clone(),
        });
        let steps = order(steps.collect(), false);
        let ordered = gather(&steps, &groups);
        let mut numbers = HashMap::new();
        let write = |step: &Step| Write {
            path: step.path.clone(),
            base: step.expect.clone(),
            after: step.put.clone(),
            seen,
            group: number(&mut numbers, &groups, &step.path),
        };
        lone_groups_stand_alone(ordered.into_iter().map(write).collect())
    }
}

/// Joins a change to what was known of its path: `None` if it does not begin where that ended, `Some(None)` if
/// there is nothing to tell.
#[expect(clippy::option_option, reason = "two different answers, and one function uses them")]
fn join(
    last: Option<&(Version, Version)>,
    change: &LocalChange,
) -> Option<Option<(Version, Version)>> {
    // What is not known is not absent: the value before stays until the path is known again.
    let Some(after) = &change.after else { return Some(None) };
    match (last, &change.before) {
        (Some((base, _)), None) => Some(Some((base.clone(), after.clone()))),
        (Some((base, value)), Some(before)) if value.same_value(before) => {
            Some(Some((base.clone(), after.clone())))
        }
        (Some(_), Some(_)) => None,
        // If the host has something there, it says so.
        (None, before) => Some(Some((before.clone().unwrap_or(Version::Absent), after.clone()))),
    }
}

/// For each path that takes part in a move, the first path of its group.
type Groups = BTreeMap<WorkspacePath, WorkspacePath>;

/// Which paths are taken together: a move's two ends and everything below them.
fn groups(
    paths: &BTreeMap<WorkspacePath, (Version, Version)>,
    moves: &[(WorkspacePath, WorkspacePath)],
) -> Groups {
    let mut sets = Sets::default();
    for (from, to) in moves.iter().filter(|(from, _)| paths.contains_key(from)) {
        for end in [from, to] {
            sets.join(from, end);
            for (below, _) in
                paths.range(end.join(&[1])..).take_while(|(path, _)| path.is_within(end))
            {
                sets.join(from, below);
            }
        }
    }
    let members: Vec<_> = sets.above.keys().cloned().collect();
    members.into_iter().map(|path| (path.clone(), sets.top(&path))).collect()
}

/// Sets of paths that grow together.
#[derive(Default)]
struct Sets {
    above: BTreeMap<WorkspacePath, WorkspacePath>,
}

impl Sets {
    fn top(&mut self, path: &WorkspacePath) -> WorkspacePath {
        let mut top = path.clone();
        while let Some(above) = self.above.get(&top).filter(|above| **above != top) {
            top = above.clone();
        }
        self.above.insert(path.clone(), top.clone());
        top
    }

    fn join(&mut self, one: &WorkspacePath, other: &WorkspacePath) {
        let (one, other) = (self.top(one), self.top(other));
        self.above.insert(other.clone(), one.clone());
        self.above.insert(one.clone(), one);
    }
}

/// Brings the members of each group together, and before them what they need.
fn gather<'s>(steps: &'s [Step], groups: &'s Groups) -> Vec<&'s Step> {
    let places: BTreeMap<_, _> =
        steps.iter().enumerate().map(|(place, step)| (&step.path, place)).collect();
    let mut members: HashMap<&WorkspacePath, Vec<usize>> = HashMap::new();
    for (place, step) in steps.iter().enumerate() {
        if let Some(top) = groups.get(&step.path) {
            members.entry(top).or_default().push(place);
        }
    }
    let mut gather =
        Gather { steps, groups, places, members, taken: BTreeSet::new(), order: Vec::new() };
    (0..steps.len()).for_each(|place| gather.take(place));
    gather.order
}

struct Gather<'s> {
    steps: &'s [Step],
    groups: &'s Groups,
    places: BTreeMap<&'s WorkspacePath, usize>,
    members: HashMap<&'s WorkspacePath, Vec<usize>>,
    taken: BTreeSet<usize>,
    order: Vec<&'s Step>,
}

impl<'s> Gather<'s> {
    /// Takes a step with its group, after what that needs.
    fn take(&mut self, place: usize) {
        if self.taken.contains(&place) {
            return;
        }
        let group = self.whole(place);
        self.taken.extend(&group);
        let needed: BTreeSet<_> = group.iter().flat_map(|place| self.needs(*place)).collect();
        for place in needed {
            self.take(place);
        }
        self.order.extend(group.iter().map(|place| &self.steps[*place]));
    }

    fn whole(&self, place: usize) -> Vec<usize> {
        let top = self.groups.get(&self.steps[place].path);
        top.and_then(|top| self.members.get(top)).cloned().unwrap_or_else(|| vec![place])
    }

    /// What must be done before or with a step: the directories above what arrives, everything below what goes.
    fn needs(&self, place: usize) -> Vec<usize> {
        let (steps, step) = (self.steps, &self.steps[place]);
        let above = step.path.ancestors().filter_map(|above| self.places.get(&above).copied());
        let mut needs: Vec<_> = above.filter(|place| steps[*place].put.is_directory()).collect();
        if step.expect.is_directory() && !step.put.is_directory() {
            let first = step.path.join(&[1]);
            let below = self.places.range::<&WorkspacePath, _>(&first..);
            let below = below.take_while(|(path, _)| path.is_within(&step.path));
            needs.extend(below.map(|(_, place)| *place));
        }
        needs
    }
}

fn number(numbers: &mut HashMap<WorkspacePath, u32>, groups: &Groups, path: &WorkspacePath) -> u32 {
    let Some(top) = groups.get(path) else { return 0 };
    let next = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
    *numbers.entry(top.clone()).or_insert(next)
}

/// A group of which only one write was left is none.
fn lone_groups_stand_alone(mut writes: Vec<Write>) -> Vec<Write> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    writes.iter().for_each(|write| *counts.entry(write.group).or_default() += 1);
    for write in writes.iter_mut().filter(|write| counts[&write.group] == 1) {
        write.group = 0;
    }
    writes
}

/// Some neighbouring writes of a fold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The first.
    pub start: usize,
    /// Behind the last.
    pub end: usize,
}

/// Cuts writes into parts of at most so many; a group is only cut if it alone is larger.
pub fn parts(writes: &[Write], limit: usize) -> Vec<Part> {
    let (limit, mut parts, mut start) = (limit.max(1), Vec::new(), 0);
    while start < writes.len() {
        let end = part_end(writes, start, limit);
        parts.push(Part { start, end });
        start = end;
    }
    parts
}

fn part_end(writes: &[Write], start: usize, limit: usize) -> usize {
    let most = writes.len().min(start + limit);
    let splits = |end: usize| {
        end < writes.len() && writes[end].group != 0 && writes[end].group == writes[end - 1].group
    };
    (start + 1..=most).rev().find(|end| !splits(*end)).unwrap_or(most)
}
