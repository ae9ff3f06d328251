//! What is mounted below the roots: inotify says nothing of a mount that covers a directory.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstatfs;

/// File systems whose files others change without this kernel seeing it: NFS, SMB (three), 9p,
/// FUSE, Ceph, AFS, OCFS2, GFS2, Lustre, VirtualBox's folders.
const SHARED: [u64; 12] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x6573_5546,
    0x00c3_6400,
    0x5346_414f,
    0x7461_636f,
    0x0116_1970,
    0x0bd0_0bd0,
    0x786f_4256,
];

/// Whether changes of the file system that a directory lies on can come from elsewhere, unseen.
pub(super) fn is_shared(directory: impl AsFd) -> bool {
    let kind = |stat: rustix::fs::StatFs| stat.f_type as u64 & 0xffff_ffff;
    fstatfs(directory).is_ok_and(|stat| SHARED.contains(&kind(stat)))
}

/// The mounts at and below some directories.
pub(super) struct Mounts {
    table: File,
    roots: Vec<PathBuf>,
    below: Vec<Vec<u8>>,
}

impl Mounts {
    pub(super) fn new(roots: Vec<PathBuf>) -> std::io::Result<Self> {
        let mut table = File::open("/proc/self/mountinfo")?;
        let below = read(&mut table, &roots)?;
        Ok(Self { table, roots, below })
    }

    /// Whether anything was mounted or unmounted there since the last question.
    ///
    /// The kernel tells when the table changed anywhere; only then it is read.
    pub(super) fn changed(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if matches!(poll(&mut fds, Some(&now)), Ok(0)) {
            return false;
        }
        match read(&mut self.table, &self.roots) {
            Ok(below) => std::mem::replace(&mut self.below, below) != self.below,
            Err(_) => true,
        }
    }
}

/// The lines of mounts at or below one of the directories.
fn read(table: &mut File, roots: &[PathBuf]) -> std::io::Result<Vec<Vec<u8>>> {
    let mut text = Vec::new();
    table.rewind()?;
    table.read_to_end(&mut text)?;
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let inside = |line: &&[u8]| {
        let place = line.split(|byte| *byte == b' ').nth(4).map(unescape).unwrap_or_default();
        roots.iter().any(|root| Path::new(std::ffi::OsStr::from_bytes(&place)).starts_with(root))
    };
    Ok(lines.filter(inside).map(<[u8]>::to_vec).collect())
}

/// The table writes a blank as `\040`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_the_table_are_read() {
        assert_eq!(unescape(br"/a\040b\134"), br"/a b\");
        assert_eq!(unescape(br"/a\9\04"), br"/a\9\04");
    }

    #[test]
    fn nothing_changes_while_nothing_is_mounted() {
        let mut mounts = Mounts::new(vec![PathBuf::from("/")]).unwrap();
        assert!(!mounts.below.is_empty());
        let _ = mounts.changed();
        assert!(mounts.below.iter().all(|line| !line.is_empty()));
    }
}
