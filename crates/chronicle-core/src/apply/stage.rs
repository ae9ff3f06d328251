//! Staging directories: where new entries wait for the commit point and old ones for their end.
//!
//! Each volume that a rewind touches has one, in its topmost directory below the root, so that
//! every step can be a rename. What is written into them is the business of `fill`.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RawMode};
use rustix::io::Errno;

use crate::codec::{Decoder, Encoder};
use crate::error::{Context, Result};
use crate::id::PlanId;
use crate::path::WorkspacePath;

use super::attributes::{Handle, clear_lists, modified_at};
use super::direct::DIRECT;
use super::directories::{Directories, see, see_handle};
use super::script::Slot;

/// How the name of every staging directory begins.
pub(crate) const STAGING_PREFIX: &str = ".chronicle-staging-";
/// The most directories that new entries are spread over: a directory takes one writer at a time,
/// and is searched from its beginning for every name.
pub(super) const LANES: usize = 64;
/// How many entries are worth another such directory.
const WORTH_A_LANE: usize = 64;
/// How many threads stage, and how many take staging away.
pub(super) const THREADS: usize = 2;
/// Holds what was removed; its presence means that the commit point was passed.
pub(super) const TRASH: &str = "trash";
/// Holds what moves in two steps.
pub(super) const MOVED: &str = "moved";
/// Holds what is about to be written directly: the inodes that were staged, so that they can be told from what came out
/// of its place, and the paths.
const PLACED: &str = "placed";
/// Names the staging directories on other volumes, so that they can be found again.
const ELSEWHERE: &str = "elsewhere";

/// What `fstatfs` says of every FUSE file system.
const FUSE: i128 = 0x6573_5546;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether a name in a root is a staging directory's, which no look counts as the workspace's.
pub(crate) fn is_staging_name(name: &[u8]) -> bool {
    plan_of(name).is_some()
}

/// The plan that a staging directory belongs to.
pub(super) fn plan_of(name: &[u8]) -> Option<PlanId> {
    let text = std::str::from_utf8(name).ok()?;
    text.strip_prefix(STAGING_PREFIX)?.parse().ok()
}

/// The name of a plan's staging directories.
pub(super) fn staging_name(id: &PlanId) -> String {
    format!("{STAGING_PREFIX}{}", id.hex())
}

/// One staging directory.
#[derive(Debug)]
pub(super) struct Stage {
    plan: PlanId,
    holder: OwnedFd,
    top: OwnedFd,
    lanes: Vec<OwnedFd>,
}

/// How many directories so many entries are spread over.
pub(super) fn lanes_for(entries: usize) -> usize {
    entries.div_ceil(WORTH_A_LANE).clamp(1, LANES)
}

impl Stage {
    /// Makes a new one, leaving the time of the directory that holds it.
    fn make(holder: BorrowedFd<'_>, id: &PlanId, lanes: usize) -> Result<Self, Errno> {
        let name = staging_name(id);
        match changing(holder, || make_directory(holder, &name)) {
            Err(Errno::EXIST) => {
                // An earlier try of the same plan that never reached its commit point.
                Leftover::open(holder, id)?.discard()?;
                changing(holder, || make_directory(holder, &name))?;
            }
            other => other?,
        }
        Self::open(holder, id, lanes).inspect_err(|_| {
            let _ = Leftover::open(holder, id).and_then(|made| made.discard());
        })
    }

    /// Opens the one that an interrupted rewind left, making what somebody removed of it.
    fn reopen(holder: BorrowedFd<'_>, id: &PlanId, lanes: usize) -> Result<Self, Errno> {
        let name = staging_name(id);
        match changing(holder, || make_directory(holder, &name)) {
            Ok(()) | Err(Errno::EXIST) => Self::open(holder, id, lanes),
            Err(error) => Err(error),
        }
    }

    fn open(holder: BorrowedFd<'_>, plan: &PlanId, lanes: usize) -> Result<Self, Errno> {
        let top = rustix::fs::openat(holder, staging_name(plan), OPEN, Mode::empty())?;
        clear_lists(&top);
        let lanes = (0..lanes).map(|lane| open_or_make(&top, &lane.to_string()));
        let lanes = lanes.collect::<Result<_, _>>()?;
        let holder = holder.try_clone_to_owned().map_err(errno)?;
        Ok(Self { plan: *plan, holder, top, lanes })
    }

    /// Makes everything in it durable, with everything else on its volume.
    ///
    /// `NOSYS` where that is not to be had.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        sync_volume(&self.top)
    }

    /// Makes the names in it durable, and its own.
    pub(super) fn sync_names(&self) -> Result<(), Errno> {
        self.lanes.iter().chain([&self.top]).try_for_each(rustix::fs::fsync)?;
        sync_directory(&self.holder)
    }

    /// The directory for what is removed; made when the first step is about to be taken.
    pub(super) fn trash(&self) -> Result<OwnedFd, Errno> {
        open_or_make(&self.top, TRASH)
    }

    /// The directory for what moves in two steps.
    pub(super) fn moved(&self) -> Result<OwnedFd, Errno> {
        open_or_make(&self.top, MOVED)
    }

    /// Takes it away with everything in it; only sensible before the commit point.
    fn discard(&self) -> Result<(), Errno> {
        Leftover::open(self.holder.as_fd(), &self.plan)?.discard()
    }

    fn note_elsewhere(&self, others: &[WorkspacePath]) -> Result<(), Errno> {
        let mut out = Encoder::default();
        out.int(others.len() as u64);
        for path in others {
            out.bytes(path.as_bytes());
        }
        self.note(ELSEWHERE, &out.0)
    }

    fn note(&self, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.top, name, flags, Mode::RUSR | Mode::WUSR)?;
        std::io::Write::write_all(&mut std::fs::File::from(file), bytes).map_err(errno)
    }
}

/// All staging directories of a rewind; dropped before the commit point, they go away.
#[derive(Debug)]
pub(super) struct Stages {
    stages: Vec<Stage>,
    temporary: bool,
}

impl Stages {
    /// Makes one in each of these directories.
    pub(super) fn make(
        directories: &mut Directories<'_>,
        holders: &[WorkspacePath],
        id: &PlanId,
        lanes: usize,
    ) -> Result<Self> {
        let mut made = Self { stages: Vec::new(), temporary: true };
        for holder in holders {
            let directory = directories.open(holder).at("open", holder.as_path())?;
            let stage =
                Stage::make(directory.as_fd(), id, lanes).at("write to", holder.as_path())?;
            if directories.is_beginning(holder) {
                let mut others = holders.to_vec();
                others.retain(|other| !directories.is_beginning(other) && other.is_within(holder));
                if !others.is_empty() {
                    stage.note_elsewhere(&others).at("write to", holder.as_path())?;
                }
            }
            made.stages.push(stage);
        }
        Ok(made)
    }

    /// Opens those of an interrupted rewind; they stay.
    pub(super) fn reopen(
        directories: &mut Directories<'_>,
        holders: &[WorkspacePath],
        id: &PlanId,
        lanes: usize,
    ) -> Result<Self> {
        let open = |holder: &WorkspacePath| {
            let directory = directories.open(holder).at("open", holder.as_path())?;
            Stage::reopen(directory.as_fd(), id, lanes).at("open staging in", holder.as_path())
        };
        let stages = holders.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { stages, temporary: false })
    }

    /// Notes which inodes were staged, and which paths are about to be written.
    pub(super) fn note_direct<'p>(
        &self,
        inodes: &[u64],
        paths: impl Iterator<Item = &'p WorkspacePath>,
        nonce: &[u8],
    ) -> Result<(), Errno> {
        let mut paths: Vec<_> = paths.collect();
        for stage in &self.stages {
            let mut out = Encoder::default();
            out.bytes(nonce);
            out.int(inodes.len() as u64);
            inodes.iter().for_each(|ino| out.int(*ino));
            out.int(paths.len() as u64);
            paths.drain(..).for_each(|path| out.bytes(path.as_bytes()));
            stage.note(PLACED, &out.0)?;
        }
        Ok(())
    }

    /// Makes that note durable, where the whole volume is not.
    pub(super) fn sync_note(&self) -> Result<(), Errno> {
        let Some(first) = self.stages.first() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::openat(&first.top, PLACED, flags, Mode::empty())?)?;
        rustix::fs::fsync(&first.top)
    }

    /// From now on they are needed until the rewind is recorded.
    pub(super) fn keep(&mut self) {
        self.temporary = false;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter()
    }

    /// Whether every volume can be made durable by one call.
    pub(super) fn sync_as_a_whole(&self) -> Result<bool, Errno> {
        for stage in &self.stages {
            if is_fuse(&stage.top)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The directory and the name of a slot.
    pub(super) fn slot(&self, slot: &Slot) -> (BorrowedFd<'_>, String) {
        (self.stages[slot.stage].lanes[slot.lane].as_fd(), slot.number.to_string())
    }

    /// How many directories each of them spreads new entries over.
    pub(super) fn lanes(&self) -> usize {
        self.stages.iter().map(|stage| stage.lanes.len()).min().unwrap_or(1)
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        if self.temporary {
            for stage in &self.stages {
                // What cannot be removed now is found by the next `discard_leftovers`.
                let _ = stage.discard();
            }
        }
    }
}

/// A staging directory that is about to go.
#[derive(Debug)]
pub(super) struct Leftover {
    plan: PlanId,
    holder: OwnedFd,
    name: String,
    top: OwnedFd,
}

impl Leftover {
    /// Opens it, if it is a directory.
    pub(super) fn open(holder: BorrowedFd<'_>, plan: &PlanId) -> Result<Self, Errno> {
        let name = staging_name(plan);
        let top = rustix::fs::openat(holder, &name, OPEN, Mode::empty())?;
        let holder = holder.try_clone_to_owned().map_err(errno)?;
        Ok(Self { plan: *plan, holder, name, top })
    }

    /// Makes everything on its file system durable; where that is not to be had, whoever took the
    /// steps has done so already.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        match sync_volume(&self.top) {
            Err(Errno::NOSYS) => Ok(()),
            other => other,
        }
    }

    /// Makes its removal durable where no journal brings that along with the next commit.
    pub(super) fn sync_removal(&self) -> Result<(), Errno> {
        if is_fuse(&self.holder)? { sync_directory(&self.holder) } else { Ok(()) }
    }

    /// Whose it is.
    pub(super) fn plan(&self) -> &PlanId {
        &self.plan
    }

    /// Whether its rewind passed the commit point, so that it may hold what is nowhere else.
    pub(super) fn is_committed(&self) -> Result<bool, Errno> {
        Ok(see(&self.top, TRASH.as_bytes())?.is_some()
            || see(&self.top, MOVED.as_bytes())?.is_some())
    }

    /// The directory itself.
    pub(super) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Gives it the name of another plan, under which it stays.
    pub(super) fn rename(&self, plan: &PlanId) -> Result<(), Errno> {
        rustix::fs::renameat(&self.holder, &self.name, &self.holder, staging_name(plan))
    }

    /// What the commit will say, the inodes that were staged and the paths that were to be written, as far as that was
    /// noted.
    pub(super) fn direct_note(&self) -> (Vec<u8>, HashSet<u64>, Vec<WorkspacePath>) {
        let bytes = self.noted(PLACED);
        let mut input = Decoder(&bytes);
        let nonce = input.bytes().unwrap_or_default().to_vec();
        let count = input.count().unwrap_or(0);
        let placed = (0..count).map_while(|_| input.int().ok()).collect();
        let count = input.count().unwrap_or(0);
        (nonce, placed, (0..count).map_while(|_| input.path().ok()).collect())
    }

    fn noted(&self, name: &str) -> Vec<u8> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut bytes = Vec::new();
        if let Ok(file) = rustix::fs::openat(&self.top, name, flags, Mode::empty()) {
            let mut file = std::io::Read::take(std::fs::File::from(file), 1 << 26);
            let _ = std::io::Read::read_to_end(&mut file, &mut bytes);
        }
        bytes
    }

    /// The directories on other volumes that hold staging of the same rewind.
    pub(super) fn elsewhere(&self) -> Vec<WorkspacePath> {
        let bytes = self.noted(ELSEWHERE);
        let mut input = Decoder(&bytes);
        let count = input.count().unwrap_or(0);
        (0..count).map_while(|_| input.path().ok()).collect()
    }

    /// Removes it, if it is not needed: before the commit point.
    pub(super) fn discard(&self) -> Result<(), Errno> {
        if self.is_committed()? { Err(Errno::NOTEMPTY) } else { self.remove() }
    }

    /// Only what is written directly is staged with all that it holds; a directory comes out of its place into none.
    fn remove_lane(&self, lane: &str) -> Result<bool, Errno> {
        let how = if self.plan == DIRECT { remove_whole } else { remove_empty };
        remove_numbered(&self.top, lane, how)
    }

    /// Removes it with the names that a rewind makes, and no others.
    pub(super) fn remove(&self) -> Result<(), Errno> {
        remove_numbered(&self.top, TRASH, remove_empty)?;
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), Errno> {
            loop {
                let lane = next.fetch_add(1, Ordering::Relaxed);
                if lane >= LANES || !self.remove_lane(&lane.to_string())? {
                    return Ok(());
                }
            }
        };
        std::thread::scope(|scope| {
            // A second one only where there is enough: most rewinds have one directory.
            let many = see(&self.top, b"2")?.is_some();
            let others: Vec<_> =
                (1..if many { THREADS } else { 1 }).map(|_| scope.spawn(work)).collect();
            let done = work();
            let others = others.into_iter().map(|other| other.join().expect("BUG: it panicked"));
            others.fold(done, Result::and)
        })?;
        // What moves is nowhere else, so it is only ever removed empty.
        gone(rustix::fs::unlinkat(&self.top, MOVED, AtFlags::REMOVEDIR))?;
        for note in [ELSEWHERE, PLACED] {
            gone(rustix::fs::unlinkat(&self.top, note, AtFlags::empty()))?;
        }
        let holder = self.holder.as_fd();
        changing(holder, || gone(rustix::fs::unlinkat(holder, &self.name, AtFlags::REMOVEDIR)))
    }
}

/// Empties and removes a directory of staging, whose names are all numbers; false if there is none.
fn remove_numbered(top: &OwnedFd, name: &str, how: RemoveDirectory) -> Result<bool, Errno> {
    let directory = match rustix::fs::openat(top, name, OPEN, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        other => other?,
    };
    let numbered = |name: &CStr| name.to_bytes().iter().all(u8::is_ascii_digit);
    for name in names_in(&directory)?.iter().filter(|name| numbered(name)) {
        remove_name(&directory, name, how)?;
    }
    gone(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)).map(|()| true)
}

/// How a directory is removed by its name.
type RemoveDirectory = fn(&OwnedFd, &CStr) -> Result<(), Errno>;

/// Read to the end before anything is removed: what a listing shows while its directory shrinks is not defined.
fn names_in(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let items = Dir::read_from(directory)?;
    items.map(|item| item.map(|item| item.file_name().to_owned())).collect()
}

fn remove_name(directory: &OwnedFd, name: &CStr, how: RemoveDirectory) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => how(directory, name),
        other => gone(other),
    }
}

fn remove_empty(directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    gone(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR))
}

/// Removes a directory that was staged and is in no place, with all that was staged in it.
fn remove_whole(directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let inner = match rustix::fs::openat(directory, name, OPEN, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        // What nobody may list was given its last mode already.
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(directory, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(directory, name, OPEN, Mode::empty())?
        }
        other => other?,
    };
    let own = |name: &&CString| !matches!(name.to_bytes(), b"." | b"..");
    let names = names_in(&inner)?;
    if names.iter().any(|name| own(&name)) {
        let _ = rustix::fs::fchmod(&inner, Mode::RWXU);
    }
    names.iter().filter(own).try_for_each(|name| remove_name(&inner, name, remove_whole))?;
    remove_empty(directory, name)
}

/// A removal that somebody else did first is done.
fn gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Makes a whole volume durable; `NOSYS` on FUSE, where the kernel says yes and tells nobody.
pub(super) fn sync_volume(directory: &OwnedFd) -> Result<(), Errno> {
    if is_fuse(directory)? { Err(Errno::NOSYS) } else { rustix::fs::syncfs(directory) }
}

pub(super) fn is_fuse(directory: &OwnedFd) -> Result<bool, Errno> {
    Ok(i128::from(rustix::fs::fstatfs(directory)?.f_type) == FUSE)
}

/// Makes the names in a directory durable, whose handle may be for nothing but its place.
fn sync_directory(directory: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::openat(directory, c".", flags, Mode::empty())?)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn make_directory(parent: impl AsFd, name: &str) -> Result<(), Errno> {
    rustix::fs::mkdirat(parent, name, Mode::RWXU)
}

fn open_or_make(top: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match make_directory(top, name) {
        Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(top, name, OPEN, Mode::empty()),
        Err(error) => Err(error),
    }
}

/// Changes what a directory holds and leaves its time and mode as they were, although its owner may
/// have taken the right to change it away from himself.
fn changing(
    directory: BorrowedFd<'_>,
    change: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let seen = see_handle(directory)?;
    let handle = Handle::directory(directory)?;
    let mut result = change();
    let own = seen.signature.uid == rustix::process::geteuid().as_raw();
    if result == Err(Errno::ACCESS) && own {
        handle.set_mode(seen.permissions() | RawMode::from(Mode::WUSR | Mode::XUSR))?;
        result = change();
        handle.set_mode(seen.permissions())?;
    }
    // Only the owner can set a time; for everybody else the time of the change stays.
    let times = modified_at(seen.signature.mtime_ns);
    let _ = rustix::fs::utimensat(directory, c"", &times, AtFlags::EMPTY_PATH);
    result
}
