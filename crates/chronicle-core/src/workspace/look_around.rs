//! Looking at the workspace: everywhere, or at some paths; nothing is committed here.

use std::collections::{BTreeSet, HashMap};

use super::capture::Look;
use super::link::group_links;
use super::sketch::Sketch;
use super::views::{kept, why_text};
use super::{Workspace, unit};
use crate::catalog::{LocalState, Log};
use crate::entry::{Entry, MovedFrom};
use crate::error::Result;
use crate::known::{Known, KnownTable, Part};
use crate::look::{
    Candidate, ExamineOptions, Examined, Survey, SurveyOptions, default_threads, examine_all,
    survey, survey_paths,
};
use crate::path::WorkspacePath;
use crate::store::Intake;
use crate::view::KeptView;

impl Workspace {
    /// The full look: a walk over every root against the known state.
    pub(super) fn look(&self) -> Result<Look> {
        self.check_root()?;
        let table = self.catalog.known_table()?;
        let filter = self.filter()?;
        let options = SurveyOptions::default();
        let survey = survey(&self.roots, &table, &filter, &options)?;
        Ok(Look { everywhere: true, ..self.examine_survey(survey, &table)? })
    }

    /// Looks at some paths only, with everything below those that are directories.
    pub(super) fn look_at(&self, paths: &[WorkspacePath]) -> Result<Look> {
        let known = |path: &WorkspacePath| self.catalog.known(path);
        let options = SurveyOptions { threads: 1, clock: &*self.clock, cancelled: None };
        let filter = || self.filter();
        let mut survey = survey_paths(&self.roots, paths, &known, Some(&filter), &options)?;
        self.add_vanished_below(&mut survey)?;
        let current = current_entries(&survey, paths);
        survey.candidates.retain(|candidate| !candidate.is_current() && is_news(candidate));
        self.add_unknown_ancestors(&mut survey)?;
        let quiet = survey.candidates.is_empty() && survey.vanished.is_empty();
        if quiet && survey.units.is_empty() {
            return Ok(Look { current, ..Look::default() });
        }
        self.check_root()?;
        let table = self.partial_table(&survey.candidates)?;
        let look = self.examine_with(survey, &table, self.intake()?.in_haste())?;
        Ok(Look { current, ..look })
    }

    /// What was known below the directories that were looked at and is not there any more.
    fn add_vanished_below(&self, survey: &mut Survey) -> Result<()> {
        let seen: BTreeSet<_> = survey.candidates.iter().map(|c| c.path.clone()).collect();
        let was_directory = |candidate: &&Candidate| {
            candidate.was.as_ref().is_some_and(|was| was.entry.is_directory())
        };
        let mut top: Option<WorkspacePath> = None;
        for candidate in survey.candidates.iter().filter(was_directory) {
            if top.as_ref().is_some_and(|top| candidate.path.is_within(top)) {
                continue;
            }
            for (path, known) in self.catalog.known_below(&candidate.path)? {
                if !seen.contains(&path) && self.stat(&path)?.is_none() {
                    survey.vanished.push((path, known));
                }
            }
            top = Some(candidate.path.clone());
        }
        Ok(())
    }

    /// Directories above what is looked at that nobody has seen yet, or only as something else:
    /// without them, nothing would notice later that one of them is gone with all that it held.
    fn add_unknown_ancestors(&self, survey: &mut Survey) -> Result<()> {
        let present: Vec<_> = survey.candidates.iter().filter(|c| c.stat.is_some()).collect();
        let new = present.iter().filter(|candidate| candidate.was.is_none());
        let above: BTreeSet<_> = new.flat_map(|candidate| candidate.path.ancestors()).collect();
        let seen: BTreeSet<_> = present.iter().map(|candidate| &candidate.path).collect();
        let open = |known: &Known| known.entry.is_directory() || known.entry.is_unknown();
        let mut unseen = Vec::new();
        for path in above.into_iter().filter(|path| !seen.contains(path)) {
            // Above a single file outside the workspace nothing is ours.
            if self.roots.root_of(&path).is_err() {
                continue;
            }
            let was = self.catalog.known(&path)?;
            if was.as_ref().is_some_and(open) {
                continue;
            }
            if let Some(stat) = self.roots.lstat(&path)? {
                let (stat, part) = (Some(stat), Part::Ordinary);
                unseen.push(Candidate { path, stat, was, part, filtered: false });
            }
        }
        survey.candidates.extend(unseen);
        survey.candidates.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    /// The known rows of the directories that some candidates lie in.
    fn partial_table(&self, candidates: &[Candidate]) -> Result<KnownTable> {
        let mut table = KnownTable::default();
        // Only of what nobody knew it must be proven that it was not there.
        for candidate in candidates.iter().filter(|candidate| candidate.was.is_none()) {
            for directory in candidate.path.ancestors() {
                if table.rows.contains_key(&directory) {
                    break;
                }
                let Some(known) = self.catalog.known_directory(&directory)? else { continue };
                let start = table.arena.len();
                table.arena.extend(known.encode());
                table.rows.insert(directory, start..table.arena.len());
            }
        }
        Ok(table)
    }

    /// Reads what a survey found to be new or different.
    pub(super) fn examine_survey(&self, survey: Survey, table: &KnownTable) -> Result<Look> {
        self.examine_with(survey, table, self.intake()?)
    }

    fn examine_with(
        &self,
        survey: Survey,
        table: &KnownTable,
        mut intake: Intake<'_>,
    ) -> Result<Look> {
        let threads = if survey.candidates.len() > 8 { default_threads() } else { 1 };
        let options =
            ExamineOptions { threads, clock: &*self.clock, cancelled: None, progress: None };
        let examined = examine_all(&self.roots, &survey.candidates, &intake, &options)?;
        let seq = self.catalog.head()?.seq;
        let mut sketch = Sketch::new(table, self.tops(), seq);
        let mut pairs: Vec<_> =
            survey.candidates.iter().map(|c| c.was.clone()).zip(examined).collect();
        let born = |index: usize| self.born_ns(&survey.candidates[index].path);
        group_links(&mut pairs, &survey.vanished, &born);
        sketch.add_vanished(&survey.vanished);
        let moved = self.moved(&survey, &pairs)?;
        let unread: Vec<_> = survey.candidates.iter().zip(&pairs).filter_map(unread).collect();
        for (candidate, (_, examined)) in survey.candidates.iter().zip(pairs) {
            let from = moved.get(&candidate.path).cloned();
            sketch.add(candidate, examined, from.map(|path| MovedFrom { path, seq }));
        }
        for path in &survey.units {
            self.add_unit(&mut sketch, path, &intake)?;
        }
        sketch.add_listings(&survey.listings);
        let mut look = sketch.finish();
        look.rows = intake.finish()?;
        self.bases().shrink(&mut look.rows, self.home.secrets());
        look.hold = Some(intake.hold());
        look.problems.extend(unread);
        look.blind = survey.problems.iter().map(|problem| problem.path.clone()).collect();
        let problems = survey.problems.iter();
        look.problems.extend(problems.map(|problem| KeptView {
            path: problem.path.to_string(),
            reason: problem.detail.clone(),
        }));
        Ok(look)
    }

    /// Which new paths are old inodes that left another path: the new path and the old one.
    fn moved(
        &self,
        survey: &Survey,
        pairs: &[(Option<Known>, Examined)],
    ) -> Result<HashMap<WorkspacePath, WorkspacePath>> {
        let mut left: HashMap<u64, (&WorkspacePath, &Known)> = HashMap::new();
        for (path, known) in &survey.vanished {
            if let (Some(signature), Part::Ordinary) = (known.signature, known.part) {
                left.insert(signature.ino, (path, known));
            }
        }
        for (candidate, (was, examined)) in survey.candidates.iter().zip(pairs) {
            if let (Some(was), Some(signature)) = (was, was.as_ref().and_then(|was| was.signature))
                && examined.known.signature.is_none_or(|now| now.ino != signature.ino)
                && candidate.part == Part::Ordinary
            {
                left.insert(signature.ino, (&candidate.path, was));
            }
        }
        let mut moved = HashMap::new();
        if left.is_empty() {
            return Ok(moved);
        }
        for (candidate, (was, examined)) in survey.candidates.iter().zip(pairs) {
            let Some(now) = examined.known.signature else { continue };
            let stayed =
                was.as_ref().and_then(|was| was.signature).is_some_and(|s| s.ino == now.ino);
            let Some((old, known)) = left.get(&now.ino).filter(|_| !stayed) else { continue };
            if **old != candidate.path && self.is_same_inode(&candidate.path, known, examined)? {
                moved.insert(candidate.path.clone(), (*old).clone());
            }
        }
        Ok(moved)
    }

    /// The paths of the roots themselves.
    pub(super) fn tops(&self) -> Vec<WorkspacePath> {
        self.roots.iter().map(|root| root.prefix().clone()).collect()
    }

    /// When the inode at a path was born; 0 where nobody can tell.
    pub(super) fn born_ns(&self, path: &WorkspacePath) -> i64 {
        self.roots.born_ns(path).ok().flatten().unwrap_or(0)
    }

    /// Whether a path holds the very inode that was known elsewhere, and not a new one with its number.
    fn is_same_inode(&self, path: &WorkspacePath, was: &Known, now: &Examined) -> Result<bool> {
        let (Some(old), Some(new)) = (was.signature, now.known.signature) else { return Ok(false) };
        const KIND: u32 = 0o170_000;
        if old.mode & KIND != new.mode & KIND {
            return Ok(false);
        }
        Ok(match self.roots.born_ns(path)? {
            Some(born) => born <= old.ctime_ns,
            None => old.size == new.size && old.mtime_ns == new.mtime_ns,
        })
    }

    /// Reads a repository's metadata as one value and compares it with the last.
    fn add_unit(
        &self,
        sketch: &mut Sketch<'_>,
        path: &WorkspacePath,
        intake: &Intake<'_>,
    ) -> Result<()> {
        let Some((bundle, known)) = unit::read(&self.roots, path, intake)? else { return Ok(()) };
        let was = self.catalog.known(path)?;
        if let Some(Known { entry: Entry::Repository(old), .. }) = &was
            && let Entry::Repository(new) = &known.entry
        {
            if old.identity == new.identity {
                return Ok(());
            }
            if let Ok(old) = self.bundle(&old.bundle) {
                sketch.look.moves.push(crate::repository::describe_move(&old, &bundle));
            }
        }
        sketch.add_known(path, was, known);
        Ok(())
    }
}

/// What could not be read, and why: a capture that met it saw only a part.
pub(super) fn unread(
    (candidate, (_, examined)): (&Candidate, &(Option<Known>, Examined)),
) -> Option<KeptView> {
    match examined.known.entry {
        Entry::Unknown(why) if why.is_failure() => {
            Some(kept(&candidate.path, why_text(why).to_owned()))
        }
        _ => None,
    }
}

/// The entries of the named paths that are still what they are known as.
fn current_entries(survey: &Survey, paths: &[WorkspacePath]) -> HashMap<WorkspacePath, Entry> {
    let named = survey.candidates.iter().filter(|c| c.is_current() && paths.contains(&c.path));
    let entry = |c: &Candidate| Some((c.path.clone(), c.was.as_ref()?.entry.clone()));
    named.filter_map(entry).collect()
}

/// Whether there is anything to say of a candidate: nothing that was nothing is no news.
pub(super) fn is_news(candidate: &Candidate) -> bool {
    candidate.stat.is_some() || candidate.was.is_some()
}
