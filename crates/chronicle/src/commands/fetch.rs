//! `chronicle fetch`: the contents of a lazy replica that are not here yet; and how a mount asks for one.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use chronicle_core::{SCHEMA, Workspace, WorkspacePath};
use chronicle_mount::{Errno, Fill};
use chronicle_replica::drive::{NotFetched, ask_to_fetch};
use serde_json::json;

use super::Invocation;
use crate::cli::FetchArgs;
use crate::error::{CommandError, Outcome};
use crate::render::{count, printable, size};
use crate::ui::Meter;

/// How many files are asked for at once: the host is asked for all of them together.
const AT_ONCE: usize = 32;
/// How many files that could not be had are named.
const NAMED: usize = 10;

pub(crate) fn execute(invocation: &mut Invocation, args: &FetchArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    if !workspace.is_lazy()? {
        invocation.ui.note("Already here: this is no lazy replica, and all of its files are");
        return Ok(0);
    }
    // What was renamed a moment ago is known only under its old name.
    workspace.settle()?;
    let tops: Vec<WorkspacePath> = match &args.paths[..] {
        [] => vec![WorkspacePath::root()],
        paths => {
            let path = |given: &PathBuf| workspace.path(given, &invocation.directory);
            paths.iter().map(path).collect::<Result<_, _>>()?
        }
    };
    let files = workspace.unfilled_below(&tops)?;
    let directory = workspace.home_directory();
    let meter = Meter::new(&invocation.ui);
    let fetching = Fetching { files: &files, directory, ..Fetching::default() };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..AT_ONCE.min(files.len())).map(|_| scope.spawn(|| fetching.work())).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            let (done, bytes) = fetching.so_far();
            meter.show(|| format!("fetching: {done} of {}, {}", files.len(), size(bytes)));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    meter.clear();
    let (done, bytes) = fetching.so_far();
    let failed = fetching.failed.into_inner().unwrap_or_default();
    let left = workspace.unfilled()?;
    if invocation.ui.json() {
        invocation.ui.data(&json!({
            "schema": SCHEMA, "fetched": done, "bytes": bytes, "failed": failed.len(),
            "files_not_here": left.files, "bytes_not_here": left.bytes,
        }));
    }
    if !failed.is_empty() {
        return Err(refusal(&failed));
    }
    let (files, bytes) = (count(done, "file"), size(bytes));
    invocation.ui.note(match (done, left.files) {
        (0, 0) => "Already here: every file of this replica is".to_owned(),
        (_, 0) => format!("Fetched {files}, {bytes}: everything is here"),
        (_, left) => format!("Fetched {files}, {bytes}; {} not here yet", count(left, "file")),
    });
    Ok(0)
}

fn refusal(failed: &[(WorkspacePath, NotFetched)]) -> CommandError {
    let words = match failed {
        [(_, why)] => printable(&why.words).into_owned(),
        _ => format!("Could not fetch {}", count(failed.len() as u64, "file")),
    };
    let hints = failed.iter().skip(usize::from(failed.len() == 1)).take(NAMED);
    let error = CommandError::failed("not_fetched", words);
    hints.fold(error, |error, (_, why)| error.hinted(printable(&why.words).into_owned()))
}

/// Files that are asked for by several threads.
#[derive(Default)]
struct Fetching<'f> {
    files: &'f [(WorkspacePath, u64)],
    directory: PathBuf,
    next: AtomicUsize,
    done: AtomicU64,
    bytes: AtomicU64,
    failed: Mutex<Vec<(WorkspacePath, NotFetched)>>,
}

impl Fetching<'_> {
    fn so_far(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn work(&self) {
        while let Some((path, size)) = self.files.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            match ask_to_fetch(&self.directory, path) {
                Ok(()) => {
                    self.done.fetch_add(1, Ordering::Relaxed);
                    self.bytes.fetch_add(*size, Ordering::Relaxed);
                }
                Err(why) => {
                    if let Ok(mut failed) = self.failed.lock() {
                        failed.push((path.clone(), why));
                    }
                }
            }
        }
    }
}

/// Asks the process that is connected, for a mount.
pub(crate) struct Asking {
    directory: PathBuf,
}

impl Asking {
    /// For a workspace that is a lazy replica; others have every content.
    pub(crate) fn of(workspace: &Workspace) -> Result<Option<Self>, CommandError> {
        Ok(workspace.is_lazy()?.then(|| Self { directory: workspace.home_directory() }))
    }
}

impl Fill for Asking {
    fn fill(&self, path: &[u8]) -> Result<(), Errno> {
        let path = WorkspacePath::new(path).map_err(|_| Errno::EIO)?;
        ask_to_fetch(&self.directory, &path).map_err(|why| Errno::from_i32(why.errno))
    }
}
