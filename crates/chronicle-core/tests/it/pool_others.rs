//! A pool and other processes: of other users, killed in the middle, or with system calls that fail.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::SystemTime;

use chronicle_core::{Cached, ContentStorage, Error, MemoryStore, ObjectId, PooledCache, Result};
use chronicle_testing::contract::sample;
use chronicle_testing::shared::{is_root, skip};
use chronicle_testing::strace;
use tempfile::TempDir;

const BYTES: u64 = 64 << 10;
const GROUP: u32 = 5555;
const ONE: u32 = 5001;
const OTHER: u32 = 5002;
const OUTSIDER: u32 = 5003;

const DONE: i32 = 0;
const MISSING: i32 = 12;
const CORRUPT: i32 = 13;
const UNSAFE: i32 = 14;
const FAILED: i32 = 15;

/// Not a test: what another process does here, if it is asked to.
#[test]
#[allow(clippy::disallowed_methods, reason = "how it ends is all that whoever asked gets to know")]
fn act() {
    let Ok(deed) = std::env::var("POOL_DEED") else { return };
    let pool = PooledCache::at(Path::new(&std::env::var("POOL").unwrap()), BYTES);
    let content = sample(1, 9000);
    let id = ObjectId::of(&content);
    let done: Result<()> = match deed.as_str() {
        "put" => pool.put(&id, &content),
        "get" => pool.get(&id).map(|read| assert!(read == content)),
        "evict" => pool.evict(),
        "write into it" => fs::write(file(&pool_path(), &id), "poison").map_err(refused),
        "swap it" => fs::write(pool_path().join("mine"), "poison")
            .and_then(|()| fs::rename(pool_path().join("mine"), file(&pool_path(), &id)))
            .map_err(refused),
        "look" => fs::read_dir(pool_path()).map(|_| ()).map_err(refused),
        other => panic!("{other}"),
    };
    std::process::exit(match done {
        Ok(()) => DONE,
        Err(Error::Missing(_)) => MISSING,
        Err(Error::Corrupt { .. }) => CORRUPT,
        Err(Error::Pool { .. }) => UNSAFE,
        Err(_) => FAILED,
    });
}

fn refused(source: std::io::Error) -> Error {
    Error::Io { action: "touch", path: PathBuf::new(), source }
}

fn pool_path() -> PathBuf {
    PathBuf::from(std::env::var("POOL").unwrap())
}

fn file(pool: &Path, id: &ObjectId) -> PathBuf {
    pool.join(id.hex())
}

/// A pool in a place that everybody can get to, with the test's own program beside it.
struct World {
    scratch: TempDir,
}

impl World {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        let world = Self { scratch };
        world.pool().prepare().unwrap();
        world
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("pool")
    }

    fn pool(&self) -> PooledCache {
        PooledCache::at(&self.path(), BYTES)
    }

    fn command(&self, deed: &str) -> Command {
        self.with_program(Command::new(std::env::current_exe().unwrap()), deed)
    }

    fn with_program(&self, mut command: Command, deed: &str) -> Command {
        command.args(["--exact", "pool_others::act"]).env("POOL_DEED", deed);
        command.env("POOL", self.path()).current_dir("/");
        command
    }

    /// How it ends when a user of some groups does it.
    fn by(&self, user: u32, group: Option<u32>, deed: &str) -> i32 {
        let program = self.scratch.path().join("program");
        if !program.exists() {
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        match group {
            Some(group) => command.arg(format!("--groups={group}")),
            None => command.arg("--clear-groups"),
        };
        command.arg(program);
        self.with_program(command, deed).output().unwrap().status.code().unwrap()
    }

    fn set(&self, owner: u32, mode: u32) {
        chown(self.path(), Some(owner), Some(GROUP)).unwrap();
        chown(self.path().join("chronicle-pool"), Some(owner), Some(GROUP)).unwrap();
        let mark = Permissions::from_mode(0o640);
        fs::set_permissions(self.path().join("chronicle-pool"), mark).unwrap();
        fs::set_permissions(self.path(), Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn users_of_a_group_share_and_cannot_harm_one_another() {
    if !is_root()
        || !Command::new("setpriv").arg("--version").output().is_ok_and(|o| o.status.success())
    {
        return skip(
            "users_of_a_group_share_and_cannot_harm_one_another",
            "not root, or no setpriv",
        );
    }
    let world = World::new();
    world.set(0, 0o2770);
    let id = ObjectId::of(&sample(1, 9000));
    let (one, other) =
        (|deed| world.by(ONE, Some(GROUP), deed), |deed| world.by(OTHER, Some(GROUP), deed));
    assert_eq!((other("get"), one("put"), other("get"), one("get")), (MISSING, DONE, DONE, DONE));
    let stat = fs::metadata(file(&world.path(), &id)).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (ONE, GROUP, 0o640));

    assert_eq!(other("write into it"), FAILED, "another's file");
    assert_eq!(other("swap it"), DONE, "a cache may be spoiled");
    assert_eq!((one("get"), other("get")), (CORRUPT, CORRUPT), "and nobody reads that");
    assert_eq!((one("put"), other("get")), (DONE, DONE), "and anybody puts it right");

    let outsider = |deed| world.by(OUTSIDER, None, deed);
    assert_eq!((outsider("look"), outsider("get"), outsider("put")), (FAILED, FAILED, FAILED));

    // Whoever owns the directory could let others in at any time: nobody follows him.
    world.set(ONE, 0o2770);
    assert_eq!((one("get"), other("get"), other("put")), (DONE, UNSAFE, UNSAFE));
    assert_eq!(world.pool().check().unwrap_err().code(), "unsafe_pool", "not even root");
    world.set(0, 0o2775);
    assert_eq!((one("put"), other("get")), (UNSAFE, UNSAFE));
}

/// What is read through the pool afterwards is right, and it can be used on.
fn must_be_sound(world: &World, what: &str) {
    let far = MemoryStore::new();
    let contents: Vec<_> = (0..4).map(|number| sample(number, 9000)).collect();
    let store = Cached::unbounded(world.pool(), far);
    for bytes in &contents {
        let id = ObjectId::of(bytes);
        store.far().put(&id, bytes).unwrap();
        assert!(store.get(&id).unwrap() == *bytes, "{what}");
        assert!(world.pool().get(&id).unwrap() == *bytes, "{what}");
    }
    for entry in fs::read_dir(world.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("tmp-") {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
    world.pool().evict().unwrap();
    let left = fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_str().unwrap().starts_with("tmp-")).collect();
    assert!(left.is_empty(), "{what}: {left:?}");
}

fn killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// Needs the feature `failpoints`, without which nobody dies.
#[test]
fn process_that_dies_leaves_a_pool_that_can_be_used() {
    if !cfg!(feature = "failpoints") {
        return;
    }
    let world = World::new();
    let mut put = world.command("put");
    assert!(killed(put.env("CHRONICLE_FAILPOINT", "pool_before_rename").output().unwrap().status));
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 2, "the mark and what is half done");
    must_be_sound(&world, "killed before the rename");
    for times in 1..4 {
        let world = World::new();
        for number in 10..30 {
            let bytes = sample(number, 9000);
            fs::write(file(&world.path(), &ObjectId::of(&bytes)), bytes).unwrap();
        }
        let mut evict = world.command("evict");
        evict.env("CHRONICLE_FAILPOINT", format!("pool_in_eviction:{times}"));
        assert!(killed(evict.output().unwrap().status));
        must_be_sound(&world, "killed while it took away");
    }
}

#[test]
fn calls_that_fail_leave_a_pool_that_can_be_used() {
    if !strace::is_there() {
        return skip("calls_that_fail_leave_a_pool_that_can_be_used", "strace cannot trace here");
    }
    let (mut hit, id) = (0, ObjectId::of(&sample(1, 9000)));
    let in_pool = ["openat", "renameat", "unlinkat", "flock", "getdents64", "fstat"];
    let calls =
        in_pool.map(|call| (call, true)).into_iter().chain([("write", false), ("fchmod", false)]);
    for (call, only_pool) in calls {
        for (when, error) in (1..6).zip(["EIO", "ENOSPC", "EDQUOT", "EIO", "EACCES"]) {
            let world = World::new();
            let log = world.scratch.path().join("trace");
            let mut command = Command::new("strace");
            command.args(["-f", "-qq", "-e", &format!("trace={call}"), "-o"]).arg(&log);
            command.args(["-e", &format!("inject={call}:error={error}:when={when}")]);
            if only_pool {
                command.arg("-P").arg(world.path());
            }
            command.arg(std::env::current_exe().unwrap());
            let mut command = world.with_program(command, "put");
            command.output().unwrap();
            hit += usize::from(fs::read_to_string(&log).unwrap().contains("(INJECTED)"));
            match world.pool().get(&id) {
                Ok(read) => assert!(read == sample(1, 9000), "{call}"),
                Err(found) => assert!(matches!(found, Error::Missing(_)), "{call} {when}: {found}"),
            }
            must_be_sound(&world, &format!("{call} {when} {error}"));
        }
    }
    assert!(hit > 10, "{hit}");
}
