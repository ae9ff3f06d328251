//! Runs a command so that it cannot type into the caller's terminal, and passes everything else
//! through: its output, its exit status, signals and job control.
//!
//! A process can push characters into the input of its controlling terminal (TIOCSTI), and the
//! caller's shell would obey them. So the command gets a session of its own. Where a standard
//! descriptor is a terminal it gets a new one in its place (`terminal`), and a process of ours
//! leads the session there (`session`), because a command whose parent is in another session could
//! not be stopped with ^Z. Where none is, the session has no terminal at all (`plain`).
//!
//! This program starts itself for the steps that must happen inside the new processes, instead of
//! running code between fork and exec.

mod isolate;
mod job;
pub(crate) mod over;
mod plain;
mod session;
mod signals;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub(crate) use isolate::{hidden as isolation, isolated};
pub(crate) use session::{session, stage};

use crate::error::{CommandError, Kind};

/// The hidden verb that leads a session with a terminal.
pub(crate) const SESSION: &str = "__session";
/// The hidden verb that becomes the command.
pub(crate) const STAGE: &str = "__stage";

/// Added to the number of the signal that killed a command to make its exit status.
const KILLED: i32 = 128;

/// Runs a command in a directory and gives back its exit status.
pub(crate) fn run(command: &[OsString], directory: &Path) -> Result<u8, CommandError> {
    let terminals: Vec<usize> = (0..3).filter(|slot| is_terminal(*slot)).collect();
    let status = if terminals.is_empty() {
        plain::run(command, directory)
    } else {
        terminal::run(command, directory, &terminals)
    };
    status.map_err(|error| CommandError::io("Could not run the command", error).of(Kind::Run))
}

/// Whether somebody can talk to the command.
pub(crate) fn is_interactive() -> bool {
    is_terminal(0)
}

fn is_terminal(slot: usize) -> bool {
    rustix::termios::isatty(standard(slot))
}

/// A standard descriptor by its number.
fn standard(slot: usize) -> rustix::fd::BorrowedFd<'static> {
    match slot {
        0 => rustix::stdio::stdin(),
        1 => rustix::stdio::stdout(),
        2 => rustix::stdio::stderr(),
        _ => unreachable!("BUG: {slot} is no standard descriptor"),
    }
}

/// This program again, even if its file was replaced meanwhile.
fn ourselves(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("chronicle").arg(verb);
    command
}

/// An exit status from what the kernel says about an ended process.
fn exit_status(status: rustix::process::WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|n| KILLED + n))?;
    Some(u8::try_from(code & 0xff).expect("BUG: masked to a byte"))
}

/// The command in words, for its summary.
pub(crate) fn words(command: &[OsString]) -> String {
    texts(command).join(" ")
}

/// Its words as text.
pub(crate) fn texts(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Becomes the command; comes back only if that failed, with the status that shells give.
fn become_command(command: &[OsString]) -> u8 {
    let Some((program, arguments)) = command.split_first() else { return 125 };
    could_not_start(program, Command::new(program).args(arguments).exec())
}

/// Says why a command did not start, and gives the status that shells give.
fn could_not_start(program: &OsStr, error: io::Error) -> u8 {
    let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let name = chronicle_core::escape(OsStr::as_encoded_bytes(program)).into_owned();
    let hint = match status {
        127 => "Check the name of the command, and PATH",
        _ => "Check that it is a program, and its rights",
    };
    let error = CommandError::io(format!("Could not start {name}"), error).hinted(hint);
    crate::ui::say(&error.text());
    status
}
