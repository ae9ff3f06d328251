//! The N-th writing system call of a command fails, for every call and every N; what is said must
//! be true, and the next command must find all or nothing and be able to go on.
//!
//! The ordinary run takes a fixed sample of each command's calls; `CHRONICLE_FAULTS=all` takes all.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::path::Path;
use std::process::Command;

use chronicle_core::{Home, KeySource, LocalStore, Policy, Workspace};
use chronicle_testing::dice::Dice;
use chronicle_testing::env::Env;
use chronicle_testing::shared::skip;
use chronicle_testing::strace::{self, Fault, Tampered};
use chronicle_testing::tree::{Tree, assert_same, describe, differences};

use crate::retention::live_through;
use crate::scenes::{add_more, fill, world, wreck};

/// How many faults of a command an ordinary run tries.
const SAMPLE: usize = 48;
/// Days of work of which the first are too old, with turns enough.
const DAYS: i64 = 33;
/// What calls fail with.
const ERRORS: [&str; 2] = ["EIO", "ENOSPC"];

/// A command, the world in which a call of it fails, and what counts as its end.
struct Scenario {
    name: &'static str,
    words: &'static [&'static str],
    /// Brings the world to the moment before; returns the trees before and after the command.
    prepare: fn(&Env) -> (Tree, Tree),
    goal: Goal,
}

/// What a command is for, so that a test can tell whether it was done.
#[derive(Clone, Copy, PartialEq)]
enum Goal {
    /// The workspace can be brought back to how it stands.
    Captured,
    /// The same, and no turn is open.
    TurnEnded,
    /// The workspace is the tree after.
    TakenBack,
    /// Only the answer counts.
    Answer,
    /// The word is nowhere in the home any more.
    Forgotten,
    /// What was damaged is whole.
    Healed,
    /// The work of an isolated run is in the workspace.
    Committed,
    /// No isolated run waits.
    Discarded,
}

macro_rules! tests {
    ($($name:ident: $words:expr, $prepare:ident, $goal:ident;)*) => {
        $(#[test]
        fn $name() {
            let name = stringify!($name);
            play(&Scenario { name, words: &$words, prepare: $prepare, goal: Goal::$goal });
        })*
    };
}

tests! {
    init: ["init"], fresh, Captured;
    init_of_more_and_larger: ["init"], fresh_and_more, Captured;
    snapshot: ["snapshot", "--action", "write_file", "--path", "f1"], edited, Answer;
    snapshot_of_a_clone: ["snapshot", "--action", "write_file", "--path", "f1"], edited, Answer;
    settle_of_clones: ["settle"], pending, Captured;
    gc_of_clones: ["gc"], with_an_orphan, Answer;
    settle: ["settle"], edited, Captured;
    settle_of_more_and_larger: ["settle"], edited_more, Captured;
    turn_end: ["turn", "end"], turn_open, TurnEnded;
    rewind: ["rewind", "start", "--exact", "--yes"], turn_done, TakenBack;
    rewind_onto_a_clone: ["rewind", "start", "--exact", "--yes"], large_edited, TakenBack;
    undo: ["undo", "--yes"], turn_done, TakenBack;
    verify: ["verify", "--deep"], settled, Answer;
    prune: ["prune"], aged, Answer;
    gc: ["gc"], with_garbage, Answer;
    doctor: ["doctor"], damaged, Healed;
    forget: ["forget", "gone", "--yes"], with_a_secret, Forgotten;
    isolated_run: ["run", "--isolated", "--discard", "--", "true"], settled, Answer;
    isolated_commit: ["isolated", "commit"], isolated, Committed;
    isolated_discard: ["isolated", "discard"], isolated_and_unwanted, Discarded;
}

fn as_it_is(env: &Env) -> (Tree, Tree) {
    (describe(&env.workspace()), describe(&env.workspace()))
}

fn fresh(env: &Env) -> (Tree, Tree) {
    fill(env);
    as_it_is(env)
}

fn fresh_and_more(env: &Env) -> (Tree, Tree) {
    add_more(env);
    as_it_is(env)
}

fn settled(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    wreck(env);
    env.ok(&["settle"]);
    as_it_is(env)
}

fn edited(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    wreck(env);
    as_it_is(env)
}

/// Two versions of a file were cloned, and a third stands there.
fn pending(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    for version in ["one\n", "two\n"] {
        env.write("f1", version);
        env.ok(&["snapshot", "--action", "write_file", "--path", "f1"]);
    }
    env.write("f1", "three\n");
    as_it_is(env)
}

/// The same, and a clone that nothing names.
fn with_an_orphan(env: &Env) -> (Tree, Tree) {
    let trees = pending(env);
    let orphan = env.home().join("store/clones").join("ab".repeat(32));
    fs::write(orphan, "of a capture that was never committed").unwrap();
    trees
}

fn edited_more(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    add_more(env);
    as_it_is(env)
}

fn turn_open(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    wreck(env);
    as_it_is(env)
}

fn turn_done(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    let after = describe(&env.workspace());
    wreck(env);
    env.ok(&["turn", "end", "--key", "k", "--session", "s"]);
    (describe(&env.workspace()), after)
}

/// A turn that edited a large file in place.
fn large_edited(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.write("large", Dice::new(3).bytes((4 << 20) + 100_000));
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    let after = describe(&env.workspace());
    let mut edited = fs::read(env.path("large")).unwrap();
    edited[1_000_000..1_000_009].copy_from_slice(b"an edit: ");
    edited.extend_from_slice(b"and more");
    env.write("large", edited);
    env.ok(&["turn", "end", "--key", "k", "--session", "s"]);
    (describe(&env.workspace()), after)
}

/// History of which a part is too old.
fn aged(env: &Env) -> (Tree, Tree) {
    fill(env);
    live_through(&Home::at(&env.home()), &env.workspace(), DAYS);
    as_it_is(env)
}

/// Content that nothing needs any more: in the catalog, in packs, and in a file of its own.
fn with_garbage(env: &Env) -> (Tree, Tree) {
    fill(env);
    // The command signs with this key too.
    let key = KeySource::File(env.base().join(".config/chronicle/head.key"));
    let home = Home::at(&env.home()).signed_with(key);
    let mut workspace = live_through(&home, &env.workspace(), DAYS);
    workspace.prune(&Policy::default(), "a test", false).unwrap();
    let store = LocalStore::open(&env.home().join("store")).unwrap();
    let mut intake = store.intake().unwrap();
    for number in 0..200 {
        intake.take(&format!("garbage {number}\n").repeat(30).into_bytes()).unwrap();
    }
    intake.take(&Dice::new(3).bytes((4 << 20) + 1)).unwrap();
    intake.finish().unwrap();
    as_it_is(env)
}

/// A pack without its index, and a catalog whose own indexes are gone.
fn damaged(env: &Env) -> (Tree, Tree) {
    fill(env);
    add_more(env);
    env.ok(&["init"]);
    let named = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut packs = named(&env.home().join("store/packs"));
    let index = packs.find(|path| path.extension().is_some_and(|end| end == "idx")).unwrap();
    fs::remove_file(index).unwrap();
    let workspace = named(&env.home().join("workspaces")).next().unwrap();
    let catalog = rusqlite::Connection::open(workspace.join("catalog.db")).unwrap();
    catalog.execute_batch("DELETE FROM touched").unwrap();
    as_it_is(env)
}

/// Work whose result is the same wherever and whenever it is done.
const WORK: &str = "echo other > f1; rm f3; mv f4 moved; mkdir -p new/dir; echo new > new/dir/file
    rm -r deep; rmdir empty; echo 'a file now' > empty; rm link; mkdir link; chmod 600 script
    touch -d @1000 f1 new/dir/file empty";

/// An isolated run waits; the workspace is to become what the same work makes of a copy of it.
fn isolated(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.ok(&["init"]);
    env.ok(&["run", "--isolated", "--", "sh", "-ec", WORK]);
    let twin = env.base().join("twin");
    let copied = Command::new("cp").arg("-a").arg(env.workspace()).arg(&twin).status().unwrap();
    assert!(copied.success());
    let done = Command::new("sh").args(["-ec", WORK]).current_dir(&twin).status().unwrap();
    assert!(done.success());
    (describe(&env.workspace()), describe(&twin))
}

fn isolated_and_unwanted(env: &Env) -> (Tree, Tree) {
    isolated(env);
    as_it_is(env)
}

fn waiting_runs(env: &Env) -> usize {
    let list = sound(env, &["--json", "isolated", "list"], "asking what waits");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    list["runs"].as_array().unwrap().len()
}

/// What must not be found any more; too short to be compressed.
const WORD: &str = "a word that nobody may know";

fn with_a_secret(env: &Env) -> (Tree, Tree) {
    fill(env);
    env.write("gone", WORD);
    env.ok(&["init"]);
    fs::remove_file(env.path("gone")).unwrap();
    env.ok(&["settle"]);
    as_it_is(env)
}

/// Whether any file of the home holds the word.
fn is_known(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        match path.is_dir() {
            true => is_known(&path),
            false => fs::read(&path).is_ok_and(|bytes| {
                bytes.windows(WORD.len()).any(|window| window == WORD.as_bytes())
            }),
        }
    })
}

/// A world, in which everything is cloned if the scenario is about clones.
fn world_of(scenario: &Scenario) -> Env {
    match scenario.name.contains("clone") {
        true => world().with_variable("CHRONICLE_CLONES", "0"),
        false => world(),
    }
}

/// Plays a command once for each fault, each time in a new world.
fn play(scenario: &Scenario) {
    if !strace::is_there() {
        return skip(
            &format!("failing_calls::{}", scenario.name),
            "strace is missing or may not trace",
        );
    }
    let env = world_of(scenario);
    if scenario.name.starts_with("isolated") && !crate::isolated::is_allowed(scenario.name) {
        return;
    }
    (scenario.prepare)(&env);
    let counts = strace::count_calls(&env, scenario.words);
    let mut all = Vec::new();
    for (call, count) in counts {
        let of_error = |error| (1..=count).map(move |when| Fault { call, error, when });
        all.extend(ERRORS.into_iter().flat_map(of_error));
    }
    let (mut hit, mut wrong) = (0, Vec::new());
    for fault in chosen(all) {
        let env = world_of(scenario);
        match std::panic::catch_unwind(|| play_once(scenario, &env, fault)) {
            Ok(was_hit) => hit += usize::from(was_hit),
            Err(_) => wrong.push(fault),
        }
    }
    assert!(wrong.is_empty(), "{} does not survive {wrong:#?}", scenario.name);
    assert!(hit > 0, "no call of {} was made to fail", scenario.name);
}

/// All faults, or a fixed sample in which every call fails at least once.
fn chosen(mut all: Vec<Fault>) -> Vec<Fault> {
    if std::env::var_os("CHRONICLE_FAULTS").is_some_and(|which| which == "all") {
        return all;
    }
    let mut dice = Dice::new(7);
    let mut sample: Vec<Fault> = Vec::new();
    while sample.len() < SAMPLE && !all.is_empty() {
        let next = all.iter().position(|fault| sample.iter().all(|other| other.call != fault.call));
        let at = next.unwrap_or_else(|| dice.below(all.len()));
        sample.push(all.swap_remove(at));
    }
    sample
}

/// Lets one call fail; says whether it came to that.
fn play_once(scenario: &Scenario, env: &Env, fault: Fault) -> bool {
    let (before, after) = (scenario.prepare)(env);
    let tampered = strace::run_with_fault(env, scenario.words, fault);
    if tampered.hits.is_empty() {
        assert!(tampered.ran.is_done(), "{}", tampered.ran.story());
        return false;
    }
    let what = format!("{}: {}\n{}", scenario.name, tampered.hits.join("\n"), tampered.ran.story());
    must_be_honest(&tampered, &what);
    if tampered.ran.is_done() && matches!(scenario.goal, Goal::TakenBack | Goal::Committed) {
        assert_same(&after, &describe(&env.workspace()), &what);
    }
    if tampered.ran.is_done() {
        must_be_done(scenario, env, &what);
    }
    must_recover(env, &what);
    must_be_one_of(env, [&before, &after], &what);
    if scenario.goal != Goal::Healed {
        sound(env, &["verify", "--deep"], &what);
    }
    complete(scenario, env, &after, &what);
    must_come_back(scenario, env, &before, &what);
    sound(env, &["verify", "--deep"], &what);
    true
}

/// A failure has an exit status and words; only one that could not be told may lack them.
fn must_be_honest(tampered: &Tampered, what: &str) {
    let Tampered { ran, hits } = tampered;
    assert!(ran.output.status.code().is_some(), "it died: {what}");
    assert!(!ran.stderr().contains("panicked"), "it panicked: {what}");
    assert!(
        !ran.is_done() || !hits.iter().any(|hit| lost_something(hit)),
        "a sync failed unheard: {what}"
    );
    let mute = hits.iter().any(|hit| hit.contains("write(1<") || hit.contains("write(2<"));
    assert!(ran.is_done() || mute || ran.stderr().contains("Error:"), "without words: {what}");
}

/// Whether a call that failed was one that makes something durable.
///
/// What is lost while the write-ahead log is copied back is still in that log; and the directory
/// that SQLite syncs with it was synced by `init`. A key that could not be made signs nothing, which
/// `status` says and the next head makes up for.
fn lost_something(hit: &str) -> bool {
    let harmless = hit.contains("catalog.db>")
        || hit.contains("/.config/chronicle")
        || hit.contains("fdatasync") && !hit.contains("catalog.db") && hit.contains("/workspaces/");
    hit.contains("sync(") && !harmless
}

/// What was reported as done is done at once, without the next command's help.
fn must_be_done(scenario: &Scenario, env: &Env, what: &str) {
    if scenario.goal == Goal::TurnEnded {
        assert_eq!(open_turns(env), 0, "the turn is open: {what}");
    }
    if scenario.goal == Goal::Healed {
        sound(env, &["verify", "--deep"], what);
    }
    if scenario.goal == Goal::Discarded {
        assert_eq!(waiting_runs(env), 0, "the run waits: {what}");
    }
    if scenario.goal == Goal::Forgotten {
        assert!(!is_known(&env.home()), "it is still known: {what}");
    }
    if matches!(scenario.goal, Goal::Captured | Goal::TurnEnded) {
        let head = status(env)["head_seq"].clone();
        sound(env, &["settle"], what);
        assert_eq!(head, status(env)["head_seq"], "it was not recorded: {what}");
    }
}

/// The variables in which a test that runs itself tells its child where to work.
const CHILD: [&str; 2] = ["CHRONICLE_TEST_HOME", "CHRONICLE_TEST_WORKSPACE"];

/// A sync failed and the next one succeeded, since the kernel tells of a lost page only once: what
/// lay in it was then reported as stored. After a failure a workspace writes nothing until it is
/// opened anew.
#[test]
fn after_a_failed_sync_nothing_is_reported_as_stored() {
    let test = "failing_calls::after_a_failed_sync_nothing_is_reported_as_stored";
    if let [Some(home), Some(workspace)] = CHILD.map(std::env::var_os) {
        return settle_twice(Path::new(&home), Path::new(&workspace));
    }
    if !strace::is_there() {
        return skip(test, "strace is missing or may not trace");
    }
    let env = world();
    edited(&env);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test]).current_dir(env.base());
    child.envs(CHILD.iter().zip([env.home(), env.workspace()]));
    let (log, rule) = (env.base().join("trace"), "inject=fdatasync:error=EIO:when=1");
    let output = strace::under_strace(&child, &log, "fdatasync", Some(rule)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert!(fs::read_to_string(log).unwrap().contains("INJECTED"), "no sync failed");
    env.ok(&["verify", "--deep"]);
}

/// Settles while the first sync fails, again, and then in a workspace that was opened anew, where
/// what was written but not promised may be found.
fn settle_twice(home: &Path, directory: &Path) {
    let home = Home::at(home);
    let mut workspace = Workspace::open(&home, directory).unwrap();
    assert_eq!(workspace.settle().unwrap_err().code(), "catalog");
    assert_eq!(workspace.settle().unwrap_err().code(), "catalog", "it went on");
    drop(workspace);
    let mut workspace = Workspace::open(&home, directory).unwrap();
    workspace.settle().unwrap();
    assert_eq!(workspace.settle().unwrap().changes, 0, "something was left to record");
}

/// The next command opens the workspace, or finds that there is none yet.
fn must_recover(env: &Env, what: &str) {
    let ran = env.run(&["status"]);
    if ran.output.status.code() == Some(10) {
        sound(env, &["init"], what);
    }
    sound(env, &["status"], what);
}

#[track_caller]
fn sound(env: &Env, words: &[&str], what: &str) -> String {
    let ran = env.run(words);
    assert!(ran.is_done(), "afterwards {}, after {what}", ran.story());
    ran.stdout()
}

#[track_caller]
fn must_be_one_of(env: &Env, allowed: [&Tree; 2], what: &str) {
    let got = describe(&env.workspace());
    let lines = allowed.map(|want| differences(want, &got).join("\n  "));
    assert!(lines.iter().any(String::is_empty), "neither {} nor {}: {what}", lines[0], lines[1]);
}

/// Doing it again, where it was not done, does it.
fn complete(scenario: &Scenario, env: &Env, after: &Tree, what: &str) {
    let done = match scenario.goal {
        Goal::TakenBack | Goal::Committed => {
            differences(after, &describe(&env.workspace())).is_empty()
        }
        Goal::Discarded => waiting_runs(env) == 0,
        Goal::TurnEnded => open_turns(env) == 0,
        Goal::Captured | Goal::Answer | Goal::Healed => false,
        // What was committed is finished by whoever collects garbage next.
        Goal::Forgotten => {
            sound(env, &["gc"], what);
            !is_known(&env.home())
        }
    };
    if !done {
        sound(env, scenario.words, what);
    }
    must_be_done(scenario, env, what);
    assert_same(after, &describe(&env.workspace()), what);
}

fn open_turns(env: &Env) -> usize {
    status(env)["open_turns"].as_array().unwrap().len()
}

fn status(env: &Env) -> serde_json::Value {
    let status = sound(env, &["status", "--json"], "asking how it stands");
    serde_json::from_str(&status).unwrap()
}

/// What was captured, or taken back, can be had again.
fn must_come_back(scenario: &Scenario, env: &Env, before: &Tree, what: &str) {
    match scenario.goal {
        Goal::TakenBack => drop(sound(env, &["redo", "--yes"], what)),
        Goal::Committed => drop(sound(env, &["undo", "--yes"], what)),
        _ => {
            sound(env, &["settle"], what);
            let here = format!("seq:{}", status(env)["head_seq"]);
            for name in fs::read_dir(env.workspace()).unwrap() {
                let path = name.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    fs::remove_dir_all(path).unwrap();
                } else {
                    fs::remove_file(path).unwrap();
                }
            }
            sound(env, &["rewind", &here, "--exact", "--yes"], what);
        }
    }
    assert_same(before, &describe(&env.workspace()), &format!("coming back, after {what}"));
}
