//! Which formats this program reads and writes, and which a home is in: looks, and never writes.
//!
//! Every format carries a number. Who meets a number that he does not know says so and stops; this is how that is
//! found out before it happens.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::apply::SCRIPT_VERSION;
use crate::catalog::{self, FORGETTING};
use crate::codec::FORMAT_VERSION;
use crate::error::{Context, Error, Result};
use crate::home::Home;
use crate::id::WorkspaceId;
use crate::repository::BUNDLE_VERSION;
use crate::store::formats as store;
use crate::view::{Format, FormatFound, SCHEMA, UpgradeReport, UpgradeVerdict, UpgradeWorkspace};
use crate::{isolated, journal, mirror, watch};

const CATALOG: Format =
    format("catalog", "`user_version` of `catalog.db`", 1, catalog::SCHEMA_VERSION);
const RECORD: Format = format("record", "first byte of a leaf", 1, FORMAT_VERSION as u64);
const MOUNT: Format = format(
    "journal of a mount",
    "last of the first 8 bytes of `mount/journal-N`",
    1,
    (journal::MAGIC[7] - b'0') as u64,
);
const ISOLATED: Format = format(
    "isolated run",
    "last of the first 8 bytes of `isolated/RUN/state`",
    1,
    isolated::STATE_MAGIC[7] as u64,
);

/// The formats of this crate, in the order of docs/format.md.
pub const FORMATS: &[Format] = &[
    CATALOG,
    RECORD,
    store::STORE,
    store::PACK,
    store::INDEX,
    store::OBJECT,
    store::PIECES,
    format("repository bundle", "first byte", 1, BUNDLE_VERSION as u64),
    format("steps of a rewind", "first byte, in `state` and `plan`", 1, SCRIPT_VERSION as u64),
    MOUNT,
    ISOLATED,
    format("run of records", "`chr-sgm1`", 1, (mirror::SEGMENT_MAGIC[7] - b'0') as u64),
    format("state at a moment", "`chr-std1`", 1, (mirror::STANDING_MAGIC[7] - b'0') as u64),
    format("signed head", "first line, `chronicle/1`", 1, 1),
    format("grant", "first line, `chronicle-grant/1`", 1, 1),
    format("list of contents", "first line, `chronicle contents 1`", 1, 1),
    format("pool", "`chronicle-pool`, `chronicle pool 1`", 1, 1),
    format("watcher's socket", "first byte of a message", 1, watch::PROTOCOL_VERSION as u64),
    format("JSON", "`schema`", 1, SCHEMA as u64),
];

/// A format, in one line.
pub const fn format(name: &'static str, place: &'static str, oldest: u64, newest: u64) -> Format {
    Format { name, place, oldest, newest }
}

/// The versions of one format, as they are found.
#[derive(Debug)]
pub(crate) struct Tally {
    format: Format,
    found: BTreeMap<u64, u64>,
    problems: Vec<String>,
}

impl Tally {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, found: BTreeMap::new(), problems: Vec::new() }
    }

    pub(crate) fn add(&mut self, version: u64) {
        *self.found.entry(version).or_default() += 1;
    }

    /// Notes what cannot be read.
    pub(crate) fn damaged(&mut self, path: &Path, why: &str) {
        self.problems.push(format!("{}: {why}", path.display()));
    }

    /// Reads the number at the beginning of a file: a magic word, and behind it what `number` makes of the rest.
    pub(crate) fn read<const N: usize>(
        &mut self,
        path: &Path,
        magic: &[u8],
        number: fn(&[u8]) -> u64,
    ) {
        match beginning::<N>(path) {
            Ok(Some(head)) => match head.strip_prefix(magic) {
                Some(rest) if head.len() == N => self.add(number(rest)),
                // Whoever made it died before it was anything.
                _ if head.is_empty() => {}
                _ => self.damaged(path, "it does not begin as it should"),
            },
            Ok(None) => {}
            Err(error) => self.damaged(path, &error.to_string()),
        }
    }

    pub(crate) fn end(self) -> FormatFound {
        let Format { oldest, newest, .. } = self.format;
        let verdict = match (self.found.keys().next(), self.found.keys().next_back()) {
            (_, Some(&last)) if last > newest => UpgradeVerdict::Newer,
            _ if !self.problems.is_empty() => UpgradeVerdict::Damaged,
            (Some(&first), _) if first < oldest => UpgradeVerdict::Damaged,
            (Some(&first), _) if first < newest => UpgradeVerdict::Older,
            _ => UpgradeVerdict::Current,
        };
        let (found, count) = (self.found.keys().copied().collect(), self.found.values().sum());
        FormatFound { format: self.format, found, count, verdict, problems: self.problems }
    }
}

/// The first bytes of a file, fewer if it is shorter; `None` where there is none.
pub(crate) fn beginning<const N: usize>(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut head = Vec::with_capacity(N);
    file.take(N as u64).read_to_end(&mut head)?;
    Ok(Some(head))
}

/// What a directory holds, sorted; nothing where there is none.
pub(crate) fn inside(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at("list", directory)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        all.push(entry.at("list", directory)?.path());
    }
    all.sort();
    Ok(all)
}

impl Home {
    /// Says what would happen if this program took the home over; changes nothing, and needs no lock.
    pub fn upgrade_check(&self) -> Result<UpgradeReport> {
        if !self.path().is_dir() {
            return Err(Error::NoWorkspace(self.path().to_owned()));
        }
        let formats = store::look(&self.store())?;
        let mut workspaces = Vec::new();
        let roots: BTreeMap<_, _> = self.workspaces()?.into_iter().collect();
        for directory in inside(&self.path().join("workspaces"))? {
            let name = directory.file_name().and_then(|name| name.to_str());
            if let Some(id) = name.and_then(|name| name.parse::<WorkspaceId>().ok()) {
                let root = roots.get(&id).map(|root| root.display().to_string());
                workspaces.push(look(&directory, id, root)?);
            }
        }
        let stat = rustix::fs::statvfs(self.path()).at("examine", self.path())?;
        let migrates = |it: &&UpgradeWorkspace| it.verdict == UpgradeVerdict::Migrates;
        let needed = workspaces.iter().filter(migrates).map(|it| it.catalog_bytes).sum();
        let verdicts = formats.iter().map(|it| it.verdict);
        let verdict = verdicts.chain(workspaces.iter().map(|it| it.verdict)).max();
        Ok(UpgradeReport {
            schema: SCHEMA,
            program: env!("CARGO_PKG_VERSION"),
            home: self.path().display().to_string(),
            verdict: verdict.unwrap_or_default(),
            formats,
            workspaces,
            bucket: None,
            bytes_needed: needed,
            bytes_free: stat.f_bavail * stat.f_frsize,
        })
    }
}

/// One workspace, by its directory in the home.
fn look(directory: &Path, id: WorkspaceId, root: Option<String>) -> Result<UpgradeWorkspace> {
    let (mut records, mut unfinished) = (0, Vec::new());
    let mut formats = look_at_catalog(directory, &mut records, &mut unfinished);
    let mut journals = Tally::new(MOUNT);
    for path in inside(&directory.join(journal::DIRECTORY))? {
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"journal-")) {
            journals.read::<8>(&path, &journal::MAGIC[..7], |rest| {
                u64::from(rest[0]).wrapping_sub(u64::from(b'0'))
            });
        }
    }
    let mut runs = Tally::new(ISOLATED);
    for path in inside(&directory.join("isolated"))? {
        runs.read::<8>(&path.join("state"), &isolated::STATE_MAGIC[..7], |rest| rest[0].into());
    }
    formats.extend([journals, runs].map(Tally::end).into_iter().filter(|it| it.count > 0));
    if formats.iter().any(|it| it.format == ISOLATED) {
        unfinished.push("isolated runs that nobody decided about".to_owned());
    }
    let verdict = formats.iter().map(|it| it.verdict).max().unwrap_or_default();
    let usable = verdict < UpgradeVerdict::Damaged;
    let length = |name: &str| fs::metadata(directory.join(name)).map_or(0, |stat| stat.len());
    Ok(UpgradeWorkspace {
        id: id.hex(),
        root,
        verdict,
        reads: usable,
        writes: usable,
        records,
        formats,
        unfinished,
        running: running(directory),
        catalog_bytes: length("catalog.db") + length("catalog.db-wal"),
    })
}

fn look_at_catalog(
    directory: &Path,
    records: &mut u64,
    unfinished: &mut Vec<String>,
) -> Vec<FormatFound> {
    let path = directory.join("catalog.db");
    let (mut tables, mut leaves) = (Tally::new(CATALOG), Tally::new(RECORD));
    let found = match catalog::inspect(&path) {
        Ok(found) => found,
        Err(error) => {
            let causes = std::iter::successors(std::error::Error::source(&error), |it| it.source());
            let words: Vec<_> = causes.map(ToString::to_string).collect();
            tables.damaged(&path, &words.join(": "));
            return vec![tables.end()];
        }
    };
    tables.add(found.version);
    *records = found.records;
    found.formats.iter().for_each(|version| leaves.add(*version));
    if let (count, Some(seq)) = found.damaged {
        leaves.damaged(&path, &format!("{count} records are damaged, the first is {seq}"));
    }
    for (key, words) in UNFINISHED {
        if found.state.contains(*key) {
            unfinished.push((*words).to_owned());
        }
    }
    let mut tables = tables.end();
    if tables.verdict == UpgradeVerdict::Older {
        tables.verdict = UpgradeVerdict::Migrates;
    }
    let mut leaves = leaves.end();
    leaves.count = found.records;
    if let (count, Some(seq)) = found.strange {
        leaves.verdict = UpgradeVerdict::Newer;
        let words =
            format!("{count} records say what this program does not know, the first is {seq}");
        leaves.problems.push(words);
    }
    vec![tables, leaves]
}

/// What is left in a catalog while something is under way.
const UNFINISHED: &[(&str, &str)] = &[
    ("pending_rewind", "a rewind past its commit point"),
    ("under_way", "a push or writes of a replica, half applied"),
    (FORGETTING, "content that a forget has still to take away"),
];

/// Who holds the locks of a workspace; a lock that is free is taken for no longer than it takes to ask.
fn running(directory: &Path) -> Vec<String> {
    let locks = [
        ("lock", "a command that changes it"),
        ("watch.lock", "a watcher"),
        ("mount/lock", "a mount"),
    ];
    let held = |name: &str| {
        let Ok(file) = File::open(directory.join(name)) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    };
    let held = locks.into_iter().filter(|(name, _)| held(name));
    held.map(|(_, words)| words.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn verdict(found: &[u64]) -> UpgradeVerdict {
        let mut tally = Tally::new(format("thing", "here", 2, 4));
        found.iter().for_each(|version| tally.add(*version));
        tally.end().verdict
    }

    #[test]
    fn the_worst_version_decides() {
        assert_eq!(verdict(&[]), UpgradeVerdict::Current);
        assert_eq!(verdict(&[4, 4]), UpgradeVerdict::Current);
        assert_eq!(verdict(&[2, 4]), UpgradeVerdict::Older);
        assert_eq!(verdict(&[2, 5]), UpgradeVerdict::Newer);
        assert_eq!(verdict(&[1, 4]), UpgradeVerdict::Damaged);
    }

    #[test]
    fn what_never_became_a_file_is_no_damage_and_what_is_none_of_ours_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let mut tally = Tally::new(MOUNT);
            tally.read::<8>(&path, b"chr-mnt", |rest| (rest[0] - b'0').into());
            let end = tally.end();
            (end.found, end.problems.len())
        };
        assert_eq!(read(b"chr-mnt1more"), (vec![1], 0));
        assert_eq!(read(b""), (vec![], 0));
        assert_eq!(read(b"chr-mnt"), (vec![], 1));
        assert_eq!(read(b"somebody else's"), (vec![], 1));
    }
}
