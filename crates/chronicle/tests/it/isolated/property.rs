//! Random work: a commit makes the workspace what the command saw at its end, a discard nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use chronicle_testing::dice::Dice;
use chronicle_testing::env::Env;
use chronicle_testing::shared::setting;
use chronicle_testing::tree::{Options, Tree, assert_same, describe, describe_with};
use chronicle_testing::work::{Menu, Random};

use super::{can_isolate, json, left};
use crate::scenes::world;

/// Tells the test that it is the command of a run: the seed, how much, and where to say what it saw.
const WORK: [&str; 3] = ["CHRONICLE_TEST_SEED", "CHRONICLE_TEST_STEPS", "CHRONICLE_TEST_SEEN"];
/// What it says: the tree, which names are one file, and what it did.
const SEEN: [&str; 3] = ["nodes", "links", "told"];
const TEST: &str = "isolated::property::a_commit_is_what_the_command_saw";

fn whole(top: &Path) -> Tree {
    describe_with(top, &Options { all_times: true, repositories: true, ..Options::default() })
}

#[test]
fn a_commit_is_what_the_command_saw() {
    if let [Some(seed), Some(steps), Some(place)] = WORK.map(|name| std::env::var(name).ok()) {
        let (here, place) = (std::env::current_dir().unwrap(), Path::new(&place));
        let seed: u64 = seed.parse().unwrap();
        let told = Random::new(&here, seed, menu(seed & 1 == 1)).steps(steps.parse().unwrap());
        let tree = whole(&here);
        let links: Vec<_> = tree.links.iter().map(|names| format!("{names:?}")).collect();
        let seen = [
            format!("{:#?}{:#?}", tree.nodes, tree.repositories),
            links.join("\n"),
            format!("{told:#?}"),
        ];
        SEEN.iter().zip(seen).for_each(|(name, text)| fs::write(place.join(name), text).unwrap());
        return;
    }
    let cases = setting("CHRONICLE_CASES", 300) / 20;
    let first = setting("CHRONICLE_SEED", 0);
    for seed in first..first + cases.max(1) {
        if !one(seed) {
            return;
        }
    }
}

/// What may happen; repositories have files of their own that git makes as it likes.
fn menu(git: bool) -> Menu {
    Menu { filters: false, ..if git { Menu::GIT } else { Menu::ALL } }
}

fn one(seed: u64) -> bool {
    let env = world();
    let mut dice = Dice::new(seed);
    let git = dice.chance(40);
    Random::new(&env.workspace(), seed ^ 0xa5a5, menu(git)).steps(dice.between(5, 60));
    env.ok(&["init"]);
    if !can_isolate(&env, "property") {
        return false;
    }
    for round in 0..3 {
        let what = format!("seed {seed}, round {round}");
        let before = whole(&env.workspace());
        let seen = work(&env, dice.roll() << 1 | u64::from(git), dice.between(1, 40));
        assert_same(&before, &whole(&env.workspace()), &format!("{what}: an isolated run"));
        if left(&env).is_empty() {
            continue;
        }
        if dice.chance(25) {
            env.ok(&["isolated", "discard"]);
            assert_same(&before, &whole(&env.workspace()), &format!("{what}: a discard"));
            assert!(left(&env).is_empty(), "{what}: a discard left something");
            continue;
        }
        env.ok(&["isolated", "commit"]);
        let after = whole(&env.workspace());
        must_be(&seen, &before, &after, &what);
        let head = format!("seq:{}", json(&env, &["--json", "status"])["head_seq"]);
        if env.run(&["undo", "--yes"]).is_done() {
            assert_same(&before, &whole(&env.workspace()), &format!("{what}: an undo"));
            env.ok(&["rewind", &head, "--exact", "--yes"]);
            assert_same(&after, &whole(&env.workspace()), &format!("{what}: back again"));
        }
        env.ok(&["verify", "--deep"]);
    }
    true
}

/// The workspace is what the command saw. Only names of one file that the kernel took apart without
/// anything having changed stay together.
fn must_be(seen: &[String; 3], before: &Tree, after: &Tree, what: &str) {
    let [nodes, links, told] = seen;
    let got = format!("{:#?}{:#?}", after.nodes, after.repositories);
    if *nodes != got {
        let at = nodes.lines().zip(got.lines()).take_while(|(want, got)| want == got).count();
        let around = |text: &str| {
            text.lines().skip(at.saturating_sub(30)).take(60).collect::<Vec<_>>().join("\n")
        };
        panic!("{what}: saw\n{}\nis\n{}\n{told}", around(nodes), around(&got));
    }
    let is = |line: &str, names: &BTreeSet<Vec<u8>>| format!("{names:?}") == line;
    for line in links.lines() {
        assert!(after.links.iter().any(|names| is(line, names)), "{what}: {line}\n{told}");
    }
    for names in &after.links {
        let as_before = || before.links.iter().any(|known| names.is_subset(known));
        assert!(
            links.lines().any(|line| is(line, names)) || as_before(),
            "{what}: {names:?}\n{told}"
        );
    }
}

/// Lets this test do random work isolated; gives what it saw at its end.
fn work(env: &Env, seed: u64, steps: usize) -> [String; 3] {
    let this = std::env::current_exe().unwrap();
    let words = ["run", "--isolated", "--", this.to_str().unwrap(), "--exact", TEST];
    let ran = env.run_with(&words, |command| {
        command.envs(WORK.iter().zip([seed.to_string(), steps.to_string()]));
        command.env(WORK[2], env.base());
    });
    let _ = ran.code(0);
    SEEN.map(|name| fs::read_to_string(env.base().join(name)).unwrap())
}

/// Conflicts are exactly where both touched the same path, and then nothing is done.
#[test]
fn conflicts_are_exactly_where_both_worked() {
    let cases = setting("CHRONICLE_CASES", 300) / 20;
    for seed in 0..cases.max(1) {
        let env = world();
        let mut dice = Dice::new(seed);
        let names: Vec<String> =
            (0..12).map(|number| format!("d{}/f{number}", number % 3)).collect();
        names.iter().for_each(|name| env.write(name, "base\n"));
        env.ok(&["init"]);
        if !can_isolate(&env, "conflicts") {
            return;
        }
        let mut chosen =
            || -> BTreeSet<&String> { names.iter().filter(|_| dice.chance(25)).collect() };
        let (theirs, mine) = (chosen(), chosen());
        let edit = |name: &&String| match name.len() % 2 {
            0 => format!("rm {name}"),
            _ => format!("echo theirs > {name}"),
        };
        let text: Vec<_> = theirs.iter().map(edit).collect();
        let _ = super::script(&env, &text.join("; ")).code(0);
        mine.iter().for_each(|name| env.write(name, "mine\n"));
        if left(&env).is_empty() {
            continue;
        }
        let both: Vec<_> = theirs.intersection(&mine).collect();
        let plan = json(&env, &["--json", "isolated", "commit", "--dry-run"]);
        let told = plan["conflict"].as_array().unwrap().iter();
        let told: Vec<_> = told.map(|conflict| conflict["path"].as_str().unwrap()).collect();
        assert_eq!(
            told,
            both.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
            "seed {seed}: {plan}"
        );
        let before = describe(&env.workspace());
        let ran = env.run(&["isolated", "commit"]).code(if both.is_empty() { 0 } else { 3 });
        if both.is_empty() {
            for name in &names {
                let want = match (theirs.contains(name), mine.contains(name), name.len() % 2) {
                    (true, _, 0) => None,
                    (true, ..) => Some("theirs\n"),
                    (_, true, _) => Some("mine\n"),
                    _ => Some("base\n"),
                };
                assert_eq!(env.read(name).as_deref(), want, "seed {seed}: {name}\n{}", ran.story());
            }
        } else {
            assert_same(&before, &describe(&env.workspace()), &format!("seed {seed}"));
        }
    }
}
