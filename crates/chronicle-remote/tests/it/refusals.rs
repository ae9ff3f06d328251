//! What does not pass by itself: each has words and a code of its own, and is asked only once.

use chronicle_core::{ContentStorage, Error, ObjectId};
use chronicle_remote::{RemoteError, RemoteStore};

use crate::server::{Fault, Server};

const ALWAYS: usize = usize::MAX;

/// Every way to ask, and what it is called.
fn check(status: u16, word: &'static str, code: &str, says: &str) {
    let server = Server::start();
    let bucket = server.bucket();
    bucket.put("k", &b"content"[..]).unwrap();
    for method in ["GET", "PUT", "DELETE"] {
        server.fail(method, "", Fault::Error(status, word), ALWAYS);
    }
    let asked: [(&str, Result<(), RemoteError>); 4] = [
        ("GET", bucket.get("k").map(|_| ())),
        ("PUT", bucket.put("k", &b"content"[..])),
        ("DELETE", bucket.delete("k")),
        ("GET", bucket.list("packs").map(|_| ())),
    ];
    for (method, result) in asked {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.code(), code, "{method}: {text}");
        assert!(text.contains("s3://bucket/prefix/"), "{text}");
        assert!(text.contains(says) && text.contains(error.next_step()), "{text}");
    }
    assert_eq!(server.count("PUT", ""), 2, "one to prepare, one that failed");
    assert_eq!(server.count("GET", ""), 2);
    assert_eq!(server.count("DELETE", ""), 1);
}

#[test]
fn expired_credentials() {
    check(403, "ExpiredToken", "remote_credentials_expired", "expired");
    check(400, "ExpiredToken", "remote_credentials_expired", "get new credentials");
}

#[test]
fn clock_that_is_wrong() {
    check(403, "RequestTimeTooSkewed", "remote_clock_skew", "set the clock");
}

#[test]
fn bucket_that_is_gone() {
    check(404, "NoSuchBucket", "remote_bucket_missing", "bucket does not exist");
}

#[test]
fn credentials_that_are_wrong() {
    check(403, "SignatureDoesNotMatch", "remote_credentials", "check the access key");
    check(401, "Unauthorized", "remote_credentials", "not accepted");
}

#[test]
fn credentials_that_do_not_allow_it() {
    check(403, "AccessDenied", "remote_denied", "do not allow it");
}

/// The answer to HEAD has no body, so a missing bucket looks like a missing key.
#[test]
fn missing_bucket_is_not_taken_for_a_missing_key() {
    let server = Server::start();
    let bucket = server.bucket();
    assert!(!bucket.exists("k").unwrap());
    server.fail("GET", "", Fault::Error(404, "NoSuchBucket"), ALWAYS);
    assert_eq!(bucket.exists("k").unwrap_err().code(), "remote_bucket_missing");
}

#[test]
fn key_that_is_missing_is_asked_for_once() {
    let server = Server::start();
    assert_eq!(server.bucket().get("k").unwrap_err().code(), "remote_missing");
    assert_eq!(server.count("GET", "k"), 1);
}

/// Nothing is called missing because the bucket could not be asked.
#[test]
fn store_whose_bucket_disappears_says_so() {
    let server = Server::start();
    let store = RemoteStore::connect(server.bucket(), None).unwrap();
    let (kept, other) = (ObjectId::of(b"kept"), ObjectId::of(b"other"));
    store.put(&kept, b"kept").unwrap();
    for method in ["GET", "PUT", "DELETE"] {
        server.fail(method, "", Fault::Error(404, "NoSuchBucket"), ALWAYS);
    }
    let check = |error: Error| {
        let remote = RemoteError::of(&error).map(RemoteError::code);
        assert_eq!(remote, Some("remote_bucket_missing"), "{error}");
    };
    check(store.get(&kept).unwrap_err());
    check(store.get(&other).unwrap_err());
    check(store.exists(&other).unwrap_err());
    check(store.put(&other, b"other").unwrap_err());
    check(store.delete(&kept).unwrap_err());
    let reader = store.reader(&kept).err().unwrap();
    check(reader);
    check(RemoteStore::connect(server.bucket(), None).unwrap_err());
}
