//! `CHRONICLE=off`: changing commands do nothing, write nothing anywhere, and are no failure.

use crate::support::{Cli, done, listing};

#[test]
fn off_the_record_nothing_is_done_and_nothing_is_written() {
    let cli = Cli::new();
    cli.write("a", "1");
    let lines: [&[&str]; 17] = [
        &["init"],
        &["snapshot", "--action", "write_file", "--path", "a"],
        &["settle"],
        &["turn", "start"],
        &["turn", "end"],
        &["begin"],
        &["commit"],
        &["rollback", "abcdef"],
        &["rewind", "start"],
        &["undo"],
        &["redo"],
        &["pin", "start", "name"],
        &["config", "accept"],
        &["roots", "add", "/etc/hosts"],
        &["install", "claude-code"],
        &["uninstall", "claude-code"],
        &["demo"],
    ];
    for words in lines {
        let output = cli.command(words).env("CHRONICLE", "off").output().expect("start");
        let done = done(output).ok();
        assert_eq!(done.stdout, "", "{words:?}");
        assert!(done.stderr.contains("CHRONICLE=off"), "{words:?}: {}", done.stderr);
    }
    assert!(!cli.home().exists());
    assert_eq!(listing(&cli.root()), [cli.root().join("a")]);
}

#[test]
fn off_the_record_json_stays_json() {
    let cli = Cli::new();
    let output = cli.command(["settle", "--json"]).env("CHRONICLE", "off").output().expect("start");
    let done = done(output).ok();
    assert_eq!(done.json()["off"], true);
    assert_eq!(done.stderr, "");
}

#[test]
fn off_the_record_a_run_still_runs() {
    let cli = Cli::new();
    let output = cli
        .command(["run", "--", "sh", "-c", "echo out; echo err >&2; echo x > made; exit 3"])
        .env("CHRONICLE", "off")
        .output()
        .expect("start");
    let done = done(output).exits(3);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(cli.read("made").as_deref(), Some("x\n"));
    assert!(!cli.home().exists());
}
