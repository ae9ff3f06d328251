//! `rsync` over a link: a daemon on this machine, as another machine would have it.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::links::rsynced;
use crate::measure::{Result, run};

/// How long a daemon may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A daemon that takes what is sent into one directory.
pub(crate) struct Daemon {
    child: Child,
    address: OsString,
    directory: PathBuf,
}

impl Daemon {
    /// Starts one for a directory of this name, which is not made.
    pub(crate) fn new(scratch: &Path, name: &str) -> Result<Self> {
        let (directory, config) = (scratch.join(name), scratch.join(format!("{name}.conf")));
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let user = rustix::process::geteuid().as_raw();
        let text = format!(
            "use chroot = no\n[tree]\npath = {}\nread only = no\nuid = {user}\ngid = {}\n",
            directory.display(),
            rustix::process::getegid().as_raw(),
        );
        fs::write(&config, text)?;
        let mut command = Command::new("rsync");
        command.args(["--daemon", "--no-detach", "--address=127.0.0.1"]);
        command.arg(format!("--port={port}")).arg("--config").arg(&config);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let address = format!("rsync://127.0.0.1:{port}/tree/").into();
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                return Err("the daemon does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { child, address, directory })
    }

    /// Where it puts what it is sent.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sends a tree, in milliseconds; what it wrote is not durable, unless it is told to make it so.
    pub(crate) fn rsynced(&self, from: &Path, more: &[&str]) -> Result<f64> {
        rsynced(from, &self.address, more)
    }

    /// The same, and what makes it durable.
    pub(crate) fn synced(&self, from: &Path) -> Result<f64> {
        let begun = Instant::now();
        self.rsynced(from, &[])?;
        run(Command::new("sync").arg("-f").arg(&self.directory), &[0])?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
