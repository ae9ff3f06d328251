//! Cursor: a file of hooks, flat lists, seconds, and a switch to fail closed.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::Content;
use super::super::json::{Json, object, push};
use super::super::settings::Hooks;
use super::{Event, Places, Target, entries};

pub(super) const EVENTS: &[Event] = &[
    Event::beside("sessionStart"),
    Event::beside("beforeSubmitPrompt"),
    Event::before("preToolUse"),
    Event::beside("postToolUse"),
    Event::beside("postToolUseFailure"),
    Event::beside("subagentStart"),
    Event::beside("subagentStop"),
    Event::beside("stop"),
    Event::end("sessionEnd"),
];

pub(super) const NEXT: &[&str] = &[
    "Needs Cursor 3 (preToolUse); hooks of a project run only in a workspace that you trust",
    "Tested with recorded payloads, not with Cursor itself",
];

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let path = match level {
        Level::User => places.home.join(".cursor/hooks.json"),
        // Its project hooks are committed ones.
        Level::Project => return None,
        Level::Shared => places.project.join(".cursor/hooks.json"),
    };
    Some(vec![Target { path, content: Content::Hooks(hooks(command)) }])
}

pub(super) fn hooks(command: &HookCommand) -> Hooks {
    let entries = entries(command, EVENTS, handler);
    Hooks { agent: command.agent, preamble: vec![("version", 1_u32.into())], entries }
}

fn handler(command: &HookCommand, event: Event) -> Json {
    let mut handler = object([
        ("command", command.line("echo '{}'").into()),
        ("timeout", event.patience_s().into()),
    ]);
    if event.blocks(command) {
        push(&mut handler, "failClosed", true);
    }
    handler
}
