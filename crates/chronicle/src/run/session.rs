//! The hidden processes of a run: the one that leads the command's session, and the one that
//! becomes the command.
//!
//! The leader talks with the caller over a socket that stands in one of its standard descriptors.
//! It stays until the caller has read all output: when a leader ends, the kernel throws away what
//! its terminal still holds.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::signals::Signals;
use super::{KILLED, STAGE, become_command, exit_status, ourselves, standard};

/// To the stage: lead a session without a terminal, then become the command.
pub(super) const OWN_SESSION: &str = "own-session";
/// To the stage: become the command at once.
const AT_ONCE: &str = "at-once";
/// To the stage, with the number of a descriptor: become the command when in the foreground there.
const IN_FOREGROUND: &str = "foreground";

/// To the leader: whether the command has the terminal from the start.
pub(super) const EAGER: &str = "eager";
pub(super) const LAZY: &str = "lazy";

/// What the leader and the caller tell each other: a kind and a number.
pub(super) type Message = [u8; 2];
/// The command ended with this status.
pub(super) const ENDED: u8 = b'e';
/// The command was stopped by this signal.
pub(super) const STOPPED: u8 = b's';
/// Continue the command; the number is not used.
pub(super) const CONTINUE: u8 = b'c';
/// Pass this signal on to the command.
pub(super) const PASS_ON: u8 = b'p';

/// Leads a session on a new terminal: `PTY SLOTS eager|lazy CMD...`.
pub(crate) fn session(arguments: &[OsString]) -> u8 {
    let [pty, slots, way, command @ ..] = arguments else { return 125 };
    // Where this fails, the caller finds the socket closed and says so.
    lead(Path::new(pty), &slots.to_string_lossy(), way == EAGER, command).unwrap_or(125)
}

fn lead(pty: &Path, slots: &str, eager: bool, command: &[OsString]) -> io::Result<u8> {
    let slots: Vec<usize> = slots.bytes().map(|digit| usize::from(digit - b'0')).collect();
    let control = standard(slots[0]);
    rustix::process::setsid()?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(pty, flags, Mode::empty())?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    let signals = Signals::take_over()?;
    let command = start(&terminal, &slots, eager, command)?;
    // We lead the session and are in its foreground, so this is ours to give.
    if eager {
        tcsetpgrp(&terminal, command)?;
    }
    Leader { control, closed: false, terminal, signals, command }.watch()
}

/// Starts the stage in a group of its own, with the terminal in the slots.
fn start(
    terminal: &OwnedFd,
    slots: &[usize],
    eager: bool,
    command: &[OsString],
) -> io::Result<Pid> {
    let mut stage = ourselves(STAGE);
    if eager {
        stage.arg(format!("{IN_FOREGROUND}:{}", slots[0]));
    } else {
        stage.arg(AT_ONCE);
    }
    stage.args(command).process_group(0);
    for slot in slots {
        let copy = Stdio::from(terminal.try_clone()?);
        match slot {
            0 => stage.stdin(copy),
            1 => stage.stdout(copy),
            _ => stage.stderr(copy),
        };
    }
    Ok(Pid::from_child(&stage.spawn()?))
}

/// The process between the caller and the command.
struct Leader {
    control: BorrowedFd<'static>,
    /// Whether the caller is gone.
    closed: bool,
    terminal: OwnedFd,
    signals: Signals,
    command: Pid,
}

impl Leader {
    fn watch(mut self) -> io::Result<u8> {
        loop {
            while let Some((_, status)) =
                waitpid(Some(self.command), WaitOptions::NOHANG | WaitOptions::UNTRACED)?
            {
                if let Some(status) = exit_status(status) {
                    return self.end(status);
                }
                let signal = status.stopping_signal().unwrap_or(0);
                self.tell([STOPPED, u8::try_from(signal).unwrap_or(0)]);
            }
            self.wait(None)?;
            for signal in self.signals.take() {
                if !matches!(signal, Signal::CHILD | Signal::WINCH | Signal::CONT) {
                    self.pass_on(signal);
                }
            }
        }
    }

    /// Waits for a signal or a message.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|limit| limit.try_into().expect("BUG: a short time"));
        let mut events = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if !self.closed {
            events.push(PollFd::from_borrowed_fd(self.control, PollFlags::IN));
        }
        match poll(&mut events, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let spoken = events.get(1).is_some_and(|event| !event.revents().is_empty());
        if spoken {
            self.hear();
        }
        Ok(())
    }

    fn hear(&mut self) {
        let mut message: Message = [0; 2];
        match rustix::io::read(self.control, &mut message) {
            Ok(2) => self.obey(message),
            Err(rustix::io::Errno::INTR) => {}
            _ => {
                // The caller died: a terminal that goes away hangs up.
                self.closed = true;
                self.pass_on(Signal::HUP);
                self.pass_on(Signal::CONT);
            }
        }
    }

    fn obey(&mut self, [kind, number]: Message) {
        match kind {
            CONTINUE => {
                // Only where we still hold the foreground: else the command gave it to a job.
                if tcgetpgrp(&self.terminal) == Ok(rustix::process::getpgrp()) {
                    let _ = tcsetpgrp(&self.terminal, self.command);
                }
                self.pass_on(Signal::CONT);
            }
            PASS_ON => {
                if let Some(signal) = Signal::from_named_raw(i32::from(number)) {
                    self.pass_on(signal);
                }
            }
            _ => {}
        }
    }

    fn pass_on(&self, signal: Signal) {
        let _ = kill_process_group(self.command, signal);
    }

    fn tell(&self, message: Message) {
        if !self.closed {
            let _ = rustix::io::write(self.control, &message);
        }
    }

    /// Tells the status and stays until the caller has read everything.
    fn end(mut self, status: u8) -> io::Result<u8> {
        self.tell([ENDED, status]);
        while !self.closed {
            self.wait(None)?;
            self.signals.take();
        }
        Ok(status)
    }
}

/// Becomes the command: `WHEN CMD...`.
pub(crate) fn stage(arguments: &[OsString]) -> u8 {
    let Some((when, command)) = arguments.split_first() else { return 125 };
    match ready(when) {
        Ok(()) => become_command(command),
        Err(_) => 125,
    }
}

fn ready(when: &OsStr) -> io::Result<()> {
    let when = when.to_string_lossy();
    if when == OWN_SESSION {
        rustix::process::setsid()?;
    } else if let Some(slot) =
        when.strip_prefix(IN_FOREGROUND).and_then(|rest| rest.strip_prefix(':'))
    {
        let slot = slot.parse().map_err(io::Error::other)?;
        wait_for_foreground(standard(slot));
    }
    Ok(())
}

/// Waits until the leader has put this process in the foreground, so that the command cannot be
/// stopped for reading too early. That takes a moment; no longer than a second, whatever happens.
fn wait_for_foreground(terminal: impl AsFd) {
    for _ in 0..5000 {
        if tcgetpgrp(&terminal) == Ok(rustix::process::getpgrp()) {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The exit status of a leader that was killed.
pub(super) fn killed(status: rustix::process::WaitStatus) -> u8 {
    exit_status(status).unwrap_or_else(|| u8::try_from(KILLED).expect("BUG: fits"))
}
