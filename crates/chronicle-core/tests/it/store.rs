//! The content store: the contract that all share, and what the local one promises beyond it.

use std::cell::Cell;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chronicle_core::{
    ContentStorage, Error, Intake, LARGE_OBJECT, LocalStore, MemoryStore, ObjectId, Row,
    unpack_object,
};
use chronicle_testing::contract::{self, sample};
use tempfile::TempDir;

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn store(&self) -> LocalStore {
        LocalStore::open(&self.path()).unwrap()
    }

    /// The names below a directory of the store.
    fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn only(&self, directory: &str, suffix: &str) -> PathBuf {
        let names = self.names(directory);
        let mut names = names.iter().filter(|name| name.ends_with(suffix));
        let name = names.next().unwrap();
        assert_eq!(names.next(), None);
        self.path().join(directory).join(name)
    }

    fn loose(&self, id: &ObjectId) -> PathBuf {
        self.path().join("objects").join(&id.hex()[..2]).join(id.hex())
    }
}

/// Takes in objects 0 to `count` of the samples and finishes.
fn take(store: &LocalStore, count: u64) -> Vec<Row> {
    let mut intake = store.intake().unwrap();
    (0..count).for_each(|number| take_one(&intake, number));
    intake.finish().unwrap()
}

fn take_one(intake: &Intake<'_>, number: u64) {
    let bytes = sample(number, 2000);
    assert_eq!(intake.take(&bytes).unwrap(), ObjectId::of(&bytes));
}

#[track_caller]
fn check_all(store: &dyn ContentStorage, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let bytes = sample(number, 2000);
        assert_eq!(store.get(&ObjectId::of(&bytes)).unwrap(), bytes);
    }
}

/// Never other bytes than the object's: damage that does not show is the only other outcome.
#[track_caller]
fn check_damaged(store: &LocalStore, id: &ObjectId, bytes: &[u8]) -> bool {
    let mut streamed = Vec::new();
    match store.reader(id).map(|mut reader| reader.read_to_end(&mut streamed)) {
        Ok(Ok(_)) => assert!(streamed == bytes),
        Ok(Err(error)) => assert_eq!(error.kind(), ErrorKind::InvalidData),
        Err(error) => assert!(matches!(error, Error::Corrupt { object, .. } if object == *id)),
    }
    match store.get(id) {
        Ok(read) => assert!(read == bytes),
        Err(Error::Corrupt { object, .. }) if object == *id => return true,
        Err(other) => panic!("expected a corrupt object, found {other:?}"),
    }
    false
}

/// Flips bits at many positions of the file, one at a time, and says how often that was noticed.
fn damage(path: &Path, step: usize, check: impl Fn() -> bool) -> (usize, usize) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let (mut noticed, mut tried) = (0, 0);
    for position in (0..length).step_by(step) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, position).unwrap();
        file.write_all_at(&[byte[0] ^ 0x55], position).unwrap();
        noticed += usize::from(check());
        tried += 1;
        file.write_all_at(&byte, position).unwrap();
    }
    (noticed, tried)
}

#[test]
fn every_store_keeps_the_contract() {
    let (home, count) = (Home::new(), Cell::new(0));
    contract::content_storage(|| {
        count.set(count.get() + 1);
        Box::new(LocalStore::open(&home.0.path().join(count.get().to_string())).unwrap())
    });
    contract::content_storage(|| Box::new(MemoryStore::new()));
}

#[test]
fn small_capture_rides_in_the_catalog() {
    let home = Home::new();
    let rows = take(&home.store(), 64);
    assert_eq!(rows.len(), 64);
    for (number, row) in (0..).zip(&rows) {
        assert_eq!(unpack_object(&row.id, &row.stored).unwrap(), sample(number, 2000));
    }
    assert!(home.names("packs").is_empty());
}

#[test]
fn large_capture_becomes_a_pack() {
    let home = Home::new();
    let store = home.store();
    assert_eq!(take(&store, 65), []);
    check_all(&store, 0..65);
    check_all(&home.store(), 0..65);
    assert_eq!(home.names("packs").len(), 2);

    let mut intake = store.intake().unwrap();
    intake.take(&sample(0, LARGE_OBJECT)).unwrap();
    assert_eq!(intake.finish().unwrap(), []);
    assert_eq!(home.names("packs").len(), 4);
    assert!(home.names("tmp").is_empty());
}

#[test]
fn object_is_taken_in_once() {
    let home = Home::new();
    let store = home.store();
    take(&store, 100);
    let large = sample(1, LARGE_OBJECT + 1);
    let mut intake = store.intake().unwrap();
    intake.take(&large).unwrap();
    assert_eq!(intake.finish().unwrap(), []);
    drop(intake);
    store.put(&ObjectId::of(b"single"), b"single").unwrap();
    let before = store.stored_bytes().unwrap();

    // Both a handle that has seen the pack and one that has not.
    for store in [store, home.store()] {
        let mut intake = store.intake().unwrap();
        (0..100).for_each(|number| take_one(&intake, number));
        intake.take(&large).unwrap();
        intake.take_stream(&mut large.as_slice()).unwrap();
        intake.take(b"single").unwrap();
        (0..10).for_each(|_| assert_eq!(intake.take(b"new").unwrap(), ObjectId::of(b"new")));
        let rows = intake.finish().unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [ObjectId::of(b"new")]);
        assert_eq!(store.stored_bytes().unwrap(), before);
    }
}

#[test]
fn many_threads_fill_one_intake() {
    let home = Home::new();
    let store = home.store();
    let mut intake = store.intake().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let intake = &intake;
            scope.spawn(move || {
                (0..3000).filter(|n| n % 4 == thread % 4).for_each(|n| take_one(intake, n));
            });
        }
    });
    assert_eq!(intake.finish().unwrap(), []);
    check_all(&home.store(), 0..3000);
    assert_eq!(home.names("packs").len(), 2);
}

#[test]
fn full_pack_is_followed_by_another() {
    let home = Home::new();
    let store = home.store();
    let mut intake = store.intake().unwrap();
    // As large as can be without being kept in pieces.
    let random = random(LARGE_OBJECT / 2);
    let object = |number: u8| {
        let mut bytes = random.clone();
        bytes[0] = number;
        bytes
    };
    for number in 0..132 {
        intake.take(&object(number)).unwrap();
    }
    intake.finish().unwrap();
    assert_eq!(home.names("packs").iter().filter(|name| name.ends_with(".pack")).count(), 2);
    for number in 0..132 {
        assert!(home.store().get(&ObjectId::of(&object(number))).unwrap() == object(number));
    }
}

/// Bytes that do not compress.
fn random(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state ^ state >> 29).to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

#[test]
fn another_handle_sees_what_the_first_wrote() {
    let home = Home::new();
    let (first, second) = (home.store(), home.store());
    assert!(!second.exists(&ObjectId::of(&sample(0, 2000))).unwrap());
    take(&first, 100);
    assert!(second.exists(&ObjectId::of(&sample(0, 2000))).unwrap());
    check_all(&second, 0..100);
    first.put(&ObjectId::of(b"later"), b"later").unwrap();
    assert_eq!(second.get(&ObjectId::of(b"later")).unwrap(), b"later");
}

#[test]
fn deleting_from_a_pack_keeps_the_others_for_every_handle() {
    let home = Home::new();
    let (first, second) = (home.store(), home.store());
    take(&first, 100);
    check_all(&second, 0..100);
    let gone: Vec<_> = (0..10).map(|number| ObjectId::of(&sample(number, 2000))).collect();
    first.delete_all(&gone).unwrap();
    assert!(gone.iter().all(|id| matches!(first.get(id), Err(Error::Missing(_)))));
    assert!(gone.iter().all(|id| matches!(home.store().get(id), Err(Error::Missing(_)))));
    check_all(&first, 10..100);
    check_all(&second, 10..100);
    assert_eq!(home.names("packs").len(), 2);

    let rest: Vec<_> = (10..100).map(|number| ObjectId::of(&sample(number, 2000))).collect();
    first.delete_all(&rest).unwrap();
    assert!(home.names("packs").is_empty());
}

#[test]
fn nothing_is_deleted_while_content_is_taken_in() {
    let home = Home::new();
    let store = home.store();
    let intake = store.intake().unwrap();
    assert!(matches!(store.delete(&ObjectId::of(b"x")), Err(Error::Busy(_))));
    drop(intake);
    store.delete(&ObjectId::of(b"x")).unwrap();
}

#[test]
fn damaged_pack_is_never_taken_for_content() {
    let home = Home::new();
    take(&home.store(), 65);
    let store = home.store();
    let objects: Vec<_> = (0..65).map(|number| sample(number, 2000)).collect();
    let pack = home.only("packs", ".pack");
    let (noticed, tried) = damage(&pack, 97, || {
        let damaged = |bytes: &Vec<u8>| check_damaged(&store, &ObjectId::of(bytes), bytes);
        objects.iter().filter(|bytes| damaged(bytes)).count() > 0
    });
    assert!(noticed * 10 > tried * 9, "{noticed} of {tried}");

    fs::OpenOptions::new().write(true).open(&pack).unwrap().set_len(100).unwrap();
    let last = objects.last().unwrap();
    assert!(check_damaged(&store, &ObjectId::of(last), last));
    fs::remove_file(&pack).unwrap();
    assert!(home.store().get(&ObjectId::of(last)).is_err());
}

#[test]
fn damaged_index_makes_nothing_missing() {
    let home = Home::new();
    take(&home.store(), 65);
    let bytes = sample(7, 2000);
    let index = home.only("packs", ".idx");
    let (noticed, tried) =
        damage(&index, 13, || check_damaged(&home.store(), &ObjectId::of(&bytes), &bytes));
    assert!(noticed > 0 && tried > 100);

    // What cannot be found any more can still be taken in again.
    fs::write(&index, b"").unwrap();
    let id = ObjectId::of(&bytes);
    assert!(home.store().get(&id).is_err());
    assert!(home.store().exists(&id).is_err());
    home.store().put(&id, &bytes).unwrap();
    assert_eq!(home.store().get(&id).unwrap(), bytes);
    assert_eq!(take(&home.store(), 10).len(), 9);
}

#[test]
fn damaged_single_object_is_never_taken_for_content() {
    let home = Home::new();
    let store = home.store();
    for bytes in [sample(1, 5000), sample(2, LARGE_OBJECT + 1)] {
        let id = ObjectId::of(&bytes);
        store.put(&id, &bytes).unwrap();
        let path = home.loose(&id);
        let step = fs::metadata(&path).unwrap().len() as usize / 40;
        let (noticed, tried) = damage(&path, step, || check_damaged(&store, &id, &bytes));
        assert!(noticed * 10 > tried * 9, "{noticed} of {tried}");

        fs::write(&path, b"\x01").unwrap();
        assert!(check_damaged(&store, &id, &bytes));
        store.put(&id, &bytes).unwrap();
        assert!(!check_damaged(&store, &id, &bytes), "a good copy replaces a damaged one");
    }
}

#[test]
fn dropped_intake_leaves_nothing() {
    let home = Home::new();
    let store = home.store();
    let intake = store.intake().unwrap();
    (0..1000).for_each(|number| take_one(&intake, number));
    assert_eq!(home.names("tmp").len(), 1);
    drop(intake);
    assert!(home.names("tmp").is_empty() && home.names("packs").is_empty());
    assert!(!store.exists(&ObjectId::of(&sample(0, 2000))).unwrap());
}

#[test]
fn leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not() {
    let home = Home::new();
    let store = home.store();
    fs::write(home.path().join("tmp/1-dead"), b"half").unwrap();
    fs::write(home.path().join("packs/dead.pack"), b"half").unwrap();
    let living = store.intake().unwrap();
    (0..100).for_each(|number| take_one(&living, number));
    assert!(!home.path().join("tmp/1-dead").exists());

    take(&home.store(), 100);
    assert_eq!(home.names("tmp").len(), 1, "the living one's");
    assert_eq!(home.names("packs").len(), 2);
    let mut living = living;
    living.finish().unwrap();
    drop(living);
    check_all(&home.store(), 0..100);
}

#[test]
fn nobody_else_may_read_the_store() {
    let home = Home::new();
    let store = home.store();
    take(&store, 100);
    let large = sample(1, LARGE_OBJECT + 1);
    store.put(&ObjectId::of(&large), &large).unwrap();
    let mut directories = vec![home.path()];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            } else {
                assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
                files += 1;
            }
        }
    }
    assert_eq!(files, 5, "format, lock, pack, index and a large object");
}

/// A filesystem with little space, unmounted at the end; `None` where mounting is not allowed.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=3m", "none"]).arg(directory.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn full_disk_is_said_and_leaves_nothing_half() {
    let Some(disk) = SmallDisk::new() else { return };
    let directory = disk.0.path().join("store");
    let store = LocalStore::open(&directory).unwrap();
    let random = random(LARGE_OBJECT);

    let mut intake = store.intake().unwrap();
    intake.take(&random[..1000]).unwrap();
    assert!(matches!(intake.take(&random), Err(Error::NoSpace(_))));
    assert!(matches!(intake.finish(), Err(Error::NoSpace(_))));
    drop(intake);
    let mut large = random.as_slice().chain(random.as_slice());
    assert!(matches!(store.put_stream(&mut large), Err(Error::NoSpace(_))));
    assert!(matches!(store.put(&ObjectId::of(&random), &random), Err(Error::NoSpace(_))));
    for name in ["tmp", "packs"] {
        assert_eq!(fs::read_dir(directory.join(name)).unwrap().count(), 0);
    }
    assert!(!store.exists(&ObjectId::of(&random)).unwrap());
    store.put(&ObjectId::of(b"room again"), b"room again").unwrap();
}
