//! The watcher's own process: one thread that waits for the kernel and for questions.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use super::client::address;
use super::keeper::Keeper;
pub(crate) use super::keeper::Scope;
use super::ledger::Ledger;
use super::protocol::{QUESTION_MAX, Question, REPLY_MAX, Reply, receive, send};
use super::witness::Witness;
use super::{ATTEMPT, Doubt, LOCK, Report, SOCKET, Token, Witnessed};
use crate::error::{Context, Error, Result};
use crate::id::{Time, random_bytes};
use crate::lock::Lock;
use crate::path::WorkspacePath;

/// How long a question may keep the answer waiting: less than the patience of the one who asks.
const ANSWER: Duration = Duration::from_millis(150);
/// How long the kernel is left to collect events, unless somebody asks: each waking costs.
const NAP: Duration = Duration::from_millis(5);
/// How much of setting up is done between two looks at the socket.
const SLICE: Duration = Duration::from_millis(50);
/// How often it looks whether it is still wanted.
const ROUND: Duration = Duration::from_secs(30);
/// How long a question may take to arrive, once its sender has connected.
const ARRIVAL: Duration = Duration::from_millis(50);
/// The pause before everything is set up anew, doubled each time that was in vain.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The same where only other processes could make room.
const LIMIT_PAUSE: Duration = Duration::from_secs(600);

/// How many may be told of every touch at once.
const FOLLOWERS_MOST: usize = 16;

/// How to watch.
#[derive(Clone, Copy)]
pub struct WatchOptions<'a> {
    /// It ends when nobody has asked for so long.
    pub idle: Duration,
    /// The most directories that it watches, should the kernel allow more.
    pub most_directories: usize,
    /// The most touched paths that it names one by one.
    pub most_paths: usize,
    /// Set by somebody who wants it to end.
    pub stop: Option<&'a AtomicBool>,
}

impl Default for WatchOptions<'_> {
    fn default() -> Self {
        let idle = Duration::from_secs(30 * 60);
        Self { idle, most_directories: usize::MAX, most_paths: 10_000, stop: None }
    }
}

/// Why a watcher ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// Nobody asked it for a long time.
    Idle,
    /// The workspace or its history is gone, or another watcher took its place.
    Unwanted,
    /// It was told to.
    Stopped,
    /// There is one already.
    Already,
}

/// What a watcher must be told of its workspace.
pub(crate) trait Surroundings {
    /// The workspace's directory in the home.
    fn directory(&self) -> &Path;

    /// What the workspace is at present.
    fn scope(&self) -> Result<Scope>;

    /// Whether a directory was taken in by a look, and so is never kept out as mass.
    fn is_captured(&self, path: &WorkspacePath) -> bool;

    /// The time.
    fn now(&self) -> Time;
}

/// Watches a workspace until nobody wants it any more.
pub(crate) fn serve(
    surroundings: &dyn Surroundings,
    options: &WatchOptions<'_>,
) -> Result<WatchEnd> {
    // Whoever wants to start a watcher tries the lock for a moment: that is not one who runs.
    let _lock = match Lock::take(&surroundings.directory().join(LOCK), SLICE) {
        Err(Error::Busy(_)) => return Ok(WatchEnd::Already),
        lock => lock?,
    };
    let mut server = Server {
        surroundings,
        options: *options,
        ledger: Ledger::new(random_bytes(), options.most_paths),
        keeper: None,
        witness: None,
        doubt: Doubt::Starting,
        pause: PAUSE,
        retry: Instant::now(),
        door: None,
        since: surroundings.now(),
        asked: Instant::now(),
        followers: Vec::new(),
        told: 0,
    };
    let end = server.run();
    if let Some(door) = &server.door {
        door.close();
    }
    end
}

struct Server<'s> {
    surroundings: &'s dyn Surroundings,
    options: WatchOptions<'s>,
    ledger: Ledger,
    /// The watches; `None` while they cannot be had.
    keeper: Option<Keeper<'s>>,
    /// Who sees the processes, while there is no keeper that has him.
    witness: Option<Witness>,
    /// Why it cannot tell, if it cannot.
    doubt: Doubt,
    pause: Duration,
    /// When setting up is tried again.
    retry: Instant,
    /// Opened when the watches are first complete: who comes before looks for himself at once.
    door: Option<Door>,
    since: Time,
    asked: Instant,
    /// Who is told at once that something was touched.
    followers: Vec<UnixStream>,
    /// What they were told last.
    told: u64,
}

impl Server<'_> {
    fn run(&mut self) -> Result<WatchEnd> {
        loop {
            if self.options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Ok(WatchEnd::Stopped);
            }
            if self.asked.elapsed() >= self.options.idle {
                return Ok(WatchEnd::Idle);
            }
            if self.keeper.is_none() && Instant::now() >= self.retry && !self.set_up() {
                return Ok(WatchEnd::Unwanted);
            }
            let behind = self.catch_up();
            if !behind {
                self.tell_followers();
            }
            if !behind && self.door.is_none() {
                self.door = Some(Door::open(self.surroundings.directory())?);
                // It works: should it die, the next one may be started at once.
                let _ = std::fs::remove_file(self.surroundings.directory().join(ATTEMPT));
            }
            self.wait(if behind { Duration::ZERO } else { ROUND });
            if !behind && self.door.as_ref().is_some_and(|door| !door.is_ours()) {
                return Ok(WatchEnd::Unwanted);
            }
            // The kernel says nothing of a root that is removed while we hold it open.
            if !behind && self.keeper.as_ref().is_some_and(|keeper| !keeper.has_its_root()) {
                self.give_up(Doubt::RootMoved);
            }
        }
    }

    /// Begins to watch, or notes why not; false if there is nothing to watch any more.
    fn set_up(&mut self) -> bool {
        let scope = match self.surroundings.scope() {
            Ok(scope) => scope,
            Err(Error::RootReplaced(_) | Error::NoWorkspace(_)) => return false,
            Err(_) => {
                self.give_up(Doubt::Lost);
                return true;
            }
        };
        let most = self.options.most_paths;
        let witness = self.witness.take().or_else(|| Witness::begin(&scope.roots, most));
        match Keeper::new(self.surroundings, scope, self.options.most_directories, witness) {
            Ok(keeper) => self.keeper = Some(keeper),
            Err(doubt) => self.give_up(doubt),
        }
        true
    }

    /// Drops all watches: nothing that was seen counts any more.
    fn give_up(&mut self, doubt: Doubt) {
        self.ledger.forget(doubt);
        let witness = self.keeper.take().and_then(Keeper::into_witness);
        self.witness = witness.filter(|_| is_about_events(doubt));
        if let Some(witness) = &mut self.witness {
            witness.forget();
        }
        self.doubt = doubt;
        let pause = if is_lasting(doubt) { LIMIT_PAUSE } else { self.pause };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.retry = Instant::now() + pause;
    }

    /// Takes in what happened; says whether there is more to set up.
    fn catch_up(&mut self) -> bool {
        let Some(keeper) = &mut self.keeper else { return false };
        match keeper.catch_up(&mut self.ledger, Instant::now() + SLICE) {
            Ok(done) => {
                if done {
                    self.doubt = Doubt::Starting;
                }
                !done
            }
            Err(doubt) => {
                self.give_up(doubt);
                false
            }
        }
    }

    /// Waits until the kernel tells something, somebody asks or a time has passed; answers.
    fn wait(&mut self, most: Duration) {
        let until = self.options.idle.saturating_sub(self.asked.elapsed()).min(most);
        let until = match &self.keeper {
            Some(_) => until,
            None => until.min(self.retry.saturating_duration_since(Instant::now())),
        };
        let keeper = self.keeper.as_ref();
        let marks = keeper.map(|keeper| keeper.marks().as_fd());
        let news = keeper.and_then(|keeper| keeper.witness.as_ref()).map(Witness::news);
        let told: Vec<_> = marks.into_iter().chain(news).collect();
        let ready = ready(self.door.as_ref(), &told, until + NAP / 5);
        if ready.asked {
            return self.answer_all();
        }
        // The kernel's queue fills slowly enough to let it collect, and each waking costs.
        let may_nap = most > Duration::ZERO && self.followers.is_empty();
        if ready.told && may_nap && self::ready(self.door.as_ref(), &[], NAP).asked {
            self.answer_all();
        }
    }

    fn answer_all(&mut self) {
        while let Some(stream) = self.door.as_ref().and_then(Door::accept) {
            // Whoever does not ask properly gets no answer, and looks for himself.
            let _ = self.answer(stream);
        }
    }

    fn answer(&mut self, mut stream: UnixStream) -> std::io::Result<()> {
        if sockopt::socket_peercred(&stream)?.uid != rustix::process::geteuid() {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ARRIVAL))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let body = receive(&mut stream, QUESTION_MAX)?;
        let invalid = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let reply = match Question::decode(&body).map_err(invalid)? {
            Question::Since { scope, since } => {
                self.asked = Instant::now();
                self.touched(scope, since)
            }
            Question::Writers { scope, since } => Reply::Writers(self.writers(scope, since)),
            Question::Status => Reply::Status(self.report()),
            Question::Follow => return self.follow(stream),
        };
        send(&mut stream, &reply.encode())
    }

    /// Takes in one who wants to be told; a first byte says that he will be.
    fn follow(&mut self, mut stream: UnixStream) -> std::io::Result<()> {
        if self.followers.len() >= FOLLOWERS_MOST {
            return Ok(());
        }
        stream.set_nonblocking(true)?;
        stream.write_all(&[1])?;
        self.followers.push(stream);
        Ok(())
    }

    /// Tells them that something was touched. Who has not heard the last word yet needs no other.
    fn tell_followers(&mut self) {
        let seen = self.ledger.counter();
        if std::mem::replace(&mut self.told, seen) == seen {
            return;
        }
        let blocked = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        self.followers.retain_mut(|follower| match follower.write(&[1]) {
            Ok(_) => true,
            Err(error) => blocked(&error),
        });
        if !self.followers.is_empty() {
            self.asked = Instant::now();
        }
    }

    fn touched(&mut self, scope: [u8; 16], since: Option<Token>) -> Reply {
        if self.keeper.is_none() {
            return Reply::CannotTell { token: None, why: self.doubt };
        }
        let now = self.surroundings.now().0;
        let why = match self.prepare(scope) {
            Ok(true) => {
                self.pause = PAUSE;
                let reply = self.ledger.since(since, now);
                self.note_answer(&reply, since);
                return reply;
            }
            Ok(false) => return Reply::CannotTell { token: None, why: Doubt::Starting },
            Err(why) => why,
        };
        let first = self.pause == PAUSE;
        self.give_up(why);
        // Most doubts end with the watches set anew; the look that follows can then be the last full
        // one. Not again and again: whoever asks is waiting.
        let anew = first && !is_lasting(why) && self.set_up() && self.prepare(scope) == Ok(true);
        match self.ledger.since(None, now) {
            Reply::CannotTell { token, .. } if anew => {
                let reply = Reply::CannotTell { token, why };
                self.note_answer(&reply, None);
                reply
            }
            _ => Reply::CannotTell { token: None, why },
        }
    }

    /// Lets the witness know which moment was given out, and which was recorded.
    fn note_answer(&mut self, reply: &Reply, since: Option<Token>) {
        let token = match reply {
            Reply::Touched { token, .. } => Some(*token),
            Reply::CannotTell { token, .. } => *token,
            _ => None,
        };
        let since = since.filter(|since| self.ledger.is_own(since));
        if let (Some(keeper), Some(token)) = (&mut self.keeper, token) {
            keeper.answered(token.counter, since.map(|since| since.counter));
        }
    }

    /// Who wrote since a moment; `None` if nobody can tell.
    fn writers(&mut self, scope: [u8; 16], since: Token) -> Option<Witnessed> {
        let keeper = self.keeper.as_mut().filter(|keeper| keeper.scope() == scope)?;
        if !self.ledger.is_own(&since) {
            return None;
        }
        keeper.written_since(since.counter).filter(|found| found.size() <= REPLY_MAX / 2)
    }

    /// Makes sure that the watches are complete and everything that happened is known.
    fn prepare(&mut self, scope: [u8; 16]) -> std::result::Result<bool, Doubt> {
        let Some(keeper) = &mut self.keeper else { return Err(self.doubt) };
        if keeper.scope() != scope {
            return Err(Doubt::OtherScope);
        }
        keeper.prepare(&mut self.ledger, self.asked + ANSWER)
    }

    fn report(&self) -> Report {
        let doubt = match &self.keeper {
            None => Some(self.doubt),
            Some(keeper) => keeper.is_behind().then_some(Doubt::Starting),
        };
        let directories = self.keeper.as_ref().map_or(0, Keeper::directories);
        let sees_processes = self.keeper.as_ref().is_some_and(|keeper| keeper.witness.is_some());
        let (pid, since) = (std::process::id(), self.since);
        Report { pid, since, directories, doubt, sees_processes }
    }
}

/// Whether only others could end a doubt: then nothing is gained by trying again soon.
fn is_lasting(doubt: Doubt) -> bool {
    matches!(doubt, Doubt::Limit | Doubt::FileSystem)
}

/// Whether a doubt is only about what was told: who listens can go on listening.
fn is_about_events(doubt: Doubt) -> bool {
    matches!(doubt, Doubt::Overflow | Doubt::Rules | Doubt::Lost | Doubt::TooMany)
}

#[derive(Default)]
struct Ready {
    asked: bool,
    told: bool,
}

/// Waits for a question or for the kernel.
fn ready(door: Option<&Door>, told: &[std::os::fd::BorrowedFd<'_>], most: Duration) -> Ready {
    let mut fds = Vec::with_capacity(3);
    fds.extend(door.map(|door| PollFd::new(&door.listener, PollFlags::IN)));
    let asked = fds.len();
    fds.extend(told.iter().map(|told| PollFd::new(told, PollFlags::IN)));
    let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
    let most = Timespec { tv_sec: seconds, tv_nsec: i64::from(most.subsec_nanos()) };
    if !matches!(poll(&mut fds, Some(&most)), Ok(1..)) {
        return Ready::default();
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ready { asked: fds[..asked].iter().any(is_ready), told: fds[asked..].iter().any(is_ready) }
}

/// The socket, and which one it is.
struct Door {
    listener: UnixListener,
    path: std::path::PathBuf,
    inode: (u64, u64),
}

impl Door {
    /// Opens the socket, for our own user only, in the place of any that was left behind.
    fn open(directory: &Path) -> Result<Self> {
        let (path, new) = (directory.join(SOCKET), format!("{SOCKET}.{}", std::process::id()));
        let beside = directory.join(&new);
        let _ = std::fs::remove_file(&beside);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .at("make a socket for", &path)?;
        let too_long = || Error::Usage(format!("No socket can be made in {}", directory.display()));
        let (address, _handle) = address(directory, &new).ok_or_else(too_long)?;
        bind(&socket, &address).at("bind", &beside)?;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&beside, private).at("protect", &beside)?;
        listen(&socket, 64).at("listen at", &beside)?;
        let meta = std::fs::symlink_metadata(&beside).at("look at", &beside)?;
        // Only now it has its name, so that nobody finds one that does not listen yet.
        std::fs::rename(&beside, &path).at("rename", &path)?;
        let inode = (meta.dev(), meta.ino());
        Ok(Self { listener: UnixListener::from(socket), path, inode })
    }

    fn accept(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }

    /// Whether the socket under the name is still this one.
    fn is_ours(&self) -> bool {
        let meta = std::fs::symlink_metadata(&self.path);
        meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.inode)
    }

    fn close(&self) {
        if self.is_ours() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
