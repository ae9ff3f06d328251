//! Reading and replacing other people's files: through links, in one step, with their rights.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Rights of what only its owner may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// How many links lead from one to the next before it is a circle.
const LINKS: usize = 40;

/// The file behind symbolic links, which need not be there: those who keep their settings elsewhere
/// link to them.
pub(crate) fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(target) => {
                path = path.parent().unwrap_or(Path::new("/")).join(target);
            }
            Err(_) => return Ok(path),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// The text of a file; nothing if it is not there.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether nobody may write to a file that is there. Renaming over it would work, and be rude.
pub(crate) fn is_read_only(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o222 == 0)
}

/// The directories above a file that are not there, outermost first.
pub(crate) fn missing_directories(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1);
    let mut missing: Vec<_> =
        above.take_while(|directory| !directory.exists()).map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Writes a file in one step, with the rights and the owner of the one that is there.
pub(crate) fn write(path: &Path, text: &str, executable: bool) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    replace(path, text.as_bytes(), if executable { 0o777 } else { 0o666 })
}

/// Writes a file in one step; `mode` is for one that is not there yet.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let there = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        there => Some(there?),
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fill(&temporary, bytes, mode, there.as_ref())
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| sync_directory(path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(path: &Path, bytes: &[u8], mode: u32, there: Option<&Metadata>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if let Some(there) = there {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (there.uid(), there.gid()) {
            std::os::unix::fs::fchown(&file, Some(there.uid()), Some(there.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(there.mode() & 0o7777))?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// Removes a file, then those of the directories that are empty, innermost first.
pub(crate) fn remove(path: &Path, directories: &[PathBuf]) -> io::Result<()> {
    fs::remove_file(path)?;
    for directory in directories.iter().rev() {
        let _ = fs::remove_dir(directory);
    }
    Ok(())
}

/// Moves a file out of the agent's sight, beside its place; says where.
pub(crate) fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".edited");
    let aside = path.with_file_name(name);
    if fs::symlink_metadata(&aside).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    fs::rename(path, &aside)?;
    Ok(aside)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory)?.sync_all()
}
