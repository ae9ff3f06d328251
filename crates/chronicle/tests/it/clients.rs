//! One turn by each real client, driven offline by a scripted model, with everything that agents do
//! to a project: edit tools, `sed -i`, `rm -rf`, `mv`, `git clean -fdx`, a writer in the background,
//! and a sub-agent where the client has one.
//!
//! A listening hook shows what a client reports; the installed ones, that its turn is taken back
//! exactly, whole and in part; and without them there is nothing to take back.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod project;

use std::fs;
use std::path::{Path, PathBuf};

use chronicle_testing::clients::{Action, Client, Desk, Ended, Scope};
use chronicle_testing::env::Env;
use chronicle_testing::model::{Call, Exchange, Model, PLAN, Reply, Script, Turn};
use chronicle_testing::shared::skip;
use chronicle_testing::tree::{Options, Tree, describe_with, differences};
use serde_json::{Value, json};

use project::{ENDING, PROMPT};

macro_rules! client_tests {
    ($($client:ident: $variant:ident,)*) => {
        $(mod $client {
            use super::*;

            #[test]
            fn reports_every_event() {
                all_events_arrive(Client::$variant);
            }

            #[test]
            fn a_turn_is_taken_back_whole_and_in_part() {
                hooks_protect(Client::$variant, Scope::User);
            }

            #[test]
            fn is_told_what_was_taken_back() {
                news_arrive(Client::$variant);
            }

            #[test]
            fn is_told_also_in_the_middle_of_a_turn() {
                news_arrive_within(Client::$variant);
            }

            #[test]
            fn without_its_hooks_nothing_can_be_taken_back() {
                no_hooks_no_protection(Client::$variant);
            }
        })*
    };
}

client_tests! {
    claude_code: ClaudeCode,
    codex: Codex,
    gemini: Gemini,
    opencode: OpenCode,
}

/// A file that the person writes when the client has ended.
const AFTERWARDS: &str = "afterwards.txt";

/// Only Claude Code has settings of one person for one project; they are not committed, so that the
/// turn itself deletes them.
#[test]
fn hooks_of_the_project_outlive_git_clean() {
    hooks_protect(Client::ClaudeCode, Scope::Project);
}

/// A person's second prompt is answered through the MCP server: the model previews, and applies what it
/// has previewed, of its own conversation.
#[test]
fn roll_that_back_is_answered_through_mcp() {
    let client = Client::ClaudeCode;
    let program = match client.find() {
        Ok(program) => program,
        Err(why) => return skip(&format!("{} client", client.name()), &why),
    };
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let project = env.workspace();
    project::make(&project);
    let wreck = format!("cd '{}' && rm -rf doomed && git clean -fdxq", project.display());
    let turn = |prompt: &str, steps| Turn {
        prompt: prompt.to_owned(),
        steps,
        ending: "all done".to_owned(),
    };
    let model = Model::start(Script {
        turns: vec![
            turn("Tidy up, please.", vec![vec![Call::new("Bash", json!({"command": wreck}))]]),
            turn(
                "Roll that back.",
                vec![
                    vec![Call::new("mcp__chronicle__preview", json!({"action": "undo"}))],
                    vec![Call::new("mcp__chronicle__undo", json!({"plan_id": PLAN}))],
                ],
            ),
        ],
    });
    let desk = Desk { program: &program, home: env.base(), project: &project, model: &model };
    desk.settle_in();
    env.ok(&["install", client.name(), "--user"]);
    let before = State::of(&env);
    let server = json!({"mcpServers": {"chronicle": {
        "command": env.binary(), "args": ["mcp"], "env": {"CHRONICLE_HOME": env.home()},
    }}});
    let config = env.base().join("mcp.json");
    fs::write(&config, server.to_string()).unwrap();
    let config = config.to_str().expect("the scratch directory is text");
    let more = ["--mcp-config", config, "--allowedTools", "Bash,mcp__chronicle"];
    let first = desk.run_with("Tidy up, please.", &more);
    assert!(!project.join("doomed").exists(), "{}\n{}", first.output, model.transcript());
    let second = desk.run_with("Roll that back.", &[&more[..], &["--continue"]].concat());
    let left = before.differences(&env);
    assert_eq!(left, "", "{}\n{}", second.output, model.transcript());
}

/// The person takes a turn back, and goes on with the same conversation: the model reads of it in the
/// very next request, once.
fn news_arrive(client: Client) {
    let program = match client.find() {
        Ok(program) => program,
        Err(why) => return skip(&format!("{} client", client.name()), &why),
    };
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let project = env.workspace();
    project::make(&project);
    let wreck = format!("cd '{}' && rm -rf doomed", project.display());
    let turn =
        |prompt: &str, steps| Turn { prompt: prompt.to_owned(), steps, ending: ENDING.to_owned() };
    // The news repeat the prompt's first line, so the script must know the prompt by its second.
    let (key, second, third) = ("The doomed can go.", "And what is next?", "Anything else?");
    let first = format!("Tidy up, please.\n{key}");
    let model = Model::start(Script {
        turns: vec![
            turn(key, vec![vec![client.call(Action::Shell(&wreck), &project)]]),
            turn(second, Vec::new()),
            turn(third, Vec::new()),
        ],
    });
    let desk = Desk { program: &program, home: env.base(), project: &project, model: &model };
    desk.settle_in();
    env.ok(&["install", client.name(), "--user"]);
    let ran = desk.run(&first);
    let story = |ran: &Ended| format!("{}\n{}", ran.output, model.transcript());
    assert!(!project.join("doomed").exists(), "{}", story(&ran));
    env.ok(&["rewind", "before:turn:1", "--yes"]);
    assert!(project.join("doomed/tracked.txt").exists());
    let go_on = |prompt: &str| {
        let before = model.exchanges().len();
        let ran = desk.go_on(prompt);
        let answered = |exchange: &Exchange| {
            exchange.reply == Some(Reply::Text(ENDING.to_owned())) && !exchange.tools.is_empty()
        };
        let newest = model.exchanges().split_off(before).into_iter().rfind(answered);
        let asked = newest.unwrap_or_else(|| panic!("nothing was asked: {}", story(&ran))).body;
        let asked = asked.to_string();
        assert!(asked.contains(key) && asked.contains(prompt), "another one: {}", story(&ran));
        (asked.matches("work of this conversation was taken back").count(), asked)
    };
    let (told, asked) = go_on(second);
    assert_eq!(told, 1, "{asked}");
    for word in ["rewind: to just before turn 1", "doomed/tracked.txt", "read them again"] {
        assert!(asked.contains(word), "{word} is not in {asked}");
    }
    // Some keep what they were told with the conversation; nobody is told twice.
    let (told, asked) = go_on(third);
    assert!(told <= 1, "{asked}");
}

/// A turn takes back its own beginning: what the hook of the next tool says reaches the model before the
/// turn ends.
fn news_arrive_within(client: Client) {
    let program = match client.find() {
        Ok(program) => program,
        Err(why) => return skip(&format!("{} client", client.name()), &why),
    };
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let project = env.workspace();
    project::make(&project);
    let script = env.base().join("take-back.sh");
    let take_back = format!(
        "export CHRONICLE_HOME='{home}'\n'{program}' undo --dry-run --json > '{plan}' || exit 1\n\
         id=$(sed 's/.*\"plan_id\": *\"\\([^\"]*\\)\".*/\\1/' '{plan}' | head -1)\n\
         '{program}' undo --plan \"$id\" --yes\n",
        home = env.home().display(),
        program = env.binary().display(),
        plan = env.base().join("plan.json").display(),
    );
    fs::write(&script, take_back).unwrap();
    let shell = |command: &str| {
        let command = format!("cd '{}' && {command}", project.display());
        vec![client.call(Action::Shell(&command), &project)]
    };
    let steps =
        vec![shell("rm -rf doomed"), shell(&format!("sh '{}'", script.display())), shell("true")];
    let turn = Turn { prompt: PROMPT.to_owned(), steps, ending: ENDING.to_owned() };
    let model = Model::start(Script { turns: vec![turn] });
    let desk = Desk { program: &program, home: env.base(), project: &project, model: &model };
    desk.settle_in();
    env.ok(&["install", client.name(), "--user"]);
    let ran = desk.run(PROMPT);
    let story = format!("{}\n{}", ran.output, model.transcript());
    assert!(project.join("doomed/tracked.txt").exists(), "{story}");
    let last = model.exchanges().into_iter().rfind(|exchange| !exchange.tools.is_empty());
    let asked = last.expect("something was asked").body.to_string();
    let words = "work of this conversation was taken back";
    assert_eq!(asked.matches(words).count(), 1, "{asked}\n{story}");
}

/// A turn that was played, and the project before and after it.
struct Played {
    env: Env,
    before: State,
    after: State,
    /// Which client, what it printed, what its model was asked.
    story: String,
}

/// Everything that must come back: the files with all their times, and the repository.
#[derive(Clone)]
struct State {
    tree: Tree,
    repository: String,
}

/// Plays the turn, after a preparation that may install hooks; `None` if the client is missing.
fn play(client: Client, scope: Scope, prepare: impl FnOnce(&Env, &Desk<'_>)) -> Option<Played> {
    let program = match client.find() {
        Ok(program) => program,
        Err(why) => {
            skip(&format!("{} client", client.name()), &why);
            return None;
        }
    };
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let project = env.workspace();
    project::make(&project);
    let model = Model::start(project::script(client, &project, scope));
    let desk = Desk { program: &program, home: env.base(), project: &project, model: &model };
    desk.settle_in();
    prepare(&env, &desk);
    let before = State::of(&env);
    let ended = desk.run(PROMPT);
    let story = format!(
        "{} {} ended with {:?}\n{}\n{}",
        client.name(),
        program.version,
        ended.status,
        ended.output,
        model.transcript()
    );
    assert!(ended.status.is_some_and(|status| status.success()), "{story}");
    let last = model.exchanges().into_iter().filter_map(|exchange| exchange.reply).next_back();
    assert_eq!(last, Some(Reply::Text(ENDING.to_owned())), "{story}");
    project::is_wrecked(client, &project).unwrap_or_else(|why| panic!("{why}\n{story}"));
    // The person works on. The turn is over, so this is nobody's but theirs.
    env.write(AFTERWARDS, "mine\n");
    let after = State::of(&env);
    let before = before.with(AFTERWARDS.as_bytes(), &after);
    Some(Played { env, before, after, story })
}

impl State {
    fn of(env: &Env) -> Self {
        // What counts in a repository is what it means to git, not the times of git's own files.
        // OpenCode keeps files of its own beside its settings, and writes them when it starts.
        let skip = vec![b".git".to_vec(), b".opencode".to_vec()];
        let options = Options { skip, all_times: true, ..Options::default() };
        let project = env.workspace();
        let repository = project::repository(&project);
        Self { tree: describe_with(&project, &options), repository }
    }

    /// How the project differs from this now; empty if it does not.
    fn differences(&self, env: &Env) -> String {
        let now = Self::of(env);
        let mut lines = differences(&self.tree, &now.tree);
        if self.repository != now.repository {
            lines.push(format!("git: want {:?}, got {:?}", self.repository, now.repository));
        }
        lines.join("\n")
    }

    /// This, but with the other's part at or below a path.
    fn with(&self, path: &[u8], other: &State) -> Self {
        let mut tree = self.tree.without(path);
        tree.nodes.extend(other.tree.part(path).nodes);
        Self { tree, ..self.clone() }
    }
}

// --- what a client reports -------------------------------------------------------------------

fn all_events_arrive(client: Client) {
    let log = "events.jsonl";
    let played = play(client, Scope::User, |env, desk| {
        desk.listen(Scope::User, &env.base().join(log));
    });
    let Some(played) = played else { return };
    let text = fs::read_to_string(played.env.base().join(log)).unwrap_or_default();
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect();
    let reported: Vec<_> = events.iter().filter_map(report).collect();
    let expected = project::reports(client, &played.env.workspace());
    assert_eq!(reported, expected, "{}", played.story);
    has_one_key(client, &events);
    if std::env::var_os("CHRONICLE_RECORD").is_some() {
        record(client, &text, &played.env);
    }
}

/// The fixtures are a record of this very turn, or whoever reads them learns something else.
#[test]
fn recorded_events_are_those_of_the_turn() {
    for client in Client::ALL {
        let text = fs::read_to_string(recorded(client)).unwrap();
        let events: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let reported: Vec<_> = events.iter().filter_map(report).collect();
        assert_eq!(reported, project::reports(client, Path::new("/home/me/project")));
        has_one_key(client, &events);
    }
}

/// Where the events of a client are kept.
fn recorded(client: Client) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/payloads");
    directory.join(format!("{}.jsonl", client.name()))
}

/// An event in the words of all clients; `None` for those that only one of them has.
fn report(event: &Value) -> Option<String> {
    let name = event["hook_event_name"].as_str().or(event["hook"].as_str())?;
    let tool = || event["tool_name"].as_str().or(event["input"]["tool"].as_str()).unwrap_or("?");
    match name {
        "UserPromptSubmit" | "BeforeAgent" | "chat.message" => Some("prompt".to_owned()),
        "PreToolUse" | "BeforeTool" | "tool.execute.before" => Some(format!("before {}", tool())),
        "PostToolUse" | "AfterTool" | "tool.execute.after" => Some(format!("after {}", tool())),
        "Stop" | "AfterAgent" => Some("end".to_owned()),
        "event" if event["input"]["type"] == "session.idle" => Some("end".to_owned()),
        _ => None,
    }
}

/// The events of a turn can be told from those of another: by its own key where there is one, by
/// the conversation's otherwise.
fn has_one_key(client: Client, events: &[Value]) {
    let key = |event: &Value| match client {
        Client::ClaudeCode => event["prompt_id"].clone(),
        Client::Codex => event["turn_id"].clone(),
        Client::Gemini => event["session_id"].clone(),
        Client::OpenCode => match &event["input"]["sessionID"] {
            Value::Null => event["input"]["properties"]["sessionID"].clone(),
            key => key.clone(),
        },
    };
    let mut keys: Vec<_> = events.iter().filter(|event| report(event).is_some()).map(key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(keys[0].is_string(), "{keys:?}");
}

/// Keeps the events as fixtures, with a person's usual paths.
fn record(client: Client, events: &str, env: &Env) {
    let dashed = |path: &str| path.replace(['/', '.'], "-");
    let (base, project) = (env.base().display().to_string(), env.workspace().display().to_string());
    let renamed = events
        .replace(&project, "/home/me/project")
        .replace(&base, "/home/me")
        .replace(&dashed(&project), "-home-me-project")
        .replace("/.gemini/tmp/ws/", "/.gemini/tmp/project/");
    fs::write(recorded(client), renamed).unwrap();
}

// --- what the installed hooks are for --------------------------------------------------------

fn hooks_protect(client: Client, scope: Scope) {
    let played = play(client, scope, |env, _| {
        env.ok(&["install", client.name(), option(scope)]);
    });
    let Some(played) = played else { return };
    let checks = played.middle_comes_back().and_then(|()| played.all_comes_back());
    checks.unwrap_or_else(|why| panic!("{why}\n{}\n{}", played.log(), played.story));
}

fn no_hooks_no_protection(client: Client) {
    let played = play(client, Scope::User, |env, _| {
        env.ok(&["install", client.name(), "--user"]);
        env.ok(&["uninstall", client.name(), "--user"]);
    });
    let Some(played) = played else { return };
    for check in [played.middle_comes_back(), played.all_comes_back()] {
        let why = check.expect_err("there is nothing to take back");
        assert_eq!(played.after.differences(&played.env), "", "{why}\n{}", played.story);
    }
}

fn option(scope: Scope) -> &'static str {
    match scope {
        Scope::User => "--user",
        Scope::Project => "--project",
    }
}

impl Played {
    /// Takes back one action of the turn, `rm -rf` of a directory, and then changes its mind.
    fn middle_comes_back(&self) -> Result<(), String> {
        let id = self.snapshot_that_deleted("doomed/tracked.txt").ok_or("it is in no snapshot")?;
        self.chronicle(&["undo", &id, "--yes"])?;
        self.is("the middle undone", &self.after.with(b"doomed", &self.before))?;
        self.chronicle(&["redo", "--yes"])?;
        self.is("the middle redone", &self.after)
    }

    /// Takes back the whole turn, and then changes its mind.
    fn all_comes_back(&self) -> Result<(), String> {
        // The writer in the background may write between two calls, when a person could have written
        // too: then only a person can say that it goes.
        self.chronicle(&["undo", "--shared", "take", "--yes"])?;
        self.is("the turn undone", &self.before)?;
        self.chronicle(&["redo", "--yes"])?;
        self.is("the turn redone", &self.after)?;
        self.chronicle(&["verify", "--deep"])
    }

    /// The snapshot of an agent's action that deleted a path.
    fn snapshot_that_deleted(&self, path: &str) -> Option<String> {
        let deleted = |change: &Value| change["path"] == path && change["change_type"] == "deleted";
        let log = self.env.ok(&["log", "--json"]);
        log.lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line of the log is JSON"))
            .filter(|snapshot| !snapshot["turn"].is_null())
            .find(|snapshot| snapshot["changes"].as_array().unwrap().iter().any(deleted))
            .map(|snapshot| snapshot["id"].as_str().unwrap().to_owned())
    }

    fn chronicle(&self, words: &[&str]) -> Result<(), String> {
        let ran = self.env.run(words);
        if ran.is_done() { Ok(()) } else { Err(ran.story()) }
    }

    fn is(&self, what: &str, state: &State) -> Result<(), String> {
        match state.differences(&self.env) {
            lines if lines.is_empty() => Ok(()),
            lines => Err(format!("{what}:\n{lines}")),
        }
    }

    fn log(&self) -> String {
        self.env.run(&["log"]).story()
    }
}
