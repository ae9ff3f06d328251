//! What the process was started with: the only place that reads variables of the environment.

use std::path::{Path, PathBuf};

use crate::install::dialect::Places;

/// Whether `CHRONICLE=off` switches everything off for this process.
pub(crate) fn is_off() -> bool {
    std::env::var_os("CHRONICLE").is_some_and(|value| value == "off")
}

/// Whether a watcher may be started: not where everything is thrown away in a moment, and not where
/// somebody said no.
pub(crate) fn may_watch() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let no = std::env::var_os("CHRONICLE_WATCH").is_some_and(|value| value == "off");
    !is_off() && !no && !set("CI")
}

/// Where events of replication are written down, one line of JSON each.
pub(crate) fn trace() -> Option<PathBuf> {
    std::env::var_os("CHRONICLE_TRACE").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether what runs for long tells of events in JSON, where its command line does not say.
pub(crate) fn log_format() -> Option<String> {
    std::env::var("CHRONICLE_LOG_FORMAT").ok().filter(|value| !value.is_empty())
}

/// Where spans go: OpenTelemetry's own variable.
#[cfg(feature = "otel")]
pub(crate) fn collector() -> Option<String> {
    std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|value| !value.is_empty())
}

/// Under which name spans go there: OpenTelemetry's own variable.
#[cfg(feature = "otel")]
pub(crate) fn service() -> Option<String> {
    std::env::var("OTEL_SERVICE_NAME").ok().filter(|value| !value.is_empty())
}

/// The token that lets this replica in, where no file was named: a file, or the token itself.
pub(crate) fn token() -> (Option<PathBuf>, Option<String>) {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let file = set("CHRONICLE_TOKEN_FILE").map(PathBuf::from);
    (file, set("CHRONICLE_TOKEN").and_then(|token| token.into_string().ok()))
}

/// The password for the shared log, where its address has none: PostgreSQL's own variable.
pub(crate) fn pg_password() -> Option<String> {
    std::env::var("PGPASSWORD").ok().filter(|value| !value.is_empty())
}

/// Whether colour is unwelcome even on a terminal.
pub(crate) fn no_color() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("NO_COLOR") || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// The width that the caller asks for where no terminal tells it.
pub(crate) fn columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// The person's home directory.
pub(crate) fn home_directory() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// Where the agents' settings lie; nothing without a home directory.
pub(crate) fn places(project: &Path) -> Option<Places> {
    let home = home_directory().filter(|home| home.is_absolute())?;
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(Places {
        claude: set("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.join(".claude")),
        codex: set("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
        copilot: set("COPILOT_HOME").unwrap_or_else(|| home.join(".copilot")),
        config: set("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        project: project.to_owned(),
        home,
    })
}

/// This program's file. Where the search path leads to it through a link, the link: it stays when
/// the program is replaced by a newer one.
pub(crate) fn program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() != 1 {
        return Ok(program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(&called))
        .find(|file| file.is_absolute() && file.canonicalize().is_ok_and(|real| real == program));
    Ok(found.unwrap_or(program))
}

/// Where the command works: the current directory, or the one given by `-C` seen from there.
///
/// A shell may stand in a directory that was deleted (which is when Chronicle is needed most): then
/// the shell's own word for it counts. A directory that does not exist is not an error here either.
pub(crate) fn directory(given: Option<&Path>) -> PathBuf {
    let current = || {
        let said = || std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
        std::env::current_dir().ok().or_else(said).unwrap_or_else(|| PathBuf::from("/"))
    };
    let Some(given) = given else { return current() };
    let path = if given.is_absolute() { given.to_owned() } else { current().join(given) };
    std::fs::canonicalize(&path).unwrap_or(path)
}
