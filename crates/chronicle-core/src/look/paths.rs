//! A look at named paths, before an action that is about to touch them.
//!
//! Every named path and everything below it becomes a candidate, changed or not, so that the
//! caller sees what the action's befores are; `Candidate::is_current` tells which to read.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::names::Names;
use super::walk::{Unit, flavor};
use super::{Candidate, Listing, Problem, Survey, SurveyOptions, check_cancelled};
use crate::entry::{Entry, Why};
use crate::error::Result;
use crate::filter::Filter;
use crate::fs::{self, Roots, Stat};
use crate::known::{Known, Part};
use crate::path::WorkspacePath;

/// Looks up what is known of one path.
type Lookup<'a> = &'a dyn Fn(&WorkspacePath) -> Result<Option<Known>>;
/// Makes the filter: only what lies below a named directory needs one, and it is dear to make.
type MakeFilter<'a> = &'a dyn Fn() -> Result<Filter>;

/// Looks at named paths and everything below them.
///
/// A filter, if given, keeps out only what lies below a named path that it admits: what somebody
/// named is captured whatever filters say. Directories on other file systems are not entered.
pub fn survey_paths(
    roots: &Roots,
    paths: &[WorkspacePath],
    known: Lookup<'_>,
    filter: Option<MakeFilter<'_>>,
    options: &SurveyOptions<'_>,
) -> Result<Survey> {
    let mut look = Named { roots, known, options, found: Survey::default(), seen: BTreeMap::new() };
    let mut made = None;
    for path in paths {
        look.named(path, filter, &mut made)?;
    }
    let mut found = look.found;
    found.candidates = look.seen.into_values().collect();
    found.listings.sort_by(|a, b| a.path.cmp(&b.path));
    found.units.sort_unstable();
    Ok(found)
}

struct Named<'a> {
    roots: &'a Roots,
    known: Lookup<'a>,
    options: &'a SurveyOptions<'a>,
    found: Survey,
    /// By path, because a path and a directory above it may both be named.
    seen: BTreeMap<WorkspacePath, Candidate>,
}

/// Something found on the way down.
struct Step {
    path: WorkspacePath,
    stat: Stat,
    /// The device of the directory it stands in.
    parent_dev: u64,
    unit: Option<Arc<Unit>>,
}

impl<'a> Named<'a> {
    fn named(
        &mut self,
        path: &WorkspacePath,
        make: Option<MakeFilter<'_>>,
        made: &mut Option<Filter>,
    ) -> Result<()> {
        let unit = self.unit_above(path)?.map(Arc::new);
        let Some(stat) = self.roots.lstat(path)? else {
            let part = unit.as_ref().map_or(Some(Part::Ordinary), |unit| unit.part(path, false));
            if let Some(part) = part {
                self.candidate(path.clone(), None, part, unit.as_deref())?;
            }
            return Ok(());
        };
        if let (None, Some(make), true) = (&made, make, stat.is_directory()) {
            *made = Some(make()?);
        }
        let admits = |filter: &&Filter| !filter.excludes(path, stat.is_directory());
        let filter = made.as_ref().filter(admits);
        let mut steps = vec![Step { path: path.clone(), stat, parent_dev: stat.dev, unit }];
        while let Some(step) = steps.pop() {
            check_cancelled(self.options.cancelled)?;
            let is_top = step.path == *path;
            self.step(step, filter.filter(|_| !is_top), &mut steps)?;
        }
        Ok(())
    }

    /// The repository whose metadata a path lies in.
    fn unit_above(&self, path: &WorkspacePath) -> Result<Option<Unit>> {
        for above in path.ancestors().filter(|above| !above.is_root()) {
            if self.roots.root_of(&above).is_err() {
                break;
            }
            if let Some((parent, name)) = self.roots.parent(&above)?
                && let Some(flavor) = self.flavor(parent.as_fd(), name, &above)?
            {
                return Ok(Some(Unit::new(above, flavor)));
            }
        }
        Ok(None)
    }

    fn flavor(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &WorkspacePath,
    ) -> Result<Option<crate::repository::Flavor>> {
        match flavor(parent, name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            other => other.map_err(|error| self.roots.failure(error, "open", path)),
        }
    }

    fn step(&mut self, step: Step, filter: Option<&Filter>, steps: &mut Vec<Step>) -> Result<()> {
        let Step { path, stat, unit, .. } = &step;
        let is_directory = stat.is_directory();
        if filter.is_some_and(|filter| unit.is_none() && filter.excludes(path, is_directory)) {
            let (was, stat) = ((self.known)(path)?, Some(*stat));
            let part = Part::Ordinary;
            let candidate = Candidate { path: path.clone(), stat, was, part, filtered: true };
            self.seen.entry(path.clone()).or_insert(candidate);
            return Ok(());
        }
        if !is_directory {
            self.found.files += 1;
        }
        if is_directory
            && unit.is_none()
            && let Some((parent, name)) = self.roots.parent(path)?
            && let Some(flavor) = self.flavor(parent.as_fd(), name, path)?
        {
            let unit = Arc::new(Unit::new(path.clone(), flavor));
            if !matches!((self.known)(path)?, Some(Known { entry: Entry::Repository(_), .. })) {
                self.report(&unit);
            }
            return self.descend(Step { unit: Some(unit), ..step }, steps);
        }
        let part = match unit {
            Some(unit) => unit.part(path, is_directory),
            None => Some(Part::Ordinary),
        };
        let Some(part) = part else { return Ok(()) };
        self.candidate(path.clone(), Some(*stat), part, unit.as_deref())?;
        if is_directory { self.descend(step, steps) } else { Ok(()) }
    }

    fn descend(&mut self, step: Step, steps: &mut Vec<Step>) -> Result<()> {
        if step.stat.dev != step.parent_dev {
            let detail = "It lies on another file system and was not entered".to_owned();
            self.found.problems.push(Problem { path: step.path, why: Why::NotSeen, detail });
            return Ok(());
        }
        let time = self.options.clock.now();
        let root = self.roots.root_of(&step.path)?;
        let mut names = Names::default();
        let mut complete = false;
        match names.list(root.handle()?, root.below(&step.path), &step.path, &step.stat) {
            Ok(listed) => {
                self.found.directories += 1;
                complete = listed.doubt.is_none();
                self.children(&step, &listed.directory, &names, steps)?;
                if let Some(error) = listed.doubt {
                    self.problem(&step.path, error);
                }
            }
            Err(error) => self.problem(&step.path, error),
        }
        self.found.listings.push(Listing { path: step.path, complete, time, mount: None });
        Ok(())
    }

    fn children(
        &mut self,
        step: &Step,
        directory: impl AsFd,
        names: &Names,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        for index in 0..names.len() {
            let name = names.get(index);
            let path = step.path.join(name.to_bytes());
            match fs::lstat_at(&directory, name) {
                Ok(Some(stat)) => {
                    let (parent_dev, unit) = (step.stat.dev, step.unit.clone());
                    steps.push(Step { path, stat, parent_dev, unit });
                }
                Ok(None) => {}
                Err(error) => {
                    self.problem(&path, error);
                    let part = if step.unit.is_some() { Part::Neutral } else { Part::Ordinary };
                    self.candidate(path, None, part, None)?;
                }
            }
        }
        Ok(())
    }

    fn candidate(
        &mut self,
        path: WorkspacePath,
        stat: Option<Stat>,
        part: Part,
        unit: Option<&Unit>,
    ) -> Result<()> {
        let was = (self.known)(&path)?;
        let candidate = Candidate { path, stat, was, part, filtered: false };
        if part == Part::Significant
            && !candidate.is_current()
            && let Some(unit) = unit
        {
            self.report(unit);
        }
        self.seen.insert(candidate.path.clone(), candidate);
        Ok(())
    }

    fn report(&mut self, unit: &Unit) {
        if !self.found.units.contains(&unit.path) {
            self.found.units.push(unit.path.clone());
        }
    }

    fn problem(&mut self, path: &WorkspacePath, error: Errno) {
        let why = if error == Errno::BUSY { Why::Changing } else { Why::Unreadable };
        let detail = std::io::Error::from(error).to_string();
        self.found.problems.push(Problem { path: path.clone(), why, detail });
    }
}
