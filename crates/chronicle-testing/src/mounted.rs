//! Real file systems in a file, mounted through a loop device for the time of a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own; unmounted and gone when dropped.
#[derive(Debug)]
pub struct Mounted {
    holder: tempfile::TempDir,
}

impl Mounted {
    /// Makes a file system of this kind with so many bytes, which take room only once they are
    /// written; the reason in words where that cannot be done here.
    pub fn new(kind: &str, bytes: u64) -> Result<Self, String> {
        Self::within(&std::env::temp_dir(), kind, bytes)
    }

    /// The same with its image in this directory.
    pub fn within(directory: &Path, kind: &str, bytes: u64) -> Result<Self, String> {
        if !crate::shared::is_root() {
            return Err("mounting a file system needs root".to_owned());
        }
        let holder = tempfile::Builder::new().prefix("chronicle-mount-").tempdir_in(directory);
        let holder = holder.map_err(|error| format!("no room for an image: {error}"))?;
        let (image, at) = (holder.path().join("image"), holder.path().join("at"));
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(bytes));
        made.and_then(|()| std::fs::create_dir(&at))
            .map_err(|error| format!("no room for an image: {error}"))?;
        run(Command::new(format!("mkfs.{kind}")).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))?;
        Ok(Self { holder })
    }

    /// Where it is mounted.
    pub fn at(&self) -> PathBuf {
        self.holder.path().join("at")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount(&self.at());
    }
}

fn umount(at: &Path) -> Result<(), String> {
    run(Command::new("umount").arg(at)).or_else(|_| run(Command::new("umount").arg("-l").arg(at)))
}

fn run(command: &mut Command) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("{name}: {}", why.lines().last().unwrap_or("it failed")))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}
