//! Keeps the watches in step with the directories of a workspace, and turns what the kernel tells
//! into numbered paths.
//!
//! A new directory is watched first and listed after, so that nothing can slip in between. Where
//! the order of events and the disk do not fit together, everything is set up anew: that costs one
//! full look.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::inotify::ReadFlags;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::deeds::Top;
use super::handle::DirectoryHandle;
use super::ledger::Ledger;
use super::marks::{Event, Marks};
use super::mounts::{Mounts, is_shared};
use super::places::{Place, Places, join};
use super::witness::Witness;
use super::{Doubt, server::Surroundings};
use crate::filter::{Exclusion, Filter, FilterRules, recreate_hint};
use crate::fs::{self, Roots, STAGING_PREFIX};
use crate::path::WorkspacePath;

/// What came, went or moved, so that the directory's own time changed as well.
const STRUCTURE: ReadFlags = ReadFlags::CREATE
    .union(ReadFlags::DELETE)
    .union(ReadFlags::MOVED_FROM)
    .union(ReadFlags::MOVED_TO);
/// How many directories are entered between two looks at the clock.
const STRIDE: usize = 32;

/// What a workspace is at present, for the one who watches it.
pub(crate) struct Scope {
    /// Names all of it: a look and its watcher must mean the same.
    pub(crate) hash: [u8; 16],
    /// The directories and files.
    pub(crate) roots: Roots,
    /// The workspace's root.
    pub(crate) root: PathBuf,
    /// Chronicle's home, which is never watched.
    pub(crate) home: PathBuf,
    /// The rules that were accepted.
    pub(crate) accepted: FilterRules,
}

/// The watches of one workspace.
pub(super) struct Keeper<'s> {
    surroundings: &'s dyn Surroundings,
    pub(super) scope: Scope,
    marks: Marks,
    pub(super) places: Places,
    mounts: Mounts,
    /// Directories still to be watched and listed.
    pending: Vec<Place>,
    /// Directories that left one place and have not arrived at another, by the rename's number.
    moving: HashMap<u32, Place>,
    /// Directories that may not be read, and so not be watched.
    blind: BTreeSet<Place>,
    /// Directories in which one was not where it should be: they are listed again after the next events.
    incomplete: BTreeSet<Place>,
    /// Directories with a name that tools give to mass, whatever the filter says of them now.
    suspects: BTreeSet<Place>,
    doubtful: Doubtful,
    filter: Option<Filter>,
    devices: HashMap<u64, bool>,
    /// The watch on the workspace's own directory in the home.
    own: i32,
    most: usize,
    /// One who sees which processes write, where that is allowed.
    pub(super) witness: Option<Witness>,
    /// The generation of writers that began with the last question.
    moment: Option<u64>,
    /// The roots, for him.
    pub(super) tops: Vec<Top>,
}

/// Which directories the filter is to be asked about again, at the next question.
///
/// Not before: a look that is under way may take in what the filter would keep out a moment later,
/// and what was taken in stays in. Whoever asks has recorded all earlier looks.
#[derive(Default)]
struct Doubtful {
    all: bool,
    places: BTreeSet<Place>,
    /// Directories in which a sign came or went.
    within: BTreeSet<Place>,
}

/// An event that outlives the kernel's buffer.
struct Told {
    watch: i32,
    what: ReadFlags,
    cookie: u32,
    name: Option<Vec<u8>>,
}

impl<'s> Keeper<'s> {
    /// Begins to watch: the directories are only entered by `catch_up`.
    pub(super) fn new(
        surroundings: &'s dyn Surroundings,
        scope: Scope,
        most: usize,
        witness: Option<Witness>,
    ) -> Result<Self, Doubt> {
        let marks = Marks::new().map_err(|_| Doubt::Limit)?;
        let home = rustix::fs::open(
            surroundings.directory(),
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        let own = home.and_then(|home| marks.watch_going(home)).map_err(lacking)?;
        let roots = scope.roots.iter().map(|root| root.path().to_owned()).collect();
        let mounts = Mounts::new(roots).map_err(|_| Doubt::Lost)?;
        let mut places = Places::default();
        let tops: Vec<_> = scope.roots.iter().filter(|root| root.is_directory()).collect();
        let tops: Vec<_> = tops
            .into_iter()
            .map(|root| Top {
                place: places.add_root(root.prefix().as_bytes()),
                prefix: root.prefix().clone(),
                real: root.handle().map(real_path).unwrap_or_default(),
            })
            .collect();
        let pending = tops.iter().map(|top| top.place).collect();
        Ok(Self {
            surroundings,
            scope,
            marks,
            places,
            mounts,
            pending,
            moving: HashMap::new(),
            blind: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            suspects: BTreeSet::new(),
            doubtful: Doubtful::default(),
            filter: None,
            devices: HashMap::new(),
            own,
            most,
            witness,
            moment: None,
            tops,
        })
    }

    /// Gives the witness back, for the next one who watches the same.
    pub(super) fn into_witness(self) -> Option<Witness> {
        self.witness
    }

    /// The number of this answer was given out; `since` is that of the last look that was recorded.
    pub(super) fn answered(&mut self, counter: u64, since: Option<u64>) {
        if let Some(witness) = &mut self.witness {
            self.moment.into_iter().for_each(|moment| witness.writers.named(counter, moment));
            since.into_iter().for_each(|since| witness.writers.recorded(since));
        }
    }

    /// How many directories are watched.
    pub(super) fn directories(&self) -> u64 {
        self.places.watches() as u64
    }

    /// Where the kernel tells that something happened.
    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// What it takes for the workspace.
    pub(super) fn scope(&self) -> [u8; 16] {
        self.scope.hash
    }

    /// Whether the directory that is watched is still the one that the workspace's path leads to.
    pub(super) fn has_its_root(&self) -> bool {
        let root = self.scope.roots.workspace();
        let there = std::fs::metadata(root.path()).map(|meta| (meta.dev(), meta.ino()));
        let held = root.handle().ok().and_then(|handle| fs::stat_of(handle).ok());
        there.ok() == held.map(|held| (held.dev, held.signature.ino))
    }

    /// Whether directories are left to be watched.
    pub(super) fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes in everything that happened so far, and watches what is new; false if the time did not
    /// suffice for that.
    pub(super) fn catch_up(&mut self, ledger: &mut Ledger, end: Instant) -> Result<bool, Doubt> {
        self.take_deeds();
        self.take_events(ledger)?;
        self.enter_pending(ledger, end)
    }

    /// The same before an answer, when also filters are asked again.
    pub(super) fn prepare(&mut self, ledger: &mut Ledger, end: Instant) -> Result<bool, Doubt> {
        if self.mounts.changed() {
            return Err(Doubt::Mount);
        }
        self.take_deeds();
        // Before all directories are known, what is done in one and goes with it is not.
        let behind = self.is_behind();
        let began = self.witness.as_mut().map(|witness| witness.writers.begin());
        self.moment = began.filter(|_| !behind);
        if !self.catch_up(ledger, end)? {
            return Ok(false);
        }
        self.ask_filter_again(ledger);
        self.enter_pending(ledger, end)
    }

    fn take_events(&mut self, ledger: &mut Ledger) -> Result<(), Doubt> {
        let mut told = Vec::new();
        let keep = |event: Event<'_>| {
            let Event { watch, what, cookie, name } = event;
            told.push(Told { watch, what, cookie, name: name.map(<[u8]>::to_vec) });
        };
        if !self.marks.drain(keep).map_err(|_| Doubt::Lost)? {
            return Ok(());
        }
        // What the filter has read may have changed.
        self.filter = None;
        for event in told {
            self.event(&event, ledger)?;
        }
        self.pending.extend(std::mem::take(&mut self.incomplete));
        // Whatever did not arrive anywhere left the workspace.
        for (_, place) in std::mem::take(&mut self.moving) {
            self.forget(place);
        }
        Ok(())
    }

    fn event(&mut self, event: &Told, ledger: &mut Ledger) -> Result<(), Doubt> {
        if event.what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Err(Doubt::Overflow);
        }
        // It only had to wake us.
        if event.watch == self.own {
            return Ok(());
        }
        let Some(place) = self.places.by_watch(event.watch) else { return Ok(()) };
        if event.what.contains(ReadFlags::UNMOUNT) {
            return Err(Doubt::Mount);
        }
        if event.what.contains(ReadFlags::IGNORED) {
            self.places.drop_watch(event.watch);
            // Mostly its directory is gone, and the place with it. If it is not, the watch was on
            // another directory that stood there for a moment: what is there now must be watched.
            if let Some(directory) = self.places.path(place) {
                self.pending.push(place);
                ledger.touch(&directory, true);
            }
            return Ok(());
        }
        // On its way somewhere, or gone: the whole of it is looked at where it arrives.
        let Some(directory) = self.places.path(place) else { return Ok(()) };
        match &event.name {
            Some(name) => self.named(place, &directory, name, event, ledger),
            None => self.itself(place, &directory, event.what, ledger),
        }
    }

    /// Something happened to a watched directory itself; only of a root nobody else tells.
    fn itself(
        &mut self,
        place: Place,
        directory: &[u8],
        what: ReadFlags,
        ledger: &mut Ledger,
    ) -> Result<(), Doubt> {
        if !self.places.is_root(place) {
            return Ok(());
        }
        if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            return Err(Doubt::RootMoved);
        }
        ledger.touch(directory, true);
        self.retry_blind();
        Ok(())
    }

    fn named(
        &mut self,
        place: Place,
        directory: &[u8],
        name: &[u8],
        event: &Told,
        ledger: &mut Ledger,
    ) -> Result<(), Doubt> {
        let is_directory = event.what.contains(ReadFlags::ISDIR);
        if self.places.is_kept_out(place) {
            // Nothing in it counts, but a sign in it may be why it is kept out.
            if !is_directory || matches!(name, b".git" | b".jj") {
                self.doubtful.places.insert(place);
            }
            return Ok(());
        }
        if event.what.intersects(STRUCTURE) {
            ledger.touch(directory, false);
        }
        if name.starts_with(STAGING_PREFIX) {
            return Ok(());
        }
        let path = join(directory, name);
        if path == b".chronicleignore" {
            ledger.touch(&path, false);
            return Err(Doubt::Rules);
        }
        self.doubt_filter(place, name, event.what);
        if is_directory {
            return self.directory(place, name, &path, event, ledger);
        }
        if event.what.contains(ReadFlags::MODIFY) {
            ledger.modified(&path, self.surroundings.now().0);
        } else {
            ledger.touch(&path, false);
        }
        if event.what.intersects(STRUCTURE | ReadFlags::CLOSE_WRITE) {
            ledger.closed(&path);
        }
        Ok(())
    }

    /// Notes which verdicts of the filter may be others now.
    fn doubt_filter(&mut self, place: Place, name: &[u8], what: ReadFlags) {
        let inside = self.places.name(place);
        if matches!(name, b".gitignore" | b".git" | b".jj")
            || inside == b".git" && matches!(name, b"index" | b"HEAD" | b"commondir")
            || inside == b"info" && name == b"exclude"
        {
            self.doubtful.all = true;
        }
        if what.intersects(STRUCTURE) && !what.contains(ReadFlags::ISDIR) {
            self.doubtful.within.insert(place);
            if recreate_hint(inside).is_some() {
                self.doubtful.places.insert(place);
            }
        }
    }

    fn directory(
        &mut self,
        place: Place,
        name: &[u8],
        path: &[u8],
        event: &Told,
        ledger: &mut Ledger,
    ) -> Result<(), Doubt> {
        let here = self.places.child(place, name);
        if event.what.contains(ReadFlags::CREATE) {
            let new = self.places.child_or_new(place, name);
            self.pending.push(new);
        } else if event.what.contains(ReadFlags::DELETE) {
            here.into_iter().for_each(|place| self.forget(place));
        } else if event.what.contains(ReadFlags::MOVED_FROM) {
            if let Some(here) = here {
                self.places.detach(here);
                self.moving.insert(event.cookie, here);
            }
        } else if event.what.contains(ReadFlags::MOVED_TO) {
            self.arrive(place, name, here, event.cookie)?;
        } else {
            // Its mode, owner or attributes: what lies below may be readable now, or no more.
            self.retry_blind();
        }
        ledger.touch(path, true);
        Ok(())
    }

    /// A directory arrives under a name, from within the workspace or from elsewhere.
    fn arrive(
        &mut self,
        parent: Place,
        name: &[u8],
        here: Option<Place>,
        cookie: u32,
    ) -> Result<(), Doubt> {
        // Below it, ignore files of other directories have a say from now on.
        self.doubtful.all = true;
        let moved = self.moving.remove(&cookie);
        if let Some(here) = here {
            // Two directories changed places, or one took another's: the next events would be put
            // down to the wrong one.
            if moved.is_some() && self.places.watch(here).is_some() {
                return Err(Doubt::Lost);
            }
            self.forget(here);
        }
        let place = match moved {
            Some(moved) => {
                self.places.attach(moved, parent, name);
                moved
            }
            None => self.places.child_or_new(parent, name),
        };
        if self.places.watch(place).is_none() || recreate_hint(name).is_some() {
            self.pending.push(place);
        }
        Ok(())
    }

    fn forget(&mut self, place: Place) {
        for watch in self.places.remove(place) {
            self.marks.unwatch(watch);
        }
    }

    fn retry_blind(&mut self) {
        self.pending.extend(&self.blind);
    }

    fn enter_pending(&mut self, ledger: &mut Ledger, end: Instant) -> Result<bool, Doubt> {
        let mut entered = 0;
        while let Some(place) = self.pending.pop() {
            self.enter(place, ledger)?;
            entered += 1;
            if entered % STRIDE == 0 && Instant::now() >= end && !self.pending.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Watches a directory and finds those in it.
    fn enter(&mut self, place: Place, ledger: &mut Ledger) -> Result<(), Doubt> {
        // Meanwhile it may be gone, or its number may have been given to another.
        let Some(bytes) = self.places.path(place) else { return Ok(()) };
        // A path longer than a record may hold is a look's to report.
        let Ok(path) = WorkspacePath::new(&bytes[..]) else { return Ok(()) };
        if recreate_hint(path.name()).is_some() {
            self.suspects.insert(place);
        }
        let out = if self.places.is_root(place) { None } else { self.exclusion(&path) };
        self.set_kept_out(place, out.is_some());
        if out.is_some() {
            self.doubtful.places.insert(place);
            if out != Some(Exclusion::Mass) {
                return Ok(());
            }
        }
        let Ok(root) = self.scope.roots.root_of(&path) else { return Ok(()) };
        let handle = root.handle().map_err(|_| Doubt::RootMoved)?;
        let directory = match fs::open_directory_at(handle, root.below(&path)) {
            Ok(directory) => directory,
            // The event that says so is on its way. It may be about a directory above, which will arrive
            // somewhere without this one.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !self.places.is_root(place) => {
                self.incomplete.extend(self.places.parent(place));
                self.forget(place);
                return Ok(());
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                self.blind.insert(place);
                return Ok(());
            }
            Err(Errno::NAMETOOLONG) => return Ok(()),
            Err(error) => return Err(lacking(error)),
        };
        self.check_device(&directory)?;
        if self.places.watches() >= self.most {
            return Err(Doubt::Limit);
        }
        let watch = match self.marks.watch(&directory) {
            Ok(watch) => watch,
            Err(Errno::ACCESS | Errno::PERM) => {
                self.blind.insert(place);
                return Ok(());
            }
            Err(error) => return Err(lacking(error)),
        };
        if watch == self.own || !self.places.set_watch(place, watch) {
            return Err(Doubt::Lost);
        }
        self.note_handle(place, &directory);
        if self.blind.remove(&place) {
            ledger.touch(&bytes, true);
        }
        if out.is_none() {
            self.list(place, &directory)?;
        }
        Ok(())
    }

    /// So that notices of who wrote in it find its path, also when it is gone by then.
    fn note_handle(&mut self, place: Place, directory: &std::os::fd::OwnedFd) {
        let Some(witness) = &self.witness else { return };
        let marked = witness.marked(directory);
        let handle = marked.and_then(|marked| DirectoryHandle::of(directory, marked).ok());
        handle.into_iter().for_each(|handle| self.places.set_handle(place, handle));
    }

    fn set_kept_out(&mut self, place: Place, kept_out: bool) {
        if !kept_out && self.places.is_kept_out(place) {
            self.hear_again(place);
        }
        if kept_out && !self.places.is_kept_out(place) {
            for watch in self.places.remove_below(place) {
                self.marks.unwatch(watch);
            }
        }
        self.places.set_kept_out(place, kept_out);
    }

    /// What was written in a directory that was kept out is not known.
    fn hear_again(&mut self, place: Place) {
        let path = self.places.path(place);
        if let (Some(witness), Some(path)) = (&mut self.witness, path) {
            witness.ignore_nothing();
            witness.writers.moved_directory(&path, None);
        }
    }

    fn list(&mut self, place: Place, directory: &std::os::fd::OwnedFd) -> Result<(), Doubt> {
        let entries = Dir::read_from(directory).map_err(lacking)?;
        for entry in entries {
            let entry = entry.map_err(lacking)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name.starts_with(STAGING_PREFIX) {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => fs::lstat_at(directory, name)
                    .is_ok_and(|stat| stat.is_some_and(|stat| stat.is_directory())),
                _ => false,
            };
            if is_directory {
                let child = self.places.child_or_new(place, name);
                if self.places.watch(child).is_none() {
                    self.pending.push(child);
                }
            }
        }
        Ok(())
    }

    fn check_device(&mut self, directory: &std::os::fd::OwnedFd) -> Result<(), Doubt> {
        let device = fs::stat_of(directory).map_err(lacking)?.dev;
        let shared = *self.devices.entry(device).or_insert_with(|| is_shared(directory));
        if shared { Err(Doubt::FileSystem) } else { Ok(()) }
    }

    /// Why filters keep a directory out; what was taken in stays in, as a look has it.
    fn exclusion(&mut self, path: &WorkspacePath) -> Option<Exclusion> {
        let filter = self.filter.get_or_insert_with(|| {
            let Scope { root, home, accepted, .. } = &self.scope;
            Filter::new(root, home, accepted, &FilterRules::read(root).unwrap_or_default())
        });
        match filter.exclusion(path, true) {
            Some(Exclusion::Mass) if self.surroundings.is_captured(path) => None,
            verdict => verdict,
        }
    }

    fn ask_filter_again(&mut self, ledger: &mut Ledger) {
        let Doubtful { all, mut places, within } = std::mem::take(&mut self.doubtful);
        if all {
            places.extend(self.places.kept_out());
            places.extend(&self.suspects);
        }
        for parent in within {
            places.extend(
                self.places.children(parent).iter().filter(|child| {
                    self.places.is_kept_out(**child) || self.suspects.contains(child)
                }),
            );
        }
        for place in places {
            let Some(bytes) = self.places.path(place) else { continue };
            let Ok(path) = WorkspacePath::new(&bytes[..]) else { continue };
            let was = self.places.is_kept_out(place);
            let is = self.exclusion(&path).is_some();
            if was != is {
                ledger.touch(&bytes, !is);
                self.set_kept_out(place, is);
                self.pending.extend((!is).then_some(place));
            }
        }
    }
}

/// Where an open directory really is; empty where nobody can tell.
fn real_path(directory: BorrowedFd<'_>) -> Vec<u8> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    link.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// Why a watch could not be set, where it is not the directory's fault.
fn lacking(error: Errno) -> Doubt {
    match error {
        Errno::NOSPC | Errno::MFILE | Errno::NFILE | Errno::NOMEM => Doubt::Limit,
        _ => Doubt::Lost,
    }
}
