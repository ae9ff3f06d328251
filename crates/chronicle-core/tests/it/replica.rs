//! A host and its replicas on real directories, without a link between them: what one gives the other takes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use chronicle_core::replica::{Admission, Item, Place, Rejection, Verdict, WhyLeft};
use chronicle_core::{
    Answer, Clock, ContentStorage, Home, InitOptions, MemoryStore, Policy, PushLimits, PushReport,
    Resolution, Seq, Time, Workspace, WorkspacePath, WriteBack,
};
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::setting;
use chronicle_testing::work::{Menu, Random};

const LIMITS: PushLimits = PushLimits { items: 1000, bytes: 1 << 20, content: 0 };

/// A clock that is days ahead.
struct Ahead(i64);

impl Clock for Ahead {
    fn now(&self) -> Time {
        Time(chronicle_core::SystemClock.now().0 + self.0 * 86_400_000_000_000)
    }
}

/// Keeps as little as can be.
const LITTLE: Policy = Policy {
    max_age_days: Some(1),
    max_snapshots: Some(1),
    min_age_hours: 0,
    turns: 0,
    hours: 0,
    days: 0,
    weeks: 0,
};

fn everything(_: &WorkspacePath, _: bool) -> bool {
    true
}

fn allowed(_: &WorkspacePath, _: bool) -> Admission {
    Admission::Allowed
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

/// One machine: a workspace with a home of its own.
pub(crate) struct Machine {
    pub(crate) root: PathBuf,
    pub(crate) workspace: Workspace,
}

impl Machine {
    pub(crate) fn new(scratch: &Path, name: &str, files: &[(&str, &str)]) -> Self {
        let root = scratch.join(name);
        fs::create_dir(&root).unwrap();
        for (path, text) in files {
            write(&root, path, text);
        }
        let home = Home::at(&scratch.join(format!("{name}.home")));
        let (workspace, _) = Workspace::init(&home, &root, &InitOptions::default()).unwrap();
        Self { root, workspace }
    }

    fn open(scratch: &Path, name: &str) -> Self {
        let root = scratch.join(name);
        let home = Home::at(&scratch.join(format!("{name}.home")));
        let workspace = Workspace::open(&home, &root).unwrap();
        Self { root, workspace }
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        write(&self.root, path, text);
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.root.join(path)).unwrap();
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        self.workspace.tree_for_replica(&everything).unwrap().digest()
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A host and some replicas.
pub(crate) struct World {
    _scratch: Option<tempfile::TempDir>,
    pub(crate) top: PathBuf,
    pub(crate) host: Machine,
    pub(crate) replicas: Vec<Machine>,
}

impl World {
    pub(crate) fn new(count: usize, files: &[(&str, &str)]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let world = Self::at(scratch.path(), count, files);
        Self { _scratch: Some(scratch), ..world }
    }

    /// A new one in a directory.
    pub(crate) fn at(top: &Path, count: usize, files: &[(&str, &str)]) -> Self {
        let host = Machine::new(top, "host", files);
        let replica = |number| {
            let mut machine = Machine::new(top, &format!("replica{number}"), &[]);
            let (of, name) = (host.workspace.id(), format!("box{number}"));
            machine.workspace.become_replica(of, "socket", &name).unwrap();
            machine
        };
        let replicas = (0..count).map(replica).collect();
        let mut world = Self { _scratch: None, top: top.to_owned(), host, replicas };
        (0..count).for_each(|number| world.push_all(number));
        world
    }

    /// The same world, as another process finds it.
    pub(crate) fn open(top: &Path, count: usize) -> Self {
        let replicas = (0..count).map(|number| Machine::open(top, &format!("replica{number}")));
        let (host, replicas) = (Machine::open(top, "host"), replicas.collect());
        Self { _scratch: None, top: top.to_owned(), host, replicas }
    }

    /// One push to a replica; `None` if there is nothing to push.
    pub(crate) fn push(&mut self, number: usize, limits: PushLimits) -> Option<PushReport> {
        let replica = &mut self.replicas[number].workspace;
        let applied = replica.replica_state().unwrap().unwrap().applied;
        let after = applied.map_or(Seq(0), |place| place.seq);
        let head = self.host.workspace.replica_place().unwrap().head;
        if applied == Some(head) {
            return None;
        }
        let changes =
            self.host.workspace.changes_for_replica(after, limits, &everything).unwrap().unwrap();
        let contents = self.host.workspace.replica_contents().unwrap();
        Some(replica.apply_push(&changes.items, changes.to, contents, false).unwrap())
    }

    pub(crate) fn push_all(&mut self, number: usize) {
        self.host.workspace.settle().unwrap();
        while self.push(number, LIMITS).is_some() {}
    }

    /// Sends what a replica wrote; `None` if it wrote nothing.
    pub(crate) fn send(&mut self, number: usize, limit: usize) -> Option<Answer> {
        let batch = self.replicas[number].workspace.journal_batch(limit, &everything).unwrap()?;
        Some(self.deliver(number, batch.number, &batch.writes))
    }

    fn deliver(
        &mut self,
        number: usize,
        batch: u64,
        writes: &[chronicle_core::replica::Write],
    ) -> Answer {
        let replica = &self.replicas[number].workspace;
        let state = replica.replica_state().unwrap().unwrap();
        let request = WriteBack {
            replica: state.id,
            name: &state.name,
            batch,
            writes,
            admit: &allowed,
            folds: false,
        };
        self.host.workspace.take_writes(&request, replica.replica_contents().unwrap()).unwrap()
    }

    pub(crate) fn send_all(&mut self, number: usize) -> Vec<Verdict> {
        self.replicas[number].workspace.settle().unwrap();
        let mut verdicts = Vec::new();
        while let Some(answer) = self.send(number, 100) {
            self.answer(number, &answer);
            verdicts.extend(answer.verdicts);
        }
        verdicts
    }

    pub(crate) fn answer(&mut self, number: usize, answer: &Answer) -> chronicle_core::Answered {
        let contents = self.host.workspace.replica_contents().unwrap();
        let replica = &mut self.replicas[number].workspace;
        replica.answered(answer.batch, &answer.verdicts, contents).unwrap()
    }

    /// Both directions, until nothing is left to tell.
    pub(crate) fn settle(&mut self) {
        for _ in 0..8 {
            for number in 0..self.replicas.len() {
                self.send_all(number);
                self.push_all(number);
            }
        }
    }

    #[track_caller]
    pub(crate) fn assert_equal(&mut self, what: &str) {
        let host = self.host.digest();
        for number in 0..self.replicas.len() {
            if self.replicas[number].digest() != host {
                panic!("{what}: replica {number} differs:\n{}", self.differences(number));
            }
        }
        for machine in [&mut self.host].into_iter().chain(&mut self.replicas) {
            let settled = machine.workspace.settle().unwrap();
            assert_eq!(settled.changes, 0, "{what}: something was not recorded");
            let staging = fs::read_dir(&machine.root).unwrap();
            let staging = staging.filter_map(|item| item.unwrap().file_name().into_string().ok());
            let left: Vec<_> = staging.filter(|name| name.contains("staging")).collect();
            assert!(left.is_empty(), "{what}: {left:?} was left");
        }
    }

    fn differences(&self, number: usize) -> String {
        let list = |machine: &Machine| {
            let command = "find . -path ./.git -prune -o -printf '%P %y %m %l ' \\( -type f -exec md5sum {} + -o -printf '\\n' \\) | sort";
            let mut listed = std::process::Command::new("sh");
            let listed = listed.args(["-c", command]).current_dir(&machine.root).output().unwrap();
            String::from_utf8_lossy(&listed.stdout).into_owned()
        };
        format!("{}---\n{}", list(&self.host), list(&self.replicas[number]))
    }
}

#[test]
fn a_new_replica_is_filled_and_then_told_of_changes() {
    let mut world = World::new(2, &[("a.txt", "1\n"), ("d/b.txt", "2\n")]);
    assert_eq!(world.replicas[0].read("d/b.txt").as_deref(), Some("2\n"));
    world.host.write("d/b.txt", "3\n");
    world.host.write("e/f/c.sh", "x\n");
    fs::set_permissions(world.host.root.join("e/f/c.sh"), fs::Permissions::from_mode(0o755))
        .unwrap();
    world.host.remove("a.txt");
    std::os::unix::fs::symlink("c.sh", world.host.root.join("e/f/link")).unwrap();
    (0..2).for_each(|number| world.push_all(number));
    world.assert_equal("after changes");
    let replica = &world.replicas[1];
    assert_eq!(replica.read("a.txt"), None);
    assert_eq!(fs::read_link(replica.root.join("e/f/link")).unwrap(), Path::new("c.sh"));
    let mode = fs::metadata(replica.root.join("e/f/c.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert!(world.send_all(0).is_empty(), "what was pushed is no work of the replica");
}

/// Somebody wrote to a file that a push had just put there, before the push looked at what it had made: that was taken
/// for the host's work, and never sent. What is not what was put there is somebody else's.
#[test]
fn what_is_written_over_a_push_before_it_is_recorded_is_the_writers() {
    let mut world = World::new(1, &[("here.txt", "1\n")]);
    for number in 0..400 {
        world.host.write(&format!("{number:03}.txt"), "pushed\n");
    }
    let place = world.replicas[0].root.join("000.txt");
    let writer = std::thread::spawn(move || {
        while fs::read_to_string(&place).ok().as_deref() != Some("pushed\n") {
            std::hint::spin_loop();
        }
        fs::write(&place, "theirs\n").unwrap();
    });
    world.push_all(0);
    writer.join().unwrap();
    let verdicts = world.send_all(0);
    assert!(matches!(verdicts[..], [Verdict::Accepted(_)]), "{verdicts:?}");
    assert_eq!(world.host.read("000.txt").as_deref(), Some("theirs\n"));
    world.settle();
    world.assert_equal("after somebody was quick");
}

#[test]
fn what_a_replica_writes_reaches_the_host_and_the_others() {
    let mut world = World::new(2, &[("a.txt", "1\n")]);
    world.replicas[0].write("a.txt", "2\n");
    world.replicas[0].write("new/deep/x.txt", "x\n");
    let verdicts = world.send_all(0);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Accepted(_))), "{verdicts:?}");
    assert_eq!(world.host.read("new/deep/x.txt").as_deref(), Some("x\n"));
    world.settle();
    world.assert_equal("after a write");
    assert_eq!(world.replicas[1].read("a.txt").as_deref(), Some("2\n"));
    // It is recorded as the replica's work, and can be taken back.
    let log = world.host.workspace.log(&chronicle_core::LogQuery::default()).unwrap();
    let taken = log.iter().find(|entry| entry.action_type == "write_back").unwrap();
    assert_eq!(taken.session.as_deref(), Some("box0"));
}

#[test]
fn a_batch_counts_once() {
    let mut world = World::new(1, &[("a.txt", "1\n")]);
    world.replicas[0].write("a.txt", "2\n");
    world.replicas[0].workspace.settle().unwrap();
    let batch = world.replicas[0].workspace.journal_batch(100, &everything).unwrap().unwrap();
    let first = world.deliver(0, batch.number, &batch.writes);
    world.host.write("a.txt", "1\n");
    world.host.workspace.settle().unwrap();
    let again = world.deliver(0, batch.number, &batch.writes);
    assert_eq!((&first.verdicts, first.head), (&again.verdicts, again.head));
    assert!(again.repeated && !first.repeated);
    assert_eq!(world.host.read("a.txt").as_deref(), Some("1\n"), "it was applied twice");
    // The journal says the same until it is answered.
    let same = world.replicas[0].workspace.journal_batch(7, &everything).unwrap().unwrap();
    assert_eq!(same, batch);
    world.answer(0, &again);
    world.settle();
    world.assert_equal("after the host went back to what it was made on");
    assert_eq!(world.replicas[0].read("a.txt").as_deref(), Some("1\n"));
}

/// A sandbox that is resumed from a copy of itself counts on from there: its next batch has the number of one that was
/// answered. It got the answer to those other writes, and took its own for accepted.
#[test]
fn another_batch_of_the_same_number_is_not_taken_for_it() {
    let mut world = World::new(1, &[("a.txt", "1\n")]);
    world.replicas[0].write("a.txt", "2\n");
    world.replicas[0].workspace.settle().unwrap();
    let batch = world.replicas[0].workspace.journal_batch(100, &everything).unwrap().unwrap();
    world.deliver(0, batch.number, &batch.writes);
    let mut others = batch.writes.clone();
    others[0].path = WorkspacePath::new("b.txt").unwrap();
    let replica = &world.replicas[0].workspace;
    let state = replica.replica_state().unwrap().unwrap();
    let request = WriteBack {
        replica: state.id,
        name: &state.name,
        batch: batch.number,
        writes: &others,
        admit: &allowed,
        folds: false,
    };
    let refused = world.host.workspace.take_writes(&request, replica.replica_contents().unwrap());
    assert!(refused.unwrap_err().to_string().contains("earlier state"));
    assert_eq!(world.host.read("b.txt"), None);
}

#[test]
fn both_changed_it_and_nothing_is_lost() {
    let text = "one\ntwo\nthree\nfour\nfive\n";
    for how in [Resolution::KeepMine, Resolution::TakeTheirs, Resolution::Merge, Resolution::Retry]
    {
        let mut world = World::new(1, &[("a.txt", text)]);
        world.host.write("a.txt", &text.replace("one", "ONE"));
        world.host.workspace.settle().unwrap();
        world.replicas[0].write("a.txt", &text.replace("five", "FIVE"));
        let verdicts = world.send_all(0);
        assert!(
            matches!(verdicts[..], [Verdict::Rejected { reason: Rejection::Changed, .. }]),
            "{verdicts:?}"
        );
        world.push_all(0);
        world.assert_equal("the host's version stands on both sides");
        let replica = &mut world.replicas[0].workspace;
        let conflict = replica.conflicts().unwrap().remove(0);
        let merged = replica.merged_conflict(&conflict).unwrap().unwrap();
        assert_eq!(merged, text.replace("one", "ONE").replace("five", "FIVE").into_bytes());
        let resolved = replica.resolve_conflict(&conflict.id.short(), how);
        let expected = match how {
            Resolution::KeepMine => text.replace("five", "FIVE"),
            Resolution::Merge => String::from_utf8(merged).unwrap(),
            _ => text.replace("one", "ONE"),
        };
        assert_eq!(resolved.is_err(), how == Resolution::Retry, "{how:?}");
        let left = world.replicas[0].workspace.conflicts().unwrap().len();
        assert_eq!(left, usize::from(how == Resolution::Retry));
        world.settle();
        world.assert_equal("after it was decided");
        assert_eq!(world.host.read("a.txt"), Some(expected), "{how:?}");
    }
}

#[test]
fn a_push_leaves_unanswered_work_alone_while_the_host_shows_what_it_was_made_on() {
    let mut world = World::new(1, &[("a.txt", "1\n"), ("b.txt", "1\n")]);
    world.replicas[0].write("a.txt", "mine\n");
    world.replicas[0].write("b.txt", "mine\n");
    world.host.write("b.txt", "theirs\n");
    // Touched, so that the push names it, with the value that it had.
    world.host.write("a.txt", "between\n");
    world.host.workspace.settle().unwrap();
    world.host.write("a.txt", "1\n");
    world.push_all(0);
    let replica = &world.replicas[0];
    assert_eq!(replica.read("a.txt").as_deref(), Some("mine\n"));
    assert_eq!(replica.read("b.txt").as_deref(), Some("theirs\n"));
    let verdicts = world.send_all(0);
    assert_eq!(verdicts.len(), 2);
    assert!(matches!(verdicts[0], Verdict::Accepted(_)));
    assert!(matches!(verdicts[1], Verdict::Rejected { .. }));
    assert_eq!(world.replicas[0].workspace.conflicts().unwrap().len(), 1);
    world.settle();
    world.assert_equal("after the answer");
    assert_eq!(world.host.read("a.txt").as_deref(), Some("mine\n"));
}

#[test]
fn a_moved_directory_is_taken_whole_or_not_at_all() {
    let mut world = World::new(1, &[("d/a", "1\n"), ("d/e/b", "2\n"), ("z", "0\n")]);
    fs::rename(world.replicas[0].root.join("d"), world.replicas[0].root.join("moved")).unwrap();
    world.host.write("d/e/b", "changed\n");
    world.host.workspace.settle().unwrap();
    let verdicts = world.send_all(0);
    assert!(
        verdicts.iter().all(|verdict| matches!(verdict, Verdict::Rejected { .. })),
        "{verdicts:?}"
    );
    assert!(!world.host.root.join("moved").exists());
    world.settle();
    world.assert_equal("after a move was rejected");
    assert_eq!(world.replicas[0].read("d/e/b").as_deref(), Some("changed\n"));
    assert!(world.replicas[0].workspace.conflicts().unwrap().len() >= 6);
    fs::rename(world.replicas[0].root.join("d"), world.replicas[0].root.join("moved")).unwrap();
    world.settle();
    world.assert_equal("after a move was taken");
    assert_eq!(world.host.read("moved/e/b").as_deref(), Some("changed\n"));
}

#[test]
fn a_directory_that_holds_what_the_host_does_not_know_stays() {
    let mut world = World::new(1, &[("d/a", "1\n")]);
    fs::create_dir_all(world.replicas[0].root.join("d/.git")).unwrap();
    fs::write(world.replicas[0].root.join("d/.git/config"), "x\n").unwrap();
    fs::remove_dir_all(world.host.root.join("d")).unwrap();
    world.host.workspace.settle().unwrap();
    let report = world.push(0, LIMITS).unwrap();
    assert!(report.left.iter().any(|left| left.why == WhyLeft::Holds), "{report:?}");
    assert_eq!(world.replicas[0].read("d/.git/config").as_deref(), Some("x\n"));
    assert_eq!(world.replicas[0].read("d/a"), None);
    // It goes as soon as it is empty.
    fs::remove_dir_all(world.replicas[0].root.join("d/.git")).unwrap();
    world.host.write("other", "y\n");
    world.settle();
    assert!(!world.replicas[0].root.join("d").exists());
    world.assert_equal("after it was emptied");
}

#[test]
fn what_stays_home_is_neither_sent_nor_taken() {
    let mut world = World::new(1, &[("a", "1\n"), (".env", "KEY=very-secret\n")]);
    assert_eq!(world.replicas[0].read(".env"), None, "a secret was sent");
    fs::create_dir_all(world.host.root.join(".git/hooks")).unwrap();
    world.host.write(".git/hooks/pre-commit", "evil\n");
    world.push_all(0);
    assert!(!world.replicas[0].root.join(".git").exists());
    // A hostile replica names it all the same.
    let evil = b"evil\n".to_vec();
    let object = chronicle_core::ObjectId::of(&evil);
    let contents = MemoryStore::default();
    contents.put(&object, &evil).unwrap();
    let after =
        chronicle_core::replica::Version::File { object, size: 5, mode: 0o755, mtime_ns: 0 };
    let state = world.replicas[0].workspace.replica_state().unwrap().unwrap();
    let paths = [".git/hooks/x", "sub/.GIT/config", ".env.local", "/etc/evil"];
    let write = |text: &&str| chronicle_core::replica::Write {
        path: path(text),
        base: chronicle_core::replica::Version::Absent,
        after: after.clone(),
        seen: Seq(0),
        group: 0,
    };
    let writes: Vec<_> = paths.iter().map(write).collect();
    let (replica, name) = (state.id, state.name.as_str());
    let request =
        WriteBack { replica, name, batch: 1, writes: &writes, admit: &allowed, folds: false };
    let answer = world.host.workspace.take_writes(&request, &contents).unwrap();
    for verdict in &answer.verdicts {
        let refused = matches!(
            verdict,
            Verdict::Rejected { reason: Rejection::NotAllowed, theirs: None, .. }
        );
        assert!(refused, "{verdict:?}");
    }
    // A size that lies stops the batch before anything is written.
    let lie = chronicle_core::replica::Version::File { object, size: 6, mode: 0o644, mtime_ns: 0 };
    let writes =
        [chronicle_core::replica::Write { after: lie, path: path("lie"), ..writes[0].clone() }];
    let request = WriteBack { batch: 2, writes: &writes, ..request };
    assert!(world.host.workspace.take_writes(&request, &contents).is_err());
    assert_eq!(world.host.read("lie"), None);
}

#[test]
fn a_record_larger_than_a_batch_is_sent_in_parts() {
    let mut world = World::new(1, &[]);
    for number in 0..25 {
        world.replicas[0].write(&format!("d{}/f{number}", number % 3), "x\n");
    }
    world.replicas[0].workspace.settle().unwrap();
    let mut batches = 0;
    while let Some(answer) = world.send(0, 10) {
        assert!(answer.verdicts.len() <= 10);
        let all = answer.verdicts.iter().all(|verdict| matches!(verdict, Verdict::Accepted(_)));
        assert!(all, "{:?}", answer.verdicts);
        world.answer(0, &answer);
        batches += 1;
    }
    assert_eq!(batches, 3);
    world.settle();
    world.assert_equal("after parts");
}

#[test]
fn a_replica_of_what_was_pruned_must_resync_and_then_goes_on() {
    use chronicle_core::replica::resync_step;
    let mut world = World::new(1, &[("a", "1\n"), ("d/b", "2\n"), ("d/c", "2\n")]);
    world.replicas[0].write("mine", "mine\n");
    world.replicas[0].workspace.settle().unwrap();
    for number in 0..5 {
        world.host.workspace.set_clock(Box::new(Ahead(number)));
        world.host.write("a", &format!("{number}\n"));
        world.host.workspace.settle().unwrap();
    }
    world.host.remove("d/c");
    world.host.workspace.settle().unwrap();
    // As long as the replica is known it holds what it needs.
    let state = world.replicas[0].workspace.replica_state().unwrap().unwrap();
    let acknowledged =
        chronicle_core::ReplicaNews { acknowledged: state.applied, ..Default::default() };
    world.host.workspace.note_replica(&state.id, &acknowledged).unwrap();
    world.host.workspace.set_clock(Box::new(Ahead(5)));
    world.host.workspace.prune(&LITTLE, "test", false).unwrap();
    let after = state.applied.unwrap().seq;
    let changes = |world: &mut World| {
        world.host.workspace.changes_for_replica(after, LIMITS, &everything).unwrap()
    };
    assert!(changes(&mut world).is_some(), "history went that a replica needs");
    assert!(world.host.workspace.forget_replica(&state.id).unwrap());
    world.host.workspace.prune(&LITTLE, "test", false).unwrap();
    assert!(changes(&mut world).is_none(), "it was told without the records");
    let theirs = world.host.workspace.tree_for_replica(&everything).unwrap();
    let mine = world.replicas[0].workspace.tree_for_replica(&everything).unwrap();
    let (mut ask, mut items) = (vec![WorkspacePath::root()], Vec::new());
    while !ask.is_empty() {
        let listings: Vec<_> = ask.iter().map(|path| theirs.listing(path)).collect();
        let step = resync_step(&mine, &listings, theirs.at.seq);
        items.extend(step.items);
        ask = step.ask;
    }
    assert_eq!(items.len(), 3, "{items:?}");
    let contents = world.host.workspace.replica_contents().unwrap();
    world.replicas[0].workspace.apply_push(&items, theirs.at, contents, false).unwrap();
    assert_eq!(world.replicas[0].read("mine").as_deref(), Some("mine\n"), "the journal was lost");
    world.settle();
    world.assert_equal("after a resync");
    assert_eq!(world.host.read("mine").as_deref(), Some("mine\n"));
}

#[test]
fn late_and_repeated_pushes_do_nothing() {
    let mut world = World::new(1, &[("a", "1\n")]);
    let place = world.replicas[0].workspace.replica_state().unwrap().unwrap().applied.unwrap();
    let version = chronicle_core::replica::Version::Absent;
    let item = Item { path: path("a"), seq: place.seq, version };
    let early = Place { seq: Seq(place.seq.0 - 1), ..place };
    for to in [place, early] {
        let contents = MemoryStore::default();
        let replica = &mut world.replicas[0].workspace;
        let report = replica.apply_push(std::slice::from_ref(&item), to, &contents, false).unwrap();
        assert!(report.repeated);
    }
    assert_eq!(world.replicas[0].read("a").as_deref(), Some("1\n"));
    let future = Place { seq: Seq(place.seq.0 + 1000), ..place };
    let state = world.replicas[0].workspace.replica_state().unwrap().unwrap();
    let news = chronicle_core::ReplicaNews { acknowledged: Some(future), ..Default::default() };
    assert!(world.host.workspace.note_replica(&state.id, &news).is_err());
}

#[test]
fn what_a_conflict_needs_outlives_prune_and_collection() {
    let mut world = World::new(1, &[("a", "1\n")]);
    world.host.write("a", "theirs\n");
    world.host.workspace.settle().unwrap();
    world.replicas[0].write("a", "mine\n");
    world.send_all(0);
    world.settle();
    for days in 1..6 {
        world.replicas[0].workspace.set_clock(Box::new(Ahead(days)));
        world.replicas[0].write("other", &format!("{days}\n"));
        world.settle();
    }
    let pruned = world.replicas[0].workspace.prune(&LITTLE, "test", false).unwrap();
    assert!(pruned.dropped_records > 0, "nothing was pruned");
    let home = Home::at(&world.top.join("replica0.home"));
    home.collect_garbage(&|_, _| ()).unwrap();
    let replica = &mut world.replicas[0].workspace;
    let conflict = replica.conflicts().unwrap().remove(0);
    replica.resolve_conflict(&conflict.id.to_string(), Resolution::KeepMine).unwrap().unwrap();
    world.settle();
    assert_eq!(world.host.read("a").as_deref(), Some("mine\n"));
    world.assert_equal("after mine was kept");
}

#[test]
fn random_work_on_all_sides_ends_equal_and_nothing_is_lost() {
    let (cases, first) = (setting("CHRONICLE_CASES", 12), setting("CHRONICLE_SEED", 1));
    for seed in first..first + cases {
        random_case(seed);
    }
}

fn random_case(seed: u64) {
    let dice = &mut Dice::new(seed);
    let mut world =
        World::new(2, &[("a.txt", "1\n2\n3\n"), ("d/b.txt", "2\n"), ("d/e/c.txt", "3\n")]);
    let menu = Menu { specials: false, links: false, filters: false, ..Menu::ALL };
    let mut works: Vec<_> = (0..3)
        .map(|side| {
            let root = if side == 0 { &world.host.root } else { &world.replicas[side - 1].root };
            Random::new(root, seed * 3 + side as u64, menu)
        })
        .collect();
    for _ in 0..dice.between(4, 10) {
        let side = dice.below(3);
        let count = dice.between(1, 6);
        works[side].steps(count);
        let number = dice.below(2);
        match dice.below(5) {
            0 => drop(world.host.workspace.settle().unwrap()),
            1 => drop(world.replicas[number].workspace.settle().unwrap()),
            2 => drop(world.push(
                number,
                PushLimits { items: dice.between(1, 4), bytes: 1 << 20, content: 0 },
            )),
            3 => {
                let answer = world.send(number, dice.between(1, 5));
                if let Some(answer) = answer.filter(|_| dice.chance(70)) {
                    world.answer(number, &answer);
                }
            }
            _ => world.push_all(number),
        }
    }
    world.settle();
    world.assert_equal(&format!("seed {seed}"));
    for replica in &world.replicas {
        for conflict in replica.workspace.conflicts().unwrap() {
            if let Some(object) = conflict.mine.object() {
                let contents = replica.workspace.replica_contents().unwrap();
                assert!(
                    contents.exists(&object).unwrap(),
                    "seed {seed}: {} is lost",
                    conflict.path
                );
            }
        }
        replica.workspace.verify(true, &|_, _| ()).unwrap();
    }
}
