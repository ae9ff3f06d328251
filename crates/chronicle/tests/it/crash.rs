//! A process dies at every failpoint, and at any other time; the next one must find all or nothing.
//!
//! Each test plays every scenario that passes its failpoint: the process kills itself there, a
//! fresh `status` recovers, the tree is exactly the one before or the one after, history verifies,
//! and going there and back still works.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use chronicle_core::{ContentStorage, Home, LocalStore, ObjectId, Workspace};
use chronicle_testing::env::Env;
use chronicle_testing::shared::setting;
use chronicle_testing::tree::{Tree, describe, differences};

use crate::scenes::change_kinds;
use crate::terminal::Terminal;

macro_rules! crash_tests {
    ($($name:ident)*) => {
        const COVERED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            crash_at(stringify!($name));
        })*
    };
}

crash_tests! {
    store_after_object_data
    store_after_object_rename
    store_after_pack_created
    store_after_pack_data
    store_after_index_data
    store_after_pack_rename
    store_after_index_rename
    store_before_manifest
    catalog_before_commit
    capture_before_commit
    capture_after_commit
    init_after_batch
    rewind_after_look
    rewind_after_stage
    rewind_after_commit_point
    rewind_after_step
    rewind_after_apply
    rewind_after_record
    rewind_after_clean_up
}

#[test]
fn no_failpoint_lacks_a_test() {
    let source = include_str!("../../../chronicle-core/src/failpoint.rs");
    let list = source.split_once("ALL: &[&str] = &[").unwrap().1.split_once(']').unwrap().0;
    let mut listed: Vec<_> = list.split('"').skip(1).step_by(2).collect();
    let mut covered = COVERED.to_vec();
    covered.push("store_after_index_removal");
    covered.extend(PURGE);
    // See `retention::a_prune_that_dies_leaves_all_or_nothing`.
    covered.extend(["prune_before_commit", "prune_after_commit", "gc_before_commit"]);
    // See `doctor::a_doctor_that_dies_is_followed_by_another`.
    covered.extend(["doctor_before_swap", "doctor_in_swap"]);
    // See `forget::a_forget_that_dies_leaves_all_or_nothing`.
    covered.extend(["forget_before_commit", "forget_after_commit"]);
    // See `versions::versions_outlive_the_one_they_were_kept_against`.
    covered.extend(["forget_after_setting_apart"]);
    // See `export::an_export_that_dies_leaves_the_ref_alone`.
    covered.extend(["export_after_commit", "export_before_ref"]);
    // See `retention::small_packs_become_one_and_who_dies_loses_nothing`.
    covered.extend(["gc_after_joining"]);
    // See `bucket::clone_that_dies_goes_on_when_it_is_said_again`.
    covered.extend([
        "receive_before_commit",
        "receive_before_registration",
        "receive_after_registration",
    ]);
    // See `bucket::content_leaves_and_comes_back_and_the_key_is_exchanged`.
    covered.extend(["evict_before_sweep"]);
    // See `clones::whoever_dies_leaves_it_pending_or_read`.
    covered.extend(crate::clones::POINTS.map(|(point, _)| point));
    // See `pool_others::process_that_dies_leaves_a_pool_that_can_be_used` of the core.
    covered.extend(["pool_before_rename", "pool_in_eviction"]);
    // See `isolated::crash`.
    covered.extend(crate::isolated::crash::POINTS);
    // See `mount::whoever_dies_while_it_is_recorded_loses_nothing`.
    covered.extend(["mount_after_save", "mount_after_fold", "mount_after_turn"]);
    // See `replica_crash` of the core.
    covered.extend([
        "direct_after_stage",
        "direct_after_steps",
        "direct_after_sync",
        "push_after_announcement",
        "push_before_commit",
        "push_after_commit",
        "redo_before_push",
        // These in `lazy` of the core.
        "fill_before_commit",
        "fill_after_commit",
        "writes_before_commit",
        "writes_after_commit",
        "answer_after_commit",
        "resolve_after_put",
    ]);
    // See `kill::` of chronicle-checkpoint, which dies at every one of these by their first word.
    let of_checkpoints =
        |point: &&str| ["checkpoint_", "restore_"].iter().any(|w| point.starts_with(w));
    covered.extend(listed.iter().copied().filter(of_checkpoints));
    listed.sort_unstable();
    covered.sort_unstable();
    assert_eq!(covered, listed);
}

/// The points of a purge, which only a person at a terminal can ask for.
const PURGE: [&str; 2] = ["purge_after_unregister", "purge_after_history"];

/// Nothing is left of the workspace but its files, and it can be adopted anew.
#[test]
fn a_purge_that_dies_leaves_no_half_history() {
    for point in PURGE {
        let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
        let allowed = prepare_turn(&env);
        let terminal = Terminal::new();
        let mut command = env.command();
        command.args(["uninstall", "cursor", "--purge", "--yes"]);
        command.env("CHRONICLE_FAILPOINT", point);
        let ended = terminal.start(command).wait().unwrap();
        assert!(ended.signal().is_some(), "{point}: {ended}");
        assert_eq!(env.run(&["status"]).output.status.code(), Some(10), "{point}");
        must_be_one_of(&env, &allowed, point);
        env.ok(&["init"]);
        env.ok(&["verify", "--deep"]);
    }
}

/// What a process was doing when it died.
struct Scenario {
    name: &'static str,
    /// Brings the world to the moment before; returns the trees that may be found afterwards.
    prepare: fn(&Env) -> Vec<Tree>,
    words: &'static [&'static str],
    /// The event of an agent that it hears on stdin, but for where it works.
    hears: &'static str,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "init", prepare: prepare_init, words: &["init"], hears: "" },
    Scenario { name: "settle", prepare: prepare_settle, words: &["settle"], hears: "" },
    Scenario { name: "settle much", prepare: prepare_much, words: &["settle"], hears: "" },
    Scenario {
        name: "snapshot",
        prepare: prepare_settle,
        words: &["snapshot", "--action", "write_file", "--path", "f1"],
        hears: "",
    },
    Scenario { name: "turn end", prepare: prepare_open_turn, words: &["turn", "end"], hears: "" },
    Scenario { name: "rewind", prepare: prepare_turn, words: REWIND, hears: "" },
    Scenario { name: "undo", prepare: prepare_turn, words: &["undo", "--yes"], hears: "" },
    Scenario { name: "redo", prepare: prepare_redo, words: REDO, hears: "" },
    Scenario { name: "recovery", prepare: prepare_interrupted, words: &["status"], hears: "" },
    Scenario { name: "hook before", prepare: prepare_settle, words: HOOK, hears: BEFORE },
    Scenario { name: "hook after", prepare: prepare_settle, words: HOOK, hears: AFTER },
    Scenario { name: "hook prompt", prepare: prepare_settle, words: HOOK, hears: PROMPT },
];

const HOOK: &[&str] = &["hook", "codex"];
const PROMPT: &str = r#""hook_event_name":"UserPromptSubmit","prompt":"x""#;
const BEFORE: &str =
    r#""hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"x"}"#;
const AFTER: &str =
    r#""hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"x"}"#;

const REWIND: &[&str] = &["rewind", "start", "--exact", "--yes"];
const REDO: &[&str] = &["redo", "--yes"];

/// How often a point is passed before the process dies there, to be tried: early and late.
const TIMES: [u64; 3] = [1, 2, 5];

fn crash_at(point: &str) {
    let mut died = 0;
    for scenario in SCENARIOS {
        for time in TIMES {
            if !crash_once(scenario, &format!("{point}:{time}")) {
                break;
            }
            died += 1;
        }
    }
    assert!(died > 0, "no scenario passes {point}");
}

/// Plays one scenario; says whether the process died.
fn crash_once(scenario: &Scenario, point: &str) -> bool {
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let allowed = (scenario.prepare)(&env);
    let what = format!("{} killed at {point}", scenario.name);
    let ran = env.run_with(scenario.words, |command| {
        command.env("CHRONICLE_FAILPOINT", point);
        if !scenario.hears.is_empty() {
            let event = format!(
                "{{\"session_id\":\"s\",\"cwd\":{:?},{}}}",
                env.workspace(),
                scenario.hears
            );
            fs::write(env.base().join("event"), event).unwrap();
            command.stdin(fs::File::open(env.base().join("event")).unwrap());
        }
    });
    if !ran.was_killed() {
        let _ = ran.code(0);
        return false;
    }
    must_be_sound(&env, &allowed, &what);
    true
}

/// The next process finds the world before or after, verifies it, and can go on.
fn must_be_sound(env: &Env, allowed: &[Tree], what: &str) {
    if env.run(&["status"]).output.status.code() == Some(10) {
        // It died before the workspace was adopted: nothing is there to recover.
        env.ok(&["init"]);
    }
    env.ok(&["status"]);
    must_be_one_of(env, allowed, what);
    env.ok(&["init"]);
    env.ok(&["settle"]);
    env.ok(&["verify", "--deep"]);
    must_be_one_of(env, allowed, &format!("{what}, then verified"));
    if let [then, now] = allowed {
        env.ok(REWIND);
        must_be_one_of(env, std::slice::from_ref(then), &format!("{what}, then rewound"));
        env.ok(REDO);
        must_be_one_of(env, std::slice::from_ref(now), &format!("{what}, then redone"));
        env.ok(&["verify", "--deep"]);
    }
}

#[track_caller]
fn must_be_one_of(env: &Env, allowed: &[Tree], what: &str) {
    let got = describe(&env.workspace());
    if allowed.contains(&got) {
        return;
    }
    let first = |want| differences(want, &got).into_iter().take(8).collect::<Vec<_>>();
    let each: Vec<_> = allowed.iter().map(|want| first(want).join("\n    ")).collect();
    panic!("{what}: the tree is neither of\n    {}", each.join("\n  nor\n    "));
}

/// Enough small files for a pack, one for a file of its own, and every kind of entry.
fn fill(env: &Env) {
    for number in 0..150 {
        env.write(format!("f{number}"), format!("file {number}\n").repeat(20));
    }
    env.write("deep/er/file", "text\n");
    env.write("script", "#!/bin/sh\n");
    env.write("large", large(1));
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(env.path("script"), executable).unwrap();
    fs::create_dir(env.path("empty")).unwrap();
    symlink("f1", env.path("link")).unwrap();
    fs::hard_link(env.path("f2"), env.path("f2-too")).unwrap();
}

/// 6 MiB that do not compress.
fn large(seed: u64) -> Vec<u8> {
    chronicle_testing::dice::Dice::new(seed).bytes(6 << 20)
}

/// Every kind of change at once.
fn wreck(env: &Env) {
    for number in 100..150 {
        fs::remove_file(env.path(format!("f{number}"))).unwrap();
    }
    for number in 10..40 {
        env.write(format!("f{number}"), format!("other {number}\n"));
    }
    env.write("large", large(2));
    fs::rename(env.path("f3"), env.path("moved")).unwrap();
    change_kinds(env);
}

fn prepare_init(env: &Env) -> Vec<Tree> {
    fill(env);
    vec![describe(&env.workspace())]
}

fn prepare_settle(env: &Env) -> Vec<Tree> {
    fill(env);
    env.ok(&["init"]);
    env.write("f1", "changed\n");
    fs::remove_file(env.path("f5")).unwrap();
    vec![describe(&env.workspace())]
}

fn prepare_much(env: &Env) -> Vec<Tree> {
    fill(env);
    env.ok(&["init"]);
    wreck(env);
    (0..150).for_each(|number| env.write(format!("more{number}"), format!("more {number}\n")));
    vec![describe(&env.workspace())]
}

fn prepare_open_turn(env: &Env) -> Vec<Tree> {
    fill(env);
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    wreck(env);
    vec![describe(&env.workspace())]
}

/// A finished turn; the trees before and after it.
fn prepare_turn(env: &Env) -> Vec<Tree> {
    fill(env);
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    let then = describe(&env.workspace());
    wreck(env);
    env.ok(&["turn", "end", "--key", "k", "--session", "s"]);
    vec![then, describe(&env.workspace())]
}

fn prepare_redo(env: &Env) -> Vec<Tree> {
    let trees = prepare_turn(env);
    env.ok(REWIND);
    trees
}

/// A rewind that died just after its commit point, and that `status` must finish.
fn prepare_interrupted(env: &Env) -> Vec<Tree> {
    let trees = prepare_turn(env);
    let ran = env.run_with(REWIND, |command| {
        command.env("CHRONICLE_FAILPOINT", "rewind_after_commit_point");
    });
    assert!(ran.was_killed(), "{}", ran.story());
    trees
}

/// No command deletes objects yet, so this one dies in the library, in a child of the test itself.
#[test]
fn store_after_index_removal() {
    let holder = tempfile::tempdir().unwrap();
    if let Some(directory) = std::env::var_os("CHRONICLE_TEST_STORE") {
        let store = LocalStore::open(Path::new(&directory)).unwrap();
        store.delete(&ObjectId::of(&object(7))).unwrap();
        return;
    }
    let store = LocalStore::open(holder.path()).unwrap();
    let mut intake = store.intake().unwrap();
    for number in 0..200 {
        intake.take(&object(number)).unwrap();
    }
    intake.finish().unwrap();
    // It holds the store's lock, which the child needs.
    drop(intake);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::store_after_index_removal"])
        .env("CHRONICLE_TEST_STORE", holder.path())
        .env("CHRONICLE_FAILPOINT", "store_after_index_removal")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(9));
    let store = LocalStore::open(holder.path()).unwrap();
    for number in (0..200).filter(|number| *number != 7) {
        let content = object(number);
        assert_eq!(store.get(&ObjectId::of(&content)).unwrap(), content);
    }
}

fn object(number: usize) -> Vec<u8> {
    format!("object {number}\n").repeat(30).into_bytes()
}

#[test]
fn a_kill_at_any_time_leaves_before_or_after() {
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let allowed = prepare_turn(&env);
    let begun = Instant::now();
    env.ok(REWIND);
    let whole = begun.elapsed();
    env.ok(REDO);
    let kills = u32::try_from(setting("CHRONICLE_KILLS", 25)).unwrap();
    for kill in 0..kills {
        let words = if describe(&env.workspace()) == allowed[0] { REDO } else { REWIND };
        let mut command = env.command();
        let quiet = command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quiet.spawn().unwrap();
        // The kills are spread over the time that one whole rewind takes.
        std::thread::sleep(whole * kill / kills);
        child.kill().unwrap();
        child.wait().unwrap();
        env.ok(&["status"]);
        must_be_one_of(&env, &allowed, &format!("kill {kill} of {kills}"));
    }
    env.ok(&["verify", "--deep"]);
}

/// A workspace that was open while another process died in the middle of a rewind recorded the half
/// of it as a person's work: only opening finished what was interrupted. Now taking the lock does.
#[test]
fn a_workspace_that_was_open_already_finishes_what_another_left() {
    for point in ["rewind_after_commit_point", "rewind_after_step:5", "rewind_after_apply"] {
        let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
        let allowed = prepare_turn(&env);
        let home = Home::at(&env.home());
        let mut workspace = Workspace::open(&home, &env.workspace()).unwrap();
        let ran = env.run_with(REWIND, |command| {
            command.env("CHRONICLE_FAILPOINT", point);
        });
        assert!(ran.was_killed(), "{}", ran.story());
        let settled = workspace.settle().unwrap();
        must_be_one_of(&env, &allowed[..1], point);
        assert_eq!(settled.changes, 0, "{point}: half of a rewind was recorded as work");
        env.ok(REDO);
        must_be_one_of(&env, &allowed[1..], point);
        env.ok(&["verify", "--deep"]);
    }
}
