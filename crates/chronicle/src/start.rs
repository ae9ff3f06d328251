//! How the program starts.
//!
//! The standard library's own start reads the list of all mappings to find out where the stack ends, and
//! sets up a second stack for telling that the first overflowed: a fiftieth of what a hook takes. Where
//! the C library hands the arguments over by itself, the program starts without it, and does the two
//! things that it does need.
#![cfg(all(target_os = "linux", target_env = "gnu", not(test)))]

/// Called by the C library.
// The name is what the C library looks for, and nothing else in the program has it.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn main(_count: std::ffi::c_int, _words: *const *const std::ffi::c_char) -> i32 {
    occupy_standard_streams();
    ignore_broken_pipes();
    i32::from(crate::whole())
}

/// Opens what is closed of the three streams, so that no file of ours gets their numbers and what is
/// said to people.
fn occupy_standard_streams() {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::{Errno, fcntl_getfd};
    use rustix::stdio::{stderr, stdin, stdout};
    let is_closed = |found: rustix::io::Result<_>| matches!(found, Err(Errno::BADF));
    // In this order, since each is given the lowest number that is free.
    let closed = [fcntl_getfd(stdin()), fcntl_getfd(stdout()), fcntl_getfd(stderr())];
    for _ in closed.into_iter().filter(|found| is_closed(*found)) {
        if let Ok(nothing) = open("/dev/null", OFlags::RDWR, Mode::empty()) {
            std::mem::forget(nothing);
        }
    }
}

/// Writing to a pipe that nobody reads is an error like any other, not the end.
// No handler is installed and nothing else runs yet.
#[allow(unsafe_code)]
fn ignore_broken_pipes() {
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
