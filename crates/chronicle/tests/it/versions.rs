//! Versions of a file are kept against each other, and each can be reached as if it stood alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rusqlite::Connection;

use crate::secrets::{MARKER, assert_nowhere, holding};
use crate::support::Cli;

/// A text of which each version differs from the one before in a line.
pub(crate) fn version(number: usize) -> String {
    let line = |n: usize| match n == number % 97 {
        true => format!("line {n} was changed in version {number}\n"),
        false => format!("line {n} says {}\n", n * 7919 % 1009),
    };
    (0..150).map(line).collect()
}

/// A workspace with so many versions of one file.
fn edited(versions: usize) -> Cli {
    let cli = Cli::adopted(&[("a.txt", &version(0))]);
    for number in 1..versions {
        cli.write("a.txt", &version(number));
        cli.call(["settle"]).ok();
    }
    cli
}

/// How the small contents of a home are kept: how many are deltas, and all their bytes.
fn kept(cli: &Cli) -> (i64, i64) {
    let place =
        fs::read_dir(cli.home().join("workspaces")).unwrap().next().unwrap().unwrap().path();
    let catalog = Connection::open(place.join("catalog.db")).unwrap();
    let sql = "SELECT count(*) FILTER (WHERE substr(stored, 1, 1) = x'03'), sum(length(stored)) FROM object";
    catalog.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

#[track_caller]
fn all_come_back(cli: &Cli, count: usize) {
    let history = cli.call(["--json", "history", "a.txt"]).ok().json_lines();
    let seqs = history.iter().rev().map(|line| line["seq"].as_u64().unwrap());
    for (number, seq) in seqs.take(count).enumerate() {
        let found = cli.call(["cat", "a.txt", "--at", &format!("seq:{seq}")]).ok().stdout;
        assert_eq!(found, version(number), "version {number}");
    }
}

#[test]
fn small_edits_cost_little_and_every_version_comes_back() {
    let cli = edited(80);
    let (deltas, bytes) = kept(&cli);
    assert!((70..79).contains(&deltas), "{deltas} of 79");
    // Alone, each would take about a kilobyte.
    assert!(bytes < 79 * 250, "{bytes}");
    all_come_back(&cli, 80);
    cli.call(["verify", "--deep"]).ok();
    cli.call(["gc"]).ok();
    all_come_back(&cli, 80);
    cli.call(["rewind", "start", "--exact", "--yes"]).ok();
    assert_eq!(cli.read("a.txt").unwrap(), version(0));
    cli.call(["doctor"]).ok();
}

/// What was kept against a version that goes is kept on its own before that one goes.
#[test]
fn versions_outlive_the_one_they_were_kept_against() {
    for point in [None, Some("forget_after_setting_apart")] {
        let cli = edited(8);
        let leaked = version(8) + MARKER;
        cli.write("a.txt", &leaked);
        cli.call(["settle"]).ok();
        cli.write("a.txt", &version(8));
        cli.call(["settle"]).ok();
        cli.write("a.txt", &version(9));
        cli.call(["settle"]).ok();
        let object = chronicle_core::ObjectId::of(leaked.as_bytes()).to_string();
        let words = ["forget", &object, "--yes"];
        if let Some(point) = point {
            let ended = cli.command(words).env("CHRONICLE_FAILPOINT", point).status().unwrap();
            assert!(ended.signal().is_some(), "{point}: {ended}");
            cli.call(["verify", "--deep"]).ok();
            cli.call(["gc"]).ok();
        } else {
            assert!(kept(&cli).0 > 0);
            cli.call(words).ok();
        }
        assert_nowhere(&cli, MARKER);
        assert!(holding(&cli.home(), object.as_bytes()).is_empty());
        cli.call(["verify", "--deep"]).ok();
        for (number, back) in [(8, 1), (9, 0)] {
            let history = cli.call(["--json", "history", "a.txt"]).ok().json_lines();
            let seq = &history[back]["seq"];
            let found = cli.call(["cat", "a.txt", "--at", &format!("seq:{seq}")]).ok().stdout;
            assert_eq!(found, version(number));
        }
    }
}

/// A version that is damaged takes those with it that are kept against it, says so, and heals with them.
#[test]
fn a_damaged_version_is_named_with_what_stands_on_it() {
    let cli = edited(6);
    let place =
        fs::read_dir(cli.home().join("workspaces")).unwrap().next().unwrap().unwrap().path();
    let catalog = Connection::open(place.join("catalog.db")).unwrap();
    let id = chronicle_core::ObjectId::of(version(3).as_bytes());
    let sql =
        "UPDATE object SET stored = CAST(substr(stored, 1, length(stored) - 1) || x'ff' AS BLOB)
               WHERE id = ?1";
    assert_eq!(catalog.execute(sql, [&id.as_bytes()[..]]).unwrap(), 1);
    drop(catalog);
    cli.call(["verify", "--deep"]).exits(12);
    let report = cli.call(["--json", "doctor"]).exits(12).json();
    assert!(report["lost_objects"].as_u64().unwrap() >= 1, "{report}");
    // Captured again, it heals with all that is kept against it.
    for number in 3..6 {
        cli.write("a.txt", &version(number));
        cli.call(["settle"]).ok();
    }
    cli.call(["doctor"]).ok();
    all_come_back(&cli, 6);
}
