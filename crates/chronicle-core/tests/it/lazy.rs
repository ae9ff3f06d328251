//! A replica whose contents come when they are read: its tree is there at once, and a placeholder is never taken for
//! content, by nobody.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use chronicle_core::replica::Verdict;
use chronicle_core::{
    ContentStorage, Error, MemoryStore, ObjectId, Placeholder, PushLimits, RewindKind,
    RewindRequest, Seq, Unfilled, WorkspacePath,
};
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::skip;
use chronicle_testing::strace;

use crate::replica::{Machine, World};

const LIMITS: PushLimits = PushLimits { items: 1000, bytes: 1 << 20, content: 0 };

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

/// A host, and a lazy replica that knows its tree.
fn world(files: &[(&str, &str)]) -> World {
    let mut world = World::new(0, files);
    let mut machine = Machine::new(&world.top, "replica0", &[]);
    machine.workspace.become_replica(world.host.workspace.id(), "socket", "lazy").unwrap();
    machine.workspace.become_lazy().unwrap();
    world.replicas.push(machine);
    push(&mut world);
    world
}

/// Tells the replica what the host has, and gives it no content.
fn push(world: &mut World) {
    world.host.workspace.settle().unwrap();
    let replica = &mut world.replicas[0].workspace;
    let applied = replica.replica_state().unwrap().unwrap().applied;
    let after = applied.map_or(Seq(0), |place| place.seq);
    let everything = |_: &WorkspacePath, _: bool| true;
    let changes = world.host.workspace.changes_for_replica(after, LIMITS, &everything).unwrap();
    let changes = changes.unwrap();
    replica.apply_push(&changes.items, changes.to, &MemoryStore::new(), false).unwrap();
}

fn fill(world: &mut World, paths: &[&str]) -> Result<(), Error> {
    let contents = world.host.workspace.replica_contents().unwrap();
    let paths: Vec<_> = paths.iter().map(|it| path(it)).collect();
    world.replicas[0].workspace.fill(&paths, contents)
}

fn placeholder(world: &World, at: &str) -> Option<Placeholder> {
    world.replicas[0].workspace.placeholder_at(&path(at)).unwrap()
}

fn unfilled(world: &World) -> (u64, u64) {
    let Unfilled { files, bytes } = world.replicas[0].workspace.unfilled().unwrap();
    (files, bytes)
}

#[track_caller]
fn nothing_changed(world: &mut World, what: &str) {
    assert_eq!(world.replicas[0].workspace.settle().unwrap().changes, 0, "{what}");
    assert!(world.send_all(0).is_empty(), "{what}: something was sent");
    world.replicas[0].workspace.verify(true, &|_, _| ()).unwrap();
}

#[track_caller]
fn all_accepted(verdicts: &[Verdict]) {
    assert!(!verdicts.is_empty());
    let accepted = |verdict: &Verdict| matches!(verdict, Verdict::Accepted(_));
    assert!(verdicts.iter().all(accepted), "{verdicts:?}");
}

#[test]
fn the_tree_is_there_at_once_and_a_placeholder_is_no_change() {
    let mut world = World::new(0, &[("a.txt", "1\n"), ("d/e/b.sh", "22\n"), ("empty", "")]);
    let top = world.host.root.clone();
    fs::set_permissions(top.join("d/e/b.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("b.sh", top.join("d/e/link")).unwrap();
    let mut machine = Machine::new(&world.top, "replica0", &[]);
    machine.workspace.become_replica(world.host.workspace.id(), "socket", "lazy").unwrap();
    machine.workspace.become_lazy().unwrap();
    world.replicas.push(machine);
    push(&mut world);
    assert_eq!(world.replicas[0].digest(), world.host.digest());
    assert_eq!(unfilled(&world), (3, 5));
    let found = placeholder(&world, "d/e/b.sh").unwrap();
    assert_eq!((found.object, found.size, found.mode), (ObjectId::of(b"22\n"), 3, 0o755));
    let root = world.replicas[0].root.clone();
    assert_eq!(fs::read_link(root.join("d/e/link")).unwrap(), Path::new("b.sh"));
    let time = |top: &Path| fs::symlink_metadata(top.join("a.txt")).unwrap().mtime_nsec();
    assert_eq!(time(&root), time(&top));
    // Nobody can read it, write through it, or take it for empty.
    for at in ["a.txt", "d/e/b.sh", "empty"] {
        assert!(fs::read(root.join(at)).is_err(), "{at}");
        assert!(fs::write(root.join(at), "x").is_err(), "{at}");
    }
    nothing_changed(&mut world, "after the push");
    // The same for a process that opens it anew, and for one that looks at everything.
    let mut world = World::open(&world.top.clone(), 1);
    nothing_changed(&mut world, "opened anew");
    assert_eq!(world.replicas[0].digest(), world.host.digest());
    assert_eq!(world.replicas[0].workspace.status().unwrap().files_not_here, 3);
}

#[test]
fn a_filled_file_is_an_ordinary_one() {
    let mut world = world(&[("a.txt", "1\n"), ("d/b.txt", "2\n"), ("d/c.txt", "3\n")]);
    let records = world.replicas[0].workspace.last_position().unwrap();
    fill(&mut world, &["d/b.txt"]).unwrap();
    assert_eq!(world.replicas[0].read("d/b.txt").as_deref(), Some("2\n"));
    let meta = |top: &Path| {
        let meta = fs::symlink_metadata(top.join("d/b.txt")).unwrap();
        (meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.len())
    };
    assert_eq!(meta(&world.replicas[0].root), meta(&world.host.root));
    assert_eq!(unfilled(&world), (2, 4));
    nothing_changed(&mut world, "after a fill");
    assert_eq!(world.replicas[0].workspace.last_position().unwrap(), records);
    // Again is nothing.
    fill(&mut world, &["d/b.txt", "not/there", "d"]).unwrap();
    world.replicas[0].write("d/b.txt", "mine\n");
    all_accepted(&world.send_all(0));
    assert_eq!(world.host.read("d/b.txt").as_deref(), Some("mine\n"));
    push(&mut world);
    assert_eq!(world.replicas[0].digest(), world.host.digest());
    // What it was is in the replica's own store.
    world.replicas[0].workspace.verify(true, &|_, _| ()).unwrap();
}

#[test]
fn names_of_placeholders_come_and_go_without_their_content() {
    let mut world = world(&[("a", "1\n"), ("b", "2\n"), ("d/x", "3\n"), ("d/y", "4\n")]);
    let root = world.replicas[0].root.clone();
    fs::rename(root.join("a"), root.join("a2")).unwrap();
    fs::remove_file(root.join("b")).unwrap();
    fs::rename(root.join("d"), root.join("e")).unwrap();
    // The host has the contents and need not be given them.
    world.replicas[0].workspace.settle().unwrap();
    all_accepted(&world.send_all(0));
    assert_eq!(world.host.read("a2").as_deref(), Some("1\n"));
    assert_eq!(world.host.read("e/y").as_deref(), Some("4\n"));
    assert_eq!((world.host.read("a"), world.host.read("b")), (None, None));
    push(&mut world);
    assert_eq!(world.replicas[0].digest(), world.host.digest());
    assert_eq!(unfilled(&world), (3, 6));
    nothing_changed(&mut world, "after renames");
    fill(&mut world, &["a2", "e/x"]).unwrap();
    assert_eq!(world.replicas[0].read("e/x").as_deref(), Some("3\n"));
    nothing_changed(&mut world, "after a fill");
}

#[test]
fn a_file_that_was_renamed_a_moment_ago_is_filled_under_its_new_name() {
    let mut world = world(&[("a", "1\n")]);
    let root = world.replicas[0].root.clone();
    fs::rename(root.join("a"), root.join("b")).unwrap();
    fill(&mut world, &["b"]).unwrap();
    assert_eq!(world.replicas[0].read("b").as_deref(), Some("1\n"));
    all_accepted(&world.send_all(0));
    assert_eq!(world.host.read("b").as_deref(), Some("1\n"));
    assert_eq!(world.host.read("a"), None);
}

#[test]
fn pushes_over_placeholders_change_what_they_say() {
    let mut world =
        world(&[("a", "1\n"), ("b", "2\n"), ("c", "3\n"), ("d", "4\n"), ("e/f", "5\n")]);
    let top = world.host.root.clone();
    world.host.write("a", "longer\n");
    fs::set_permissions(top.join("b"), fs::Permissions::from_mode(0o700)).unwrap();
    world.host.remove("c");
    world.host.remove("d");
    world.host.write("d/now/a/directory", "6\n");
    fs::remove_dir_all(top.join("e")).unwrap();
    world.host.write("e", "now a file\n");
    push(&mut world);
    assert_eq!(world.replicas[0].digest(), world.host.digest());
    assert_eq!(placeholder(&world, "a").unwrap().size, 7);
    assert_eq!(placeholder(&world, "b").unwrap().mode, 0o700);
    assert!(placeholder(&world, "d/now/a/directory").is_some());
    assert_eq!(placeholder(&world, "e").unwrap().size, 11);
    nothing_changed(&mut world, "after a push");
    fill(&mut world, &["a", "b", "d/now/a/directory", "e"]).unwrap();
    assert_eq!(unfilled(&world), (0, 0));
    assert_eq!(world.replicas[0].read("e").as_deref(), Some("now a file\n"));
    let mode = fs::metadata(world.replicas[0].root.join("b")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    nothing_changed(&mut world, "after a fill");
    assert_eq!(world.replicas[0].digest(), world.host.digest());
}

/// A store that gives something else than was asked for.
struct Liar;

impl ContentStorage for Liar {
    fn get(&self, _: &ObjectId) -> Result<Vec<u8>, Error> {
        Ok(b"0\n".to_vec())
    }
    fn put(&self, _: &ObjectId, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn exists(&self, _: &ObjectId) -> Result<bool, Error> {
        Ok(true)
    }
    fn delete(&self, _: &ObjectId) -> Result<(), Error> {
        Ok(())
    }
    fn reader(&self, _: &ObjectId) -> Result<Box<dyn Read + Send + '_>, Error> {
        Ok(Box::new(&b"0\n"[..]))
    }
    fn put_stream(&self, _: &mut dyn Read) -> Result<(ObjectId, u64), Error> {
        Ok((ObjectId([0; 32]), 0))
    }
}

#[test]
fn what_cannot_be_had_leaves_the_placeholder() {
    let mut world = world(&[("a", "1\n")]);
    let replica = &mut world.replicas[0].workspace;
    match replica.fill(&[path("a")], &MemoryStore::new()) {
        Err(Error::Missing(object)) => assert_eq!(object, ObjectId::of(b"1\n")),
        other => panic!("{other:?}"),
    }
    match replica.fill(&[path("a")], &Liar) {
        Err(Error::Corrupt { object, .. }) => assert_eq!(object, ObjectId::of(b"1\n")),
        other => panic!("{other:?}"),
    }
    assert!(placeholder(&world, "a").is_some());
    nothing_changed(&mut world, "after fills that failed");
    fill(&mut world, &["a"]).unwrap();
    assert_eq!(world.replicas[0].read("a").as_deref(), Some("1\n"));
}

#[test]
fn a_rewind_that_needs_what_is_not_here_changes_nothing_and_names_it() {
    let mut world = world(&[("a", "1\n"), ("b", "2\n"), ("c", "3\n")]);
    fill(&mut world, &["c"]).unwrap();
    let root = world.replicas[0].root.clone();
    let replica = &mut world.replicas[0].workspace;
    let target = format!("seq:{}", replica.last_position().unwrap().0);
    let mut request = RewindRequest::new(RewindKind::Rewind { target });
    request.exact = true;
    // What is here goes back beside placeholders that stay.
    fs::write(root.join("c"), "edited\n").unwrap();
    replica.rewind(&request, &mut |_| true).unwrap();
    assert_eq!(fs::read_to_string(root.join("c")).unwrap(), "3\n");
    fs::write(root.join("c"), "again\n").unwrap();
    fs::remove_file(root.join("a")).unwrap();
    match replica.rewind(&request, &mut |_| true) {
        Err(Error::Missing(object)) => assert_eq!(object, ObjectId::of(b"1\n")),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_to_string(root.join("c")).unwrap(), "again\n");
    assert!(fs::symlink_metadata(root.join("a")).is_err());
    assert!(placeholder(&world, "b").is_some());
}

#[test]
fn an_isolated_run_needs_every_file_and_says_so() {
    let mut world = world(&[("a", "1\n")]);
    let replica = &mut world.replicas[0].workspace;
    match replica.isolate("test") {
        Err(Error::Usage(words)) => assert!(words.contains("chronicle fetch"), "{words}"),
        Err(Error::NotIsolated { .. }) => {}
        other => panic!("{:?}", other.err()),
    }
    assert!(world.replicas[0].workspace.end_replica().is_err(), "its files are at the host");
}

#[test]
fn links_that_look_like_one_are_links_where_nobody_is_lazy() {
    let target = Placeholder { object: ObjectId([7; 32]), size: 5, mode: 0o644 }.target();
    let mut world = World::new(1, &[("a", "1\n")]);
    symlink(std::str::from_utf8(&target).unwrap(), world.host.root.join("l")).unwrap();
    world.push_all(0);
    world.assert_equal("after a link");
    let found = fs::read_link(world.replicas[0].root.join("l")).unwrap();
    assert_eq!(found.as_os_str().as_encoded_bytes(), target);
}

/// Random work on both sides, with fills at any time: both end equal, and a placeholder was never anybody's change.
#[test]
fn random_work_beside_placeholders_ends_equal() {
    for seed in 1..=12 {
        let mut world = world(FILES);
        let mut dice = Dice::new(seed);
        for step in 0..40 {
            let name = |dice: &mut Dice| ["a", "b", "c", "d/x", "d/y", "e"][dice.below(6)];
            let (on_host, at) = (dice.below(2) == 0, name(&mut dice));
            let root = if on_host { &world.host.root } else { &world.replicas[0].root };
            let place = root.join(at);
            match dice.below(6) {
                0 => drop(fs::remove_file(&place)),
                1 => drop(fs::rename(&place, root.join(name(&mut dice)))),
                2 => drop(fs::set_permissions(&place, fs::Permissions::from_mode(0o600))),
                3 if !on_host => drop(fill(&mut world, &[at])),
                _ if fs::symlink_metadata(&place).is_ok_and(|found| found.is_symlink()) => {}
                _ => {
                    let _ = fs::create_dir_all(place.parent().unwrap());
                    let _ = fs::write(&place, format!("{seed} {step}\n"));
                }
            }
            if dice.below(4) == 0 {
                world.send_all(0);
                push(&mut world);
            }
        }
        for _ in 0..4 {
            world.send_all(0);
            push(&mut world);
        }
        assert_eq!(world.replicas[0].digest(), world.host.digest(), "seed {seed}");
        let left = world.replicas[0].workspace.unfilled_below(&[WorkspacePath::root()]).unwrap();
        let left: Vec<_> = left.iter().map(|(path, _)| path.to_string()).collect();
        let left: Vec<_> = left.iter().map(String::as_str).collect();
        fill(&mut world, &left).unwrap();
        for at in ["a", "b", "c", "d/x", "d/y", "e"] {
            assert_eq!(world.replicas[0].read(at), world.host.read(at), "seed {seed}: {at}");
        }
        nothing_changed(&mut world, &format!("seed {seed}"));
    }
}

/// What a process does that is told to; not a test of its own.
#[test]
fn act() {
    let Ok(deed) = std::env::var("LAZY_DEED") else { return };
    let top = std::env::var_os("LAZY_WORLD").unwrap();
    let mut world = World::open(Path::new(&top), 1);
    match deed.as_str() {
        "push" => push(&mut world),
        "fill" => fill(&mut world, &["a", "d/x", "d/y"]).unwrap(),
        other => panic!("what is {other}?"),
    }
}

fn acting(world: &Path, deed: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "lazy::act"]);
    command.env("LAZY_DEED", deed).env("LAZY_WORLD", world);
    command
}

const FILES: &[(&str, &str)] = &[("a", "1\n"), ("d/x", "2\n"), ("d/y", "3\n"), ("b", "4\n")];

/// A world in which there is something to push over placeholders and over files that are here.
fn busy() -> World {
    let mut world = world(FILES);
    fill(&mut world, &["b"]).unwrap();
    world.host.write("new/deep/z", "5\n");
    world.host.write("d/x", "changed\n");
    world.host.workspace.settle().unwrap();
    world
}

/// Every file is a placeholder or whole, nothing was recorded, and whoever comes next goes on.
#[track_caller]
fn goes_on(left: &World, deed: &str, what: &str) {
    let mut world = World::open(&left.top, 1);
    assert_eq!(world.replicas[0].workspace.settle().unwrap().changes, 0, "{what}");
    for (at, text) in FILES {
        let whole = world.replicas[0].read(at);
        match placeholder(&world, at) {
            Some(_) => assert_eq!(whole, None, "{what}: {at}"),
            None => assert_eq!(whole.as_deref(), Some(*text), "{what}: {at}"),
        }
    }
    assert!(world.send_all(0).is_empty(), "{what}: something was sent");
    push(&mut world);
    assert_eq!(world.replicas[0].digest(), world.host.digest(), "{what}");
    fill(&mut world, &["a", "b", "d/x", "d/y", "new/deep/z"]).unwrap();
    assert_eq!(world.replicas[0].read("d/x").as_deref(), Some("changed\n"), "{what}");
    assert_eq!(world.replicas[0].read("new/deep/z").as_deref(), Some("5\n"), "{what}");
    assert_eq!(unfilled(&world), (0, 0), "{what}: {deed}");
    nothing_changed(&mut world, what);
    let staging = fs::read_dir(&world.replicas[0].root).unwrap();
    let names = staging.map(|item| item.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.contains("staging")).collect();
    assert!(left.is_empty(), "{what}: {left:?}");
}

const FILL: &[(&str, usize)] = &[
    ("direct_after_stage", 1),
    ("rewind_after_step", 6),
    ("direct_after_steps", 1),
    ("direct_after_sync", 1),
    ("fill_before_commit", 1),
    ("catalog_before_commit", 2),
    ("fill_after_commit", 1),
];
const PUSH: &[(&str, usize)] = &[
    ("direct_after_stage", 1),
    ("rewind_after_step", 6),
    ("direct_after_steps", 1),
    ("push_before_commit", 1),
    ("push_after_commit", 1),
];

#[track_caller]
fn check_deaths(deed: &str, points: &[(&str, usize)]) {
    for (point, most) in points {
        let mut died = 0;
        for count in 1..=*most {
            let world = busy();
            let mut command = acting(&world.top, deed);
            let ended =
                command.env("CHRONICLE_FAILPOINT", format!("{point}:{count}")).output().unwrap();
            if ended.status.signal() != Some(9) {
                assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
                break;
            }
            died += 1;
            goes_on(&world, deed, &format!("{deed} died at {point}:{count}"));
        }
        assert!(died > 0, "{deed} does not pass {point}");
    }
}

#[test]
fn whoever_dies_while_he_fills_leaves_a_placeholder_or_the_file() {
    if !cfg!(feature = "failpoints") {
        return skip("lazy::whoever_dies_while_he_fills", "needs the feature failpoints");
    }
    check_deaths("fill", FILL);
}

#[test]
fn whoever_dies_while_he_puts_placeholders_leaves_what_stood_there() {
    if !cfg!(feature = "failpoints") {
        return skip("lazy::whoever_dies_while_he_puts", "needs the feature failpoints");
    }
    check_deaths("push", PUSH);
}

const CALLS: [&str; 8] =
    ["openat", "write", "fsync", "fdatasync", "syncfs", "renameat2", "symlinkat", "unlinkat"];

#[test]
fn a_fill_of_which_a_call_fails_leaves_a_placeholder_or_the_file() {
    let name = "lazy::a_fill_of_which_a_call_fails_leaves_a_placeholder_or_the_file";
    if !strace::is_there() {
        return skip(name, "strace is missing or may not trace");
    }
    let (mut dice, mut hits) = (Dice::new(11), 0);
    for deed in ["fill", "push"] {
        let counts = {
            let world = busy();
            let log = world.top.join("trace");
            let all = CALLS.join(",");
            let mut ran = strace::under_strace(&acting(&world.top, deed), &log, &all, None);
            assert!(ran.output().unwrap().status.success());
            let text = fs::read_to_string(log).unwrap();
            CALLS.map(|call| text.matches(&format!(" {call}(")).count())
        };
        for round in 0..8 {
            let which = dice.below(CALLS.len());
            let (call, when) = (CALLS[which], 1 + dice.below(counts[which].max(1)));
            let error = ["EIO", "ENOSPC"][round % 2];
            let world = busy();
            let log = world.top.join("trace");
            let rule = format!("inject={call}:error={error}:when={when}");
            let inner = acting(&world.top, deed);
            strace::under_strace(&inner, &log, call, Some(&rule)).output().unwrap();
            hits += usize::from(fs::read_to_string(&log).unwrap().contains("INJECTED"));
            goes_on(&world, deed, &format!("{deed}: {call} {when} failed with {error}"));
        }
    }
    assert!(hits > 0, "no call failed");
}
