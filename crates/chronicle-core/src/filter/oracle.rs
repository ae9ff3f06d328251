//! Compares the filter with git itself: what it ignores and what it tracks.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::checkout::{Checkouts, Ignored};
use super::{Filter, FilterRules};
use crate::path::WorkspacePath;

/// Runs git in a directory, away from anybody's settings.
fn git(directory: &Path, words: &[&str], input: &[u8]) -> Option<Output> {
    let mut command = Command::new("git");
    command.args(words).current_dir(directory).env_clear();
    command.env("PATH", std::env::var_os("PATH")?).env("HOME", directory);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for (key, value) in [("NAME", "A"), ("EMAIL", "a@example.org")] {
        command.env(format!("GIT_AUTHOR_{key}"), value).env(format!("GIT_COMMITTER_{key}"), value);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    child.stdin.take().expect("a pipe").write_all(input).expect("git reads");
    Some(child.wait_with_output().expect("git ends"))
}

/// A new repository, or nothing, with the reason printed, where there is no git.
fn repository() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().expect("a directory");
    if git(directory.path(), &["init", "-q"], b"").is_none() {
        eprintln!("skipped: git cannot be run");
        return None;
    }
    Some(directory)
}

/// Numbers that are the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn name(&mut self) -> Vec<u8> {
        let pieces: [&[u8]; 12] =
            [b"a", b"b", b"ab", b".o", b"-", b" ", b"\xff", b"[", b"A", b"7", b"\\", b"*"];
        let count = if self.below(3) == 0 { 2 } else { 1 };
        (0..count).flat_map(|_| self.pick(&pieces).to_vec()).collect()
    }

    fn pattern(&mut self) -> Vec<u8> {
        let pieces: [&[u8]; 30] = [
            b"a",
            b"b",
            b"ab",
            b".o",
            b"a",
            b"/",
            b"/",
            b"/",
            b"*",
            b"*",
            b"**",
            b"**/",
            b"/**",
            b"?",
            b"[ab]",
            b"[!a]",
            b"[^b-z]",
            b"[]-]",
            b"[[:alpha:]]",
            b"[a-",
            b"\\",
            b"\\*",
            b" ",
            b"\xff",
            b"[\\]a]",
            b"-",
            b"{a,b}",
            b"[[:x",
            b"***",
            b"[0-9]",
        ];
        let mut pattern = Vec::new();
        let opening: [&[u8]; 8] = [b"", b"", b"", b"!", b"!", b"/", b"#", b"\\!"];
        pattern.extend_from_slice(self.pick(&opening));
        for _ in 0..=self.below(4) {
            pattern.extend_from_slice(self.pick(&pieces));
        }
        let closing: [&[u8]; 8] = [b"", b"", b"", b"/", b"/", b" ", b"\r", b"\t"];
        pattern.extend_from_slice(self.pick(&closing));
        pattern
    }

    fn ignore_file(&mut self) -> Vec<u8> {
        let count = 1 + self.below(5);
        (0..count).flat_map(|_| [self.pattern(), b"\n".to_vec()].concat()).collect()
    }
}

/// Makes a random tree; answers its paths, directories first, and whether each is a directory.
fn grow(top: &Path, random: &mut Random) -> Vec<(Vec<u8>, bool)> {
    let mut directories = vec![Vec::new()];
    for _ in 0..8 {
        let parent = directories[random.below(directories.len())].clone();
        let path: Vec<u8> =
            if parent.is_empty() { random.name() } else { [parent, random.name()].join(&b'/') };
        if std::fs::create_dir(top.join(OsStr::from_bytes(&path))).is_ok() {
            directories.push(path);
        }
    }
    let mut paths: Vec<_> = directories.iter().skip(1).map(|path| (path.clone(), true)).collect();
    for _ in 0..40 {
        let parent = directories[random.below(directories.len())].clone();
        let path: Vec<u8> =
            if parent.is_empty() { random.name() } else { [parent, random.name()].join(&b'/') };
        if std::fs::File::create_new(top.join(OsStr::from_bytes(&path))).is_ok() {
            paths.push((path, false));
        }
    }
    paths
}

fn ignored_by_git(top: &Path, paths: &[(Vec<u8>, bool)]) -> Vec<bool> {
    // A leading `./` keeps names from being taken for anything else.
    let given: Vec<_> = paths.iter().map(|(path, _)| [b"./", &path[..]].concat()).collect();
    let words = ["check-ignore", "--no-index", "-z", "--stdin"];
    let output = git(top, &words, &given.join(&0)).expect("git was there before");
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    let found: Vec<_> = output.stdout.split(|byte| *byte == 0).collect();
    given.iter().map(|path| found.contains(&&path[..])).collect()
}

fn write_ignore_files(top: &Path, paths: &[(Vec<u8>, bool)], random: &mut Random) {
    let directories = paths.iter().filter(|(_, is_directory)| *is_directory);
    let all =
        directories.map(|(path, _)| top.join(OsStr::from_bytes(path))).chain([top.to_owned()]);
    for directory in all {
        let file = directory.join(".gitignore");
        match random.below(2) {
            0 => drop(std::fs::remove_file(file)),
            _ => std::fs::write(file, random.ignore_file()).expect("a file"),
        }
    }
    std::fs::write(top.join(".git/info/exclude"), random.ignore_file()).expect("a file");
}

#[test]
fn the_same_is_ignored_as_by_git() {
    for seed in 1..=10 {
        let Some(directory) = repository() else { return };
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        let top = directory.path().canonicalize().expect("a directory");
        let paths = grow(&top, &mut random);
        for round in 0..30 {
            write_ignore_files(&top, &paths, &mut random);
            let checkouts = Checkouts::default();
            let checkout = checkouts.of(&top).expect("a repository");
            for ((path, is_directory), expected) in paths.iter().zip(ignored_by_git(&top, &paths)) {
                let full = top.join(OsStr::from_bytes(path));
                let found = checkouts.ignored(&checkout, &full, *is_directory) != Ignored::No;
                assert_eq!(found, expected, "seed {seed} round {round} path {full:?}");
            }
        }
    }
}

/// Writes files, adds some of them, and tells which directories of known names are out.
#[track_caller]
fn check_mass(files: &[&str], added: &[&str], configure: &[&[&str]], expected: &[(&str, bool)]) {
    let Some(directory) = repository() else { return };
    let top = directory.path();
    for file in files {
        let (path, content) = file.split_once('=').unwrap_or((file, ""));
        std::fs::create_dir_all(top.join(path).parent().expect("a parent")).expect("a directory");
        std::fs::write(top.join(path), content).expect("a file");
    }
    for words in configure {
        assert!(git(top, words, b"").expect("git").status.success(), "{words:?}");
    }
    let add = [&["add", "-f", "--"], added].concat();
    assert!(git(top, &add, b"").expect("git").status.success());
    let rules = FilterRules::default();
    let filter = Filter::new(top, Path::new("/none"), &rules, &rules);
    for (path, out) in expected {
        let path = WorkspacePath::new(*path).expect("a path");
        assert_eq!(filter.excludes(&path, true), *out, "{path}");
    }
}

#[test]
fn tracked_file_keeps_its_directory_in() {
    let files = ["package.json", "node_modules/a/b", "x/package.json", "x/node_modules/c"];
    for version in ["2", "4"] {
        check_mass(
            &files,
            &["package.json", "node_modules/a/b"],
            &[&["config", "index.version", version]],
            &[("node_modules", false), ("x/node_modules", true)],
        );
    }
}

#[test]
fn split_index_tells_nothing() {
    check_mass(
        &["package.json", "node_modules/a"],
        &["package.json"],
        &[&["config", "core.splitIndex", "true"]],
        &[("node_modules", false)],
    );
}

#[test]
fn worktree_and_its_common_directory_are_found() {
    check_mass(
        &["a", ".git/info/exclude=build/\n"],
        &["a"],
        &[&["commit", "-q", "--allow-empty", "-m", "x"], &["worktree", "add", "-q", "tree"]],
        &[("tree/build", true), ("build", true), ("dist", false)],
    );
}
