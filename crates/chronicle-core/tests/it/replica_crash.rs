//! A process of either side dies at every step that changes the disk; what it left is brought on by the next, and
//! nothing is lost or done twice.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use chronicle_core::Resolution;
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::skip;
use chronicle_testing::strace;

use crate::replica::World;

/// The points that a push passes, and how often.
const PUSH: &[(&str, usize)] = &[
    ("capture_after_commit", 1),
    ("push_after_announcement", 1),
    ("direct_after_stage", 1),
    ("rewind_after_step", 12),
    ("direct_after_steps", 1),
    ("direct_after_sync", 1),
    ("push_before_commit", 1),
    ("catalog_before_commit", 3),
    ("push_after_commit", 1),
];

/// The points that a write-back passes.
const SEND: &[(&str, usize)] = &[
    ("catalog_before_commit", 4),
    ("direct_after_stage", 1),
    ("rewind_after_step", 12),
    ("direct_after_steps", 1),
    ("direct_after_sync", 1),
    ("writes_before_commit", 1),
    ("writes_after_commit", 1),
    ("answer_after_commit", 1),
    ("push_before_commit", 1),
];

/// What a process does that is told to; not a test of its own.
#[test]
fn act() {
    let Ok(deed) = std::env::var("REPLICA_DEED") else { return };
    let top = std::env::var_os("REPLICA_WORLD").unwrap();
    match deed.as_str() {
        "make" => return drop(made_busy(World::at(Path::new(&top), 1, FILES))),
        "bring on" => return crate::replica_power::bring_on(Path::new(&top)),
        _ => {}
    }
    let mut world = World::open(Path::new(&top), 1);
    match deed.as_str() {
        "push" => world.push_all(0),
        "send" => drop(world.send_all(0)),
        "resolve" => {
            let replica = &mut world.replicas[0].workspace;
            let id = replica.conflicts().unwrap()[0].id.to_string();
            replica.resolve_conflict(&id, Resolution::KeepMine).unwrap();
        }
        other => panic!("what is {other}?"),
    }
}

/// A process that does a deed in a world.
pub(crate) fn acting(world: &Path, deed: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "replica_crash::act"]);
    command.env("REPLICA_DEED", deed).env("REPLICA_WORLD", world);
    command
}

/// Whether the process that does a deed in a world dies at a point.
fn dies(world: &Path, deed: &str, point: &str, count: usize) -> bool {
    let mut command = acting(world, deed);
    command.env("CHRONICLE_FAILPOINT", format!("{point}:{count}"));
    let ended = command.output().unwrap();
    let killed = ended.status.signal() == Some(9);
    assert!(killed || ended.status.success(), "{deed}: {}", String::from_utf8_lossy(&ended.stderr));
    killed
}

/// A world in which both sides have work for the other, and some of it clashes.
fn busy() -> World {
    made_busy(World::new(1, FILES))
}

/// What a busy world begins with.
const FILES: &[(&str, &str)] =
    &[("a.txt", "1\n"), ("b.txt", "1\n"), ("d/x", "1\n"), ("d/y", "1\n"), ("s", "1\n")];

fn made_busy(mut world: World) -> World {
    world.host.write("a.txt", "host\n");
    world.host.write("b.txt", "host\n");
    world.host.write("new/deep/z", "host\n");
    fs::remove_dir_all(world.host.root.join("d")).unwrap();
    world.host.write("d", "now a file\n");
    world.host.workspace.settle().unwrap();
    let replica = &mut world.replicas[0];
    replica.write("b.txt", "replica\n");
    replica.write("mine/deep/m", "replica\n");
    replica.remove("s");
    replica.write("s/t", "now a directory\n");
    replica.workspace.settle().unwrap();
    replica.write("mine/unrecorded", "replica\n");
    world.host.write("late", "not recorded before the push\n");
    world
}

#[track_caller]
fn check(deed: &str, points: &[(&str, usize)]) {
    for (point, most) in points {
        let mut died = 0;
        for count in 1..=*most {
            let world = busy();
            let top = world.top.clone();
            if !dies(&top, deed, point, count) {
                break;
            }
            died += 1;
            brought_on(&world, &format!("{deed} died at {point}:{count}"));
        }
        assert!(died > 0, "{deed} does not pass {point}");
    }
}

/// Whoever comes next finds everything, and both sides end equal.
#[track_caller]
fn brought_on(left: &World, what: &str) {
    all_is_well(World::open(&left.top, 1), what);
}

/// Both sides end equal, and nothing of a busy world is lost.
#[track_caller]
pub(crate) fn all_is_well(mut world: World, what: &str) {
    world.settle();
    world.assert_equal(what);
    assert_eq!(world.host.read("mine/deep/m").as_deref(), Some("replica\n"), "{what}");
    assert_eq!(world.host.read("mine/unrecorded").as_deref(), Some("replica\n"), "{what}");
    assert_eq!(world.host.read("s/t").as_deref(), Some("now a directory\n"), "{what}");
    assert_eq!(world.host.read("d").as_deref(), Some("now a file\n"), "{what}");
    assert_eq!(world.host.read("b.txt").as_deref(), Some("host\n"), "{what}");
    let conflicts = world.replicas[0].workspace.conflicts().unwrap();
    let found = conflicts.iter().any(|conflict| conflict.path.as_bytes() == b"b.txt");
    assert!(found, "{what}: the rejected write is lost");
    assert_eq!(conflicts.len(), 1, "{what}: {conflicts:?}");
    for machine in [&mut world.host, &mut world.replicas[0]] {
        machine.workspace.verify(true, &|_, _| ()).unwrap();
    }
}

#[test]
fn whoever_dies_while_a_push_is_applied_loses_nothing() {
    check("push", PUSH);
}

#[test]
fn whoever_dies_while_writes_are_taken_loses_nothing() {
    check("send", SEND);
}

#[test]
fn whoever_dies_while_he_decides_about_a_conflict_may_decide_again() {
    for (point, decided) in [("direct_after_steps", false), ("resolve_after_put", true)] {
        let mut world = World::new(1, &[("a.txt", "1\n")]);
        world.host.write("a.txt", "host\n");
        world.host.workspace.settle().unwrap();
        world.replicas[0].write("a.txt", "replica\n");
        world.settle();
        assert!(dies(&world.top, "resolve", point, 1), "{point}");
        let kept = world;
        let mut world = World::open(&kept.top, 1);
        let conflicts = world.replicas[0].workspace.conflicts().unwrap();
        assert_eq!(conflicts.is_empty(), decided, "{point}");
        for conflict in conflicts {
            let id = conflict.id.to_string();
            world.replicas[0].workspace.resolve_conflict(&id, Resolution::KeepMine).unwrap();
        }
        world.settle();
        world.assert_equal(point);
        assert_eq!(world.host.read("a.txt").as_deref(), Some("replica\n"), "{point}");
    }
}

/// Who writes again what a power cut took, and dies, leaves it to the next.
#[test]
fn whoever_dies_after_a_reboot_leaves_it_to_the_next() {
    for point in ["push_after_announcement", "direct_after_steps", "push_after_commit"] {
        let world = busy();
        assert!(dies(&world.top, "push", point, 1), "{point}");
        let again = |deed: &str, boot: &str| {
            let mut command = acting(&world.top, deed);
            command.env("CHRONICLE_BOOT", boot);
            command
        };
        let mut second = again("push", "the second boot");
        let ended = second.env("CHRONICLE_FAILPOINT", "redo_before_push").output().unwrap();
        assert_eq!(ended.status.signal(), Some(9), "{point}");
        let ended = again("bring on", "the third boot").output().unwrap();
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{point}: {told}");
    }
}

/// Calls that change the disk; the N-th of one kind fails.
const CALLS: [&str; 10] = [
    "openat",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "syncfs",
    "renameat2",
    "mkdirat",
    "unlinkat",
    "utimensat",
];
/// How many faults of a deed are tried.
const FAULTS: usize = 12;

/// What a call that fails leaves is what a death leaves: the next one goes on, and nothing is lost.
#[track_caller]
fn check_failing_calls(test: &str, deed: &str) {
    if !strace::is_there() {
        return skip(test, "strace is missing or may not trace");
    }
    let counts = {
        let world = busy();
        let log = world.top.join("trace");
        let ran = strace::under_strace(&acting(&world.top, deed), &log, &CALLS.join(","), None);
        let ended = { ran }.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let text = fs::read_to_string(log).unwrap();
        CALLS.map(|call| text.matches(&format!(" {call}(")).count())
    };
    let mut all: Vec<_> = CALLS
        .iter()
        .zip(counts)
        .flat_map(|(call, count)| (1..=count).map(move |when| (*call, when)))
        .collect();
    let (mut dice, mut hits) = (Dice::new(7), 0);
    for round in 0..FAULTS.min(all.len()) {
        let (call, when) = all.swap_remove(dice.below(all.len()));
        let error = ["EIO", "ENOSPC"][round % 2];
        let world = busy();
        let log = world.top.join("trace");
        let rule = format!("inject={call}:error={error}:when={when}");
        let inner = acting(&world.top, deed);
        let ended = strace::under_strace(&inner, &log, call, Some(&rule)).output().unwrap();
        let what = format!("{deed}: {call} {when} failed with {error}");
        let hit = fs::read_to_string(&log).unwrap().contains("INJECTED");
        hits += usize::from(hit);
        let unheard = hit && call == "syncfs" && ended.status.success();
        assert!(!unheard, "{what}, and nobody heard of it");
        brought_on(&world, &what);
    }
    assert!(hits > 0, "no call of {deed} failed");
}

#[test]
fn a_push_of_which_a_call_fails_loses_nothing() {
    check_failing_calls("a_push_of_which_a_call_fails_loses_nothing", "push");
}

#[test]
fn a_write_back_of_which_a_call_fails_loses_nothing() {
    check_failing_calls("a_write_back_of_which_a_call_fails_loses_nothing", "send");
}
