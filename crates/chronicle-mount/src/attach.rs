//! Puts a mount into the tree and takes it out again: by the system call, else by fusermount3.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// What `mount` and `df` show as the source.
const SOURCE: &str = "chronicle";

/// What is mounted how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) allow_other: bool,
    pub(crate) read_only: bool,
}

/// Mounts at a directory and returns the connection.
pub(crate) fn attach(at: &Path, options: Options) -> io::Result<OwnedFd> {
    match attach_directly(at, options) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => attach_by_helper(at, options),
        other => other,
    }
}

/// Opens the device. For others than root it may be closed, and the helper opens it.
fn device() -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    file.map(OwnedFd::from).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::from_raw_os_error(libc::EPERM),
        _ => error,
    })
}

fn attach_directly(at: &Path, options: Options) -> io::Result<OwnedFd> {
    let connection = device()?;
    let mode = std::fs::metadata(at)?.mode();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions",
        connection.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let read_only = if options.read_only { libc::MS_RDONLY } else { 0 };
    let target = CString::new(at.as_os_str().as_bytes())?;
    let source = CString::new(SOURCE)?;
    let (kind, data) = (CString::new(format!("fuse.{SOURCE}"))?, CString::new(data)?);
    #[expect(
        unsafe_code,
        reason = "rustix would need a feature that rebuilds everything for this one call"
    )]
    // SAFETY: all of these end with NUL and outlive the call.
    let done = unsafe {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | read_only;
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    };
    if done == 0 { Ok(connection) } else { Err(io::Error::last_os_error()) }
}

/// fusermount3 mounts for those who may not, and sends the connection over a socket.
fn attach_by_helper(at: &Path, options: Options) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut words = format!("fsname={SOURCE},subtype={SOURCE},default_permissions,nosuid,nodev");
    for (is_set, word) in [(options.allow_other, ",allow_other"), (options.read_only, ",ro")] {
        words.push_str(if is_set { word } else { "" });
    }
    let mut helper = Command::new("fusermount3");
    helper.args(["-o", &words, "--"]).arg(at).env("_FUSE_COMMFD", "0");
    helper.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = helper.spawn()?;
    drop(helper);
    let connection = receive(&ours);
    let output = child.wait_with_output()?;
    let refused = || io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    if output.status.success() { connection } else { Err(refused()) }
}

fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut messages = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut messages,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in messages.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sent) = message
            && let Some(connection) = sent.next()
        {
            return Ok(connection);
        }
    }
    Err(io::Error::other("fusermount3 sent no connection"))
}

/// Takes the mount away if it is still this one; says whether it was.
pub(crate) fn detach(at: &Path, device: u64, lazily: bool) -> io::Result<bool> {
    if mounted_device(at) != Some(device) {
        return Ok(false);
    }
    clear(at, lazily).map(|()| true)
}

/// Takes away whatever is mounted at a place.
pub(crate) fn clear(at: &Path, lazily: bool) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    #[expect(
        unsafe_code,
        reason = "rustix would need a feature that rebuilds everything for this one call"
    )]
    // SAFETY: the path ends with NUL and outlives the call.
    let done = unsafe { libc::umount2(path.as_ptr(), flags) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    let mut helper = Command::new("fusermount3");
    helper.args(["-u", "-q"]).args(lazily.then_some("-z")).arg("--").arg(at);
    let output = helper.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        // With -q it says nothing more; being busy is the usual reason.
        false if !lazily => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// The device number of the newest mount at a place, without touching it: whoever serves it may be dead.
pub(crate) fn mounted_device(at: &Path) -> Option<u64> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let lines = table.split(|byte| *byte == b'\n').rev();
    lines
        .filter_map(parse_mount)
        .find(|(place, _, _)| Path::new(place) == at)
        .map(|(_, device, _)| device)
}

/// Whether one of ours is mounted at a place, living or dead.
pub(crate) fn is_ours(at: &Path) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return false };
    let lines = table.split(|byte| *byte == b'\n').rev();
    let newest = lines.filter_map(parse_mount).find(|(place, _, _)| Path::new(place) == at);
    newest.is_some_and(|(_, _, kind)| kind == format!("fuse.{SOURCE}").as_bytes())
}

/// Place, device and kind of one line of mountinfo.
fn parse_mount(line: &[u8]) -> Option<(OsString, u64, &[u8])> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let device = std::str::from_utf8(words.get(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let separator = words.iter().position(|word| *word == b"-")?;
    Some((unescape(words.get(4)?), device, words.get(separator + 1)?))
}

/// The table writes spaces and the like as three octal digits.
fn unescape(word: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read() {
        let line = br"36 35 98:0 / /mnt/a\040b rw,noatime shared:1 - fuse.chronicle chronicle rw";
        let (place, device, kind) = parse_mount(line).unwrap();
        assert_eq!(place, "/mnt/a b");
        assert_eq!((device, kind), (rustix::fs::makedev(98, 0), &b"fuse.chronicle"[..]));
        assert_eq!(parse_mount(b"nonsense"), None);
    }
}
