//! kill -9 at every step of making and restoring a checkpoint: the old or the new, whole, and the next start
//! says which.

use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_checkpoint::{CreateRequest, RestoreRequest, recover};
use chronicle_core::{FAILPOINTS, Workspace};

use chronicle_testing::mounted::Mounted;
use chronicle_testing::postgres::Cluster;
use chronicle_testing::shared::{setting, skip};

use crate::database::Foreign;
use crate::scene::{DECLARED, Scene, home_of};

/// What a child of a test does.
const CHILD: &str = "CHECKPOINT_CHILD";
/// Asks it to drop the newest one.
const DROP: &str = "drop";

/// Runs only in a process that a test started, which dies here or comes to its end.
#[test]
fn child() {
    let Some(holder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let mut workspace = Workspace::open(&home_of(&holder), &holder.join("project")).unwrap();
    match std::env::var("CHECKPOINT_OF") {
        Ok(which) if which == DROP => {
            let record = chronicle_checkpoint::find(&workspace, "latest").unwrap();
            chronicle_checkpoint::drop_all(&mut workspace, &[record], "a test").unwrap();
        }
        Ok(which) => {
            let record = chronicle_checkpoint::find(&workspace, &which).unwrap();
            let request = RestoreRequest::default();
            chronicle_checkpoint::restore(&mut workspace, &record, &request).unwrap();
        }
        Err(_) => {
            chronicle_checkpoint::create(&mut workspace, &CreateRequest::default()).unwrap();
        }
    }
}

/// Does it in a process that is killed at a point; tells whether it died there.
fn killed(holder: &Path, restores: Option<&str>, point: &str) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child"]).env(CHILD, holder).env("CHRONICLE_FAILPOINT", point);
    command.envs(restores.map(|which| ("CHECKPOINT_OF", which)));
    let output = command.output().unwrap();
    use std::os::unix::process::ExitStatusExt;
    let died = output.status.signal() == Some(9);
    assert!(died || output.status.success(), "{point}: {output:?}");
    died
}

fn points(start: &str) -> Vec<&'static str> {
    FAILPOINTS.iter().copied().filter(|point| point.starts_with(start)).collect()
}

/// Says so, and tells that nothing can be killed in this build.
fn cannot_kill() -> bool {
    let without = cfg!(not(feature = "failpoints"));
    if without {
        chronicle_testing::shared::skip("kill", "built without failpoints");
    }
    without
}

const COMMANDS: &str = "
[[checkpoint.command]]
freeze = ['touch', 'frozen.mark']
thaw = ['rm', '-f', 'frozen.mark']
";

#[test]
fn a_checkpoint_is_there_whole_or_not_at_all() {
    if cannot_kill() {
        return;
    }
    let mut died = 0;
    for point in points("checkpoint_").into_iter().filter(|point| *point != "checkpoint_after_drop")
    {
        let scene = Scene::new(&[DECLARED, COMMANDS].concat());
        let before = scene.state();
        died += u32::from(killed(scene.at(), None, point));
        let mut workspace = scene.open();
        let said = recover(&mut workspace).unwrap();
        assert!(!scene.root().join("frozen.mark").exists(), "{point} left the freeze: {said:?}");
        assert_eq!(scene.state(), before, "{point}");
        let made = workspace.checkpoints().unwrap();
        assert_eq!(made.len(), usize::from(point == "checkpoint_after_commit"), "{point}");
        for record in &made {
            let verified = chronicle_checkpoint::verify(&workspace, record).unwrap();
            assert!(verified.problems.is_empty(), "{point}: {:?}", verified.problems);
        }
        drop(workspace);
        scene.create().unwrap();
        scene.home().collect_garbage(&|_, _| ()).unwrap();
        let workspace = scene.open();
        for record in workspace.checkpoints().unwrap() {
            let verified = chronicle_checkpoint::verify(&workspace, &record).unwrap();
            assert!(verified.problems.is_empty(), "{point}: {:?}", verified.problems);
        }
    }
    assert_eq!(died, 8, "every point is passed");
}

#[test]
fn a_restore_is_old_or_new_whole_and_the_next_start_says_which() {
    if cannot_kill() {
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut all: Vec<String> = points("restore_").into_iter().map(str::to_owned).collect();
    all.extend(["restore_after_part_beside:3", "restore_after_part_swapped:3"].map(str::to_owned));
    all.extend(
        ["restore_in_exchange:2", "rewind_after_step", "rewind_after_commit_point"]
            .map(str::to_owned),
    );
    all.extend(["checkpoint_after_boundary", "checkpoint_after_commit"].map(str::to_owned));
    let nothing = Beside {
        declared: String::new(),
        state: &|| String::new(),
        wreck: &|| (),
        settled: &|| (),
    };
    for point in all {
        seen.insert(restore_killed_at(&point, &nothing));
    }
    assert_eq!(seen.len(), 2, "both ends were seen");
}

/// Something beside the project that goes back with it.
struct Beside<'b> {
    declared: String,
    state: &'b dyn Fn() -> String,
    wreck: &'b dyn Fn(),
    /// Waits until a server answers again.
    settled: &'b dyn Fn(),
}

/// Kills a restore at a point and starts again: the old or the new, whole, and what was said is what is so.
/// Tells which.
fn restore_killed_at(point: &str, beside: &Beside<'_>) -> bool {
    let scene = Scene::new(&[DECLARED, COMMANDS, &beside.declared].concat());
    let state = || (scene.state(), (beside.state)());
    let new = state();
    let made = scene.create().unwrap();
    scene.wreck();
    (beside.wreck)();
    let old = state();
    assert!(killed(scene.at(), Some("latest"), point), "{point} was never passed");
    let mut workspace = scene.open();
    let said = recover(&mut workspace).unwrap().map(|it| it.words).unwrap_or_default();
    assert!(!scene.root().join("frozen.mark").exists(), "{point} left the freeze");
    drop(workspace);
    (beside.settled)();
    let now = state();
    let finished = said.contains("was finished") || point == "restore_after_end";
    assert_eq!(now, if finished { new.clone() } else { old }, "{point}: {said}");
    // And from here it goes on as if nothing had happened.
    let back = scene.restore(&made.record.id.hex()).unwrap();
    (beside.settled)();
    assert_eq!(state(), new, "{point}");
    if point.starts_with("restore_in_exchange") {
        scene.restore(&back.present.id.hex()).unwrap();
        (beside.settled)();
        assert_eq!(state(), now, "{point}");
        scene.restore(&made.record.id.hex()).unwrap();
        (beside.settled)();
    }
    finished
}

/// All points in a long run; in every run those between which something new holds.
fn some_points(parts: usize) -> Vec<String> {
    if setting("CHRONICLE_CHECKPOINTS", 6) > 6 {
        return points("restore_").into_iter().map(str::to_owned).collect();
    }
    let points = ["restore_after_halt", "restore_after_present", "restore_after_commit"];
    let mut some: Vec<String> = points.map(str::to_owned).to_vec();
    // The last part is the one beside.
    some.push(format!("restore_after_part_swapped:{parts}"));
    some.extend(["restore_after_record", "restore_after_part_cleared"].map(str::to_owned));
    some
}

/// The parts of the project, and the one beside.
const PARTS: usize = 5;

fn directory_on(kind: &str, driver: &str) {
    if cannot_kill() {
        return;
    }
    let mounted = match Mounted::new(kind, 1 << 30) {
        Ok(mounted) => mounted,
        Err(why) => return skip(&format!("kill::a_restore_by_{driver}"), &why),
    };
    let data = mounted.at().join("data");
    match driver {
        "btrfs" => chronicle_checkpoint::drivers::btrfs::make_data_directory(&data).unwrap(),
        _ => std::fs::create_dir(&data).unwrap(),
    }
    let write = |text: &str| std::fs::write(data.join("file"), text).unwrap();
    write("new");
    let declared = format!(
        "[[checkpoint.part]]\nname = \"data\"\ndirectory = {data:?}\ndriver = \"{driver}\"\n"
    );
    let state = || {
        let left = std::fs::read_dir(mounted.at()).unwrap().flatten();
        let left = left.filter(|item| item.file_name().to_string_lossy().contains("staging-new"));
        let file = std::fs::read_to_string(data.join("file")).unwrap();
        format!("{file}, {} left", left.count())
    };
    let beside = Beside { declared, state: &state, wreck: &|| write("old"), settled: &|| () };
    for point in some_points(PARTS).iter().chain([&"restore_in_exchange:2".to_owned()]) {
        restore_killed_at(point, &beside);
    }
}

#[test]
fn a_restore_by_btrfs_is_old_or_new_whole() {
    directory_on("btrfs", "btrfs");
}

#[test]
fn a_restore_by_reflink_is_old_or_new_whole() {
    directory_on("xfs", "reflink");
}

#[test]
fn a_restore_of_a_running_cluster_is_old_or_new_whole_and_its_server_runs_again() {
    if cannot_kill() {
        return;
    }
    let holder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(holder.path(), open).unwrap();
    let data = holder.path().join("data");
    let mut cluster = match Cluster::new(&data) {
        Ok(cluster) => cluster,
        Err(why) => return skip("kill::a_restore_of_a_running_cluster", &why),
    };
    cluster.start();
    cluster.sql("CREATE TABLE rows AS SELECT 'new' AS word");
    let declared = format!("[[checkpoint.part]]\nname = \"db\"\npostgres = {data:?}\n");
    let beside = Beside {
        declared,
        state: &|| cluster.sql("SELECT word FROM rows"),
        wreck: &|| drop(cluster.sql("UPDATE rows SET word = 'old'")),
        settled: &|| cluster.wait_until_up(),
    };
    for point in some_points(PARTS) {
        restore_killed_at(&point, &beside);
    }
}

#[test]
fn a_restore_of_somebody_elses_database_is_old_or_new_whole() {
    if cannot_kill() {
        return;
    }
    let test = "kill::a_restore_of_somebody_elses_database_is_old_or_new_whole";
    let Some(foreign) = Foreign::new(test) else { return };
    let state = || {
        let version = foreign.ask("SELECT version FROM schema_migrations");
        let all = "SELECT string_agg(datname, ',' ORDER BY datname) FROM pg_database";
        format!("{version} of {}", foreign.cluster.sql(all))
    };
    let wreck = || drop(foreign.ask("UPDATE schema_migrations SET version = 1"));
    let declared = foreign.declaration();
    let beside = Beside { declared, state: &state, wreck: &wreck, settled: &|| () };
    for point in some_points(PARTS) {
        restore_killed_at(&point, &beside);
    }
}

#[test]
fn a_drop_that_was_interrupted_is_a_drop() {
    if cannot_kill() {
        return;
    }
    let scene = Scene::new(DECLARED);
    scene.create().unwrap();
    let record = chronicle_checkpoint::find(&scene.open(), "latest").unwrap();
    assert!(killed(scene.at(), Some(DROP), "checkpoint_after_drop"));
    assert!(scene.open().checkpoints().unwrap()[0].dropped);
    scene.home().collect_garbage(&|_, _| ()).unwrap();
    assert_eq!(scene.restore(&record.id.hex()).unwrap_err().code(), "dropped");
}
