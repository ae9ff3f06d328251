//! The log: turns with their prompt, snapshots below, and who did what.

use chronicle_core::shown::{count, grouped};
use chronicle_core::{SnapshotBrief, StretchView};
use ratatui::layout::Rect;

use super::{Canvas, ago, note, place};
use crate::model::{Model, Row};
use crate::shown::{fit, width};
use crate::theme::Look;

/// The key under which `chronicle run` works.
const RUN_SESSION: &str = "run";

pub(super) fn title(model: &Model) -> (String, String) {
    let timeline = &model.timeline;
    let mut facts = Vec::new();
    if let Some(filter) = &timeline.filter {
        facts.push(format!("path {filter}"));
    }
    if let Some(outline) = &timeline.outline {
        facts.push(count(outline.turns, "turn"));
        facts.push(format!("record {}", grouped(outline.head)));
    }
    facts.push(place(timeline.list.selected, timeline.rows.len()));
    facts.retain(|fact| !fact.is_empty());
    (format!("Chronicle  {}", model.root), facts.join("  "))
}

pub(super) fn draw(canvas: &mut Canvas<'_>, model: &Model, area: Rect) {
    let timeline = &model.timeline;
    if let Some(failed) = &timeline.failed {
        note(canvas, area, failed, Look::Warning);
        return;
    }
    if timeline.filtering {
        note(canvas, area, "Looking for what touched it...", Look::Faint);
        return;
    }
    if timeline.rows.is_empty() && timeline.outline.is_some() {
        let words = match timeline.filter {
            Some(_) => "Nothing touched such a path. Esc shows everything.",
            None => "Nothing is recorded yet.",
        };
        note(canvas, area, words, Look::Faint);
        return;
    }
    let seen = timeline.list.seen(timeline.rows.len(), usize::from(area.height));
    for (line, index) in seen.enumerate() {
        let y = area.y + u16::try_from(line).unwrap_or(0);
        match timeline.rows[index] {
            Row::Stretch(at) => {
                let open = timeline.is_open(at);
                match timeline.view(at) {
                    Some(view) => stretch(canvas, model, view, open, area, y),
                    None => drop(canvas.text(area.x + 2, y, area.width, "...", Look::Faint)),
                }
            }
            Row::Snapshot(at, below) => {
                if let Some(brief) = timeline.snapshot(at, below) {
                    snapshot(canvas, model, brief, area, y);
                }
            }
        }
        if index == timeline.list.selected {
            canvas.chosen(area, y);
        }
    }
}

/// What stands at the end of every row: who, how many files, when.
struct Tail {
    who: String,
    look: Look,
    files: String,
    when: String,
    taken_back: bool,
}

/// The columns of the tail: who, how many files, when, as far as there is room.
fn tail(canvas: &mut Canvas<'_>, area: Rect, y: u16, tail: &Tail) -> u16 {
    let mut end = area.right().saturating_sub(1);
    if area.width >= 30 {
        canvas.right(end, y, &tail.when, Look::Faint);
        end -= 8;
    }
    if area.width >= 46 {
        let (words, look) = match tail.taken_back {
            true => ("taken back", Look::Ours),
            false => (tail.files.as_str(), Look::Plain),
        };
        canvas.right(end, y, words, look);
        end -= 11;
    }
    if area.width >= 64 {
        let wide: u16 = if area.width >= 110 { 24 } else { 15 };
        canvas.text(end - wide, y, wide - 1, &fit(&tail.who, usize::from(wide - 1)), tail.look);
        end -= wide;
    }
    end.saturating_sub(1)
}

fn stretch(
    canvas: &mut Canvas<'_>,
    model: &Model,
    view: &StretchView,
    open: bool,
    area: Rect,
    y: u16,
) {
    let seconds = view.time.0 / 1_000_000_000;
    let taken_back = view.changes.0 > 0 && view.changes.0 == view.changes.1;
    let running = view.turn.as_ref().is_some_and(|turn| turn.ended_at.is_none());
    let (who, look) = who_of_stretch(view);
    let when = if running { "open".to_owned() } else { ago(seconds, model.now) };
    let facts = Tail { who, look, files: files(view.files), when, taken_back };
    let end = tail(canvas, area, y, &facts);
    let mark = match (view.snapshots.is_empty(), open) {
        (true, _) => " ",
        (false, true) => "-",
        (false, false) => "+",
    };
    canvas.text(area.x + 1, y, 1, mark, Look::Faint);
    let x = area.x + 3;
    let Some(turn) = &view.turn else {
        let words = outside_words(view);
        canvas.text(x, y, end.saturating_sub(x), &words, Look::Faint);
        return;
    };
    let number = format!("{} ", turn.number);
    let x = x + canvas.text(x, y, end.saturating_sub(x), &number, Look::Id);
    let prompt = turn.prompt.as_deref().unwrap_or("(no prompt)");
    let look = if taken_back { Look::Faint } else { Look::Strong };
    let room = usize::from(end.saturating_sub(x));
    canvas.text(x, y, end.saturating_sub(x), &fit(prompt, room), look);
}

/// Outside any turn: what it was, if it was one thing.
fn outside_words(view: &StretchView) -> String {
    match &view.snapshots[..] {
        [] if view.stretch.first.0 == 1 => "the history begins".to_owned(),
        [] => "nothing to see".to_owned(),
        [one] if !one.summary.is_empty() => format!("outside any turn: {}", one.summary),
        all => format!("outside any turn: {}", count(all.len() as u64, "action")),
    }
}

fn snapshot(canvas: &mut Canvas<'_>, model: &Model, brief: &SnapshotBrief, area: Rect, y: u16) {
    let taken_back = brief.changes.0 > 0 && brief.changes.0 == brief.changes.1;
    let (who, look) = who_of_snapshot(brief);
    let when = match brief.open && brief.id.is_some() {
        true => "running".to_owned(),
        false => ago(brief.time.0 / 1_000_000_000, model.now),
    };
    let facts = Tail { who, look, files: files(brief.files), when, taken_back };
    let end = tail(canvas, area, y, &facts);
    let id = brief.id.map(|id| id.short()).unwrap_or_default();
    let mut x = area.x + 5;
    if area.width >= 60 {
        canvas.text(x, y, 12, &id, Look::Id);
        x += 14;
    }
    let summary = if brief.summary.is_empty() { &brief.action } else { &brief.summary };
    let look = if taken_back { Look::Faint } else { Look::Plain };
    let words = match brief.complete {
        true => summary.clone(),
        false => format!("{summary} (seen in part)"),
    };
    let room = usize::from(end.saturating_sub(x));
    canvas.text(x, y, end.saturating_sub(x), &fit(&words, room), look);
    debug_assert!(width(&id) <= 12);
}

fn files(number: u64) -> String {
    if number == 0 { String::new() } else { count(number, "file") }
}

/// Who it was, as people say it, and how that looks.
fn who_of_stretch(view: &StretchView) -> (String, Look) {
    let Some(turn) = &view.turn else {
        return match &view.snapshots[..] {
            [] => (String::new(), Look::Faint),
            [one] => who_of_snapshot(one),
            _ => author(&view.authors),
        };
    };
    if turn.session.as_deref() == Some(RUN_SESSION) {
        return ("shell".to_owned(), Look::Shell);
    }
    match (&view.agent, &turn.session) {
        (Some(agent), Some(session)) => (format!("{agent} {session}"), Look::Agent),
        (None, Some(one)) | (Some(one), None) => (one.clone(), Look::Agent),
        (None, None) => ("agent".to_owned(), Look::Agent),
    }
}

fn who_of_snapshot(brief: &SnapshotBrief) -> (String, Look) {
    if matches!(brief.action.as_str(), "rewind" | "rollback" | "undo" | "redo") {
        return ("taking back".to_owned(), Look::Ours);
    }
    if let Some(sub_agent) = &brief.sub_agent {
        return (format!("sub {sub_agent}"), Look::SubAgent);
    }
    if !brief.authors.is_empty() && brief.authors.iter().all(|it| it == "person") {
        return ("person".to_owned(), Look::Person);
    }
    let others = brief.authors.iter().any(|it| it == "person");
    let shell = brief.action == "shell";
    let who = match (&brief.agent, &brief.session) {
        (_, Some(session)) if session == RUN_SESSION => "shell".to_owned(),
        (Some(one), _) | (None, Some(one)) => one.clone(),
        (None, None) if shell => "shell".to_owned(),
        (None, None) => return author(&brief.authors),
    };
    let look = if shell { Look::Shell } else { Look::Agent };
    (if others { format!("{who}+person") } else { who }, look)
}

fn author(authors: &[String]) -> (String, Look) {
    match authors {
        [] => (String::new(), Look::Faint),
        [one] if one == "person" => (one.clone(), Look::Person),
        [one] if one == "chronicle" => (one.clone(), Look::Ours),
        all => (all.join("+"), Look::Agent),
    }
}
