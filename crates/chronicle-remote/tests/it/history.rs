//! Histories into a bucket and out of it again: exactly, whatever was pruned, forgotten or exchanged.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use chronicle_core::{
    Clock, Error, Forgettable, Head, Home, InitOptions, Mirrored, ObjectId, Policy, RewindKind,
    RewindRequest, Stop, SystemClock, Time, TurnRequest, Workspace,
};
use chronicle_remote::{Bucket, Fetched, LogHead, PushOptions, Pushed, RemoteKey, RemoteStore};
use chronicle_testing::shared::setting;
use chronicle_testing::tree::{self, Tree};
use chronicle_testing::work::{Menu, Random};

/// A clock that goes on an hour whenever it is looked at, so that history grows old.
struct Days(AtomicI64);

impl Clock for Days {
    fn now(&self) -> Time {
        Time(self.0.fetch_add(3_600_000_000_000, Ordering::Relaxed))
    }
}

/// A machine with a home, and a workspace on it if it has one.
pub struct Machine {
    scratch: tempfile::TempDir,
    pub home: Home,
    id: [u8; 16],
}

impl Machine {
    pub fn new(number: u8) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::at(&scratch.path().join("home"));
        Self { scratch, home, id: [number; 16] }
    }

    pub fn root(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    pub fn init(&self) -> Workspace {
        std::fs::create_dir_all(self.root()).unwrap();
        let made = Workspace::init(&self.home, &self.root(), &InitOptions::default());
        let mut workspace = made.unwrap().0;
        workspace.set_clock(Box::new(Days(AtomicI64::new(SystemClock.now().0))));
        workspace
    }

    pub fn open(&self) -> Workspace {
        Workspace::open(&self.home, &self.root()).unwrap()
    }

    pub fn push(&self, store: &RemoteStore, workspace: &Workspace) -> Result<Pushed, Error> {
        store.push(
            workspace,
            &PushOptions {
                home: self.id,
                title: "work".to_owned(),
                time: SystemClock.now(),
                progress: &|_, _| {},
            },
        )
    }

    pub fn collect(&self, store: &RemoteStore) -> chronicle_remote::Collected {
        store.collect(self.id).unwrap()
    }

    /// Takes a history over as `chronicle clone` does.
    pub fn clone_from(&self, store: &RemoteStore, log: &LogHead) -> Workspace {
        std::fs::create_dir_all(self.root()).unwrap();
        assert!(!self.home.can_receive(log.workspace, &self.root()).unwrap());
        let Fetched { arrival, standing, missing, .. } =
            store.fetch(&self.home, log, &|_| Ok(false), &|_, _| {}).unwrap();
        assert_eq!(missing, [], "everything is there");
        let came = arrival.settle(&self.root(), standing.as_ref(), log.baseline).unwrap();
        assert_eq!(came, log.head);
        let mut workspace = Workspace::open_to_recreate(&self.home, &self.root()).unwrap();
        go_to(&mut workspace, came.seq.0, true);
        workspace
    }
}

fn go_to(workspace: &mut Workspace, seq: u64, recreate_root: bool) {
    let target = format!("seq:{seq}");
    let request = RewindRequest {
        exact: true,
        recreate_root,
        ..RewindRequest::new(RewindKind::Rewind { target })
    };
    let done = workspace.rewind(&request, &mut |_| true).unwrap();
    assert!(!done.partial, "{done:?}");
}

/// A store on the same bucket, as another process would have.
pub fn connect(bucket: &Bucket, key: Option<u8>) -> RemoteStore {
    let key = key.map(|byte| RemoteKey::derive(&[byte; 32]));
    RemoteStore::connect(bucket.clone(), key).unwrap()
}

/// One turn of random work; says which record is its last, and what stood there.
pub fn turn(workspace: &mut Workspace, random: &mut Random, steps: usize) -> (u64, Tree) {
    let request = TurnRequest { session: Some("s".to_owned()), ..TurnRequest::default() };
    workspace.turn_start(&request).unwrap();
    random.steps(steps);
    let ended = workspace.turn_end(&request).unwrap();
    (ended.end_seq.unwrap(), tree::describe(workspace.root()))
}

pub fn only_log(store: &RemoteStore) -> LogHead {
    let mut logs = store.logs(None).unwrap();
    assert_eq!(logs.len(), 1);
    logs.remove(0)
}

fn fill(root: &Path) {
    for number in 0..40 {
        let lines: String = (0..30).map(|n| format!("line {n} of {number}\n")).collect();
        std::fs::write(root.join(format!("start-{number}")), lines).unwrap();
    }
    let large: Vec<u8> = chronicle_testing::contract::sample(3, 5 << 20);
    std::fs::write(root.join("large.bin"), large).unwrap();
}

fn check_round_trip(seed: u64, key: Option<u8>) {
    let bucket = Bucket::memory().unwrap();
    let (lost, fresh) = (Machine::new(1), Machine::new(2));
    std::fs::create_dir_all(lost.root()).unwrap();
    fill(&lost.root());
    let mut workspace = lost.init();
    let mut random = Random::new(&lost.root(), seed, Menu::ALL);
    let store = connect(&bucket, key);
    let mut moments = Vec::new();
    for round in 0..5 {
        moments.push(turn(&mut workspace, &mut random, 12));
        if round % 2 == 0 {
            let pushed = lost.push(&store, &workspace).unwrap();
            assert_eq!((pushed.head.seq.0, pushed.missing.len()), (moments[round].0, 0));
        }
    }
    let again = lost.push(&connect(&bucket, key), &workspace).unwrap();
    assert_eq!((again.records, again.written.objects), (0, 0), "nothing is sent twice");
    let (_, now) = moments.last().unwrap();
    let head = workspace.position().unwrap().head;
    drop((workspace, lost));
    let store = connect(&bucket, key);
    let mut workspace = fresh.clone_from(&store, &only_log(&store));
    tree::assert_same(now, &tree::describe(&fresh.root()), "what came");
    assert_eq!(workspace.link_at(head.seq).unwrap(), head);
    workspace.verify(true, &|_, _| {}).unwrap();
    for (seq, then) in moments.iter().rev() {
        go_to(&mut workspace, *seq, false);
        tree::assert_same(then, &tree::describe(&fresh.root()), &format!("seed {seed}, {seq}"));
    }
    workspace.verify(true, &|_, _| {}).unwrap();
    // And it goes on: the new machine pushes a life of its own beside the old one.
    fresh.push(&store, &workspace).unwrap();
    assert_eq!(store.logs(None).unwrap().len(), 2);
}

#[test]
fn lost_machine_comes_back_from_the_bucket_alone() {
    for seed in 0..setting("CHRONICLE_SEEDS", 3) {
        check_round_trip(seed, None);
        check_round_trip(100 + seed, Some(7));
    }
}

pub fn strict() -> Policy {
    Policy {
        max_age_days: Some(1),
        max_snapshots: Some(2),
        turns: 1,
        hours: 0,
        days: 0,
        weeks: 0,
        min_age_hours: 0,
    }
}

/// Whatever takes history away at home takes it out of the bucket too.
#[test]
fn what_was_pruned_and_forgotten_leaves_the_bucket() {
    let bucket = Bucket::memory().unwrap();
    let (lost, fresh) = (Machine::new(1), Machine::new(2));
    let mut workspace = lost.init();
    let unique = b"known to one file alone, and to nobody for long";
    std::fs::write(lost.root().join("private"), unique).unwrap();
    let mut random = Random::new(&lost.root(), 5, Menu::APART);
    turn(&mut workspace, &mut random, 30);
    let store = connect(&bucket, None);
    lost.push(&store, &workspace).unwrap();
    let private = ObjectId::of(unique);
    assert!(store.is_known(&private));
    std::fs::remove_file(lost.root().join("private")).unwrap();
    (0..6).for_each(|_| drop(turn(&mut workspace, &mut random, 20)));
    let path = workspace.path(Path::new("private"), &lost.root()).unwrap();
    let what = Forgettable::Path { path, at: None };
    workspace.forget(&what, false, &mut |_| true).unwrap();
    let pruned = workspace.prune(&strict(), "test", false).unwrap();
    assert!(pruned.dropped_records > 0, "{pruned:?}");
    let (end, now) = turn(&mut workspace, &mut random, 5);
    let pushed = lost.push(&store, &workspace).unwrap();
    assert!(pushed.rewritten);
    assert_eq!(pushed.head.seq.0, end);
    // Doomed by the first, gone by the second.
    assert!(lost.collect(&store).doomed > 0);
    assert!(lost.collect(&store).packs > 0);
    let other = connect(&bucket, None);
    assert!(!other.is_known(&private));
    let everything = ["packs", "logs", "heads", "standing"].map(|part| bucket.list(part).unwrap());
    for listed in everything.into_iter().flatten() {
        let bytes = bucket.get(&listed.key).unwrap();
        let seen = bytes.windows(unique.len()).any(|window| window == unique);
        assert!(!seen, "{} still has it", listed.key);
    }
    drop(workspace);
    let workspace = fresh.clone_from(&other, &only_log(&other));
    tree::assert_same(&now, &tree::describe(&fresh.root()), "after the prune");
    workspace.verify(true, &|_, _| {}).unwrap();
}

/// What stands in the workspace and was last changed before everything that is left.
#[test]
fn what_no_record_tells_any_more_comes_along() {
    let bucket = Bucket::memory().unwrap();
    let (lost, fresh) = (Machine::new(1), Machine::new(2));
    std::fs::create_dir_all(lost.root().join("old")).unwrap();
    std::fs::write(lost.root().join("old/untouched"), "since the beginning").unwrap();
    let mut workspace = lost.init();
    let store = connect(&bucket, Some(1));
    std::fs::create_dir(lost.root().join("busy")).unwrap();
    let mut random = Random::new(&lost.root().join("busy"), 9, Menu::APART);
    lost.push(&store, &workspace).unwrap();
    (0..6).for_each(|_| drop(turn(&mut workspace, &mut random, 15)));
    let pruned = workspace.prune(&strict(), "test", false).unwrap();
    assert!(pruned.dropped_records > 0, "{pruned:?}");
    let now = tree::describe(&lost.root());
    lost.push(&store, &workspace).unwrap();
    let workspace = fresh.clone_from(&store, &only_log(&store));
    tree::assert_same(&now, &tree::describe(&fresh.root()), "after the drop");
    workspace.verify(true, &|_, _| {}).unwrap();
}

fn copy_home(from: &Machine, to: &Path) {
    let done =
        std::process::Command::new("cp").arg("-a").arg(from.home.path()).arg(to).status().unwrap();
    assert!(done.success());
}

/// A home that was put back to an older copy takes the rest over, and one that went on is refused.
#[test]
fn older_copy_catches_up_and_one_that_went_another_way_does_not() {
    let (bucket, machine) = (Bucket::memory().unwrap(), Machine::new(1));
    let mut workspace = machine.init();
    let mut random = Random::new(&machine.root(), 3, Menu::ALL);
    let store = connect(&bucket, None);
    turn(&mut workspace, &mut random, 20);
    machine.push(&store, &workspace).unwrap();
    let old = machine.home.path().with_file_name("old");
    copy_home(&machine, &old);
    let (end, now) = turn(&mut workspace, &mut random, 20);
    let pushed = machine.push(&store, &workspace).unwrap();
    drop(workspace);
    std::fs::remove_dir_all(machine.home.path()).unwrap();
    std::fs::rename(&old, machine.home.path()).unwrap();
    let mut workspace = machine.open();
    assert!(workspace.position().unwrap().head.seq.0 < end);
    let refused = machine.push(&store, &workspace).unwrap_err();
    assert!(matches!(refused, Error::Stopped(Stop::Diverged(_))), "{refused:?}");
    let log = only_log(&store);
    let has = |id: &ObjectId| workspace.has_content(id);
    let fetched = store.fetch(&machine.home, &log, &has, &|_, _| {}).unwrap();
    let came = workspace.catch_up(fetched.arrival, fetched.standing.as_ref()).unwrap();
    assert_eq!(came, pushed.head);
    workspace.verify(true, &|_, _| {}).unwrap();
    let settled = workspace.settle().unwrap();
    assert!(settled.problems.is_empty());
    go_to(&mut workspace, end, false);
    tree::assert_same(&now, &tree::describe(&machine.root()), "after catching up");
    // It has records of its own now, so that the old one does not go on from it.
    let fetched = store.fetch(&machine.home, &log, &|_| Ok(true), &|_, _| {}).unwrap();
    let refused = workspace.catch_up(fetched.arrival, None).unwrap_err();
    assert!(matches!(refused, Error::Moved { .. }), "{refused:?}");
    machine.push(&store, &workspace).unwrap();
    workspace.verify(true, &|_, _| {}).unwrap();
}

/// The key is exchanged while a history grows; the old one opens nothing any more.
#[test]
fn key_is_exchanged_and_everything_is_still_there() {
    let bucket = Bucket::memory().unwrap();
    let (lost, fresh) = (Machine::new(1), Machine::new(2));
    let mut workspace = lost.init();
    let mut random = Random::new(&lost.root(), 11, Menu::ALL);
    turn(&mut workspace, &mut random, 20);
    let store = connect(&bucket, Some(1));
    lost.push(&store, &workspace).unwrap();
    let before: Vec<_> = bucket.list("packs").unwrap();
    store.exchange_key(&RemoteKey::derive(&[2; 32])).unwrap();
    assert!(RemoteStore::connect(bucket.clone(), Some(RemoteKey::derive(&[1; 32]))).is_err());
    // Between the exchange and the writing anew, both are read.
    let between = connect(&bucket, Some(2));
    let log = only_log(&between);
    let reader = Machine::new(3);
    drop(reader.clone_from(&between, &log));
    let resealed = between.reseal(&|_, _| {}).unwrap();
    assert_eq!(resealed * 2, before.len() as u64);
    let (_, now) = turn(&mut workspace, &mut random, 10);
    lost.push(&between, &workspace).unwrap();
    assert_eq!(between.reseal(&|_, _| {}).unwrap(), 0);
    let after: Vec<_> = bucket.list("packs").unwrap();
    assert!(before.iter().all(|old| after.iter().all(|new| new.key != old.key)));
    let workspace = fresh.clone_from(&connect(&bucket, Some(2)), &only_log(&between));
    tree::assert_same(&now, &tree::describe(&fresh.root()), "with the new key");
    workspace.verify(true, &|_, _| {}).unwrap();
}

/// Content that the bucket has may go from here; whoever needs it gets it from there.
#[test]
fn what_was_taken_away_here_is_read_from_the_bucket() {
    let (bucket, machine) = (Bucket::memory().unwrap(), Machine::new(1));
    std::fs::create_dir_all(machine.root()).unwrap();
    fill(&machine.root());
    let mut workspace = machine.init();
    let mut random = Random::new(&machine.root(), 21, Menu::APART);
    let start = tree::describe(&machine.root());
    let baseline = workspace.position().unwrap().head.seq.0;
    for number in 0..40 {
        std::fs::write(machine.root().join(format!("start-{number}")), "other").unwrap();
    }
    std::fs::remove_file(machine.root().join("large.bin")).unwrap();
    turn(&mut workspace, &mut random, 5);
    let store = connect(&bucket, Some(4));
    let has = |id: &ObjectId| Ok(store.is_known(id));
    let pushed = machine.push(&store, &workspace).unwrap();
    // It is there, but for all that anybody here was told, only for somebody else.
    assert_eq!(machine.home.evict(u64::MAX, "place", &has).unwrap().objects_gone, 0);
    let (epoch, seq) = (workspace.position().unwrap().epoch.0, pushed.head.seq);
    let mirrored = Mirrored { place: "place".to_owned(), epoch, seq, ..Mirrored::default() };
    workspace.set_mirrored(&mirrored).unwrap();
    drop(workspace);
    let large = ObjectId::of(&chronicle_testing::contract::sample(3, 5 << 20));
    let report = machine.home.evict(u64::MAX, "place", &has).unwrap();
    assert!(report.freed_bytes > 1 << 20, "{report:?}");
    let alone = machine.open();
    assert!(!alone.has_content(&large).unwrap());
    let verified = alone.verify(true, &|_, _| {}).unwrap();
    assert!(verified.objects_away > 40, "told apart from what is lost: {verified:?}");
    drop(alone);
    let far = bucket.clone();
    let lazy = chronicle_remote::LazyStore::new(move || Ok(connect(&far, Some(4))));
    let home = machine.home.clone().before(std::sync::Arc::new(lazy));
    let mut workspace = Workspace::open(&home, &machine.root()).unwrap();
    go_to(&mut workspace, baseline, false);
    tree::assert_same(&start, &tree::describe(&machine.root()), "from the bucket");
    assert!(workspace.has_content(&large).unwrap(), "it is kept here again");
    workspace.verify(true, &|_, _| {}).unwrap();
    assert_eq!(workspace.verify(false, &|_, _| {}).unwrap().objects_away, 0);
}

/// Records that lie, in every way that a bucket could, are refused before they count.
#[test]
fn history_that_was_tampered_with_in_the_bucket_is_refused() {
    let bucket = Bucket::memory().unwrap();
    let machine = Machine::new(1);
    let mut workspace = machine.init();
    let mut random = Random::new(&machine.root(), 2, Menu::APART);
    turn(&mut workspace, &mut random, 10);
    let store = connect(&bucket, None);
    machine.push(&store, &workspace).unwrap();
    let log = only_log(&store);
    let segment = bucket.list("logs").unwrap().remove(0).key;
    let whole = bucket.get(&segment).unwrap();
    let victim = Machine::new(2);
    for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bucket.put(&segment, bytes).unwrap();
        let fetched = store.fetch(&victim.home, &log, &|_| Ok(false), &|_, _| {});
        assert!(fetched.is_err(), "at {at}");
    }
    bucket.put(&segment, whole).unwrap();
    assert!(store.fetch(&victim.home, &log, &|_| Ok(false), &|_, _| {}).is_ok());
    assert_eq!(Head::EMPTY.seq.0, 0);
}
