//! Where Chronicle lives: one directory outside every workspace, with a place for each of them.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Context, Error, Result};
use crate::filter::linked_worktrees;
use crate::id::{WorkspaceId, to_hex};
use crate::key::KeySource;
use crate::secret::Secrets;
use crate::store::{ContentStorage, LocalStore, Tier};

/// The file that says which key sealed the secrets.
const SECRET_MARK: &str = "secret.mark";

/// Chronicle's own directory: `$CHRONICLE_HOME`, by default `~/.chronicle`.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
    key: KeySource,
    secrets: Secrets,
    tier: Tier,
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
            return Ok(Self::with_keys_from_env(path));
        }
        let home = var("HOME")
            .ok_or_else(|| Error::Usage("Neither CHRONICLE_HOME nor HOME is set".to_owned()))?;
        Ok(Self::with_keys_from_env(Path::new(&home).join(".chronicle")))
    }

    /// The home at a directory, with the keys that the environment names.
    pub fn with_keys_from_env(path: PathBuf) -> Self {
        let (secrets, tier) = (Secrets::default(), Tier::default());
        let home = Self { path, key: KeySource::from_env(), secrets, tier };
        home.with_secret_key(KeySource::secret_from_env())
    }

    /// The home at a directory; heads are not signed until [`Home::signed_with`] says how, and
    /// nothing counts as secret until [`Home::with_secret_key`] does. Where secrets were sealed before,
    /// they are not captured without it.
    pub fn at(directory: &Path) -> Self {
        let secrets = Secrets::without_key(directory.join(SECRET_MARK));
        Self { path: directory.to_owned(), key: KeySource::None, secrets, tier: Tier::default() }
    }

    /// The same home, whose heads are signed with this key.
    #[must_use]
    pub fn signed_with(self, key: KeySource) -> Self {
        Self { key, ..self }
    }

    /// The same home, whose secrets are sealed with this key; one that cannot be had fails the
    /// capture of secrets, and never makes them plain.
    #[must_use]
    pub fn with_secret_key(self, key: KeySource) -> Self {
        let secrets = Secrets::new(key, self.path.join(SECRET_MARK));
        Self { secrets, ..self }
    }

    /// The same home, before a store that may have content which is not in its own any more.
    #[must_use]
    pub fn before(self, store: Arc<dyn ContentStorage>) -> Self {
        Self { tier: Tier::new(store), ..self }
    }

    /// The store behind its own.
    pub(crate) fn tier(&self) -> &Tier {
        &self.tier
    }

    /// Opens the content store.
    pub(crate) fn open_store(&self) -> Result<LocalStore> {
        LocalStore::open_before(&self.store(), &self.secrets, &self.tier)
    }

    /// No longer insists on the key that sealed the secrets of this home.
    pub(crate) fn forget_secret_key(&self) -> Result<()> {
        let mark = self.path.join(SECRET_MARK);
        match fs::remove_file(&mark) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.at("remove", &mark),
        }
    }

    /// The key that seals secrets.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Where the key comes from that signs heads.
    pub(crate) fn key(&self) -> &KeySource {
        &self.key
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

    /// The nearest workspace at or above a directory; a linked worktree inside one is not part of it.
    pub(crate) fn find(&self, directory: &Path) -> Result<Option<Adopted>> {
        for parent in directory.ancestors() {
            let Some(adopted) = self.lookup(parent)? else { continue };
            let apart = parent != directory
                && inside(&adopted.root).iter().any(|inner| directory.starts_with(inner));
            return Ok((!apart).then_some(adopted));
        }
        Ok(None)
    }

    /// The linked worktrees inside a workspace that were adopted as workspaces of their own.
    pub(crate) fn inner(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let mut inner = Vec::new();
        for worktree in inside(root) {
            if self.lookup(&worktree)?.is_some() {
                inner.push(worktree);
            }
        }
        Ok(inner)
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
            let path = entry.at("list", &registry)?.path();
            // What has an extension was never finished, and says nothing.
            if path.extension().is_none() {
                all.extend(read_registration(&path)?);
            }
        }
        Ok(all)
    }

    /// All workspaces, with the directories that they are, by directory.
    pub fn workspaces(&self) -> Result<Vec<(WorkspaceId, PathBuf)>> {
        let mut all: Vec<_> = self.all()?.into_iter().map(|it| (it.id, it.root)).collect();
        all.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(all)
    }

    /// Makes the home if it is not there.
    pub fn make(&self) -> Result<()> {
        private_directory(&self.path)
    }

    /// Makes the directories, readable by their owner only.
    pub(crate) fn create(&self) -> Result<()> {
        for directory in [self.path.clone(), self.registry(), self.path.join("workspaces")] {
            private_directory(&directory)?;
        }
        Ok(())
    }

    /// Makes the names of the home and of its directories durable, also those that a process made
    /// which did not come to that.
    pub(crate) fn sync(&self) -> Result<()> {
        let above = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let own = [self.path.clone(), self.path.join("workspaces"), self.registry()];
        above.into_iter().chain(own.iter().map(PathBuf::as_path)).try_for_each(sync_directory)
    }

    /// Says that a directory is the root of a workspace, durably.
    pub(crate) fn register(&self, root: &Path, id: WorkspaceId) -> Result<()> {
        let file = self.registration(root);
        let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
        let mut bytes = id.hex().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(root.as_os_str().as_bytes());
        let written = write_synced(&temporary, &bytes)
            .and_then(|()| fs::rename(&temporary, &file).at("rename", &file));
        if written.is_err() {
            // Nobody takes it for a registration; if it cannot go, it stays as a small file.
            let _ = fs::remove_file(&temporary);
        }
        written?;
        sync_directory(&self.registry())
    }

    /// Says that a directory is the root of no workspace any more, durably.
    pub(crate) fn unregister(&self, root: &Path) -> Result<()> {
        let file = self.registration(root);
        fs::remove_file(&file).at("remove", &file)?;
        sync_directory(&self.registry())
    }
}

/// The linked worktrees of a workspace's own repository that lie inside the workspace.
pub(crate) fn inside(root: &Path) -> Vec<PathBuf> {
    let mut worktrees = linked_worktrees(root);
    worktrees.retain(|worktree| worktree != root && worktree.starts_with(root));
    worktrees
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|directory| directory.sync_all()).at("sync", path)
}

/// Writes a file that only its owner can read, durably but for its name.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut out = options.open(path).at("create", path)?;
    out.write_all(bytes).at("write", path)?;
    out.sync_all().at("sync", path)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An `init` whose registration could not be synced left its temporary file behind. The next
    /// one took that for a workspace that is already there and refused, for ever.
    /// Only a finished registration names a workspace.
    #[test]
    fn unfinished_registration_names_no_workspace() {
        let holder = tempfile::tempdir().unwrap();
        let home = Home::at(&holder.path().join("home"));
        home.create().unwrap();
        let (root, id) = (Path::new("/somewhere"), WorkspaceId([7; 16]));
        home.register(root, id).unwrap();
        let file = home.registration(root);
        fs::rename(&file, file.with_extension("1.tmp")).unwrap();
        assert_eq!(home.all().unwrap().len(), 0);
        home.register(root, id).unwrap();
        assert_eq!(home.all().unwrap().len(), 1);
    }
}
