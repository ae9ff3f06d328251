//! GitHub Copilot CLI: files of hooks or settings with hooks in them, flat lists, seconds.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::Content;
use super::super::json::object;
use super::super::settings::Hooks;
use super::{Event, Places, Target, entries};

pub(super) const EVENTS: &[Event] = &[
    Event::beside("sessionStart"),
    Event::beside("userPromptSubmitted"),
    Event::before("preToolUse"),
    Event::beside("postToolUse"),
    Event::beside("postToolUseFailure"),
    Event::beside("subagentStart"),
    Event::beside("subagentStop"),
    Event::beside("agentStop"),
    Event::end("sessionEnd"),
];

pub(super) fn next(level: Level) -> Vec<&'static str> {
    let mut next = vec![
        "Needs Copilot CLI 1.0.102; a hook that takes too long lets the action pass, strict or not",
        "Tested with recorded payloads, not with Copilot itself",
    ];
    if level != Level::User {
        next.push("Hooks of a project run only in a folder that you trust");
    }
    next
}

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let mut hooks = hooks(command);
    let path = match level {
        Level::User => places.copilot.join("hooks/chronicle.json"),
        Level::Project => {
            // These are settings with hooks among them, not a file of hooks.
            hooks.preamble.clear();
            places.project.join(".github/copilot/settings.local.json")
        }
        Level::Shared => places.project.join(".github/hooks/chronicle.json"),
    };
    Some(vec![Target { path, content: Content::Hooks(hooks) }])
}

pub(super) fn hooks(command: &HookCommand) -> Hooks {
    let entries = entries(command, EVENTS, |command, event| {
        object([
            ("type", "command".into()),
            ("bash", command.line("exit 0").into()),
            ("timeoutSec", event.patience_s().into()),
        ])
    });
    Hooks { agent: command.agent, preamble: vec![("version", 1_u32.into())], entries }
}
