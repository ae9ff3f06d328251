//! From what the backing file system says of a file to what the kernel wants to hear.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec};

use crate::magic::{MagicEntry, MagicKind};

/// The attributes of a backing file under our own number.
pub(crate) fn of_stat(node: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        crtime: UNIX_EPOCH,
        kind: kind(stat),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: device(stat.st_rdev),
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// What kind of thing it is.
pub(crate) fn kind(stat: &Stat) -> FileType {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// A device number as the kernel packs it on the wire.
fn device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The reverse of [`device`].
pub(crate) fn device_from_wire(number: u32) -> u64 {
    let major = (number & 0xf_ff00) >> 8;
    let minor = (number & 0xff) | ((number >> 12) & 0xf_ff00);
    rustix::fs::makedev(major, minor)
}

fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let part = Duration::new(0, nanoseconds);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    at.and_then(|at| at.checked_add(part)).unwrap_or(UNIX_EPOCH)
}

/// A time of a request for the system call.
///
/// fuser reads a time before 1970 as if its nanoseconds counted backwards as well; this undoes that.
pub(crate) fn timespec(asked: Option<TimeOrNow>) -> Timespec {
    match asked {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(at)) => match at.duration_since(UNIX_EPOCH) {
            Ok(after) => {
                Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() }
            }
            Err(before) => {
                let before = before.duration();
                Timespec {
                    tv_sec: -(before.as_secs() as i64),
                    tv_nsec: before.subsec_nanos().into(),
                }
            }
        },
    }
}

/// The attributes of an entry of the magic tree.
pub(crate) fn of_magic(node: u64, entry: &MagicEntry) -> FileAttr {
    let nanoseconds = entry.mtime_ns.rem_euclid(1_000_000_000) as u32;
    let mtime = time(entry.mtime_ns.div_euclid(1_000_000_000), nanoseconds);
    FileAttr {
        ino: INodeNo(node),
        size: entry.size,
        blocks: entry.size.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: mtime,
        crtime: UNIX_EPOCH,
        kind: of_magic_kind(entry.kind),
        perm: (entry.mode & 0o7555) as u16,
        nlink: if entry.kind == MagicKind::Directory { 2 } else { 1 },
        uid: entry.uid,
        gid: entry.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The same kind in the kernel's words.
pub(crate) fn of_magic_kind(kind: MagicKind) -> FileType {
    match kind {
        MagicKind::Directory => FileType::Directory,
        MagicKind::File => FileType::RegularFile,
        MagicKind::Symlink => FileType::Symlink,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_survives_the_wire() {
        for (major, minor) in [(1, 3), (8, 0), (259, 70_000), (4095, 0xf_ffff)] {
            let number = rustix::fs::makedev(major, minor);
            assert_eq!(device_from_wire(device(number)), number);
        }
    }

    #[test]
    fn a_time_before_1970_keeps_its_fraction() {
        // What fuser makes of the kernel's -2 s and 250 ms.
        let read = UNIX_EPOCH - Duration::new(2, 250_000_000);
        let asked = timespec(Some(TimeOrNow::SpecificTime(read)));
        assert_eq!((asked.tv_sec, asked.tv_nsec), (-2, 250_000_000));
        let told = time(-2, 250_000_000);
        assert_eq!(UNIX_EPOCH.duration_since(told).unwrap(), Duration::from_millis(1750));
    }
}
