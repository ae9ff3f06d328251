//! Snapshots, turns and versions as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use chronicle_core::{EffectView, FileChange, GrepMatch, Iteration, SnapshotMetadata, TurnView};

use super::diff::{Row, rows, total};
use super::time::ago;
use super::{Paint, Style, count, fit, printable, short};

/// Snapshots grouped by turn, a line each, in the order given.
pub(crate) fn log(
    snapshots: &[SnapshotMetadata],
    turns: &[TurnView],
    now: i64,
    paint: Paint,
) -> String {
    let mut text = String::new();
    for group in snapshots.chunk_by(|left, right| left.turn == right.turn) {
        if !text.is_empty() {
            text.push('\n');
        }
        let turn = group[0].turn.and_then(|n| turns.iter().find(|turn| turn.number == n));
        let _ = writeln!(text, "{}", paint.text(Style::Heading, &heading(group, turn, now)));
        for snapshot in group {
            text.push_str(&line(snapshot, now, paint));
        }
    }
    text
}

fn heading(group: &[SnapshotMetadata], turn: Option<&TurnView>, now: i64) -> String {
    match (group[0].turn, turn) {
        (Some(number), Some(turn)) => turn_words(number, turn, now),
        (Some(number), None) => format!("Turn {number}"),
        (None, _) => "Outside any turn".to_owned(),
    }
}

/// A turn in one line: number, prompt, session, when.
pub(crate) fn turn_words(number: u64, turn: &TurnView, now: i64) -> String {
    let mut words = format!("Turn {number}");
    if let Some(prompt) = &turn.prompt {
        let _ = write!(words, "  \"{}\"", fit(&printable(prompt), 60));
    }
    if let Some(session) = &turn.session {
        let _ = write!(words, "  session {}", printable(session));
    }
    let when = match &turn.ended_at {
        Some(ended) => format!("ended {}", ago(ended, now)),
        None => format!("open, started {}", ago(&turn.started_at, now)),
    };
    let _ = write!(words, "  ({when})");
    words
}

fn line(snapshot: &SnapshotMetadata, now: i64, paint: Paint) -> String {
    let tail = tail(snapshot, paint);
    let when = ago(&snapshot.timestamp, now);
    let room = paint.width.saturating_sub(12 + 2 + 2 + 11 + 2 + 2 + 22).max(20);
    let summary = printable(&snapshot.action_summary);
    let summary = fit(&summary, room);
    let pad = " ".repeat(room - summary.chars().count());
    let id = paint.text(Style::Id, &snapshot.short_id);
    let when = format!("{when:<11}");
    let when = paint.text(Style::Faint, &when);
    format!("{}\n", format!("  {id}  {when}  {summary}{pad}  {tail}").trim_end())
}

/// `3 files +12 -4 by person`, and what else is worth knowing.
fn tail(snapshot: &SnapshotMetadata, paint: Paint) -> String {
    let changes = &snapshot.changes;
    let (inserted, deleted) = lines(changes);
    let mut words = Vec::new();
    if !changes.is_empty() {
        words.push(count(changes.len() as u64, "file"));
    }
    if inserted > 0 {
        words.push(paint.text(Style::Added, &format!("+{inserted}")).into_owned());
    }
    if deleted > 0 {
        words.push(paint.text(Style::Removed, &format!("-{deleted}")).into_owned());
    }
    if let Some(others) = others(snapshot) {
        words.push(format!("by {others}"));
    }
    match snapshot.effects.len() {
        0 => {}
        1 => words.push(paint.text(Style::Warning, "(effect)").into_owned()),
        many => words.push(paint.text(Style::Warning, &format!("({many} effects)")).into_owned()),
    }
    if snapshot.open {
        words.push("(open)".to_owned());
    }
    if !snapshot.complete {
        words.push(paint.text(Style::Warning, "(saw only a part)").into_owned());
    }
    if !changes.is_empty() && changes.iter().all(|change| !change.live) {
        words.push(paint.text(Style::Faint, "(taken back)").into_owned());
    }
    words.join(" ")
}

/// Lines added and removed in all.
pub(crate) fn lines(changes: &[FileChange]) -> (u64, u64) {
    let sum = |of: fn(&FileChange) -> Option<u64>| changes.iter().filter_map(of).sum();
    (sum(|change| change.inserted), sum(|change| change.deleted))
}

/// The authors that are not simply the snapshot's own session.
fn others(snapshot: &SnapshotMetadata) -> Option<String> {
    let own = snapshot.session.as_deref();
    let authors: BTreeSet<_> =
        snapshot.changes.iter().map(|change| change.author.as_str()).collect();
    let others: Vec<_> = authors
        .into_iter()
        .filter(|author| Some(*author) != own && *author != "chronicle")
        .map(|author| printable(author).into_owned())
        .collect();
    (!others.is_empty()).then(|| others.join(", "))
}

/// One snapshot in full.
pub(crate) fn snapshot(snapshot: &SnapshotMetadata, now: i64, paint: Paint) -> String {
    let mut text = String::new();
    let title = format!("Snapshot {}  {}", snapshot.short_id, printable(&snapshot.action_summary));
    let _ = writeln!(text, "{}", paint.text(Style::Heading, &title));
    let when = format!("{} ({})", snapshot.timestamp, ago(&snapshot.timestamp, now));
    field(&mut text, "When", &when);
    field(&mut text, "Id", &format!("{}  (seq {})", snapshot.id, snapshot.seq));
    let turn = snapshot.turn.map(|number| format!("turn:{number}"));
    let session =
        snapshot.session.as_deref().map(|session| format!("session {}", printable(session)));
    let agent = snapshot.agent.as_deref().map(|agent| printable(agent).into_owned());
    let tool = snapshot.tool.as_deref().map(|tool| format!("tool {}", printable(tool)));
    let who: Vec<_> = [turn, session, agent, tool].into_iter().flatten().collect();
    if !who.is_empty() {
        field(&mut text, "By", &who.join(", "));
    }
    if let Some(transaction) = &snapshot.transaction_id {
        field(&mut text, "In", &format!("transaction {}", short(transaction)));
    }
    field(&mut text, "Link", snapshot.hash.get(..16).unwrap_or(&snapshot.hash));
    for effect in &snapshot.effects {
        field(&mut text, "Effect", &effect_words(effect));
    }
    if !snapshot.complete {
        field(&mut text, "Note", "the capture saw only a part of what it should have seen");
    }
    if snapshot.open {
        field(&mut text, "Note", "not settled yet: its outcome is not recorded");
    }
    text.push_str(&snapshot_changes(snapshot, paint));
    text
}

/// `git push origin main: outside, cannot be taken back (rule: git push)`.
fn effect_words(effect: &EffectView) -> String {
    let fate = match &effect.kind[..] {
        "data" => "data beside the files, which they do not bring back",
        _ => "outside, cannot be taken back",
    };
    let note: String = effect.note.iter().map(|note| format!("; {}", printable(note))).collect();
    format!("{}: {fate} (rule: {}){note}", printable(&effect.what), printable(&effect.rule))
}

fn snapshot_changes(snapshot: &SnapshotMetadata, paint: Paint) -> String {
    if snapshot.changes.is_empty() {
        return String::new();
    }
    let all: Vec<Row<'_>> = snapshot.changes.iter().map(Row::from).collect();
    let (inserted, deleted) = lines(&snapshot.changes);
    let total = total(snapshot.changes.len() as u64, inserted, deleted);
    format!("\n{} {total}\n{}", rows(&all, paint), authors(snapshot, paint))
}

/// Who made which change, where it is not one and the same.
fn authors(snapshot: &SnapshotMetadata, paint: Paint) -> String {
    let mut text = String::new();
    for change in snapshot.changes.iter().filter(|change| {
        snapshot.session.as_deref() != Some(change.author.as_str()) || !change.live
    }) {
        let taken = if change.live { "" } else { ", taken back" };
        let candidates = match change.candidates.is_empty() {
            true => String::new(),
            false => format!(" ({})", printable(&change.candidates.join(", "))),
        };
        let words = format!(
            "   {}: by {}{candidates}, known by {}{taken}",
            printable(&change.path),
            printable(&change.author),
            change.evidence
        );
        let _ = writeln!(text, "{}", paint.text(Style::Faint, &words));
    }
    text
}

fn field(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name:<6} {value}");
}

/// The versions of one file, a line each.
pub(crate) fn history(iterations: &[Iteration], now: i64, paint: Paint) -> String {
    let mut text = String::new();
    for iteration in iterations {
        let change = &iteration.change;
        let id = paint.text(Style::Id, short(&iteration.snapshot));
        let turn = iteration.turn.map_or_else(|| "-".to_owned(), |number| format!("turn:{number}"));
        let plus = change.inserted.map_or_else(String::new, |lines| format!(" +{lines}"));
        let minus = change.deleted.map_or_else(String::new, |lines| format!(" -{lines}"));
        let from = change
            .from
            .as_deref()
            .map_or_else(String::new, |from| format!(" from {}", printable(from)));
        let _ = writeln!(
            text,
            "{id}  {:<11}  {turn:<8}  {:<8}  {}{from}{plus}{minus}  by {}  {}",
            ago(&iteration.timestamp, now),
            change.change_type,
            printable(&iteration.path),
            printable(&change.author),
            paint.text(Style::Faint, &printable(&iteration.action_summary)),
        );
    }
    text
}

/// Lines found in history: `path: line   (first turn 2, removed by turn 5)`.
pub(crate) fn matches(matches: &[GrepMatch], paint: Paint) -> String {
    let mut text = String::new();
    for found in matches {
        let path = printable(&found.path);
        let fate = format!("({}, {})", first(found), last(found));
        let _ = writeln!(
            text,
            "{}: {}   {}",
            paint.text(Style::Heading, &path),
            paint.content(&found.line),
            paint.text(Style::Faint, &fate)
        );
    }
    text
}

fn first(found: &GrepMatch) -> String {
    match found.first_turn {
        Some(turn) => format!("first turn {turn}"),
        None => format!("first at seq {}", found.first_seen),
    }
}

fn last(found: &GrepMatch) -> String {
    match (found.present, found.removed_by_turn, &found.removed_by) {
        (true, ..) => "still there".to_owned(),
        (false, Some(turn), _) => format!("removed by turn {turn}"),
        (false, None, Some(snapshot)) => format!("removed by {snapshot}"),
        (false, None, None) => format!("last at seq {}", found.last_seen),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use chronicle_core::{EntryView, SCHEMA};

    /// A change of a text file by an author, with its lines.
    pub(crate) fn change(path: &str, author: &str, inserted: u64, deleted: u64) -> FileChange {
        let entry = || EntryView {
            kind: "file".into(),
            hash: None,
            secret: false,
            size: None,
            mode: None,
            target: None,
            why: None,
        };
        FileChange {
            path: path.into(),
            path_b64: None,
            change_type: "modified".into(),
            from: None,
            author: author.into(),
            candidates: Vec::new(),
            evidence: "window".into(),
            live: true,
            before: entry(),
            after: entry(),
            inserted: Some(inserted),
            deleted: Some(deleted),
            binary: false,
        }
    }

    /// A snapshot of a turn of session `A`.
    pub(crate) fn made(id: &str, turn: Option<u64>, changes: Vec<FileChange>) -> SnapshotMetadata {
        SnapshotMetadata {
            schema: SCHEMA,
            id: format!("00000000-0000-7000-8000-{id}"),
            short_id: id.into(),
            seq: 1,
            timestamp: "1970-01-01T00:00:00Z".into(),
            action_type: "shell".into(),
            action_summary: "shell: make".into(),
            files_backed_up: Vec::new(),
            session: turn.map(|_| "A".into()),
            turn,
            turn_key: None,
            agent: None,
            tool: None,
            call_id: None,
            transaction_id: None,
            previous_hash: String::new(),
            hash: "h".repeat(64),
            complete: true,
            open: false,
            changes,
            effects: Vec::new(),
        }
    }

    fn turn(number: u64) -> TurnView {
        TurnView {
            number,
            key: None,
            session: Some("A".into()),
            prompt: Some("fix it".into()),
            started_at: "1970-01-01T00:00:00Z".into(),
            ended_at: None,
            start_seq: 1,
            end_seq: None,
        }
    }

    #[test]
    fn snapshots_are_grouped_by_turn_and_other_authors_are_named() {
        let effect = EffectView {
            seq: 2,
            timestamp: "1970-01-01T00:00:00Z".into(),
            kind: "outside".into(),
            what: "git push".into(),
            rule: "git push".into(),
            note: None,
            snapshot: None,
            turn: Some(2),
            session: None,
            agent: None,
            tool: None,
        };
        let mut pushed = made("aaaaaaaaaaaa", Some(2), vec![change("x", "A", 1, 2)]);
        pushed.effects.push(effect);
        let all = [pushed, made("bbbbbbbbbbbb", None, vec![change("y", "person", 1, 0)])];
        let expected = "Turn 2  \"fix it\"  session A  (open, started 10 min ago)\n  \
             aaaaaaaaaaaa  10 min ago   shell: make                      1 file +1 -2 (effect)\n\n\
             Outside any turn\n  \
             bbbbbbbbbbbb  10 min ago   shell: make                      1 file +1 by person\n";
        assert_eq!(log(&all, &[turn(2)], 600, Paint::plain(84)), expected);
    }

    #[test]
    fn a_found_line_says_when_it_came_and_what_removed_it() {
        let found = GrepMatch {
            schema: SCHEMA,
            path: "a.rs".into(),
            line: "let x;".into(),
            first_seen: 3,
            last_seen: 9,
            present: false,
            removed_by: Some("abc".into()),
            removed_by_turn: Some(5),
            first_turn: Some(2),
        };
        assert_eq!(
            matches(&[found], Paint::plain(80)),
            "a.rs: let x;   (first turn 2, removed by turn 5)\n"
        );
    }
}
