//! The tree of a workspace as git can hold it, from one moment to the next; pure.

use std::collections::{BTreeMap, BTreeSet};

use super::words::is_dot_git;
use crate::entry::{Entry, Why};
use crate::id::ObjectId;
use crate::path::WorkspacePath;
use crate::secret::{Class, SecretRules};

/// What a tree of git holds at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leaf {
    File { object: ObjectId, size: u64, executable: bool },
    Symlink(Vec<u8>),
}

/// What leads from one tree to the next; what is removed goes first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) removed: Vec<WorkspacePath>,
    pub(crate) written: Vec<(WorkspacePath, Leaf)>,
}

impl Step {
    /// Whether both trees are the same.
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.written.is_empty()
    }
}

/// Why something is in no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Secret,
    Filtered,
    Unknown,
    Forgotten,
    Special,
    EmptyDirectory,
    Repository,
    UnfitName,
    Outside,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Filtered => "filtered",
            Self::Unknown => "unknown",
            Self::Forgotten => "forgotten",
            Self::Special => "special",
            Self::EmptyDirectory => "empty_directory",
            Self::Repository => "repository",
            Self::UnfitName => "unfit_name",
            Self::Outside => "outside",
        }
    }
}

/// What stands at a path, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Leaf(Leaf),
    Directory,
    Repository,
    Left(Reason),
}

/// The workspace at a moment, and how much of it the last commit holds.
#[derive(Default)]
pub(crate) struct Tree {
    rules: SecretRules,
    standing: BTreeMap<WorkspacePath, Standing>,
    committed: BTreeMap<WorkspacePath, Leaf>,
    touched: BTreeSet<WorkspacePath>,
    /// Where another kind of thing stands, on which everything below may depend.
    turned: BTreeSet<WorkspacePath>,
    left_out: BTreeSet<(Reason, WorkspacePath)>,
}

impl Tree {
    pub(crate) fn new(rules: SecretRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Something else stands at a path.
    pub(crate) fn put(&mut self, path: &WorkspacePath, entry: &Entry) {
        if path.is_root() {
            return;
        }
        let standing = self.standing_of(path, entry);
        let kind = standing.as_ref().map(std::mem::discriminant);
        let before = match standing {
            Some(standing) => self.standing.insert(path.clone(), standing),
            None => self.standing.remove(path),
        };
        if before.as_ref().map(std::mem::discriminant) != kind {
            self.turned.insert(path.clone());
        }
        self.touched.insert(path.clone());
    }

    fn standing_of(&self, path: &WorkspacePath, entry: &Entry) -> Option<Standing> {
        Some(match entry {
            Entry::Absent => return None,
            Entry::Unknown(Why::Filtered) => Standing::Left(Reason::Filtered),
            Entry::Unknown(Why::Secret | Why::NoKey) => Standing::Left(Reason::Secret),
            Entry::Unknown(Why::Forgotten) => Standing::Left(Reason::Forgotten),
            Entry::Unknown(_) => Standing::Left(Reason::Unknown),
            Entry::Special(_) => Standing::Left(Reason::Special),
            Entry::Directory(_) => Standing::Directory,
            Entry::Repository(_) => Standing::Repository,
            Entry::Symlink(link) => Standing::Leaf(Leaf::Symlink(link.target.clone())),
            Entry::File(file) => {
                // What is secret by today's rules may have been kept plain once.
                let named = self.rules.by_name(path);
                if file.secret || matches!(named, Some(Class::Secret | Class::Never)) {
                    return Some(Standing::Left(Reason::Secret));
                }
                let executable = file.meta.mode & 0o100 != 0;
                Standing::Leaf(Leaf::File { object: file.object, size: file.size, executable })
            }
        })
    }

    /// What the tree of a commit at this moment changes in the one before.
    pub(crate) fn step(&mut self) -> Step {
        let mut step = Step::default();
        for path in self.all_touched() {
            let now = self.leaf(&path);
            self.note_if_empty(&path);
            if self.committed.get(&path) == now.as_ref() {
                continue;
            }
            match now {
                Some(leaf) => step.written.push((path, leaf)),
                None => step.removed.push(path),
            }
        }
        for path in &step.removed {
            self.committed.remove(path);
        }
        for (path, leaf) in &step.written {
            self.committed.insert(path.clone(), leaf.clone());
        }
        step
    }

    /// The paths that changed, and those whose place did: all below what turned into something else,
    /// and all around a repository that came or went.
    fn all_touched(&mut self) -> BTreeSet<WorkspacePath> {
        let mut touched = std::mem::take(&mut self.touched);
        let mut more = BTreeSet::new();
        for path in std::mem::take(&mut self.turned) {
            let around = path.parent().filter(|_| path.name() == b".git");
            let top = around.filter(|parent| !parent.is_root()).unwrap_or(path);
            more.extend(below(&self.standing, &top).map(|(path, _)| path.clone()));
            more.extend(below(&self.committed, &top).map(|(path, _)| path.clone()));
        }
        more.extend(touched.iter().filter_map(WorkspacePath::parent));
        touched.append(&mut more);
        touched
    }

    /// What a commit holds at a path; what it cannot hold is noted.
    fn leaf(&mut self, path: &WorkspacePath) -> Option<Leaf> {
        let standing = self.standing.get(path)?;
        if let Some(left) = self.left_with(path, standing) {
            self.left_out.insert(left);
            return None;
        }
        match standing {
            Standing::Leaf(leaf) => Some(leaf.clone()),
            Standing::Left(_) | Standing::Directory | Standing::Repository => None,
        }
    }

    /// What a path is left out with: itself, or the repository or the unknown place that it lies in.
    fn left_with(
        &self,
        path: &WorkspacePath,
        standing: &Standing,
    ) -> Option<(Reason, WorkspacePath)> {
        if path.is_outside() {
            return Some((Reason::Outside, path.clone()));
        }
        let mut line: Vec<_> = path.ancestors().filter(|above| !above.is_root()).collect();
        line.reverse();
        line.push(path.clone());
        for place in line {
            let is_repository = self.standing.get(&place) == Some(&Standing::Repository);
            if is_repository || place.name() == b".git" || self.is_nested(&place) {
                return Some((Reason::Repository, place));
            }
            if is_dot_git(place.name()) {
                return Some((Reason::UnfitName, place));
            }
            // What was known below a place that is not looked into any more is of an earlier moment.
            if let Some(Standing::Left(reason)) = self.standing.get(&place) {
                return Some((*reason, place));
            }
        }
        // Git refuses to follow it, and so to hold it.
        let link = matches!(standing, Standing::Leaf(Leaf::Symlink(_)));
        let modules = path.name().eq_ignore_ascii_case(b".gitmodules");
        (link && modules).then(|| (Reason::UnfitName, path.clone()))
    }

    /// Whether a directory below the top is a repository of its own.
    fn is_nested(&self, directory: &WorkspacePath) -> bool {
        let metadata = self.standing.get(&directory.join(b".git"));
        matches!(metadata, Some(Standing::Leaf(_) | Standing::Directory | Standing::Repository))
    }

    fn note_if_empty(&mut self, path: &WorkspacePath) {
        let is_directory = self.standing.get(path) == Some(&Standing::Directory);
        if is_directory
            && below(&self.standing, path).next().is_none()
            && self.left_with(path, &Standing::Directory).is_none()
        {
            self.left_out.insert((Reason::EmptyDirectory, path.clone()));
        }
    }

    /// How many paths some commit should have held and none could, by the reason.
    pub(crate) fn left_out(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (reason, _) in &self.left_out {
            *counts.entry(reason.word()).or_default() += 1;
        }
        counts
    }
}

/// What lies below a directory, without itself.
fn below<'m, T>(
    map: &'m BTreeMap<WorkspacePath, T>,
    directory: &'m WorkspacePath,
) -> impl Iterator<Item = (&'m WorkspacePath, &'m T)> {
    // Names that go on with a byte before the slash lie between a directory and what it holds.
    let first = directory.join(b"\x01");
    map.range(first..).take_while(move |(path, _)| path.is_within(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{File, Meta, Special, SpecialKind, Symlink};

    /// `"a=1 b! d/ l>a s? x-"`: files with content, executable, a directory, a link, something
    /// special, nothing.
    fn put(tree: &mut Tree, text: &str) {
        for word in text.split_whitespace() {
            let (path, entry) = match word.split_once(['=', '>']) {
                Some((path, content)) if word.contains('=') => (path, file(content, 0o644)),
                Some((path, target)) => {
                    let link = Symlink { target: target.into(), meta: Meta::default() };
                    (path, Entry::Symlink(link))
                }
                None => (&word[..word.len() - 1], other(word)),
            };
            tree.put(&WorkspacePath::new(path).unwrap(), &entry);
        }
    }

    fn other(word: &str) -> Entry {
        match &word[word.len() - 1..] {
            "!" => file("x", 0o755),
            "/" => Entry::Directory(Meta::default()),
            "?" => Entry::Special(Special { kind: SpecialKind::Fifo, meta: Meta::default() }),
            "~" => Entry::Unknown(Why::Filtered),
            _ => Entry::Absent,
        }
    }

    fn file(content: &str, mode: u32) -> Entry {
        let object = ObjectId::of(content.as_bytes());
        let meta = Meta { mode, ..Meta::default() };
        Entry::File(File {
            object,
            secret: false,
            pending: false,
            size: 1,
            sparse: false,
            link: None,
            meta,
        })
    }

    fn told(tree: &mut Tree, text: &str) -> String {
        put(tree, text);
        let step = tree.step();
        let removed = step.removed.iter().map(|path| format!("-{path}"));
        let written = step.written.iter().map(|(path, leaf)| match leaf {
            Leaf::File { executable: true, .. } => format!("{path}!"),
            Leaf::File { .. } => path.to_string(),
            Leaf::Symlink(_) => format!("{path}>"),
        });
        removed.chain(written).collect::<Vec<_>>().join(" ")
    }

    fn left(tree: &Tree) -> String {
        let words = tree.left_out().into_iter().map(|(word, count)| format!("{word}:{count}"));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_what_differs_is_in_a_step() {
        let tree = &mut Tree::default();
        assert_eq!(told(tree, "a=1 b! d/ d/x=1 l>a"), "a b! d/x l>");
        assert_eq!(told(tree, "a=1 b=x d/x-"), "-d/x b");
        assert_eq!(told(tree, ""), "");
        assert_eq!(left(tree), "empty_directory:1");
    }

    #[test]
    fn a_file_may_take_the_place_of_a_directory_and_back() {
        let tree = &mut Tree::default();
        told(tree, "d/ d/x=1 d.x=1");
        assert_eq!(told(tree, "d/x- d=1"), "-d/x d");
        assert_eq!(told(tree, "d/ d/x=1"), "-d d/x");
        assert_eq!(left(tree), "");
    }

    #[test]
    fn what_git_cannot_hold_is_counted_once() {
        let tree = &mut Tree::default();
        let text = "s? e/ n~ .git/ .git/HEAD=1 git~1=1 .gitmodules>x sub/ sub/.git/ sub/.git/y=1 sub/a=1 a=1";
        assert_eq!(told(tree, text), "a");
        let all = "empty_directory:1 filtered:1 repository:2 special:1 unfit_name:2";
        assert_eq!(left(tree), all);
        told(tree, text);
        assert_eq!(left(tree), all);
    }

    #[test]
    fn what_is_filtered_from_now_on_does_not_stay_as_it_was() {
        let tree = &mut Tree::default();
        assert_eq!(told(tree, "out/ out/a=1 out/b/ out/b/c=1 out.x=1"), "out.x out/a out/b/c");
        assert_eq!(told(tree, "out~"), "-out/a -out/b/c");
        assert_eq!(left(tree), "filtered:1");
        assert_eq!(told(tree, "out/ out/a=2"), "out/a out/b/c");
    }

    #[test]
    fn a_directory_that_becomes_a_repository_leaves_and_comes_back() {
        let tree = &mut Tree::default();
        assert_eq!(told(tree, "sub/ sub/a=1 sub/b/ sub/b/c=1 sub2=1"), "sub/a sub/b/c sub2");
        assert_eq!(told(tree, "sub/.git/"), "-sub/a -sub/b/c");
        assert_eq!(told(tree, "sub/.git-"), "sub/a sub/b/c");
    }
}
