//! Looking only where the watcher saw something touched; with its word missing, everywhere.
//!
//! The watcher is asked *before* the disk is read, and its moment is recorded in the same commit as
//! what the look found: whatever happens in between or goes wrong, the next look asks for more and
//! never for less.

use std::collections::BTreeSet;

use super::capture::Look;
use super::{Workspace, key};
use crate::catalog::LocalState;
use crate::entry::{Entry, Why};
use crate::error::Result;
use crate::known::{Known, KnownTable};
use crate::look::{
    Candidate, Changes, Extent, Survey, SurveyOptions, default_threads, survey_changes,
};
use crate::path::WorkspacePath;
use crate::watch::{self, Bookmark, Reply, Token, Touched};

/// A look that could not see more places than this leaves no bookmark.
const AGAIN_MAX: usize = 64;
/// Below so many touched paths a second thread costs more than it brings.
const FEW: usize = 256;

impl Workspace {
    /// A look with the result of a full one, at the cost of what was touched, if the watcher can tell.
    pub(super) fn look_for_changes(&self) -> Result<Look> {
        let (bookmark, reply) = self.ask_watcher()?;
        let (token, touched) = match (reply, &bookmark) {
            (Some(Reply::Touched { token, paths }), Some(_)) => (token, paths),
            (Some(Reply::CannotTell { token, .. }), _) => return self.full_look_from(token),
            _ => return self.full_look_from(None),
        };
        let again = bookmark.as_ref().map_or(&[][..], |bookmark| &bookmark.again[..]);
        if touched.is_empty() && again.is_empty() && !self.has_single_roots() {
            let (watched, untouched, everywhere) = (true, true, true);
            return Ok(Look { watched, untouched, everywhere, ..Look::default() });
        }
        match self.look_at_touched(&touched, again)? {
            Some(look) => {
                let look = Look { everywhere: true, ..look };
                Ok(with_bookmark(look, Some(token), bookmark.as_ref()))
            }
            None => self.full_look_from(Some(token)),
        }
    }

    /// A full look that still tells the watcher's moment to the next one.
    pub(super) fn full_look(&self) -> Result<Look> {
        let token = match self.ask_watcher()?.1 {
            Some(Reply::Touched { token, .. }) => Some(token),
            Some(Reply::CannotTell { token, .. }) => token,
            _ => None,
        };
        self.full_look_from(token)
    }

    fn full_look_from(&self, token: Option<Token>) -> Result<Look> {
        let bookmark = self.bookmark()?;
        Ok(with_bookmark(self.look()?, token, bookmark.as_ref()))
    }

    /// Where the last recorded look left off.
    pub(super) fn bookmark(&self) -> Result<Option<Bookmark>> {
        let bytes = self.catalog.state(key::WATCHED)?;
        Ok(bytes.and_then(|bytes| Bookmark::decode(&bytes)))
    }

    fn ask_watcher(&self) -> Result<(Option<Bookmark>, Option<Reply>)> {
        let bookmark = self.bookmark()?;
        let since = bookmark.as_ref().map(|bookmark| bookmark.token);
        let scope = self.watch_scope()?;
        Ok((bookmark, watch::ask(&self.directory(), scope, since)))
    }

    /// Roots that are single files or missing are not watched, and looked at each time.
    fn has_single_roots(&self) -> bool {
        self.roots.iter().any(|root| !root.is_directory() && !root.is_named_only())
    }

    /// Looks at touched paths; `None` if that does not tell everything.
    pub(super) fn look_at_touched(
        &self,
        touched: &[Touched],
        again: &[WorkspacePath],
    ) -> Result<Option<Look>> {
        self.check_root()?;
        let again = again.iter().map(|path| Touched { path: path.clone(), whole: true });
        let touched: Vec<_> = touched.iter().cloned().chain(again).collect();
        let reading = self.catalog.reading()?;
        let mut part = PartOfKnown::new(self);
        let Some(changes) = part.prepare(&touched)? else { return Ok(None) };
        let PartOfKnown { table, extent, .. } = part;
        drop(reading);
        let filter = self.filter()?;
        let threads =
            if touched.len() < FEW && extent.whole.is_empty() { 1 } else { default_threads() };
        let options = SurveyOptions { threads, ..SurveyOptions::default() };
        let survey = survey_changes(&self.roots, (&table, &extent), &filter, &changes, &options)?;
        let Some(survey) = survey.filter(|survey| !has_links(survey)) else { return Ok(None) };
        let look = self.examine_survey(survey, &table)?;
        Ok(Some(Look { watched: true, ..look }))
    }
}

/// Leaves the moment for the next look, with what this one could not see.
///
/// Without a moment, or where too much could not be seen, the last one stays: the next look then asks
/// for more than it needs.
fn with_bookmark(mut look: Look, token: Option<Token>, before: Option<&Bookmark>) -> Look {
    let again: BTreeSet<_> = look.blind.drain(..).collect();
    if let Some(token) = token.filter(|_| again.len() <= AGAIN_MAX) {
        let bookmark = Bookmark { token, again: again.into_iter().collect() };
        look.bookmark = (Some(&bookmark) != before).then(|| bookmark.encode());
    }
    look
}

/// An event on one name of an inode concerns all its names, and the watcher knows only the one: where
/// a file has or had several, all of them must be looked at.
fn has_links(survey: &Survey) -> bool {
    let linked = |known: &Known| matches!(&known.entry, Entry::File(file) if file.link.is_some());
    let several = |candidate: &Candidate| {
        let several = |stat: &crate::fs::Stat| stat.nlink > 1 && !stat.is_directory();
        candidate.stat.as_ref().is_some_and(several) || candidate.was.as_ref().is_some_and(linked)
    };
    survey.candidates.iter().any(several) || survey.vanished.iter().any(|(_, was)| linked(was))
}

/// The part of the known state that a look at some paths needs.
struct PartOfKnown<'w> {
    workspace: &'w Workspace,
    table: KnownTable,
    extent: Extent,
    loaded: BTreeSet<WorkspacePath>,
}

impl<'w> PartOfKnown<'w> {
    fn new(workspace: &'w Workspace) -> Self {
        let (table, extent, loaded) = Default::default();
        Self { workspace, table, extent, loaded }
    }

    /// Sorts touched paths by their directories and loads what is known around them; `None` if the
    /// known state and the watcher do not fit together.
    fn prepare(&mut self, touched: &[Touched]) -> Result<Option<Changes>> {
        let whole: BTreeSet<_> =
            touched.iter().filter(|touched| touched.whole).map(|touched| &touched.path).collect();
        let mut changes = Changes::new();
        // The roots themselves are looked at in any case.
        for root in self.workspace.roots.iter() {
            self.load(root.prefix())?;
        }
        for Touched { path, whole: below } in touched {
            let Some(parent) = path.parent().filter(|_| !self.is_top(path)) else {
                if *below {
                    return Ok(None);
                }
                continue;
            };
            match self.standing(&parent, &whole)? {
                Standing::Known => {}
                Standing::Covered | Standing::KeptOut => continue,
                Standing::Odd => return Ok(None),
            }
            self.load_around(path, *below)?;
            let wanted = changes.entry(parent).or_default();
            *wanted.entry(path.name().to_vec()).or_default() |= *below;
        }
        Ok(Some(changes))
    }

    fn is_top(&self, path: &WorkspacePath) -> bool {
        self.workspace.roots.iter().any(|root| root.prefix() == path)
    }

    fn load(&mut self, directory: &WorkspacePath) -> Result<()> {
        if self.loaded.insert(directory.clone()) {
            self.workspace.catalog.load_directory(&mut self.table, directory)?;
        }
        Ok(())
    }

    fn known(&mut self, path: &WorkspacePath) -> Result<Option<Known>> {
        let Some(parent) = path.parent().filter(|_| !self.is_top(path)) else {
            return self.workspace.catalog.known(path);
        };
        self.load(&parent)?;
        let source = |source| crate::error::Error::Record { seq: crate::id::Seq(0), source };
        self.table.get(&parent, path.name()).map_err(source)
    }

    /// Whether a directory and all above it are ones that a full look would walk into.
    fn standing(
        &mut self,
        directory: &WorkspacePath,
        whole: &BTreeSet<&WorkspacePath>,
    ) -> Result<Standing> {
        self.load(directory)?;
        let mut standing = Standing::Known;
        let mut next = Some(directory.clone());
        while let Some(path) = next.filter(|path| !self.is_top(path)) {
            if self.workspace.roots.root_of(&path).is_err() {
                return Ok(Standing::KeptOut);
            }
            // Everything below is looked at from there.
            if whole.contains(&path) {
                standing = Standing::Covered;
            }
            match self.known(&path)? {
                Some(Known { entry: Entry::Unknown(Why::Filtered), .. }) => {
                    return Ok(Standing::KeptOut);
                }
                Some(known) if known.entry.is_directory() => {}
                _ if standing == Standing::Covered => {}
                // It may be covered by a directory further up.
                _ => standing = Standing::Odd,
            }
            next = path.parent();
        }
        Ok(standing)
    }

    /// Loads what is known of a path as a directory, and everything below if that may be needed.
    fn load_around(&mut self, path: &WorkspacePath, below: bool) -> Result<()> {
        let was = self.known(path)?;
        let could_hold =
            was.as_ref().is_some_and(|was| was.entry.is_directory() || was.entry.is_unknown());
        let stat = self.workspace.roots.lstat(path).unwrap_or(None);
        let is_directory = stat.is_some_and(|stat| stat.is_directory());
        if could_hold || is_directory {
            self.load(path)?;
        }
        let ino = was.as_ref().and_then(|was| was.signature).map(|signature| signature.ino);
        let stayed = is_directory
            && was.as_ref().is_some_and(|was| was.entry.is_directory())
            && stat.map(|stat| stat.signature.ino) == ino;
        if below || (could_hold || is_directory) && !stayed {
            for directory in self.workspace.catalog.directories_below(path)? {
                self.load(&directory)?;
            }
            self.extent.whole.insert(path.clone());
        }
        Ok(())
    }
}

/// How a directory in which something was touched stands in the known state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It and all above it are known directories.
    Known,
    /// It is looked at whole from further up.
    Covered,
    /// A filter keeps it out, or it is under no root.
    KeptOut,
    /// It should be known and is not.
    Odd,
}
