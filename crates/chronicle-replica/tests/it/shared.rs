//! Several hosts on one log, with commits that fail before and after they happened: what was answered is there, for
//! every host, once; and contents are there before the record that names them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chronicle_core::replica::{Admission, Rejection, Rules, Verdict, Version, Write};
use chronicle_core::{
    ContentStorage, Entry, Error, Head, Log, MemoryLog, MemoryStore, ObjectId, Record, ReplicaId,
    Result, Sealed, Seq, WorkspaceId, WorkspacePath,
};
use chronicle_replica::shared::{Asked, SharedContents, SharedLog, Taken};
use chronicle_testing::dice::Dice;

const WORKSPACE: WorkspaceId = WorkspaceId([5; 16]);

/// A place that now and then does not take what it is given.
struct Place {
    store: MemoryStore,
    dice: Mutex<Dice>,
    trouble: usize,
}

impl SharedContents for Place {
    fn storage(&self) -> &dyn ContentStorage {
        &self.store
    }

    fn keep(&self, objects: &[(ObjectId, u64)], from: &dyn ContentStorage) -> Result<()> {
        if self.dice.lock().unwrap().chance(self.trouble) {
            return Err(Error::Busy("the bucket".to_owned()));
        }
        objects.iter().try_for_each(|(id, _)| self.store.put(id, &from.get(id)?))
    }
}

/// One log for several hosts, whose answers are lost now and then.
#[derive(Clone)]
struct Loose {
    log: Arc<Mutex<MemoryLog>>,
    dice: Arc<Mutex<Dice>>,
    place: Arc<Place>,
    trouble: usize,
}

impl Log for Loose {
    fn head(&self) -> Result<Head> {
        self.log.lock().unwrap().head()
    }

    fn commit(&mut self, records: Vec<Record>, expected: Head, key: Option<&[u8]>) -> Result<Head> {
        let lost = || Err(Error::Busy("the link".to_owned()));
        if self.dice.lock().unwrap().chance(self.trouble) {
            return lost();
        }
        for change in records.iter().flat_map(|record| &record.changes) {
            if let Entry::File(file) = &change.after {
                assert!(self.place.store.exists(&file.object)?, "a record before its content");
            }
        }
        let done = self.log.lock().unwrap().commit(records, expected, key)?;
        if self.dice.lock().unwrap().chance(self.trouble) { lost() } else { Ok(done) }
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Sealed>> {
        self.log.lock().unwrap().read(after, limit)
    }
}

struct World {
    log: Loose,
    dice: Dice,
}

impl World {
    fn new(seed: u64, trouble: usize) -> Self {
        let dice = Mutex::new(Dice::new(seed + 1));
        let place = Arc::new(Place { store: MemoryStore::default(), dice, trouble });
        let dice = Arc::new(Mutex::new(Dice::new(seed + 2)));
        let log = Loose { log: Arc::default(), dice, place, trouble };
        Self { log, dice: Dice::new(seed) }
    }

    fn host(&self) -> SharedLog {
        for _ in 0..50 {
            let (log, place) = (Box::new(self.log.clone()), Arc::clone(&self.log.place));
            if let Ok(host) = SharedLog::open(WORKSPACE, log, place, true) {
                return host;
            }
        }
        panic!("the log never opened");
    }
}

fn path(name: &str) -> WorkspacePath {
    WorkspacePath::new(name.as_bytes()).unwrap()
}

fn file(content: &[u8]) -> Version {
    let (object, size) = (ObjectId::of(content), content.len() as u64);
    Version::File { object, size, mode: 0o644, mtime_ns: 7 }
}

fn write(name: &str, base: Version, after: Version) -> Write {
    Write { path: path(name), base, after, seen: Seq(0), group: 0 }
}

fn allow(_: &WorkspacePath, _: bool) -> Admission {
    Admission::Allowed
}

fn take(
    host: &mut SharedLog,
    replica: u8,
    batch: u64,
    writes: &[Write],
    given: &MemoryStore,
) -> Result<Taken> {
    let rules = Rules { admit: &allow, folds: false };
    let replica = ReplicaId([replica; 16]);
    host.take(&Asked { replica, name: "sandbox", batch, writes, rules }, given)
}

#[test]
fn a_batch_is_answered_again_by_another_host() {
    let world = World::new(1, 0);
    let (mut a, mut b) = (world.host(), world.host());
    let given = MemoryStore::default();
    given.put(&ObjectId::of(b"one"), b"one").unwrap();
    let writes =
        [write("f", Version::Absent, file(b"one")), write("g", file(b"other"), file(b"one"))];
    let answer = take(&mut a, 1, 1, &writes, &given).unwrap();
    let rejected = Verdict::Rejected {
        reason: Rejection::Changed,
        theirs: Some(Version::Absent),
        seq: Seq(2),
    };
    assert_eq!(answer, Taken::Answered(vec![Verdict::Accepted(Seq(2)), rejected]));
    assert_eq!(take(&mut b, 1, 1, &writes, &MemoryStore::default()).unwrap(), answer);
    assert_eq!(b.place().seq, Seq(2), "nothing was committed again");
    // Other writes under that number are of a copy of before.
    assert_eq!(take(&mut b, 1, 1, &writes[..1], &given).unwrap(), Taken::Renumber(1));
    assert_eq!(a.hashed(&|_, _| true).digest(), b.hashed(&|_, _| true).digest());
    // Who is somewhere in between is told what came since.
    let items = b.changes(Some(Seq(1)), &|_, _| true).unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(b.changes(Some(Seq(2)), &|_, _| true), Some(vec![]));
}

#[test]
fn a_log_that_lost_what_was_read_is_refused() {
    let world = World::new(1, 0);
    let mut host = world.host();
    let given = MemoryStore::default();
    given.put(&ObjectId::of(b"one"), b"one").unwrap();
    let writes = [write("f", Version::Absent, file(b"one"))];
    take(&mut host, 1, 1, &writes, &given).unwrap();
    *world.log.log.lock().unwrap() = MemoryLog::default();
    assert!(matches!(host.read_on(), Err(Error::Tampered { .. })));
    world.host();
    assert!(matches!(host.read_on(), Err(Error::Tampered { .. })));
}

/// What a sandbox of the random world has done.
#[derive(Default)]
struct Sandbox {
    batch: u64,
    under_way: Option<Vec<Write>>,
}

fn random_writes(world: &mut World, host: &SharedLog, given: &MemoryStore) -> Vec<Write> {
    let count = world.dice.between(1, 4);
    let mut writes = Vec::new();
    for _ in 0..count {
        let directory = format!("d{}", world.dice.below(3));
        let name = format!("{directory}/f{}", world.dice.below(4));
        let text = format!("{}", world.dice.roll());
        given.put(&ObjectId::of(text.as_bytes()), text.as_bytes()).unwrap();
        // What the writer believes is what some host showed, which may be old by now.
        let at = |name: &str| host.at(&path(name)).unwrap();
        let (base, above) = (at(&name), at(&directory));
        if above == Version::Absent {
            writes.push(write(&directory, above, Version::Directory { mode: 0o755 }));
        }
        let after = if world.dice.chance(25) { Version::Absent } else { file(text.as_bytes()) };
        writes.push(write(&name, base, after));
    }
    writes
}

#[test]
fn hosts_with_lost_answers_agree_and_keep_what_they_answered() {
    for seed in 0..40 {
        let mut world = World::new(seed, 15);
        let given = MemoryStore::default();
        let mut hosts: Vec<SharedLog> = (0..3).map(|_| world.host()).collect();
        let mut sandboxes: Vec<Sandbox> = (0..4).map(|_| Sandbox::default()).collect();
        let mut accepted: BTreeMap<Seq, Vec<(WorkspacePath, Version)>> = BTreeMap::new();
        for _ in 0..120 {
            let (which, at) = (world.dice.below(4), world.dice.below(3));
            if world.dice.chance(5) {
                // A host dies, and another comes in its place.
                hosts[at] = world.host();
            }
            if sandboxes[which].under_way.is_none() {
                let writes = random_writes(&mut world, &hosts[at], &given);
                sandboxes[which].under_way = Some(writes);
                sandboxes[which].batch += 1;
            }
            let sandbox = &mut sandboxes[which];
            let writes = sandbox.under_way.clone().unwrap();
            let number = u8::try_from(which).unwrap();
            match take(&mut hosts[at], number, sandbox.batch, &writes, &given) {
                Ok(Taken::Answered(verdicts)) => {
                    for (write, verdict) in writes.iter().zip(verdicts) {
                        if let Verdict::Accepted(seq) = verdict {
                            let what = (write.path.clone(), write.after.clone());
                            accepted.entry(seq).or_default().push(what);
                        }
                    }
                    sandbox.under_way = None;
                }
                Ok(Taken::Renumber(last)) => panic!("seed {seed}: batch {last} was its own"),
                Err(Error::Busy(_)) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        check(seed, &world, &mut hosts, &accepted);
    }
}

/// Every host shows the same tree, and the log tells at its record everything that was accepted.
fn check(
    seed: u64,
    world: &World,
    hosts: &mut [SharedLog],
    accepted: &BTreeMap<Seq, Vec<(WorkspacePath, Version)>>,
) {
    for host in hosts.iter_mut() {
        host.read_on().unwrap();
    }
    let digests: Vec<_> = hosts.iter().map(|host| host.hashed(&|_, _| true).digest()).collect();
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: hosts differ");
    let mut head = Head::EMPTY;
    let mut tree: BTreeMap<WorkspacePath, Version> = BTreeMap::new();
    let mut at: BTreeMap<Seq, BTreeMap<WorkspacePath, Version>> = BTreeMap::new();
    for sealed in world.log.read(Seq(0), usize::MAX).unwrap() {
        let record = chronicle_core::open_next(&sealed, head).unwrap();
        head = Head { seq: sealed.seq, link: sealed.link };
        for change in record.changes {
            tree.insert(change.path, Version::of(&change.after).unwrap());
        }
        at.insert(sealed.seq, tree.clone());
    }
    let mut taken = 0;
    for (seq, writes) in accepted {
        let mut last: BTreeMap<&WorkspacePath, &Version> = BTreeMap::new();
        last.extend(writes.iter().map(|(path, after)| (path, after)));
        for (path, after) in last {
            let stood = at[seq].get(path).cloned().unwrap_or(Version::Absent);
            assert!(
                stood.same_value(after),
                "seed {seed}: {path} was accepted at {seq} and is not there"
            );
            taken += 1;
        }
    }
    assert!(taken > 20, "seed {seed}: only {taken} writes were accepted");
}
