//! Asking the watcher: one connection, one question, a short patience.
//!
//! Nobody there, somebody else's socket, no reply in time: all of these are no answer, and whoever
//! asked looks everywhere instead.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use super::protocol::{Question, REPLY_MAX, Reply, receive, send};
use super::{Report, SOCKET, Token, Witnessed};

/// How long a look waits for an answer before it looks everywhere.
const PATIENCE: Duration = Duration::from_millis(200);
/// Paths longer than this do not fit an address; some room is left.
const ADDRESS_MAX: usize = 100;

/// Asks what was touched since a moment; `None` if nobody answers.
pub(crate) fn ask(directory: &Path, scope: [u8; 16], since: Option<Token>) -> Option<Reply> {
    match exchange(directory, &Question::Since { scope, since })? {
        Reply::Status(_) | Reply::Writers(_) => None,
        reply => Some(reply),
    }
}

/// Asks who wrote since a moment; `None` if nobody can tell. A watcher without the privilege, or of
/// an older program, cannot.
pub(crate) fn writers(directory: &Path, scope: [u8; 16], since: Token) -> Option<Witnessed> {
    match exchange(directory, &Question::Writers { scope, since })? {
        Reply::Writers(found) => found,
        _ => None,
    }
}

/// How the watcher stands; `None` if nobody answers.
pub(crate) fn status(directory: &Path) -> Option<Report> {
    match exchange(directory, &Question::Status)? {
        Reply::Status(report) => Some(report),
        _ => None,
    }
}

/// A connection on which the watcher tells by a byte that something was touched; `None` if nobody does.
pub(crate) fn follow(directory: &Path) -> Option<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = Patient { stream: connected(directory)?, deadline };
    send(&mut stream, &Question::Follow.encode()).ok()?;
    // An older watcher does not know the question, and says nothing.
    let mut first = [0];
    std::io::Read::read_exact(&mut stream, &mut first).ok()?;
    stream.stream.set_read_timeout(None).ok()?;
    Some(stream.stream)
}

fn exchange(directory: &Path, question: &Question) -> Option<Reply> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = Patient { stream: connected(directory)?, deadline };
    send(&mut stream, &question.encode()).ok()?;
    let body = receive(&mut stream, REPLY_MAX).ok()?;
    Reply::decode(&body).ok()
}

/// A connection to a watcher of our own user.
fn connected(directory: &Path) -> Option<UnixStream> {
    let path = directory.join(SOCKET);
    let own = rustix::process::geteuid().as_raw();
    let meta = std::fs::symlink_metadata(&path).ok()?;
    if !meta.file_type().is_socket() || meta.uid() != own {
        return None;
    }
    // Without blocking: a watcher that is stopped would let us wait for ever.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let (address, _directory) = address(directory, SOCKET)?;
    connect(&socket, &address).ok()?;
    let peer = sockopt::socket_peercred(&socket).ok()?;
    if peer.uid.as_raw() != own {
        return None;
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}

/// The address of a socket in a directory. A path that is too long for an address is named through
/// the directory's handle, which must live as long as the address is used.
pub(super) fn address(directory: &Path, name: &str) -> Option<(SocketAddrUnix, Option<OwnedFd>)> {
    let path = directory.join(name);
    if path.as_os_str().as_bytes().len() <= ADDRESS_MAX {
        return Some((SocketAddrUnix::new(&path).ok()?, None));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    let path = format!("/proc/self/fd/{}/{name}", handle.as_raw_fd());
    Some((SocketAddrUnix::new(path).ok()?, Some(handle)))
}

/// A connection that is given up at a time, however slowly bytes trickle in.
struct Patient {
    stream: UnixStream,
    deadline: Instant,
}

impl Patient {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        match self.deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }
}

impl std::io::Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl std::io::Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}
