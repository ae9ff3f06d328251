//! Hears what fanotify tells, on a thread of its own, and reads at once which process it was: many
//! live no longer than their write.
//!
//! Where it happened is made out later, by the one who knows the directories. Nothing here waits
//! for anybody and nothing grows without bound: what is too much is noted as missed.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::family::{Family, Line};
use super::fanotify::{Group, Name, Notice, is_there};
use super::handle::{DirectoryHandle, file_system_of};
use super::writers::Writers;
use crate::fs::Roots;
use crate::process;

/// The most that may wait to be made out.
const WAITING: usize = 16 * 1024;
/// The most directories that are remembered as nobody's business here.
const FOREIGN: usize = 16 * 1024;
/// How long the kernel is left to collect events where none concerned us.
const NAP: Duration = Duration::from_millis(1);

/// What some process did, and which it was.
pub(super) struct Deed {
    pub(super) at: Name,
    pub(super) from: Option<Name>,
    pub(super) of_directory: bool,
    pub(super) of_structure: bool,
    /// `None`: it was gone before it could be read.
    pub(super) line: Option<Line>,
}

/// Everything that the thread and its owner share.
struct Heard {
    group: Group,
    family: Family,
    deeds: VecDeque<Deed>,
    missed: bool,
    foreign: HashSet<DirectoryHandle>,
    /// Our own program, whose writes are recorded by itself.
    own: Option<(u64, u64)>,
}

/// One who sees which processes write.
pub(super) struct Witness {
    heard: Arc<Mutex<Heard>>,
    /// Wakes the thread for its end.
    end: Arc<OwnedFd>,
    /// Wakes the owner: there is something to make out.
    news: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// A directory on each file system that is marked.
    bases: Vec<(u64, OwnedFd)>,
    /// Who wrote where.
    pub(super) writers: Writers,
    /// Which boot of the machine.
    pub(super) boot: String,
}

impl Witness {
    /// Begins to listen on the file systems of these roots; `None` without the privilege, or where
    /// none of them can be marked.
    pub(super) fn begin(roots: &Roots, most: usize) -> Option<Self> {
        let group = Group::new().ok()?;
        let mut bases = Vec::new();
        for root in roots.iter().filter(|root| root.is_directory() && !root.is_named_only()) {
            let Some(base) = root.handle().ok().and_then(|handle| reopened(handle).ok()) else {
                continue;
            };
            let Ok(file_system) = file_system_of(&base) else { continue };
            let known = bases.iter().any(|(known, _)| *known == file_system);
            if !known && group.mark_file_system_of(&base).is_ok() {
                bases.push((file_system, base));
            }
        }
        if bases.is_empty() {
            return None;
        }
        let (end, news) = (Arc::new(wake().ok()?), Arc::new(wake().ok()?));
        let heard = Heard {
            group,
            family: Family::default(),
            deeds: VecDeque::new(),
            missed: false,
            foreign: HashSet::new(),
            own: program(std::process::id()),
        };
        let heard = Arc::new(Mutex::new(heard));
        let thread = {
            let (heard, end, news) = (Arc::clone(&heard), Arc::clone(&end), Arc::clone(&news));
            std::thread::Builder::new().spawn(move || listen(&heard, &end, &news)).ok()?
        };
        let (writers, boot) = (Writers::new(most), process::boot());
        Some(Self { heard, end, news, thread: Some(thread), bases, writers, boot })
    }

    /// Everything that had happened when this was called, in order; `None` if something was missed.
    pub(super) fn take(&self) -> Option<VecDeque<Deed>> {
        let _ = rustix::io::read(&*self.news, &mut [0; 8]);
        let mut heard = lock(&self.heard);
        heard.hear();
        let deeds = std::mem::take(&mut heard.deeds);
        (!std::mem::take(&mut heard.missed)).then_some(deeds)
    }

    /// The number of a directory's file system, if that is marked.
    pub(super) fn marked(&self, directory: impl AsFd) -> Option<u64> {
        let file_system = file_system_of(directory).ok()?;
        self.base(file_system).map(|_| file_system)
    }

    /// A directory on a file system that is marked.
    pub(super) fn base(&self, file_system: u64) -> Option<&OwnedFd> {
        self.bases.iter().find(|(known, _)| *known == file_system).map(|(_, base)| base)
    }

    /// From now on nothing in this directory is told.
    pub(super) fn ignore(&self, directory: &DirectoryHandle) {
        let mut heard = lock(&self.heard);
        if heard.foreign.len() >= FOREIGN {
            heard.foreign.clear();
        }
        heard.foreign.insert(directory.clone());
    }

    /// Directories may have come to us that were nobody's business.
    pub(super) fn ignore_nothing(&self) {
        lock(&self.heard).foreign.clear();
    }

    /// What is readable while something waits to be made out.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Nothing that was seen counts any more; who is whose child stays known.
    pub(super) fn forget(&mut self) {
        let _ = self.take();
        self.writers.overrun();
        self.ignore_nothing();
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked in a way that matters to one who is leaving.
            let _ = thread.join();
        }
    }
}

/// A second descriptor of a directory that can also be read, whatever the first one is for.
fn reopened(directory: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, openat};
    openat(directory, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn wake() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that a process runs.
fn program(pid: u32) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((meta.dev(), meta.ino()))
}

fn listen(heard: &Mutex<Heard>, end: &OwnedFd, news: &OwnedFd) {
    // The marks live as long as the descriptor, and that as long as this borrow of it.
    let Ok(kernel) = lock(heard).group.as_fd().try_clone_to_owned() else { return };
    loop {
        let mut fds = [PollFd::new(&kernel, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return lock(heard).missed = true;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        let found = lock(heard).hear();
        if found {
            let _ = rustix::io::write(news, &1_u64.to_ne_bytes());
        } else {
            std::thread::sleep(NAP);
        }
    }
}

impl Heard {
    /// Takes in what the kernel has to tell; whether any of it may concern us.
    fn hear(&mut self) -> bool {
        let Self { group, family, deeds, missed, foreign, own } = self;
        let before = deeds.len();
        let told = group.drain(|notice| {
            if notice.is_overflow() {
                *missed = true;
            } else if let Some(deed) = deed(notice, family, foreign, *own) {
                if deed.of_directory && deed.from.is_some() {
                    // Below it may be directories that were nobody's business until now.
                    foreign.clear();
                }
                deeds.push_back(deed);
            }
        });
        *missed |= told.is_err() || deeds.len() > WAITING;
        if *missed {
            deeds.clear();
            return true;
        }
        deeds.len() > before
    }
}

/// What a notice means, unless it is nobody's business here or was our own doing.
fn deed(
    notice: Notice,
    family: &mut Family,
    foreign: &HashSet<DirectoryHandle>,
    own: Option<(u64, u64)>,
) -> Option<Deed> {
    let (of_directory, of_structure) = (notice.is_of_directory(), notice.is_of_structure());
    let Notice { pid, process, at, from, .. } = notice;
    // This process, which a replica's is: nothing need be read to know whose doing it was.
    if pid == std::process::id() {
        return None;
    }
    let at = at?;
    let is_foreign = |name: &Name| foreign.contains(&name.directory);
    if is_foreign(&at) && from.as_ref().is_none_or(is_foreign) {
        return None;
    }
    let line = process.and_then(|process| {
        let (line, program) = (family.line(pid)?, program(pid));
        // Only if it is still there, all that was read under its number was its own.
        is_there(&process).then_some((line, program))
    });
    match line {
        Some((_, program)) if program.is_some() && program == own => None,
        line => {
            let line = line.map(|(line, _)| line);
            Some(Deed { at, from, of_directory, of_structure, line })
        }
    }
}
