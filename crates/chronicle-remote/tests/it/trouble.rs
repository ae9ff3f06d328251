//! The faults that every stack survives, made by a server; a bucket that disappears in the middle of a push;
//! and a pool that saves the way there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronicle_core::{ContentStorage, Error, ObjectId, PooledCache};
use chronicle_remote::{Patience, RemoteError, RemoteKey, RemoteStore};
use chronicle_testing::contract::sample;
use chronicle_testing::fault_contract::{Stack, survives_faults};
use chronicle_testing::faulty::{Fault as Kind, Faults};
use chronicle_testing::tree;
use chronicle_testing::work::{Menu, Random};

use crate::history::{Machine, only_log, turn};
use crate::server::{Fault, Server};

const ALWAYS: usize = usize::MAX;
const METHODS: [&str; 4] = ["GET", "PUT", "POST", "DELETE"];

impl Faults for Server {
    fn begin(&self, fault: Kind) {
        self.calm();
        let all = |fault, times| METHODS.into_iter().for_each(|m| self.fail(m, "", fault, times));
        match fault {
            Kind::WrongBytes => self.fail("GET", ".pack", Fault::Flip, ALWAYS),
            Kind::Truncated => self.fail("GET", ".pack", Fault::Short, ALWAYS),
            Kind::LostAnswer => all(Fault::LoseAnswer, 1),
            Kind::Throttled => all(Fault::Error(503, "SlowDown"), 2),
            Kind::Expired => all(Fault::Error(403, "ExpiredToken"), ALWAYS),
            Kind::ClockSkew => all(Fault::Error(403, "RequestTimeTooSkewed"), ALWAYS),
            Kind::Gone => all(Fault::Error(404, "NoSuchBucket"), ALWAYS),
        }
    }

    fn end(&self) {
        self.calm();
    }
}

fn check(key: Option<u8>) {
    let (server, count) = (Arc::new(Server::start()), AtomicUsize::new(0));
    let make = || {
        server.calm();
        let prefix = format!("place-{}", count.fetch_add(1, Ordering::Relaxed));
        let patience = Patience { attempts: 6, ..Server::patience() };
        let key = key.map(|byte| RemoteKey::derive(&[byte; 32]));
        let store = RemoteStore::connect(server.bucket_at(&prefix, patience), key).unwrap();
        let faults: Arc<Server> = Arc::clone(&server);
        Stack { store: Box::new(store), faults: Box::new(faults), retries: true }
    };
    survives_faults(make, 2);
}

#[test]
fn what_fails_at_the_server_is_neither_believed_nor_hidden() {
    check(None);
}

#[test]
fn what_fails_at_the_server_of_a_sealed_place_is_neither_believed_nor_hidden() {
    check(Some(3));
}

/// At whatever request the bucket goes: the push says so, and the next one brings all of it.
#[test]
fn bucket_that_disappears_in_the_middle_of_a_push_loses_nothing() {
    let codes = [
        (Fault::Error(404, "NoSuchBucket"), "remote_bucket_missing"),
        (Fault::Error(403, "ExpiredToken"), "remote_credentials_expired"),
        (Fault::Error(403, "RequestTimeTooSkewed"), "remote_clock_skew"),
    ];
    let mut interrupted = 0;
    for spared in 0..24 {
        let (fault, code) = codes[spared % codes.len()];
        let server = Server::start();
        let machine = Machine::new(1);
        let mut workspace = machine.init();
        let mut random = Random::new(&machine.root(), spared as u64, Menu::APART);
        turn(&mut workspace, &mut random, 6);
        let store = RemoteStore::connect(server.bucket(), None).unwrap();
        machine.push(&store, &workspace).unwrap();
        let (_, now) = turn(&mut workspace, &mut random, 6);
        METHODS.into_iter().for_each(|method| server.fail_after(spared / 3, method, fault, ALWAYS));
        match machine.push(&store, &workspace) {
            Ok(_) => {}
            Err(error) => {
                let found = RemoteError::of(&error).map(RemoteError::code);
                assert_eq!(found, Some(code), "after {spared}: {error}");
                interrupted += 1;
            }
        }
        server.calm();
        // Whoever fetches now gets the old history or the new one, whole.
        let reader = RemoteStore::connect(server.bucket(), None).unwrap();
        Machine::new(3).clone_from(&reader, &only_log(&reader));
        machine.push(&store, &workspace).unwrap();
        let reader = RemoteStore::connect(server.bucket(), None).unwrap();
        let other = Machine::new(2);
        other.clone_from(&reader, &only_log(&reader));
        tree::assert_same(&now, &tree::describe(&other.root()), "what came");
    }
    assert!(interrupted > 10, "{interrupted}");
}

/// Made anew and empty, it gets everything again, from a store that thought it had been there.
#[test]
fn bucket_that_comes_back_empty_is_filled_again() {
    let server = Server::start();
    let machine = Machine::new(1);
    let mut workspace = machine.init();
    let mut random = Random::new(&machine.root(), 5, Menu::APART);
    turn(&mut workspace, &mut random, 6);
    machine.push(&RemoteStore::connect(server.bucket(), None).unwrap(), &workspace).unwrap();
    server.empty();
    let (_, now) = turn(&mut workspace, &mut random, 6);
    machine.push(&RemoteStore::connect(server.bucket(), None).unwrap(), &workspace).unwrap();
    let reader = RemoteStore::connect(server.bucket(), None).unwrap();
    let other = Machine::new(2);
    other.clone_from(&reader, &only_log(&reader));
    tree::assert_same(&now, &tree::describe(&other.root()), "what came");
}

#[test]
fn second_home_of_a_machine_fetches_no_content_that_the_first_left_in_the_pool() {
    let server = Server::start();
    let scratch = tempfile::tempdir().unwrap();
    let pool = PooledCache::at(&scratch.path().join("pool"), 1 << 30);
    pool.prepare().unwrap();
    let machine = Machine::new(1);
    std::fs::create_dir_all(machine.root()).unwrap();
    std::fs::write(machine.root().join("large.bin"), sample(3, 5 << 20)).unwrap();
    let mut workspace = machine.init();
    let mut random = Random::new(&machine.root(), 5, Menu::APART);
    let (_, now) = turn(&mut workspace, &mut random, 12);
    machine.push(&RemoteStore::connect(server.bucket(), None).unwrap(), &workspace).unwrap();
    let mut asked = Vec::new();
    for damage in [false, false, true] {
        if damage {
            for entry in std::fs::read_dir(scratch.path().join("pool")).unwrap() {
                std::fs::write(entry.unwrap().path(), "chronicle pool 1\n").unwrap();
            }
        }
        server.calm();
        let store = RemoteStore::connect(server.bucket(), None).unwrap();
        let store = store.with_copies(Some(pool.clone()));
        let home = Machine::new(7);
        let cloned = home.clone_from(&store, &only_log(&store));
        tree::assert_same(&now, &tree::describe(&home.root()), "what came");
        cloned.verify(true, &|_, _| ()).unwrap();
        asked.push(server.count("GET", ".pack"));
    }
    // Of a large content only the list of its pieces is read again.
    assert!(asked[0] > asked[1] && asked[1] <= 1 && asked[2] >= asked[0], "{asked:?}");
    let missing = ObjectId::of(b"never put");
    assert!(matches!(pool.get(&missing), Err(Error::Missing(_))));
}
