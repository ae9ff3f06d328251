//! `chronicle watch`: a watcher in the background, or in this very process.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use chronicle_core::{Home, SCHEMA, WatchEnd, WatchOptions, Workspace};

use super::Invocation;
use crate::cli::WatchArgs;
use crate::environment;
use crate::error::{CommandError, Outcome};

pub(crate) fn execute(invocation: &mut Invocation, args: &WatchArgs) -> Outcome {
    let workspace = invocation.open()?;
    if args.foreground {
        let root = workspace.root().to_owned();
        // The catalog is not held open by somebody who only waits.
        drop(workspace);
        let end = watch(&root)?;
        invocation.ui.note(words(end));
        return Ok(0);
    }
    let started = workspace.start_watcher(&program()?)?;
    let process = workspace.watcher_process();
    if invocation.ui.json() {
        let answer =
            serde_json::json!({ "schema": SCHEMA, "started": started, "process": process });
        invocation.ui.data(&answer);
    }
    invocation.ui.note(match (started, process) {
        (true, _) => "A watcher was started; how it stands is in: chronicle status".to_owned(),
        (false, Some(process)) => format!("A watcher runs already, as process {process}"),
        (false, None) => {
            "The last watcher ended or has not begun yet; try again in a minute".to_owned()
        }
    });
    Ok(0)
}

/// Starts a watcher where one is missing and welcome. Never a failure: without it a look takes
/// longer, and that is all.
pub(crate) fn ensure(workspace: &Workspace) {
    if environment::may_watch()
        && let Ok(program) = program()
    {
        let _ = workspace.start_watcher(&program);
    }
}

fn program() -> Result<std::path::PathBuf, CommandError> {
    std::env::current_exe().map_err(|error| CommandError::usage(format!("Which program: {error}")))
}

/// The watcher that was started in the background; what it says nobody hears.
pub(crate) fn detached(arguments: &[OsString]) -> u8 {
    detach();
    let Some(root) = arguments.first() else { return 2 };
    u8::from(watch(Path::new(root)).is_err())
}

/// Lets go of whoever started this process; to be called first of all.
pub(crate) fn detach() {
    close_inherited();
    // A session of its own, so that no terminal's end is its end. Fails only if it has one already.
    let _ = rustix::process::setsid();
}

fn watch(root: &Path) -> Result<WatchEnd, CommandError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Without it the signal ends the process as it always does, which is no harm.
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let options = WatchOptions { stop: Some(&stop), ..WatchOptions::default() };
    Ok(Workspace::watch(&Home::from_env()?, root, &options)?)
}

fn words(end: WatchEnd) -> &'static str {
    match end {
        WatchEnd::Idle => "Nobody asked for a long time",
        WatchEnd::Unwanted => "The workspace or the watcher's socket is gone",
        WatchEnd::Stopped => "Stopped",
        WatchEnd::Already => "Another watcher runs already",
    }
}

/// Closes what the process was started with besides its three streams: an agent that waits for the
/// end of a pipe must not wait for us.
#[expect(
    unsafe_code,
    reason = "descriptors that nobody in this process owns can be closed no other way"
)]
pub(super) fn close_inherited() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let names = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let open: Vec<RawFd> = names.filter(|descriptor| *descriptor > 2).collect();
    // The listing's own is closed by now.
    let is_open = |fd: &RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
    for descriptor in open.into_iter().filter(is_open) {
        // SAFETY: this runs first of all, on the only thread, when nothing here owns one yet.
        unsafe { rustix::io::close(descriptor) };
    }
}
