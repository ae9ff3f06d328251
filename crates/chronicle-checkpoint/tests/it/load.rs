//! Checkpoints under load, with every driver, on real file systems: two repositories, a PostgreSQL cluster, a
//! SQLite database and files are written to all the while, and every restored state is one instant.
//!
//! `CHRONICLE_CHECKPOINTS` says how many there are with each driver.

use std::collections::BTreeSet;

use chronicle_checkpoint::{CreateRequest, RestoreRequest, create, drop_all, restore, verify};
use chronicle_testing::dice::Dice;
use chronicle_testing::load::Load;
use chronicle_testing::shared::setting;

use crate::harness::Scene;

/// Commits between two checkpoints.
const BETWEEN: u64 = 3;

/// Makes checkpoints while everything is written to, restores some of them, and looks at everything.
fn play(test: &str, kind: &str, driver: &str) {
    let Some(mut scene) = Scene::new(&format!("load::{test}"), kind, driver) else { return };
    let (count, mut made) = (setting("CHRONICLE_CHECKPOINTS", 6), Vec::new());
    let load = Load::start(&scene.application);
    for _ in 0..count {
        load.let_pass(BETWEEN);
        let before = load.commits();
        let created = create(&mut scene.workspace, &CreateRequest::default()).unwrap();
        let used: BTreeSet<_> =
            created.chosen.iter().map(|(part, it, _)| (&part[..], &it[..])).collect();
        assert!(used.is_superset(&[("cluster", driver), ("files", driver)].into()), "{used:?}");
        made.push((before, created.record));
    }
    load.let_pass(BETWEEN);
    load.stop();
    scene.application.facts().unwrap();
    let mut dice = Dice::new(setting("CHRONICLE_SEED", 8));
    for _ in 0..count.div_ceil(3) {
        let (before, record) = dice.pick(&made);
        assert_eq!(verify(&scene.workspace, record).unwrap().problems, []);
        let restored = restore(&mut scene.workspace, record, &RestoreRequest::default()).unwrap();
        assert_eq!(restored.asides, [], "the checkpoint of the present holds what stood there");
        scene.application.cluster.wait_until_up();
        let commits: u64 = scene.application.facts().unwrap().commits.iter().sum();
        assert!(commits >= *before, "{commits} where there were {before} before the checkpoint");
    }
    scene.application.cluster.stop();
    assert_eq!(scene.application.cluster.wrong_checksums(), None);
    nothing_is_left(&mut scene);
}

/// What drivers keep goes with the checkpoints.
fn nothing_is_left(scene: &mut Scene) {
    let all = scene.workspace.checkpoints().unwrap();
    drop_all(&mut scene.workspace, &all, "the test is over").unwrap();
    let place = scene.workspace.checkpoint_place().unwrap();
    let left: Vec<_> =
        std::fs::read_dir(place).unwrap().flatten().map(|item| item.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn snapshots_on_btrfs() {
    play("snapshots_on_btrfs", "btrfs", "btrfs");
}

#[test]
fn clones_on_xfs() {
    play("clones_on_xfs", "xfs", "reflink");
}

#[test]
fn the_content_store_on_ext4() {
    play("the_content_store_on_ext4", "ext4", "universal");
}
