//! What runs for long tells of events as it was asked to: lines for people, or objects of JSON.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Cli, done};

/// A workspace, and a directory that a socket may be in.
fn world() -> Cli {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    let run = cli.home().with_file_name("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    cli
}

/// What a host says on stderr until it was asked to stop.
fn host_says(mut command: Command) -> Vec<String> {
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = vec![lines.next().unwrap().unwrap()];
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    said.extend(lines.map(Result::unwrap));
    assert!(child.wait().unwrap().success(), "{said:?}");
    said
}

#[track_caller]
fn parsed(lines: &[String]) -> Vec<Value> {
    let parse =
        |line: &String| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    lines.iter().map(parse).collect()
}

#[test]
fn a_host_tells_of_events_in_words_or_in_json() {
    let cli = world();
    let socket = cli.home().with_file_name("run").join("s");
    let words = ["serve", "--socket", socket.to_str().unwrap()];
    let said = host_says(cli.command(words));
    assert!(said[0].starts_with("Serving /"), "{said:?}");
    assert_eq!(said.last().unwrap(), "Stopped");
    let by_option = cli.command(words.iter().chain(&["--log-format", "json"]));
    let mut by_variable = cli.command(words);
    by_variable.env("CHRONICLE_LOG_FORMAT", "json");
    for command in [by_option, by_variable] {
        let said = parsed(&host_says(command));
        assert!(said[0]["message"].as_str().unwrap().starts_with("Serving /"), "{said:?}");
        for line in &said {
            assert_eq!((&line["level"], &line["command"]), (&"info".into(), &"serve".into()));
            assert!(line["schema"] == 1 && line["time_ns"].as_i64().unwrap() > 0, "{line}");
        }
    }
    // What the command line says counts more.
    let mut both = cli.command(words.iter().chain(&["--log-format", "text"]));
    both.env("CHRONICLE_LOG_FORMAT", "json");
    assert_eq!(host_says(both).last().unwrap(), "Stopped");
}

#[test]
fn a_failure_is_an_event_too() {
    let cli = world();
    let words = ["connect", "--once", "--socket", "nowhere", "replica", "--log-format", "json"];
    let failed = cli.call(words).exits(1);
    let said = parsed(&failed.stderr.lines().map(str::to_owned).collect::<Vec<_>>());
    let last = said.last().unwrap();
    assert_eq!((&last["level"], &last["code"]), (&"error".into(), &"unreachable".into()));
    assert_eq!(last["command"], "connect");
}

#[test]
fn a_format_that_is_none_is_refused_and_other_commands_do_not_ask() {
    let cli = world();
    let call = |words: &[&str]| {
        done(cli.command(words).env("CHRONICLE_LOG_FORMAT", "xml").output().unwrap())
    };
    assert!(call(&["watch", "--foreground"]).exits(2).stderr.contains("text or json"));
    call(&["status"]).ok();
    cli.call(["watch", "--log-format", "xml"]).exits(2);
}
