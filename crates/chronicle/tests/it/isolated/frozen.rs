//! On Btrfs the workspace lies frozen below the layer: what others change meanwhile a command does not see.

use std::fs;
use std::path::Path;
use std::process::Command;

use chronicle_testing::env::Env;
use chronicle_testing::mounted::Mounted;
use chronicle_testing::shared::skip;

use super::{can_isolate, finish, left, script, start};
use crate::scenes::{fill, world};

/// A world whose workspace is a subvolume, beside its home; the file system goes last.
fn on_btrfs(test: &str) -> Option<(Env, Mounted)> {
    let mounted = match Mounted::new("btrfs", 2 << 30) {
        Ok(mounted) => mounted,
        Err(why) => {
            skip(&format!("isolated::frozen::{test}"), &why);
            return None;
        }
    };
    let env = world().with_home(mounted.at().join("home"));
    let env = env.with_workspace(mounted.at().join("ws"));
    subvolume(&env.workspace());
    fill(&env);
    env.ok(&["init"]);
    can_isolate(&env, &format!("frozen::{test}")).then_some((env, mounted))
}

fn subvolume(at: &Path) {
    let made = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(at).status();
    assert!(made.unwrap().success());
}

fn is_frozen(env: &Env) -> bool {
    left(env).iter().any(|run| run.join("frozen").exists())
}

#[test]
fn what_others_change_meanwhile_is_not_seen_and_still_conflicts() {
    let Some((env, _mounted)) = on_btrfs("meanwhile") else { return };
    let first = env.read("f1").unwrap();
    let run = start(&env, "touch begun; read x; cat f1 > seen; ls > names; echo inside > f3");
    assert!(is_frozen(&env));
    for (path, content) in [("f1", "outside\n"), ("later", "x\n"), ("f3", "outside\n")] {
        env.write(path, content);
    }
    assert_eq!(finish(run), Some(0));
    let refused = env.run(&["isolated", "commit"]).code(3);
    assert!(refused.stderr().contains("in conflict: f3"), "{}", refused.story());
    let _ = env.run(&["isolated", "commit", "--on-conflict", "replace"]).code(4);
    env.ok(&["isolated", "discard"]);
    assert_eq!(env.read("seen"), Some(first));
    assert!(!env.read("names").unwrap().contains("later"));
    let now = ["f1", "later", "f3"].map(|path| env.read(path).unwrap());
    assert_eq!(now, ["outside\n", "x\n", "inside\n"]);
    assert!(left(&env).is_empty(), "{:?}", left(&env));
    env.ok(&["verify", "--deep"]);
}

#[test]
fn what_dies_leaves_nothing_that_the_next_run_does_not_remove() {
    let Some((env, _mounted)) = on_btrfs("dies") else { return };
    for point in ["isolated_before_state", "isolated_in_discard"] {
        let ran =
            env.run_with(&["run", "--isolated", "--discard", "--", "touch", "n"], |command| {
                command.env("CHRONICLE_FAILPOINT", point);
            });
        assert!(!ran.is_done() && is_frozen(&env), "{point}: {}", ran.story());
        env.ok(&["run", "--isolated", "--discard", "--", "true"]);
        assert!(left(&env).is_empty(), "{point}: {:?}", left(&env));
    }
}

#[test]
fn what_lies_in_another_subvolume_is_seen_too() {
    let Some((env, _mounted)) = on_btrfs("inner") else { return };
    subvolume(&env.path("inner"));
    fs::write(env.path("inner/file"), "x\n").unwrap();
    let _ = script(&env, "cat inner/file; echo y > n").code(0);
    assert!(!is_frozen(&env));
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("n").as_deref(), Some("y\n"));
}
