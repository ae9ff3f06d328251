//! What we wrote into whose file, and what stood there before: kept in the home, for its owner only.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use crate::agent::Agent;

/// The directory of receipts in the home.
const DIRECTORY: &str = "installs";

/// One file that we wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The file, for people who look at this one.
    pub(crate) path: String,
    /// What stood there before; nothing if we made the file.
    pub(crate) original: Option<String>,
    /// What we wrote.
    pub(crate) written: String,
    /// The directories that we made for it, outermost first.
    pub(crate) directories: Vec<PathBuf>,
}

/// The receipts of one home.
#[derive(Debug, Clone)]
pub(crate) struct Receipts {
    home: PathBuf,
}

impl Receipts {
    /// Those of this home.
    pub(crate) fn new(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// The receipt of a file. One that cannot be read is none: then entries are found by structure.
    pub(crate) fn read(&self, agent: Agent, file: &Path) -> Option<Receipt> {
        let text = fs::read_to_string(self.path(agent, file)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Keeps a receipt, before the file itself is written.
    pub(crate) fn write(&self, agent: Agent, file: &Path, receipt: &Receipt) -> io::Result<()> {
        let path = self.path(agent, file);
        let directory = self.home.join(DIRECTORY);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let text = serde_json::to_string(receipt)?;
        files::replace(&path, text.as_bytes(), files::PRIVATE)
    }

    /// Forgets a file; what is empty then goes too.
    pub(crate) fn remove(&self, agent: Agent, file: &Path) {
        let directory = self.home.join(DIRECTORY);
        let _ = fs::remove_file(self.path(agent, file));
        let _ = fs::remove_dir(directory).and_then(|()| fs::remove_dir(&self.home));
    }

    /// Named by a hash, since a path may be too long for a name.
    fn path(&self, agent: Agent, file: &Path) -> PathBuf {
        let hash = blake3::hash(file.as_os_str().as_bytes()).to_hex();
        self.home.join(DIRECTORY).join(format!("{}-{}.json", agent.name(), &hash[..16]))
    }
}
