//! Checkpoints, their lock files and the places of their parts, damaged in every way: each has a word of its
//! own, and each is refused while everything is still byte for byte what it was.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_checkpoint::{Contents, Created, Error, LockFile, RestoreRequest, Which};
use chronicle_core::{
    CheckpointRecord, Checkpointed, Clock, ContentStorage, Home, InitOptions, KeySource,
    NewCheckpoint, ObjectId, Seq, SnapshotId, SystemClock, Workspace,
};
use chronicle_testing::shared::{is_root, skip};

use crate::damage::everything;
use crate::scene::{DECLARED, Scene, git};

/// A checkpoint of a small project with a directory outside it, and what was done to the project since.
pub struct Case {
    pub scene: Scene,
    pub made: Created,
}

/// What is done to a checkpoint.
pub enum Harm {
    /// To the store, or to the places.
    Done(fn(&Case)),
    /// To what the lock file says, which is signed again.
    Said(fn(&mut LockFile, &Case)),
    /// To its text.
    Written(fn(String, &Case) -> String),
    /// To the project before the checkpoint is made, and then to the places.
    Before(fn(&Scene), fn(&Case)),
    /// To the code that stays while the database alone would go back, before and after the checkpoint.
    Left(fn(&Scene), fn(&Case)),
    /// Nothing: too little is asked for, or too much.
    Asked(&'static [&'static str], Option<&'static str>),
}

use Harm::{Asked, Before, Done, Left, Said, Written};

const OUTSIDE: &str = "[[checkpoint.part]]\nname = \"out\"\ndirectory = \"../outside/data\"\n";

impl Case {
    fn new(before: Option<fn(&Scene)>) -> Self {
        let scene = Scene::bare(&[DECLARED, OUTSIDE].concat());
        fs::create_dir_all(scene.at().join("outside/data")).unwrap();
        fs::write(scene.at().join("outside/data/file"), "outside\n").unwrap();
        scene.adopt();
        if let Some(before) = before {
            before(&scene);
        }
        let made = scene.create().unwrap();
        scene.wreck();
        Self { scene, made }
    }

    fn parameter(&self, part: &str, name: &str) -> ObjectId {
        self.made.lock.part(part).unwrap().captured.parameters[name].parse().unwrap()
    }

    fn delete(&self, id: &ObjectId) {
        self.scene.open().content_store().unwrap().delete(id).unwrap();
    }

    /// One byte of an object is not what it was.
    pub fn flip(&self, id: &ObjectId) {
        flip(&self.scene.open(), &self.scene.at().join("home"), id);
    }

    fn put(&self, bytes: &[u8]) -> ObjectId {
        put(&self.scene.open(), bytes)
    }

    /// A checkpoint with this lock file.
    fn record(&self, id: SnapshotId, contents: ObjectId, text: &str) -> CheckpointRecord {
        let lock = self.put(text.as_bytes());
        let moment = Seq(self.made.lock.moment);
        let (holds, summary) = (Checkpointed { lock, contents }, "damaged".to_owned());
        let new = NewCheckpoint { id, name: None, summary, moment, holds };
        self.scene.open().record_checkpoint(&new).unwrap()
    }

    fn forged(&self, harm: fn(&mut LockFile, &Case)) -> CheckpointRecord {
        let id = SnapshotId::new(SystemClock.now());
        let mut lock = LockFile { id: id.to_string(), ..self.made.lock.clone() };
        harm(&mut lock, self);
        let text = lock.text(&self.scene.open()).unwrap();
        self.record(id, lock.contents, &text)
    }

    fn rewritten(&self, harm: fn(String, &Case) -> String) -> CheckpointRecord {
        let id = SnapshotId::new(SystemClock.now());
        let lock = LockFile { id: id.to_string(), ..self.made.lock.clone() };
        let text = harm(lock.text(&self.scene.open()).unwrap(), self);
        self.record(id, lock.contents, &text)
    }

    fn declare(&self, settings: &str) {
        fs::write(self.scene.root().join("chronicle.toml"), settings).unwrap();
        self.scene.open().accept_config().unwrap();
    }
}

/// Keeps bytes in a workspace's store.
pub fn put(workspace: &Workspace, bytes: &[u8]) -> ObjectId {
    let store = workspace.content_store().unwrap();
    let mut contents = Contents::taking_in(&store, workspace.checkpoint_intake(&store).unwrap());
    let id = contents.put(bytes).unwrap();
    contents.finish().unwrap();
    id
}

/// Gives an object a file of its own and changes that.
pub fn flip(workspace: &Workspace, home: &Path, id: &ObjectId) {
    let store = workspace.content_store().unwrap();
    let bytes = store.get(id).unwrap();
    store.delete(id).unwrap();
    store.put(id, &bytes).unwrap();
    let file = find(home, &id.hex()[2..]).expect("a file of its own");
    let mut stored = fs::read(&file).unwrap();
    let middle = stored.len() / 2;
    stored[middle] ^= 0x40;
    fs::write(&file, stored).unwrap();
}

fn find(top: &Path, name: &str) -> Option<PathBuf> {
    for item in fs::read_dir(top).ok()?.flatten() {
        if item.file_name().to_string_lossy().ends_with(name) {
            return Some(item.path());
        }
        if item.file_type().is_ok_and(|kind| kind.is_dir())
            && let Some(found) = find(&item.path(), name)
        {
            return Some(found);
        }
    }
    None
}

fn captured<'l>(lock: &'l mut LockFile, name: &str) -> &'l mut chronicle_checkpoint::Captured {
    &mut lock.parts.iter_mut().find(|part| part.name == name).unwrap().captured
}

fn set(lock: &mut LockFile, part: &str, name: &str, id: ObjectId) {
    captured(lock, part).parameters.insert(name.to_owned(), id.hex());
}

/// A database that is one by its first bytes, with a page that is none.
fn broken_database(case: &Case) -> Vec<u8> {
    let at = case.scene.at().join("broken.db");
    let connection = rusqlite::Connection::open(&at).unwrap();
    connection.execute_batch("CREATE TABLE t (a); CREATE INDEX i ON t (a)").unwrap();
    for number in 0..500 {
        connection.execute("INSERT INTO t VALUES (?1)", [format!("{number:040}")]).unwrap();
    }
    connection.close().unwrap();
    let mut bytes = fs::read(&at).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0x5a);
    bytes
}

/// Everything of the library's repository is on a remote, so that no bundle is kept.
fn push_all(scene: &Scene) {
    let remote = scene.at().join("remote.git");
    git(scene.at(), &["init", "-q", "--bare", remote.to_str().unwrap()]);
    git(&scene.root().join("lib"), &["remote", "add", "origin", remote.to_str().unwrap()]);
    git(&scene.root().join("lib"), &["push", "-q", "origin", "main"]);
}

fn other_key(_: String, case: &Case) -> String {
    let other = case.scene.at().join("other");
    fs::create_dir_all(other.join("project")).unwrap();
    let home = Home::at(&other.join("home")).signed_with(KeySource::File(other.join("head.key")));
    let (workspace, _) =
        Workspace::init(&home, &other.join("project"), &InitOptions::default()).unwrap();
    case.made.lock.text(&workspace).unwrap()
}

pub const KINDS: [(&str, Harm); 44] = [
    ("lock_missing", Done(|case| case.delete(&case.made.record.holds.lock))),
    ("lock_damaged", Done(|case| case.flip(&case.made.record.holds.lock))),
    ("bad_lock", Written(|_, _| "version = 1\n".to_owned())),
    ("newer_lock", Written(|text, _| text.replace("version = 1\n", "version = 2\n"))),
    ("lock_edited", Written(|text, _| text.replace("freeze_ms = ", "freeze_ms = 1"))),
    ("lock_unsigned", Written(|text, _| text.split("\n[signature]\n").next().unwrap().to_owned())),
    ("bad_signature", Written(|text, _| text.replace("\nkey = \"", "\nkey = \"!"))),
    ("other_key", Written(other_key)),
    ("other_checkpoint", Said(|lock, case| lock.id = case.made.lock.id.clone())),
    ("other_workspace", Said(|lock, _| lock.workspace = "0".repeat(32))),
    ("lock_differs", Said(|lock, _| lock.moment -= 1)),
    ("other_history", Said(|lock, _| lock.link = "0".repeat(64))),
    (
        "dropped",
        Done(|case| {
            let record = std::slice::from_ref(&case.made.record);
            chronicle_checkpoint::drop_all(&mut case.scene.open(), record, "a test").unwrap();
        }),
    ),
    ("missing_contents", Done(|case| case.delete(&case.made.lock.contents))),
    ("damaged_contents", Done(|case| case.flip(&case.made.lock.contents))),
    ("bad_contents", Said(|lock, case| lock.contents = case.put(b"no list"))),
    ("missing_content", Done(|case| case.delete(&ObjectId::of(b"upload\n")))),
    ("damaged_content", Done(|case| case.flip(&ObjectId::of(b"upload\n")))),
    ("missing_manifest", Done(|case| case.delete(&case.parameter("uploads", "manifest")))),
    ("damaged_manifest", Done(|case| case.flip(&case.parameter("uploads", "manifest")))),
    ("bad_manifest", Said(|lock, case| set(lock, "uploads", "manifest", case.put(b"no manifest")))),
    ("digest_differs", Said(|lock, _| captured(lock, "uploads").digest = ObjectId::of(b"other"))),
    ("bad_length", Said(|lock, _| captured(lock, "app.db").bytes += 1)),
    ("missing_bundle", Done(|case| case.delete(&case.parameter("lib", "bundle")))),
    ("damaged_bundle", Done(|case| case.flip(&case.parameter("lib", "bundle")))),
    ("bad_bundle", Said(|lock, case| set(lock, "lib", "bundle", case.put(b"no bundle at all!")))),
    ("missing_database", Done(|case| case.delete(&case.parameter("app.db", "file")))),
    ("unreadable_database", Done(|case| case.flip(&case.parameter("app.db", "file")))),
    (
        "database_damaged",
        Said(|lock, case| {
            let bytes = broken_database(case);
            captured(lock, "app.db").bytes = bytes.len() as u64;
            set(lock, "app.db", "file", case.put(&bytes));
        }),
    ),
    ("unknown_driver", Said(|lock, _| captured(lock, "uploads").driver = "none".to_owned())),
    ("missing_parameter", Said(|lock, _| captured(lock, "app.db").parameters.clear())),
    ("no_room", Said(|lock, _| captured(lock, "out").bytes = 1 << 60)),
    (
        "moved_part",
        Done(|case| {
            let elsewhere = DECLARED.replace("\"uploads\"", "\"elsewhere\"\nname = \"uploads\"");
            case.declare(&[&elsewhere, OUTSIDE].concat());
        }),
    ),
    (
        "other_kind",
        Done(|case| {
            let other = DECLARED.replace("directory = \"uploads\"", "sqlite = \"uploads\"");
            case.declare(&[&other, OUTSIDE].concat());
        }),
    ),
    ("undeclared_part", Done(|case| case.declare(DECLARED))),
    (
        "not_a_file",
        Done(|case| {
            fs::remove_file(case.scene.root().join("app.db")).unwrap();
            fs::create_dir(case.scene.root().join("app.db")).unwrap();
        }),
    ),
    ("missing_repository", Done(|case| fs::remove_dir_all(case.scene.root().join("lib")).unwrap())),
    (
        "commit_gone",
        Before(push_all, |case| {
            let lib = case.scene.root().join("lib");
            fs::remove_dir_all(lib.join(".git")).unwrap();
            git(&lib, &["init", "-q", "-b", "main"]);
        }),
    ),
    (
        "tampered",
        Done(|case| {
            let catalog = find(&case.scene.at().join("home"), "catalog.db").unwrap();
            let connection = rusqlite::Connection::open(catalog).unwrap();
            let edit = "UPDATE record SET leaf = zeroblob(length(leaf)) WHERE seq = 2";
            assert_eq!(connection.execute(edit, []).unwrap(), 1);
        }),
    ),
    ("partial", Asked(&["app.db"], None)),
    ("code_newer", Left(|_| (), |_| ())),
    ("unknown_part", Asked(&["git", "lib", "app.db", "uploads", "out", "x"], Some("a test"))),
    (
        "code_older",
        Left(
            |scene| {
                git(&scene.root(), &["commit", "-q", "-a", "-m", "one more"]);
            },
            |case| drop(git(&case.scene.root(), &["reset", "-q", "--hard", "HEAD~2"])),
        ),
    ),
    (
        "code_diverged",
        Left(
            |_| (),
            |case| {
                git(&case.scene.root(), &["checkout", "-q", "--orphan", "other"]);
                git(&case.scene.root(), &["commit", "-q", "-m", "another line"]);
            },
        ),
    ),
];

/// What the gate says to what was damaged.
fn refusal(case: &Case, record: &CheckpointRecord, request: &RestoreRequest) -> &'static str {
    match chronicle_checkpoint::restore(&mut case.scene.open(), record, request) {
        Ok(_) => "nothing: it was restored",
        Err(error @ (Error::Refused(_) | Error::Gate(_))) => error.code(),
        Err(other) => panic!("{other:?}"),
    }
}

fn check(word: &str, harm: &Harm) {
    let case = Case::new(match harm {
        Before(before, _) | Left(before, _) => Some(*before),
        _ => None,
    });
    let mut request = RestoreRequest::default();
    let record = match harm {
        Done(harm) | Before(_, harm) | Left(_, harm) => {
            harm(&case);
            case.made.record.clone()
        }
        Said(harm) => case.forged(*harm),
        Written(harm) => case.rewritten(*harm),
        Asked(parts, anyway) => {
            request.which = Which::Only(parts.iter().map(|&part| part.to_owned()).collect());
            request.anyway = anyway.map(str::to_owned);
            case.made.record.clone()
        }
    };
    let record = case.scene.open().checkpoints().map_or(record.clone(), |all| {
        all.into_iter().find(|it| it.id == record.id).unwrap_or(record)
    });
    let everywhere =
        || [case.scene.root(), case.scene.at().join("outside")].map(|top| everything(&top));
    let before = everywhere();
    let said = match harm {
        Left(..) => {
            let which = Which::Only(vec!["app.db".to_owned()]);
            let request = RestoreRequest { which, anyway: None };
            let given =
                chronicle_checkpoint::answers(&mut case.scene.open(), &record, &request).unwrap();
            given.iter().flat_map(|answer| &answer.no).next().unwrap().code
        }
        _ => refusal(&case, &record, &request),
    };
    assert_eq!(said, word);
    assert!(before == everywhere(), "{word}: something was changed");
}

/// In several tests, so that they run beside each other.
fn check_slice(part: usize, of: usize) {
    for (word, harm) in KINDS.iter().skip(part).step_by(of) {
        check(word, harm);
    }
}

#[test]
fn every_damage_is_refused_before_the_first_change_1() {
    check_slice(0, 3);
}

#[test]
fn every_damage_is_refused_before_the_first_change_2() {
    check_slice(1, 3);
}

#[test]
fn every_damage_is_refused_before_the_first_change_3() {
    check_slice(2, 3);
}

pub const MOUNTED: [&str; 2] = ["mount_point", "not_writable"];

#[test]
fn what_is_mounted_in_the_way_is_refused() {
    if !is_root() {
        return skip("damage_store::what_is_mounted_in_the_way_is_refused", "mounting needs root");
    }
    let mount = |words: &[&str], at: &Path| {
        let done = Command::new(words[0]).args(&words[1..]).arg(at).status().unwrap();
        assert!(done.success(), "{words:?}");
    };
    let case = Case::new(None);
    let (above, data) = (case.scene.at().join("outside"), case.scene.at().join("outside/data"));
    let request = RestoreRequest::default();
    mount(&["mount", "-t", "tmpfs", "none"], &data);
    let said = refusal(&case, &case.made.record, &request);
    mount(&["umount"], &data);
    assert_eq!(said, MOUNTED[0]);
    mount(&["mount", "--bind", above.to_str().unwrap()], &above);
    mount(&["mount", "-o", "remount,ro,bind"], &above);
    let said = refusal(&case, &case.made.record, &request);
    mount(&["umount"], &above);
    assert_eq!(said, MOUNTED[1]);
    chronicle_checkpoint::restore(&mut case.scene.open(), &case.made.record, &request).unwrap();
}

#[test]
fn at_least_sixty_kinds_of_damage_have_each_their_own_word() {
    let ours = KINDS.iter().map(|(word, _)| *word).chain(MOUNTED);
    let words: Vec<_> =
        ours.chain(crate::damage::words()).chain(crate::damage_data::WORDS).collect();
    let different: BTreeSet<_> = words.iter().collect();
    assert_eq!(different.len(), words.len(), "one of them twice: {words:?}");
    assert!(words.len() >= 60, "{}", words.len());
}
