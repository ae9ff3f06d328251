//! Tells moments from paths where a command takes both, one after the other.

use std::ffi::OsString;
use std::path::Path;

use chronicle_core::{Error, Workspace, WorkspacePath};

use super::Invocation;
use crate::error::CommandError;

/// The words of a command line, told apart.
pub(crate) struct Words {
    pub(crate) targets: Vec<String>,
    pub(crate) paths: Vec<WorkspacePath>,
}

/// The first words, up to `most`, that name moments are moments; the first other begins the paths.
///
/// A word that is neither a moment nor anything that is or was there is a mistake, not an empty
/// answer.
pub(crate) fn split(
    invocation: &Invocation,
    workspace: &Workspace,
    words: &[OsString],
    most: usize,
) -> Result<Words, CommandError> {
    let mut targets = Vec::new();
    let mut paths = Vec::new();
    for word in words {
        let may_be_target = paths.is_empty() && targets.len() < most;
        match word.to_str().filter(|_| may_be_target).map(|text| (text, workspace.resolve(text))) {
            Some((text, Ok(_))) => targets.push(text.to_owned()),
            Some((_, Err(error))) => paths.push(path_or(invocation, workspace, word, error)?),
            None => paths.push(invocation.path(workspace, Path::new(word))?),
        }
    }
    Ok(Words { targets, paths })
}

/// The word as a path, if something is or was there; else the error it made as a moment.
fn path_or(
    invocation: &Invocation,
    workspace: &Workspace,
    word: &OsString,
    error: Error,
) -> Result<WorkspacePath, CommandError> {
    let given = Path::new(word);
    if !matches!(error, Error::UnknownTarget(_) | Error::Ambiguous { .. } | Error::Usage(_)) {
        return Err(error.into());
    }
    let is_there = invocation.directory.join(given).symlink_metadata().is_ok();
    match workspace.path(given, &invocation.directory) {
        Ok(path) if is_there || !workspace.history(&path)?.is_empty() => Ok(path),
        Err(outside) if is_there => Err(outside.into()),
        _ => Err(error.into()),
    }
}
