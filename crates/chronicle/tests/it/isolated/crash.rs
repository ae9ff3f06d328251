//! A process that dies at any step of a run, a commit or a discard leaves old or new.

use std::fs;

use chronicle_testing::env::Env;
use chronicle_testing::tree::{assert_same, differences};

use super::{WRECK, isolating, left, runs, script, tree};

/// The points that a run, a commit and a discard pass, besides those of a rewind.
pub(crate) const POINTS: [&str; 7] = [
    "isolated_before_state",
    "isolated_after_state",
    "isolated_after_end",
    "isolated_after_contents",
    "isolated_before_commit",
    "isolated_after_commit",
    "isolated_in_discard",
];

fn dies(env: &Env, words: &[&str], point: &str) {
    let ran = env.run_with(words, |command| {
        command.env("CHRONICLE_FAILPOINT", point);
    });
    assert!(ran.was_killed(), "{point}: {}", ran.story());
}

#[test]
fn a_run_that_dies_leaves_the_workspace_alone() {
    let Some(env) = isolating("crash") else { return };
    let before = tree(&env);
    let words = ["run", "--isolated", "--", "sh", "-c", "echo x > n"];
    dies(&env, &words, "isolated_before_state");
    assert_eq!(runs(&env).len(), 0);
    dies(&env, &words, "isolated_after_state");
    assert_eq!(runs(&env)[0]["state"], "killed");
    dies(&env, &words, "isolated_after_end");
    assert_same(&before, &tree(&env), "runs that died");
    let ended: Vec<_> = runs(&env).into_iter().filter(|run| run["state"] == "ended").collect();
    env.ok(&["isolated", "commit", ended[0]["id"].as_str().unwrap()]);
    assert_eq!(env.read("n").as_deref(), Some("x\n"));
    // The one that never began is swept with the next decision.
    env.ok(&["isolated", "discard"]);
    assert_eq!(left(&env).len(), 0);
}

#[test]
fn a_commit_that_dies_leaves_old_or_new_and_applies_once() {
    let points = [
        "isolated_after_contents",
        "isolated_before_commit",
        "rewind_after_stage",
        "rewind_after_commit_point",
        "rewind_after_step:1",
        "rewind_after_step:4",
        "rewind_after_apply",
        "rewind_after_clean_up",
        "rewind_after_record",
        "isolated_after_commit",
        "isolated_in_discard",
        "catalog_before_commit:1",
        "catalog_before_commit:2",
        "store_after_pack_data",
        "store_after_index_rename",
    ];
    for point in points {
        let Some(env) = isolating("crash") else { return };
        let before = tree(&env);
        let _ = script(&env, WRECK).code(0);
        let id = runs(&env)[0]["id"].as_str().unwrap().to_owned();
        let ran = env.run_with(&["isolated", "commit"], |command| {
            command.env("CHRONICLE_FAILPOINT", point);
        });
        assert!(ran.was_killed(), "{point}: {}", ran.story());
        // Whoever collects garbage now must know what is still to be recorded.
        if point.starts_with("rewind_after_commit_point") {
            let elsewhere = env.base().join("elsewhere");
            fs::create_dir(&elsewhere).unwrap();
            env.ok(&["-C", elsewhere.to_str().unwrap(), "init"]);
            env.ok(&["-C", elsewhere.to_str().unwrap(), "gc"]);
        }
        env.ok(&["status"]);
        let now = tree(&env);
        let is_old = differences(&before, &now).is_empty();
        match runs(&env).first() {
            Some(run) if is_old => assert_eq!(run["state"], "ended", "{point}"),
            Some(run) => assert_eq!(run["state"], "committed", "{point}"),
            None => assert!(!is_old, "{point}: the work is lost"),
        }
        if !runs(&env).is_empty() {
            env.ok(&["isolated", "commit", &id]);
        }
        let after = tree(&env);
        assert_eq!(env.read("f1").as_deref(), Some("other\n"), "{point}");
        if !is_old {
            assert_same(&now, &after, &format!("{point}: committed again"));
        }
        let log = env.ok(&["--json", "log"]);
        let times = log.lines().filter(|line| line.contains(&format!("\"id\":\"{id}\""))).count();
        assert_eq!(times, 1, "{point}: {log}");
        env.ok(&["verify", "--deep"]);
        env.ok(&["undo", "--yes"]);
        assert_same(&before, &tree(&env), &format!("{point}: an undo"));
        env.ok(&["isolated", "list"]);
        let _ = env.run(&["isolated", "discard"]).code(1);
        env.ok(&["run", "--isolated", "--discard", "--", "true"]);
        assert_eq!(left(&env).len(), 0, "{point}");
    }
}

#[test]
fn a_discard_that_dies_goes_on_with_the_next() {
    let Some(env) = isolating("crash") else { return };
    let before = tree(&env);
    let _ = script(&env, WRECK).code(0);
    dies(&env, &["isolated", "discard"], "isolated_in_discard");
    assert_eq!((runs(&env).len(), left(&env).len()), (0, 1));
    env.ok(&["run", "--isolated", "--discard", "--", "true"]);
    assert_eq!(left(&env).len(), 0);
    assert_same(&before, &tree(&env), "a discard that died");
}
