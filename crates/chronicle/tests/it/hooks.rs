//! Agents' hooks: what they tell becomes turns and snapshots, and every change has its author.

use std::io::Write;
use std::process::Stdio;

use chronicle_testing::tree;
use serde_json::{Value, json};

use crate::support::{Cli, Done, done};

/// A conversation with an agent, as its hooks tell of it.
pub(crate) struct Talk<'c> {
    cli: &'c Cli,
    agent: &'static str,
    session: &'static str,
    options: Vec<String>,
}

impl<'c> Talk<'c> {
    pub(crate) fn new(cli: &'c Cli, agent: &'static str, session: &'static str) -> Self {
        Self { cli, agent, session, options: Vec::new() }
    }

    pub(crate) fn strict(cli: &'c Cli, agent: &'static str) -> Self {
        Self { options: vec!["--strict".to_owned()], ..Self::new(cli, agent, "s") }
    }

    /// As it is installed where the home is not the usual one.
    pub(crate) fn with_home_named(cli: &'c Cli, agent: &'static str) -> Self {
        let options = vec!["--home".to_owned(), cli.home().display().to_string()];
        Self { options, ..Self::new(cli, agent, "s") }
    }

    pub(crate) fn raw(&self, text: &str) -> Done {
        let words = ["hook", self.agent].into_iter().chain(self.options.iter().map(String::as_str));
        let mut child = self
            .cli
            .command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the hook");
        let mut input = child.stdin.take().expect("its stdin");
        // One that refuses need not have read everything.
        let _ = input.write_all(text.as_bytes());
        drop(input);
        done(child.wait_with_output().expect("the hook ends"))
    }

    pub(crate) fn send(&self, event: &str, more: Value) -> Done {
        let mut value = json!({
            "session_id": self.session, "cwd": self.cli.root(), "hook_event_name": event,
        });
        let fields = more.as_object().expect("fields").clone();
        value.as_object_mut().expect("an object").extend(fields);
        self.raw(&value.to_string())
    }

    #[track_caller]
    pub(crate) fn quiet(&self, event: &str, more: Value) {
        let said = self.send(event, more).ok();
        assert_eq!((&said.stdout[..], &said.stderr[..]), ("", ""), "{event}");
    }

    #[track_caller]
    pub(crate) fn prompt(&self, key: &str) {
        self.quiet("UserPromptSubmit", json!({"prompt": format!("do {key}"), "prompt_id": key}));
    }

    #[track_caller]
    pub(crate) fn before(&self, tool: &str, id: &str, input: Value) {
        self.quiet("PreToolUse", call(tool, id, input));
    }

    #[track_caller]
    pub(crate) fn after(&self, tool: &str, id: &str, input: Value) {
        self.quiet("PostToolUse", call(tool, id, input));
    }

    /// A whole call of a shell, with what it does.
    #[track_caller]
    pub(crate) fn shell(&self, id: &str, work: impl FnOnce()) {
        let input = json!({"command": format!("do {id}")});
        self.before("Bash", id, input.clone());
        work();
        self.after("Bash", id, input);
        self.batch();
    }

    /// A whole call of an edit tool.
    #[track_caller]
    pub(crate) fn edit(&self, id: &str, path: &str, content: &str) {
        let input = json!({"file_path": self.cli.root().join(path)});
        self.before("Edit", id, input.clone());
        self.cli.write(path, content);
        self.after("Edit", id, input);
        self.batch();
    }

    #[track_caller]
    pub(crate) fn batch(&self) {
        if self.agent == "claude-code" {
            self.quiet("PostToolBatch", json!({"tool_calls": []}));
        }
    }

    #[track_caller]
    pub(crate) fn stop(&self) {
        self.quiet("Stop", json!({}));
    }
}

pub(crate) fn call(tool: &str, id: &str, input: Value) -> Value {
    json!({"tool_name": tool, "tool_use_id": id, "tool_input": input})
}

/// Author and evidence of the newest change of a path.
fn author(cli: &Cli, path: &str) -> (String, String) {
    let log = cli.call(["log", "--json", "--path", path]).ok();
    for line in log.stdout.lines() {
        let snapshot: Value = serde_json::from_str(line).expect("JSON");
        let changes = snapshot["changes"].as_array().expect("changes").clone();
        if let Some(change) = changes.iter().find(|change| change["path"] == path) {
            let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
            let mut author = text("author");
            if author == "shared" {
                author = format!("shared {}", change["candidates"]);
            }
            return (author, text("evidence"));
        }
    }
    panic!("nothing is known of {path}: {}", log.stdout);
}

#[track_caller]
pub(crate) fn check_author(cli: &Cli, path: &str, expected: &str, evidence: &str) {
    assert_eq!(author(cli, path), (expected.to_owned(), evidence.to_owned()), "{path}");
}

#[test]
fn a_turn_of_edits_and_shell_is_taken_back_exactly() {
    let cli = Cli::adopted(&[("a.txt", "hello\n"), ("d/x", "x"), (".env", "KEY=1"), ("b", "b")]);
    let before = tree::describe(&cli.root());
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "a.txt", "goodbye\n");
    talk.edit("c2", "new.txt", "new\n");
    talk.shell("c3", || {
        cli.write("a.txt", "from sed\n");
        std::fs::remove_dir_all(cli.root().join("d")).expect("rm -rf");
        std::fs::remove_file(cli.root().join(".env")).expect("rm");
        std::fs::rename(cli.root().join("b"), cli.root().join("c")).expect("mv");
    });
    talk.stop();
    let log = cli.call(["log", "--json", "--turn", "1"]).ok();
    let snapshots: Vec<Value> =
        log.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let shell = snapshots.iter().find(|one| one["tool"] == "Bash").expect("the shell call");
    assert_eq!(shell["call_id"], "c3");
    assert_eq!((&shell["session"], &shell["turn_key"]), (&json!("s"), &json!("k1")));
    assert_eq!((&shell["agent"], &shell["turn"]), (&json!("claude-code"), &json!(1)));
    assert_eq!(shell["action_summary"], "shell: do c3");
    check_author(&cli, "new.txt", "s", "named");
    check_author(&cli, "c", "s", "window");

    // The middle alone: the edit of one file, with what came after it.
    let edit = snapshots.iter().find(|one| one["call_id"] == "c2").expect("the edit");
    cli.call(["undo", edit["id"].as_str().expect("an id")]).ok();
    assert_eq!(cli.read("new.txt"), None);
    assert_eq!(cli.read("a.txt").as_deref(), Some("from sed\n"));
    cli.call(["redo"]).ok();
    cli.call(["undo"]).ok();
    tree::assert_same(&before, &tree::describe(&cli.root()), "after the undo");
    cli.call(["verify"]).ok();
}

#[test]
fn a_person_beside_an_agent_keeps_his_work() {
    let cli = Cli::adopted(&[("agent.txt", "1"), ("person.txt", "1"), ("both.txt", "1\n2\n3\n")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    // An edit tool owns only what it names.
    let input = json!({"file_path": cli.root().join("agent.txt")});
    talk.before("Edit", "c1", input.clone());
    cli.write("agent.txt", "2");
    cli.write("person.txt", "2");
    talk.after("Edit", "c1", input);
    talk.batch();
    talk.shell("c2", || cli.write("shell.txt", "1"));
    cli.write("later.txt", "between calls");
    talk.stop();
    check_author(&cli, "agent.txt", "s", "named");
    check_author(&cli, "shell.txt", "s", "window");
    check_author(&cli, "later.txt", "person", "outside");
    cli.call(["undo"]).ok();
    assert_eq!(cli.read("agent.txt").as_deref(), Some("1"));
    assert_eq!(cli.read("shell.txt"), None);
    assert_eq!(cli.read("later.txt").as_deref(), Some("between calls"));
}

#[test]
fn what_a_person_just_changed_may_be_his_again() {
    let cli = Cli::adopted(&[("a", "1"), ("b", "1")]);
    let talk = Talk::new(&cli, "gemini", "s");
    cli.write("a", "person's");
    talk.send("BeforeAgent", json!({"prompt": "x"})).ok();
    let input = json!({"command": "npm test"});
    talk.send("BeforeTool", json!({"tool_name": "run_shell_command", "tool_input": input})).ok();
    cli.write("a", "saved again, or written by the test");
    cli.write("b", "written by the test");
    talk.send("AfterTool", json!({"tool_name": "run_shell_command", "tool_input": input})).ok();
    check_author(&cli, "a", "shared [\"person\",\"s\"]", "window");
    check_author(&cli, "b", "s", "window");
    let said = talk.send("AfterAgent", json!({})).ok();
    assert_eq!(said.stdout, "{}\n", "Gemini wants JSON");
    // What is shared stays and is listed, unless the person says otherwise.
    cli.call(["undo", "--dry-run"]).ok();
    cli.call(["rewind", "before:turn:1", "--yes"]).exits(4);
    assert_eq!(cli.read("b").as_deref(), Some("1"));
    assert_eq!(cli.read("a").as_deref(), Some("saved again, or written by the test"));
    cli.call(["rewind", "before:turn:1", "--shared", "take", "--yes"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("person's"));
}

#[test]
fn two_sessions_at_once_do_not_become_one() {
    let cli = Cli::adopted(&[("one", "0"), ("two", "0"), ("any", "0"), ("mine", "0")]);
    let (one, two) = (Talk::new(&cli, "claude-code", "s1"), Talk::new(&cli, "codex", "s2"));
    one.prompt("k1");
    two.quiet("UserPromptSubmit", json!({"prompt": "y", "turn_id": "t1"}));
    let (first, second) = (json!({"command": "a"}), json!({"command": "b"}));
    one.edit("e1", "one", "1");
    one.before("Bash", "c1", first.clone());
    cli.write("one", "2");
    two.before("Bash", "d1", second.clone());
    cli.write("any", "1");
    one.after("Bash", "c1", first);
    one.batch();
    cli.write("two", "1");
    two.after("Bash", "d1", second);
    cli.write("mine", "1");
    one.stop();
    two.stop();
    check_author(&cli, "one", "s1", "window");
    check_author(&cli, "any", "shared [\"s1\",\"s2\"]", "window");
    check_author(&cli, "two", "s2", "window");
    check_author(&cli, "mine", "person", "outside");
    cli.call(["undo", "turn:1"]).exits(4);
    let read = |name: &str| cli.read(name).expect("it stays");
    assert_eq!((read("one"), read("two"), read("mine")), ("0".into(), "1".into(), "1".into()));
}

#[test]
fn sub_agents_are_their_sessions_and_themselves() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0"), ("c", "0")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    talk.before("Task", "t1", json!({"prompt": "help"}));
    let of = |agent: &str, id: &str| {
        let mut fields = call("Bash", id, json!({"command": id}));
        fields["agent_id"] = json!(agent);
        fields
    };
    talk.quiet("PreToolUse", of("x", "x1"));
    cli.write("a", "1");
    talk.quiet("PreToolUse", of("y", "y1"));
    cli.write("b", "1");
    talk.quiet("PostToolUse", of("x", "x1"));
    talk.quiet("PostToolBatch", json!({"agent_id": "x"}));
    cli.write("c", "1");
    talk.quiet("PostToolUse", of("y", "y1"));
    talk.quiet("PostToolBatch", json!({"agent_id": "y"}));
    talk.after("Task", "t1", json!({"prompt": "help"}));
    talk.stop();
    check_author(&cli, "a", "s/x", "window");
    check_author(&cli, "b", "shared [\"s/x\",\"s/y\"]", "window");
    check_author(&cli, "c", "s/y", "window");
    // Whichever of them it was, it is the session's.
    cli.call(["rewind", "before:turn:1", "--yes"]).ok();
    let read = |name: &str| cli.read(name).expect("it stays");
    assert_eq!((read("a"), read("b"), read("c")), ("0".into(), "0".into(), "0".into()));
}

#[test]
fn a_missing_after_is_closed_by_the_next_event() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let talk = Talk::new(&cli, "codex", "s");
    talk.quiet("UserPromptSubmit", json!({"prompt": "x", "turn_id": "t"}));
    talk.before("Bash", "c1", json!({"command": "apply_patch <<X"}));
    cli.write("a", "1");
    talk.before("apply_patch", "c2", json!({"command": patch(&["b"])}));
    cli.write("b", "1");
    talk.stop();
    check_author(&cli, "a", "s", "window");
    check_author(&cli, "b", "s", "named");
    cli.write("a", "2");
    cli.call(["settle"]).ok();
    check_author(&cli, "a", "person", "outside");
}

#[test]
fn what_a_call_names_is_saved_also_where_filters_keep_it_out() {
    let kept_out = "node_modules/lib/index.js";
    let cli = Cli::adopted(&[("a", "0"), ("package.json", "{}"), (kept_out, "orig")]);
    let talk = Talk::new(&cli, "codex", "s");
    talk.quiet("UserPromptSubmit", json!({"prompt": "x", "turn_id": "t"}));
    // A call that never ends, and whose change the next one names too: both are looked for at once.
    talk.before("Bash", "c1", json!({"command": "x"}));
    cli.write("a", "1");
    let input = json!({"command": patch(&["a", kept_out])});
    talk.before("apply_patch", "c2", input.clone());
    cli.write("a", "2");
    cli.write(kept_out, "patched");
    talk.after("apply_patch", "c2", input);
    talk.stop();
    cli.call(["undo", "--yes"]).ok();
    let read = |name: &str| cli.read(name).expect("it stays");
    assert_eq!((&read("a")[..], &read(kept_out)[..]), ("0", "orig"));
}

fn patch(files: &[&str]) -> String {
    let parts = files.iter().map(|file| format!("*** Update File: {file}\n@@\n-0\n+1\n"));
    format!("*** Begin Patch\n{}*** End Patch\n", parts.collect::<String>())
}

#[test]
fn what_a_call_wrote_it_may_write_for_two_more_seconds() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let talk = Talk::new(&cli, "codex", "s");
    talk.quiet("UserPromptSubmit", json!({"prompt": "x", "turn_id": "t"}));
    talk.shell("c1", || cli.write("a", "1"));
    cli.write("a", "formatted");
    cli.write("b", "a person's");
    cli.call(["settle"]).ok();
    check_author(&cli, "a", "s", "window");
    check_author(&cli, "b", "person", "outside");
}

#[test]
fn formatters_run_until_the_batch_ends() {
    let cli = Cli::adopted(&[("a", "0")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    let input = json!({"file_path": cli.root().join("a")});
    talk.before("Write", "c1", input.clone());
    cli.write("a", "1");
    talk.after("Write", "c1", input);
    cli.write("a", "formatted");
    talk.batch();
    check_author(&cli, "a", "s", "named");
    cli.write("a", "a person's");
    talk.stop();
    check_author(&cli, "a", "person", "outside");
}

#[test]
fn a_save_after_a_call_is_a_persons_whether_or_not_its_batch_is_told_of() {
    for batch in [false, true] {
        let cli = Cli::adopted(&[("p", "1"), ("q", "1")]);
        let talk = Talk::new(&cli, "claude-code", "s");
        talk.prompt("k");
        let input = json!({"command": "echo x >new", "description": "Makes it"});
        talk.before("Bash", "t1", input.clone());
        cli.write("new", "x");
        let mut ended = call("Bash", "t1", input);
        ended["tool_response"] = json!({"stdout": "", "stderr": "", "interrupted": false});
        talk.quiet("PostToolUse", ended);
        cli.write("p", "a person's");
        if batch {
            talk.batch();
            cli.write("q", "a person's");
        }
        talk.stop();
        check_author(&cli, "new", "s", "window");
        check_author(&cli, "p", "person", "outside");
        cli.call(["undo"]).ok();
        assert_eq!(cli.read("p").as_deref(), Some("a person's"), "batch {batch}");
        assert_eq!(cli.read("new"), None);
    }
}

#[test]
fn a_call_that_never_ended_ends_with_its_batch() {
    let cli = Cli::adopted(&[("p", "1"), ("q", "1")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    talk.before("Bash", "t1", json!({"command": "x"}));
    cli.write("p", "the call's");
    talk.quiet(
        "PostToolBatch",
        json!({"tool_calls": [{"tool_name": "Bash", "tool_use_id": "t1"}]}),
    );
    cli.write("q", "a person's");
    talk.stop();
    check_author(&cli, "p", "s", "window");
    check_author(&cli, "q", "person", "outside");
}

#[test]
fn between_calls_a_background_task_makes_everything_doubtful() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    let input = json!({"command": "npm run dev", "run_in_background": true});
    talk.before("Bash", "c1", input.clone());
    talk.after("Bash", "c1", input);
    talk.batch();
    cli.write("a", "the server's, or a person's");
    talk.quiet("Stop", json!({"background_tasks": [{"id": "1"}]}));
    check_author(&cli, "a", "shared [\"person\",\"s\"]", "window");
    talk.prompt("k2");
    talk.quiet("Stop", json!({"background_tasks": []}));
    cli.write("b", "a person's");
    cli.call(["settle"]).ok();
    check_author(&cli, "b", "person", "outside");
}

#[test]
fn what_a_shell_left_running_may_write_between_calls() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    let mut left = None;
    talk.shell("c1", || {
        let mut command = std::process::Command::new("sleep");
        command.arg("60").env("CLAUDECODE", "1").current_dir(cli.root());
        left = Some(command.spawn().expect("start it"));
    });
    cli.write("a", "1");
    cli.call(["settle"]).ok();
    check_author(&cli, "a", "shared [\"person\",\"s\"]", "window");
    let mut left = left.expect("it was started");
    left.kill().expect("end it");
    left.wait().expect("it ends");
    cli.call(["settle"]).ok();
    cli.write("b", "1");
    cli.call(["settle"]).ok();
    check_author(&cli, "b", "person", "outside");
}

#[test]
fn an_agent_is_told_once_that_its_work_was_taken_back() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let (talk, other) = (Talk::new(&cli, "claude-code", "s"), Talk::new(&cli, "codex", "o"));
    talk.prompt("k");
    talk.edit("c1", "a", "1");
    talk.stop();
    cli.call(["undo"]).ok();
    other.quiet("UserPromptSubmit", json!({"prompt": "x", "turn_id": "t"}));
    let said = talk.send("UserPromptSubmit", json!({"prompt": "go on", "prompt_id": "k2"})).ok();
    let output = &said.json()["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "UserPromptSubmit");
    let text = output["additionalContext"].as_str().expect("words");
    for word in ["taken back", "a", "stale", "unless you are asked"] {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
    talk.before("Bash", "c2", json!({"command": "x"}));
    talk.stop();
}

#[test]
fn a_person_who_went_back_is_told_which_files_did_not() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    let transcript = cli.home().join("transcript.jsonl");
    talk.prompt("k1");
    talk.edit("c1", "a", "1");
    talk.stop();
    let entries = [
        json!({"uuid": "0", "parentUuid": null}),
        json!({"uuid": "1", "parentUuid": "0", "promptId": "k1"}),
        json!({"uuid": "2", "parentUuid": "0", "promptId": "k2"}),
    ];
    let text: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
    std::fs::write(&transcript, text).expect("write");
    talk.prompt("k2");
    let said = talk.send("Stop", json!({"transcript_path": transcript})).ok();
    let message = said.json()["systemMessage"].as_str().expect("words").to_owned();
    assert!(message.contains("a. Take them back with: chronicle undo turn:1"), "{message}");
    talk.prompt("k3");
    talk.quiet("Stop", json!({"transcript_path": transcript}));
}

#[test]
fn from_inside_its_own_call_an_agent_needs_a_plan() {
    let cli = Cli::adopted(&[("a", "0")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    talk.edit("c1", "a", "1");
    talk.before("Bash", "c2", json!({"command": "chronicle undo"}));
    let refused = cli.call(["undo", "--yes", "--json"]).exits(3);
    assert!(refused.stderr.contains("needs_plan"), "{}", refused.stderr);
    let plan = cli.call(["undo", "--dry-run", "--json"]).ok().json();
    let id = plan["plan_id"].as_str().expect("an id").to_owned();
    cli.call(["undo", "--plan", &id, "--yes"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("0"));
}

#[test]
fn a_turn_ends_when_its_agent_dies() {
    let cli = Cli::adopted(&[("a", "0")]);
    // The agent is the process that calls the hook: here one that ends right after.
    let event = |name: &str, more: &str| {
        let root = cli.root();
        format!(
            "{{\"session_id\":\"s\",\"cwd\":{root:?},\"hook_event_name\":\"{name}\",\"prompt_id\":\"k\"{more}}}"
        )
    };
    let script = "for (@ARGV) { open(my $hook, '|-', $ENV{PROGRAM}, 'hook', 'claude-code') or die; \
                  print $hook $_; close($hook) or die } ";
    let mut command = cli.command(["x"]);
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
        .collect();
    let shell = ",\"tool_name\":\"Bash\",\"tool_use_id\":\"1\",\"tool_input\":{\"command\":\"x\"}";
    command = std::process::Command::new("perl");
    let ran = command
        .args(["-e", script])
        .args([event("UserPromptSubmit", ",\"prompt\":\"x\""), event("PreToolUse", shell)])
        .env_clear()
        .envs(environment)
        .env("PROGRAM", crate::support::PROGRAM)
        .current_dir(cli.root())
        .status()
        .expect("perl is there");
    assert!(ran.success());
    cli.write("a", "its last words");
    cli.call(["settle"]).ok();
    check_author(&cli, "a", "s", "window");
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("0"));
    let status = cli.call(["status", "--json"]).ok().json();
    assert_eq!(status["open_turns"], json!([]));
}

#[test]
fn a_project_is_adopted_at_its_first_prompt() {
    let cli = Cli::new();
    cli.write("a", "0");
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    talk.edit("c1", "a", "1");
    talk.stop();
    cli.call(["undo"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("0"));
}

#[test]
fn what_lies_outside_is_captured_and_restored_only_by_name() {
    let cli = Cli::adopted(&[("a", "0")]);
    let outside = tempfile::tempdir().expect("another place");
    let place = outside.path().canonicalize().expect("its real name");
    let (file, new) = (place.join("f"), place.join("new"));
    std::fs::write(&file, "0").expect("write");
    let talk = Talk::strict(&cli, "claude-code");
    talk.prompt("k");
    talk.edit("c0", "a", "1");
    for (id, path) in [("c1", &file), ("c2", &new)] {
        let input = json!({"file_path": path});
        talk.before("Write", id, input.clone());
        std::fs::write(path, "1").expect("write");
        talk.after("Write", id, input);
        talk.batch();
    }
    talk.stop();
    let read = |path: &std::path::Path| std::fs::read_to_string(path).ok();
    cli.call(["rewind", "before:turn:1", "--yes"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("0"));
    assert_eq!((read(&file).as_deref(), read(&new).as_deref()), (Some("1"), Some("1")));
    let (first, second) = (file.to_str().expect("text"), new.to_str().expect("text"));
    cli.call(["rewind", "before:turn:1", first, second, "--yes"]).ok();
    assert_eq!((read(&file).as_deref(), read(&new).as_deref()), (Some("0"), None));
    // Its directory may go: that is nobody's business here.
    drop(outside);
    cli.call(["settle"]).ok();
    cli.call(["undo", "--dry-run"]).exits(3);
    cli.call(["verify"]).ok();
}

#[test]
fn what_is_not_understood_is_let_through_or_blocked_by_the_policy() {
    let cli = Cli::adopted(&[("a", "0")]);
    for (text, word) in [("{", "not JSON"), ("[1]", "not a JSON object"), ("", "not JSON")] {
        let free = Talk::new(&cli, "claude-code", "s").raw(text).exits(1);
        assert!(free.stderr.contains(word), "{}", free.stderr);
        assert_eq!(free.stdout, "");
        let strict = Talk::strict(&cli, "claude-code").raw(text).exits(2);
        assert!(strict.stderr.contains("Nothing was changed"), "{}", strict.stderr);
    }
    // What nobody knows concerns nobody, or can touch anything.
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.quiet("SomethingNew", json!({"x": 1}));
    talk.prompt("k");
    talk.before("NewTool", "c", json!({}));
    cli.write("a", "1");
    talk.after("NewTool", "c", json!({}));
    talk.batch();
    check_author(&cli, "a", "s", "window");
    cli.call(["hook", "nobody"]).exits(1);
    cli.call(["hook", "codex", "--nonsense"]).exits(1);
}

#[test]
fn a_catalog_that_cannot_be_used_is_said_and_never_hangs() {
    let cli = Cli::adopted(&[("a", "0")]);
    let workspaces = cli.home().join("workspaces");
    let mut catalogs = Vec::new();
    for entry in std::fs::read_dir(workspaces).expect("the workspaces").flatten() {
        let catalog = entry.path().join("catalog.db");
        if catalog.exists() {
            catalogs.push(catalog);
        }
    }
    std::fs::write(&catalogs[0], "this is no database, and long enough to be seen as none")
        .expect("damage it");
    // What was not copied back yet would heal it.
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(catalogs[0].with_extension(format!("db{end}")));
    }
    let event = json!({"tool_name": "Bash", "tool_use_id": "1", "tool_input": {"command": "x"}});
    let free = Talk::new(&cli, "claude-code", "s").send("PreToolUse", event.clone()).exits(1);
    assert!(free.stderr.contains("not protected"), "{}", free.stderr);
    Talk::strict(&cli, "claude-code").send("PreToolUse", event.clone()).exits(2);
    Talk::strict(&cli, "claude-code").send("PostToolUse", event).exits(1);
}

#[test]
fn a_capture_that_takes_too_long_has_failed() {
    let cli = Cli::adopted(&[("a", "0")]);
    let mut talk = Talk::strict(&cli, "claude-code");
    talk.options.extend(["--budget", "0"].map(str::to_owned));
    let event = json!({"tool_name": "Bash", "tool_use_id": "1", "tool_input": {"command": "x"}});
    let said = talk.send("PreToolUse", event).exits(2);
    assert!(said.stderr.contains("took longer than 0 ms"), "{}", said.stderr);
}

#[test]
fn off_the_record_a_hook_says_nothing_and_writes_nothing() {
    let cli = Cli::adopted(&[("a", "0")]);
    let before = cli.call(["log", "--json"]).ok().stdout;
    let mut command = cli.command(["hook", "gemini"]);
    let said = done(command.env("CHRONICLE", "off").output().expect("start")).ok();
    assert_eq!(said.stdout, "{}\n");
    assert_eq!(cli.call(["log", "--json"]).ok().stdout, before);
}
