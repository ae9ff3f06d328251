//! What agents do outside: recorded by the hooks and by `run`, listed before anything is taken back; and
//! checkpoints before what destroys data.

use serde_json::{Value, json};

use crate::hooks::{Talk, call};
use crate::support::Cli;
use crate::terminal::Terminal;

fn bash(command: &str) -> Value {
    json!({"command": command})
}

/// A whole call of a shell that leaves this in the file.
fn shell(cli: &Cli, talk: &Talk<'_>, id: &str, command: &str, content: &str) {
    talk.before("Bash", id, bash(command));
    cli.write("a", content);
    talk.after("Bash", id, bash(command));
    talk.batch();
}

fn listed(plan: &Value) -> Vec<&str> {
    let all = plan["irreversible"].as_array().expect("a list");
    all.iter().map(|kept| kept["path"].as_str().expect("a path")).collect()
}

#[test]
fn what_an_agent_does_outside_is_listed_before_it_is_gone_back_over() {
    for agent in ["claude-code", "codex"] {
        let cli = Cli::adopted(&[("a", "1\n")]);
        let talk = Talk::new(&cli, agent, "s");
        talk.prompt("k1");
        shell(&cli, &talk, "c1", "make", "2\n");
        talk.stop();
        talk.prompt("k2");
        shell(&cli, &talk, "c2", "cd . && A=1 git push origin main 2>&1 | tail", "3\n");
        talk.before("mcp__mail__send", "c3", json!({"to": "x"}));
        talk.after("mcp__mail__send", "c3", json!({"to": "x"}));
        talk.batch();
        let status = cli.call(["status", "--json"]).ok().json();
        assert_eq!(status["effects"][0]["what"], "git push origin main", "{agent}");
        assert!(cli.call(["status"]).ok().stdout.contains("1 effect that cannot be taken back"));
        talk.stop();
        let plan = cli.call(["rewind", "turn:1", "--dry-run", "--json"]).ok().json();
        assert_eq!(listed(&plan), ["git push origin main"], "{agent}");
        assert!(plan["irreversible"][0]["reason"].as_str().expect("words").contains("turn 2"));
        let words = cli.call(["undo", "--dry-run"]).ok();
        assert!(words.stdout.contains("stays    git push origin main"), "{}", words.stdout);
        let log = cli.call(["log"]).ok().stdout;
        assert_eq!(log.matches("(effect)").count(), 1, "{log}");
        let snapshots = cli.call(["log", "--json"]).ok().json_lines();
        let pushed = snapshots.iter().find(|one| one["call_id"] == "c2").expect("the call");
        assert_eq!(pushed["effects"][0]["kind"], "outside");
        let id = pushed["id"].as_str().expect("an id");
        let shown = cli.call(["show", id]).ok().stdout;
        assert!(shown.contains("git push origin main: outside, cannot be taken back"), "{shown}");
        // The exit status is what it always was, and the words come before anything changes.
        let done = cli.call(["rewind", "turn:1"]).ok();
        assert!(done.stderr.contains("stays    git push origin main"), "{}", done.stderr);
        assert_eq!(cli.read("a").as_deref(), Some("2\n"));
        let plan = cli.call(["redo", "--dry-run", "--json"]).ok().json();
        assert_eq!(listed(&plan), ["git push origin main"]);
        cli.call(["verify"]).ok();
    }
}

#[test]
fn tools_are_named_in_the_settings() {
    let cli =
        Cli::adopted(&[("a", "1\n"), ("chronicle.toml", "[effects]\ntools = ['mcp__mail__*']\n")]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k");
    talk.before("mcp__mail__send", "c", json!({"to": "x"}));
    talk.after("mcp__mail__send", "c", json!({"to": "x"}));
    talk.batch();
    talk.stop();
    let plan = cli.call(["rewind", "before:turn:1", "--dry-run", "--json"]).ok().json();
    assert_eq!(listed(&plan), ["mcp__mail__send"]);
}

#[test]
fn on_a_terminal_a_person_is_asked_before_going_back_over_an_effect() {
    let cli = Cli::adopted(&[("a", "1\n"), ("deploy.sh", "echo 2 > a\n")]);
    cli.write("chronicle.toml", "[effects]\ncommands = ['deploy.sh']\n");
    cli.call(["run", "--", "sh", "deploy.sh"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("2\n"));
    let terminal = Terminal::new();
    terminal.type_in("n\r");
    let (screen, status) = terminal.run(cli.command(["undo"]));
    assert_eq!(status, 3, "{screen}");
    assert!(screen.contains("stays    deploy.sh"), "{screen}");
    assert!(screen.contains("goes back over 1 effect that cannot be taken back"), "{screen}");
    assert_eq!(cli.read("a").as_deref(), Some("2\n"));
    cli.call(["undo"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("1\n"));
}

/// A checkpoint that cannot be made stops what is strict, and never goes unsaid.
#[test]
fn without_its_checkpoint_a_strict_hook_blocks_and_others_say_so() {
    let settings = "[checkpoint.when]\nmigrations = true\n[[checkpoint.part]]\nname = 'x'\nsqlite = 'x.db'\ndriver = 'none'\n";
    let event = call("Bash", "c", bash("npx prisma migrate reset --force"));
    for agent in ["claude-code", "codex"] {
        let cli = Cli::adopted(&[("a", "1\n"), ("chronicle.toml", settings)]);
        let strict = Talk::strict(&cli, agent);
        let blocked = strict.send("PreToolUse", event.clone()).exits(2);
        let expected = "the checkpoint before prisma migrate reset --force could not be made";
        assert!(blocked.stderr.contains(expected), "{}", blocked.stderr);
        let calls = cli.call(["log", "--json"]).ok().json_lines();
        assert!(calls.iter().all(|one| one["call_id"] != "c"), "it never began: {calls:?}");
        let lenient = Talk::new(&cli, agent, "t");
        let warned = lenient.send("PreToolUse", event.clone()).exits(1);
        assert!(warned.stderr.contains(expected), "{}", warned.stderr);
        let calls = cli.call(["log", "--json"]).ok().json_lines();
        let begun = calls.iter().find(|one| one["call_id"] == "c").expect("it began");
        let note = begun["effects"][0]["note"].as_str().expect("what became of the checkpoint");
        assert!(note.starts_with("no checkpoint was made before it"), "{note}");
        // What is not matched goes on as ever.
        strict.before("Bash", "d", bash("npx prisma generate"));
        let refused = cli.call(["run", "--", "dropdb", "app"]).exits(125);
        assert!(refused.stderr.contains("The command was not run"), "{}", refused.stderr);
    }
}

const PARTS: &str = "[[checkpoint.part]]\nname = 'data'\ndirectory = 'data'\n";

fn checkpoints(cli: &Cli) -> Vec<Value> {
    let list = cli.call(["checkpoint", "list", "--json"]).ok().json();
    list["checkpoints"].as_array().expect("a list").clone()
}

#[test]
fn a_checkpoint_comes_before_what_destroys_data() {
    for agent in ["claude-code", "codex"] {
        let cli = Cli::adopted(&[("a", "1\n"), ("data/rows", "1\n"), ("chronicle.toml", PARTS)]);
        let talk = Talk::new(&cli, agent, "s");
        talk.prompt("k");
        shell(&cli, &talk, "c1", "make", "2\n");
        assert_eq!(checkpoints(&cli).len(), 0, "{agent}");
        shell(&cli, &talk, "c2", "cd . && poetry run alembic downgrade base", "3\n");
        talk.stop();
        let made = checkpoints(&cli);
        assert_eq!(made.len(), 1, "{agent}: {made:?}");
        let summary = made[0]["summary"].as_str().expect("a summary");
        assert!(summary.contains("before alembic downgrade base"), "{summary}");
        let calls = cli.call(["log", "--json"]).ok().json_lines();
        let call = calls.iter().find(|one| one["call_id"] == "c2").expect("the call");
        assert!(made[0]["seq"].as_u64() < call["seq"].as_u64(), "it came first");
        let effect = &call["effects"][0];
        assert_eq!(effect["kind"], "data");
        let (note, id) = (effect["note"].as_str(), made[0]["short_id"].as_str().expect("an id"));
        assert!(note.is_some_and(|note| note.contains(id)), "{effect}");
        let plan = cli.call(["undo", "--dry-run", "--json"]).ok().json();
        assert_eq!(listed(&plan), ["alembic downgrade base"]);
        cli.call(["verify"]).ok();
    }
}

#[test]
fn a_checkpoint_is_made_every_so_many_turns() {
    let settings = format!("{PARTS}[checkpoint.when]\nevery_turns = 2\n");
    let cli = Cli::adopted(&[("a", "1\n"), ("data/rows", "1\n"), ("chronicle.toml", &settings)]);
    let talk = Talk::new(&cli, "claude-code", "s");
    let mut made = Vec::new();
    for turn in 0..5 {
        talk.prompt(&format!("k{turn}"));
        talk.edit(&format!("c{turn}"), "a", &format!("{turn}\n"));
        talk.edit(&format!("d{turn}"), "b", &format!("{turn}\n"));
        talk.stop();
        made.push(checkpoints(&cli).len());
    }
    assert_eq!(made, [1, 1, 2, 2, 3]);
}
