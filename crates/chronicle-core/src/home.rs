//! Where Chronicle lives: one directory outside every workspace, with a place for each of them.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::id::{WorkspaceId, to_hex};

/// Chronicle's own directory: `$CHRONICLE_HOME`, by default `~/.chronicle`.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
}

/// A workspace as the home knows it.
#[derive(Debug, Clone)]
pub(crate) struct Adopted {
    pub(crate) id: WorkspaceId,
    pub(crate) root: PathBuf,
}

impl Home {
    /// The home that the environment names.
    pub fn from_env() -> Result<Self> {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = var("CHRONICLE_HOME") {
            let path = PathBuf::from(path);
            let path = if path.is_absolute() {
                path
            } else {
                std::env::current_dir().at("find", ".")?.join(path)
            };
            return Ok(Self { path });
        }
        let home = var("HOME")
            .ok_or_else(|| Error::Usage("Neither CHRONICLE_HOME nor HOME is set".to_owned()))?;
        Ok(Self { path: Path::new(&home).join(".chronicle") })
    }

    /// The home at a directory.
    pub fn at(directory: &Path) -> Self {
        Self { path: directory.to_owned() }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content store of all workspaces.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// The directory of one workspace.
    pub(crate) fn workspace(&self, id: WorkspaceId) -> PathBuf {
        self.path.join("workspaces").join(id.hex())
    }

    fn registry(&self) -> PathBuf {
        self.path.join("roots")
    }

    /// The file that says which workspace a root is; named by a hash, since a path may be too long.
    fn registration(&self, root: &Path) -> PathBuf {
        let hash = blake3::hash(root.as_os_str().as_bytes());
        self.registry().join(to_hex(&hash.as_bytes()[..16]))
    }

    /// The workspace whose root is exactly this directory.
    pub(crate) fn lookup(&self, root: &Path) -> Result<Option<Adopted>> {
        read_registration(&self.registration(root))
    }

    /// The nearest workspace at or above a directory.
    pub(crate) fn find(&self, directory: &Path) -> Result<Option<Adopted>> {
        for parent in directory.ancestors() {
            if let Some(adopted) = self.lookup(parent)? {
                return Ok(Some(adopted));
            }
        }
        Ok(None)
    }

    /// All workspaces.
    pub(crate) fn all(&self) -> Result<Vec<Adopted>> {
        let registry = self.registry();
        let entries = match fs::read_dir(&registry) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("list", &registry)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            all.extend(read_registration(&entry.at("list", &registry)?.path())?);
        }
        Ok(all)
    }

    /// Makes the directories, readable by their owner only.
    pub(crate) fn create(&self) -> Result<()> {
        for directory in [self.path.clone(), self.registry(), self.path.join("workspaces")] {
            private_directory(&directory)?;
        }
        Ok(())
    }

    /// Says that a directory is the root of a workspace, durably.
    pub(crate) fn register(&self, root: &Path, id: WorkspaceId) -> Result<()> {
        let file = self.registration(root);
        let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
        let mut bytes = id.hex().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(root.as_os_str().as_bytes());
        let mut options = fs::OpenOptions::new();
        let mut out = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .at("create", &temporary)?;
        out.write_all(&bytes).at("write", &temporary)?;
        out.sync_all().at("sync", &temporary)?;
        fs::rename(&temporary, &file).at("rename", &file)?;
        let registry = self.registry();
        fs::File::open(&registry).and_then(|dir| dir.sync_all()).at("sync", &registry)
    }

    /// Says that a directory is the root of no workspace any more, durably.
    pub(crate) fn unregister(&self, root: &Path) -> Result<()> {
        let file = self.registration(root);
        fs::remove_file(&file).at("remove", &file)?;
        let registry = self.registry();
        fs::File::open(&registry).and_then(|dir| dir.sync_all()).at("sync", &registry)
    }
}

/// Makes a directory that only its owner can enter, and those above it.
pub(crate) fn private_directory(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).at("create", path)
}

fn read_registration(file: &Path) -> Result<Option<Adopted>> {
    let bytes = match fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.at("read", file)?,
    };
    let parsed = bytes.split_at_checked(33).and_then(|(id, root)| {
        let id = std::str::from_utf8(&id[..32]).ok()?.parse().ok()?;
        Some(Adopted { id, root: PathBuf::from(std::ffi::OsString::from_vec(root.to_vec())) })
    });
    Ok(parsed)
}
