//! A rewind that stops anywhere is finished, or leaves nothing.

use std::fs;

use super::super::*;
use super::kinds::{all_after, all_before};
use super::scene::{Scene, State, path};

/// Everything at once: all kinds, links made and broken, moves, attributes.
fn everything() -> (Scene, State, Work) {
    let scene = Scene::quick();
    for directory in ["d0", "d1", "d2", "moved/mass", "x", "y"] {
        scene.mkdir(directory);
    }
    all_before(&scene);
    scene.write("moved/mass/unknown", "1");
    scene.write("x/1", "one");
    scene.write("y/2", "two");
    for (name, other) in [("l1", "l2"), ("l3", "l4")] {
        scene.write(name, name);
        scene.link(name, other);
    }
    scene.write("apart1", "same");
    scene.write("apart2", "same");
    scene.write("mode", "mode");
    scene.age();
    let target = scene.capture();

    all_after(&scene);
    fs::rename(scene.real("moved"), scene.real("elsewhere")).unwrap();
    fs::rename(scene.real("x"), scene.real("t")).unwrap();
    fs::rename(scene.real("y"), scene.real("x")).unwrap();
    fs::rename(scene.real("t"), scene.real("y")).unwrap();
    scene.write("l1", "written through");
    scene.remove("l3");
    scene.remove("apart2");
    scene.link("apart1", "apart2");
    scene.chmod("mode", 0o400);

    let mut work = scene.work(&target);
    let moves = ["elsewhere/mass", "moved/mass", "x", "y"].map(path);
    work.tasks.retain(|task| !moves.iter().any(|top| task.path.is_within(top)));
    let [from, to, x, y] = moves;
    work.moves = vec![(from, to), (x.clone(), y.clone()), (y, x)];
    (scene, target, work)
}

#[test]
fn recovery_finishes_from_every_step() {
    let steps = {
        let (scene, target, work) = everything();
        let prepared = scene.prepare(&work).unwrap();
        let steps = prepared.script.steps.len();
        assert_eq!(prepared.apply(&scene.roots).unwrap(), Applied::default());
        scene.clean_up(&work);
        scene.assert_is(&target);
        steps
    };
    assert!(steps > 100, "{steps}");
    for stop in 0..=steps {
        let (scene, target, work) = everything();
        let prepared = scene.prepare(&work).unwrap();
        let bytes = prepared.to_bytes();
        prepared.apply_steps(&scene.roots, Some(stop)).unwrap();
        let applied = recover(&scene.roots, &bytes, &scene.store).unwrap();
        assert_eq!(applied, Applied::default(), "stopped after step {stop} of {steps}");
        // A second crash, after everything was done.
        let applied = recover(&scene.roots, &bytes, &scene.store).unwrap();
        assert_eq!(applied, Applied::default(), "recovered twice after step {stop} of {steps}");
        scene.clean_up(&work);
        scene.assert_is(&target);
    }
}

#[test]
fn recovery_stages_again_what_somebody_removed() {
    let steps = everything().2.tasks.len();
    for stop in [0, 1, steps / 2, steps] {
        let (scene, target, mut work) = everything();
        // What moves is only in staging for a moment, and cannot be had from the store.
        work.moves.clear();
        work.tasks.retain(|task| !task.path.is_within(&path("elsewhere")));
        work.tasks.retain(|task| !task.path.is_within(&path("moved")));
        let prepared = scene.prepare(&work).unwrap();
        let bytes = prepared.to_bytes();
        prepared.apply_steps(&scene.roots, Some(stop)).unwrap();
        let staging = stage::staging_name(&work.id);
        fs::remove_dir_all(scene.real(&staging)).unwrap();
        let applied = recover(&scene.roots, &bytes, &scene.store).unwrap();
        assert_eq!(applied, Applied::default(), "stopped after step {stop} of {steps}");
        scene.clean_up(&work);
        for task in &work.tasks {
            let found = scene.known(&task.path).map_or(Entry::Absent, |known| known.entry);
            let wanted = target.get(&task.path).map_or(&Entry::Absent, |known| &known.entry);
            let same = found.same_but_time(wanted) || fill::link_of(wanted).is_some();
            assert!(same, "{}: {found:?} instead of {wanted:?}", task.path);
        }
        assert_eq!(scene.read("l1") + &scene.read("l2"), "l1l1");
    }
}

#[test]
fn many_files_are_spread_over_staging_and_recovered_from_it() {
    let scene = Scene::quick();
    for file in 0..300 {
        scene.write(&format!("f{file}"), format!("old {file}"));
    }
    scene.age();
    let target = scene.capture();
    for file in 0..300 {
        scene.write(&format!("f{file}"), format!("new content {file}"));
    }
    let work = scene.work(&target);
    let prepared = scene.prepare(&work).unwrap();
    let bytes = prepared.to_bytes();
    let used = |place: &script::Place| place.slot.lane;
    let lanes: std::collections::HashSet<_> = prepared.script.places().map(used).collect();
    assert_eq!(lanes.len(), stage::lanes_for(300));
    prepared.apply_steps(&scene.roots, Some(117)).unwrap();
    // Somebody removed a part of what was staged, between the crash and the recovery.
    fs::remove_dir_all(scene.real(&stage::staging_name(&work.id)).join("3")).unwrap();
    assert_eq!(recover(&scene.roots, &bytes, &scene.store).unwrap(), Applied::default());
    scene.clean_up(&work);
    scene.assert_is(&target);
}

#[test]
fn staged_content_that_somebody_changed_is_not_used() {
    let scene = Scene::new();
    scene.write("f", "right");
    let target = scene.capture();
    scene.remove("f");
    let work = scene.work(&target);
    let prepared = scene.prepare(&work).unwrap();
    let bytes = prepared.to_bytes();
    std::mem::forget(prepared);
    let lane = scene.real(&stage::staging_name(&work.id)).join("0");
    let staged = fs::read_dir(lane).unwrap().next().unwrap().unwrap().path();
    fs::write(staged, "wrong").unwrap();
    assert_eq!(recover(&scene.roots, &bytes, &scene.store).unwrap(), Applied::default());
    scene.clean_up(&work);
    assert_eq!(scene.read("f"), "right");
}

#[test]
fn what_was_moved_aside_is_named_again_after_a_crash() {
    let scene = Scene::new();
    let target = scene.capture();
    scene.mkdir("new");
    let mut work = scene.work(&target);
    scene.write("new/unknown", "precious");
    for task in &mut work.tasks {
        task.aside = true;
        task.now = scene.known(&task.path).unwrap();
    }
    let prepared = scene.prepare(&work).unwrap();
    let (bytes, steps) = (prepared.to_bytes(), prepared.script.steps.len());
    let first = prepared.apply_steps(&scene.roots, Some(steps)).unwrap();
    let second = recover(&scene.roots, &bytes, &scene.store).unwrap();
    assert_eq!(first, second);
    assert_eq!(second.aside.len(), 1);
}

#[test]
fn leftovers_go_unless_they_may_hold_the_only_copy() {
    let scene = Scene::new();
    scene.write("f", "old");
    scene.write("g", "old");
    scene.age();
    let target = scene.capture();
    scene.write("f", "new");
    scene.write("g", "new");
    let work = scene.work(&target);
    let now = scene.capture();
    std::mem::forget(scene.prepare(&work).unwrap());
    assert_eq!(discard_leftovers(&scene.roots, Some(&work.id), &|_| false).unwrap(), []);
    assert!(scene.real(&stage::staging_name(&work.id)).exists());
    assert_eq!(discard_leftovers(&scene.roots, None, &|_| false).unwrap(), []);
    scene.assert_no_staging();
    scene.assert_is(&now);

    let work = scene.work(&target);
    scene.prepare(&work).unwrap().apply_steps(&scene.roots, Some(1)).unwrap();
    let stayed = discard_leftovers(&scene.roots, None, &|_| false).unwrap();
    assert_eq!(stayed, [WorkspacePath::root()]);
    assert!(scene.real(&stage::staging_name(&work.id)).exists());
    assert_eq!(discard_leftovers(&scene.roots, None, &|id| *id == work.id).unwrap(), []);
    scene.assert_no_staging();
}

#[test]
fn a_second_try_of_the_same_plan_replaces_the_first() {
    let scene = Scene::new();
    scene.write("f", "old");
    let target = scene.capture();
    scene.write("f", "new");
    let work = scene.work(&target);
    std::mem::forget(scene.prepare(&work).unwrap());
    assert_eq!(scene.rewind(&work), Applied::default());
    assert_eq!(scene.read("f"), "old");
}

#[test]
fn clean_up_touches_nothing_that_it_did_not_make() {
    let scene = Scene::new();
    scene.write("f", "old");
    let target = scene.capture();
    scene.write("f", "new");
    let work = scene.work(&target);
    scene.prepare(&work).unwrap().apply(&scene.roots).unwrap();
    let staging = scene.real(&stage::staging_name(&work.id));
    fs::write(staging.join("trash/mine"), "1").unwrap();
    std::os::unix::fs::symlink(scene.real("f"), staging.join("0/999")).unwrap();
    assert!(clean_up(&scene.roots, &work.id).is_err());
    assert_eq!(fs::read_to_string(staging.join("trash/mine")).unwrap(), "1");
    assert_eq!(scene.read("f"), "old");
}
