//! Dropping old history: whatever is kept is reached exactly, and nothing else is claimed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chronicle_core::{
    Clock, Error, Home, InitOptions, Policy, RewindKind, RewindRequest, SnapshotRequest, Time,
    TurnRequest, Workspace, WorkspacePath,
};

const HOUR: i64 = 3_600_000_000_000;

/// A clock that is turned by hand.
#[derive(Clone)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

impl Hands {
    fn turn(&self, hours: i64) {
        self.0.fetch_add(hours * HOUR, Ordering::Relaxed);
    }
}

type Tree = BTreeMap<String, Vec<u8>>;

struct Scene {
    _scratch: tempfile::TempDir,
    home: Home,
    workspace: Workspace,
    clock: Hands,
    random: u64,
    /// What stood there just after a record.
    trees: Vec<(u64, Tree)>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("work");
        std::fs::create_dir(&root).unwrap();
        for n in 0..6 {
            std::fs::write(root.join(format!("f{n}")), format!("at the beginning {n}\n")).unwrap();
        }
        let home = Home::at(&scratch.path().join("home"));
        let (mut workspace, _) = Workspace::init(&home, &root, &InitOptions::default()).unwrap();
        let clock = Hands(Arc::new(AtomicI64::new(1_700_000_000_000_000_000)));
        workspace.set_clock(Box::new(clock.clone()));
        let trees = Vec::new();
        Self { _scratch: scratch, home, workspace, clock, random: seed, trees }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % bound
    }

    fn root(&self) -> &Path {
        self.workspace.root()
    }

    /// Writes, deletes or moves something.
    fn change(&mut self) {
        let [path, to] = [(); 2].map(|()| format!("f{}", self.below(8)));
        let [path, to] = [path, to].map(|name| self.root().join(name));
        // Long enough that versions are kept against each other.
        let body: String =
            (0..60).map(|n| format!("line {n} says {}\n", n * 7919 % 1009)).collect();
        let content = format!("content {}\n{body}", self.below(1000));
        match self.below(10) {
            0 => drop(std::fs::remove_file(&path)),
            1 => drop(std::fs::rename(&path, to)),
            _ => std::fs::write(&path, content).unwrap(),
        }
    }

    fn turn(&mut self, session: &str) {
        let key = format!("k{}", self.random);
        let request = TurnRequest {
            key: Some(key),
            session: Some(session.to_owned()),
            ..TurnRequest::default()
        };
        self.workspace.turn_start(&request).unwrap();
        for _ in 0..=self.below(4) {
            let name = format!("f{}", self.below(8));
            let snapshot = SnapshotRequest {
                action: "write_file".to_owned(),
                paths: vec![WorkspacePath::new(name.as_str()).unwrap()],
                session: Some(session.to_owned()),
                ..SnapshotRequest::default()
            };
            self.workspace.snapshot(&snapshot).unwrap();
            self.change();
            self.settle();
        }
        self.workspace.turn_end(&request).unwrap();
        self.note();
    }

    fn settle(&mut self) {
        self.workspace.settle().unwrap();
        self.note();
    }

    fn note(&mut self) {
        let head = self.workspace.history_size().unwrap().records;
        self.trees.push((head, tree(self.workspace.root())));
    }

    fn live(&mut self, days: i64) {
        for third in 0..days * 3 {
            let session = format!("s{}-{}", third / 4, self.below(2));
            self.turn(&session);
            if self.below(3) == 0 {
                self.change();
                self.settle();
            }
            if self.below(12) == 0 {
                self.rewind("before:turn:-1", false).unwrap();
                self.note();
            }
            self.clock.turn(8);
        }
    }

    fn rewind(&mut self, target: &str, exact: bool) -> Result<(), Error> {
        let kind = RewindKind::Rewind { target: target.to_owned() };
        let request = RewindRequest {
            exact,
            on_conflict: chronicle_core::OnConflict::Replace,
            take_shared: true,
            ..RewindRequest::new(kind)
        };
        self.workspace.rewind(&request, &mut |_| true).map(drop)
    }

    /// Goes to every moment that was noted; what is not refused must be exact.
    fn check_all(&mut self) -> (usize, usize) {
        let (mut reached, mut refused) = (0, 0);
        for (seq, expected) in self.trees.clone().into_iter().rev().step_by(3) {
            match self.rewind(&format!("seq:{seq}"), true) {
                Ok(()) => {
                    assert_eq!(tree(self.workspace.root()), expected, "at record {seq}");
                    reached += 1;
                }
                Err(Error::Pruned { nearest, .. }) => {
                    assert!(!nearest.is_empty());
                    refused += 1;
                }
                Err(error) => panic!("record {seq}: {error}"),
            }
        }
        (reached, refused)
    }
}

fn tree(root: &Path) -> Tree {
    let entries = std::fs::read_dir(root).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// One history in a plain run, more where many cases are asked for.
fn seeds() -> u64 {
    let cases = std::env::var("CHRONICLE_CASES").ok().and_then(|cases| cases.parse::<u64>().ok());
    cases.map_or(1, |cases| (cases / 500).max(1))
}

fn policy() -> Policy {
    Policy { turns: 6, ..Policy::default() }
}

#[test]
fn every_kept_moment_is_reached_exactly() {
    for seed in 0..seeds() {
        let mut scene = Scene::new(seed);
        scene.live(36);
        let dry = scene.workspace.prune(&policy(), "test", true).unwrap();
        let report = scene.workspace.prune(&policy(), "test", false).unwrap();
        assert!(report.dropped_records > 0 && report.merged_records > 0, "{report:?}");
        assert_eq!(dry.words(), report.words());
        let swept = scene.home.collect_garbage(&|_, _| ()).unwrap();
        assert!(swept.objects_gone > 0, "{swept:?}");
        scene.workspace.verify(true, &|_, _| ()).unwrap();
        let (reached, refused) = scene.check_all();
        assert!(reached > 8 && refused > 8, "{reached} reached, {refused} refused");
        // Again with what the merged history became after more of it.
        scene.live(8);
        scene.workspace.prune(&policy(), "test", false).unwrap();
        scene.home.collect_garbage(&|_, _| ()).unwrap();
        scene.workspace.verify(true, &|_, _| ()).unwrap();
        let (reached_later, _) = scene.check_all();
        assert!(reached_later > 8);
    }
}

#[test]
fn a_pinned_moment_outlives_every_limit() {
    let mut scene = Scene::new(9);
    scene.live(3);
    let (seq, expected) = scene.trees[7].clone();
    scene.workspace.pin(&format!("seq:{seq}"), "good").unwrap();
    scene.live(34);
    let policy = Policy { max_snapshots: Some(10), turns: 1, ..Policy::default() };
    scene.workspace.prune(&policy, "test", false).unwrap();
    scene.home.collect_garbage(&|_, _| ()).unwrap();
    scene.rewind("good", true).unwrap();
    assert_eq!(tree(scene.root()), expected);
    scene.workspace.verify(true, &|_, _| ()).unwrap();
}

#[test]
fn a_file_that_never_changed_is_found_after_its_record_is_gone() {
    let mut scene = Scene::new(1);
    std::fs::write(scene.root().join("quiet"), "a needle\n").unwrap();
    scene.settle();
    scene.live(34);
    let report = scene.workspace.prune(&policy(), "test", false).unwrap();
    scene.home.collect_garbage(&|_, _| ()).unwrap();
    let found = scene.workspace.grep("needle", None).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].present);
    let mut out = Vec::new();
    let path = WorkspacePath::new("quiet").unwrap();
    let target = format!("seq:{}", report.oldest_kept_seq);
    scene.workspace.cat(&path, Some(&target), &mut out).unwrap();
    assert_eq!(out, b"a needle\n");
    assert!(matches!(
        scene.workspace.cat(&path, Some("start"), &mut out),
        Err(Error::Pruned { .. })
    ));
}

/// A workspace without turns had no status, no difference and no answer to `changed` any more once its
/// beginning was pruned: they began at a moment that was gone.
#[test]
fn without_turns_what_changed_is_told_from_the_oldest_moment_that_is_left() {
    let mut scene = Scene::new(4);
    for _ in 0..100 {
        scene.clock.turn(12);
        scene.change();
        scene.settle();
    }
    let report = scene.workspace.prune(&policy(), "test", false).unwrap();
    assert!(report.dropped_records > 0, "{report:?}");
    let oldest = format!("seq:{}", report.oldest_kept_seq);
    scene.workspace.status().unwrap();
    let from = |from| chronicle_core::DiffRequest { from, ..Default::default() };
    let told = scene.workspace.diff(&from(None)).unwrap();
    let asked = scene.workspace.diff(&from(Some(oldest))).unwrap();
    assert!(told.files_changed > 0);
    assert_eq!(told.files_changed, asked.files_changed);
    assert!(scene.workspace.changed(None).unwrap());
}

/// Verification met records whose content a prune beside it had just let go, and called that damage.
#[test]
fn a_prune_beside_verification_is_not_taken_for_damage() {
    let mut scene = Scene::new(6);
    for number in 0..8 {
        // Longer than what lies in the catalog, where it would be read as of one moment.
        let content = format!("{number}").repeat((4 << 20) + 1);
        std::fs::write(scene.root().join("large"), content).unwrap();
        scene.settle();
    }
    scene.live(34);
    let pruned = std::sync::Once::new();
    let (home, root, clock) = (&scene.home, scene.root().to_owned(), &scene.clock);
    let prune = || {
        let mut beside = Workspace::open(home, &root).unwrap();
        beside.set_clock(Box::new(clock.clone()));
        let report = beside.prune(&policy(), "test", false).unwrap();
        assert!(report.dropped_records > 0);
        assert!(home.collect_garbage(&|_, _| ()).unwrap().objects_gone > 6);
    };
    scene.workspace.verify(true, &|_, _| pruned.call_once(prune)).unwrap();
    assert!(pruned.is_completed());
}
