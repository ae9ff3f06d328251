//! Plans and what came of them, as text.

use std::fmt::Write as _;

use chronicle_core::{ConflictView, EntryView, KeptView, PlanStep, PlanView, RewindReport};

use super::{Paint, Style, count, grouped, printable, size};

/// How many paths of one kind are listed before the rest is only counted.
const LISTED: usize = 50;

/// The plan, a line per path; the preview and the report are the same lines.
pub(crate) fn plan(plan: &PlanView, paint: Paint) -> String {
    let mut text = String::new();
    steps(&mut text, "write", Style::Added, &plan.write, paint);
    steps(&mut text, "merge", Style::Added, &plan.merge, paint);
    steps(&mut text, "delete", Style::Removed, &plan.delete, paint);
    kept(&mut text, "keep", &plan.keep, paint);
    kept(&mut text, "shared", &plan.shared, paint);
    kept(&mut text, "unknown", &plan.unknown, paint);
    kept(&mut text, "git", &plan.git, paint);
    text.push_str(&irreversible(&plan.irreversible, paint));
    conflicts(&mut text, &plan.conflict, paint);
    for output in &plan.stale_output {
        let output = printable(output);
        let words = format!(
            "{output} is newer than a restored source: builds will take it for fresh (--touch)"
        );
        row(&mut text, "note", Style::Warning, &words, paint);
    }
    for path in &plan.runs_by_itself {
        let words = format!("{} comes back, and tools run it by themselves", printable(path));
        row(&mut text, "note", Style::Warning, &words, paint);
    }
    text
}

/// What was called since then and stays done, a line each.
pub(crate) fn irreversible(effects: &[KeptView], paint: Paint) -> String {
    let mut text = String::new();
    for effect in effects.iter().take(LISTED) {
        let words = format!("{} ({})", printable(&effect.path), printable(&effect.reason));
        row(&mut text, "stays", Style::Warning, &words, paint);
    }
    more(&mut text, effects.len());
    text
}

fn row(text: &mut String, verb: &str, style: Style, rest: &str, paint: Paint) {
    let verb = format!("{verb:<8}");
    let _ = writeln!(text, "  {} {rest}", paint.text(style, &verb));
}

fn more(text: &mut String, total: usize) {
    if total > LISTED {
        let _ = writeln!(text, "           and {} more", grouped((total - LISTED) as u64));
    }
}

fn steps(text: &mut String, verb: &str, style: Style, steps: &[PlanStep], paint: Paint) {
    for step in steps.iter().take(LISTED) {
        let words = format!("{}{}", printable(&step.path), step_words(step));
        row(text, verb, style, &words, paint);
    }
    more(text, steps.len());
}

/// What changes, where a file's content alone does not say it.
fn step_words(step: &PlanStep) -> String {
    let (now, then) = (&step.now, &step.then);
    if now.kind == "absent" || then.kind == "absent" {
        let there = if now.kind == "absent" { then } else { now };
        return if there.kind == "file" { String::new() } else { format!(" ({})", entry(there)) };
    }
    if now.kind != then.kind {
        return format!(" ({} -> {})", entry(now), entry(then));
    }
    match (&now.mode, &then.mode) {
        (Some(now), Some(then)) if now != then => format!(" (mode {now} -> {then})"),
        _ => String::new(),
    }
}

fn kept(text: &mut String, verb: &str, all: &[KeptView], paint: Paint) {
    for kept in all.iter().take(LISTED) {
        let words = format!("{} ({})", printable(&kept.path), printable(&kept.reason));
        row(text, verb, Style::Faint, &words, paint);
    }
    more(text, all.len());
}

/// Conflicts, each with both sides.
fn conflicts(text: &mut String, all: &[ConflictView], paint: Paint) {
    for conflict in all.iter().take(LISTED) {
        let words = format!(
            "{} ({}: there is {}, the target has {})",
            printable(&conflict.path),
            printable(&conflict.what),
            entry(&conflict.mine),
            entry(&conflict.then)
        );
        row(text, "conflict", Style::Warning, &words, paint);
    }
    more(text, all.len());
}

/// An entry in a few words: `file, 3.4 KiB, 1a2b3c4d`.
fn entry(view: &EntryView) -> String {
    match (view.kind.as_str(), &view.target) {
        ("absent", _) => return "nothing".to_owned(),
        ("symlink", Some(target)) => return format!("symlink to {}", printable(target)),
        _ => {}
    }
    let mut words = view.kind.clone();
    if let Some(bytes) = view.size.filter(|_| view.kind == "file") {
        let _ = write!(words, ", {}", size(bytes));
    }
    if let Some(hash) = &view.hash {
        let _ = write!(words, ", {}", hash.get(..8).unwrap_or(hash));
    }
    if let Some(mode) = &view.mode {
        let _ = write!(words, ", mode {mode}");
    }
    words
}

/// `3 to write, 1 to merge, 2 to delete`.
pub(crate) fn counts(plan: &PlanView) -> String {
    let parts = [
        (plan.write.len(), "to write"),
        (plan.merge.len(), "to merge"),
        (plan.delete.len(), "to delete"),
        (plan.conflict.len(), "in conflict"),
    ];
    let said: Vec<_> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", grouped(*number as u64)))
        .collect();
    if said.is_empty() { "nothing to change".to_owned() } else { said.join(", ") }
}

/// What came out otherwise than planned, a line per path.
pub(crate) fn left_over(report: &RewindReport, paint: Paint) -> String {
    let mut text = String::new();
    kept(&mut text, "not done", &report.unexpected, paint);
    for (from, to) in &report.aside {
        let words = format!("{} -> {}", printable(from), printable(to));
        row(&mut text, "aside", Style::Warning, &words, paint);
    }
    text
}

/// Why a person should look twice before this plan is applied; `None` if there is no reason.
pub(crate) fn doubts(plan: &PlanView) -> Option<String> {
    const DAY_SECONDS: u64 = 86_400;
    let touched = plan.write.len() + plan.merge.len() + plan.delete.len();
    let mut doubts = Vec::new();
    if plan.delete.len() > 20 {
        doubts.push(format!("deletes {}", count(plan.delete.len() as u64, "file")));
    }
    if touched > 200 {
        doubts.push(format!("touches {}", count(touched as u64, "file")));
    }
    if plan.moves_head {
        doubts.push("moves a repository's HEAD".to_owned());
    }
    if !plan.irreversible.is_empty() {
        let effects = count(plan.irreversible.len() as u64, "effect");
        doubts.push(format!("goes back over {effects} that cannot be taken back"));
    }
    if plan.span_seconds > DAY_SECONDS {
        doubts.push(format!("goes back {}", super::time::span(plan.span_seconds)));
    }
    (!doubts.is_empty()).then(|| doubts.join(", "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use chronicle_core::SCHEMA;

    fn file(kind: &str) -> EntryView {
        let size = (kind == "file").then_some(2048);
        EntryView {
            kind: kind.into(),
            hash: None,
            secret: false,
            size,
            mode: None,
            target: None,
            why: None,
        }
    }

    fn step(path: &str, now: &str, then: &str) -> PlanStep {
        PlanStep { path: path.into(), path_b64: None, now: file(now), then: file(then) }
    }

    pub(crate) fn empty() -> PlanView {
        PlanView {
            schema: SCHEMA,
            plan_id: "p".into(),
            resolved_target: "after turn 1".into(),
            write: Vec::new(),
            delete: Vec::new(),
            merge: Vec::new(),
            keep: Vec::new(),
            conflict: Vec::new(),
            unknown: Vec::new(),
            git: Vec::new(),
            irreversible: Vec::new(),
            shared: Vec::new(),
            span_seconds: 0,
            authors: Vec::new(),
            moves_head: false,
            stale_output: Vec::new(),
            runs_by_itself: Vec::new(),
        }
    }

    #[test]
    fn every_path_of_a_plan_has_a_line() {
        let mut some = empty();
        some.write = vec![step("a", "file", "file"), step("l", "file", "symlink")];
        some.delete = vec![step("d", "directory", "absent")];
        some.keep = vec![KeptView { path: "k".into(), reason: "changed by a person".into() }];
        some.conflict = vec![ConflictView {
            path: "c".into(),
            what: "content".into(),
            mine: file("file"),
            then: file("absent"),
        }];
        let expected = "  write    a\n  \
             write    l (file, 2.0 KiB -> symlink)\n  \
             delete   d (directory)\n  \
             keep     k (changed by a person)\n  \
             conflict c (content: there is file, 2.0 KiB, the target has nothing)\n";
        assert_eq!(plan(&some, Paint::plain(80)), expected);
        assert_eq!(counts(&some), "2 to write, 1 to delete, 1 in conflict");
        assert_eq!(counts(&empty()), "nothing to change");
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let mut many = empty();
        many.delete = (0..60).map(|n| step(&n.to_string(), "file", "absent")).collect();
        let text = plan(&many, Paint::plain(80));
        assert_eq!(text.lines().count(), LISTED + 1);
        assert!(text.ends_with("and 10 more\n"));
    }

    #[test]
    fn doubts_are_raised_where_much_would_go() {
        let mut some = empty();
        assert_eq!(doubts(&some), None);
        some.delete = (0..20).map(|n| step(&n.to_string(), "file", "absent")).collect();
        assert_eq!(doubts(&some), None);
        some.delete.push(step("x", "file", "absent"));
        some.moves_head = true;
        some.span_seconds = 200_000;
        let reason = "called in turn 1".into();
        some.irreversible = vec![KeptView { path: "git push".into(), reason }];
        let said = doubts(&some).expect("doubts");
        let expected = "deletes 21 files, moves a repository's HEAD, goes back over 1 effect that \
                        cannot be taken back, goes back 2 days";
        assert_eq!(said, expected);
        let rows = "  stays    git push (called in turn 1)\n";
        assert_eq!(irreversible(&some.irreversible, Paint::plain(80)), rows);
    }
}
