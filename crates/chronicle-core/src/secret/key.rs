//! The key that seals secrets: read when the first secret is met, made when the first is captured.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::error::{Context, Error, Result};
use crate::id::{ObjectId, random_bytes, to_hex};
use crate::key::KeySource;

/// Bytes by which a sealed object says which key it needs.
pub(crate) const KEY_MARK: usize = 8;

const ADDRESS: &str = "chronicle 1 secret address";
const SEAL: &str = "chronicle 1 secret seal";
const MARK: &str = "chronicle 1 secret mark";

/// Two keys made of one, so that neither use tells anything of the other, and the mark of both.
pub(crate) struct SecretKey {
    address: [u8; 32],
    pub(super) seal: [u8; 32],
    pub(super) mark: [u8; KEY_MARK],
}

impl SecretKey {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        let mut mark = [0; KEY_MARK];
        mark.copy_from_slice(&blake3::derive_key(MARK, seed)[..KEY_MARK]);
        Self {
            address: blake3::derive_key(ADDRESS, seed),
            seal: blake3::derive_key(SEAL, seed),
            mark,
        }
    }

    /// The name of secret content: nobody without the key can test a guess against it.
    pub(crate) fn address(&self, bytes: &[u8]) -> ObjectId {
        ObjectId(*blake3::keyed_hash(&self.address, bytes).as_bytes())
    }

    /// The same for content that comes in pieces.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.address)
    }
}

/// Where the key comes from; cheap to clone, and nothing is read before it is needed.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `None`: nothing counts as secret.
    source: Option<KeySource>,
    /// Where the home notes the mark of its key.
    note: Option<PathBuf>,
    key: OnceLock<SecretKey>,
    /// Set once the key is known to be the one that this home has always had.
    checked: OnceLock<()>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Secrets").field(&self.0.source).finish()
    }
}

impl Secrets {
    /// Seals with this key; `note` is where its mark is remembered, so that no other replaces it.
    pub(crate) fn new(source: KeySource, note: PathBuf) -> Self {
        Self(Arc::new(Inner { source: Some(source), note: Some(note), ..Inner::default() }))
    }

    /// Seals nothing, and takes nothing that should be sealed where a key's mark is noted.
    pub(crate) fn without_key(note: PathBuf) -> Self {
        Self(Arc::new(Inner { note: Some(note), ..Inner::default() }))
    }

    /// Whether anything counts as secret.
    pub(crate) fn are_on(&self) -> bool {
        self.0.source.is_some() || self.0.note.as_ref().is_some_and(|note| note.exists())
    }

    /// The key, for reading what it sealed.
    pub(crate) fn key(&self) -> Result<&SecretKey> {
        if let Some(key) = self.0.key.get() {
            return Ok(key);
        }
        let source = self.source()?;
        let seed = source.seed().map_err(unusable)?;
        let seed = seed.ok_or_else(|| missing(format!("{} is not there", source.place())))?;
        Ok(self.0.key.get_or_init(|| SecretKey::new(&seed)))
    }

    /// The key, for sealing: made now if this home never had one.
    pub(crate) fn key_or_make(&self) -> Result<&SecretKey> {
        if self.0.checked.get().is_none() {
            self.check_or_make()?;
            let _ = self.0.checked.set(());
        }
        self.key()
    }

    fn check_or_make(&self) -> Result<()> {
        let source = self.source()?;
        let noted = self.noted()?;
        let key = match (self.key(), &noted) {
            (Ok(key), _) => key,
            (Err(error), Some(_)) => return Err(error),
            (Err(_), None) => {
                let seed = source.seed_or_make().map_err(unusable)?;
                self.0.key.get_or_init(|| SecretKey::new(&seed))
            }
        };
        let mark = to_hex(&key.mark);
        match noted {
            None => self.write_note(&mark),
            Some(noted) if noted.trim_end() == mark => Ok(()),
            Some(_) => Err(missing(format!(
                "{} is not the key that sealed the secrets of this home",
                source.place()
            ))),
        }
    }

    fn source(&self) -> Result<&KeySource> {
        let off = || missing("no key for secrets was given".to_owned());
        self.0.source.as_ref().ok_or_else(off)
    }

    fn noted(&self) -> Result<Option<String>> {
        let Some(note) = &self.0.note else { return Ok(None) };
        match fs::read_to_string(note) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            text => text.map(Some).at("read", note),
        }
    }

    fn write_note(&self, mark: &str) -> Result<()> {
        let Some(note) = &self.0.note else { return Ok(()) };
        let temporary = note.with_extension(format!("{}.tmp", to_hex(&random_bytes::<8>())));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options.open(&temporary).and_then(|mut out| {
            out.write_all(format!("{mark}\n").as_bytes())?;
            out.sync_all()?;
            fs::rename(&temporary, note)
        });
        if written.is_err() {
            // It says nothing under this name; if it cannot go, it stays as a small file.
            let _ = fs::remove_file(&temporary);
        }
        written.at("write", note)
    }
}

fn missing(why: String) -> Error {
    Error::SecretKey(why)
}

fn unusable(error: Error) -> Error {
    match error {
        Error::Key(why) => Error::SecretKey(why),
        Error::Io { action, path, source } => {
            Error::SecretKey(format!("could not {action} {}: {source}", path.display()))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(directory: &std::path::Path) -> Secrets {
        let source = KeySource::File(directory.join("config/secret.key"));
        Secrets::new(source, directory.join("secret.mark"))
    }

    #[test]
    fn the_address_depends_on_the_key_and_on_the_content_alone() {
        let (one, other) = (SecretKey::new(&[1; 32]), SecretKey::new(&[2; 32]));
        assert_eq!(one.address(b"x"), SecretKey::new(&[1; 32]).address(b"x"));
        assert_ne!(one.address(b"x"), other.address(b"x"));
        assert_ne!(one.address(b"x"), ObjectId::of(b"x"));
        let mut hasher = one.hasher();
        hasher.update(b"x");
        assert_eq!(one.address(b"x").as_bytes(), hasher.finalize().as_bytes());
    }

    #[test]
    fn a_lost_key_is_not_replaced_by_a_new_one() {
        let scratch = tempfile::tempdir().unwrap();
        let address = secrets(scratch.path()).key_or_make().unwrap().address(b"x");
        assert_eq!(secrets(scratch.path()).key().unwrap().address(b"x"), address);
        let file = scratch.path().join("config/secret.key");
        let text = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let lost = secrets(scratch.path()).key_or_make().err().unwrap();
        assert_eq!(lost.code(), "secret_key_missing");
        assert!(lost.to_string().contains("secret.key"), "{lost}");
        assert!(!file.exists());
        fs::write(&file, crate::base64::encode(&[7; 32])).unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let other = secrets(scratch.path()).key_or_make().err().unwrap();
        assert!(other.to_string().contains("not the key that sealed"), "{other}");
        fs::write(&file, text).unwrap();
        assert_eq!(secrets(scratch.path()).key_or_make().unwrap().address(b"x"), address);
    }

    #[test]
    fn without_a_source_nothing_is_secret() {
        assert!(!Secrets::default().are_on());
        assert!(Secrets::default().key_or_make().is_err());
    }
}
