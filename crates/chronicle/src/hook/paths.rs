//! Where the files lie that a tool names, whatever links lead to them.

use std::path::{Path, PathBuf};

use chronicle_core::{Error, Workspace, WorkspacePath};

use super::event::{Reach, Tool};

/// The named files: the names themselves, and what they lead to. One outside the workspace is
/// captured because it was named.
pub(crate) fn named(
    workspace: &mut Workspace,
    directory: &Path,
    named: &[PathBuf],
) -> Result<Vec<WorkspacePath>, Error> {
    let mut found: Vec<WorkspacePath> = Vec::new();
    for path in named.iter().flat_map(|name| places(&directory.join(name))) {
        let path = match workspace.path(&path, directory) {
            Err(Error::OutsideRoots(_)) => match workspace.protect_named(&path) {
                // What cannot be protected is not what the agent must wait for.
                Err(Error::CannotAdopt { .. } | Error::Io { .. }) => continue,
                path => path?,
            },
            path => path?,
        };
        if !found.contains(&path) {
            found.push(path);
        }
    }
    Ok(found)
}

/// A tool writes through symbolic links: the file changes that a name leads to.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = vec![through_parents(path)];
    if let Ok(real) = path.canonicalize()
        && !places.contains(&real)
    {
        places.push(real);
    }
    places
}

/// The path with the links above it followed; what does not exist yet stays as it is named.
fn through_parents(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut above = path;
    while let (Some(parent), Some(name)) = (above.parent(), above.file_name()) {
        missing.push(name);
        if let Ok(real) = parent.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        above = parent;
    }
    path.to_owned()
}

/// The first file that a tool names, for people.
pub(crate) fn first(tool: &Tool) -> String {
    match &tool.reach {
        Reach::Named(paths) => paths[0].display().to_string(),
        _ => String::new(),
    }
}
