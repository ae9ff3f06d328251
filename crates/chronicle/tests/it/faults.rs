//! Full disks and denied permissions: an error with words, and nothing changed.
//!
//! Names with `denied` run as a user without privileges (see `./test`): root would be let through.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_testing::env::{Env, Ran};
use chronicle_testing::shared::{is_root, skip};
use chronicle_testing::tree::{assert_same, describe};

use crate::support::Cli;

/// A small file system of its own at a directory, for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, size: &str) -> Self {
        let options = format!("size={size},mode=0700");
        let words = ["-t", "tmpfs", "-o", &options, "chronicle-test"];
        let status = Command::new("mount").args(words).arg(at).status().unwrap();
        assert!(status.success(), "could not mount {}", at.display());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn world() -> Env {
    Env::new(env!("CARGO_BIN_EXE_chronicle"))
}

/// Writes until nothing more fits.
fn fill_up(path: &Path) {
    let mut size = 1 << 20;
    let mut content = Vec::new();
    while size >= 512 {
        content.resize(content.len() + size, b'x');
        if fs::write(path, &content).is_err() {
            content.truncate(content.len() - size);
            size /= 2;
        }
    }
    let _ = fs::write(path, &content);
}

fn needs_root(test: &str) -> bool {
    if !is_root() {
        skip(test, "mounting a small file system needs root");
    }
    !is_root()
}

fn needs_no_root(test: &str) -> bool {
    if is_root() {
        skip(test, "root is never denied anything");
    }
    is_root()
}

fn turn(env: &Env, work: impl FnOnce()) {
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "p"]);
    work();
    env.ok(&["turn", "end", "--key", "k", "--session", "s"]);
}

#[test]
fn a_rewind_on_a_full_disk_changes_nothing() {
    if needs_root("a_rewind_on_a_full_disk_changes_nothing") {
        return;
    }
    let env = world();
    let _mounted = Mounted::new(&env.workspace(), "12m");
    env.write("big", vec![b'1'; 3 << 20]);
    env.write("small", "text\n");
    env.ok(&["init"]);
    let then = describe(&env.workspace());
    turn(&env, || {
        fs::remove_file(env.path("big")).unwrap();
        env.write("small", "wrecked\n");
    });
    fill_up(&env.path("filler"));
    env.ok(&["settle"]);
    let full = describe(&env.workspace());
    let ran = env.run(&["rewind", "start", "--yes"]).code(1);
    assert!(ran.stderr().contains("space"), "{}", ran.story());
    assert_same(&full, &describe(&env.workspace()), "after a rewind that had no space");
    fs::remove_file(env.path("filler")).unwrap();
    env.ok(&["rewind", "start", "--yes"]);
    assert_same(&then, &describe(&env.workspace()), "after a rewind that had space");
    env.ok(&["verify", "--deep"]);
}

#[test]
fn a_capture_on_a_full_disk_fails_loudly_and_loses_nothing() {
    if needs_root("a_capture_on_a_full_disk_fails_loudly_and_loses_nothing") {
        return;
    }
    let env = world();
    fs::create_dir(env.home()).unwrap();
    let _mounted = Mounted::new(&env.home(), "24m");
    fs::write(env.home().join("config.toml"), "budget = \"20 MiB\"\n").unwrap();
    env.write("file", "text\n");
    env.ok(&["init"]);
    let then = describe(&env.workspace());
    fill_up(&env.home().join("filler"));
    turn_fails_without_space(&env);
    fs::remove_file(env.home().join("filler")).unwrap();
    env.ok(&["settle"]);
    env.ok(&["verify", "--deep"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s"]);
    assert_ne!(then, describe(&env.workspace()));
}

fn turn_fails_without_space(env: &Env) {
    env.write("file", chronicle_testing::dice::Dice::new(1).bytes(8 << 20));
    let ran = env.run(&["settle"]).code(1);
    let told = ["space", "full", "0 bytes are free"].iter().any(|word| ran.stderr().contains(word));
    assert!(told, "{}", ran.story());
}

/// Nobody in particular: a user without privileges.
const NOBODY: u32 = 65_534;

/// A copy of the command that anybody can run, in a world that belongs to nobody.
fn world_of_nobody() -> Env {
    let env = world();
    let place = env.base().join("chronicle");
    env.copy_binary(&place);
    let env = env.with_binary(place);
    fs::create_dir(env.home()).unwrap();
    for path in [env.base().to_owned(), env.workspace(), env.home()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    env
}

fn as_nobody<'a>(env: &Env, words: impl IntoIterator<Item = &'a str>) -> Ran {
    let words: Vec<_> = words.into_iter().collect();
    env.run_with(&words, |command| {
        command.uid(NOBODY).gid(NOBODY);
    })
}

#[test]
fn a_directory_of_somebody_else_stops_a_rewind_with_nothing_changed() {
    if needs_root("a_directory_of_somebody_else_stops_a_rewind_with_nothing_changed") {
        return;
    }
    let env = world_of_nobody();
    let put = |name: &str, text: &str| {
        env.write(name, text);
        chown(env.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    };
    put("open", "old\n");
    put("theirs/file", "old\n");
    let ok = |words: &[&str]| drop(as_nobody(&env, words.iter().copied()).code(0));
    ok(&["init"]);
    ok(&["turn", "start", "--key", "k", "--session", "s"]);
    put("open", "new\n");
    put("theirs/file", "new\n");
    ok(&["turn", "end", "--key", "k", "--session", "s"]);
    let mut denied = Command::new("/bin/sh");
    denied.args(["-c", "echo x > theirs/other"]).current_dir(env.workspace());
    let proof = denied.uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(!proof.status.success(), "the directory must deny writing");
    let before = describe(&env.workspace());
    let ran = as_nobody(&env, ["rewind", "start", "--yes"]);
    assert!(matches!(ran.output.status.code(), Some(1 | 3)), "{}", ran.story());
    assert!(ran.stderr().contains("theirs"), "{}", ran.story());
    assert_same(&before, &describe(&env.workspace()), "after a denied rewind");
    chown(env.path("theirs"), Some(NOBODY), Some(NOBODY)).unwrap();
    ok(&["rewind", "start", "--yes"]);
    assert_eq!(env.read("open").as_deref(), Some("old\n"));
    assert_eq!(env.read("theirs/file").as_deref(), Some("old\n"));
    ok(&["verify", "--deep"]);
}

#[test]
fn denied_file_is_unknown_and_never_overwritten() {
    if needs_no_root("denied_file_is_unknown_and_never_overwritten") {
        return;
    }
    let env = world();
    env.write("secret", "old\n");
    env.write("other", "old\n");
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s"]);
    env.write("secret", "new, and nowhere else\n");
    env.write("other", "new\n");
    let mode = |mode| {
        fs::set_permissions(env.path("secret"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o000);
    fs::read(env.path("secret")).expect_err("the file must deny reading");
    let ended = env.run(&["turn", "end", "--key", "k", "--session", "s"]);
    assert!(matches!(ended.output.status.code(), Some(0 | 4)), "{}", ended.story());
    let log = env.ok(&["log", "--json"]);
    assert!(log.contains("\"complete\":false"), "a capture that saw only a part says so: {log}");
    let ran = env.run(&["rewind", "start", "--yes"]).code(4);
    assert!((ran.stdout() + &ran.stderr()).contains("secret"), "{}", ran.story());
    mode(0o644);
    assert_eq!(env.read("secret").as_deref(), Some("new, and nowhere else\n"));
    assert_eq!(env.read("other").as_deref(), Some("old\n"));
}

/// A directory that could not be listed was taken for an empty one: deleted and taken back, it was empty and the
/// rewind said that everything was done. What nobody saw is not known, and said to be.
#[test]
fn denied_directory_is_unknown_and_never_taken_for_an_empty_one() {
    if needs_no_root("denied_directory_is_unknown_and_never_taken_for_an_empty_one") {
        return;
    }
    let cli = Cli::new();
    cli.write("a.txt", "1\n");
    cli.write("x/closed/inside.txt", "nobody saw this\n");
    let closed = cli.root().join("x/closed");
    let set_mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0);
    cli.call(["init"]).ok();
    cli.turn("s", "delete", || {
        set_mode(0o700);
        fs::remove_dir_all(cli.root().join("x")).unwrap();
    });
    let done = cli.call(["--json", "rewind", "start", "--yes"]).exits(4).json();
    assert_eq!(done["plan"]["unknown"][0]["path"], "x/closed", "{done}");
    assert!(cli.root().join("x").is_dir() && !closed.exists());
}

/// What was seen while it could be listed comes back, though nobody may list it when it goes.
#[test]
fn denied_directory_that_was_seen_before_comes_back() {
    if needs_no_root("denied_directory_that_was_seen_before_comes_back") {
        return;
    }
    let cli = Cli::adopted(&[("x/closed/inside.txt", "seen\n")]);
    let closed = cli.root().join("x/closed");
    let set_mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    cli.turn("s", "close", || set_mode(0));
    cli.turn("s", "delete", || {
        set_mode(0o700);
        fs::remove_dir_all(cli.root().join("x")).unwrap();
    });
    cli.call(["rewind", "start", "--yes"]).ok();
    assert_eq!(cli.read("x/closed/inside.txt").as_deref(), Some("seen\n"));
}

/// A file whose path was longer than any record may hold was named once and then forgotten: deleted with its
/// directory and taken back, the directory was empty and the rewind said that everything was done. What holds a
/// name that cannot be recorded is not known.
#[test]
fn directory_with_a_path_that_is_too_long_is_unknown_and_not_taken_for_an_empty_one() {
    let cli = Cli::new();
    cli.write("a.txt", "1\n");
    let make = "n=$(printf %0200d 0); for i in $(seq 25); do mkdir $n && cd -P $n; done; echo 1 >f";
    let made = Command::new("sh").args(["-c", make]).current_dir(cli.root()).status().unwrap();
    assert!(made.success());
    cli.call(["init"]).ok();
    cli.call(["settle"]).ok();
    cli.turn("s", "delete", || {
        let gone = Command::new("sh").args(["-c", "rm -rf 0*"]).current_dir(cli.root()).status();
        assert!(gone.unwrap().success());
    });
    let done = cli.call(["--json", "rewind", "start", "--yes"]).exits(4).json();
    let unknown = done["plan"]["unknown"].as_array().unwrap();
    assert_eq!(unknown.len(), 1, "{done}");
    let names = unknown[0]["path"].as_str().unwrap().split('/').count();
    assert_eq!(names, 20, "the one whose names have paths of over 4096 bytes");
}

#[test]
fn denied_file_stops_the_action_that_names_it() {
    if needs_no_root("denied_file_stops_the_action_that_names_it") {
        return;
    }
    let env = world();
    env.write("secret", "old\n");
    env.ok(&["init"]);
    env.write("secret", "new, and nowhere else\n");
    fs::set_permissions(env.path("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::read(env.path("secret")).expect_err("the file must deny reading");
    let words = ["--json", "snapshot", "--action", "write_file", "--path", "secret"];
    let ran = env.run(&words).code(1);
    assert!(ran.stderr().contains("not_captured"), "{}", ran.story());
    fs::set_permissions(env.path("secret"), fs::Permissions::from_mode(0o644)).unwrap();
    env.ok(&["snapshot", "--action", "write_file", "--path", "secret"]);
}
