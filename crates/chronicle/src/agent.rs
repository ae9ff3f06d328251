//! The agents that Chronicle knows by name.

use clap::ValueEnum;

/// An agent whose hooks Chronicle answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code
    ClaudeCode,
    /// Codex CLI
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenCode
    Opencode,
    /// Cursor
    Cursor,
    /// GitHub Copilot CLI
    Copilot,
    /// Cline
    Cline,
}

impl Agent {
    /// Every one of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Gemini,
        Self::Opencode,
        Self::Cursor,
        Self::Copilot,
        Self::Cline,
    ];

    /// The agent of that name, without asking clap: hooks are called often.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    /// The word for it on the command line, in hooks and in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
            Self::Copilot => "copilot",
            Self::Cline => "cline",
        }
    }

    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Opencode => "OpenCode",
            Self::Cursor => "Cursor",
            Self::Copilot => "GitHub Copilot CLI",
            Self::Cline => "Cline",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_word_on_the_command_line() {
        assert_eq!(Agent::value_variants(), Agent::ALL);
        for agent in Agent::value_variants() {
            let word = agent.to_possible_value().expect("no agent is hidden");
            assert_eq!(word.get_name(), agent.name());
        }
    }
}
