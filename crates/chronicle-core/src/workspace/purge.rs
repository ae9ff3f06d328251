//! Where a workspace's history lies, how large it is, and its end.

use std::path::PathBuf;

use super::{PATIENCE, Workspace};
use crate::catalog::Log;
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::home::Home;
use crate::isolated::remove_tree;
use crate::room::disk_usage;

/// What a history is and takes on disk.
#[derive(Debug, Clone)]
pub struct HistorySize {
    /// The directory of this workspace's own part.
    pub directory: PathBuf,
    /// Records in the log.
    pub records: u64,
    /// Turns among them.
    pub turns: u64,
    /// Bytes of this workspace's own part on disk.
    pub own_bytes: u64,
    /// Bytes on disk of the contents, which all workspaces of the home share.
    pub store_bytes: u64,
    /// Other workspaces whose contents lie in the same store.
    pub others: u64,
}

impl Home {
    /// Bytes that everything in this home takes on disk.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(self.path())
    }
}

impl Workspace {
    /// How large this workspace's history is.
    pub fn history_size(&self) -> Result<HistorySize> {
        Ok(HistorySize {
            directory: self.directory(),
            records: self.catalog.head()?.seq.0,
            turns: self.turns()?.len() as u64,
            own_bytes: disk_usage(&self.directory()),
            store_bytes: disk_usage(&self.home.store()),
            others: self.home.all()?.iter().filter(|other| other.id != self.id).count() as u64,
        })
    }

    /// Deletes this workspace's history, for ever; its files stay as they are.
    ///
    /// Contents go only with the last workspace of the home: until then others may need the same
    /// objects. What is registered goes first, so that an interrupted purge leaves garbage and
    /// never a workspace with half a history.
    pub fn purge(mut self) -> Result<()> {
        let lock = self.lock(PATIENCE)?;
        if self.isolated_runs()?.iter().any(|run| run.state == "running") {
            return Err(Error::Busy("an isolated run is still going on".to_owned()));
        }
        let (home, directory) = (self.home.clone(), self.directory());
        home.unregister(&self.root)?;
        failpoint::hit("purge_after_unregister");
        let last = home.all()?.is_empty();
        drop(self);
        remove_tree(&directory)?;
        failpoint::hit("purge_after_history");
        if last {
            remove_all(home.store())?;
            // Nothing is left that the old key sealed.
            home.forget_secret_key()?;
        }
        drop(lock);
        Ok(())
    }
}

fn remove_all(directory: PathBuf) -> Result<()> {
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.at("remove", &directory),
    }
}
