//! Views as text for people: pure, from the values that `--json` prints as they are.

pub(crate) mod diff;
pub(crate) mod log;
pub(crate) mod plan;
pub(crate) mod status;
pub(crate) mod time;

use std::borrow::Cow;

pub(crate) use chronicle_core::shown::{count, grouped, printable, size};

/// How to draw: on what, how wide, with colour or without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    pub(crate) color: bool,
    /// Whether the text goes to a terminal, which must not be made to obey what a file holds.
    pub(crate) terminal: bool,
    pub(crate) width: usize,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Style {
    Added,
    Removed,
    Heading,
    Id,
    Faint,
    Warning,
}

impl Paint {
    /// Plain text of a fixed width.
    #[cfg(test)]
    pub(crate) fn plain(width: usize) -> Self {
        Self { color: false, terminal: false, width }
    }

    /// The text in its style.
    pub(crate) fn text<'t>(&self, style: Style, text: &'t str) -> Cow<'t, str> {
        if !self.color || text.is_empty() {
            return Cow::Borrowed(text);
        }
        let code = match style {
            Style::Added => "32",
            Style::Removed => "31",
            Style::Heading => "1",
            Style::Id => "33",
            Style::Faint => "2",
            Style::Warning => "35",
        };
        Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m"))
    }

    /// Content of files: as it is for a program, harmless for a terminal.
    pub(crate) fn content<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.terminal { printable(text) } else { Cow::Borrowed(text) }
    }
}

/// Cuts text to a width, at its end.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    Cow::Owned(kept + "...")
}

/// Cuts text to a width, at its start: the end of a path says more.
pub(crate) fn fit_path(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().skip(length - width.saturating_sub(3)).collect();
    Cow::Owned(format!("...{kept}"))
}

/// The last part of an id, as people type it.
pub(crate) fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_where_it_says_least() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdefgh", 6), "abc...");
        assert_eq!(fit_path("a/b/c/d.rs", 7), "...d.rs");
    }

    #[test]
    fn colour_is_left_out_where_it_is_not_wanted() {
        assert_eq!(Paint::plain(80).text(Style::Added, "+"), "+");
        let paint = Paint { color: true, terminal: true, width: 80 };
        assert_eq!(paint.text(Style::Added, "+"), "\x1b[32m+\x1b[0m");
    }
}
