//! The contract of every content store, over buckets in memory and behind a server.

use std::cell::Cell;

use chronicle_core::ContentStorage;
use chronicle_remote::{Bucket, ConditionalPut, RemoteKey, RemoteStore};
use chronicle_testing::contract;

use crate::server::{Fault, Server};

fn in_memory(key: Option<RemoteKey>) -> Box<dyn ContentStorage> {
    Box::new(RemoteStore::connect(Bucket::memory().unwrap(), key).unwrap())
}

#[test]
fn store_in_memory_keeps_the_contract() {
    contract::content_storage(|| in_memory(None));
}

#[test]
fn sealed_store_in_memory_keeps_the_contract() {
    contract::content_storage(|| in_memory(Some(RemoteKey::derive(&[3; 32]))));
}

/// Some servers overwrite although they were told not to; nothing may depend on that.
#[test]
fn contract_holds_where_conditions_are_ignored_and_requests_fail() {
    let (server, count) = (Server::ignoring_conditions(), Cell::new(0));
    for method in ["GET", "PUT"] {
        for fault in [Fault::Cut, Fault::Error(503, "SlowDown"), Fault::LoseAnswer] {
            server.fail(method, "", fault, 2);
        }
    }
    contract::content_storage(|| {
        count.set(count.get() + 1);
        let patience = chronicle_remote::Patience { attempts: 12, ..Server::patience() };
        let bucket = server.bucket_at(&format!("home-{}", count.get()), patience);
        let store = RemoteStore::connect(bucket, None).unwrap();
        assert_eq!(store.conditional_put(), ConditionalPut::Ignored);
        Box::new(store)
    });
}

#[test]
fn server_that_honours_conditions_is_known_as_such() {
    let server = Server::start();
    let store = RemoteStore::connect(server.bucket(), None).unwrap();
    assert_eq!(store.conditional_put(), ConditionalPut::Honoured);
    assert_eq!(store.bucket().list("probe").unwrap(), []);
}
