//! Clusters, dumps and snapshots, damaged in every way: each has a word of its own, and each is refused while
//! the cluster is still byte for byte what it was.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use chronicle_checkpoint::{Captured, Error, Part, PartKind};
use chronicle_core::{ContentStorage, ObjectId};
use chronicle_testing::mounted::Mounted;
use chronicle_testing::postgres::Cluster;
use chronicle_testing::shared::skip;

use crate::damage::everything;
use crate::damage_store::{flip, put};
use crate::database::Foreign;
use crate::harness_drivers::{Made, World};

/// Every word below.
pub const WORDS: [&str; 12] = [
    "other_cluster",
    "other_server_version",
    "tablespaces",
    "wal_outside",
    "server_unreachable",
    "other_database",
    "no_right_to_create",
    "missing_dump",
    "damaged_dump",
    "dump_incomplete",
    "dump_differs",
    "snapshot_writable",
];

#[track_caller]
fn check(world: &World, made: &Made, word: &str, top: &Path) {
    assert!(WORDS.contains(&word));
    let before = everything(top);
    match world.restore(made, "r1") {
        Err(Error::Gate(problems)) => assert_eq!(problems[0].code, word, "{problems:?}"),
        other => panic!("{word}: {other:?}"),
    }
    assert!(before == everything(top), "{word}: something was changed");
}

#[test]
fn another_cluster_in_its_place_is_refused() {
    let holder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(holder.path(), open).unwrap();
    let data = holder.path().join("data");
    let cluster = match Cluster::new(&data) {
        Ok(cluster) => cluster,
        Err(why) => return skip("damage_data::another_cluster_in_its_place_is_refused", &why),
    };
    let part = Part::new("db", PartKind::Postgres, &data);
    let world = World::new(&holder.path().join("home"), vec![part]);
    let made = world.create(Some("universal"), "c1").unwrap();
    let control = data.join("global/pg_control");
    let flip_system = || {
        let file = fs::File::options().read(true).write(true).open(&control).unwrap();
        let mut first = [0];
        file.read_exact_at(&mut first, 0).unwrap();
        file.write_all_at(&[first[0] ^ 1], 0).unwrap();
    };
    flip_system();
    check(&world, &made, "other_cluster", &data);
    flip_system();
    fs::write(data.join("PG_VERSION"), "16\n").unwrap();
    check(&world, &made, "other_server_version", &data);
    fs::write(data.join("PG_VERSION"), "15\n").unwrap();
    symlink("/tmp", data.join("pg_tblspc/16384")).unwrap();
    check(&world, &made, "tablespaces", &data);
    fs::remove_file(data.join("pg_tblspc/16384")).unwrap();
    fs::rename(data.join("pg_wal"), holder.path().join("pg_wal")).unwrap();
    symlink(holder.path().join("pg_wal"), data.join("pg_wal")).unwrap();
    check(&world, &made, "wal_outside", &data);
    fs::remove_file(data.join("pg_wal")).unwrap();
    fs::rename(holder.path().join("pg_wal"), data.join("pg_wal")).unwrap();
    world.restore(&made, "r2").unwrap();
    drop(cluster);
}

fn with(made: &Made, change: impl FnOnce(&mut Captured)) -> Made {
    let mut captured = made.captured.clone();
    change(&mut captured[0]);
    Made { captured }
}

#[test]
fn a_damaged_dump_and_another_server_are_refused() {
    let test = "damage_data::a_damaged_dump_and_another_server_are_refused";
    let Some(mut foreign) = Foreign::new(test) else { return };
    let holder = tempfile::tempdir().unwrap();
    let home = holder.path().join("home");
    let part = |connection: String| {
        let mut part = Part::new("shop", PartKind::Database, Path::new(""));
        part.parameters.insert("connection".to_owned(), connection);
        part
    };
    let mut world = World::new(&home, vec![part(foreign.address())]);
    let made = world.create(None, "c1").unwrap();
    let dump: ObjectId = made.captured[0].parameters["dump"].parse().unwrap();
    let bytes = world.store.get(&dump).unwrap();
    let top = holder.path().join("home.workspace");
    let swapped = |bytes: &[u8], world: &World| {
        let id = put(&world.workspace, bytes);
        with(&made, |it| drop(it.parameters.insert("dump".to_owned(), id.hex())))
    };
    let before = foreign.state();
    let cut = swapped(&bytes[..bytes.len() / 2], &world);
    check(&world, &cut, "dump_incomplete", &top);
    let edited =
        swapped(&String::from_utf8_lossy(&bytes).replace("Ann 7", "Bea 7").into_bytes(), &world);
    check(&world, &edited, "dump_differs", &top);
    let gone = with(&made, |it| {
        it.parameters.insert("dump".to_owned(), ObjectId::of(b"none").hex());
    });
    check(&world, &gone, "missing_dump", &top);
    world.parts = vec![part(foreign.address().replace("my shop", "postgres"))];
    check(&world, &made, "other_database", &top);
    foreign.cluster.sql("CREATE ROLE nobody LOGIN");
    let user =
        foreign.address().split("user=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let weak = foreign.address().replace(&format!("user={user}"), "user=nobody");
    world.parts = vec![part(weak)];
    check(&world, &made, "no_right_to_create", &top);
    world.parts = vec![part(foreign.address())];
    assert_eq!(foreign.state(), before);
    foreign.cluster.stop();
    check(&world, &made, "server_unreachable", &top);
    foreign.cluster.start();
    flip(&world.workspace, &home, &dump);
    check(&world, &made, "damaged_dump", &top);
    assert_eq!(foreign.state(), before);
}

#[test]
fn a_snapshot_that_was_opened_for_writing_is_refused() {
    let test = "damage_data::a_snapshot_that_was_opened_for_writing_is_refused";
    let mounted = match Mounted::new("btrfs", 1 << 30) {
        Ok(mounted) => mounted,
        Err(why) => return skip(test, &why),
    };
    let (top, data) = (mounted.at(), mounted.at().join("data"));
    let made = Command::new("btrfs").args(["subvolume", "create"]).arg(&data).output().unwrap();
    assert!(made.status.success());
    fs::write(data.join("a"), "one").unwrap();
    let world = World::new(&top.join("home"), vec![Part::new("data", PartKind::Directory, &data)]);
    let made = world.create(Some("btrfs"), "c1").unwrap();
    let place = &made.captured[0].parameters["place"];
    let property = |value: &str| {
        let mut command = Command::new("btrfs");
        command.args(["property", "set", "-f", "-ts", place, "ro", value]);
        assert!(command.output().unwrap().status.success());
    };
    property("false");
    check(&world, &made, "snapshot_writable", &top);
    property("true");
    world.restore(&made, "r2").unwrap();
}
