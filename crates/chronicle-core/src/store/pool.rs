//! A directory in which several homes and users of one machine keep copies of what they fetched.
//!
//! Nobody in it is trusted: every read is checked by its hash, no link is followed, nothing that is there is
//! ever written to, and whatever is damaged, gone or in the way is only a copy less. Files are raw content
//! under its hash; only content with that kind of name can be here, so secrets never are.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

use super::verified::{Checked, Hashing};
use super::{ContentStorage, LARGE_OBJECT, corrupt, files, verify};
use crate::clock::{Clock, SystemClock};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::id::{ObjectId, from_hex, random_bytes};

/// The file by which a directory says that it is a pool.
const MARK: &str = "chronicle-pool";
const MARK_TEXT: &[u8] = b"chronicle pool 1\n";

/// How names begin under which files are written.
const UNFINISHED: &str = "tmp-";
const SECOND: i64 = 1_000_000_000;
/// An unfinished file that nobody wrote to for so long was left by a process that died.
const LEFT: i64 = 3600 * SECOND;

/// On average a pool gets longer than its bound by a part in so many before somebody counts.
const SLACK: u64 = 64;
/// How long somebody else's eviction is waited for; it is only work saved, so that nobody can hold it up.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pool: a store of copies, to be put before another with [`super::Cached`].
///
/// The directory must belong to root or to the user himself, and let nobody in but its owner and its group;
/// with a group it must hand that on to its files (`chmod 2770`). Whoever is in the group can read what is
/// here, and is told nothing that he could not read.
#[derive(Debug, Clone)]
pub struct PooledCache {
    path: PathBuf,
    limit: u64,
}

impl PooledCache {
    /// The pool in this directory, which keeps about so many bytes; it is looked at when it is used.
    pub fn at(path: &Path, bytes: u64) -> Self {
        Self { path: path.to_owned(), limit: bytes.max(1) }
    }

    /// Makes an empty directory a pool, for this user alone where it is not there; refuses an unsafe one.
    pub fn prepare(&self) -> Result<()> {
        files::make_directory(&self.path)?;
        let directory = self.open_directory()?;
        match self.check_mark(&directory) {
            Ok(()) => return Ok(()),
            Err(_) if self.is_empty(&directory)? => {}
            Err(error) => return Err(error),
        }
        let mut unfinished = Unfinished::create(self, &directory)?;
        unfinished.file.write_all(MARK_TEXT).at("write", &self.path)?;
        unfinished.publish(MARK)?;
        self.check_mark(&directory)
    }

    /// Refuses a directory that is not a safe pool.
    pub fn check(&self) -> Result<()> {
        self.directory().map(|_| ())
    }

    fn unsafe_because(&self, why: &'static str) -> Error {
        Error::Pool { path: self.path.clone(), why }
    }

    fn directory(&self) -> Result<Directory> {
        let directory = self.open_directory()?;
        self.check_mark(&directory)?;
        Ok(directory)
    }

    /// Opened and judged anew each time, since whoever owns it may change it.
    fn open_directory(&self) -> Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(self.unsafe_because("it is not a directory, or a symbolic link"));
            }
            opened => opened.at("open", &self.path)?,
        };
        let stat = rustix::fs::fstat(&fd).at("examine", &self.path)?;
        if let Some(why) = unsafe_because(&stat, rustix::process::geteuid().as_raw()) {
            return Err(self.unsafe_because(why));
        }
        Ok(Directory { fd, mode: 0o600 | stat.st_mode & 0o040 })
    }

    fn check_mark(&self, directory: &Directory) -> Result<()> {
        let mut text = Vec::new();
        let read = directory.open(MARK).and_then(|(file, _)| file.take(64).read_to_end(&mut text));
        match read {
            Ok(_) if text == MARK_TEXT => Ok(()),
            Ok(_) => Err(self.unsafe_because("its mark is not one of a pool")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(self.unsafe_because("it is not empty, and not a pool"))
            }
            Err(error) => Err(error).at("read", self.path.join(MARK)),
        }
    }

    fn is_empty(&self, directory: &Directory) -> Result<bool> {
        Ok(self.list(directory)?.iter().all(|name| name.starts_with(UNFINISHED)))
    }

    fn list(&self, directory: &Directory) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory.fd).at("list", &self.path)? {
            let entry = entry.at("list", &self.path)?;
            let name = entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | ".."));
            names.extend(name.map(str::to_owned));
        }
        Ok(names)
    }

    /// An object's file and its length, without a word about its bytes.
    fn open(&self, id: &ObjectId) -> Result<(File, u64)> {
        match self.directory()?.open(&id.hex()) {
            // Somebody with another bound may have left it: it is not one of those kept here.
            Ok((_, length)) if length > self.limit => Err(Error::Missing(*id)),
            Ok(opened) => Ok(opened),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => Err(Error::Missing(*id)),
                io::ErrorKind::InvalidData => Err(corrupt(id, error.to_string())),
                _ => Err(error).at("open", self.path.join(id.hex())),
            },
        }
    }

    fn too_long(&self) -> Error {
        let source = io::ErrorKind::FileTooLarge.into();
        Error::Io { action: "write", path: self.path.clone(), source }
    }

    /// Counts now and then, so that counting costs little and no count has to be believed.
    fn make_room(&self, length: u64) {
        let draw = u64::from_le_bytes(random_bytes()) % self.limit;
        if draw < length.max(4096).saturating_mul(SLACK) {
            // A pool that is too long for a while is no reason to fail.
            let _ = self.evict();
        }
    }

    /// Takes the oldest copies away until the pool is clearly below its bound.
    pub fn evict(&self) -> Result<()> {
        let directory = self.directory()?;
        wait_for_turn(&directory.fd);
        let mut copies = Vec::new();
        for name in self.list(&directory)? {
            copies.extend(directory.copy(name));
        }
        // One that alone is too long must not push out all the others.
        let too_long = |copy: &&mut Copy| copy.bytes > self.limit;
        copies.iter_mut().filter(too_long).for_each(|copy| copy.age = u64::MAX);
        let mut total: u64 = copies.iter().map(|copy| copy.bytes).sum();
        if total <= self.limit && copies.iter().all(|copy| copy.age < u64::MAX) {
            return Ok(());
        }
        let enough = self.limit - self.limit / 8;
        copies.sort_by(|a, b| b.age.cmp(&a.age).then_with(|| a.name.cmp(&b.name)));
        for copy in copies {
            if total <= enough && copy.age < u64::MAX {
                break;
            }
            failpoint::hit("pool_in_eviction");
            // What somebody else took away meanwhile, or keeps from going, is not waited for.
            if directory.remove(&copy.name).is_ok() {
                total = total.saturating_sub(copy.bytes);
            }
        }
        Ok(())
    }
}

/// Why a directory must not be a pool for this user.
fn unsafe_because(stat: &Stat, user: u32) -> Option<&'static str> {
    let mode: RawMode = stat.st_mode;
    if stat.st_uid != 0 && stat.st_uid != user {
        return Some("it belongs to another user, who could let others in");
    }
    if mode & 0o007 != 0 {
        return Some("it lets others in than its owner and its group (chmod o=)");
    }
    if mode & 0o070 != 0 && mode & 0o2000 == 0 {
        return Some("its files would not belong to its group (chmod g+s)");
    }
    if mode & 0o1000 != 0 {
        return Some("what one user forgets could not be taken away (chmod -t)");
    }
    None
}

/// Waits until nobody else evicts, but not for long: two who evict the same are no harm.
fn wait_for_turn(directory: &OwnedFd) {
    let deadline = Instant::now() + PATIENCE;
    while rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive).is_err()
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The directory while something is done in it.
struct Directory {
    fd: OwnedFd,
    /// What its files are to allow.
    mode: RawMode,
}

/// What eviction has to know of a file.
struct Copy {
    name: String,
    bytes: u64,
    /// In nanoseconds; the most there is for what should not be there at all.
    age: u64,
}

impl Directory {
    /// A plain file here and its length; anything else under that name is `InvalidData`.
    fn open(&self, name: &str) -> io::Result<(File, u64)> {
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "it is not a plain file");
        // A pipe that somebody put here must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name, flags | OFlags::NOCTTY, Mode::empty()) {
            Err(Errno::LOOP | Errno::NXIO) => return Err(odd()),
            opened => File::from(opened?),
        };
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file, u64::try_from(stat.st_size).unwrap_or(0))),
            _ => Err(odd()),
        }
    }

    /// Takes a file away, which need not be there; a directory of that name is no copy.
    fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// A file of ours by its name, as eviction sees it.
    fn copy(&self, name: String) -> Option<Copy> {
        let object = from_hex::<32>(&name).is_some();
        if !object && !name.starts_with(UNFINISHED) {
            return None;
        }
        let stat = rustix::fs::statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let modified =
            stat.st_mtime.saturating_mul(SECOND).saturating_add(stat.st_mtime_nsec as i64);
        let age = SystemClock.now().0.saturating_sub(modified);
        let age = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return None,
            // What comes from the future would never be old.
            FileType::RegularFile if age < -LEFT || (!object && age > LEFT) => u64::MAX,
            FileType::RegularFile => age.max(0).cast_unsigned(),
            _ => u64::MAX,
        };
        let taken = (stat.st_blocks as u64).saturating_mul(512);
        Some(Copy { name, bytes: taken.max(u64::try_from(stat.st_size).unwrap_or(0)), age })
    }
}

/// A file that is being written, and is gone again unless it gets its name.
struct Unfinished<'d> {
    directory: &'d Directory,
    path: PathBuf,
    name: String,
    file: File,
}

impl<'d> Unfinished<'d> {
    fn create(pool: &PooledCache, directory: &'d Directory) -> Result<Self> {
        let name = format!("{UNFINISHED}{}", files::random_name());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(directory.fd.as_fd(), &name, flags, Mode::from_raw_mode(0o600));
        let file = File::from(file.at("create", pool.path.join(&name))?);
        Ok(Self { directory, path: pool.path.join(&name), name, file })
    }

    /// Whoever may read it reads it from now on; it replaces what had the name.
    fn publish(self, name: &str) -> Result<()> {
        let fd = &self.directory.fd;
        let mode = Mode::from_raw_mode(self.directory.mode);
        rustix::fs::fchmod(&self.file, mode).at("change", &self.path)?;
        failpoint::hit("pool_before_rename");
        rustix::fs::renameat(fd, &self.name, fd, name).at("rename", &self.path)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // After the rename there is nothing of that name; a leftover goes with a later eviction.
        let _ = self.directory.remove(&self.name);
    }
}

impl ContentStorage for PooledCache {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let (mut file, length) = self.open(id)?;
        if length > LARGE_OBJECT as u64 {
            // Nobody can make us take memory for what is not the object.
            let mut checked = Checked::new(*id, &file);
            let read = io::copy(&mut checked, &mut io::sink());
            read.map_err(|error| corrupt(id, error.to_string()))?;
            file.rewind().at("read", self.path.join(id.hex()))?;
        }
        let mut bytes = Vec::new();
        let read = file.take(length.saturating_add(1)).read_to_end(&mut bytes);
        read.at("read", self.path.join(id.hex()))?;
        verify(id, &bytes)?;
        Ok(bytes)
    }

    /// It need not survive anything: it is a copy.
    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        verify(id, bytes)?;
        let found = self.put_stream(&mut &*bytes)?;
        debug_assert_eq!(found.0, *id);
        Ok(())
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        match self.open(id) {
            Err(Error::Missing(_) | Error::Corrupt { .. }) => Ok(false),
            opened => opened.map(|_| true),
        }
    }

    /// Whether or not there is a mark, so that nobody keeps another from forgetting by taking that away.
    fn delete(&self, id: &ObjectId) -> Result<()> {
        match self.open_directory() {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened?.remove(&id.hex()).at("remove", self.path.join(id.hex())),
        }
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        let (file, length) = self.open(id)?;
        Ok(Box::new(Checked::new(*id, file.take(length))))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let directory = self.directory()?;
        let mut unfinished = Unfinished::create(self, &directory)?;
        let mut hashing = Hashing::new(source);
        let mut piece = vec![0; 256 << 10];
        loop {
            let count = match hashing.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.at("take in", super::SOURCE)?,
            };
            if count == 0 {
                break;
            }
            if hashing.so_far_length() > self.limit {
                return Err(self.too_long());
            }
            unfinished.file.write_all(&piece[..count]).at("write", &self.path)?;
        }
        let (id, length) = hashing.so_far();
        unfinished.publish(&id.hex())?;
        self.make_room(length);
        Ok((id, length))
    }
}
