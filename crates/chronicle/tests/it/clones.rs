//! Large files are cloned before an action where the file system can, and read later; what comes back
//! is what was there, also if somebody dies in between.
//!
//! `on_*` play on real file systems in loop devices. The others ask for clones of everything, which are
//! copies where blocks cannot be shared.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use chronicle_testing::dice::Dice;
use chronicle_testing::env::Env;
use chronicle_testing::mounted::Mounted;
use chronicle_testing::shared::skip;

use crate::scenes::world;
use crate::secrets::holding;

/// More than is read at once.
const LARGE: usize = (4 << 20) + 12_345;
const IMAGE: u64 = 2 << 30;

/// A world whose home and workspace lie on a file system of this kind; the file system goes last.
fn on(test: &str, kind: &str) -> Option<(Env, Mounted)> {
    match Mounted::new(kind, IMAGE) {
        Ok(mounted) => {
            let env = world().with_home(mounted.at().join("home"));
            let env = env.with_workspace(mounted.at().join("ws"));
            fs::create_dir(env.workspace()).unwrap();
            Some((env, mounted))
        }
        Err(why) => {
            skip(&format!("clones::{test}"), &why);
            None
        }
    }
}

/// A world in which everything is cloned before an action.
fn everything() -> Env {
    world().with_variable("CHRONICLE_CLONES", "0")
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..length).map(|_| dice.below(256) as u8).collect()
}

fn clones(env: &Env) -> usize {
    fs::read_dir(env.home().join("store/clones")).map_or(0, Iterator::count)
}

/// Announces an action on a path; its id.
#[track_caller]
fn announce(env: &Env, path: &str) -> String {
    let said = env.ok(&["snapshot", "--action", "write_file", "--path", path, "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn must_be_sound(env: &Env) {
    env.ok(&["verify", "--deep"]);
    let findings = env.run(&["doctor", "--dry-run"]);
    assert!(findings.is_done(), "{}", findings.story());
}

/// A large file goes through everything that can be done to it on a real file system.
fn play(test: &str, kind: &str, shares: bool) {
    let Some((env, mounted)) = on(test, kind) else { return };
    env.write("small", "s");
    env.ok(&["init"]);
    let first = bytes(1, LARGE);
    env.write("big", &first);
    let id = announce(&env, "big");
    assert_eq!(clones(&env), usize::from(shares), "cloned only where blocks can be shared");
    edited_again_and_again(&env, &first);
    env.ok(&["settle"]);
    assert_eq!(clones(&env), 0, "whoever has the time reads it");
    env.ok(&["rollback", &id, "--yes"]);
    assert!(fs::read(env.path("big")).unwrap() == first);
    if shares {
        what_comes_back_shares_blocks(&env);
    }
    sparse_stays_sparse(&env);
    must_be_sound(&env);
    drop((env, mounted));
}

/// The file changes many times between its capture and the next settle; each version is kept.
fn edited_again_and_again(env: &Env, first: &[u8]) {
    let mut versions = vec![first.to_vec()];
    for edit in 0..4u64 {
        let mut content = versions.last().unwrap().clone();
        content[edit as usize * 1_000_000..][..5].copy_from_slice(b"edit!");
        fs::write(env.path("big"), &content).unwrap();
        versions.push(content);
        announce(env, "big");
    }
    fs::write(env.path("big"), "nothing is left").unwrap();
    env.ok(&["settle"]);
    for version in &versions {
        let object = chronicle_core::ObjectId::of(version);
        let store = chronicle_core::LocalStore::open(&env.home().join("store")).unwrap();
        let kept = chronicle_core::ContentStorage::get(&store, &object).unwrap();
        assert!(&kept == version, "a version is lost");
    }
}

/// An edit of a large file is taken back by writing the edit, and no copy of the rest.
fn what_comes_back_shares_blocks(env: &Env) {
    let content = bytes(5, 8 * LARGE);
    env.write("huge", &content);
    env.ok(&["settle"]);
    let id = announce(env, "huge");
    let file = fs::File::options().write(true).open(env.path("huge")).unwrap();
    file.write_all_at(b"an edit", 9_999_999).unwrap();
    file.set_len(content.len() as u64 + 5000).unwrap();
    file.sync_all().unwrap();
    env.ok(&["settle"]);
    let shared = fs::File::open(env.path("huge")).unwrap();
    let before = free(env);
    env.ok(&["rollback", &id, "--yes"]);
    assert!(fs::read(env.path("huge")).unwrap() == content);
    // The old file is still open, so that what is taken is all that was written.
    let taken = before.saturating_sub(free(env));
    assert!(taken < 8 << 20, "{taken} bytes to take an edit back");
    drop(shared);
}

/// The bytes that are free where the workspace lies.
fn free(env: &Env) -> u64 {
    let at = fs::File::open(env.workspace()).unwrap();
    rustix::fs::syncfs(&at).unwrap();
    let stat = rustix::fs::fstatvfs(&at).unwrap();
    stat.f_bfree * stat.f_frsize
}

fn sparse_stays_sparse(env: &Env) {
    let length = 64 << 20;
    let file = fs::File::create(env.path("sparse")).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(b"here", 20 << 20).unwrap();
    file.write_all_at(b"and here", length - 100).unwrap();
    drop(file);
    let before = fs::read(env.path("sparse")).unwrap();
    let id = announce(env, "sparse");
    fs::write(env.path("sparse"), bytes(3, LARGE)).unwrap();
    env.ok(&["settle"]);
    env.ok(&["rollback", &id, "--yes"]);
    assert!(fs::read(env.path("sparse")).unwrap() == before);
    let taken = fs::metadata(env.path("sparse")).unwrap().blocks() * 512;
    assert!(taken < 2 << 20, "{taken} bytes of a sparse file");
}

#[test]
fn on_btrfs_a_large_file_is_cloned_and_comes_back() {
    play("on_btrfs_a_large_file_is_cloned_and_comes_back", "btrfs", true);
}

#[test]
fn on_xfs_a_large_file_is_cloned_and_comes_back() {
    play("on_xfs_a_large_file_is_cloned_and_comes_back", "xfs", true);
}

#[test]
fn on_ext4_a_large_file_is_read_and_comes_back() {
    play("on_ext4_a_large_file_is_read_and_comes_back", "ext4", false);
}

/// A home elsewhere shares nothing with the workspace.
#[test]
fn on_another_file_system_a_large_file_is_read() {
    let Some((env, mounted)) = on("on_another_file_system_a_large_file_is_read", "btrfs") else {
        return;
    };
    let elsewhere = world();
    let env = env.with_home(elsewhere.home());
    env.ok(&["init"]);
    env.write("big", bytes(1, LARGE));
    announce(&env, "big");
    assert_eq!(clones(&env), 0);
    must_be_sound(&env);
    drop((env, mounted));
}

/// What was announced and what it was before.
fn announced(env: &Env) -> (String, String) {
    env.write("f", "never captured before\n");
    env.ok(&["init"]);
    let before = "what nobody has read yet\n".repeat(100);
    env.write("f", &before);
    (announce(env, "f"), before)
}

#[test]
fn what_is_pending_can_be_read_by_who_only_reads() {
    let env = everything();
    let (_, before) = announced(&env);
    assert_eq!(clones(&env), 1);
    assert_eq!(env.ok(&["cat", "f", "--at", "seq:4"]), before);
    assert_eq!(clones(&env), 1, "nobody who only reads has resolved it");
    env.ok(&["diff"]);
    env.ok(&["verify", "--deep"]);
}

#[test]
fn the_same_content_is_no_change_once_it_is_read() {
    let env = everything();
    env.write("f", "the same\n");
    env.ok(&["init"]);
    let file = fs::File::options().write(true).open(env.path("f")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    announce(&env, "f");
    assert_eq!(clones(&env), 1);
    env.ok(&["settle"]);
    let diff = env.ok(&["diff", "start", "--json"]);
    assert!(!diff.contains("modified"), "{diff}");
}

#[test]
fn a_secret_is_never_cloned() {
    let env = everything();
    env.write("a", "a");
    env.ok(&["init"]);
    env.write(".env", "KEY=0123456789abcdef0123456789abcdef\n");
    announce(&env, ".env");
    assert_eq!(clones(&env), 0);
    assert_eq!(
        holding(&env.home(), b"0123456789abcdef0123456789abcdef"),
        Vec::<std::path::PathBuf>::new()
    );
}

#[test]
fn collecting_garbage_keeps_what_is_pending_and_takes_orphans() {
    let env = everything();
    let (id, before) = announced(&env);
    let orphan = env.home().join("store/clones").join("ab".repeat(32));
    fs::write(&orphan, "of a capture that never was committed").unwrap();
    env.ok(&["gc"]);
    assert!(!orphan.exists());
    assert_eq!(clones(&env), 1);
    env.write("f", "other\n");
    env.ok(&["rollback", &id, "--yes"]);
    assert_eq!(env.read("f").unwrap(), before);
    env.ok(&["gc"]);
    must_be_sound(&env);
}

#[test]
fn what_was_pending_is_forgotten_like_anything_else() {
    let env = everything();
    let (_, before) = announced(&env);
    let object = chronicle_core::ObjectId::of(before.as_bytes());
    // Somebody died before he could remove the clone that he had read.
    let died = env.run_with(&["settle"], |command| {
        command.env("CHRONICLE_FAILPOINT", "resolve_after_commit");
    });
    assert!(died.was_killed(), "{}", died.story());
    assert_eq!(clones(&env), 1);
    fs::remove_file(env.path("f")).unwrap();
    env.ok(&["forget", "f", "--yes"]);
    assert_eq!(holding(&env.home(), b"what nobody has read yet"), Vec::<std::path::PathBuf>::new());
    assert_eq!(holding(&env.home(), object.as_bytes()), Vec::<std::path::PathBuf>::new());
    must_be_sound(&env);
}

#[test]
fn a_clone_that_is_lost_is_missing_content_and_nothing_else() {
    let env = everything();
    let (id, _) = announced(&env);
    fs::remove_dir_all(env.home().join("store/clones")).unwrap();
    assert_eq!(env.run(&["verify"]).output.status.code(), Some(12));
    env.write("g", "g");
    let other = announce(&env, "g");
    fs::remove_file(env.path("g")).unwrap();
    env.ok(&["rollback", &other, "--yes"]);
    assert_eq!(env.read("g").unwrap(), "g");
    env.write("f", "other\n");
    env.ok(&["settle"]);
    assert!(!env.run(&["rollback", &id, "--yes"]).is_done());
    assert_eq!(env.read("f").unwrap(), "other\n");
}

/// The points at which a capture or whoever reads a clone can die; `gc` last.
pub(crate) const POINTS: [(&str, &[&str]); 5] = [
    ("clone_after_sharing", SNAPSHOT),
    ("clone_after_naming", SNAPSHOT),
    ("resolve_before_commit", &["settle"]),
    ("resolve_after_commit", &["settle"]),
    ("gc_before_clones", &["gc"]),
];
const SNAPSHOT: &[&str] = &["snapshot", "--action", "write_file", "--path", "f"];

#[test]
fn whoever_dies_leaves_it_pending_or_read() {
    for (point, words) in POINTS {
        let env = everything();
        let (id, before) = announced(&env);
        env.write("f", "the next version\n");
        fs::write(env.home().join("store/clones").join("ab".repeat(32)), "garbage").unwrap();
        let died = env.run_with(words, |command| {
            command.env("CHRONICLE_FAILPOINT", point);
        });
        assert!(died.was_killed(), "{point}: {}", died.story());
        env.ok(&["verify", "--deep"]);
        env.ok(&["settle"]);
        env.ok(&["rollback", &id, "--yes"]);
        assert_eq!(env.read("f").unwrap(), before, "{point}");
        env.ok(&["gc"]);
        assert_eq!(clones(&env), 0, "{point}");
        must_be_sound(&env);
        assert_eq!(leftovers(&env.home().join("store/tmp")), 0, "{point}");
    }
}

fn leftovers(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}
