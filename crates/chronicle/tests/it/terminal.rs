//! A terminal for tests, as a person would sit at.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// The caller's terminal: what a person would see, and where programs are started.
pub(crate) struct Terminal {
    pub(crate) screen: OwnedFd,
    pub(crate) inside: OwnedFd,
    pub(crate) name: String,
}

impl Terminal {
    /// A new one, 33 rows of 77 columns.
    pub(crate) fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::grantpt(&screen).expect("granted");
        rustix::pty::unlockpt(&screen).expect("unlocked");
        let name = rustix::pty::ptsname(&screen, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inside = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).expect("opened");
        let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&inside, size).expect("resized");
        Self { screen, inside, name: name.into_string().expect("its name is text") }
    }

    /// A descriptor to start a program with.
    pub(crate) fn stdio(&self) -> Stdio {
        Stdio::from(self.inside.try_clone().expect("a copy"))
    }

    /// Starts a program with all three descriptors here.
    pub(crate) fn start(&self, mut command: Command) -> Child {
        command
            .stdin(self.stdio())
            .stdout(self.stdio())
            .stderr(self.stdio())
            .spawn()
            .expect("start")
    }

    /// Runs a program here to its end; what was on the screen and the exit status.
    pub(crate) fn run(&self, command: Command) -> (String, i32) {
        let mut child = self.start(command);
        let mut shown = Vec::new();
        loop {
            let ended = child.try_wait().expect("wait");
            // Once more after its end: what it printed last.
            while self.is_ready() {
                let mut bytes = [0; 4096];
                let count = rustix::io::read(&self.screen, &mut bytes).expect("read the screen");
                shown.extend_from_slice(&bytes[..count]);
            }
            if let Some(status) = ended {
                let text = String::from_utf8_lossy(&shown).into_owned();
                return (text, status.code().expect("not killed"));
            }
        }
    }

    /// Whether the screen has something new, after a moment at most.
    fn is_ready(&self) -> bool {
        let moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let mut events = [PollFd::new(&self.screen, PollFlags::IN)];
        poll(&mut events, Some(&moment)).expect("poll") > 0
    }

    /// Types, as a person would before or while a program runs.
    pub(crate) fn type_in(&self, keys: &str) {
        let count = rustix::io::write(&self.screen, keys.as_bytes()).expect("type");
        assert_eq!(count, keys.len());
    }

    /// How many characters wait to be read by whoever reads this terminal next.
    pub(crate) fn waiting(&self) -> u64 {
        let mut raw = tcgetattr(&self.inside).expect("settings");
        raw.make_raw();
        tcsetattr(&self.inside, OptionalActions::Now, &raw).expect("set raw");
        rustix::io::ioctl_fionread(&self.inside).expect("count")
    }
}
