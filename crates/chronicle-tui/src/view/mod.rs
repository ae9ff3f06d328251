//! The state as a picture: the same state and the same size give the same cells.

mod changes;
mod help;
mod rewind;
mod search;
mod timeline;
mod tree;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::doc::{DocView, LineKind};
use crate::model::{Asks, Focus, Model, Popup, Screen};
use crate::shown::{cells, fit, width};
use crate::theme::{Look, Theme};

pub(crate) use help::HELP;
pub(crate) use rewind::HEAD as REWIND_HEAD;

/// How many columns the list takes where its document stands beside it.
pub(crate) fn list_width(columns: u16) -> u16 {
    (columns * 2 / 5).clamp(40, 70)
}

/// Where things are drawn, and how they look.
pub(crate) struct Canvas<'b> {
    buffer: &'b mut Buffer,
    theme: Theme,
}

impl Canvas<'_> {
    /// Draws text from a column on, at most so wide; gives the columns that it took.
    fn text(&mut self, x: u16, y: u16, room: u16, text: &str, look: Look) -> u16 {
        self.part(x, y, room, text, 0, &|_| look)
    }

    /// Draws a part of a line, from one of its columns on, each piece as its place in the text says.
    fn part(
        &mut self,
        x: u16,
        y: u16,
        room: u16,
        text: &str,
        left: usize,
        look: &dyn Fn(usize) -> Look,
    ) -> u16 {
        let area = self.buffer.area;
        let room = room.min(area.right().saturating_sub(x));
        if y >= area.bottom() || room == 0 {
            return 0;
        }
        let mut column = 0;
        for cell in cells(text, left..left + usize::from(room)) {
            let wide = u16::from(cell.width);
            if column + wide > room {
                break;
            }
            let look = if cell.is_mark { Look::Mark } else { look(cell.at) };
            let style = self.theme.style(look);
            self.buffer[(x + column, y)].set_symbol(&cell.symbol).set_style(style);
            if wide == 2 {
                self.buffer[(x + column + 1, y)].set_symbol(" ").set_style(style);
            }
            column += wide;
        }
        column
    }

    /// Draws text that ends at a column.
    fn right(&mut self, end: u16, y: u16, text: &str, look: Look) {
        let wide = u16::try_from(width(text)).unwrap_or(u16::MAX).min(end);
        self.text(end - wide, y, wide, text, look);
    }

    /// Lays a style over a part of a row.
    fn over(&mut self, x: u16, y: u16, wide: u16, style: Style) {
        let area = Rect { x, y, width: wide, height: 1 }.intersection(self.buffer.area);
        self.buffer.set_style(area, style);
    }

    fn chosen(&mut self, area: Rect, y: u16) {
        self.over(area.x, y, area.width, self.theme.chosen());
    }

    /// Empties an area.
    fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.buffer.area);
        for y in area.top()..area.bottom() {
            for x in area.left()..area.right() {
                self.buffer[(x, y)].reset();
            }
        }
    }
}

/// Draws everything.
pub(crate) fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    let mut canvas = Canvas { buffer, theme: model.theme };
    canvas.clear(area);
    if area.width == 0 || area.height == 0 {
        return;
    }
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area };
    let (title, right) = match model.stack.last() {
        None => timeline::title(model),
        Some(Screen::Changes(it)) => changes::title(it),
        Some(Screen::Tree(it)) => tree::title(it),
        Some(Screen::Content(it)) => tree::content_title(it),
        Some(Screen::Search(it)) => search::title(it),
        Some(Screen::Rewind(it)) => rewind::title(model, it),
    };
    bar(&mut canvas, area, &title, &right);
    match model.stack.last() {
        None => timeline::draw(&mut canvas, model, body),
        Some(Screen::Changes(it)) => changes::draw(&mut canvas, model, it, body),
        Some(Screen::Tree(it)) => tree::draw(&mut canvas, it, body),
        Some(Screen::Content(it)) => tree::draw_content(&mut canvas, it, body),
        Some(Screen::Search(it)) => search::draw(&mut canvas, it, body),
        Some(Screen::Rewind(it)) => rewind::draw(&mut canvas, model, it, body),
    }
    if area.height > 1 {
        last_line(&mut canvas, model, area);
    }
    help::popup(&mut canvas, model, area);
}

/// The first line: where one is, and what there is to know of it.
fn bar(canvas: &mut Canvas<'_>, area: Rect, title: &str, right: &str) {
    let taken = u16::try_from(width(right)).unwrap_or(u16::MAX);
    let room = area.width.saturating_sub(taken + 3);
    let shown = fit(title, usize::from(room));
    canvas.text(area.x + 1, area.y, room, &shown, Look::Title);
    if taken + 2 < area.width {
        canvas.right(area.right() - 1, area.y, right, Look::Faint);
    }
    let style = Style::new().add_modifier(ratatui::style::Modifier::UNDERLINED);
    canvas.over(area.x, area.y, area.width, style);
}

/// The last line: a question, something to say, or the keys that matter here.
fn last_line(canvas: &mut Canvas<'_>, model: &Model, area: Rect) {
    let y = area.bottom() - 1;
    if let Some(Popup::Input(input)) = &model.popup {
        let asks = match input.asks {
            Asks::TimelineFilter => "Only what touched the path: ",
            Asks::ListFilter => "Only names with: ",
            Asks::Pattern => "Search every version for (regex): ",
            Asks::Glob => "Only in files like (glob): ",
        };
        let taken = canvas.text(area.x + 1, y, area.width, asks, Look::Strong);
        let room = area.width.saturating_sub(taken + 3);
        let over = width(&input.text).saturating_sub(usize::from(room));
        let x = area.x + 1 + taken;
        let end = canvas.part(x, y, room, &input.text, over, &|_| Look::Plain);
        canvas.text(x + end, y, 1, "_", Look::Strong);
        return;
    }
    if let Some(notice) = &model.notice {
        let look = if notice.is_error { Look::Warning } else { Look::Strong };
        canvas.text(area.x + 1, y, area.width - 1, &notice.words, look);
        return;
    }
    let mut x = area.x + 1;
    let end = area.right().saturating_sub(8);
    canvas.right(area.right().saturating_sub(1), y, "? help", Look::Faint);
    for (key, words) in hints(model) {
        let need = u16::try_from(key.len() + words.len() + 2).unwrap_or(u16::MAX);
        if x + need > end {
            break;
        }
        x += canvas.text(x, y, area.width, key, Look::Strong) + 1;
        x += canvas.text(x, y, area.width, words, Look::Faint) + 2;
    }
}

/// The keys that matter where one is, the most important first.
fn hints(model: &Model) -> Vec<(&'static str, &'static str)> {
    match model.stack.last() {
        None => vec![
            ("enter", "changes"),
            ("space", "fold"),
            ("r", "rewind"),
            ("f", "files"),
            ("/", "path"),
            ("s", "search"),
            ("q", "quit"),
        ],
        Some(Screen::Changes(it)) if it.focus == Focus::Doc => vec![
            ("j k", "scroll"),
            ("] [", "hunk"),
            ("n p", "file"),
            ("t", "through time"),
            ("r", "rewind"),
            ("esc", "list"),
        ],
        Some(Screen::Changes(_)) => vec![
            ("enter", "diff"),
            ("v", "view"),
            ("t", "through time"),
            ("r", "rewind file"),
            ("/", "filter"),
            ("esc", "back"),
        ],
        Some(Screen::Tree(_)) => vec![
            ("enter", "open"),
            ("h", "up"),
            ("t", "through time"),
            ("/", "filter"),
            ("q", "back"),
        ],
        Some(Screen::Content(_)) => vec![("j k", "scroll"), ("h l", "sideways"), ("esc", "back")],
        Some(Screen::Search(_)) => {
            vec![("enter", "file through time"), ("s", "pattern"), ("/", "files"), ("esc", "back")]
        }
        Some(Screen::Rewind(it)) if it.focus == Focus::Doc => {
            vec![("j k", "scroll"), ("n p", "file"), ("esc", "list")]
        }
        Some(Screen::Rewind(it)) if it.report.is_some() => {
            vec![("u", "take it back"), ("enter", "diff"), ("esc", "done")]
        }
        Some(Screen::Rewind(_)) => vec![
            ("y", "apply"),
            ("space", "choose"),
            ("a", "all"),
            ("enter", "diff"),
            ("c", "conflicts"),
            ("e", "exact"),
            ("esc", "cancel"),
        ],
    }
}

/// Words in the middle of an empty area.
fn note(canvas: &mut Canvas<'_>, area: Rect, words: &str, look: Look) {
    for (row, line) in words.lines().enumerate() {
        let y = area.y + u16::try_from(row).unwrap_or(0) + u16::from(area.height > 2);
        if y < area.bottom() {
            canvas.text(area.x + 2, y, area.width.saturating_sub(3), line, look);
        }
    }
}

/// Draws a document: numbers, signs, and the words that changed.
fn doc(canvas: &mut Canvas<'_>, view: &DocView, area: Rect) {
    let digits = view.doc.number_width();
    let gutter = if area.width > 60 { u16::try_from(digits).unwrap_or(3) + 1 } else { 0 };
    let end = view.doc.lines.len().min(view.top + usize::from(area.height));
    for (row, index) in (view.top..end).enumerate() {
        let y = area.y + u16::try_from(row).unwrap_or(0);
        let line = &view.doc.lines[index];
        let (sign, look, word) = match line.kind {
            LineKind::Plain => (" ", Look::Plain, Look::Plain),
            LineKind::Heading => ("", Look::Strong, Look::Strong),
            LineKind::Hunk => ("", Look::Hunk, Look::Hunk),
            LineKind::Added => ("+", Look::Added, Look::AddedWord),
            LineKind::Removed => ("-", Look::Removed, Look::RemovedWord),
            LineKind::Note => ("", Look::Faint, Look::Faint),
        };
        let number = line.numbers.1.max(line.numbers.0);
        if gutter > 0 && number > 0 {
            canvas.right(area.x + gutter - 1, y, &number.to_string(), Look::Faint);
        }
        let x = area.x + gutter + canvas.text(area.x + gutter, y, 1, sign, look);
        let words = view.doc.changed_words(index);
        let look = |at: usize| if words.iter().any(|it| it.contains(&at)) { word } else { look };
        canvas.part(x, y, area.right().saturating_sub(x), &line.text, view.left, &look);
    }
}

/// How far one is, of so many.
fn place(selected: usize, length: usize) -> String {
    match length {
        0 => String::new(),
        _ => format!("{}/{length}", selected + 1),
    }
}

/// `just now`, `3 min`, `2 days`.
fn ago(seconds: i64, now: i64) -> String {
    match now.saturating_sub(seconds) {
        past if past < 5 => "now".to_owned(),
        past => chronicle_core::shown::span(past.unsigned_abs()),
    }
}
