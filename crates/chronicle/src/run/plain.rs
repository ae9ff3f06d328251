//! A run without any terminal: a session of its own, descriptors as they are.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

use super::session::OWN_SESSION;
use super::signals::Signals;
use super::{STAGE, exit_status, job, ourselves};

/// Runs the command and gives back its exit status.
pub(super) fn run(command: &[OsString], directory: &Path) -> io::Result<u8> {
    let mut signals = Signals::take_over()?;
    let child = ourselves(STAGE).arg(OWN_SESSION).args(command).current_dir(directory).spawn()?;
    let group = Pid::from_child(&child);
    loop {
        wait(&signals)?;
        for signal in signals.take() {
            pass_on(group, signal);
        }
        while let Some((_, status)) =
            waitpid(Some(group), WaitOptions::NOHANG | WaitOptions::UNTRACED)?
        {
            if let Some(status) = exit_status(status) {
                return Ok(status);
            }
            job::stop();
            signals.take();
            send(group, Signal::CONT);
        }
    }
}

fn wait(signals: &Signals) -> io::Result<()> {
    match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn pass_on(group: Pid, signal: Signal) {
    match signal {
        Signal::CHILD | Signal::WINCH => {}
        // Nobody in the command's session could stop it with less: see `job`.
        Signal::TSTP if job::can_be_continued() => send(group, Signal::STOP),
        Signal::TSTP => {}
        signal => send(group, signal),
    }
}

/// Sends a signal to the command's whole group; it may be gone already, or not lead it yet.
fn send(group: Pid, signal: Signal) {
    if kill_process_group(group, signal).is_err() {
        let _ = rustix::process::kill_process(group, signal);
    }
}
