//! The same on a cluster of three Garage nodes, of which one is killed in the middle. Only `./test long`
//! builds Garage.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chronicle_core::Workspace;
use chronicle_remote::{Bucket, BucketOptions, ConditionalPut, RemoteKey, RemoteStore};
use chronicle_testing::contract;
use chronicle_testing::garage::{Garage, NODES};
use chronicle_testing::tree;
use chronicle_testing::work::{Menu, Random};

use crate::history::{Machine, only_log, turn};

fn bucket(garage: &Garage, node: usize, prefix: &str) -> Bucket {
    let options = BucketOptions {
        endpoint: Some(garage.endpoint(node)),
        region: Some("garage".to_owned()),
        access_key: Some(garage.access_key.clone()),
        secret_key: Some(garage.secret_key.clone()),
        ..BucketOptions::default()
    };
    Bucket::open(&format!("s3://bucket/{prefix}"), &options).unwrap()
}

fn check_contract(garage: &Garage, key: Option<&RemoteKey>, prefix: &str, nodes: usize) {
    let count = Cell::new(0);
    contract::content_storage(|| {
        count.set(count.get() + 1);
        let node = count.get() % nodes;
        let bucket = bucket(garage, node, &format!("{prefix}/{}", count.get()));
        let store = RemoteStore::connect(bucket, key.cloned()).unwrap();
        assert_eq!(store.conditional_put(), ConditionalPut::Ignored, "as Garage does");
        Box::new(store)
    });
}

#[test]
#[ignore = "long: needs Garage, which takes a while to build"]
fn cluster_of_three_keeps_the_contract_and_a_history_with_a_node_down() {
    let mut garage = Garage::start().expect("./test long installs Garage");
    let key = RemoteKey::derive(&[5; 32]);
    check_contract(&garage, None, "plain", NODES);
    check_contract(&garage, Some(&key), "sealed", NODES);
    let connect = |garage: &Garage, node| {
        RemoteStore::connect(bucket(garage, node, "log"), Some(key.clone()))
    };
    let (lost, fresh) = (Machine::new(1), Machine::new(2));
    let mut workspace = lost.init();
    let mut random = Random::new(&lost.root(), 4, Menu::ALL);
    turn(&mut workspace, &mut random, 30);
    lost.push(&connect(&garage, 0).unwrap(), &workspace).unwrap();
    // One of the three dies while the history is pushed again and again through another.
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let endpoint = connect(&garage, 0).unwrap();
    let now = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            let mut now = None;
            while !stop.load(Ordering::Acquire) {
                now = Some(turn(&mut workspace, &mut random, 10).1);
                lost.push(&endpoint, &workspace).unwrap();
                rounds.fetch_add(1, Ordering::AcqRel);
            }
            now.unwrap()
        });
        wait_for(&rounds, 3);
        garage.kill_node(2);
        wait_for(&rounds, 8);
        stop.store(true, Ordering::Release);
        pushing.join().unwrap()
    });
    eprintln!("pushed {} times, a node was killed after 3", rounds.load(Ordering::Acquire));
    // With the node still down, the machine comes back through another one.
    let second = connect(&garage, 1).unwrap();
    let recovered = fresh.clone_from(&second, &only_log(&second));
    tree::assert_same(&now, &tree::describe(&fresh.root()), "with a node down");
    recovered.verify(true, &|_, _| {}).unwrap();
    check_contract(&garage, None, "down", 2);
    // The node comes back and has missed everything since: it still answers for all of it.
    garage.start_node(2);
    let third = reachable(|| connect(&garage, 2));
    let other = Machine::new(3);
    let recovered: Workspace = other.clone_from(&third, &only_log(&third));
    tree::assert_same(&now, &tree::describe(&other.root()), "through the node that was down");
    recovered.verify(true, &|_, _| {}).unwrap();
    let collected = lost.collect(&third);
    assert!(collected.needed > 0, "{collected:?}");
}

fn wait_for(rounds: &AtomicUsize, count: usize) {
    while rounds.load(Ordering::Acquire) < count {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn reachable(connect: impl Fn() -> Result<RemoteStore, chronicle_core::Error>) -> RemoteStore {
    for _ in 0..20 {
        if let Ok(store) = connect() {
            return store;
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    connect().unwrap()
}
