//! The reading verbs and the small changing ones, on a workspace with some history.

use serde_json::Value;

use crate::support::Cli;

/// Two turns of one session, with a person's edit between them.
fn storied() -> Cli {
    let cli =
        Cli::adopted(&[("a.txt", "one\ntwo\nthree\n"), ("b.txt", "b\n"), ("sub/c.txt", "c\n")]);
    cli.turn("A", "change a", || cli.write("a.txt", "one\n2\nthree\n"));
    cli.write("mine.txt", "by hand\n");
    cli.turn("A", "remove b", || std::fs::remove_file(cli.root().join("b.txt")).expect("remove"));
    cli
}

fn paths(changes: &Value) -> Vec<&str> {
    let changes = changes.as_array().expect("changes");
    changes.iter().map(|change| change["path"].as_str().expect("a path")).collect()
}

#[test]
fn adopting_twice_is_no_failure() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let done = cli.call(["init"]).ok();
    assert!(done.stdout.starts_with("Already adopted "), "{}", done.stdout);
    assert!(!done.stdout.contains("0 files"), "{}", done.stdout);
    let done = cli.call(["init", "--json"]).ok();
    assert_eq!(done.json()["already"], true);
}

#[test]
fn adopting_counts_only_what_is_in_the_store() {
    let cli = Cli::new();
    cli.write(".chronicleignore", "*.dat\n");
    cli.write("a", "1\n");
    cli.write("old.dat", "kept out\n");
    let done = cli.call(["init"]).ok();
    assert!(done.stdout.contains(": 2 files (8 B) protected"), "{}", done.stdout);
    assert!(done.stdout.contains("old.dat"), "{}", done.stdout);
}

#[test]
fn content_that_nobody_has_is_named_with_its_reason() {
    let cli = Cli::adopted(&[(".chronicleignore", "*.dat\n"), ("old.dat", "1"), ("d/a", "1")]);
    cli.write("new", "1");
    for (path, why) in [
        ("old.dat", "a filter keeps it out"),
        ("new", "nothing stood there at that moment"),
        ("d", "it is a directory"),
    ] {
        let done = cli.call(["cat", path, "--at", "start", "--json"]).exits(1);
        assert_eq!(done.error()["code"], "no_content", "{path}");
        let message = format!("There is no content of {path}: {why}");
        assert_eq!(done.error()["message"], message, "{path}");
    }
}

#[test]
fn status_fits_on_a_screen_and_in_an_object() {
    let cli = storied();
    let done = cli.call(["status"]).ok();
    assert!(done.stdout.lines().count() <= 12, "{}", done.stdout);
    let status = cli.call(["status", "--json"]).ok().json();
    assert_eq!(status["schema"], 1);
    assert_eq!(status["last_turn"]["number"], 2);
    assert_eq!(status["unprotected_files"], 0);
}

#[test]
fn the_log_has_the_fields_of_the_contract() {
    let cli = storied();
    let log = cli.call(["log", "--json"]).ok().json_lines();
    assert!(log.len() >= 3, "{log:?}");
    for snapshot in &log {
        for field in [
            "schema",
            "id",
            "short_id",
            "seq",
            "timestamp",
            "action_type",
            "action_summary",
            "files_backed_up",
            "session",
            "turn",
            "turn_key",
            "agent",
            "tool",
            "call_id",
            "transaction_id",
            "previous_hash",
            "hash",
            "complete",
            "changes",
        ] {
            assert!(snapshot.get(field).is_some(), "{field} is missing in {snapshot}");
        }
    }
    let seqs: Vec<_> = log.iter().map(|snapshot| snapshot["seq"].as_u64()).collect();
    assert!(seqs.is_sorted_by(|left, right| left > right), "newest first: {seqs:?}");
}

#[test]
fn the_log_for_people_groups_by_turn() {
    let cli = storied();
    let text = cli.call(["log"]).ok().stdout;
    assert!(text.contains("Turn 2  \"remove b\"  session A"), "{text}");
    assert!(text.contains("Turn 1  \"change a\"  session A"), "{text}");
    assert!(text.contains("by person"), "{text}");
    let one = cli.call(["log", "--turn", "1"]).ok().stdout;
    assert!(!one.contains("Turn 2"), "{one}");
    let by_path = cli.call(["log", "--path", "b.txt", "--json", "--limit", "1"]).ok().json_lines();
    assert_eq!(by_path[0]["turn"], 2);
}

#[test]
fn a_snapshot_is_shown_by_any_unique_part_of_its_id() {
    let cli = storied();
    let log = cli.call(["log", "--json", "--turn", "2"]).ok().json_lines();
    let id = log[0]["short_id"].as_str().expect("an id");
    assert_eq!(id.len(), 12);
    let shown = cli.call(["show", &id[..8], "--json"]).ok().json();
    assert_eq!(shown["id"], log[0]["id"]);
    let text = cli.call(["show", id, "--patch"]).ok().stdout;
    assert!(text.contains("b.txt") && text.contains("-b"), "{text}");
}

#[test]
fn a_diff_can_be_counted_patched_or_named() {
    let cli = storied();
    let stat = cli.call(["diff", "start"]).ok();
    assert!(stat.stdout.contains(" M a.txt"), "{}", stat.stdout);
    assert!(
        stat.stdout.contains("3 files changed, 2 insertions(+), 2 deletions(-)"),
        "{}",
        stat.stdout
    );
    assert!(stat.stderr.starts_with("From "), "{}", stat.stderr);
    let patch = cli.call(["diff", "start", "a.txt", "--patch"]).ok().stdout;
    assert!(patch.contains("\n-two\n+2\n"), "{patch}");
    let names = cli.call(["diff", "--name-only", "start", "turn:1"]).ok().stdout;
    assert_eq!(names, "a.txt\n");
    let json = cli.call(["diff", "start", "turn:1", "--json"]).ok().json();
    for field in
        ["from_snapshot", "to_snapshot", "timestamp", "files_changed", "insertions", "deletions"]
    {
        assert!(json.get(field).is_some(), "{field} is missing in {json}");
    }
    assert_eq!(paths(&json["changes"]), ["a.txt"]);
}

#[test]
fn a_word_that_is_neither_a_moment_nor_a_path_is_a_mistake() {
    let cli = storied();
    let error = cli.call(["diff", "nonsense", "--json"]).exits(1).error();
    assert_eq!(error["code"], "unknown_target");
    let gone = cli.call(["diff", "start", "b.txt", "--name-only"]).ok();
    assert_eq!(gone.stdout, "b.txt\n");
}

#[test]
fn changed_answers_with_its_status() {
    let cli = storied();
    cli.call(["changed", "turn:2"]).exits(0);
    cli.write("a.txt", "other\n");
    cli.call(["changed", "turn:2"]).exits(1);
    cli.call(["changed"]).exits(1);
    cli.call(["changed", "turn:99"]).exits(5);
    assert_eq!(cli.call(["changed", "turn:2", "--json"]).exits(1).json()["changed"], true);
}

#[test]
fn grep_finds_what_is_gone_and_who_removed_it() {
    let cli = storied();
    let found = cli.call(["grep", "^two$", "--json"]).ok().json_lines();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["path"], &found[0]["present"]), (&"a.txt".into(), &false.into()));
    assert_eq!(found[0]["removed_by_turn"], 1);
    let text = cli.call(["grep", "^two$"]).ok().stdout;
    assert!(text.starts_with("a.txt: two   (") && text.contains("removed by turn 1"), "{text}");
    cli.call(["grep", "no such line"]).exits(1);
    cli.call(["grep", "two", "--path", "*.md"]).exits(1);
}

#[test]
fn one_file_can_be_followed_through_time() {
    let cli = storied();
    let versions = cli.call(["history", "a.txt", "--json"]).ok().json_lines();
    assert!(versions.len() >= 2, "{versions:?}");
    assert_eq!(cli.call(["cat", "a.txt", "--at", "start"]).ok().stdout, "one\ntwo\nthree\n");
    assert_eq!(cli.call(["cat", "a.txt"]).ok().stdout, "one\n2\nthree\n");
    let done = cli.call(["cat", "b.txt", "--at", "turn:1"]).ok();
    assert_eq!(done.stdout, "b\n");
    assert!(done.stderr.starts_with("At "), "{}", done.stderr);
}

#[test]
fn relative_paths_start_from_where_the_person_stands() {
    let cli = storied();
    let below = cli.root().join("sub");
    let output = cli.command(["cat", "c.txt"]).current_dir(&below).output().expect("start");
    assert_eq!(output.stdout, b"c\n");
    let output = cli
        .command(["-C", below.to_str().expect("text"), "cat", "../a.txt"])
        .current_dir("/")
        .output();
    assert_eq!(output.expect("start").stdout, b"one\n2\nthree\n");
}

#[test]
fn a_path_outside_every_root_is_refused_with_words() {
    let cli = storied();
    let error = cli.call(["history", "/etc/hosts", "--json"]).exits(1).error();
    assert_eq!(error["code"], "outside_roots");
    assert!(error["hint"].as_str().expect("a hint").contains("roots add"));
}

#[test]
fn a_pin_is_a_moment() {
    let cli = storied();
    for taken in ["2h", "start", "2026-01-01T00:00:00Z", "two\nlines"] {
        cli.call(["pin", "turn:1", taken]).exits(2);
    }
    let done = cli.call(["pin", "turn:1", "good"]).ok();
    assert!(done.stderr.contains("chronicle rewind good"), "{}", done.stderr);
    assert_eq!(cli.call(["cat", "b.txt", "--at", "good"]).ok().stdout, "b\n");
    let again = cli.call(["pin", "start", "good"]).ok();
    let text = format!("{}{}", again.stdout, again.stderr);
    assert!(text.contains("until now good was seq:"), "who moves a name hears of it: {text}");
}

#[test]
fn history_verifies() {
    let cli = storied();
    let done = cli.call(["verify", "--deep"]).ok();
    assert!(done.stdout.starts_with("History verifies: "), "{}", done.stdout);
    let report = cli.call(["verify", "--json"]).ok().json();
    assert!(report["records"].as_u64().expect("a number") > 0);
}

#[test]
fn further_roots_come_and_go() {
    let cli = storied();
    let outside = tempfile::tempdir().expect("a directory");
    let path = outside.path().to_str().expect("text");
    cli.call(["roots", "add", path]).ok();
    assert!(cli.call(["roots", "list"]).ok().stdout.contains(path));
    cli.call(["roots", "remove", path]).ok();
    assert_eq!(cli.call(["roots", "list"]).ok().stdout, "");
}

#[test]
fn settings_that_protect_less_are_not_accepted_without_a_terminal() {
    let cli = storied();
    cli.write(".chronicleignore", "*.txt\n");
    let pending = cli.call(["config", "show", "--json"]).ok().json();
    assert!(!pending["pending"].as_array().expect("a list").is_empty(), "{pending}");
    let error = cli.call(["config", "accept", "--json"]).exits(3).error();
    assert_eq!(error["code"], "not_confirmed");
}

#[test]
fn hostile_names_are_shown_harmless_and_given_exactly() {
    use std::os::unix::ffi::OsStrExt;
    let cli = Cli::adopted(&[("a", "1\n")]);
    let name = std::ffi::OsStr::from_bytes(b"\xff\x1b[2J\n");
    cli.turn("A", "hostile\x1b[2J", || {
        std::fs::write(cli.root().join(name), "x\n").expect("write")
    });
    for words in [&["log"][..], &["diff", "start"], &["status"], &["diff", "start", "--name-only"]]
    {
        let done = cli.call(words).ok();
        assert!(!done.stdout.contains('\x1b') && !done.stderr.contains('\x1b'), "{words:?}");
    }
    let json = cli.call(["diff", "start", "--json"]).ok().json();
    assert_eq!(json["changes"][0]["path_b64"], "/xtbMkoK");
    let output = cli.command([std::ffi::OsStr::new("cat"), name]).output().expect("start");
    assert_eq!(output.stdout, b"x\n");
}

#[test]
fn a_deleted_workspace_can_still_be_asked_from_inside() {
    let cli = storied();
    // A shell that stands in a directory that was deleted and made anew has only its word for it.
    let below = cli.root().join("sub");
    let script = format!(
        "cd {0} && export PWD && rm -rf {0} && exec {1} log --json",
        below.display(),
        crate::support::PROGRAM
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env("CHRONICLE_HOME", cli.home());
    let output = shell.output().expect("start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
