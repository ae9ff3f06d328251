//! The table `[checkpoint]`: what a checkpoint is made of, and what to run around its freeze.

use serde::Deserialize;

use super::CheckpointWhen;

/// What checkpoints are made of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSettings {
    /// How long the freeze may last, in milliseconds.
    pub freeze_limit_ms: Option<u64>,
    /// The parts; those that are found where nothing is said.
    pub part: Vec<CheckpointPart>,
    /// What is run when the freeze begins and when it ends.
    pub command: Vec<CheckpointCommand>,
    /// Files whose digests are noted, besides the lock files of package managers.
    pub artefacts: Vec<String>,
    /// When one is made by itself.
    pub when: CheckpointWhen,
}

/// One part: exactly one of its places is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointPart {
    /// Its name; made from its place where nothing is said.
    pub name: Option<String>,
    /// A git repository.
    pub git: Option<String>,
    /// A jj repository.
    pub jj: Option<String>,
    /// The data directory of a PostgreSQL cluster.
    pub postgres: Option<String>,
    /// A database of a PostgreSQL server: how to connect to it.
    pub database: Option<String>,
    /// A SQLite database.
    pub sqlite: Option<String>,
    /// A directory.
    pub directory: Option<String>,
    /// The driver to use.
    pub driver: Option<String>,
    /// A command that prints the revision of the schema.
    pub revision: Option<Vec<String>>,
    /// The directory of PostgreSQL's programs.
    pub programs: Option<String>,
}

/// What is run around a freeze.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointCommand {
    /// Run before anything is frozen: the program and its arguments.
    pub freeze: Vec<String>,
    /// Run when everything may go on, whatever happened.
    pub thaw: Vec<String>,
    /// How long either may take, in milliseconds.
    pub limit_ms: Option<u64>,
}

impl CheckpointSettings {
    /// What only a person may want, in words: programs that are run, and places outside the workspace,
    /// which a restore writes to.
    pub(super) fn more_than(&self, other: &Self) -> Vec<String> {
        let mut words = Vec::new();
        for command in self.command.iter().filter(|command| !other.command.contains(command)) {
            let said = [command.freeze.join(" "), command.thaw.join(" ")].join(" / ");
            words.push(format!("checkpoint.command: {said}"));
        }
        for part in self.part.iter().filter(|part| !other.part.contains(part)) {
            words.extend(part.reaches_out().map(|what| format!("checkpoint.part: {what}")));
        }
        words
    }
}

impl CheckpointPart {
    /// What of it runs a program or lies outside the workspace.
    fn reaches_out(&self) -> Option<String> {
        let places = [&self.git, &self.jj, &self.postgres, &self.sqlite, &self.directory];
        let outside = |place: &&String| {
            place.starts_with('/') || place.split('/').any(|component| component == "..")
        };
        let place = places.into_iter().flatten().find(outside).cloned();
        let runs = || self.revision.as_ref().map(|command| command.join(" "));
        place.or_else(|| self.database.clone()).or_else(|| self.programs.clone()).or_else(runs)
    }
}
