//! Changed files, or versions of a file, with the patch of the chosen one.

use chronicle_core::shown::{grouped, size};
use chronicle_core::{EntryView, LineStat};
use ratatui::layout::Rect;

use super::{Canvas, ago, doc, list_width, note, place};
use crate::model::{ChangeRow, Changes, Focus, Model, Of, ShownDoc};
use crate::shown::{fit, fit_path, width};
use crate::theme::Look;

pub(super) fn title(it: &Changes) -> (String, String) {
    let mut facts = Vec::new();
    if !it.filter.is_empty() {
        facts.push(format!("with {}", it.filter));
    }
    let known: Vec<_> = it.counts.values().flatten().collect();
    if !it.rows.is_empty() && known.len() == it.rows.len() && matches!(it.of, Of::Files { .. }) {
        let (inserted, deleted) = known.iter().fold((0, 0), |(inserted, deleted), stat| {
            (inserted + stat.inserted, deleted + stat.deleted)
        });
        facts.push(format!("+{} -{}", grouped(inserted), grouped(deleted)));
    }
    facts.push(place(it.list.selected, it.shown.len()));
    if it.more {
        facts.push("and more".to_owned());
    }
    facts.retain(|fact| !fact.is_empty());
    (it.title.clone(), facts.join("  "))
}

pub(super) fn draw(canvas: &mut Canvas<'_>, model: &Model, it: &Changes, area: Rect) {
    if let Some(failed) = &it.failed {
        return note(canvas, area, failed, Look::Warning);
    }
    if it.loading {
        return note(canvas, area, "Reading...", Look::Faint);
    }
    if it.shown.is_empty() {
        let words = if it.filter.is_empty() { "No file changed." } else { "No such name." };
        return note(canvas, area, words, Look::Faint);
    }
    let index = it.shown[it.list.selected.min(it.shown.len() - 1)];
    let (list_area, doc_area) = sides(model, area, it.focus);
    if let Some(area) = list_area {
        list(canvas, model, it, area);
    }
    if let Some(area) = doc_area {
        let heading = heading(&it.rows[index], it.counts.get(&index).copied().flatten());
        beside(canvas, &it.doc, &heading, area);
    }
}

/// Where the list and the document are: side by side, or the one that has the keys.
pub(super) fn sides(model: &Model, area: Rect, focus: Focus) -> (Option<Rect>, Option<Rect>) {
    if model.is_wide() {
        let wide = list_width(area.width);
        let list = Rect { width: wide - 1, ..area };
        let doc = Rect { x: area.x + wide, width: area.width - wide, ..area };
        return (Some(list), Some(doc));
    }
    match focus {
        Focus::List => (Some(area), None),
        Focus::Doc => (None, Some(area)),
    }
}

/// A document with a line above that says what it is of.
pub(super) fn beside(canvas: &mut Canvas<'_>, shown: &ShownDoc, heading: &str, area: Rect) {
    canvas.text(area.x, area.y, area.width, heading, Look::Strong);
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    match (&shown.view, &shown.failed) {
        (Some(view), _) => {
            doc(canvas, view, body);
            let length = view.doc.lines.len();
            let end = (view.top + usize::from(body.height)).min(length);
            let place = format!(" {}-{end}/{}", (view.top + 1).min(length), grouped(length as u64));
            canvas.right(area.right(), area.y, &place, Look::Faint);
        }
        (None, Some(failed)) => note(canvas, body, failed, Look::Warning),
        (None, None) => note(canvas, body, "Reading...", Look::Faint),
    }
}

fn heading(row: &ChangeRow, stat: Option<LineStat>) -> String {
    let lines = match stat {
        Some(stat) if stat.inserted + stat.deleted > 0 => {
            format!("  +{} -{}", stat.inserted, stat.deleted)
        }
        _ => String::new(),
    };
    let words = words(row, stat);
    let words = if words.is_empty() { words } else { format!("  {words}") };
    format!("{}{lines}{words}", row.name)
}

fn list(canvas: &mut Canvas<'_>, model: &Model, it: &Changes, area: Rect) {
    let seen = it.list.seen(it.shown.len(), usize::from(area.height));
    for (line, at) in seen.enumerate() {
        let y = area.y + u16::try_from(line).unwrap_or(0);
        let index = it.shown[at];
        let row = &it.rows[index];
        let stat = it.counts.get(&index).copied().flatten();
        match &row.version {
            Some(_) => version(canvas, model, row, stat, area, y),
            None => file(canvas, row, stat, area, y),
        }
        if at == it.list.selected {
            canvas.chosen(area, y);
        }
    }
}

/// `A`, `M`, `D`, `R`, `m` for the mode alone, `?` where nobody had looked before.
fn letter(row: &ChangeRow) -> (&'static str, Look) {
    if row.before.kind == "unknown" {
        return ("?", Look::Faint);
    }
    match row.span.change_type() {
        "created" => ("A", Look::Added),
        "deleted" => ("D", Look::Removed),
        "renamed" => ("R", Look::Agent),
        "mode" => ("m", Look::Shell),
        _ => ("M", Look::Plain),
    }
}

/// Draws `+12 -3` so that it ends at a column; gives where it begins.
fn lines(canvas: &mut Canvas<'_>, stat: Option<LineStat>, end: u16, y: u16) -> u16 {
    let Some(stat) = stat.filter(|stat| !stat.binary && stat.inserted + stat.deleted > 0) else {
        return end.saturating_sub(14);
    };
    if stat.deleted > 0 {
        canvas.right(end, y, &format!("-{}", stat.deleted), Look::Removed);
    }
    if stat.inserted > 0 {
        canvas.right(end.saturating_sub(7), y, &format!("+{}", stat.inserted), Look::Added);
    }
    end.saturating_sub(14)
}

fn file(canvas: &mut Canvas<'_>, row: &ChangeRow, stat: Option<LineStat>, area: Rect, y: u16) {
    let (letter, look) = letter(row);
    canvas.text(area.x + 1, y, 1, letter, look);
    let mut end = area.right().saturating_sub(1);
    if area.width >= 34 {
        end = lines(canvas, stat, end, y);
    }
    if area.width >= 64 {
        let wide = 14;
        let who = row.span.authors.join("+");
        let look = if who == "person" { Look::Person } else { Look::Agent };
        let who = if row.span.live { who } else { format!("x {who}") };
        canvas.text(end - wide, y, wide - 1, &fit(&who, usize::from(wide - 1)), look);
        end -= wide;
    }
    let x = area.x + 3;
    let words = words(row, stat);
    let room = usize::from(end.saturating_sub(x + 1));
    // The name keeps half of the room if it needs it.
    let for_name = width(&row.name).min(room.div_ceil(2));
    let for_words = match words.is_empty() {
        true => 0,
        false => (words.len() + 2).min(room - for_name),
    };
    let name = fit_path(&row.name, room - for_words);
    let look = if row.span.live { Look::Plain } else { Look::Faint };
    let taken = canvas.text(x, y, end.saturating_sub(x), &name, look);
    if for_words > 2 {
        let words = fit(&words, for_words - 2);
        canvas.text(x + taken + 2, y, end.saturating_sub(x + taken + 2), &words, Look::Faint);
    }
}

fn version(
    canvas: &mut Canvas<'_>,
    model: &Model,
    row: &ChangeRow,
    stat: Option<LineStat>,
    area: Rect,
    y: u16,
) {
    let Some(version) = &row.version else { return };
    let (letter, look) = letter(row);
    canvas.text(area.x + 1, y, 1, letter, look);
    let turn = version.turn.map_or_else(|| "-".to_owned(), |turn| format!("turn {turn}"));
    canvas.text(area.x + 3, y, 11, &turn, Look::Id);
    let mut end = area.right().saturating_sub(1);
    canvas.right(end, y, &ago(version.seconds, model.now), Look::Faint);
    end = end.saturating_sub(8);
    if area.width >= 50 {
        end = lines(canvas, stat, end, y);
    }
    let words = words(row, stat);
    let from = match &row.span.from {
        Some(from) => format!(" from {from}"),
        None => String::new(),
    };
    let who = row.span.authors.join("+");
    let text = format!("{who}: {}{from} {words}", version.summary);
    let x = area.x + 14;
    let room = end.saturating_sub(x);
    let look = if row.span.live { Look::Plain } else { Look::Faint };
    canvas.text(x, y, room, &fit(text.trim_end(), usize::from(room)), look);
}

/// What cannot be said in lines; empty if lines say it all.
fn words(row: &ChangeRow, stat: Option<LineStat>) -> String {
    let (before, after) = (&row.before, &row.after);
    let mut words = Vec::new();
    let there = |entry: &EntryView| !matches!(entry.kind.as_str(), "absent" | "unknown");
    if before.kind != after.kind && there(before) && there(after) {
        words.push(format!("{} -> {}", before.kind, after.kind));
    } else if let Some(kind) = unusual(if there(after) { after } else { before }) {
        words.push(kind);
    } else if before.secret || after.secret {
        words.push(format!("secret, {} -> {}", bytes(before), bytes(after)));
    } else if stat.is_some_and(|stat| stat.binary) {
        words.push(format!("binary, {} -> {}", bytes(before), bytes(after)));
    }
    if let (Some(old), Some(new)) = (&before.mode, &after.mode)
        && old != new
    {
        words.push(format!("mode {old} -> {new}"));
    }
    words.extend(after.why.clone());
    words.join(", ")
}

/// What it is, if it is not a file.
pub(super) fn unusual(entry: &EntryView) -> Option<String> {
    match (entry.kind.as_str(), &entry.target) {
        ("file" | "absent", _) => None,
        ("symlink", Some(target)) => Some(format!("symlink to {target}")),
        (kind, _) => Some(kind.to_owned()),
    }
}

pub(super) fn bytes(entry: &EntryView) -> String {
    entry.size.map_or_else(|| "0 B".to_owned(), size)
}
