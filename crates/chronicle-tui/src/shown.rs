//! Text as cells of a terminal: nothing of it can act, and every cell has a known width.

use std::ops::Range;

use chronicle_core::shown::needs_escape;
use unicode_width::UnicodeWidthChar;

/// How many marks one letter may carry before the rest is shown beside it.
const MARKS: u8 = 3;
/// How far apart tabs stop.
const TAB: usize = 8;

/// One or more columns of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// What stands there; never a control character.
    pub(crate) symbol: String,
    /// How many columns it takes: 1 or 2.
    pub(crate) width: u8,
    /// Whether it stands for something that cannot be shown as it is.
    pub(crate) is_mark: bool,
    /// Where in the text it begins, in bytes.
    pub(crate) at: usize,
}

/// The cells of a line from one column on, as many as fit; a wide letter that is cut is a blank.
pub(crate) fn cells(text: &str, columns: Range<usize>) -> Vec<Cell> {
    let mut line = Line { cells: Vec::new(), column: 0, columns, marks: 0 };
    for (at, c) in text.char_indices() {
        if line.column >= line.columns.end && c.width() != Some(0) {
            break;
        }
        line.push(at, c);
    }
    line.cells
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    let mut column = 0;
    let mut marks = 0;
    for c in text.chars() {
        column += columns_of(c, column, &mut marks);
    }
    column
}

fn columns_of(c: char, column: usize, marks: &mut u8) -> usize {
    if c == '\t' {
        return TAB - column % TAB;
    }
    if needs_escape(c) {
        return c.escape_default().count();
    }
    match c.width().unwrap_or(0) {
        0 if column > 0 && *marks < MARKS => {
            *marks += 1;
            0
        }
        0 => c.escape_unicode().count(),
        columns => {
            *marks = 0;
            columns
        }
    }
}

struct Line {
    cells: Vec<Cell>,
    column: usize,
    columns: Range<usize>,
    marks: u8,
}

impl Line {
    fn push(&mut self, at: usize, c: char) {
        if c == '\t' {
            for _ in 0..TAB - self.column % TAB {
                self.put(at, " ", 1, false);
            }
        } else if needs_escape(c) {
            c.escape_default().for_each(|c| self.put(at, c.encode_utf8(&mut [0; 4]), 1, true));
        } else {
            match c.width().unwrap_or(0) {
                0 => self.push_mark(at, c),
                width => {
                    self.marks = 0;
                    self.put(at, c.encode_utf8(&mut [0; 4]), width, false);
                }
            }
        }
    }

    /// A mark goes onto the letter before it; one without a letter, or one too many, is told.
    fn push_mark(&mut self, at: usize, c: char) {
        if self.column == 0 || self.marks >= MARKS {
            c.escape_unicode().for_each(|c| self.put(at, c.encode_utf8(&mut [0; 4]), 1, true));
            return;
        }
        self.marks += 1;
        // The letter may lie left of what is seen.
        if let Some(cell) = self.cells.last_mut().filter(|cell| !cell.is_mark) {
            cell.symbol.push(c);
        }
    }

    fn put(&mut self, at: usize, symbol: &str, width: usize, is_mark: bool) {
        let begin = self.column;
        self.column += width;
        let seen = begin >= self.columns.start && self.column <= self.columns.end;
        if seen {
            let width = if width == 2 { 2 } else { 1 };
            self.cells.push(Cell { symbol: symbol.to_owned(), width, is_mark, at });
            return;
        }
        // Half of a wide letter at either edge.
        let cut = begin < self.columns.end && self.column > self.columns.start;
        if cut {
            self.cells.push(Cell { symbol: " ".to_owned(), width: 1, is_mark: false, at });
        }
    }
}

/// Cuts text to a width at its end, with a mark.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let kept = cells(text, 0..columns.saturating_sub(2));
    kept.iter().map(|cell| cell.symbol.as_str()).collect::<String>() + &".."[..columns.min(2)]
}

/// Cuts text to a width at its start: the end of a path says more.
pub(crate) fn fit_path(text: &str, columns: usize) -> String {
    let whole = width(text);
    if whole <= columns {
        return text.to_owned();
    }
    let kept = cells(text, whole - columns.saturating_sub(2)..whole);
    let kept: String = kept.iter().map(|cell| cell.symbol.as_str()).collect();
    format!("{}{kept}", &".."[..columns.min(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, columns: Range<usize>, expected: &str) {
        let room = columns.len();
        let cells = cells(text, columns);
        assert!(cells.iter().all(|cell| !cell.symbol.chars().any(char::is_control)), "{text:?}");
        assert!(cells.iter().map(|cell| usize::from(cell.width)).sum::<usize>() <= room);
        assert_eq!(cells.iter().map(|cell| &cell.symbol[..]).collect::<String>(), expected);
    }

    #[test]
    fn nothing_that_acts_gets_through() {
        check("a\u{1b}[2Jb", 0..80, "a\\u{1b}[2Jb");
        check("x\0y\u{7}\r\n", 0..80, "x\\u{0}y\\u{7}\\r\\n");
        check("\u{9b}31m", 0..80, "\\u{9b}31m");
        check("a\u{202e}b", 0..80, "a\\u{202e}b");
    }

    #[test]
    fn tabs_and_wide_letters_keep_their_columns() {
        check("a\tb", 0..80, "a       b");
        check("漢字x", 0..3, "漢 ");
        check("漢字x", 1..5, " 字x");
        check("漢字x", 2..4, "字");
        assert_eq!(width("漢字\tx"), 9);
    }

    #[test]
    fn marks_sit_on_their_letter_but_not_in_crowds() {
        check("e\u{301}x", 0..80, "e\u{301}x");
        check("\u{301}x", 0..80, "\\u{301}x");
        let crowd = format!("e{}", "\u{301}".repeat(5));
        check(&crowd, 0..80, "e\u{301}\u{301}\u{301}\\u{301}\\u{301}");
        assert_eq!(width(&crowd), 15);
    }

    #[test]
    fn long_text_is_cut_where_it_says_least() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdefgh", 6), "abcd..");
        assert_eq!(fit_path("a/b/c/d.rs", 7), "../d.rs"[..].to_owned());
        assert_eq!(fit("abc", 1), ".");
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn a_line_of_a_megabyte_is_read_only_as_far_as_it_is_seen() {
        let line = "x".repeat(1 << 20);
        assert_eq!(cells(&line, 0..80).len(), 80);
        assert_eq!(cells(&line, 1_000_000..1_000_080).len(), 80);
    }
}
