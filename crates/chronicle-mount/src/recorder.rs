//! Keeps versions of everything that happens in a mount.
//!
//! Before something goes, it is in the log already, since it is still what is known of it, or it is noted in the
//! mount's journal. A thread of its own brings the journal into the log every so often; nobody waits for that.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chronicle_core::{
    Deed, Error, Home, KnownNames, MountLog, Process, SavedAs, Workspace, WorkspacePath,
};
use fuser::Errno;

use crate::identity;
use crate::versions::{Caller, Operation, Versions};

/// How long what happened waits at least before it is brought into the log.
const PAUSE: Duration = Duration::from_millis(500);
/// And at most.
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// How often what stays open for writing is recorded as it is.
const OPEN_PAUSE: Duration = Duration::from_secs(30);
/// How long a process is taken for the one that had its number a moment ago.
const SAME_PROCESS: Duration = Duration::from_millis(200);
/// Processes that are remembered at once.
const PROCESSES_MOST: usize = 4096;
/// How long the log is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What keeps the versions of one mount.
pub struct Recorder {
    log: MountLog,
    /// Asks and saves, beside whoever folds.
    eye: Mutex<(Workspace, KnownNames)>,
    /// Brings the journal into the log.
    hand: Mutex<Workspace>,
    seen: Mutex<Seen>,
    /// Why folding failed the last time, as it was told.
    failure: Mutex<Option<String>>,
    /// Something happened that is not in the log.
    stirred: AtomicBool,
    bell: (Mutex<bool>, Condvar),
}

/// What the recorder remembers between two requests.
#[derive(Default)]
struct Seen {
    processes: HashMap<u32, (u32, Instant)>,
    /// What is open for writing.
    open: HashSet<WorkspacePath>,
    /// Directories that are called like a repository's metadata, whether they are, and since when that is known.
    repositories: HashMap<WorkspacePath, (bool, Instant)>,
}

impl Seen {
    /// Keeps track of what is open for writing, and under which names.
    fn follow(&mut self, operation: &Operation<'_>) {
        match operation {
            Operation::Write { paths, opens: true, .. } => self.open.extend(workspace_paths(paths)),
            Operation::Create { path, opened: true, .. } => self.open.extend(workspace_path(path)),
            Operation::Remove { path, .. } => {
                workspace_path(path).iter().for_each(|path| _ = self.open.remove(path));
            }
            Operation::Rename { from, to, exchange } => {
                if let (Some(from), Some(to)) = (workspace_path(from), workspace_path(to)) {
                    self.rename(&from, &to, *exchange);
                }
            }
            _ => {}
        }
    }

    fn rename(&mut self, from: &WorkspacePath, to: &WorkspacePath, exchange: bool) {
        if self.open.is_empty() {
            return;
        }
        let renamed = |path: WorkspacePath| {
            if path.is_within(from) {
                return path.rebase(from, to);
            }
            match path.is_within(to) {
                true if exchange => path.rebase(to, from),
                true => None,
                false => Some(path),
            }
        };
        self.open = std::mem::take(&mut self.open).into_iter().filter_map(renamed).collect();
    }
}

thread_local! {
    /// The intents of the request that this thread is at.
    static INTENDED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Records everything that stands in a workspace, and begins to keep what is about to go.
    pub fn begin(home: &Home, root: &std::path::Path) -> Result<Arc<Self>, Error> {
        let mut hand = Workspace::open(home, root)?;
        let log = hand.begin_mount()?;
        // What the one before could not do, this one tries again.
        hand.set_mount_problem(None)?;
        let eye = Workspace::open(home, root)?;
        Ok(Arc::new(Self {
            log,
            eye: Mutex::new((eye, KnownNames::default())),
            hand: Mutex::new(hand),
            seen: Mutex::default(),
            failure: Mutex::default(),
            stirred: AtomicBool::new(true),
            bell: Default::default(),
        }))
    }

    /// Brings everything into the log, now.
    pub fn fold(&self, open_too: bool) -> Result<u64, Error> {
        self.stirred.store(false, Ordering::Release);
        let mut hand = locked(&self.hand);
        let folded = self.log.flush().and_then(|()| hand.fold(open_too, PATIENCE));
        self.tell(&hand, folded.as_ref().err());
        if folded.is_err() {
            self.stirred.store(true, Ordering::Release);
        }
        let changes = folded?.changes;
        self.log.tidy(&hand)?;
        Ok(changes)
    }

    /// Says for `status` that folding fails, or that it does not any more. Somebody who holds the log is no failure.
    fn tell(&self, hand: &Workspace, failure: Option<&Error>) {
        let why = failure.filter(|error| !matches!(error, Error::Busy(_))).map(Error::to_string);
        let mut told = locked(&self.failure);
        if *told != why && hand.set_mount_problem(why.as_deref()).is_ok() {
            *told = why;
        }
    }

    /// Brings what happened since into the log, for somebody who looks at it; what cannot be now is told later.
    pub(crate) fn catch_up(&self, open_too: bool) {
        let waits = open_too && !locked(&self.seen).open.is_empty();
        if waits || self.stirred.load(Ordering::Acquire) {
            let _ = self.fold(open_too);
        }
    }

    /// Says where the workspace is mounted.
    pub fn set_place(&self, at: Option<&std::path::Path>) -> Result<(), Error> {
        locked(&self.hand).set_mount_place(at)
    }

    /// The workspace, for reading its history.
    pub(crate) fn workspace(&self) -> MutexGuard<'_, Workspace> {
        locked(&self.hand)
    }

    /// Starts the thread that folds; it ends when the bell is rung.
    pub fn keep_folding(self: &Arc<Self>) -> JoinHandle<()> {
        let recorder = Arc::clone(self);
        std::thread::spawn(move || recorder.fold_until_stopped())
    }

    fn fold_until_stopped(&self) {
        let (mut pause, mut opened) = (PAUSE, Instant::now());
        loop {
            if self.rest(pause) {
                return;
            }
            let open_too = opened.elapsed() > OPEN_PAUSE && !locked(&self.seen).open.is_empty();
            if !self.stirred.load(Ordering::Acquire) && !open_too {
                continue;
            }
            let began = Instant::now();
            // What could not be recorded now stays in the journal, and whoever would destroy it is refused.
            let _ = self.fold(open_too);
            if open_too {
                opened = Instant::now();
            }
            pause = (began.elapsed() * 10).clamp(PAUSE, PAUSE_MOST);
        }
    }

    /// Waits; says whether it is time to stop.
    fn rest(&self, pause: Duration) -> bool {
        let (stopped, bell) = &self.bell;
        let waited = bell.wait_timeout_while(locked(stopped), pause, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the thread that folds.
    pub fn stop(&self) {
        *locked(&self.bell.0) = true;
        self.bell.1.notify_all();
    }

    fn who(&self, pid: u32) -> Result<u32, Error> {
        if let Some((number, since)) = locked(&self.seen).processes.get(&pid)
            && since.elapsed() < SAME_PROCESS
        {
            return Ok(*number);
        }
        let number = self.log.who(&Process::line(pid))?;
        let processes = &mut locked(&self.seen).processes;
        if processes.len() >= PROCESSES_MOST {
            processes.clear();
        }
        processes.insert(pid, (number, Instant::now()));
        Ok(number)
    }

    /// Makes sure that what stands at a path survives it.
    fn keep(&self, path: &WorkspacePath) -> Result<(), Error> {
        if self.is_in_repository(path)? {
            return Ok(());
        }
        // What is kept is ours, not the caller's.
        identity::be_oneself();
        match self.save(path) {
            // Old history may make room, and somebody may have allowed more.
            Err(Error::OverBudget { .. }) => {
                self.fold(false)?;
                locked(&self.eye).0.read_settings_anew();
                self.save(path)
            }
            saved => saved,
        }
    }

    /// A repository's metadata has one value, which is looked at as a whole. What was one is taken for one for a
    /// while: whoever removes it begins somewhere.
    fn is_in_repository(&self, path: &WorkspacePath) -> Result<bool, Error> {
        let is_metadata = |path: &WorkspacePath| matches!(path.name(), b".git" | b".jj");
        let mut above = std::iter::successors(Some(path.clone()), WorkspacePath::parent);
        let Some(directory) = above.find(is_metadata) else { return Ok(false) };
        if let Some((is_one, since)) = locked(&self.seen).repositories.get(&directory)
            && since.elapsed() < if *is_one { PAUSE_MOST } else { SAME_PROCESS }
        {
            return Ok(*is_one);
        }
        let is_one = locked(&self.eye).0.is_in_repository(path)?;
        locked(&self.seen).repositories.insert(directory, (is_one, Instant::now()));
        Ok(is_one)
    }

    fn save(&self, path: &WorkspacePath) -> Result<(), Error> {
        {
            let (eye, names) = &mut *locked(&self.eye);
            if eye.is_unchanged_by(names, path)? || eye.is_kept_out(path, false)? {
                return Ok(());
            }
            match self.log.save(eye, path)? {
                SavedAs::Known | SavedAs::Noted => return Ok(()),
                SavedAs::TooMuch => {}
            }
        }
        locked(&self.hand).record_now(std::slice::from_ref(path), false)
    }

    fn prepare(&self, caller: &Caller, operation: &Operation<'_>) -> Result<Vec<u64>, Error> {
        let deeds = self.deeds(operation);
        for path in self.endangered(operation) {
            self.keep(&path)?;
        }
        let numbers = self.log.intend(self.who(caller.pid)?, &deeds)?;
        Ok(numbers)
    }

    /// The paths whose content an operation takes away.
    fn endangered(&self, operation: &Operation<'_>) -> Vec<WorkspacePath> {
        match operation {
            Operation::Write { paths, truncates, .. } => {
                let mut paths = workspace_paths(paths);
                // While somebody has it open, its version is not finished.
                if !truncates {
                    let seen = locked(&self.seen);
                    paths.retain(|path| !seen.open.contains(path));
                }
                paths
            }
            Operation::Remove { path, directory: false } => {
                workspace_path(path).into_iter().collect()
            }
            Operation::Rename { to, exchange: false, .. } => {
                workspace_path(to).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn deeds(&self, operation: &Operation<'_>) -> Vec<(Deed, Vec<WorkspacePath>)> {
        let one = |deed, path: &[u8]| (deed, workspace_path(path).into_iter().collect());
        match operation {
            Operation::Write { paths, opens: true, .. } => {
                vec![(Deed::Opens, workspace_paths(paths))]
            }
            Operation::Write { paths, .. } | Operation::Attributes { paths } => {
                vec![(Deed::Changes, workspace_paths(paths))]
            }
            Operation::Create { path, directory: true, .. } => {
                vec![one(Deed::CreatesDirectory, path)]
            }
            Operation::Create { path, directory: false, .. } => vec![one(Deed::Creates, path)],
            Operation::Remove { path, .. } => vec![one(Deed::Removes, path)],
            Operation::Rename { from, to, exchange: false } => {
                vec![one(Deed::Leaves, from), one(Deed::Arrives, to)]
            }
            Operation::Rename { from, to, exchange: true } => {
                vec![one(Deed::Arrives, from), one(Deed::Arrives, to)]
            }
            Operation::Link { from, to } => vec![one(Deed::Changes, from), one(Deed::Creates, to)],
        }
    }
}

impl Versions for Recorder {
    fn before(&self, caller: &Caller, operation: &Operation<'_>) -> Result<(), Errno> {
        let numbers = self.prepare(caller, operation).map_err(|error| errno(&error))?;
        INTENDED.set(numbers);
        Ok(())
    }

    fn after(&self, _: &Caller, operation: &Operation<'_>, outcome: Result<(), Errno>) {
        let errno = outcome.err().map_or(0, |errno| u32::try_from(errno.code()).unwrap_or(1));
        // Without it the paths are looked at all the same, since they are in the intent.
        let _ = self.log.outcome(&INTENDED.take(), errno);
        if errno == 0 {
            locked(&self.seen).follow(operation);
        }
        self.stirred.store(true, Ordering::Release);
    }

    fn closed(&self, caller: &Caller, paths: &[Vec<u8>]) {
        let paths = workspace_paths(paths);
        {
            let mut seen = locked(&self.seen);
            paths.iter().for_each(|path| _ = seen.open.remove(path));
        }
        let _ = self.who(caller.pid).and_then(|who| self.log.closed(who, paths));
        self.stirred.store(true, Ordering::Release);
    }

    fn synced(&self, _: &[Vec<u8>]) -> Result<(), Errno> {
        self.log.sync().map_err(|error| errno(&error))
    }
}

fn workspace_path(path: &[u8]) -> Option<WorkspacePath> {
    // What cannot be a path of a workspace is nothing that it keeps.
    WorkspacePath::new(path).ok()
}

fn workspace_paths(paths: &[Vec<u8>]) -> Vec<WorkspacePath> {
    paths.iter().filter_map(|path| workspace_path(path)).collect()
}

/// What a caller hears when something cannot be kept: his operation does not happen.
fn errno(error: &Error) -> Errno {
    match error {
        Error::OverBudget { .. } => Errno::ENOSPC,
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(code @ (libc::ENOSPC | libc::EDQUOT | libc::EROFS)) => Errno::from_i32(code),
            _ => Errno::EIO,
        },
        Error::Busy(_) => Errno::EBUSY,
        _ => Errno::EIO,
    }
}
