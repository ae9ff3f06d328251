//! Random work and random rewinds, compared with exact trees and with the model of the rules.
//!
//! `CHRONICLE_CASES` says how many cases of each property, `CHRONICLE_SEED` with which seed to
//! begin; a failure names its seed.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use chronicle_testing::drive;
use chronicle_testing::shared::setting;
use chronicle_testing::work::Menu;

/// Runs so many cases on every core, and fails with the story of the first that does not hold.
#[track_caller]
fn check(share: u64, case: impl Fn(u64) -> Result<(), String> + Sync) {
    let count = (setting("CHRONICLE_CASES", 300) * share).div_ceil(100);
    let first = setting("CHRONICLE_SEED", 1);
    let (next, failure) = (AtomicU64::new(first), Mutex::new(None::<(u64, String)>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failure.lock().unwrap().is_some() {
                return;
            }
            if let Err(story) = case(seed) {
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
    check(40, |seed| drive::exact(seed, Menu::ALL));
}

#[test]
fn a_part_goes_back_alone() {
    check(20, |seed| drive::exact(seed, Menu::APART));
}

#[test]
fn large_files_go_back_too() {
    check(1, |seed| drive::exact(seed, Menu { large: true, ..Menu::ALL }));
}

#[test]
fn rewind_undo_and_redo_keep_to_the_rules_among_several_authors() {
    check(50, |seed| drive::rules(seed, false));
}

#[test]
fn kept_work_follows_renames() {
    check(30, |seed| drive::rules(seed, true));
}

#[test]
fn a_lifted_filter_never_costs_a_file() {
    check(10, drive::filters);
}
