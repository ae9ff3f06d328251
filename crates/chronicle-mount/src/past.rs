//! The past as a tree of files: `at/TARGET/PATH`, `query/PATH`, `turns/N`, `status`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use chronicle_core::{Entry, Error, LogQuery, Seq, Workspace, WorkspacePath};
use fuser::Errno;

use crate::magic::{Magic, MagicEntry, MagicFile, MagicKind};
use crate::recorder::Recorder;

/// Directories of the past that are remembered at once.
const REMEMBERED_MOST: usize = 512;
/// Content up to this length is kept in memory while it is open.
const IN_MEMORY: u64 = 1 << 20;

type Standing = Arc<BTreeMap<Vec<u8>, Entry>>;

/// The past of one workspace.
pub struct Past {
    recorder: Arc<Recorder>,
    scratch: std::path::PathBuf,
    owner: (u32, u32),
    remembered: Mutex<HashMap<(Seq, WorkspacePath), Standing>>,
}

/// What a path below the magic directory means.
enum Place {
    /// A directory of ours.
    Top(&'static [&'static str]),
    /// `turns` itself.
    Turns,
    /// One turn.
    Turn(u64),
    /// The names of moments.
    Moments,
    /// Something at a moment.
    At(Seq, WorkspacePath),
    /// The iterations of something.
    Query(WorkspacePath),
    /// What `status` says.
    Status,
}

const TOP: [&str; 4] = ["at", "query", "status", "turns"];

impl Past {
    /// The past of what a recorder records; large files are unpacked into files without a name in `scratch`.
    pub fn new(recorder: Arc<Recorder>, scratch: &std::path::Path, owner: (u32, u32)) -> Self {
        let remembered = Mutex::default();
        Self { recorder, scratch: scratch.to_owned(), owner, remembered }
    }

    fn place(&self, names: &[Vec<u8>]) -> Result<Place, Errno> {
        let Some((first, rest)) = names.split_first() else { return Ok(Place::Top(&TOP)) };
        match (&first[..], rest) {
            (b"status", []) => Ok(Place::Status),
            (b"turns", []) => Ok(Place::Turns),
            (b"turns", [name]) => {
                let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
                number.map(Place::Turn).ok_or(Errno::ENOENT)
            }
            (b"at", []) => Ok(Place::Moments),
            (b"at", [target, below @ ..]) => {
                let target = std::str::from_utf8(target).map_err(|_| Errno::ENOENT)?;
                Ok(Place::At(self.position(target)?, joined(below)?))
            }
            (b"query", below) => Ok(Place::Query(joined(below)?)),
            _ => Err(Errno::ENOENT),
        }
    }

    fn position(&self, target: &str) -> Result<Seq, Errno> {
        let target = spelled(target);
        self.recorder.workspace().position_of(&target).map_err(|error| errno(&error))
    }

    fn standing(&self, moment: Seq, directory: &WorkspacePath) -> Result<Standing, Errno> {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (moment, directory.clone());
        if let Some(standing) = remembered.get(&key) {
            return Ok(Arc::clone(standing));
        }
        let found = self.recorder.workspace().directory_at(moment, directory);
        let standing = Arc::new(found.map_err(|error| errno(&error))?);
        // What comes after the last record changes what stands just after it.
        let last = self.recorder.workspace().last_position().map_err(|error| errno(&error))?;
        if moment < last {
            if remembered.len() >= REMEMBERED_MOST {
                remembered.clear();
            }
            remembered.insert(key, Arc::clone(&standing));
        }
        Ok(standing)
    }

    fn entry_at(&self, moment: Seq, path: &WorkspacePath) -> Result<Entry, Errno> {
        let Some(parent) = path.parent() else { return Err(Errno::EISDIR) };
        self.standing(moment, &parent)?.get(path.name()).cloned().ok_or(Errno::ENOENT)
    }

    fn directory(&self) -> MagicEntry {
        let (uid, gid) = self.owner;
        MagicEntry { kind: MagicKind::Directory, size: 0, mode: 0o555, uid, gid, mtime_ns: 0 }
    }

    fn text(&self, size: u64) -> MagicEntry {
        MagicEntry { kind: MagicKind::File, size, mode: 0o444, ..self.directory() }
    }

    fn shown(&self, entry: &Entry) -> Result<MagicEntry, Errno> {
        let (kind, size) = match entry {
            Entry::File(file) => (MagicKind::File, file.size),
            Entry::Directory(_) => (MagicKind::Directory, 0),
            Entry::Symlink(link) => (MagicKind::Symlink, link.target.len() as u64),
            _ => return Err(Errno::ENOENT),
        };
        let meta = entry.meta().ok_or(Errno::ENOENT)?;
        let (mode, uid, gid) = (meta.mode & 0o777 & !0o222, meta.uid, meta.gid);
        Ok(MagicEntry { kind, size, mode, uid, gid, mtime_ns: meta.mtime_ns })
    }

    /// What a file of ours says.
    fn words(&self, place: &Place) -> Result<Vec<u8>, Errno> {
        self.recorder.catch_up(true);
        let mut workspace = self.recorder.workspace();
        let said = match place {
            Place::Status => workspace.status().map(|status| to_line(&status)),
            Place::Turn(number) => turn(&workspace, *number),
            Place::Query(path) => {
                workspace.history(path).map(|found| found.iter().rev().flat_map(to_line).collect())
            }
            _ => return Err(Errno::EISDIR),
        };
        said.map_err(|error| errno(&error))
    }

    /// Whether something was ever a directory.
    fn is_directory(&self, path: &WorkspacePath) -> Result<bool, Errno> {
        if path.is_root() {
            return Ok(true);
        }
        let last = self.recorder.workspace().last_position().map_err(|error| errno(&error))?;
        let now = self.entry_at(last, path);
        Ok(now.is_ok_and(|entry| entry.is_directory()))
    }
}

impl Magic for Past {
    fn lookup(&self, parent: &[Vec<u8>], name: &[u8]) -> Result<MagicEntry, Errno> {
        let names: Vec<_> = parent.iter().cloned().chain([name.to_vec()]).collect();
        match self.place(&names)? {
            Place::Top(_) | Place::Turns | Place::Moments => Ok(self.directory()),
            Place::At(_, path) if path.is_root() => Ok(self.directory()),
            Place::At(moment, path) => self.shown(&self.entry_at(moment, &path)?),
            Place::Query(path) if self.is_directory(&path)? => Ok(self.directory()),
            place => {
                let words = self.words(&place)?;
                match words.is_empty() {
                    true => Err(Errno::ENOENT),
                    false => Ok(self.text(words.len() as u64)),
                }
            }
        }
    }

    fn list(&self, directory: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, MagicKind)>, Errno> {
        match self.place(directory)? {
            Place::Top(names) => {
                let kind = |name: &str| match name {
                    "status" => MagicKind::File,
                    _ => MagicKind::Directory,
                };
                Ok(names.iter().map(|name| (name.as_bytes().to_vec(), kind(name))).collect())
            }
            Place::Turns => {
                let turns = turns(&self.recorder.workspace()).map_err(|error| errno(&error))?;
                Ok(turns.iter().map(|n| (n.to_string().into_bytes(), MagicKind::File)).collect())
            }
            Place::Moments => {
                let turns = turns(&self.recorder.workspace()).map_err(|error| errno(&error))?;
                let names = turns.iter().map(|number| format!("turn-{number}"));
                let all = ["start".to_owned()].into_iter().chain(names);
                Ok(all.map(|name| (name.into_bytes(), MagicKind::Directory)).collect())
            }
            Place::At(moment, path) => {
                if !path.is_root() && !self.entry_at(moment, &path)?.is_directory() {
                    return Err(Errno::ENOTDIR);
                }
                Ok(kinds(&*self.standing(moment, &path)?))
            }
            Place::Query(path) => {
                self.recorder.catch_up(false);
                let last =
                    self.recorder.workspace().last_position().map_err(|error| errno(&error))?;
                let mut found = kinds(&*self.standing(last, &path)?);
                found
                    .iter_mut()
                    .filter(|(_, kind)| *kind == MagicKind::Symlink)
                    .for_each(|one| one.1 = MagicKind::File);
                Ok(found)
            }
            Place::Turn(_) | Place::Status => Err(Errno::ENOTDIR),
        }
    }

    fn is_costly(&self, directory: &[Vec<u8>]) -> bool {
        directory.first().is_some_and(|first| matches!(&first[..], b"query" | b"turns"))
    }

    fn open(&self, path: &[Vec<u8>]) -> Result<Box<dyn MagicFile>, Errno> {
        match self.place(path)? {
            Place::At(moment, path) => {
                let entry = self.entry_at(moment, &path)?;
                let Entry::File(file) = &entry else { return Err(Errno::EISDIR) };
                let workspace = self.recorder.workspace();
                if file.size <= IN_MEMORY {
                    let mut bytes = Vec::new();
                    workspace
                        .write_past(&path, &entry, &mut bytes)
                        .map_err(|error| errno(&error))?;
                    return Ok(Box::new(InMemory(bytes)));
                }
                let mut scratch = tempfile::tempfile_in(&self.scratch).map_err(|_| Errno::EIO)?;
                workspace.write_past(&path, &entry, &mut scratch).map_err(|error| errno(&error))?;
                scratch.flush().map_err(|_| Errno::EIO)?;
                Ok(Box::new(OnDisk(scratch, file.size)))
            }
            place => {
                self.words(&place).map(|words| Box::new(InMemory(words)) as Box<dyn MagicFile>)
            }
        }
    }

    fn readlink(&self, path: &[Vec<u8>]) -> Result<Vec<u8>, Errno> {
        let Place::At(moment, path) = self.place(path)? else { return Err(Errno::EINVAL) };
        match self.entry_at(moment, &path)? {
            Entry::Symlink(link) => Ok(link.target),
            _ => Err(Errno::EINVAL),
        }
    }
}

struct InMemory(Vec<u8>);

impl MagicFile for InMemory {
    fn read_at(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let end = start.saturating_add(size).min(self.0.len());
        Ok(self.0[start..end].to_vec())
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }
}

struct OnDisk(File, u64);

impl MagicFile for OnDisk {
    fn read_at(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let left = self.1.saturating_sub(offset).min(size as u64);
        let mut bytes = vec![0; usize::try_from(left).map_err(|_| Errno::EINVAL)?];
        self.0.read_exact_at(&mut bytes, offset).map_err(|_| Errno::EIO)?;
        Ok(bytes)
    }

    fn size(&self) -> u64 {
        self.1
    }
}

/// A target as it is spelled elsewhere: in a name of a directory a `-` may stand for the `:`.
fn spelled(target: &str) -> String {
    for (dashed, plain) in [("before-", "before:"), ("after-", "after:")] {
        if let Some(rest) = target.strip_prefix(dashed) {
            return format!("{plain}{}", spelled(rest));
        }
    }
    for (dashed, plain) in [("turn-", "turn:"), ("seq-", "seq:")] {
        if let Some(rest) = target.strip_prefix(dashed) {
            return format!("{plain}{rest}");
        }
    }
    target.to_owned()
}

fn joined(names: &[Vec<u8>]) -> Result<WorkspacePath, Errno> {
    WorkspacePath::new(names.join(&b'/')).map_err(|_| Errno::ENOENT)
}

fn kinds(standing: &BTreeMap<Vec<u8>, Entry>) -> Vec<(Vec<u8>, MagicKind)> {
    let kind = |entry: &Entry| match entry {
        Entry::File(_) => Some(MagicKind::File),
        Entry::Directory(_) => Some(MagicKind::Directory),
        Entry::Symlink(_) => Some(MagicKind::Symlink),
        _ => None,
    };
    standing.iter().filter_map(|(name, entry)| Some((name.clone(), kind(entry)?))).collect()
}

fn to_line(value: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

fn turns(workspace: &Workspace) -> Result<Vec<u64>, Error> {
    let mut numbers: Vec<u64> = workspace.turns()?.iter().map(|turn| turn.number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What happened in one turn, one snapshot to a line.
fn turn(workspace: &Workspace, number: u64) -> Result<Vec<u8>, Error> {
    let query = LogQuery { turn: Some(number), ..LogQuery::default() };
    Ok(workspace.log(&query)?.iter().flat_map(to_line).collect())
}

/// What somebody hears who asks for what cannot be shown.
fn errno(error: &Error) -> Errno {
    match error {
        Error::UnknownTarget(_) | Error::NoContent { .. } => Errno::ENOENT,
        Error::Secret(_) => Errno::EACCES,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_may_stand_for_the_colon() {
        for (given, expected) in [
            ("turn-3", "turn:3"),
            ("turn--1", "turn:-1"),
            ("turn:3", "turn:3"),
            ("before-turn-3", "before:turn:3"),
            ("seq-12", "seq:12"),
            ("start", "start"),
            ("2026-11-16T10:00:00Z", "2026-11-16T10:00:00Z"),
        ] {
            assert_eq!(spelled(given), expected);
        }
    }
}
