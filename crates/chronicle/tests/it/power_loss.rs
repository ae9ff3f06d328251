//! The power is cut behind any operation on a disk that forgets what was not synced; after the
//! reboot everything that was reported as done is there, and the rest is whole or absent.
//!
//! The ordinary run takes a fixed sample of the moments; `CHRONICLE_FAULTS=all` takes all.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::collections::BTreeSet;
use std::fs;

use chronicle_testing::dice::Dice;
use chronicle_testing::env::Env;
use chronicle_testing::lossy::{Image, Logged, Lossy, Operation, Unsynced, after_crash};
use chronicle_testing::shared::skip;
use chronicle_testing::tree::{Tree, assert_same, describe, differences};

use crate::scenes::{add_more, fill, world, wreck};

/// How many moments an ordinary run tries.
const SAMPLE: usize = 64;

/// A world with a disk that forgets; the disk goes first.
struct Scene {
    disk: Lossy,
    env: Env,
}

fn scene(test: &str, workspace_too: bool) -> Option<Scene> {
    let mut env = world();
    let at = env.base().join("disk");
    fs::create_dir(&at).unwrap();
    let disk = match Lossy::mount(&at) {
        Ok(disk) => disk,
        Err(error) => {
            skip(test, &format!("FUSE cannot be mounted: {error}"));
            return None;
        }
    };
    env = env.with_home(at.join("home"));
    if workspace_too {
        env = env.with_workspace(at.join("ws"));
        fs::create_dir(env.workspace()).unwrap();
    }
    Some(Scene { disk, env })
}

/// Something that was reported as done and must survive.
struct Promise {
    what: &'static str,
    /// How many operations there had been.
    at: usize,
    /// The newest record.
    seq: u64,
    /// The content of a file as of that record.
    f1: String,
}

/// A story whose promises are noted as they are made.
struct Story<'a> {
    scene: &'a Scene,
    promises: Vec<Promise>,
}

impl Story<'_> {
    /// Runs a command whose success is a promise.
    fn promise(&mut self, what: &'static str, words: &[&str]) {
        self.scene.env.ok(words);
        let at = self.scene.disk.now();
        let seq = head(&self.scene.env);
        let f1 = self.scene.env.read("f1").unwrap();
        self.promises.push(Promise { what, at, seq, f1 });
    }
}

/// The newest record, asked of a command that records nothing itself.
fn head(env: &Env) -> u64 {
    let verified: serde_json::Value = serde_json::from_str(&env.ok(&["verify", "--json"])).unwrap();
    verified["records"].as_u64().unwrap()
}

#[test]
fn what_was_captured_survives() {
    let Some(scene) = scene("power_loss::what_was_captured_survives", false) else { return };
    let mut story = Story { scene: &scene, promises: Vec::new() };
    tell(&mut story);
    let log = scene.disk.log();
    let ends: Vec<_> = story.promises.iter().map(|promise| promise.at).collect();
    for_each_crash(&Image::default(), &log, &ends, |image, at, how| {
        scene.disk.load(image);
        let what = format!("power cut after {at} of {} operations, {how:?}", log.len());
        let kept: Vec<_> = story.promises.iter().filter(|promise| promise.at <= at).collect();
        must_be_sound(&scene.env, &kept, &what);
    });
}

/// What was only cloned, and what was read since, is there too; a clone counts with its record.
#[test]
fn what_was_cloned_survives() {
    let Some(scene) = scene("power_loss::what_was_cloned_survives", false) else { return };
    let Scene { disk, env } = scene;
    let scene = Scene { disk, env: env.with_variable("CHRONICLE_CLONES", "0") };
    let mut story = Story { scene: &scene, promises: Vec::new() };
    fill(&scene.env);
    story.promise("init", &["init"]);
    for version in ["one\n", "two\n", "three\n"] {
        scene.env.write("f1", version);
        let words = ["snapshot", "--action", "write_file", "--path", "f1"];
        story.promise("snapshot by a clone", &words);
    }
    scene.env.write("f1", "four\n");
    story.promise("settle, which reads them", &["settle"]);
    let log = scene.disk.log();
    let ends: Vec<_> = story.promises.iter().map(|promise| promise.at).collect();
    for_each_crash(&Image::default(), &log, &ends, |image, at, how| {
        scene.disk.load(image);
        let what = format!("power cut after {at} of {} operations, {how:?}", log.len());
        let kept: Vec<_> = story.promises.iter().filter(|promise| promise.at <= at).collect();
        must_be_sound(&scene.env, &kept, &what);
    });
}

/// One of each command that captures.
fn tell(story: &mut Story<'_>) {
    let env = &story.scene.env;
    fill(env);
    story.promise("init", &["init"]);
    env.write("f1", "changed\n");
    story.promise("settle", &["settle"]);
    env.write("f1", "changed again\n");
    let snapshot = ["snapshot", "--action", "write_file", "--path"];
    story.promise("snapshot of a changed path", &[&snapshot[..], &["f1"]].concat());
    // Its content is there already; its record may go with the power.
    env.ok(&[&snapshot[..], &["f2"]].concat());
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    wreck(env);
    story.promise("turn end", &["turn", "end", "--key", "k", "--session", "s"]);
    add_more(env);
    story.promise("settle of more", &["settle"]);
    story.promise("pin", &["pin", "start", "here"]);
}

/// The workspace opens, verifies, has all that was promised, and can go on.
fn must_be_sound(env: &Env, kept: &[&Promise], what: &str) {
    let ran = env.run(&["status"]);
    if ran.output.status.code() == Some(10) {
        assert!(kept.is_empty(), "the workspace is gone: {what}");
        sound(env, &["init"], what);
    }
    sound(env, &["status"], what);
    sound(env, &["verify", "--deep"], what);
    let head = head(env);
    for Promise { what: promised, seq, f1, .. } in kept {
        assert!(head >= *seq, "{promised} is gone: {what}");
        let read = sound(env, &["cat", "f1", "--at", &format!("seq:{seq}")], what);
        assert_eq!(*f1, read, "of {promised}: {what}");
    }
    sound(env, &["settle"], what);
    sound(env, &["verify"], what);
}

#[track_caller]
fn sound(env: &Env, words: &[&str], what: &str) -> String {
    let ran = env.run(words);
    assert!(ran.is_done(), "{}, after {what}", ran.story());
    ran.stdout()
}

#[test]
fn an_interrupted_rewind_is_finished_or_discarded() {
    let test = "power_loss::an_interrupted_rewind_is_finished_or_discarded";
    let Some(Scene { disk, env }) = scene(test, true) else { return };
    fill(&env);
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    let then = describe(&env.workspace());
    wreck(&env);
    env.ok(&["turn", "end", "--key", "k", "--session", "s"]);
    let now = describe(&env.workspace());
    // Only the rewind is at risk: all that was before it has reached the disk.
    let start = disk.image();
    disk.load(start.clone());
    env.ok(REWIND);
    let log = disk.log();
    assert_same(&then, &describe(&env.workspace()), "after the rewind");
    for_each_crash(&start, &log, &[log.len()], |image, at, how| {
        disk.load(image);
        let what = format!("power cut after {at} of {} operations, {how:?}", log.len());
        sound(&env, &["status"], &what);
        let allowed = if at == log.len() { vec![&then] } else { vec![&now, &then] };
        must_be_one_of(&env, &allowed, &what);
        sound(&env, &["verify", "--deep"], &what);
        sound(&env, REWIND, &what);
        assert_same(&then, &describe(&env.workspace()), &what);
        sound(&env, &["redo", "--yes"], &what);
        assert_same(&now, &describe(&env.workspace()), &what);
    });
}

const REWIND: &[&str] = &["rewind", "start", "--exact", "--yes"];

#[track_caller]
fn must_be_one_of(env: &Env, allowed: &[&Tree], what: &str) {
    let got = describe(&env.workspace());
    let lines: Vec<_> = allowed.iter().map(|want| differences(want, &got).join("\n  ")).collect();
    assert!(lines.iter().any(String::is_empty), "it is not {}\n{what}", lines.join("\nnor "));
}

/// Calls with what is left after a power cut at each chosen moment, in each way.
fn for_each_crash(
    start: &Image,
    log: &[Logged],
    always: &[usize],
    mut check: impl FnMut(Image, usize, Unsynced),
) {
    let mut wrong = Vec::new();
    for at in moments(log, always) {
        // What a kill leaves is tested elsewhere at more places.
        let kept = (at % 4 == 0).then_some(Unsynced::Kept);
        for how in [Unsynced::Lost, Unsynced::Torn(at as u64)].into_iter().chain(kept) {
            let image = after_crash(start, &log[..at], how);
            let once = std::panic::AssertUnwindSafe(|| check(image, at, how));
            if std::panic::catch_unwind(once).is_err() {
                wrong.push((at, how));
            }
        }
    }
    assert!(wrong.is_empty(), "not sound after the power was cut at {wrong:?}");
}

/// All moments, or a fixed sample with those right after a promise and many around syncs.
fn moments(log: &[Logged], always: &[usize]) -> BTreeSet<usize> {
    if std::env::var_os("CHRONICLE_FAULTS").is_some_and(|which| which == "all") {
        return (0..=log.len()).collect();
    }
    let mut chosen: BTreeSet<_> = always.iter().copied().collect();
    let syncs = log.iter().enumerate();
    let syncs = syncs.filter(|(_, logged)| matches!(logged.operation, Operation::Sync { .. }));
    let around: Vec<_> = syncs.flat_map(|(at, _)| [at, at + 1]).collect();
    let mut dice = Dice::new(11);
    while chosen.len() < SAMPLE.min(log.len() + 1) {
        chosen.insert(if dice.chance(60) {
            *dice.pick(&around)
        } else {
            dice.below(log.len() + 1)
        });
    }
    chosen
}
