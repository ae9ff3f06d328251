//! The repository that a directory lies in: what it ignores, and what it tracks.
//!
//! Read from plain files, never by running git, and only when a directory with a known name is
//! met; each file is read once in the life of a filter.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::FileType;

use super::mass;
use super::read::{exists, kind, read_small, read_up_to};
use super::rules::{PatternList, Verdict};
use crate::repository;

/// The largest index that is read.
const INDEX_MAX: u64 = 1 << 30;

/// How a repository's ignore files see a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ignored {
    No,
    /// A pattern fits the path itself.
    Itself,
    /// A directory above is ignored, so that git never looks here.
    Above,
}

/// The repositories and ignore files that were met so far.
#[derive(Debug, Default)]
pub(super) struct Checkouts {
    by_directory: Mutex<HashMap<PathBuf, Option<Arc<Checkout>>>>,
    ignore_files: Mutex<HashMap<PathBuf, Arc<PatternList>>>,
}

/// A working tree of a repository.
#[derive(Debug)]
pub(super) struct Checkout {
    /// The directory that holds `.git` or `.jj`.
    top: PathBuf,
    /// Where the index is; a jj repository without git has none.
    git_directory: Option<PathBuf>,
    /// The patterns of `info/exclude`.
    exclude: PatternList,
    /// The tracked paths that matter here, read when first needed.
    tracked: OnceLock<Option<Vec<Vec<u8>>>>,
}

impl Checkouts {
    /// The repository whose working tree a directory lies in.
    pub(super) fn of(&self, directory: &Path) -> Option<Arc<Checkout>> {
        if let Some(found) = lock(&self.by_directory).get(directory) {
            return found.clone();
        }
        let found = Checkout::at(directory)
            .map(Arc::new)
            .or_else(|| directory.parent().and_then(|parent| self.of(parent)));
        lock(&self.by_directory).insert(directory.to_owned(), found.clone());
        found
    }

    /// Whether and how a path is ignored in the repository that it lies in.
    pub(super) fn ignored(&self, checkout: &Checkout, path: &Path, is_directory: bool) -> Ignored {
        let Some(relative) = checkout.relative(path) else { return Ignored::No };
        let ends = memchr::memchr_iter(b'/', relative);
        for end in ends {
            if self.verdict(checkout, &relative[..end], true) == Verdict::Out {
                return Ignored::Above;
            }
        }
        match self.verdict(checkout, relative, is_directory) {
            Verdict::Out => Ignored::Itself,
            Verdict::In | Verdict::Silent => Ignored::No,
        }
    }

    /// What the nearest ignore file that says anything says about a path below the top.
    fn verdict(&self, checkout: &Checkout, relative: &[u8], is_directory: bool) -> Verdict {
        let mut directory = relative;
        while !directory.is_empty() {
            let end = memchr::memrchr(b'/', directory);
            directory = &directory[..end.unwrap_or(0)];
            let file = self.ignore_file(&checkout.top.join(OsStr::from_bytes(directory)));
            let inner = &relative[directory.len()..];
            let inner = inner.strip_prefix(b"/").unwrap_or(inner);
            match file.verdict(inner, is_directory) {
                Verdict::Silent => {}
                said => return said,
            }
        }
        checkout.exclude.verdict(relative, is_directory)
    }

    fn ignore_file(&self, directory: &Path) -> Arc<PatternList> {
        if let Some(list) = lock(&self.ignore_files).get(directory) {
            return Arc::clone(list);
        }
        let list = Arc::new(read_patterns(&directory.join(".gitignore")));
        lock(&self.ignore_files).insert(directory.to_owned(), Arc::clone(&list));
        list
    }
}

impl Checkout {
    /// The repository whose working tree begins at exactly this directory.
    fn at(directory: &Path) -> Option<Self> {
        let (git, jj) = (directory.join(".git"), directory.join(".jj"));
        let git_directory = match kind(&git) {
            Some(FileType::Directory) if exists(&git.join("HEAD")) => Some(git),
            Some(FileType::RegularFile) => Some(git_file_target(directory, &git)?),
            _ if kind(&jj) == Some(FileType::Directory) => None,
            _ => return None,
        };
        let exclude = match &git_directory {
            Some(git) => read_patterns(&common_directory(git).join("info/exclude")),
            None => PatternList::default(),
        };
        let (top, tracked) = (directory.to_owned(), OnceLock::new());
        Some(Self { top, git_directory, exclude, tracked })
    }

    fn relative<'p>(&self, path: &'p Path) -> Option<&'p [u8]> {
        path.strip_prefix(&self.top).ok().map(|path| path.as_os_str().as_bytes())
    }

    /// Whether the repository tracks anything in a directory of a known name, or may.
    ///
    /// A jj repository without git keeps its list in a form that is not read here; it tracks
    /// whatever is not ignored.
    pub(super) fn may_track(&self, directory: &Path, ignored: Ignored) -> bool {
        let Some(relative) = self.relative(directory) else { return true };
        let Some(git) = &self.git_directory else { return ignored == Ignored::No };
        match self.tracked.get_or_init(|| read_tracked(git)) {
            Some(paths) => holds_within(paths, relative),
            None => true,
        }
    }
}

/// Whether one of the sorted paths is this directory, lies in it, or is a folded directory of a
/// sparse index above it.
fn holds_within(paths: &[Vec<u8>], directory: &[u8]) -> bool {
    let holds = |path: &[u8]| paths.binary_search_by(|known| known[..].cmp(path)).is_ok();
    let folded = memchr::memchr_iter(b'/', directory).any(|end| holds(&directory[..=end]));
    let below = [directory, b"/"].concat();
    let start = paths.partition_point(|path| *path < below);
    folded || holds(directory) || paths.get(start).is_some_and(|path| path.starts_with(&below))
}

/// The tracked paths that can answer a question: those with a known name in them, and folded
/// directories. `None` if the index cannot be read.
fn read_tracked(git: &Path) -> Option<Vec<Vec<u8>>> {
    let index = git.join("index");
    let bytes = match read_up_to(&index, INDEX_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) if !exists(&index) => return Some(Vec::new()),
        _ => return None,
    };
    let mut paths = Vec::new();
    let shape = repository::visit(&bytes, |entry| {
        let mut names = entry.path.split(|byte| *byte == b'/');
        if entry.path.ends_with(b"/") || names.any(|name| mass::by_name(name).is_some()) {
            paths.push(entry.path.to_vec());
        }
    });
    shape.is_ok_and(|shape| !shape.split).then_some(paths)
}

/// Where a `.git` file, as worktrees and submodules have it, points to.
fn git_file_target(directory: &Path, file: &Path) -> Option<PathBuf> {
    let text = read_small(file).ok()??;
    let target = text.strip_prefix(b"gitdir:")?.trim_ascii();
    Some(directory.join(OsStr::from_bytes(target)))
}

/// The linked worktrees of the repository at a directory: their tops, where they really lie.
///
/// Both sides must say so: the repository's list of them, and the file in the worktree that leads back.
pub(crate) fn linked_worktrees(top: &Path) -> Vec<PathBuf> {
    let git = top.join(".git");
    let git = match kind(&git) {
        Some(FileType::Directory) => git,
        Some(FileType::RegularFile) => match git_file_target(top, &git) {
            Some(target) => common_directory(&target),
            None => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let entries = std::fs::read_dir(git.join("worktrees")).into_iter().flatten().flatten();
    entries.filter_map(|entry| linked_from(&entry.path())).collect()
}

/// The top of the worktree that a directory of a repository's list stands for.
fn linked_from(listed: &Path) -> Option<PathBuf> {
    let text = read_small(&listed.join("gitdir")).ok()??;
    let file = listed.join(OsStr::from_bytes(text.trim_ascii()));
    let top = file.parent()?.canonicalize().ok()?;
    let back = git_file_target(&top, &file)?.canonicalize().ok()?;
    (back == listed.canonicalize().ok()?).then_some(top)
}

/// The directory that the worktrees of a repository share.
fn common_directory(git: &Path) -> PathBuf {
    match read_small(&git.join("commondir")) {
        Ok(Some(text)) => git.join(OsStr::from_bytes(text.trim_ascii())),
        _ => git.to_owned(),
    }
}

/// A file that cannot be read excludes nothing.
fn read_patterns(file: &Path) -> PatternList {
    let text = read_small(file).ok().flatten().unwrap_or_default();
    PatternList::new(&text)
}

/// What these locks guard is only a cache, whole after any panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
