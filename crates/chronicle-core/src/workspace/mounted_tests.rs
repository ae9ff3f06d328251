//! A mount as a test plays it: it says what it does before and after, and what went is in the log.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::mounted::{Deed, MountLog, SavedAs};
use super::{InitOptions, Workspace};
use crate::home::Home;
use crate::id::Seq;
use crate::path::WorkspacePath;
use crate::process::Process;

const PATIENCE: Duration = Duration::from_secs(5);

/// A workspace, a mount of it, and a second hand on the workspace that folds.
struct Scene {
    place: tempfile::TempDir,
    eye: Workspace,
    hand: Workspace,
    log: Option<MountLog>,
    who: u32,
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

impl Scene {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("work");
        fs::create_dir(&top).unwrap();
        fs::write(top.join("old"), "first\n").unwrap();
        let home = Home::at(&place.path().join("home"));
        let (mut hand, _) = Workspace::init(&home, &top, &InitOptions::default()).unwrap();
        let log = hand.begin_mount().unwrap();
        let who = log.who(&[Process::of(std::process::id()).unwrap()]).unwrap();
        let eye = Workspace::open(&home, &top).unwrap();
        Self { place, eye, hand, log: Some(log), who }
    }

    fn top(&self) -> PathBuf {
        self.place.path().join("work")
    }

    fn log(&self) -> &MountLog {
        self.log.as_ref().unwrap()
    }

    /// Does something the way a mount does it.
    fn act(&self, deed: Deed, at: &str, act: impl FnOnce(PathBuf)) {
        let numbers = self.log().intend(self.who, &[(deed, vec![path(at)])]).unwrap();
        act(self.top().join(at));
        self.log().outcome(&numbers, 0).unwrap();
    }

    fn create(&self, at: &str, content: &str) {
        self.act(Deed::Creates, at, |path| fs::write(path, content).unwrap());
    }

    fn save(&self, at: &str) -> SavedAs {
        self.log().save(&self.eye, &path(at)).unwrap()
    }

    fn rewrite(&self, at: &str, content: &str) {
        self.save(at);
        self.act(Deed::Opens, at, |path| fs::write(path, content).unwrap());
        self.log().closed(self.who, vec![path(at)]).unwrap();
    }

    fn remove(&self, at: &str) {
        self.save(at);
        self.act(Deed::Removes, at, |path| fs::remove_file(path).unwrap());
    }

    fn fold(&mut self) -> u64 {
        self.log().flush().unwrap();
        self.hand.fold(false, PATIENCE).unwrap().changes
    }

    /// The versions of a file that the log has, the oldest first; a deletion is a dash.
    fn versions(&self, at: &str) -> Vec<String> {
        let mut found = Vec::new();
        for seq in 1..=self.hand.last_position().unwrap().0 {
            let entry = self.hand.entry_just_after(Seq(seq), &path(at)).unwrap();
            let mut content = Vec::new();
            let text = match self.hand.write_past(&path(at), &entry, &mut content) {
                Ok(()) => String::from_utf8(content).unwrap(),
                Err(_) => "-".to_owned(),
            };
            if found.last() != Some(&text) {
                found.push(text);
            }
        }
        found
    }
}

#[test]
fn versions_that_lived_between_two_looks_are_in_the_log() {
    let mut scene = Scene::new();
    scene.create("new", "one\n");
    scene.rewrite("new", "two\n");
    scene.rewrite("old", "second\n");
    scene.rewrite("new", "three\n");
    scene.create("gone", "short life\n");
    scene.remove("gone");
    scene.rewrite("old", "third\n");
    assert!(scene.fold() > 0);
    assert_eq!(scene.versions("new"), ["-", "one\n", "two\n", "three\n"]);
    assert_eq!(scene.versions("gone"), ["-", "short life\n", "-"]);
    assert_eq!(scene.versions("old"), ["first\n", "second\n", "third\n"]);
    assert_eq!(scene.fold(), 0);
    scene.hand.verify(true, &|_, _| {}).unwrap();
    // What the mount recorded is all there is to record.
    assert_eq!(scene.hand.settle().unwrap().changes, 0);
}

#[test]
fn whoever_takes_the_lock_first_records_what_went() {
    let mut scene = Scene::new();
    scene.create("a", "lost\n");
    scene.rewrite("a", "kept\n");
    // Another process, which knows of no mount, looks at everything.
    let home = Home::at(&scene.place.path().join("home"));
    let mut other = Workspace::open(&home, &scene.top()).unwrap();
    other.settle().unwrap();
    assert_eq!(scene.versions("a"), ["-", "lost\n", "kept\n"]);
    assert_eq!(scene.fold(), 0);
    assert_eq!(scene.versions("a"), ["-", "lost\n", "kept\n"]);
}

#[test]
fn a_mount_that_died_is_closed_by_the_next() {
    let mut scene = Scene::new();
    scene.act(Deed::CreatesDirectory, "d", |path| fs::create_dir(path).unwrap());
    scene.create("d/f", "one\n");
    scene.rewrite("d/f", "two\n");
    scene.save("d/f");
    scene.log().intend(scene.who, &[(Deed::Changes, vec![path("d/f")])]).unwrap();
    scene.log().flush().unwrap();
    scene.log = None;
    assert!(!scene.hand.is_mounted().unwrap());
    let log = scene.hand.begin_mount().unwrap();
    assert!(scene.hand.is_mounted().unwrap());
    assert!(scene.eye.begin_mount().is_err(), "one at a time");
    assert_eq!(scene.versions("d/f"), ["-", "one\n", "two\n"]);
    log.tidy(&scene.hand).unwrap();
    assert_eq!(scene.hand.fold(true, PATIENCE).unwrap().changes, 0);
}

#[test]
fn what_is_open_waits_and_what_is_too_much_goes_into_the_log_at_once() {
    let mut scene = Scene::new();
    scene.create("big", &"x".repeat(3 << 20));
    assert_eq!(scene.save("big"), SavedAs::Noted);
    // It is in the store, and only the journal names it.
    let home = Home::at(&scene.place.path().join("home"));
    assert_eq!(home.collect_garbage(&|_, _| {}).unwrap().objects_gone, 0);
    scene.remove("big");
    scene.create("named", "at once\n");
    scene.hand.record_now(&[path("named")], false).unwrap();
    assert_eq!(scene.save("named"), SavedAs::Known);
    scene.act(Deed::Opens, "open", |path| fs::write(path, "half").unwrap());
    scene.fold();
    assert_eq!(scene.versions("open"), ["-"]);
    assert_eq!(scene.hand.fold(true, PATIENCE).unwrap().changes, 1);
    assert_eq!(scene.versions("open"), ["-", "half"]);
    assert_eq!(scene.versions("big").len(), 3);
    scene.hand.verify(true, &|_, _| {}).unwrap();
}

#[test]
fn a_long_journal_is_gone_on_with_in_a_new_one_that_says_again_what_is_not_over() {
    let mut scene = Scene::new();
    let directory = scene.place.path().join("home/workspaces");
    let directory = fs::read_dir(directory).unwrap().next().unwrap().unwrap().path().join("mount");
    scene.act(Deed::Opens, "open", |path| fs::write(path, "half").unwrap());
    let pending = scene.log().intend(scene.who, &[(Deed::Changes, vec![path("pending")])]).unwrap();
    // Unlike, so that they stay long when they are compressed.
    let mut state = 1_u64;
    for round in 0..30 {
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + (state >> 40) as u8 % 26)
        };
        let content: String = (0..60 << 10).map(|_| letter()).collect();
        scene.create("f", &format!("{round} {content}"));
        scene.save("f");
        scene.remove("f");
    }
    let journals = || {
        let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("journal-")).count()
    };
    assert_eq!(journals(), 1);
    scene.log().flush().unwrap();
    assert_eq!(journals(), 2, "begun while nothing of the old one is in the log");
    scene.fold();
    scene.log().tidy(&scene.hand).unwrap();
    assert_eq!(journals(), 1);
    assert_eq!(scene.versions("f").len(), 61);
    assert_eq!(scene.versions("open"), ["-"], "it is still open");
    assert_eq!(scene.hand.fold(true, PATIENCE).unwrap().changes, 1);
    assert_eq!(scene.versions("open"), ["-", "half"]);
    // The intent is in the journal that is gone; what came of it is told in the new one.
    fs::write(scene.place.path().join("work/pending"), "late\n").unwrap();
    scene.log().outcome(&pending, 0).unwrap();
    scene.fold();
    assert_eq!(scene.versions("pending"), ["-", "late\n"]);
    scene.hand.verify(true, &|_, _| {}).unwrap();
}
