//! A directory is swapped for a symbolic link to the outside, as fast as the kernel can, while
//! commands look and write: nothing outside is read, written, made or removed.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chronicle_core::ObjectId;
use chronicle_testing::dice::Dice;
use chronicle_testing::env::{Env, Ran};
use chronicle_testing::shared::{setting, skip};
use chronicle_testing::strace;
use chronicle_testing::tree::{Options, Tree, assert_same, describe_with};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};

use crate::scenes::world;

/// How many swaps there must have been.
const SWAPS: u64 = 100_000;
/// How many swaps pass before the two sides are put right again.
const ROUND: usize = 64;
/// How many files lie in the directory, and under the same names outside.
const FILES: u64 = 60;

/// When somebody swaps.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Always,
    /// Past all checks of a rewind, while it writes.
    Applying,
}

/// A world in which `d` of the workspace is now a directory, now a link to its twin outside.
struct Scene {
    env: Env,
    /// Where the other of the two waits.
    side: PathBuf,
    outside: PathBuf,
}

/// What lies outside, under the same names as inside; it does not compress.
fn canary(number: u64) -> Vec<u8> {
    Dice::new(1000 + number).bytes(3000)
}

impl Scene {
    fn new() -> Self {
        let env = world();
        let (side, outside) = (env.base().join("side"), env.base().join("outside"));
        fs::create_dir(&outside).unwrap();
        for number in 0..FILES {
            fs::write(outside.join(format!("f{number}")), canary(number)).unwrap();
            env.write(format!("d/f{number}"), format!("inside {number}\n"));
        }
        env.write("beside", "text\n");
        symlink(&outside, &side).unwrap();
        Self { env, side, outside }
    }

    fn outside(&self) -> Tree {
        describe_with(&self.outside, &Options { all_times: true, ..Options::default() })
    }

    /// Works while somebody swaps, all the time or only while a rewind is being applied, until there were enough swaps and the time is over.
    /// Says how many of the commands were done: one that stopped proves little.
    fn work(&self, when: When, mut once: impl FnMut(u64) -> bool) -> u64 {
        let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let limit = Duration::from_secs(setting("CHRONICLE_SWAP_SECONDS", 8));
        let done = std::thread::scope(|scope| {
            let stop = StopAtTheEnd(&stop);
            scope.spawn(|| self.swap(when, stop.0, &swaps));
            let (begun, mut rounds, mut done) = (Instant::now(), 0, 0);
            while begun.elapsed() < limit
                || swaps.load(Ordering::Relaxed) < SWAPS && begun.elapsed() < limit * 10
            {
                done += u64::from(once(rounds));
                rounds += 1;
            }
            done
        });
        let swaps = swaps.into_inner();
        assert!(swaps >= SWAPS, "only {swaps} swaps");
        done
    }

    fn swap(&self, when: When, stop: &AtomicBool, swaps: &AtomicU64) {
        let (inside, side) = (self.env.path("d"), &self.side);
        let exchange = || renameat_with(CWD, &inside, CWD, side, RenameFlags::EXCHANGE).is_ok();
        while !stop.load(Ordering::Relaxed) {
            let done = (0..ROUND).filter(|_| exchange()).count();
            swaps.fetch_add(done as u64, Ordering::Relaxed);
            // A rewind may have taken one of the two away, or put a directory in the link's place.
            if !inside.is_symlink() && !side.is_symlink() {
                let _ = fs::remove_dir_all(side);
                let _ = symlink(&self.outside, side);
            }
            for one in [&inside, side] {
                if fs::symlink_metadata(one).is_err() {
                    let _ = fs::create_dir(one);
                }
            }
            if when == When::Applying && !self.is_applying() {
                if inside.is_symlink() {
                    exchange();
                }
                while !stop.load(Ordering::Relaxed) && !self.is_applying() {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        }
    }

    /// Changes files in the directory, if it is one just now; never through the link.
    fn wreck(&self, round: u64) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let Ok(directory) = rustix::fs::open(self.env.path("d"), flags, Mode::empty()) else {
            return;
        };
        for number in 0..FILES / 2 {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let file = rustix::fs::openat(&directory, format!("f{number}"), flags, Mode::RUSR);
            let written = rustix::io::write(
                file.expect("a file in the directory can be opened"),
                format!("round {round}\n").as_bytes(),
            );
            assert!(written.is_ok(), "{written:?}");
        }
    }

    /// Whether a rewind is past its commit point: it has made a place for what it removes.
    fn is_applying(&self) -> bool {
        let names = fs::read_dir(self.env.workspace()).into_iter().flatten().flatten();
        let mut staging = names.filter(|name| name.file_name().len() > ".chronicle-staging-".len());
        staging.any(|staging| staging.path().join("trash").exists())
    }

    /// Leaves the directory inside, as whoever swapped would have it in the end.
    fn settle_down(&self) {
        let inside = self.env.path("d");
        if inside.is_symlink() {
            fs::remove_file(&inside).unwrap();
        }
        if self.side.is_symlink() {
            fs::remove_file(&self.side).unwrap();
        } else if self.side.exists() && !inside.exists() {
            fs::rename(&self.side, &inside).unwrap();
        }
    }
}

/// Ends the swapping also where a test fails.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_outside_is_captured() {
    let scene = Scene::new();
    let env = &scene.env;
    env.ok(&["init"]);
    let before = scene.outside();
    let done = scene.work(When::Always, |round| {
        env.write("beside", format!("round {round}\n"));
        let words: &[&str] = match round % 3 {
            0 => &["settle"],
            1 => &["snapshot", "--action", "write_file", "--path", "d/f1", "--path", "d/new"],
            _ => &["status"],
        };
        has_ended_well(&env.run(words))
    });
    assert!(done > 10, "only {done} looks were recorded");
    scene.settle_down();
    env.ok(&["settle"]);
    env.ok(&["verify", "--deep"]);
    assert_same(&before, &scene.outside(), "outside, after many looks");
    must_not_hold(&env.home(), &(0..FILES).map(canary).collect::<Vec<_>>());
}

#[test]
fn nothing_outside_is_written() {
    rewind_while_swapping(When::Always, |env, words| env.run(words));
}

#[test]
fn nothing_outside_is_written_by_a_rewind_that_is_past_its_checks() {
    let test = "swaps::nothing_outside_is_written_by_a_rewind_that_is_past_its_checks";
    if !strace::is_there() {
        return skip(test, "strace is missing or may not trace");
    }
    // Late, so that there is time for many swaps.
    let run = |env: &Env, words: &[&str]| strace::run_late(env, words, "renameat2", 400);
    let done = rewind_while_swapping(When::Applying, run);
    assert!(done > 10, "only {done} rewinds were applied");
}

/// Wrecks and rewinds again and again; says how often the rewind was done.
fn rewind_while_swapping(when: When, run: impl Fn(&Env, &[&str]) -> Ran) -> u64 {
    let scene = Scene::new();
    let env = &scene.env;
    env.ok(&["init"]);
    env.ok(&["turn", "start", "--key", "k", "--session", "s", "--prompt", "wreck it"]);
    scene.wreck(0);
    fs::remove_file(env.path("d/f40")).unwrap();
    env.write("d/new/file", "new\n");
    env.ok(&["turn", "end", "--key", "k", "--session", "s"]);
    let before = scene.outside();
    let done = scene.work(when, |round| {
        scene.wreck(round);
        has_ended_well(&run(env, &["rewind", "start", "--exact", "--yes"]))
    });
    assert_same(&before, &scene.outside(), "outside, after many rewinds");
    scene.settle_down();
    env.ok(&["status"]);
    env.ok(&["verify", "--deep"]);
    env.ok(&["rewind", "start", "--exact", "--yes"]);
    assert_same(&before, &scene.outside(), "outside, after the last rewind");
    assert_eq!(env.read("d/f40").as_deref(), Some("inside 40\n"));
    must_not_hold(&env.home(), &(0..FILES).map(canary).collect::<Vec<_>>());
    done
}

/// It may stop or leave paths out, since they change under its hands, but not die; says whether it
/// did something.
fn has_ended_well(ran: &Ran) -> bool {
    let code = ran.output.status.code();
    assert!(code.is_some() && !ran.stderr().contains("panicked"), "{}", ran.story());
    matches!(code, Some(0 | 4))
}

/// Neither the contents nor their hashes are anywhere in a home.
fn must_not_hold(home: &Path, contents: &[Vec<u8>]) {
    let mut needles = Vec::new();
    for content in contents {
        needles.push(ObjectId::of(content).0.to_vec());
        needles.extend(content.chunks_exact(24).map(<[u8]>::to_vec));
    }
    let all: std::collections::HashSet<_> = needles.iter().map(|needle| &needle[..8]).collect();
    for file in crate::support::listing(home).into_iter().filter(|path| path.is_file()) {
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(8).any(|window| all.contains(window));
        assert!(!found, "{} holds something from outside", file.display());
    }
}

#[test]
fn what_a_home_holds_is_found() {
    let env = world();
    env.write("file", canary(0));
    env.ok(&["init"]);
    let found = std::panic::catch_unwind(|| must_not_hold(&env.home(), &[canary(0)]));
    assert!(found.is_err(), "a content that was captured is not found");
}
