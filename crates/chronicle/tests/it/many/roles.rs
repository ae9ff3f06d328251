//! What each process of the crowd does, until it is done or killed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use chronicle_core::{
    Clock, Error, Home, ObjectId, Policy, Result, RewindKind, RewindRequest, SnapshotRequest, Time,
    Workspace, WorkspacePath,
};
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::setting;
use chronicle_testing::tree::{Tree, describe};

use crate::support::Cli;

const DAY_NS: i64 = 86_400_000_000_000;
/// What the clock of the crowd goes on by with each snapshot: eighty a day.
const TICK_NS: i64 = DAY_NS / 80;
/// How long ago the crowd begins to work, by its own clock.
const DAYS_AGO: i64 = 400;
/// How long one waits that finds the workspace busy again and again.
const PATIENCE: Duration = Duration::from_secs(300);
/// What is larger than what lies in a pack.
const LARGE: usize = (4 << 20) + 4096;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Role {
    /// Announces and writes, in a directory of its own.
    Worker(usize),
    /// Changes a directory and takes that back, again and again.
    Rewinder,
    /// Drops what is older than the rules keep.
    Pruner,
    /// Collects garbage.
    Collector,
    /// Reads everything back, which must be whole at any time.
    Verifier,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(number) => write!(f, "{number}"),
            Self::Rewinder => f.write_str("rewinder"),
            Self::Pruner => f.write_str("pruner"),
            Self::Collector => f.write_str("collector"),
            Self::Verifier => f.write_str("verifier"),
        }
    }
}

impl Role {
    pub(super) fn all(workers: usize) -> Vec<Self> {
        let others = [Self::Rewinder, Self::Pruner, Self::Collector, Self::Verifier];
        (0..workers).map(Self::Worker).chain(others).collect()
    }

    pub(super) fn parse(text: &str) -> Self {
        match text {
            "rewinder" => Self::Rewinder,
            "pruner" => Self::Pruner,
            "collector" => Self::Collector,
            "verifier" => Self::Verifier,
            number => Self::Worker(number.parse().unwrap()),
        }
    }

    pub(super) fn play(self, place: &Place) {
        match self {
            Self::Worker(number) => append(place, number),
            Self::Rewinder => take_back(place),
            Self::Pruner => prune(place),
            Self::Collector => collect(place),
            Self::Verifier => verify(place),
        }
    }
}

/// Where the crowd works.
#[derive(Debug, Clone)]
pub(super) struct Place {
    home: PathBuf,
    root: PathBuf,
    /// What the processes tell each other and the test: acknowledgements, the time, when to stop.
    pub(super) notes: PathBuf,
}

const VARIABLES: [&str; 3] = ["CHRONICLE_MANY_HOME", "CHRONICLE_MANY_ROOT", "CHRONICLE_MANY_NOTES"];

/// A snapshot that was acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Acknowledged {
    pub(super) id: String,
    pub(super) seq: u64,
    /// When, by the crowd's clock.
    pub(super) time: i64,
    pub(super) path: String,
    /// The hash of what stood at the path, if anything did.
    pub(super) before: Option<String>,
}

impl Place {
    pub(super) fn of(cli: &Cli, seed: u64) -> Self {
        let notes = cli.home().with_file_name("notes");
        fs::create_dir_all(notes.join("acknowledged")).unwrap();
        fs::write(notes.join("ticks"), "").unwrap();
        fs::write(notes.join("seed"), seed.to_string()).unwrap();
        Self { home: cli.home(), root: cli.root(), notes }
    }

    pub(super) fn from_env() -> Self {
        let [home, root, notes] =
            VARIABLES.map(|name| PathBuf::from(std::env::var_os(name).unwrap()));
        Self { home, root, notes }
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        VARIABLES.into_iter().zip([&*self.home, &*self.root, &*self.notes])
    }

    pub(super) fn home(&self) -> Home {
        Home::at(&self.home).signed_with(super::key())
    }

    /// The workspace, with the crowd's clock.
    pub(super) fn open(&self) -> Result<Workspace> {
        let mut workspace = Workspace::open(&self.home(), &self.root)?;
        workspace.set_clock(Box::new(Ticks::of(self)));
        Ok(workspace)
    }

    fn is_stopped(&self) -> bool {
        self.notes.join("stop").exists()
    }

    fn seed(&self) -> u64 {
        fs::read_to_string(self.notes.join("seed")).unwrap().parse().unwrap()
    }

    fn list(&self, role: Role) -> PathBuf {
        self.notes.join("acknowledged").join(role.to_string())
    }

    /// What a worker was told is recorded.
    pub(super) fn acknowledged(&self, role: Role) -> Vec<Acknowledged> {
        let text = fs::read_to_string(self.list(role)).unwrap_or_default();
        text.lines().map(Acknowledged::parse).collect()
    }

    /// Why a process ended that was not killed.
    pub(super) fn story(&self, role: Role, status: ExitStatus) -> String {
        let said = fs::read_to_string(self.notes.join(format!("{role}.stderr")));
        format!("{role} ended with {status}:\n{}", said.unwrap_or_default())
    }
}

impl Acknowledged {
    fn line(&self) -> String {
        let Self { id, seq, time, path, before } = self;
        format!("{id} {seq} {time} {path} {}\n", before.as_deref().unwrap_or("-"))
    }

    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        let [id, seq, time, path, before] = words[..] else { panic!("{line}") };
        Self {
            id: id.to_owned(),
            seq: seq.parse().unwrap(),
            time: time.parse().unwrap(),
            path: path.to_owned(),
            before: (before != "-").then(|| before.to_owned()),
        }
    }
}

/// A clock that all processes share and that goes on with the work, however fast that is.
struct Ticks {
    file: File,
    start: i64,
}

impl Ticks {
    fn of(place: &Place) -> Self {
        let path = place.notes.join("ticks");
        let made = fs::metadata(place.notes.join("seed")).unwrap().modified().unwrap();
        let made = made.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let start = i64::try_from(made).unwrap() - DAYS_AGO * DAY_NS;
        Self { file: OpenOptions::new().append(true).read(true).open(path).unwrap(), start }
    }

    fn tick(&self) {
        (&self.file).write_all(b".").unwrap();
    }
}

impl Clock for Ticks {
    fn now(&self) -> Time {
        let ticks = i64::try_from(self.file.metadata().unwrap().len()).unwrap();
        Time(self.start + ticks * TICK_NS)
    }
}

/// Does something until the workspace is not busy.
fn patiently<T>(mut what: impl FnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match what() {
            Err(Error::Busy(_)) if begun.elapsed() < PATIENCE => {}
            done => return done,
        }
    }
}

/// Announces, notes that this was acknowledged, and writes; until it has done so often enough.
fn append(place: &Place, number: usize) {
    let clock = Ticks::of(place);
    let mut workspace = patiently(|| place.open()).unwrap();
    let rounds = usize::try_from(setting("CHRONICLE_MANY_ROUNDS", 200)).unwrap();
    let begun = place.acknowledged(Role::Worker(number)).len();
    let mut list = OpenOptions::new()
        .append(true)
        .create(true)
        .open(place.list(Role::Worker(number)))
        .unwrap();
    let mut dice = Dice::new(place.seed() << 32 | (number * 1000 + begun) as u64);
    for round in begun..rounds {
        clock.tick();
        let path = format!("work/{number}/{}", dice.below(5));
        let before = fs::read(place.root.join(&path)).ok().map(|bytes| ObjectId::of(&bytes).hex());
        let request = SnapshotRequest {
            action: "write_file".to_owned(),
            paths: vec![WorkspacePath::new(&*path).unwrap()],
            // Not one session for all: what belongs to one that is at work is never pruned.
            session: Some(format!("{number}-{}", round / 5)),
            ..SnapshotRequest::default()
        };
        let snapshot = patiently(|| workspace.snapshot(&request)).unwrap();
        let (id, seq, time) = (snapshot.id, snapshot.seq, clock.now().0);
        let acknowledged = Acknowledged { id, seq, time, path: path.clone(), before };
        list.write_all(acknowledged.line().as_bytes()).unwrap();
        write(&place.root.join(path), &mut dice, number, round);
        if round % 8 == 7 {
            patiently(|| workspace.settle()).unwrap();
        }
    }
}

/// Writes a file as anybody would: not atomically. Now and then one that lies outside every pack, and
/// now and then enough small ones for a pack.
fn write(path: &Path, dice: &mut Dice, number: usize, round: usize) {
    let directory = path.parent().unwrap();
    fs::create_dir_all(directory).unwrap();
    let length =
        if number.is_multiple_of(8) && round % 50 == 49 { LARGE } else { dice.below(3000) };
    fs::write(path, dice.bytes(length)).unwrap();
    if number % 8 == 1 && round % 40 == 39 {
        for name in 0..80 {
            fs::write(directory.join(format!("small{name}")), dice.bytes(60)).unwrap();
        }
    }
}

fn prune(place: &Place) {
    let mut workspace = patiently(|| place.open()).unwrap();
    let policy = Policy { max_age_days: Some(40), ..Policy::default() };
    while !place.is_stopped() {
        patiently(|| workspace.prune(&policy, "the crowd", false)).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
    }
}

fn collect(place: &Place) {
    while !place.is_stopped() {
        patiently(|| place.home().collect_garbage(&|_, _| ())).unwrap();
        std::thread::sleep(Duration::from_millis(800));
    }
}

fn verify(place: &Place) {
    let workspace = patiently(|| place.open()).unwrap();
    while !place.is_stopped() {
        patiently(|| workspace.verify(true, &|_, _| ())).unwrap();
        std::thread::sleep(Duration::from_millis(2500));
    }
}

/// Changes a directory of its own and takes that back: what stands there is then what stood there.
fn take_back(place: &Place) {
    let expected = place.notes.join("expected");
    let mut workspace = patiently(|| place.open()).unwrap();
    let shared = place.root.join("shared");
    if let Ok(trees) = fs::read_to_string(&expected) {
        // The one before was killed while it took back: now it is done, or it never was.
        must_become(place, &shared, &trees);
        fs::remove_file(&expected).unwrap();
    }
    let mut dice = Dice::new(place.seed() ^ u64::from(std::process::id()));
    while !place.is_stopped() {
        patiently(|| workspace.settle()).unwrap();
        let first = describe(&shared);
        let request = SnapshotRequest {
            action: "shell".to_owned(),
            paths: vec![WorkspacePath::new("shared").unwrap()],
            session: Some(format!("rewinder-{}", dice.roll())),
            ..SnapshotRequest::default()
        };
        let target = patiently(|| workspace.snapshot(&request)).unwrap().id;
        shuffle(&shared, &mut dice);
        patiently(|| workspace.settle()).unwrap();
        let second = describe(&shared);
        fs::write(&expected, format!("{}\0{}", words(&first), words(&second))).unwrap();
        let rewind = RewindRequest {
            paths: vec![WorkspacePath::new("shared").unwrap()],
            exact: true,
            ..RewindRequest::new(RewindKind::Rewind { target })
        };
        patiently(|| workspace.rewind(&rewind, &mut |_| true)).unwrap();
        chronicle_testing::tree::assert_same(&first, &describe(&shared), "taken back");
        fs::remove_file(&expected).unwrap();
    }
}

fn words(tree: &Tree) -> String {
    format!("{tree:?}")
}

/// Any process that opens the workspace finishes what was interrupted.
fn must_become(place: &Place, shared: &Path, trees: &str) {
    let begun = Instant::now();
    loop {
        let now = words(&describe(shared));
        if trees.split('\0').any(|tree| tree == now) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "half taken back:\n{now}\nneither of\n{trees}");
        patiently(|| place.open()).unwrap();
    }
}

/// Changes, makes, moves and removes some of few names.
fn shuffle(directory: &Path, dice: &mut Dice) {
    for _ in 0..dice.between(1, 6) {
        let path = directory.join(dice.below(8).to_string());
        match dice.below(4) {
            0 => drop(fs::remove_file(path)),
            1 => drop(fs::rename(path, directory.join(dice.below(8).to_string()))),
            _ => fs::write(path, dice.bytes(dice.clone().below(500))).unwrap(),
        }
    }
}
