//! The bucket of a home: what people set, connecting to it, and the store behind the home's own.
//!
//! Credentials are never kept: they come from the environment when something is sent.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronicle_core::{Cached, Error, Home, PooledCache, to_hex};
use chronicle_remote::{Bucket, BucketOptions, LazyStore, RemoteKey, RemoteStore};
use toml_edit::DocumentMut;

use crate::error::CommandError;

const FILE: &str = "bucket.toml";
const ID: &str = "bucket.id";

/// How long a pool may get where nobody says.
const POOL_BYTES: u64 = 4 << 30;

/// What people set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BucketSettings {
    pub(crate) url: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    /// The file with the key that seals what is sent; without one nothing is sealed.
    pub(crate) key: Option<PathBuf>,
    pub(crate) allow_http: bool,
    /// Nothing is sent unless somebody says `push`.
    pub(crate) manual: bool,
    /// A directory that other homes and users of this machine use too, for copies of what is fetched.
    pub(crate) pool: Option<PathBuf>,
    /// How long the pool may get.
    pub(crate) pool_bytes: Option<u64>,
}

impl BucketSettings {
    /// What was set for a home, if anything was.
    pub(crate) fn read(home: &Home) -> Result<Option<Self>, CommandError> {
        let path = home.path().join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| unreadable(&path, error))?,
        };
        let parsed = text.parse::<DocumentMut>().ok().and_then(|document| Self::parse(&document));
        parsed.map(Some).ok_or_else(|| {
            CommandError::failed("bucket_settings", format!("{} makes no sense", path.display()))
                .hinted("Set the bucket again with: chronicle bucket set URL")
        })
    }

    fn parse(document: &DocumentMut) -> Option<Self> {
        let text = |name: &str| match document.get(name) {
            None => Some(None),
            Some(item) => item.as_str().map(|text| Some(text.to_owned())),
        };
        let flag = |name: &str| document.get(name).map_or(Some(false), toml_edit::Item::as_bool);
        Some(Self {
            url: text("url")??,
            endpoint: text("endpoint")?,
            region: text("region")?,
            key: text("key")?.map(PathBuf::from),
            allow_http: flag("allow_http")?,
            manual: flag("manual")?,
            pool: text("pool")?.map(PathBuf::from),
            pool_bytes: match document.get("pool_bytes") {
                None => None,
                Some(item) => Some(u64::try_from(item.as_integer()?).ok()?),
            },
        })
    }

    /// Keeps it, durably.
    pub(crate) fn write(&self, home: &Home) -> Result<(), CommandError> {
        let mut document = DocumentMut::new();
        document["url"] = toml_edit::value(&self.url);
        for (name, value) in [("endpoint", &self.endpoint), ("region", &self.region)] {
            if let Some(value) = value {
                document[name] = toml_edit::value(value);
            }
        }
        for (name, path) in [("key", &self.key), ("pool", &self.pool)] {
            if let Some(path) = path {
                document[name] = toml_edit::value(path.to_string_lossy().into_owned());
            }
        }
        if let Some(bytes) = self.pool_bytes.and_then(|bytes| i64::try_from(bytes).ok()) {
            document["pool_bytes"] = toml_edit::value(bytes);
        }
        for (name, value) in [("allow_http", self.allow_http), ("manual", self.manual)] {
            if value {
                document[name] = toml_edit::value(true);
            }
        }
        home.make()?;
        replace(&home.path().join(FILE), document.to_string().as_bytes())
    }

    /// Forgets what was set; tells whether anything was.
    pub(crate) fn forget(home: &Home) -> Result<bool, CommandError> {
        let path = home.path().join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            removed => removed
                .map(|()| true)
                .map_err(|error| CommandError::io(words("remove", &path), error)),
        }
    }

    /// Connects: probes the place, and makes it one if it is empty.
    pub(crate) fn connect(&self) -> Result<RemoteStore, Error> {
        let key = self.key.as_deref().map(read_key).transpose()?;
        let store = RemoteStore::connect(self.open()?, key)?;
        Ok(store.with_copies(self.copies()))
    }

    /// The bucket, as it is: nothing is asked of it yet.
    pub(crate) fn open(&self) -> Result<Bucket, Error> {
        let options = BucketOptions {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            allow_http: self.allow_http,
            ..BucketOptions::from_environment()
        };
        Ok(Bucket::open(&self.url, &options)?)
    }

    /// The pool, looked at when it is used.
    pub(crate) fn copies(&self) -> Option<PooledCache> {
        let bytes = self.pool_bytes.unwrap_or(POOL_BYTES);
        self.pool.as_ref().map(|pool| PooledCache::at(pool, bytes))
    }
}

/// The home that the environment names, before its bucket if it has one.
pub(crate) fn home() -> Result<Home, CommandError> {
    let home = Home::from_env()?;
    // Settings that make no sense are told of by whoever needs the bucket.
    let Ok(Some(settings)) = BucketSettings::read(&home) else { return Ok(home) };
    let copies = settings.copies();
    let far = LazyStore::new(move || settings.connect());
    Ok(match copies {
        Some(pool) => home.before(Arc::new(Cached::unbounded(pool, far))),
        None => home.before(Arc::new(far)),
    })
}

/// What tells this home from others that use the same place: made once.
pub(crate) fn home_id(home: &Home) -> Result<[u8; 16], CommandError> {
    let path = home.path().join(ID);
    for _ in 0..2 {
        match fs::read(&path) {
            Ok(bytes) if bytes.len() == 16 => {
                return Ok(bytes.try_into().unwrap_or_default());
            }
            Ok(_) => {
                return Err(CommandError::failed("bucket_settings", words("understand", &path)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                replace(&path, &random::<16>()?)?;
            }
            Err(error) => return Err(unreadable(&path, error)),
        }
    }
    Err(CommandError::failed("bucket_settings", words("keep", &path)))
}

/// Makes the key of a place if the file is not there; tells whether it made it.
pub(crate) fn make_key(path: &Path) -> Result<bool, CommandError> {
    let mut options = fs::OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = match created {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        file => file.map_err(|error| CommandError::io(words("create", path), error))?,
    };
    let text = format!("{}\n", to_hex(&random::<32>()?));
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map(|()| true).map_err(|error| CommandError::io(words("write", path), error))
}

/// The key in a file: 64 hexadecimal digits.
pub(crate) fn read_key(path: &Path) -> Result<RemoteKey, Error> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(io)?;
    let bytes = text.trim_end().parse::<chronicle_core::ObjectId>().map_err(|()| {
        io(std::io::Error::new(ErrorKind::InvalidData, "a key is 64 hexadecimal digits"))
    })?;
    Ok(RemoteKey::derive(&bytes.0))
}

fn random<const N: usize>() -> Result<[u8; N], CommandError> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(count) if count == N => Ok(bytes),
        Ok(_) => Err(CommandError::failed("io", "The kernel gave too little randomness")),
        Err(error) => Err(CommandError::io("The kernel's randomness cannot be read", error)),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| CommandError::io(words("write", path), error))
}

fn unreadable(path: &Path, error: std::io::Error) -> CommandError {
    CommandError::io(words("read", path), error)
}

fn words(action: &str, path: &Path) -> String {
    format!("Could not {action} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_as_they_were_and_nonsense_is_told() {
        let holder = tempfile::tempdir().unwrap();
        let home = Home::at(&holder.path().join("home"));
        assert_eq!(BucketSettings::read(&home).unwrap(), None);
        let settings = BucketSettings {
            url: "s3://bucket/prefix".to_owned(),
            endpoint: Some("http://127.0.0.1:9".to_owned()),
            key: Some(PathBuf::from("/k")),
            manual: true,
            pool: Some(PathBuf::from("/p")),
            pool_bytes: Some(1 << 30),
            ..BucketSettings::default()
        };
        settings.write(&home).unwrap();
        assert_eq!(BucketSettings::read(&home).unwrap(), Some(settings));
        for text in [
            "url = 3",
            "x = 1",
            "url = \"u\"\npool_bytes = -1",
            "url = \"u\"\nmanual = \"no\"",
            "[",
        ] {
            fs::write(home.path().join(FILE), text).unwrap();
            assert!(BucketSettings::read(&home).is_err(), "{text}");
        }
        assert!(BucketSettings::forget(&home).unwrap() && !BucketSettings::forget(&home).unwrap());
        assert_eq!(home_id(&home).unwrap(), home_id(&home).unwrap());
    }

    #[test]
    fn key_is_made_once_and_anything_else_is_no_key() {
        let holder = tempfile::tempdir().unwrap();
        let path = holder.path().join("key");
        assert!(make_key(&path).unwrap() && !make_key(&path).unwrap());
        assert!(read_key(&path).is_ok());
        fs::write(&path, "short\n").unwrap();
        assert!(read_key(&path).is_err());
    }
}
