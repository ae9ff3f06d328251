//! The names in one directory, ordered, read with few system calls and without an allocation each.
//!
//! Says when a directory changed while it was listed, because then a name may be missing.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;

use crate::fs::{self, STAGING_PREFIX, Stat};
use crate::path::{NAME_MAX, PATH_MAX, WorkspacePath};

/// How often a directory that changes meanwhile is listed again.
const ATTEMPTS: u32 = 3;
/// Enough for about two thousand names at a time.
const BUFFER: usize = 64 * 1024;

/// A reusable list of names.
#[derive(Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Span {
    /// The first eight bytes as a number: decides most comparisons.
    key: u64,
    start: usize,
    end: usize,
}

/// A directory that was opened and listed.
pub(super) struct Listed {
    pub(super) directory: OwnedFd,
    pub(super) stat: Stat,
    /// Why names may be missing.
    pub(super) doubt: Option<Errno>,
}

impl Names {
    /// Lists a directory beneath another; `expected` is what its parent said of it just before.
    ///
    /// `Err` means that it could not be opened, or that it holds a name whose path no record may hold: what
    /// it holds is then not known. `EBUSY` as a doubt means that it kept changing.
    pub(super) fn list(
        &mut self,
        from: impl AsFd,
        below: &[u8],
        path: &WorkspacePath,
        expected: &Stat,
    ) -> Result<Listed, Errno> {
        let listed = self.open_and_fill(from, below, expected)?;
        if self.spans.iter().any(|span| is_too_long(path, span.end - span.start)) {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(listed)
    }

    fn open_and_fill(
        &mut self,
        from: impl AsFd,
        below: &[u8],
        expected: &Stat,
    ) -> Result<Listed, Errno> {
        self.clear();
        let directory = fs::open_directory_at(from, below)?;
        let mut before = *expected;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                rustix::fs::seek(&directory, SeekFrom::Start(0))?;
            }
            let doubt = self.fill(&directory).err();
            let stat = fs::stat_of(&directory)?;
            if doubt.is_some() || same_moment(&before, &stat) {
                self.sort();
                return Ok(Listed { directory, stat, doubt });
            }
            before = stat;
        }
        self.sort();
        Ok(Listed { directory, stat: before, doubt: Some(Errno::BUSY) })
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// One name.
    pub(super) fn get(&self, index: usize) -> &CStr {
        let span = self.spans[index];
        CStr::from_bytes_with_nul(&self.bytes[span.start..=span.end])
            .expect("BUG: a name was stored without its end")
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    fn fill(&mut self, directory: &OwnedFd) -> Result<(), Errno> {
        self.clear();
        self.buffer.clear();
        self.buffer.reserve(BUFFER);
        let mut entries = RawDir::new(directory, self.buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name.starts_with(STAGING_PREFIX) {
                continue;
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(entry.file_name().to_bytes_with_nul());
            self.spans.push(Span { key: key(name), start, end: start + name.len() });
        }
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let rest = |span: &Span| &bytes[span.start..span.end];
        self.spans.sort_unstable_by(|a, b| match a.key.cmp(&b.key) {
            Ordering::Equal => rest(a).cmp(rest(b)),
            decided => decided,
        });
    }
}

/// Fails if an open directory holds a name whose path no record may hold; lists it only where that can be.
pub(super) fn check_lengths(directory: &OwnedFd, path: &WorkspacePath) -> Result<(), Errno> {
    if !is_too_long(path, NAME_MAX) {
        return Ok(());
    }
    let stat = fs::stat_of(directory)?;
    Names::default().list(directory, b".", path, &stat).map(drop)
}

/// Whether a name of this length in a directory makes a path that is longer than one that a record may hold.
fn is_too_long(directory: &WorkspacePath, name: usize) -> bool {
    directory.as_bytes().len() + 1 + name > PATH_MAX
}

/// Names hold no NUL, so that a short name padded with it orders before every longer one.
fn key(name: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = name.len().min(8);
    first[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(first)
}

fn same_moment(a: &Stat, b: &Stat) -> bool {
    let times = |stat: &Stat| (stat.signature.mtime_ns, stat.signature.ctime_ns);
    a.same_inode(b) && times(a) == times(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_by_their_bytes_whatever_their_length() {
        let mut names = Names::default();
        let given: [&[u8]; 6] = [b"abcdefghj", b"abcdefgh", b"b", b"abcdefghi", b"\xff", b"a"];
        for name in given {
            let start = names.bytes.len();
            names.bytes.extend_from_slice(name);
            names.bytes.push(0);
            names.spans.push(Span { key: key(name), start, end: start + name.len() });
        }
        names.sort();
        let sorted: Vec<_> = (0..names.len()).map(|at| names.get(at).to_bytes()).collect();
        let mut expected = given;
        expected.sort_unstable();
        assert_eq!(sorted, expected);
    }
}
