//! The drivers, and which of them takes a part.

pub mod btrfs;
mod database;
mod directory;
mod git;
mod jj;
mod kept;
mod postgres;
mod psql;
mod reflink;
mod sqlite;
mod universal;
mod zfs;

pub use btrfs::Btrfs;
pub(crate) use database::write_dump;
pub use git::Git;
pub(crate) use git::compare_commits;
pub use jj::Jj;
pub use reflink::Reflink;
pub(crate) use sqlite::is_database;
pub use universal::Universal;
pub use zfs::Zfs;

use crate::driver::{Driver, Fit};
use crate::error::{Error, Result};
use crate::part::Part;

/// Every driver there is.
pub fn all() -> Vec<Box<dyn Driver>> {
    vec![
        Box::new(Git),
        Box::new(Jj),
        Box::new(Btrfs),
        Box::new(Reflink),
        Box::new(Universal),
        Box::new(Zfs),
    ]
}

/// The driver of this name.
pub fn named(name: &str) -> Option<Box<dyn Driver>> {
    all().into_iter().find(|driver| driver.name() == name)
}

/// The driver that takes a part, and on what terms: the one that was asked for, or the fastest that fits.
pub fn choose(part: &Part, wanted: Option<&str>) -> Result<(Box<dyn Driver>, String)> {
    let wanted = part.driver.as_deref().or(wanted.filter(|_| !part.kind.is_code()));
    let mut fitting: Vec<(u32, String, Box<dyn Driver>)> = Vec::new();
    let mut reasons = Vec::new();
    for driver in all() {
        if wanted.is_some_and(|wanted| wanted != driver.name()) {
            continue;
        }
        match driver.detect(part)? {
            Fit::Fits { rank, why } => fitting.push((rank, why, driver)),
            Fit::Not(why) => reasons.push(format!("{}: {why}", driver.name())),
        }
    }
    fitting.sort_by_key(|(rank, ..)| *rank);
    match fitting.into_iter().next() {
        Some((_, why, driver)) => Ok((driver, why)),
        None if reasons.is_empty() => Err(Error::Declared(format!(
            "No driver is called {:?}: there are {}",
            wanted.unwrap_or_default(),
            all().iter().map(|driver| driver.name()).collect::<Vec<_>>().join(", ")
        ))),
        None => Err(Error::Declared(format!(
            "No driver can take part {:?} ({} at {}): {}",
            part.name,
            part.kind,
            part.path.display(),
            reasons.join("; ")
        ))),
    }
}
