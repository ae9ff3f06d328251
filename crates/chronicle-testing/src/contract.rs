//! Suites that every implementation of a trait must pass.

use std::io::{ErrorKind, Read};

use chronicle_core::{ContentStorage, Error, LARGE_OBJECT, ObjectId};

/// What every content store promises; `make` gives a new, empty one each time.
pub fn content_storage(make: impl Fn() -> Box<dyn ContentStorage>) {
    what_was_put_is_there(&*make());
    what_was_not_put_is_missing(&*make());
    bytes_of_another_name_are_refused(&*make());
    deleted_is_gone_and_may_come_back(&*make());
    stream_is_kept_whole(&*make());
    failing_source_leaves_nothing(&*make());
    many_threads_put_the_same_and_different_things(&*make());
}

/// Bytes that compress about as well as source code, different for each seed.
pub fn sample(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(length + 24);
    while bytes.len() < length {
        let word = next();
        let count = if word % 4 == 0 { 8 } else { 3 };
        bytes.extend_from_slice(&word.to_le_bytes()[..count]);
        bytes.extend_from_slice(&b"let value = input.next()?;  "[..(word >> 32) as usize % 28]);
    }
    bytes.truncate(length);
    bytes
}

fn put(store: &dyn ContentStorage, bytes: &[u8]) -> ObjectId {
    let id = ObjectId::of(bytes);
    store.put(&id, bytes).expect("put");
    id
}

fn read(store: &dyn ContentStorage, id: &ObjectId) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.reader(id).expect("reader").read_to_end(&mut bytes).expect("read");
    bytes
}

fn what_was_put_is_there(store: &dyn ContentStorage) {
    for length in [0, 1, 100, 8 << 10, LARGE_OBJECT, LARGE_OBJECT + 1] {
        let bytes = sample(length as u64, length);
        let id = put(store, &bytes);
        assert!(store.exists(&id).expect("exists"));
        assert_eq!(store.get(&id).expect("get"), bytes);
        assert_eq!(read(store, &id), bytes);
        assert_eq!(put(store, &bytes), id, "putting twice is putting once");
    }
}

fn what_was_not_put_is_missing(store: &dyn ContentStorage) {
    put(store, b"something else");
    let id = ObjectId::of(b"never put");
    assert!(!store.exists(&id).expect("exists"));
    assert!(matches!(store.get(&id), Err(Error::Missing(missing)) if missing == id));
    assert!(matches!(store.reader(&id).err(), Some(Error::Missing(missing)) if missing == id));
    store.delete(&id).expect("deleting what is not there");
}

fn bytes_of_another_name_are_refused(store: &dyn ContentStorage) {
    let id = ObjectId::of(b"this");
    for bytes in [&b"that"[..], b"", &sample(1, LARGE_OBJECT + 1)] {
        let refused = store.put(&id, bytes);
        assert!(matches!(refused, Err(Error::Corrupt { object, .. }) if object == id));
        assert!(!store.exists(&id).expect("exists"));
        assert!(!store.exists(&ObjectId::of(bytes)).expect("exists"));
    }
}

fn deleted_is_gone_and_may_come_back(store: &dyn ContentStorage) {
    for bytes in [b"small".to_vec(), sample(2, LARGE_OBJECT + 1)] {
        let (id, kept) = (put(store, &bytes), put(store, b"kept"));
        store.delete(&id).expect("delete");
        assert!(!store.exists(&id).expect("exists"));
        assert!(matches!(store.get(&id), Err(Error::Missing(_))));
        assert_eq!(store.get(&kept).expect("get"), b"kept");
        put(store, &bytes);
        assert_eq!(store.get(&id).expect("get"), bytes);
    }
}

fn stream_is_kept_whole(store: &dyn ContentStorage) {
    for length in [0, 1000, LARGE_OBJECT, 20 << 20] {
        let bytes = sample(3, length);
        let (id, count) = store.put_stream(&mut Dribble(&bytes)).expect("put");
        assert_eq!((id, count), (ObjectId::of(&bytes), length as u64));
        assert_eq!(store.put_stream(&mut bytes.as_slice()).expect("again").0, id);
        assert!(read(store, &id) == bytes);
        assert!(store.get(&id).expect("get") == bytes);
    }
}

fn failing_source_leaves_nothing(store: &dyn ContentStorage) {
    for length in [1000, LARGE_OBJECT + 1000] {
        let bytes = sample(4, length);
        let mut source = bytes.chain(Failing);
        assert!(matches!(store.put_stream(&mut source), Err(Error::Io { .. })));
        assert!(!store.exists(&ObjectId::of(&bytes)).expect("exists"));
    }
}

fn many_threads_put_the_same_and_different_things(store: &dyn ContentStorage) {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for number in 0..20 {
                    let own = put(store, &sample(1000 * thread + number, 3000));
                    let shared = put(store, &sample(number, 2000));
                    assert_eq!(store.get(&own).expect("own").len(), 3000);
                    assert_eq!(store.get(&shared).expect("shared"), sample(number, 2000));
                }
            });
        }
    });
}

/// Gives uneven pieces, as pipes do.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = if self.0.len() % 3 == 1 { 1 } else { 70_001 };
        let count = piece.min(self.0.len()).min(buffer.len());
        self.0.read(&mut buffer[..count])
    }
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(ErrorKind::ConnectionReset.into())
    }
}
