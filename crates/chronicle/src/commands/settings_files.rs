//! What install and uninstall share: the files of an agent, read, shown and changed.

use std::path::{Path, PathBuf};

use crate::agent::Agent;
use crate::error::CommandError;
use crate::install::dialect::Target;
use crate::install::receipt::{Receipt, Receipts};
use crate::install::{Malformed, files};
use crate::render::printable;

/// A file as it stands.
#[derive(Debug)]
pub(super) struct Settings {
    /// Where it lies, behind all links.
    pub(super) path: PathBuf,
    pub(super) text: Option<String>,
}

/// A file and what becomes of it.
#[derive(Debug)]
pub(super) struct FileEdit {
    pub(super) file: Settings,
    pub(super) then: Then,
    /// What to remember of it.
    pub(super) receipt: Option<Receipt>,
}

/// What becomes of a file.
#[derive(Debug)]
pub(super) enum Then {
    Write { text: String, executable: bool },
    Delete { directories: Vec<PathBuf> },
    Aside,
}

impl FileEdit {
    /// The difference as a patch.
    pub(super) fn patch(&self) -> String {
        let name = self.file.path.display().to_string();
        let after = match &self.then {
            Then::Write { text, .. } => Some(text.as_str()),
            Then::Delete { .. } | Then::Aside => None,
        };
        let before = self.file.text.as_deref();
        let label = |text: Option<&str>| text.map_or("/dev/null", |_| name.as_str()).to_owned();
        let lines = chronicle_core::text_patch(
            before.unwrap_or_default().as_bytes(),
            after.unwrap_or_default().as_bytes(),
        );
        let lines = String::from_utf8_lossy(&lines).into_owned();
        format!("--- {}\n+++ {}\n{lines}", label(before), label(after))
    }

    /// What is done, in a word.
    pub(super) fn word(&self) -> &'static str {
        match &self.then {
            Then::Write { .. } if self.file.text.is_none() => "created",
            Then::Write { .. } => "changed",
            Then::Delete { .. } => "removed",
            Then::Aside => "moved aside, since it was edited:",
        }
    }

    /// The file's name, for people.
    pub(super) fn shown(&self) -> String {
        printable(&self.file.path.to_string_lossy()).into_owned()
    }
}

/// The edits for scripts.
pub(super) fn views(edits: &[FileEdit]) -> Vec<serde_json::Value> {
    let view = |edit: &FileEdit| {
        let action = match edit.then {
            Then::Aside => "moved_aside",
            _ => edit.word(),
        };
        serde_json::json!({ "path": edit.shown(), "action": action, "patch": edit.patch() })
    };
    edits.iter().map(view).collect()
}

/// Reads a file through its links.
pub(super) fn read(path: &Path) -> Result<Settings, CommandError> {
    let path = files::behind_links(path).map_err(|error| cannot("find", path, error))?;
    match files::read(&path) {
        Ok(text) => Ok(Settings { path, text }),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(malformed(&path, &Malformed("it is not UTF-8".to_owned())))
        }
        Err(error) => Err(cannot("read", &path, error)),
    }
}

/// The directories that have to be made for a file.
pub(super) fn missing_directories(path: &Path) -> Vec<PathBuf> {
    files::missing_directories(path)
}

/// Settings that cannot be edited are left alone.
pub(super) fn malformed(path: &Path, error: &Malformed) -> CommandError {
    let shown = printable(&path.to_string_lossy()).into_owned();
    CommandError::failed("settings_malformed", format!("Could not read {shown}: {error}"))
        .hinted("Nothing was changed. Repair the file, then run the command again")
}

/// Whoever made a file read-only, or the program that manages it, does not want it changed.
pub(super) fn refuse_read_only(path: &Path) -> Result<(), CommandError> {
    if !files::is_read_only(path) {
        return Ok(());
    }
    let shown = printable(&path.to_string_lossy()).into_owned();
    Err(CommandError::failed("settings_read_only", format!("{shown} is read-only")).hinted(
        "Nothing was changed. Allow writing with: chmod u+w FILE, or add the hooks where the file \
         is managed",
    ))
}

/// Changes every file, if all of them are still what was looked at.
pub(super) fn apply(
    agent: Agent,
    edits: &[FileEdit],
    receipts: &Receipts,
) -> Result<(), CommandError> {
    for edit in edits {
        if read(&edit.file.path)?.text != edit.file.text {
            let message = format!("{} was changed meanwhile", edit.shown());
            return Err(CommandError::failed("settings_changed", message)
                .hinted("Nothing was changed. Run the command again"));
        }
    }
    edits.iter().try_for_each(|edit| apply_one(agent, edit, receipts))
}

/// The receipt comes first: without it the file could not be taken back exactly.
fn apply_one(agent: Agent, edit: &FileEdit, receipts: &Receipts) -> Result<(), CommandError> {
    let path = &edit.file.path;
    if let Some(receipt) = &edit.receipt {
        receipts
            .write(agent, path, receipt)
            .map_err(|error| CommandError::io("Could not note down the original", error))?;
    }
    match &edit.then {
        Then::Write { text, executable } => {
            files::write(path, text, *executable).map_err(|error| cannot("write", path, error))?;
        }
        Then::Delete { directories } => {
            files::remove(path, directories).map_err(|error| cannot("remove", path, error))?;
        }
        Then::Aside => {
            files::move_aside(path).map_err(|error| cannot("move", path, error))?;
        }
    }
    Ok(())
}

/// Forgets what was noted down of files that hold nothing of ours any more.
pub(super) fn forget(agent: Agent, targets: &[Target], receipts: &Receipts) {
    for target in targets {
        if let Ok(path) = files::behind_links(&target.path) {
            receipts.remove(agent, &path);
        }
    }
}

fn cannot(action: &str, path: &Path, error: std::io::Error) -> CommandError {
    let shown = printable(&path.to_string_lossy()).into_owned();
    CommandError::io(format!("Could not {action} {shown}"), error)
        .hinted("Check the file and its rights, then run the command again")
}
