//! Every kind of entry becomes every other.

use std::process::Command;

use super::scene::Scene;
use crate::fs::{Root, Roots};

const KINDS: [&str; 7] =
    ["absent", "file", "executable", "empty directory", "full directory", "symlink", "fifo"];

/// Puts one kind of entry at a path where nothing is.
pub(super) fn put(scene: &Scene, kind: &str, at: &str) {
    match kind {
        "absent" => {}
        "file" => scene.write(at, "content"),
        "executable" => {
            scene.write(at, "#!/bin/sh\n");
            scene.chmod(at, 0o755);
        }
        "empty directory" => {
            scene.mkdir(at);
            scene.chmod(at, 0o750);
        }
        "full directory" => {
            scene.mkdir(&format!("{at}/inner/deep"));
            scene.write(&format!("{at}/a"), "a");
            scene.write(&format!("{at}/inner/b"), "b");
            scene.symlink("../a", &format!("{at}/inner/l"));
        }
        "symlink" => scene.symlink("no/where", at),
        "fifo" => scene.fifo(at),
        other => panic!("{other} is no kind"),
    }
}

/// All pairs of kinds, each under a name of its own, as they were.
pub(super) fn all_before(scene: &Scene) {
    for (number, (before, _)) in pairs().enumerate() {
        put(scene, before, &format!("d{}/p{number}", number % 3));
    }
}

/// All pairs of kinds, as they are now.
pub(super) fn all_after(scene: &Scene) {
    for (number, (_, after)) in pairs().enumerate() {
        let at = format!("d{}/p{number}", number % 3);
        scene.remove(&at);
        put(scene, after, &at);
    }
}

fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.into_iter().flat_map(|before| KINDS.into_iter().map(move |after| (before, after)))
}

#[test]
fn every_kind_becomes_every_other_and_times_come_back() {
    for (before, after) in pairs() {
        let scene = Scene::quick();
        scene.mkdir("d");
        scene.write("d/beside", "stays");
        put(&scene, before, "d/it");
        scene.age();
        let target = scene.capture();
        scene.remove("d/it");
        put(&scene, after, "d/it");
        scene.check(&target);
    }
}

#[test]
fn all_kinds_change_in_one_rewind_on_disk() {
    let scene = Scene::new();
    for directory in ["d0", "d1", "d2"] {
        scene.mkdir(directory);
    }
    all_before(&scene);
    scene.age();
    let target = scene.capture();
    all_after(&scene);
    let changed = scene.capture();
    scene.check(&target);
    // And forward again, as a redo does.
    scene.check(&changed);
}

#[test]
fn all_kinds_change_in_one_rewind_on_an_overlay() {
    let scene = Scene::new();
    let base = scene.directory.path().to_owned();
    for directory in ["upper", "work"] {
        std::fs::create_dir(base.join(directory)).unwrap();
    }
    for directory in ["d0", "d1", "d2"] {
        scene.mkdir(directory);
    }
    all_before(&scene);
    scene.age();
    let target = scene.capture();
    // What the lower layer holds is copied up by the first change, and keeps its inode.
    all_after(&scene);
    let (mount, text) = (scene.root(), base.display());
    let options = format!("lowerdir={text}/w,upperdir={text}/upper,workdir={text}/work");
    let mounted =
        Command::new("mount").args(["-t", "overlay", "-o", &options, "none"]).arg(&mount).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: cannot mount an overlay: {mounted:?}");
        return;
    }
    let scene = Scene { roots: Roots::new(Root::open(&mount).unwrap(), Vec::new()), ..scene };
    let lower = scene.capture();
    scene.check(&target);
    scene.check(&lower);
    let Scene { roots, directory, .. } = scene;
    drop(roots);
    assert!(Command::new("umount").arg("-l").arg(mount).status().unwrap().success());
    drop(directory);
}
