//! What a lazy replica's session and its readers want of its workspace.

use std::collections::HashSet;

use chronicle_core::{ContentStorage, Error, ObjectId, Result, WorkspacePath};

use super::super::given::Giving;
use super::work::SandboxWork;
use crate::fetch::Want;
use crate::sandbox::Event;
use crate::wire::{Run, Wanted};

/// Something that the host asks for and has itself: it is fetched before it is given.
pub(super) enum Owed {
    Run(Run),
    Manifest(Wanted),
}

impl Owed {
    fn object(&self) -> ObjectId {
        match self {
            Self::Run(run) => run.wanted.object,
            Self::Manifest(wanted) => wanted.object,
        }
    }
}

/// What is on its way for somebody.
pub(super) struct Lazy {
    is_lazy: bool,
    /// Contents that were demanded and not put in place yet.
    pub(super) demanded: HashSet<ObjectId>,
    pub(super) owed: Vec<Owed>,
    /// Contents that the host was given back; they stay until it has answered the batch that needs them.
    lent: HashSet<ObjectId>,
    giving: Giving,
}

impl Lazy {
    pub(super) fn new(is_lazy: bool) -> Self {
        let (demanded, owed, lent) = Default::default();
        Self { is_lazy, demanded, owed, lent, giving: Giving::default() }
    }

    /// Nobody waits for anything that may have come.
    pub(super) fn is_idle(&self) -> bool {
        self.demanded.is_empty() && self.owed.is_empty() && self.lent.is_empty()
    }
}

/// What a reader needs.
pub(super) enum Needs {
    /// Nothing: the file is here.
    Nothing,
    /// A content that the store has; it only has to be put in place.
    Placing(ObjectId),
    /// A content of the host; it may be asked for under these paths.
    Fetching(Want, Option<WorkspacePath>),
}

impl SandboxWork {
    /// Whether contents come here only when they are read.
    pub fn is_lazy(&self) -> bool {
        self.lazy.is_lazy
    }

    /// Of what is pushed, the contents of files that are here already: these stay here. The others wait for a reader.
    pub(super) fn needed(&self, wants: &[Want]) -> Vec<ObjectId> {
        let Ok(contents) = self.workspace.replica_contents() else { return Vec::new() };
        let is_here = |want: &&Want| {
            self.workspace.is_filled(&want.path).unwrap_or(false)
                && !contents.exists(&want.object).unwrap_or(false)
                && !self.incoming.exists(&want.object).unwrap_or(false)
        };
        wants.iter().filter(is_here).map(|want| want.object).collect()
    }

    /// Whether only the host has a content.
    pub(super) fn is_at_host(&self, object: &ObjectId) -> bool {
        let contents = || self.workspace.replica_contents();
        self.is_lazy()
            && contents().is_ok_and(|contents| !contents.exists(object).unwrap_or(true))
            && self.workspace.shown_at_host(object).is_ok_and(|shown| shown.is_some())
    }

    /// What somebody needs who reads a file.
    pub(super) fn needs(&self, path: &WorkspacePath) -> Result<Needs> {
        let Some(found) = self.workspace.placeholder_at(path)? else { return Ok(Needs::Nothing) };
        let object = found.object;
        if self.workspace.replica_contents()?.exists(&object)? || self.incoming.exists(&object)? {
            return Ok(Needs::Placing(object));
        }
        let shown = self.workspace.shown_at_host(&object)?.map(|(shown, _)| shown);
        let shown = shown.filter(|shown| shown != path);
        let want = Want { object, size: found.size, path: path.clone(), base: None };
        Ok(Needs::Fetching(want, shown))
    }

    /// What must be fetched before it can be given to the host.
    pub(super) fn owed(&self) -> Vec<Want> {
        let wanted = |owed: &Owed| {
            let object = owed.object();
            let (path, size) = self.workspace.shown_at_host(&object).ok().flatten()?;
            Some(Want { object, size, path, base: None })
        };
        let new = |owed: &&Owed| !self.lazy.demanded.contains(&owed.object());
        self.lazy.owed.iter().filter(new).filter_map(wanted).collect()
    }

    /// Gives the host what it asked for, now that it came or cannot be had.
    pub(super) fn give_owed(&mut self, object: &ObjectId) -> Vec<Event> {
        let (given, rest) =
            std::mem::take(&mut self.lazy.owed).into_iter().partition(|it| it.object() == *object);
        self.lazy.owed = rest;
        let given: Vec<Owed> = given;
        if !given.is_empty() && self.incoming.exists(object).unwrap_or(false) {
            self.lazy.lent.insert(*object);
        }
        given.into_iter().map(|owed| self.give(owed)).collect()
    }

    fn give(&mut self, owed: Owed) -> Event {
        let (giving, incoming) = (&mut self.lazy.giving, &self.incoming);
        match owed {
            Owed::Run(run) => {
                let bytes = giving.run(incoming, &run).ok();
                Event::ContentRead(run, bytes)
            }
            Owed::Manifest(wanted) => {
                let manifest = giving.manifest(incoming, &wanted.object).ok();
                Event::ManifestRead(wanted, manifest)
            }
        }
    }

    /// Gives what is asked for of a content that only the host has: at once if it came before, else when it comes.
    pub(super) fn owe(&mut self, owed: Owed) -> Option<Event> {
        if self.lazy.lent.contains(&owed.object()) {
            return Some(self.give(owed));
        }
        self.lazy.owed.push(owed);
        None
    }

    /// The batch is answered: what the host was given back is not needed any more.
    pub(super) fn end_lending(&mut self) {
        for object in std::mem::take(&mut self.lazy.lent) {
            let _ = self.incoming.delete(&object);
        }
        self.lazy.giving = Giving::default();
    }

    /// Puts what came in its place.
    pub(super) fn put_in_place(&mut self, paths: &[WorkspacePath]) -> Result<()> {
        self.workspace.fill(paths, &self.incoming)
    }

    /// Nobody waits for this content any more.
    pub(super) fn forget(&mut self, object: &ObjectId) {
        self.lazy.demanded.remove(object);
        if !self.lazy.lent.contains(object) {
            let _ = self.incoming.delete(object);
        }
    }

    /// The directory of the home in which readers ask.
    pub(super) fn asked_in(&self) -> std::path::PathBuf {
        self.workspace.home_directory()
    }
}

/// The number that a reader hears, and the words that people do.
pub(super) fn failure(error: &Error) -> (i32, String) {
    let errno = match error {
        Error::OverBudget { .. } => rustix::io::Errno::NOSPC,
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => {
                rustix::io::Errno::NOSPC
            }
            _ => rustix::io::Errno::IO,
        },
        _ => rustix::io::Errno::IO,
    };
    (errno.raw_os_error(), error.to_string())
}
