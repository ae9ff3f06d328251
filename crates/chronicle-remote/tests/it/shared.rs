//! One place, several homes: they push and collect at once, and nobody loses what he needs.

use std::sync::atomic::{AtomicBool, Ordering};

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
