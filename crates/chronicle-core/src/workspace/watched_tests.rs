//! A look through the watcher against a look at everything: after random work, by one or by several
//! at once, both must know the same.
//!
//! The watcher runs on a thread of the test; as a process it is tested with the command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chronicle_testing::dice::Dice;
use chronicle_testing::shared::setting;
use chronicle_testing::work::{Menu, Random};

use super::capture::Look;
use super::init::InitOptions;
use super::outcomes::Closing;
use super::{Workspace, key};
use crate::catalog::LocalState;
use crate::home::Home;
use crate::known::{Known, Part};
use crate::path::WorkspacePath;
use crate::watch::{WatchEnd, WatchOptions};

/// A workspace with a watcher on a thread.
struct World {
    place: tempfile::TempDir,
    workspace: Workspace,
    stop: Arc<AtomicBool>,
    watcher: Option<std::thread::JoinHandle<WatchEnd>>,
}

impl World {
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        Self::with(prepare, WatchOptions::default())
    }

    fn with(prepare: impl FnOnce(&Path), options: WatchOptions<'static>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("ws");
        std::fs::create_dir(&top).unwrap();
        prepare(&top);
        let home = Home::at(&place.path().join("home"));
        let (workspace, _) = Workspace::init(&home, &top, &InitOptions::default()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut world = Self { place, workspace, stop, watcher: None };
        world.start(options);
        world
    }

    fn top(&self) -> PathBuf {
        self.place.path().join("ws")
    }

    fn home(&self) -> Home {
        Home::at(&self.place.path().join("home"))
    }

    fn start(&mut self, options: WatchOptions<'static>) {
        self.stop = Arc::new(AtomicBool::new(false));
        let (home, top, stop) = (self.home(), self.top(), Arc::clone(&self.stop));
        let run = move || {
            let options = WatchOptions { stop: Some(&stop), ..options };
            Workspace::watch(&home, &top, &options).unwrap()
        };
        self.watcher = Some(std::thread::spawn(run));
        self.until("the watcher answers", |world| world.workspace.watcher_process().is_some());
    }

    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < end, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(&mut self) -> Option<WatchEnd> {
        self.stop.store(true, Ordering::Relaxed);
        // A question wakes it.
        let _ = self.workspace.watcher_process();
        self.watcher.take().map(|watcher| watcher.join().unwrap())
    }

    fn write(&self, path: &str, content: &str) {
        let full = self.top().join(path);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(full, content).unwrap();
    }

    /// Settles through the watcher if it can tell; says what it looked at.
    fn settle(&mut self) -> (bool, usize) {
        let _lock = self.workspace.lock(Duration::from_secs(10)).unwrap();
        let look = self.workspace.look_for_changes().unwrap();
        let summary = (look.watched, look.found.len());
        let open = self.workspace.openings().unwrap();
        self.workspace.settle_with(look, &open, &Closing::Ended).unwrap();
        summary
    }

    /// Settles until a look goes through the watcher.
    fn follow(&mut self) {
        self.until("a look through the watcher", |world| world.settle().0);
    }

    /// What a look at everything finds that is not recorded yet.
    fn missed(&self) -> Vec<String> {
        let look: Look = self.workspace.look().unwrap();
        let mut words: Vec<_> = look
            .found
            .iter()
            .map(|found| format!("{}: {:?} -> {:?}", found.path, found.before, found.after))
            .collect();
        for update in &look.known {
            for (name, known) in &update.names {
                let was = self.workspace.catalog.known(&update.path.join(name)).unwrap();
                let times =
                    |known: &Option<Known>| known.as_ref().and_then(|known| known.signature);
                let racy = was.as_ref().is_some_and(|was| was.racy);
                if times(&was) != times(known) && !racy {
                    words.push(format!("signature of {}", update.path.join(name)));
                }
            }
        }
        words
    }

    fn known(&self) -> BTreeMap<WorkspacePath, (String, Part)> {
        known_entries(&self.workspace)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.workspace.watcher_process();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

fn known_entries(workspace: &Workspace) -> BTreeMap<WorkspacePath, (String, Part)> {
    let table = workspace.catalog.known_table().unwrap();
    let directories: std::collections::BTreeSet<_> =
        table.rows.keys().chain(table.newer.keys()).cloned().collect();
    let mut all = BTreeMap::new();
    for directory in directories {
        for (name, known) in table.directory(&directory).unwrap().names {
            all.insert(directory.join(&name), (format!("{:?}", known.entry), known.part));
        }
    }
    all
}

fn git(top: &Path, words: &str) {
    let _ = Command::new("git")
        .args(words.split_whitespace())
        .current_dir(top)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", top.parent().unwrap())
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@b")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@b")
        .output()
        .expect("git runs");
}

/// Something that only repositories and filters do.
fn odd_step(top: &Path, dice: &mut Dice) -> String {
    let words = [
        "init -q",
        "add -A",
        "commit -q -m x",
        "stash -q",
        "stash -q pop",
        "checkout -q -b side",
        "checkout -q -",
        "gc -q",
        "clean -fdxq",
    ];
    let write = |path: &str, content: &str| {
        let full = top.join(path);
        let _ = std::fs::create_dir_all(full.parent().expect("below the top"));
        let _ = std::fs::write(full, content);
        format!("write {path}")
    };
    match dice.below(16) {
        0 => write("node_modules/p/index.js", &dice.roll().to_string()),
        1 => write("package.json", "{}"),
        2 => {
            let _ = std::fs::remove_file(top.join("package.json"));
            "rm package.json".to_owned()
        }
        3 => {
            let rules = *dice.pick(&["build/\n", "target/\n", ""]);
            write(".gitignore", rules)
        }
        4 => write("build/deep/out", &dice.roll().to_string()),
        5 => write("target/debug/x", &dice.roll().to_string()),
        6 => {
            let _ = std::fs::rename(top.join("build"), top.join("target"));
            "mv build target".to_owned()
        }
        _ => {
            let words = *dice.pick(&words);
            git(top, words);
            format!("git {words}")
        }
    }
}

/// Runs many seeds on all cores; a failure names its seed.
fn check(share: u64, case: impl Fn(u64) -> Result<(), String> + Sync) {
    let count = (setting("CHRONICLE_CASES", 100) * share).div_ceil(100).max(1);
    let first = setting("CHRONICLE_SEED", 1);
    let next = std::sync::atomic::AtomicU64::new(first);
    let failure = Mutex::new(None::<(u64, String)>);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failure.lock().unwrap().is_some() {
                return;
            }
            if let Err(story) = case(seed) {
                failure.lock().unwrap().get_or_insert((seed, story));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    if let Some((seed, story)) = failure.into_inner().unwrap() {
        panic!("try it alone with CHRONICLE_CASES=1 CHRONICLE_SEED={seed}\n{story}");
    }
}

/// One after the other: after each settle, a look at everything must find nothing more.
fn one_by_one(seed: u64, odd: usize) -> Result<(), String> {
    let menu = Menu { links: seed.is_multiple_of(3), ..Menu::ALL };
    let mut world = World::new(|top| drop(Random::new(top, seed, menu).steps(30)));
    let mut dice = Dice::new(seed);
    let mut work = Random::new(&world.top(), seed + 1_000_000, menu);
    let (mut tale, mut watched) = (Vec::new(), 0);
    for _ in 0..12 {
        // A second name that comes and goes between two looks is seen by full looks only.
        for _ in 0..dice.between(0, if menu.links { 1 } else { 6 }) {
            let top = world.top();
            tale.push(if dice.chance(odd) { odd_step(&top, &mut dice) } else { work.step() });
        }
        let (through, found) = world.settle();
        watched += usize::from(through);
        tale.push(format!("settle: through the watcher {through}, {found} changes"));
        let missed = world.missed();
        if through && !missed.is_empty() {
            return Err(format!("missed {missed:#?}\n{}", tale.join("\n")));
        }
    }
    if seed == 1 && watched == 0 {
        return Err(format!("no look went through the watcher\n{}", tale.join("\n")));
    }
    compare_with_fresh(&mut world, &tale)
}

/// A second home that never had a watcher must know the same.
fn compare_with_fresh(world: &mut World, tale: &[String]) -> Result<(), String> {
    world.settle();
    let home = Home::at(&world.place.path().join("other"));
    let (other, _) = Workspace::init(&home, &world.top(), &InitOptions::default()).unwrap();
    let (ours, theirs) = (world.known(), known_entries(&other));
    let links = |text: &str| text.contains("link: Some");
    for (path, entry) in &ours {
        let found = theirs.get(path);
        // What was taken in stays in, and groups of links keep their names: both depend on the past.
        // So does the form in which a repository was last taken in while its value stayed.
        let past = found.is_none_or(|(found, _)| found.contains("Filtered"))
            || links(&entry.0)
            || entry.0.starts_with("Repository");
        if found != Some(entry) && !past {
            return Err(format!("{path}: {entry:?} is {found:?}\n{}", tale.join("\n")));
        }
    }
    match theirs.keys().find(|path| !ours.contains_key(*path)) {
        Some(path) => Err(format!("{path} is not known\n{}", tale.join("\n"))),
        None => Ok(()),
    }
}

#[test]
fn a_look_through_the_watcher_finds_what_a_look_at_everything_finds() {
    check(60, |seed| one_by_one(seed, 0));
}

#[test]
fn the_same_with_repositories_and_filters() {
    check(40, |seed| one_by_one(seed, 35));
}

/// Several threads work while looks go on; when they have stopped, nothing may be missing.
fn at_once(seed: u64) -> Result<(), String> {
    let menu = Menu { links: false, ..Menu::ALL };
    let mut world = World::new(|top| {
        for name in ["one", "two", "three"] {
            std::fs::create_dir(top.join(name)).unwrap();
            Random::new(&top.join(name), seed, menu).steps(20);
        }
    });
    let done = AtomicBool::new(false);
    let top = world.top();
    let mut watched = 0;
    let tales = std::thread::scope(|scope| {
        let worker = |name: &'static str, number: u64| {
            let (top, done) = (top.join(name), &done);
            scope.spawn(move || {
                let mut work = Random::new(&top, seed * 10 + number, menu);
                let tale = work.steps(60);
                done.store(number == 2, Ordering::Relaxed);
                tale
            })
        };
        let workers = [worker("one", 0), worker("two", 1), worker("three", 2)];
        while !done.load(Ordering::Relaxed) && !workers[2].is_finished() {
            watched += usize::from(world.settle().0);
        }
        workers.map(|worker| worker.join().unwrap())
    });
    let (through, found) = world.settle();
    let tale: Vec<_> = tales.into_iter().flatten().collect();
    let missed = world.missed();
    if through && !missed.is_empty() {
        let last = format!("last settle found {found}, {watched} looks were watched");
        return Err(format!("missed {missed:#?}\n{last}\n{}", tale.join("\n")));
    }
    compare_with_fresh(&mut world, &tale)
}

#[test]
fn nothing_is_missed_while_others_work() {
    check(40, at_once);
}

#[test]
fn nothing_touched_costs_no_commit_and_a_touch_is_found() {
    let mut world = World::new(|top| std::fs::write(top.join("a"), "1").unwrap());
    world.follow();
    let bookmark = world.workspace.catalog.state(key::WATCHED).unwrap();
    let look = world.workspace.look_for_changes().unwrap();
    assert!(look.watched && look.untouched && look.bookmark.is_none());
    world.write("a", "2");
    assert_eq!(world.settle(), (true, 1));
    assert_ne!(world.workspace.catalog.state(key::WATCHED).unwrap(), bookmark);
    assert_eq!(world.settle(), (true, 0));
}

#[test]
fn a_watcher_that_ended_costs_one_full_look_and_no_change() {
    let mut world = World::new(|top| std::fs::write(top.join("a"), "1").unwrap());
    world.follow();
    assert_eq!(world.end(), Some(WatchEnd::Stopped));
    world.write("a", "2");
    world.start(WatchOptions::default());
    world.write("d/b", "3");
    let (watched, found) = world.settle();
    assert!(!watched && found >= 3, "{watched} {found}");
    world.write("d/b", "4");
    assert_eq!(world.settle(), (true, 1));
}

#[test]
fn more_directories_than_can_be_watched_cost_time_only() {
    let options = WatchOptions { most_directories: 3, ..WatchOptions::default() };
    let make =
        |top: &Path| (0..9).for_each(|at| std::fs::create_dir(top.join(at.to_string())).unwrap());
    let mut world = World::with(make, options);
    world.write("7/x", "1");
    let (watched, found) = world.settle();
    assert!(!watched && found >= 1);
    let status = world.workspace.status().unwrap();
    assert!(status.watcher.contains("fs.inotify.max_user_watches"), "{}", status.watcher);
}

#[test]
fn many_touched_paths_are_a_full_look() {
    let options = WatchOptions { most_paths: 5, ..WatchOptions::default() };
    let mut world = World::with(|_| {}, options);
    world.follow();
    (0..20).for_each(|at| world.write(&format!("f{at}"), "x"));
    let (watched, found) = world.settle();
    assert!(!watched && found >= 20);
    world.follow();
    world.write("f1", "y");
    assert_eq!(world.settle(), (true, 1));
}

#[test]
fn there_is_one_watcher_and_it_ends_when_nobody_asks() {
    let options = WatchOptions { idle: Duration::from_millis(400), ..WatchOptions::default() };
    let mut world = World::with(|_| {}, options);
    let again = Workspace::watch(&world.home(), &world.top(), &WatchOptions::default()).unwrap();
    assert_eq!(again, WatchEnd::Already);
    assert_eq!(world.watcher.take().unwrap().join().unwrap(), WatchEnd::Idle);
    assert_eq!(world.workspace.watcher_process(), None);
    assert!(!world.settle().0);
}

#[test]
fn it_ends_when_the_workspace_or_its_socket_goes() {
    let mut world = World::new(|top| std::fs::write(top.join("a"), "1").unwrap());
    std::fs::remove_dir_all(world.top()).unwrap();
    assert_eq!(world.watcher.take().unwrap().join().unwrap(), WatchEnd::Unwanted);
    let mut world = World::new(|_| {});
    std::fs::remove_file(world.workspace.directory().join("watch.sock")).unwrap();
    assert_eq!(world.watcher.take().unwrap().join().unwrap(), WatchEnd::Unwanted);
}

#[test]
fn further_roots_are_watched_once_they_are_roots() {
    let outside = tempfile::tempdir().unwrap();
    let directory = outside.path().canonicalize().unwrap().join("d");
    std::fs::create_dir(&directory).unwrap();
    let single = directory.with_file_name("single");
    std::fs::write(&single, "1").unwrap();
    let mut world = World::new(|_| {});
    world.follow();
    world.workspace.add_root(&directory).unwrap();
    world.workspace.add_root(&single).unwrap();
    world.follow();
    std::fs::write(directory.join("x"), "1").unwrap();
    std::fs::write(&single, "2").unwrap();
    let (watched, found) = world.settle();
    assert!(watched && found >= 3, "{watched} {found}");
    assert_eq!(world.missed(), Vec::<String>::new());
}

#[test]
fn a_file_written_through_another_of_its_names_is_seen() {
    let mut world = World::new(|top| {
        std::fs::create_dir(top.join("d")).unwrap();
        std::fs::write(top.join("a"), "1").unwrap();
        std::fs::hard_link(top.join("a"), top.join("d/b")).unwrap();
    });
    world.follow();
    world.write("d/b", "2");
    let (watched, found) = world.settle();
    assert!(!watched && found == 2, "{watched} {found}");
}

#[test]
fn what_cannot_be_seen_is_looked_at_again_each_time_denied() {
    use std::os::unix::fs::PermissionsExt;
    if chronicle_testing::shared::is_root() {
        return;
    }
    let mut world = World::new(|top| {
        std::fs::create_dir(top.join("d")).unwrap();
        std::fs::write(top.join("d/x"), "1").unwrap();
    });
    let mode = |world: &World, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(world.top().join("d"), mode).unwrap();
    };
    world.follow();
    mode(&world, 0o000);
    assert!(!world.workspace.settle().unwrap().complete);
    assert!(!world.workspace.settle().unwrap().complete);
    mode(&world, 0o755);
    world.write("d/x", "2");
    world.settle();
    assert_eq!(world.missed(), Vec::<String>::new());
    assert!(world.workspace.settle().unwrap().complete);
}

#[test]
fn directories_that_change_places_cost_a_full_look() {
    let mut world = World::new(|top| {
        for name in ["a/x", "b/y"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
    });
    world.follow();
    let top = world.top();
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        top.join("a"),
        rustix::fs::CWD,
        top.join("b"),
        flags,
    )
    .unwrap();
    world.settle();
    assert_eq!(world.missed(), Vec::<String>::new());
    world.follow();
    world.write("a/y/new", "1");
    world.write("b/x/new", "1");
    world.settle();
    assert_eq!(world.missed(), Vec::<String>::new());
}

#[test]
fn a_socket_in_a_deep_home_is_reached() {
    let place = tempfile::tempdir().unwrap();
    let top = place.path().join("ws");
    std::fs::create_dir(&top).unwrap();
    let home = Home::at(&place.path().join("long-name-".repeat(12)).join("home"));
    let (workspace, _) = Workspace::init(&home, &top, &InitOptions::default()).unwrap();
    let stop = AtomicBool::new(false);
    let options = WatchOptions { stop: Some(&stop), ..WatchOptions::default() };
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| Workspace::watch(&home, &top, &options).unwrap());
        let end = Instant::now() + Duration::from_secs(10);
        while workspace.watcher_process().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(workspace.watcher_process(), Some(std::process::id()));
        stop.store(true, Ordering::Relaxed);
        let _ = workspace.watcher_process();
        assert_eq!(watcher.join().unwrap(), WatchEnd::Stopped);
    });
}

#[test]
fn a_socket_that_is_no_socket_or_does_not_answer_is_nobody() {
    let mut world = World::new(|_| {});
    world.follow();
    world.end();
    let socket = world.workspace.directory().join("watch.sock");
    std::fs::write(&socket, "").unwrap();
    assert!(!world.settle().0);
    std::fs::remove_file(&socket).unwrap();
    let elsewhere = world.place.path().join("elsewhere.sock");
    let silent = std::os::unix::net::UnixListener::bind(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &socket).unwrap();
    let begun = Instant::now();
    assert!(!world.settle().0);
    assert!(begun.elapsed() < Duration::from_millis(190), "a link is not followed");
    std::fs::remove_file(&socket).unwrap();
    std::fs::rename(&elsewhere, &socket).unwrap();
    assert!(!world.settle().0, "nobody answers at {silent:?}");
    if chronicle_testing::shared::is_root() {
        // Somebody else's is not even asked.
        std::os::unix::fs::chown(&socket, Some(12_345), None).unwrap();
        let begun = Instant::now();
        assert!(!world.settle().0 && begun.elapsed() < Duration::from_millis(190));
    }
    // A stale one is replaced by the next watcher.
    drop(silent);
    world.start(WatchOptions::default());
    world.follow();
}
