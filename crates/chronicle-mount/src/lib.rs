//! A FUSE filesystem over a real directory.
//!
//! The files stay ordinary files in an ordinary directory, and every operation goes through to it. Before and after
//! each one that changes something, [`Versions`] is asked and told; [`Magic`] shows a read-only tree of its own
//! below one name in the root.

mod attach;
mod attributes;
mod check;
mod crew;
mod directories;
mod errno;
mod error;
mod handles;
mod identity;
mod locks;
mod magic;
mod mounted;
mod name;
mod nodes;
mod outbox;
mod outside;
mod past;
mod recorder;
mod serve;
mod slab;
mod table;
mod versions;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use fuser::{Config, Session, SessionACL};
use rustix::fs::{Mode, OFlags};

pub use error::MountError;
pub use fuser::Errno;
pub use magic::{Magic, MagicEntry, MagicFile, MagicKind, NoMagic};
pub use mounted::{Abilities, Mounted, Noticing, Unmounted};
pub use past::Past;
pub use recorder::Recorder;
pub use versions::{Caller, Fill, NoVersions, Operation, Versions};

use mounted::Wants;
use nodes::{FileId, Nodes, ROOT};
use outside::Watch;
use serve::{Core, Kernel};

/// What is mounted where, and how.
#[derive(Clone)]
pub struct Settings {
    /// The directory whose files are shown.
    pub backing: PathBuf,
    /// The place where they are shown; may be the same.
    pub at: PathBuf,
    /// Whether other users may use it; permissions are checked either way.
    pub allow_other: bool,
    /// Whether nothing may be changed through it.
    pub read_only: bool,
    /// The name in the root below which the magic tree hangs; empty for none.
    pub magic_name: OsString,
    /// How many requests are served at once at most; one as a rule, since nearly all wait for one another.
    pub threads: usize,
    /// Whether the kernel shall read and write backing files itself, where it can.
    pub passthrough: bool,
    /// Whether written data may stay in the kernel for a while, where there is no passthrough. The kernel then believes
    /// its own sizes and times, so changes from outside to a file that it knows are not seen.
    pub writeback: bool,
    /// Whether changes from outside are listened for. Without it what was seen is believed for a second.
    pub watch: bool,
    /// Who brings content that is not on disk yet.
    pub fill: Option<Arc<dyn Fill>>,
}

impl Settings {
    /// The usual ones.
    pub fn new(backing: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        Self {
            backing: backing.into(),
            at: at.into(),
            allow_other: false,
            read_only: false,
            magic_name: ".chronicle".into(),
            threads: std::thread::available_parallelism()
                .map_or(8, |count| count.get().clamp(8, 32)),
            passthrough: true,
            writeback: false,
            watch: true,
            fill: None,
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("backing", &self.backing)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Mounts, and serves on threads of its own until it is unmounted.
pub fn mount(
    settings: &Settings,
    versions: Arc<dyn Versions>,
    magic: Arc<dyn Magic>,
) -> Result<Mounted, MountError> {
    let places = check::check(&settings.backing, &settings.at)?;
    let backing_error = |source: rustix::io::Errno| MountError::Backing {
        path: places.backing.clone(),
        source: source.into(),
    };
    // Before mounting: the mount may hide the very path of the directory.
    let root = open_root(&places.backing).map_err(backing_error)?;
    let stat = rustix::fs::fstat(&root).map_err(backing_error)?;
    let file = FileId::from(&stat);
    let watch = settings.watch.then(|| watch_root(&root, file)).flatten();
    let (outbox, notices) = outbox::Outbox::new();
    let core = Arc::new(Core {
        nodes: Mutex::new(Nodes::new(file)),
        root: Arc::new(root),
        directories: directories::Directories::new(),
        handles: handles::Handles::default(),
        locks: locks::Locks::new(),
        versions,
        fill: settings.fill.clone(),
        magic,
        magic_name: settings.magic_name.as_bytes().to_vec(),
        magic_nodes: Default::default(),
        outbox,
        watch,
        watch_is_incomplete: AtomicBool::new(false),
        passthrough: AtomicBool::new(false),
    });
    let connection = attach_at(&places.at, settings)?;
    let agreed = Arc::new(OnceLock::new());
    let serve_error = |source| MountError::Serve { at: places.at.clone(), source };
    let session = serve(settings, Arc::clone(&core), connection, Arc::clone(&agreed), notices)
        .inspect_err(|_| {
            let _ = attach::clear(&places.at, true);
        })
        .map_err(serve_error)?;
    let device = attach::mounted_device(&places.at).unwrap_or(0);
    Ok(Mounted { at: places.at, device, core, agreed, session: Some(session) })
}

/// Takes away what is mounted at a place; lazily also if somebody uses it.
pub fn detach(at: &Path, lazily: bool) -> io::Result<()> {
    attach::clear(at, lazily)
}

fn open_root(backing: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(backing, flags, Mode::empty())
}

fn watch_root(root: &OwnedFd, file: FileId) -> Option<Watch> {
    let watch = Watch::new().ok()?;
    watch.add(root.as_fd(), ROOT, file.device).ok()?;
    Some(watch)
}

fn attach_at(at: &Path, settings: &Settings) -> Result<OwnedFd, MountError> {
    let options =
        attach::Options { allow_other: settings.allow_other, read_only: settings.read_only };
    attach::attach(at, options).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) if !Path::new("/dev/fuse").exists() => {
            MountError::NoFuse { source }
        }
        Some(libc::ENODEV | libc::ENXIO) => MountError::NoFuse { source },
        _ => MountError::Refused { at: at.to_owned(), source },
    })
}

fn serve(
    settings: &Settings,
    core: Arc<Core>,
    connection: OwnedFd,
    agreed: Arc<OnceLock<mounted::Agreed>>,
    notices: std::sync::mpsc::Receiver<outbox::Notice>,
) -> io::Result<std::thread::JoinHandle<io::Result<()>>> {
    let wants = Wants {
        passthrough: settings.passthrough && may_pass_through(),
        writeback: settings.writeback,
        depth: stacking_depth(&core.root),
    };
    let threads = settings.threads.max(1);
    let crew = crew::Crew::new(threads, connection.try_clone().ok());
    let kernel = Kernel { core: Arc::clone(&core), wants, agreed, crew };
    let mut config = Config::default();
    config.n_threads = Some(threads);
    // Others than root may not open the device again.
    config.clone_fd = rustix::fs::access("/dev/fuse", rustix::fs::Access::WRITE_OK).is_ok();
    // The kernel has let nobody in who may not; what it does itself comes as root.
    let session = Session::from_fd(kernel, connection, SessionACL::All, config)?;
    let notifier = session.notifier();
    let spawn = |name: &str| std::thread::Builder::new().name(format!("mount-{name}"));
    spawn("tell").spawn(move || outbox::deliver(&notices, &notifier))?;
    let over = Arc::new(AtomicBool::new(false));
    let (listening, is_over) = (Arc::clone(&core), Arc::clone(&over));
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    spawn("listen").spawn(move || outside::listen(&listening, || is_over.load(relaxed)))?;
    spawn("serve").spawn(move || {
        let ended = session.run();
        over.store(true, relaxed);
        if let Some(watch) = &core.watch {
            outside::wake(watch);
        }
        ended
    })
}

fn may_pass_through() -> bool {
    let needed = rustix::thread::CapabilitySet::SYS_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|all| all.effective.contains(needed))
}

/// A backing file system that itself lies on another takes one more level.
fn stacking_depth(root: &OwnedFd) -> u32 {
    const OVERLAY: u64 = 0x794c_7630;
    const FUSE: u64 = 0x6573_5546;
    match rustix::fs::fstatfs(root) {
        Ok(found) if [OVERLAY, FUSE].contains(&(found.f_type as u64)) => 2,
        _ => 1,
    }
}
