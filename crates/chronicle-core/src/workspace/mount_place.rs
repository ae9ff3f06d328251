//! Where a workspace is mounted, and by whom, for whoever stands in the mount or wants it gone.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::Workspace;
use crate::codec::{Decoder, Encoder};
use crate::error::{Context, Result};
use crate::home::{Adopted, Home};
use crate::journal;
use crate::process::Process;

const FILE: &str = "at";
const PROBLEM: &str = "problem";

/// A mount of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlace {
    /// The process that serves it.
    pub process: Process,
    /// Where it is mounted.
    pub at: PathBuf,
}

impl Workspace {
    /// Says where this process mounts the workspace; nowhere any more without a place.
    pub fn set_mount_place(&self, at: Option<&Path>) -> Result<()> {
        let file = self.directory().join(journal::DIRECTORY).join(FILE);
        let Some((at, process)) = at.zip(Process::of(std::process::id())) else {
            return match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).at("remove", &file)
                }
                _ => Ok(()),
            };
        };
        let mut out = Encoder::default();
        process.encode(&mut out);
        out.bytes(at.as_os_str().as_bytes());
        let temporary = file.with_extension("tmp");
        std::fs::write(&temporary, out.0).at("write", &temporary)?;
        std::fs::rename(&temporary, &file).at("rename", &file)
    }

    /// Says why what a mount saw cannot be brought into the log; without a reason, that it is there.
    pub fn set_mount_problem(&self, why: Option<&str>) -> Result<()> {
        let file = self.directory().join(journal::DIRECTORY).join(PROBLEM);
        let done = match why {
            Some(why) => std::fs::write(&file, why),
            None => std::fs::remove_file(&file),
        };
        match done {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => done.at("write", &file),
        }
    }

    /// Why what a mount saw cannot be brought into the log.
    pub(super) fn mount_problem(&self) -> Option<String> {
        let file = self.directory().join(journal::DIRECTORY).join(PROBLEM);
        std::fs::read_to_string(file).ok().filter(|why| !why.is_empty())
    }

    /// Where the root itself can be reached by those for whom a mount lies over it.
    pub fn below_mount(&self) -> PathBuf {
        self.directory().join(journal::DIRECTORY).join("below")
    }

    /// Where this workspace is or was mounted last; a process that was killed leaves its word behind.
    pub fn mount_place(&self) -> Result<Option<MountPlace>> {
        Ok(read(&self.directory()))
    }
}

fn read(directory: &Path) -> Option<MountPlace> {
    let bytes = std::fs::read(directory.join(journal::DIRECTORY).join(FILE)).ok()?;
    let mut input = Decoder(&bytes);
    let process = Process::decode(&mut input).ok()?;
    let at = std::ffi::OsString::from_vec(input.bytes().ok()?.to_vec());
    input.end().ok()?;
    Some(MountPlace { process, at: at.into() })
}

impl Home {
    /// The workspace that is mounted at or above a directory, and where.
    pub(crate) fn find_mounted(&self, directory: &Path) -> Result<Option<(Adopted, PathBuf)>> {
        for adopted in self.all()? {
            if let Some(place) = read(&self.workspace(adopted.id))
                && directory.starts_with(&place.at)
            {
                return Ok(Some((adopted, place.at)));
            }
        }
        Ok(None)
    }
}
