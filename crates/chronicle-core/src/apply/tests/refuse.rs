//! What is not as expected is left alone, and an attempt that fails changes nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::super::*;
use super::scene::{Scene, State, path};
use crate::error::{Error, Stop};

/// A workspace with a few changes to take back.
fn changed() -> (Scene, State) {
    let scene = Scene::new();
    scene.mkdir("d");
    for name in ["a", "b", "d/c"] {
        scene.write(name, "old");
    }
    scene.age();
    let target = scene.capture();
    for name in ["a", "b", "d/c", "d/new"] {
        scene.write(name, "new");
    }
    (scene, target)
}

#[track_caller]
fn check_outdated(disturb: impl Fn(&Scene), expected: &[&str]) {
    let (scene, target) = changed();
    let work = scene.work(&target);
    disturb(&scene);
    let now = scene.capture();
    match scene.prepare(&work).unwrap_err() {
        Error::Stopped(Stop::PlanOutdated(paths)) => {
            assert_eq!(paths, expected.iter().map(|name| path(name)).collect::<Vec<_>>());
        }
        other => panic!("{other}"),
    }
    scene.assert_no_staging();
    scene.assert_is(&now);
}

#[test]
fn a_path_that_changed_since_the_plan_stops_everything() {
    check_outdated(|scene| scene.write("a", "newer"), &["a"]);
    check_outdated(|scene| scene.chmod("b", 0o600), &["b"]);
    check_outdated(|scene| scene.remove("d/new"), &["d", "d/new"]);
    check_outdated(|scene| scene.set_time("d/c", 9), &["d/c"]);
}

#[test]
fn a_rewrite_within_the_same_tick_is_noticed_by_its_content() {
    let (scene, target) = changed();
    let mut work = scene.work(&target);
    scene.write("a", "wen");
    for task in work.tasks.iter_mut().filter(|task| task.path == path("a")) {
        task.now.signature = scene.known(&task.path).unwrap().signature;
        task.now.racy = true;
    }
    let error = scene.prepare(&work).unwrap_err();
    assert!(
        matches!(&error, Error::Stopped(Stop::PlanOutdated(p)) if p[..] == [path("a")]),
        "{error}"
    );
}

#[test]
fn an_attempt_that_is_given_up_leaves_no_trace() {
    let (scene, target) = changed();
    let now = scene.capture();
    drop(scene.prepare(&scene.work(&target)).unwrap());
    scene.assert_no_staging();
    scene.assert_is(&now);
}

#[test]
fn what_changes_after_the_commit_point_is_kept_and_named() {
    let (scene, target) = changed();
    let work = scene.work(&target);
    let prepared = scene.prepare(&work).unwrap();
    scene.write("a", "a person's work");
    scene.write("d/new", "more work");
    scene.remove("b");
    let applied = prepared.apply(&scene.roots).unwrap();
    scene.clean_up(&work);
    let names: Vec<_> = applied.unexpected.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(names, ["d/new", "a", "b"]);
    assert_eq!(scene.read("a"), "a person's work");
    assert_eq!(scene.read("d/new"), "more work");
    assert!(!scene.real("b").exists());
    assert_eq!(scene.read("d/c"), "old");
}

#[test]
fn what_appears_where_something_is_to_be_created_is_kept() {
    let scene = Scene::new();
    scene.mkdir("d");
    scene.write("f", "old");
    scene.write("d/g", "old");
    let target = scene.capture();
    scene.remove("f");
    scene.remove("d");
    let work = scene.work(&target);
    let prepared = scene.prepare(&work).unwrap();
    scene.write("f", "somebody's");
    scene.write("d", "somebody's");
    let applied = prepared.apply(&scene.roots).unwrap();
    scene.clean_up(&work);
    let names: Vec<_> = applied.unexpected.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(names, ["d", "d/g", "f"]);
    assert_eq!(scene.read("f") + &scene.read("d"), "somebody'ssomebody's");
}

#[test]
fn what_is_written_through_an_open_file_comes_back() {
    let (scene, target) = changed();
    let work = scene.work(&target);
    let mut open = fs::File::options().append(true).open(scene.real("a")).unwrap();
    let mut removed = fs::File::options().append(true).open(scene.real("d/new")).unwrap();
    let prepared = scene.prepare(&work).unwrap();
    let (bytes, steps) = (prepared.to_bytes(), prepared.script.steps.len());
    prepared.apply_steps(&scene.roots, Some(steps)).unwrap();
    assert_eq!(scene.read("a"), "old");
    open.write_all(b" and late").unwrap();
    removed.write_all(b" and late").unwrap();
    let applied = recover(&scene.roots, &bytes, &scene.store).unwrap();
    scene.clean_up(&work);
    assert_eq!(applied.unexpected.len(), 2, "{applied:?}");
    assert_eq!(scene.read("a"), "new and late");
    assert_eq!(scene.read("d/new"), "new and late");
    assert_eq!(scene.read("b"), "old");
}

#[test]
fn a_directory_that_became_a_link_leads_nowhere() {
    let (scene, target) = changed();
    let work = scene.work(&target);
    let prepared = scene.prepare(&work).unwrap();
    let outside = scene.directory.path().join("outside");
    fs::rename(scene.real("d"), &outside).unwrap();
    std::os::unix::fs::symlink(&outside, scene.real("d")).unwrap();
    let before = fs::metadata(&outside).unwrap().modified().unwrap();
    let applied = prepared.apply(&scene.roots).unwrap();
    scene.clean_up(&work);
    let names: Vec<_> = applied.unexpected.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(names, ["d/c", "d"]);
    assert_eq!(fs::read_to_string(outside.join("c")).unwrap(), "new");
    assert_eq!(fs::read_to_string(outside.join("new")).unwrap(), "new");
    assert_eq!(fs::metadata(&outside).unwrap().modified().unwrap(), before);
    assert_eq!(scene.read("a"), "old");
}

#[test]
fn a_directory_with_something_unknown_stays_and_is_named() {
    let scene = Scene::new();
    scene.age();
    let target = scene.capture();
    scene.mkdir("new");
    scene.write("new/known", "1");
    let work = scene.work(&target);
    let prepared = scene.prepare(&work).unwrap();
    scene.write("new/unknown", "2");
    let applied = prepared.apply(&scene.roots).unwrap();
    scene.clean_up(&work);
    assert_eq!(applied.unexpected, [(path("new"), "it holds something unknown".to_owned())]);
    assert_eq!(scene.read("new/unknown"), "2");
}

#[test]
fn a_parent_that_is_missing_is_an_outdated_plan() {
    let scene = Scene::new();
    scene.mkdir("d");
    scene.write("d/f", "1");
    let target = scene.capture();
    scene.remove("d");
    let mut work = scene.work(&target);
    work.tasks.retain(|task| task.path == path("d/f"));
    let error = scene.prepare(&work).unwrap_err();
    assert!(matches!(error, Error::Stopped(Stop::PlanOutdated(_))), "{error}");
    scene.assert_no_staging();
}

#[test]
fn a_full_disk_changes_nothing() {
    let scene = Scene::new();
    let mount = scene.real("");
    let options = ["-t", "tmpfs", "-o", "size=4m", "none"];
    let mounted = std::process::Command::new("mount").args(options).arg(&mount).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: cannot mount a small file system: {mounted:?}");
        return;
    }
    let roots = Roots::new(crate::fs::Root::open(&mount).unwrap(), Vec::new());
    let scene = Scene { roots, ..scene };
    for number in 0..30 {
        scene.write(&format!("f{number}"), vec![number; 100_000]);
    }
    scene.age();
    let target = scene.capture();
    for number in 0..30 {
        scene.write(&format!("f{number}"), "small");
    }
    scene.write("filler", vec![1; 2_000_000]);
    let (work, now) = (scene.work(&target), scene.capture());
    let result = scene.prepare(&work).map(drop);
    let error = result.expect_err("3 MB do not fit into 2");
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    scene.assert_no_staging();
    scene.assert_is(&now);
    // With room it goes through.
    scene.remove("filler");
    let work = scene.work(&target);
    assert_eq!(scene.rewind(&work), Applied::default());
    scene.assert_is(&target);
    let Scene { roots, directory, .. } = scene;
    drop(roots);
    assert!(std::process::Command::new("umount").arg(mount).status().unwrap().success());
    drop(directory);
}

#[test]
fn a_volume_mounted_below_has_staging_of_its_own() {
    let scene = Scene::new();
    scene.mkdir("m");
    let (mount, options) = (scene.real("m"), ["-t", "tmpfs", "-o", "size=4m", "none"]);
    let mounted = std::process::Command::new("mount").args(options).arg(&mount).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: cannot mount a file system: {mounted:?}");
        return;
    }
    scene.mkdir("m/d");
    for name in ["a", "m/b", "m/d/c"] {
        scene.write(name, "old");
    }
    scene.age();
    let target = scene.capture();
    scene.write("a", "new");
    scene.write("m/b", "new");
    scene.remove("m/d");
    let work = scene.work(&target);
    drop(scene.prepare(&work).unwrap());
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 1, "only b");
    // A crash before the commit point, found by the next command.
    std::mem::forget(scene.prepare(&work).unwrap());
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 2);
    assert_eq!(discard_leftovers(&scene.roots, None, &|_| false).unwrap(), []);
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 1);
    scene.check(&target);
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 2, "b and d");
    // The forgotten attempt still has handles in it.
    let unmounted = std::process::Command::new("umount").arg("-l").arg(mount).status().unwrap();
    assert!(unmounted.success());
}

/// Runs as somebody whom permissions bind.
fn as_somebody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (user, group) =
                (rustix::fs::Uid::from_raw(54321), rustix::fs::Gid::from_raw(54321));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// A scene that belongs to somebody whom permissions bind.
fn somebodys_scene() -> Scene {
    let scene = Scene::new();
    if rustix::process::geteuid().is_root() {
        for real in [scene.directory.path(), &scene.root()] {
            std::os::unix::fs::chown(real, Some(54321), Some(54321)).unwrap();
        }
    }
    scene
}

#[test]
fn a_directory_that_its_owner_locked_is_opened_and_locked_again() {
    let scene = somebodys_scene();
    as_somebody(|| {
        scene.mkdir("d/e");
        scene.write("d/f", "old");
        scene.write("d/e/g", "old");
        scene.chmod("d/e", 0o500);
        scene.chmod("d", 0o555);
        scene.chmod("", 0o555);
        scene.age();
        let target = scene.capture();
        scene.chmod("d", 0o755);
        scene.chmod("d/e", 0o755);
        scene.remove("d/f");
        scene.write("d/e/g", "new");
        scene.remove("d/e/g");
        scene.write("d/e/h", "new");
        scene.chmod("d/e", 0o555);
        scene.chmod("d", 0o511);
        scene.check(&target);
        // A locked directory goes as well.
        scene.chmod("", 0o755);
        let target = scene.capture();
        scene.mkdir("locked");
        scene.write("locked/x", "1");
        scene.chmod("locked", 0o500);
        scene.chmod("", 0o500);
        scene.check(&target);
        scene.chmod("d/e", 0o755);
        scene.chmod("d", 0o755);
    });
}

#[test]
fn a_directory_that_belongs_to_another_changes_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make what belongs to another");
        return;
    }
    let scene = somebodys_scene();
    scene.mkdir("other");
    scene.write("other/f", "old");
    let target = as_somebody(|| {
        scene.write("mine", "old");
        scene.capture()
    });
    scene.write("other/f", "new");
    as_somebody(|| {
        scene.write("mine", "new");
        let (work, now) = (scene.work(&target), scene.capture());
        match scene.prepare(&work).unwrap_err() {
            Error::Io { action: "write to", path, .. } => assert_eq!(path.as_os_str(), "other"),
            other => panic!("{other}"),
        }
        scene.assert_no_staging();
        scene.assert_is(&now);
    });
}

#[test]
fn an_owner_that_cannot_be_restored_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make what belongs to another");
        return;
    }
    let scene = somebodys_scene();
    scene.write("f", "old");
    let target = scene.capture();
    as_somebody(|| {
        scene.remove("f");
        let applied = scene.rewind(&scene.work(&target));
        assert_eq!(applied.unexpected.len(), 1, "{applied:?}");
        assert!(applied.unexpected[0].1.starts_with("owner not restored"), "{applied:?}");
        assert_eq!(scene.read("f"), "old");
        assert_eq!(fs::metadata(scene.real("f")).unwrap().permissions().mode() & 0o777, 0o644);
    });
}

#[test]
fn a_save_at_any_moment_of_a_rewind_survives() {
    for round in 0..200 {
        let scene = Scene::quick();
        for number in 0..20 {
            scene.write(&format!("f{number}"), "old");
        }
        let target = scene.capture();
        for number in 0..20 {
            scene.write(&format!("f{number}"), "new");
        }
        let mut work = scene.work(&target);
        // The editor's own file beside it changes the time of the directory.
        work.tasks.retain(|task| !task.path.is_root());
        let save = || {
            for number in 0..20 {
                scene.write("saving", "saved");
                fs::rename(scene.real("saving"), scene.real(&format!("f{number}"))).unwrap();
            }
        };
        std::thread::scope(|scope| {
            if round % 2 == 0 {
                scope.spawn(save);
            }
            match scene.prepare(&work) {
                Ok(prepared) => {
                    if round % 2 == 1 {
                        scope.spawn(save);
                    }
                    drop(prepared.apply(&scene.roots).unwrap());
                }
                Err(Error::Stopped(Stop::PlanOutdated(_))) => {}
                Err(other) => panic!("{other}"),
            }
        });
        clean_up(&scene.roots, &work.id).unwrap();
        for number in 0..20 {
            assert_eq!(scene.read(&format!("f{number}")), "saved");
        }
    }
}

#[test]
fn what_comes_out_of_an_exchange_unexpectedly_goes_back() {
    let scene = Scene::new();
    scene.write("f", "somebody's");
    scene.write("staged", "ours");
    let root = Roots::iter(&scene.roots).next().unwrap().handle().unwrap();
    let mut seen = directories::see(root, b"f").unwrap().unwrap();
    seen.signature.size += 1;
    let expected = script::Expected::of(&seen);
    assert!(steps::exchange(root, b"staged", root, b"f", &expected).is_err());
    assert_eq!(scene.read("f"), "somebody's");
    assert_eq!(scene.read("staged"), "ours");
}
