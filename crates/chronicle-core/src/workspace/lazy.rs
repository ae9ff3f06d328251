//! A replica whose files come when somebody reads them: placeholders, what is behind them, and filling them.
//!
//! The log and the known state say of such a file what they say of any other; only its content is at the host. So nothing
//! that compares, renames, removes or sends needs to know more, and a placeholder is no change.

use super::replica_side::HOST;
use super::replica_write::{Put, Supply, TRIES, is_secret_here};
use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, Durability, Local, LocalState};
use crate::entry::{Author, Entry, Evidence};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::id::ObjectId;
use crate::known::{Known, Part};
use crate::path::WorkspacePath;
use crate::placeholder::Placeholder;
use crate::replica::{Step, Version};
use crate::store::ContentStorage;

/// The files of a replica whose content is still at the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfilled {
    /// How many.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
}

impl Workspace {
    /// Whether contents come here only when they are read.
    pub fn is_lazy(&self) -> Result<bool> {
        Ok(self.catalog.state(key::LAZY)?.is_some())
    }

    /// From now on contents come only when they are read. Durable before the first placeholder stands here, and for ever:
    /// what stands here is told from ordinary links by it.
    pub fn become_lazy(&mut self) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        self.must_be_replica()?;
        let batch = Batch { state: vec![(key::LAZY, Some(vec![1]))], ..Batch::default() };
        self.commit_batch(batch, Durability::PowerCut)?;
        self.roots.set_lazy(true);
        Ok(())
    }

    /// What stands for the file at a path; `None` if its content is here, or it is no file.
    pub fn placeholder_at(&self, path: &WorkspacePath) -> Result<Option<Placeholder>> {
        match self.stat(path)? {
            Some(stat) if stat.kind().is_symlink() => {
                Ok(self.roots.placeholder(&self.roots.read_link(path)?))
            }
            _ => Ok(None),
        }
    }

    /// A path at which the host showed a content that is not here, and how long that is.
    pub fn shown_at_host(&self, object: &ObjectId) -> Result<Option<(WorkspacePath, u64)>> {
        let row = self.catalog.local(Local::AtHost, &object.0)?;
        Ok(row.and_then(|row| {
            let (size, path) = row.split_first_chunk()?;
            Some((WorkspacePath::new(path).ok()?, u64::from_le_bytes(*size)))
        }))
    }

    /// Whether a file is known whose content is here.
    pub fn is_filled(&self, path: &WorkspacePath) -> Result<bool> {
        let known = self.catalog.known(path)?;
        Ok(known.is_some_and(|known| matches!(known.entry, Entry::File(_)) && !is_unfilled(&known)))
    }

    /// The directory of the home that belongs to this workspace.
    pub fn home_directory(&self) -> std::path::PathBuf {
        self.directory()
    }

    /// Contents that this replica knows of, and that need not be here.
    pub(super) fn at_host(&self) -> Result<Vec<ObjectId>> {
        let rows = self.catalog.locals(Local::AtHost)?.into_iter();
        Ok(rows.filter_map(|(key, _)| key.try_into().ok().map(ObjectId)).collect())
    }

    /// How many files are not here yet.
    pub fn unfilled(&self) -> Result<Unfilled> {
        let mut unfilled = Unfilled::default();
        self.for_each_unfilled(&mut |_, size| {
            unfilled.files += 1;
            unfilled.bytes += size;
        })?;
        Ok(unfilled)
    }

    /// The files at and below some paths that are not here yet, with their lengths.
    pub fn unfilled_below(&self, tops: &[WorkspacePath]) -> Result<Vec<(WorkspacePath, u64)>> {
        let mut found = Vec::new();
        self.for_each_unfilled(&mut |path, size| {
            if tops.iter().any(|top| path.is_within(top)) {
                found.push((path, size));
            }
        })?;
        Ok(found)
    }

    fn for_each_unfilled(&self, give: &mut dyn FnMut(WorkspacePath, u64)) -> Result<()> {
        if !self.is_lazy()? {
            return Ok(());
        }
        let table = self.catalog.known_table()?;
        let directories: std::collections::BTreeSet<_> =
            table.rows.keys().chain(table.newer.keys()).collect();
        for directory in directories {
            let Ok(known) = table.directory(directory) else { continue };
            for (name, known) in known.names.iter().filter(|(_, known)| is_unfilled(known)) {
                if let Entry::File(file) = &known.entry {
                    give(directory.join(name), file.size);
                }
            }
        }
        Ok(())
    }

    /// Refuses what would need contents that are not here, before anything begins.
    pub(super) fn refuse_unfilled(&self, what: &str) -> Result<()> {
        match self.unfilled()?.files {
            0 => Ok(()),
            files => Err(Error::Usage(format!(
                "{what} needs every file, and {files} of this lazy replica are not here yet: \
                 run chronicle fetch first"
            ))),
        }
    }

    /// Puts contents in the place of placeholders: each file is a placeholder or whole, whenever somebody looks or dies.
    ///
    /// Contents are looked for in `contents` first, then in the store. A path at which no placeholder stands any more is
    /// left as it is. Nothing is recorded, since nothing changed.
    pub fn fill(&mut self, paths: &[WorkspacePath], contents: &dyn ContentStorage) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        self.must_be_replica()?;
        self.keep_within_budget()?;
        let mut tries = 0;
        loop {
            // What was renamed a moment ago is known only under its old name.
            self.record_touched(paths.iter().map(|path| (path, true)))?;
            match self.try_fill(paths, contents) {
                Err(Error::Stopped(Stop::PlanOutdated(_))) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    fn try_fill(&mut self, paths: &[WorkspacePath], contents: &dyn ContentStorage) -> Result<()> {
        let (steps, objects) = self.fill_steps(paths)?;
        if steps.is_empty() {
            return Ok(());
        }
        let supply = Supply::new(contents, self.objects()?);
        let rules = self.secret_rules()?;
        for step in &steps {
            if is_secret_here(&rules, &step.path, &step.put, &supply)? {
                let words = "its content is a secret here, and those stay home";
                return Err(Error::Usage(format!("Could not fill {}: {words}", step.path)));
            }
        }
        let writer = (Author::Session(HOST.to_owned()), Evidence::Own);
        let put = self.put_steps(&steps, &supply, writer)?;
        let Put { mut batch, own, others, unexpected, staging } = put;
        if !own.is_empty() {
            batch.records = self.outcome_records(self.push_labels(&[], own.len()), own);
        }
        if !others.is_empty() {
            batch.records.extend(self.outcome_records(self.meanwhile_labels(), others));
        }
        batch.local.extend(objects.iter().map(|id| (Local::AtHost, id.0.to_vec(), None)));
        failpoint::hit("fill_before_commit");
        self.commit_put(batch, staging, Durability::PowerCut, || {
            failpoint::hit("fill_after_commit")
        })?;
        match unexpected.into_iter().next() {
            Some((path, why)) => Err(Error::Usage(format!("Could not fill {path}: {why}"))),
            None => Ok(()),
        }
    }

    /// What to put where a placeholder stands.
    fn fill_steps(&self, paths: &[WorkspacePath]) -> Result<(Vec<Step>, Vec<ObjectId>)> {
        let (mut steps, mut objects) = (Vec::new(), Vec::new());
        for path in paths {
            let Some(found) = self.placeholder_at(path)? else { continue };
            let known = self.catalog.known(path)?.filter(is_unfilled);
            let put = known.and_then(|known| Version::of(&known.entry));
            match put {
                Some(put) if put.object() == Some(found.object) => {
                    objects.push(found.object);
                    let (path, expect) = (path.clone(), put.clone());
                    steps.push(Step { path, expect, put });
                }
                _ => return Err(Error::Stopped(Stop::PlanOutdated(vec![path.clone()]))),
            }
        }
        Ok((steps, objects))
    }
}

/// Whether a file is known by its placeholder.
pub(super) fn is_unfilled(known: &Known) -> bool {
    let is_link = |signature: crate::known::Signature| signature.mode & 0o170_000 == 0o120_000;
    matches!(known.entry, Entry::File(_))
        && known.part == Part::Ordinary
        && known.signature.is_some_and(is_link)
}
