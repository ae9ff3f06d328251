//! What comes before every plan: nobody else is working, and everything that is there is captured.

use super::outcomes::Closing;
use super::rewind::{RewindRequest, patience};
use super::{Workspace, key};
use crate::apply;
use crate::catalog::{Batch, Durability};
use crate::entry::{Author, Change, Evidence};
use crate::error::{Error, Result, Stop};
use crate::id::SnapshotId;
use crate::lock::Lock;
use crate::path::WorkspacePath;
use crate::process::Process;
use crate::record::Labels;

/// The action of a record that says that the root was lost.
pub(super) const ROOT_LOST: &str = "root_lost";
/// How often who waits asks again.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);

impl Workspace {
    /// What comes before every plan: nobody else is working, and everything that is there is
    /// captured.
    pub(super) fn before_rewind(&mut self, request: &RewindRequest, planned: bool) -> Result<()> {
        self.end_silent_turns()?;
        self.refuse_calls(planned)?;
        if request.recreate_root {
            return self.bind_new_root();
        }
        self.settle_fully().map(drop)
    }

    /// Takes the lock; who wants to wait is given it once nobody else's call is open.
    ///
    /// It is not held meanwhile: a call ends by its agent's word, which needs it.
    pub(super) fn lock_when_quiet(&mut self, request: &RewindRequest) -> Result<Lock> {
        loop {
            let lock = self.lock(patience(request))?;
            if !request.wait || !matches!(self.refuse_calls(true), Err(Error::Busy(_))) {
                return Ok(lock);
            }
            drop(lock);
            std::thread::sleep(POLL);
        }
    }

    /// Refuses while somebody else's call is open; one of its own is no hindrance, but from inside
    /// it only a plan may be applied that was shown.
    pub(super) fn refuse_calls(&self, planned: bool) -> Result<()> {
        let open = self.openings()?;
        let mut alive = open.announced.iter().filter(|announced| announced.alive).peekable();
        if alive.peek().is_none() {
            return Ok(());
        }
        let mine = self.sessions_of(&Process::ancestors())?;
        let (own, others): (Vec<_>, Vec<_>) = alive.partition(|call| {
            call.labels.by_hook
                && call.labels.session.as_ref().is_some_and(|key| mine.contains(key))
        });
        if !own.is_empty() && !planned {
            return Err(Error::Stopped(Stop::NeedsPlan));
        }
        let Some(call) = others.first() else { return Ok(()) };
        let what = call.labels.summary.as_deref().unwrap_or("a command");
        Err(Error::Busy(format!("{what} is still running")))
    }

    /// Binds the workspace to a new, empty root: everything known is gone from it.
    fn bind_new_root(&mut self) -> Result<()> {
        if self.recorded_identity()? == Some(self.roots.workspace().identity()?) {
            return self.settle_fully().map(drop);
        }
        let mut left = self.roots.list(&WorkspacePath::root())?;
        left.retain(|name| !apply::is_staging_name(name));
        if !left.is_empty() {
            return Err(Error::CannotAdopt {
                path: self.root.clone(),
                why: "a root can only be made anew in an empty directory".to_owned(),
            });
        }
        let identity = self.identity_bytes()?;
        let state = vec![(key::ROOT_IDENTITY, Some(identity))];
        self.commit_batch(Batch { state, ..Batch::default() }, Durability::PowerCut)?;
        let look = self.look()?;
        let labels = Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some(ROOT_LOST.to_owned()),
            summary: Some("root_lost: the workspace's directory was made anew".to_owned()),
            ..Labels::default()
        };
        let mut changes: Vec<Change> = look
            .found
            .into_iter()
            .map(|found| Change {
                path: found.path,
                before: found.before,
                after: found.after,
                from: None,
                author: Author::Chronicle,
                evidence: Evidence::Own,
                neutral: found.neutral,
            })
            .collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        let mut batch =
            Batch { known: look.known, objects: look.rows, hold: look.hold, ..Batch::default() };
        batch.records = self.outcome_records(labels, changes);
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    /// Captures files that only a filter kept out; tells whether anything new is known.
    pub(super) fn capture_hidden(&mut self, paths: &[WorkspacePath]) -> Result<bool> {
        let is_file = |path: &&WorkspacePath| matches!(self.stat(path), Ok(Some(stat)) if stat.signature.mode & 0o170_000 != 0o040_000);
        let files: Vec<_> = paths.iter().filter(is_file).cloned().collect();
        let look = self.look_at(&files)?;
        if look.found.is_empty() {
            return Ok(false);
        }
        let mut batch = Batch::default();
        self.add_outcomes(look, &self.openings()?, &mut batch, &Closing::Nobody)?;
        self.commit_batch(batch, Durability::PowerCut)?;
        Ok(true)
    }
}
