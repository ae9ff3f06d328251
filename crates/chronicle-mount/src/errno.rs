//! From every kind of failure to the number that a caller gets.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuser::Errno;

/// What a request comes to.
pub(crate) type Answer<T> = Result<T, Errno>;

/// Turns a failure of the backing file system into its error number.
pub(crate) trait OrErrno<T> {
    /// The same, with the number.
    fn or_errno(self) -> Answer<T>;
}

impl<T> OrErrno<T> for Result<T, rustix::io::Errno> {
    fn or_errno(self) -> Answer<T> {
        self.map_err(|error| Errno::from_i32(error.raw_os_error()))
    }
}

impl<T> OrErrno<T> for std::io::Result<T> {
    fn or_errno(self) -> Answer<T> {
        // An error that no system call returned has no number; a total function says EIO.
        self.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_i32))
    }
}

/// Answers EIO in place of a panic, so that one bad request does not end the mount.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Errno::EIO))
}
