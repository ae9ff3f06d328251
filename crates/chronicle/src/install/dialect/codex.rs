//! Codex: a file of hooks beside each of its settings, which may have turned hooks off.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::Content;
use super::super::json::object;
use super::super::settings::Hooks;
use super::{Event, Places, Target, entries, group};

pub(super) const EVENTS: &[Event] = &[
    Event::beside("SessionStart"),
    Event::beside("UserPromptSubmit"),
    Event::before("PreToolUse"),
    Event::beside("PostToolUse"),
    Event::beside("SubagentStart"),
    Event::beside("SubagentStop"),
    Event::beside("Stop"),
    Event::end("SessionEnd"),
];

pub(super) const NEXT: &[&str] = &[
    "Start Codex and trust the hooks again with /hooks: their hash is new, and until then it skips them",
];

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let directory = match level {
        Level::User => places.codex.clone(),
        // Its project settings are committed ones.
        Level::Project => return None,
        Level::Shared => places.project.join(".codex"),
    };
    Some(vec![
        Target { path: directory.join("hooks.json"), content: Content::Hooks(hooks(command)) },
        Target { path: directory.join("config.toml"), content: Content::Feature },
    ])
}

pub(super) fn hooks(command: &HookCommand) -> Hooks {
    let entries = entries(command, EVENTS, |command, event| {
        group(object([
            ("type", "command".into()),
            ("command", command.line("exit 0").into()),
            ("timeout", event.patience_s().into()),
        ]))
    });
    Hooks { agent: command.agent, preamble: Vec::new(), entries }
}
