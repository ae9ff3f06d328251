//! The secret that clients over HTTP must know: 32 random bytes in a file that only its owner reads.
//!
//! It stays the same for a home, so that a client's settings can hold it. Whoever can read it has
//! the owner's rights anyway; what it keeps out is other users and pages in the owner's browser.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chronicle_core::{Home, to_hex};

/// The longest content of the file that is read.
const LENGTH_MOST: u64 = 1024;
/// The shortest secret that counts as one.
const LENGTH_LEAST: usize = 32;

/// Where the secret of a home lies.
pub(crate) fn path(home: &Home) -> PathBuf {
    home.path().join("mcp-token")
}

/// Reads the secret, or makes one.
pub(crate) fn read_or_make(path: &Path) -> io::Result<String> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        read => read,
    }
}

fn read(path: &Path) -> io::Result<String> {
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nofollow).open(path)?;
    let metadata = file.metadata()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    if !metadata.is_file() || !own || metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other("others can read or change it: it must be yours, mode 0600"));
    }
    let mut text = String::new();
    file.take(LENGTH_MOST).read_to_string(&mut text)?;
    match text.trim() {
        short if short.len() < LENGTH_LEAST => Err(io::Error::other("it is too short")),
        token => Ok(token.to_owned()),
    }
}

/// Writes a whole file aside and links it into place, so that nobody ever reads half a secret.
fn make(path: &Path) -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let token = to_hex(&bytes);
    let aside = path.with_extension(format!("{}.tmp", std::process::id()));
    let _ = fs::remove_file(&aside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside)?;
    match linked {
        // Somebody else was first: his counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        linked => linked.map(|()| token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_made_once_and_only_its_owner_can_read_it() {
        let holder = tempfile::tempdir().unwrap();
        let path = holder.path().join("mcp-token");
        let first = read_or_make(&path).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_or_make(&path).unwrap(), first);
        assert_eq!(fs::read_dir(holder.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_that_others_can_read_is_refused() {
        let holder = tempfile::tempdir().unwrap();
        let path = holder.path().join("mcp-token");
        read_or_make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_or_make(&path).is_err());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(read_or_make(&path).is_err());
    }
}
