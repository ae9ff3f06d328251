//! OpenCode: a plugin in its own process, so a thin shim that calls the command.

use super::super::Level;
use super::super::command::HookCommand;
use super::super::content::{Content, Whole, marker};
use super::{PATIENCE_S, Places, Target};

pub(super) const NEXT: &[&str] = &["Start OpenCode anew: it loads plugins at its start"];

/// The shim, but for its first lines. It has no types to declare, so that any JavaScript runtime
/// can run it, the one of its test too.
const SHIM: &str = include_str!("opencode.ts");

pub(super) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    let directory = match level {
        Level::User => places.config.join("opencode/plugins"),
        // Its project plugins are committed ones.
        Level::Project => return None,
        Level::Shared => places.project.join(".opencode/plugins"),
    };
    let text = shim(command);
    let whole = Whole { text, executable: false, agent: command.agent };
    Some(vec![Target { path: directory.join("chronicle.ts"), content: Content::Whole(whole) }])
}

/// The plugin: what to call, then the shim.
pub(in crate::install) fn shim(command: &HookCommand) -> String {
    let words = serde_json::to_string(command.words()).expect("BUG: words are text");
    format!(
        "// {}\n\
         import {{ spawn }} from \"node:child_process\"\n\n\
         const command = {words}\n\
         const strict = {}\n\
         const optional = {}\n\
         const patienceMs = {}\n\n\
         {SHIM}",
        marker(command.agent),
        command.strict,
        command.optional,
        PATIENCE_S * 1000,
    )
}
