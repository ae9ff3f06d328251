//! A git that runs nothing that a repository or a person configured.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a repository may not decide.
const SETTINGS: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "user.name=chronicle",
    "user.email=chronicle@localhost",
];

/// Git on a repository, which lies at this very path and not above it.
pub fn command(repository: &Path) -> Command {
    let mut command = Command::new("git");
    command.env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    let mut safe = OsString::from("safe.directory=");
    safe.push(repository);
    command.arg("-c").arg(safe).arg("-C").arg(repository);
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CEILING_DIRECTORIES", repository.parent().unwrap_or(Path::new("/")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}
