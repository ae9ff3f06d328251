//! Bit rot: any byte of the home may change, any file of it may be cut, emptied or swapped. Each time
//! `verify --deep` says so, or the byte held no history: then every answer is the same as before. Whatever
//! is read is what was written, or an error; never a panic, never without end.
//!
//! `CHRONICLE_CORRUPTIONS` is how many single bytes are changed.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use chronicle_core::{
    Error, Finding, Home, KeySource, LARGE_OBJECT, Result, Workspace, WorkspacePath,
};
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::setting;

use crate::support::{Cli, done, listing};

const SECRET: &str = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=";
/// One trial takes a fraction of a second.
const LONGEST: Duration = Duration::from_secs(120);
/// Every so many trials the command itself is asked.
const ASKED: u64 = 25;
const HARMLESS: &str = "harmless";

/// What was done to the files of a home.
#[derive(Debug, Clone)]
enum Damage {
    /// One byte is another.
    Flip { file: PathBuf, at: usize, by: u8 },
    /// The end is gone.
    Cut { file: PathBuf, length: usize },
    /// A range is zero.
    Zero { file: PathBuf, at: usize, length: usize },
    /// Two files have each other's content.
    Swap { one: PathBuf, other: PathBuf },
}

/// Every file of a home, by its name below it.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A target and a path.
type Version = (String, String);

/// What a home answers: the log, and the content of every version that is asked for.
#[derive(Debug, Clone, PartialEq)]
struct Answers {
    log: String,
    versions: BTreeMap<Version, Result<Vec<u8>, String>>,
}

/// A history of every kind of content, and a witness that saw all of it.
struct Scene {
    cli: Cli,
    files: Files,
    whole: Answers,
    /// The versions that are asked for.
    wanted: Vec<Version>,
}

/// What came of one trial.
enum Told {
    /// Verification said something, with this code.
    Found(&'static str),
    /// It said nothing, and nothing is other than before.
    Harmless,
}

impl Scene {
    /// The history of some turns; the newest pages of the catalog still in its write-ahead log, as
    /// they mostly are, or all of them in their place.
    fn new(in_place: bool) -> Self {
        let cli = Cli::new();
        let call = |words: &[&str]| {
            done(cli.command(words).env("CHRONICLE_KEY", SECRET).output().unwrap()).ok()
        };
        cli.write("a.txt", "0\n");
        call(&["init"]);
        let witness = cli.home().with_file_name("heads");
        call(&["witness", "add", "file", witness.to_str().unwrap()]);
        let play = |turn: usize| {
            call(&["turn", "start", "--session", "s", "--prompt", "work"]);
            call(&["snapshot", "--action", "write_file", "--path", "a.txt", "--session", "s"]);
            cli.write("a.txt", &format!("{turn}\n").repeat(40 + turn));
            cli.write(&format!("dir{}/b", turn % 3), &format!("b {turn}\n"));
            if turn == 4 {
                (0..70)
                    .for_each(|n| cli.write(&format!("packed/{n}"), &format!("{n} ").repeat(50)));
                let large = Dice::new(5).bytes(LARGE_OBJECT + 1000);
                fs::write(cli.root().join("large"), large).unwrap();
            }
            call(&["turn", "end", "--session", "s"]);
        };
        (0..14).for_each(play);
        match in_place {
            true => put_in_place(&cli.home()),
            // The last command may have been the one that copies it back.
            false if is_in_place(&cli.home()) => play(14),
            false => {}
        }
        let mut files = Files::new();
        for path in listing(&cli.home()).into_iter().filter(|path| path.is_file()) {
            let name = path.strip_prefix(cli.home()).unwrap().to_owned();
            files.insert(name, fs::read(path).unwrap());
        }
        let mut scene = Self {
            cli,
            files,
            whole: Answers { log: String::new(), versions: BTreeMap::new() },
            wanted: Vec::new(),
        };
        let home = scene.copy("whole");
        let mut workspace = scene.open(&home).unwrap();
        workspace.verify(true, &|_, _| ()).unwrap();
        scene.wanted = wanted(&workspace);
        scene.whole = scene.ask(&mut workspace).unwrap();
        assert!(scene.whole.versions.values().filter(|version| version.is_ok()).count() > 50);
        scene
    }

    /// Writes the whole home anew somewhere.
    fn copy(&self, name: &str) -> PathBuf {
        let home = self.cli.home().with_file_name(name);
        for (name, bytes) in &self.files {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        home
    }

    /// Makes a home that was damaged whole again: the store's files are never changed but by us.
    fn mend(&self, home: &Path, damage: &Damage) {
        for path in listing(home).into_iter().filter(|path| path.is_file()) {
            let name = path.strip_prefix(home).unwrap();
            if !name.starts_with("store") {
                fs::remove_file(&path).unwrap();
            }
        }
        let touched = damage.files();
        for (name, bytes) in &self.files {
            if !name.starts_with("store") || touched.contains(&&**name) {
                fs::write(home.join(name), bytes).unwrap();
            }
        }
    }

    fn open(&self, home: &Path) -> Result<Workspace> {
        let home = Home::at(home).signed_with(KeySource::Secret(SECRET.to_owned()));
        Workspace::open(&home, &self.cli.root())
    }

    /// The log and every version; no log is no answer at all.
    fn ask(&self, workspace: &mut Workspace) -> Result<Answers> {
        let log = serde_json::to_string(&workspace.list()?).unwrap();
        let versions = self.wanted.iter().map(|(target, path)| {
            let mut bytes = Vec::new();
            let path_there = WorkspacePath::new(&**path).unwrap();
            let read = workspace.cat(&path_there, Some(target), &mut bytes);
            ((target.clone(), path.clone()), read.map(|()| bytes).map_err(|e| e.to_string()))
        });
        Ok(Answers { log, versions: versions.collect() })
    }

    /// One trial on a home that is whole.
    fn try_one(&self, home: &Path, damage: &Damage) -> Result<Told, String> {
        damage.apply(home, &self.files);
        let told = catch_unwind(AssertUnwindSafe(|| self.told(home)));
        self.mend(home, damage);
        told.unwrap_or_else(|_| Err("it panicked".to_owned()))
    }

    fn told(&self, home: &Path) -> Result<Told, String> {
        let mut workspace = match self.open(home) {
            Ok(workspace) => workspace,
            Err(error) => return Ok(Told::Found(error.code())),
        };
        let verified = workspace.verify(true, &|_, _| ());
        let answers = self.ask(&mut workspace);
        let is_older =
            matches!(&verified, Err(Error::Tampered { finding: Finding::RolledBack, .. }));
        if let Ok(answers) = &answers {
            self.is_true(answers, is_older)?;
        }
        match (verified, answers) {
            (Err(error), _) => Ok(Told::Found(error.code())),
            (Ok(_), Ok(answers)) if answers == self.whole => Ok(Told::Harmless),
            (Ok(_), Ok(answers)) => Err(self.difference(&answers)),
            (Ok(_), Err(error)) => Err(format!("unnoticed, but the log says {error}")),
        }
    }

    /// What could be read is what was written. Where the end of the history is lost, as the witness
    /// then says, an older version of the same path may be found; it is never anything else.
    fn is_true(&self, answers: &Answers, is_older: bool) -> Result<(), String> {
        for (version, found) in &answers.versions {
            let Ok(bytes) = found else { continue };
            let is_written = |(of, written): (&Version, &Result<Vec<u8>, String>)| {
                (of == version || is_older && of.1 == version.1) && written.as_ref() == Ok(bytes)
            };
            if !self.whole.versions.iter().any(is_written) {
                return Err(format!("{version:?} is another content"));
            }
        }
        Ok(())
    }

    fn difference(&self, answers: &Answers) -> String {
        let other = answers
            .versions
            .iter()
            .find(|(version, found)| **found != self.whole.versions[version]);
        match other {
            Some((version, found)) => {
                let found = found.as_ref().map(Vec::len);
                format!("unnoticed, but {version:?} is {found:?}")
            }
            None => {
                let both = answers.log.bytes().zip(self.whole.log.bytes());
                let same = both.take_while(|(one, other)| one == other).count();
                let part = |log: &str| {
                    log.get(same.saturating_sub(40)..)
                        .map(|rest| rest.chars().take(120).collect::<String>())
                };
                format!(
                    "unnoticed, but the log has {:?}, not {:?}",
                    part(&answers.log),
                    part(&self.whole.log)
                )
            }
        }
    }

    /// The command itself ends as it should, with words.
    fn ask_the_command(&self, home: &Path, damage: &Damage) {
        damage.apply(home, &self.files);
        for words in
            [&["verify", "--deep", "--json"][..], &["log"], &["cat", "a.txt", "--at", "turn:3"]]
        {
            let mut command = self.cli.command(words);
            command.env("CHRONICLE_HOME", home).env("CHRONICLE_KEY", SECRET);
            let ended = done(command.output().unwrap());
            let known = matches!(ended.status, 0 | 1 | 10 | 12);
            assert!(known && !ended.stderr.contains("panicked"), "{damage:?}: {ended:?}");
            assert!(ended.status == 0 || !ended.stderr.is_empty(), "{damage:?}: {ended:?}");
        }
        self.mend(home, damage);
    }

    /// Any byte of any file; those with history in them more often than the others. What SQLite keeps
    /// in shared memory is made anew by whoever opens the catalog first.
    fn flip(&self, dice: &mut Dice) -> Damage {
        let class = |name: &Path| match name.to_string_lossy() {
            name if name.ends_with("-shm") => 3,
            name if name.contains("catalog.db") => 0,
            name if name.starts_with("store") => 1,
            _ => 2,
        };
        let wanted = *dice.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 1, 2]);
        let mut among: Vec<_> = self.files.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        among.retain(|(name, _)| class(name) == wanted);
        let (file, bytes) = *dice.pick(&among);
        let at = dice.below(bytes.len());
        let by = u8::try_from(dice.between(1, 255)).unwrap();
        Damage::Flip { file: file.clone(), at, by }
    }

    /// A cut, a range of zeroes or two files swapped, of any file.
    fn other_damage(&self, dice: &mut Dice) -> Damage {
        let files: Vec<_> = self.files.iter().filter(|(_, bytes)| bytes.len() > 8).collect();
        let (file, bytes) = *dice.pick(&files);
        let (file, at) = (file.clone(), dice.below(bytes.len()));
        match dice.below(3) {
            0 => Damage::Cut { file, length: at },
            1 => Damage::Zero { file, at, length: dice.between(1, 600) },
            _ => {
                let kind = file.extension();
                let like: Vec<_> =
                    files.iter().filter(|(name, _)| name.extension() == kind).collect();
                let other = dice.pick(&like).0.clone();
                Damage::Swap { one: file, other }
            }
        }
    }

    /// Plays many trials on two threads; tells how often each thing was said.
    fn play(&self, trials: &[Damage]) -> BTreeMap<&'static str, usize> {
        let (mut counts, mut wrong) = (BTreeMap::new(), Vec::new());
        std::thread::scope(|scope| {
            let (told, results) = mpsc::channel();
            for (worker, share) in trials.chunks(trials.len().div_ceil(2)).enumerate() {
                let told = told.clone();
                scope.spawn(move || {
                    let home = self.copy(&format!("damaged-{worker}"));
                    for damage in share {
                        told.send((self.try_one(&home, damage), damage)).unwrap();
                    }
                });
            }
            drop(told);
            loop {
                match results.recv_timeout(LONGEST) {
                    Ok((Ok(Told::Found(code)), _)) => *counts.entry(code).or_default() += 1,
                    Ok((Ok(Told::Harmless), _)) => *counts.entry(HARMLESS).or_default() += 1,
                    Ok((Err(why), damage)) => wrong.push(format!("{damage:?}: {why}")),
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                    // Nothing can be told to a thread that hangs.
                    Err(mpsc::RecvTimeoutError::Timeout) => std::process::abort(),
                }
            }
        });
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), trials.len(), wrong.join("\n"));
        counts
    }
}

/// The one file of a home with this name.
fn file_named(home: &Path, name: &str) -> PathBuf {
    listing(home).into_iter().find(|path| path.ends_with(name)).unwrap()
}

fn is_in_place(home: &Path) -> bool {
    fs::metadata(file_named(home, "catalog.db-wal")).unwrap().len() == 0
}

/// Copies the catalog's write-ahead log back and empties it.
fn put_in_place(home: &Path) {
    let catalog = file_named(home, "catalog.db");
    let catalog = rusqlite::Connection::open(catalog).unwrap();
    let left = "PRAGMA wal_checkpoint(TRUNCATE)";
    catalog
        .query_row(left, [], |row| row.get::<_, i64>(0))
        .map(|busy| assert_eq!(busy, 0))
        .unwrap();
}

/// What every snapshot changed, before and after it; of many files at once, some.
fn wanted(workspace: &Workspace) -> Vec<Version> {
    let mut wanted = Vec::new();
    for snapshot in workspace.list().unwrap() {
        let changed = snapshot.changes.iter().map(|change| &change.path);
        for path in
            changed.filter(|path| !path.ends_with(|last: char| last.is_ascii_digit())).take(6)
        {
            wanted.push((format!("before:{}", snapshot.id), path.clone()));
            wanted.push((format!("after:{}", snapshot.id), path.clone()));
        }
    }
    let last = workspace.list().unwrap().last().unwrap().id.clone();
    wanted.extend((0..5).map(|number| (format!("before:{last}"), format!("packed/{number}"))));
    wanted
}

impl Damage {
    fn files(&self) -> Vec<&Path> {
        match self {
            Self::Flip { file, .. } | Self::Cut { file, .. } | Self::Zero { file, .. } => {
                vec![file]
            }
            Self::Swap { one, other } => vec![one, other],
        }
    }

    fn apply(&self, home: &Path, files: &Files) {
        let write = |name: &Path, bytes: &[u8]| fs::write(home.join(name), bytes).unwrap();
        match self {
            Self::Flip { file, at, by } => {
                let mut bytes = files[file].clone();
                bytes[*at] ^= by;
                write(file, &bytes);
            }
            Self::Cut { file, length } => write(file, &files[file][..*length]),
            Self::Zero { file, at, length } => {
                let mut bytes = files[file].clone();
                let end = (at + length).min(bytes.len());
                bytes[*at..end].fill(0);
                write(file, &bytes);
            }
            Self::Swap { one, other } => {
                write(one, &files[other]);
                write(other, &files[one]);
            }
        }
    }
}

/// Changes single bytes, and checks that enough of them are noticed for the test to mean something.
fn change_bytes(in_place: bool, seed: u64) {
    let scene = Scene::new(in_place);
    let mut dice = Dice::new(seed);
    let count = setting("CHRONICLE_CORRUPTIONS", 1000).div_ceil(2);
    let trials: Vec<_> = (0..count).map(|_| scene.flip(&mut dice)).collect();
    let counts = scene.play(&trials);
    let harmless = counts.get(HARMLESS).copied().unwrap_or_default();
    assert!((harmless as u64) < count * 2 / 3, "hardly anything is noticed: {counts:?}");
}

#[test]
fn a_changed_byte_is_noticed_or_holds_no_history() {
    change_bytes(true, 11);
}

#[test]
fn a_changed_byte_beside_a_write_ahead_log_is_noticed_or_holds_no_history() {
    change_bytes(false, 12);
}

#[test]
fn files_that_are_cut_emptied_or_swapped_are_noticed() {
    for (in_place, seed) in [(true, 13), (false, 14)] {
        let scene = Scene::new(in_place);
        let mut dice = Dice::new(seed);
        let trials: Vec<_> = (0..40).map(|_| scene.other_damage(&mut dice)).collect();
        let counts = scene.play(&trials);
        let harmless = counts.get(HARMLESS).copied().unwrap_or_default();
        assert!(harmless < trials.len() * 2 / 3, "hardly anything is noticed: {counts:?}");
    }
}

#[test]
fn the_command_survives_a_damaged_home() {
    let scene = Scene::new(true);
    let mut dice = Dice::new(15);
    let home = scene.copy("damaged");
    for _ in 0..setting("CHRONICLE_CORRUPTIONS", 1000) / ASKED {
        let damage =
            if dice.chance(70) { scene.flip(&mut dice) } else { scene.other_damage(&mut dice) };
        scene.ask_the_command(&home, &damage);
    }
}

/// SQLite takes a bad frame for a commit that a power cut interrupted, and drops it with all that
/// follow: the history is then whole, but an older one.
#[test]
fn a_damaged_write_ahead_log_needs_a_witness() {
    let scene = Scene::new(false);
    let is_log = |name: &&PathBuf| name.to_string_lossy().ends_with("-wal");
    let file = scene.files.keys().find(is_log).unwrap().clone();
    let damage = Damage::Flip { at: scene.files[&file].len() / 2, file, by: 1 };
    let home = scene.copy("older");
    let verify = || {
        let mut command = scene.cli.command(["verify", "--deep", "--json"]);
        done(command.env("CHRONICLE_HOME", &home).env("CHRONICLE_KEY", SECRET).output().unwrap())
    };
    damage.apply(&home, &scene.files);
    assert_eq!(verify().exits(12).error()["finding"], "rolled_back");
    scene.mend(&home, &damage);
    damage.apply(&home, &scene.files);
    let forgotten = |name: &&PathBuf| name.ends_with("witness") || name.ends_with("handed-over");
    for name in scene.files.keys().filter(forgotten) {
        fs::remove_file(home.join(name)).unwrap();
    }
    verify().ok();
    let older = scene.ask(&mut scene.open(&home).unwrap()).unwrap();
    assert!(older.log.len() < scene.whole.log.len());
    scene.is_true(&older, true).unwrap();
}
