//! How things look: sixteen colours at most, or none; words and signs carry the meaning alone.

use ratatui::style::{Color, Modifier, Style};

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Strong,
    Faint,
    Title,
    Added,
    Removed,
    AddedWord,
    RemovedWord,
    Hunk,
    Id,
    Agent,
    SubAgent,
    Person,
    Shell,
    Ours,
    Warning,
    /// What stands for something that cannot be shown.
    Mark,
}

/// Colours or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) color: bool,
}

impl Theme {
    /// The style of a piece of text.
    pub(crate) fn style(self, look: Look) -> Style {
        let style = Style::new();
        if !self.color {
            return match look {
                Look::Strong | Look::Title | Look::Hunk => style.add_modifier(Modifier::BOLD),
                Look::AddedWord | Look::RemovedWord => style.add_modifier(Modifier::UNDERLINED),
                Look::Warning => style.add_modifier(Modifier::BOLD),
                Look::Mark => style.add_modifier(Modifier::UNDERLINED),
                _ => style,
            };
        }
        match look {
            Look::Plain => style,
            Look::Strong => style.add_modifier(Modifier::BOLD),
            Look::Faint => style.fg(Color::DarkGray),
            Look::Title => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            Look::Added => style.fg(Color::Green),
            Look::Removed => style.fg(Color::Red),
            Look::AddedWord => style.fg(Color::Green).add_modifier(Modifier::REVERSED),
            Look::RemovedWord => style.fg(Color::Red).add_modifier(Modifier::REVERSED),
            Look::Hunk => style.fg(Color::Cyan),
            Look::Id => style.fg(Color::Yellow),
            Look::Agent => style.fg(Color::Cyan),
            Look::SubAgent => style.fg(Color::Blue),
            Look::Person => style.fg(Color::Green),
            Look::Shell => style.fg(Color::Yellow),
            Look::Ours => style.fg(Color::Magenta),
            Look::Warning => style.fg(Color::Magenta).add_modifier(Modifier::BOLD),
            Look::Mark => style.fg(Color::Magenta),
        }
    }

    /// What is laid over the chosen row.
    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
