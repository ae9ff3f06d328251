//! Runs the `chronicle` command in a world of its own: its own home, its own workspace, no variable
//! of the person who runs the tests.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A scratch world for one test; gone when dropped.
#[derive(Debug)]
pub struct Env {
    holder: tempfile::TempDir,
    binary: PathBuf,
    workspace: PathBuf,
    home: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

/// What a command said and how it ended.
#[must_use = "look at the output or say how it should have ended"]
#[derive(Debug)]
pub struct Ran {
    /// The words of the command line.
    pub words: String,
    /// How it ended, and what it wrote.
    pub output: Output,
}

impl Env {
    /// A world around a binary, usually `env!("CARGO_BIN_EXE_chronicle")`.
    ///
    /// `CHRONICLE_BIN` names another one, since a test that runs as another user may not be able
    /// to reach the build directory.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        let holder = tempfile::Builder::new()
            .prefix("chronicle-test-")
            .tempdir()
            .expect("a scratch directory can be made");
        let binary = std::env::var_os("CHRONICLE_BIN").map_or(binary.into(), PathBuf::from);
        let (workspace, home) = (holder.path().join("ws"), holder.path().join("home"));
        let env = Self { holder, binary, workspace, home, variables: Vec::new() };
        std::fs::create_dir(env.workspace()).expect("the workspace can be made");
        env
    }

    /// The command that is tested.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The same world around another copy of the command.
    pub fn with_binary(self, binary: PathBuf) -> Self {
        Self { binary, ..self }
    }

    /// The same world with history kept elsewhere.
    pub fn with_home(self, home: PathBuf) -> Self {
        Self { home, ..self }
    }

    /// The same world with another directory as its workspace.
    pub fn with_workspace(self, workspace: PathBuf) -> Self {
        Self { workspace, ..self }
    }

    /// The same world with a variable more, or another value of one.
    pub fn with_variable(mut self, name: &'static str, value: impl Into<PathBuf>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// The workspace's directory.
    pub fn workspace(&self) -> PathBuf {
        self.workspace.clone()
    }

    /// Where history is kept.
    pub fn home(&self) -> PathBuf {
        self.home.clone()
    }

    /// The scratch directory of this world, which holds both unless they were put elsewhere.
    pub fn base(&self) -> &Path {
        self.holder.path()
    }

    /// A path in the workspace.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.workspace().join(relative)
    }

    /// Writes a file in the workspace, with the directories above it.
    pub fn write(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        let parent = path.parent().expect("a path in the workspace has a parent");
        std::fs::create_dir_all(parent).expect("directories can be made");
        std::fs::write(&path, content)
            .unwrap_or_else(|error| panic!("could not write {}: {error}", path.display()));
    }

    /// The text of a file in the workspace; `None` where there is none.
    pub fn read(&self, relative: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.path(relative)).ok()
    }

    /// The command, ready to be given words, in the workspace and with nothing inherited.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .env("HOME", self.base())
            .env("CHRONICLE_HOME", self.home())
            .env("TMPDIR", self.base())
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .current_dir(self.workspace())
            .stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Copies the command to where somebody else can reach it.
    ///
    /// By another process: a program that this one still writes, or that a child of another test inherited while it was
    /// written, cannot be started.
    pub fn copy_binary(&self, to: &Path) {
        let copied = Command::new("cp").arg(&self.binary).arg(to).status();
        assert!(copied.is_ok_and(|status| status.success()), "could not copy to {}", to.display());
    }

    /// Runs the command with these words.
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        self.run_with(words, |_| {})
    }

    /// Runs the command with these words, after a last change to how it starts.
    pub fn run_with<S: AsRef<OsStr>>(
        &self,
        words: &[S],
        prepare: impl FnOnce(&mut Command),
    ) -> Ran {
        let mut command = self.command();
        command.args(words);
        prepare(&mut command);
        let output = command.output().unwrap_or_else(|error| {
            panic!("could not run {}: {error}", self.binary.display());
        });
        let words: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        Ran { words: words.join(" "), output }
    }

    /// Runs the command with these words and expects it to succeed.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, words: &[S]) -> String {
        self.run(words).code(0).stdout()
    }
}

impl Ran {
    /// Expects an exit status.
    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        assert_eq!(self.output.status.code(), Some(expected), "{}", self.story());
        self
    }

    /// Whether it succeeded.
    pub fn is_done(&self) -> bool {
        self.output.status.success()
    }

    /// Whether the process was killed outright.
    pub fn was_killed(&self) -> bool {
        self.output.status.signal() == Some(9)
    }

    /// What it wrote as data.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What it wrote besides.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Everything, for a failure's message.
    pub fn story(&self) -> String {
        let (status, out, err) = (self.output.status, self.stdout(), self.stderr());
        format!("chronicle {} ended with {status}\n{out}{err}", self.words)
    }
}
