//! The little project of the demonstration: one of every kind of thing that can be lost.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What the person reads and changes.
pub(super) const README: &str = "# Greeter\n\nUsage: python src/main.py NAME\n\n\
     It greets people.\n\nIt is small.\n\nIt is tested.\n\nLicence: MIT\n";

/// What the agent changes with its edit tool.
pub(super) const MAIN: &str = "import sys\n\n\
     def greet(name):\n    return 'Hello, ' + name\n\n\
     if __name__ == '__main__':\n    print(greet(sys.argv[1]))\n";

/// A directory of our own, removed at the end.
pub(super) struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes a new directory beside the other temporary ones.
    pub(super) fn new() -> io::Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("chronicle-demo-{}-{:08x}", std::process::id(), now.subsec_nanos());
        let path = fs::canonicalize(std::env::temp_dir())?.join(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(Self { path, keep: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory where it is.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes the project, some of it long ago.
pub(super) fn write(root: &Path) -> io::Result<()> {
    for directory in ["src", "docs/pictures", "scripts", "assets", "data", "notes", "empty"] {
        fs::create_dir_all(root.join(directory))?;
    }
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = root.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    };
    file("README.md", README.as_bytes(), 0o644)?;
    file("src/main.py", MAIN.as_bytes(), 0o644)?;
    file("src/names.py", b"NAMES = ['Ada', 'Grace', 'Barbara']\n", 0o644)?;
    file("docs/guide.md", b"# Guide\n\nOne page, written with care.\n", 0o644)?;
    file("docs/pictures/arc.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>\n", 0o644)?;
    file("scripts/deploy.sh", b"#!/bin/sh\necho deploying\n", 0o755)?;
    file(".env", b"TOKEN=only-on-this-machine\n", 0o600)?;
    file("assets/logo.png", &binary(b"\x89PNG\r\n\x1a\n", 3000), 0o644)?;
    file("app.db", &binary(b"SQLite format 3\0", 8192), 0o640)?;
    file("data/people.csv", b"name\nAda\nGrace\n", 0o444)?;
    fs::hard_link(root.join("data/people.csv"), root.join("data/also-people.csv"))?;
    symlink("src/main.py", root.join("run"))?;
    // Not every filesystem has attributes; where it has, they come back too.
    let _ = rustix::fs::setxattr(
        root.join("docs/guide.md"),
        "user.reviewed",
        b"yes",
        rustix::fs::XattrFlags::empty(),
    );
    let long_ago =
        FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(1_000_000));
    for name in ["docs/guide.md", "assets/logo.png"] {
        File::options().write(true).open(root.join(name))?.set_times(long_ago)?;
    }
    Ok(())
}

/// Bytes that are not text and do not compress to nothing, behind a known beginning.
fn binary(start: &[u8], length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    });
    start.iter().copied().chain(noise).take(length).collect()
}
