//! From what people wrote, or what lies in the workspace, to the parts of a checkpoint.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronicle_core::{CheckpointCommand, CheckpointPart, CheckpointSettings, Workspace};

use crate::drivers::is_database;
use crate::error::{Error, Result};
use crate::part::{Part, PartKind, is_name};

/// How long a freeze may last where nothing is said.
const FREEZE_LIMIT: Duration = Duration::from_secs(10);
/// How long a command around the freeze may take where nothing is said.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// Directories are not searched deeper, and no more of them.
const DEEPEST: usize = 6;
const MOST: usize = 20_000;
/// Where nobody keeps what must be kept.
const SKIPPED: [&str; 7] =
    ["node_modules", "target", ".venv", "venv", "__pycache__", ".git", ".jj"];
/// The lock files of package managers: their digests are noted.
const LOCK_FILES: [&str; 12] = [
    "Cargo.lock",
    "package-lock.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    "poetry.lock",
    "uv.lock",
    "Pipfile.lock",
    "requirements.txt",
    "Gemfile.lock",
    "composer.lock",
    "go.sum",
    "flake.lock",
];

/// What a checkpoint of a workspace is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The parts, code first.
    pub parts: Vec<Part>,
    /// What is run around the freeze.
    pub commands: Vec<CheckpointCommand>,
    /// How long the freeze may last.
    pub limit: Duration,
    /// Files whose digests are noted.
    pub artefacts: Vec<PathBuf>,
    /// The parts were found and not declared.
    pub found: bool,
}

impl Plan {
    /// What the accepted settings declare; without a declaration, what is found in the workspace. Refused
    /// while `chronicle.toml` says something else.
    pub fn of(workspace: &Workspace) -> Result<Self> {
        refuse_pending(workspace, &workspace.settings()?.checkpoint)?;
        let plan = Self::accepted(workspace)?;
        plan.parts.iter().try_for_each(refuse_link)?;
        Ok(plan)
    }

    /// The same, whatever `chronicle.toml` says by now: what is restored was captured by what a person
    /// accepted, and who lost his files has perhaps lost this one too.
    pub fn accepted(workspace: &Workspace) -> Result<Self> {
        let (settings, root) = (workspace.settings()?.checkpoint, workspace.root());
        let found = settings.part.is_empty();
        let mut parts = match found {
            true => detect(root)?,
            false => declared(&settings.part, root)?,
        };
        parts.sort_by_key(|part| !part.kind.is_code());
        check(&parts, workspace)?;
        Ok(Self {
            parts,
            commands: settings.command.clone(),
            limit: settings.freeze_limit_ms.map_or(FREEZE_LIMIT, Duration::from_millis),
            artefacts: artefacts(&settings, root)?,
            found,
        })
    }

    /// The part of this name.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

/// How long a command may take.
pub fn command_limit(command: &CheckpointCommand) -> Duration {
    command.limit_ms.map_or(COMMAND_LIMIT, Duration::from_millis)
}

/// A declaration that nobody has accepted is not followed, and not passed over either.
fn refuse_pending(workspace: &Workspace, accepted: &CheckpointSettings) -> Result<()> {
    let current = workspace.current_settings()?.checkpoint;
    match current == *accepted {
        true => Ok(()),
        false => Err(Error::Declared(
            "chronicle.toml declares commands or places in [checkpoint] that nobody has accepted: look \
             at them, then run: chronicle config accept"
                .to_owned(),
        )),
    }
}

fn declared(all: &[CheckpointPart], root: &Path) -> Result<Vec<Part>> {
    all.iter().map(|written| one(written, root)).collect()
}

fn one(written: &CheckpointPart, root: &Path) -> Result<Part> {
    let places = [
        (PartKind::Git, &written.git),
        (PartKind::Jj, &written.jj),
        (PartKind::Postgres, &written.postgres),
        (PartKind::Database, &written.database),
        (PartKind::Sqlite, &written.sqlite),
        (PartKind::Directory, &written.directory),
    ];
    let said: Vec<_> =
        places.into_iter().filter_map(|(kind, at)| Some((kind, at.as_ref()?))).collect();
    let [(kind, place)] = said[..] else {
        return Err(Error::Declared(
            "A part in [checkpoint] says not exactly one of git, jj, postgres, database, sqlite and \
             directory"
                .to_owned(),
        ));
    };
    let path = match kind {
        PartKind::Database => PathBuf::new(),
        _ => real(&plain(&root.join(place))),
    };
    let name = written.name.clone().unwrap_or_else(|| name_for(&path, kind, root));
    let mut part = Part::new(&name, kind, &path);
    part.driver = written.driver.clone();
    part.revision = written.revision.clone();
    if kind == PartKind::Database {
        part.parameters.insert("connection".to_owned(), place.clone());
    }
    if let Some(programs) = &written.programs {
        part.parameters.insert("programs".to_owned(), programs.clone());
    }
    Ok(part)
}

/// Where a part lies, whatever links lead there: a link that leads elsewhere later is another place.
fn real(path: &Path) -> PathBuf {
    let above = path.parent().and_then(|above| fs::canonicalize(above).ok());
    above.zip(path.file_name()).map_or_else(|| path.to_owned(), |(above, name)| above.join(name))
}

/// A path without `.` and `..`, so that what lies outside never looks as if it lay inside.
fn plain(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

fn name_for(path: &Path, kind: PartKind, root: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path);
    let words: Vec<_> = below.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let text: String = words.join("-");
    let plain: String =
        text.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    let plain = plain.trim_start_matches(['.', '-']).chars().take(64).collect::<String>();
    if plain.is_empty() { kind.word().to_owned() } else { plain }
}

/// Names are unique, places are inside what is protected, and no part lies in another's data.
fn check(parts: &[Part], workspace: &Workspace) -> Result<()> {
    let mut names = BTreeSet::new();
    for part in parts {
        if !is_name(&part.name) {
            return Err(Error::Declared(format!("{:?} cannot be the name of a part", part.name)));
        }
        if !names.insert(&part.name) {
            return Err(Error::Declared(format!(
                "Two parts are called {:?}: give one a name of its own",
                part.name
            )));
        }
        if part.kind.is_code() && workspace.path(&part.path, workspace.root()).is_err() {
            return Err(Error::Declared(format!(
                "Repository {} lies outside the workspace, so that its files are in no log: protect it \
                 with chronicle roots add {}",
                part.path.display(),
                part.path.display()
            )));
        }
    }
    for part in parts.iter().filter(|part| !part.kind.is_code()) {
        refuse_around(part, workspace)?;
    }
    let data =
        || parts.iter().filter(|part| !part.kind.is_code() && part.kind != PartKind::Database);
    for outer in data() {
        for inner in parts.iter().filter(|part| part.name != outer.name) {
            if inner.kind != PartKind::Database && inner.path.starts_with(&outer.path) {
                return Err(Error::Declared(format!(
                    "Part {:?} lies inside part {:?}: one of them can go back only with the other",
                    inner.name, outer.name
                )));
            }
        }
    }
    Ok(())
}

/// A link is exchanged as a link, and what it leads to would stay as it is.
fn refuse_link(part: &Part) -> Result<()> {
    match fs::read_link(&part.path) {
        Ok(to) if part.kind != PartKind::Database => Err(Error::Declared(format!(
            "Part {:?} is a symbolic link: declare what it leads to, {}",
            part.name,
            part.path.with_file_name(to).display()
        ))),
        _ => Ok(()),
    }
}

/// What holds the workspace or its history cannot be exchanged with something older.
fn refuse_around(part: &Part, workspace: &Workspace) -> Result<()> {
    if part.kind == PartKind::Database {
        return Ok(());
    }
    let inside = [
        (workspace.root().to_owned(), "the workspace, whose files are in every checkpoint anyway"),
        (workspace.checkpoint_directory(), "Chronicle's home, where checkpoints are kept"),
    ];
    match inside.into_iter().find(|(inner, _)| inner.starts_with(&part.path)) {
        None => Ok(()),
        Some((_, what)) => Err(Error::Declared(format!(
            "Part {:?} holds {what}: declare the directories below it that are meant",
            part.name
        ))),
    }
}

/// What of a workspace a checkpoint would be made of: repositories, databases, clusters.
pub fn detect(root: &Path) -> Result<Vec<Part>> {
    let mut found = Vec::new();
    let mut left = vec![(root.to_owned(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = left.pop() {
        seen += 1;
        if seen > MOST {
            break;
        }
        let Ok(listing) = fs::read_dir(&directory) else { continue };
        let mut items: Vec<_> = listing.flatten().collect();
        items.sort_by_key(|item| item.file_name());
        let has = |name: &str| items.iter().any(|item| item.file_name() == name);
        if has("PG_VERSION") && has("global") {
            found.push((PartKind::Postgres, directory));
            continue;
        }
        if has(".jj") {
            found.push((PartKind::Jj, directory.clone()));
        } else if has(".git") {
            found.push((PartKind::Git, directory.clone()));
        }
        for item in items.iter().rev() {
            let name = item.file_name();
            let Ok(kind) = item.file_type() else { continue };
            let skipped = SKIPPED.iter().any(|skipped| name == *skipped);
            if kind.is_dir() && !skipped && depth < DEEPEST {
                left.push((item.path(), depth + 1));
            } else if kind.is_file() && !is_staging(&name) && is_database(&item.path()) {
                found.push((PartKind::Sqlite, item.path()));
            }
        }
    }
    let mut names = BTreeSet::new();
    let part = |(kind, path): (PartKind, PathBuf)| {
        let first = name_for(&path, kind, root);
        let mut name = first.clone();
        for number in 2.. {
            if names.insert(name.clone()) {
                break;
            }
            name = format!("{first}-{number}");
        }
        Part::new(&name, kind, &path)
    };
    Ok(found.into_iter().map(part).collect())
}

fn is_staging(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with(".chronicle-staging-")
}

fn artefacts(settings: &CheckpointSettings, root: &Path) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = LOCK_FILES.iter().map(|name| root.join(name)).collect();
    all.retain(|path| path.is_file());
    for named in &settings.artefacts {
        let path = root.join(named);
        if named.starts_with('/') || named.split('/').any(|part| part == "..") || !path.is_file() {
            return Err(Error::Declared(format!("Artefact {named:?} is no file of the workspace")));
        }
        all.push(path);
    }
    Ok(all)
}

/// The table for `chronicle.toml` that declares these parts.
pub fn as_toml(parts: &[Part], root: &Path) -> String {
    let mut text = "[checkpoint]\n".to_owned();
    for part in parts {
        let place = part.path.strip_prefix(root).unwrap_or(&part.path);
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        let quoted = |text: &str| format!("{text:?}");
        let (name, at) = (quoted(&part.name), quoted(&place.to_string_lossy()));
        text.push_str(&format!("\n[[checkpoint.part]]\nname = {name}\n{} = {at}\n", part.kind));
    }
    text
}
