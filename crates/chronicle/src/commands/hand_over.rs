//! Handing heads over behind a hook's back: a process of its own that nobody waits for.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use chronicle_core::{Home, WitnessPatience, Workspace};

/// The word with which this program is asked to hand over the heads of the root that follows.
pub(crate) const VERB: &str = "__hand-over";

/// Leaves to another process what a hook has no time for. Never a failure: the next command that has
/// time does the same, and until then `status` says what is missing.
pub(crate) fn leave(home: &Home, workspace: &Workspace) {
    if !workspace.has_to_hand_over().unwrap_or(false) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut command = Command::new(program);
    command.arg(VERB).arg(workspace.root()).env("CHRONICLE_HOME", home.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.spawn();
}

/// The process that was started for it.
pub(crate) fn detached(arguments: &[OsString]) -> u8 {
    super::watch::detach();
    let Some(root) = arguments.first() else { return 2 };
    let handed = Home::from_env()
        .and_then(|home| Workspace::open(&home, Path::new(root)))
        .and_then(|workspace| workspace.hand_over(WitnessPatience::Command));
    u8::from(handed.is_err())
}
