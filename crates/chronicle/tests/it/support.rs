//! A hermetic place to call the command from: its own home, history, workspace and environment.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The command under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_chronicle");

/// One scratch machine: a person's home, a history, and a directory to work in.
pub(crate) struct Cli {
    scratch: TempDir,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

impl Cli {
    /// A new one, with nothing adopted.
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        fs::create_dir(scratch.path().join("workspace")).expect("a workspace");
        Self { scratch }
    }

    /// A new one whose workspace has these files and is adopted.
    pub(crate) fn adopted(files: &[(&str, &str)]) -> Self {
        let cli = Self::new();
        for (name, content) in files {
            cli.write(name, content);
        }
        cli.call(["init"]).ok();
        cli
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.scratch.path().join("workspace")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("make the parents");
        fs::write(path, content).expect("write a file");
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root().join(name)).ok()
    }

    /// The command, in the workspace, with nothing of this machine's environment.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        // A test that runs as another user may not be able to reach the one that was built.
        let program = std::env::var_os("CHRONICLE_BIN").unwrap_or_else(|| PROGRAM.into());
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.scratch.path())
            .env("CHRONICLE_HOME", self.home())
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .env("TZ", "UTC")
            // A test that wants a watcher says so.
            .env("CHRONICLE_WATCH", "off")
            .stdin(Stdio::null());
        command
    }

    #[must_use = "check what came of the call, at least with .ok()"]
    pub(crate) fn call<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Done {
        done(self.command(arguments).output().expect("start the command"))
    }

    /// A turn of a session, with what it does.
    pub(crate) fn turn(&self, session: &str, prompt: &str, work: impl FnOnce()) {
        self.call(["turn", "start", "--session", session, "--prompt", prompt]).ok();
        work();
        self.call(["turn", "end", "--session", session]).ok();
    }
}

/// What came of a call, as text.
#[must_use = "check what came of the call, at least with .ok()"]
pub(crate) fn done(output: Output) -> Done {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    let status = output.status.code().expect("not killed by a signal");
    Done { stdout: text(output.stdout), stderr: text(output.stderr), status }
}

impl Done {
    /// Asserts that it went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.exits(0)
    }

    /// Asserts the exit status.
    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The one JSON object on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON objects on stdout, one per line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse =
            |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The error as JSON: the last line on stderr.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Every path below a directory that exists, sorted.
pub(crate) fn listing(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
