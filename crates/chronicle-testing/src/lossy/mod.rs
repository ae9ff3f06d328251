//! A file system that forgets: it knows what a power cut would leave of it.
//!
//! It is mounted for real, through FUSE, and keeps in memory what processes see, with a log of
//! everything that was written. From the log the image after a power cut at any moment is made, and
//! put under the same mount, where the next process finds it as it would after the reboot.
//! `syncfs` and `sync` do not reach a FUSE server: who wants something durable here syncs it.

mod crash;
mod image;
mod serve;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fuser::{BackgroundSession, Config, MountOption};

pub use crash::{Unsynced, after_crash};
pub use image::{Image, Logged, Operation};

use serve::Server;

/// What is mounted: how it looks, and how it came to that.
#[derive(Debug, Default)]
struct State {
    image: Image,
    log: Vec<Logged>,
    /// The last inode that was ever given away, in any image.
    last: u64,
}

impl State {
    fn act(&mut self, operation: Operation) {
        let logged = Logged { operation, time: SystemTime::now() };
        self.image.apply(&logged);
        self.log.push(logged);
    }

    fn next_ino(&mut self) -> u64 {
        self.last = self.last.max(self.image.highest()) + 1;
        self.last
    }
}

/// The mount, for as long as this lives.
#[derive(Debug)]
pub struct Lossy {
    state: Arc<Mutex<State>>,
    at: PathBuf,
    _session: BackgroundSession,
}

impl Lossy {
    /// Mounts an empty one at a directory.
    pub fn mount(at: &Path) -> std::io::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("chronicle-lossy".to_owned())];
        let session = fuser::spawn_mount(Server(Arc::clone(&state)), at, &config)?;
        Ok(Self { state, at: at.to_owned(), _session: session })
    }

    /// How many operations there were.
    pub fn now(&self) -> usize {
        self.state().log.len()
    }

    /// How it looks now.
    pub fn image(&self) -> Image {
        self.flush();
        self.state().image.clone()
    }

    /// The operations so far.
    pub fn log(&self) -> Vec<Logged> {
        self.state().log.clone()
    }

    /// Shows another image from now on, with an empty log.
    ///
    /// Nobody may have anything open.
    pub fn load(&self, image: Image) {
        self.flush();
        let mut state = self.state();
        state.last = state.last.max(state.image.highest());
        state.image = image;
        state.log.clear();
    }

    /// Has the kernel hand over what was written through mappings.
    fn flush(&self) {
        let directory = std::fs::File::open(&self.at).expect("the mount can be opened");
        rustix::fs::syncfs(directory).expect("the mount can be flushed");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
