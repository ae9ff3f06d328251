//! `forget`: content that should never have been kept is nowhere any more, and history verifies.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use crate::hooks::Talk;
use crate::retention::with_days;
use crate::secrets::{MARKER, OTHER, accept, assert_nowhere, hash, holding};
use crate::support::Cli;

/// A workspace in which a key was kept plain, in several versions and places, and is gone again.
fn leaked() -> Cli {
    let cli = Cli::adopted(&[("a.txt", "a\n"), ("deep/notes", &format!("key {MARKER}\n"))]);
    cli.turn("s", "copy it", || {
        cli.write("leak", &format!("key {MARKER}\n"));
        cli.write("a.txt", "b\n");
    });
    cli.turn("s", "change it", || cli.write("leak", &format!("{OTHER} and {MARKER}\n")));
    cli.call(["snapshot", "--action", "write_file", "--path", "leak"]).ok();
    cli.write("leak", "harmless\n");
    fs::remove_file(cli.root().join("deep/notes")).expect("remove it");
    cli.call(["settle"]).ok();
    assert!(!holding(&cli.home(), MARKER.as_bytes()).is_empty(), "it is there to be forgotten");
    cli
}

/// The bytes of every plain name of what was forgotten are gone too: they would let a guess be tested.
fn names(cli: &Cli) -> Vec<[u8; 32]> {
    let text = [format!("key {MARKER}\n"), format!("{OTHER} and {MARKER}\n")];
    let object = |text: &String| chronicle_core::ObjectId::of(text.as_bytes());
    let names: Vec<_> = text.iter().map(|text| *object(text).as_bytes()).collect();
    assert!(names.iter().all(|name| !holding(&cli.home(), name).is_empty()));
    names
}

#[test]
fn what_is_forgotten_is_nowhere_and_history_verifies() {
    let cli = leaked();
    let names = names(&cli);
    let anchor = cli.home().with_file_name("anchor");
    fs::write(&anchor, cli.call(["head"]).ok().stdout).unwrap();

    let would = cli.call(["--json", "forget", "leak", "--dry-run"]).ok().json();
    assert_eq!((&would["dry_run"], &would["objects"]), (&true.into(), &3.into()));
    let at: Vec<_> = would["paths"].as_array().unwrap().iter().map(|p| p["path"].clone()).collect();
    assert_eq!(at, ["deep/notes", "leak"], "the same content elsewhere goes too");
    assert_eq!(would["still_there"], serde_json::json!(["leak"]));
    assert!(!holding(&cli.home(), MARKER.as_bytes()).is_empty(), "a dry run changes nothing");

    // What stands there would be taken in again.
    let error = cli.call(["--json", "forget", "leak", "--yes"]).exits(3).error();
    assert_eq!(error["code"], "still_there");
    fs::remove_file(cli.root().join("leak")).unwrap();
    let error = cli.call(["--json", "forget", "leak"]).exits(3).error();
    assert_eq!(error["code"], "not_confirmed");

    let done = cli.call(["--json", "forget", "leak", "--yes"]).ok().json();
    assert_eq!(done["objects"], 3);
    assert_nowhere(&cli, MARKER);
    assert_nowhere(&cli, OTHER);
    for name in names {
        assert_eq!(holding(&cli.home(), &name), Vec::<std::path::PathBuf>::new());
    }
    cli.call(["verify", "--deep"]).ok();
    cli.call(["verify", "--anchor", anchor.to_str().unwrap()]).ok();
    let again = cli.call(["--json", "forget", "leak", "--yes"]).exits(3).error();
    assert_eq!(again["code"], "nothing_to_do");
}

#[test]
fn a_rewind_across_it_names_the_path_and_leaves_it_alone() {
    let cli = leaked();
    fs::remove_file(cli.root().join("leak")).unwrap();
    cli.call(["forget", "leak", "--yes"]).ok();
    cli.write("leak", "new work\n");
    let done = cli.call(["rewind", "start", "--exact", "--yes"]).exits(4);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(said.contains("deep/notes") && said.contains("forgotten on purpose"), "{said}");
    assert_eq!(cli.read("a.txt").unwrap(), "a\n");
    assert_eq!(cli.read("deep/notes"), None);
    let redone = cli.call(["redo", "--yes"]);
    assert!(matches!(redone.status, 0 | 4), "{redone:?}");
    assert_eq!(cli.read("a.txt").unwrap(), "b\n");
    let error = cli.call(["cat", "deep/notes", "--at", "start"]).exits(1).stderr;
    assert!(error.contains("forgotten on purpose"), "{error}");
    for words in [&["log"][..], &["history", "leak"], &["diff", "start", "--patch"], &["status"]] {
        cli.call(words).ok();
    }
    cli.call(["prune"]).ok();
    cli.call(["gc"]).ok();
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn one_version_or_one_object_can_be_forgotten() {
    let cli = leaked();
    let newest = hash(&cli, "leak");
    fs::remove_file(cli.root().join("leak")).unwrap();
    cli.call(["forget", "leak", "--at", "turn:2", "--yes"]).ok();
    assert_nowhere(&cli, OTHER);
    assert!(!holding(&cli.home(), MARKER.as_bytes()).is_empty(), "the first version stays");
    assert_eq!(cli.call(["cat", "leak", "--at", "turn:1"]).ok().stdout, format!("key {MARKER}\n"));
    // The records that said less already say less again.
    let first = cli.call(["--json", "history", "deep/notes"]).ok().json_lines();
    let object = first[0]["change"]["before"]["hash"].as_str().unwrap().to_owned();
    assert_ne!(object, newest);
    cli.call(["forget", &object[..16], "--yes"]).ok();
    assert_nowhere(&cli, MARKER);
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn a_secret_is_forgotten_like_anything_else_and_may_stay_where_it_is_never_kept() {
    let cli = Cli::adopted(&[(".env", MARKER), ("vault/key", OTHER)]);
    let secret = hash(&cli, ".env");
    cli.write(".env", "changed\n");
    cli.write("chronicle.toml", "[secrets]\nnever = [\"vault/**\"]\n");
    let error = cli.call(["--json", "forget", "vault", "--yes"]).exits(3).error();
    assert_eq!(error["code"], "still_there");
    accept(&cli);
    cli.call(["forget", "vault", "--yes"]).ok();
    assert_nowhere(&cli, OTHER);
    assert_eq!(cli.read("vault/key").unwrap(), OTHER);
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, OTHER);
    cli.call(["forget", &secret, "--yes"]).ok();
    assert!(cli.call(["cat", ".env", "--at", "start"]).exits(1).stderr.contains("forgotten"));
    assert_eq!(cli.call(["cat", ".env"]).ok().stdout, "changed\n");
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn a_plain_copy_of_a_secret_is_forgotten_with_it() {
    let cli = Cli::adopted(&[(".env", MARKER), ("copy.txt", MARKER)]);
    assert_ne!(hash(&cli, ".env"), hash(&cli, "copy.txt"));
    fs::remove_file(cli.root().join(".env")).unwrap();
    let error = cli.call(["--json", "forget", ".env", "--yes"]).exits(3).error();
    assert!(error["message"].as_str().unwrap().contains("copy.txt"), "{error}");
    fs::remove_file(cli.root().join("copy.txt")).unwrap();
    let done = cli.call(["--json", "forget", ".env", "--yes"]).ok().json();
    assert_eq!(done["objects"], 2);
    assert_nowhere(&cli, MARKER);
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn what_another_workspace_needs_stays() {
    let cli = leaked();
    fs::remove_file(cli.root().join("leak")).unwrap();
    let other = cli.home().with_file_name("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("same"), format!("key {MARKER}\n")).unwrap();
    cli.call(["-C", other.to_str().unwrap(), "init"]).ok();
    let error = cli.call(["--json", "forget", "leak", "--yes"]).exits(3).error();
    assert_eq!(error["code"], "needed_elsewhere");
    assert!(error["message"].as_str().unwrap().contains(other.to_str().unwrap()), "{error}");
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn an_agent_may_not_forget() {
    let cli = leaked();
    fs::remove_file(cli.root().join("leak")).unwrap();
    // From here on this very process is the agent's.
    Talk::new(&cli, "claude-code", "s9").prompt("p1");
    let error = cli.call(["--json", "forget", "leak", "--yes"]).exits(3).error();
    assert_eq!(error["code"], "not_allowed");
    assert!(!holding(&cli.home(), MARKER.as_bytes()).is_empty());
}

/// Content that stays readable in the files of the home: noise is kept as it is, also together.
fn incompressible(number: u64) -> Vec<u8> {
    let mut state = number + 1;
    let mut noise = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(&mut noise).take(300).collect();
    bytes.extend(format!("Mb{number}").into_bytes());
    bytes
}

#[test]
fn a_forget_that_dies_leaves_all_or_nothing() {
    for point in ["forget_before_commit", "forget_after_commit", "store_after_index_removal"] {
        let cli = leaked();
        for number in 0..80 {
            fs::create_dir_all(cli.root().join("many")).unwrap();
            fs::write(cli.root().join(format!("many/{number}")), incompressible(number)).unwrap();
        }
        cli.call(["settle"]).ok();
        fs::remove_dir_all(cli.root().join("many")).unwrap();
        fs::remove_file(cli.root().join("leak")).unwrap();
        let mut command = cli.command(["forget", ".", "--at", "start", "--yes"]);
        command.args(["--dry-run"]);
        assert_ne!(command.output().unwrap().status.code(), Some(0), "a directory has no content");
        let mut command = cli.command(["forget", "many", "--yes"]);
        let ended = command.env("CHRONICLE_FAILPOINT", point).status().unwrap();
        assert!(ended.signal().is_some(), "{point}: {ended}");
        cli.call(["verify", "--deep"]).ok();
        if point == "forget_before_commit" {
            assert!(!holding(&cli.home(), b"Mb79").is_empty());
            cli.call(["forget", "many", "--yes"]).ok();
        } else {
            cli.call(["gc"]).ok();
        }
        assert_eq!(holding(&cli.home(), b"Mb79"), Vec::<std::path::PathBuf>::new(), "{point}");
        cli.call(["verify", "--deep"]).ok();
        cli.call(["forget", "leak", "--yes"]).ok();
        assert_nowhere(&cli, MARKER);
        cli.call(["verify", "--deep"]).ok();
    }
}

#[test]
fn what_a_prune_made_one_is_forgotten_too() {
    let cli = with_days(60);
    cli.call(["prune"]).ok();
    fs::remove_file(cli.root().join("daily")).unwrap();
    cli.call(["settle"]).ok();
    let would = cli.call(["--json", "forget", "daily", "--dry-run"]).ok().json();
    assert!(would["objects"].as_u64().unwrap() > 20, "{would}");
    cli.call(["forget", "daily", "--yes"]).ok();
    cli.call(["verify", "--deep"]).ok();
    let oldest = cli.call(["--json", "prune", "--dry-run"]).ok().json();
    let target = format!("seq:{}", oldest["oldest_kept_seq"]);
    cli.call(["rewind", &target, "--exact", "--yes"]).exits(4);
    assert_eq!(cli.read("daily"), None);
    cli.call(["prune"]).ok();
    cli.call(["gc"]).ok();
    cli.call(["verify", "--deep"]).ok();
    assert_eq!(cli.call(["--json", "verify"]).ok().json()["objects"], 0);
}

#[test]
fn what_is_kept_out_may_stay_where_it_is() {
    let cli = leaked();
    cli.write("leak", &format!("{OTHER} and {MARKER}\n"));
    cli.write("out/leak", &format!("{MARKER}\n"));
    cli.call(["settle"]).ok();
    cli.write(".chronicleignore", "leak\nout/\n");
    assert_eq!(
        cli.call(["--json", "forget", "leak", "--yes"]).exits(3).error()["code"],
        "still_there"
    );
    accept(&cli);
    cli.call(["forget", "leak", "--yes"]).ok();
    assert_nowhere(&cli, OTHER);
    cli.call(["forget", "out", "--yes"]).ok();
    assert_nowhere(&cli, MARKER);
    assert!(cli.read("leak").unwrap().contains(MARKER));
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, MARKER);
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn one_change_of_a_record_that_is_kept_compressed_is_forgotten() {
    let names: Vec<String> = (0..400).map(|n| format!("d{}/file-{n}", n % 7)).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "text\n")).collect();
    let cli = Cli::adopted(&[&files[..], &[("leak", MARKER)]].concat());
    fs::remove_file(cli.root().join("leak")).unwrap();
    cli.call(["settle"]).ok();
    let longest = || -> (i64, i64) {
        let sql = "SELECT length(body), packed FROM record ORDER BY packed DESC LIMIT 1";
        rusqlite::Connection::open(crate::doctor::directory(&cli).join("catalog.db"))
            .and_then(|catalog| catalog.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))
            .unwrap()
    };
    let (kept, packed) = longest();
    assert!(packed > 2 * kept, "{kept} bytes are kept of {packed}");

    cli.call(["forget", "leak", "--yes"]).ok();
    assert!(longest().1 < packed && longest().1 > 2 * longest().0, "the rest stays compressed");
    assert_nowhere(&cli, MARKER);
    cli.call(["verify", "--deep"]).ok();
    fs::remove_dir_all(cli.root().join("d3")).unwrap();
    cli.call(["rewind", "start", "--exact", "--yes"]).exits(4);
    assert!(names.iter().all(|name| cli.read(name).as_deref() == Some("text\n")));
}
