//! What passes by itself: cut connections, lost answers, throttling, and what the caller sees of it.

use std::time::{Duration, Instant};

use chronicle_core::{ContentStorage, Error, ObjectId};
use chronicle_remote::{Bucket, Cause, MULTIPART, Patience, RemoteError, RemoteStore};
use chronicle_testing::contract::sample;

use crate::server::{Fault, Server};

const ALWAYS: usize = usize::MAX;

/// A server with one key, `k`, that nothing was asked yet.
fn with_key() -> (Server, Bucket) {
    let server = Server::start();
    let bucket = server.bucket();
    bucket.put("k", &b"some content"[..]).unwrap();
    server.calm();
    (server, bucket)
}

#[track_caller]
fn check_gives_up(error: &RemoteError, server: &Server, method: &str) {
    assert_eq!((error.cause, error.code()), (Cause::Unavailable, "remote_unavailable"));
    let text = error.to_string();
    assert!(text.contains("s3://bucket/prefix/k") && text.contains("tried 4 times"), "{text}");
    assert_eq!(server.count(method, "k"), 4);
}

#[test]
fn connection_cut_in_the_middle_of_an_answer_is_not_seen() {
    for fault in [Fault::Cut, Fault::Truncate, Fault::LoseAnswer] {
        let (server, bucket) = with_key();
        server.fail("GET", "k", fault, 2);
        assert_eq!(bucket.get("k").unwrap(), b"some content");
        assert_eq!(server.count("GET", "k"), 3, "{fault:?}");
        server.fail("GET", "k", fault, 1);
        assert_eq!(bucket.get_range("k", 5..12).unwrap(), b"content");
    }
}

#[test]
fn connection_that_is_always_cut_ends_with_words() {
    for fault in [Fault::Cut, Fault::Truncate, Fault::LoseAnswer] {
        let (server, bucket) = with_key();
        server.fail("GET", "k", fault, ALWAYS);
        check_gives_up(&bucket.get("k").unwrap_err(), &server, "GET");
    }
}

#[test]
fn answer_shorter_than_its_range_is_asked_for_again() {
    let (server, bucket) = with_key();
    server.fail("GET", "k", Fault::Short, 1);
    assert_eq!(bucket.get_range("k", 0..12).unwrap(), b"some content");
    server.calm();
    server.fail("GET", "k", Fault::Short, ALWAYS);
    let error = bucket.get_range("k", 0..12).unwrap_err();
    check_gives_up(&error, &server, "GET");
    assert!(error.to_string().contains("6 bytes came instead of 12"), "{error}");
}

#[test]
fn range_behind_the_end_is_damage_and_asked_for_once() {
    let (server, bucket) = with_key();
    for range in [5..13, 12..13, 100..200] {
        let error = bucket.get_range("k", range.clone()).unwrap_err();
        assert_eq!((error.cause, error.code()), (Cause::Damaged, "remote_damaged"), "{range:?}");
    }
    assert_eq!(server.count("GET", "k"), 3);
}

#[test]
fn server_that_never_answers_is_not_waited_for() {
    let server = Server::start();
    let patience =
        Patience { attempts: 2, request: Duration::from_millis(100), ..Server::patience() };
    let bucket = server.bucket_at("prefix", patience);
    server.fail("GET", "k", Fault::Stall, ALWAYS);
    let begun = Instant::now();
    let error = bucket.get("k").unwrap_err();
    assert!(error.to_string().contains("no answer in time"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn server_that_is_not_there_is_said_to_be() {
    let server = Server::start();
    let bucket = server.bucket();
    drop(server);
    assert_eq!(bucket.get("k").unwrap_err().cause, Cause::Unavailable);
}

/// S3 may answer 409 to a put with nothing stored, and the library calls that "already exists".
#[test]
fn conflict_with_nothing_stored_is_put_again() {
    let server = Server::start();
    let bucket = server.bucket();
    server.fail("PUT", "k", Fault::Error(409, "ConditionalRequestConflict"), 1);
    bucket.put("k", &b"some content"[..]).unwrap();
    assert_eq!((server.count("PUT", "k"), server.count("HEAD", "k")), (2, 1));
    assert_eq!(bucket.get("k").unwrap(), b"some content");
}

#[test]
fn conflict_with_everything_stored_is_success() {
    let server = Server::start();
    let bucket = server.bucket();
    server.fail("PUT", "k", Fault::ErrorAfterwards(409, "OperationAborted"), 1);
    bucket.put("k", &b"some content"[..]).unwrap();
    assert_eq!((server.count("PUT", "k"), server.count("HEAD", "k")), (1, 1));
}

#[test]
fn conflict_without_end_ends_with_words() {
    let server = Server::start();
    server.fail("PUT", "k", Fault::Error(409, "OperationAborted"), ALWAYS);
    let error = server.bucket().put("k", &b"some content"[..]).unwrap_err();
    assert_eq!((error.cause, error.code()), (Cause::Conflict, "remote_conflict"));
}

#[test]
fn put_whose_answer_was_lost_is_found_and_not_repeated() {
    let server = Server::start();
    let bucket = server.bucket();
    server.fail("PUT", "k", Fault::LoseAnswer, 1);
    bucket.put("k", &b"some content"[..]).unwrap();
    assert_eq!((server.count("PUT", "k"), server.count("HEAD", "k")), (1, 1));
    assert_eq!(bucket.get("k").unwrap(), b"some content");
}

/// Something of another length under the key is not what was put.
#[test]
fn put_is_repeated_where_the_key_has_another_length() {
    let (server, bucket) = with_key();
    server.fail("PUT", "k", Fault::Error(409, "OperationAborted"), 1);
    bucket.put("k", &b"other"[..]).unwrap();
    assert_eq!(server.count("PUT", "k"), 2);
    assert_eq!(bucket.get("k").unwrap(), b"other");
}

#[test]
fn long_put_survives_a_lost_piece_and_a_lost_end() {
    let bytes = sample(1, 2 * MULTIPART + 5);
    for (method, fault) in [
        ("PUT", Fault::LoseAnswer),
        ("PUT", Fault::Error(503, "SlowDown")),
        ("POST", Fault::LoseAnswer),
        ("POST", Fault::Error(500, "InternalError")),
    ] {
        let server = Server::start();
        let bucket = server.bucket();
        server.fail(method, "k", fault, 1);
        bucket.put("k", bytes.clone()).unwrap();
        assert!(bucket.get("k").unwrap() == bytes, "{method} {fault:?}");
    }
}

#[test]
fn server_that_is_busy_for_some_time_is_waited_for() {
    let (server, bucket) = with_key();
    server.fail("GET", "k", Fault::Error(503, "SlowDown"), 3);
    assert_eq!(bucket.get("k").unwrap(), b"some content");
    server.fail("PUT", "other", Fault::Error(503, "ServiceUnavailable"), 3);
    bucket.put("other", &b"x"[..]).unwrap();
    assert_eq!(server.count("HEAD", ""), 0, "nothing was stored for sure, so nobody asks");
    server.calm();
    server.fail("GET", "k", Fault::Error(503, "SlowDown"), ALWAYS);
    check_gives_up(&bucket.get("k").unwrap_err(), &server, "GET");
}

#[test]
fn pause_that_the_server_asks_for_is_made() {
    let (server, bucket) = with_key();
    server.fail("GET", "k", Fault::Throttle(1), 1);
    let begun = Instant::now();
    assert_eq!(bucket.get("k").unwrap(), b"some content");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn pause_longer_than_patience_is_not_begun() {
    let (server, bucket) = with_key();
    server.fail("GET", "k", Fault::Throttle(3600), 1);
    let begun = Instant::now();
    let error = bucket.get("k").unwrap_err();
    assert_eq!(error.cause, Cause::Unavailable);
    assert!(error.to_string().contains("TooManyRequests"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(server.count("GET", "k"), 1);
}

#[test]
fn listing_goes_on_where_it_was_cut() {
    let server = Server::start();
    let bucket = server.bucket();
    let keys: Vec<String> = (0..23).map(|number| format!("packs/{number:02}")).collect();
    keys.iter().for_each(|key| bucket.put(key, &b"x"[..]).unwrap());
    server.calm();
    for fault in [Fault::Cut, Fault::Error(500, "InternalError"), Fault::LoseAnswer] {
        for spared in 0..5 {
            server.fail_after(spared, "GET", fault, 2);
            let found = bucket.list("packs").unwrap();
            assert!(found.iter().map(|listed| &listed.key).eq(&keys), "{fault:?} after {spared}");
            assert_eq!(server.seen().len(), 5 + 2, "no page is asked for that was there already");
            server.calm();
        }
    }
}

#[test]
fn byte_changed_on_the_way_is_read_again_and_one_changed_in_the_bucket_is_corrupt() {
    let server = Server::start();
    let store = RemoteStore::connect(server.bucket(), None).unwrap();
    let bytes = sample(1, 3000);
    let id = ObjectId::of(&bytes);
    store.put(&id, &bytes).unwrap();
    server.fail("GET", ".pack", Fault::Flip, 1);
    assert_eq!(store.get(&id).unwrap(), bytes);

    server.fail("GET", ".pack", Fault::Flip, ALWAYS);
    assert!(matches!(store.get(&id), Err(Error::Corrupt { object, .. }) if object == id));
    server.calm();
    store.put(&id, &bytes).unwrap();
    assert_eq!(server.count("PUT", ".pack"), 1, "what was damaged is put again");
    assert_eq!(store.get(&id).unwrap(), bytes);
    store.put(&id, &bytes).unwrap();
    assert_eq!(server.count("PUT", ".pack"), 1);
}

#[test]
fn answer_longer_than_anything_is_not_read() {
    let (server, bucket) = with_key();
    server.fail("GET", "k", Fault::Huge, ALWAYS);
    let error = bucket.get("k").unwrap_err();
    assert_eq!((error.cause, error.code()), (Cause::TooLong, "remote_too_long"));
    assert_eq!(server.count("GET", "k"), 1);
}
