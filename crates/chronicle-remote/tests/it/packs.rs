//! Packs and indexes in the bucket: how many there are, in which order they come and go, and lies.

use chronicle_core::{ContentStorage, Error, ObjectId, pack_object};
use chronicle_remote::{Bucket, PACK_FULL, RemoteError, RemoteStore, Written};
use chronicle_testing::contract::sample;

use crate::server::{Fault, Server};

fn store(bucket: &Bucket) -> RemoteStore {
    RemoteStore::connect(bucket.clone(), None).unwrap()
}

/// Writes objects 0 to `count` of the samples as packs.
fn write(store: &RemoteStore, count: u64) -> Written {
    let mut writer = store.writer();
    for number in 0..count {
        let bytes = sample(number, 2000);
        writer.add(&ObjectId::of(&bytes), &pack_object(&bytes)).unwrap();
    }
    writer.finish().unwrap()
}

#[track_caller]
fn check_all(store: &RemoteStore, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let bytes = sample(number, 2000);
        assert_eq!(store.get(&ObjectId::of(&bytes)).unwrap(), bytes);
    }
}

fn keys(bucket: &Bucket, ending: &str) -> Vec<String> {
    let keys = bucket.list("packs").unwrap().into_iter().map(|listed| listed.key);
    keys.filter(|key| key.ends_with(ending)).collect()
}

#[test]
fn many_objects_cost_few_requests() {
    let server = Server::start();
    let store = store(&server.bucket());
    server.calm();
    let written = write(&store, 1000);
    assert_eq!(written, Written { packs: 1, objects: 1000, known: 0 });
    assert_eq!(server.seen().len(), 2, "{:?}", server.seen());
    assert_eq!(write(&store, 1000), Written { packs: 0, objects: 0, known: 1000 });
    assert_eq!(server.seen().len(), 2);
    check_all(&store, 0..20);
}

#[test]
fn full_pack_is_followed_by_another() {
    let bucket = Bucket::memory().unwrap();
    let store = store(&bucket);
    let mut writer = store.writer();
    let stored = vec![7; PACK_FULL / 4];
    for number in 0..9 {
        writer.add(&ObjectId([number; 32]), &stored).unwrap();
    }
    assert_eq!(writer.finish().unwrap().packs, 3);
    let lengths = bucket.list("packs").unwrap().into_iter().map(|listed| listed.length);
    assert!(lengths.max().unwrap() <= PACK_FULL as u64);
    let refused = store.writer().add(&ObjectId([1; 32]), &[]);
    assert!(matches!(refused, Err(Error::Corrupt { .. })));
}

#[test]
fn another_handle_sees_what_the_first_wrote() {
    let bucket = Bucket::memory().unwrap();
    let (first, second) = (store(&bucket), store(&bucket));
    assert!(!second.exists(&ObjectId::of(&sample(0, 2000))).unwrap());
    write(&first, 100);
    assert!(second.exists(&ObjectId::of(&sample(0, 2000))).unwrap());
    check_all(&second, 0..100);
    check_all(&store(&bucket), 0..100);
}

/// A machine that lost everything reads all indexes, or says why not.
#[test]
fn many_indexes_are_read_at_connect_or_none_of_them_counts() {
    let server = Server::start();
    let bucket = server.bucket();
    let first = store(&bucket);
    for number in 0..30 {
        let bytes = sample(number, 2000);
        first.put(&ObjectId::of(&bytes), &bytes).unwrap();
    }
    server.calm();
    let second = store(&bucket);
    assert_eq!(server.count("GET", ".idx"), 30);
    check_all(&second, 0..30);
    assert_eq!(server.count("GET", ".idx"), 30, "each is read once");
    server.fail("GET", ".idx", Fault::Error(403, "ExpiredToken"), 1);
    let refused = RemoteStore::connect(bucket.clone(), None).unwrap_err();
    assert_eq!(RemoteError::of(&refused).unwrap().code(), "remote_credentials_expired");
}

#[test]
fn deleting_from_a_pack_keeps_the_others_for_every_handle() {
    let bucket = Bucket::memory().unwrap();
    let (first, second) = (store(&bucket), store(&bucket));
    write(&first, 100);
    check_all(&second, 0..100);
    let gone: Vec<_> = (0..10).map(|number| ObjectId::of(&sample(number, 2000))).collect();
    first.delete_all(&gone).unwrap();
    for store in [&first, &second, &store(&bucket)] {
        check_all(store, 10..100);
        assert!(gone.iter().all(|id| matches!(store.get(id), Err(Error::Missing(_)))));
    }
    assert_eq!((keys(&bucket, ".pack").len(), keys(&bucket, ".idx").len()), (1, 1));
    let rest: Vec<_> = (10..100).map(|number| ObjectId::of(&sample(number, 2000))).collect();
    first.delete_all(&rest).unwrap();
    assert_eq!(keys(&bucket, ""), [""; 0]);
}

/// Packs come and go while a list of several pages is read; what is kept is found all the time.
#[test]
fn who_reads_while_another_deletes_misses_nothing() {
    let server = Server::start();
    let bucket = server.bucket();
    let first = store(&bucket);
    let ids: Vec<_> = (0..40).map(|number| ObjectId::of(&sample(number, 2000))).collect();
    for pack in 0..4 {
        let mut writer = first.writer();
        for number in (0..40).filter(|number| number % 4 == pack) {
            writer.add(&ids[number as usize], &pack_object(&sample(number, 2000))).unwrap();
        }
        writer.finish().unwrap();
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let second = store(&bucket);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    check_all(&second, 20..40);
                }
            });
        }
        ids[..20].iter().for_each(|id| first.delete(id).unwrap());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let third = store(&bucket);
    check_all(&third, 20..40);
    assert!(ids[..20].iter().all(|id| !third.exists(id).unwrap()));
}

#[test]
fn object_in_two_packs_is_deleted_from_both() {
    let bucket = Bucket::memory().unwrap();
    let (first, second) = (store(&bucket), store(&bucket));
    write(&first, 3);
    write(&second, 5);
    let id = ObjectId::of(&sample(0, 2000));
    first.delete(&id).unwrap();
    assert!(!store(&bucket).exists(&id).unwrap());
    check_all(&store(&bucket), 1..5);
}

/// Whoever sees an index must see its pack.
#[test]
fn index_comes_after_its_pack_and_goes_before_it() {
    let server = Server::start();
    let store = store(&server.bucket());
    server.calm();
    write(&store, 3);
    store.delete_all(&[ObjectId::of(&sample(0, 2000))]).unwrap();
    let seen = server.seen();
    let changes = seen.iter().filter(|line| line.starts_with("PUT") || line.starts_with("DELETE"));
    let changes: Vec<_> = changes
        .map(|line| (line.split(' ').next().unwrap(), line.rsplit('.').next().unwrap()))
        .collect();
    let put = [("PUT", "pack"), ("PUT", "idx")];
    assert_eq!(changes[..2], put);
    assert_eq!(changes[2..4], put);
    assert_eq!(changes[4..], [("DELETE", "idx"), ("DELETE", "pack")]);
}

#[test]
fn pack_that_could_not_be_written_has_no_index() {
    let server = Server::start();
    let bucket = server.bucket();
    let store = store(&bucket);
    server.fail("PUT", ".pack", Fault::Error(503, "SlowDown"), usize::MAX);
    assert!(store.put(&ObjectId::of(b"x"), b"x").is_err());
    assert_eq!(keys(&bucket, ""), [""; 0]);
    assert!(!store.exists(&ObjectId::of(b"x")).unwrap());

    server.calm();
    server.fail("PUT", ".idx", Fault::Error(503, "SlowDown"), usize::MAX);
    assert!(store.put(&ObjectId::of(b"x"), b"x").is_err());
    assert!(!store.exists(&ObjectId::of(b"x")).unwrap(), "a pack without an index does not count");
    server.calm();
    store.put(&ObjectId::of(b"x"), b"x").unwrap();
    assert_eq!(store.get(&ObjectId::of(b"x")).unwrap(), b"x");
}

/// Puts other bytes in the place of the only key that ends so, and opens the bucket anew.
fn spoiled(ending: &str, spoil: impl Fn(&mut Vec<u8>)) -> (Bucket, RemoteStore) {
    let bucket = Bucket::memory().unwrap();
    write(&store(&bucket), 10);
    let key = keys(&bucket, ending).remove(0);
    let mut bytes = bucket.get(&key).unwrap();
    spoil(&mut bytes);
    bucket.put(&key, bytes).unwrap();
    let opened = store(&bucket);
    (bucket, opened)
}

#[test]
fn index_that_lies_is_refused_and_makes_nothing_missing() {
    let (_, length) = (0, 8 + 4 + 4 + 32 + 8 + 24 + 10 * 44 + 32);
    for position in (0..length).step_by(31) {
        let (_, store) = spoiled(".idx", |bytes| bytes[position] ^= 1);
        let (bytes, other) = (sample(3, 2000), ObjectId::of(b"never put"));
        let id = ObjectId::of(&bytes);
        assert!(matches!(store.get(&id), Err(Error::Corrupt { .. })), "at {position}");
        assert!(store.exists(&id).is_err() && store.exists(&other).is_err());
        store.put(&id, &bytes).unwrap();
        assert_eq!(store.get(&id).unwrap(), bytes);
    }
}

#[test]
fn pack_of_another_length_or_none_makes_its_index_refused() {
    for longer in [false, true] {
        let (_, store) = spoiled(".pack", |bytes| match longer {
            true => bytes.push(0),
            false => drop(bytes.pop()),
        });
        let id = ObjectId::of(&sample(3, 2000));
        let Err(Error::Corrupt { why, .. }) = store.get(&id) else { panic!("{longer}") };
        assert!(why.contains("another length"), "{why}");
    }
    let (bucket, _) = spoiled(".pack", |_| ());
    bucket.delete(&keys(&bucket, ".pack")[0]).unwrap();
    let error = store(&bucket).get(&ObjectId::of(&sample(3, 2000))).unwrap_err();
    assert!(error.to_string().contains("its pack is not there"), "{error}");
}

#[test]
fn damaged_pack_is_never_taken_for_content_nor_carried_over() {
    let length = spoiled(".pack", |_| ()).0.list("packs").unwrap();
    let length = length.iter().map(|listed| listed.length).max().unwrap() as usize;
    for position in (16..length).step_by(length / 23) {
        let (bucket, store) = spoiled(".pack", |bytes| bytes[position] ^= 0x55);
        let mut noticed = 0;
        for number in 0..10 {
            let bytes = sample(number, 2000);
            match store.get(&ObjectId::of(&bytes)) {
                Ok(read) => assert_eq!(read, bytes),
                Err(Error::Corrupt { .. }) => noticed += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(noticed <= 1, "at {position}");
        let deleted = store.delete(&ObjectId::of(&sample(0, 2000)));
        assert!(matches!(deleted, Err(Error::Corrupt { .. })), "at {position}");
        assert_eq!(keys(&bucket, ".pack").len(), 1);
    }
}

#[test]
fn good_copy_in_another_pack_is_found() {
    let (bucket, first) = spoiled(".pack", |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1));
    let bytes = sample(3, 2000);
    let id = ObjectId::of(&bytes);
    assert!(first.get(&id).is_err());
    first.put(&id, &bytes).unwrap();
    assert_eq!(first.get(&id).unwrap(), bytes);
    assert_eq!(store(&bucket).get(&id).unwrap(), bytes);
}

#[test]
fn stranger_below_the_prefix_does_not_disturb() {
    let bucket = Bucket::memory().unwrap();
    let first = store(&bucket);
    write(&first, 3);
    bucket.put("packs/readme.txt", &b"hello"[..]).unwrap();
    bucket.put("packs/zz.idx", &b"hello"[..]).unwrap();
    check_all(&store(&bucket), 0..3);
    assert!(!store(&bucket).exists(&ObjectId::of(b"never put")).unwrap());
}
