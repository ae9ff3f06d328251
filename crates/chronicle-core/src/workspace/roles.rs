//! Which changes after a moment stay and which go; pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::attribute::{PERSON, is_within_session};
use crate::entry::{Author, Change, Entry, Evidence};
use crate::path::WorkspacePath;
use crate::plan::{PastChange, Role};
use crate::record::{ChangeRef, Kind, Record};

/// Which changes after the moment stay.
pub(super) enum Rule {
    /// None.
    Exact,
    /// What people and other sessions did. `sessions`: whose work goes; `None`: all agents'.
    Others { sessions: Option<Vec<String>>, also: HashSet<ChangeRef>, take_shared: bool },
    /// Everything that is to be in effect: all but these.
    Live { dead: HashSet<ChangeRef> },
}

/// The changes after a moment with their roles.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) changes: Vec<PastChange>,
    /// Live changes that stay.
    pub(super) kept: Vec<(ChangeRef, WorkspacePath)>,
    /// Live changes that go.
    pub(super) dropped: Vec<(ChangeRef, WorkspacePath)>,
    /// Changes that stay because nobody knows whose they are.
    pub(super) shared: Vec<(WorkspacePath, Vec<String>)>,
    /// The sessions whose live work goes.
    pub(super) hit: BTreeSet<String>,
    /// Whether a rewind goes that was an edit: nobody knows whose it was.
    pub(super) edit_goes: bool,
    /// Workspaces of their own inside this one: whatever was recorded of them before stays.
    apart: Vec<WorkspacePath>,
    /// Whose each change is, by its place in `authors`.
    author_of: HashMap<ChangeRef, usize>,
    authors: Vec<Author>,
}

impl Gathered {
    /// Nothing yet; `apart` are the workspaces of their own inside this one.
    pub(super) fn new(apart: Vec<WorkspacePath>) -> Self {
        Self { apart, ..Self::default() }
    }

    pub(super) fn add(
        &mut self,
        rule: &Rule,
        record: &Record,
        at: ChangeRef,
        change: Change,
        dead: bool,
    ) {
        let own = record.kind == Kind::Rewind;
        let apart = self.apart.iter().any(|inner| change.path.is_within(inner));
        let keep = match rule {
            _ if apart => true,
            Rule::Exact => false,
            // A rewind is what it took back and brought back. One that names neither (hunks, what
            // stayed in conflict) is an edit like any other.
            Rule::Live { .. } if own => is_edit(record),
            Rule::Live { dead } => !dead.contains(&at),
            Rule::Others { .. } if dead || own => false,
            Rule::Others { sessions, also, take_shared } => {
                !also.contains(&at) && self.keeps(sessions.as_deref(), *take_shared, &change)
            }
        };
        if keep && !dead && !own {
            self.kept.push((at, change.path.clone()));
        }
        if !keep && !dead && !own {
            if let Author::Session(session) = &change.author
                && change.is_visible()
            {
                self.hit.insert(session.clone());
            }
            self.dropped.push((at, change.path.clone()));
        }
        self.edit_goes |= own && !keep && is_edit(record);
        if !own {
            self.remember_author(at, &change.author);
        }
        let role = if keep { Role::Keep } else { Role::Drop };
        self.changes.push(PastChange { at, change, role });
    }

    /// Authors are few and changes many, so each author is kept once.
    fn remember_author(&mut self, at: ChangeRef, author: &Author) {
        let known = self.authors.iter().rposition(|known| known == author);
        let index = known.unwrap_or_else(|| {
            self.authors.push(author.clone());
            self.authors.len() - 1
        });
        self.author_of.insert(at, index);
    }

    /// Whose a change after the moment is; `None` for one of Chronicle's own, or from before it.
    pub(super) fn author(&self, at: &ChangeRef) -> Option<&Author> {
        self.author_of.get(at).map(|index| &self.authors[*index])
    }

    /// Every move: where something is, and where it was.
    pub(super) fn moved(&self) -> Vec<(WorkspacePath, WorkspacePath)> {
        let pair = |past: &PastChange| {
            Some((past.change.path.clone(), past.change.from.as_ref()?.path.clone()))
        };
        self.changes.iter().filter_map(pair).collect()
    }

    /// Drops kept changes that were undone by hand: where a path came back to what stood there
    /// before them (a stash and its pop, a branch and back), they are nobody's work any more, and
    /// neither is what brought it back.
    pub(super) fn cancel_round_trips(&mut self) {
        let mut by_path: HashMap<&WorkspacePath, Vec<usize>> = HashMap::new();
        let mut cancelled = Vec::new();
        for (index, past) in self.changes.iter().enumerate() {
            let earlier = by_path.entry(&past.change.path).or_default();
            if past.change.evidence == Evidence::Returned {
                let came_back =
                    |at: &usize| self.changes[*at].change.before.same_but_time(&past.change.after);
                if let Some(start) = earlier.iter().rposition(came_back) {
                    cancelled.extend(earlier.drain(start..));
                    cancelled.push(index);
                    continue;
                }
            }
            earlier.push(index);
        }
        for index in cancelled {
            self.changes[index].role = Role::Drop;
        }
    }

    fn keeps(&mut self, sessions: Option<&[String]>, take_shared: bool, change: &Change) -> bool {
        let agents = |key: &String| key != PERSON;
        let taken = |key: &String| match sessions {
            None => agents(key),
            Some(sessions) => sessions.iter().any(|session| is_within_session(key, session)),
        };
        match &change.author {
            Author::Person => true,
            Author::Chronicle => false,
            Author::Session(session) => !taken(session),
            // Whoever of them it was, it goes.
            Author::Shared(keys) if keys.iter().all(taken) => false,
            Author::Shared(keys) => {
                let concerns = keys.iter().any(taken);
                if concerns && !take_shared && change.is_visible() {
                    self.shared.push((change.path.clone(), keys.clone()));
                }
                !(concerns && take_shared)
            }
        }
    }
}

/// Whether a rewind changed something without taking back or bringing back whole changes.
fn is_edit(record: &Record) -> bool {
    let labels = &record.labels;
    record.kind == Kind::Rewind
        && labels.redoes.is_none()
        && labels.taken_back.is_empty()
        && labels.brought_back.is_empty()
}

/// Follows what some changes made when it comes back by somebody else's hand: by a stash and its pop.
#[derive(Default)]
pub(super) struct Returning {
    /// For each path that they touched what agents made of it, oldest first, and whether it was they.
    made: HashMap<WorkspacePath, Vec<(Entry, bool)>>,
}

impl Returning {
    /// Whether a change is one of them, or brought back what one of them made; called in order.
    pub(super) fn sees(&mut self, change: &Change, is_one: bool) -> bool {
        if !is_one && change.evidence == Evidence::Returned {
            let made = self.made.get(&change.path).into_iter().flatten();
            let newest = made.rev().find(|(entry, _)| entry.same_but_time(&change.after));
            return newest.is_some_and(|(_, is_one)| *is_one);
        }
        let of_agent = matches!(change.author, Author::Session(_) | Author::Shared(_));
        let entry = || (change.after.clone(), is_one);
        match self.made.get_mut(&change.path) {
            Some(made) if of_agent => made.push(entry()),
            None if of_agent && is_one => {
                self.made.insert(change.path.clone(), vec![entry()]);
            }
            _ => {}
        }
        is_one
    }
}
