//! The watcher as a workspace sees it: what it must know of one, whether it runs, starting it.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use super::{Workspace, key, roots};
use crate::catalog::{Catalog, LocalState};
use crate::clock::{Clock, SystemClock};
use crate::error::{Context, Error, Result};
use crate::filter::FilterRules;
use crate::fs::{Roots, stat_of};
use crate::home::{Adopted, Home};
use crate::id::Time;
use crate::path::WorkspacePath;
use crate::watch::{self, Scope, Surroundings, WatchEnd, WatchOptions};

impl Workspace {
    /// Watches the nearest workspace at or above a directory, until nobody wants it any more.
    pub fn watch(home: &Home, directory: &Path, options: &WatchOptions<'_>) -> Result<WatchEnd> {
        let absolute = std::path::absolute(directory).at("find", directory)?;
        let real = absolute.canonicalize().unwrap_or(absolute);
        let adopted = home.find(&real)?.ok_or(Error::NoWorkspace(real))?;
        let place = home.workspace(adopted.id);
        watch::serve(&Watched { home, adopted, place, catalog: OnceCell::new() }, options)
    }

    /// Starts a watcher as a process of its own, unless there is one or one could not be had a
    /// moment ago; says whether it did. Waits for nothing.
    pub fn start_watcher(&self, program: &Path) -> Result<bool> {
        watch::start(program, &self.home, &self.directory(), &self.root, self.now())
    }

    /// Whether a watcher answers, and which process it is.
    pub fn watcher_process(&self) -> Option<u32> {
        watch::status(&self.directory()).map(|report| report.pid)
    }

    /// How the watcher stands, in words.
    pub(super) fn watcher_words(&self) -> String {
        let Some(report) = watch::status(&self.directory()) else { return "off".to_owned() };
        match report.doubt {
            Some(doubt) => format!("cannot tell: {}", doubt.words()),
            None => {
                let seconds = (self.now().0 - report.since.0).max(0) / 1_000_000_000;
                let (directories, pid) = (report.directories, report.pid);
                let sees = if report.sees_processes { ", sees who writes" } else { "" };
                format!("on: {directories} directories for {}, process {pid}{sees}", span(seconds))
            }
        }
    }

    /// Names what this process takes for the workspace: its watcher must mean the same.
    pub(super) fn watch_scope(&self) -> Result<[u8; 16]> {
        scope_hash(&self.roots, &self.accepted_rules()?)
    }
}

fn span(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Which directories really are the roots, and which rules were accepted.
fn scope_hash(roots: &Roots, accepted: &FilterRules) -> Result<[u8; 16]> {
    let mut hasher = blake3::Hasher::new();
    // What counts only by name is nobody's to watch.
    for root in roots.iter().filter(|root| !root.is_named_only()) {
        let prefix = root.prefix().as_bytes();
        hasher.update(&(prefix.len() as u64).to_le_bytes()).update(prefix);
        if root.is_directory() {
            let stat = stat_of(root.handle()?).at("look at", root.path())?;
            hasher.update(&stat.dev.to_le_bytes()).update(&stat.signature.ino.to_le_bytes());
        }
    }
    hasher.update(&accepted.ignore);
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Ok(hash)
}

/// What a watcher process knows of its workspace.
struct Watched<'h> {
    home: &'h Home,
    adopted: Adopted,
    place: PathBuf,
    /// Opened once and kept, for the few questions about mass.
    catalog: OnceCell<Catalog>,
}

impl Watched<'_> {
    fn catalog(&self) -> Result<&Catalog> {
        if self.catalog.get().is_none() {
            let _ = self.catalog.set(Catalog::open(&self.place.join("catalog.db"))?);
        }
        Ok(self.catalog.get().expect("it was just set"))
    }
}

impl Surroundings for Watched<'_> {
    fn directory(&self) -> &Path {
        &self.place
    }

    fn scope(&self) -> Result<Scope> {
        let root = &self.adopted.root;
        if !root.is_dir() {
            return Err(Error::RootReplaced(root.clone()));
        }
        let catalog = self.catalog()?;
        let state = |key| catalog.state(key).map(Option::unwrap_or_default);
        let roots = Roots::open(root, &roots::decode(&state(key::FURTHER_ROOTS)?), &[])?;
        let accepted = FilterRules { ignore: state(key::ACCEPTED_FILTER)? };
        let hash = scope_hash(&roots, &accepted)?;
        let (root, home) = (root.clone(), self.home.path().to_owned());
        Ok(Scope { hash, roots, root, home, accepted })
    }

    fn is_captured(&self, path: &WorkspacePath) -> bool {
        // Where nobody can tell, it is watched: that costs time, and the opposite a change.
        let known = self.catalog().and_then(|catalog| catalog.known(path));
        known.map_or(true, |known| known.is_some_and(|known| known.entry.is_directory()))
    }

    fn now(&self) -> Time {
        SystemClock.now()
    }
}
