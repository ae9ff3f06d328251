//! What agents may not do, what needs the operator, and what junk cannot push out.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use chronicle_testing::dice::Dice;

use crate::hooks::Talk;
use crate::retention::with_days;
use crate::support::{Cli, Done, done};
use crate::trust::attacker::Copy;
use crate::trust::{check_found, check_stranger};

/// The operator's key lies where the agents' user would not get at it.
fn operator(cli: &Cli) -> (PathBuf, String) {
    let file = cli.home().with_file_name("operator.key");
    let made = cli.call(["--json", "operator", "key", file.to_str().unwrap()]).ok().json();
    (file, made["key"].as_str().unwrap().to_owned())
}

fn grant(cli: &Cli, act: &str) -> String {
    let key = cli.home().with_file_name("operator.key");
    let granted = cli.call(["--json", "operator", "grant", act, "--key", key.to_str().unwrap()]);
    granted.ok().json()["grant"].as_str().unwrap().to_owned()
}

fn hand_in(cli: &Cli, text: &str) -> Done {
    let file = cli.home().with_file_name("grant");
    fs::write(&file, text).unwrap();
    cli.call(["--json", "operator", "use", file.to_str().unwrap()])
}

fn aged() -> Cli {
    let cli = with_days(60);
    // Signed from here on; a turn's end would prune behind our back.
    cli.call(["head"]).ok();
    cli
}

#[test]
fn without_the_operators_grant_nothing_takes_protection_away() {
    let cli = aged();
    let (_, key) = operator(&cli);
    cli.call(["operator", "require", &key, "--yes"]).ok();
    let refused = cli.call(["--json", "prune"]).exits(3);
    assert_eq!(refused.error()["code"], "needs_operator");
    cli.call(["--json", "prune", "--dry-run"]).ok();
    let other = operator(&Cli::new()).1;
    cli.call(["--json", "operator", "require", &other, "--yes"]).exits(3);
    fs::create_dir(cli.home().with_file_name("outside")).unwrap();
    let outside = cli.home().with_file_name("outside");
    cli.call(["roots", "add", outside.to_str().unwrap()]).ok();
    cli.call(["--json", "roots", "remove", outside.to_str().unwrap()]).exits(3);

    // A grant is for one act, once; pruning goes on until its time is over.
    let text = grant(&cli, "roots");
    hand_in(&cli, &text).ok();
    cli.call(["--json", "prune"]).exits(3);
    cli.call(["roots", "remove", outside.to_str().unwrap()]).ok();
    let again = hand_in(&cli, &text).exits(2);
    assert!(again.error()["message"].as_str().unwrap().contains("used already"), "{again:?}");
    hand_in(&cli, &grant(&cli, "prune")).ok();
    let report = cli.call(["--json", "prune"]).ok().json();
    assert!(report["dropped_records"].as_u64().unwrap() > 20, "{report}");
    cli.call(["verify", "--deep"]).ok();
    cli.call(["prune"]).ok();

    // Another operator, with the first one's leave.
    hand_in(&cli, &grant(&cli, "operator")).ok();
    cli.call(["operator", "require", &other, "--yes"]).ok();
    cli.call(["verify"]).ok();
    assert_eq!(cli.call(["--json", "operator", "show"]).ok().json()["operator"], other);
    hand_in(&cli, &grant(&cli, "prune")).exits(2);
}

#[test]
fn grants_for_others_or_that_were_changed_count_for_nothing() {
    let (cli, elsewhere) = (aged(), aged());
    let (_, key) = operator(&cli);
    cli.call(["operator", "require", &key, "--yes"]).ok();
    operator(&elsewhere);
    let foreign = grant(&elsewhere, "prune");
    hand_in(&cli, &foreign).exits(2);
    let own = grant(&cli, "roots");
    hand_in(&cli, &own.replace("act roots", "act prune")).exits(2);
    hand_in(&cli, "chronicle-grant/1 nothing").exits(2);
    assert_eq!(cli.call(["--json", "prune"]).exits(3).error()["code"], "needs_operator");
}

#[test]
fn a_prune_past_the_operator_is_found_by_both_verifiers() {
    let cli = aged();
    let (_, key) = operator(&cli);
    cli.call(["operator", "require", &key, "--yes"]).ok();
    hand_in(&cli, &grant(&cli, "prune")).ok();
    cli.call(["prune"]).ok();
    let copy = Copy::of(&cli, &cli.home(), cli.home().with_file_name("forged"));
    copy.stranger(&[]).ok();
    // Somebody with the agents' rights, and so with the key of the heads, writes the record anew.
    let prune = copy.number("SELECT max(seq) FROM record WHERE kind = 12");
    let leaf = copy.row(prune).3;
    let nonce = leaf.windows(6).position(|window| window == b"nonce ").unwrap() + 6;
    // One hexadecimal digit becomes another: 'a' to 'f' and '0' to '7' have it in common.
    let mut row = copy.row(prune);
    row.3[nonce] = if row.3[nonce] == b'0' { b'1' } else { b'0' };
    row.1 = crate::trust::attacker::sha(&[&[0], &row.3]);
    copy.put(prune, &row);
    copy.chain_from(prune);
    // Their heads reach over everything that takes history away.
    copy.sign_anew_at(prune);
    let found = Some(("ungranted", prune));
    check_found(&copy.call(&["verify", "--json"], None), found);
    check_stranger(&copy.stranger(&[]), found);
}

#[test]
fn an_agents_own_process_is_refused() {
    let cli = aged();
    let (_, key) = operator(&cli);
    let outside = cli.home().with_file_name("outside");
    fs::create_dir(&outside).unwrap();
    cli.call(["roots", "add", outside.to_str().unwrap()]).ok();
    // What follows comes from a process that a session of an agent belongs to.
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    for words in [
        &["prune"][..],
        &["roots", "remove", outside.to_str().unwrap()],
        &["operator", "require", &key, "--yes"],
    ] {
        let mut all = vec!["--json"];
        all.extend(words);
        assert_eq!(cli.call(all).exits(3).error()["code"], "not_allowed", "{words:?}");
    }
    talk.stop();
}

#[test]
fn what_one_session_floods_the_home_with_costs_no_older_history() {
    let cli = with_days(20);
    let mut dice = Dice::new(3);
    let taken = chronicle_core::Home::at(&cli.home()).disk_usage();
    let budget = taken + (6 << 20);
    fs::write(cli.home().join("config.toml"), format!("budget = {budget}\n")).unwrap();
    let mut refused = None;
    for round in 0..40 {
        let key = format!("k{round}");
        let begun = cli.call(["--json", "turn", "start", "--session", "flood", "--key", &key]);
        fs::write(cli.root().join("junk"), dice.bytes(200_000)).unwrap();
        let ended = cli.call(["--json", "turn", "end", "--session", "flood", "--key", &key]);
        refused = [begun, ended].into_iter().find(|said| said.stderr.contains("flood"));
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("the budget binds");
    let message = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("session \"flood\" took"), "{message}");
    fs::write(cli.home().join("config.toml"), format!("budget = {}\n", budget * 4)).unwrap();
    // Three weeks of work are still there.
    cli.call(["rewind", "turn:2", "--dry-run"]).ok();
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn a_rewind_says_what_it_brings_back_that_runs_by_itself() {
    let cli = Cli::new();
    cli.write("a.txt", "0\n");
    let git = std::process::Command::new("git").args(["init", "-q"]).arg(cli.root()).status();
    assert!(git.unwrap().success());
    fs::create_dir_all(cli.root().join(".git/hooks")).unwrap();
    cli.write(".git/hooks/pre-commit", "#!/bin/sh\ncurl evil\n");
    cli.write(".envrc", "export PATH=evil\n");
    fs::create_dir_all(cli.root().join(".claude")).unwrap();
    cli.write(".claude/settings.json", "{\"hooks\":{}}\n");
    cli.call(["init"]).ok();
    cli.turn("s", "tidy", || {
        cli.write("a.txt", "1\n");
        fs::remove_file(cli.root().join(".git/hooks/pre-commit")).unwrap();
        fs::remove_file(cli.root().join(".envrc")).unwrap();
        fs::remove_file(cli.root().join(".claude/settings.json")).unwrap();
    });
    let plan = cli.call(["--json", "rewind", "start", "--dry-run"]).ok().json();
    let mut armed: Vec<_> = plan["runs_by_itself"].as_array().unwrap().to_vec();
    armed.sort_by_key(|path| path.as_str().unwrap().to_owned());
    let expected = [".claude/settings.json", ".envrc", ".git/hooks/pre-commit"];
    assert_eq!(armed, expected);
    let said = cli.call(["rewind", "start", "--yes"]).ok();
    assert!(said.stderr.contains("run it by themselves") || said.stdout.contains("by themselves"));
    // What is there already is not brought back.
    cli.turn("s", "work", || cli.write("a.txt", "2\n"));
    let plan = cli.call(["--json", "undo", "--dry-run"]).ok().json();
    assert_eq!(plan["runs_by_itself"], serde_json::json!([]));
}

/// The agent's user.
const AGENT: u32 = 65_534;

#[test]
fn the_store_of_another_user() {
    if !chronicle_testing::shared::is_root() {
        return chronicle_testing::shared::skip("the_store_of_another_user", "two users need root");
    }
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    let home = cli.home();
    for path in [cli.root(), cli.root().join("a.txt")] {
        std::os::unix::fs::chown(path, Some(AGENT), Some(AGENT)).unwrap();
    }
    // Both can reach the workspace; the home is for its owner alone.
    for above in
        cli.root().ancestors().skip(1).take_while(|path| path.starts_with(std::env::temp_dir()))
    {
        fs::set_permissions(above, fs::Permissions::from_mode(0o711)).unwrap();
    }
    let agent = |script: String| {
        let mut command = Command::new("sh");
        command.args(["-c", &script]).uid(AGENT).gid(AGENT).current_dir(cli.root());
        done(command.output().unwrap())
    };
    cli.call(["turn", "start", "--session", "agent", "--key", "k"]).ok();
    let wrecked = agent(format!(
        "echo 1 > a.txt; echo new > b.txt; rm -rf {0}; echo x > {0}/config.toml; cat {0}/workspaces/*/catalog.db",
        home.display()
    ));
    assert_ne!(wrecked.status, 0, "{wrecked:?}");
    cli.call(["turn", "end", "--session", "agent", "--key", "k"]).ok();
    cli.call(["verify", "--deep"]).ok();
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("0\n"));
    assert_eq!(cli.read("b.txt"), None);
    assert!(!home.join("config.toml").exists());
    // What comes back is still the agent's.
    assert_eq!(fs::metadata(cli.root().join("a.txt")).unwrap().uid(), AGENT);
    // As one turn, with everything that the agent's user did.
    let setpriv =
        format!("setpriv --reuid={AGENT} --regid={AGENT} --clear-groups sh -c 'echo 2 > a.txt'");
    cli.call(["run", "--", "sh", "-c", &setpriv]).ok();
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("0\n"));
}

#[test]
fn forgetting_needs_the_operator_too() {
    let cli = Cli::adopted(&[("a.txt", "a word\n"), ("b.txt", "another\n")]);
    cli.turn("s", "x", || {
        cli.write("a.txt", "changed\n");
        cli.write("b.txt", "changed too\n");
    });
    let (_, key) = operator(&cli);
    cli.call(["operator", "require", &key, "--yes"]).ok();
    let forget = |name: &str| cli.call(["--json", "forget", name, "--at", "start", "--yes"]);
    assert_eq!(forget("a.txt").exits(3).error()["code"], "needs_operator");
    hand_in(&cli, &grant(&cli, "forget")).ok();
    forget("a.txt").ok();
    assert_eq!(forget("b.txt").exits(3).error()["code"], "needs_operator");
    cli.call(["verify", "--deep"]).ok();
    let copy = Copy::of(&cli, &cli.home(), cli.home().with_file_name("copy"));
    copy.stranger(&[]).ok();
}
