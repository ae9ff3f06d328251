//! One place, several homes: they push and collect at once, and nobody loses what he needs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chronicle_core::{ObjectId, Seq, Workspace};
use chronicle_remote::{Bucket, Collected, LogHead, RemoteStore};
use chronicle_testing::shared::setting;
use chronicle_testing::work::{Menu, Random};

use crate::history::{Machine, connect, strict, turn};

/// Everything that a history names can be read from the place.
fn check_whole(store: &RemoteStore, log: &LogHead) {
    let reader = Machine::new(9);
    let fetched = store.fetch(&reader.home, log, &|_| Ok(false), &|_, _| {}).unwrap();
    assert_eq!(fetched.missing, Vec::<ObjectId>::new());
}

fn own_log(store: &RemoteStore, workspace: &Workspace) -> LogHead {
    let logs = store.logs(Some(workspace.id())).unwrap();
    logs.into_iter().next().unwrap()
}

/// Two homes with much the same content, pushing and collecting in every order.
#[test]
fn homes_that_share_a_place_in_turns_lose_nothing() {
    let mut gone = 0;
    for seed in 0..setting("CHRONICLE_SEEDS", 3) {
        let bucket = Bucket::memory().unwrap();
        let machines = [Machine::new(1), Machine::new(2)];
        let stores = [connect(&bucket, Some(1)), connect(&bucket, Some(1))];
        let mut workspaces = machines.each_ref().map(Machine::init);
        // The same seed: what one has pushed the other counts on.
        let mut randoms = machines.each_ref().map(|m| Random::new(&m.root(), seed, Menu::APART));
        for round in 0..12_u64 {
            let who = usize::from((seed.wrapping_mul(31) + round * 7) % 3 == 0);
            turn(&mut workspaces[who], &mut randoms[who], 6);
            if round % 2 == 1 {
                // What only the dropped records needed is garbage.
                workspaces[who].prune(&strict(), "test", false).unwrap();
            }
            machines[who].push(&stores[who], &workspaces[who]).unwrap();
            gone += machines[1 - who].collect(&stores[1 - who]).packs;
            for workspace in &workspaces {
                if stores[who].logs(Some(workspace.id())).unwrap().is_empty() {
                    continue;
                }
                let fresh = connect(&bucket, Some(1));
                check_whole(&fresh, &own_log(&fresh, workspace));
            }
        }
        for who in [0, 1] {
            (0..4).for_each(|_| drop(turn(&mut workspaces[who], &mut randoms[who], 6)));
            workspaces[who].prune(&strict(), "test", false).unwrap();
            machines[who].push(&stores[who], &workspaces[who]).unwrap();
        }
        gone += (0..2).map(|who| machines[who].collect(&stores[who]).packs).sum::<u64>();
        let fresh = connect(&bucket, Some(1));
        workspaces.iter().for_each(|workspace| check_whole(&fresh, &own_log(&fresh, workspace)));
    }
    assert!(gone > 0, "something was collected");
}

/// A place in which one home needs, from its next push on, what is garbage there so far.
struct Revival {
    bucket: Bucket,
    collector: Machine,
    reviver: Machine,
    workspace: Workspace,
}

impl Revival {
    /// `doomed`: a collection has noticed the garbage already.
    fn new(doomed: bool) -> Self {
        let bucket = Bucket::memory().unwrap();
        let (first, reviver, collector) = (Machine::new(1), Machine::new(2), Machine::new(3));
        let content = "garbage in one home, about to be needed in another\n";
        let mut workspace = first.init();
        let store = connect(&bucket, None);
        first.push(&store, &workspace).unwrap();
        let mut random = Random::new(&first.root(), 1, Menu::APART);
        std::fs::write(first.root().join("shared"), content).unwrap();
        workspace.settle().unwrap();
        first.push(&store, &workspace).unwrap();
        std::fs::remove_file(first.root().join("shared")).unwrap();
        (0..4).for_each(|_| drop(turn(&mut workspace, &mut random, 3)));
        workspace.prune(&strict(), "test", false).unwrap();
        first.push(&store, &workspace).unwrap();
        let mut workspace = reviver.init();
        reviver.push(&store, &workspace).unwrap();
        std::fs::write(reviver.root().join("shared"), content).unwrap();
        workspace.settle().unwrap();
        if doomed {
            assert!(collector.collect(&connect(&bucket, None)).doomed > 0);
        }
        Self { bucket, collector, reviver, workspace }
    }

    fn check(&self, what: &str) {
        let store = connect(&self.bucket, None);
        let reader = Machine::new(9);
        let log = own_log(&store, &self.workspace);
        assert_eq!(log.head, self.workspace.position().unwrap().head, "{what}");
        let fetched = store.fetch(&reader.home, &log, &|_| Ok(false), &|_, _| {}).unwrap();
        assert_eq!(fetched.missing, Vec::<ObjectId>::new(), "{what}");
    }
}

/// A handle that does something just before the operation of this number; says how many there were.
fn interrupted(
    bucket: &Bucket,
    at: usize,
    act: impl Fn() + Send + Sync + 'static,
) -> (Bucket, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let observed = bucket.observed(move |_, _| {
        if counted.fetch_add(1, Ordering::AcqRel) == at {
            act();
        }
    });
    (observed.unwrap(), count)
}

/// Whenever somebody collects while another pushes, at every single step.
#[test]
fn collections_at_any_step_of_a_push_take_nothing_that_it_counts_on() {
    for doomed in [false, true] {
        for at in 0.. {
            let Revival { bucket, collector, reviver, workspace } = Revival::new(doomed);
            let plain = bucket.clone();
            let (observed, steps) = interrupted(&bucket, at, move || {
                // A run of records may just be gone: that collection has done nothing.
                (0..2).for_each(|_| drop(connect(&plain, None).collect([3; 16])));
            });
            reviver.push(&connect(&observed, None), &workspace).unwrap();
            let world = Revival { bucket, collector, reviver, workspace };
            world.check(&format!("doomed {doomed}, collected at step {at}"));
            for _ in 0..2 {
                world.collector.collect(&connect(&world.bucket, None));
            }
            world.check(&format!("doomed {doomed}, collected at step {at}, and again"));
            if steps.load(Ordering::Acquire) <= at {
                assert!(at > 12, "a push has steps: {at}");
                break;
            }
        }
    }
}

/// Whenever somebody pushes while another collects, at every single step.
#[test]
fn push_at_any_step_of_a_collection_keeps_what_it_counts_on() {
    for doomed in [false, true] {
        for at in 0.. {
            let Revival { bucket, collector, reviver, workspace } = Revival::new(doomed);
            let world = Arc::new((reviver, Mutex::new(workspace)));
            let (other, plain) = (Arc::clone(&world), bucket.clone());
            // What it knew before the collection began is what it may count on wrongly.
            let stale = connect(&plain, None);
            let (observed, steps) = interrupted(&bucket, at, move || {
                other.0.push(&stale, &other.1.lock().unwrap()).unwrap();
            });
            drop(connect(&observed, None).collect([3; 16]));
            drop(observed);
            let (reviver, workspace) = Arc::into_inner(world)
                .map(|(reviver, workspace)| (reviver, workspace.into_inner().unwrap()))
                .unwrap_or_else(|| panic!("somebody still has it"));
            if steps.load(Ordering::Acquire) <= at {
                assert!(at > 10, "a collection has steps");
                break;
            }
            let world = Revival { bucket, collector, reviver, workspace };
            world.check(&format!("doomed {doomed}, pushed at step {at}"));
            for _ in 0..2 {
                world.collector.collect(&connect(&world.bucket, None));
            }
            world.check(&format!("doomed {doomed}, pushed at step {at}, and collected again"));
        }
    }
}

/// Really at once: two that push, one that collects all the while, and history that is dropped.
#[test]
fn homes_that_share_a_place_at_once_lose_nothing() {
    let bucket = Bucket::memory().unwrap();
    let done = AtomicBool::new(false);
    let rounds = setting("CHRONICLE_ROUNDS", 12);
    let collected = std::thread::scope(|scope| {
        let pushing: Vec<_> = [1_u8, 2]
            .into_iter()
            .map(|number| {
                let bucket = &bucket;
                scope.spawn(move || {
                    let machine = Machine::new(number);
                    let mut workspace = machine.init();
                    let mut random = Random::new(&machine.root(), 77, Menu::APART);
                    for round in 0..rounds {
                        turn(&mut workspace, &mut random, 6);
                        let store = connect(bucket, None);
                        if round % 3 == 2 {
                            workspace.prune(&strict(), "test", false).unwrap();
                        }
                        machine.push(&store, &workspace).unwrap();
                        let log = own_log(&store, &workspace);
                        assert_eq!(log.head, workspace.position().unwrap().head);
                        check_whole(&connect(bucket, None), &log);
                    }
                    workspace.position().unwrap().head.seq
                })
            })
            .collect();
        let collecting = scope.spawn(|| {
            let (machine, mut all) = (Machine::new(3), Collected::default());
            while !done.load(Ordering::Acquire) {
                // A run of records may be replaced while it is read: then it is tried again.
                if let Ok(collected) = connect(&bucket, None).collect([3; 16]) {
                    all.packs += collected.packs;
                    all.carried += collected.carried;
                }
            }
            drop(machine);
            all
        });
        for thread in pushing {
            assert!(thread.join().unwrap() > Seq(0));
        }
        done.store(true, Ordering::Release);
        collecting.join().unwrap()
    });
    assert!(collected.packs > 0, "{collected:?}");
    let store = connect(&bucket, None);
    for log in store.logs(None).unwrap() {
        check_whole(&store, &log);
    }
}
