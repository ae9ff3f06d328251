//! The text beside the structured content: what a person, or a client that knows only text, reads.

use std::fmt::Write as _;

use chronicle_core::{
    Diff, GrepMatch, Iteration, PlanView, RewindReport, SnapshotMetadata, Status, TurnView,
    VerifyReport, escape,
};

use crate::answer::{TEXT_MOST, cut_text};
use crate::arguments::Action;

/// How many paths of a plan, a snapshot or a diff get a line.
const LINES_MOST: usize = 40;

/// Text that a client may show on a terminal: bounded, and without what would make one misbehave.
///
/// It holds prompts, paths and contents that others wrote; the structured content has them exactly.
pub(crate) fn printable(mut text: String) -> String {
    if cut_text(&mut text, 2 * TEXT_MOST) {
        text.push_str("\n(cut)");
    }
    if !text.contains(needs_escape) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if needs_escape(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Control characters but tabs and line ends, and marks that change the order of what is shown.
fn needs_escape(c: char) -> bool {
    let marks = ['\u{200b}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2060}'..='\u{2069}'];
    let reorders = c == '\u{feff}' || marks.iter().any(|range| range.contains(&c));
    c != '\t' && c != '\n' && (c.is_control() || reorders)
}

fn count(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// Lines, and how many more there would be.
fn lines(all: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = all.collect();
    let mut text: String = all.iter().take(LINES_MOST).map(|line| format!("{line}\n")).collect();
    if all.len() > LINES_MOST {
        let _ = writeln!(text, "... and {} more", all.len() - LINES_MOST);
    }
    text
}

fn more(cut: bool) -> &'static str {
    if cut { "There are more: raise limit or ask for less\n" } else { "" }
}

pub(crate) fn status(status: &Status, own: &[String]) -> String {
    let session = match own {
        [] => "Your session is not known: you can look, but not take back".to_owned(),
        own => format!("Your session: {}", own.join(", ")),
    };
    let changes = lines(status.changes.iter().map(|c| format!("{} {}", c.change_type, c.path)));
    format!(
        "Workspace {}\n{session}\n{} differ since the last turn ended\n{changes}\
         {} protected, {} not; {} can be redone\n",
        status.workspace,
        count(status.changes.len(), "path"),
        status.protected_files,
        status.unprotected_files,
        status.redoable,
    )
}

pub(crate) fn turns(turns: &[TurnView], cut: bool, own: impl Fn(&TurnView) -> bool) -> String {
    let mut text = format!("{}, newest first\n", count(turns.len(), "turn"));
    for turn in turns {
        let whose = match (own(turn), &turn.session) {
            (true, _) => "yours".to_owned(),
            (false, Some(session)) => format!("session {session}"),
            (false, None) => "no session".to_owned(),
        };
        let open = if turn.end_seq.is_none() { ", open" } else { "" };
        let prompt = turn.prompt.as_deref().unwrap_or_default();
        let _ = writeln!(text, "turn:{} ({whose}{open}) {prompt}", turn.number);
    }
    text + more(cut)
}

pub(crate) fn snapshots(snapshots: &[SnapshotMetadata], cut: bool) -> String {
    let mut text = format!("{}, newest first\n", count(snapshots.len(), "snapshot"));
    for snapshot in snapshots {
        text.push_str(&headline(snapshot));
    }
    text + more(cut)
}

fn headline(snapshot: &SnapshotMetadata) -> String {
    let turn = snapshot.turn.map(|turn| format!(" turn:{turn}")).unwrap_or_default();
    let (id, time, what) = (&snapshot.short_id, &snapshot.timestamp, &snapshot.action_summary);
    let paths = count(snapshot.changes.len(), "path");
    format!("{id}{turn} {time} {what} ({paths})\n")
}

pub(crate) fn snapshot(snapshot: &SnapshotMetadata) -> String {
    let changes = snapshot.changes.iter().map(|change| {
        let gone = if change.live { "" } else { " (taken back)" };
        format!("{} {} by {}{gone}", change.change_type, change.path, change.author)
    });
    headline(snapshot) + &lines(changes)
}

pub(crate) fn with_patch(text: String, patch: &str, cut: bool) -> String {
    format!("{text}\n{patch}{}", if cut { "\n(the patch is cut)\n" } else { "" })
}

pub(crate) fn diff(diff: &Diff, cut: bool) -> String {
    let to = if diff.to_snapshot.is_empty() { "now" } else { &diff.to_snapshot };
    let changes = diff.changes.iter().map(|change| {
        let (what, path) = (&change.change_type, &change.path);
        format!("{what} {path} (+{} -{})", change.inserted, change.deleted)
    });
    let (from, files) = (&diff.from_snapshot, diff.files_changed);
    format!("From {from} to {to}: {files} changed\n{}{}", lines(changes), more(cut))
}

pub(crate) fn matches(found: &[GrepMatch], partial: bool) -> String {
    let lines = count(found.len(), "matching line");
    let mut text = match partial {
        true => format!("Partial, the first {lines} in all versions\n"),
        false => format!("{lines} in all versions\n"),
    };
    for found in found {
        let state = match (&found.removed_by, found.present) {
            (_, true) => "there now".to_owned(),
            (Some(id), _) => format!("removed by {id}"),
            (None, _) => "gone".to_owned(),
        };
        let _ = writeln!(text, "{} ({state}): {}", found.path, found.line);
    }
    text + more(partial)
}

pub(crate) fn history(path: &str, versions: &[Iteration], total: usize) -> String {
    let path = escape(path.as_bytes());
    let mut text = format!("{} of {path}, newest first\n", count(total, "version"));
    for version in versions {
        let change = &version.change;
        let (time, what) = (&version.timestamp, &version.action_summary);
        let _ = writeln!(text, "{time} {} by {} ({what})", change.change_type, change.author);
    }
    text + more(versions.len() < total)
}

pub(crate) fn version(
    path: &str,
    at: Option<&str>,
    offset: u64,
    read: u64,
    next: Option<u64>,
    binary: bool,
) -> String {
    let at = at.unwrap_or("now");
    let rest = next.map(|next| format!("; go on with offset {next}")).unwrap_or_default();
    let kind = if binary { " (not text, not shown)" } else { "" };
    format!("{} at {at}: {read} bytes from {offset}{rest}{kind}\n", escape(path.as_bytes()))
}

pub(crate) fn verified(found: &VerifyReport) -> String {
    let VerifyReport { records, objects, objects_read, head_hash, .. } = found;
    format!(
        "History verifies: {records} records, {objects} objects there, {objects_read} read back, \
         head {head_hash}"
    )
}

fn steps(plan: &PlanView) -> String {
    let step = |word: &'static str| move |path: &String| format!("{word} {path}");
    let write = plan.write.iter().map(|s| &s.path).map(step("write"));
    let merge = plan.merge.iter().map(|s| &s.path).map(step("merge"));
    let delete = plan.delete.iter().map(|s| &s.path).map(step("delete"));
    let conflict = plan.conflict.iter().map(|c| format!("CONFLICT {} ({})", c.path, c.what));
    let keep = plan.keep.iter().map(|k| format!("keep {} ({})", k.path, k.reason));
    let unknown = plan.unknown.iter().map(|k| format!("not known {} ({})", k.path, k.reason));
    let git = plan.git.iter().map(|k| format!("repository {} ({})", k.path, k.reason));
    let shared = plan.shared.iter().map(|k| format!("stays {} ({})", k.path, k.reason));
    let done =
        plan.irreversible.iter().map(|k| format!("CANNOT BE TAKEN BACK {} ({})", k.path, k.reason));
    let all = conflict.chain(done).chain(write).chain(merge).chain(delete);
    lines(all.chain(git).chain(unknown).chain(shared).chain(keep))
}

pub(crate) fn plan(plan: &PlanView, action: Action, can_apply: bool) -> String {
    let (word, id) = (action.word(), &plan.plan_id);
    let next = match (can_apply, plan.conflict.is_empty()) {
        (false, _) => format!(
            "Your session is not known, so only the person can apply it: \
             chronicle {word} --plan {id}"
        ),
        (true, false) => {
            "It will stop at the conflicts: preview again with on_conflict keep-mine, \
                          or with other paths"
                .to_owned()
        }
        (true, true) => format!("Apply exactly this with: {word} plan_id {id}"),
    };
    let (target, steps) = (&plan.resolved_target, steps(plan));
    format!("Plan {id}: {word} to {target}\n{steps}Nothing was changed. {next}\n")
}

pub(crate) fn report(done: &RewindReport, action: Action) -> String {
    let (word, target) = (action.word(), &done.plan.resolved_target);
    if done.changed == 0 {
        return format!("Already there: nothing changed ({target})\n");
    }
    let back = match (action, &done.id) {
        (Action::Redo, Some(id)) => format!("preview action undo target {id}"),
        _ => "preview action redo".to_owned(),
    };
    let left = done.unexpected.iter().map(|k| format!("left alone {} ({})", k.path, k.reason));
    let aside = done.aside.iter().map(|(from, to)| format!("moved aside {from} to {to}"));
    let left = lines(left.chain(aside));
    let partial = if done.partial { "Not everything could be done; tell the person\n" } else { "" };
    format!(
        "Done: {word} to {target}, {} changed\n{}{left}{partial}\
         What you remember of these files is stale: read them again. Take this back with: {back}\n",
        count(usize::try_from(done.changed).unwrap_or(usize::MAX), "path"),
        steps(&done.plan),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_move_a_cursor_or_turn_words_around() {
        let shown = printable("a\tb\n\u{1b}[2J\u{202e}c\r".to_owned());
        assert_eq!(shown, "a\tb\n\\u{1b}[2J\\u{202e}c\\r");
        assert!(printable("x".repeat(1 << 20)).len() < 70_000);
    }
}
