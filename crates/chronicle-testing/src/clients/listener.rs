//! A hook that only listens: it keeps every event that a client sends, word for word.
//!
//! It shows what a client really reports, with nothing of Chronicle in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Client, Desk, Scope, read_json, write};

const CLAUDE_CODE_EVENTS: &[&str] = &[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "SessionEnd",
];
const CODEX_EVENTS: &[&str] =
    &["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"];
const GEMINI_EVENTS: &[&str] =
    &["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"];

/// The plugin's own words for what OpenCode passes to its functions; `LOG` stands for the file.
const OPEN_CODE_PLUGIN: &str = r#"import { appendFileSync } from "node:fs"
const keep = (hook, input, output) =>
  appendFileSync("LOG", JSON.stringify({ hook, input, output }) + "\n")
export const Listener = async ({ directory, worktree }) => {
  keep("init", { directory, worktree })
  return {
    "chat.message": async (input, output) => keep("chat.message", input, output),
    "tool.execute.before": async (input, output) => keep("tool.execute.before", input, output),
    "tool.execute.after": async (input, output) => keep("tool.execute.after", input, output),
    event: async ({ event }) => {
      if (["session.created", "session.idle", "session.error"].includes(event.type))
        keep("event", event)
    },
  }
}
"#;

/// Makes a client report every event into a file.
pub(super) fn install(desk: &Desk<'_>, scope: Scope, log: &Path) {
    let client = desk.program.client;
    let path = settings(client, scope, desk.home, desk.project);
    let events = match client {
        Client::ClaudeCode => CLAUDE_CODE_EVENTS,
        Client::Codex => CODEX_EVENTS,
        Client::Gemini => GEMINI_EVENTS,
        Client::OpenCode => {
            let plugin = OPEN_CODE_PLUGIN.replace("LOG", &log.display().to_string());
            return write(&path, &plugin);
        }
    };
    // Gemini wants JSON from every hook.
    let answer = if client == Client::Gemini { "echo '{}'\n" } else { "" };
    merge(&path, "hooks", hooks(events, &script(desk.home, log, answer)));
}

/// The file in which this client looks for hooks.
fn settings(client: Client, scope: Scope, home: &Path, project: &Path) -> PathBuf {
    match (client, scope) {
        (Client::ClaudeCode, Scope::User) => home.join(".claude/settings.json"),
        (Client::ClaudeCode, Scope::Project) => project.join(".claude/settings.local.json"),
        (Client::Codex, Scope::User) => home.join(".codex/hooks.json"),
        (Client::Codex, Scope::Project) => project.join(".codex/hooks.json"),
        (Client::Gemini, Scope::User) => home.join(".gemini/settings.json"),
        (Client::Gemini, Scope::Project) => project.join(".gemini/settings.json"),
        (Client::OpenCode, Scope::User) => home.join(".config/opencode/plugins/listener.js"),
        (Client::OpenCode, Scope::Project) => project.join(".opencode/plugins/listener.js"),
    }
}

fn hooks(events: &[&str], script: &Path) -> Value {
    let hook = json!({"type": "command", "command": script.display().to_string()});
    let entry = json!([{"matcher": "", "hooks": [hook]}]);
    let entry = |event: &&str| ((*event).to_owned(), entry.clone());
    Value::Object(events.iter().map(entry).collect())
}

/// Sets one key of a settings file and keeps the others.
fn merge(path: &Path, key: &str, value: Value) {
    let mut settings = read_json(path).unwrap_or(Value::Object(Map::new()));
    settings[key] = value;
    write(path, &settings.to_string());
}

fn script(home: &Path, log: &Path, answer: &str) -> PathBuf {
    let path = home.join("listener");
    let text = format!(
        "#!/bin/sh\nevent=$(cat)\nprintf '%s\\n' \"$event\" >>'{}'\n{answer}",
        log.display()
    );
    write(&path, &text);
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, executable).expect("a file of ours can be made executable");
    path
}
