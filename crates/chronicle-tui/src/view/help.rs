//! What lies over a screen: the help, the menu, the last question.

use ratatui::layout::Rect;

use super::Canvas;
use crate::model::{Model, Popup};
use crate::shown::{fit, width};
use crate::theme::Look;

/// Every key and what it does; a line without a key is a heading.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("", "Everywhere"),
    ("j k, arrows", "one row down, up"),
    ("^D ^U, PgDn PgUp", "half a page, a page"),
    ("g G, Home End", "first, last"),
    ("enter l, click", "open what is chosen"),
    ("esc h, q", "back; q on the timeline leaves"),
    ("s", "search every version of every file"),
    ("m", "give the mouse to the terminal, and take it again"),
    ("^L  ^Z  ^C", "draw again, suspend, leave"),
    ("", "Timeline"),
    ("space", "show or hide what a turn did"),
    ("n p", "next, previous turn"),
    ("enter", "the files it changed"),
    ("f", "all files just after it"),
    ("r", "take it back, or rewind to it"),
    ("/", "only what touched a path: a part of it, or a glob"),
    ("", "Changes and versions"),
    ("enter", "the diff; n p go on to the next file"),
    ("] [", "next, previous hunk"),
    ("l h, 0", "sideways, to the beginning of lines"),
    ("v", "the whole file at that moment"),
    ("t", "the file through time"),
    ("r R", "take back this file; all of it"),
    ("/", "only names with these letters"),
    ("", "Taking back"),
    ("space a", "choose a file; all or none"),
    ("enter", "what becomes of it, or both sides of a conflict"),
    ("c", "conflicts: stop, keep what is there, take the target's"),
    ("e", "exact: keep nothing of what others did"),
    ("S", "take also what several could have made"),
    ("o", "take the work of all sessions"),
    ("y", "apply exactly this plan, after a question"),
    ("u", "afterwards: take it back again"),
];

pub(super) fn popup(canvas: &mut Canvas<'_>, model: &Model, area: Rect) {
    match &model.popup {
        Some(Popup::Help { top }) => help(canvas, *top, area),
        Some(Popup::Menu(menu)) => {
            let lines = menu.choices.iter().enumerate();
            let lines: Vec<_> =
                lines.map(|(index, it)| format!("{}  {}", index + 1, it.words)).collect();
            let inner = frame(canvas, area, &menu.title, &lines);
            let y = inner.y + u16::try_from(menu.selected).unwrap_or(0);
            if y < inner.bottom() {
                canvas.chosen(inner, y);
            }
        }
        Some(Popup::Confirm(confirm)) => {
            let mut lines = confirm.lines.clone();
            lines.push(String::new());
            lines.push("y applies it; any other key changes nothing".to_owned());
            frame(canvas, area, "Apply exactly this plan?", &lines);
        }
        Some(Popup::Input(_)) | None => {}
    }
}

/// A box in the middle with a title and lines; gives the area of the lines.
fn frame(canvas: &mut Canvas<'_>, area: Rect, title: &str, lines: &[String]) -> Rect {
    let widest = lines.iter().map(|line| width(line)).chain([width(title)]).max().unwrap_or(0);
    let wide = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(area.width);
    let high = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX).min(area.height);
    let place = Rect {
        x: area.x + (area.width - wide) / 2,
        y: area.y + (area.height - high) / 2,
        width: wide,
        height: high,
    };
    canvas.clear(place);
    border(canvas, place);
    let room = wide.saturating_sub(4);
    let title = fit(title, usize::from(room));
    canvas.text(place.x + 2, place.y + 1, room, &title, Look::Title);
    let inner = Rect {
        x: place.x + 1,
        y: place.y + 2.min(high),
        width: wide.saturating_sub(2),
        height: high.saturating_sub(3),
    };
    for (row, line) in lines.iter().take(usize::from(inner.height)).enumerate() {
        let y = inner.y + u16::try_from(row).unwrap_or(0);
        canvas.text(inner.x + 1, y, room, &fit(line, usize::from(room)), Look::Plain);
    }
    inner
}

fn border(canvas: &mut Canvas<'_>, place: Rect) {
    let line = format!("+{}+", "-".repeat(usize::from(place.width.saturating_sub(2))));
    canvas.text(place.x, place.y, place.width, &line, Look::Faint);
    canvas.text(place.x, place.bottom().saturating_sub(1), place.width, &line, Look::Faint);
    for y in place.y + 1..place.bottom().saturating_sub(1) {
        canvas.text(place.x, y, 1, "|", Look::Faint);
        canvas.text(place.right().saturating_sub(1), y, 1, "|", Look::Faint);
    }
}

fn help(canvas: &mut Canvas<'_>, top: usize, area: Rect) {
    let place =
        Rect { x: area.x + area.width.saturating_sub(72) / 2, width: area.width.min(72), ..area };
    canvas.clear(place);
    border(canvas, place);
    let room = usize::from(place.height.saturating_sub(2));
    let top = top.min(HELP.len().saturating_sub(room));
    for (row, (key, words)) in HELP.iter().skip(top).take(room).enumerate() {
        let y = place.y + 1 + u16::try_from(row).unwrap_or(0);
        let inside = place.width.saturating_sub(3);
        if key.is_empty() {
            canvas.text(place.x + 2, y, inside, words, Look::Title);
            continue;
        }
        canvas.text(place.x + 4, y, inside.saturating_sub(2).min(17), key, Look::Strong);
        canvas.text(place.x + 22, y, inside.saturating_sub(20), words, Look::Plain);
    }
    let more =
        if top + room < HELP.len() { " j more, any other key closes " } else { " any key closes " };
    canvas.right(place.right().saturating_sub(2), place.bottom() - 1, more, Look::Faint);
}
