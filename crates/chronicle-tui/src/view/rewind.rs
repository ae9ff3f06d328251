//! Taking back: the plan with its id, what is chosen, both sides, and what came of it.

use chronicle_core::OnConflict;
use chronicle_core::shown::count;
use ratatui::layout::Rect;

use super::changes::{beside, bytes, sides, unusual};
use super::{Canvas, note, place};
use crate::model::{Focus, Model, PlanRow, Rewind};
use crate::shown::{fit, fit_path, width};
use crate::theme::Look;
use crate::update::{plan_counts, short};

/// The lines above the list.
pub(crate) const HEAD: usize = 2;

pub(super) fn title(model: &Model, it: &Rewind) -> (String, String) {
    let state = match (&it.report, model.applying) {
        (_, true) => "Applying...".to_owned(),
        (Some(_), _) if it.taken_back => "Taken back".to_owned(),
        (Some(_), _) => "Done".to_owned(),
        (None, _) if it.planning => "Planning...".to_owned(),
        (None, _) => it
            .plan
            .as_ref()
            .map_or_else(String::new, |plan| format!("Plan {}", short(&plan.plan_id))),
    };
    let place = place(it.list.selected, it.rows.len());
    (it.words.clone(), format!("{state}  {place}").trim_end().to_owned())
}

pub(super) fn draw(canvas: &mut Canvas<'_>, model: &Model, it: &Rewind, area: Rect) {
    head(canvas, it, area);
    let head = u16::try_from(HEAD).unwrap_or(0);
    let area = Rect {
        y: area.y + head.min(area.height),
        height: area.height.saturating_sub(head),
        ..area
    };
    if let Some(failed) = &it.failed {
        let next = match it.plan {
            None => "Nothing was changed. e, S, o and c plan another way; Esc leaves.",
            Some(_) => "Esc leaves; chronicle status tells how the workspace stands.",
        };
        return note(canvas, area, &format!("{failed}\n{next}"), Look::Warning);
    }
    if it.rows.is_empty() {
        let words = match (it.planning, &it.plan, &it.report) {
            (true, ..) => "Looking at the workspace, and planning...",
            (false, None, None) => "Nothing is chosen.",
            _ => "Already there: nothing changes.",
        };
        return note(canvas, area, words, Look::Faint);
    }
    let row = it.rows.get(it.list.selected);
    let with_sides = row.filter(|row| row.sides.is_some());
    let focus = if with_sides.is_some() { it.focus } else { Focus::List };
    let (list_area, doc_area) = sides(model, area, focus);
    if let Some(area) = list_area {
        list(canvas, it, area);
    }
    if let (Some(area), Some(row)) = (doc_area, with_sides) {
        beside(canvas, &it.doc, &heading(row), area);
    }
}

/// Where it goes, what it does, and how.
fn head(canvas: &mut Canvas<'_>, it: &Rewind, area: Rect) {
    let room = area.width.saturating_sub(2);
    let (first, second) = match (&it.report, &it.plan) {
        (Some(report), _) => {
            let left = match (report.partial, report.aside.len()) {
                (false, 0) => String::new(),
                (true, _) => "; not everything could be done".to_owned(),
                (false, aside) => format!("; {} moved aside", count(aside as u64, "path")),
            };
            let files = count(report.changed, "file");
            let what = if it.taken_back { "Taken back" } else { "Applied" };
            let id = report.id.as_deref().map(short).unwrap_or("-");
            (format!("{what}: {files} changed{left}"), format!("It is {id}. u takes it back."))
        }
        (None, Some(plan)) => {
            let target = format!("Target: {}", plan.resolved_target);
            let ways = ways(it);
            (target, format!("Plan {}: {}{ways}", short(&plan.plan_id), plan_counts(plan)))
        }
        (None, None) => (String::new(), String::new()),
    };
    canvas.text(area.x + 1, area.y, room, &fit(&first, usize::from(room)), Look::Plain);
    if area.height > 1 {
        canvas.text(area.x + 1, area.y + 1, room, &fit(&second, usize::from(room)), Look::Strong);
    }
}

fn ways(it: &Rewind) -> String {
    let mut ways = Vec::new();
    if it.request.exact {
        ways.push("exact: nothing of others is kept");
    }
    if it.request.take_shared {
        ways.push("shared work is taken");
    }
    if it.request.all_sessions {
        ways.push("all sessions");
    }
    match it.request.on_conflict {
        OnConflict::Stop => {}
        OnConflict::KeepMine => ways.push("conflicts: keep what is there"),
        OnConflict::Replace => ways.push("conflicts: take the target's"),
    }
    ways.iter().map(|way| format!("; {way}")).collect()
}

fn heading(row: &PlanRow) -> String {
    let (before, after) = match &row.sides {
        Some(sides) => sides,
        None => return row.name.clone(),
    };
    let facts = |entry: &chronicle_core::EntryView| match entry.kind.as_str() {
        "absent" => "absent".to_owned(),
        "file" => bytes(entry),
        _ => unusual(entry).unwrap_or_default(),
    };
    let names = if row.verb == "conflict" { ("mine", "target") } else { ("now", "then") };
    let mode = match (&before.mode, &after.mode) {
        (Some(old), Some(new)) if old != new => format!("  mode {old} -> {new}"),
        _ => String::new(),
    };
    let (old, new) = (facts(before), facts(after));
    format!("{}  {}: {old}, {}: {new}{mode}", row.name, names.0, names.1)
}

fn list(canvas: &mut Canvas<'_>, it: &Rewind, area: Rect) {
    let troubles = it.troubles();
    let seen = it.list.seen(it.rows.len(), usize::from(area.height));
    for (line, at) in seen.enumerate() {
        let y = area.y + u16::try_from(line).unwrap_or(0);
        let row = &it.rows[at];
        let trouble = troubles.get(row.name.as_str()).copied();
        let mark = match (it.report.is_some(), trouble, row.path.is_some()) {
            (_, _, false) => "   ",
            (true, Some(_), _) => "!! ",
            (true, None, _) => "ok ",
            (false, ..) if it.is_chosen(row) => "[x]",
            (false, ..) => "[ ]",
        };
        let chosen = it.report.is_some() || it.is_chosen(row);
        canvas.text(area.x + 1, y, 3, mark, Look::Strong);
        let look = match row.verb {
            _ if !chosen && row.path.is_some() => Look::Faint,
            "write" | "merge" => Look::Added,
            "delete" => Look::Removed,
            "conflict" => Look::Warning,
            _ => Look::Faint,
        };
        canvas.text(area.x + 5, y, 8, row.verb, look);
        let x = area.x + 14;
        let room = area.right().saturating_sub(x + 1);
        let words = trouble.map_or_else(|| row_note(row), ToOwned::to_owned);
        let for_words = match words.is_empty() {
            true => 0,
            false => (words.len() + 2).min(room_for_words(row, room)),
        };
        let name = fit_path(&row.name, usize::from(room) - for_words);
        let look = if chosen { Look::Plain } else { Look::Faint };
        let taken = canvas.text(x, y, room, &name, look);
        if for_words > 2 {
            let look = if trouble.is_some() { Look::Warning } else { Look::Faint };
            let x = x + taken + 2;
            canvas.text(x, y, area.right().saturating_sub(x), &fit(&words, for_words - 2), look);
        }
        if at == it.list.selected {
            canvas.chosen(area, y);
        }
    }
}

/// What the name leaves, which keeps a half if it needs it.
fn room_for_words(row: &PlanRow, room: u16) -> usize {
    let room = usize::from(room);
    room - width(&row.name).min(room.div_ceil(2))
}

/// What there is to say of a row: a reason, or sizes and modes that change.
fn row_note(row: &PlanRow) -> String {
    let Some((now, then)) = row.sides.as_ref().filter(|_| row.note.is_empty()) else {
        return row.note.clone();
    };
    let mut words = Vec::new();
    match (now.kind.as_str(), then.kind.as_str()) {
        ("absent", "file") => words.push(format!("comes back, {}", bytes(then))),
        ("absent", kind) => words.push(format!("{kind} comes back")),
        ("file", "file") if now.hash != then.hash => {
            words.push(format!("{} -> {}", bytes(now), bytes(then)));
        }
        (old, new) if old != new && new != "absent" => words.push(format!("{old} -> {new}")),
        _ => {}
    }
    if let (Some(old), Some(new)) = (&now.mode, &then.mode)
        && old != new
    {
        words.push(format!("mode {old} -> {new}"));
    }
    words.join(", ")
}
