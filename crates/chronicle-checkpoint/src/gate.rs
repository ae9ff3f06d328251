//! Everything that must hold before a restore changes anything: questions, and each answer with its reason.

use std::path::Path;

use chronicle_core::{
    CheckpointRecord, GitChoice, OnConflict, RewindKind, RewindRequest, Seq, Workspace,
    WorkspacePath,
};
use serde::Serialize;

use crate::declare::Plan;
use crate::driver::Restoration;
use crate::drivers;
use crate::error::{Error, Problem, Result, sentence};
use crate::kept::{self, as_part};
use crate::lockfile::{LockFile, LockedPart};
use crate::part::{Part, PartKind};

/// One question and its answer.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// The question.
    pub question: String,
    /// Why not; nothing where the answer is yes.
    pub no: Vec<Problem>,
}

/// Which parts are restored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Which {
    /// All, and the workspace's files.
    #[default]
    All,
    /// These alone, forced with words.
    Only(Vec<String>),
}

impl Which {
    /// Whether it takes in a part.
    pub fn holds(&self, part: &LockedPart) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(&part.name),
        }
    }

    /// Whether the workspace's files go back too.
    pub fn holds_code(&self, lock: &LockFile) -> bool {
        *self == Self::All || lock.parts.iter().any(|part| part.kind.is_code() && self.holds(part))
    }
}

/// The request that brings the workspace's files to a moment, but for the data in it.
pub(crate) fn rewind_to(workspace: &Workspace, lock: &LockFile, moment: Seq) -> RewindRequest {
    let root = workspace.root().to_owned();
    let data = lock.parts.iter().filter(|part| !part.kind.is_code() && !part.path.is_empty());
    let mut except: Vec<WorkspacePath> = Vec::new();
    for part in data {
        let path = root.join(&part.path);
        let names = match part.kind {
            PartKind::Sqlite => &["", "-wal", "-shm", "-journal"][..],
            _ => &[""],
        };
        for suffix in names {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            except.extend(workspace.path(Path::new(&name), &root));
        }
    }
    RewindRequest {
        except,
        exact: true,
        all_sessions: true,
        take_shared: true,
        on_conflict: OnConflict::Replace,
        git: Some(GitChoice::Restore),
        ..RewindRequest::new(RewindKind::Rewind { target: format!("seq:{moment}") })
    }
}

/// The part at its place now, with what was declared about it; a place outside the workspace must be
/// declared by a person.
pub(crate) fn part_now(workspace: &Workspace, plan: &Plan, locked: &LockedPart) -> Result<Part> {
    let was = as_part(locked, workspace.root());
    match plan.part(&locked.name) {
        Some(now) if now.kind != locked.kind => {
            let why = format!("it was a {} and is declared as a {} now", locked.kind, now.kind);
            Err(Problem::new("other_kind", why, "Declare it in chronicle.toml as it was").into())
        }
        Some(now) if now.path != was.path => {
            let (from, to) = (was.path.display(), now.path.display());
            let why = format!("it lay at {from} and is declared at {to} now");
            Err(Problem::new("moved_part", why, "Declare it in chronicle.toml where it was").into())
        }
        Some(now) => Ok(now.clone()),
        None if was.path.starts_with(workspace.root()) && locked.kind != PartKind::Database => {
            Ok(was)
        }
        None => {
            let why = "it lies outside the workspace and is not declared any more";
            Err(Problem::new(
                "undeclared_part",
                why,
                "Declare it in [checkpoint] of chronicle.toml",
            )
            .into())
        }
    }
}

/// Does something with a part on its way back, whose surroundings only the caller knows.
pub type Asking<'a> = dyn Fn(
        &Part,
        &LockedPart,
        &mut dyn FnMut(&Restoration<'_>) -> Result<Vec<Problem>>,
    ) -> Result<Vec<Problem>>
    + 'a;

/// Asks everything; nothing is changed. Every "no" stops a restore.
pub fn ask(
    workspace: &mut Workspace,
    plan: &Plan,
    record: &CheckpointRecord,
    lock: &LockFile,
    which: &Which,
    restoration: &Asking<'_>,
) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    let verified = kept::verify(workspace, record)?;
    let question = "is everything that the checkpoint holds there, and what it was?".to_owned();
    answers.push(Answer { question, no: verified.problems });
    let question = "does the history verify up to the checkpoint?".to_owned();
    let history = workspace.verify(false, &|_, _| ());
    let no =
        history.err().map(|error| Problem::new(error.code(), sentence(&error), "chronicle doctor"));
    answers.push(Answer { question, no: no.into_iter().collect() });
    for locked in lock.parts.iter().filter(|part| which.holds(part)) {
        let question = format!("can part {:?} be restored at its place?", locked.name);
        let no = match part_now(workspace, plan, locked) {
            Ok(part) => restoration(&part, locked, &mut |it| match drivers::named(
                &locked.captured.driver,
            ) {
                Some(driver) => driver.gate(it),
                None => Ok(vec![kept::unknown_driver(locked)]),
            }),
            Err(error) => Err(error),
        };
        let no = match no {
            Ok(no) => no.into_iter().map(|problem| problem.of(&locked.name)).collect(),
            Err(error) => vec![error.into_problem(&locked.name)],
        };
        answers.push(Answer { question, no });
    }
    if which.holds_code(lock) {
        let question = "can the workspace's files go back to that moment?".to_owned();
        let request = rewind_to(workspace, lock, Seq(lock.moment));
        let no = match workspace.plan(&request) {
            Ok(_) => Vec::new(),
            Err(error) => {
                let next = "chronicle status says who is at work";
                vec![Problem::new(error.code(), sentence(&error), next)]
            }
        };
        answers.push(Answer { question, no });
    }
    answers.extend(alignment(workspace, lock, which)?);
    Ok(answers)
}

/// Whether code and data would be of one moment: asked where only a part goes back.
fn alignment(workspace: &Workspace, lock: &LockFile, which: &Which) -> Result<Option<Answer>> {
    let Which::Only(names) = which else { return Ok(None) };
    let question = "would code and data be of one moment?".to_owned();
    let mut no = Vec::new();
    let left: Vec<_> = lock.parts.iter().filter(|part| !which.holds(part)).collect();
    for name in names.iter().filter(|name| lock.part(name).is_none()) {
        let why = format!("no part of the checkpoint is called {name:?}");
        no.push(Problem::new("unknown_part", why, "chronicle checkpoint show names its parts"));
    }
    for part in left.iter().filter(|part| part.kind.is_code()) {
        let path = workspace.root().join(&part.path);
        let Some(was) = &part.captured.revision else { continue };
        if let Some((code, words)) = drivers::compare_commits(&path, was)? {
            let why = format!("the code that stays is {words} than the data that goes back");
            let next = "Restore the whole checkpoint, or say --partial-anyway with a reason";
            no.push(Problem::new(code, why, next).of(&part.name));
        }
    }
    for part in left.iter().filter(|part| !part.kind.is_code()) {
        let why = "the data that stays is of another moment than what goes back".to_owned();
        let next = "Restore the whole checkpoint, or say --partial-anyway with a reason";
        no.push(Problem::new("data_stays", why, next).of(&part.name));
    }
    Ok(Some(Answer { question, no }))
}

/// The refusal, if any answer is no.
pub(crate) fn refuse(answers: &[Answer], forced: bool) -> Result<()> {
    let forgiven = ["data_stays", "code_newer", "code_older", "code_diverged"];
    let no: Vec<_> = answers
        .iter()
        .flat_map(|answer| answer.no.iter().cloned())
        .filter(|problem| !(forced && forgiven.contains(&problem.code)))
        .collect();
    if no.is_empty() { Ok(()) } else { Err(Error::Gate(no)) }
}
