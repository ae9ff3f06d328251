//! The secrets that programs show: one for looking, one for taking back, each in a file of the home
//! that only its owner reads.
//!
//! They stay the same for a home, so that a program's settings can hold them; whoever removes a file
//! takes the right away with the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chronicle_core::{Home, to_hex};

/// The longest content of a file that is read.
const LENGTH_MOST: u64 = 1024;
/// The shortest secret that counts as one.
const LENGTH_LEAST: usize = 32;

/// Where the server keeps what it has to remember.
pub(crate) fn directory(home: &Home) -> PathBuf {
    home.path().join("web")
}

/// Makes that directory, for its owner alone.
pub(crate) fn make_directory(home: &Home) -> io::Result<PathBuf> {
    let path = directory(home);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    Ok(path)
}

/// Random bytes as hexadecimal digits: what nobody guesses.
pub(crate) fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(to_hex(&bytes))
}

/// Reads a secret, or makes one.
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
    let token = random()?;
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
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_that_others_can_read_is_refused() {
        let holder = tempfile::tempdir().unwrap();
        let path = holder.path().join("look-token");
        let first = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_or_make(&path).is_err());
    }
}
