//! A file that heads are appended to; meant to belong to another user, or to lie on another medium.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{LONGEST, Place, Witness};
use crate::error::Result;
use crate::head::SignedHead;
use crate::id::WorkspaceId;

/// A file as a witness.
pub(super) struct FileWitness(PathBuf);

impl FileWitness {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn place(&self) -> Place {
        Place::File(self.0.clone())
    }

    /// Opens it if it is a plain file; a pipe in its place must not keep us waiting.
    fn open(&self, options: &mut OpenOptions) -> Result<File> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let opened = options.custom_flags(nonblocking).open(&self.0);
        let file = opened.map_err(|error| self.place().error(error))?;
        match file.metadata() {
            Ok(about) if about.is_file() => Ok(file),
            _ => Err(self.place().error("it is not a plain file")),
        }
    }
}

impl Witness for FileWitness {
    fn hand_over(&self, head: &SignedHead) -> Result<()> {
        // It is not made anew: a medium that is not mounted must not be taken for an empty one.
        let mut file = self.open(OpenOptions::new().append(true))?;
        // In one write, behind whatever a torn one may have left.
        let text = format!("\n{}", head.text());
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(|error| self.place().error(error))
    }

    fn seen(&self, workspace: WorkspaceId) -> Result<Vec<SignedHead>> {
        let mut bytes = Vec::new();
        let file = self.open(OpenOptions::new().read(true))?;
        let read = file.take(LONGEST).read_to_end(&mut bytes);
        read.map_err(|error| self.place().error(error))?;
        Ok(SignedHead::find_all(&String::from_utf8_lossy(&bytes), workspace))
    }
}

/// Makes the file, if it is not there.
pub(super) fn create(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(0o600);
    FileWitness::new(path).open(opened).map(drop)
}
