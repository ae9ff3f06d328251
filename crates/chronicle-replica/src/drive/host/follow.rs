//! A host among several: its workspace follows the shared log, and its own work goes there.

use std::sync::{Arc, Mutex, PoisonError};

use chronicle_core::replica::{Admission, Rules};
use chronicle_core::{ContentStorage, Error, HashedTree, PushChanges, PushLimits, Result, Seq};
use chronicle_core::{Workspace, WorkspacePath, WriteBack};

use super::super::merges::Merges;
use crate::filter::Filters;
use crate::shared::{Asked, Nearest, SharedLog, Taken};

/// Writes that are sent at once.
const BATCH: usize = 2_000;

/// A shared log on its way to the thread of its workspace. Whoever starts a server keeps one, so that the log is
/// not dropped where nothing may block.
pub type SharedSlot = Arc<Mutex<Option<SharedLog>>>;

/// Takes the log out.
pub(super) fn take_out(slot: &SharedSlot) -> Option<SharedLog> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The shared log, and what its workspace needs to follow it.
pub(super) struct Following {
    pub(super) shared: SharedLog,
    merges: Merges,
}

impl Following {
    pub(super) fn new(shared: SharedLog) -> Self {
        Self { shared, merges: Merges::default() }
    }

    /// Reads what others committed, puts it into the workspace, and commits what was done here.
    pub(super) fn exchange(&mut self, workspace: &mut Workspace, filters: &Filters) -> Result<()> {
        self.shared.read_on()?;
        self.apply(workspace, &[])?;
        self.send(workspace, filters)
    }

    /// Puts what the log says into the workspace; contents are looked for in `near` first.
    pub(super) fn apply(
        &mut self,
        workspace: &mut Workspace,
        near: &[&dyn ContentStorage],
    ) -> Result<()> {
        let to = self.shared.place();
        let applied = workspace.replica_state()?.and_then(|state| state.applied);
        if applied == Some(to) {
            return Ok(());
        }
        let everything = |_: &WorkspacePath, _: bool| true;
        let mut places = near.to_vec();
        places.push(self.shared.contents());
        let contents = Nearest(places);
        match self.shared.changes(applied.map(|place| place.seq), &everything) {
            Some(items) => workspace.apply_push(&items, to, &contents, false)?,
            None => {
                let own = workspace.tree_for_replica(&everything)?;
                let items = self.shared.differences(&own, &everything);
                workspace.apply_resync(&items, to, &contents, false)?
            }
        };
        self.merges.merge(workspace);
        Ok(())
    }

    /// Takes a batch of a sandbox: it is answered when the shared log has it, whatever becomes of it on this disk.
    pub(super) fn take_writes(
        &mut self,
        workspace: &mut Workspace,
        request: &WriteBack<'_>,
        came: &dyn ContentStorage,
    ) -> Result<Taken> {
        let secret = workspace.secret_writes(request.writes, came)?;
        let admit = |path: &WorkspacePath, directory: bool| match secret.contains(path) {
            true => Admission::NotAllowed,
            false => (request.admit)(path, directory),
        };
        let asked = Asked {
            replica: request.replica,
            name: request.name,
            batch: request.batch,
            writes: request.writes,
            rules: Rules { admit: &admit, folds: request.folds },
        };
        let given = Nearest(vec![came, workspace.replica_contents()?]);
        let taken = self.shared.take(&asked, &given)?;
        // The next round tries again what cannot be put there now.
        let _ = self.apply(workspace, &[came]);
        Ok(taken)
    }

    /// Commits what the workspace's own log says and the shared one does not; what is not taken becomes a conflict here.
    fn send(&mut self, workspace: &mut Workspace, filters: &Filters) -> Result<()> {
        let passes =
            |path: &WorkspacePath, directory: bool| !filters.push.is_filtered(path, directory);
        while let Some(batch) = workspace.journal_batch(BATCH, &passes)? {
            let state = workspace.replica_state()?;
            let state = state.ok_or_else(|| Error::Usage("The host follows no log".to_owned()))?;
            let admit = |_: &WorkspacePath, _: bool| Admission::Allowed;
            let asked = Asked {
                replica: state.id,
                name: &state.name,
                batch: batch.number,
                writes: &batch.writes,
                rules: Rules { admit: &admit, folds: false },
            };
            match self.shared.take(&asked, workspace.replica_contents()?)? {
                Taken::Answered(verdicts) => {
                    workspace.answered(batch.number, &verdicts, self.shared.contents())?;
                }
                Taken::Renumber(last) => workspace.renumber_batch(last)?,
            }
            self.apply(workspace, &[])?;
        }
        Ok(())
    }
}

/// Where pushes are read from: the workspace's own log, or the shared one.
pub(super) struct Source<'w> {
    pub(super) workspace: &'w mut Workspace,
    pub(super) following: Option<&'w Following>,
}

impl Source<'_> {
    pub(super) fn head(&self) -> Result<chronicle_core::replica::Place> {
        match self.following {
            Some(following) => Ok(following.shared.place()),
            None => Ok(self.workspace.replica_place()?.head),
        }
    }

    pub(super) fn changes(
        &mut self,
        after: Option<Seq>,
        limits: PushLimits,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Result<Option<PushChanges>> {
        let Some(following) = self.following else {
            return self.workspace.changes_for_replica(after.unwrap_or_default(), limits, passes);
        };
        let items = following.shared.changes(after, passes);
        Ok(items.map(|items| PushChanges { to: following.shared.place(), items, more: false }))
    }

    pub(super) fn tree(&self, passes: &dyn Fn(&WorkspacePath, bool) -> bool) -> Result<HashedTree> {
        match self.following {
            Some(following) => Ok(following.shared.hashed(passes)),
            None => self.workspace.tree_for_replica(passes),
        }
    }

    pub(super) fn contents(&self) -> Result<Nearest<'_>> {
        contents_of(self.workspace, self.following)
    }
}

/// The contents of a workspace, and behind them those that the hosts share.
pub(super) fn contents_of<'w>(
    workspace: &'w Workspace,
    following: Option<&'w Following>,
) -> Result<Nearest<'w>> {
    let mut places = vec![workspace.replica_contents()?];
    places.extend(following.map(|following| following.shared.contents()));
    Ok(Nearest(places))
}
