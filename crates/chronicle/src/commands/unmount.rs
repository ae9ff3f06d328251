//! `chronicle unmount`: ends a mount; everything that it saw is in the log afterwards.

use std::time::{Duration, Instant};

use chronicle_core::{MountPlace, Workspace};
use rustix::process::{Pid, Signal, kill_process};

use super::Invocation;
use crate::cli::UnmountArgs;
use crate::error::{CommandError, Outcome};

/// How long the process that serves the mount may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn execute(invocation: &mut Invocation, args: &UnmountArgs) -> Outcome {
    let directory = match &args.place {
        Some(place) => invocation.directory.join(place),
        None => invocation.directory.clone(),
    };
    let workspace = Workspace::open(&crate::bucket::home()?, &directory)?;
    let nowhere = || CommandError::failed("not_mounted", "This workspace is not mounted");
    let place = workspace.mount_place()?.ok_or_else(nowhere)?;
    let at = place.at.to_string_lossy().into_owned();
    end(&workspace, &place, args.force)?;
    invocation.ui.note(format!("Unmounted {at}. What was done there can be taken back as always"));
    Ok(0)
}

/// Ends a mount, and waits until everything that it saw is recorded.
pub(super) fn end(
    workspace: &Workspace,
    place: &MountPlace,
    force: bool,
) -> Result<(), CommandError> {
    let gone = chronicle_mount::detach(&place.at, force);
    if workspace.is_mounted()? {
        gone.map_err(|error| in_use(&place.at.to_string_lossy(), error))?;
        let pid = i32::try_from(place.process.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| force && place.process.is_alive()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        return wait(workspace);
    }
    // Whoever served it was killed, and what it left may be gone already.
    Ok(workspace.set_mount_place(None)?)
}

fn in_use(at: &str, error: std::io::Error) -> CommandError {
    if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
        return CommandError::failed("mount_busy", format!("{at} is in use"))
            .hinted(format!("See who uses it with: fuser -vm {at}"))
            .hinted(format!("End it all the same with: chronicle unmount --force {at}"));
    }
    CommandError::io(format!("Could not unmount {at}"), error)
}

/// Waits until nobody serves the mount any more, so that everything is recorded.
fn wait(workspace: &Workspace) -> Result<(), CommandError> {
    let deadline = Instant::now() + PATIENCE;
    while workspace.is_mounted()? {
        if Instant::now() > deadline {
            let why = "It is unmounted, and the process that served it still records";
            return Err(CommandError::failed("busy", why));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
