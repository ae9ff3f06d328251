//! What a checkpoint is made of: the parts, as people declare them or as they are found.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Words by name: what a driver notes about what it did, to be read again by itself.
pub type Parameters = BTreeMap<String, String>;

/// What kind of thing a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// A git repository with its working copy.
    Git,
    /// A jj repository with its working copy.
    Jj,
    /// A PostgreSQL cluster: its data directory.
    Postgres,
    /// One database of a PostgreSQL server that is not ours.
    Database,
    /// A SQLite database: the file with its `-wal` and `-journal`.
    Sqlite,
    /// A directory.
    Directory,
}

impl PartKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Git, Self::Jj, Self::Postgres, Self::Database, Self::Sqlite, Self::Directory];

    /// Its word in `chronicle.toml` and `chronicle.lock`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Jj => "jj",
            Self::Postgres => "postgres",
            Self::Database => "database",
            Self::Sqlite => "sqlite",
            Self::Directory => "directory",
        }
    }

    /// Whether it is code; the others are data.
    pub fn is_code(self) -> bool {
        matches!(self, Self::Git | Self::Jj)
    }
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for PartKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or(())
    }
}

/// One thing that a checkpoint freezes with the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name, unique in the workspace.
    pub name: String,
    /// What it is.
    pub kind: PartKind,
    /// Where it lies, absolute; of a database of somebody else's server, empty.
    pub path: PathBuf,
    /// What else was said about it: the connection of a database, the port of a cluster, ...
    pub parameters: Parameters,
    /// The driver that people want for it; the fastest that fits where nothing is said.
    pub driver: Option<String>,
    /// A command whose first line of output is the schema's revision.
    pub revision: Option<Vec<String>>,
}

impl Part {
    /// A part with nothing but its kind and place said.
    pub fn new(name: &str, kind: PartKind, path: &Path) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            path: path.to_owned(),
            parameters: Parameters::new(),
            driver: None,
            revision: None,
        }
    }

    /// The same part at another place, for a look.
    #[must_use]
    pub fn moved_to(&self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }
}

/// Whether a text can be the name of a part: it becomes a part of file names.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty() && text.len() <= 64 && !text.starts_with(['.', '-']) && text.chars().all(plain)
}
