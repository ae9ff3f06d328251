//! Holds what is said about repositories against real ones, made by git itself.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use super::{
    Bundle, BundleFile, BundleKind, Class, Flavor, classify, describe_move, is_repository, tracked,
    visit,
};

/// A repository in a directory of its own.
struct Repository(tempfile::TempDir);

impl Repository {
    /// A new one, or nothing, with the reason printed, where there is no git that can make it.
    fn new(options: &str) -> Option<Self> {
        let repository = Self(tempfile::tempdir().expect("a directory"));
        let words = format!("init -q -b main {options}");
        if repository.run(&words).is_none_or(|output| !output.status.success()) {
            eprintln!("skipped: `git {words}` cannot be run");
            return None;
        }
        Some(repository)
    }

    /// Runs git away from anybody's settings, at a time that never changes.
    fn run(&self, words: &str) -> Option<std::process::Output> {
        let mut command = Command::new("git");
        command.args(words.split_whitespace()).current_dir(self.0.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH")?).env("HOME", self.0.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "A").env(format!("GIT_{who}_EMAIL"), "a@b.c");
            command.env(format!("GIT_{who}_DATE"), "2020-01-01T00:00:00Z");
        }
        command.output().ok()
    }

    #[track_caller]
    fn git(&self, words: &str) -> String {
        let output = self.run(words).expect("git was there before");
        assert!(output.status.success(), "git {words}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    }

    fn commit(&self, path: &str, content: &str) {
        self.write(path, content);
        self.git("add -A");
        self.git("commit -q -m x");
    }

    fn bundle(&self) -> Bundle {
        let mut files = Vec::new();
        gather(&self.0.path().join(".git"), &[], &mut files);
        let bundle = Bundle::new(files);
        assert_eq!(Bundle::decode(&bundle.encode()).as_ref(), Ok(&bundle));
        bundle
    }

    /// Does what is asked with git and checks that the value stays the same.
    #[track_caller]
    fn check_same(&self, what: &str) {
        let before = self.bundle();
        self.git(what);
        assert_eq!(before.identity(), self.bundle().identity(), "git {what}");
    }

    /// Does what is asked with git and checks how the change reads.
    #[track_caller]
    fn check_other(&self, what: &str, expected: &str) {
        let before = self.bundle();
        self.git(what);
        let after = self.bundle();
        assert_ne!(before.identity(), after.identity(), "git {what}");
        assert_eq!(describe_move(&before, &after), expected, "git {what}");
    }
}

fn gather(directory: &Path, prefix: &[u8], files: &mut Vec<BundleFile>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let mut inner = prefix.to_vec();
        inner.extend_from_slice(entry.file_name().as_bytes());
        let meta = entry.metadata().expect("a stat");
        if meta.is_dir() {
            inner.push(b'/');
            gather(&entry.path(), &inner, files);
        } else if matches!(classify(Flavor::Git, &inner), Class::Significant | Class::Carried) {
            let content = std::fs::read(entry.path()).expect("a file");
            files.push(BundleFile {
                inner,
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
                mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
                kind: BundleKind::File(content),
            });
        }
    }
}

#[test]
fn housekeeping_is_no_change() {
    for options in ["", "--object-format=sha256"] {
        let Some(repository) = Repository::new(options) else { continue };
        repository.commit("a", "1");
        repository.commit("dir/b", "2");
        repository.git("branch feature");
        repository.git("tag -a -m x v1");
        repository.write("a", "stashed");
        repository.git("stash");
        repository.check_same("pack-refs --all");
        repository.check_same("update-index --refresh");
        repository.write("dir/b", "2");
        repository.check_same("status");
        repository.check_same("update-index --index-version 4");
        repository.check_same("gc -q");
        repository.check_same("update-ref refs/remotes/origin/main HEAD");
        repository.check_same("pack-refs --all");
        repository.check_same("fetch -q . feature");
        repository.check_same("repack -a -d -q");
        assert!(repository.bundle().get(b"COMMIT_EDITMSG").is_some());
    }
}

#[test]
fn work_is_a_change_and_reads_well() {
    let Some(repository) = Repository::new("") else { return };
    repository.commit("a", "1");
    let first = repository.git("rev-parse --short=7 HEAD");
    repository.write("a", "2");
    repository.check_other("add a", "git: index changed");
    let before = repository.bundle();
    repository.git("commit -q -m second");
    let second = repository.git("rev-parse --short=7 HEAD");
    let expected = format!("git: main {first} -> {second}");
    assert_eq!(describe_move(&before, &repository.bundle()), expected);
    repository.check_other("branch feature", &format!("git: branch feature created at {second}"));
    repository.check_other("checkout -q feature", "git: main -> feature");
    repository.check_other("checkout -q --detach", &format!("git: feature -> {second}"));
    repository.check_other("checkout -q main", &format!("git: {second} -> main"));
    repository.check_other("reset -q --hard HEAD~1", &format!("git: main {second} -> {first}"));
    repository.check_other("branch -q -D feature", "git: branch feature deleted");
    repository.check_other("config user.name B", "git: config changed");
    repository.check_other("tag v1", &format!("git: tag v1 created at {first}"));
    repository.write("a", "3");
    repository.check_other("stash", "git: stash changed");
    repository.check_other("stash pop -q", "git: stash changed");
}

#[test]
fn hooks_and_operations_are_a_change() {
    let Some(repository) = Repository::new("") else { return };
    repository.commit("a", "1");
    let before = repository.bundle();
    repository.write(".git/hooks/pre-push", "exit 0");
    let written = repository.bundle();
    assert_eq!(describe_move(&before, &written), "git: hooks changed");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(repository.0.path().join(".git/hooks/pre-push"), executable)
        .expect("a mode");
    assert_ne!(written.identity(), repository.bundle().identity());
    repository.git("checkout -q -b side");
    repository.commit("b", "side");
    repository.git("checkout -q main");
    repository.check_other(
        "merge -q --no-commit --no-ff side",
        "git: operation state changed, index changed",
    );
    repository.check_other("merge --abort", "git: operation state changed, index changed");
}

#[test]
fn round_trip_returns_to_the_same_value() {
    let Some(repository) = Repository::new("") else { return };
    repository.commit("a", "1");
    repository.git("checkout -q -b side");
    repository.commit("a", "2");
    repository.git("checkout -q main");
    let before = repository.bundle();
    repository.git("checkout -q side");
    repository.git("checkout -q main");
    repository.write("a", "x");
    repository.git("checkout -q -- a");
    assert_eq!(before.identity(), repository.bundle().identity());
    repository.write("a", "x");
    repository.git("stash");
    repository.git("stash pop -q");
    assert_eq!(before.identity(), repository.bundle().identity());
    repository.write(".git/MERGE_RR", "");
    assert_eq!(before.identity(), repository.bundle().identity());
    assert_eq!(before.branches().len(), 2);
    assert_eq!(before.branches()[&b"main"[..]], repository.git("rev-parse main").into_bytes());
    assert_eq!(before.head(), b"refs/heads/main");
}

#[test]
fn metadata_is_recognised() {
    let Some(repository) = Repository::new("") else { return };
    let git = repository.0.path().join(".git");
    let has = |name: &[u8]| git.join(std::ffi::OsStr::from_bytes(name)).exists();
    assert_eq!(is_repository(b".git", &has), Some(Flavor::Git));
}

#[test]
fn every_form_of_the_index_lists_what_git_lists() {
    for (options, version) in [("", 2), ("", 3), ("", 4), ("--object-format=sha256", 4)] {
        let Some(repository) = Repository::new(options) else { continue };
        for path in ["a", "b/c", "b/d/e", "b0", "z\u{e4}"] {
            repository.commit(path, path);
        }
        repository.write("new", "");
        repository.git("add -N new");
        repository.git("update-index --skip-worktree b0");
        repository.git(&format!("update-index --index-version {version}"));
        let bytes = std::fs::read(repository.0.path().join(".git/index")).expect("an index");
        let listed = repository.git("ls-files -z");
        let found = tracked(&bytes).expect("well formed");
        let found: Vec<_> = found.iter().map(|entry| &entry.path[..]).collect();
        let listed: Vec<_> = listed.trim_end_matches('\0').split('\0').map(str::as_bytes).collect();
        assert_eq!(found, listed);
        let mut flags = Vec::new();
        visit(&bytes, |entry| flags.push((entry.intent_to_add, entry.skip_worktree)))
            .expect("well formed");
        assert_eq!(flags.iter().filter(|flags| flags.0).count(), 1);
        assert_eq!(flags.iter().filter(|flags| flags.1).count(), 1);
    }
}

#[test]
fn clean_file_looks_clean() {
    let Some(repository) = Repository::new("") else { return };
    repository.commit("a", "12345");
    let bytes = std::fs::read(repository.0.path().join(".git/index")).expect("an index");
    let entry = &tracked(&bytes).expect("well formed")[0];
    let meta = std::fs::metadata(repository.0.path().join("a")).expect("a stat");
    let mtime_ns = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
    assert!(entry.looks_clean(5, mtime_ns));
    assert!(!entry.looks_clean(5, mtime_ns + 1));
}
