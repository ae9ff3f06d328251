//! Gemini CLI: handlers in groups, milliseconds, and nothing but JSON on stdout.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::Content;
use super::super::json::object;
use super::super::settings::Hooks;
use super::{Event, Places, Target, entries, group};

pub(super) const EVENTS: &[Event] = &[
    Event::beside("SessionStart"),
    Event::beside("BeforeAgent"),
    Event::before("BeforeTool"),
    Event::beside("AfterTool"),
    Event::beside("AfterAgent"),
    Event::end("SessionEnd"),
];

pub(super) const NEXT: &[&str] =
    &["Start Gemini CLI anew; hooks of a project run only in a folder that you trust"];

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let path = match level {
        Level::User => places.home.join(".gemini/settings.json"),
        // Its project settings are committed ones.
        Level::Project => return None,
        Level::Shared => places.project.join(".gemini/settings.json"),
    };
    Some(vec![Target { path, content: Content::Hooks(hooks(command)) }])
}

pub(super) fn hooks(command: &HookCommand) -> Hooks {
    let entries = entries(command, EVENTS, |command, event| {
        group(object([
            ("type", "command".into()),
            ("name", "chronicle".into()),
            ("command", command.line("echo '{}'").into()),
            // Milliseconds here.
            ("timeout", (event.patience_s() * 1000).into()),
        ]))
    });
    Hooks { agent: command.agent, preamble: Vec::new(), entries }
}
