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

/// A collector on loopback: gives the spans of every request until it was told to end.
#[cfg(feature = "otel")]
fn collect(listener: std::net::TcpListener) -> Vec<Value> {
    use std::io::{Read, Write};
    let mut spans = Vec::new();
    loop {
        let mut reader = BufReader::new(listener.accept().unwrap().0);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        if length == 0 {
            return spans;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap();
        spans.extend(
            request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone(),
        );
    }
}

/// Everything that a host and a replica told of is at the collector when they have ended.
#[cfg(feature = "otel")]
#[test]
fn a_collector_gets_the_spans_of_host_and_replica() {
    let cli = world();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let collector = std::thread::spawn(move || collect(listener));
    let with = |mut command: Command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        command
    };
    let socket = cli.home().with_file_name("run").join("s");
    let socket = socket.to_str().unwrap();
    let mut host = with(cli.command(["serve", "--socket", socket]));
    let mut host = host.stderr(Stdio::piped()).spawn().unwrap();
    // It listens when it says so.
    BufReader::new(host.stderr.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let replica = cli.home().with_file_name("replica");
    let words = ["connect", "--once", "--socket", socket, replica.to_str().unwrap()];
    done(with(cli.command(words)).output().unwrap()).ok();
    let process = rustix::process::Pid::from_child(&host);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(host.wait().unwrap().success());
    drop(std::net::TcpStream::connect(address).unwrap());
    let spans = collector.join().unwrap();
    let has = |name: &str| spans.iter().any(|span| span["name"] == format!("chronicle.{name}"));
    assert!(has("admitted") && has("closed") && has("welcome"), "{spans:?}");
    let refused = with(cli.command(["serve", "--socket", socket]))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://elsewhere:4318")
        .output();
    assert!(done(refused.unwrap()).exits(1).stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
}
