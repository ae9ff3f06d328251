//! As whom a thread touches the backing file system: files belong to who made them.
//!
//! The kernel has checked permissions already (`default_permissions`), so only ownership and what a write takes
//! away from a file with set-user-id depend on this. A thread stays who it was until a request needs another.

use std::cell::Cell;
use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::versions::Caller;

/// As whom, with which mask for new files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    uid: u32,
    gid: u32,
    umask: u32,
}

thread_local! {
    static CURRENT: Cell<Option<Identity>> = const { Cell::new(None) };
}

/// What this process may do, if it may act for others.
fn powers() -> Option<CapabilitySets> {
    static POWERS: OnceLock<Option<CapabilitySets>> = OnceLock::new();
    *POWERS.get_or_init(|| {
        let all = rustix::thread::capabilities(None).ok()?;
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_OVERRIDE;
        all.effective.contains(needed).then_some(all)
    })
}

/// From here on this thread makes files that are the caller's, and its writes are the caller's.
pub(crate) fn assume(caller: &Caller, umask: u32) {
    switch(Identity { uid: caller.uid, gid: caller.gid, umask });
}

/// From here on this thread is itself again.
pub(crate) fn be_oneself() {
    static SELF: OnceLock<Identity> = OnceLock::new();
    switch(*SELF.get_or_init(|| Identity {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: 0,
    }));
}

fn switch(to: Identity) {
    let from = CURRENT.get();
    if from == Some(to) {
        return;
    }
    if from.is_none() {
        own_umask();
    }
    if from.is_none_or(|from| from.umask != to.umask) {
        rustix::process::umask(Mode::from_raw_mode(to.umask));
    }
    if from.is_none_or(|from| (from.uid, from.gid) != (to.uid, to.gid)) {
        become_user(to.uid, to.gid);
    }
    CURRENT.set(Some(to));
}

/// Otherwise all threads of a process share one mask.
fn own_umask() {
    #[expect(unsafe_code, reason = "rustix does not unshare this safely")]
    // SAFETY: only the mask and the working directory become this thread's own.
    unsafe {
        libc::unshare(libc::CLONE_FS);
    }
}

fn become_user(uid: u32, gid: u32) {
    let Some(powers) = powers() else { return };
    #[expect(unsafe_code, reason = "rustix does not know the file system's user")]
    // SAFETY: both take a number and concern this thread only.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
    // Leaving root took the rights over files away. Two are not wanted back for others: with them a write
    // would leave set-user-id where it is, and take the room that is reserved for root.
    let mut effective = powers.effective;
    if uid != 0 {
        effective.remove(CapabilitySet::FSETID | CapabilitySet::SYS_RESOURCE);
    }
    let _ = rustix::thread::set_capabilities(None, CapabilitySets { effective, ..powers });
}
