//! A run on a terminal of its own: bytes are carried between the caller's terminal and the new one.
//!
//! The command has the new terminal only where it would have had the caller's; pipes stay pipes.
//! While it is in the foreground the caller's terminal is raw, so that keys mean to the command
//! what they always mean. As part of a pipeline it starts without the keys, which may be for the
//! pager at the other end, and gets them when it asks by reading.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use rustix::pty::OpenptFlags;
use rustix::termios::{
    OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

use super::session::{CONTINUE, EAGER, ENDED, LAZY, Message, PASS_ON, STOPPED, killed};
use super::signals::Signals;
use super::{SESSION, job, ourselves, standard};

/// How often to look whether the job was put in the foreground, of which nothing tells.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
/// How many bytes are carried at once.
const CARRIED: usize = 16 << 10;
/// How much is still shown of what other processes print after the command has ended.
const AFTERMATH: usize = 4 << 20;

/// Runs the command and gives back its exit status. `slots` are the descriptors that are terminals.
pub(super) fn run(command: &[OsString], directory: &Path, slots: &[usize]) -> io::Result<u8> {
    let signals = Signals::take_over()?;
    let eager = slots.contains(&0) && slots.contains(&1);
    let outer = Outer::open(slots[0], !eager)?;
    let (master, slave, pty) = new_terminal(&outer)?;
    let (control, theirs) = UnixStream::pair()?;
    let mut leader = ourselves(SESSION);
    let digits: String = slots.iter().map(ToString::to_string).collect();
    leader.arg(pty).arg(digits).arg(if eager { EAGER } else { LAZY });
    leader.args(command).current_dir(directory);
    let mut theirs = Some(OwnedFd::from(theirs));
    for slot in slots {
        let stands_in = theirs.take().map_or_else(Stdio::null, Stdio::from);
        match slot {
            0 => leader.stdin(stands_in),
            1 => leader.stdout(stands_in),
            _ => leader.stderr(stands_in),
        };
    }
    let child = leader.spawn()?;
    // The command object still holds its end of the socket; the leader's must be the only one.
    drop(leader);
    let relay = Relay {
        signals,
        control,
        outer,
        master,
        _slave: slave,
        wants_keys: eager,
        stop_asked: false,
        to_command: Vec::new(),
        to_person: Vec::new(),
        ended: None,
    };
    let status = relay.carry();
    let (_, leader) = waitpid(Some(Pid::from_child(&child)), WaitOptions::empty())?
        .ok_or_else(|| io::Error::other("the leader of the session cannot be waited for"))?;
    Ok(status?.unwrap_or_else(|| killed(leader)))
}

/// A new terminal like the outer one: both ends, and its name.
///
/// Our own copy of the inner end stays open to the last, so that the outer end never hangs up.
fn new_terminal(outer: &Outer) -> io::Result<(OwnedFd, OwnedFd, OsString)> {
    use std::os::unix::ffi::OsStringExt;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    tcsetattr(&slave, OptionalActions::Now, &outer.saved)?;
    if let Ok(size) = tcgetwinsize(&outer.fd) {
        tcsetwinsize(&slave, size)?;
    }
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave, OsString::from_vec(name.into_bytes())))
}

/// The caller's terminal, put back as it was whatever happens.
struct Outer {
    fd: OwnedFd,
    saved: Termios,
    raw: bool,
    /// Whether others of a pipeline print there too, and count on how it treats the ends of lines.
    shared: bool,
}

impl Outer {
    /// Opens the terminal behind a standard descriptor anew: its own description can then be
    /// non-blocking without the caller's becoming so.
    fn open(slot: usize, shared: bool) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let anew = rustix::fs::open(format!("/proc/self/fd/{slot}"), flags, Mode::empty());
        let fd = match anew {
            Ok(fd) => fd,
            Err(_) => standard(slot).try_clone_to_owned()?,
        };
        let saved = tcgetattr(&fd)?;
        Ok(Self { fd, saved, raw: false, shared })
    }

    fn set_raw(&mut self) {
        if !self.raw && job::in_foreground(self.fd.as_fd()) {
            let mut raw = self.saved.clone();
            raw.make_raw();
            if self.shared {
                raw.output_modes = self.saved.output_modes;
            }
            self.raw = tcsetattr(&self.fd, OptionalActions::Now, &raw).is_ok();
        }
    }

    /// Whether it still makes the ends of lines itself.
    fn ends_lines(&self) -> bool {
        (!self.raw || self.shared) && self.saved.output_modes.contains(OutputModes::OPOST)
    }

    /// In the background it is no longer ours to set; whoever has it set it already.
    fn restore(&mut self) {
        if std::mem::take(&mut self.raw) && job::in_foreground(self.fd.as_fd()) {
            let _ = tcsetattr(&self.fd, OptionalActions::Drain, &self.saved);
        }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        self.restore();
    }
}

/// What carries bytes, signals and stops between the caller and the leader of the session.
struct Relay {
    signals: Signals,
    control: UnixStream,
    outer: Outer,
    master: OwnedFd,
    _slave: OwnedFd,
    /// Whether keys are for the command.
    wants_keys: bool,
    /// Whether it was the caller who asked the command to stop.
    stop_asked: bool,
    to_command: Vec<u8>,
    to_person: Vec<u8>,
    ended: Option<u8>,
}

impl Relay {
    /// Carries until the command has ended and its output is shown; `None` if the leader was lost.
    fn carry(mut self) -> io::Result<Option<u8>> {
        self.engage();
        while self.ended.is_none() {
            let ready = self.wait()?;
            for signal in self.signals.take() {
                self.handle(signal);
            }
            if ready.spoken && !self.hear() {
                break;
            }
            if ready.keys {
                self.read_keys();
            }
            self.write_to_command();
            if ready.output {
                self.read_output();
            }
            self.write_to_person();
        }
        self.show_the_rest();
        Ok(self.ended)
    }

    /// Gives the keys to the command, if it wants them and they are ours to give.
    fn engage(&mut self) {
        if self.wants_keys {
            self.outer.set_raw();
        }
        self.resize();
    }

    fn resize(&self) {
        if let Ok(size) = tcgetwinsize(&self.outer.fd) {
            let _ = tcsetwinsize(&self.master, size);
        }
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let keys = if self.outer.raw && self.to_command.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let shown = if self.to_person.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let output = if self.to_person.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        let taken = if self.to_command.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut events = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::new(&self.master, output | taken),
        ];
        // A terminal that hung up is always ready: it is asked only for what is wanted of it.
        if !(keys | shown).is_empty() {
            events.push(PollFd::new(&self.outer.fd, keys | shown));
        }
        let look_again = self.wants_keys && !self.outer.raw;
        match poll(&mut events, look_again.then_some(&LOOK_AGAIN)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let at = |index: usize| events.get(index).map_or(PollFlags::empty(), PollFd::revents);
        let ready = Ready {
            spoken: !at(1).is_empty(),
            output: at(2).contains(PollFlags::IN),
            keys: !keys.is_empty() && !at(3).difference(PollFlags::OUT).is_empty(),
        };
        if look_again {
            self.outer.set_raw();
        }
        Ok(ready)
    }

    fn handle(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::WINCH => self.resize(),
            Signal::CONT => self.engage(),
            signal => {
                self.stop_asked |= signal == Signal::TSTP;
                self.tell([PASS_ON, u8::try_from(signal.as_raw()).unwrap_or(0)]);
            }
        }
    }

    fn tell(&mut self, message: Message) {
        // A leader that is gone is noticed by its silence.
        let _ = self.control.write_all(&message);
    }

    /// Hears the leader; `false` if it is gone.
    fn hear(&mut self) -> bool {
        let mut message: Message = [0; 2];
        match rustix::io::read(&self.control, &mut message) {
            Ok(2) => {}
            Err(Errno::INTR | Errno::AGAIN) => return true,
            _ => return false,
        }
        match message {
            [ENDED, status] => self.ended = Some(status),
            [STOPPED, signal] => self.stopped(i32::from(signal)),
            _ => {}
        }
        true
    }

    /// The command stopped: because it wants the keys, or because it was told to.
    fn stopped(&mut self, signal: i32) {
        use signal_hook::consts::{SIGTTIN, SIGTTOU};
        let asks = matches!(signal, SIGTTIN | SIGTTOU) && !self.stop_asked && !self.wants_keys;
        if !(asks && job::in_foreground(self.outer.fd.as_fd())) {
            self.show_output();
            self.outer.restore();
            job::stop();
            // Our own part of stopping the job is not news.
            self.signals.take();
        }
        self.wants_keys |= asks;
        self.stop_asked = false;
        self.engage();
        self.tell([CONTINUE, 0]);
    }

    fn read_keys(&mut self) {
        let mut bytes = [0; CARRIED];
        match rustix::io::read(&self.outer.fd, &mut bytes) {
            Ok(0) => self.hang_up(),
            Ok(count) => self.to_command.extend_from_slice(&bytes[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.hang_up(),
        }
    }

    /// The caller's terminal is gone: there are no more keys.
    fn hang_up(&mut self) {
        self.wants_keys = false;
        self.outer.raw = false;
        self.tell([PASS_ON, u8::try_from(Signal::HUP.as_raw()).unwrap_or(0)]);
    }

    fn write_to_command(&mut self) {
        write_some(&self.master, &mut self.to_command);
    }

    fn write_to_person(&mut self) {
        write_some(&self.outer.fd, &mut self.to_person);
    }

    /// Reads what the command printed; `false` if there is nothing.
    fn read_output(&mut self) -> bool {
        let mut bytes = [0; CARRIED];
        match rustix::io::read(&self.master, &mut bytes) {
            Ok(count) => {
                if self.outer.ends_lines() {
                    self.to_person.extend(without_returns(&bytes[..count]));
                } else {
                    self.to_person.extend_from_slice(&bytes[..count]);
                }
                count > 0
            }
            Err(error) => error == Errno::INTR,
        }
    }

    /// Shows what the command has printed so far.
    fn show_output(&mut self) {
        let mut carried = 0;
        loop {
            while !self.to_person.is_empty() {
                carried += self.to_person.len();
                self.write_to_person();
                if !self.to_person.is_empty() && !self.wait_for_room() {
                    return;
                }
            }
            if carried > AFTERMATH || !self.read_output() {
                return;
            }
        }
    }

    /// Waits until the caller's terminal takes more; `false` if it takes none within a second.
    fn wait_for_room(&self) -> bool {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut events = [PollFd::new(&self.outer.fd, PollFlags::OUT)];
        match poll(&mut events, Some(&second)) {
            Ok(0) => false,
            Ok(_) => !events[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
            Err(error) => error == Errno::INTR,
        }
    }

    /// The command has ended: shows what it printed last, and gives the terminal back.
    fn show_the_rest(&mut self) {
        self.show_output();
        self.outer.restore();
    }
}

/// What there is to do.
struct Ready {
    spoken: bool,
    output: bool,
    keys: bool,
}

/// The bytes without the carriage returns that the inner terminal put before each end of line.
fn without_returns(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let next = bytes.iter().skip(1).map(Some).chain([None]);
    bytes
        .iter()
        .zip(next)
        .filter(|(byte, next)| (**byte, *next) != (b'\r', Some(&b'\n')))
        .map(|(byte, _)| *byte)
}

/// Writes as much as is taken; what a terminal that is gone does not take is dropped.
fn write_some(fd: &OwnedFd, bytes: &mut Vec<u8>) {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(count) => drop(bytes.drain(..count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return,
            Err(_) => bytes.clear(),
        }
    }
}
