//! Words, exit statuses and the shape of errors, as far as they need no history.

use std::path::Path;

use crate::support::Cli;

/// Every verb that needs a workspace, in its shortest form.
const NEED_A_WORKSPACE: [&[&str]; 25] = [
    &["status"],
    &["snapshot", "--action", "write_file", "--path", "a"],
    &["settle"],
    &["turn", "start"],
    &["turn", "end"],
    &["begin"],
    &["commit"],
    &["rollback", "abcdef"],
    &["log"],
    &["show", "abcdef"],
    &["diff"],
    &["changed"],
    &["rewind", "start"],
    &["undo"],
    &["redo"],
    &["history", "a"],
    &["cat", "a"],
    &["grep", "a"],
    &["pin", "start", "name"],
    &["forget", "a"],
    &["verify"],
    &["config", "show"],
    &["config", "accept"],
    &["roots", "list"],
    &["roots", "add", "/etc/hosts"],
];

#[test]
fn without_a_workspace_every_verb_says_so_with_status_10() {
    let cli = Cli::new();
    for words in NEED_A_WORKSPACE {
        let done = cli.call(words).exits(10);
        assert!(done.stderr.starts_with("Error: No workspace at "), "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains("\nHint: "), "{words:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{words:?}");
    }
}

#[test]
fn with_json_the_error_is_one_object_on_stderr() {
    let cli = Cli::new();
    for words in NEED_A_WORKSPACE {
        let words: Vec<_> = words.iter().copied().chain(["--json"]).collect();
        let done = cli.call(&words).exits(10);
        assert_eq!(done.stderr.lines().count(), 1, "{words:?}: {}", done.stderr);
        let error = done.error();
        assert_eq!(error["schema"], 1);
        assert_eq!(error["code"], "no_workspace");
        assert_eq!(error["exit"], 10);
        assert!(error["message"].is_string() && error["causes"].is_array(), "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("chronicle init")));
    }
}

#[test]
fn words_that_make_no_sense_are_status_2() {
    let cli = Cli::new();
    let lines: [&[&str]; 19] = [
        &[],
        &["frobnicate"],
        &["rewind"],
        &["rollback"],
        &["snapshot", "--path", "a"],
        &["snapshot", "--action", "a", "--action", "b"],
        &["turn"],
        &["turn", "middle"],
        &["run"],
        &["show"],
        &["log", "--limit", "many"],
        &["diff", "--stat", "--patch"],
        &["rewind", "start", "--dry-run", "--plan", "x"],
        &["rewind", "start", "--on-conflict", "win"],
        &["rewind", "start", "--session", "s", "--all-sessions"],
        &["completions", "klingon"],
        &["install"],
        &["install", "klingon"],
        &["install", "codex", "--user", "--shared"],
    ];
    for words in lines {
        let done = cli.call(words).exits(2);
        assert_eq!(done.stdout, "", "{words:?}");
        assert!(!done.stderr.is_empty(), "{words:?}");
    }
    let error = cli.call(["frobnicate", "--json"]).exits(2).error();
    assert_eq!((&error["code"], &error["exit"]), (&"usage".into(), &2.into()));
}

#[test]
fn a_workspace_can_be_named_before_or_after_the_verb() {
    let cli = Cli::new();
    for words in [["-C", "/", "status"], ["status", "-C", "/"]] {
        let done = cli.call(words).exits(10);
        assert!(done.stderr.starts_with("Error: No workspace at /\n"), "{}", done.stderr);
    }
}

#[test]
fn a_directory_that_is_not_there_is_only_no_workspace() {
    let cli = Cli::new();
    let done = cli.call(["-C", "gone/deeper", "log"]).exits(10);
    assert!(done.stderr.contains("gone/deeper"), "{}", done.stderr);
}

#[test]
fn where_one_is_an_answer_other_classes_keep_their_status() {
    let cli = Cli::new();
    for words in [["changed", "turn:1"], ["grep", "x"]] {
        cli.call(words).exits(10);
    }
}

#[test]
fn help_and_version_are_answers() {
    let cli = Cli::new();
    for words in
        [&["--help"][..], &["help"], &["--version"], &["rewind", "--help"], &["help", "turn"]]
    {
        let done = cli.call(words).ok();
        assert!(!done.stdout.is_empty() && done.stderr.is_empty(), "{words:?}: {done:?}");
    }
}

#[test]
fn a_full_disk_behind_stdout_is_an_error_and_a_closed_pipe_is_not() {
    let cli = Cli::new();
    let full = std::fs::File::options().write(true).open("/dev/full").expect("open /dev/full");
    let status = cli.command(["completions", "bash"]).stdout(full).status().expect("start");
    assert_eq!(status.code(), Some(1));

    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = cli.command(["completions", "bash"]).stdout(writer).status().expect("start");
    assert_eq!(status.code(), Some(0));
}

/// A file that is opened while a standard stream is closed gets its number, and then what is said to people.
#[test]
fn closed_streams_do_not_end_up_in_files() {
    let cli = Cli::adopted(&[("a.txt", "before\n")]);
    let program = cli.command(["status"]).get_program().to_owned();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        cli.write("a.txt", &format!("edited while {closed}\n"));
        let line = format!("exec \"$0\" snapshot --action write_file --path a.txt {closed}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line]).arg(&program).current_dir(cli.root());
        shell.env("CHRONICLE_HOME", cli.home());
        assert_eq!(shell.output().expect("start").status.code(), Some(0), "{closed}");
        cli.call(["verify", "--deep"]).ok();
        assert_eq!(cli.call(["cat", "a.txt"]).ok().stdout, format!("edited while {closed}\n"));
    }
}

#[test]
fn every_shell_gets_its_completions() {
    let cli = Cli::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = cli.call(["completions", shell]).ok();
        assert!(done.stdout.contains("rewind") && done.stdout.contains("on-conflict"), "{shell}");
        assert!(!done.stdout.contains("__session"), "{shell}");
    }
}

#[test]
fn every_verb_gets_its_manual_page() {
    let cli = Cli::new();
    cli.call(["man", "pages/here"]).ok();
    let pages = cli.root().join("pages/here");
    for page in ["chronicle.1", "chronicle-rewind.1", "chronicle-turn-start.1", "chronicle-run.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap_or_else(|_| panic!("{page}"));
        assert!(text.starts_with(".ie") || text.contains(".TH"), "{page}: {text}");
    }
    assert!(!pages.join("chronicle-help.1").exists());
}

#[test]
fn nothing_of_the_command_is_written_outside_its_home() {
    let cli = Cli::new();
    cli.call(["status"]).exits(10);
    assert!(!cli.home().exists() || crate::support::listing(&cli.home()).is_empty());
    assert!(crate::support::listing(Path::new(&cli.root())).is_empty());
}
