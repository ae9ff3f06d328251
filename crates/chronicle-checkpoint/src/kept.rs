//! The checkpoints that there are: finding, reading, comparing, verifying and dropping them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronicle_core::{CheckpointRecord, ContentStorage, Error as CoreError, Workspace};
use serde::Serialize;

use crate::contents::Contents;
use crate::driver::Site;
use crate::drivers;
use crate::error::{Error, Problem, Result};
use crate::lockfile::{LockFile, LockedPart};
use crate::part::{Part, PartKind};

const OTHER: &str = "Restore another checkpoint: chronicle checkpoint list";

/// The checkpoint that people name: by its name, `latest`, or a part of its id of 6 digits or more.
pub fn find(workspace: &Workspace, text: &str) -> Result<CheckpointRecord> {
    let all = workspace.checkpoints()?;
    if text == "latest" {
        let newest = all.into_iter().rfind(|it| !it.dropped);
        return newest.ok_or_else(|| Error::Unknown(text.to_owned()));
    }
    if let Some(named) = all.iter().rfind(|it| !it.dropped && it.name.as_deref() == Some(text)) {
        return Ok(named.clone());
    }
    let part: String = text.chars().filter(|c| *c != '-').collect::<String>().to_lowercase();
    let fits = |it: &&CheckpointRecord| part.len() >= 6 && it.id.hex().contains(&part);
    let fitting: Vec<_> = all.iter().filter(fits).collect();
    match fitting[..] {
        [one] => Ok(one.clone()),
        [] => Err(Error::Unknown(text.to_owned())),
        _ => Err(CoreError::Ambiguous {
            given: text.to_owned(),
            candidates: fitting.iter().map(|it| it.id.short()).collect(),
        }
        .into()),
    }
}

/// The lock file of a checkpoint, as it was written.
pub fn lock_text(workspace: &Workspace, record: &CheckpointRecord) -> Result<String> {
    if record.dropped {
        let why = format!("checkpoint {} was dropped", record.id.short());
        return Err(Problem::new("dropped", why, OTHER).into());
    }
    let bytes = workspace.content_store()?.get(&record.holds.lock).map_err(|error| match error {
        CoreError::Missing(_) => {
            let why = "its lock file is not in this home: what checkpoints hold stays on the machine \
                       that made them";
            Error::from(Problem::new("lock_missing", why, "Restore it where it was made"))
        }
        error @ CoreError::Corrupt { .. } => {
            Problem::new("lock_damaged", error.to_string(), OTHER).into()
        }
        other => other.into(),
    })?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| Problem::new("bad_lock", "the lock file is no text", OTHER).into())
}

/// The lock file of a checkpoint, read and compared with its record in the chain.
pub fn load(workspace: &Workspace, record: &CheckpointRecord) -> Result<LockFile> {
    let text = lock_text(workspace, record)?;
    let lock = LockFile::parse(&text, workspace.signing_key()?.as_ref())?;
    let bad = |code, why: &str| Err(Problem::new(code, why, OTHER).into());
    if lock.id != record.id.to_string() {
        return bad("other_checkpoint", "the lock file is another checkpoint's");
    }
    if lock.workspace != workspace.id().hex() {
        return bad("other_workspace", "the lock file is another workspace's");
    }
    if lock.contents != record.holds.contents || lock.moment != record.moment.0 {
        return bad("lock_differs", "the lock file does not say what the chain says");
    }
    if workspace.link_at(record.moment)?.link.hex() != lock.link {
        return bad("other_history", "the log is not the one that the checkpoint was made in");
    }
    Ok(lock)
}

/// The newest lock file that can be read; it only saves work.
pub(crate) fn newest(workspace: &Workspace) -> Option<LockFile> {
    let record = find(workspace, "latest").ok()?;
    load(workspace, &record).ok()
}

/// A part of a checkpoint as a part to work on.
pub(crate) fn as_part(locked: &LockedPart, root: &Path) -> Part {
    let path = match locked.kind {
        PartKind::Database => PathBuf::new(),
        _ => root.join(&locked.path).components().collect(),
    };
    Part::new(&locked.name, locked.kind, &path)
}

/// What verifying a checkpoint found.
#[derive(Debug, Clone, Serialize)]
pub struct Verified {
    /// What is wrong; nothing where everything is well.
    pub problems: Vec<Problem>,
    /// How many objects were read back.
    pub objects: u64,
    /// How many bytes the parts have.
    pub bytes: u64,
}

/// Reads back everything that a checkpoint holds, without restoring it.
pub fn verify(workspace: &Workspace, record: &CheckpointRecord) -> Result<Verified> {
    let mut problems = Vec::new();
    let lock = match load(workspace, record) {
        Ok(lock) => lock,
        Err(error @ (Error::Refused(_) | Error::Core(_))) => {
            return Ok(Verified { problems: vec![error_problem(error)], objects: 0, bytes: 0 });
        }
        Err(error) => return Err(error),
    };
    let place = workspace.checkpoint_place()?;
    let store = workspace.content_store()?;
    let contents = Contents::read_only(&store);
    let id = record.id.hex();
    let site = Site { contents: &contents, place: &place, id: &id, previous: None };
    for part in &lock.parts {
        let verified = match drivers::named(&part.captured.driver) {
            Some(driver) => driver.verify(&part.captured, &site),
            None => Err(unknown_driver(part).into()),
        };
        problems.extend(verified.err().map(|error| error.into_problem(&part.name)));
    }
    // Each part says best what is wrong with it; the list says whether there is more.
    let of_parts = problems.len();
    let mut objects = 0;
    let kept = contents.get(&lock.contents).err().map(|error| match error {
        Error::Core(CoreError::Missing(_)) => "missing_contents",
        _ => "damaged_contents",
    });
    match workspace.checkpoint_contents(&lock.contents) {
        Ok(needed) => {
            objects = needed.len() as u64;
            for id in needed {
                if of_parts == 0 && !contents.exists(&id)? {
                    let why = format!("content {id} is not in the store");
                    problems.push(Problem::new("missing_content", why, OTHER));
                }
            }
        }
        Err(error) => {
            let why = format!("the list of its contents cannot be read: {error}");
            problems.push(Problem::new(kept.unwrap_or("bad_contents"), why, OTHER));
        }
    }
    let bytes = lock.parts.iter().map(|part| part.captured.bytes).sum();
    Ok(Verified { problems, objects, bytes })
}

fn error_problem(error: Error) -> Problem {
    match error {
        Error::Refused(problem) => problem,
        other => Problem::new(other.code(), crate::error::sentence(&other), OTHER),
    }
}

pub(crate) fn unknown_driver(part: &LockedPart) -> Problem {
    let why = format!("no driver here is called {:?}", part.captured.driver);
    let next = "Use the version of Chronicle that made it, or a later one";
    Problem::new("unknown_driver", why, next).of(&part.name)
}

/// How two checkpoints differ in one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartDifference {
    /// The part.
    pub part: String,
    /// What it is.
    pub kind: &'static str,
    /// `same`, `changed`, `added` or `removed`.
    pub change: &'static str,
    /// The revision on either side, of the repository or the schema.
    pub from: Option<String>,
    /// The same on the later side.
    pub to: Option<String>,
}

/// How two checkpoints differ, part by part.
pub fn compare(from: &LockFile, to: &LockFile) -> Vec<PartDifference> {
    let names: BTreeMap<_, _> =
        from.parts.iter().chain(&to.parts).map(|part| (&part.name, part.kind)).collect();
    let revision = |part: Option<&LockedPart>| {
        part.and_then(|part| part.schema.clone().or_else(|| part.captured.revision.clone()))
    };
    let difference = |(name, kind): (&String, PartKind)| {
        let (old, new) = (from.part(name), to.part(name));
        let change = match (old, new) {
            (Some(old), Some(new)) if old.captured.digest == new.captured.digest => "same",
            (Some(_), Some(_)) => "changed",
            (None, _) => "added",
            (_, None) => "removed",
        };
        let (from, to) = (revision(old), revision(new));
        PartDifference { part: name.clone(), kind: kind.word(), change, from, to }
    };
    names.into_iter().map(difference).collect()
}

/// Drops checkpoints: first the log says so, then drivers remove what is theirs. Contents that nothing
/// else needs go with the next garbage collection.
pub fn drop_all(workspace: &mut Workspace, records: &[CheckpointRecord], why: &str) -> Result<()> {
    let _guard = workspace.checkpoint_guard()?.ok_or(Error::Busy)?;
    let place = workspace.checkpoint_place()?;
    for record in records {
        let lock = load(workspace, record);
        workspace.drop_checkpoint(record.id, why)?;
        chronicle_core::failpoint::hit("checkpoint_after_drop");
        let Ok(lock) = lock else { continue };
        let store = workspace.content_store()?;
        let contents = Contents::read_only(&store);
        let id = record.id.hex();
        let site = Site { contents: &contents, place: &place, id: &id, previous: None };
        for part in &lock.parts {
            if let Some(driver) = drivers::named(&part.captured.driver) {
                driver.discard(&part.captured, &site)?;
            }
        }
    }
    Ok(())
}
