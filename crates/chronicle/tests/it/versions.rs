//! Versions of a file are kept against each other, and each can be reached as if it stood alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::process::ExitStatusExt;

use chronicle_core::LARGE_OBJECT;
use chronicle_testing::dice::Dice;
use rusqlite::Connection;

use crate::secrets::{MARKER, assert_nowhere, holding};
use crate::support::{Cli, listing};

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

/// A workspace with a large file, and what the file holds.
fn with_large() -> (Cli, Vec<u8>) {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    let bytes = Dice::new(3).bytes(2 * LARGE_OBJECT);
    fs::write(cli.root().join("large"), &bytes).unwrap();
    cli.call(["settle"]).ok();
    (cli, bytes)
}

fn stored_bytes(cli: &Cli) -> u64 {
    let files = listing(&cli.home().join("store")).into_iter();
    files
        .filter_map(|path| fs::metadata(path).ok())
        .filter(fs::Metadata::is_file)
        .map(|m| m.len())
        .sum()
}

#[test]
fn an_edit_of_a_large_file_costs_a_few_pieces() {
    let (cli, first) = with_large();
    let before = stored_bytes(&cli);
    assert!(before > first.len() as u64);
    let mut edited = first.clone();
    edited[3_000_000..3_000_010].copy_from_slice(b"0123456789");
    edited.splice(5_000_000..5_000_000, *b"in the middle");
    cli.turn("s", "edit it", || fs::write(cli.root().join("large"), &edited).unwrap());
    let grown = stored_bytes(&cli) - before;
    assert!(grown < 3 << 20, "{grown}");
    // The same content elsewhere costs nothing but its name.
    fs::write(cli.root().join("copy"), &first).unwrap();
    cli.call(["settle"]).ok();
    assert!(stored_bytes(&cli) - before - grown < 4096);
    cli.call(["verify", "--deep"]).ok();
    cli.call(["gc"]).ok();
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert!(fs::read(cli.root().join("large")).unwrap() == first);
    cli.call(["redo", "--yes"]).ok();
    assert!(fs::read(cli.root().join("large")).unwrap() == edited);
    cli.call(["verify", "--deep"]).ok();
}

/// The pieces of what is forgotten go; those that other content has too stay.
#[test]
fn a_large_file_is_forgotten_piece_by_piece() {
    let (cli, mut bytes) = with_large();
    let first = bytes.clone();
    bytes[4_000_000..4_000_022].copy_from_slice(MARKER.as_bytes());
    fs::write(cli.root().join("large"), &bytes).unwrap();
    cli.call(["settle"]).ok();
    fs::write(cli.root().join("large"), &first).unwrap();
    cli.call(["settle"]).ok();
    assert!(!holding(&cli.home(), MARKER.as_bytes()).is_empty());
    let object = chronicle_core::ObjectId::of(&bytes).to_string();
    cli.call(["forget", &object, "--yes"]).ok();
    assert_nowhere(&cli, MARKER);
    cli.call(["verify", "--deep"]).ok();
    cli.turn("s", "remove it", || fs::remove_file(cli.root().join("large")).unwrap());
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert!(fs::read(cli.root().join("large")).unwrap() == first);
}

/// A damaged piece is found, and heals from a file that still has it.
#[test]
fn a_damaged_piece_is_taken_in_again() {
    let (cli, bytes) = with_large();
    let is_pack = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "pack");
    let pack = listing(&cli.home().join("store")).into_iter().filter(is_pack);
    let pack = pack.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut damaged = fs::read(&pack).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&pack, damaged).unwrap();
    cli.call(["verify"]).ok();
    cli.call(["verify", "--deep"]).exits(12);
    cli.call(["doctor"]).ok();
    cli.call(["verify", "--deep"]).ok();
    cli.turn("s", "remove it", || fs::remove_file(cli.root().join("large")).unwrap());
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert!(fs::read(cli.root().join("large")).unwrap() == bytes);
}
