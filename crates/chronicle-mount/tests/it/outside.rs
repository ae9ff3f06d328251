//! Changes behind the mount's back.

use std::fs;
use std::time::{Duration, Instant};

use chronicle_mount::Noticing;

use crate::world::World;

/// A mount that hears of changes, else the test is skipped.
fn hearing(test: &str, passthrough: bool) -> Option<World> {
    let world = if passthrough { World::new(test)? } else { World::by_requests(test)? };
    if world.mounted().abilities().noticing == Noticing::Told {
        return Some(world);
    }
    chronicle_testing::shared::skip(test, "changes from outside are not told here");
    None
}

/// How long it takes until something holds.
fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_millis(500), "{what} was not seen");
        std::thread::sleep(Duration::from_micros(200));
    }
    begun.elapsed()
}

#[test]
fn every_kind_of_change_is_seen_at_once() {
    for passthrough in [true, false] {
        let Some(world) = hearing("outside::every_kind", passthrough) else { return };
        world.outside("echo one > f; mkdir d; echo in > d/g; echo x > gone");
        assert_eq!(
            world.sh("cat f d/g gone; ls -l . d; ls new 2>/dev/null || true").lines().count(),
            12
        );
        let read = |path: &str| fs::read_to_string(world.at(path)).ok();
        let is = |path: &str, text: &str| read(path).as_deref() == Some(text);

        world.outside("echo longer >> f");
        until("an append", || is("f", "one\nlonger\n"));
        until("its size", || fs::metadata(world.at("f")).unwrap().len() == 11);
        world.outside("printf ONE | dd of=f conv=notrunc 2>/dev/null");
        until("a write in place", || is("f", "ONE\nlonger\n"));
        world.outside("echo replaced > f2; mv f2 f");
        until("a replaced file", || is("f", "replaced\n"));
        world.outside("rm gone");
        until("a removed file", || !world.at("gone").exists());
        assert!(!world.at("new").exists());
        world.outside("echo now > new");
        until("a file that was known not to be there", || is("new", "now\n"));
        world.outside("mv d e; mkdir d; echo other > d/h");
        until("a moved directory", || is("e/g", "in\n") && is("d/h", "other\n"));
        assert!(!world.at("d/g").exists());
        world.outside("chmod 600 f");
        let mode = || std::os::unix::fs::MetadataExt::mode(&fs::metadata(world.at("f")).unwrap());
        until("a mode", || mode() & 0o777 == 0o600);
        world.outside("mkdir -p d/deep/er; echo x > d/deep/er/y");
        until("a name in a listing", || world.sh("ls d") == "deep\nh\n");
        until("what is deep", || is("d/deep/er/y", "x\n"));
        world.outside("rm -r d; ln -s f d");
        until("another kind", || world.at("d").is_symlink());
    }
}

#[test]
fn caught_up_means_that_nothing_is_old() {
    let Some(world) = hearing("outside::caught_up", true) else { return };
    fs::write(world.at("f"), "0").unwrap();
    for round in 1..200 {
        world.outside(&format!("printf {round} > n; mv n f; rm -f g; touch g{round}"));
        world.mounted().catch_up();
        assert_eq!(fs::read_to_string(world.at("f")).unwrap(), round.to_string());
        assert!(world.at(&format!("g{round}")).exists());
    }
}

#[test]
fn whoever_stands_in_a_directory_that_is_moved_stays_in_it() {
    let Some(world) = hearing("outside::whoever_stands", true) else { return };
    world.sh("mkdir -p a/b; echo x > a/b/f");
    let below = world.below("");
    let script = format!("cd a/b; mv {0}/a {0}/c; sleep 0.1; cat f; echo y > g", below.display());
    assert_eq!(world.sh(&script), "x\n");
    assert_eq!(world.outside("cat c/b/f c/b/g"), "x\ny\n");
}

#[test]
fn doubted_paths_are_looked_at_again() {
    let change = |settings: &mut chronicle_mount::Settings| settings.watch = false;
    let magic = std::sync::Arc::new(chronicle_mount::NoMagic);
    let Some(world) = World::with("outside::doubted_paths", change, magic) else { return };
    assert_eq!(world.mounted().abilities().noticing, Noticing::Timeouts);
    world.outside("mkdir d; echo one > d/f; echo x > g");
    assert_eq!(world.sh("cat d/f; ls -l . d").lines().count(), 9);
    world.outside("echo two > d/n; mv d/n d/f");
    world.mounted().invalidate(&[b"d/f".to_vec()]);
    world.mounted().catch_up();
    assert_eq!(world.sh("cat d/f"), "two\n");
    world.outside("echo three > d/f; rm g");
    world.mounted().invalidate_all();
    world.mounted().catch_up();
    assert_eq!(world.sh("cat d/f; ls"), "three\nd\n");
    // Without being told, a second is enough.
    world.outside("echo four > d/n; mv d/n d/f");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(world.sh("cat d/f"), "four\n");
}
