//! Looks at real directories; a small stand-in for the catalog remembers what each look found.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::thread::CapabilitySet;
use tempfile::TempDir;

use super::*;
use crate::entry::{Meta, Repository};
use crate::filter::{Filter, FilterRules};
use crate::fs::Roots;
use crate::id::{ObjectId, Seq};
use crate::known::{KnownDirectory, KnownTable, Listed};
use crate::store::LocalStore;

/// The machine's clock, set forward so that what a test just wrote is not racy.
struct Ahead(i64);

impl Clock for Ahead {
    fn now(&self) -> Time {
        Time(SystemClock.now().0 + self.0)
    }
}

const LATER: Ahead = Ahead(10_000_000_000);
/// Set back, so that what a test just wrote is racy however long ago that was.
const EARLIER: Ahead = Ahead(-10_000_000_000);

struct Fixture {
    home: TempDir,
    further: Vec<PathBuf>,
    ignore: &'static str,
    known: BTreeMap<WorkspacePath, KnownDirectory>,
}

fn path(bytes: impl AsRef<[u8]>) -> WorkspacePath {
    WorkspacePath::new(bytes.as_ref()).unwrap()
}

impl Fixture {
    /// A workspace with these files; a name that ends in `/` is a directory.
    fn new(names: &[&str]) -> Self {
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("work")).unwrap();
        let (further, known) = (Vec::new(), BTreeMap::new());
        let fixture = Self { home, further, ignore: "", known };
        names.iter().for_each(|name| fixture.write(name, name));
        fixture
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let place = self.at(name);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        if name.ends_with('/') {
            fs::create_dir_all(place).unwrap();
        } else {
            fs::write(place, content).unwrap();
        }
    }

    fn remove(&self, name: &str) {
        let place = self.at(name);
        if place.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(place).unwrap();
        } else {
            fs::remove_file(place).unwrap();
        }
    }

    fn roots(&self) -> Roots {
        Roots::open(&self.at(""), &self.further, &[]).unwrap()
    }

    fn filter(&self) -> Filter {
        let rules = FilterRules { ignore: self.ignore.as_bytes().to_vec() };
        Filter::new(&self.at(""), &self.home.path().join("home"), &rules, &rules)
    }

    fn table(&self) -> KnownTable {
        let mut table = KnownTable::default();
        for (path, directory) in &self.known {
            let start = table.arena.len();
            table.arena.extend(directory.encode());
            table.rows.insert(path.clone(), start..table.arena.len());
        }
        table
    }

    fn survey(&self, clock: &dyn Clock) -> Survey {
        let options = SurveyOptions { threads: 2, clock, ..SurveyOptions::default() };
        survey(&self.roots(), &self.table(), &self.filter(), &options).unwrap()
    }

    fn examine(&self, candidates: &[Candidate], clock: &dyn Clock) -> Vec<Examined> {
        let store = LocalStore::open(&self.home.path().join("store")).unwrap();
        let intake = store.intake().unwrap();
        let options = ExamineOptions { threads: 2, clock, ..ExamineOptions::default() };
        examine_all(&self.roots(), candidates, &intake, &options).unwrap()
    }

    /// Looks, remembers, and says in words what was found, without directories' times.
    fn look_at(&mut self, clock: &dyn Clock) -> Vec<String> {
        let found = self.survey(clock);
        let examined = self.examine(&found.candidates, clock);
        let mut lines = Vec::new();
        for (candidate, examined) in found.candidates.iter().zip(&examined) {
            lines.extend(describe(candidate, &examined.known));
            self.remember(&candidate.path, examined.known.clone());
        }
        for (path, _) in &found.vanished {
            lines.push(format!("gone {path}"));
            self.forget(path);
        }
        for unit in &found.units {
            lines.push(format!("unit {unit}"));
            self.remember(unit, self.repository(unit));
        }
        let problem = |problem: &Problem| format!("problem {} {:?}", problem.path, problem.why);
        lines.extend(found.problems.iter().map(problem));
        for listing in found.listings {
            let row = self.known.entry(listing.path).or_default();
            row.listed = listing.complete.then_some(Listed { seq: Seq(1), time: listing.time });
            row.mount = listing.mount;
        }
        lines
    }

    fn remember(&mut self, path: &WorkspacePath, known: Known) {
        let is_root = path.is_root() || self.further.iter().any(|root| root == path.as_path());
        match path.parent().filter(|_| !is_root) {
            None => self.known.entry(path.clone()).or_default().own = Some(known),
            Some(parent) => {
                let row = self.known.entry(parent).or_default();
                row.names.insert(path.name().to_vec(), known);
            }
        }
    }

    fn forget(&mut self, path: &WorkspacePath) {
        self.known.remove(path);
        if let Some(row) = path.parent().and_then(|parent| self.known.get_mut(&parent)) {
            row.names.remove(path.name());
        }
    }

    fn repository(&self, unit: &WorkspacePath) -> Known {
        let now = self.roots().lstat(unit).unwrap().unwrap().signature;
        let (mode, uid, gid) = (now.mode & 0o7777, now.uid, now.gid);
        let meta = Meta { mode, uid, gid, ..Meta::default() };
        let (bundle, identity) = (ObjectId([0; 32]), ObjectId([0; 32]));
        let entry = Entry::Repository(Repository { bundle, identity, head: Vec::new(), meta });
        Known { entry, signature: Some(now), racy: false, part: Part::Ordinary }
    }

    #[track_caller]
    fn look(&mut self, expected: &[&str]) {
        assert_eq!(self.look_at(&LATER), expected);
    }

    /// Looks without caring for what is found.
    fn settle(mut self) -> Self {
        self.look_at(&LATER);
        self.look(&[]);
        self
    }
}

fn describe(candidate: &Candidate, now: &Known) -> Option<String> {
    let path = &candidate.path;
    let was = candidate.was.as_ref().map(|was| &was.entry);
    let word = match was {
        _ if candidate.part == Part::Significant => "part",
        Some(was) if *was == now.entry => "same",
        Some(was) if was.is_directory() && was.same_but_time(&now.entry) => return None,
        Some(_) => "changed",
        None if path.is_root() => return None,
        None => "new",
    };
    Some(match &now.entry {
        Entry::Unknown(why) => format!("{word} {path} {why:?}"),
        entry => format!("{word} {path} {}", entry.kind()),
    })
}

fn set_mtime(path: &std::path::Path, nanoseconds: i64) {
    let time =
        Timespec { tv_sec: nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Runs on a thread of its own for which permissions count, whoever runs the test.
fn unprivileged<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            rustix::thread::set_capabilities(None, sets).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_first_look_sees_everything_and_a_second_nothing() {
    let mut fixture = Fixture::new(&["a", "d/b", "d/e/c", "empty/"]);
    symlink("d/b", fixture.at("link")).unwrap();
    fixture.look(&[
        "new a file",
        "new d directory",
        "new d/b file",
        "new d/e directory",
        "new d/e/c file",
        "new empty directory",
        "new link symlink",
    ]);
    let again = fixture.survey(&LATER);
    assert!(again.candidates.is_empty() && again.listings.is_empty());
    assert_eq!((again.files, again.directories), (4, 4));
}

#[test]
fn a_change_is_seen_when_size_and_mtime_are_put_back() {
    let mut fixture = Fixture::new(&["file"]).settle();
    let before = fixture.at("file").metadata().unwrap();
    fixture.write("file", "FILE");
    set_mtime(&fixture.at("file"), before.mtime() * 1_000_000_000 + before.mtime_nsec());
    fixture.look(&["changed file file"]);
}

#[test]
fn mode_and_owner_changes_are_seen() {
    let mut fixture = Fixture::new(&["file", "d/x"]).settle();
    fs::set_permissions(fixture.at("file"), PermissionsExt::from_mode(0o750)).unwrap();
    fs::set_permissions(fixture.at("d"), PermissionsExt::from_mode(0o711)).unwrap();
    fixture.look(&["changed d directory", "changed file file"]);
}

#[test]
fn a_file_touched_right_before_it_was_read_is_read_again() {
    let mut fixture = Fixture::new(&["file"]);
    fixture.look_at(&EARLIER);
    assert!(fixture.known[&path("")].names[&b"file"[..]].racy);
    fixture.look(&["same . directory", "same file file"]);
    fixture.look(&[]);
}

#[test]
fn a_vanished_directory_takes_everything_known_below_with_it() {
    let mut fixture = Fixture::new(&["d/a", "d/e/b", "d-not/c", "z"]).settle();
    fixture.remove("d");
    fixture.look(&["gone d", "gone d/a", "gone d/e", "gone d/e/b"]);
    fixture.look(&[]);
}

#[test]
fn a_file_takes_a_directorys_place_and_gives_it_back() {
    let mut fixture = Fixture::new(&["x/a", "x/b/c"]).settle();
    fixture.remove("x");
    fixture.write("x", "file");
    fixture.look(&["changed x file", "gone x/a", "gone x/b", "gone x/b/c"]);
    fixture.remove("x");
    fixture.write("x/a", "again");
    fixture.look(&["changed x directory", "new x/a file"]);
    fixture.look(&[]);
}

#[test]
fn a_link_in_a_directorys_place_is_not_followed() {
    let mut fixture = Fixture::new(&["d/a", "other/a"]).settle();
    fixture.remove("d");
    symlink("other", fixture.at("d")).unwrap();
    let roots = fixture.roots();
    let refused = |error| matches!(error, Error::ThroughSymlink(_));
    assert!(roots.lstat(&path("d/a")).is_err_and(refused));
    assert!(roots.open_file(&path("d/a")).is_err_and(refused));
    assert!(roots.open_directory(&path("d")).is_err_and(refused));
    let none = |_: &WorkspacePath| Ok(None);
    let options = SurveyOptions::default();
    assert!(survey_paths(&roots, &[path("d/a")], &none, None, &options).is_err_and(refused));
    fixture.look(&["changed d symlink", "gone d/a"]);
}

#[test]
fn an_unreadable_directory_proves_nothing_about_what_is_in_it() {
    let mut fixture = Fixture::new(&["d/a", "d/e/b"]).settle();
    fs::set_permissions(fixture.at("d"), PermissionsExt::from_mode(0o000)).unwrap();
    let lines = unprivileged(|| fixture.look_at(&LATER));
    assert_eq!(lines, ["changed d directory", "problem d Unreadable"]);
    assert_eq!(fixture.known[&path("d")].listed, None);
    fs::set_permissions(fixture.at("d"), PermissionsExt::from_mode(0o755)).unwrap();
    fixture.look(&["changed d directory"]);
}

#[test]
fn names_that_can_be_listed_but_not_looked_at_are_unknown() {
    let mut fixture = Fixture::new(&["d/a"]).settle();
    fs::set_permissions(fixture.at("d"), PermissionsExt::from_mode(0o600)).unwrap();
    let lines = unprivileged(|| fixture.look_at(&LATER));
    let expected = ["changed d directory", "changed d/a Unreadable", "problem d/a Unreadable"];
    assert_eq!(lines, expected);
    fs::set_permissions(fixture.at("d"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn an_unreadable_file_is_unknown_and_not_absent() {
    let mut fixture = Fixture::new(&["secret"]).settle();
    fs::set_permissions(fixture.at("secret"), PermissionsExt::from_mode(0o000)).unwrap();
    let lines = unprivileged(|| fixture.look_at(&LATER));
    assert_eq!(lines, ["changed secret Unreadable"]);
    fs::set_permissions(fixture.at("secret"), PermissionsExt::from_mode(0o644)).unwrap();
    fixture.look(&["changed secret file"]);
}

#[test]
fn special_files_are_named_and_never_opened() {
    let mut fixture = Fixture::new(&["file"]);
    rustix::fs::mkfifoat(CWD, fixture.at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.at("socket")).unwrap();
    fixture.look(&["new file file", "new pipe special", "new socket special"]);
    let opened = fixture.roots().open_file(&path("pipe"));
    assert!(opened.is_ok(), "a fifo without a writer must not block its reader");
}

#[test]
fn filtered_things_are_named_and_not_entered() {
    let mut fixture = Fixture::new(&["src/a", "skipped/x", "skipped/y/z"]);
    fixture.ignore = "skipped\n";
    fixture.look(&["new skipped Filtered", "new src directory", "new src/a file"]);
    fixture.write("skipped/more", "");
    fixture.look(&[]);
    fixture.ignore = "";
    fixture.look(&[
        "changed skipped directory",
        "new skipped/more file",
        "new skipped/x file",
        "new skipped/y directory",
        "new skipped/y/z file",
    ]);
}

#[test]
fn a_new_filter_makes_nothing_vanish_until_it_is_really_gone() {
    let mut fixture = Fixture::new(&["skipped/x", "skipped/y/z"]).settle();
    fixture.ignore = "skipped\n";
    fixture.look(&["changed skipped Filtered"]);
    fixture.remove("skipped");
    fixture.look(&["gone skipped", "gone skipped/x", "gone skipped/y", "gone skipped/y/z"]);
}

#[test]
fn staging_is_not_there_at_any_level() {
    let mut fixture = Fixture::new(&[".chronicle-staging-1/a", "d/.chronicle-staging-2", "d/b"]);
    fixture.look(&["new d directory", "new d/b file"]);
}

#[test]
fn names_of_one_inode_show_it() {
    let fixture = Fixture::new(&["a"]);
    fs::hard_link(fixture.at("a"), fixture.at("b")).unwrap();
    let found = fixture.survey(&LATER);
    let examined = fixture.examine(&found.candidates, &LATER);
    let inode = |at: usize| (examined[at].dev, examined[at].known.signature.unwrap().ino);
    assert_eq!(inode(1), inode(2));
    assert_eq!((examined[1].nlink, examined[2].nlink), (2, 2));
}

#[test]
fn names_that_are_not_utf8_are_names() {
    use std::os::unix::ffi::OsStrExt;
    let mut fixture = Fixture::new(&[]);
    let name = std::ffi::OsStr::from_bytes(b"\xff\n");
    fs::create_dir(fixture.at("").join(name)).unwrap();
    fs::write(fixture.at("").join(name).join(name), "x").unwrap();
    fixture.look(&["new \\xff\\n directory", "new \\xff\\n/\\xff\\n file"]);
    fixture.look(&[]);
    fs::remove_file(fixture.at("").join(name).join(name)).unwrap();
    fixture.look(&["gone \\xff\\n/\\xff\\n"]);
}

#[test]
fn an_unmounted_file_system_makes_nothing_vanish() {
    let mut fixture = Fixture::new(&["mnt/a", "up/mnt/b"]).settle();
    let elsewhere = Some(Identity { fsid: 1, ino: 2, born_ns: 3 });
    fixture.known.get_mut(&path("mnt")).unwrap().mount = elsewhere;
    fixture.known.get_mut(&path("up/mnt")).unwrap().mount = elsewhere;
    fixture.remove("mnt");
    fixture.write("mnt/", "");
    fixture.remove("up");
    fixture.look(&["gone up", "problem mnt Unmounted", "problem up/mnt Unmounted"]);
}

#[test]
fn attributes_and_holes_are_read() {
    let fixture = Fixture::new(&["file"]);
    let file = fs::OpenOptions::new().write(true).open(fixture.at("file")).unwrap();
    file.set_len(1 << 20).unwrap();
    let set = |name, value: &[u8]| {
        rustix::fs::fsetxattr(&file, name, value, rustix::fs::XattrFlags::empty())
    };
    let supported = set("user.b", b"2").and(set("user.a", b"")).is_ok();
    let found = fixture.survey(&LATER);
    let examined = fixture.examine(&found.candidates, &LATER);
    let Entry::File(file) = &examined[1].known.entry else { panic!("{examined:?}") };
    let expected = vec![(b"user.a".to_vec(), Vec::new()), (b"user.b".to_vec(), b"2".to_vec())];
    assert_eq!(file.meta.xattrs, if supported { expected } else { Vec::new() });
    assert_eq!((file.size, file.sparse), (1 << 20, true));
}

#[test]
fn large_files_are_streamed_and_have_the_same_name() {
    let fixture = Fixture::new(&[]);
    let content = vec![7; (4 << 20) + 1];
    fs::write(fixture.at("large"), &content).unwrap();
    let found = fixture.survey(&LATER);
    let examined = fixture.examine(&found.candidates, &LATER);
    assert_eq!(examined[1].known.entry.object(), Some(ObjectId::of(&content)));
}

#[test]
fn a_candidate_that_left_meanwhile_is_absent() {
    let fixture = Fixture::new(&["d/a", "d/b"]);
    let found = fixture.survey(&LATER);
    fixture.remove("d");
    let examined = fixture.examine(&found.candidates, &LATER);
    let kinds: Vec<_> = examined.iter().map(|one| one.known.entry.kind()).collect();
    assert_eq!(kinds, ["directory", "absent", "absent", "absent"]);
}

const REPOSITORY: [&str; 6] = [
    ".git/HEAD",
    ".git/config",
    ".git/objects/aa/1",
    ".git/refs/heads/main",
    ".git/refs/tags/",
    "file",
];

#[test]
fn a_repositorys_significant_part_is_one_unit() {
    let mut fixture = Fixture::new(&REPOSITORY).settle();
    fixture.write(".git/objects/aa/2", "neutral");
    fixture.write(".git/index.lock", "ignored");
    fixture.look(&["new .git/objects/aa/2 file"]);
    fixture.remove(".git/index.lock");
    fixture.write(".git/HEAD", "other");
    fixture.look(&["part .git/HEAD file", "unit .git"]);
    fixture.remove(".git/refs/heads/main");
    fixture.look(&["gone .git/refs/heads/main", "unit .git"]);
    fixture.remove(".git");
    let found = fixture.survey(&LATER);
    assert!(found.units.is_empty());
    assert!(found.vanished.iter().any(|(gone, _)| *gone == path(".git")));
}

#[test]
fn a_branch_that_goes_with_its_directory_is_significant() {
    let fixture = Fixture::new(&REPOSITORY);
    fixture.write(".git/refs/heads/feature/x", "branch");
    let mut fixture = fixture.settle();
    fixture.remove(".git/refs/heads/feature");
    fixture.look(&["gone .git/refs/heads/feature", "gone .git/refs/heads/feature/x", "unit .git"]);
    fixture.remove(".git/refs/heads/main");
    fixture.write(".git/refs/heads/main/", "");
    fixture.look(&["changed .git/refs/heads/main directory", "unit .git"]);
}

#[test]
fn a_path_too_long_to_record_is_named_and_left_out() {
    let mut fixture = Fixture::new(&["a"]);
    let mut place = rustix::fs::open(fixture.at(""), OFlags::RDONLY, Mode::empty()).unwrap();
    let name = "n".repeat(255);
    for _ in 0..17 {
        rustix::fs::mkdirat(&place, &*name, Mode::RWXU).unwrap();
        place = rustix::fs::openat(&place, &*name, OFlags::RDONLY, Mode::empty()).unwrap();
    }
    let lines = fixture.look_at(&LATER);
    assert_eq!(lines.len(), 18);
    assert!(lines.last().unwrap().starts_with("problem nnn"));
}

#[test]
fn a_repository_that_is_none_any_more_is_a_directory() {
    let mut fixture = Fixture::new(&REPOSITORY).settle();
    fixture.remove(".git/HEAD");
    let lines = fixture.look_at(&LATER);
    assert_eq!(lines[0], "changed .git directory");
    assert!(lines.contains(&"gone .git/HEAD".to_owned()), "{lines:?}");
    assert!(fixture.known[&path(".git")].names.values().all(|known| known.part == Part::Ordinary));
}

#[test]
fn a_repository_that_cannot_be_entered_is_still_one() {
    let mut fixture = Fixture::new(&REPOSITORY).settle();
    fs::set_permissions(fixture.at(".git"), PermissionsExt::from_mode(0o000)).unwrap();
    let lines = unprivileged(|| fixture.look_at(&LATER));
    assert_eq!(lines, ["problem .git Unreadable"]);
    fs::set_permissions(fixture.at(".git"), PermissionsExt::from_mode(0o755)).unwrap();
    fixture.look(&[]);
}

#[test]
fn further_roots_are_directories_or_single_files() {
    let mut fixture = Fixture::new(&["a"]);
    let outside = fixture.home.path().canonicalize().unwrap();
    fs::create_dir(outside.join("dir")).unwrap();
    fs::write(outside.join("dir/x"), "x").unwrap();
    fs::write(outside.join("file"), "f").unwrap();
    fs::write(outside.join("other"), "not protected").unwrap();
    fixture.further = vec![outside.join("dir"), outside.join("file")];
    let top = outside.display();
    let lines = fixture.look_at(&LATER);
    let words = ["dir directory", "dir/x file", "file file"].map(|at| format!("new {top}/{at}"));
    assert_eq!(lines[..3], words);
    fixture.look(&[]);
    fs::remove_file(outside.join("file")).unwrap();
    fixture.look(&[&format!("gone {top}/file")]);
    fs::remove_dir_all(outside.join("dir")).unwrap();
    fixture.look(&[&format!("problem {top}/dir Unmounted")]);
    let refused =
        fixture.roots().lstat(&path(outside.join("other").as_os_str().as_encoded_bytes()));
    assert!(refused.is_err_and(|error| matches!(error, Error::OutsideRoots(_))));
}

#[track_caller]
fn check_paths(fixture: &Fixture, named: &[&str], expected: &[&str]) {
    let lookup = |path: &WorkspacePath| {
        let row = path.parent().and_then(|parent| fixture.known.get(&parent));
        Ok(row.and_then(|row| row.names.get(path.name()).cloned()))
    };
    let named: Vec<_> = named.iter().map(path).collect();
    let make = || Ok(fixture.filter());
    let options = SurveyOptions { clock: &LATER, ..SurveyOptions::default() };
    let found = survey_paths(&fixture.roots(), &named, &lookup, Some(&make), &options).unwrap();
    let describe = |candidate: &Candidate| {
        let word = match candidate {
            _ if candidate.filtered => "out",
            Candidate { stat: None, .. } => "none",
            _ if candidate.is_current() => "same",
            _ => "read",
        };
        format!("{word} {}", candidate.path)
    };
    let lines: Vec<_> = found.candidates.iter().map(describe).collect();
    assert_eq!(lines, expected);
}

#[test]
fn named_paths_come_with_everything_below() {
    let fixture = Fixture::new(&["d/a", "d/b/c", "e"]).settle();
    fixture.write("d/b/c", "changed");
    check_paths(
        &fixture,
        &["d", "d/b", "no/thing"],
        &["same d", "same d/a", "same d/b", "read d/b/c", "none no/thing"],
    );
}

#[test]
fn what_is_named_is_looked_at_whatever_filters_say() {
    let mut fixture = Fixture::new(&["d/skipped/x", "d/y"]);
    fixture.ignore = "skipped\n";
    check_paths(&fixture, &["d"], &["read d", "out d/skipped", "read d/y"]);
    check_paths(&fixture, &["d/skipped"], &["read d/skipped", "read d/skipped/x"]);
}

#[test]
fn looking_can_be_cancelled() {
    let fixture = Fixture::new(&["a"]);
    let cancelled = Some(&AtomicBool::new(true));
    let options = SurveyOptions { cancelled, ..SurveyOptions::default() };
    let (roots, filter) = (fixture.roots(), fixture.filter());
    let stopped = survey(&roots, &KnownTable::default(), &filter, &options);
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let found = fixture.survey(&LATER);
    let store = LocalStore::open(&fixture.home.path().join("store")).unwrap();
    let intake = store.intake().unwrap();
    let options = ExamineOptions { cancelled, ..ExamineOptions::default() };
    let stopped = examine_all(&roots, &found.candidates, &intake, &options);
    assert!(matches!(stopped, Err(Error::Cancelled)));
}

#[test]
fn many_candidates_come_back_in_their_order() {
    let names: Vec<_> = (0..100).map(|at| format!("f{at:03}")).collect();
    let fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let found = fixture.survey(&LATER);
    let examined = fixture.examine(&found.candidates, &LATER);
    for (name, examined) in names.iter().zip(&examined[1..]) {
        assert_eq!(examined.known.entry.object(), Some(ObjectId::of(name.as_bytes())));
    }
}
