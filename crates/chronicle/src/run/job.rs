//! Job control seen from inside a job: whether we are in the foreground, and how we stop.

use rustix::fd::BorrowedFd;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_current_process_group, kill_process};

/// Whether this job may read from and set up its terminal. A terminal that is not the session's
/// own has no jobs to ask about.
pub(super) fn in_foreground(terminal: BorrowedFd<'_>) -> bool {
    rustix::termios::tcgetpgrp(terminal).map_or(true, |group| group == getpgrp())
}

/// Stops this job as ^Z would have, and comes back when it is continued.
///
/// Where no shell could continue it, stopping would be for ever: then nothing happens, as in the
/// kernel.
pub(super) fn stop() {
    if !can_be_continued() {
        return;
    }
    // The rest of the job first: whatever shell script or pipeline we are part of.
    let _ = kill_current_process_group(Signal::TSTP);
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Whether some process of our session, outside our group, is there to continue us.
pub(super) fn can_be_continued() -> bool {
    let Some(own) = Relations::of(getpid()) else { return false };
    let mut at = own.clone();
    // Bounded, since ids may be reused while we climb.
    for _ in 0..64 {
        let Some(parent) = Pid::from_raw(at.parent).and_then(Relations::of) else { return false };
        if parent.session != own.session {
            return false;
        }
        if parent.group != own.group {
            return true;
        }
        at = parent;
    }
    false
}

/// Where a process belongs.
#[derive(Clone)]
struct Relations {
    parent: i32,
    group: i32,
    session: i32,
}

impl Relations {
    fn of(process: Pid) -> Option<Self> {
        let id = process.as_raw_nonzero();
        Self::parse(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// `1234 (name) S parent group session ...`, where the name may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(1).map(|field| field.parse().ok());
        Some(Self { parent: fields.next()??, group: fields.next()??, session: fields.next()?? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_process_name_does_not_confuse() {
        let found = Relations::parse("7 (a) b) S 1 (2) S 3 4 5 6").expect("parsed");
        assert_eq!((found.parent, found.group, found.session), (3, 4, 5));
        assert!(Relations::parse("7 (a) S x").is_none());
    }
}
