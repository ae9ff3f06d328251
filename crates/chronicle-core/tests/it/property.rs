//! Random work and random rewinds, compared with exact trees and with the model of the rules.
//!
//! `CHRONICLE_CASES` says how many cases of each property, `CHRONICLE_SEED` with which seed to
//! begin; a failure names its seed. With the feature `failpoints`, operations are now and then done
//! by a process that is killed in the middle of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chronicle_testing::drive::{self, Case};
use chronicle_testing::git;
use chronicle_testing::shared::{setting, skip};
use chronicle_testing::work::Menu;

/// The test of this binary that does one operation for another process.
const DYING: &str = "property::a_process_may_die_at_any_failpoint";
/// In how many of a hundred operations a process is killed.
const KILLS: usize = 4;

/// Runs so many of a hundred cases, with the usual number of kills.
#[track_caller]
fn check(share: u64, case: impl Fn(Case) -> Result<(), String> + Sync) {
    check_killing(share, KILLS, case);
}

/// Runs so many cases on every core, and fails with the story of the first that does not hold.
#[track_caller]
fn check_killing(share: u64, kills: usize, case: impl Fn(Case) -> Result<(), String> + Sync) {
    let kills = cfg!(feature = "failpoints").then_some((DYING, kills));
    let count = (setting("CHRONICLE_CASES", 300) * share).div_ceil(100);
    let first = setting("CHRONICLE_SEED", 1);
    let (next, failure) = (AtomicU64::new(first), Mutex::new(None::<(u64, String)>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failure.lock().unwrap().is_some() {
                return;
            }
            if let Err(story) = case(Case { seed, kills }) {
                failure.lock().unwrap().get_or_insert((seed, story));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if let Some((seed, story)) = failure.into_inner().unwrap() {
        panic!("try it alone with CHRONICLE_CASES=1 CHRONICLE_SEED={seed}\n{story}");
    }
}

#[test]
fn exact_rewinds_bring_back_every_byte_and_redo_every_change() {
    check(35, |case| drive::exact(case, Menu::ALL));
}

#[test]
fn a_part_goes_back_alone() {
    check(15, |case| drive::exact(case, Menu::APART));
}

#[test]
fn large_files_go_back_too() {
    check(1, |case| drive::exact(case, Menu { large: true, ..Menu::ALL }));
}

#[test]
fn repositories_go_back_with_everything_else() {
    if !git::is_there() {
        skip("property::repositories_go_back_with_everything_else", "needs git");
        return;
    }
    check(4, |case| drive::exact(case, Menu::GIT));
}

#[test]
fn rewind_undo_and_redo_keep_to_the_rules_among_several_authors() {
    check(45, |case| drive::rules(case, false));
}

#[test]
fn kept_work_follows_renames() {
    check(30, |case| drive::rules(case, true));
}

#[test]
fn a_lifted_filter_never_costs_a_file() {
    check(10, drive::filters);
}

/// Also the process that dies: it is this test, told by a variable what to do.
#[test]
fn a_process_may_die_at_any_failpoint() {
    if drive::obey() {
        return;
    }
    if !cfg!(feature = "failpoints") {
        eprintln!("no process is killed in these tests: the feature `failpoints` is not there");
        skip(DYING, "needs the feature failpoints");
        return;
    }
    check_killing(2, 50, |case| drive::exact(case, Menu::ALL));
    check_killing(2, 50, |case| drive::rules(case, true));
    let deaths = drive::deaths();
    let total: u64 = deaths.values().sum();
    println!("processes died at {deaths:?}");
    assert!(total > 0, "no process died");
    // Of so many, some must die on either side of the commit point.
    for point in ["rewind_after_look", "rewind_after_step", "capture_before_commit"] {
        assert!(total < 400 || deaths.contains_key(point), "nobody died at {point}: {deaths:?}");
    }
}
