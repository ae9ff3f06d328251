//! Has what pushes wrote synced beside the work, many pushes at once.
//!
//! Pushes are durable before: until it is noted that they are synced, whoever comes after a power cut writes them again.

use std::thread::JoinHandle;

use chronicle_core::{Result, Unsynced, Workspace};

/// What is being synced, on a thread of its own.
#[derive(Default)]
pub(super) struct Syncing {
    under_way: Option<JoinHandle<Result<Unsynced>>>,
    /// It failed: what was lost the next sync does not know of.
    failed: bool,
}

impl Syncing {
    /// Begins, or notes what is done; for now and then.
    pub(super) fn go_on(&mut self, workspace: &mut Workspace) -> Result<()> {
        if let Some(done) = self.under_way.take_if(|it| it.is_finished()) {
            return self.note(done, workspace);
        }
        if self.under_way.is_none()
            && !self.failed
            && let Some(unsynced) = workspace.unsynced()?
        {
            let sync = move || unsynced.sync().map(|()| unsynced);
            self.under_way = std::thread::Builder::new().name("sync".to_owned()).spawn(sync).ok();
        }
        Ok(())
    }

    /// Syncs everything that was pushed so far, and notes it.
    pub(super) fn finish(&mut self, workspace: &mut Workspace) -> Result<()> {
        for _ in 0..2 {
            if let Some(begun) = self.under_way.take() {
                self.note(begun, workspace)?;
            }
            self.go_on(workspace)?;
        }
        self.under_way.take().map_or(Ok(()), |begun| self.note(begun, workspace))
    }

    fn note(
        &mut self,
        begun: JoinHandle<Result<Unsynced>>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let Ok(synced) = begun.join() else { return Ok(()) };
        self.failed = synced.is_err();
        workspace.synced(&synced?)
    }
}
