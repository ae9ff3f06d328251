//! Which paths count: people's rules, and the mass that tools can make anew.
//!
//! A filter only answers for names that a look meets; what it keeps out is `unknown`, never
//! absent, and an edit that names such a path is captured all the same.

mod checkout;
mod mass;
#[cfg(test)]
mod oracle;
mod pattern;
mod read;
mod rules;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) use checkout::linked_worktrees;
use checkout::{Checkouts, Ignored};
pub use mass::recreate_hint;
pub use pattern::Pattern;
use read::{exists, read_small};
pub(crate) use rules::PatternList;
use rules::Verdict;
pub use rules::{FilterRules, is_narrower, pending};

use crate::home::Home;
use crate::path::WorkspacePath;

/// Why a path is kept out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// A rule of `.chronicleignore` says so.
    Rule,
    /// It is mass that a tool can make anew.
    Mass,
    /// It is Chronicle's own home.
    Home,
    /// It is a linked worktree with a history of its own.
    Workspace,
}

/// Decides which paths a look leaves out.
///
/// It remembers what it has read of the tree, so each look needs a new one.
#[derive(Debug)]
pub struct Filter {
    workspace: PathBuf,
    /// Chronicle's home as a path of this workspace would name it.
    home: Vec<u8>,
    /// The linked worktrees below that were adopted as workspaces of their own.
    inner: Vec<Vec<u8>>,
    accepted: PatternList,
    /// The rules as the file has them now, where they differ from the accepted ones.
    current: Option<PatternList>,
    checkouts: Checkouts,
}

impl Filter {
    /// A filter for a workspace with the rules that were accepted and those in the file now.
    pub fn new(
        workspace: &Path,
        home: &Path,
        accepted: &FilterRules,
        current: &FilterRules,
    ) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let lists = [accepted, current].map(|rules| PatternList::new(&rules.ignore));
        let [accepted, current] = lists;
        let (workspace, home) = (real(workspace), real(home));
        let inner = Home::at(&home).inner(&workspace).unwrap_or_default();
        let below = |root: &PathBuf| Some(root.strip_prefix(&workspace).ok()?.as_os_str().into());
        let inner = inner.iter().filter_map(below).map(|path: OsString| path.into_vec()).collect();
        let home = home.strip_prefix(&workspace).unwrap_or(&home);
        Self {
            home: home.as_os_str().as_bytes().to_vec(),
            inner,
            workspace,
            current: (current != accepted).then_some(current),
            accepted,
            checkouts: Checkouts::default(),
        }
    }

    /// Whether a look leaves this entry out; asked for each entry of a directory that is in.
    pub fn excludes(&self, path: &WorkspacePath, is_directory: bool) -> bool {
        self.exclusion(path, is_directory).is_some()
    }

    /// Whether this path or a directory above it is left out.
    pub fn covers(&self, path: &WorkspacePath, is_directory: bool) -> bool {
        self.excludes(path, is_directory)
            || path.ancestors().any(|above| self.excludes(&above, true))
    }

    /// Whether a path is a workspace of its own inside this one, or lies in one.
    pub(crate) fn is_apart(&self, path: &WorkspacePath) -> bool {
        let is_in = |inner: &Vec<u8>| {
            let rest = path.as_bytes().strip_prefix(&inner[..]);
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        self.inner.iter().any(is_in)
    }

    /// Why a look leaves this entry out, if it does.
    pub fn exclusion(&self, path: &WorkspacePath, is_directory: bool) -> Option<Exclusion> {
        let known = if is_directory { mass::by_name(path.name()) } else { None };
        let is_home = is_directory && path.as_bytes() == self.home;
        let is_inner = is_directory && self.inner.iter().any(|inner| path.as_bytes() == inner);
        if is_inner {
            return Some(Exclusion::Workspace);
        }
        if known.is_none() && !self.has_rules() && !is_home || path.is_root() {
            return None;
        }
        if is_home {
            return Some(Exclusion::Home);
        }
        if is_inside_metadata(path) {
            return None;
        }
        match self.verdict(path, is_directory) {
            Verdict::Out => Some(Exclusion::Rule),
            Verdict::In => None,
            Verdict::Silent => {
                known.filter(|known| self.is_mass(path, known)).map(|_| Exclusion::Mass)
            }
        }
    }

    fn has_rules(&self) -> bool {
        !self.accepted.is_empty() || self.current.as_ref().is_some_and(|list| !list.is_empty())
    }

    /// What the rules say: out only if both versions say so, in if either does.
    fn verdict(&self, path: &WorkspacePath, is_directory: bool) -> Verdict {
        // The file that holds the rules is not theirs to hide.
        if path.is_outside() || path.as_bytes() == b".chronicleignore" {
            return Verdict::Silent;
        }
        let bytes = path.as_bytes();
        let accepted = self.accepted.verdict(bytes, is_directory);
        let Some(current) = &self.current else { return accepted };
        // Where the versions differ, one of them may have kept out a directory above.
        if self.accepted.covers(bytes, is_directory) && current.covers(bytes, is_directory) {
            return Verdict::Out;
        }
        match (accepted, current.verdict(bytes, is_directory)) {
            (Verdict::In, _) | (_, Verdict::In) => Verdict::In,
            _ => Verdict::Silent,
        }
    }

    fn is_mass(&self, path: &WorkspacePath, known: &mass::Known) -> bool {
        let directory = path.under(&self.workspace);
        // A repository of its own is somebody's work, whatever it is called.
        if exists(&directory.join(".git")) || exists(&directory.join(".jj")) {
            return false;
        }
        let checkout = directory.parent().and_then(|parent| self.checkouts.of(parent));
        let ignored = match &checkout {
            Some(checkout) => self.checkouts.ignored(checkout, &directory, true),
            None => Ignored::No,
        };
        // That a directory above is ignored says nothing about this one.
        let generated = ignored == Ignored::Itself
            || known.has_sign(&directory)
            || checkout.is_some() && ignores_itself(&directory);
        generated && !checkout.is_some_and(|checkout| checkout.may_track(&directory, ignored))
    }
}

/// Whether a tool has put an ignore file for everything into its own directory.
fn ignores_itself(directory: &Path) -> bool {
    let text = read_small(&directory.join(".gitignore"));
    text.is_ok_and(|text| text.is_some_and(|text| rules::ignores_everything(&text)))
}

/// Whether a path lies inside a repository's metadata, of which no part is ever left out.
fn is_inside_metadata(path: &WorkspacePath) -> bool {
    let mut names = path.as_bytes().rsplit(|byte| *byte == b'/').skip(1);
    names.any(|name| matches!(name, b".git" | b".jj"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace in which `"a/b=text d/"` are files and directories.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(text: &str) -> Self {
            let tree = Self(tempfile::tempdir().expect("a directory"));
            text.split_whitespace().for_each(|word| tree.add(word));
            tree
        }

        fn add(&self, word: &str) {
            let (path, content) = word.split_once('=').unwrap_or((word, ""));
            let full = self.0.path().join(path);
            let directory = if path.ends_with('/') { Some(&*full) } else { full.parent() };
            std::fs::create_dir_all(directory.expect("a parent")).expect("a directory");
            if !path.ends_with('/') {
                let content = content.replace("\\n", "\n").replace("\\s", " ");
                std::fs::write(&full, content).expect("a file");
            }
        }

        fn filter(&self, accepted: &str, current: &str) -> Filter {
            let rules = |text: &str| FilterRules { ignore: text.replace(' ', "\n").into_bytes() };
            let home = self.0.path().join(".home");
            Filter::new(self.0.path(), &home, &rules(accepted), &rules(current))
        }
    }

    fn exclusion(filter: &Filter, path: &str) -> Option<Exclusion> {
        let bare = path.trim_end_matches('/');
        filter.exclusion(&WorkspacePath::new(bare).expect("a path"), path.ends_with('/'))
    }

    #[track_caller]
    fn check(tree: &str, path: &str, expected: Option<Exclusion>) {
        let tree = Tree::new(tree);
        assert_eq!(exclusion(&tree.filter("", ""), path), expected, "{path}");
    }

    const MASS: Option<Exclusion> = Some(Exclusion::Mass);
    const RULE: Option<Exclusion> = Some(Exclusion::Rule);

    #[test]
    fn name_alone_is_not_mass() {
        check("node_modules/", "node_modules/", None);
        check("target/x", "target/", None);
        check("build/x", "build/", None);
        check("package.json node_modules", "node_modules", None);
    }

    #[test]
    fn manifest_beside_is_a_sign() {
        check("package.json node_modules/", "node_modules/", MASS);
        check("a/Cargo.toml a/target/", "a/target/", MASS);
        check("x.py __pycache__/", "__pycache__/", MASS);
        check("package.json dist/", "dist/", None);
    }

    #[test]
    fn member_of_a_project_is_not_its_output() {
        check("Cargo.toml target/Cargo.toml", "target/", None);
    }

    #[test]
    fn tool_marks_inside_are_a_sign() {
        check("venv/pyvenv.cfg", "venv/", MASS);
        let tag = "CACHEDIR.TAG=Signature:\\s8a477f597d28d172789f06886806bc55";
        check(&format!(".cache/{tag}"), ".cache/", MASS);
        check(".cache/CACHEDIR.TAG=nonsense", ".cache/", None);
        check(".git/HEAD .mypy_cache/.gitignore=*", ".mypy_cache/", MASS);
    }

    #[test]
    fn ignored_by_git_is_a_sign_only_for_known_names() {
        let git = ".git/HEAD .gitignore=build/\\nsecret/\\nscratch/ ";
        check(&format!("{git} build/"), "build/", MASS);
        check(&format!("{git} a/build/"), "a/build/", MASS);
        check(&format!("{git} secret/"), "secret/", None);
        check(&format!("{git} scratch/dist/"), "scratch/dist/", None);
        check(".git/HEAD .git/info/exclude=dist dist/", "dist/", MASS);
        check(".gitignore=build build/", "build/", None);
    }

    #[test]
    fn repository_or_metadata_is_never_mass() {
        check("package.json node_modules/.git/HEAD", "node_modules/", None);
        check(".git/HEAD .git/refs/heads/build/ .gitignore=build", ".git/refs/heads/build/", None);
    }

    #[test]
    fn unreadable_index_keeps_mass_in() {
        check(".git/HEAD .git/index=junk package.json node_modules/", "node_modules/", None);
    }

    #[test]
    fn jj_tracks_what_is_not_ignored() {
        check(".jj/repo/x package.json node_modules/", "node_modules/", None);
        check(".jj/repo/x .gitignore=node_modules node_modules/", "node_modules/", MASS);
    }

    #[test]
    fn negated_rule_takes_mass_in() {
        let tree = Tree::new("package.json node_modules/");
        assert_eq!(
            exclusion(&tree.filter("!node_modules/", "!node_modules/"), "node_modules/"),
            None
        );
        assert_eq!(exclusion(&tree.filter("", "!node_modules/"), "node_modules/"), None);
        assert_eq!(exclusion(&tree.filter("!node_modules/", ""), "node_modules/"), None);
    }

    #[test]
    fn path_is_out_by_rule_only_if_both_versions_say_so() {
        let tree = Tree::new("");
        for (accepted, current, expected) in [
            ("*.log", "*.log", RULE),
            ("*.log", "", None),
            ("", "*.log", None),
            ("a *.log", "*.log", RULE),
        ] {
            let filter = tree.filter(accepted, current);
            assert_eq!(exclusion(&filter, "d/x.log"), expected, "{accepted:?} {current:?}");
        }
        let filter = tree.filter("a/", "a/b");
        assert_eq!(exclusion(&filter, "a/"), None);
        assert_eq!(exclusion(&filter, "a/b"), RULE);
        assert_eq!(exclusion(&filter, "a/c"), None);
    }

    #[test]
    fn rules_cannot_hide_themselves_or_parts_of_metadata() {
        let filter = Tree::new("").filter("*", "*");
        assert_eq!(exclusion(&filter, ".chronicleignore"), None);
        assert_eq!(exclusion(&filter, "a/.chronicleignore"), RULE);
        assert_eq!(exclusion(&filter, ".git/HEAD"), None);
        assert_eq!(exclusion(&filter, ".git/"), RULE);
        assert_eq!(exclusion(&filter, ""), None);
    }

    #[test]
    fn home_is_always_out() {
        let tree = Tree::new(".home/");
        assert_eq!(exclusion(&tree.filter("!.home", "!.home"), ".home/"), Some(Exclusion::Home));
        assert_eq!(exclusion(&tree.filter("", ""), "a/.home/"), None);
    }

    #[test]
    fn what_lies_below_an_excluded_directory_is_covered() {
        let tree = Tree::new("package.json node_modules/a/b");
        let (filter, path) = (tree.filter("", ""), WorkspacePath::new("node_modules/a/b"));
        let path = path.expect("a path");
        assert!(filter.covers(&path, false) && !filter.excludes(&path, false));
    }

    #[test]
    fn repository_above_the_workspace_has_a_say() {
        let tree = Tree::new(".git/HEAD .gitignore=build sub/build/");
        let rules = FilterRules::default();
        let filter = Filter::new(&tree.0.path().join("sub"), Path::new("/none"), &rules, &rules);
        assert_eq!(exclusion(&filter, "build/"), MASS);
    }
}
