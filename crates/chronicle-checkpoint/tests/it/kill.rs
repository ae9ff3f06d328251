//! kill -9 at every step of making and restoring a checkpoint: the old or the new, whole, and the next start
//! says which.

use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_checkpoint::{CreateRequest, RestoreRequest, recover};
use chronicle_core::{FAILPOINTS, Workspace};

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
    for point in all {
        let scene = Scene::new(&[DECLARED, COMMANDS].concat());
        let new = scene.state();
        let made = scene.create().unwrap();
        scene.wreck();
        let old = scene.state();
        assert!(killed(scene.at(), Some("latest"), &point), "{point} was never passed");
        let mut workspace = scene.open();
        let said = recover(&mut workspace).unwrap().map(|it| it.words).unwrap_or_default();
        assert!(!scene.root().join("frozen.mark").exists(), "{point} left the freeze");
        drop(workspace);
        let now = scene.state();
        let finished = said.contains("was finished") || point == "restore_after_end";
        assert_eq!(now, if finished { new.clone() } else { old.clone() }, "{point}: {said}");
        seen.insert(finished);
        // And from here it goes on as if nothing had happened.
        let back = scene.restore(&made.record.id.hex()).unwrap();
        assert_eq!(scene.state(), new, "{point}");
        if point.starts_with("restore_in_exchange") {
            scene.restore(&back.present.id.hex()).unwrap();
            assert_eq!(scene.state(), now, "{point}");
        }
    }
    assert_eq!(seen.len(), 2, "both ends were seen");
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
