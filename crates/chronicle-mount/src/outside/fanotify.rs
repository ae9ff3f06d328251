//! The few calls of fanotify that are needed, and what it tells.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use chronicle_core::DirectoryHandle;
use rustix::io::Errno;

const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
const TOLD: u64 = NAMES
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_DELETE_SELF
    | libc::FAN_ONDIR
    | libc::FAN_EVENT_ON_CHILD;

/// The length of what comes before the records of one event, and of the head of each record.
const HEAD: usize = size_of::<libc::fanotify_event_metadata>();
const RECORD: usize = 4;

/// One thing that happened.
#[derive(Debug)]
pub(super) struct Happening<'a> {
    what: u64,
    pub(super) pid: i32,
    pub(super) directory: Option<DirectoryHandle>,
    pub(super) name: &'a [u8],
}

impl Happening<'_> {
    /// So much happened that not all was told.
    pub(super) fn is_overflow(&self) -> bool {
        self.what & libc::FAN_Q_OVERFLOW != 0
    }

    /// A name came or went.
    pub(super) fn is_of_names(&self) -> bool {
        self.what & NAMES != 0
    }

    /// Nothing but the content of a file changed.
    pub(super) fn is_of_content(&self) -> bool {
        self.what & (NAMES | libc::FAN_ATTRIB) == 0
    }

    /// It concerns the directory, not a name in it.
    pub(super) fn is_of_itself(&self) -> bool {
        self.name.is_empty() || self.name == b"."
    }

    /// The directory is gone for good.
    pub(super) fn is_end_of_directory(&self) -> bool {
        self.what & libc::FAN_DELETE_SELF != 0 && self.is_of_itself()
    }
}

/// Marks on directories.
#[derive(Debug)]
pub(super) struct Group {
    kernel: OwnedFd,
    pub(super) is_unlimited: bool,
}

impl Group {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME;
        let unlimited = flags | libc::FAN_UNLIMITED_QUEUE | libc::FAN_UNLIMITED_MARKS;
        match init(unlimited) {
            Ok(kernel) => Ok(Self { kernel, is_unlimited: true }),
            Err(Errno::PERM) => init(flags).map(|kernel| Self { kernel, is_unlimited: false }),
            Err(error) => Err(error),
        }
    }

    /// From now on what happens in this directory is told.
    pub(super) fn mark(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR;
        let (kernel, directory) = (self.kernel.as_raw_fd(), directory.as_raw_fd());
        #[expect(unsafe_code, reason = "rustix has no fanotify")]
        // SAFETY: both descriptors are open, and the path ends with NUL.
        let done = unsafe { libc::fanotify_mark(kernel, flags, TOLD, directory, c".".as_ptr()) };
        checked(done)
    }

    /// From now on writes to this file are not told, or are again.
    pub(super) fn ignore_writes(&self, file: BorrowedFd<'_>, ignored: bool) -> Result<(), Errno> {
        let what = if ignored { libc::FAN_MARK_ADD } else { libc::FAN_MARK_REMOVE };
        let flags = what | libc::FAN_MARK_IGNORED_MASK | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        let (kernel, file) = (self.kernel.as_raw_fd(), file.as_raw_fd());
        #[expect(unsafe_code, reason = "rustix has no fanotify")]
        // SAFETY: both descriptors are open, and without a path it is the file itself.
        let done =
            unsafe { libc::fanotify_mark(kernel, flags, libc::FAN_MODIFY, file, std::ptr::null()) };
        checked(done)
    }

    /// Calls with all that had been told.
    pub(super) fn drain(
        &self,
        room: &mut [u8],
        mut told: impl FnMut(Happening<'_>),
    ) -> Result<(), Errno> {
        let queued = rustix::io::ioctl_fionread(&self.kernel)?;
        let mut read = 0;
        while read < queued {
            let length = match rustix::io::read(&self.kernel, &mut *room) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            read += length as u64;
            let mut rest = &room[..length];
            while !rest.is_empty() {
                let (happening, after) = parse(rest).ok_or(Errno::BADMSG)?;
                told(happening);
                rest = after;
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

fn init(flags: libc::c_uint) -> Result<OwnedFd, Errno> {
    #[expect(unsafe_code, reason = "rustix has no fanotify")]
    // SAFETY: it takes two numbers, and what it returns is nobody else's descriptor.
    unsafe {
        let fd = libc::fanotify_init(flags, 0);
        checked(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn checked(done: libc::c_int) -> Result<(), Errno> {
    if done >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Takes one event off; None if it is not whole.
fn parse(bytes: &[u8]) -> Option<(Happening<'_>, &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let records_at = usize::from(u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?));
    let what = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let pid = u32_at(bytes, 20)? as i32;
    if length < HEAD || records_at < HEAD {
        return None;
    }
    let (event, rest) = bytes.split_at_checked(length)?;
    let mut happening = Happening { what, pid, directory: None, name: b"" };
    let mut records = event.get(records_at..)?;
    while records.len() >= RECORD {
        let length = usize::from(u16::from_ne_bytes(records.get(2..4)?.try_into().ok()?));
        let record = records.get(..length).filter(|_| length >= RECORD)?;
        if [libc::FAN_EVENT_INFO_TYPE_DFID_NAME, libc::FAN_EVENT_INFO_TYPE_DFID]
            .contains(&record[0])
        {
            let (directory, name) = parse_place(&record[RECORD..])?;
            (happening.directory, happening.name) = (Some(directory), name);
        }
        records = &records[length..];
    }
    Some((happening, rest))
}

/// A directory and a name in it.
fn parse_place(bytes: &[u8]) -> Option<(DirectoryHandle, &[u8])> {
    let file_system = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let (length, kind) = (u32_at(bytes, 8)? as usize, u32_at(bytes, 12)? as i32);
    let handle = bytes.get(16..16_usize.checked_add(length)?)?;
    let name = bytes[16 + length..].split(|byte| *byte == 0).next().unwrap_or(b"");
    Some((DirectoryHandle { file_system, kind, bytes: handle.to_vec() }, name))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = (state >> 33) as usize % 96;
            for _ in 0..length {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((state >> 40) as u8 % 40);
            }
            let mut rest = &bytes[..];
            while let Some((_, after)) = parse(rest) {
                rest = after;
            }
        }
    }
}
