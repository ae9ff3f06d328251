//! Old history and limited room, as people meet them.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use chronicle_core::{Clock, Home, Time, TurnRequest, Workspace};
use chronicle_testing::dice::Dice;

use crate::support::{Cli, done};
use crate::versions::version;

const DAY_NS: i64 = 86_400_000_000_000;

/// A clock that tells a time long ago.
struct Ago(AtomicI64);

impl Clock for Ago {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

/// A workspace with so many days of work behind it, one turn a day: `daily` holds the day's number.
pub(crate) fn with_days(days: i64) -> Cli {
    let cli = Cli::new();
    live_through(&Home::at(&cli.home()), &cli.root(), days);
    cli
}

/// Adopts a directory and works in it for so many days, up to now.
pub(crate) fn live_through(home: &Home, root: &Path, days: i64) -> Workspace {
    let write = |text: &str| fs::write(root.join("daily"), text).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_nanos()).unwrap();
    write("none\n");
    let options = chronicle_core::InitOptions::default();
    let (mut workspace, _) = Workspace::init(home, root, &options).unwrap();
    workspace.set_clock(Box::new(Ago(AtomicI64::new(now - days * DAY_NS))));
    workspace.prune_by_rules(false).unwrap();
    // Both halves of a day have the same date, whenever the test runs.
    let shift = if now % DAY_NS < DAY_NS / 2 { 0 } else { DAY_NS / 2 };
    for day in 0..days {
        // Twice a day, so that no pause is longer than what counts.
        for half in 0..2 {
            let at = now - (days - day) * DAY_NS + half * DAY_NS / 2 + shift;
            workspace.set_clock(Box::new(Ago(AtomicI64::new(at))));
            let request = TurnRequest {
                key: Some(format!("{day}-{half}")),
                session: Some(format!("session {day}")),
                ..TurnRequest::default()
            };
            workspace.turn_start(&request).unwrap();
            // Long enough that days are kept against each other.
            let text = version(usize::try_from(day * 2 + half).unwrap());
            write(&format!("{day} {half} {text}"));
            workspace.turn_end(&request).unwrap();
        }
    }
    workspace
}

#[test]
fn prune_says_what_goes_and_then_it_is_gone() {
    let cli = with_days(80);
    let dry = cli.call(["--json", "prune", "--dry-run"]).ok().json();
    assert!(dry["dropped_records"].as_u64().unwrap() > 50, "{dry}");
    let report = cli.call(["--json", "prune"]).ok().json();
    for field in ["dropped_records", "merged_records", "merged_changes", "oldest_kept_seq"] {
        assert_eq!(dry[field], report[field], "{field}");
    }
    assert!(report["freed_bytes"].as_u64().unwrap() > 0, "{report}");
    cli.call(["verify", "--deep"]).ok();
    let refused = cli.call(["--json", "rewind", "turn:3", "--yes"]).exits(1);
    assert_eq!(refused.error()["code"], "pruned");
    assert!(cli.read("daily").unwrap().starts_with("79 1"));
    let seq = report["oldest_kept_seq"].as_u64().unwrap();
    cli.call(["rewind", &format!("seq:{seq}"), "--exact", "--yes"]).ok();
    let day: i64 = cli.read("daily").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((45..55).contains(&day), "{day}");
    cli.call(["redo", "--yes"]).ok();
    assert!(cli.read("daily").unwrap().starts_with("79 1"));
    let again = cli.call(["prune"]).ok();
    assert!(again.stdout.starts_with("Nothing to prune"), "{again:?}");
    cli.call(["gc"]).ok();
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn turns_that_ended_are_pruned_in_the_background_once_a_day() {
    let cli = with_days(80);
    cli.turn("now", "today", || cli.write("other", "today\n"));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cli.call(["rewind", "turn:3", "--dry-run"]).status == 0 {
        assert!(std::time::Instant::now() < deadline, "nothing was pruned");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn shorter_retention_waits_for_a_person_and_longer_holds_at_once() {
    let cli = with_days(40);
    cli.write("chronicle.toml", "[retention]\nmax_age_days = 2\nturns = 1\n");
    let status = cli.call(["--json", "status"]).ok().json();
    assert!(status["pending_config"][0].as_str().unwrap().contains("max_age_days=2"), "{status}");
    let kept = cli.call(["--json", "prune", "--dry-run"]).ok().json();
    assert!(kept["oldest_kept_seq"].as_u64().unwrap() < 80, "{kept}");
    cli.write("chronicle.toml", "[retention]\nmax_age_days = 400\nturns = 1000\n");
    let status = cli.call(["--json", "status"]).ok().json();
    assert_eq!(status["pending_config"], serde_json::json!([]));
    let kept = cli.call(["--json", "prune", "--dry-run"]).ok().json();
    assert_eq!(kept["dropped_records"], 0, "{kept}");
    // Once it was longer, going back is shortening.
    fs::remove_file(cli.root().join("chronicle.toml")).unwrap();
    let status = cli.call(["--json", "status"]).ok().json();
    assert!(status["pending_config"][0].as_str().unwrap().contains("max_age_days=30"), "{status}");
    cli.write("chronicle.toml", "budget = \"lots\"\n");
    let status = cli.call(["--json", "status"]).ok().json();
    assert!(status["pending_config"][0].as_str().unwrap().contains("lots"), "{status}");
}

fn junk(dice: &mut Dice, length: usize) -> Vec<u8> {
    (0..length).map(|_| u8::try_from(dice.below(256)).unwrap()).collect()
}

#[test]
fn the_budget_is_never_exceeded() {
    let cli = Cli::adopted(&[("a", "a\n")]);
    fs::write(cli.home().join("config.toml"), "budget = \"4MiB\"\n").unwrap();
    let mut dice = Dice::new(1);
    let mut refused = 0;
    for round in 0..12 {
        let path = cli.root().join(format!("big{round}"));
        fs::write(path, junk(&mut dice, 700_000)).unwrap();
        let done = cli.call(["--json", "settle"]);
        if done.status != 0 {
            assert_eq!(done.error()["code"], "over_budget", "{done:?}");
            refused += 1;
        }
        let taken = Home::at(&cli.home()).disk_usage();
        assert!(taken <= 4 << 20, "{taken} bytes after {round}");
    }
    assert!(refused > 4, "{refused}");
    cli.call(["verify", "--deep"]).ok();
    // What an action would destroy and there is no room for: it is told to wait.
    let snapshot = |round: i32| {
        let path = format!("big{round}");
        cli.call(["--json", "snapshot", "--action", "write_file", "--path", &path])
    };
    let before = (0..12).map(snapshot).find(|done| done.status != 0).expect("one is too much");
    assert_eq!(before.exits(1).error()["code"], "over_budget");
    assert!(Home::at(&cli.home()).disk_usage() <= 4 << 20);
    fs::write(cli.home().join("config.toml"), "budget = \"400MiB\"\n").unwrap();
    cli.call(["settle"]).ok();
}

#[test]
fn the_oldest_history_goes_when_the_budget_binds() {
    let cli = with_days(20);
    let mut dice = Dice::new(2);
    fs::write(cli.root().join("large"), junk(&mut dice, 1_500_000)).unwrap();
    cli.call(["settle"]).ok();
    let taken = Home::at(&cli.home()).disk_usage();
    // All of the 40 turns would stay by the rules; now there is no room for all of them.
    let budget = taken * 100 / 95;
    fs::write(cli.home().join("config.toml"), format!("budget = {budget}\n")).unwrap();
    cli.write("small", "small\n");
    cli.call(["settle"]).ok();
    assert_eq!(
        cli.call(["--json", "rewind", "turn:2", "--yes"]).exits(1).error()["code"],
        "pruned"
    );
    cli.call(["verify", "--deep"]).ok();
    let left = Home::at(&cli.home()).disk_usage();
    assert!(left <= budget, "{left} of {budget}");
}

#[test]
fn free_space_that_must_stay_stays() {
    let cli = Cli::adopted(&[("a", "a\n")]);
    fs::write(cli.home().join("config.toml"), "floor = \"1000 TiB\"\n").unwrap();
    cli.write("b", "b\n");
    let done = cli.call(["--json", "settle"]).exits(1);
    assert_eq!(done.error()["code"], "over_budget");
    assert!(done.error()["message"].as_str().unwrap().contains("free"), "{done:?}");
}

#[test]
fn a_prune_that_dies_leaves_all_or_nothing() {
    for point in ["prune_before_commit", "prune_after_commit", "gc_before_commit"] {
        let cli = with_days(50);
        let mut command = cli.command(["prune"]);
        let ended = command.env("CHRONICLE_FAILPOINT", point).status().unwrap();
        assert!(ended.signal().is_some(), "{point}: {ended}");
        cli.call(["verify", "--deep"]).ok();
        cli.call(["prune"]).ok();
        cli.call(["gc"]).ok();
        cli.call(["verify", "--deep"]).ok();
        let oldest = cli.call(["--json", "prune", "--dry-run"]).ok().json();
        let target = format!("seq:{}", oldest["oldest_kept_seq"]);
        cli.call(["rewind", &target, "--exact", "--yes"]).ok();
        cli.call(["redo", "--yes"]).ok();
        assert!(cli.read("daily").unwrap().starts_with("49 1"), "{point}");
    }
}

/// It pruned, and as soon as there was a key the next head showed what nobody had signed.
#[test]
fn nothing_is_pruned_that_cannot_be_signed() {
    let cli = with_days(35);
    let with_key = |key: &str, words: &[&str]| {
        done(cli.command(words).env("CHRONICLE_KEY", key).output().unwrap())
    };
    let refused = with_key("no key", &["--json", "prune"]).exits(1);
    assert_eq!(refused.error()["code"], "key", "{refused:?}");
    let dry = cli.call(["--json", "prune", "--dry-run"]).ok().json();
    assert!(dry["dropped_records"].as_u64().unwrap() > 0, "{dry}");
    cli.call(["prune"]).ok();
    cli.call(["head"]).ok();
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn garbage_is_not_collected_where_nobody_knows_what_is_needed() {
    let cli = Cli::adopted(&[("a", "a\n")]);
    let workspaces = cli.home().join("workspaces");
    let away = cli.home().join("away");
    fs::rename(&workspaces, &away).unwrap();
    fs::create_dir(&workspaces).unwrap();
    cli.call(["--json", "gc"]).exits(2);
    fs::remove_dir(&workspaces).unwrap();
    fs::rename(&away, &workspaces).unwrap();
    let catalog = fs::read_dir(&workspaces).unwrap().next().unwrap().unwrap().path();
    let catalog = catalog.join("catalog.db");
    let bytes = fs::read(&catalog).unwrap();
    fs::write(&catalog, &bytes[..bytes.len() / 2]).unwrap();
    fs::remove_file(catalog.with_extension("db-wal")).ok();
    assert_ne!(cli.call(["gc"]).status, 0);
}

/// Captures of many files leave a pack each: collecting garbage makes one of them.
#[test]
fn small_packs_become_one_and_who_dies_loses_nothing() {
    let cli = Cli::adopted(&[("a", "1")]);
    for round in 0..12 {
        for number in 0..70 {
            let body: String =
                (0..20).map(|n| format!("line {n} of {round} and {number}\n")).collect();
            cli.write(&format!("many/{number}"), &body);
        }
        cli.call(["settle"]).ok();
    }
    let packs = || {
        let names = fs::read_dir(cli.home().join("store/packs")).unwrap();
        let paths = names.map(|name| name.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|it| it == "pack")).count()
    };
    assert!(packs() >= 12, "{}", packs());
    let killed =
        cli.command(["gc"]).env("CHRONICLE_FAILPOINT", "gc_after_joining").status().unwrap();
    assert!(killed.signal().is_some());
    cli.call(["verify", "--deep"]).ok();
    let first = cli.call(["--json", "gc"]).ok().json();
    assert!(first["packs_joined"].as_u64().unwrap() >= 11, "{first}");
    assert_eq!(packs(), 1);
    cli.call(["verify", "--deep"]).ok();
    let shown = cli.call(["cat", "many/7", "--at", "seq:5"]).ok().stdout;
    assert!(shown.starts_with("line 0 of "), "{shown}");
    // With nothing to gain, nothing is done.
    assert_eq!(cli.call(["--json", "gc"]).ok().json()["packs_joined"], 0);
}
