//! The file operations that the store's promises rest on: temporary files that die with their
//! process, durable renames, and kernel locks.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::id::{Time, random_bytes, to_hex};

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A new file that is removed again unless it is kept.
///
/// It is locked for as long as it is open: one that can be locked belongs to a process that died.
pub(super) struct Temporary {
    path: PathBuf,
    file: Arc<File>,
    kept: bool,
}

impl Temporary {
    pub(super) fn create(directory: &Path) -> Result<Self> {
        loop {
            let name = format!("{}-{}", std::process::id(), random_name());
            let path = directory.join(name);
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(&path, flags, FILE_MODE).at("create", &path)?);
            let temporary = Self { path, file: Arc::new(file), kept: false };
            if temporary.lock()? {
                return Ok(temporary);
            }
        }
    }

    /// Whether the lock was had before somebody took the new file for a leftover.
    fn lock(&self) -> Result<bool> {
        if !try_lock(&self.file).at("lock", &self.path)? {
            return Ok(false);
        }
        let stat = rustix::fs::fstat(&self.file).at("examine", &self.path)?;
        Ok(stat.st_nlink > 0)
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the bytes durable; the name is not yet.
    pub(super) fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file).at("sync", &self.path)
    }

    /// Gives it its final name; it is still removed unless it is kept.
    pub(super) fn rename(&mut self, to: PathBuf) -> Result<()> {
        rustix::fs::rename(&self.path, &to).at("rename to", &to)?;
        self.path = to;
        Ok(())
    }

    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody is left to hear of a failure; the next writer finds the leftover.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// A name that no other file has.
pub(super) fn random_name() -> String {
    to_hex(&random_bytes::<12>())
}

/// Takes the exclusive lock if nobody holds any.
fn try_lock(file: &File) -> Result<bool, Errno> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A kernel lock, held until the last clone is dropped or the process ends.
#[derive(Clone)]
pub(crate) struct Lock {
    _file: Arc<File>,
}

impl Lock {
    /// Waits until nobody holds it exclusively.
    pub(super) fn shared(path: &Path) -> Result<Self> {
        Self::wait(path, FlockOperation::LockShared)
    }

    /// Waits until nobody holds it.
    pub(super) fn exclusive(path: &Path) -> Result<Self> {
        Self::wait(path, FlockOperation::LockExclusive)
    }

    /// Waits until nobody holds it, but no longer than that.
    pub(super) fn exclusive_within(path: &Path, patience: Duration) -> Result<Self> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, FILE_MODE).at("open", path)?);
        let deadline = Instant::now() + patience;
        while !try_lock(&file).at("lock", path)? {
            if Instant::now() >= deadline {
                return Err(Error::Busy("content is being taken in".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Self { _file: Arc::new(file) })
    }

    fn wait(path: &Path, operation: FlockOperation) -> Result<Self> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, FILE_MODE).at("open", path)?);
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)).at("lock", path)?;
        Ok(Self { _file: Arc::new(file) })
    }
}

/// Opens a file for reading; `None` if there is none.
pub(super) fn open(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    found(rustix::fs::open(path, flags, Mode::empty()))
        .map(|fd| fd.map(File::from))
        .at("open", path)
}

/// Whether there is anything of this name.
pub(super) fn is_there(path: &Path) -> Result<bool> {
    found(rustix::fs::lstat(path)).map(|stat| stat.is_some()).at("examine", path)
}

/// When a directory last changed; `None` if there is none.
pub(super) fn changed_at(path: &Path) -> Result<Option<Time>> {
    let stat = found(rustix::fs::stat(path)).at("examine", path)?;
    Ok(stat.map(|stat| Time(stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec as i64)))
}

/// Removes a file, which need not be there.
pub(super) fn remove(path: &Path) -> Result<()> {
    found(rustix::fs::unlink(path)).map(|_| ()).at("remove", path)
}

fn found<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a directory for its owner alone; says whether it was not there before.
pub(super) fn make_directory(path: &Path) -> Result<bool> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error).at("create", path),
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).at("open", path)?;
    rustix::fs::fsync(directory).at("sync", path)
}

/// The names in a directory, without order; none if it is not there.
pub(super) fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at("list", path)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // The store makes only plain names: others are no business of ours.
        names.extend(entry.at("list", path)?.file_name().into_string().ok());
    }
    Ok(names)
}

/// Removes what killed processes left in the directory of temporary files.
pub(super) fn discard_leftovers(directory: &Path) -> Result<()> {
    for name in names(directory)? {
        let path = directory.join(name);
        if let Some(_lock) = abandoned(&path)? {
            remove(&path)?;
        }
    }
    Ok(())
}

/// The file, locked, if no living process writes it; to be held until it is removed.
pub(super) fn abandoned(path: &Path) -> Result<Option<File>> {
    match open(path)? {
        Some(file) => Ok(try_lock(&file).at("lock", path)?.then_some(file)),
        None => Ok(None),
    }
}
