//! What all workers of a look share: where to look, what was known, and which repository they are
//! in.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::SurveyOptions;
use super::changes::Extent;
use super::join::{Remembered, join, was_there};
use crate::codec::DecodeError;
use crate::error::{Context, Error, Result};
use crate::filter::Filter;
use crate::fs::{self, Roots};
use crate::known::{DirectoryView, Known, KnownTable, Part};
use crate::path::WorkspacePath;
use crate::repository::{self, Class, Flavor};

/// The unchanging surroundings of a look.
pub(super) struct Walk<'a> {
    pub(super) roots: &'a Roots,
    pub(super) known: &'a KnownTable,
    pub(super) filter: &'a Filter,
    pub(super) options: SurveyOptions<'a>,
    /// What a look at some paths may rely on; `None` for a look at everything.
    pub(super) extent: Option<&'a Extent>,
    /// Set when something was met that only a look at everything can judge.
    pub(super) doubt: AtomicBool,
    /// Every directory of the known state in order; made when the first directory vanishes.
    directories: OnceLock<Vec<&'a WorkspacePath>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        roots: &'a Roots,
        known: &'a KnownTable,
        filter: &'a Filter,
        options: &SurveyOptions<'a>,
    ) -> Self {
        let (extent, doubt, directories) = (None, AtomicBool::new(false), OnceLock::new());
        Self { roots, known, filter, options: *options, extent, doubt, directories }
    }

    /// The same for a look at some paths, for which only a part of the known state is loaded.
    pub(super) fn within(self, extent: &'a Extent) -> Self {
        Self { extent: Some(extent), ..self }
    }

    /// Notes that this look cannot judge what it met.
    pub(super) fn set_doubt(&self) {
        self.doubt.store(true, Ordering::Relaxed);
    }

    /// The row of a directory.
    pub(super) fn row(&self, path: &WorkspacePath) -> Result<Option<DirectoryView<'a>>> {
        self.known.row(path).transpose().map_err(|error| unreadable(path, error))
    }

    /// Calls a function with each known name of a directory until it returns something.
    pub(super) fn find_name<T>(
        &self,
        directory: &WorkspacePath,
        mut found: impl FnMut(&[u8], Remembered<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let row = self.row(directory)?;
        let mut names = join(row.as_ref(), self.known.newer(directory));
        while let Some((name, known)) =
            names.next().map_err(|error| unreadable(directory, error))?
        {
            if let Some(result) = found(name, known)? {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    /// What is known of a root itself.
    pub(super) fn own(&self, root: &WorkspacePath) -> Result<Option<Known>> {
        match self.known.newer(root).and_then(|names| names.get(&b""[..])) {
            Some(newer) => Ok(newer.clone()),
            None => Ok(self.row(root)?.and_then(|row| row.own)),
        }
    }

    /// What is known of one path, by searching its directory's row.
    pub(super) fn single(&self, path: &WorkspacePath) -> Result<Option<Known>> {
        let is_root = self.roots.iter().any(|root| root.prefix() == path);
        let Some(parent) = path.parent().filter(|_| !is_root) else { return self.own(path) };
        self.find_name(&parent, |name, known| {
            let is_it = name == path.name();
            is_it.then(|| decode(path, known)).transpose()
        })
    }

    /// Whether something is known to stand in a directory.
    pub(super) fn has_known_names(&self, path: &WorkspacePath) -> Result<bool> {
        let found = self.find_name(path, |_, known| {
            let there = was_there(&decode(path, known)?);
            Ok(there.then_some(()))
        });
        Ok(found?.is_some())
    }

    /// The directories of the known state that are this one or lie below it, in order.
    pub(super) fn directories_within(&self, path: &WorkspacePath) -> Vec<&'a WorkspacePath> {
        let all = self.directories.get_or_init(|| {
            let mut all: Vec<_> = self.known.rows.keys().chain(self.known.newer.keys()).collect();
            all.sort_unstable();
            all.dedup();
            all
        });
        let (low, high) = ([path.as_bytes(), b"/"].concat(), [path.as_bytes(), b"0"].concat());
        let start = all.partition_point(|directory| directory.as_bytes() < &low[..]);
        let end = all.partition_point(|directory| directory.as_bytes() < &high[..]);
        let own = all.binary_search(&path).ok().map(|at| all[at]);
        own.into_iter().chain(all[start..end].iter().copied()).collect()
    }
}

/// The known state is of this machine and can be rebuilt, but never silently doubted.
pub(super) fn unreadable(path: &WorkspacePath, error: DecodeError) -> Error {
    let cause = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    match Err::<(), _>(cause).at("read the known state of", path.as_path()) {
        Err(error) => error,
        Ok(()) => unreachable!("BUG: an error became none"),
    }
}

/// What is known of a path, decoded.
pub(super) fn decode(path: &WorkspacePath, known: Remembered<'_>) -> Result<Known> {
    known.to_known().map_err(|error| unreadable(path, error))
}

/// The path of a name that comes from the known state, which is not trusted to be one.
pub(super) fn child(directory: &WorkspacePath, name: &[u8]) -> Result<WorkspacePath> {
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        return Err(unreadable(directory, DecodeError::Malformed("a name could not be one")));
    }
    Ok(directory.join(name))
}

/// A repository's metadata directory while it is being looked at.
pub(super) struct Unit {
    pub(super) path: WorkspacePath,
    pub(super) flavor: Flavor,
    reported: AtomicBool,
}

impl Unit {
    pub(super) fn new(path: WorkspacePath, flavor: Flavor) -> Self {
        Self { path, flavor, reported: AtomicBool::new(false) }
    }

    /// Whether this is the first report of news in it.
    pub(super) fn report(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    /// How a path inside takes part in rewinds; `None` if it does not.
    pub(super) fn part(&self, path: &WorkspacePath, is_directory: bool) -> Option<Part> {
        let inner = &path.as_bytes()[self.path.as_bytes().len() + 1..];
        match repository::classify(self.flavor, inner) {
            Class::Ignored => None,
            Class::Significant | Class::Carried if !is_directory => Some(Part::Significant),
            _ => Some(Part::Neutral),
        }
    }
}

/// Whether a directory is a repository's metadata; an error if it could be and cannot be entered.
pub(super) fn flavor(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Flavor>, Errno> {
    let directory = OnceLock::new();
    let found = repository::is_repository(name, &|child| {
        let opened = directory.get_or_init(|| fs::open_directory_at(parent, name));
        opened.as_ref().is_ok_and(|directory| fs::exists_beneath(directory.as_fd(), child))
    });
    match directory.into_inner() {
        Some(Err(error)) => Err(error),
        _ => Ok(found),
    }
}
