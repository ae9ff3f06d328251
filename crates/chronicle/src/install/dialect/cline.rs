//! Cline: one executable file for each event, which is wholly ours.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::{Content, Whole, marker};
use super::{Event, Places, Target};

pub(super) const EVENTS: &[Event] = &[
    Event::beside("TaskStart"),
    Event::beside("TaskResume"),
    Event::beside("UserPromptSubmit"),
    Event::before("PreToolUse"),
    Event::beside("PostToolUse"),
    Event::beside("TaskComplete"),
    Event::beside("TaskCancel"),
];

pub(super) const NEXT: &[&str] = &[
    "Needs Cline 3 with hooks enabled: Settings, Features, Enable Hooks",
    "Tested with recorded payloads, not with Cline itself",
];

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let directory = match level {
        Level::User => places.home.join("Documents/Cline/Hooks"),
        // Its project hooks are committed ones.
        Level::Project => return None,
        Level::Shared => places.project.join(".clinerules/hooks"),
    };
    let target = |event: &Event| Target {
        path: directory.join(event.name),
        content: Content::Whole(Whole {
            text: script(command),
            executable: true,
            agent: command.agent,
        }),
    };
    Some(EVENTS.iter().map(target).collect())
}

fn script(command: &HookCommand) -> String {
    let line = command.line("echo '{}'");
    let line = if command.optional { line } else { format!("exec {line}") };
    format!("#!/bin/sh\n# {}\n{line}\n", marker(command.agent))
}
