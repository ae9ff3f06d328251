//! The git repository that takes the commits in, and the `git fast-import` that writes them.
//!
//! Objects come first and nobody sees them. The ref moves at the very end, in one step, and only from
//! where it was found.

use std::collections::HashMap;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Output, Stdio};

use super::REFS;
use super::tree::{Leaf, Step};
use super::words::{Commit, quoted};
use crate::error::{Context, Error, Result};
use crate::git;
use crate::id::ObjectId;

/// How much content is held at once.
const PIECE: usize = 1 << 16;
/// Content from here on git passes through too, instead of holding it.
const BIG: &str = "core.bigFileThreshold=16m";

/// A ref of a repository.
pub(crate) struct Target {
    repository: PathBuf,
    name: String,
    /// The name of no object, as long as this repository's names are.
    nothing: String,
}

impl Target {
    /// A ref below `refs/chronicle/`, by its whole name or what follows that.
    pub(crate) fn new(repository: &Path, given: &str) -> Result<Self> {
        let refuse = || {
            let why =
                format!("Ref {given:?} is not a name below {REFS}: no branch is ever touched");
            Err(Error::Usage(why))
        };
        let inner = match given.strip_prefix(REFS) {
            Some(inner) => inner,
            None if given.starts_with("refs/") || given == "HEAD" || given == "refs" => {
                return refuse();
            }
            None => given,
        };
        if inner.is_empty() || inner.starts_with('-') {
            return refuse();
        }
        let repository = repository.canonicalize().at("open", repository)?;
        let mut target =
            Self { repository, name: format!("{REFS}{inner}"), nothing: String::new() };
        if target.ask(&["rev-parse", "--git-dir"])?.is_none() {
            return Err(target.failed("it is not a git repository"));
        }
        if target.ask(&["check-ref-format", &target.name])?.is_none() {
            return Err(Error::Usage(format!("{given:?} cannot be the name of a ref")));
        }
        let format = target.ask(&["rev-parse", "--show-object-format"])?;
        target.nothing = "0".repeat(if format.as_deref() == Some("sha256") { 64 } else { 40 });
        Ok(target)
    }

    pub(crate) fn repository(&self) -> &Path {
        &self.repository
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The object that the ref names, if it is there.
    pub(crate) fn tip(&self) -> Result<Option<String>> {
        self.ask(&["rev-parse", "--verify", "--quiet", &self.name])
    }

    /// The message of a commit; `None` if it is none.
    pub(crate) fn message(&self, commit: &str) -> Result<Option<String>> {
        let text = self.ask(&["cat-file", "commit", commit])?;
        Ok(text.and_then(|text| text.split_once("\n\n").map(|(_, message)| message.to_owned())))
    }

    /// Whether a commit goes on from another.
    pub(crate) fn goes_on(&self, from: &str, to: &str) -> Result<bool> {
        Ok(self.ask(&["merge-base", "--is-ancestor", from, to])?.is_some())
    }

    /// Moves the ref in one step, if it still is where it was found.
    pub(crate) fn move_ref(&self, from: Option<&str>, to: &str) -> Result<()> {
        let from = from.unwrap_or(&self.nothing);
        let words = ["update-ref", "--no-deref", "-m", "chronicle export", &self.name, to, from];
        let output = self.run(&words)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(self.failed(&said(&output))),
        }
    }

    /// What git says; `None` if it says no.
    fn ask(&self, words: &[&str]) -> Result<Option<String>> {
        let output = self.run(words)?;
        let text = || String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        Ok(output.status.success().then(text))
    }

    fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = git::command(&self.repository);
        // What a repository shows in the place of a commit is not that commit.
        command.env("GIT_NO_REPLACE_OBJECTS", "1").stdin(Stdio::null()).stderr(Stdio::piped());
        command.args(words).output().map_err(|error| self.failed(&format!("git: {error}")))
    }

    fn failed(&self, why: &str) -> Error {
        Error::Export { repository: self.repository.clone(), why: why.to_owned() }
    }

    /// Starts to write commits.
    pub(crate) fn import(&self) -> Result<Import<'_>> {
        let mut command = git::command(&self.repository);
        let command = command.env("GIT_NO_REPLACE_OBJECTS", "1").stderr(Stdio::piped());
        let command = command.args(["-c", BIG, "fast-import", "--quiet", "--done"]);
        let failed = |error: std::io::Error| self.failed(&format!("git: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take().map(BufWriter::new);
        // It never becomes a ref: it is forgotten before git would write it.
        let branch = format!("refs/chronicle-export/{}", std::process::id());
        Ok(Import {
            target: self,
            child: Some(child),
            input,
            branch,
            marks: HashMap::new(),
            last_mark: 0,
            last_commit: None,
        })
    }
}

/// What git complained about, on one line.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    // After its last words, fast-import tells where it keeps a report of its own.
    let first = lines.iter().find(|line| line.starts_with("fatal: ")).or(lines.first());
    first.map_or_else(|| format!("git ended with {}", output.status), |line| (*line).to_owned())
}

/// A running `git fast-import`; it is killed if it is not finished.
pub(crate) struct Import<'t> {
    target: &'t Target,
    child: Option<Child>,
    input: Option<BufWriter<ChildStdin>>,
    branch: String,
    /// Contents that git has already.
    marks: HashMap<ObjectId, u64>,
    last_mark: u64,
    last_commit: Option<u64>,
}

impl Import<'_> {
    /// Whether git has a content already.
    pub(crate) fn has(&self, object: &ObjectId) -> bool {
        self.marks.contains_key(object)
    }

    /// Passes one content on, piece by piece.
    pub(crate) fn blob(
        &mut self,
        object: &ObjectId,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<()> {
        let corrupt = |why: String| Error::Corrupt { object: *object, why };
        self.last_mark += 1;
        let mark = self.last_mark;
        self.write(format!("blob\nmark :{mark}\ndata {size}\n").as_bytes())?;
        let (mut piece, mut left) = (vec![0; PIECE], size);
        loop {
            let count = content.read(&mut piece).map_err(|error| corrupt(error.to_string()))?;
            let Some(rest) = left.checked_sub(count as u64) else {
                return Err(corrupt(format!("it is longer than {size} bytes")));
            };
            if count == 0 {
                break;
            }
            left = rest;
            self.write(&piece[..count])?;
        }
        if left > 0 {
            return Err(corrupt(format!("{left} of its {size} bytes are missing")));
        }
        self.write(b"\n")?;
        self.marks.insert(*object, mark);
        Ok(())
    }

    /// Writes a commit on top of the one before; the contents are there already.
    pub(crate) fn commit(&mut self, commit: &Commit, log: &str, step: &Step) -> Result<()> {
        self.last_mark += 1;
        let (mark, message) = (self.last_mark, commit.message(log));
        let head = format!("commit {}\nmark :{mark}\n{}", self.branch, commit.people());
        self.write(format!("{head}data {}\n{message}", message.len()).as_bytes())?;
        for path in &step.removed {
            self.write(format!("D {}\n", quoted(path.as_bytes())).as_bytes())?;
        }
        for (path, leaf) in &step.written {
            let path = quoted(path.as_bytes());
            match leaf {
                Leaf::File { object, executable, .. } => {
                    let mode = if *executable { "100755" } else { "100644" };
                    let mark = self.marks[object];
                    self.write(format!("M {mode} :{mark} {path}\n").as_bytes())?;
                }
                Leaf::Symlink(target) => {
                    let length = target.len();
                    self.write(format!("M 120000 inline {path}\ndata {length}\n").as_bytes())?;
                    self.write(target)?;
                    self.write(b"\n")?;
                }
            }
        }
        self.write(b"\n")?;
        self.last_commit = Some(mark);
        Ok(())
    }

    /// Sends on what waits, so that a process that dies leaves a git that has begun.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let flushed = self.input.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(|error| self.last_words(&error))
    }

    /// Has git keep everything; gives the name of the last commit.
    pub(crate) fn finish(mut self) -> Result<String> {
        let mark = self.last_commit.expect("BUG: an export has a first commit");
        let (branch, nothing) = (self.branch.clone(), &self.target.nothing);
        let end = format!("get-mark :{mark}\nreset {branch}\nfrom {nothing}\n\ndone\n");
        self.write(end.as_bytes())?;
        self.flush()?;
        let output = self.end()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.split_whitespace().next() {
            Some(name) if output.status.success() => Ok(name.to_owned()),
            _ => Err(self.target.failed(&said(&output))),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.input.as_mut().map_or(Ok(()), |input| input.write_all(bytes));
        written.map_err(|error| self.last_words(&error))
    }

    /// Why git stopped listening.
    fn last_words(&mut self, error: &std::io::Error) -> Error {
        match self.end() {
            Ok(output) => self.target.failed(&said(&output)),
            Err(_) => self.target.failed(&format!("git: {error}")),
        }
    }

    fn end(&mut self) -> Result<Output> {
        // What still waits is not for a git that no longer listens.
        drop(self.input.take().map(BufWriter::into_parts));
        let child = self.child.take().expect("BUG: git ends once");
        let failed = |error: std::io::Error| self.target.failed(&format!("git: {error}"));
        child.wait_with_output().map_err(failed)
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
