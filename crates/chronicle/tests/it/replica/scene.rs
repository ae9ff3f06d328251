//! One host and its replicas, each with a home of its own, as processes that can be killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Cli;

/// How long the two sides may take to become equal on a machine that is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed at the end, however the test ends.
pub(super) struct Running(pub(super) Child);

impl Running {
    pub(super) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("start the command"))
    }

    /// The end that no process can catch.
    pub(super) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("reaped");
    }

    /// Asks it to end, and waits.
    pub(super) fn end(mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
        wait_until("the process ends", || self.0.try_wait().expect("asked").is_some());
        self.0.wait().expect("reaped")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host whose workspace is adopted, and where it listens.
pub(super) struct Host {
    pub(super) cli: Cli,
    pub(super) log: PathBuf,
}

impl Host {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let cli = Cli::adopted(files);
        let log = cli.home().join("serve.log");
        Self { cli, log }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.cli.home().join("host.sock")
    }

    /// Serves on the socket, and waits until it does.
    pub(super) fn serve(&self) -> Running {
        self.serve_with(&[])
    }

    pub(super) fn serve_with(&self, more: &[&str]) -> Running {
        let socket = self.socket();
        let mut arguments = vec!["serve", "--socket", socket.to_str().expect("text")];
        arguments.extend(more);
        let log = fs::File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut command = self.cli.command(arguments);
        let running = Running::start(command.stderr(log).stdout(Stdio::null()));
        wait_until("the host listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        running
    }
}

/// A replica with a home of its own.
pub(super) struct Replica {
    pub(super) cli: Cli,
    pub(super) socket: PathBuf,
}

impl Replica {
    pub(super) fn of(host: &Host) -> Self {
        Self { cli: Cli::new(), socket: host.socket() }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.cli.root()
    }

    pub(super) fn command(&self, more: &[&str]) -> Command {
        let root = self.root();
        let mut arguments = vec!["connect", "--socket", self.socket.to_str().expect("text")];
        arguments.extend(more);
        arguments.push(root.to_str().expect("text"));
        self.cli.command(arguments)
    }

    pub(super) fn connect(&self) -> Running {
        let log = self.cli.home().with_extension("log");
        let log = fs::File::options().create(true).append(true).open(log).expect("a log");
        Running::start(self.command(&[]).stderr(log).stdout(Stdio::null()))
    }

    /// Syncs until both sides are equal, and ends.
    #[track_caller]
    pub(super) fn once(&self) {
        let output = self.command(&["--once"]).output().expect("started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What stands below a directory: kinds, bits, contents and targets.
pub(super) fn tree(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            // Somebody may be in the middle of putting it there, or take it away while this looks.
            let Ok(meta) = path.symlink_metadata() else { continue };
            if entry.file_name().as_bytes().starts_with(b".chronicle-") {
                continue;
            }
            let mode = meta.permissions().mode() & 0o1777;
            let what = if meta.is_dir() {
                open.push(path.clone());
                format!("directory {mode:o}")
            } else if meta.is_symlink() {
                format!("link {:?}", fs::read_link(&path).unwrap_or_default())
            } else {
                let content = fs::read(&path).unwrap_or_default();
                format!("file {mode:o} {} {}", content.len(), blake3::hash(&content))
            };
            found.insert(name, what);
        }
    }
    found
}

/// Waits for the kernel and other processes, and fails with words when they take too long.
#[track_caller]
pub(super) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the trees are the same.
#[track_caller]
pub(super) fn wait_until_equal(roots: &[&Path]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let trees: Vec<_> = roots.iter().map(|root| tree(root)).collect();
        if trees.windows(2).all(|pair| pair[0] == pair[1]) {
            return;
        }
        if Instant::now() >= deadline {
            for other in &trees[1..] {
                for (path, what) in &trees[0] {
                    if other.get(path) != Some(what) {
                        let path = String::from_utf8_lossy(path);
                        eprintln!("{path}: {what} against {:?}", other.get(path.as_bytes()));
                    }
                }
                for path in other.keys().filter(|path| !trees[0].contains_key(*path)) {
                    eprintln!("{}: only there", String::from_utf8_lossy(path));
                }
            }
            panic!("the trees never became equal");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes of memory that a process has.
pub(super) fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    let pages: u64 = text.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}
