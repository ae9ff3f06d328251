//! Files that share their blocks with others, where the file system can do that.

use std::fs::File;

use rustix::io::Errno;

/// Content of more bytes than this is shared: to copy less takes no longer, and up to here content is
/// read as a whole anyway.
const WORTH_SHARING: u64 = 4 << 20;

/// Whether a file of so many bytes is worth trying.
pub(crate) fn is_worthwhile(size: u64) -> bool {
    size > threshold()
}

/// Lets a new file have the blocks of another, and no copy of them.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn share(to: &File, from: &File) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(to, from)
}

/// The same; tests that ask for it everywhere get a copy where blocks cannot be shared.
#[cfg(feature = "failpoints")]
pub(crate) fn share(to: &File, from: &File) -> Result<(), Errno> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Err(error) if std::env::var_os(FOR_TESTS).is_some() => {
            let copied = std::io::copy(&mut &*from, &mut &*to);
            copied.map(drop).map_err(|_| error)
        }
        shared => shared,
    }
}

/// Names the size in bytes above which tests want blocks to be shared.
#[cfg(feature = "failpoints")]
const FOR_TESTS: &str = "CHRONICLE_CLONES";

#[cfg(feature = "failpoints")]
fn threshold() -> u64 {
    let asked = std::env::var(FOR_TESTS).ok().and_then(|size| size.parse().ok());
    asked.unwrap_or(WORTH_SHARING)
}

#[cfg(not(feature = "failpoints"))]
fn threshold() -> u64 {
    WORTH_SHARING
}
