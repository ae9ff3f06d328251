//! `export`: history as commits of a real git repository, exactly, and nothing that must not leave.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_core::{ExportRequest, Home, Workspace};
use chronicle_testing::work::{Menu, Random};
use serde_json::Value;

use crate::hooks::Talk;
use crate::secrets::{MARKER, OTHER};
use crate::stopped::Stopped;
use crate::support::{Cli, done, listing};

/// Mode and content by name, as git and the disk have them.
type Files = BTreeMap<Vec<u8>, (u32, Vec<u8>)>;

/// A repository beside the workspace.
struct Review {
    path: PathBuf,
}

impl Review {
    fn new(cli: &Cli, name: &str, words: &[&str]) -> Self {
        let path = cli.home().with_file_name(name);
        fs::create_dir(&path).expect("a directory");
        let review = Self { path };
        review.git(&[&["init", "-q", "-b", "main"], words].concat());
        review
    }

    /// A repository without files of its own.
    fn bare(cli: &Cli) -> Self {
        Self::new(cli, "review.git", &["--bare"])
    }

    fn at(path: PathBuf) -> Self {
        Self { path }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.path).args(["-c", "user.name=p", "-c", "user.email=p@q"]);
        command.args(words).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    #[track_caller]
    fn bytes(&self, words: &[&str]) -> Vec<u8> {
        let output = self.command(words).output().expect("git starts");
        assert!(output.status.success(), "{words:?}: {output:?}");
        output.stdout
    }

    #[track_caller]
    fn git(&self, words: &[&str]) -> String {
        String::from_utf8(self.bytes(words)).expect("text").trim_end().to_owned()
    }

    fn refs(&self) -> String {
        self.git(&["for-each-ref"])
    }

    /// The commits of a ref, oldest first.
    fn commits(&self, name: &str) -> Vec<String> {
        let all = self.git(&["rev-list", "--reverse", &format!("refs/chronicle/{name}")]);
        all.lines().map(str::to_owned).collect()
    }

    /// One trailer of a commit.
    fn trailer(&self, commit: &str, name: &str) -> String {
        let format = format!("--format=%(trailers:key=Chronicle-{name},valueonly)");
        self.git(&["log", "-1", &format, commit])
    }

    fn of_turn(&self, name: &str, turn: u64) -> String {
        let mut commits = self.commits(name).into_iter();
        commits.find(|commit| self.trailer(commit, "Turn") == turn.to_string()).expect("a commit")
    }

    fn tree(&self, commit: &str) -> Files {
        let listed = self.bytes(&["ls-tree", "-r", "-z", commit]);
        let rows = listed.split(|byte| *byte == 0).filter(|row| !row.is_empty());
        let row = |row: &[u8]| {
            let tab = row.iter().position(|byte| *byte == b'\t').expect("a tab");
            let words = std::str::from_utf8(&row[..tab]).expect("text");
            let words: Vec<_> = words.split(' ').collect();
            let mode = u32::from_str_radix(words[0], 8).expect("a mode");
            (row[tab + 1..].to_vec(), (mode, self.bytes(&["cat-file", "blob", words[2]])))
        };
        rows.map(row).collect()
    }

    /// Whether any object holds these bytes.
    fn holds(&self, bytes: &[u8]) -> bool {
        let all = self.bytes(&["cat-file", "--batch-all-objects", "--batch"]);
        all.windows(bytes.len()).any(|window| window == bytes)
    }

    fn export(&self, cli: &Cli, name: &str) -> Value {
        cli.call(self.words(name)).ok().json()
    }

    fn words(&self, name: &str) -> Vec<String> {
        let path = self.path.to_str().expect("a plain path");
        ["--json", "export", "--git", path, name].map(str::to_owned).to_vec()
    }
}

/// What a tree of git would hold of a directory.
fn on_disk(root: &Path) -> Files {
    let mut files = Files::new();
    let in_repository = |path: &Path| {
        let below = path.strip_prefix(root).unwrap();
        let nested =
            |above: &Path| !above.is_symlink() && above.join(".git").symlink_metadata().is_ok();
        let above = path.ancestors().take_while(|above| *above != root);
        below.iter().any(|name| name == ".git") || above.into_iter().any(nested)
    };
    for path in listing(root) {
        if in_repository(&path) {
            continue;
        }
        let data = fs::symlink_metadata(&path).expect("it is there");
        let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
        if data.is_symlink() {
            let target = fs::read_link(&path).expect("a link").into_os_string().into_vec();
            files.insert(name, (0o120_000, target));
        } else if data.is_file() {
            let mode = if data.permissions().mode() & 0o100 == 0 { 0o100_644 } else { 0o100_755 };
            files.insert(name, (mode, fs::read(&path).expect("readable")));
        }
    }
    files
}

fn odd(cli: &Cli, name: &[u8], content: &str) {
    fs::write(cli.root().join(OsStr::from_bytes(name)), content).expect("write a file");
}

fn executable(cli: &Cli, name: &str, is: bool) {
    let mode = if is { 0o755 } else { 0o600 };
    fs::set_permissions(cli.root().join(name), fs::Permissions::from_mode(mode)).expect("chmod");
}

const NAMES: [&[u8]; 10] = [
    b"with space",
    b" leading",
    b"quo\"ted'",
    b"new\nline",
    b"back\\slash\\n",
    b"tab\t",
    b"\xff\xfe\x80",
    b"-dash",
    "\u{fc}ml\u{e4}ut".as_bytes(),
    b":colon",
];

/// A workspace with three turns and a person's work between them; the files after each turn.
fn worked() -> (Cli, Vec<Files>) {
    let cli = Cli::adopted(&[("a.txt", "a\n"), ("deep/er/file", "1\n"), ("swap/x", "x\n")]);
    let mut trees = Vec::new();
    cli.turn("s", "names of every kind", || {
        NAMES.iter().for_each(|name| odd(&cli, name, "odd\n"));
        cli.write("run.sh", "#!/bin/sh\n");
        executable(&cli, "run.sh", true);
        symlink("a.txt", cli.root().join("link")).unwrap();
        symlink("no\nwhere \"at\" all", cli.root().join("dangling")).unwrap();
        cli.write("empty", "");
    });
    trees.push(on_disk(&cli.root()));
    cli.write("a.txt", "a person's\n");
    cli.turn("s", "kinds change", || {
        fs::remove_dir_all(cli.root().join("swap")).unwrap();
        cli.write("swap", "now a file\n");
        fs::remove_file(cli.root().join("link")).unwrap();
        cli.write("link/inside", "now a directory\n");
        executable(&cli, "run.sh", false);
        executable(&cli, "a.txt", true);
        fs::rename(cli.root().join("deep"), cli.root().join("moved")).unwrap();
    });
    trees.push(on_disk(&cli.root()));
    cli.turn("t", "less", || {
        NAMES
            .iter()
            .for_each(|name| fs::remove_file(cli.root().join(OsStr::from_bytes(name))).unwrap());
        cli.write("swap2/y", "y\n");
    });
    trees.push(on_disk(&cli.root()));
    (cli, trees)
}

#[test]
fn every_turns_tree_is_the_workspace_at_its_end() {
    let (cli, trees) = worked();
    let review = Review::bare(&cli);
    let report = review.export(&cli, "all");
    assert_eq!(report["commits"], 5, "the beginning, three turns and a person's work: {report}");
    assert_eq!((&report["new_commits"], &report["previous"]), (&5.into(), &Value::Null));
    assert_eq!(report["git_ref"], "refs/chronicle/all");
    assert_eq!(report["commit"], review.git(&["rev-parse", "refs/chronicle/all"]));
    for (turn, expected) in (1..).zip(&trees) {
        let tree = review.tree(&review.of_turn("all", turn));
        assert_eq!(tree, *expected, "turn {turn}");
        for (name, (mode, content)) in &tree {
            let (name, at) = (OsStr::from_bytes(name), format!("turn:{turn}"));
            let words = [OsStr::new("cat"), "--at".as_ref(), at.as_ref(), "--".as_ref(), name];
            let output = cli.command(words).output().unwrap();
            assert_eq!(
                (output.status.code(), &output.stdout),
                (Some(0), content),
                "{mode} {name:?}"
            );
        }
    }
    review.git(&["fsck", "--strict", "--no-dangling"]);
    assert_eq!(review.refs().lines().count(), 1, "{}", review.refs());
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn random_work_of_every_kind_is_exported_exactly() {
    for (seed, menu) in [(1, Menu::ALL), (2, Menu::ALL), (3, Menu::GIT), (4, Menu::GIT)] {
        let cli = Cli::new();
        // What is there when the workspace is adopted is accepted, and would be filtered.
        let menu = Menu { filters: false, ..menu };
        let mut work = Random::new(&cli.root(), seed, menu);
        work.steps(60);
        cli.call(["init"]).ok();
        let review = Review::bare(&cli);
        let (mut trees, mut commits) = (Vec::new(), Vec::new());
        for turn in 0..6 {
            cli.turn("s", "anything", || drop(work.steps(25)));
            trees.push(on_disk(&cli.root()));
            if turn % 2 == 0 {
                work.steps(5);
                review.export(&cli, "x");
                let more = review.commits("x");
                assert_eq!(more[..commits.len()], commits[..], "seed {seed}");
                commits = more;
            }
        }
        review.export(&cli, "x");
        for (turn, expected) in (1..).zip(&trees) {
            let tree = review.tree(&review.of_turn("x", turn));
            let differs = |name: &&Vec<u8>| tree.get(*name) != expected.get(*name);
            let wrong: Vec<_> = tree.keys().chain(expected.keys()).filter(differs).collect();
            let wrong: Vec<_> = wrong.iter().map(|name| String::from_utf8_lossy(name)).collect();
            assert!(wrong.is_empty(), "seed {seed}, turn {turn}: {wrong:?}");
        }
    }
}

#[test]
fn a_commit_tells_who_did_what_and_when() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let start = ["turn", "start", "--session", "s1", "--agent", "some <agent>", "--prompt"];
    cli.call(start.iter().copied().chain([&"make it better ".repeat(20)[..]])).ok();
    cli.call([
        "snapshot",
        "--session",
        "s1",
        "--action",
        "write_file",
        "--tool",
        "Edit",
        "--path",
        "a",
    ])
    .ok();
    cli.write("a", "2\n");
    cli.call(["turn", "end", "--session", "s1"]).ok();
    cli.write("a", "3\n");
    let review = Review::bare(&cli);
    review.export(&cli, "x");
    let commits = review.commits("x");
    let show = |format: &str, at: usize| {
        review.git(&["log", "-1", &format!("--format={format}"), &commits[at]])
    };
    assert_eq!(
        show("%s|%an|%ae", 0),
        "The workspace when it was adopted|person|chronicle@localhost"
    );
    let subject = show("%s", 1);
    assert!(subject.starts_with("make it better") && subject.len() <= 72, "{subject}");
    assert_eq!(show("%an|%cn", 1), "some agent|some agent");
    assert!(show("%b", 1).contains("- Edit: write_file: a\n"), "{}", show("%b", 1));
    let trailers = ["Turn", "Session", "Agent"].map(|name| review.trailer(&commits[1], name));
    assert_eq!(trailers, ["1", "s1", "some <agent>"]);
    let ended = cli.call(["--json", "status"]).ok().json()["last_turn"]["ended_at"].clone();
    assert_eq!(show("%cI", 1)[..19], ended.as_str().unwrap()[..19]);
    assert_eq!((show("%an", 2), commits.len()), ("person".to_owned(), 3));
    assert_ne!(review.trailer(&commits[2], "Seq"), "");
}

#[test]
fn the_same_history_gives_the_same_commits_and_more_of_it_adds_to_them() {
    let (cli, _) = worked();
    let review = Review::bare(&cli);
    let first = review.export(&cli, "one");
    let again = cli.call(["export", "--git", review.path.to_str().unwrap(), "one"]).ok();
    assert!(again.stdout.starts_with("Already at "), "{again:?}");
    assert_eq!(review.export(&cli, "refs/chronicle/deep/two")["commit"], first["commit"]);
    let elsewhere = Review::new(&cli, "other", &[]);
    assert_eq!(elsewhere.export(&cli, "one")["commit"], first["commit"]);

    let before = review.commits("one");
    for number in 0..3 {
        cli.turn("s", "more", || cli.write("a.txt", &format!("{number}\n")));
        cli.write("a.txt", &format!("person {number}\n"));
        // A turn that is open waits, and what was exported does not change when it ends.
        cli.call(["turn", "start", "--session", "open", "--key", "k"]).ok();
        cli.write("b.txt", &format!("{number}\n"));
        let report = review.export(&cli, "one");
        assert_eq!(report["open_turns"].as_array().unwrap().len(), 1, "{report}");
        cli.call(["turn", "end", "--session", "open", "--key", "k"]).ok();
        cli.call(["undo", "--yes"]).ok();
        let report = review.export(&cli, "one");
        assert_eq!(report["new_commits"], 2, "the turn and its undo: {report}");
    }
    let after = review.commits("one");
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after.len(), before.len() + 12);
    assert_eq!(elsewhere.export(&cli, "fresh")["commit"], after[after.len() - 1]);
    assert_eq!(review.tree(&after[after.len() - 1]), on_disk(&cli.root()));
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn nothing_secret_filtered_or_forgotten_leaves() {
    let cli =
        Cli::adopted(&[(".env", &format!("TOKEN={MARKER}\n")), ("a", "1\n"), ("leak", OTHER)]);
    cli.turn("s", "secrets", || {
        cli.write("id_rsa", &format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{MARKER}\n"));
        cli.write("sub/.env", &format!("KEY={MARKER}\n"));
        cli.write("node_modules/x/index.js", "filtered-content");
        cli.write("package.json", "{}");
        cli.write(".gitignore", "node_modules/\n");
        fs::remove_file(cli.root().join("leak")).unwrap();
    });
    cli.turn("s", "gone again", || fs::remove_file(cli.root().join("id_rsa")).unwrap());
    cli.call(["forget", "leak", "--yes"]).ok();
    let review = Review::bare(&cli);
    let report = review.export(&cli, "x");
    assert_eq!(report["left_out"]["secret"], 3, "{report}");
    assert_eq!(report["left_out"]["forgotten"], 1, "{report}");
    assert_eq!(report["left_out"]["filtered"], 1, "{report}");
    for absent in [MARKER, OTHER, "filtered-content"] {
        assert!(!review.holds(absent.as_bytes()), "{absent}");
    }
    assert!(review.holds(b"node_modules/\n"), "the search finds what is there");
}

/// A name that the rules call secret from now on is in no commit, though it was kept plain before.
#[test]
fn what_became_secret_does_not_leave_either() {
    let cli = Cli::adopted(&[("notes", MARKER), ("a", "1\n")]);
    cli.write("chronicle.toml", "[secrets]\nencrypt = [\"notes\"]\n");
    crate::secrets::accept(&cli);
    let review = Review::bare(&cli);
    let report = review.export(&cli, "x");
    assert_eq!(report["left_out"]["secret"], 1, "{report}");
    assert!(!review.holds(MARKER.as_bytes()));
}

#[test]
fn what_git_cannot_hold_is_left_out_and_counted() {
    let cli = Cli::new();
    cli.write("a", "1\n");
    cli.write("nested/file", "inside\n");
    cli.write("sub/GIT~1", "unfit\n");
    fs::create_dir_all(cli.root().join("hollow/deep")).unwrap();
    for directory in [cli.root(), cli.root().join("nested")] {
        Review::at(directory).git(&["init", "-q"]);
    }
    let fifo = Command::new("mkfifo").arg(cli.root().join("pipe")).status().unwrap();
    assert!(fifo.success());
    cli.call(["init"]).ok();
    let review = Review::bare(&cli);
    let report = review.export(&cli, "x");
    let expected = serde_json::json!({
        "special": 1, "empty_directory": 1, "repository": 2, "unfit_name": 1,
    });
    assert_eq!(report["left_out"], expected);
    assert_eq!(review.tree("refs/chronicle/x").into_keys().collect::<Vec<_>>(), [b"a"]);
    let said = cli.call(["export", "--git", "../review.git", "x", "--dry-run"]).ok().stdout;
    assert!(said.contains("1 empty directory, 2 repository, 1 special, 1 unfit name"), "{said}");
}

#[test]
fn a_ref_that_is_not_ours_is_left_alone() {
    let (cli, _) = worked();
    let review = Review::bare(&cli);
    review.export(&cli, "ours");
    let tip = review.git(&["rev-parse", "refs/chronicle/ours"]);
    let tree = format!("{tip}^{{tree}}");
    let message = review.git(&["log", "-1", "--format=%B", &tip]);
    // Somebody's commit, somebody's blob, another history, and ours, but somebody rewrote it.
    let foreign = review.git(&["commit-tree", "-m", "mine", &tree]);
    let blob = review.git(&["rev-parse", &format!("{tip}:a.txt")]);
    let other = message.replace("Chronicle-Workspace: ", "Chronicle-Workspace: 0");
    let other = review.git(&["commit-tree", "-p", &tip, "-m", &other, &tree]);
    let rewritten = review.git(&["commit-tree", "-m", &message, &tree]);
    cli.turn("s", "more", || cli.write("a.txt", "more\n"));
    for object in [foreign, blob, other, rewritten] {
        review.git(&["update-ref", "refs/chronicle/taken", &object]);
        let refs = review.refs();
        let error = cli.call(review.words("taken")).exits(3).error();
        assert_eq!(error["code"], "foreign_ref", "{error}");
        assert!(error["hint"].as_str().unwrap().contains("another name"), "{error}");
        assert_eq!(review.refs(), refs);
    }
    // What was forgotten since is in the old commits: they are not this history any more.
    fs::remove_file(cli.root().join("swap")).unwrap();
    cli.call(["forget", "swap", "--yes"]).ok();
    assert_eq!(cli.call(review.words("ours")).exits(3).error()["code"], "foreign_ref");
    review.export(&cli, "anew");
    assert_eq!(review.git(&["rev-parse", "refs/chronicle/ours"]), tip);
}

#[test]
fn no_branch_is_ever_touched() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let review = Review::bare(&cli);
    let names = [
        "refs/heads/main",
        "refs/tags/v1",
        "HEAD",
        "refs/chronicle/",
        "refs/chronicle",
        "refs",
        "",
        "a..b",
        "a b",
        "a.lock",
        "/a",
        "a/",
        "../heads/main",
        "x/../../heads/main",
        "a~1",
        "refs/chronicle/@{x",
    ];
    for name in names {
        let error = cli.call(review.words(name)).exits(2).error();
        assert_eq!(error["code"], "usage", "{name:?}");
    }
    assert_eq!(review.refs(), "");
    let error = cli.call(["--json", "export", "--git", ".", "x"]).exits(1).error();
    assert_eq!(error["code"], "export", "the workspace is no repository: {error}");
    // A name that leads to a branch is not followed.
    review.export(&cli, "x");
    let tip = review.git(&["rev-parse", "refs/chronicle/x"]);
    review.git(&["update-ref", "refs/heads/main", &tip]);
    review.git(&["symbolic-ref", "refs/chronicle/x", "refs/heads/main"]);
    cli.turn("s", "more", || cli.write("a", "2\n"));
    review.export(&cli, "x");
    assert_eq!(review.git(&["rev-parse", "refs/heads/main"]), tip);
    assert_ne!(review.git(&["rev-parse", "refs/chronicle/x"]), tip);
}

#[test]
fn an_export_that_dies_leaves_the_ref_alone() {
    let (cli, _) = worked();
    let review = Review::bare(&cli);
    review.export(&cli, "x");
    cli.turn("s", "more", || cli.write("a.txt", "more\n"));
    let (refs, verified) = (review.refs(), cli.call(["--json", "verify", "--deep"]).ok().stdout);
    for point in ["export_after_commit", "export_after_commit:4", "export_before_ref"] {
        for name in ["x", "new"] {
            let mut command = cli.command(review.words(name));
            let ended = command.env("CHRONICLE_FAILPOINT", point).output().unwrap().status;
            assert!(ended.signal().is_some(), "{point}: {ended}");
            assert_eq!(review.refs(), refs, "{point}");
        }
    }
    assert_eq!(cli.call(["--json", "verify", "--deep"]).ok().stdout, verified);
    assert_eq!(review.export(&cli, "x")["new_commits"], 1);
    review.git(&["fsck", "--strict"]);
}

#[test]
fn a_dry_run_writes_nothing() {
    let (cli, _) = worked();
    let review = Review::bare(&cli);
    let files = listing(&review.path);
    let words = review.words("x").into_iter().chain(["--dry-run".to_owned()]);
    let would = cli.call(words).ok().json();
    assert_eq!((&would["dry_run"], &would["commit"]), (&true.into(), &Value::Null));
    assert_eq!(listing(&review.path), files);
    let done = review.export(&cli, "x");
    for field in ["commits", "new_commits", "left_out", "git_ref"] {
        assert_eq!(would[field], done[field], "{field}");
    }
}

#[test]
fn an_agent_may_not_export() {
    let (cli, _) = worked();
    let review = Review::bare(&cli);
    // From here on this very process is the agent's.
    Talk::new(&cli, "claude-code", "s9").prompt("p1");
    let error = cli.call(review.words("x")).exits(3).error();
    assert_eq!(error["code"], "not_allowed");
    assert_eq!(review.refs(), "");
}

/// Only a library can ask here, since this process is the agent's.
#[test]
fn a_turn_of_a_hook_lists_its_tools() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let talk = Talk::new(&cli, "claude-code", "s9");
    talk.prompt("p1");
    talk.shell("c1", || cli.write("made", "1\n"));
    talk.edit("c2", "a", "2\n");
    talk.batch();
    talk.stop();
    let review = Review::bare(&cli);
    let mut workspace = Workspace::open(&Home::at(&cli.home()), &cli.root()).unwrap();
    let (repository, name) = (review.path.clone(), "x".to_owned());
    let report = workspace.export(&ExportRequest { repository, name, dry_run: false }).unwrap();
    assert_eq!((report.commits, report.open_turns), (2, Vec::new()));
    let commit = review.of_turn("x", 1);
    let message = review.git(&["log", "-1", "--format=%an|%B", &commit]);
    let lines: Vec<_> = message.lines().take(4).collect();
    assert_eq!(lines[..2], ["claude-code|do p1", ""], "{message}");
    assert!(lines[2].starts_with("- Bash: ") && lines[2].contains("do c1"), "{message}");
    assert!(lines[3].starts_with("- Edit: ") && lines[3].ends_with('a'), "{message}");
    assert_eq!(review.tree(&commit), on_disk(&cli.root()));
}

/// Nobody waits for an export; what is forgotten beside it is not let out by it.
#[test]
fn what_is_forgotten_meanwhile_does_not_leave() {
    let (cli, _) = worked();
    let review = Review::bare(&cli);
    let stopped = Stopped::at("export_after_commit:2", cli.command(review.words("x")));
    cli.turn("s", "beside it", || fs::remove_file(cli.root().join("swap")).unwrap());
    cli.call(["forget", "swap", "--yes"]).ok();
    let error = done(stopped.go_on()).exits(1).error();
    assert!(["moved", "missing_object"].contains(&error["code"].as_str().unwrap()), "{error}");
    assert_eq!(review.refs(), "");
    review.export(&cli, "x");
    // Work alone does not disturb it.
    let stopped = Stopped::at("export_after_commit:2", cli.command(review.words("y")));
    cli.turn("s", "beside it", || cli.write("a.txt", "beside\n"));
    let report = done(stopped.go_on()).ok().json();
    assert_eq!(report["commit"], review.git(&["rev-parse", "refs/chronicle/x"]));
    assert_eq!(review.export(&cli, "y")["new_commits"], 1);
}

/// The workspace's own repository takes it too: that is no change of the workspace, no hook runs, and
/// nobody's settings are heard.
#[test]
fn the_workspaces_own_repository_takes_it_unnoticed() {
    let cli = Cli::new();
    cli.write("a", "1\n");
    let own = Review::at(cli.root());
    own.git(&["init", "-q", "-b", "main"]);
    own.git(&["add", "a"]);
    own.git(&["commit", "-q", "-m", "first"]);
    let hook = cli.root().join(".git/hooks/reference-transaction");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\ntouch {:?}\n", cli.home().with_file_name("ran"))).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    cli.call(["init"]).ok();
    cli.turn("s", "work", || cli.write("a", "2\n"));
    let (head, status) = (own.git(&["rev-parse", "HEAD"]), own.git(&["status", "--porcelain"]));
    fs::write(cli.home().with_file_name(".gitconfig"), "[user]\n\tname = \"broken\n").unwrap();
    let before = cli.call(["--json", "status"]).ok().json();
    let report = own.export(&cli, "review");
    assert_eq!((&report["commits"], &report["left_out"]["repository"]), (&2.into(), &1.into()));
    let after = cli.call(["--json", "status"]).ok().json();
    assert_eq!(after["changes"], before["changes"], "it is no change of the workspace");
    assert_eq!(own.export(&cli, "review")["new_commits"], 0);
    assert_eq!(own.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(own.git(&["status", "--porcelain"]), status);
    assert!(!cli.home().with_file_name("ran").exists(), "a hook ran");
    // Taking the work back leaves what was exported.
    cli.call(["undo", "--yes"]).ok();
    own.git(&["rev-parse", "refs/chronicle/review"]);
    assert_eq!(own.export(&cli, "review")["new_commits"], 1);
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn large_files_and_long_names_of_objects() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let large = chronicle_testing::dice::Dice::new(5).bytes(20 << 20);
    cli.turn("s", "large", || fs::write(cli.root().join("large"), &large).unwrap());
    let review = Review::new(&cli, "long", &["--object-format=sha256"]);
    assert_eq!(review.export(&cli, "x")["commit"].as_str().unwrap().len(), 64);
    assert!(review.bytes(&["cat-file", "blob", "refs/chronicle/x:large"]) == large);
    assert_eq!(review.refs().lines().count(), 1);
}

/// History whose beginning was pruned begins where it can still be reached.
#[test]
fn what_is_left_of_pruned_history_is_exported() {
    let cli = crate::retention::with_days(60);
    cli.call(["prune"]).ok();
    let review = Review::bare(&cli);
    let report = review.export(&cli, "x");
    assert!(report["commits"].as_u64().unwrap() > 1, "{report}");
    assert_eq!(review.tree("refs/chronicle/x"), on_disk(&cli.root()));
    for commit in review.commits("x") {
        let at = format!("seq:{}", review.trailer(&commit, "Seq"));
        let then = review.tree(&commit).remove(&b"daily"[..]).map(|(_, content)| content);
        let output = cli.command(["cat", "daily", "--at", &at]).output().unwrap();
        assert_eq!(then.unwrap_or_default(), output.stdout, "{at}");
    }
}
