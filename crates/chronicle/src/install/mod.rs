//! Installing into agents: their own settings in, the same settings with our hooks out.
//!
//! What decides is pure: `dialect` says which hooks an agent needs and where its settings lie,
//! `settings`, `feature` and `content` turn text into text, `plan` says what becomes of a file.
//! Only `files` and `receipt` touch the disk.

pub(crate) mod command;
pub(crate) mod content;
mod cut;
pub(crate) mod dialect;
mod feature;
pub(crate) mod files;
pub(crate) mod integration;
mod json;
pub(crate) mod plan;
pub(crate) mod receipt;
mod settings;

use std::fmt;

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The person's own, for every project.
    User,
    /// The person's own for one project, which nobody commits.
    Project,
    /// The project's, which everybody gets.
    Shared,
}

impl Level {
    /// Every level.
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::Project, Self::Shared];

    /// Its word, as the option has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Shared => "shared",
        }
    }
}

/// Why text is not settings that can be edited, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl Malformed {
    /// Something is wrong at a place, both counted from 1.
    fn at(line: usize, column: usize, why: impl fmt::Display) -> Self {
        Self(format!("line {line}, column {column}: {why}"))
    }

    /// A value is not what it has to be.
    fn not(what: &str, expected: &str) -> Self {
        Self(format!("{what} is not {expected}"))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}
