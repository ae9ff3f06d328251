//! The kernel's second voice: fanotify, which also says which process it was. Only for the privileged.
//!
//! One mark per file system tells of all directories on it, so that nothing slips through between
//! the making of a directory and the first file in it. Only notices, never questions: nobody's
//! write waits for us. The marks go with the descriptor, however this process ends.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::handle::DirectoryHandle;

/// What is told: what a path's entry can change by, and by whom a file was open for writing last.
const TOLD: u64 = libc::FAN_MODIFY
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ATTRIB
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_ONDIR;
/// Few enough events at once that the descriptors which come with them are no burden.
const BUFFER: usize = 8 * 1024;
/// An event's head, as the kernel writes it: lengths, version, what, a descriptor, a pid.
const HEAD: usize = 24;
/// The head of a piece of information: its kind, a gap, its length.
const INFO_HEAD: usize = 4;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) directory: DirectoryHandle,
    /// `None`: the directory itself.
    pub(super) name: Option<Vec<u8>>,
}

/// One thing that some process did.
#[derive(Debug, Default)]
pub(super) struct Notice {
    what: u64,
    /// The process's number, in our own namespace; 0 where it has none.
    pub(super) pid: u32,
    /// The process itself, unless it was gone when its notice was read.
    pub(super) process: Option<OwnedFd>,
    /// What it was done to; of a rename the new name.
    pub(super) at: Option<Name>,
    /// The old name of what was renamed.
    pub(super) from: Option<Name>,
}

impl Notice {
    /// More happened than the kernel remembers.
    pub(super) fn is_overflow(&self) -> bool {
        self.what & libc::FAN_Q_OVERFLOW != 0
    }

    /// It happened to a directory.
    pub(super) fn is_of_directory(&self) -> bool {
        self.what & libc::FAN_ONDIR != 0
    }

    /// A name came or went, so that its directory changed as well.
    pub(super) fn is_of_structure(&self) -> bool {
        self.what & (libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_RENAME) != 0
    }
}

/// The marks of one process.
pub(super) struct Group {
    kernel: OwnedFd,
    buffer: Vec<u8>,
}

impl Group {
    /// Fails for whoever lacks the privilege, and on kernels older than 5.17.
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME
            | libc::FAN_REPORT_PIDFD;
        #[expect(unsafe_code, reason = "rustix has no fanotify")]
        // SAFETY: it takes two numbers, and what it returns is nobody else's descriptor.
        let kernel = unsafe {
            let fd = checked(libc::fanotify_init(flags, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { kernel, buffer: vec![0; BUFFER] })
    }

    /// Marks the file system that a directory lies on.
    pub(super) fn mark_file_system_of(&self, directory: impl AsFd) -> Result<(), Errno> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let (kernel, directory) = (self.kernel.as_raw_fd(), directory.as_fd().as_raw_fd());
        #[expect(unsafe_code, reason = "rustix has no fanotify")]
        // SAFETY: both descriptors are open, and without a path it is the directory itself.
        let done = unsafe { libc::fanotify_mark(kernel, flags, TOLD, directory, std::ptr::null()) };
        checked(done).map(drop)
    }

    /// Tells what had happened when this was called; of what happens meanwhile not everything.
    ///
    /// Not more than that: somebody who never stops writing must not hold us up.
    pub(super) fn drain(&mut self, mut told: impl FnMut(Notice)) -> Result<(), Errno> {
        let queued = rustix::io::ioctl_fionread(&self.kernel)?;
        let mut read = 0;
        while read < queued {
            let length = match rustix::io::read(&self.kernel, &mut self.buffer[..]) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            read += length as u64;
            let mut rest = &self.buffer[..length];
            while let Some((notice, after)) = parse(rest) {
                told(notice);
                rest = after;
            }
            if !rest.is_empty() {
                return Err(Errno::BADMSG);
            }
        }
        Ok(())
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }
}

/// Whether the process of a notice is still there, if only until its parent takes note of its end:
/// until then its number is nobody else's.
pub(super) fn is_there(process: &OwnedFd) -> bool {
    let (process, none) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    #[expect(unsafe_code, reason = "rustix sends no signal 0, which only asks")]
    // SAFETY: the descriptor is open, signal 0 does nothing, and there is no information with it.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, 0, none, 0) };
    done == 0
}

/// The result of a system call that says -1 where it failed.
pub(super) fn checked(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result >= 0 {
        return Ok(result);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Reads one notice and returns what follows it; `None` at the end, and where it cannot be read.
fn parse(bytes: &[u8]) -> Option<(Notice, &[u8])> {
    let length = number(bytes, 0)? as usize;
    let head = usize::from(u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?));
    if head < HEAD || length < head || length > bytes.len() {
        return None;
    }
    let what = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let pid = u32::try_from(number(bytes, 20)? as i32).unwrap_or(0);
    let mut notice = Notice { what, pid, ..Notice::default() };
    let mut rest = &bytes[head..length];
    while rest.len() >= INFO_HEAD {
        let length = usize::from(u16::from_ne_bytes([rest[2], rest[3]]));
        let info = rest.get(INFO_HEAD..length)?;
        match rest[0] {
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME | libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME => {
                notice.at = Some(name(info)?);
            }
            libc::FAN_EVENT_INFO_TYPE_DFID => {
                notice.at = Some(Name { name: None, ..name(info)? });
            }
            libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME => notice.from = Some(name(info)?),
            libc::FAN_EVENT_INFO_TYPE_PIDFD => notice.process = owned(number(info, 0)? as i32),
            _ => {}
        }
        rest = &rest[length..];
    }
    Some((notice, &bytes[length..]))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The file system, the directory's handle on it, and a name that ends with NUL.
fn name(info: &[u8]) -> Option<Name> {
    let file_system = u64::from(number(info, 0)?) | u64::from(number(info, 4)?) << 32;
    let (length, kind) = (number(info, 8)? as usize, number(info, 12)? as i32);
    let bytes = info.get(16..16_usize.checked_add(length)?)?.to_vec();
    let rest = &info[16 + length..];
    let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = (!matches!(name, b"" | b".")).then(|| name.to_vec());
    Some(Name { directory: DirectoryHandle { file_system, kind, bytes }, name })
}

/// A descriptor that the kernel made for us with a notice; negative where it could not.
fn owned(fd: i32) -> Option<OwnedFd> {
    #[expect(unsafe_code, reason = "the kernel hands over a descriptor as a number")]
    // SAFETY: the kernel opened it for this notice, which is read once.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A notice as the kernel writes it, with pieces of information of these kinds.
    fn event(what: u64, pid: i32, infos: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, info) in infos {
            let length = (info.len() + INFO_HEAD) as u16;
            body.extend([*kind, 0]);
            body.extend(length.to_ne_bytes());
            body.extend(info);
        }
        let mut bytes = ((HEAD + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([3, 0]);
        bytes.extend((HEAD as u16).to_ne_bytes());
        bytes.extend(what.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn named(text: &[u8]) -> Vec<u8> {
        let mut bytes = [1_u32, 2, 3, 7].map(u32::to_ne_bytes).concat();
        bytes.extend(b"abc");
        bytes.extend(text);
        bytes.extend([0, 0]);
        bytes
    }

    #[test]
    fn names_processes_and_renames_are_read() {
        let gone = (-1_i32).to_ne_bytes().to_vec();
        let first = event(libc::FAN_CREATE, 9, &[(2, named(b"f")), (4, gone)]);
        let second = event(
            libc::FAN_RENAME | libc::FAN_ONDIR,
            10,
            &[(10, named(b"old")), (12, named(b"new"))],
        );
        let both = [first, second].concat();
        let (notice, rest) = parse(&both).unwrap();
        let directory = DirectoryHandle { file_system: 1 | 2 << 32, kind: 7, bytes: b"abc".into() };
        let at = |text: &[u8]| Some(Name { directory: directory.clone(), name: Some(text.into()) });
        assert_eq!((notice.pid, &notice.at, notice.process.is_none()), (9, &at(b"f"), true));
        assert!(notice.is_of_structure() && !notice.is_of_directory() && !notice.is_overflow());
        let (notice, rest) = parse(rest).unwrap();
        assert_eq!((&notice.from, &notice.at), (&at(b"old"), &at(b"new")));
        assert!(notice.is_of_directory() && rest.is_empty());
        let itself = event(libc::FAN_ATTRIB, 9, &[(2, named(b"."))]);
        assert_eq!(parse(&itself).unwrap().0.at.unwrap().name, None);
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        let whole = event(libc::FAN_CREATE, 9, &[(2, named(b"f"))]);
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_none(), "{end}");
        }
        // Lengths that lie.
        for (at, byte) in [(6, 0), (26, 200), (36, 200)] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert!(parse(&bytes).is_none(), "{at}");
        }
    }
}
