//! The doors to the real file system: every access begins at a root's handle.
//!
//! The kernel resolves each path beneath that handle and through no symbolic link, so nothing that
//! stands in a workspace can lead outside it. This half only reads; `apply` holds the writers.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::known::{Identity, Signature};
use crate::path::WorkspacePath;
use crate::placeholder::Placeholder;

/// Names of Chronicle's own staging, which no look ever sees.
pub const STAGING_PREFIX: &[u8] = b".chronicle-staging-";

const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Without `NOFOLLOW`: with it, a link in a directory's place would look like a plain file.
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Without blocking, because a fifo may have taken the place of the file.
const READ_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// How often something may be moved out of a root while it is being opened.
const ESCAPES: u32 = 64;
/// The kernel's limit for one attribute and for the list of their names.
const XATTR_MAX: usize = 65_536;

/// What `lstat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The part that is remembered and compared.
    pub signature: Signature,
    /// How many names the inode has.
    pub nlink: u64,
    /// How many blocks of 512 bytes it takes.
    pub blocks: u64,
    /// The device it lies on.
    pub dev: u64,
}

impl Stat {
    /// The kind of thing.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.signature.mode)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// Whether both are the same inode, whatever happened to it in between.
    pub fn same_inode(&self, other: &Self) -> bool {
        (self.dev, self.signature.ino) == (other.dev, other.signature.ino)
    }
}

impl From<rustix::fs::Stat> for Stat {
    #[expect(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    #[expect(trivial_numeric_casts, reason = "the types differ between architectures")]
    fn from(stat: rustix::fs::Stat) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        let signature = Signature {
            size: stat.st_size as u64,
            mtime_ns: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime_ns: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            ino: stat.st_ino as u64,
            mode: stat.st_mode as u32,
            uid: stat.st_uid as u32,
            gid: stat.st_gid as u32,
        };
        let (nlink, blocks) = (stat.st_nlink as u64, stat.st_blocks as u64);
        Self { signature, nlink, blocks, dev: stat.st_dev as u64 }
    }
}

/// A directory of the workspace's file system, owned or a root's own.
#[derive(Debug)]
pub enum Directory<'a> {
    /// The handle of a root.
    Root(BorrowedFd<'a>),
    /// One opened for this purpose.
    Opened(OwnedFd),
}

impl AsFd for Directory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(directory) => *directory,
            Self::Opened(directory) => directory.as_fd(),
        }
    }
}

/// The workspace's directory, or a directory or single file outside it that is protected too.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    prefix: WorkspacePath,
    place: Place,
    /// Looked at and taken back only when somebody names it.
    named_only: bool,
}

/// Where a root's paths begin.
#[derive(Debug)]
enum Place {
    /// The root is a directory; paths begin in it.
    Inside(OwnedFd),
    /// The root is a single entry, or nothing stands there; paths begin in its parent.
    Beside(OwnedFd),
    /// Not even the parent is there.
    Nowhere,
}

impl Root {
    /// Opens the directory of a workspace.
    pub fn open(path: &Path) -> Result<Self> {
        let directory = rustix::fs::open(path, READ_DIRECTORY, Mode::empty()).at("open", path)?;
        let (path, place) = (path.to_path_buf(), Place::Inside(directory));
        Ok(Self { path, prefix: WorkspacePath::root(), place, named_only: false })
    }

    /// Opens a further root by its absolute path, be it a directory, a single file or missing.
    pub fn open_further(path: &Path) -> Result<Self> {
        let prefix = WorkspacePath::new(path.as_os_str().as_bytes())?;
        if !prefix.is_outside() {
            return Err(Error::Usage(format!("A further root needs an absolute path: {prefix}")));
        }
        let place = further_place(&prefix)?;
        Ok(Self { path: path.to_path_buf(), prefix, place, named_only: false })
    }

    /// Opens a single file that is protected only where somebody names it.
    pub fn open_named(path: &Path) -> Result<Self> {
        Ok(Self { named_only: true, ..Self::open_further(path)? })
    }

    /// Whether it counts only where somebody names it.
    pub fn is_named_only(&self) -> bool {
        self.named_only
    }

    /// The root's path in the real file system.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The root's path as the log names it: empty for the workspace, absolute for others.
    pub fn prefix(&self) -> &WorkspacePath {
        &self.prefix
    }

    /// Whether the root is a directory, so that there can be something below it.
    pub fn is_directory(&self) -> bool {
        matches!(self.place, Place::Inside(_))
    }

    /// Which directory this really is.
    pub fn identity(&self) -> Result<Identity> {
        identity(self.handle()?).at("identify", &self.path)
    }

    /// The directory in which this root's paths begin.
    pub fn handle(&self) -> Result<BorrowedFd<'_>> {
        match &self.place {
            Place::Inside(directory) | Place::Beside(directory) => Ok(directory.as_fd()),
            Place::Nowhere => Err(Error::RootReplaced(self.path.clone())),
        }
    }

    /// The directory in which this root's paths begin: the root, or, of a single file, its parent.
    pub fn beginning(&self) -> Option<WorkspacePath> {
        if self.is_directory() { Some(self.prefix().clone()) } else { self.prefix().parent() }
    }

    /// What to resolve beneath the handle for a path under this root; `.` for the root itself.
    pub fn below<'p>(&self, path: &'p WorkspacePath) -> &'p [u8] {
        let bytes = path.as_bytes();
        let skipped = match self.place {
            _ if self.prefix.is_root() => 0,
            Place::Inside(_) => (self.prefix.as_bytes().len() + 1).min(bytes.len()),
            _ => self.prefix.as_bytes().len() - self.prefix.name().len(),
        };
        if bytes.len() == skipped { b"." } else { &bytes[skipped..] }
    }
}

/// Finds a further root from the top of the file system, so that no symbolic link takes part.
fn further_place(prefix: &WorkspacePath) -> Result<Place> {
    let top = rustix::fs::open("/", PLACE, Mode::empty()).at("open", "/")?;
    let below = &prefix.as_bytes()[1..];
    match open_beneath(&top, below, READ_DIRECTORY) {
        Ok(directory) => return Ok(Place::Inside(directory)),
        // The link may be the root itself, which then is a single entry.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
        Err(error) => return Err(failure(error, "open", prefix, prefix.as_path())),
    }
    let parent = below.strip_suffix(prefix.name()).unwrap_or(below);
    let parent = parent.strip_suffix(b"/").unwrap_or(b".");
    match open_beneath(&top, parent, READ_DIRECTORY) {
        Ok(directory) => Ok(Place::Beside(directory)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Place::Nowhere),
        Err(error) => Err(failure(error, "open", prefix, prefix.as_path())),
    }
}

/// All roots of a workspace; the only way from a `WorkspacePath` to the real file system.
#[derive(Debug)]
pub struct Roots {
    workspace: Root,
    further: Vec<Root>,
    /// Links here may stand for files whose content is at the host.
    lazy: AtomicBool,
}

impl Roots {
    /// Joins the workspace's root and further ones.
    pub fn new(workspace: Root, further: Vec<Root>) -> Self {
        assert!(workspace.prefix.is_root(), "BUG: {} is not a workspace", workspace.prefix);
        Self { workspace, further, lazy: AtomicBool::new(false) }
    }

    /// Says whether links may be placeholders of a lazy replica.
    pub(crate) fn set_lazy(&self, lazy: bool) {
        self.lazy.store(lazy, Ordering::Relaxed);
    }

    /// The file that a link in a lazy replica stands for.
    pub(crate) fn placeholder(&self, target: &[u8]) -> Option<Placeholder> {
        self.lazy.load(Ordering::Relaxed).then(|| Placeholder::parse(target)).flatten()
    }

    /// Opens the workspace's root and further ones.
    pub fn open(workspace: &Path, further: &[PathBuf], named: &[PathBuf]) -> Result<Self> {
        let further = further.iter().map(|path| Root::open_further(path));
        let named = named.iter().map(|path| Root::open_named(path));
        let all = further.chain(named).collect::<Result<_>>()?;
        Ok(Self::new(Root::open(workspace)?, all))
    }

    /// The workspace's own root.
    pub fn workspace(&self) -> &Root {
        &self.workspace
    }

    /// Every root, the workspace's first.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        std::iter::once(&self.workspace).chain(&self.further)
    }

    /// The root that a path lies under.
    pub fn root_of(&self, path: &WorkspacePath) -> Result<&Root> {
        self.iter()
            .find(|root| path.is_within(&root.prefix))
            .ok_or_else(|| Error::OutsideRoots(path.as_path().to_path_buf()))
    }

    /// The path in the real file system, for messages.
    pub fn real(&self, path: &WorkspacePath) -> PathBuf {
        path.under(&self.workspace.path)
    }

    /// The directory that holds an entry, and the entry's name in it; a root's own name is `.`.
    ///
    /// `None` is proof that there is no such directory.
    pub fn parent<'r, 'p>(
        &'r self,
        path: &'p WorkspacePath,
    ) -> Result<Option<(Directory<'r>, &'p [u8])>> {
        let root = self.root_of(path)?;
        let (handle, below) = (root.handle()?, root.below(path));
        let Some(end) = below.iter().rposition(|byte| *byte == b'/') else {
            return Ok(Some((Directory::Root(handle), below)));
        };
        match open_beneath(handle, &below[..end], PLACE) {
            Ok(directory) => Ok(Some((Directory::Opened(directory), &below[end + 1..]))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(self.failure(error, "open the directory of", path)),
        }
    }

    /// What stands at a path, not following it; `None` is proof that nothing does.
    pub fn lstat(&self, path: &WorkspacePath) -> Result<Option<Stat>> {
        let Some((directory, name)) = self.parent(path)? else { return Ok(None) };
        lstat_at(&directory, name).map_err(|error| self.failure(error, "look at", path))
    }

    /// Opens a directory for listing it.
    pub fn open_directory(&self, path: &WorkspacePath) -> Result<OwnedFd> {
        self.open_path(path, READ_DIRECTORY)
    }

    /// Opens a file for reading; the caller checks that it is one.
    pub fn open_file(&self, path: &WorkspacePath) -> Result<File> {
        Ok(File::from(self.open_path(path, READ_FILE)?))
    }

    fn open_path(&self, path: &WorkspacePath, flags: OFlags) -> Result<OwnedFd> {
        let root = self.root_of(path)?;
        open_beneath(root.handle()?, root.below(path), flags)
            .map_err(|error| self.failure(error, "open", path))
    }

    /// When the inode at a path was born, where something stands and the file system tells.
    pub fn born_ns(&self, path: &WorkspacePath) -> Result<Option<i64>> {
        let Some((directory, name)) = self.parent(path)? else { return Ok(None) };
        match born_at(directory.as_fd(), name) {
            Ok(born) => Ok(born),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failure(error, "look at", path)),
        }
    }

    /// Whether a path is a root's own directory, which has no parent here.
    pub fn is_top(&self, path: &WorkspacePath) -> bool {
        self.iter().any(|root| root.is_directory() && root.prefix() == path)
    }

    /// The handle of a directory in which a root's paths begin.
    pub fn beginning(&self, path: &WorkspacePath) -> Option<BorrowedFd<'_>> {
        let root = self.iter().find(|root| root.beginning().as_ref() == Some(path))?;
        root.handle().ok()
    }

    /// The names in a directory, in no order.
    pub fn list(&self, path: &WorkspacePath) -> Result<Vec<Vec<u8>>> {
        let directory = self.open_directory(path)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).at("list", self.real(path))? {
            let entry = entry.at("list", self.real(path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, path: &WorkspacePath) -> Result<Vec<u8>> {
        let parent = self.open_directory(&path.parent().unwrap_or_default())?;
        read_link_at(&parent, path.name()).at("read", self.real(path))
    }

    /// Names the path that an access failed on; a link on the way is an error of its own.
    pub fn failure(&self, error: Errno, action: &'static str, path: &WorkspacePath) -> Error {
        failure(error, action, path, &self.real(path))
    }
}

fn failure(error: Errno, action: &'static str, path: &WorkspacePath, real: &Path) -> Error {
    if error == Errno::LOOP {
        return Error::ThroughSymlink(path.clone());
    }
    match Err::<(), _>(error).at(action, real) {
        Err(error) => error,
        Ok(()) => unreachable!("BUG: an error became none"),
    }
}

/// Opens what lies beneath a directory, through no symbolic link.
pub fn open_beneath(
    directory: impl AsFd,
    below: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut escapes = 0;
    loop {
        match rustix::fs::openat2(&directory, below, flags, Mode::empty(), INSIDE) {
            Err(Errno::INTR) => {}
            // It was moved out of the root while the kernel was on its way there. What stands in its
            // place is to be had with the next try, unless somebody does that all the time.
            Err(Errno::XDEV) if escapes < ESCAPES => escapes += 1,
            // A rename elsewhere got in the kernel's way. A file that is opened without blocking
            // says the same of a lease, and that may last.
            Err(Errno::AGAIN) if !flags.contains(OFlags::NONBLOCK) => {}
            other => return other,
        }
    }
}

/// Opens a directory beneath another for listing it.
pub fn open_directory_at(
    directory: impl AsFd,
    below: impl rustix::path::Arg + Copy,
) -> Result<OwnedFd, Errno> {
    open_beneath(directory, below, READ_DIRECTORY)
}

/// Opens a file in a directory for reading; the caller checks that it is one.
pub fn open_file_at(directory: impl AsFd, name: &[u8]) -> Result<File, Errno> {
    open_beneath(directory, name, READ_FILE).map(File::from)
}

/// What stands under a name, not following it; `None` is the directory's word that nothing does.
pub fn lstat_at(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an open file or directory is.
pub fn stat_of(file: impl AsFd) -> Result<Stat, Errno> {
    rustix::fs::fstat(file).map(Stat::from)
}

/// Whether something stands beneath a directory, reached through no symbolic link.
pub fn exists_beneath(directory: impl AsFd, below: &[u8]) -> bool {
    open_beneath(directory, below, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC).is_ok()
}

/// Where a symbolic link points, as written.
pub fn read_link_at(directory: impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(directory, name, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// Which directory this really is.
pub fn identity(directory: impl AsFd) -> Result<Identity, Errno> {
    let fsid = rustix::fs::fstatvfs(&directory)?.f_fsid;
    let ino = stat_of(&directory)?.signature.ino;
    let born_ns = born_at(directory.as_fd(), b".")?.unwrap_or(0);
    Ok(Identity { fsid, ino, born_ns })
}

fn born_at(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<i64>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::BTIME)?;
    let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let (seconds, rest) = (found.stx_btime.tv_sec, i64::from(found.stx_btime.tv_nsec));
    Ok(told.then(|| seconds.saturating_mul(1_000_000_000).saturating_add(rest)))
}

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The extended attributes that a rewind can bring back, ordered by name.
///
/// Attributes that only the privileged may set are left out, as are those that may not be read.
pub fn xattrs(file: impl AsFd) -> Result<Xattrs, Errno> {
    let file = file.as_fd();
    let mut small = [0; 1024];
    let list = match rustix::fs::flistxattr(file, &mut small) {
        Ok(0) | Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(length) => small[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0; XATTR_MAX];
            let length = rustix::fs::flistxattr(file, &mut large)?;
            large.truncate(length);
            large
        }
        Err(error) => return Err(error),
    };
    let names = list.split_inclusive(|byte| *byte == 0);
    let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    let mut found = Vec::new();
    for name in names.filter(|name| is_kept_xattr(name.to_bytes())) {
        if let Some(value) = xattr(file, name)? {
            found.push((name.to_bytes().to_vec(), value));
        }
    }
    found.sort();
    Ok(found)
}

fn is_kept_xattr(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

fn xattr(file: BorrowedFd<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; XATTR_MAX];
    match rustix::fs::fgetxattr(file, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            value.shrink_to_fit();
            Ok(Some(value))
        }
        // Gone since it was listed, or not ours to read.
        Err(Errno::NODATA | Errno::ACCESS | Errno::PERM | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error),
    }
}
