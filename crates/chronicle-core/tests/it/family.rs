//! Every store and every stack of them that makes sense: the contract, and what they do when things fail.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::{
    Cached, ContentStorage, Encrypting, Error, LARGE_OBJECT, LocalStore, MemoryStore, ObjectId,
    PooledCache, Retries, Retrying, TieredStore, Verified,
};
use chronicle_testing::contract::{self, sample};
use chronicle_testing::fault_contract::{Stack, survives_faults};
use chronicle_testing::faulty::{Fault, Faults, Faulty};
use chronicle_testing::shared::setting;
use tempfile::TempDir;

type Far = Arc<Faulty<MemoryStore>>;

/// Tries again at once.
fn at_once() -> Retries {
    Retries { sleep: Box::new(|_: Duration| ()), ..Retries::default() }
}

/// Directories that live as long as the test.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn directory(&self) -> PathBuf {
        tempfile::tempdir_in(self.0.path()).unwrap().keep()
    }

    fn local(&self) -> LocalStore {
        LocalStore::open(&self.directory().join("store")).unwrap()
    }

    fn pool(&self) -> PooledCache {
        let pool = PooledCache::at(&self.directory().join("pool"), 1 << 30);
        pool.prepare().unwrap();
        pool
    }
}

fn far() -> Far {
    Arc::new(Faulty::new(MemoryStore::new()))
}

#[track_caller]
fn check_faults(retries: bool, stack: impl Fn(Far) -> Box<dyn ContentStorage>) {
    let make = || {
        let far = far();
        Stack { store: stack(Arc::clone(&far)), faults: Box::new(far), retries }
    };
    survives_faults(make, setting("CHRONICLE_SEEDS", 12));
}

#[test]
fn every_stack_keeps_the_contract() {
    let scratch = Scratch::new();
    let memory = MemoryStore::new;
    contract::content_storage(|| Box::new(Verified::new(memory())));
    contract::content_storage(|| Box::new(Retrying::new(memory(), at_once())));
    contract::content_storage(|| Box::new(TieredStore::new(memory(), memory())));
    contract::content_storage(|| Box::new(TieredStore::new(scratch.local(), memory())));
    contract::content_storage(|| Box::new(Cached::new(memory(), memory(), 1 << 20)));
    contract::content_storage(|| Box::new(Cached::unbounded(scratch.pool(), scratch.local())));
    contract::content_storage(|| Box::new(Encrypting::new(memory(), &[1; 32])));
    contract::content_storage(|| Box::new(Encrypting::new(scratch.local(), &[1; 32])));
    contract::content_storage(|| Box::new(scratch.pool()));
}

#[test]
fn long_stack_keeps_the_contract() {
    let scratch = Scratch::new();
    contract::content_storage(|| {
        let far = Retrying::new(Encrypting::new(MemoryStore::new(), &[1; 32]), at_once());
        Box::new(TieredStore::new(scratch.local(), Cached::unbounded(scratch.pool(), far)))
    });
}

#[test]
fn what_fails_behind_a_stack_is_neither_believed_nor_hidden() {
    check_faults(false, |far| Box::new(Verified::new(far)));
    check_faults(true, |far| Box::new(Verified::new(Retrying::new(far, at_once()))));
    check_faults(false, |far| Box::new(Cached::new(MemoryStore::new(), far, 1 << 20)));
    check_faults(false, |far| Box::new(Encrypting::new(far, &[1; 32])));
    check_faults(true, |far| Box::new(Encrypting::new(Retrying::new(far, at_once()), &[1; 32])));
}

#[test]
fn what_fails_behind_a_tier_is_neither_believed_nor_hidden() {
    let scratch = Scratch::new();
    check_faults(false, |far| Box::new(TieredStore::new(MemoryStore::new(), Verified::new(far))));
    check_faults(true, |far| {
        let far = Verified::new(Retrying::new(far, at_once()));
        Box::new(TieredStore::new(scratch.local(), Cached::unbounded(scratch.pool(), far)))
    });
}

/// What fails is the cache: only taking things out of it may fail then.
#[test]
fn cache_that_fails_fails_no_read_and_no_write() {
    for fault in Fault::ALL {
        let near = far();
        let store = Cached::unbounded(Arc::clone(&near), MemoryStore::new());
        for length in [0, 3000, LARGE_OBJECT + 9] {
            let bytes = sample(1, length);
            let id = ObjectId::of(&bytes);
            for _ in 0..3 {
                near.begin(fault);
                store.put(&id, &bytes).unwrap();
                assert!(store.get(&id).unwrap() == bytes, "{fault:?}");
                near.begin(fault);
                let mut read = Vec::new();
                store.reader(&id).unwrap().read_to_end(&mut read).unwrap();
                assert!(read == bytes && store.exists(&id).unwrap(), "{fault:?}");
                near.end();
                assert!(store.get(&id).unwrap() == bytes, "{fault:?}");
            }
        }
    }
}

#[test]
fn what_waits_in_a_tier_goes_on_waiting_until_it_arrives() {
    let far = far();
    let store = TieredStore::new(MemoryStore::new(), Verified::new(Arc::clone(&far)));
    let id = ObjectId::of(b"content");
    store.put(&id, b"content").unwrap();
    for fault in [Fault::Expired, Fault::ClockSkew, Fault::Gone, Fault::LostAnswer] {
        far.begin(fault);
        assert!(store.flush().is_err() && store.waiting() == 1, "{fault:?}");
        far.begin(fault);
        assert!(!store.evict(&id).unwrap_or(false), "{fault:?}: it is nowhere else");
        far.begin(fault);
        assert!(store.delete(&id).is_err() && store.waiting() == 1, "{fault:?}");
    }
    far.end();
    store.flush().unwrap();
    assert_eq!(store.waiting(), 0);
    assert!(store.evict(&id).unwrap());
    assert_eq!(store.get(&id).unwrap(), b"content");
}

/// The store has a damaged one; the put that should replace it fails, and must not find the damage good.
#[test]
fn failed_put_over_damage_is_not_taken_for_done() {
    struct Damaged(MemoryStore, Faulty<MemoryStore>);
    impl ContentStorage for Damaged {
        fn get(&self, id: &ObjectId) -> chronicle_core::Result<Vec<u8>> {
            match self.1.get(id) {
                Err(Error::Missing(_)) => Ok(b"damaged".to_vec()),
                read => read,
            }
        }
        fn put(&self, id: &ObjectId, bytes: &[u8]) -> chronicle_core::Result<()> {
            self.1.put(id, bytes)
        }
        fn exists(&self, _: &ObjectId) -> chronicle_core::Result<bool> {
            Ok(true)
        }
        fn delete(&self, id: &ObjectId) -> chronicle_core::Result<()> {
            self.0.delete(id)
        }
        fn reader(&self, id: &ObjectId) -> chronicle_core::Result<Box<dyn Read + Send + '_>> {
            self.0.reader(id)
        }
        fn put_stream(&self, source: &mut dyn Read) -> chronicle_core::Result<(ObjectId, u64)> {
            self.0.put_stream(source)
        }
    }
    let damaged = Damaged(MemoryStore::new(), Faulty::new(MemoryStore::new()));
    let store = Retrying::new(damaged, at_once());
    let id = ObjectId::of(b"content");
    store.inner().1.begin(Fault::Throttled);
    store.put(&id, b"content").unwrap();
    assert_eq!(store.get(&id).unwrap(), b"content");
}
