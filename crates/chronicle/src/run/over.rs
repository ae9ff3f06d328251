//! A mount over the workspace at its usual path, in a mount namespace of this process and what it starts.

use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::commands::mount::Serving;
use crate::error::CommandError;

/// Mounts the workspace over itself, for this process and those that it starts from now on.
///
/// `below` is where the directory itself stays reachable for Chronicle's own commands. To be called before
/// there are other threads.
pub(crate) fn mount(root: &Path, below: PathBuf) -> Result<Serving, CommandError> {
    let refused = |step: &str| {
        let step = step.to_owned();
        move |error: rustix::io::Errno| {
            let why = format!("Could not mount over the workspace: {step}: {error}");
            CommandError::failed("cannot_mount", why)
                .hinted("Root may; others mount it at another place: chronicle mount MOUNTPOINT")
        }
    };
    namespace().map_err(refused("make a mount namespace"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(refused("keep mounts to itself"))?;
    std::fs::create_dir_all(&below)
        .map_err(|error| CommandError::io("Could not make a place for the directory", error))?;
    mount_bind(root, &below).map_err(refused("keep the directory reachable"))?;
    Serving::begin(root, root, true)
}

#[expect(unsafe_code, reason = "only descriptors would make it unsafe, and those stay shared")]
fn namespace() -> rustix::io::Result<()> {
    // SAFETY: a mount namespace shares no memory and no descriptors anew.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}
