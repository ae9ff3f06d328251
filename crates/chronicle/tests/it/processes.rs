//! Whose a change is where the watcher sees which processes write. The agents here are processes of
//! their own, and the person is the one that runs these tests.
//!
//! Seeing processes takes a privilege; without it there is nothing to test but that all goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use chronicle_testing::dice::Dice;
use chronicle_testing::shared::{setting, skip};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::hooks::{call, check_author};
use crate::support::{Cli, PROGRAM};
use crate::watch::{follow, start, stop, until};

/// A watcher that sees processes; `None`, and a note, where there can be none.
fn watched(cli: &Cli, test: &str) -> Option<Pid> {
    let process = start(cli);
    let status = cli.call(["status", "--json"]).ok().json();
    if !status["watcher"].as_str().expect("words").ends_with("sees who writes") {
        stop(cli, process);
        skip(test, "seeing who writes takes CAP_SYS_ADMIN, and fanotify on this file system");
        return None;
    }
    follow(cli);
    Some(process)
}

/// An agent: a process that calls its hooks, and does what it is told itself.
struct Agent<'c> {
    cli: &'c Cli,
    session: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl<'c> Agent<'c> {
    /// A shell under another name, so that it is not taken for what stands between.
    fn new(cli: &'c Cli, session: &'static str) -> Self {
        let program = beside(cli, &format!("agent-{session}"));
        std::os::unix::fs::symlink("/bin/sh", &program).expect("another name");
        let like = cli.command::<&str>([]);
        let mut command = Command::new(&program);
        let environment = like.get_envs().filter_map(|(key, value)| Some((key, value?)));
        command.arg0("sh").env_clear().envs(environment).current_dir(cli.root());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("an agent");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its stdout"));
        Self { cli, session, child, input, output }
    }

    /// Does something itself, and is done with it when this returns.
    #[track_caller]
    fn does(&mut self, words: &str) {
        let input = self.input.as_mut().expect("its stdin");
        writeln!(input, "{words}\necho done $?").expect("it listens");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        assert_eq!(line, "done 0\n", "{words}");
    }

    #[track_caller]
    fn hook(&mut self, event: &str, more: Value) {
        let mut value = json!({
            "session_id": self.session, "cwd": self.cli.root(), "hook_event_name": event,
        });
        let fields = more.as_object().expect("fields").clone();
        value.as_object_mut().expect("an object").extend(fields);
        let file = beside(self.cli, &format!("event-{}", self.session));
        fs::write(&file, value.to_string()).expect("an event");
        let program = std::env::var("CHRONICLE_BIN").unwrap_or_else(|_| PROGRAM.to_owned());
        self.does(&format!("'{program}' hook claude-code < '{}'", file.display()));
    }

    #[track_caller]
    fn prompt(&mut self, key: &str) {
        self.hook("UserPromptSubmit", json!({"prompt": format!("do {key}"), "prompt_id": key}));
    }

    #[track_caller]
    fn before(&mut self, id: &str) {
        self.hook("PreToolUse", call("Bash", id, json!({"command": "make"})));
    }

    #[track_caller]
    fn after(&mut self, id: &str) {
        self.hook("PostToolUse", call("Bash", id, json!({"command": "make"})));
        self.hook("PostToolBatch", json!({"tool_calls": []}));
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        // It ends when there is nothing more to do.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// A path beside the workspace.
fn beside(cli: &Cli, name: &str) -> PathBuf {
    cli.root().with_file_name(name)
}

/// A pipe that a process waits at until somebody opens it.
fn gate(cli: &Cli, name: &str) -> PathBuf {
    let path = beside(cli, name);
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    path
}

fn open(gate: &PathBuf) {
    fs::write(gate, "go\n").expect("somebody waits there");
}

#[test]
fn calls_of_two_sessions_that_overlap_are_told_apart() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0"), ("both", "0")]);
    let Some(watcher) = watched(&cli, "calls that overlap") else { return };
    let (mut s, mut t) = (Agent::new(&cli, "s"), Agent::new(&cli, "t"));
    s.prompt("k");
    t.prompt("l");
    s.before("c1");
    t.before("c2");
    s.does("printf s > a; printf s > both");
    t.does("printf t > b; printf t > new; printf t > both");
    s.does("cd .. && cd workspace && printf s > own");
    s.after("c1");
    t.after("c2");
    for (path, author) in [("a", "s"), ("own", "s"), ("b", "t"), ("new", "t")] {
        check_author(&cli, path, author, "process");
    }
    check_author(&cli, "both", "shared [\"s\",\"t\"]", "process");
    s.hook("Stop", json!({}));
    t.hook("Stop", json!({}));
    let undone = cli.call(["--json", "undo", "turn:2"]).exits(4).json();
    assert_eq!(undone["plan"]["shared"][0]["path"], "both", "{undone}");
    assert_eq!((cli.read("b").as_deref(), cli.read("new")), (Some("0"), None));
    assert_eq!((cli.read("a").as_deref(), cli.read("own").as_deref()), (Some("s"), Some("s")));
    cli.call(["verify"]).ok();
    stop(&cli, watcher);
}

#[test]
fn a_persons_save_during_an_agents_call_is_the_persons_and_stays() {
    let cli = Cli::adopted(&[("agent", "0"), ("person", "0"), ("both", "0"), ("d/e", "0")]);
    let Some(watcher) = watched(&cli, "a person's save") else { return };
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    agent.does("printf s > agent; printf s > both");
    cli.write("person", "mine");
    cli.write("both", "mine, over the agent's");
    // Also in a directory that is new, whose own notices come before it can be watched.
    cli.write("n/e/w", "mine");
    fs::remove_dir_all(cli.root().join("d")).expect("rm -rf");
    agent.after("c1");
    agent.hook("Stop", json!({}));
    check_author(&cli, "agent", "s", "process");
    for path in ["person", "n/e/w", "d/e", "d"] {
        check_author(&cli, path, "person", "process");
    }
    check_author(&cli, "both", "shared [\"person\",\"s\"]", "process");
    cli.call(["undo"]).exits(4);
    assert_eq!(cli.read("agent").as_deref(), Some("0"));
    assert_eq!(cli.read("person").as_deref(), Some("mine"));
    assert_eq!(cli.read("both").as_deref(), Some("mine, over the agent's"));
    assert_eq!((cli.read("n/e/w").as_deref(), cli.read("d/e")), (Some("mine"), None));
    stop(&cli, watcher);
}

#[test]
fn what_a_call_left_running_writes_between_calls_is_its_sessions() {
    let cli = Cli::adopted(&[("a", "0")]);
    let Some(watcher) = watched(&cli, "what was left running") else { return };
    let (parent, writes, ends) = (gate(&cli, "parent"), gate(&cli, "writes"), gate(&cli, "ends"));
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    // A server: it writes once while the shell that started it runs, and goes on without it.
    agent.does(&format!(
        "sh -c '(printf 1 > first; read x < {}; printf 2 > between; read x < {}) & read x < {}' &",
        writes.display(),
        ends.display(),
        parent.display()
    ));
    until("it writes", || cli.read("first").filter(|text| text == "1"));
    cli.call(["settle"]).ok();
    check_author(&cli, "first", "s", "process");
    open(&parent);
    agent.does("wait");
    agent.after("c1");
    open(&writes);
    until("it writes again", || cli.read("between").filter(|text| text == "2"));
    cli.write("a", "a person's, beside it");
    agent.before("c2");
    check_author(&cli, "between", "s", "process");
    check_author(&cli, "a", "person", "process");
    agent.after("c2");
    agent.hook("Stop", json!({}));
    open(&ends);
    // Nobody could have made it but the session: it goes with its turn.
    cli.call(["undo"]).ok();
    assert_eq!((cli.read("first"), cli.read("between")), (None, None));
    assert_eq!(cli.read("a").as_deref(), Some("a person's, beside it"));
    stop(&cli, watcher);
}

#[test]
fn what_was_left_running_and_had_not_written_yet_is_known_by_its_agents_mark() {
    let cli = Cli::adopted(&[("a", "0")]);
    let Some(watcher) = watched(&cli, "what was left running, marked") else { return };
    let (writes, ends) = (gate(&cli, "writes"), gate(&cli, "ends"));
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    agent.does(&format!(
        "CLAUDECODE=1 sh -c '(read x < {}; printf 2 > late; read x < {}) &'",
        writes.display(),
        ends.display()
    ));
    agent.after("c1");
    agent.hook("Stop", json!({}));
    open(&writes);
    until("it writes", || cli.read("late").filter(|text| text == "2"));
    cli.call(["settle"]).ok();
    check_author(&cli, "late", "s", "process");
    open(&ends);
    // After its turn had ended: it goes with the last one all the same.
    cli.call(["undo", "turn:1"]).ok();
    assert_eq!(cli.read("late"), None);
    stop(&cli, watcher);
}

#[test]
fn a_tree_that_a_person_removes_or_moves_during_a_call_is_the_persons_to_the_last_file() {
    let names: Vec<String> = (0..200)
        .flat_map(|at| [format!("gone/{at}/a/x"), format!("old/{at}/y"), format!("stays/{at}")])
        .collect();
    let files: Vec<_> = names.iter().map(|name| (&name[..], "0")).collect();
    let cli = Cli::adopted(&files);
    let Some(watcher) = watched(&cli, "a tree that a person removes") else { return };
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    fs::remove_dir_all(cli.root().join("gone")).expect("rm -rf");
    fs::rename(cli.root().join("old"), cli.root().join("new")).expect("mv");
    agent.does("printf s > stays/7");
    agent.after("c1");
    agent.hook("Stop", json!({}));
    let log = cli.call(["log", "--json", "--turn", "1"]).ok();
    let changes: Vec<Value> = log
        .json_lines()
        .iter()
        .flat_map(|snapshot| snapshot["changes"].as_array().expect("changes").clone())
        .filter(|change| change["path"] != "stays")
        .collect();
    let paths: Vec<_> = changes.iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["stays/7"], "only that is the agent's");
    for path in ["gone/199/a/x", "gone/0/a", "gone", "old/5/y", "new/5/y"] {
        check_author(&cli, path, "person", "process");
    }
    stop(&cli, watcher);
}

#[test]
fn what_chronicle_itself_wrote_is_nobodys() {
    let cli = Cli::adopted(&[("a", "0")]);
    let Some(watcher) = watched(&cli, "what Chronicle itself wrote") else { return };
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    agent.does("printf 1 > a");
    agent.after("c1");
    agent.hook("Stop", json!({}));
    cli.call(["undo", "turn:1"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("0"));
    agent.does("printf 2 > a");
    cli.call(["settle"]).ok();
    check_author(&cli, "a", "s", "process");
    stop(&cli, watcher);
}

/// Somebody's random work on a tree that is all his, also with what lies beside the workspace.
struct Work<'c> {
    cli: &'c Cli,
    dice: Dice,
    step: usize,
}

impl Work<'_> {
    fn content(&mut self) -> String {
        self.step += 1;
        format!("version {}", self.step)
    }

    /// Any directory of the tree, also its top.
    fn directory(&mut self) -> PathBuf {
        let top = self.cli.root().join("person");
        let mut found = vec![top.clone()];
        found.extend(crate::support::listing(&top).into_iter().filter(|path| path.is_dir()));
        self.dice.pick(&found).clone()
    }

    fn entry(&mut self) -> Option<PathBuf> {
        let found = crate::support::listing(&self.cli.root().join("person"));
        self.dice.pick_any(&found).cloned()
    }

    fn name(&mut self) -> String {
        (*self.dice.pick(&["a", "b", "c", "d", "e"])).to_owned()
    }

    fn one(&mut self) {
        let (directory, name, content) = (self.directory(), self.name(), self.content());
        let target = directory.join(name);
        // What does not go (a file where a directory is, a directory into itself) is left out.
        match self.dice.below(8) {
            0 | 1 => drop(fs::write(&target, content)),
            2 => {
                let _ = fs::create_dir_all(target.join("n/m"));
                let _ = fs::write(target.join("n/m/new"), content);
            }
            3 | 4 => {
                let from = self.entry();
                from.into_iter().for_each(|from| drop(fs::rename(from, &target)));
            }
            5 => remove(&target),
            6 => {
                let outside = beside(self.cli, "outside");
                remove(&outside);
                let _ = fs::rename(&target, &outside);
            }
            _ => {
                let outside = beside(self.cli, "outside");
                let _ = fs::create_dir_all(outside.join("in"));
                let _ = fs::write(outside.join("in/side"), &content);
                let _ = fs::rename(&outside, &target);
                let _ = fs::write(target.join("in/side"), content + ", and more");
            }
        }
    }
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

/// Whose the changes of paths are that are newer than those seen before.
fn authors(cli: &Cli, seen: &mut BTreeSet<String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for snapshot in cli.call(["log", "--json"]).ok().json_lines() {
        let id = snapshot["id"].as_str().expect("an id").to_owned();
        if !seen.insert(id) {
            continue;
        }
        for change in snapshot["changes"].as_array().expect("changes") {
            let text = |key: &str| change[key].as_str().expect("text").to_owned();
            let author = match &change["candidates"] {
                Value::Null => text("author"),
                both => both.to_string(),
            };
            found.insert(text("path"), format!("{author} by {}", text("evidence")));
        }
    }
    found
}

#[test]
fn random_work_at_once_is_never_put_down_to_the_wrong_one() {
    let cli = Cli::adopted(&[("person/a", "0"), ("agent/a", "0"), ("both/a", "0")]);
    let Some(watcher) = watched(&cli, "random work at once") else { return };
    let seed = setting("CHRONICLE_SEED", 1);
    let mut work = Work { cli: &cli, dice: Dice::new(seed), step: 0 };
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    let (mut seen, mut known, mut unknown) = (BTreeSet::new(), 0, 0);
    authors(&cli, &mut seen);
    for round in 0..setting("CHRONICLE_CASES", 100).div_ceil(5) {
        agent.before(&format!("c{round}"));
        let mut both: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for _ in 0..work.dice.between(5, 40) {
            let (name, content) = (work.name(), work.content());
            match work.dice.below(12) {
                0 => agent.does(&format!("printf '{content}' > agent/{name}")),
                1 | 2 => {
                    let file = *work.dice.pick(&["both/a", "both/b"]);
                    let person = work.dice.chance(50);
                    match person {
                        true => cli.write(file, &content),
                        false => agent.does(&format!("printf '{content}' > {file}")),
                    }
                    both.entry(file).or_default().insert(if person { "person" } else { "s" });
                }
                _ => work.one(),
            }
        }
        agent.after(&format!("c{round}"));
        for (path, author) in authors(&cli, &mut seen) {
            // Where directories take each other's places the watcher knows nothing for a moment.
            if !author.ends_with("by process") {
                unknown += 1;
                continue;
            }
            known += 1;
            let expected = match path.split('/').next().expect("a name") {
                "person" => "person by process".to_owned(),
                "agent" => "s by process".to_owned(),
                _ => match both.get(&path[..]).map(|who| who.iter().collect::<Vec<_>>()) {
                    Some(who) if who.len() == 1 => format!("{} by process", who[0]),
                    Some(_) => "[\"person\",\"s\"] by process".to_owned(),
                    None => continue,
                },
            };
            assert_eq!(author, expected, "{path} in round {round} of seed {seed}");
        }
    }
    assert!(known > 3 * unknown, "{known} known, {unknown} not, with seed {seed}");
    stop(&cli, watcher);
}

#[test]
fn a_writer_that_is_gone_is_not_guessed() {
    let cli = Cli::adopted(&[("a", "0")]);
    let Some(watcher) = watched(&cli, "a writer that is gone") else { return };
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    rustix::process::kill_process(watcher, rustix::process::Signal::STOP).expect("ours");
    // By the time the watcher reads of it, nobody can tell who that was.
    let status = Command::new("sh").args(["-c", "echo 1 > a"]).current_dir(cli.root()).status();
    assert!(status.expect("a shell").success());
    rustix::process::kill_process(watcher, rustix::process::Signal::CONT).expect("ours");
    agent.after("c1");
    check_author(&cli, "a", "s", "window");
    stop(&cli, watcher);
}

#[test]
fn without_the_privilege_everything_goes_on_by_windows() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let program = cli.command(["watch"]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    command.arg(program.get_program()).arg("watch").current_dir(cli.root()).env_clear();
    command.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !started.is_ok_and(|status| status.success()) {
        return skip("a watcher without the privilege", "setpriv is missing, or nothing to drop");
    }
    let watcher = start(&cli);
    let words = cli.call(["status", "--json"]).ok().json()["watcher"].to_string();
    assert!(words.contains("on: ") && !words.contains("sees who writes"), "{words}");
    follow(&cli);
    let mut agent = Agent::new(&cli, "s");
    agent.prompt("k");
    agent.before("c1");
    agent.does("printf s > a");
    cli.write("b", "a person's, for all one can tell the agent's");
    agent.after("c1");
    check_author(&cli, "a", "s", "window");
    check_author(&cli, "b", "s", "window");
    stop(&cli, watcher);
}
