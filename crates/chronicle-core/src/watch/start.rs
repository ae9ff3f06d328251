//! Starting a watcher on demand: a process of its own that nobody waits for.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{ATTEMPT, LOCK};
use crate::error::{Context, Result};
use crate::home::Home;
use crate::id::Time;
use crate::lock::Lock;

/// The word with which a program is asked to be the watcher of the root that follows.
pub const WATCHER: &str = "__watch";

/// How long after an attempt that left no watcher behind the next one is made.
const AGAIN_NS: i64 = 60 * 1_000_000_000;

/// Starts a watcher unless there is one, or the last attempt was in vain and not long ago; says
/// whether it did.
pub(crate) fn start(
    program: &Path,
    home: &Home,
    directory: &Path,
    root: &Path,
    now: Time,
) -> Result<bool> {
    // A watcher holds its lock for as long as it lives.
    let Some(free) = Lock::try_take(&directory.join(LOCK))? else { return Ok(false) };
    drop(free);
    if attempt(directory).is_some_and(|last| (0..AGAIN_NS).contains(&(now.0 - last.0))) {
        return Ok(false);
    }
    let mark = directory.join(ATTEMPT);
    std::fs::write(&mark, now.0.to_string()).at("write", &mark)?;
    let mut command = Command::new(program);
    command
        .arg(WATCHER)
        .arg(root)
        .env("CHRONICLE_HOME", home.path())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Nobody waits for it: it outlives this process, and whoever adopts it reaps it.
    command.spawn().map(drop).at("start", program)?;
    Ok(true)
}

/// When a watcher was last started here.
fn attempt(directory: &Path) -> Option<Time> {
    let text = std::fs::read_to_string(directory.join(ATTEMPT)).ok()?;
    text.trim().parse().ok().map(Time)
}
