//! Lines found in every version of every file, and what became of them.

use chronicle_core::GrepMatch;
use ratatui::layout::Rect;

use super::{Canvas, note, place};
use crate::model::Search;
use crate::shown::{fit, fit_path};
use crate::theme::Look;

pub(super) fn title(it: &Search) -> (String, String) {
    let more = if it.more { " and more" } else { "" };
    let facts = format!("{}{more}", place(it.list.selected, it.found.len()));
    ("Search in every version".to_owned(), facts)
}

pub(super) fn draw(canvas: &mut Canvas<'_>, it: &Search, area: Rect) {
    let glob = if it.glob.is_empty() { String::new() } else { format!("  in {}", it.glob) };
    let words = format!("/{}/{glob}", it.pattern);
    canvas.text(area.x + 1, area.y, area.width.saturating_sub(1), &words, Look::Strong);
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if let Some(failed) = &it.failed {
        return note(canvas, area, failed, Look::Warning);
    }
    if it.running {
        return note(canvas, area, "Searching... (Esc gives up)", Look::Faint);
    }
    if it.found.is_empty() {
        let words = if it.pattern.is_empty() { "" } else { "No version of any file has it." };
        return note(canvas, area, words, Look::Faint);
    }
    let seen = it.list.seen(it.found.len(), usize::from(area.height));
    for (line, at) in seen.enumerate() {
        let y = area.y + u16::try_from(line).unwrap_or(0);
        row(canvas, &it.found[at], area, y);
        if at == it.list.selected {
            canvas.chosen(area, y);
        }
    }
}

fn row(canvas: &mut Canvas<'_>, found: &GrepMatch, area: Rect, y: u16) {
    let fate = fate(found);
    let mut end = area.right().saturating_sub(1);
    if area.width >= 60 {
        let look = if found.present { Look::Faint } else { Look::Removed };
        canvas.right(end, y, &fate, look);
        end = end.saturating_sub(24);
    }
    let wide = (area.width / 3).min(40);
    let path = fit_path(&found.path, usize::from(wide.saturating_sub(1)));
    canvas.text(area.x + 1, y, wide, &path, Look::Agent);
    let x = area.x + 1 + wide;
    let room = end.saturating_sub(x + 1);
    canvas.text(x, y, room, &fit(found.line.trim_start(), usize::from(room)), Look::Plain);
}

/// `turn 2..now`, `turn 2..5`.
fn fate(found: &GrepMatch) -> String {
    let from = match found.first_turn {
        Some(turn) => format!("turn {turn}"),
        None => format!("record {}", found.first_seen),
    };
    match (found.present, found.removed_by_turn) {
        (true, _) => format!("{from}, still there"),
        (false, Some(turn)) => format!("{from}, gone by {turn}"),
        (false, None) => format!("{from}, gone"),
    }
}
