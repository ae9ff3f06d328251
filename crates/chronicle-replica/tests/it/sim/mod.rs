//! Deterministic simulation of replication: seeded worlds of one host and up to five sandboxes.
//!
//! What is shipped runs here: both state machines, the wire's codec, the log's interface, the pure decisions. Around
//! them is a disk in memory that loses what was not synced, links that lose, repeat, reorder and cut, power that fails
//! between any two steps, clocks that jump, and people who write, move and delete on all sides. In the end links heal
//! and everybody comes to rest.
//!
//! `CHRONICLE_SEED=N CHRONICLE_WORLDS=1 cargo test -p chronicle-replica --test it sim::worlds` replays a world and prints
//! its trace.

mod disk;
mod edits;
mod host;
mod oracle;
mod replica;
mod store;
mod telling;
mod world;

use chronicle_testing::shared::setting;
use world::World;

/// A mistake that somebody could make; each must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A push is acknowledged before it is durable.
    AckBeforeDurable,
    /// A replica says that it has applied what is not on its disk yet.
    RecordBeforeSync,
    /// The host does not remember which batches it has answered.
    ForgetBatches,
    /// The host takes writes whatever they were made on.
    IgnoreBase,
}

#[test]
fn worlds_come_to_rest_and_lose_nothing() {
    let (first, count) = (setting("CHRONICLE_SEED", 1), setting("CHRONICLE_WORLDS", 10_000));
    let begun = std::time::Instant::now();
    let next = std::sync::atomic::AtomicU64::new(first);
    let work = || {
        let mut steps = 0;
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= first + count {
                return steps;
            }
            let mut world = World::new(seed, Mutation::None, count == 1);
            if let Err(words) = world.run() {
                panic!(
                    "seed {seed}: {words}\nreplay: CHRONICLE_SEED={seed} CHRONICLE_WORLDS=1 cargo test -p chronicle-replica \
                     --test it sim::worlds"
                );
            }
            steps += world.steps;
        }
    };
    let steps: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum()
    });
    let took = begun.elapsed();
    eprintln!(
        "{count} worlds, {steps} steps, {:.0} worlds a second",
        count as f64 / took.as_secs_f64()
    );
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1..=50 {
        let one = World::new(seed, Mutation::None, false).run().unwrap();
        let two = World::new(seed, Mutation::None, true).run().unwrap();
        assert_eq!(one, two, "seed {seed}");
    }
}

/// Whether a mistake is noticed within a thousand worlds, and for what it is.
#[track_caller]
fn check_found(mutation: Mutation, expected: &str) {
    let words = (1..=1000).find_map(|seed| World::new(seed, mutation, false).run().err());
    let words = words.unwrap_or_else(|| panic!("{mutation:?} is not noticed"));
    assert!(words.contains(expected), "{mutation:?} is noticed by something else: {words}");
}

#[test]
fn an_acknowledgement_before_durability_is_noticed() {
    check_found(Mutation::AckBeforeDurable, "woke up at");
}

/// The disk comes back as it was before, and that would be taken for people's work.
#[test]
fn a_record_before_the_disk_has_it_is_noticed() {
    check_found(Mutation::RecordBeforeSync, "was meant to");
}

#[test]
fn forgotten_batches_are_noticed() {
    check_found(Mutation::ForgetBatches, "was answered");
}

#[test]
fn values_that_are_not_compared_are_noticed() {
    check_found(Mutation::IgnoreBase, "was taken over");
}

/// A simulation in which nothing happens proves nothing.
#[test]
fn worlds_meet_everything_that_can_happen() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..=400 {
        let mut world = World::new(seed, Mutation::None, false);
        world.run().unwrap();
        seen.append(&mut world.seen);
    }
    let expected = [
        "acceptance",
        "anything else",
        "catch-up",
        "content",
        "goodbye",
        "later part of a push",
        "listing",
        "rejection",
        "renumber",
        "resync of another life",
        "resync of who is too old",
    ];
    for what in expected {
        assert!(seen.contains(what), "no world has seen: {what}; only {seen:?}");
    }
}
