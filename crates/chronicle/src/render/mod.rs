//! Views as text for people: pure, from the values that `--json` prints as they are.

pub(crate) mod diff;
pub(crate) mod log;
pub(crate) mod plan;
pub(crate) mod status;
pub(crate) mod time;

use std::borrow::Cow;

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

/// Text that cannot make a terminal do anything: control characters (but tabs) and marks that
/// change the order of what is shown become escapes. Text that was escaped before stays the same.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !needs_escape(c);
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if harmless(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    Cow::Owned(shown)
}

fn needs_escape(c: char) -> bool {
    let marks = ['\u{200b}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2060}'..='\u{2069}'];
    let reorders = c == '\u{feff}' || marks.iter().any(|range| range.contains(&c));
    c != '\t' && (c.is_control() || reorders)
}

/// `1 file`, `2 files`, `1,234 files`.
pub(crate) fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ if one.ends_with("entry") => format!("{} {}ies", grouped(number), &one[..one.len() - 1]),
        _ => format!("{} {one}s", grouped(number)),
    }
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `512 B`, `3.4 KiB`, `1.2 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
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
    fn hostile_text_is_shown_harmless_and_only_once() {
        assert_eq!(printable("a\tb ä \\n"), "a\tb ä \\n");
        assert_eq!(printable("\u{1b}[2J"), "\\u{1b}[2J");
        assert_eq!(printable(&printable("x\n")), "x\\n");
    }

    #[test]
    fn numbers_read_easily() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(1000, "file"), "1,000 files");
        assert_eq!(size(512), "512 B");
        assert_eq!(size(3482), "3.4 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
    }

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
