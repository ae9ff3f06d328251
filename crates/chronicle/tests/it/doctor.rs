//! What `doctor` finds, puts right, and says is lost: damage done by hand to a real home.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::Value;

use crate::support::{Cli, listing};

/// A workspace with a pack of many files and three turns of work on two of them.
fn worked() -> Cli {
    let cli = Cli::new();
    for number in 0..90 {
        cli.write(&format!("many/{number}.txt"), &format!("file {number}\n").repeat(40));
    }
    cli.write("a.txt", "first\n");
    cli.call(["init"]).ok();
    for turn in 1..=3 {
        cli.turn("s", "work", || {
            cli.write("a.txt", &format!("{turn}\n"));
            cli.write(&format!("new{turn}.txt"), "made\n");
        });
    }
    cli
}

pub(crate) fn directory(cli: &Cli) -> PathBuf {
    fs::read_dir(cli.home().join("workspaces")).unwrap().next().unwrap().unwrap().path()
}

fn sql(cli: &Cli, words: &str) {
    Connection::open(directory(cli).join("catalog.db")).unwrap().execute_batch(words).unwrap();
}

/// The files of the store with this ending.
fn stored(cli: &Cli, ending: &str) -> Vec<PathBuf> {
    let all = listing(&cli.home().join("store/packs"));
    all.into_iter().filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

/// Where in a pack the payload of an object begins, by its index. Elsewhere a byte may be one of the lengths
/// between objects, which nobody misses while there is an index.
fn payload(pack: &Path, object: Option<chronicle_core::ObjectId>) -> u64 {
    let index = fs::read(pack.with_extension("idx")).unwrap();
    let mut lines = index[16 + 1024..index.len() - 32].chunks_exact(44);
    let is_it = |line: &&[u8]| object.is_none_or(|id| line[..32] == id.as_bytes()[..]);
    let line = lines.find(is_it).expect("the pack has it");
    // The two bytes behind the offset say which member of a group it is.
    u64::from_le_bytes(line[32..40].try_into().unwrap()) % (1 << 48) + 9
}

fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], at).unwrap();
}

/// Looks without touching, then repairs: both find these codes; the second leaves nothing to find.
#[track_caller]
fn repairs(cli: &Cli, codes: &[&str]) {
    let dry = cli.call(["--json", "doctor", "--dry-run"]).exits(12).json();
    assert_eq!(found(&dry), codes, "{dry}");
    let report = cli.call(["--json", "doctor"]).ok().json();
    assert_eq!(found(&report), codes, "{report}");
    assert!(report["findings"].as_array().unwrap().iter().all(|f| f["repaired"] == true));
    is_well(cli);
}

fn found(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// Nothing is left to find, and everything can be taken back and brought back.
#[track_caller]
fn is_well(cli: &Cli) {
    let said = cli.call(["doctor"]).ok();
    assert!(said.stdout.starts_with("Everything is in order: "), "{said:?}");
    cli.call(["verify", "--deep"]).ok();
    let now = cli.read("a.txt");
    cli.call(["rewind", "turn:1", "--yes"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("1\n"));
    cli.call(["redo", "--yes"]).ok();
    assert_eq!(cli.read("a.txt"), now);
}

#[test]
fn an_untouched_workspace_is_in_order() {
    is_well(&worked());
}

#[test]
fn a_lost_or_damaged_index_is_made_anew() {
    let cli = worked();
    let [index] = &stored(&cli, ".idx")[..] else { panic!("one pack") };
    fs::remove_file(index).unwrap();
    cli.call(["verify"]).exits(12);
    repairs(&cli, &["pack_index"]);
    flip(&stored(&cli, ".idx")[0], 700);
    repairs(&cli, &["pack_index"]);
}

#[test]
fn a_pack_that_lost_its_index_is_not_taken_for_a_leftover() {
    let cli = worked();
    fs::remove_file(&stored(&cli, ".idx")[0]).unwrap();
    // A capture that needs a pack of its own, and a sweep: both look for leftovers.
    for number in 0..90 {
        cli.write(&format!("more/{number}.txt"), &format!("more {number}\n").repeat(40));
    }
    cli.call(["settle"]).ok();
    cli.call(["gc"]).ok();
    is_well(&cli);
}

#[test]
fn damaged_content_that_a_file_still_has_is_taken_in_again() {
    let cli = worked();
    let pack = &stored(&cli, ".pack")[0];
    let content = fs::read(cli.root().join("many/7.txt")).unwrap();
    flip(pack, payload(pack, Some(chronicle_core::ObjectId::of(&content))) + 3);
    cli.call(["verify", "--deep"]).exits(12);
    repairs(&cli, &["corrupt_object", "missing_object"]);
    assert_eq!(listing(&cli.home().join("store/quarantine")).len(), 1);
}

#[test]
fn what_is_lost_for_good_is_named_by_path_and_snapshot() {
    let cli = worked();
    let content = fs::read(cli.root().join("many/7.txt")).unwrap();
    let object = blake3::hash(&content).to_hex().to_string();
    cli.turn("s", "work", || fs::remove_file(cli.root().join("many/7.txt")).unwrap());
    // The one version of it in the store is damaged, and no file has it any more.
    let store = chronicle_core::LocalStore::open(&cli.home().join("store")).unwrap();
    let id = chronicle_core::ObjectId::of(&content);
    chronicle_core::ContentStorage::delete(&store, &id).unwrap();
    let report = cli.call(["--json", "doctor"]).exits(12).json();
    assert_eq!(report["lost_objects"], 1, "{report}");
    let lost = report["lost"].as_array().unwrap();
    assert!(lost.iter().all(|lost| lost["path"] == "many/7.txt" && lost["object"] == object));
    let sides: Vec<_> = lost.iter().map(|lost| lost["side"].as_str().unwrap()).collect();
    assert!(sides.contains(&"before") && sides.contains(&"after"), "{report}");
    let named = lost.iter().find(|lost| lost["side"] == "before").unwrap();
    let id = named["short_id"].as_str().unwrap();
    cli.call(["show", id]).ok();
    let said = cli.call(["doctor"]).exits(12).stdout;
    assert!(said.contains("Lost for good: the content of 1 object"), "{said}");
    assert!(said.contains("many/7.txt, as it was before"), "{said}");
    // Rewinds that do not need it go on; one that does changes nothing.
    cli.call(["rewind", "turn:3", "a.txt", "--yes"]).ok();
    let before = cli.read("a.txt");
    assert_ne!(cli.call(["rewind", "turn:2", "--yes"]).status, 0);
    assert_eq!(cli.read("a.txt"), before);
    // The same content, written again, heals it.
    fs::write(cli.root().join("many/7.txt"), &content).unwrap();
    cli.call(["settle"]).ok();
    is_well(&cli);
}

#[test]
fn indexes_of_the_catalog_follow_from_its_records() {
    let cli = worked();
    sql(&cli, "DELETE FROM touched; DELETE FROM by_id WHERE kind = 0;");
    repairs(&cli, &["catalog_index"]);
    sql(&cli, "UPDATE touched SET seq = seq + 1 WHERE seq < 5;");
    repairs(&cli, &["catalog_index"]);
    let aged = crate::retention::with_days(60);
    aged.call(["prune"]).ok();
    aged.call(["doctor"]).ok();
    sql(&aged, "DELETE FROM merged; DELETE FROM touched;");
    aged.call(["verify"]).exits(12);
    aged.call(["doctor"]).ok();
    aged.call(["verify", "--deep"]).ok();
}

/// A row that is gone or says something else would hide the version that was asked for: nothing is
/// answered by it, and no rewind needs it.
#[test]
fn nothing_is_found_by_an_index_that_was_changed() {
    let cli = worked();
    let old = cli.read("many/7.txt").unwrap();
    cli.turn("s", "break it", || cli.write("many/7.txt", "broken\n"));
    for damage in [
        "DELETE FROM touched WHERE seq = (SELECT max(seq) FROM touched)",
        "UPDATE touched SET directory = 1000 WHERE seq = (SELECT max(seq) FROM touched)
         AND directory = (SELECT max(directory) FROM touched)",
        "UPDATE directory SET path = CAST('meny' AS BLOB) WHERE path = CAST('many' AS BLOB)",
        "DELETE FROM by_id WHERE kind = 0 AND seq = (SELECT max(seq) FROM by_id WHERE kind = 0)",
    ] {
        sql(&cli, damage);
        for words in
            [&["cat", "many/7.txt", "--at", "start"][..], &["history", "many/7.txt"], &["log"]]
        {
            let refused = cli.call(["--json"].iter().chain(words));
            assert_eq!(refused.error()["finding"], "index_edited", "{damage}: {words:?}");
        }
        // A rewind reads the records themselves, one after the other.
        cli.call(["rewind", "turn:3", "--yes"]).ok();
        assert_eq!(cli.read("many/7.txt").unwrap(), old, "{damage}");
        cli.call(["redo", "--yes"]).ok();
        assert_eq!(cli.read("many/7.txt").unwrap(), "broken\n", "{damage}");
        repairs(&cli, &["catalog_index"]);
        assert_eq!(cli.call(["cat", "many/7.txt", "--at", "start"]).ok().stdout, old);
    }
}

/// Overwrites the first page of a table.
fn wreck(cli: &Cli, table: &str) {
    let path = directory(cli).join("catalog.db");
    let catalog = Connection::open(&path).unwrap();
    let truncated: i64 =
        catalog.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(truncated, 0);
    let page = |sql: &str| catalog.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let root = page(&format!("SELECT rootpage FROM sqlite_master WHERE name = '{table}'"));
    let size = page("PRAGMA page_size");
    drop(catalog);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let at = (root - 1) * size;
    file.write_all_at(&vec![0xa5; usize::try_from(size).unwrap()], at.cast_unsigned()).unwrap();
}

#[test]
fn a_damaged_catalog_is_made_anew_from_its_records() {
    for table in ["touched", "by_id", "newer", "directory", "local", "record_by_kind"] {
        let cli = worked();
        wreck(&cli, table);
        let dry = cli.call(["--json", "doctor", "--dry-run"]).exits(12).json();
        assert_eq!(found(&dry), ["catalog_damaged"], "{table}");
        let report = cli.call(["--json", "doctor"]).ok().json();
        assert!(found(&report).contains(&"catalog_damaged"), "{table}: {report}");
        assert!(directory(&cli).join("damaged-1/catalog.db").exists());
        assert_eq!(cli.call(["changed"]).status, 0, "{table}: nothing changed in the workspace");
        is_well(&cli);
    }
}

#[test]
fn records_that_cannot_be_read_are_not_made_up() {
    let cli = worked();
    wreck(&cli, "record");
    let damaged = fs::read(directory(&cli).join("catalog.db")).unwrap();
    let report = cli.call(["--json", "doctor"]).exits(12).json();
    assert_eq!(found(&report), ["catalog_damaged"]);
    let words = report["findings"][0]["words"].as_str().unwrap();
    assert!(words.contains("cannot be made anew"), "{words}");
    assert_eq!(fs::read(directory(&cli).join("catalog.db")).unwrap(), damaged);
    assert_eq!(cli.read("a.txt").as_deref(), Some("3\n"));
}

#[test]
fn a_history_that_was_changed_is_only_told_of() {
    let cli = worked();
    sql(&cli, "UPDATE record SET body = x'00' WHERE seq = 4;");
    let report = cli.call(["--json", "doctor"]).exits(12).json();
    assert_eq!(found(&report), ["history"]);
    assert!(report["findings"][0]["words"].as_str().unwrap().contains("record 4"), "{report}");
}

#[test]
fn an_interrupted_rewind_is_finished_and_leftovers_go() {
    let cli = worked();
    let mut command = cli.command(["rewind", "turn:1", "--yes"]);
    command.env("CHRONICLE_FAILPOINT", "rewind_after_commit_point");
    assert!(command.status().unwrap().signal().is_some());
    fs::write(cli.home().join("store/tmp/1-left"), "half").unwrap();
    let report = cli.call(["--json", "doctor"]).ok().json();
    assert_eq!(found(&report), ["leftovers", "interrupted_rewind"]);
    assert_eq!(cli.read("a.txt").as_deref(), Some("1\n"));
    assert_eq!(cli.read("new3.txt"), None);
    assert!(listing(&cli.home().join("store/tmp")).is_empty());
}

#[test]
fn a_doctor_that_dies_is_followed_by_another() {
    for point in ["doctor_before_swap", "doctor_in_swap"] {
        let cli = worked();
        wreck(&cli, "touched");
        let mut command = cli.command(["doctor"]);
        command.env("CHRONICLE_FAILPOINT", point);
        assert!(command.status().unwrap().signal().is_some(), "{point}");
        cli.call(["doctor"]).ok();
        is_well(&cli);
    }
}

#[test]
fn what_is_sealed_is_healed_too_and_forgotten_where_it_was_put_aside() {
    let cli = Cli::new();
    for number in 0..90 {
        cli.write(&format!("{number}.pem"), &format!("secret {number}\n").repeat(40));
    }
    cli.call(["init"]).ok();
    fs::remove_file(&stored(&cli, ".idx")[0]).unwrap();
    let report = cli.call(["--json", "doctor"]).ok().json();
    assert_eq!(found(&report), ["pack_index"]);
    cli.call(["verify", "--deep"]).ok();
    let pack = &stored(&cli, ".pack")[0];
    // Behind the mark of the key and the nonce.
    flip(pack, payload(pack, None) + 30);
    let report = cli.call(["--json", "doctor"]).ok().json();
    assert_eq!(found(&report), ["corrupt_object", "missing_object"]);
    let aside = cli.home().join("store/quarantine");
    assert_eq!(listing(&aside).len(), 1);
    cli.call(["verify", "--deep"]).ok();
    (0..90).for_each(|number| fs::remove_file(cli.root().join(format!("{number}.pem"))).unwrap());
    for number in 0..90 {
        cli.call(["forget", &format!("{number}.pem"), "--yes"]).ok();
    }
    assert!(listing(&aside).is_empty());
    cli.call(["doctor"]).ok();
}
