//! The power is cut while a push is applied, or while writes are taken, on a disk that forgets what was not synced.
//!
//! What was acknowledged is there after the reboot, the rest is brought on, and no part of it is taken for somebody's work.
//! `CHRONICLE_FAULTS=all` tries all moments.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use chronicle_testing::dice::Dice;
use chronicle_testing::lossy::{Image, Logged, Lossy, Operation, Unsynced, after_crash};
use chronicle_testing::shared::skip;

use crate::replica::World;
use crate::replica_crash::{acting, all_is_well};

/// How many moments an ordinary run tries.
const SAMPLE: usize = 20;
/// A file beside the world that says that the deed was done before the power was cut.
const DONE: &str = "REPLICA_DONE";

/// What the first process after the reboot finds; in a process of its own, since the boot is another one.
pub(crate) fn bring_on(top: &Path) {
    let mut world = World::open(top, 1);
    if std::env::var_os(DONE).is_some() {
        let replica = &world.replicas[0];
        let applied = replica.workspace.replica_state().unwrap().unwrap().applied;
        let head = world.host.workspace.replica_place().unwrap().head;
        assert_eq!(applied, Some(head), "what was acknowledged is not applied");
        for (path, text) in [("a.txt", "host\n"), ("new/deep/z", "host\n"), ("d", "now a file\n")] {
            assert_eq!(replica.read(path).as_deref(), Some(text), "{path} was acknowledged");
        }
    }
    world.settle();
    for root in [&world.host.root, &world.replicas[0].root] {
        // A part of a file whose note is lost too is nobody's to throw away: it stays aside.
        for item in fs::read_dir(root).unwrap().map(Result::unwrap) {
            if item.file_name().to_string_lossy().starts_with(".chronicle-staging-") {
                fs::remove_dir_all(item.path()).unwrap();
            }
        }
    }
    all_is_well(world, "after the reboot");
}

#[test]
fn a_push_that_was_acknowledged_survives_a_power_cut() {
    check("replica_power::a_push_that_was_acknowledged_survives_a_power_cut", "push");
}

#[test]
fn writes_that_were_taken_survive_a_power_cut() {
    check("replica_power::writes_that_were_taken_survive_a_power_cut", "send");
}

fn check(test: &str, deed: &str) {
    let holder = tempfile::tempdir().unwrap();
    let at = holder.path().join("disk");
    fs::create_dir(&at).unwrap();
    let disk = match Lossy::mount(&at) {
        Ok(disk) => disk,
        Err(error) => return skip(test, &format!("FUSE cannot be mounted: {error}")),
    };
    // In processes of their own: who serves a disk must not wait for it.
    done(&at, "make");
    // Only the deed is at risk: all that was before it has reached the disk.
    let start = disk.image();
    disk.load(start.clone());
    done(&at, deed);
    let (log, mut wrong) = (disk.log(), Vec::new());
    for (moment, how, image) in cuts(&start, &log) {
        disk.load(image);
        let mut next = acting(&at, "bring on");
        next.env("CHRONICLE_BOOT", "after the power cut");
        if moment == log.len() && deed == "push" {
            next.env(DONE, "1");
        }
        let ended = next.output().unwrap();
        if !ended.status.success() {
            wrong.push(format!(
                "power cut after {moment} of {} operations, {how:?}: {}",
                log.len(),
                String::from_utf8_lossy(&ended.stdout)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[track_caller]
fn done(world: &Path, deed: &str) {
    let ended = acting(world, deed).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

/// What is left after a power cut at each chosen moment, in each way.
fn cuts(start: &Image, log: &[Logged]) -> Vec<(usize, Unsynced, Image)> {
    let left = |at: usize| {
        let ways = [Unsynced::Lost, Unsynced::Torn(at as u64)];
        ways.map(|how| (at, how, after_crash(start, &log[..at], how)))
    };
    moments(log).into_iter().flat_map(left).collect()
}

/// All moments, or a fixed sample with the end and many around syncs.
fn moments(log: &[Logged]) -> BTreeSet<usize> {
    if std::env::var_os("CHRONICLE_FAULTS").is_some_and(|which| which == "all") {
        return (0..=log.len()).collect();
    }
    let syncs = log.iter().enumerate();
    let syncs = syncs.filter(|(_, logged)| matches!(logged.operation, Operation::Sync { .. }));
    let around: Vec<_> = syncs.flat_map(|(at, _)| [at, at + 1]).collect();
    let (mut chosen, mut dice) = (BTreeSet::from([log.len()]), Dice::new(13));
    while chosen.len() < SAMPLE.min(log.len() + 1) {
        chosen.insert(match dice.chance(40) {
            true => *dice.pick(&around),
            false => dice.below(log.len() + 1),
        });
    }
    chosen
}
