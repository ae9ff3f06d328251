//! Each agent's way of being told about hooks, as data: where, which events, in what words.

mod claude_code;
mod cline;
mod codex;
mod copilot;
mod cursor;
mod gemini;
mod opencode;

use std::path::PathBuf;

use super::Level;
use super::command::HookCommand;
use super::content::Content;
use super::json::{Json, list, object};
use super::settings::Hooks;
use crate::agent::Agent;

pub(super) use opencode::shim;

/// How long an agent waits for a hook. A capture that takes longer has its own, shorter budget.
const PATIENCE_S: u32 = 30;
/// How long it waits at a session's end, where the person waits too; Codex allows no more.
const PATIENCE_AT_END_S: u32 = 3;

/// Where settings lie on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The person's home.
    pub(crate) home: PathBuf,
    /// The project.
    pub(crate) project: PathBuf,
    /// Claude Code's directory.
    pub(crate) claude: PathBuf,
    /// Codex's directory.
    pub(crate) codex: PathBuf,
    /// Copilot's directory.
    pub(crate) copilot: PathBuf,
    /// The directory of settings in general.
    pub(crate) config: PathBuf,
}

/// One file and what has to be in it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

/// An event that an agent tells hooks about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    name: &'static str,
    when: When,
}

/// What an event is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Before a tool runs: the one that can block it.
    Before,
    /// Any other.
    Beside,
    /// The session's end.
    End,
}

impl Event {
    const fn before(name: &'static str) -> Self {
        Self { name, when: When::Before }
    }

    const fn beside(name: &'static str) -> Self {
        Self { name, when: When::Beside }
    }

    const fn end(name: &'static str) -> Self {
        Self { name, when: When::End }
    }

    fn patience_s(self) -> u32 {
        if self.when == When::End { PATIENCE_AT_END_S } else { PATIENCE_S }
    }

    /// Whether a failed hook has to stop what comes next.
    fn blocks(self, command: &HookCommand) -> bool {
        command.strict && self.when == When::Before
    }
}

/// What has to be where, so that the agent calls the command; `None` if the agent has no settings
/// of this level.
pub(crate) fn targets(level: Level, places: &Places, command: &HookCommand) -> Option<Vec<Target>> {
    match command.agent {
        Agent::ClaudeCode => claude_code::targets(level, places, command),
        Agent::Codex => codex::targets(level, places, command),
        Agent::Gemini => gemini::targets(level, places, command),
        Agent::Opencode => opencode::targets(level, places, command),
        Agent::Cursor => cursor::targets(level, places, command),
        Agent::Copilot => copilot::targets(level, places, command),
        Agent::Cline => cline::targets(level, places, command),
    }
}

/// What the person has to know or do next.
pub(crate) fn next_steps(agent: Agent, level: Level) -> Vec<&'static str> {
    let mut next = own_next_steps(agent, level);
    if level == Level::Project {
        next.push(
            "The file is yours alone: keep it out of commits, for example in .git/info/exclude",
        );
    }
    next
}

fn own_next_steps(agent: Agent, level: Level) -> Vec<&'static str> {
    match agent {
        Agent::ClaudeCode => claude_code::NEXT.to_vec(),
        Agent::Codex => codex::NEXT.to_vec(),
        Agent::Gemini => gemini::NEXT.to_vec(),
        Agent::Opencode => opencode::NEXT.to_vec(),
        Agent::Cursor => cursor::NEXT.to_vec(),
        Agent::Copilot => copilot::next(level),
        Agent::Cline => cline::NEXT.to_vec(),
    }
}

/// The hooks of an agent that keeps them in JSON, for a file of hooks alone.
pub(super) fn hooks(command: &HookCommand) -> Option<Hooks> {
    match command.agent {
        Agent::ClaudeCode => Some(claude_code::hooks(command)),
        Agent::Codex => Some(codex::hooks(command)),
        Agent::Gemini => Some(gemini::hooks(command)),
        Agent::Cursor => Some(cursor::hooks(command)),
        Agent::Copilot => Some(copilot::hooks(command)),
        Agent::Opencode | Agent::Cline => None,
    }
}

/// `{"hooks": [handler]}`, the form of those who group handlers by what they match; without a
/// matcher it is everything.
fn group(handler: Json) -> Json {
    object([("hooks", list([handler]))])
}

fn entries(
    command: &HookCommand,
    events: &[Event],
    entry: fn(&HookCommand, Event) -> Json,
) -> Vec<(&'static str, Json)> {
    events.iter().map(|event| (event.name, entry(command, *event))).collect()
}
