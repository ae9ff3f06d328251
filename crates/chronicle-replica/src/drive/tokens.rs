//! Tokens: what a replica shows to be let in, made for one workspace and one right.
//!
//! A token is 256 random bits, shown once. The home keeps only a hash, with a name, in a file that only its
//! owner reads and that is replaced whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chronicle_core::{Home, WorkspaceId, to_hex};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// What makes a token recognisable, for people and for scanners of leaked secrets.
const PREFIX: &str = "chronicle_";
/// Keeps hashes of tokens apart from hashes of anything else.
const CONTEXT: &str = "chronicle 2026-11 replication token";
const FILE: &str = "tokens.json";
/// The longest file that is read.
const LENGTH_MOST: u64 = 16 << 20;

/// What the bearer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Be filled and kept up to date.
    Read,
    /// Send writes back as well.
    WriteBack,
}

impl Right {
    /// The word that people use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::WriteBack => "write-back",
        }
    }
}

/// A token as the home knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// What people call it; unique.
    pub name: String,
    /// What it allows.
    pub right: Right,
    /// Where: a workspace's id in hexadecimal.
    pub workspace: String,
    /// When it was made, nanoseconds since 1970.
    pub created_ns: i64,
    /// The keyed hash of it, in hexadecimal.
    hash: String,
}

/// The tokens of a home.
#[derive(Debug, Clone)]
pub struct Tokens {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    tokens: Vec<TokenRow>,
}

/// Why a token was not made or taken away.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name is taken.
    #[error("There is a token {0:?} already")]
    Taken(String),
    /// No token has that name.
    #[error("There is no token {0:?}")]
    Unknown(String),
    /// The name is empty, or no plain word.
    #[error("{0:?} is no name: use letters, digits, '-', '_' and '.'")]
    Name(String),
    /// The file cannot be read or written.
    #[error("Could not use {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

impl Tokens {
    /// The tokens of this home.
    pub fn of(home: &Home) -> Self {
        Self { path: home.path().join(FILE) }
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Result<Vec<TokenRow>, TokenError> {
        self.read().map(|kept| kept.tokens).map_err(|error| self.failed(error))
    }

    /// Makes one, and gives it: nobody can read it again.
    pub fn create(
        &self,
        name: &str,
        workspace: WorkspaceId,
        right: Right,
        now_ns: i64,
    ) -> Result<String, TokenError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 100 || !name.chars().all(plain) {
            return Err(TokenError::Name(name.to_owned()));
        }
        let token = random().map_err(|error| self.failed(error))?;
        let row = TokenRow {
            name: name.to_owned(),
            right,
            workspace: workspace.hex(),
            created_ns: now_ns,
            hash: hash(&token).to_hex().to_string(),
        };
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                return Err(TokenError::Taken(name.to_owned()));
            }
            tokens.push(row);
            Ok(())
        })?;
        Ok(token)
    }

    /// Takes one away: its bearer is refused from now on.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            if tokens.len() == before {
                return Err(TokenError::Unknown(name.to_owned()));
            }
            Ok(())
        })
    }

    /// The row of a token that is shown for a workspace; the time it takes says nothing about the others.
    pub fn find(
        &self,
        workspace: WorkspaceId,
        shown: &[u8],
    ) -> Result<Option<TokenRow>, TokenError> {
        let Ok(shown) = std::str::from_utf8(shown) else { return Ok(None) };
        let (shown, workspace) = (hash(shown.trim()), workspace.hex());
        let mut found = None;
        for row in self.list()? {
            // Comparing such hashes takes the same time whatever they are.
            let same = blake3::Hash::from_hex(&row.hash).is_ok_and(|kept| kept == shown);
            if same && row.workspace == workspace {
                found = Some(row);
            }
        }
        Ok(found)
    }

    /// Whether the file is still the one that was read at this time; a cheap question.
    pub fn changed_at(&self) -> Option<(i64, i64, u64)> {
        let meta = fs::metadata(&self.path).ok()?;
        Some((meta.mtime(), meta.mtime_nsec(), meta.ino()))
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<TokenRow>) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        let failed = |error| self.failed(error);
        let lock = self.lock().map_err(failed)?;
        let mut kept = self.read().map_err(failed)?;
        change(&mut kept.tokens)?;
        self.write(&kept).map_err(failed)?;
        drop(lock);
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.path.with_extension("lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn read(&self) -> io::Result<Kept> {
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(nofollow).open(&self.path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Kept { version: 1, tokens: Vec::new() });
            }
            file => file?,
        };
        let meta = file.metadata()?;
        let own = meta.uid() == rustix::process::geteuid().as_raw();
        if !meta.is_file() || !own || meta.mode() & 0o077 != 0 {
            let words = "others can read or change it: it must be yours, mode 0600";
            return Err(io::Error::other(words));
        }
        if meta.len() > LENGTH_MOST {
            return Err(io::Error::other("it is too long"));
        }
        let kept: Kept = serde_json::from_reader(io::BufReader::new(file))?;
        if kept.version != 1 {
            return Err(io::Error::other("a newer chronicle wrote it"));
        }
        Ok(kept)
    }

    fn write(&self, kept: &Kept) -> io::Result<()> {
        let aside = self.path.with_extension(format!("{}.tmp", std::process::id()));
        let _ = fs::remove_file(&aside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(&serde_json::to_vec_pretty(kept)?)?;
        file.sync_all()?;
        fs::rename(&aside, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    fn failed(&self, error: io::Error) -> TokenError {
        TokenError::File(self.path.clone(), error)
    }
}

fn hash(token: &str) -> blake3::Hash {
    blake3::Hash::from(blake3::derive_key(CONTEXT, token.as_bytes()))
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{}", to_hex(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const HERE: WorkspaceId = WorkspaceId([1; 16]);
    const ELSEWHERE: WorkspaceId = WorkspaceId([2; 16]);

    fn scene() -> (tempfile::TempDir, Tokens) {
        let holder = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::of(&Home::at(holder.path()));
        (holder, tokens)
    }

    #[test]
    fn a_token_lets_its_bearer_into_its_own_workspace_until_it_is_revoked() {
        let (_holder, tokens) = scene();
        let reader = tokens.create("reader", HERE, Right::Read, 5).expect("made");
        let writer = tokens.create("writer", HERE, Right::WriteBack, 6).expect("made");
        assert_ne!(reader, writer);
        assert_eq!(reader.len(), PREFIX.len() + 64);
        let right = |workspace, token: &str| {
            tokens.find(workspace, token.as_bytes()).expect("read").map(|row| row.right)
        };
        assert_eq!(right(HERE, &reader), Some(Right::Read));
        assert_eq!(right(HERE, &format!("{writer}\n")), Some(Right::WriteBack));
        assert_eq!(right(ELSEWHERE, &writer), None);
        assert_eq!(right(HERE, "chronicle_00"), None);
        assert_eq!(right(HERE, ""), None);
        tokens.revoke("writer").expect("revoked");
        assert_eq!(right(HERE, &writer), None);
        assert_eq!(right(HERE, &reader), Some(Right::Read));
        assert!(matches!(tokens.revoke("writer"), Err(TokenError::Unknown(_))));
    }

    #[test]
    fn only_a_hash_is_kept_and_only_for_its_owner() {
        let (holder, tokens) = scene();
        let token = tokens.create("one", HERE, Right::Read, 5).expect("made");
        let path = holder.path().join(FILE);
        let text = fs::read_to_string(&path).expect("read");
        assert!(!text.contains(&token[PREFIX.len()..]));
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("opened");
        assert!(tokens.find(HERE, token.as_bytes()).is_err());
    }

    #[test]
    fn names_are_plain_and_used_once() {
        let (_holder, tokens) = scene();
        tokens.create("a.b-c_1", HERE, Right::Read, 5).expect("made");
        assert!(matches!(
            tokens.create("a.b-c_1", ELSEWHERE, Right::Read, 5),
            Err(TokenError::Taken(_))
        ));
        for bad in ["", "a b", "a\n", "\u{1b}[2J", &"a".repeat(101)] {
            assert!(matches!(tokens.create(bad, HERE, Right::Read, 5), Err(TokenError::Name(_))));
        }
    }
}
