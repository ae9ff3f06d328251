//! Running other programs: always with a time limit, never through a shell, never asking anybody.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Result};

/// Output beyond this is not kept.
const LONGEST: u64 = 64 << 20;
/// How much of what a program said is repeated.
const SAID: usize = 600;
/// How often a program is asked whether it is done.
const PAUSE: Duration = Duration::from_millis(3);

/// A program to be run.
pub struct Program {
    command: Command,
    shown: String,
    limit: Duration,
}

impl Program {
    /// A program with its arguments.
    pub fn new(program: impl AsRef<std::ffi::OsStr>, limit: Duration) -> Self {
        let shown = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        // A group of its own, so that what it starts ends with it.
        command.stdin(Stdio::null()).process_group(0);
        Self { command, shown, limit }
    }

    /// A program that is prepared already.
    pub fn prepared(mut command: Command, shown: &str, limit: Duration) -> Self {
        command.stdin(Stdio::null()).process_group(0);
        Self { command, shown: shown.to_owned(), limit }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&argument.as_ref().to_string_lossy());
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<std::ffi::OsStr>>(self, all: impl IntoIterator<Item = S>) -> Self {
        all.into_iter().fold(self, Self::arg)
    }

    /// Where it runs.
    #[must_use]
    pub fn within(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn var(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes a variable of its environment.
    #[must_use]
    pub fn without_var(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Runs it as the owner of a directory, where we are somebody else and may.
    #[must_use]
    pub fn by_owner(mut self, uid: u32, gid: u32) -> Self {
        if rustix::process::geteuid().is_root() && uid != 0 {
            self.command.uid(uid).gid(gid);
        }
        self
    }

    /// Starts it with pipes for a conversation.
    pub fn converse(mut self) -> Result<Child> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = self.shown;
        self.command.spawn().map_err(|error| cannot_start(&shown, &error))
    }

    /// Starts it with its output as a stream; what it says about failures comes with `finish`.
    pub fn stream(mut self) -> Result<Streaming> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|error| cannot_start(&self.shown, &error))?;
        let errors = child.stderr.take().map(gather);
        Ok(Streaming { child: Group(child), errors, shown: self.shown })
    }

    /// Runs it to its end: what it wrote.
    pub fn run(self) -> Result<Vec<u8>> {
        self.run_with(None)
    }

    /// The same, with something to read.
    pub fn run_with(mut self, input: Option<&[u8]>) -> Result<Vec<u8>> {
        let (status, output, said) = self.finish_with(input)?;
        match status.success() {
            true => Ok(output),
            false => Err(failed(&self.shown, status, &said)),
        }
    }

    /// The same where failing is an answer.
    pub fn answer(mut self) -> Result<(bool, Vec<u8>)> {
        let (status, output, _) = self.finish_with(None)?;
        Ok((status.success(), output))
    }

    fn finish_with(&mut self, input: Option<&[u8]>) -> Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        if input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().map_err(|error| cannot_start(&self.shown, &error))?;
        let mut child = Group(child);
        let output = child.0.stdout.take().map(gather);
        let errors = child.0.stderr.take().map(gather);
        let writer = child.0.stdin.take().zip(input).map(|(mut pipe, input)| {
            let input = input.to_vec();
            // It may end without reading everything.
            std::thread::spawn(move || drop(pipe.write_all(&input)))
        });
        let status = child.wait(self.limit, &self.shown)?;
        drop(writer);
        let joined = |gathered: Option<std::thread::JoinHandle<Vec<u8>>>| {
            gathered.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        Ok((status, joined(output), joined(errors)))
    }
}

/// A program whose output is being read.
pub struct Streaming {
    child: Group,
    errors: Option<std::thread::JoinHandle<Vec<u8>>>,
    shown: String,
}

impl Streaming {
    /// Its output.
    pub fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.0.stdout.take()
    }

    /// Waits for its end; failing is an error.
    pub fn finish(mut self, limit: Duration) -> Result<()> {
        let status = self.child.wait(limit, &self.shown)?;
        let said = self.errors.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        if status.success() { Ok(()) } else { Err(failed(&self.shown, status, &said)) }
    }
}

/// A child that does not outlive this value, with everything that it started.
struct Group(Child);

impl Group {
    fn wait(&mut self, limit: Duration, shown: &str) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.0.try_wait().map_err(|error| cannot_start(shown, &error))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                end(&mut self.0);
                let why = format!("it took longer than {} ms", limit.as_millis());
                return Err(Error::Program { program: shown.to_owned(), why });
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            end(&mut self.0);
        }
    }
}

/// Ends a program and everything that it started.
pub fn end(child: &mut Child) {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn gather(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(LONGEST).read_to_end(&mut bytes);
        // Whoever writes more must not be kept waiting for ever.
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        bytes
    })
}

fn cannot_start(shown: &str, error: &std::io::Error) -> Error {
    Error::Program { program: shown.to_owned(), why: error.to_string() }
}

fn failed(shown: &str, status: ExitStatus, said: &[u8]) -> Error {
    let said = String::from_utf8_lossy(said);
    let said = said.trim();
    let cut = said.char_indices().rev().nth(SAID).map_or(0, |(at, _)| at);
    let why = if said.is_empty() { status.to_string() } else { said[cut..].replace('\n', "; ") };
    Error::Program { program: shown.to_owned(), why }
}

/// Finds a program in the places where programs are.
pub fn find(name: &str, places: &[&Path]) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = places.iter().map(|place| place.to_path_buf()).chain(std::env::split_paths(&path));
    all.map(|place| place.join(name)).find(|file| file.is_file())
}
