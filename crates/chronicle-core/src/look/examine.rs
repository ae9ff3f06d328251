//! Reads candidates, one or many, and takes their content into the store.
//!
//! Shares the work among threads and keeps the order; how a single one is read is in `read`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::read::Reader;
use super::{Candidate, check_cancelled, default_threads};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::fs::Roots;
use crate::known::Known;
use crate::store::Intake;

/// How many neighbouring candidates a thread takes at a time.
const SHARE: usize = 16;

/// One candidate, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// What is known of it now; a file's link group is left for the caller to find.
    pub known: Known,
    /// How many names the inode has; 0 where nothing stands.
    pub nlink: u64,
    /// The device it lies on.
    pub dev: u64,
}

/// How to examine many candidates.
#[derive(Clone, Copy)]
pub struct ExamineOptions<'a> {
    /// How many threads read.
    pub threads: usize,
    /// Tells when reading began.
    pub clock: &'a dyn Clock,
    /// Set by somebody else to stop early.
    pub cancelled: Option<&'a AtomicBool>,
    /// Told now and then how many candidates and bytes are done.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

impl Default for ExamineOptions<'_> {
    fn default() -> Self {
        let threads = default_threads();
        Self { threads, clock: &SystemClock, cancelled: None, progress: None }
    }
}

/// Reads one candidate and takes its content into the store.
pub fn examine(
    roots: &Roots,
    candidate: &Candidate,
    intake: &Intake<'_>,
    clock: &dyn Clock,
) -> Result<Examined> {
    Reader::new(roots, intake, clock).examine(candidate)
}

/// Reads many candidates on several threads; the results are in the order of the candidates.
pub fn examine_all(
    roots: &Roots,
    candidates: &[Candidate],
    intake: &Intake<'_>,
    options: &ExamineOptions<'_>,
) -> Result<Vec<Examined>> {
    let pool = Pool {
        candidates,
        options,
        next: AtomicUsize::new(0),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        failure: Mutex::new(None),
    };
    let work = || pool.work(Reader::new(roots, intake, options.clock));
    let threads = options.threads.clamp(1, candidates.len().div_ceil(SHARE).max(1));
    let mut shares = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut shares = work();
        for other in others {
            shares.extend(other.join().expect("BUG: a reader panicked"));
        }
        shares
    });
    if let Some(error) = pool.failure.into_inner().expect("BUG: a reader panicked") {
        return Err(error);
    }
    shares.sort_unstable_by_key(|(start, _)| *start);
    Ok(shares.into_iter().flat_map(|(_, examined)| examined).collect())
}

/// Candidates that several readers take in turns.
struct Pool<'a> {
    candidates: &'a [Candidate],
    options: &'a ExamineOptions<'a>,
    next: AtomicUsize,
    files: AtomicU64,
    bytes: AtomicU64,
    failure: Mutex<Option<Error>>,
}

impl Pool<'_> {
    /// One reader's results, each share with its place.
    fn work(&self, mut reader: Reader<'_, '_>) -> Vec<(usize, Vec<Examined>)> {
        let mut shares = Vec::new();
        loop {
            let start = self.next.fetch_add(SHARE, Ordering::Relaxed);
            let Some(rest) = self.candidates.get(start..).filter(|rest| !rest.is_empty()) else {
                return shares;
            };
            match self.share(&mut reader, &rest[..rest.len().min(SHARE)]) {
                Ok(examined) => shares.push((start, examined)),
                Err(error) => {
                    self.fail(error);
                    return shares;
                }
            }
        }
    }

    fn share(&self, reader: &mut Reader<'_, '_>, share: &[Candidate]) -> Result<Vec<Examined>> {
        let mut examined = Vec::with_capacity(share.len());
        for candidate in share {
            check_cancelled(self.options.cancelled)?;
            examined.push(reader.examine(candidate)?);
        }
        let count = share.len() as u64;
        let files = self.files.fetch_add(count, Ordering::Relaxed) + count;
        let read = std::mem::take(&mut reader.bytes);
        let bytes = self.bytes.fetch_add(read, Ordering::Relaxed) + read;
        if let Some(progress) = self.options.progress {
            progress(files, bytes);
        }
        Ok(examined)
    }

    /// Keeps the first failure and leaves nothing for the others to take.
    fn fail(&self, error: Error) {
        self.next.store(self.candidates.len(), Ordering::Relaxed);
        let mut failure = self.failure.lock().expect("BUG: a reader panicked");
        failure.get_or_insert(error);
    }
}
