//! What a host makes of a batch of writes.
//!
//! Values are compared in the order of the batch, each against what stands there or what an earlier write of
//! the batch put there. Whether the outcome is a tree is asked of the outcome, so that the order in which
//! a replica names the parts of one change does not matter. Whatever is rejected takes its group with it, and
//! what was built on that; this is repeated until nothing more is rejected.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Rejection, Stand, Standing, Step, Verdict, Version, Write, folded, order, stays_home};
use crate::id::Seq;
use crate::path::WorkspacePath;

/// After so many rounds a batch was made to cost time: what is left of it is rejected.
const ROUNDS: usize = 64;

/// Whether a path may be written by a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Allowed,
    /// The direction's filter names it.
    Filtered,
    /// The replica has no right to it.
    NotAllowed,
}

/// What besides values decides.
pub struct Rules<'a> {
    /// Whether a path may be written; the second argument is whether it is or was a directory.
    pub admit: &'a dyn Fn(&WorkspacePath, bool) -> Admission,
    /// Whether one of the two sides takes names for one another that differ in case or Unicode form.
    pub folds: bool,
}

/// What becomes of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is taken.
    Take,
    /// It stands there already, by this record.
    Stands(Seq),
    /// It is not taken.
    Reject {
        /// Why.
        reason: Rejection,
        /// What stands there, if that can be told.
        theirs: Option<Version>,
        /// By which record; `None` for the one that takes this batch.
        seq: Option<Seq>,
    },
}

impl Decision {
    /// The verdict, where what is taken stands there by this record.
    pub fn verdict(self, record: Seq) -> Verdict {
        match self {
            Self::Take => Verdict::Accepted(record),
            Self::Stands(seq) => Verdict::Accepted(seq),
            Self::Reject { reason, theirs, seq } => {
                Verdict::Rejected { reason, theirs, seq: seq.unwrap_or(record) }
            }
        }
    }
}

/// What becomes of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// One for each write, in the order of the batch.
    pub decisions: Vec<Decision>,
    /// What to write, in this order.
    pub steps: Vec<Step>,
}

/// Decides which writes of a batch are taken, given what stands there.
pub fn judge(state: &dyn Standing, writes: &[Write], rules: &Rules<'_>) -> Judged {
    let mut court = Court {
        state,
        writes,
        rules,
        rejected: HashMap::new(),
        seen: HashMap::new(),
        names: HashMap::new(),
    };
    court.admit();
    for round in 0.. {
        let before = court.rejected.len();
        let outcome = court.outcome();
        court.check_tree(&outcome);
        court.reject_groups();
        if court.rejected.len() == before {
            return court.judged(&outcome);
        }
        if round == ROUNDS {
            (0..writes.len()).for_each(|write| court.reject(write, Rejection::Group));
        }
    }
    unreachable!("BUG: each round rejects something or is the last")
}

struct Court<'a> {
    state: &'a dyn Standing,
    writes: &'a [Write],
    rules: &'a Rules<'a>,
    /// Writes that are not taken, by their place in the batch, and the newest record of what stands in the way.
    rejected: HashMap<usize, (Rejection, Seq)>,
    /// What was asked of the state.
    seen: HashMap<WorkspacePath, Stand>,
    /// What directories of the state hold, by folded names.
    names: HashMap<WorkspacePath, Vec<(Vec<u8>, WorkspacePath)>>,
}

/// What a batch comes to: for each path the last write that is taken, and what it puts there.
type Outcome = BTreeMap<WorkspacePath, (usize, Version)>;
/// Paths by their directory and folded name.
type Names = HashMap<(WorkspacePath, Vec<u8>), Vec<WorkspacePath>>;

fn made_names(outcome: &Outcome) -> Names {
    let mut names = Names::new();
    for (path, _) in outcome.iter().filter(|(_, (_, version))| version.is_present()) {
        let place = (path.parent().unwrap_or_default(), folded(path.name()));
        names.entry(place).or_default().push(path.clone());
    }
    names
}

impl Court<'_> {
    fn at(&mut self, path: &WorkspacePath) -> Stand {
        if let Some(stand) = self.seen.get(path) {
            return stand.clone();
        }
        let stand = match path.is_root() {
            true => Stand { version: Some(Version::Directory { mode: 0o755 }), seq: Seq(0) },
            false => self.state.at(path),
        };
        self.seen.insert(path.clone(), stand.clone());
        stand
    }

    fn reject(&mut self, write: usize, reason: Rejection) {
        self.rejected.entry(write).or_insert((reason, Seq(0)));
    }

    /// Rejects what no replica, or not this one, may write.
    fn admit(&mut self) {
        for (number, write) in self.writes.iter().enumerate() {
            let directory = write.base.is_directory() || write.after.is_directory();
            let admission = match stays_home(&write.path) {
                true => Admission::NotAllowed,
                false => (self.rules.admit)(&write.path, directory),
            };
            match admission {
                Admission::Allowed => {}
                Admission::Filtered => self.reject(number, Rejection::Filtered),
                Admission::NotAllowed => self.reject(number, Rejection::NotAllowed),
            }
        }
    }

    /// Compares values, write by write.
    fn outcome(&mut self) -> Outcome {
        let mut outcome = Outcome::new();
        for (number, write) in self.writes.iter().enumerate() {
            if self.rejected.contains_key(&number) {
                continue;
            }
            let stands = match outcome.get(&write.path) {
                Some((_, version)) => Some(version.clone()),
                None => self.at(&write.path).version,
            };
            match stands {
                None => self.reject(number, Rejection::Unknown),
                Some(version) if version.same_value(&write.after) => {}
                Some(version) if version.same_value(&write.base) => {
                    outcome.insert(write.path.clone(), (number, write.after.clone()));
                }
                Some(_) => self.reject(number, Rejection::Changed),
            }
        }
        outcome
    }

    /// Rejects what would leave no tree.
    fn check_tree(&mut self, outcome: &Outcome) {
        let made = if self.rules.folds { made_names(outcome) } else { Names::new() };
        for (path, (number, after)) in outcome {
            if after.is_present() {
                self.check_parent(outcome, path, *number);
            }
            if !after.is_directory()
                && self.at(path).version.is_some_and(|stands| stands.is_directory())
            {
                self.check_empty(outcome, path, *number);
            }
            if self.rules.folds && after.is_present() {
                self.check_names(outcome, &made, path, *number);
            }
        }
    }

    fn check_parent(&mut self, outcome: &Outcome, path: &WorkspacePath, number: usize) {
        let Some(parent) = path.parent() else { return };
        match self.after(outcome, &parent) {
            Some(version) if version.is_directory() => {}
            Some(_) => self.reject(number, Rejection::Parent),
            None => self.reject(number, Rejection::Unknown),
        }
    }

    fn check_empty(&mut self, outcome: &Outcome, path: &WorkspacePath, number: usize) {
        let mut newest = None;
        for child in self.state.children(path) {
            if self.after(outcome, &child) != Some(Version::Absent) {
                newest = newest.max(Some(self.state.seq(&child)));
            }
        }
        if let Some(seq) = newest {
            self.rejected.entry(number).or_insert((Rejection::NotEmpty, seq));
        }
    }

    fn check_names(
        &mut self,
        outcome: &Outcome,
        made: &Names,
        path: &WorkspacePath,
        number: usize,
    ) {
        let is_new = self.at(path).version == Some(Version::Absent);
        let Some(parent) = path.parent().filter(|_| is_new) else { return };
        let (place, state) = ((parent, folded(path.name())), self.state);
        let standing = self.names.entry(place.0.clone()).or_insert_with(|| {
            let children = state.children(&place.0).into_iter();
            children.map(|child| (folded(child.name()), child)).collect()
        });
        let standing =
            standing.iter().filter(|(name, _)| *name == place.1).map(|(_, child)| child.clone());
        let made = made.get(&place).into_iter().flatten().cloned();
        let others: Vec<_> = standing.chain(made).filter(|other| other != path).collect();
        if others.iter().any(|other| self.after(outcome, other) != Some(Version::Absent)) {
            self.reject(number, Rejection::Folded);
        }
    }

    /// What would stand at a path.
    fn after(&mut self, outcome: &Outcome, path: &WorkspacePath) -> Option<Version> {
        match outcome.get(path) {
            Some((number, version)) if !self.rejected.contains_key(number) => Some(version.clone()),
            _ => self.at(path).version,
        }
    }

    /// Rejects every write whose group has lost one.
    fn reject_groups(&mut self) {
        let group = |number: &usize| self.writes[*number].group;
        let lost: HashSet<u32> =
            self.rejected.keys().map(group).filter(|group| *group != 0).collect();
        for (number, write) in self.writes.iter().enumerate() {
            if lost.contains(&write.group) {
                self.rejected.entry(number).or_insert((Rejection::Group, Seq(0)));
            }
        }
    }

    fn judged(mut self, outcome: &Outcome) -> Judged {
        let decisions =
            (0..self.writes.len()).map(|number| self.decision(outcome, number)).collect();
        let steps = outcome.iter().filter_map(|(path, (_, put))| {
            let expect = self.at(path).version?;
            (!expect.same_value(put)).then(|| Step { path: path.clone(), expect, put: put.clone() })
        });
        let steps: Vec<_> = steps.collect();
        Judged { decisions, steps: order(steps, self.rules.folds) }
    }

    fn decision(&mut self, outcome: &Outcome, number: usize) -> Decision {
        let path = &self.writes[number].path;
        let Some((reason, way)) = self.rejected.get(&number).copied() else {
            return match outcome.contains_key(path) {
                true => Decision::Take,
                false => Decision::Stands(self.state.seq(path)),
            };
        };
        if matches!(reason, Rejection::Filtered | Rejection::NotAllowed) {
            return Decision::Reject { reason, theirs: None, seq: Some(Seq(0)) };
        }
        if let Some((_, version)) = outcome.get(path) {
            return Decision::Reject { reason, theirs: Some(version.clone()), seq: None };
        }
        let (theirs, seq) = (self.at(path).version, self.state.seq(path));
        Decision::Reject { reason, theirs, seq: Some(seq.max(way)) }
    }
}
