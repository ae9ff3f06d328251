//! The watcher: a process beside a workspace that remembers which paths were touched, so that a look
//! costs the number of changes and not the number of files.
//!
//! It only ever says where to look. Whatever it cannot be sure of (an overflow, a replaced root, a
//! watcher that was killed) it says so, and that costs one full look and never a change. It numbers
//! what it sees; a look asks for everything after the number that the last recorded look was given,
//! and gets a new number *before* it reads the disk.

mod client;
mod deeds;
mod family;
mod fanotify;
mod handle;
mod keeper;
mod ledger;
mod marks;
mod mounts;
mod places;
mod protocol;
mod server;
mod start;
mod witness;
mod writers;

pub(crate) use client::{ask, follow, status, writers};
pub use handle::DirectoryHandle;
pub(crate) use protocol::{Reply, VERSION as PROTOCOL_VERSION};
pub(crate) use server::{Scope, Surroundings, serve};
pub use server::{WatchEnd, WatchOptions};
pub use start::WATCHER;
pub(crate) use start::start;

use std::collections::BTreeMap;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::id::Time;
use crate::path::WorkspacePath;
use crate::process::Process;

/// The name of the socket in a workspace's directory of the home.
const SOCKET: &str = "watch.sock";
/// The lock that the one watcher of a workspace holds.
const LOCK: &str = "watch.lock";
/// When a watcher was last started, and why the last one that could not work gave up.
const ATTEMPT: &str = "watch.tried";

/// A moment in the life of one watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// Which watcher: random for each process.
    pub(crate) instance: [u8; 16],
    /// How much it had seen.
    pub(crate) counter: u64,
}

/// A path that was touched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Touched {
    /// Where.
    pub(crate) path: WorkspacePath,
    /// Whether everything below it must be looked at too: it appeared, moved or went.
    pub(crate) whole: bool,
}

/// Who wrote to one path, as far as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    /// Places in the list of lines; `None` is somebody unknown.
    pub(crate) writers: Vec<Option<usize>>,
    /// It is a directory that was moved here or away.
    pub(crate) moved: bool,
}

/// Who wrote where since a moment. Of a path that is not in it, nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Witnessed {
    /// Processes, each with those above it: itself first.
    pub(crate) lines: Vec<Vec<Process>>,
    /// The paths that were written to.
    pub(crate) paths: BTreeMap<WorkspacePath, Written>,
}

/// Why a watcher cannot tell what was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Doubt {
    /// It has not yet seen all directories.
    Starting = 1,
    /// The moment is of another watcher, or there is none.
    OtherWatcher = 2,
    /// More happened at once than the kernel remembers.
    Overflow = 3,
    /// There are more directories than the kernel lets one watch.
    Limit = 4,
    /// Something was mounted or unmounted.
    Mount = 5,
    /// The rules of what is kept out changed.
    Rules = 6,
    /// More paths were touched than are worth naming.
    TooMany = 7,
    /// A root was moved, removed or replaced.
    RootMoved = 8,
    /// The workspace has other roots or rules than the watcher knows.
    OtherScope = 9,
    /// Renames crossed, and the watcher lost track.
    Lost = 10,
    /// Changes of this file system can come from elsewhere, unseen.
    FileSystem = 11,
    /// The moment is older than what it remembers.
    TooOld = 12,
}

impl Doubt {
    fn of(byte: u8) -> Option<Self> {
        use Doubt::*;
        let all = [
            Starting,
            OtherWatcher,
            Overflow,
            Limit,
            Mount,
            Rules,
            TooMany,
            RootMoved,
            OtherScope,
            Lost,
            FileSystem,
            TooOld,
        ];
        all.into_iter().find(|doubt| *doubt as u8 == byte)
    }

    /// The reason in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Starting => "it is still setting its watches",
            Self::OtherWatcher => "it has just started",
            Self::Overflow => "too much happened at once",
            Self::Limit => {
                "there are more directories than the kernel lets one watch \
                 (raise fs.inotify.max_user_watches or max_user_instances with sysctl)"
            }
            Self::Mount => "something was mounted or unmounted",
            Self::Rules => "the filter's rules changed",
            Self::TooMany => "too many paths were touched",
            Self::RootMoved => "the root was moved or replaced",
            Self::OtherScope => "the workspace's roots or rules changed",
            Self::Lost => "renames crossed",
            Self::FileSystem => "changes of this file system can come from elsewhere, unseen",
            Self::TooOld => "the last look is older than what it remembers",
        }
    }
}

/// How a watcher stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// Its process.
    pub(crate) pid: u32,
    /// Since when it runs.
    pub(crate) since: Time,
    /// How many directories it watches.
    pub(crate) directories: u64,
    /// Why it cannot tell at present.
    pub(crate) doubt: Option<Doubt>,
    /// Whether it sees which processes write; told only without a doubt.
    pub(crate) sees_processes: bool,
}

/// Where a look left off: the moment before it began, and what it could not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bookmark {
    pub(crate) token: Token,
    /// Paths to look at again next time, whatever the watcher says of them.
    pub(crate) again: Vec<WorkspacePath>,
}

impl Bookmark {
    /// The bytes that the catalog keeps.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        protocol::encode_token(&mut out, Some(&self.token));
        out.int(self.again.len() as u64);
        self.again.iter().for_each(|path| out.bytes(path.as_bytes()));
        out.0
    }

    /// Reads them; what cannot be read is no bookmark, and the next look is a full one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Decoder(bytes);
        let mut read = || -> Result<Option<Self>, DecodeError> {
            let Some(token) = protocol::decode_token(&mut input)? else { return Ok(None) };
            let mut again = Vec::new();
            for _ in 0..input.count()? {
                let path = WorkspacePath::new(input.bytes()?);
                again.push(path.map_err(|_| DecodeError::Malformed("a path is not one"))?);
            }
            input.end()?;
            Ok(Some(Self { token, again }))
        };
        read().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_comes_back_as_it_was_and_anything_else_is_none() {
        let path = |text: &str| WorkspacePath::new(text).unwrap();
        let token = Token { instance: [3; 16], counter: 4 };
        let bookmark = Bookmark { token, again: vec![path("a"), path("/b/c")] };
        let bytes = bookmark.encode();
        assert_eq!(Bookmark::decode(&bytes), Some(bookmark));
        for end in 0..bytes.len() {
            assert_eq!(Bookmark::decode(&bytes[..end]), None);
        }
    }

    #[test]
    fn every_doubt_has_its_own_number() {
        for number in 1..=12 {
            assert_eq!(Doubt::of(number).map(|doubt| doubt as u8), Some(number));
        }
        assert_eq!(Doubt::of(0).or(Doubt::of(13)), None);
    }

    #[test]
    fn mutated_bookmarks() {
        let token = Token { instance: [3; 16], counter: 4 };
        let again = vec![WorkspacePath::new("a").unwrap(), WorkspacePath::new("/b/c").unwrap()];
        let samples = [Bookmark { token, again }.encode()];
        crate::fuzz::target("bookmark", &samples, |input| {
            let Some(bookmark) = Bookmark::decode(input) else { return false };
            assert_eq!(bookmark.encode(), input, "not canonical");
            true
        });
    }
}
