//! Bringing something that lies beside a path into its place, so that it can be told at any time, also
//! after a crash, how far that has come.
//!
//! Three names lie in one directory: the place itself, the *new* thing beside it, and the *old* one, once
//! it was moved out. The new one is known by its inode, since after an exchange the names alone do not tell.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chronicle_core::failpoint;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::driver::{Staged, beside};
use crate::error::{Context, Error, Result};

/// The word under which the new thing's identity is noted.
const IDENTITY: &str = "identity";
/// Noted in its place where nothing is to stand there.
const NOTHING: &str = "nothing";

/// What tells two things apart that lie in one directory.
pub type Identify = fn(&Path) -> Result<String>;

/// An exchange of what stands at a path.
pub struct Exchange {
    target: PathBuf,
    new: PathBuf,
    old: PathBuf,
    identify: Identify,
}

/// The usual identity: the inode.
pub fn inode(path: &Path) -> Result<String> {
    Ok(fs::symlink_metadata(path).at("examine", path)?.ino().to_string())
}

impl Exchange {
    /// The exchange at a path that belongs to one restore.
    pub fn at(target: &Path, id: &str) -> Self {
        let (new, old) = (beside(target, "new", id), beside(target, "old", id));
        Self { target: target.to_owned(), new, old, identify: inode }
    }

    /// The same for things that inodes do not tell apart.
    #[must_use]
    pub fn identified_by(self, identify: Identify) -> Self {
        Self { identify, ..self }
    }

    /// Where the new thing is put before the exchange.
    pub fn new_place(&self) -> &Path {
        &self.new
    }

    /// Where the old thing is afterwards.
    pub fn old_place(&self) -> &Path {
        &self.old
    }

    /// Makes what lies at the new place durable by name, and notes which it is.
    pub fn stage(&self) -> Result<Staged> {
        let identity = match exists(&self.new)? {
            true => (self.identify)(&self.new)?,
            false => NOTHING.to_owned(),
        };
        self.sync()?;
        Ok(Staged::from([(IDENTITY.to_owned(), identity)]))
    }

    /// Brings the new thing into its place and the old one out of it; done twice it is done once.
    pub fn swap(&self, staged: &Staged) -> Result<()> {
        let wanted = wanted(staged)?;
        if wanted == NOTHING {
            if exists(&self.target)? && !exists(&self.old)? {
                self.rename(&self.target, &self.old)?;
            }
            return self.sync();
        }
        if exists(&self.new)? && (self.identify)(&self.new)? == wanted {
            match exists(&self.target)? {
                true => self.exchange()?,
                false => return self.rename(&self.new, &self.target).and_then(|()| self.sync()),
            }
            failpoint::hit("restore_in_exchange");
        }
        // After the exchange the old thing has the new one's name.
        if exists(&self.new)? && (self.identify)(&self.target)? == wanted {
            self.rename(&self.new, &self.old)?;
        }
        self.sync()
    }

    /// Takes a swap back, however far it came.
    pub fn swap_back(&self, staged: &Staged) -> Result<()> {
        let wanted = wanted(staged)?;
        let has_new = exists(&self.target)? && (self.identify)(&self.target)? == wanted;
        match (has_new, exists(&self.old)?) {
            // The old thing still has the new one's name.
            (true, false) if exists(&self.new)? => self.exchange()?,
            (true, false) => self.rename(&self.target, &self.new)?,
            (true, true) => {
                self.rename(&self.old, &self.new)?;
                self.exchange()?;
            }
            (false, true) if !exists(&self.target)? => self.rename(&self.old, &self.target)?,
            _ => {}
        }
        self.sync()
    }

    /// Whether the new thing stands in its place.
    pub fn is_swapped(&self, staged: &Staged) -> Result<bool> {
        let wanted = wanted(staged)?;
        match exists(&self.target)? {
            true => Ok((self.identify)(&self.target)? == wanted),
            false => Ok(wanted == NOTHING),
        }
    }

    fn exchange(&self) -> Result<()> {
        renameat_with(CWD, &self.new, CWD, &self.target, RenameFlags::EXCHANGE)
            .at("exchange", &self.target)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).at("rename", from)
    }

    fn sync(&self) -> Result<()> {
        sync_directory(self.target.parent().unwrap_or(Path::new("/")))
    }
}

fn wanted(staged: &Staged) -> Result<&str> {
    let noted = staged.get(IDENTITY).map(String::as_str);
    noted.ok_or_else(|| Error::Declared("A restore's state does not say what was staged".into()))
}

/// Whether something stands at a path, not following it; what cannot be told is an error.
pub fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        other => other.at("examine", path).map(|_| true),
    }
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|directory| directory.sync_all()).at("sync", path)
}

/// Removes a file or a whole directory that this crate made; nothing there is no error.
pub fn remove(path: &Path) -> Result<()> {
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        about => about.at("examine", path)?,
    };
    match about.is_dir() {
        true => fs::remove_dir_all(path).at("remove", path),
        false => fs::remove_file(path).at("remove", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a swap and its way back begin anew at every place where they may have stopped.
    #[test]
    fn an_exchange_may_be_done_and_taken_back_again_from_anywhere() {
        for (had, has) in [(true, true), (true, false), (false, true), (false, false)] {
            let scratch = tempfile::tempdir().unwrap();
            let target = scratch.path().join("data");
            let exchange = Exchange::at(&target, "1");
            if had {
                fs::write(&target, "old").unwrap();
            }
            if has {
                fs::write(exchange.new_place(), "new").unwrap();
            }
            let content = || fs::read_to_string(&target).ok();
            let (old, new) = (had.then(|| "old".to_owned()), has.then(|| "new".to_owned()));
            let staged = exchange.stage().unwrap();
            exchange.swap_back(&staged).unwrap();
            assert_eq!(content(), old);
            for _ in 0..2 {
                exchange.swap(&staged).unwrap();
                exchange.swap(&staged).unwrap();
                assert_eq!(content(), new);
                assert!(exchange.is_swapped(&staged).unwrap());
                assert_eq!(fs::read_to_string(exchange.old_place()).ok(), old);
                exchange.swap_back(&staged).unwrap();
                exchange.swap_back(&staged).unwrap();
                assert_eq!(content(), old);
                assert_eq!(fs::read_to_string(exchange.new_place()).ok(), new);
            }
            if had && has {
                // Killed between the exchange and the rename behind it.
                exchange.exchange().unwrap();
                exchange.swap_back(&staged).unwrap();
                assert_eq!(content(), old);
                exchange.exchange().unwrap();
                exchange.swap(&staged).unwrap();
                assert_eq!(content(), new);
                // Killed in the middle of the way back.
                exchange.rename(exchange.old_place(), exchange.new_place()).unwrap();
                exchange.swap_back(&staged).unwrap();
                assert_eq!(content(), old);
            }
        }
    }
}
