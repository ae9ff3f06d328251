//! The pool of copies: what it refuses, what others can do to it, and how it stays within its bound.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chronicle_core::{
    Cached, ContentStorage, Error, LARGE_OBJECT, MemoryStore, ObjectId, PooledCache,
};
use chronicle_testing::contract::sample;
use chronicle_testing::shared::is_root;
use tempfile::TempDir;

struct Pool {
    scratch: TempDir,
    cache: PooledCache,
}

impl Pool {
    fn new(bytes: u64) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let cache = PooledCache::at(&scratch.path().join("pool"), bytes);
        cache.prepare().unwrap();
        Self { scratch, cache }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("pool")
    }

    fn file(&self, id: &ObjectId) -> PathBuf {
        self.path().join(id.hex())
    }

    fn put(&self, bytes: &[u8]) -> ObjectId {
        let id = ObjectId::of(bytes);
        self.cache.put(&id, bytes).unwrap();
        id
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn check_refused(cache: &PooledCache, words: &str) {
    for refused in [cache.check(), cache.prepare(), cache.evict()] {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), "unsafe_pool", "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let id = ObjectId::of(b"x");
    assert_eq!(cache.put(&id, b"x").unwrap_err().code(), "unsafe_pool");
    assert_eq!(cache.get(&id).unwrap_err().code(), "unsafe_pool");
}

#[test]
fn directory_that_lets_others_in_is_refused() {
    let pool = Pool::new(1 << 20);
    for (mode, words) in [
        (0o777, "lets others in"),
        (0o1777, "lets others in"),
        (0o2775, "lets others in"),
        (0o701, "lets others in"),
        (0o770, "chmod g+s"),
        (0o3770, "chmod -t"),
    ] {
        set_mode(&pool.path(), mode);
        check_refused(&pool.cache, words);
        assert_eq!(pool.cache.delete(&ObjectId::of(b"x")).unwrap_err().code(), "unsafe_pool");
    }
    for mode in [0o700, 0o2770, 0o2750] {
        set_mode(&pool.path(), mode);
        pool.cache.check().unwrap();
    }
}

#[test]
fn link_file_and_foreign_directory_are_refused() {
    let pool = Pool::new(1 << 20);
    let at = |name: &str| pool.scratch.path().join(name);
    symlink(pool.path(), at("link")).unwrap();
    let link = PooledCache::at(&at("link"), 1 << 20);
    assert_eq!(link.check().unwrap_err().code(), "unsafe_pool");
    fs::write(at("file"), "").unwrap();
    assert!(PooledCache::at(&at("file"), 1 << 20).prepare().is_err());
    // Somebody's own directory does not become a pool, so that nothing of his is ever counted as old.
    fs::create_dir(at("full")).unwrap();
    set_mode(&at("full"), 0o700);
    fs::write(at("full/letter"), "dear").unwrap();
    check_refused(&PooledCache::at(&at("full"), 1 << 20), "not a pool");
    if is_root() {
        chown(pool.path(), Some(4242), None).unwrap();
        check_refused(&pool.cache, "another user");
    }
}

#[test]
fn copy_can_be_taken_away_whatever_became_of_the_mark() {
    let pool = Pool::new(1 << 20);
    let id = pool.put(b"content");
    fs::remove_file(pool.path().join("chronicle-pool")).unwrap();
    check_refused(&pool.cache, "not a pool");
    pool.cache.delete(&id).unwrap();
    assert!(!pool.file(&id).exists());
    fs::remove_dir(pool.path()).unwrap();
    pool.cache.delete(&id).unwrap();
    assert!(matches!(pool.cache.get(&id), Err(Error::Io { .. })), "unknown is not absent");
}

#[test]
fn files_are_for_the_group_only_where_the_directory_is() {
    let pool = Pool::new(1 << 20);
    let own = pool.put(b"own");
    assert_eq!(fs::metadata(pool.file(&own)).unwrap().mode() & 0o7777, 0o600);
    set_mode(&pool.path(), 0o2770);
    let shared = pool.put(b"shared");
    assert_eq!(fs::metadata(pool.file(&shared)).unwrap().mode() & 0o7777, 0o640);
}

/// What somebody puts where a copy should be.
type Deed<'d> = &'d dyn Fn(&Path);

/// Whatever lies under a name: the read is right, and nothing outside is touched or waited for.
#[test]
fn whatever_others_put_there_is_only_a_copy_less() {
    let pool = Pool::new(64 << 20);
    let store = Cached::unbounded(pool.cache.clone(), MemoryStore::new());
    let outside = pool.scratch.path().join("outside");
    let deeds: [(&str, Deed<'_>); 8] = [
        ("gone", &|_| ()),
        ("cut", &|file| fs::write(file, "short").unwrap()),
        ("emptied", &|file| fs::write(file, "").unwrap()),
        ("a link", &|file| symlink(&outside, file).unwrap()),
        ("a second name", &|file| fs::hard_link(&outside, file).unwrap()),
        ("a directory", &|file| fs::create_dir(file).unwrap()),
        ("a pipe", &make_pipe),
        ("huge", &|file| fs::File::create(file).unwrap().set_len(1 << 40).unwrap()),
    ];
    for (number, (what, deed)) in (0..).zip(deeds) {
        for length in [3000, LARGE_OBJECT + 9] {
            let bytes = sample(number, length);
            let id = ObjectId::of(&bytes);
            store.far().put(&id, &bytes).unwrap();
            // The right bytes behind a link are still no copy of ours.
            fs::write(&outside, &bytes[..length - 1]).unwrap();
            for streamed in [false, true] {
                let _ = fs::remove_file(pool.file(&id));
                deed(&pool.file(&id));
                let mut read = Vec::new();
                match streamed {
                    false => read = store.get(&id).unwrap(),
                    true => drop(store.reader(&id).unwrap().read_to_end(&mut read).unwrap()),
                }
                assert!(read == bytes, "{what}");
                assert!(store.get(&id).unwrap() == bytes, "{what}");
                assert_eq!(fs::read(&outside).unwrap().len(), length - 1, "{what}");
                let _ = fs::remove_dir(pool.file(&id));
            }
        }
    }
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn pool_stays_within_its_bound_and_the_oldest_go() {
    let pool = Pool::new(100 << 10);
    let old = pool.put(&sample(0, 8000));
    let day = Duration::from_secs(86_400);
    let touch = |path: &Path, time| {
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    touch(&pool.file(&old), SystemTime::UNIX_EPOCH + day);
    let future = pool.put(&sample(1, 8000));
    touch(&pool.file(&future), SystemTime::UNIX_EPOCH + 73_000 * day);
    fs::write(pool.path().join("tmp-left"), "by one who died").unwrap();
    touch(&pool.path().join("tmp-left"), SystemTime::UNIX_EPOCH + day);
    fs::write(pool.path().join("a-letter"), "not ours").unwrap();
    let huge = ObjectId::of(b"huge");
    fs::File::create(pool.file(&huge)).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(pool.cache.get(&huge), Err(Error::Missing(_))));
    let kept = pool.put(&sample(100, 8000));
    assert!(pool.cache.exists(&kept).unwrap() && !pool.file(&huge).exists());
    for number in 2..60 {
        pool.put(&sample(number, 8000));
        let bytes: u64 = fs::read_dir(pool.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512)
            .sum();
        assert!(bytes <= 112 << 10, "{bytes}");
    }
    for id in [old, future] {
        assert!(!pool.cache.exists(&id).unwrap());
    }
    let names = pool.names();
    assert!(!names.iter().any(|name| name == "tmp-left"), "{names:?}");
    assert!(names.iter().any(|name| name == "a-letter"), "{names:?}");
    assert!(pool.cache.exists(&ObjectId::of(&sample(59, 8000))).unwrap(), "the newest stays");
    let long = sample(99, (100 << 10) + 1);
    let refused = pool.cache.put(&ObjectId::of(&long), &long);
    assert!(matches!(refused, Err(Error::Io { .. })));
    assert!(!pool.names().iter().any(|name| name.starts_with("tmp-")), "nothing half is left");
}

/// Many at once, one of whom cuts, takes away and swaps whatever he finds.
#[test]
fn everybody_reads_what_is_right_while_one_destroys() {
    let pool = Pool::new(60 << 10);
    let far = MemoryStore::new();
    let contents: Vec<_> = (0..30).map(|number| sample(number, 5000)).collect();
    contents.iter().for_each(|bytes| far.put(&ObjectId::of(bytes), bytes).unwrap());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let destroyer = scope.spawn(|| {
            let mut round = 0;
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                for name in pool.names().iter().filter(|name| name.len() == 64) {
                    let path = pool.path().join(name);
                    round += 1;
                    match round % 4 {
                        0 => drop(fs::remove_file(&path)),
                        1 => {
                            drop(fs::File::options().write(true).open(&path).map(|f| f.set_len(9)))
                        }
                        2 => drop(fs::rename(&path, pool.path().join(ObjectId::of(b"x").hex()))),
                        _ => drop(fs::write(&path, "other")),
                    }
                }
            }
        });
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let store = Cached::unbounded(pool.cache.clone(), &far);
                    for bytes in contents.iter().cycle().take(600) {
                        assert!(store.get(&ObjectId::of(bytes)).unwrap() == *bytes);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        done.store(true, std::sync::atomic::Ordering::Release);
        destroyer.join().unwrap();
        assert!(ended.into_iter().all(|ended| ended.is_ok()));
    });
}
