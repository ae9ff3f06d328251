//! Signals as something to wait for: which came since the last time.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::Signal;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// What is passed on to the command.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// What concerns the run itself.
const OURS: [i32; 4] = [SIGCHLD, SIGCONT, SIGTSTP, SIGWINCH];

/// The signals of this process, from now on.
pub(super) struct Signals {
    wake: UnixStream,
    came: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    /// Takes all signals over, but those that the caller chose to ignore (as `nohup` does): they
    /// stay ignored, here and in the command.
    pub(super) fn take_over() -> io::Result<Self> {
        let (wake, woken_by) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let ignored = ignored();
        let heard = |signal: &i32| OURS.contains(signal) || ignored >> (signal - 1) & 1 == 0;
        let mut came = Vec::new();
        for signal in OURS.into_iter().chain(PASSED_ON).filter(heard) {
            let flag = Arc::new(AtomicBool::new(false));
            // The flag first: whoever is woken must find it set.
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, woken_by.try_clone()?)?;
            came.push((signal, flag));
        }
        Ok(Self { wake, came })
    }

    /// The signals that came since the last call.
    pub(super) fn take(&mut self) -> Vec<Signal> {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(count) if count == bytes.len()) {}
        let came = self.came.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        came.filter_map(|(signal, _)| Signal::from_named_raw(*signal)).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The signals that this process was started ignoring, a bit each; none if the kernel does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
