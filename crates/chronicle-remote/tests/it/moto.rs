//! The contract on a real server: moto, which `./test` installs from PyPI.

use std::cell::Cell;

use chronicle_core::{ContentStorage, ObjectId};
use chronicle_remote::{
    Bucket, BucketOptions, Cause, ConditionalPut, MULTIPART, RemoteKey, RemoteStore,
};
use chronicle_testing::contract::{self, sample};
use chronicle_testing::moto::Moto;

fn bucket(moto: &Moto, url: &str) -> Bucket {
    let options = BucketOptions {
        endpoint: Some(moto.endpoint()),
        region: Some("us-east-1".to_owned()),
        access_key: Some("access".to_owned()),
        secret_key: Some("secret".to_owned()),
        ..BucketOptions::default()
    };
    Bucket::open(url, &options).unwrap()
}

fn check_contract(moto: &Moto, key: Option<&RemoteKey>) {
    let count = Cell::new(0);
    contract::content_storage(|| {
        count.set(count.get() + 1);
        let sealed = if key.is_some() { "sealed" } else { "plain" };
        let bucket = bucket(moto, &format!("s3://bucket/{sealed}/{}", count.get()));
        let store = RemoteStore::connect(bucket, key.cloned()).unwrap();
        assert_eq!(store.conditional_put(), ConditionalPut::Honoured);
        Box::new(store)
    });
}

#[test]
fn store_on_moto_keeps_the_contract() {
    let Some(moto) = Moto::start("store_on_moto_keeps_the_contract") else { return };
    check_contract(&moto, None);
}

#[test]
fn sealed_store_on_moto_keeps_the_contract() {
    let Some(moto) = Moto::start("sealed_store_on_moto_keeps_the_contract") else { return };
    check_contract(&moto, Some(&RemoteKey::derive(&[3; 32])));
}

#[test]
fn bucket_on_moto_does_what_it_says() {
    let Some(moto) = Moto::start("bucket_on_moto_does_what_it_says") else { return };
    let bucket = bucket(&moto, "s3://bucket/some/where");
    let long = sample(1, 2 * MULTIPART + 5);
    bucket.put("long", long.clone()).unwrap();
    assert!(bucket.get("long").unwrap() == long);
    let middle = MULTIPART as u64 - 5..MULTIPART as u64 + 5;
    assert!(bucket.get_range("long", middle).unwrap() == long[MULTIPART - 5..MULTIPART + 5]);
    assert_eq!(bucket.length("long").unwrap(), Some(long.len() as u64));
    assert_eq!(bucket.get("short").unwrap_err().cause, Cause::Missing);
    assert!(!bucket.exists("short").unwrap());
    for number in 0..1005 {
        bucket.put(&format!("many/{number:04}"), &b"x"[..]).unwrap();
    }
    assert_eq!(bucket.list("many").unwrap().len(), 1005, "more than one page");
    bucket.delete("long").unwrap();
    bucket.delete("long").unwrap();
    assert!(!bucket.exists("long").unwrap());
}

#[test]
fn bucket_that_moto_does_not_have_is_said_to_be_missing() {
    let test = "bucket_that_moto_does_not_have_is_said_to_be_missing";
    let Some(moto) = Moto::start(test) else { return };
    let bucket = bucket(&moto, "s3://nowhere/prefix");
    assert_eq!(bucket.get("k").unwrap_err().cause, Cause::NoBucket);
    assert_eq!(bucket.exists("k").unwrap_err().cause, Cause::NoBucket);
    assert_eq!(bucket.list("packs").unwrap_err().cause, Cause::NoBucket);
    assert_eq!(bucket.put("k", &b"x"[..]).unwrap_err().cause, Cause::NoBucket);
    assert!(RemoteStore::connect(bucket, None).is_err());
}

/// Another machine has only the bucket: everything is found through it.
#[test]
fn what_one_handle_wrote_to_moto_another_reads() {
    let Some(moto) = Moto::start("what_one_handle_wrote_to_moto_another_reads") else { return };
    let key = RemoteKey::derive(&[4; 32]);
    let connect =
        || RemoteStore::connect(bucket(&moto, "s3://bucket/shared"), Some(key.clone())).unwrap();
    let (first, second) = (connect(), connect());
    let bytes = sample(1, 100_000);
    let id = ObjectId::of(&bytes);
    first.put(&id, &bytes).unwrap();
    assert!(second.get(&id).unwrap() == bytes);
    second.delete(&id).unwrap();
    assert!(!connect().exists(&id).unwrap());
}
