//! The driver that works everywhere: everything goes into the content store.

use super::{database, directory, postgres, sqlite};
use crate::driver::{Aside, Capture, Captured, Driver, End, Fit, Restoration, Site, Staged};
use crate::error::{Error, Problem, Result};
use crate::exchange::Exchange;
use crate::part::{Part, PartKind};

pub(super) const NAME: &str = "universal";
pub(super) const VERSION: u32 = 1;

/// Directories, SQLite databases and PostgreSQL in the content store.
pub struct Universal;

fn not_ours(part: &Part) -> Error {
    Error::Declared(format!("The universal driver takes no {} ({:?})", part.kind, part.name))
}

impl Driver for Universal {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn detect(&self, part: &Part) -> Result<Fit> {
        Ok(match part.kind {
            PartKind::Directory | PartKind::Sqlite | PartKind::Postgres => {
                Fit::Fits { rank: 20, why: "its bytes go into the content store".to_owned() }
            }
            PartKind::Database => {
                Fit::Fits { rank: 20, why: "a dump of it goes into the content store".to_owned() }
            }
            _ => Fit::Not(format!("it takes no {}", part.kind)),
        })
    }

    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>> {
        Ok(match part.kind {
            PartKind::Directory => Box::new(directory::DirectoryCapture::prepare(part, site)?),
            PartKind::Postgres => Box::new(postgres::PostgresCapture::prepare(part, site)?),
            PartKind::Sqlite => Box::new(sqlite::SqliteCapture::prepare(part, site)?),
            PartKind::Database => Box::new(database::DatabaseCapture::prepare(part, site)?),
            _ => return Err(not_ours(part)),
        })
    }

    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()> {
        if captured.version > VERSION {
            return Err(newer(captured));
        }
        let has = |name| captured.parameters.contains_key(name);
        match (has(directory::MANIFEST), has(database::DUMP)) {
            (true, _) => directory::verify(captured, site.contents),
            (false, true) => database::verify(captured, site.contents),
            (false, false) => sqlite::verify(captured, site),
        }
    }

    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
        match restoration.part.kind {
            PartKind::Directory => directory::gate(restoration),
            PartKind::Postgres => postgres::gate(restoration),
            PartKind::Sqlite => sqlite::gate(restoration),
            PartKind::Database => database::gate(restoration),
            _ => Err(not_ours(restoration.part)),
        }
    }

    fn halt(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::halt(restoration),
            PartKind::Sqlite => sqlite::halt(restoration),
            PartKind::Database => database::halt(restoration),
            _ => Ok(()),
        }
    }

    fn restore(&self, restoration: &Restoration<'_>) -> Result<Staged> {
        match restoration.part.kind {
            PartKind::Sqlite => sqlite::restore(restoration),
            PartKind::Database => database::restore(restoration),
            _ => directory::restore(restoration),
        }
    }

    fn swap(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        match restoration.part.kind {
            PartKind::Sqlite => sqlite::swap(restoration, staged),
            PartKind::Database => database::swap(restoration, staged),
            _ => Exchange::at(&restoration.part.path, restoration.site.id).swap(staged),
        }
    }

    fn swap_back(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        match restoration.part.kind {
            PartKind::Sqlite => sqlite::swap_back(restoration, staged),
            PartKind::Database => database::swap_back(restoration, staged),
            _ => Exchange::at(&restoration.part.path, restoration.site.id).swap_back(staged),
        }
    }

    fn check(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::check(restoration),
            PartKind::Sqlite => sqlite::check(restoration),
            PartKind::Database => database::check(restoration, restoration.captured.absent),
            _ => directory::check(restoration, &directory::all),
        }
    }

    fn clear(&self, restoration: &Restoration<'_>, _: &Staged, end: End) -> Result<Vec<Aside>> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::clear(restoration, end),
            PartKind::Sqlite => sqlite::clear(restoration, end),
            PartKind::Database => database::clear(restoration, end),
            _ => directory::clear(restoration, end, &directory::all),
        }
    }

    fn resume(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::resume(restoration),
            _ => Ok(()),
        }
    }

    fn discard(&self, _captured: &Captured, _site: &Site<'_>) -> Result<()> {
        // What no checkpoint names, garbage collection takes.
        Ok(())
    }
}

fn newer(captured: &Captured) -> Error {
    let why = format!(
        "it was captured by version {} of the driver {}, and this is {VERSION}",
        captured.version, captured.driver
    );
    Problem::new("newer_driver", why, "Use the version of Chronicle that made it, or a later one")
        .into()
}
