//! Git repositories: the exact commit and refs, and a bundle of what is on no remote.
//!
//! The working copy and the metadata lie in the workspace, whose own log has them; they come back with it.
//! What is seen to here is that the repository stood still meanwhile, and that its commits are there when
//! they are wanted: nothing but a ref keeps git from removing them.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use chronicle_core::ObjectId;

use super::directory::{object, read_back, read_back_as};
use crate::driver::{
    Aside, Capture, Captured, Deadline, Driver, End, Fit, Restoration, Site, Staged,
};
use crate::error::{Error, Problem, Result};
use crate::exchange::remove;
use crate::part::{Parameters, Part, PartKind};
use crate::programs::Program;
use crate::tree_write::write_file;

const NAME: &str = "git";
const VERSION: u32 = 1;
const BUNDLE: &str = "bundle";
const REFS: &str = "refs";
const HEAD: &str = "head";
const REMOTE: &str = "remote";
/// How long git may take for what is quick.
const QUICK: Duration = Duration::from_secs(30);
/// How long it may take to pack.
const LONG: Duration = Duration::from_secs(3600);
/// How often a bundle is tried while somebody commits.
const TRIES: u32 = 20;
/// So many uncommitted paths are named.
const NAMED: usize = 20;

/// Git repositories.
pub struct Git;

/// What a repository is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    /// The commit that is checked out; none before the first.
    commit: Option<String>,
    /// Where HEAD points.
    head: String,
    /// Branches, tags and the stash.
    refs: String,
    /// The entries of the index.
    index: Vec<u8>,
}

impl Look {
    fn at(path: &Path) -> Result<Self> {
        let commit = answer(path, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
        let head = answer(path, &["symbolic-ref", "--quiet", "HEAD"])?;
        let commit = commit.map(|text| text.trim().to_owned());
        let head = head.map(|text| text.trim().to_owned());
        let which = ["for-each-ref", "refs/heads", "refs/tags", "refs/stash"];
        let refs = String::from_utf8_lossy(&run(path, &which)?).into_owned();
        let index = run(path, &["ls-files", "--stage", "-z"])?;
        let head = head.or_else(|| commit.clone()).unwrap_or_default();
        Ok(Self { commit, head, refs, index })
    }

    fn digest(&self) -> ObjectId {
        let commit = self.commit.as_deref().unwrap_or("none");
        let words = format!("{commit}\n{}\n{}\n", self.head, self.refs);
        ObjectId::of(&[words.as_bytes(), &self.index].concat())
    }
}

fn git(path: &Path, arguments: &[&str], limit: Duration) -> Program {
    let shown = format!("git -C {}", path.display());
    let mut command = chronicle_core::git_command(path);
    // Looking at a repository writes nothing into it.
    command.env("GIT_OPTIONAL_LOCKS", "0");
    Program::prepared(command, &shown, limit).args(arguments)
}

fn run(path: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    git(path, arguments, QUICK).run()
}

fn answer(path: &Path, arguments: &[&str]) -> Result<Option<String>> {
    let (good, output) = git(path, arguments, QUICK).answer()?;
    Ok(good.then(|| String::from_utf8_lossy(&output).into_owned()))
}

struct GitCapture<'s> {
    part: Part,
    site: Site<'s>,
    look: Option<Look>,
    uncommitted: Vec<String>,
}

impl Capture for GitCapture<'_> {
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        self.look =
            if is_repository(&self.part.path)? { Some(Look::at(&self.part.path)?) } else { None };
        limit.check("looking at a repository")
    }

    fn boundary(&mut self, _limit: &Deadline) -> Result<()> {
        let Some(before) = &self.look else { return Ok(()) };
        if Look::at(&self.part.path)? != *before {
            let why = "somebody commits or stages all the while";
            let next = "Try again, or stop it with a command in [checkpoint] of chronicle.toml";
            return Err(Problem::new("changing", why, next).of(&self.part.name).into());
        }
        self.uncommitted = uncommitted(&self.part.path)?;
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        let Some(look) = &self.look else { return Ok(nothing()) };
        let mut parameters = Parameters::from([(HEAD.to_owned(), look.head.clone())]);
        parameters.insert(REFS.to_owned(), ObjectId::of(look.refs.as_bytes()).hex());
        parameters.extend(remote(&self.part.path)?.map(|at| (REMOTE.to_owned(), at)));
        let mut bytes = 0;
        let mut objects = Vec::new();
        if let Some((id, length)) = self.bundle(&parameters)? {
            parameters.insert(BUNDLE.to_owned(), id.hex());
            objects.push(id);
            bytes = length;
        }
        let mut notes = Vec::new();
        if !self.uncommitted.is_empty() {
            let named = self.uncommitted.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = self.uncommitted.len().saturating_sub(NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            notes.push(format!("uncommitted: {named}{more}"));
        }
        Ok(Captured {
            absent: false,
            digest: look.digest(),
            revision: look.commit.clone(),
            bytes,
            parameters,
            objects,
            notes,
            ..nothing()
        })
    }
}

impl GitCapture<'_> {
    /// Everything that refs reach and no remote has; the one of the last checkpoint if no ref moved since.
    fn bundle(&self, parameters: &Parameters) -> Result<Option<(ObjectId, u64)>> {
        if let Some(previous) = self.site.previous
            && previous.parameters.get(REFS) == parameters.get(REFS)
            && previous.parameters.get(HEAD) == parameters.get(HEAD)
            && let Ok(id) = object(previous, BUNDLE)
            && self.site.contents.exists(&id)?
        {
            return Ok(Some((id, previous.bytes)));
        }
        let reach = ["rev-list", "--max-count=1", "--all", "HEAD", "--not", "--remotes"];
        if answer(&self.part.path, &reach)?.is_none_or(|text| text.trim().is_empty()) {
            return Ok(None);
        }
        // Git calls a bundle empty whose refs moved while it was made, so it is asked again.
        let mut tries = 0;
        loop {
            tries += 1;
            match self.make_bundle() {
                Err(Error::Program { .. }) if tries < TRIES => {}
                made => return made.map(Some),
            }
        }
    }

    fn make_bundle(&self) -> Result<(ObjectId, u64)> {
        let arguments = ["bundle", "create", "--quiet", "-", "--all", "HEAD", "--not", "--remotes"];
        let mut program = git(&self.part.path, &arguments, LONG).stream()?;
        let mut output = program.output().ok_or_else(|| Error::Declared("No output".to_owned()))?;
        let kept = self.site.contents.put_stream(&mut output)?;
        program.finish(LONG)?;
        Ok(kept)
    }
}

/// Where commits can be had again, without anybody's password.
fn remote(path: &Path) -> Result<Option<String>> {
    let all = answer(path, &["config", "--get-regexp", r"^remote\..*\.url$"])?.unwrap_or_default();
    let first = all.lines().next().and_then(|line| line.split_once(' ')).map(|(_, url)| url);
    Ok(first.map(|url| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    }))
}

/// What to type so that commits which were on a remote are there again.
fn fetch_again(path: &Path, captured: &Captured, repository: bool) -> String {
    let quoted = format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    match (repository, captured.parameters.get(REMOTE)) {
        (false, Some(url)) => format!("Clone it again: git clone '{url}' {quoted}"),
        (false, None) => format!("Clone it again into {quoted}"),
        (true, _) => format!("Fetch it first: git -C {quoted} fetch --all"),
    }
}

/// Paths that are not as HEAD has them, or that git does not know.
fn uncommitted(path: &Path) -> Result<Vec<String>> {
    let mut found = std::collections::BTreeSet::new();
    let staged = ["diff-index", "--cached", "--name-only", "-z", "HEAD"];
    let others = [
        &["diff-files", "--name-only", "-z"][..],
        &["ls-files", "--others", "--exclude-standard", "-z"][..],
    ];
    let mut lists = vec![answer(path, &staged)?.unwrap_or_default()];
    for arguments in others {
        lists.push(String::from_utf8_lossy(&run(path, arguments)?).into_owned());
    }
    for list in &lists {
        found.extend(list.split('\0').filter(|name| !name.is_empty()).map(str::to_owned));
    }
    Ok(found.into_iter().map(|name| chronicle_core::escape(name.as_bytes()).into_owned()).collect())
}

fn is_repository(path: &Path) -> Result<bool> {
    if !path.is_dir() {
        return Ok(false);
    }
    Ok(answer(path, &["rev-parse", "--git-dir"])?.is_some())
}

fn nothing() -> Captured {
    Captured {
        driver: NAME.to_owned(),
        version: VERSION,
        absent: true,
        digest: ObjectId::of(b""),
        revision: None,
        bytes: 0,
        parameters: Parameters::new(),
        objects: Vec::new(),
        notes: vec!["no repository stood there".to_owned()],
    }
}

impl Git {
    fn has_commit(path: &Path, commit: &str) -> Result<bool> {
        let reaches = format!("{commit}^{{tree}}");
        Ok(answer(path, &["rev-list", "--objects", "--max-count=1", commit])?.is_some()
            && answer(path, &["cat-file", "-e", &reaches])?.is_some())
    }

    /// Brings commits back that git has removed.
    fn unbundle(restoration: &Restoration<'_>) -> Result<()> {
        let site = &restoration.site;
        let id = object(restoration.captured, BUNDLE)?;
        let file = site.place.join(format!("tmp-bundle-{}", site.id));
        remove(&file)?;
        let length = read_back(&id, site.contents)?;
        let unbundled =
            write_file(&file, site.contents.reader(&id)?.as_mut(), length).and_then(|()| {
                let name = file.to_string_lossy();
                git(&restoration.part.path, &["bundle", "unbundle", &name], LONG).run()
            });
        remove(&file)?;
        unbundled.map(drop)
    }
}

/// How the commit that is checked out stands to another, if it is not that one: a code, and words that go
/// before "than".
pub(crate) fn compare_commits(
    path: &Path,
    was: &str,
) -> Result<Option<(&'static str, &'static str)>> {
    let is = answer(path, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
    let is = is.unwrap_or_default().trim().to_owned();
    if is == was {
        return Ok(None);
    }
    let before =
        |one: &str, other: &str| answer(path, &["merge-base", "--is-ancestor", one, other]);
    if before(was, &is)?.is_some() {
        return Ok(Some(("code_newer", "newer")));
    }
    match before(&is, was)?.is_some() {
        true => Ok(Some(("code_older", "older"))),
        false => Ok(Some(("code_diverged", "on another line of commits"))),
    }
}

impl Driver for Git {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn detect(&self, part: &Part) -> Result<Fit> {
        Ok(match part.kind {
            PartKind::Git => {
                Fit::Fits { rank: 0, why: "its commit, and the files by the log".to_owned() }
            }
            _ => Fit::Not(format!("it takes no {}", part.kind)),
        })
    }

    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>> {
        let (part, uncommitted) = (part.clone(), Vec::new());
        Ok(Box::new(GitCapture { part, site: *site, look: None, uncommitted }))
    }

    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()> {
        if !captured.parameters.contains_key(BUNDLE) {
            return Ok(());
        }
        let mut start = [0; 16];
        let id = object(captured, BUNDLE)?;
        read_back_as(&id, site.contents, BUNDLE)?;
        let read = site.contents.reader(&id)?.read_exact(&mut start);
        if read.is_err() || !start.starts_with(b"# v") {
            let next = "Restore another checkpoint: chronicle checkpoint list";
            return Err(Problem::new("bad_bundle", "its bundle is none", next).into());
        }
        Ok(())
    }

    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
        let captured = restoration.captured;
        let path = &restoration.part.path;
        if !path.is_dir() && !captured.absent {
            let why = format!("{} is not there", path.display());
            let next = match captured.parameters.contains_key(BUNDLE) {
                true => format!("Make the directory again: mkdir -p '{}'", path.display()),
                false => fetch_again(path, captured, false),
            };
            return Ok(vec![Problem::new("missing_repository", why, next)]);
        }
        let Some(commit) = &captured.revision else { return Ok(Vec::new()) };
        let repository = is_repository(path)?;
        let has = repository && Self::has_commit(path, commit)?;
        if has || captured.parameters.contains_key(BUNDLE) {
            return Ok(Vec::new());
        }
        let why =
            format!("commit {commit} is not in {} any more, and was on a remote", path.display());
        let next = fetch_again(path, captured, repository);
        Ok(vec![Problem::new("commit_gone", why, next)])
    }

    fn restore(&self, _restoration: &Restoration<'_>) -> Result<Staged> {
        Ok(Staged::new())
    }

    /// The workspace's files and the repository's metadata are there by now; its commits may not be.
    fn swap(&self, restoration: &Restoration<'_>, _staged: &Staged) -> Result<()> {
        let Some(commit) = &restoration.captured.revision else { return Ok(()) };
        let has = Self::has_commit(&restoration.part.path, commit)?;
        match has || !restoration.captured.parameters.contains_key(BUNDLE) {
            true => Ok(()),
            false => Self::unbundle(restoration),
        }
    }

    fn swap_back(&self, _restoration: &Restoration<'_>, _staged: &Staged) -> Result<()> {
        Ok(())
    }

    fn check(&self, restoration: &Restoration<'_>) -> Result<()> {
        let path = &restoration.part.path;
        if restoration.captured.absent {
            return Ok(());
        }
        let found = Look::at(path)?;
        if found.digest() == restoration.captured.digest {
            return Ok(());
        }
        let (is, was) = (found.commit, restoration.captured.revision.clone());
        let why = match is == was {
            true => format!("the refs or the index of {} are not as they were", path.display()),
            false => format!("{} is at {is:?} and not at {was:?}", path.display()),
        };
        Err(Problem::new("not_restored", why, "git status, git fsck").into())
    }

    fn clear(&self, _: &Restoration<'_>, _: &Staged, _: End) -> Result<Vec<Aside>> {
        Ok(Vec::new())
    }

    fn discard(&self, _captured: &Captured, _site: &Site<'_>) -> Result<()> {
        Ok(())
    }
}
