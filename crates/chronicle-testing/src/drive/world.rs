//! A real workspace with its history, its deaths, and the tale of what was done to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use chronicle_core::{
    Error, FAILPOINTS, Home, InitOptions, LogQuery, RewindRequest, Workspace, WorkspacePath,
};

use super::child::{self, Answer, Done, End, Operation, Refused};
use super::{Case, Result, Story};
use crate::dice::Dice;
use crate::git;
use crate::tree::{self, Options, Tree};
use crate::work::Random;

/// How often each failpoint killed a process of these plays.
static DEATHS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// How often each failpoint killed a process so far.
pub fn deaths() -> BTreeMap<String, u64> {
    DEATHS.lock().expect("nobody panics while counting").clone()
}

pub(super) struct World {
    pub(super) seed: u64,
    holder: tempfile::TempDir,
    workspace: Option<Workspace>,
    tale: Vec<String>,
    /// The test that does an operation in a process of its own, and how often it is asked to.
    kills: Option<(&'static str, usize)>,
    /// Dice of their own, so that a case does the same work with kills and without.
    fate: Dice,
    /// Whether repositories are looked at as git sees them.
    git: bool,
}

/// What is in the log, for telling whether an operation is.
struct Mark {
    records: u64,
    rewinds: usize,
}

impl World {
    pub(super) fn new(case: Case) -> Self {
        let holder = tempfile::Builder::new()
            .prefix("chronicle-case-")
            .tempdir()
            .expect("a scratch directory can be made");
        fs::create_dir(holder.path().join("ws")).expect("the workspace can be made");
        Self {
            seed: case.seed,
            holder,
            workspace: None,
            tale: Vec::new(),
            kills: case.kills,
            fate: Dice::new(case.seed ^ 0xdead),
            git: false,
        }
    }

    /// The same, with repositories in it.
    pub(super) fn with_git(self, git: bool) -> Self {
        Self { git, ..self }
    }

    pub(super) fn top(&self) -> PathBuf {
        self.holder.path().join("ws")
    }

    fn home(&self) -> Home {
        Home::at(&self.holder.path().join("home"))
    }

    pub(super) fn tell(&mut self, line: impl Into<String>) {
        self.tale.push(line.into());
    }

    /// The whole tale, with what went wrong at its end.
    pub(super) fn story(&self, what: &str) -> Story {
        format!("seed {}: {what}\nwhat was done:\n  {}", self.seed, self.tale.join("\n  "))
    }

    pub(super) fn fail<T>(&self, what: &str) -> Result<T> {
        Err(self.story(what))
    }

    pub(super) fn broken(&self, what: &str, error: &Error) -> Story {
        self.refused(what, &Refused::of(error))
    }

    pub(super) fn refused(&self, what: &str, refused: &Refused) -> Story {
        self.story(&format!("{what} failed ({}): {}", refused.code, refused.words))
    }

    pub(super) fn init(&mut self) -> Result {
        self.tell("init");
        let (workspace, _) = Workspace::init(&self.home(), &self.top(), &InitOptions::default())
            .map_err(|error| self.broken("init", &error))?;
        self.workspace = Some(workspace);
        Ok(())
    }

    /// Closes and opens the workspace, as the next process would.
    pub(super) fn reopen(&mut self) -> Result {
        self.tell("reopen");
        self.open()
    }

    fn open(&mut self) -> Result {
        self.workspace = None;
        let workspace = Workspace::open(&self.home(), &self.top())
            .map_err(|error| self.broken("open", &error))?;
        self.workspace = Some(workspace);
        Ok(())
    }

    pub(super) fn inner(&mut self) -> &mut Workspace {
        self.workspace.as_mut().expect("BUG: the workspace is used before init")
    }

    /// Does an operation, perhaps after a process that died of it.
    fn perform(&mut self, operation: &Operation) -> Result<Answer> {
        self.tell(operation.tell());
        if let Some(answer) = self.perform_dying(operation)? {
            return Ok(answer);
        }
        Ok(operation.perform(self.inner()))
    }

    fn perform_whole(&mut self, operation: &Operation) -> Result<Done> {
        let answer = self.perform(operation)?;
        answer.map_err(|refused| self.refused(&operation.tell(), &refused))
    }

    /// Sometimes has another process do it, and die. `None`: it is still to be done.
    fn perform_dying(&mut self, operation: &Operation) -> Result<Option<Answer>> {
        let Some((test, percent)) = self.kills else { return Ok(None) };
        if !self.fate.chance(percent) {
            return Ok(None);
        }
        let (before, mark) = (self.describe(), self.mark()?);
        self.workspace = None;
        let answer = self.send(test, operation)?;
        if answer.is_none() && self.fate.chance(30) {
            // Whoever finishes it may die of that too.
            self.send(test, &Operation::Open)?;
        }
        self.open()?;
        match answer {
            Some(answer) => Ok(Some(answer)),
            None => self.after_death(operation, &before, &mark),
        }
    }

    /// Has another process do it; its answer, if it lived.
    fn send(&mut self, test: &str, operation: &Operation) -> Result<Option<Answer>> {
        let point = self.point(operation);
        let end = child::send(self.holder.path(), test, operation, &point);
        match end.map_err(|what| self.story(&what))? {
            End::Survived(answer) => {
                self.tell(format!(
                    "  ({} by a process that never passed {point})",
                    operation.tell()
                ));
                Ok(Some(answer))
            }
            End::Died => {
                self.tell(format!("  ({} by a process that died at {point})", operation.tell()));
                let name = point.split(':').next().unwrap_or_default().to_owned();
                *DEATHS.lock().expect("nobody panics while counting").entry(name).or_default() += 1;
                Ok(None)
            }
        }
    }

    /// A failpoint that an operation may pass, and the time at which it kills.
    fn point(&mut self, operation: &Operation) -> String {
        let rewinds = matches!(operation, Operation::Rewind(_) | Operation::Open);
        let family = match self.fate.below(20) {
            // Few captures of these plays are large enough to pass one.
            0 => "store_",
            1..=15 if rewinds => "rewind_",
            1..=6 => "catalog_",
            _ => "capture_",
        };
        let fits = |name: &&&str| name.starts_with(family) && !OUT_OF_REACH.contains(name);
        let names: Vec<_> = FAILPOINTS.iter().filter(fits).collect();
        let name = *self.fate.pick(&names);
        let most = match *name {
            "rewind_after_step" => 8,
            "catalog_before_commit" => 3,
            _ => 1,
        };
        format!("{name}:{}", self.fate.between(1, most))
    }

    /// After a death it is all or nothing: says what came of it, or that it is to be done again.
    fn after_death(
        &mut self,
        operation: &Operation,
        before: &Tree,
        mark: &Mark,
    ) -> Result<Option<Answer>> {
        let now = self.mark()?;
        if matches!(operation, Operation::Rewind(_)) && now.rewinds > mark.rewinds {
            // Whoever asked for it compares the tree with the one after.
            self.tell("  (and it was finished)");
            return Ok(Some(Ok(Done { recorded: true, ..Done::default() })));
        }
        self.expect(before, "a process died before anything was recorded")?;
        let recorded = now.records > mark.records;
        if matches!(operation, Operation::Settle) {
            self.tell(format!("  (recorded: {recorded})"));
            return Ok(Some(Ok(Done { recorded, ..Done::default() })));
        }
        Ok(None)
    }

    fn mark(&mut self) -> Result<Mark> {
        let verified = self.inner().verify(false, &|_, _| {});
        let records = verified.map_err(|error| self.broken("verify", &error))?.records;
        let log = self.inner().log(&LogQuery::default());
        let log = log.map_err(|error| self.broken("log", &error))?;
        let rewind = |action: &str| ["rewind", "undo", "redo"].contains(&action);
        let rewinds = log.iter().filter(|snapshot| rewind(&snapshot.action_type)).count();
        Ok(Mark { records, rewinds })
    }

    /// Records what changed; whether it did, which only a death can prevent.
    pub(super) fn settle(&mut self) -> Result<bool> {
        Ok(self.perform_whole(&Operation::Settle)?.recorded)
    }

    pub(super) fn turn_start(&mut self, key: &str, session: &str) -> Result<u64> {
        let (key, session) = (key.to_owned(), session.to_owned());
        Ok(self.perform_whole(&Operation::TurnStart { key, session })?.turn)
    }

    pub(super) fn turn_end(&mut self, key: &str, session: &str) -> Result {
        let (key, session) = (key.to_owned(), session.to_owned());
        self.perform_whole(&Operation::TurnEnd { key, session }).map(drop)
    }

    pub(super) fn name_path(&mut self, path: &[u8], session: &str, key: &str) -> Result {
        let path = WorkspacePath::new(path).expect("BUG: a listed path is plain");
        let (key, session) = (key.to_owned(), session.to_owned());
        self.perform_whole(&Operation::Snapshot { path, key, session }).map(drop)
    }

    pub(super) fn rewind(&mut self, request: &RewindRequest) -> Result<Answer> {
        self.perform(&Operation::Rewind(Box::new(request.clone())))
    }

    /// A rewind that is not refused.
    pub(super) fn rewind_done(&mut self, request: &RewindRequest) -> Result<Done> {
        self.perform_whole(&Operation::Rewind(Box::new(request.clone())))
    }

    /// A rewind that must do everything that it was asked for.
    pub(super) fn rewind_whole(&mut self, request: &RewindRequest) -> Result<Done> {
        let done = self.rewind_done(request)?;
        match &done.said {
            Some(said) if said.partial || !said.left.is_empty() => {
                self.fail(&format!("rewind did only a part: {said:?}"))
            }
            _ => Ok(done),
        }
    }

    pub(super) fn verify(&mut self) -> Result {
        self.tell("verify");
        let verified = self.inner().verify(true, &|_, _| {});
        verified.map(drop).map_err(|error| self.broken("verify", &error))
    }

    pub(super) fn work(&mut self, work: &mut Random, count: usize) {
        for line in work.steps(count).into_iter().filter(|line| !line.starts_with("refused")) {
            self.tell(line);
        }
    }

    pub(super) fn describe(&self) -> Tree {
        let options = Options { all_times: true, repositories: self.git, ..Options::default() };
        tree::describe_with(&self.top(), &options)
    }

    pub(super) fn expect(&self, want: &Tree, what: &str) -> Result {
        self.expect_same(want, &self.describe(), what)
    }

    /// Git finds nothing missing or broken in these repositories.
    pub(super) fn expect_sound(&self, tree: &Tree, what: &str) -> Result {
        for repository in tree.repositories.keys() {
            if let Some(trouble) = git::trouble(&tree::real(&self.top(), repository)) {
                let path = repository.escape_ascii();
                return self.fail(&format!("{what}: repository \"{path}\" is broken: {trouble}"));
            }
        }
        Ok(())
    }

    pub(super) fn expect_same(&self, want: &Tree, got: &Tree, what: &str) -> Result {
        let lines = tree::differences(want, got);
        if lines.is_empty() {
            return Ok(());
        }
        self.fail(&format!("{what}:\n  {}", lines.join("\n  ")))
    }
}

/// What no operation of these plays passes: they adopt in this process and delete no object.
const OUT_OF_REACH: [&str; 2] = ["init_after_batch", "store_after_index_removal"];
