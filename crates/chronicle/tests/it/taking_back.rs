//! rewind, rollback, undo and redo as commands: plans, statuses, and how to go back.

use crate::support::Cli;
use crate::terminal::Terminal;

fn lines(changes: &[(usize, &str)]) -> String {
    (0..20)
        .map(|n| match changes.iter().find(|(at, _)| *at == n) {
            Some((_, text)) => format!("{text}\n"),
            None => format!("line {n}\n"),
        })
        .collect()
}

/// One turn of an agent, then a person's line in the same file.
fn contested() -> Cli {
    let cli = Cli::adopted(&[("a.txt", &lines(&[])), ("b.txt", "b\n")]);
    cli.turn("A", "edit", || {
        cli.write("a.txt", &lines(&[(2, "agent")]));
        cli.write("new.txt", "agent\n");
        std::fs::remove_file(cli.root().join("b.txt")).expect("remove");
    });
    cli.write("a.txt", &lines(&[(2, "agent"), (15, "person")]));
    cli
}

#[test]
fn a_rewind_takes_back_the_agent_and_keeps_the_person() {
    let cli = contested();
    let done = cli.call(["rewind", "start"]).ok();
    assert!(done.stderr.starts_with("Target: "), "the moment first: {}", done.stderr);
    assert!(done.stderr.contains("Take back with: chronicle redo"), "{}", done.stderr);
    for line in ["merge    a.txt", "write    b.txt", "delete   new.txt"] {
        assert!(done.stdout.contains(line), "{line} in {}", done.stdout);
    }
    assert_eq!(cli.read("a.txt"), Some(lines(&[(15, "person")])));
    assert_eq!((cli.read("b.txt").as_deref(), cli.read("new.txt")), (Some("b\n"), None));
    let done = cli.call(["redo"]).ok();
    assert!(done.stderr.contains("Take back with: chronicle undo "), "{}", done.stderr);
    assert_eq!(cli.read("a.txt"), Some(lines(&[(2, "agent"), (15, "person")])));
    assert_eq!(cli.read("b.txt"), None);
}

#[test]
fn the_plan_is_the_preview_and_is_applied_as_it_is() {
    let cli = contested();
    let plan = cli.call(["rewind", "start", "--dry-run", "--json"]).ok().json();
    for field in [
        "plan_id",
        "resolved_target",
        "write",
        "delete",
        "merge",
        "keep",
        "conflict",
        "unknown",
        "git",
        "irreversible",
    ] {
        assert!(plan.get(field).is_some(), "{field} is missing in {plan}");
    }
    assert_eq!(cli.read("new.txt").as_deref(), Some("agent\n"));
    let id = plan["plan_id"].as_str().expect("an id");
    let report = cli.call(["rewind", "--plan", id, "--json"]).ok().json();
    assert_eq!(report["plan"]["delete"][0]["path"], "new.txt");
    assert_eq!(cli.read("new.txt"), None);
}

#[test]
fn a_plan_of_another_present_is_not_applied() {
    let cli = contested();
    let plan = cli.call(["rewind", "start", "--dry-run", "--json"]).ok().json();
    cli.write("new.txt", "changed since\n");
    let id = plan["plan_id"].as_str().expect("an id");
    let error = cli.call(["rewind", "--plan", id, "--json"]).exits(3).error();
    assert_eq!(error["code"], "plan_outdated");
    assert_eq!(cli.read("new.txt").as_deref(), Some("changed since\n"));
}

#[test]
fn a_conflict_stops_with_both_sides_named() {
    let cli = contested();
    cli.write("a.txt", &lines(&[(2, "person too")]));
    let done = cli.call(["rewind", "start"]).exits(3);
    assert!(done.stderr.contains("conflict a.txt (content: there is file"), "{}", done.stderr);
    assert!(done.stderr.contains("--on-conflict keep-mine"), "{}", done.stderr);
    assert_eq!(cli.read("b.txt"), None, "nothing changed");
    cli.call(["rewind", "start", "--on-conflict", "keep-mine"]).exits(4);
    assert_eq!(cli.read("a.txt"), Some(lines(&[(2, "person too")])));
    assert_eq!(cli.read("b.txt").as_deref(), Some("b\n"));
}

#[test]
fn paths_limit_what_goes_back() {
    let cli = contested();
    cli.call(["rewind", "start", "b.txt"]).ok();
    assert_eq!(cli.read("b.txt").as_deref(), Some("b\n"));
    assert_eq!(cli.read("new.txt").as_deref(), Some("agent\n"));
}

#[test]
fn hunks_limit_what_goes_back() {
    let cli = Cli::adopted(&[("a.txt", &lines(&[]))]);
    cli.turn("A", "edit", || cli.write("a.txt", &lines(&[(2, "first"), (15, "second")])));
    cli.call(["rewind", "start", "--hunk", "a.txt:2"]).ok();
    assert_eq!(cli.read("a.txt"), Some(lines(&[(2, "first")])));
    cli.call(["rewind", "start", "--hunk", "a.txt"]).exits(2);
}

#[test]
fn undo_takes_words_for_what_and_where() {
    let cli = contested();
    cli.call(["undo", "new.txt"]).ok();
    assert_eq!((cli.read("new.txt"), cli.read("b.txt")), (None, None));
    cli.call(["undo", "turn:1", "b.txt"]).ok();
    assert_eq!(cli.read("b.txt").as_deref(), Some("b\n"));
    let error = cli.call(["undo", "turn:9", "--json"]).exits(1).error();
    assert_eq!(error["code"], "unknown_target");
}

#[test]
fn a_snapshot_and_a_transaction_roll_back() {
    let cli = Cli::adopted(&[("a", "1\n"), ("b", "1\n")]);
    let done =
        cli.call(["snapshot", "--action", "write_file", "--path", "a", "--session", "A"]).ok();
    let id = done.stdout.trim().to_owned();
    assert_eq!(id.len(), 12);
    assert!(done.stderr.contains(&format!("chronicle rollback {id}")), "{}", done.stderr);
    cli.write("a", "2\n");
    cli.call(["settle"]).ok();
    cli.call(["rollback", &id]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("1\n"));

    let transaction = cli.call(["begin"]).ok().stdout.trim().to_owned();
    for path in ["a", "b"] {
        let words =
            ["snapshot", "--action", "write_file", "--transaction", &transaction, "--path", path];
        cli.call(words).ok();
        cli.write(path, "3\n");
    }
    cli.call(["settle"]).ok();
    cli.call(["begin"]).exits(3);
    cli.call(["commit", &transaction]).ok();
    cli.call(["rollback", &transaction]).ok();
    assert_eq!((cli.read("a").as_deref(), cli.read("b").as_deref()), (Some("1\n"), Some("1\n")));
}

#[test]
fn nothing_to_redo_is_stopped_and_an_unknown_moment_fails() {
    let cli = contested();
    let error = cli.call(["redo", "--json"]).exits(3).error();
    assert_eq!(error["code"], "nothing_to_do");
    let error = cli.call(["rewind", "never", "--json"]).exits(1).error();
    assert_eq!(error["code"], "unknown_target");
    assert!(error["hint"].as_str().expect("a hint").contains("chronicle log"));
}

#[test]
fn a_moment_already_reached_is_no_failure() {
    let cli = contested();
    cli.call(["rewind", "start"]).ok();
    let done = cli.call(["rewind", "start"]).ok();
    assert!(done.stderr.contains("Already there: nothing changed"), "{}", done.stderr);
}

#[test]
fn on_a_terminal_a_person_is_asked_before_much_goes() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let names: Vec<_> = (0..21).map(|n| format!("new-{n}")).collect();
    cli.turn("A", "make many", || names.iter().for_each(|name| cli.write(name, "x\n")));
    let asked = |answer: &str| {
        let terminal = Terminal::new();
        terminal.type_in(answer);
        terminal.run(cli.command(["rewind", "start"]))
    };
    let (screen, status) = asked("n\r");
    assert_eq!(status, 3, "{screen}");
    assert!(screen.contains("This deletes 21 files. Go on? [y/N]"), "{screen}");
    assert!(names.iter().all(|name| cli.read(name).is_some()));
    let (screen, status) = asked("y\r");
    assert_eq!(status, 0, "{screen}");
    assert!(names.iter().all(|name| cli.read(name).is_none()));
}

#[test]
fn without_a_terminal_or_with_yes_nobody_is_asked() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let names: Vec<_> = (0..21).map(|n| format!("new-{n}")).collect();
    cli.turn("A", "make many", || names.iter().for_each(|name| cli.write(name, "x\n")));
    cli.call(["rewind", "start"]).ok();
    cli.call(["redo"]).ok();
    let (screen, status) = Terminal::new().run(cli.command(["rewind", "start", "--yes"]));
    assert_eq!(status, 0, "{screen}");
    assert!(!screen.contains("Go on?"), "{screen}");
}

/// A file that came and went between two looks leaves another time at its directory, and nothing of
/// anybody's work.
#[test]
fn a_session_at_work_stops_a_rewind_only_if_it_has_work_to_lose() {
    let cli = Cli::adopted(&[("a.txt", "a\n"), ("d/keep", "keep\n")]);
    cli.turn("A", "edit", || cli.write("a.txt", "agent\n"));
    cli.call(["turn", "start", "--session", "B", "--key", "open"]).ok();
    cli.write("d/gone", "");
    std::fs::remove_file(cli.root().join("d/gone")).expect("remove");
    cli.call(["rewind", "start"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("a\n"));
    cli.call(["redo"]).ok();
    cli.write("d/work", "of B\n");
    cli.call(["rewind", "start"]).exits(3);
    assert_eq!(cli.read("a.txt").as_deref(), Some("agent\n"));
}

/// The file `a` became a directory, a snapshot named what was in it, and it was gone before anybody
/// looked at all of it. What was named stayed known for ever, and every rewind found it missing.
#[test]
fn what_was_named_below_a_former_file_can_go_unseen() {
    let cli = Cli::adopted(&[("a", "file\n")]);
    cli.turn("A", "swap", || {
        std::fs::remove_file(cli.root().join("a")).expect("remove");
        cli.write("a/b", "inside\n");
        cli.call(["snapshot", "--action", "write_file", "--path", "a/b"]).ok();
        std::fs::remove_dir_all(cli.root().join("a")).expect("remove");
    });
    cli.call(["rewind", "start"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("file\n"));
    cli.call(["redo"]).ok();
    assert!(!cli.root().join("a").exists());
}

/// Where both sides changed the same line, what may be of two sessions gives way when it is told
/// to, and is then not said to have stayed.
#[test]
fn what_gave_way_is_not_listed_as_shared() {
    let cli = Cli::adopted(&[("a.txt", "one\n")]);
    cli.call(["turn", "start", "--session", "A", "--key", "a"]).ok();
    cli.write("a.txt", "by A\n");
    cli.call(["turn", "start", "--session", "B", "--key", "b"]).ok();
    cli.write("a.txt", "by A or B\n");
    cli.call(["turn", "end", "--session", "A", "--key", "a"]).ok();
    cli.call(["turn", "end", "--session", "B", "--key", "b"]).ok();
    cli.call(["rewind", "before:turn:1", "--session", "A"]).exits(3);
    let kept = ["rewind", "before:turn:1", "--session", "A", "--on-conflict", "keep-mine"];
    cli.call(kept).exits(4);
    assert_eq!(cli.read("a.txt").as_deref(), Some("by A or B\n"));
    let replaced = ["rewind", "before:turn:1", "--session", "A", "--on-conflict", "replace"];
    cli.call(replaced).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("one\n"));
}

/// What two sessions could have made while a turn ran stays when that turn is undone, is named, and goes when asked.
#[test]
fn an_undo_of_a_turn_names_what_another_session_could_have_made() {
    let cli = Cli::adopted(&[("a.txt", "one\n"), ("both.txt", "one\n")]);
    cli.call(["turn", "start", "--session", "A", "--key", "a"]).ok();
    cli.write("a.txt", "by A\n");
    cli.call(["turn", "start", "--session", "B", "--key", "b"]).ok();
    cli.write("both.txt", "by A or B\n");
    cli.call(["turn", "end", "--session", "B", "--key", "b"]).ok();
    cli.call(["turn", "end", "--session", "A", "--key", "a"]).ok();
    let done = cli.call(["undo", "turn:1"]).exits(4);
    assert!(done.stderr.contains("--shared take"), "{}", done.stderr);
    assert!(done.stdout.contains("both.txt"), "{}", done.stdout);
    assert_eq!(cli.read("a.txt").as_deref(), Some("one\n"));
    assert_eq!(cli.read("both.txt").as_deref(), Some("by A or B\n"));
    cli.call(["redo"]).ok();
    cli.call(["undo", "turn:1", "--shared", "take"]).ok();
    assert_eq!(cli.read("both.txt").as_deref(), Some("one\n"));
    cli.call(["redo"]).ok();
    assert_eq!(cli.read("both.txt").as_deref(), Some("by A or B\n"));
}

/// An agent renamed a file, a rewind put it back, a person edited it there, and a redo stopped with a
/// conflict: the rewind's own record did not say that it had moved the file.
#[test]
fn a_redo_follows_what_a_rewind_moved_back() {
    let cli = Cli::adopted(&[("a.txt", &lines(&[])), ("d/x", &lines(&[])), ("d/y", "y\n")]);
    cli.turn("A", "rename", || {
        let root = cli.root();
        std::fs::rename(root.join("a.txt"), root.join("b.txt")).expect("rename");
        cli.write("b.txt", &lines(&[(2, "agent")]));
        std::fs::rename(root.join("d"), root.join("e")).expect("rename");
    });
    cli.call(["undo"]).ok();
    assert_eq!((cli.read("a.txt"), cli.read("b.txt")), (Some(lines(&[])), None));
    let history = cli.call(["history", "a.txt"]).ok().stdout;
    assert!(history.contains("b.txt"), "{history}");
    cli.write("a.txt", &lines(&[(15, "person")]));
    cli.write("d/x", &lines(&[(15, "person")]));
    cli.write("d/new", "person\n");
    let done = cli.call(["redo"]).ok();
    assert!(done.stdout.contains("merge    b.txt"), "{}", done.stdout);
    let read = |name: &str| cli.read(name);
    assert_eq!(
        (read("a.txt"), read("b.txt")),
        (None, Some(lines(&[(2, "agent"), (15, "person")])))
    );
    assert_eq!((read("d/x"), read("e/x")), (None, Some(lines(&[(15, "person")]))));
    assert_eq!((read("d/new"), read("e/new").as_deref()), (None, Some("person\n")));
    assert_eq!(read("e/y").as_deref(), Some("y\n"));
    // And back once more: what the redo moved is followed too.
    cli.write("b.txt", &lines(&[(2, "agent"), (10, "more"), (15, "person")]));
    cli.call(["undo", "turn:1"]).ok();
    assert_eq!(
        (read("a.txt"), read("b.txt")),
        (Some(lines(&[(10, "more"), (15, "person")])), None)
    );
    assert_eq!(
        (read("d/x"), read("d/new").as_deref()),
        (Some(lines(&[(15, "person")])), Some("person\n"))
    );
    assert!(!cli.root().join("e").exists());
    cli.call(["verify"]).ok();
}

#[test]
fn a_transaction_is_its_sessions_that_named_it() {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    let transaction = cli.call(["begin"]).ok().stdout.trim().to_owned();
    let words = ["snapshot", "--action", "write_file", "--path", "a.txt", "--session", "S"];
    cli.call(words.iter().copied().chain(["--transaction", &transaction])).ok();
    cli.write("a.txt", "2\n");
    cli.call(["settle"]).ok();
    cli.turn("OTHER", "t", || cli.write("other.txt", "o\n"));
    cli.call(["rollback", &transaction]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("1\n"));
    assert_eq!(cli.read("other.txt").as_deref(), Some("o\n"), "another session's work stays");
    cli.call(["commit", &transaction]).exits(3);
}

#[test]
fn what_came_and_went_between_two_moments_is_no_change() {
    let cli = Cli::adopted(&[("k.txt", "k\n")]);
    cli.turn("A", "t", || {
        cli.write("a.txt", "1\n");
        cli.call(["settle"]).ok();
        std::fs::rename(cli.root().join("a.txt"), cli.root().join("b.txt")).expect("moved");
    });
    let made = cli.call(["diff", "start", "--json"]).ok().json();
    assert_eq!(made["changes"][0]["change_type"], "created", "{made}");
    cli.call(["rewind", "start"]).ok();
    cli.call(["changed", "start"]).exits(0);
    assert_eq!(cli.call(["diff", "start", "--json"]).ok().json()["files_changed"], 0);
}

#[test]
fn a_diff_across_a_move_has_the_edits_before_it() {
    let cli = Cli::adopted(&[("a.txt", "one\ntwo\n")]);
    cli.turn("A", "edit", || cli.write("a.txt", "one\nTWO\n"));
    cli.turn("A", "move", || {
        std::fs::rename(cli.root().join("a.txt"), cli.root().join("c.txt")).expect("moved");
    });
    let diff = cli.call(["diff", "start", "--patch", "--json"]).ok().json();
    let change = &diff["changes"][0];
    assert_eq!((&change["change_type"], &change["from"]), (&"renamed".into(), &"a.txt".into()));
    assert_eq!((&change["inserted"], &change["deleted"]), (&1.into(), &1.into()), "{diff}");
    assert!(change["patch"].as_str().is_some_and(|patch| patch.contains("-two\n+TWO\n")), "{diff}");
}

#[test]
fn an_undo_that_was_undone_and_redone_can_be_brought_back() {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    cli.turn("A", "t", || cli.write("a.txt", "2\n"));
    let id = |done: serde_json::Value| done["id"].as_str().expect("an id").to_owned();
    let undone = id(cli.call(["undo", "--json"]).ok().json());
    cli.call(["undo", &undone]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("2\n"));
    cli.call(["redo"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("1\n"));
    cli.call(["redo"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("2\n"));
    cli.call(["redo"]).exits(3);
}

/// A workspace in which an agent has moved something whose content nobody has.
fn moved(from: &str, to: &str, make: &dyn Fn(&std::path::Path)) -> Cli {
    let cli = Cli::new();
    cli.write(".chronicleignore", "*.dat\nkept-out/\n");
    make(&cli.root());
    cli.call(["init"]).ok();
    cli.turn("A", "first", || cli.write("y", "1"));
    cli.turn("A", "move", || {
        std::fs::rename(cli.root().join(from), cli.root().join(to)).expect("move");
    });
    cli
}

/// Goes there and back again: what nobody knows is always there, and where it can be moved, at
/// exactly one of the two places.
#[track_caller]
fn check_there_and_back((from, to): (&str, &str), make: &dyn Fn(&std::path::Path), moves: bool) {
    let ways: [&[&[&str]]; 3] = [
        &[&["undo"], &["redo"], &["undo"], &["redo"]],
        &[
            &["rewind", "turn:1", "--exact"],
            &["rewind", "turn:2", "--exact"],
            &["rewind", "turn:1", "--exact"],
            &["redo"],
        ],
        &[&["rewind", "before:turn:2"], &["redo"], &["undo", "turn:2"], &["redo"]],
    ];
    let inner = |top: &str| format!("{top}/inner.dat");
    for way in &ways[..if moves { 3 } else { 2 }] {
        let cli = moved(from, to, make);
        let held = |top: &str| cli.read(top).or_else(|| cli.read(&inner(top)));
        for (step, words) in way.iter().enumerate() {
            let done = cli.call(*words);
            assert!([0, 4].contains(&done.status), "{words:?}: {done:?}");
            let (old, new) = (held(from), held(to));
            let mut both = [&old, &new].into_iter().flatten().collect::<Vec<_>>();
            if !moves {
                both.dedup();
            }
            assert_eq!(both, ["precious"], "{from} {to} {words:?} of {way:?}: {done:?}");
            let back = step % 2 == 0;
            assert!(!moves || old.is_some() == back, "{from} {to} {words:?} of {way:?}: {done:?}");
        }
    }
}

#[test]
fn what_a_filter_keeps_out_goes_there_and_back_with_a_move() {
    let write = |root: &std::path::Path, name: &str| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("its directory");
        std::fs::write(path, "precious").expect("a file");
    };
    check_there_and_back(("old.dat", "new.dat"), &|root| write(root, "old.dat"), true);
    let beside = |root: &std::path::Path| {
        write(root, "d/inner.dat");
        write(root, "d/seen");
    };
    check_there_and_back(("d", "e"), &beside, true);
    let directory = |root: &std::path::Path| write(root, "kept-out/inner.dat");
    check_there_and_back(("kept-out", "shown"), &directory, false);
    check_there_and_back(("old.dat", "shown"), &|root| write(root, "old.dat"), false);
}

#[test]
fn a_hard_link_stays_one_when_the_directory_of_one_name_moves_after_a_rewind() {
    use std::os::unix::fs::MetadataExt;
    let cli = Cli::adopted(&[("k", "k")]);
    cli.turn("A", "first", || cli.write("m", "1"));
    cli.turn("A", "link", || {
        cli.write("d/p", "data");
        std::fs::hard_link(cli.root().join("d/p"), cli.root().join("q")).expect("a link");
    });
    cli.turn("A", "last", || cli.write("z", "1"));
    cli.call(["rewind", "turn:1", "--exact"]).ok();
    cli.call(["redo"]).ok();
    // Until nothing of it is fresh any more, so that only what moves is looked at.
    std::thread::sleep(std::time::Duration::from_millis(50));
    cli.call(["settle"]).ok();
    std::fs::rename(cli.root().join("d"), cli.root().join("e")).expect("move");
    cli.call(["rewind", "start", "--exact"]).ok();
    cli.call(["redo"]).ok();
    let inode = |name: &str| std::fs::metadata(cli.root().join(name)).expect("it is there").ino();
    assert_eq!(inode("e/p"), inode("q"));
}
