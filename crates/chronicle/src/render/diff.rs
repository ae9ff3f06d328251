//! Differences as text: a line per file with bars, the patch, or the names.

use std::fmt::Write as _;

use chronicle_core::{Diff, DiffChange, EntryView, FileChange};

use super::{Paint, Style, count, fit_path, printable, size};

/// The widest that the bars get.
const BARS: usize = 40;

/// One changed path, from whichever view it comes.
pub(crate) struct Row<'v> {
    path: &'v str,
    from: Option<&'v str>,
    change_type: &'v str,
    inserted: u64,
    deleted: u64,
    binary: bool,
    before: &'v EntryView,
    after: &'v EntryView,
}

impl<'v> From<&'v DiffChange> for Row<'v> {
    fn from(change: &'v DiffChange) -> Self {
        Self {
            path: &change.path,
            from: change.from.as_deref(),
            change_type: &change.change_type,
            inserted: change.inserted,
            deleted: change.deleted,
            binary: change.binary,
            before: &change.before,
            after: &change.after,
        }
    }
}

impl<'v> From<&'v FileChange> for Row<'v> {
    fn from(change: &'v FileChange) -> Self {
        Self {
            path: &change.path,
            from: change.from.as_deref(),
            change_type: &change.change_type,
            inserted: change.inserted.unwrap_or(0),
            deleted: change.deleted.unwrap_or(0),
            binary: change.binary,
            before: &change.before,
            after: &change.after,
        }
    }
}

impl Row<'_> {
    /// `A`, `M`, `D`, `R`, and `m` for the mode alone.
    fn letter(&self) -> &'static str {
        match self.change_type {
            "created" => "A",
            "deleted" => "D",
            "renamed" => "R",
            "mode" => "m",
            _ => "M",
        }
    }

    fn style(&self) -> Style {
        match self.change_type {
            "created" => Style::Added,
            "deleted" => Style::Removed,
            _ => Style::Heading,
        }
    }

    fn name(&self) -> String {
        match self.from {
            Some(from) => format!("{} => {}", printable(from), printable(self.path)),
            None => printable(self.path).into_owned(),
        }
    }

    /// What cannot be said in lines; empty if lines say it all.
    fn words(&self) -> String {
        let mut words = Vec::new();
        if self.before.kind != self.after.kind && is_there(self.before) && is_there(self.after) {
            words.push(format!("{} -> {}", self.before.kind, self.after.kind));
        } else if let Some(kind) = unusual_kind(self.before, self.after) {
            words.push(kind);
        } else if self.before.secret || self.after.secret {
            words.push(format!("secret, {} -> {}", bytes(self.before), bytes(self.after)));
        } else if self.binary {
            words.push(format!("binary, {} -> {}", bytes(self.before), bytes(self.after)));
        }
        if let (Some(before), Some(after)) = (&self.before.mode, &self.after.mode)
            && before != after
        {
            words.push(format!("mode {before} -> {after}"));
        }
        if let Some(why) = &self.after.why {
            words.push(printable(why).into_owned());
        }
        words.join(", ")
    }
}

fn is_there(entry: &EntryView) -> bool {
    !matches!(entry.kind.as_str(), "absent" | "unknown")
}

/// What it is, if it is not a file.
fn unusual_kind(before: &EntryView, after: &EntryView) -> Option<String> {
    let entry = if is_there(after) { after } else { before };
    match (entry.kind.as_str(), &entry.target) {
        ("file" | "absent", _) => None,
        ("symlink", Some(target)) => Some(format!("symlink to {}", printable(target))),
        (kind, _) => Some(kind.to_owned()),
    }
}

fn bytes(entry: &EntryView) -> String {
    entry.size.map_or_else(|| "0 B".to_owned(), size)
}

/// A line per row: letter, name, counts, bars fitted to the width.
pub(crate) fn rows(rows: &[Row<'_>], paint: Paint) -> String {
    let names: Vec<_> = rows.iter().map(Row::name).collect();
    let most = rows.iter().map(|row| row.inserted + row.deleted).max().unwrap_or(0);
    let digits = most.to_string().len().max(1);
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let room = paint.width.saturating_sub(digits + 8);
    let name_width = longest.min(room.saturating_sub(BARS.min(room / 3)).max(10));
    let bar_width = room.saturating_sub(name_width).min(BARS);
    let mut text = String::new();
    for (row, name) in rows.iter().zip(&names) {
        let name = fit_path(name, name_width);
        let pad = " ".repeat(name_width - name.chars().count());
        let letter = paint.text(row.style(), row.letter());
        let tail = tail(row, digits, bar_width, most, paint);
        let _ = writeln!(text, "{}", format!(" {letter} {name}{pad} | {tail}").trim_end());
    }
    text
}

fn tail(row: &Row<'_>, digits: usize, bar_width: usize, most: u64, paint: Paint) -> String {
    let words = row.words();
    let lines = row.inserted + row.deleted;
    if lines == 0 {
        let nothing = if row.change_type == "modified" { "no lines" } else { "" };
        let words = if words.is_empty() { nothing } else { &words };
        return format!("{:>digits$} {}", "-", paint.text(Style::Faint, words));
    }
    let (plus, minus) = bars(row.inserted, row.deleted, most, bar_width);
    let plus = paint.text(Style::Added, &plus).into_owned();
    let minus = paint.text(Style::Removed, &minus).into_owned();
    let words = if words.is_empty() { words } else { format!(" ({words})") };
    format!("{lines:>digits$} {plus}{minus}{}", paint.text(Style::Faint, &words))
}

/// The bars of one row: to scale, but a side that has lines has at least one mark.
fn bars(inserted: u64, deleted: u64, most: u64, width: usize) -> (String, String) {
    let width = width.max(2) as u64;
    let scaled = |lines: u64| match lines {
        0 => 0,
        _ if most <= width => lines,
        _ => (lines.saturating_mul(width) / most).max(1),
    };
    let mut plus = scaled(inserted);
    let mut minus = scaled(deleted);
    // Rounding a short side up to one must not make the row longer than the longest.
    if plus + minus > width {
        if plus > minus { plus -= 1 } else { minus -= 1 }
    }
    ("+".repeat(plus as usize), "-".repeat(minus as usize))
}

/// `3 files changed, 12 insertions(+), 4 deletions(-)`.
pub(crate) fn total(files: u64, insertions: u64, deletions: u64) -> String {
    let mut text = format!("{} changed", count(files, "file"));
    if insertions > 0 {
        let _ = write!(text, ", {}(+)", count(insertions, "insertion"));
    }
    if deletions > 0 {
        let _ = write!(text, ", {}(-)", count(deletions, "deletion"));
    }
    text
}

/// The whole difference, a line per file.
pub(crate) fn stat(diff: &Diff, paint: Paint) -> String {
    if diff.changes.is_empty() {
        return String::new();
    }
    let all: Vec<Row<'_>> = diff.changes.iter().map(Row::from).collect();
    let total = total(diff.files_changed, diff.insertions, diff.deletions);
    format!("{} {total}\n", rows(&all, paint))
}

/// The names alone.
pub(crate) fn names(diff: &Diff) -> String {
    diff.changes.iter().map(|change| format!("{}\n", printable(&change.path))).collect()
}

/// The changed lines of every file.
pub(crate) fn patches(diff: &Diff, paint: Paint) -> String {
    diff.changes.iter().map(|change| one_patch(change, paint)).collect()
}

fn one_patch(change: &DiffChange, paint: Paint) -> String {
    let row = Row::from(change);
    let Some(text) = change.patch.as_deref().filter(|text| !text.is_empty()) else {
        let words = format!("{} {} {}", row.letter(), row.name(), row.words());
        return format!("{}\n", paint.text(Style::Heading, words.trim_end()));
    };
    let titled = text.starts_with("diff ") || text.starts_with("--- ");
    let title = format!("diff {}\n", row.name());
    format!("{}{}", if titled { "" } else { &title }, patch(text, paint))
}

/// A patch with its lines in colour; for a program it is left as it is, so that it still applies.
pub(crate) fn patch(text: &str, paint: Paint) -> String {
    if !paint.terminal {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return format!("{text}{end}");
    }
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        let harmless = paint.content(line);
        let _ = writeln!(shown, "{}", patch_line(&harmless, paint));
    }
    shown
}

fn patch_line(line: &str, paint: Paint) -> std::borrow::Cow<'_, str> {
    let heading = ["diff ", "--- ", "+++ ", "rename ", "new ", "deleted ", "old ", "index "];
    if heading.iter().any(|start| line.starts_with(start)) {
        return paint.text(Style::Heading, line);
    }
    match line.as_bytes().first() {
        Some(b'+') => paint.text(Style::Added, line),
        Some(b'-') => paint.text(Style::Removed, line),
        Some(b'@') => paint.text(Style::Id, line),
        _ => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &str, mode: Option<&str>) -> EntryView {
        EntryView {
            kind: kind.into(),
            hash: None,
            secret: false,
            size: Some(10),
            mode: mode.map(Into::into),
            target: None,
            why: None,
        }
    }

    fn change(path: &str, change_type: &str, inserted: u64, deleted: u64) -> DiffChange {
        DiffChange {
            path: path.into(),
            path_b64: None,
            change_type: change_type.into(),
            from: None,
            before_hash: None,
            after_hash: None,
            size_bytes: 0,
            inserted,
            deleted,
            binary: false,
            before: entry(if change_type == "created" { "absent" } else { "file" }, None),
            after: entry(if change_type == "deleted" { "absent" } else { "file" }, None),
            patch: None,
        }
    }

    #[track_caller]
    fn check(changes: &[DiffChange], expected: &str) {
        let all: Vec<_> = changes.iter().map(Row::from).collect();
        assert_eq!(rows(&all, Paint::plain(60)), expected);
    }

    #[test]
    fn files_stand_in_columns_with_bars() {
        let changes = [change("a", "modified", 2, 1), change("long/name", "created", 12, 0)];
        check(
            &changes,
            " M a         |  3 ++-\n \
              A long/name | 12 ++++++++++++\n",
        );
    }

    #[test]
    fn bars_are_scaled_and_no_side_vanishes() {
        assert_eq!(bars(1, 0, 1000, 10), ("+".into(), String::new()));
        let (plus, minus) = bars(999, 1, 1000, 10);
        assert_eq!((plus.len(), minus.len()), (9, 1));
        assert_eq!(bars(2, 2, 4, 10), ("++".into(), "--".into()));
    }

    #[test]
    fn what_has_no_lines_is_said_in_words() {
        let mut mode = change("run", "mode", 0, 0);
        (mode.before, mode.after) = (entry("file", Some("644")), entry("file", Some("755")));
        let mut binary = change("x.png", "modified", 0, 0);
        binary.binary = true;
        let mut link = change("l", "modified", 0, 0);
        link.after = EntryView { target: Some("x\u{1b}".into()), ..entry("symlink", None) };
        check(
            &[mode, binary, link],
            " m run   | - mode 644 -> 755\n \
              M x.png | - binary, 10 B -> 10 B\n \
              M l     | - file -> symlink\n",
        );
    }

    #[test]
    fn long_names_keep_their_end() {
        let long = format!("{}/end.rs", "d".repeat(200));
        let all = [change(&long, "modified", 1, 1)];
        let text = rows(&all.iter().map(Row::from).collect::<Vec<_>>(), Paint::plain(60));
        assert!(text.contains("dd/end.rs | 2 +-"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn a_patch_for_a_program_is_left_as_it_is() {
        assert_eq!(patch("-a\u{1b}\n+b", Paint::plain(80)), "-a\u{1b}\n+b\n");
        let terminal = Paint { color: true, terminal: true, width: 80 };
        assert_eq!(patch("-a\u{1b}\n", terminal), "\x1b[31m-a\\u{1b}\x1b[0m\n");
    }
}
