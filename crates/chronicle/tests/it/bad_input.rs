//! What goes wrong and is not ours: each with a code of its own, a hint, and nothing lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::support::{Cli, Done, done, listing};

/// A workspace with one turn that changed `a.txt` and made `new.txt`.
fn world() -> Cli {
    let cli = Cli::adopted(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    cli.turn("A", "edit", || {
        cli.write("a.txt", "changed\n");
        cli.write("new.txt", "made\n");
    });
    cli
}

#[track_caller]
fn check(done: &Done, status: i32, code: &str) {
    let error = done.error();
    assert_eq!((done.status, error["code"].as_str()), (status, Some(code)), "{}", done.stderr);
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{}", done.stderr);
}

#[track_caller]
fn is_untouched(cli: &Cli) {
    assert_eq!(cli.read("a.txt").as_deref(), Some("changed\n"));
    assert_eq!(cli.read("new.txt").as_deref(), Some("made\n"));
}

/// The files of the home whose names end so.
fn files_of_home(cli: &Cli, end: &str) -> Vec<PathBuf> {
    listing(&cli.home()).into_iter().filter(|path| path.to_string_lossy().ends_with(end)).collect()
}

#[test]
fn a_target_that_names_no_moment_is_named() {
    let cli = world();
    for target in ["nonsense", "turn:99", "seq:100000", "deadbeef", "1s:2", "2999h"] {
        check(&cli.call(["--json", "rewind", target]), 1, "unknown_target");
    }
    is_untouched(&cli);
}

#[test]
fn a_part_of_an_id_that_fits_several_is_ambiguous() {
    let cli = world();
    cli.turn("A", "more", || cli.write("b.txt", "more\n"));
    // All ids of one moment begin with the same digits of the time.
    let id = cli.call(["--json", "log"]).ok().json_lines()[0]["id"].clone();
    let part = &id.as_str().unwrap()[..6];
    check(&cli.call(["--json", "show", part]), 1, "ambiguous");
}

#[test]
fn paths_that_leave_the_workspace_are_refused() {
    let cli = world();
    let outside = cli.home().join("outside");
    fs::create_dir_all(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, cli.root().join("link")).unwrap();
    let snapshot =
        |path: &str| cli.call(["--json", "snapshot", "--action", "write_file", "--path", path]);
    check(&snapshot("../elsewhere"), 1, "outside_roots");
    check(&snapshot("/etc/hosts"), 1, "outside_roots");
    check(&snapshot("link/file"), 1, "through_symlink");
}

#[test]
fn a_replaced_root_is_neither_recorded_nor_emptied() {
    let cli = world();
    let away = cli.root().with_extension("away");
    fs::rename(cli.root(), &away).unwrap();
    fs::create_dir(cli.root()).unwrap();
    fs::write(cli.root().join("mine"), "mine").unwrap();
    check(&cli.call(["--json", "settle"]), 1, "root_replaced");
    check(&cli.call(["--json", "rewind", "start"]), 1, "root_replaced");
    check(&cli.call(["--json", "rewind", "start", "--recreate-root"]), 1, "cannot_adopt");
    assert_eq!(cli.read("mine").as_deref(), Some("mine"));
    fs::remove_dir_all(cli.root()).unwrap();
    fs::rename(&away, cli.root()).unwrap();
    cli.call(["rewind", "start"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("one\n"));
}

#[test]
fn a_lost_root_is_written_anew() {
    let cli = world();
    fs::remove_dir_all(cli.root()).unwrap();
    let from_outside = |words: &[&str]| {
        let root = cli.root();
        let words = [&["-C", root.to_str().unwrap()], words].concat();
        done(cli.command(words).current_dir("/").output().unwrap())
    };
    check(&from_outside(&["--json", "status"]), 1, "root_replaced");
    from_outside(&["rewind", "turn:1", "--recreate-root"]).ok();
    is_untouched(&cli);
    assert_eq!(cli.read("b.txt").as_deref(), Some("two\n"));
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn a_corrupt_object_stops_a_rewind_before_it_starts() {
    let cli = Cli::adopted(&[("keep.txt", "keep\n")]);
    // Many files make a pack, which can be damaged without the catalog.
    for number in 0..100 {
        cli.write(&format!("f{number}"), &format!("content of {number}\n").repeat(20));
    }
    cli.call(["settle"]).ok();
    cli.turn("A", "overwrite", || (0..100).for_each(|n| cli.write(&format!("f{n}"), "gone\n")));
    let packs = files_of_home(&cli, ".pack");
    assert!(!packs.is_empty());
    for pack in packs {
        let mut bytes = fs::read(&pack).unwrap();
        (40..bytes.len()).step_by(16).for_each(|at| bytes[at] ^= 0xff);
        fs::set_permissions(&pack, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&pack, bytes).unwrap();
    }
    let done = cli.call(["--json", "rewind", "start"]);
    check(&done, 1, "corrupt_object");
    assert_eq!(cli.read("f7").as_deref(), Some("gone\n"), "nothing changed");
    check(&cli.call(["--json", "verify", "--deep"]), 12, "corrupt_object");
}

#[test]
fn an_edited_record_is_found() {
    let cli = world();
    if edit_catalog(&cli, "an_edited_record", "UPDATE record SET leaf = zeroblob(9) WHERE seq = 3;")
    {
        check(&cli.call(["--json", "verify"]), 12, "tampered");
    }
}

/// Changes the catalog behind Chronicle's back; tells whether there is a program for it.
fn edit_catalog(cli: &Cli, test: &str, sql: &str) -> bool {
    let catalog = files_of_home(cli, "catalog.db").remove(0);
    match std::process::Command::new("sqlite3").arg(&catalog).arg(sql).status() {
        Ok(status) => assert!(status.success(), "sqlite3 could not edit the catalog"),
        Err(_) => {
            chronicle_testing::shared::skip(test, "sqlite3 is missing");
            return false;
        }
    }
    true
}

#[test]
fn a_truncated_catalog_is_an_error_and_not_an_empty_history() {
    let cli = world();
    let catalog = files_of_home(&cli, "catalog.db").remove(0);
    fs::remove_file(catalog.with_extension("db-wal")).ok();
    fs::remove_file(catalog.with_extension("db-shm")).ok();
    fs::write(&catalog, b"SQLite format 3\0 and then nothing").unwrap();
    check(&cli.call(["--json", "settle"]), 1, "catalog");
    is_untouched(&cli);
}

#[test]
fn a_newer_store_is_refused() {
    let cli = world();
    fs::write(cli.home().join("store/format"), "chronicle store 99\n").unwrap();
    check(&cli.call(["--json", "settle"]), 1, "newer_format");
    is_untouched(&cli);
}

#[test]
fn a_catalog_of_a_newer_program_is_refused() {
    let cli = world();
    if edit_catalog(&cli, "a_newer_catalog", "PRAGMA user_version = 99;") {
        check(&cli.call(["--json", "settle"]), 1, "newer_format");
        is_untouched(&cli);
    }
}

#[test]
fn a_busy_workspace_says_what_keeps_it() {
    let cli = world();
    let mut running = cli.command(["run", "--", "sleep", "5"]).spawn().unwrap();
    let begun = std::time::Instant::now();
    let busy = loop {
        let done = cli.call(["--json", "rewind", "start"]);
        if done.status == 11 || begun.elapsed().as_secs() > 4 {
            break done;
        }
        let _ = cli.call(["redo"]);
    };
    check(&busy, 11, "busy");
    running.kill().unwrap();
    running.wait().unwrap();
    // The command that died is closed by the next look.
    cli.call(["rewind", "start"]).ok();
}

#[test]
fn the_store_is_readable_by_its_owner_alone() {
    let cli = world();
    for path in listing(&cli.home()) {
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}
