//! `chronicle mcp` as an agent starts it: a child process that speaks lines over its pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::Cli;

/// A server and the pipes to it; killed when dropped, if it still runs.
pub(crate) struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Agent {
    fn start(cli: &Cli, arguments: &[&str]) -> Self {
        Self::of(cli.command([&["mcp"], arguments].concat()))
    }

    /// The server that a command starts.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start the server");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("its stdout"));
        let mut agent = Self { child, stdin, stdout, next: 0 };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "agent", "version": "0" },
        });
        let answer = agent.request("initialize", hello);
        assert_eq!(answer["serverInfo"]["name"], "chronicle", "{answer:#}");
        agent.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        agent
    }

    fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("not hung up");
        writeln!(stdin, "{message}").expect("the server listens");
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        self.say(&json!({
            "jsonrpc": "2.0", "id": self.next, "method": method, "params": params,
        }));
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("one message per line");
        assert_eq!(answer["id"], self.next, "{answer:#}");
        answer["result"].clone()
    }

    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    /// Goes away, as an agent does, and tells how the server ended.
    fn hang_up(mut self) -> (i32, String) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("it ends").code().expect("not killed");
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().expect("its stderr");
        stderr.read_to_string(&mut said).expect("text");
        (status, said)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_agent_rolls_back_its_turn_and_hangs_up() {
    let cli = Cli::adopted(&[("a", "one\n")]);
    cli.turn("s", "wreck it", || cli.write("a", "wrecked\n"));
    let mut agent = Agent::start(&cli, &["--session", "s"]);
    let refused = agent.call("undo", json!({}));
    assert_eq!(refused["isError"], true, "{refused:#}");
    let plan = agent.call("preview", json!({ "action": "undo" }));
    let id = &plan["structuredContent"]["plan_id"];
    let done = agent.call("undo", json!({ "plan_id": id }));
    assert_eq!(done["isError"], false, "{done:#}");
    assert_eq!(cli.read("a").as_deref(), Some("one\n"));
    assert_eq!(agent.hang_up(), (0, String::new()));
    cli.call(["redo"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("wrecked\n"));
}

#[test]
fn the_directory_given_with_c_is_served() {
    let cli = Cli::adopted(&[("a", "one\n")]);
    let root = cli.root().display().to_string();
    let mut agent = Agent::start(&cli, &["-C", &root]);
    let status = agent.call("status", json!({}));
    assert_eq!(status["structuredContent"]["workspace"], root, "{status:#}");
    assert_eq!(status["structuredContent"]["own_sessions"], json!([]));
}

#[test]
fn a_client_that_says_nothing_is_no_failure() {
    let cli = Cli::adopted(&[]);
    assert_eq!(cli.call(["mcp"]).ok().stdout, "");
}

#[test]
fn over_http_it_names_its_address_and_the_tokens_file() {
    let cli = Cli::adopted(&[]);
    let mut command = cli.command(["mcp", "--http", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("start the server");
    let mut lines = BufReader::new(child.stderr.take().expect("its stderr")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let (serving, token) = (line(), line());
    child.kill().expect("end it");
    child.wait().expect("it ends");
    assert!(serving.starts_with("Serving http://127.0.0.1:"), "{serving}");
    let file = cli.home().join("mcp-token");
    assert!(token.ends_with(&file.display().to_string()), "{token}");
    assert!(file.exists());
}

#[test]
fn bad_addresses_and_sessions_are_refused() {
    let cli = Cli::adopted(&[]);
    let open = cli.call(["mcp", "--http", "0.0.0.0:0", "--json"]).exits(2);
    assert_eq!(open.error()["code"], "usage");
    let reserved = cli.call(["mcp", "--session", "person", "--json"]).exits(2);
    assert_eq!(reserved.error()["code"], "usage");
    cli.call(["mcp", "--http", "localhost"]).exits(2);
}

/// Frames that no client sends: each is answered or passed over, and the server goes on.
#[test]
fn mutated_frames_do_not_bring_the_server_down() {
    let cli = Cli::adopted(&[("a.txt", "one\n")]);
    cli.turn("s", "edit", || cli.write("a.txt", "two\n"));
    let frame = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
    };
    let call = |name: &str, arguments: Value| {
        frame("tools/call", json!({ "name": name, "arguments": arguments }))
    };
    let seeds = [
        frame("tools/list", json!({})),
        frame("ping", json!({})),
        call("log", json!({ "limit": 3 })),
        call("cat", json!({ "path": "a.txt", "at": "turn:1" })),
        call("diff", json!({ "from": "start", "paths": ["a.txt"] })),
        call("undo", json!({ "what": "turn:1", "dry_run": true })),
    ];
    let seeds = seeds.map(String::into_bytes);
    let mut dice = chronicle_testing::dice::Dice::new(3);
    let frames = chronicle_testing::shared::setting("CHRONICLE_FUZZ", 1) * 300;
    let mut agent = Agent::start(&cli, &[]);
    let mut stdin = agent.stdin.take().expect("not hung up");
    let writer = std::thread::spawn(move || {
        for _ in 0..frames {
            let mut line = chronicle_testing::fuzz::mutated(&seeds, &mut dice);
            line.push(b'\n');
            stdin.write_all(&line).expect("the server listens");
        }
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" }))
            .expect("the server listens");
        stdin
    });
    let mut answered = 0;
    loop {
        let mut line = String::new();
        let read = agent.stdout.read_line(&mut line).expect("answers are text");
        assert!(read > 0, "it went away after {answered} answers");
        let answer: Value = serde_json::from_str(&line).expect("one message per line");
        if answer["id"] == "last" {
            break;
        }
        answered += 1;
    }
    assert!(answered > 5, "only {answered} of {frames} frames were answered");
    agent.stdin = Some(writer.join().expect("the writer ends"));
    let (status, said) = agent.hang_up();
    assert!(status == 0 && !said.contains("panicked"), "{status}: {said}");
}

#[test]
fn a_model_never_gets_a_secret() {
    let cli = Cli::adopted(&[(".env", "TOKEN=old-word\n"), ("a", "1\n")]);
    cli.turn("s", "change it", || cli.write(".env", "TOKEN=new-word\n"));
    let mut agent = Agent::start(&cli, &["--session", "s"]);
    for (tool, arguments) in [
        ("read_version", json!({ "path": ".env" })),
        ("read_version", json!({ "path": ".env", "at": "start" })),
        ("diff", json!({ "from": "start", "patch": true })),
        ("grep", json!({ "pattern": "TOKEN" })),
        ("preview", json!({ "action": "undo", "target": "turn:1" })),
        ("file_history", json!({ "path": ".env" })),
    ] {
        let answer = agent.call(tool, arguments).to_string();
        assert!(!answer.contains("-word"), "{tool}: {answer}");
        if tool == "read_version" {
            assert!(answer.contains("is secret and is not shown here"), "{answer}");
        }
        if tool == "diff" {
            assert!(answer.contains("Secret content is not shown"), "{answer}");
        }
    }
    agent.hang_up();
}
