//! What an agent's hook tells, the same for every agent.

use std::path::PathBuf;

/// One event with the conversation it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) session: String,
    /// The agent's own name for the turn, where it has one.
    pub(crate) turn_key: Option<String>,
    pub(crate) sub_agent: Option<String>,
    /// Where the agent works.
    pub(crate) directory: PathBuf,
    /// Where the client keeps the conversation, if it says so.
    pub(crate) transcript: Option<PathBuf>,
    /// The agent's own name for the event, which some answers must repeat.
    pub(crate) name: String,
    pub(crate) event: Event,
}

/// What happened, or is about to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The person said something: a turn begins.
    Prompt(Option<String>),
    /// A tool is about to be used.
    Before(Tool),
    /// A tool was used.
    After(Tool),
    /// All tools of one answer were used, with these calls.
    BatchEnd(Vec<String>),
    /// The agent is done; whether it left a task running.
    Stop { task: bool },
    /// The agent is about to read this file of its settings again.
    Settings(PathBuf),
    /// Nothing that concerns files.
    Nothing,
}

/// A tool and what it touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) call_id: Option<String>,
    pub(crate) reach: Reach,
    /// The command line, where it is a shell.
    pub(crate) command: Option<String>,
    /// It runs on after its call has ended.
    pub(crate) in_background: bool,
}

/// What a tool can touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// No files.
    Nothing,
    /// These files, as it named them.
    Named(Vec<PathBuf>),
    /// Anything.
    Anything,
}
