//! The repository rule: metadata goes back whole or not at all, and never over a person's.

use std::collections::BTreeMap;

use super::Workspace;
use super::rewind::{GitChoice, RewindRequest};
use super::views::kept;
use crate::catalog::LocalState;
use crate::entry::{Author, Entry, Evidence};
use crate::error::{Error, Result, Stop};
use crate::path::WorkspacePath;
use crate::plan::{Draft, Goal, PastChange};
use crate::repository::{BundleFile, Flavor, is_operation_directory};
use crate::view::KeptView;

/// What happened to one repository after the moment.
pub(super) struct UnitHistory {
    pub(super) then: Entry,
    pub(super) now: Entry,
    pub(super) touched_outside: bool,
}

/// What happened to all repositories after the moment.
pub(super) struct RepositoryHistory {
    pub(super) units: BTreeMap<WorkspacePath, UnitHistory>,
}

impl RepositoryHistory {
    pub(super) fn of(changes: &[PastChange]) -> Self {
        let mut units: BTreeMap<WorkspacePath, UnitHistory> = BTreeMap::new();
        let repository = |entry: &Entry| matches!(entry, Entry::Repository(_));
        for PastChange { change, .. } in changes {
            if !repository(&change.before) && !repository(&change.after) {
                continue;
            }
            let unit = units.entry(change.path.clone()).or_insert_with(|| UnitHistory {
                then: change.before.clone(),
                now: change.after.clone(),
                touched_outside: false,
            });
            unit.now = change.after.clone();
            unit.touched_outside |=
                change.evidence == Evidence::Outside || change.author == Author::Person;
        }
        Self { units }
    }
}

#[derive(Default)]
pub(super) struct GitPlan {
    pub(super) words: Vec<KeptView>,
    pub(super) moves_head: bool,
}

impl GitPlan {
    fn keep(
        &mut self,
        path: &WorkspacePath,
        history: &UnitHistory,
        choice: Option<GitChoice>,
    ) -> Result<()> {
        let head = |entry: &Entry| match entry {
            Entry::Repository(repository) => Some(repository.head.clone()),
            _ => None,
        };
        if choice.is_none() && head(&history.now) != head(&history.then) {
            return Err(Error::Stopped(Stop::RepositoryMoved(path.clone())));
        }
        self.words.push(kept(path, "stays as it is".to_owned()));
        Ok(())
    }

    fn restore(&mut self, path: &WorkspacePath, words: &str, history: &UnitHistory) {
        if let (Entry::Repository(now), Entry::Repository(then)) = (&history.now, &history.then) {
            self.moves_head |= now.head != then.head;
        }
        self.words.push(kept(path, words.to_owned()));
    }
}

impl Workspace {
    /// Decides what happens to repositories whose metadata would change.
    ///
    /// `asks`: the files go to a moment, so that it matters where HEAD was then.
    pub(super) fn apply_repository_rule(
        &self,
        request: &RewindRequest,
        draft: &mut Draft,
        units: &RepositoryHistory,
        asks: bool,
    ) -> Result<GitPlan> {
        let mut plan = GitPlan::default();
        let conflicts: Vec<_> = draft
            .conflicts
            .iter()
            .filter(|conflict| conflict.what == "repository")
            .map(|conflict| conflict.path.clone())
            .collect();
        if request.git.is_some() {
            draft.conflicts.retain(|conflict| conflict.what != "repository");
        }
        for (path, history) in &units.units {
            let goal = draft.goals.iter().position(|goal| goal.path == *path);
            let wants = goal.is_some() || conflicts.contains(path);
            if !wants {
                if asks && request.git.is_none() {
                    refuse_moved_head(path, history, draft)?;
                }
                leave_operations(path, draft);
                continue;
            }
            let stays = match request.git {
                Some(GitChoice::Keep) => true,
                Some(GitChoice::Restore) => false,
                None => request.exact && history.touched_outside || goal.is_none(),
            };
            if stays {
                draft.goals.retain(|goal| goal.path != *path);
                leave_operations(path, draft);
                plan.keep(path, history, request.git)?;
            } else {
                if goal.is_none() {
                    let (now, then) = (history.now.clone(), history.then.clone());
                    let path = path.clone();
                    draft.goals.push(Goal { path, now, then, merged: false, aside: false });
                }
                self.end_operations(path, history, draft)?;
                draft.goals.sort_by(|a, b| a.path.cmp(&b.path));
                self.refuse_held_index(path)?;
                plan.restore(path, &self.describe_restore(history)?, history);
            }
        }
        Ok(plan)
    }

    /// Lets the directories of operations go that were not under way then.
    fn end_operations(
        &self,
        unit: &WorkspacePath,
        history: &UnitHistory,
        draft: &mut Draft,
    ) -> Result<()> {
        let Entry::Repository(then) = &history.then else { return Ok(()) };
        let then = self.bundle(&then.bundle)?;
        for (path, known) in self.catalog.known_below(unit)? {
            let inner = &path.as_bytes()[unit.as_bytes().len() + 1..];
            let needed = |file: &BundleFile| {
                file.inner.strip_prefix(inner).is_some_and(|rest| rest.first() == Some(&b'/'))
            };
            if !known.entry.is_directory()
                || !is_operation(unit, &path)
                || then.files.iter().any(needed)
                || draft.goals.iter().any(|goal| goal.path == path)
            {
                continue;
            }
            let (now, then) = (known.entry, Entry::Absent);
            draft.goals.push(Goal { path, now, then, merged: false, aside: false });
        }
        Ok(())
    }

    fn refuse_held_index(&self, path: &WorkspacePath) -> Result<()> {
        let lock = path.join(b"index.lock");
        match self.stat(&lock)? {
            Some(_) => Err(Error::Busy(format!("git holds {lock}"))),
            None => Ok(()),
        }
    }

    fn describe_restore(&self, history: &UnitHistory) -> Result<String> {
        match (&history.now, &history.then) {
            (Entry::Repository(now), Entry::Repository(then)) => {
                let (now, then) = (self.bundle(&now.bundle)?, self.bundle(&then.bundle)?);
                let (mut words, branches) =
                    (vec![crate::repository::describe_move(&now, &then)], now.branches());
                let back = then.branches();
                for (name, commit) in &branches {
                    if back.get(name) != Some(commit) {
                        let name = crate::path::escape(name);
                        let commit = crate::path::escape(&commit[..commit.len().min(10)]);
                        words.push(format!("commit {commit} leaves {name}"));
                    }
                }
                Ok(words.join("; "))
            }
            (_, Entry::Absent) => {
                Ok("the repository was made after that moment and goes".to_owned())
            }
            _ => Ok("the repository comes back".to_owned()),
        }
    }
}

/// Stops a rewind of files to a moment at which HEAD was elsewhere, while it stays where it is.
fn refuse_moved_head(path: &WorkspacePath, history: &UnitHistory, draft: &Draft) -> Result<()> {
    let (Entry::Repository(now), Entry::Repository(then)) = (&history.now, &history.then) else {
        return Ok(());
    };
    // jj's HEAD is its newest operation, which every command of jj moves.
    if path.name() != b".git" || now.head == then.head {
        return Ok(());
    }
    let top = path.parent().unwrap_or_default();
    let concerns = |other: &WorkspacePath| other.is_within(&top) && !other.is_within(path);
    let writes = |goal: &Goal| concerns(&goal.path) && !goal.now.same_but_time(&goal.then);
    let conflicts = draft.conflicts.iter().any(|conflict| concerns(&conflict.path));
    if conflicts || draft.goals.iter().any(writes) || draft.moves.iter().any(|m| concerns(&m.from))
    {
        return Err(Error::Stopped(Stop::RepositoryMoved(path.clone())));
    }
    Ok(())
}

/// Where a repository stays as it is, no operation begins or ends in it.
fn leave_operations(unit: &WorkspacePath, draft: &mut Draft) {
    draft.goals.retain(|goal| !is_operation(unit, &goal.path));
}

/// Whether a path is a directory of an operation in a repository.
fn is_operation(unit: &WorkspacePath, path: &WorkspacePath) -> bool {
    let flavor = if unit.name() == b".jj" { Flavor::Jj } else { Flavor::Git };
    let inner = path.as_bytes().strip_prefix(unit.as_bytes());
    let inner = inner.and_then(|inner| inner.strip_prefix(b"/"));
    inner.is_some_and(|inner| is_operation_directory(flavor, inner))
}
