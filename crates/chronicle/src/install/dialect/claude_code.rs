//! Claude Code: settings in three places, handlers in groups, seconds, and a policy for failures.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::Content;
use super::super::json::{Json, list, object, push};
use super::super::settings::Hooks;
use super::{Event, Places, Target, entries, group};

pub(super) const EVENTS: &[Event] = &[
    Event::beside("SessionStart"),
    Event::beside("UserPromptSubmit"),
    Event::before("PreToolUse"),
    Event::beside("PostToolUse"),
    Event::beside("PostToolUseFailure"),
    Event::beside("PostToolBatch"),
    Event::beside("SubagentStart"),
    Event::beside("SubagentStop"),
    Event::beside("Stop"),
    Event::beside("ConfigChange"),
    Event::end("SessionEnd"),
];

pub(super) const NEXT: &[&str] = &[
    "Start Claude Code anew: a running session keeps the hooks it began with; /hooks lists them",
    "To let it roll back its own work when asked: claude mcp add chronicle -- chronicle mcp",
];

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let path = match level {
        Level::User => places.claude.join("settings.json"),
        Level::Project => places.project.join(".claude/settings.local.json"),
        Level::Shared => places.project.join(".claude/settings.json"),
    };
    Some(vec![Target { path, content: Content::Hooks(hooks(command)) }])
}

pub(super) fn hooks(command: &HookCommand) -> Hooks {
    let entries = entries(command, EVENTS, |command, event| group(handler(command, event)));
    Hooks { agent: command.agent, preamble: Vec::new(), entries }
}

fn handler(command: &HookCommand, event: Event) -> Json {
    let mut handler = object([("type", "command".into())]);
    match command.words() {
        // Without a shell, so that nothing has to be quoted.
        [program, arguments @ ..] if !command.optional => {
            push(&mut handler, "command", program.as_str());
            push(&mut handler, "args", list(arguments.iter().map(|word| word.as_str().into())));
        }
        _ => push(&mut handler, "command", command.line("exit 0")),
    }
    push(&mut handler, "timeout", event.patience_s());
    if event.blocks(command) {
        push(&mut handler, "onFailure", "block");
    }
    handler
}
