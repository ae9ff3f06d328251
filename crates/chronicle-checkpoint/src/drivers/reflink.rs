//! Reflink: a part is kept as a second directory that shares its blocks, on XFS, Btrfs and others.
//!
//! The clones of a tree are made one after the other, so either nobody writes meanwhile, which is looked at
//! afterwards, or it is a running cluster in backup mode, whose write-ahead log makes it whole.

mod backup;
pub(super) mod clone;

use std::fs::File;
use std::path::Path;

use self::backup::Backup;
use self::clone::{Cloning, clone_tree};
use super::kept::{self, Copy};
use super::postgres;
use crate::driver::{
    Aside, Capture, Captured, Deadline, Driver, End, Fit, Restoration, Site, Staged,
};
use crate::error::{Context, Problem, Result};
use crate::exchange::{self, Exchange, exists};
use crate::part::{Part, PartKind};

/// Keeps directories as clones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reflink;

struct Cloned<'s> {
    part: Part,
    copy: Copy<'s>,
    backup: Option<Backup>,
    revision: Option<String>,
    schemas: Option<String>,
    made: bool,
}

impl Driver for Reflink {
    fn name(&self) -> &'static str {
        "reflink"
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, part: &Part) -> Result<Fit> {
        Ok(match obstacle(part)? {
            Some(why) => Fit::Not(why),
            None => Fit::Fits { rank: 10, why: "its files share their blocks".to_owned() },
        })
    }

    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>> {
        if let Some(why) = obstacle(part)? {
            return Err(Problem::new("blocks_not_shared", why, "Use another driver").into());
        }
        let copy = Copy::new(part, site, exchange::remove)?;
        let (schemas, backup) = match part.kind {
            PartKind::Postgres => (postgres::schemas(part)?, Backup::begin(part, site.id)?),
            _ => (None, None),
        };
        kept::write_out(&part.path)?;
        let part = part.clone();
        Ok(Box::new(Cloned { part, copy, backup, revision: None, schemas, made: false }))
    }

    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()> {
        kept::is_known(captured, self.version())?;
        kept::verify(captured, site)
    }

    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
        kept::gate(restoration)
    }

    fn halt(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::halt(restoration),
            _ => Ok(()),
        }
    }

    fn resume(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::resume(restoration),
            _ => Ok(()),
        }
    }

    fn restore(&self, restoration: &Restoration<'_>) -> Result<Staged> {
        let exchange = exchange_of(restoration);
        let (from, to) = (kept::place(restoration.captured)?, exchange.new_place());
        exchange::remove(to)?;
        let admits = kept::admits(restoration.part.kind);
        clone_tree(&from, to, Cloning { fuzzy: false, may_copy: true, admits: &admits })?;
        let top = File::open(to).at("open", to)?;
        rustix::fs::syncfs(&top).at("sync", to)?;
        exchange.stage()
    }

    fn swap(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        exchange_of(restoration).swap(staged)
    }

    fn swap_back(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        exchange_of(restoration).swap_back(staged)
    }

    fn check(&self, restoration: &Restoration<'_>) -> Result<()> {
        let manifest = kept::manifest(restoration.captured, &restoration.site)?;
        kept::compare(&manifest, &restoration.part.path, "restored directory")
    }

    fn clear(
        &self,
        restoration: &Restoration<'_>,
        _staged: &Staged,
        end: End,
    ) -> Result<Vec<Aside>> {
        kept::clear(&exchange_of(restoration), restoration, end, exchange::remove)
    }

    fn discard(&self, captured: &Captured, _site: &Site<'_>) -> Result<()> {
        exchange::remove(&kept::place(captured)?)
    }
}

impl Capture for Cloned<'_> {
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        limit.check("freezing a directory")
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        limit.check("sharing the blocks of a directory")?;
        match self.backup.take() {
            Some(backup) => self.clone_running(backup, limit)?,
            None => {
                let admits = kept::admits(self.part.kind);
                let how = Cloning { fuzzy: false, may_copy: false, admits: &admits };
                clone_tree(&self.part.path, &self.copy.place, how)?;
            }
        }
        self.made = true;
        limit.check("sharing the blocks of a directory")
    }

    fn thaw(&mut self) -> Result<()> {
        // A backup that was not ended ends with its connection.
        self.backup = None;
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        assert!(self.made, "BUG: captured without a boundary");
        let mut captured = self.copy.keep("reflink", 1)?;
        if self.part.kind == PartKind::Postgres {
            postgres::note(&mut captured, &self.copy.place);
            postgres::note_schemas(&mut captured, &self.part, self.schemas.take())?;
        }
        Ok(Captured { revision: self.revision.take(), ..captured })
    }
}

impl Cloned<'_> {
    /// First everything but the log, then the end of the backup, then the log up to it: the clones are of
    /// many instants, and the log brings them to its own.
    fn clone_running(&mut self, backup: Backup, limit: &Deadline) -> Result<()> {
        let (data, place) = (&self.part.path, &self.copy.place);
        let admits = |path: &[u8]| backup::is_data(path);
        clone_tree(data, place, Cloning { fuzzy: true, may_copy: false, admits: &admits })?;
        limit.check("sharing the blocks of a cluster")?;
        let ended = backup.end(limit)?;
        let (from, to) = (data.join("pg_wal"), place.join("pg_wal"));
        let all = |_: &[u8]| true;
        clone_tree(&from, &to, Cloning { fuzzy: true, may_copy: false, admits: &all })?;
        ended.complete(place)?;
        self.revision = Some(ended.stop);
        Ok(())
    }
}

/// Why a part cannot be cloned where it lies.
fn obstacle(part: &Part) -> Result<Option<String>> {
    if !matches!(part.kind, PartKind::Directory | PartKind::Postgres) {
        return Ok(Some(format!("only whole directories are cloned, and it is {}", part.kind)));
    }
    let shown = part.path.display();
    if !part.path.is_dir() {
        return Ok(Some(format!("{shown} is not there")));
    }
    let parent = part.path.parent().unwrap_or(Path::new("/"));
    if !kept::share_blocks(&part.path, parent) {
        return Ok(Some(format!("files at {shown} and beside it cannot share blocks")));
    }
    if part.kind == PartKind::Postgres
        && exists(&part.path)?
        && let Some(outside) = super::btrfs::outside(&part.path)?
    {
        return Ok(Some(format!(
            "{} leads outside: data directory, write-ahead log and tablespaces must be in one place",
            outside.display()
        )));
    }
    Ok(None)
}

fn exchange_of(restoration: &Restoration<'_>) -> Exchange {
    Exchange::at(&restoration.part.path, restoration.site.id)
}
