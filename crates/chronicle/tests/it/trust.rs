//! Whoever can write to the home cannot change history unnoticed: each attack, done by hand on a real
//! store at several places, with a witness and without, and a verifier that knows no Chronicle.
//!
//! What is *not* noticed is asserted too, so that docs/security.md stays true.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

pub(crate) mod attacker;
mod forgotten;
mod pruned;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chronicle_core::{Home, KeySource, Workspace};
use chronicle_testing::dice::Dice;

use crate::support::{Cli, Done};
use attacker::Copy;

/// How often each attack is done, at another place each time.
const TRIALS: u64 = 4;
/// Another key than the person's.
const STRANGER: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// A history of six turns, a copy of it after three, and a file that saw every head.
struct Scene {
    cli: Cli,
    end: u64,
    heads: Vec<u64>,
    /// Records with changes.
    filled: Vec<u64>,
    key: String,
}

/// What is found: a word and the first bad record.
pub(crate) type Found = Option<(&'static str, u64)>;

impl Scene {
    fn new() -> Self {
        let cli = Cli::adopted(&[("a.txt", "0\n"), ("b.txt", "0\n")]);
        let witness = cli.home().with_file_name("witness.heads");
        cli.call(["witness", "add", "file", witness.to_str().unwrap()]).ok();
        let scene = Self { cli, end: 0, heads: vec![], filled: vec![], key: String::new() };
        for turn in 1..=6 {
            scene.cli.turn("s", "work", || {
                scene.cli.write("a.txt", &format!("{turn}\n"));
                scene.cli.write(&format!("new{turn}.txt"), "made\n");
            });
            if turn == 3 {
                Copy::of(&scene.cli, &scene.cli.home(), scene.older());
            }
        }
        let copy = scene.copy("count");
        let all = |sql: &str| -> Vec<u64> {
            let catalog = copy.catalog();
            let mut statement = catalog.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
            rows.map(|row| row.unwrap().cast_unsigned()).collect()
        };
        let heads = all("SELECT size FROM head ORDER BY size");
        let filled = all("SELECT seq FROM record WHERE length(body) > 0 ORDER BY seq");
        let end = copy.number("SELECT max(seq) FROM record");
        let view = copy.call(&["head", "--json"], None).ok().json();
        let key = view["key"].as_str().unwrap().to_owned();
        drop(copy);
        Self { end, heads, filled, key, ..scene }
    }

    fn older(&self) -> PathBuf {
        self.cli.home().with_file_name("older")
    }

    fn witness(&self) -> PathBuf {
        self.cli.home().with_file_name("witness.heads")
    }

    fn copy(&self, name: &str) -> Copy<'_> {
        self.copy_of(&self.cli.home(), name)
    }

    fn copy_of(&self, from: &std::path::Path, name: &str) -> Copy<'_> {
        let to = self.cli.home().with_file_name(name);
        let _ = fs::remove_dir_all(&to);
        Copy::of(&self.cli, from, to)
    }

    /// The newest head that is smaller than a position, or 0.
    fn head_before(&self, seq: u64) -> u64 {
        self.heads.iter().rev().find(|size| **size < seq).copied().unwrap_or(0)
    }

    /// Checks what both verifiers say of a copy, with the witness and without.
    #[track_caller]
    fn check(&self, copy: &Copy<'_>, with: Found, without: Found) {
        let witness = self.witness();
        let witness = witness.to_str().unwrap();
        let said = copy.call(&["verify", "--json"], None);
        check_found(&said, with);
        if with != without {
            let message = said.error()["message"].as_str().unwrap().to_owned();
            assert!(message.contains(&format!("witness file {witness}")), "{message}");
        }
        let said = copy.stranger(&["--witness", witness, "--key", &self.key]);
        check_stranger(&said, with);
        copy.forget_witness();
        check_found(&copy.call(&["verify", "--json"], None), without);
        check_stranger(&copy.stranger(&["--key", &self.key]), without);
    }

    /// Does an attack at several places, and checks what is found.
    fn table(&self, name: &str, attack: impl Fn(&Copy<'_>, &mut Dice) -> (Found, Found)) {
        for seed in 0..TRIALS {
            let mut dice = Dice::new(seed);
            let copy = self.copy(&format!("{name}-{seed}"));
            let (with, without) = attack(&copy, &mut dice);
            self.check(&copy, with, without);
        }
    }

    /// A position that has others on both sides.
    fn inside(&self, dice: &mut Dice) -> u64 {
        dice.between(2, self.end as usize - 2) as u64
    }
}

#[track_caller]
pub(crate) fn check_found(said: &Done, expected: Found) {
    let Some((finding, seq)) = expected else {
        assert_eq!(said.status, 0, "{said:?}");
        return;
    };
    assert_eq!(said.status, 12, "{said:?}");
    let error = said.error();
    assert_eq!((error["finding"].as_str(), error["seq"].as_u64()), (Some(finding), Some(seq)));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&format!("at record {seq}: ")), "{message}");
}

#[track_caller]
pub(crate) fn check_stranger(said: &Done, expected: Found) {
    match expected {
        None => assert_eq!(said.status, 0, "{said:?}"),
        Some((finding, seq)) => {
            assert_eq!(said.status, 12, "{said:?}");
            assert!(said.stdout.contains(&format!("at record {seq}: ")), "{said:?}");
            assert!(said.stdout.contains(&format!("({finding})")), "{said:?}");
        }
    }
}

fn both(finding: &'static str, seq: u64) -> (Found, Found) {
    (Some((finding, seq)), Some((finding, seq)))
}

#[test]
fn an_untouched_history_verifies() {
    let scene = Scene::new();
    assert_eq!(scene.heads.len(), 6);
    let copy = scene.copy("untouched");
    let report = copy.call(&["verify", "--deep", "--json"], None).ok().json();
    assert_eq!((report["heads"].as_u64(), report["records"].as_u64()), (Some(6), Some(scene.end)));
    assert_eq!(report["witnesses"][0]["size"], scene.end);
    scene.check(&copy, None, None);
}

#[test]
fn a_changed_record_is_named() {
    let scene = Scene::new();
    scene.table("edit-leaf", |copy, dice| {
        let seq = scene.inside(dice);
        let mut row = copy.row(seq);
        let at = dice.below(row.3.len());
        row.3[at] ^= 1;
        copy.put(seq, &row);
        both("edited", seq)
    });
    scene.table("edit-leaf-and-hash", |copy, dice| {
        let seq = scene.inside(dice);
        copy.put(seq, &copy.forge(seq));
        both("edited", seq)
    });
    scene.table("edit-body", |copy, dice| {
        let seq = *dice.pick(&scene.filled);
        let mut row = copy.row(seq);
        let at = dice.below(row.4.len());
        row.4[at] ^= 1;
        copy.put(seq, &row);
        both("edited", seq)
    });
    scene.table("drop-leaf", |copy, dice| {
        let seq = scene.inside(dice);
        copy.sql(&format!("UPDATE record SET leaf = x'', body = x'' WHERE seq = {seq}"));
        both("deleted", seq)
    });
}

#[test]
fn records_in_the_wrong_place_are_named() {
    let scene = Scene::new();
    scene.table("delete", |copy, dice| {
        let seq = scene.inside(dice);
        copy.sql(&format!("DELETE FROM record WHERE seq = {seq}"));
        both("deleted", seq)
    });
    scene.table("delete-and-close", |copy, dice| {
        let seq = scene.inside(dice);
        copy.sql(&format!("DELETE FROM record WHERE seq = {seq}"));
        copy.shift(seq + 1, -1);
        both("deleted", seq)
    });
    scene.table("insert", |copy, dice| {
        let seq = scene.inside(dice);
        let forged = copy.forge(seq);
        copy.shift(seq, 1);
        copy.put(seq, &forged);
        copy.chain_from(seq);
        both("inserted", seq)
    });
    scene.table("insert-copy", |copy, dice| {
        let seq = scene.inside(dice);
        let old = copy.row(dice.between(1, seq as usize - 1) as u64);
        copy.shift(seq, 1);
        copy.put(seq, &old);
        both("inserted", seq)
    });
    scene.table("foreign", |copy, dice| {
        let seq = scene.inside(dice);
        copy.put(seq, &copy.forge_at(seq, dice.between(2, 33)));
        copy.chain_from(seq);
        both("foreign", seq)
    });
    scene.table("swap", |copy, dice| {
        let one = scene.inside(dice);
        let other = dice.between(one as usize + 1, scene.end as usize) as u64;
        let (first, second) = (copy.row(one), copy.row(other));
        copy.put(one, &second);
        copy.put(other, &first);
        both("swapped", one)
    });
    scene.table("reorder", |copy, dice| {
        let seq = dice.between(1, scene.end as usize - 3) as u64;
        let rows: Vec<_> = (seq..seq + 3).map(|at| copy.row(at)).collect();
        for (at, from) in [(0, 1), (1, 2), (2, 0)] {
            copy.put(seq + at, &rows[from]);
        }
        copy.chain_from(seq);
        both("reordered", seq)
    });
}

#[test]
fn a_lost_end_needs_a_witness() {
    let scene = Scene::new();
    scene.table("truncate", |copy, dice| {
        let after = scene.inside(dice);
        copy.sql(&format!("DELETE FROM record WHERE seq > {after}"));
        both("truncated", after + 1)
    });
    scene.table("truncate-without-a-trace", |copy, dice| {
        let after = scene.inside(dice);
        copy.cut_without_a_trace(after);
        (Some(("rolled_back", after + 1)), None)
    });
    let copy = scene.copy_of(&scene.older(), "rolled-back");
    let end = copy.number("SELECT max(seq) FROM record");
    scene.check(&copy, Some(("rolled_back", end + 1)), None);
}

#[test]
fn another_way_needs_a_witness() {
    let scene = Scene::new();
    let copy = scene.copy_of(&scene.older(), "fork");
    let end = copy.number("SELECT max(seq) FROM record");
    let list = fs::read(copy.home.join("witness")).unwrap();
    // With the witness in sight nothing is handed over that does not go on from what it saw.
    copy.call(&["turn", "start", "--session", "other"], None).ok();
    scene.cli.write("a.txt", "another way\n");
    copy.call(&["turn", "end", "--session", "other"], None).ok();
    let status = copy.call(&["status", "--json"], None).ok().json();
    let problem = status["witnesses"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("has seen another history"), "{problem}");
    fs::remove_file(copy.home.join("witness")).unwrap();
    for turn in 0..6 {
        copy.call(&["turn", "start", "--session", "other"], None).ok();
        scene.cli.write("a.txt", &format!("another way {turn}\n"));
        copy.call(&["turn", "end", "--session", "other"], None).ok();
    }
    fs::write(copy.home.join("witness"), list).unwrap();
    assert!(copy.number("SELECT max(seq) FROM record") > scene.end);
    scene.check(&copy, Some(("forked", end + 1)), None);
}

#[test]
fn a_chain_made_anew_fits_no_head() {
    let scene = Scene::new();
    scene.table("rechain", |copy, dice| {
        let seq = scene.inside(dice);
        copy.put(seq, &copy.forge(seq));
        copy.chain_from(seq);
        both("rechained", scene.head_before(seq) + 1)
    });
    scene.table("rechain-and-other-key", |copy, dice| {
        let seq = scene.inside(dice);
        copy.put(seq, &copy.forge(seq));
        copy.chain_from(seq);
        copy.sign_anew(Some(STRANGER));
        both("other_key", scene.end)
    });
    // Whoever runs as the same user can use the key: then only a witness knows.
    scene.table("rechain-and-same-key", |copy, dice| {
        let seq = scene.inside(dice);
        copy.put(seq, &copy.forge(seq));
        copy.chain_from(seq);
        let list = fs::read(copy.home.join("witness")).unwrap();
        fs::remove_file(copy.home.join("witness")).unwrap();
        copy.sign_anew(None);
        fs::write(copy.home.join("witness"), list).unwrap();
        (Some(("forked", scene.head_before(seq) + 1)), None)
    });
}

#[test]
fn heads_are_guarded_too() {
    let scene = Scene::new();
    scene.table("drop-head", |copy, dice| {
        let size = scene.heads[dice.below(scene.heads.len() - 1)];
        copy.sql(&format!("DELETE FROM head WHERE size = {size}"));
        both("head_dropped", size)
    });
    scene.table("edit-head", |copy, dice| {
        let size = *dice.pick(&scene.heads);
        copy.sql(&format!("UPDATE head SET note = replace(note, 'T', 't') WHERE size = {size}"));
        both("head_edited", size)
    });
    scene.table("edit-peaks", |copy, dice| {
        let size = *dice.pick(&scene.heads);
        copy.sql(&format!("UPDATE head SET peaks = zeroblob(length(peaks)) WHERE size = {size}"));
        both("head_edited", size)
    });
    let copy = scene.copy("drop-newest");
    copy.sql(&format!("DELETE FROM head WHERE size = {}", scene.end));
    scene.check(&copy, Some(("head_dropped", scene.end)), None);
    let copy = scene.copy("lost-witness");
    fs::write(scene.witness(), "").unwrap();
    let said = copy.call(&["verify", "--json"], None);
    check_found(&said, Some(("witness_lost", scene.end)));
    // Named anew it is a new one, and gets the newest head.
    let witness = scene.witness();
    let witness = ["file", witness.to_str().unwrap()];
    copy.call(&["witness", "remove", witness[0], witness[1]], None).ok();
    copy.call(&["witness", "add", witness[0], witness[1]], None).ok();
    copy.call(&["verify"], None).ok();
    copy.call(&["witness", "list"], None).ok();
    let report = copy.call(&["verify", "--json"], None).ok().json();
    assert_eq!(report["witnesses"][0]["size"], scene.end);
}

#[test]
fn a_changed_object_is_named() {
    let scene = Scene::new();
    for seed in 0..TRIALS {
        let copy = scene.copy(&format!("object-{seed}"));
        let mut dice = Dice::new(seed);
        let catalog = copy.catalog();
        let sql = "SELECT id, stored FROM object LIMIT 1 OFFSET ?1";
        let at = dice.below(copy.number("SELECT count(*) FROM object") as usize);
        let (id, mut stored): (Vec<u8>, Vec<u8>) =
            catalog.query_row(sql, [at as i64], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let last = stored.len() - 1;
        stored[last] ^= 1;
        catalog.execute("UPDATE object SET stored = ?2 WHERE id = ?1", (&id, stored)).unwrap();
        drop(catalog);
        let said = copy.call(&["verify", "--deep", "--json"], None).exits(12);
        assert_eq!(said.error()["finding"], "corrupt_object");
        assert!(said.error()["message"].as_str().unwrap().contains(&chronicle_core::to_hex(&id)));
        copy.sql("DELETE FROM object WHERE id = (SELECT id FROM object LIMIT 1)");
        let said = copy.call(&["verify", "--json"], None).exits(12);
        assert_eq!(said.error()["finding"], "missing_object");
        let said = copy.stranger(&[]).ok();
        assert!(said.stdout.contains("objects were not read"), "{said:?}");
    }
}

#[test]
fn an_anchor_is_a_witness_on_paper() {
    let scene = Scene::new();
    let note = scene.cli.home().with_file_name("noted.head");
    let text = scene.cli.call(["head"]).ok().stdout;
    fs::write(&note, &text).unwrap();
    let view = scene.cli.call(["head", "--json"]).ok().json();
    assert_eq!(view["note"], text);
    let short = format!("{}:{}", scene.end, view["root"].as_str().unwrap());
    let copy = scene.copy("anchored");
    copy.forget_witness();
    let older = scene.copy_of(&scene.older(), "anchored-older");
    older.forget_witness();
    let end = older.number("SELECT max(seq) FROM record");
    for anchor in [note.to_str().unwrap(), &text, &short] {
        let report = copy.call(&["verify", "--anchor", anchor, "--json"], None).ok().json();
        assert_eq!(report["anchored"], scene.end);
        copy.stranger(&["--anchor", anchor]).ok();
        let said = older.call(&["verify", "--anchor", anchor, "--json"], None);
        check_found(&said, Some(("rolled_back", end + 1)));
        check_stranger(&older.stranger(&["--anchor", anchor]), Some(("rolled_back", end + 1)));
    }
    let other = format!("{}:{}", scene.end, "00".repeat(32));
    let said = copy.call(&["verify", "--anchor", &other, "--json"], None);
    check_found(&said, Some(("forked", scene.head_before(scene.end) + 1)));
    copy.call(&["verify", "--anchor", "nothing"], None).exits(1);
}

#[test]
fn a_long_log_is_checked_by_tiles_and_its_nodes_are_guarded() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    let key = KeySource::File(cli.home().with_file_name("long.key"));
    let home = Home::at(&cli.home()).signed_with(key);
    let mut workspace = Workspace::open(&home, &cli.root()).unwrap();
    for number in 0..1300 {
        workspace.pin("start", &format!("p{number}")).unwrap();
        if number % 400 == 0 {
            workspace.head().unwrap();
        }
    }
    let head = workspace.head().unwrap().head;
    let report = workspace.verify(false, &|_, _| ()).unwrap();
    assert_eq!((report.records, report.heads), (head.size, 5));
    for seq in [1, 255, 256, 257, 700, head.size] {
        let view = workspace.prove_record(chronicle_core::Seq(seq), head.size).unwrap();
        let hash = |text: &String| -> [u8; 32] { from_base64(text) };
        let proof: Vec<_> = view.proof.iter().map(hash).collect();
        let leaf = hash(view.leaf_hash.as_ref().unwrap());
        let includes = chronicle_core::merkle::includes;
        assert!(includes(&leaf, seq - 1, head.size, &proof, &head.root), "{seq}");
    }
    drop(workspace);
    let copies = ["edited", "dropped", "tile"]
        .map(|name| Copy::of(&cli, &cli.home(), cli.home().with_file_name(format!("long-{name}"))));
    assert_eq!(copies[0].number("SELECT count(*) FROM node"), head.size / 256);
    let check = |copy: &Copy<'_>, finding, seq| {
        let said = copy.call(&["verify", "--json"], None);
        check_found(&said, Some((finding, seq)));
        check_stranger(&copy.stranger(&[]), Some((finding, seq)));
    };
    copies[0].sql("UPDATE node SET hash = zeroblob(32) WHERE number = 2");
    copies[1].sql("DELETE FROM node WHERE number = 3");
    copies[2].sql("DELETE FROM record WHERE seq IN (700, 900)");
    check(&copies[0], "node_edited", 513);
    check(&copies[1], "node_edited", 769);
    check(&copies[2], "deleted", 700);
}

/// The log is found by tables that follow from it: a row less, and a history that is whole does not
/// show a snapshot.
#[test]
fn tables_that_do_not_follow_from_the_records_are_noticed() {
    let scene = Scene::new();
    let seq = scene.filled[scene.filled.len() / 2];
    for (name, sql) in [
        ("less", format!("DELETE FROM by_id WHERE kind = 0 AND seq = {seq}")),
        ("other", format!("UPDATE by_id SET id = zeroblob(16) WHERE kind = 0 AND seq = {seq}")),
        ("untouched", format!("DELETE FROM touched WHERE seq = {seq}")),
        ("more", format!("INSERT INTO touched SELECT max(id), {seq}, 7 FROM directory")),
    ] {
        let copy = scene.copy(name);
        check_found(&copy.call(&["verify", "--deep", "--json"], None), None);
        copy.sql(&sql);
        check_found(&copy.call(&["verify", "--json"], None), None);
        let said = copy.call(&["verify", "--deep", "--json"], None);
        check_found(&said, Some(("index_edited", seq)));
    }
}

/// Base64 by the rules of the alphabet; the test knows nothing of the library's.
fn from_base64(text: &str) -> [u8; 32] {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits = text.bytes().filter(|digit| *digit != b'=').map(value);
    let bits: Vec<u8> =
        digits.flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1)).collect();
    let bytes = bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | bit));
    bytes.collect::<Vec<u8>>().try_into().unwrap()
}

#[test]
fn without_a_key_turns_end_all_the_same() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    let turn = |home: &str| {
        for words in [["turn", "start"], ["turn", "end"]] {
            let mut command = cli.command(words.into_iter().chain(["--session", "s"]));
            command.env("HOME", home);
            crate::support::done(command.output().unwrap()).ok();
        }
    };
    // A home that is no directory.
    turn("/dev/null/nowhere");
    let status = cli.call(["status", "--json"]).ok().json();
    assert!(status["head_problem"].is_string(), "{status}");
    assert_eq!(status["signed_size"], 0);
    let text = cli.call(["status"]).ok().stdout;
    assert!(text.contains("the newest history is not signed"), "{text}");
    turn(cli.home().parent().unwrap().to_str().unwrap());
    let status = cli.call(["status", "--json"]).ok().json();
    assert!(status["head_problem"].is_null() && status["signed_size"].as_u64() > Some(0));
    cli.call(["verify"]).ok();
}

#[test]
fn another_key_signs_nothing_here() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    cli.turn("s", "x", || cli.write("a.txt", "1\n"));
    cli.call(["settle"]).ok();
    cli.turn("s", "x", || ());
    let mut command = cli.command(["head"]);
    let refused = crate::support::done(command.env("CHRONICLE_KEY", STRANGER).output().unwrap());
    // Nothing is newer than the last head, but the key is not the one.
    assert!(refused.exits(1).stderr.contains("No head can be signed"));
    let mut command = cli.command(["verify", "--json"]);
    let said = crate::support::done(command.env("CHRONICLE_KEY", STRANGER).output().unwrap());
    assert_eq!(said.exits(12).error()["finding"], "other_key");
    let key = cli.home().with_file_name(".config").join("chronicle/head.key");
    fs::remove_file(&key).unwrap();
    cli.turn("s", "y", || cli.write("a.txt", "2\n"));
    let status = cli.call(["status", "--json"]).ok().json();
    assert!(status["head_problem"].as_str().unwrap().contains("is not there"), "{status}");
    assert!(!key.exists(), "a lost key is not replaced");
    cli.call(["verify"]).ok();
}

#[test]
fn a_hook_hands_heads_over_to_a_repository_behind_its_back() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    let repository = cli.home().with_file_name("repository");
    let git = std::process::Command::new("git").args(["init", "-q"]).arg(&repository).status();
    assert!(git.unwrap().success());
    let path = repository.to_str().unwrap();
    cli.call(["witness", "add", "git", path]).ok();
    assert!(cli.call(["witness", "add", "git", path]).ok().stderr.contains("Already"));
    let say = |event: &str| {
        let text = serde_json::json!({ "session_id": "s", "cwd": cli.root(), "prompt": "x",
            "hook_event_name": event });
        let mut command = cli.command(["hook", "claude-code"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.to_string().as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
    };
    say("UserPromptSubmit");
    cli.write("a.txt", "1\n");
    say("Stop");
    let marks = || -> u64 {
        let list = fs::read_dir(cli.home().join("workspaces")).unwrap();
        let directory = list.map(|entry| entry.unwrap().path()).next().unwrap();
        let text = fs::read_to_string(directory.join("handed-over")).unwrap_or_default();
        text.split(' ').next().and_then(|size| size.parse().ok()).unwrap_or(0)
    };
    let until = Instant::now() + Duration::from_secs(20);
    while marks() == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let report = cli.call(["verify", "--json"]).ok().json();
    assert_eq!(report["witnesses"][0]["kind"], "git");
    assert!(report["witnesses"][0]["size"].as_u64() > Some(0), "{report}");
    let list = cli.call(["witness", "list"]).ok().stdout;
    assert!(list.starts_with(&format!("git {path}: has seen")), "{list}");
    let removed = cli.call(["witness", "remove", "git", path]).ok();
    assert!(removed.stderr.contains("any more"), "{removed:?}");
}

#[test]
fn a_damaged_log_is_not_signed_and_turns_end_all_the_same() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    cli.turn("s", "x", || cli.write("a.txt", "1\n"));
    let size = cli.call(["head", "--json"]).ok().json()["size"].as_u64().unwrap();
    cli.call(["turn", "start", "--session", "s"]).ok();
    let copy = Copy::of(&cli, &cli.home(), cli.home().with_file_name("damaged"));
    copy.sql(&format!("UPDATE record SET link = zeroblob(32) WHERE seq = {size}"));
    cli.write("a.txt", "2\n");
    copy.call(&["turn", "end", "--session", "s"], None).ok();
    let status = copy.call(&["status", "--json"], None).ok().json();
    let problem = status["head_problem"].as_str().unwrap();
    assert!(problem.contains(&format!("the head over {size} records")), "{problem}");
    assert_eq!(status["signed_size"], size);
    check_found(&copy.call(&["verify", "--json"], None), Some(("edited", size)));
}

#[test]
fn every_end_is_signed() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    let signed = || {
        let status = cli.call(["status", "--json"]).ok().json();
        assert_eq!(status["signed_size"], status["head_seq"], "{status}");
        status["signed_size"].as_u64().unwrap()
    };
    cli.turn("s", "x", || cli.write("a.txt", "1\n"));
    let turn = signed();
    cli.call(["undo", "--yes"]).ok();
    let undo = signed();
    cli.call(["run", "--", "sh", "-c", "echo 2 > a.txt"]).ok();
    let run = signed();
    assert!(turn < undo && undo < run);
    // A capture makes none.
    cli.call(["snapshot", "--action", "write_file", "--path", "a.txt"]).ok();
    let status = cli.call(["status", "--json"]).ok().json();
    assert!(status["signed_size"] == run && status["head_seq"].as_u64() > Some(run), "{status}");
    cli.call(["head"]).ok();
    signed();
    cli.call(["verify"]).ok();
}

#[test]
fn a_witness_that_hangs_keeps_nobody_waiting() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    let witness = cli.home().with_file_name("heads");
    cli.call(["witness", "add", "file", witness.to_str().unwrap()]).ok();
    fs::remove_file(&witness).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&witness).status();
    assert!(made.unwrap().success());
    let begun = Instant::now();
    cli.turn("s", "x", || cli.write("a.txt", "1\n"));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let status = cli.call(["status", "--json"]).ok().json();
    assert!(status["witnesses"][0]["problem"].is_string(), "{status}");
    let text = cli.call(["status"]).ok().stdout;
    assert!(text.contains("has seen nothing yet"), "{text}");
    cli.call(["verify"]).ok();
}

#[test]
fn a_workspace_may_be_its_own_witness_without_changing_by_it() {
    let cli = Cli::new();
    cli.write("a.txt", "0\n");
    let git = std::process::Command::new("git").args(["init", "-q"]).arg(cli.root()).status();
    assert!(git.unwrap().success());
    cli.call(["init"]).ok();
    cli.call(["witness", "add", "git", "."]).ok();
    cli.turn("s", "x", || cli.write("a.txt", "1\n"));
    assert!(cli.root().join(".git/refs/notes/chronicle").exists());
    let changed = cli.call(["changed", "--json"]).ok();
    assert_eq!(changed.status, 0, "{changed:?}");
    cli.call(["rewind", "start", "--yes"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("0\n"));
    let report = cli.call(["verify", "--json"]).ok().json();
    assert_eq!(report["witnesses"][0]["size"], report["records"]);
}

#[test]
fn a_witness_that_would_go_back_too_is_refused() {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    for place in [cli.home().join("heads"), cli.root().join("heads")] {
        cli.call(["witness", "add", "file", place.to_str().unwrap()]).exits(2);
    }
    assert!(cli.call(["witness", "list"]).ok().stderr.contains("No witness yet"));
}
