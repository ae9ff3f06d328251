//! A Unix socket that only its owner reaches: the file is 0600, its directory belongs to nobody else, and the
//! kernel says who connects.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A socket that listens, and the file that leads to it.
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
    also: Vec<u32>,
}

/// Who connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visitor {
    /// The same user, who could do everything anyway.
    Owner,
    /// Another user who was let in, and must show a token.
    Other(u32),
}

impl Door {
    /// Listens at a path. What was left there by a server that is gone is replaced; anything that somebody
    /// listens at, is not a socket or belongs to another user is not.
    pub fn open(path: &Path, also: &[u32]) -> io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        check_directory(directory.unwrap_or(Path::new(".")), !also.is_empty())?;
        check_place(path)?;
        // Under a name of its own first, so that nobody reaches it before it is protected.
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let _ = std::fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside)?;
        let mode = if also.is_empty() { 0o600 } else { 0o666 };
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode))?;
        let meta = std::fs::symlink_metadata(&beside)?;
        std::fs::rename(&beside, path)?;
        let inode = (meta.dev(), meta.ino());
        Ok(Self { listener, path: path.to_owned(), inode, also: also.to_vec() })
    }

    /// The next one who may come in; others are turned away without a word.
    pub async fn accept(&self) -> io::Result<(UnixStream, Visitor)> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let uid = stream.peer_cred()?.uid();
            if uid == own_uid() {
                return Ok((stream, Visitor::Owner));
            }
            if self.also.contains(&uid) {
                return Ok((stream, Visitor::Other(uid)));
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let meta = std::fs::symlink_metadata(&self.path);
        if meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Connects to a host's socket, which must belong to the one that we expect: ourselves or root.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    let uid = stream.peer_cred()?.uid();
    if uid != own_uid() && uid != 0 {
        let words = format!("user {uid} listens there, and not you");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
    }
    Ok(stream)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory must be ours and let nobody else in; one that is missing is made so.
fn check_directory(directory: &Path, shared: bool) -> io::Result<()> {
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(if shared { 0o711 } else { 0o700 }).create(directory)
        }
        Err(error) => Err(error),
        Ok(meta) if meta.uid() != own_uid() && meta.uid() != 0 => {
            refused(directory, "belongs to another user")
        }
        // Where others may write, they could put a socket of theirs in its place.
        Ok(meta) if meta.mode() & 0o022 != 0 => {
            refused(directory, "can be written to by others: choose one of mode 0700")
        }
        Ok(_) => Ok(()),
    }
}

fn check_place(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    if !meta.file_type().is_socket() {
        return refused(path, "is there and is no socket");
    }
    if meta.uid() != own_uid() {
        return refused(path, "belongs to another user");
    }
    match BlockingStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there already")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
    }
}

fn refused(path: &Path, why: &str) -> io::Result<()> {
    let words = format!("{} {why}", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn the_file_is_private_and_goes_with_its_door() {
        let holder = tempfile::tempdir().expect("a directory");
        let path = holder.path().join("run/host.sock");
        runtime().block_on(async {
            let door = Door::open(&path, &[]).expect("it opens");
            let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o777;
            assert_eq!((mode(&path), mode(&holder.path().join("run"))), (0o600, 0o700));
            let (accepted, connected) = tokio::join!(door.accept(), connect(&path));
            assert_eq!(accepted.expect("ourselves").1, Visitor::Owner);
            connected.expect("it answers");
            drop(door);
            assert!(!path.exists());
        });
    }

    #[test]
    fn only_a_socket_that_nobody_listens_at_is_replaced() {
        let holder = tempfile::tempdir().expect("a directory");
        let path = holder.path().join("host.sock");
        runtime().block_on(async {
            let first = Door::open(&path, &[]).expect("it opens");
            let second = Door::open(&path, &[]).err().expect("somebody listens");
            assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
            // One that was killed leaves its file.
            let inode = first.inode;
            std::mem::forget(UnixListener::bind(holder.path().join("x")).expect("bound"));
            drop(first);
            drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
            let third = Door::open(&path, &[]).expect("nobody listens there");
            assert_ne!(third.inode, inode);
            drop(third);
            std::fs::write(&path, "a file").expect("written");
            assert!(Door::open(&path, &[]).is_err());
            std::fs::remove_file(&path).expect("removed");
            std::os::unix::fs::symlink("/etc/passwd", &path).expect("linked");
            assert!(Door::open(&path, &[]).is_err());
        });
    }

    #[test]
    fn a_directory_that_others_write_to_is_refused() {
        let holder = tempfile::tempdir().expect("a directory");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(holder.path(), open).expect("opened to all");
        assert!(runtime().block_on(async { Door::open(&holder.path().join("s"), &[]).is_err() }));
    }
}
