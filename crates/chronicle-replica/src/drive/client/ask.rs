//! How whoever reads a file of a lazy replica asks the process that is connected to bring its content.
//!
//! The question is a path with its length before it (4 bytes, big-endian). The answer is 0 once a second while it takes
//! time, then 1 if the file is there, or 2, an error number (4 bytes) and words with their length (4 bytes).

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use chronicle_core::WorkspacePath;

/// The socket in the workspace's directory of the home.
const NAME: &str = "fetch.sock";
/// How often somebody who waits hears that it goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// After so long without one nobody is there.
const SILENCE: Duration = Duration::from_secs(10);
/// The longest path, and the longest words.
const MOST: usize = 64 << 10;
/// Who is answered at once.
const ASKING_MOST: usize = 512;

/// Why the content of a file could not be brought.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct NotFetched {
    /// What a program hears: `EIO`, or `ENOSPC` where there is no room.
    pub errno: i32,
    /// What people hear.
    pub words: String,
}

impl NotFetched {
    pub(super) fn io(words: impl Into<String>) -> Self {
        Self { errno: rustix::io::Errno::IO.raw_os_error(), words: words.into() }
    }
}

/// What a reader is told.
pub(super) type Fetched = Result<(), NotFetched>;

/// A reader who waits.
pub(super) struct Reader {
    pub(super) path: WorkspacePath,
    pub(super) reply: SyncSender<Fetched>,
}

/// Asks whoever is connected for the replica with this directory in the home to bring the content of a file.
///
/// Returns when it is there, or when it is known that it cannot be had now: in seconds, also if nobody is there.
pub fn ask_to_fetch(directory: &Path, path: &WorkspacePath) -> Result<(), NotFetched> {
    let nobody = |error: io::Error| {
        NotFetched::io(format!(
            "{path} is not here, and nobody is connected to the host: run chronicle connect ({error})"
        ))
    };
    let mut stream = connect(directory).map_err(nobody)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(nobody)?;
    send(&mut stream, path.as_bytes()).map_err(nobody)?;
    loop {
        let mut sign = [0];
        stream.read_exact(&mut sign).map_err(nobody)?;
        match sign[0] {
            0 => {}
            1 => return Ok(()),
            _ => {
                let mut errno = [0; 4];
                stream.read_exact(&mut errno).map_err(nobody)?;
                let words = receive(&mut stream).map_err(nobody)?;
                let words = String::from_utf8_lossy(&words).into_owned();
                return Err(NotFetched { errno: i32::from_be_bytes(errno), words });
            }
        }
    }
}

fn connect(directory: &Path) -> io::Result<UnixStream> {
    // By a descriptor: the path may be longer than an address.
    let directory = std::fs::File::open(directory)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd()))
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat())
}

fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Answers readers on threads of its own until `hear` says that nobody hears any more.
pub(super) fn listen(
    directory: &Path,
    hear: impl Fn(Reader) -> bool + Send + Sync + 'static,
) -> io::Result<()> {
    let handle = std::fs::File::open(directory)?;
    let place = format!("/proc/self/fd/{}/{NAME}", handle.as_raw_fd());
    // Only one process is connected for a replica at a time; what stands there is of one that is gone, or will be.
    match rustix::fs::unlinkat(&handle, NAME, rustix::fs::AtFlags::empty()) {
        Err(error) if error != rustix::io::Errno::NOENT => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(&place)?;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::chmodat(&handle, NAME, mode, rustix::fs::AtFlags::empty())?;
    let (hear, asking) = (Arc::new(hear), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            if asking.fetch_add(1, Ordering::AcqRel) >= ASKING_MOST {
                asking.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (hear, asking) = (Arc::clone(&hear), Arc::clone(&asking));
            let answer = move || {
                let _ = answer(stream, &*hear);
                asking.fetch_sub(1, Ordering::AcqRel);
            };
            let _ = std::thread::Builder::new().name("answer".to_owned()).spawn(answer);
        }
    };
    std::thread::Builder::new().name("readers".to_owned()).spawn(accept).map(drop)
}

fn answer(mut stream: UnixStream, hear: &dyn Fn(Reader) -> bool) -> io::Result<()> {
    loop {
        let path = receive(&mut stream)?;
        let fetched = match WorkspacePath::new(path) {
            Ok(path) => {
                let (reply, answer) = sync_channel(1);
                match hear(Reader { path, reply }) {
                    true => wait(&mut stream, &answer)?,
                    false => Err(NotFetched::io("The replica is about to stop")),
                }
            }
            Err(error) => Err(NotFetched::io(error.to_string())),
        };
        match fetched {
            Ok(()) => stream.write_all(&[1])?,
            Err(NotFetched { errno, words }) => {
                stream.write_all(&[&[2], &errno.to_be_bytes()[..]].concat())?;
                let words: String = words.chars().take(MOST / 4).collect();
                send(&mut stream, words.as_bytes())?;
            }
        }
    }
}

fn wait(stream: &mut UnixStream, answer: &Receiver<Fetched>) -> io::Result<Fetched> {
    loop {
        match answer.recv_timeout(SIGN_OF_LIFE) {
            Ok(fetched) => return Ok(fetched),
            Err(RecvTimeoutError::Timeout) => stream.write_all(&[0])?,
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Err(NotFetched::io("The replica stopped")));
            }
        }
    }
}
