//! The keys that sign heads and seal secrets: files of their own, away from the workspaces and from
//! their history.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;

use crate::base64;
use crate::error::{Context, Error, Result};
use crate::home::private_directory;
use crate::id::{random_bytes, to_hex};

/// The longest key file that is read.
const LONGEST: u64 = 4096;

/// Where a key comes from.
#[derive(Clone, Default)]
pub enum KeySource {
    /// Nobody named one: nothing is signed or sealed.
    #[default]
    None,
    /// A file; made when it is first needed.
    File(PathBuf),
    /// The secret itself, in base64.
    Secret(String),
}

/// A secret never shows in a debug print.
impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Secret(_) => f.write_str("Secret"),
        }
    }
}

impl KeySource {
    /// What the environment says: `CHRONICLE_KEY`, `CHRONICLE_KEY_FILE`, or a file among the
    /// person's settings.
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(secret) = var("CHRONICLE_KEY") {
            return Self::Secret(secret.to_string_lossy().into_owned());
        }
        if let Some(file) = var("CHRONICLE_KEY_FILE") {
            return Self::File(PathBuf::from(file));
        }
        settings().map_or(Self::None, |place| Self::File(place.join("head.key")))
    }

    /// Where the key that seals secrets lies: `CHRONICLE_SECRET_KEY_FILE`, or a file among the
    /// person's settings.
    pub fn secret_from_env() -> Self {
        let named = std::env::var_os("CHRONICLE_SECRET_KEY_FILE").filter(|name| !name.is_empty());
        let place = named.map(PathBuf::from).or_else(|| Some(settings()?.join("secret.key")));
        place.map_or(Self::None, Self::File)
    }

    /// The key's place, in words.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::None => "a key (set HOME or name a file)".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Secret(_) => "the given key".to_owned(),
        }
    }

    /// The key that signs, if there is one.
    pub(crate) fn load(&self) -> Result<Option<SigningKey>> {
        Ok(self.seed()?.map(|seed| SigningKey::from_bytes(&seed)))
    }

    /// The key that signs, made now if there is none and a place for it is known.
    pub(crate) fn load_or_make(&self) -> Result<SigningKey> {
        Ok(SigningKey::from_bytes(&self.seed_or_make()?))
    }

    /// The secret bytes, if there are any.
    pub(crate) fn seed(&self) -> Result<Option<[u8; 32]>> {
        match self {
            Self::None => Ok(None),
            Self::Secret(text) => parse(text)
                .map(Some)
                .ok_or_else(|| unusable("CHRONICLE_KEY is not 32 bytes in base64".to_owned())),
            Self::File(path) => read(path),
        }
    }

    /// The secret bytes, made now if there are none and a place for them is known.
    pub(crate) fn seed_or_make(&self) -> Result<[u8; 32]> {
        if let Some(seed) = self.seed()? {
            return Ok(seed);
        }
        let Self::File(path) = self else {
            return Err(unusable(
                "no place for a key is known: set HOME, or CHRONICLE_KEY_FILE and \
                 CHRONICLE_SECRET_KEY_FILE"
                    .to_owned(),
            ));
        };
        make(path)?;
        read(path)?.ok_or_else(|| unusable(format!("{} is gone again", path.display())))
    }
}

/// The directory of our settings among the person's.
fn settings() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let absolute = |path: &PathBuf| path.is_absolute();
    let named = var("XDG_CONFIG_HOME").map(PathBuf::from).filter(absolute);
    let home = || Some(PathBuf::from(var("HOME")?).join(".config")).filter(absolute);
    Some(named.or_else(home)?.join("chronicle"))
}

fn unusable(why: String) -> Error {
    Error::Key(why)
}

fn parse(text: &str) -> Option<[u8; 32]> {
    base64::decode_fixed(text.trim_end())
}

fn read(path: &Path) -> Result<Option<[u8; 32]>> {
    // A pipe in its place must not keep us waiting.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(nonblocking).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.at("open", path)?,
    };
    let about = file.metadata().at("read", path)?;
    if !about.is_file() {
        return Err(unusable(format!("{} is not a file", path.display())));
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o777;
        return Err(unusable(format!(
            "others can read {} (mode {mode:03o}): take it from them with chmod 600",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).at("read", path)?;
    let key = parse(&text);
    key.map(Some).ok_or_else(|| unusable(format!("{} holds no key", path.display())))
}

/// Makes a key file, whole or not at all; if somebody else makes one at the same time, his stays.
fn make(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    private_directory(directory)?;
    let temporary = path.with_extension(format!("{}.tmp", to_hex(&random_bytes::<8>())));
    let made = fill(&temporary).and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).at("create", path)
        }
        _ => Ok(()),
    });
    // The key has its name by now, or nobody will ever want this one.
    let _ = fs::remove_file(&temporary);
    made?;
    File::open(directory).and_then(|directory| directory.sync_all()).at("sync", directory)
}

fn fill(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(0o600).open(path).at("create", path)?;
    let text = format!("{}\n", base64::encode(&random_bytes::<32>()));
    out.write_all(text.as_bytes()).at("write", path)?;
    out.sync_all().at("sync", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_for_its_owner_only() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("config/chronicle/head.key");
        let source = KeySource::File(path.clone());
        assert!(source.load().unwrap().is_none());
        let key = source.load_or_make().unwrap();
        assert_eq!(source.load_or_make().unwrap(), key);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let secret = fs::read_to_string(&path).unwrap();
        assert_eq!(KeySource::Secret(secret).load_or_make().unwrap(), key);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_words() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("head.key");
        let source = KeySource::File(path.clone());
        source.load_or_make().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = source.load_or_make().unwrap_err().to_string();
        assert!(refused.contains("mode 640") && refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn what_is_no_key_is_not_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("head.key");
        fill(&path).unwrap();
        fs::write(&path, "not a key").unwrap();
        assert!(KeySource::File(path.clone()).load_or_make().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"not a key");
        assert!(KeySource::Secret("short".into()).load_or_make().is_err());
        assert!(KeySource::None.load_or_make().is_err());
    }
}
