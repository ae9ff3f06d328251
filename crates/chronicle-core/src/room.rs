//! How much room the history of a home may take: a budget in bytes and a floor of free space.
//!
//! What is taken is measured by walking the home, which nobody wants to wait for at every capture.
//! So the result lies in a file that every writer adds to, and is measured anew when it is old or
//! close to the limit.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::clock::{Clock, SystemClock};
use crate::error::{Context, Error, Result};

/// A measurement counts for so long, while it is far from the limit.
const FRESH_NS: i64 = 300_000_000_000;
/// Of a budget, in per cent: from here on every question is answered by measuring, and history goes
/// until as much is left again.
pub(crate) const CLOSE: u64 = 90;
/// The same at which there is hardly room for anything.
const FULL: u64 = 95;
/// The part of a file system that its home may take, and that stays free, unless people say
/// otherwise.
const BUDGET_PART: u64 = 4;
const FLOOR_PART: u64 = 50;
const FLOOR_MOST: u64 = 1 << 30;
/// Of a budget, what stays for the records of what is taken in: a fiftieth, but no more than this.
const RECORDS_MOST: u64 = 1 << 20;

/// How many bytes of a file system of this size stay free, unless people say otherwise.
pub fn usual_floor(total: u64) -> u64 {
    (total / FLOOR_PART).min(FLOOR_MOST)
}

/// What people set, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limits {
    pub(crate) budget: Option<u64>,
    pub(crate) floor: Option<u64>,
}

/// How much one capture may still take.
#[derive(Debug)]
pub(crate) struct Room {
    home: PathBuf,
    left: u64,
    taken: AtomicU64,
    /// The limit that is nearest, in words.
    why: String,
}

impl Room {
    /// What is left in a home.
    pub(crate) fn measure(home: &Path, limits: Limits) -> Result<Self> {
        let stat = rustix::fs::statvfs(home).at("examine", home)?;
        let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        let budget = limits.budget.unwrap_or(total / BUDGET_PART);
        let floor = limits.floor.unwrap_or_else(|| usual_floor(total));
        let used = used(home, budget)?;
        let records = (budget / 50).min(RECORDS_MOST);
        let of_budget = budget.saturating_sub(used).saturating_sub(records);
        let of_disk = free.saturating_sub(floor);
        let why = if of_budget <= of_disk {
            format!("it takes {used} bytes of its budget of {budget}")
        } else {
            format!("{free} bytes are free on its file system, and {floor} must stay so")
        };
        let (home, left) = (home.to_owned(), of_budget.min(of_disk));
        Ok(Self { home, left, taken: AtomicU64::new(0), why })
    }

    /// Takes so many bytes, before they are written.
    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if taken <= self.left {
            return Ok(());
        }
        let why = format!("{}; {taken} bytes or more are to be added", self.why);
        Err(Error::OverBudget { home: self.home.clone(), why })
    }

    /// Whether there is room for so many bytes now; nothing is taken.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.taken.load(Ordering::Relaxed).saturating_add(bytes) <= self.left
    }

    /// Tells others what was taken.
    pub(crate) fn settle(&self) -> Result<()> {
        match self.taken.load(Ordering::Relaxed) {
            0 => Ok(()),
            taken => grew(&self.home, taken),
        }
    }
}

/// Whether a home takes so much that history should go: the bytes that must.
pub(crate) fn excess(home: &Path, limits: Limits) -> Result<u64> {
    let budget = budget(home, limits)?;
    Ok(used(home, budget)?.saturating_sub(budget / 100 * CLOSE))
}

/// Whether there is hardly room for anything.
pub(crate) fn is_full(home: &Path, limits: Limits) -> Result<bool> {
    let budget = budget(home, limits)?;
    Ok(used(home, budget)? >= budget / 100 * FULL)
}

/// The bytes that a home may take.
pub(crate) fn budget(home: &Path, limits: Limits) -> Result<u64> {
    if let Some(budget) = limits.budget {
        return Ok(budget);
    }
    let stat = rustix::fs::statvfs(home).at("examine", home)?;
    Ok(stat.f_blocks * stat.f_frsize / BUDGET_PART)
}

/// The bytes that a home takes on disk.
fn used(home: &Path, budget: u64) -> Result<u64> {
    let now = SystemClock.now().0;
    let known = File::open(path(home)).ok().and_then(|file| read(&file));
    match known {
        Some((bytes, time))
            if bytes < budget / 100 * CLOSE && (0..FRESH_NS).contains(&(now - time)) =>
        {
            Ok(bytes)
        }
        _ => measure(home),
    }
}

/// Measures what a home takes, and remembers it.
pub(crate) fn measure(home: &Path) -> Result<u64> {
    let file = open(home)?;
    let bytes = disk_usage(home);
    write(&file, bytes, SystemClock.now().0).at("write", path(home))?;
    Ok(bytes)
}

/// Adds to what is remembered.
fn grew(home: &Path, bytes: u64) -> Result<()> {
    let file = open(home)?;
    // Without an earlier measurement the next question measures.
    let Some((before, time)) = read(&file) else { return Ok(()) };
    write(&file, before.saturating_add(bytes), time).at("write", path(home))
}

fn path(home: &Path) -> PathBuf {
    home.join("usage")
}

/// Opens the file, locked until it is closed.
fn open(home: &Path) -> Result<File> {
    let path = path(home);
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).at("open", &path)?;
    flock(&file, FlockOperation::LockExclusive).at("lock", &path)?;
    Ok(file)
}

fn read(file: &File) -> Option<(u64, i64)> {
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (count, time) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*count), i64::from_le_bytes(*time.first_chunk()?)))
}

fn write(file: &File, bytes: u64, time: i64) -> std::io::Result<()> {
    file.write_all_at(&[bytes.to_le_bytes(), time.to_le_bytes()].concat(), 0)
}

/// Bytes that a directory takes on disk; what cannot be read counts nothing.
pub(crate) fn disk_usage(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_usage(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_never_exceeded_and_growth_is_shared() {
        let home = tempfile::tempdir().unwrap();
        let limits = Limits { budget: Some(1 << 20), floor: Some(0) };
        let room = Room::measure(home.path(), limits).unwrap();
        room.take(600_000).unwrap();
        room.settle().unwrap();
        let next = Room::measure(home.path(), limits).unwrap();
        let error = next.take(600_000).unwrap_err();
        assert_eq!(error.code(), "over_budget");
        // Close to the limit only what is really there counts.
        assert_eq!(excess(home.path(), limits).unwrap(), 0);
        std::fs::write(home.path().join("content"), vec![1; 1 << 20]).unwrap();
        room.take(400_000).unwrap();
        room.settle().unwrap();
        assert!(excess(home.path(), limits).unwrap() > 100_000);
        assert!(Room::measure(home.path(), limits).unwrap().take(1).is_err());
    }

    #[test]
    fn the_floor_holds_whatever_the_budget_says() {
        let home = tempfile::tempdir().unwrap();
        let limits = Limits { budget: None, floor: Some(u64::MAX) };
        let error = Room::measure(home.path(), limits).unwrap().take(1).unwrap_err();
        assert!(error.to_string().contains("are free"), "{error}");
    }
}
