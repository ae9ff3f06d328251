//! A git repository that keeps heads as a note: it is pushed, fetched and backed up with the rest.
//!
//! The note is on an object that names the workspace. It holds the first head that was handed over
//! and the newest; the history of the notes holds those between.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Place, Witness};
use crate::error::Result;
use crate::git;
use crate::head::{NOTES_REF, SignedHead};
use crate::id::WorkspaceId;

/// How often a running git is looked at.
const TICK: Duration = Duration::from_millis(2);
/// How long git may take to say whether a directory is a repository.
const CHECK: Duration = Duration::from_secs(5);
/// The most that is read of a note.
const LONGEST_NOTE: u64 = 60_000;

/// A repository as a witness.
pub(super) struct GitWitness {
    repository: PathBuf,
    limit: Duration,
}

impl GitWitness {
    pub(super) fn new(path: &Path, limit: Duration) -> Self {
        Self { repository: path.to_owned(), limit }
    }

    fn place(&self) -> Place {
        Place::Git(self.repository.clone())
    }

    /// Runs git until the time is over; `None` if it failed.
    fn run(&self, words: &[&str], input: &str, until: Instant) -> Result<Option<String>> {
        let failed = |error: std::io::Error| self.place().error(format!("git: {error}"));
        let mut child = git::command(&self.repository).args(words).spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A git that does not listen says why by its status.
            let _ = stdin.write_all(input.as_bytes());
        }
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if Instant::now() >= until => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(self.place().error("git took too long"));
                }
                None => std::thread::sleep(TICK),
            }
        };
        let mut text = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(LONGEST_NOTE).read_to_end(&mut text).map_err(failed)?;
        }
        Ok(status.success().then(|| String::from_utf8_lossy(&text).into_owned()))
    }

    /// The name of the object that stands for a workspace; it is written if asked.
    fn object(&self, workspace: WorkspaceId, write: bool, until: Instant) -> Result<String> {
        let name = format!("chronicle/1 {}\n", workspace.hex());
        let words: &[&str] =
            if write { &["hash-object", "-w", "--stdin"] } else { &["hash-object", "--stdin"] };
        let found = self.run(words, &name, until)?;
        let found = found.ok_or_else(|| self.place().error("it is not a git repository"))?;
        Ok(found.trim().to_owned())
    }

    fn heads(
        &self,
        object: &str,
        workspace: WorkspaceId,
        until: Instant,
    ) -> Result<Vec<SignedHead>> {
        let note = self.run(&["notes", "--ref", NOTES_REF, "show", object], "", until)?;
        Ok(SignedHead::find_all(&note.unwrap_or_default(), workspace))
    }
}

impl Witness for GitWitness {
    fn hand_over(&self, head: &SignedHead) -> Result<()> {
        let until = Instant::now() + self.limit;
        let workspace = head.head.workspace;
        let object = self.object(workspace, true, until)?;
        let mut kept = self.heads(&object, workspace, until)?;
        let key = kept.first().map_or(head.head.key, |first| first.head.key);
        if key == head.head.key {
            kept.push(head.clone());
        }
        let first = kept.first().cloned();
        let newest = SignedHead::newest_of(kept);
        let texts: Vec<_> = first.iter().chain(&newest).map(SignedHead::text).collect();
        let words = ["notes", "--ref", NOTES_REF, "add", "-f", "-F", "-", &object];
        match self.run(&words, &texts.join("\n"), until)? {
            Some(_) => Ok(()),
            None => Err(self.place().error("git did not take the note")),
        }
    }

    fn seen(&self, workspace: WorkspaceId) -> Result<Vec<SignedHead>> {
        let until = Instant::now() + self.limit;
        let object = self.object(workspace, false, until)?;
        self.heads(&object, workspace, until)
    }
}

/// Makes sure that a directory is a repository.
pub(super) fn check(path: &Path) -> Result<()> {
    let witness = GitWitness::new(path, CHECK);
    match witness.run(&["rev-parse", "--git-dir"], "", Instant::now() + CHECK)? {
        Some(_) => Ok(()),
        None => Err(witness.place().error("it is not a git repository")),
    }
}
