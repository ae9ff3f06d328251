//! Adopts a project at its first prompt or action: whoever installed the hooks for all projects
//! expects that each is protected.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronicle_core::{Error, Home, InitOptions, Workspace};

use crate::commands::repository_top;
use crate::environment;

/// Takes the project in for as long as the budget allows; a large one goes on in the background, and
/// until it is done nothing is promised.
pub(crate) fn adopt(home: &Home, directory: &Path, budget: Duration) -> Result<Workspace, Error> {
    let project = project(directory)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&cancelled);
    std::thread::spawn(move || {
        std::thread::sleep(budget * 3 / 4);
        enough.store(true, Ordering::Relaxed);
    });
    let options = InitOptions { progress: None, cancelled: Some(&cancelled) };
    match Workspace::init(home, &project, &options) {
        Err(Error::Cancelled) => {
            go_on(home, &project);
            Err(Error::Busy(format!("{} is being taken in for the first time", project.display())))
        }
        adopted => adopted.map(|(workspace, _)| workspace),
    }
}

/// The project around a directory: the repository's top, else the directory itself. Nobody's whole
/// home is a project.
fn project(directory: &Path) -> Result<PathBuf, Error> {
    let project = repository_top(directory).unwrap_or_else(|| directory.to_owned());
    let home = environment::home_directory();
    let is_home = home.as_deref().is_some_and(|home| home.starts_with(&project));
    if is_home {
        let why = "it holds a home directory: adopt the project itself with chronicle init";
        return Err(Error::CannotAdopt { path: project, why: why.to_owned() });
    }
    Ok(project)
}

/// Lets the first capture go on after this process has ended.
fn go_on(home: &Home, project: &Path) {
    let Ok(program) = std::env::current_exe() else { return };
    let mut command = Command::new(program);
    command.arg("init").arg(project).env("CHRONICLE_HOME", home.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    // The next hook tries again where this could not be started.
    let _ = command.spawn();
}
