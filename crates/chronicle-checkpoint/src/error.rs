//! What can go wrong with a checkpoint, with a stable word for each.

use std::path::PathBuf;

use serde::Serialize;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the thing it went wrong with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The undo layer itself failed.
    #[error(transparent)]
    Core(#[from] chronicle_core::Error),
    /// A file could not be used.
    #[error("Could not {action} {}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Another program failed.
    #[error("{program} failed: {why}")]
    Program {
        /// The program, as it was called.
        program: String,
        /// What it said last.
        why: String,
    },
    /// A database said no.
    #[error("Database {}: {why}", .path.display())]
    Sqlite {
        /// Its file.
        path: PathBuf,
        /// What it said.
        why: String,
    },
    /// The freeze took longer than it may.
    #[error(
        "The freeze limit was reached while {0}: everything runs again, and there is no checkpoint"
    )]
    FreezeLimit(String),
    /// Another checkpoint or restore of this workspace is under way.
    #[error("Another checkpoint or restore is under way")]
    Busy,
    /// What people declared cannot be followed.
    #[error("{0}")]
    Declared(String),
    /// No checkpoint is called so.
    #[error("No checkpoint is called {0:?}")]
    Unknown(String),
    /// A checkpoint, or something of it, cannot be used as it is.
    #[error("{}", .0.words())]
    Refused(Problem),
    /// The gate said no: nothing was changed.
    #[error("{}", words_of(.0))]
    Gate(Vec<Problem>),
    /// A restore failed behind its commit point and was taken back.
    #[error("The restore was taken back, everything is as it was before: {0}")]
    TakenBack(String),
}

/// One reason why a checkpoint cannot be used, or not now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A stable word for this kind of reason.
    pub code: &'static str,
    /// The part, if it is about one.
    pub part: Option<String>,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub next: String,
}

impl Problem {
    /// A reason, without a part.
    pub fn new(code: &'static str, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code, part: None, why: why.into(), next: next.into() }
    }

    /// The same about a part.
    #[must_use]
    pub fn of(self, part: &str) -> Self {
        Self { part: Some(part.to_owned()), ..self }
    }

    /// As one sentence.
    pub fn words(&self) -> String {
        match &self.part {
            Some(part) => format!("Part {part:?}: {}", self.why),
            None => self.why.clone(),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

fn words_of(problems: &[Problem]) -> String {
    let words: Vec<_> = problems.iter().map(Problem::words).collect();
    format!("The gate says no, and nothing was changed: {}", words.join("; "))
}

impl Error {
    /// A stable word for the kind of failure.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Core(error) => error.code(),
            Self::Io { .. } => "io",
            Self::Program { .. } => "program",
            Self::Sqlite { .. } => "sqlite",
            Self::FreezeLimit(_) => "freeze_limit",
            Self::Busy => "busy",
            Self::Declared(_) => "declared",
            Self::Unknown(_) => "unknown_checkpoint",
            Self::Refused(problem) => problem.code,
            Self::Gate(problems) => problems.first().map_or("gate", |problem| problem.code),
            Self::TakenBack(_) => "taken_back",
        }
    }

    /// The same failure as a reason to refuse, about a part.
    pub fn into_problem(self, part: &str) -> Problem {
        match self {
            Self::Refused(problem) if problem.part.is_none() => problem.of(part),
            Self::Refused(problem) => problem,
            other => Problem::new(other.code(), sentence(&other), "").of(part),
        }
    }
}

/// An error with its causes as one sentence.
pub fn sentence(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        words = format!("{words}: {source}");
        cause = source.source();
    }
    words
}

/// Names the file that something failed on.
pub trait Context<T> {
    /// Names it.
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for Result<T, E> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.into(), source: source.into() })
    }
}
