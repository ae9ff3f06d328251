//! Witnesses: places outside the home that remember heads, so that a history that was cut off, put
//! back to an older copy or led another way can be told from the true one.
//!
//! A witness is only as good as what keeps its place from whoever attacks the home: another user, a
//! medium, another machine's copy of a repository. Nothing that it shows is trusted before its
//! signature is checked.

mod file;
mod git;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::head::SignedHead;
use crate::home::Home;
use crate::id::WorkspaceId;
use crate::path::escape;

/// The longest text that is read from a witness.
const LONGEST: u64 = 1 << 30;

/// Somebody who remembers heads.
pub trait Witness: Send {
    /// Gives it a head to remember.
    fn hand_over(&self, head: &SignedHead) -> Result<()>;

    /// Every head of a workspace that it shows, with signatures that are still to be checked.
    fn seen(&self, workspace: WorkspaceId) -> Result<Vec<SignedHead>>;

    /// The newest head of a workspace that it shows and that is signed.
    fn newest(&self, workspace: WorkspaceId) -> Result<Option<SignedHead>> {
        Ok(SignedHead::newest_of(self.seen(workspace)?))
    }
}

/// A witness as it is named: its kind and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file that is only appended to.
    File(PathBuf),
    /// A git repository, with a note.
    Git(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), escape(self.path().as_os_str().as_bytes()))
    }
}

impl Place {
    /// The kind's word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Git(_) => "git",
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Git(path) => path,
        }
    }

    /// A place of this kind; `None` if there is no such kind.
    pub fn new(kind: &[u8], path: PathBuf) -> Option<Self> {
        match kind {
            b"file" => Some(Self::File(path)),
            b"git" => Some(Self::Git(path)),
            _ => None,
        }
    }

    /// The witness itself, which gives up after so long.
    pub fn witness(&self, limit: Duration) -> Box<dyn Witness> {
        match self {
            Self::File(path) => Box::new(file::FileWitness::new(path)),
            Self::Git(path) => Box::new(git::GitWitness::new(path, limit)),
        }
    }

    /// Its line in the home's list.
    pub(crate) fn line(&self) -> Vec<u8> {
        [self.kind().as_bytes(), b" ", self.path().as_os_str().as_bytes()].concat()
    }

    /// Reads a line of the home's list.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let path = PathBuf::from(OsStr::from_bytes(&line[space + 1..]));
        Self::new(&line[..space], path).filter(|place| place.path().is_absolute())
    }

    /// What went wrong with it.
    pub(crate) fn error(&self, why: impl fmt::Display) -> Error {
        Error::Witness { witness: self.to_string(), why: why.to_string() }
    }

    /// Makes the place ready: a file is made if it is not there, a repository must be one.
    fn prepare(&self) -> Result<()> {
        match self {
            Self::File(path) => file::create(path),
            Self::Git(path) => git::check(path),
        }
    }
}

impl Home {
    fn witness_list(&self) -> PathBuf {
        self.path().join("witness")
    }

    /// The witnesses that heads of this home are handed over to.
    pub fn witnesses(&self) -> Result<Vec<Place>> {
        let file = self.witness_list();
        let bytes = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes.at("read", &file)?,
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let malformed = |line: &[u8]| Error::Witness {
            witness: escape(line).to_string(),
            why: format!("{} has a line that names no witness", file.display()),
        };
        lines.map(|line| Place::parse(line).ok_or_else(|| malformed(line))).collect()
    }

    /// Adds a witness; says whether it is new.
    pub fn add_witness(&self, place: &Place) -> Result<bool> {
        let mut places = self.witnesses()?;
        if places.contains(place) {
            return Ok(false);
        }
        if place.path().as_os_str().as_bytes().contains(&b'\n') || !place.path().is_absolute() {
            return Err(Error::Usage(format!("A witness cannot lie at {place}")));
        }
        if place.path().starts_with(self.path()) {
            let why = "it lies in the home that it should watch, and would go back with it";
            return Err(Error::Usage(format!("Witness {place} is of no use: {why}")));
        }
        place.prepare()?;
        self.forget_marks(place)?;
        places.push(place.clone());
        self.write_witnesses(&places)?;
        Ok(true)
    }

    /// Hands nothing over to a witness any more; says whether it was one. What it has it keeps.
    pub fn remove_witness(&self, place: &Place) -> Result<bool> {
        let mut places = self.witnesses()?;
        let before = places.len();
        places.retain(|other| other != place);
        if places.len() == before {
            return Ok(false);
        }
        self.write_witnesses(&places)?;
        Ok(true)
    }

    /// A place that is named anew may be another one than before: it is given everything again.
    fn forget_marks(&self, place: &Place) -> Result<()> {
        let Ok(workspaces) = fs::read_dir(self.path().join("workspaces")) else { return Ok(()) };
        for directory in workspaces.flatten().map(|entry| entry.path()) {
            let mut marks = marks(&directory);
            if marks.iter().any(|(other, _)| other == place) {
                marks.retain(|(other, _)| other != place);
                write_marks(&directory, &marks)?;
            }
        }
        Ok(())
    }

    fn write_witnesses(&self, places: &[Place]) -> Result<()> {
        self.create()?;
        let lines: Vec<u8> =
            places.iter().flat_map(|place| [place.line(), b"\n".to_vec()].concat()).collect();
        replace_file(&self.witness_list(), &lines)
    }
}

/// The file of a workspace's directory that says what each witness was given.
const MARKS: &str = "handed-over";

/// What each witness was given of a workspace: only a memory, so that nobody has to ask them.
pub(crate) fn marks(directory: &Path) -> Vec<(Place, u64)> {
    let bytes = fs::read(directory.join(MARKS)).unwrap_or_default();
    let mark = |line: &[u8]| {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let size = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
        Some((Place::parse(&line[space + 1..])?, size))
    };
    bytes.split(|byte| *byte == b'\n').filter_map(mark).collect()
}

/// Remembers what each witness was given.
pub(crate) fn write_marks(directory: &Path, marks: &[(Place, u64)]) -> Result<()> {
    let mut bytes = Vec::new();
    for (place, size) in marks {
        bytes.extend_from_slice(format!("{size} ").as_bytes());
        bytes.extend_from_slice(&place.line());
        bytes.push(b'\n');
    }
    replace_file(&directory.join(MARKS), &bytes)
}

/// Replaces a small private file: whoever reads it sees the old or the new.
fn replace_file(file: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut out = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .at("create", &temporary)?;
    out.write_all(bytes).at("write", &temporary)?;
    fs::rename(&temporary, file).at("rename", file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{PublicKey, TreeHead};
    use crate::id::{Epoch, LinkHash, Time};
    use ed25519_dalek::SigningKey;

    fn signed(seed: u8, size: u64) -> SignedHead {
        let (workspace, epoch) = (WorkspaceId([1; 16]), Epoch([2; 16]));
        let (root, link, key) = ([3; 32], LinkHash([4; 32]), PublicKey([0; 32]));
        let head = TreeHead { workspace, epoch, size, root, link, time: Time(5), after: 0, key };
        head.sign(&SigningKey::from_bytes(&[seed; 32]))
    }

    /// What every witness promises.
    fn contract(place: &Place) {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        assert!(home.add_witness(place).unwrap());
        assert!(!home.add_witness(place).unwrap());
        assert_eq!(home.witnesses().unwrap(), std::slice::from_ref(place));
        let witness = place.witness(Duration::from_secs(20));
        let id = WorkspaceId([1; 16]);
        assert_eq!(witness.newest(id).unwrap(), None);
        for size in [3, 9, 7] {
            witness.hand_over(&signed(7, size)).unwrap();
        }
        assert_eq!(witness.newest(id).unwrap(), Some(signed(7, 9)));
        assert_eq!(witness.newest(WorkspaceId([8; 16])).unwrap(), None);
        // Somebody who can add to it cannot make his own word count.
        witness.hand_over(&signed(8, 100)).unwrap();
        assert_eq!(witness.newest(id).unwrap(), Some(signed(7, 9)));
        assert!(home.remove_witness(place).unwrap());
        assert!(!home.remove_witness(place).unwrap());
        assert_eq!(home.witnesses().unwrap(), []);
    }

    #[test]
    fn a_file_keeps_the_contract() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("heads");
        contract(&Place::File(path.clone()));
        // Noise and a torn write do no harm.
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"chronicle/1 torn\n\xff\xfe");
        fs::write(&path, text).unwrap();
        let witness = Place::File(path.clone()).witness(Duration::from_secs(1));
        witness.hand_over(&signed(7, 12)).unwrap();
        let newest = witness.newest(WorkspaceId([1; 16])).unwrap();
        assert_eq!(newest, Some(signed(7, 12)));
        fs::remove_file(&path).unwrap();
        assert!(witness.hand_over(&signed(7, 13)).is_err(), "what is gone is not made anew");
    }

    #[test]
    fn a_repository_keeps_the_contract() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("repository");
        let git = std::process::Command::new("git").arg("init").arg("-q").arg(&path).status();
        assert!(git.unwrap().success());
        contract(&Place::Git(path));
        assert!(git::check(scratch.path()).is_err(), "a directory is no repository");
    }

    #[test]
    fn a_place_inside_the_home_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::at(scratch.path());
        let place = Place::File(scratch.path().join("store/heads"));
        assert!(home.add_witness(&place).unwrap_err().to_string().contains("of no use"));
        fs::write(scratch.path().join("witness"), "letter /x\n").unwrap();
        assert!(home.witnesses().is_err());
    }
}
