//! Payloads of the agents that cannot run in a test, replayed: each turn is captured and taken back.
//!
//! They are made from the agents' documentation; the agents that run in tests are in `clients`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use chronicle_testing::tree;
use serde_json::Value;

use crate::support::{Cli, Done, done};

/// Where the payloads were recorded.
const RECORDED: &str = "/home/me/project";

fn replay(agent: &str) {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/payloads");
    let text = fs::read_to_string(place.join(format!("{agent}.jsonl"))).expect("the payloads");
    let cli = Cli::adopted(&[("a.txt", "hello\n"), ("keep", "1")]);
    let before = tree::describe(&cli.root());
    let root = cli.root().canonicalize().expect("its real name");
    let mut touched = 0;
    for line in text.lines() {
        let line = line.replace(RECORDED, root.to_str().expect("text"));
        let said = send(&cli, agent, &line).ok();
        if !said.stdout.is_empty() {
            let _: Value = serde_json::from_str(&said.stdout).expect("an answer is JSON");
        }
        let value: Value = serde_json::from_str(&line).expect("a payload is JSON");
        if is_before(&line, &value) {
            touched += 1;
            do_work(&cli, &value, touched);
        }
    }
    assert!(touched >= 2, "{agent}: {touched} tools were used");
    let log = cli.call(["log", "--json", "--turn", "1"]).ok();
    let calls = log.stdout.lines().filter(|line| line.contains(&format!("\"agent\":\"{agent}\"")));
    assert!(calls.count() >= touched, "{agent}: {}", log.stdout);
    assert!(log.stdout.contains("\"evidence\":\"named\""), "{agent}: {}", log.stdout);
    let status = cli.call(["status", "--json"]).ok().json();
    assert_eq!(status["open_turns"], serde_json::json!([]), "{agent}: the turn has ended");
    cli.call(["rewind", "before:turn:1", "--yes"]).ok();
    tree::assert_same(&before, &tree::describe(&cli.root()), agent);
}

fn send(cli: &Cli, agent: &str, text: &str) -> Done {
    let mut child = cli
        .command(["hook", agent])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the hook");
    let mut input = child.stdin.take().expect("its stdin");
    let _ = input.write_all(text.as_bytes());
    drop(input);
    done(child.wait_with_output().expect("the hook ends"))
}

/// Whether an event announces a tool that touches files.
fn is_before(line: &str, value: &Value) -> bool {
    let names = ["hook_event_name", "hookName", "n"];
    let name = names.iter().find_map(|key| value[*key].as_str()).unwrap_or_default();
    let own_words = value.get("toolName").is_some() && value.get("toolResult").is_none();
    let before = ["PreToolUse", "BeforeTool", "preToolUse", "before", "tool_call"];
    let announced = before.contains(&name) || name.starts_with("before") && name.ends_with("tion");
    let reads = ["\"Read\"", "\"read\"", "\"read_file\"", "\"Task\"", "\"Agent\"", "\"task\""];
    (announced || own_words) && !reads.iter().any(|word| line.contains(word))
}

/// What the tool does: it writes what it names, or something that nobody could know.
fn do_work(cli: &Cli, value: &Value, number: usize) {
    let mut named = Vec::new();
    collect(value, &mut named);
    let root = cli.root().canonicalize().expect("its real name");
    let inside = named.iter().find(|path| Path::new(path).parent() == Some(&root));
    match inside {
        Some(path) => fs::write(path, format!("written by call {number}\n")).expect("write"),
        None => cli.write(&format!("made-{number}"), "by a shell\n"),
    }
}

/// All texts that name a file.
fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str().and_then(|text| serde_json::from_str(text).ok()) {
                    Some(inner @ Value::Object(_)) => collect(&inner, into),
                    _ if key.to_lowercase().contains("path") && !key.contains("transcript") => {
                        into.extend(value.as_str().map(str::to_owned));
                    }
                    _ => collect(value, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        _ => {}
    }
}

#[test]
fn cursors_turn_is_taken_back() {
    replay("cursor");
}

#[test]
fn copilots_turn_is_taken_back() {
    replay("copilot");
}

#[test]
fn clines_turn_is_taken_back() {
    replay("cline");
}
