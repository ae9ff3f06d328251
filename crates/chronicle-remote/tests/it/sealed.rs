//! A sealed place: what its owner sees, what nobody else sees, and what is noticed.

use chronicle_core::{ContentStorage, Error, ObjectId, pack_object};
use chronicle_remote::{Bucket, RemoteError, RemoteKey, RemoteStore};
use chronicle_testing::contract::sample;

use crate::server::Server;

fn key(number: u8) -> Option<RemoteKey> {
    Some(RemoteKey::derive(&[number; 32]))
}

fn store(bucket: &Bucket) -> RemoteStore {
    RemoteStore::connect(bucket.clone(), key(1)).unwrap()
}

/// Objects in one pack of several sealed pieces.
fn objects() -> Vec<Vec<u8>> {
    (0..40).map(|number| sample(number, 20_000)).collect()
}

fn write(store: &RemoteStore, objects: &[Vec<u8>]) {
    let mut writer = store.writer();
    for bytes in objects {
        writer.add(&ObjectId::of(bytes), &pack_object(bytes)).unwrap();
    }
    writer.finish().unwrap();
}

fn only(bucket: &Bucket, ending: &str) -> String {
    let keys = bucket.list("packs").unwrap().into_iter().map(|listed| listed.key);
    let keys: Vec<_> = keys.filter(|key| key.ends_with(ending)).collect();
    assert_eq!(keys.len(), 1);
    keys[0].clone()
}

fn code(error: &Error) -> &'static str {
    RemoteError::of(error).map_or("", RemoteError::code)
}

#[test]
fn every_object_is_read_from_the_pieces_that_have_it() {
    let server = Server::start();
    let bucket = server.bucket();
    write(&store(&bucket), &objects());
    let length = bucket.length(&only(&bucket, ".pack")).unwrap().unwrap();
    assert!(length > 3 * 65_536, "{length}");
    let store = store(&bucket);
    server.calm();
    for bytes in objects() {
        assert!(store.get(&ObjectId::of(&bytes)).unwrap() == bytes);
    }
    assert_eq!(server.seen().len(), 40, "one request each");
}

#[test]
fn place_is_opened_only_with_its_own_key() {
    let bucket = Bucket::memory().unwrap();
    let connect = |key| RemoteStore::connect(bucket.clone(), key);
    connect(key(1)).unwrap();
    connect(key(1)).unwrap();
    assert_eq!(code(&connect(key(2)).unwrap_err()), "remote_key");
    assert_eq!(code(&connect(None).unwrap_err()), "remote_key");
    let plain = Bucket::memory().unwrap();
    RemoteStore::connect(plain.clone(), None).unwrap();
    assert_eq!(code(&RemoteStore::connect(plain, key(1)).unwrap_err()), "remote_key");
}

#[test]
fn newer_place_is_not_touched() {
    let bucket = Bucket::memory().unwrap();
    bucket.put("format", &b"chronicle-remote 2\nplain\n"[..]).unwrap();
    let error = RemoteStore::connect(bucket.clone(), None).unwrap_err();
    assert_eq!(code(&error), "remote_newer_format");
    assert_eq!(bucket.get("format").unwrap(), b"chronicle-remote 2\nplain\n");
}

/// The owner of the bucket must not be able to confirm a guess: no content, no id, no plain hash.
#[test]
fn nothing_in_the_bucket_tells_what_is_in_it() {
    let (bucket, plain) = (Bucket::memory().unwrap(), Bucket::memory().unwrap());
    let bytes = b"a sentence that anybody could guess".to_vec();
    let id = ObjectId::of(&bytes);
    store(&bucket).put(&id, &bytes).unwrap();
    RemoteStore::connect(plain.clone(), None).unwrap().put(&id, &bytes).unwrap();
    let has = |bucket: &Bucket, needle: &[u8]| {
        let kept = bucket.list("packs").unwrap();
        let mut kept = kept.iter().map(|listed| bucket.get(&listed.key).unwrap());
        kept.any(|kept| kept.windows(needle.len()).any(|window| window == needle))
    };
    assert!(has(&plain, &bytes) && has(&plain, id.as_bytes()));
    assert!(!has(&bucket, &bytes) && !has(&bucket, id.as_bytes()));
    let sealed = bucket.get(&only(&bucket, ".pack")).unwrap();
    assert!(!only(&bucket, ".pack").contains(&ObjectId::of(&sealed).hex()), "the name is keyed");
}

/// What is done to the bytes of a pack.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn every_kind_of_damage_to_a_sealed_pack_is_noticed() {
    const HEAD: usize = 32;
    const PIECE: usize = 65_536 + 16;
    let bucket = Bucket::memory().unwrap();
    write(&store(&bucket), &objects());
    let pack = only(&bucket, ".pack");
    let good = bucket.get(&pack).unwrap();
    let swapped = |bytes: &mut Vec<u8>| {
        let (one, other) = bytes[HEAD..].split_at_mut(PIECE);
        one.swap_with_slice(&mut other[..PIECE]);
    };
    let flipped = |bytes: &mut Vec<u8>| bytes[HEAD + PIECE + 100] ^= 1;
    let repeated = |bytes: &mut Vec<u8>| bytes.copy_within(HEAD..HEAD + PIECE, HEAD + PIECE);
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(HEAD + PIECE);
    let damages: [(&str, Damage<'_>); 4] =
        [("swapped", &swapped), ("flipped", &flipped), ("repeated", &repeated), ("cut", &cut)];
    for (name, damage) in damages {
        let open = store(&bucket);
        let mut bytes = good.clone();
        damage(&mut bytes);
        bucket.put(&pack, bytes).unwrap();
        let mut noticed = 0;
        for bytes in objects() {
            match open.get(&ObjectId::of(&bytes)) {
                Ok(read) => assert!(read == bytes, "{name}"),
                Err(Error::Corrupt { .. }) => noticed += 1,
                Err(other) => panic!("{name}: {other}"),
            }
        }
        assert!(noticed > 0, "{name}");
        bucket.put(&pack, good.clone()).unwrap();
    }
}

#[test]
fn pack_or_index_of_another_name_is_noticed() {
    let bucket = Bucket::memory().unwrap();
    write(&store(&bucket), &objects()[..1]);
    let (first_pack, first_index) = (only(&bucket, ".pack"), only(&bucket, ".idx"));
    let good = [bucket.get(&first_pack).unwrap(), bucket.get(&first_index).unwrap()];
    let other = Bucket::memory().unwrap();
    write(&store(&other), &objects()[..1]);
    let id = ObjectId::of(&objects()[0]);

    // The same content, sealed with the same key at another time.
    bucket.put(&first_pack, other.get(&only(&other, ".pack")).unwrap()).unwrap();
    assert!(matches!(store(&bucket).get(&id), Err(Error::Corrupt { .. })));
    bucket.put(&first_pack, good[0].clone()).unwrap();
    bucket.put(&first_index, other.get(&only(&other, ".idx")).unwrap()).unwrap();
    assert!(matches!(store(&bucket).get(&id), Err(Error::Corrupt { .. })));
    bucket.put(&first_index, good[1].clone()).unwrap();
    assert!(store(&bucket).get(&id).is_ok());
}
