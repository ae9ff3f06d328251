//! A mounted directory of a test, and somebody who notes what is asked and told.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chronicle_mount::{
    Caller, Errno, Magic, Mounted, NoMagic, Operation, Settings, Versions, mount,
};
use tempfile::TempDir;

/// Notes everything, and refuses when told to.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    lines: Mutex<Vec<String>>,
    pub(crate) refusal: Mutex<Option<Errno>>,
    /// Where the backing files are, to see what they are at each moment.
    backing: Mutex<PathBuf>,
}

fn text(paths: &[Vec<u8>]) -> String {
    let mut all: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
    all.sort();
    all.join("+")
}

impl Notes {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    /// From now on only names are noted, not what stands there.
    pub(crate) fn look_away(&self) {
        *self.backing.lock().unwrap() = "/nowhere".into();
    }

    fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    /// In words, with what stands at the first path, so that the order shows.
    fn words(&self, operation: &Operation<'_>) -> String {
        let one = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let (what, first) = match operation {
            Operation::Write { paths, truncates, .. } => {
                let word = if *truncates { "truncate" } else { "write" };
                (format!("{word} {}", text(paths)), paths.first().map(|path| one(path)))
            }
            Operation::Create { path, .. } => (format!("create {}", one(path)), Some(one(path))),
            Operation::Remove { path, .. } => (format!("remove {}", one(path)), Some(one(path))),
            Operation::Rename { from, to, exchange } => {
                let word = if *exchange { "exchange" } else { "rename" };
                (format!("{word} {} {}", one(from), one(to)), Some(one(to)))
            }
            Operation::Link { from, to } => {
                (format!("link {} {}", one(from), one(to)), Some(one(to)))
            }
            Operation::Attributes { paths } => {
                (format!("attributes {}", text(paths)), paths.first().map(|path| one(path)))
            }
        };
        let stands = first.map(|path| self.backing.lock().unwrap().join(path));
        // A symlink is not followed: it may lead into the mount, which waits for us.
        let stands = stands.map(|path| match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => {
                format!("={}", std::fs::read_to_string(&path).unwrap_or_default())
            }
            Ok(found) if found.is_dir() => "=/".to_owned(),
            _ => String::new(),
        });
        format!("{what}{}", stands.unwrap_or_default())
    }
}

impl Versions for Notes {
    fn before(&self, _: &Caller, operation: &Operation<'_>) -> Result<(), Errno> {
        self.note(format!("before {}", self.words(operation)));
        self.refusal.lock().unwrap().map_or(Ok(()), Err)
    }

    fn after(&self, _: &Caller, operation: &Operation<'_>, outcome: Result<(), Errno>) {
        let failed = outcome.err().map(|error| format!(" failed {}", error.code()));
        self.note(format!("after {}{}", self.words(operation), failed.unwrap_or_default()));
    }

    fn closed(&self, _: &Caller, paths: &[Vec<u8>]) {
        self.note(format!("closed {}", text(paths)));
    }

    fn synced(&self, paths: &[Vec<u8>]) -> Result<(), Errno> {
        self.note(format!("synced {}", text(paths)));
        Ok(())
    }
}

/// A backing directory, a mount of it, and the notes.
pub(crate) struct World {
    pub(crate) mounted: Option<Mounted>,
    pub(crate) notes: Arc<Notes>,
    backing: TempDir,
    at: TempDir,
}

impl World {
    /// Mounted as usual; None, and noted as skipped, where there is no FUSE.
    pub(crate) fn new(test: &str) -> Option<Self> {
        Self::with(test, |_| {}, Arc::new(NoMagic))
    }

    /// The same without data passed through by the kernel.
    pub(crate) fn by_requests(test: &str) -> Option<Self> {
        Self::with(test, |settings| settings.passthrough = false, Arc::new(NoMagic))
    }

    pub(crate) fn with(
        test: &str,
        change: impl FnOnce(&mut Settings),
        magic: Arc<dyn Magic>,
    ) -> Option<Self> {
        if !has_fuse(test) {
            return None;
        }
        let (backing, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let notes = Arc::new(Notes::default());
        *notes.backing.lock().unwrap() = backing.path().to_owned();
        let mut settings = Settings::new(backing.path(), at.path());
        change(&mut settings);
        let versions: Arc<dyn Versions> = Arc::clone(&notes) as _;
        let mounted = mount(&settings, versions, magic).unwrap();
        Some(Self { mounted: Some(mounted), notes, backing, at })
    }

    pub(crate) fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    /// A path in the mount.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.at.path().join(path)
    }

    /// The same path in the backing directory.
    pub(crate) fn below(&self, path: &str) -> PathBuf {
        self.backing.path().join(path)
    }

    /// Does something in the mount by another process; its output.
    pub(crate) fn sh(&self, script: &str) -> String {
        run(script, self.at.path())
    }

    /// Does something in the backing directory, as somebody else would.
    pub(crate) fn outside(&self, script: &str) -> String {
        run(script, self.backing.path())
    }

    /// What was noted since the last time, once everything that was closed is released.
    pub(crate) fn noted(&self) -> Vec<String> {
        self.notes.take()
    }

    /// Waits until something was noted: a release comes after the close that caused it.
    pub(crate) fn wait_for(&self, line: &str) -> Vec<String> {
        let begun = Instant::now();
        let mut all = Vec::new();
        while begun.elapsed() < Duration::from_secs(5) {
            all.extend(self.notes.take());
            if all.iter().any(|noted| noted == line) {
                return all;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("{line:?} was not noted, but {all:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
    }
}

/// Whether something can be mounted here; noted if not.
pub(crate) fn has_fuse(test: &str) -> bool {
    let has = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !has {
        chronicle_testing::shared::skip(test, "needs /dev/fuse");
    }
    has
}

/// Runs a script that must succeed.
#[track_caller]
pub(crate) fn run(script: &str, within: &std::path::Path) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(within).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
