//! jj repositories: the hexadecimal id of the working copy's commit, and the operation that made it.
//!
//! Change ids are words for something that goes on changing, so they are never noted. The working copy is
//! snapshotted once, inside the freeze; afterwards jj is only ever asked with `--ignore-working-copy`. What
//! jj keeps is only added to, so it can be read after the thaw, and what is missing later can be put back
//! beside what is there. The way back is an operation of jj's own, which `jj op undo` takes back.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory::{self, keep, known_before};
use super::kept::is_known;
use crate::driver::{
    Aside, Capture, Captured, Deadline, Driver, End, Fit, Restoration, Site, Staged,
};
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::exists;
use crate::part::{Part, PartKind};
use crate::programs::{self, Program};
use crate::tree::{Reading, Tree, What};
use crate::tree_write::write_file;

const NAME: &str = "jj";
const VERSION: u32 = 1;
/// The operation at the boundary; in what is staged, the one before the restore.
const OPERATION: &str = "operation";
const QUICK: Duration = Duration::from_secs(60);
const OTHER: &str = "Restore another checkpoint: chronicle checkpoint list";

/// jj repositories.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jj;

/// What a repository is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    commit: String,
    operation: String,
}

struct JjCapture<'s> {
    part: Part,
    site: Site<'s>,
    look: Option<Look>,
}

/// jj in a repository, which asks nobody and shows no pages.
fn jj(part: &Part, words: &[&str]) -> Result<Program> {
    let program = program(part).ok_or_else(no_program)?;
    let quiet = ["--no-pager", "--color=never", "--quiet", "--repository"];
    Ok(Program::new(program, QUICK).args(quiet).arg(&part.path).args(words))
}

fn program(part: &Part) -> Option<PathBuf> {
    let place = part.parameters.get("programs").map(PathBuf::from);
    let places: Vec<&Path> = place.iter().map(PathBuf::as_path).collect();
    programs::find("jj", &places)
}

fn no_program() -> Error {
    let why = "jj is not on the path, and only it can take this part";
    Problem::new("jj_missing", why, "Install jj, or name its directory with `programs`").into()
}

/// What jj says is one id; anything but hexadecimal digits is none.
fn id(output: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(output).trim().to_owned();
    match is_id(&text) {
        true => Ok(text),
        false => Err(Error::Program {
            program: "jj".to_owned(),
            why: format!("{text:?} is no hexadecimal id"),
        }),
    }
}

/// Whether a text is a whole commit or operation id: jj writes change ids with other letters.
fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (40..=128).contains(&text.len()) && text.bytes().all(plain)
}

impl Look {
    /// What jj has noted, without looking at the working copy.
    fn noted(part: &Part) -> Result<Self> {
        let commit = ["log", "--ignore-working-copy", "--no-graph", "-r", "@", "-T", "commit_id"];
        let operation = ["op", "log", "--ignore-working-copy", "--no-graph", "-n1", "-T", "id"];
        let commit = id(&jj(part, &commit)?.run()?)?;
        Ok(Self { commit, operation: id(&jj(part, &operation)?.run()?)? })
    }

    /// The same after the working copy was snapshotted.
    fn fresh(part: &Part) -> Result<Self> {
        jj(part, &["util", "snapshot"])?.run()?;
        Self::noted(part)
    }
}

/// Whether a path below a repository is something that jj only ever adds to.
fn is_kept(path: &[u8]) -> bool {
    let above = [&b".jj"[..], b".jj/repo", b".git"].contains(&path);
    let inside = |top: &[u8]| {
        path == top || path.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/"))
    };
    above || inside(b".jj/repo/op_store") || inside(b".jj/repo/store") || inside(b".git/objects")
}

impl Capture for JjCapture<'_> {
    /// Before the look at the workspace, so that the log has what the snapshot wrote.
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        self.look = match is_repository(&self.part.path) {
            true => Some(Look::fresh(&self.part)?),
            false => None,
        };
        limit.check("snapshotting a working copy")
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        if let Some(look) = &self.look
            && Look::noted(&self.part)? != *look
        {
            let why = "somebody works with jj all the while";
            let next = "Try again, or stop it with a command in [checkpoint] of chronicle.toml";
            return Err(Problem::new("changing", why, next).of(&self.part.name).into());
        }
        limit.check("looking at a repository")
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        let nothing = Captured {
            driver: NAME.to_owned(),
            version: VERSION,
            notes: vec!["no repository stood there".to_owned()],
            ..directory::absent()
        };
        let Some(look) = &self.look else { return Ok(nothing) };
        let known = known_before(&self.site);
        let reading = Reading { fuzzy: true, known: known.as_ref(), admits: &is_kept };
        let tree = Tree::read(&self.part.path, self.site.contents, reading)?;
        let mut captured = keep(&tree, self.site.contents)?;
        captured.parameters.insert(OPERATION.to_owned(), look.operation.clone());
        let (driver, revision) = (NAME.to_owned(), Some(look.commit.clone()));
        Ok(Captured { driver, version: VERSION, revision, ..captured })
    }
}

fn is_repository(path: &Path) -> bool {
    path.join(".jj/repo").is_dir()
}

/// The commit and the operation that were captured; what is no id is refused.
fn noted(captured: &Captured) -> Result<(&str, &str)> {
    let commit = captured.revision.as_deref().filter(|text| is_id(text));
    let operation = captured.parameters.get(OPERATION).filter(|text| is_id(text));
    let bad = |code, why| Error::from(Problem::new(code, why, OTHER));
    let commit =
        commit.ok_or_else(|| bad("jj_commit_unnamed", "no hexadecimal commit is noted"))?;
    let operation =
        operation.ok_or_else(|| bad("jj_operation_unnamed", "no operation is noted"))?;
    Ok((commit, operation))
}

impl Driver for Jj {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn detect(&self, part: &Part) -> Result<Fit> {
        Ok(match (part.kind, program(part)) {
            (PartKind::Jj, Some(_)) => {
                Fit::Fits { rank: 0, why: "its commit and its operation".to_owned() }
            }
            (PartKind::Jj, None) => Fit::Not("jj is not on the path".to_owned()),
            _ => Fit::Not(format!("it takes no {}", part.kind)),
        })
    }

    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>> {
        Ok(Box::new(JjCapture { part: part.clone(), site: *site, look: None }))
    }

    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()> {
        is_known(captured, VERSION)?;
        if !captured.absent {
            noted(captured)?;
        }
        directory::verify(captured, site.contents)
    }

    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
        let (part, captured) = (restoration.part, restoration.captured);
        if captured.absent {
            return Ok(Vec::new());
        }
        if program(part).is_none() {
            return Ok(vec![no_program().into_problem(&part.name)]);
        }
        if !is_repository(&part.path) {
            let why = format!("{} is no jj repository any more", part.path.display());
            let next = format!("Make an empty one: jj git init {}", part.path.display());
            return Ok(vec![Problem::new("jj_missing_repository", why, next).of(&part.name)]);
        }
        Ok(Vec::new())
    }

    fn restore(&self, restoration: &Restoration<'_>) -> Result<Staged> {
        if restoration.captured.absent {
            return Ok(Staged::new());
        }
        let now = Look::noted(restoration.part)?;
        Ok(Staged::from([(OPERATION.to_owned(), now.operation)]))
    }

    /// The workspace's files may have brought it there already; else jj goes there itself.
    fn swap(&self, restoration: &Restoration<'_>, _staged: &Staged) -> Result<()> {
        if restoration.captured.absent {
            return Ok(());
        }
        let (commit, operation) = noted(restoration.captured)?;
        if Look::noted(restoration.part).is_ok_and(|now| now.operation == operation) {
            return put_back_missing(restoration).map(drop);
        }
        // What stands in the working copy is jj's own before it goes.
        jj(restoration.part, &["util", "snapshot"])?.run()?;
        if put_back_missing(restoration)? {
            // As if somebody had worked from there meanwhile: jj then takes it in by itself.
            let head = restoration.part.path.join(".jj/repo/op_heads/heads").join(operation);
            fs::write(&head, "").at("write", &head)?;
        }
        go_to(restoration.part, operation)?;
        match Look::noted(restoration.part)?.commit == commit {
            true => Ok(()),
            false => jj(restoration.part, &["edit", commit])?.run().map(drop),
        }
    }

    fn swap_back(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        let Some(before) = staged.get(OPERATION).filter(|text| is_id(text)) else { return Ok(()) };
        match Look::noted(restoration.part)?.operation == *before {
            true => Ok(()),
            false => go_to(restoration.part, before),
        }
    }

    fn check(&self, restoration: &Restoration<'_>) -> Result<()> {
        if restoration.captured.absent {
            return Ok(());
        }
        let (commit, _) = noted(restoration.captured)?;
        let found = Look::fresh(restoration.part)?.commit;
        if found == commit {
            return Ok(());
        }
        let path = restoration.part.path.display();
        let why = format!("{path} is at {found} and not at {commit}");
        Err(Problem::new("jj_not_restored", why, "jj status, jj op log").into())
    }

    fn clear(&self, _: &Restoration<'_>, _: &Staged, _: End) -> Result<Vec<Aside>> {
        Ok(Vec::new())
    }

    fn discard(&self, _captured: &Captured, _site: &Site<'_>) -> Result<()> {
        // What no checkpoint names, garbage collection takes.
        Ok(())
    }
}

/// Brings the repository to an operation, and then its working copy, which may be behind by then.
fn go_to(part: &Part, operation: &str) -> Result<()> {
    jj(part, &["op", "restore", "--ignore-working-copy", operation])?.run()?;
    jj(part, &["workspace", "update-stale"])?.run().map(drop)
}

/// Puts files back that jj or git has collected, and says whether there were any; what is there is left as
/// it is.
fn put_back_missing(restoration: &Restoration<'_>) -> Result<bool> {
    let mut any = false;
    let contents = restoration.site.contents;
    let tree = directory::load(restoration.captured, contents)?;
    for node in &tree.nodes {
        let path = restoration.part.path.join(std::ffi::OsStr::from_bytes(&node.path));
        // Never through a link that somebody put in the way.
        let parent = path.parent().unwrap_or(Path::new("/"));
        if exists(&path)? || !fs::symlink_metadata(parent).is_ok_and(|about| about.is_dir()) {
            continue;
        }
        match &node.what {
            What::Directory => fs::create_dir(&path).at("create", &path)?,
            What::File(id, size) => {
                write_file(&path, contents.reader(id)?.as_mut(), *size)?;
                let mode = std::os::unix::fs::PermissionsExt::from_mode(node.mode);
                fs::set_permissions(&path, mode).at("set the mode of", &path)?;
                any = true;
            }
            _ => {}
        }
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_hexadecimal_ids_count() {
        let commit = "649dc0c81039f696e255f0fd150a2d68ad1398d2";
        assert_eq!(id(format!("{commit}\n").as_bytes()).unwrap(), commit);
        for other in ["", "649dc0c8", "wwovqpzzwwovqpzzwwovqpzzwwovqpzzwwovqpzz", "@", "main"] {
            assert!(id(other.as_bytes()).is_err(), "{other}");
        }
        assert!(!is_id(&commit.to_uppercase()), "one id has one spelling");
    }

    #[test]
    fn what_is_only_added_to_is_kept_and_nothing_else() {
        for path in [".jj", ".jj/repo/op_store/views/1", ".jj/repo/store/git/objects/1/2", ".git"] {
            assert!(is_kept(path.as_bytes()), "{path}");
        }
        for path in
            [".jj/working_copy", ".jj/repo/op_heads/heads/1", ".jj/repo/index", "a", ".git/index"]
        {
            assert!(!is_kept(path.as_bytes()), "{path}");
        }
    }
}
