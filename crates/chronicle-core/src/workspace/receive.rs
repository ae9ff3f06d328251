//! A history that comes from elsewhere: into a home that has none of it, or behind what is here.
//!
//! It is put together where nobody looks, and checked as `verify` would, before any of it counts. The
//! registration of the root is the commit point of the first; of the second, the catalog's transaction.

use std::path::{Path, PathBuf};

use super::verify_chain::{self, Which};
use super::{PATIENCE, Workspace, init, key};
use crate::catalog::{Catalog, Log};
use crate::clock::{Clock, SystemClock};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::home::{Adopted, Home, private_directory, sync_directory};
use crate::id::{Epoch, ObjectId, Seq, WorkspaceId};
use crate::mirror::{Segment, Standing};
use crate::record::{Head, Kind, Labels, Record};
use crate::store::{ContentStorage, Intake, LocalStore, StoreLock};

/// A history on its way into a home.
pub struct Arrival {
    home: Home,
    workspace: WorkspaceId,
    directory: PathBuf,
    catalog: Catalog,
    store: LocalStore,
    /// What comes with it must not be swept before anything names it.
    _hold: StoreLock,
}

impl Home {
    /// Begins to put a history together; what an earlier call left half done is thrown away.
    pub fn receive(&self, workspace: WorkspaceId) -> Result<Arrival> {
        self.create()?;
        private_directory(&self.store())?;
        let store = self.open_store()?;
        let hold = store.hold()?;
        let directory = self.path().join("arriving").join(workspace.hex());
        remove(&directory)?;
        private_directory(&directory)?;
        let catalog = Catalog::create(&directory.join("catalog.db"), workspace)?;
        let home = self.clone();
        Ok(Arrival { home, workspace, directory, catalog, store, _hold: hold })
    }
}

impl Arrival {
    /// Adds the records that come next.
    pub fn add(&mut self, segment: &Segment) -> Result<()> {
        if segment.workspace != self.workspace {
            let why = format!("records of workspace {} among others", segment.workspace.hex());
            return Err(Error::Usage(format!("Cannot take this history over: {why}")));
        }
        self.catalog.add_segment(segment)
    }

    /// Whether an object still has to come.
    pub fn lacks(&self, id: &ObjectId) -> Result<bool> {
        Ok(!self.catalog.has_object(id)? && !self.store.exists(id)?)
    }

    /// Takes contents in, durably.
    pub fn take_in(&self, take: impl FnOnce(&Intake<'_>) -> Result<()>) -> Result<()> {
        let mut intake = self.store.intake()?;
        take(&intake)?;
        self.catalog.put_objects(&intake.finish()?)
    }

    /// Where the history ends so far.
    pub fn head(&self) -> Result<Head> {
        self.catalog.head()
    }

    /// The link that a record of it has.
    pub fn link_at(&self, seq: Seq) -> Result<Head> {
        Ok(Head { seq, link: self.catalog.link(seq)? })
    }

    /// Checks everything that has come as `verify` would, and enters its last life for that.
    fn check(&mut self) -> Result<()> {
        let mut epoch = None;
        for seq in self.catalog.of_kind(Kind::Genesis)? {
            let sealed = self.catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
            let header = crate::codec::decode_header(&sealed.leaf)
                .map_err(|source| Error::Record { seq, source })?;
            epoch = Some(header.epoch);
        }
        let Some(epoch) = epoch else { return Err(Error::missing_record(Seq(1))) };
        self.catalog.enter_life(epoch)?;
        let end = self.catalog.head()?.seq;
        let which = Which::of(&self.catalog, self.workspace, end)?;
        let path = self.directory.join("catalog.db");
        verify_chain::check(&self.catalog, &path, &which, &[]).map(drop)
    }

    /// Makes it the history of an empty directory, and tells the moment up to which it came.
    ///
    /// The directory is still empty then: a rewind to that moment that makes the root anew fills it.
    pub fn settle(
        mut self,
        root: &Path,
        standing: Option<&Standing>,
        baseline: Seq,
    ) -> Result<Head> {
        self.check()?;
        let came = self.catalog.head()?;
        let mut standing = standing.cloned().unwrap_or_default();
        // What lay outside the workspace lay on another machine.
        standing.entries.retain(|path, _| !path.is_outside());
        let genesis = genesis(self.workspace);
        self.catalog.begin_life(genesis, &standing)?;
        self.catalog.set_state(key::BASELINE, &baseline.0.to_le_bytes())?;
        let Self { home, workspace, directory, catalog, .. } = self;
        catalog.settle_file()?;
        let place = home.workspace(workspace);
        // Whoever came this far before was not registered: nothing of it counts.
        remove(&place)?;
        sync_directory(&directory)?;
        std::fs::rename(&directory, &place).at("rename", &place)?;
        home.sync()?;
        failpoint::hit("receive_before_registration");
        home.register(root, workspace)?;
        failpoint::hit("receive_after_registration");
        Ok(came)
    }
}

impl Home {
    /// Makes sure that a directory can become the root of this workspace: whole, and not yet here.
    ///
    /// Tells whether it already is, because an earlier call came as far as that.
    pub fn can_receive(&self, workspace: WorkspaceId, root: &Path) -> Result<bool> {
        if self.lookup(root)?.is_some_and(|adopted| adopted.id == workspace) {
            return Ok(true);
        }
        if let Some(Adopted { root, .. }) = self.all()?.into_iter().find(|a| a.id == workspace) {
            let why = format!("its workspace is here already, at {}", root.display());
            return Err(Error::CannotAdopt { path: root, why });
        }
        init::refuse_unsuitable(self, root)?;
        let mut entries = std::fs::read_dir(root).at("list", root)?;
        match entries.next() {
            None => Ok(false),
            Some(_) => {
                let why = "it is not empty".to_owned();
                Err(Error::CannotAdopt { path: root.to_owned(), why })
            }
        }
    }
}

impl Workspace {
    /// Goes on with a history of which this one is the beginning; the files stay as they are.
    ///
    /// What they are compared with is what the new records say, so that the next look tells how the
    /// workspace differs from that.
    pub fn catch_up(&mut self, mut arrival: Arrival, standing: Option<&Standing>) -> Result<Head> {
        let _lock = self.lock(PATIENCE)?;
        self.refuse_calls(false)?;
        arrival.check()?;
        let (here, came) = (self.catalog.head()?, arrival.head()?);
        if came.seq <= here.seq || arrival.link_at(here.seq)? != here {
            return Err(Error::Moved { expected: here.seq, found: came.seq });
        }
        let mut segments = Vec::new();
        let mut after = here;
        while after.seq < came.seq {
            let records = arrival.catalog.read(after.seq, 4096)?;
            let segment = Segment { workspace: self.id, after, records };
            after = segment.head();
            segments.push(segment);
        }
        let standing = standing.cloned().unwrap_or_default();
        self.catalog.put_objects(&arrival.catalog.all_objects()?)?;
        self.catalog.continue_with(&segments, genesis(self.id), &standing)?;
        self.opened_prune.take();
        // It was only ever the way here.
        let _ = remove(&arrival.directory);
        Ok(came)
    }
}

fn genesis(workspace: WorkspaceId) -> Record {
    Record {
        seq: Seq(0),
        workspace,
        epoch: Epoch::random(),
        time: SystemClock.now(),
        kind: Kind::Genesis,
        labels: Labels::default(),
        changes: Vec::new(),
    }
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).at("remove", directory)
        }
        _ => Ok(()),
    }
}
