//! One file's difference as hunks of lines: between moments, of a turn or action, or in a plan.

use super::compare::{Between, DiffRequest};
use super::rewind::{RewindKind, RewindRequest};
use super::views::{change_type, entry_view, path_text};
use super::{PATIENCE, Workspace};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::path::WorkspacePath;
use crate::text::{self, LineChange};
use crate::view::{FileDiff, HunkView, SCHEMA};

/// How many lines of a difference are given.
const LINES_MOST: usize = 120_000;
/// How many bytes of them.
const BYTES_MOST: usize = 12 << 20;
/// How much of one line.
const LINE_MOST: usize = 4_000;
/// Lines of context, as in patches.
const CONTEXT: u32 = 3;

impl Workspace {
    /// How one file differs, between what a request for a diff names.
    pub fn file_diff(&mut self, request: &DiffRequest, path: &WorkspacePath) -> Result<FileDiff> {
        let mut compared = self.compared(request)?;
        let between = match compared.changed.remove(path) {
            Some(between) => between,
            None => {
                let entry = self.entry_at(path, compared.end)?;
                if entry == Entry::Absent {
                    return Err(Error::UnknownTarget(format!("a file at {path}")));
                }
                Between::same(entry, compared.end)
            }
        };
        let before = between.origin.as_ref().unwrap_or(&between.before);
        let mut diff =
            self.hunks_between(path, before, &between.after, &|entry| self.countable(entry))?;
        let moment = |seq: Seq| (seq.0 > 0).then(|| format!("seq:{seq}"));
        diff.before_at = moment(Seq(between.first.0.saturating_sub(1)));
        diff.after_at = moment(between.last);
        if let Some(from) = &between.from {
            diff.from = Some(from.to_string());
            diff.change_type = "renamed".to_owned();
        }
        Ok(diff)
    }

    /// How one file of a plan that was shown would differ: from what it would be to what it is, so
    /// that the hunks are those that can be taken back one by one. Of a path in conflict, both sides.
    pub fn plan_file(&mut self, plan: &str, path: &WorkspacePath) -> Result<FileDiff> {
        let _lock = self.lock(PATIENCE)?;
        let kind = RewindKind::Plan { id: plan.to_owned() };
        let (mut request, _) = self.with_saved_plan(&RewindRequest::new(kind))?;
        // The whole file: which hunks of it were chosen before is not what is asked.
        request.hunks.clear();
        let planned = self.draft_again(&request)?;
        let draft = &planned.draft;
        let goal = draft.goals.iter().find(|goal| goal.path == *path);
        let conflict = draft.conflicts.iter().find(|conflict| conflict.path == *path);
        let (then, now) = match (goal, conflict) {
            (_, Some(conflict)) => (&conflict.then, &conflict.mine),
            (Some(goal), None) => (&goal.then, &goal.now),
            (None, None) => return Err(Error::UnknownTarget(format!("{path} in plan {plan}"))),
        };
        let content = |entry: &Entry| {
            let merged = draft.merged.iter().find(|(id, _)| entry.object() == Some(*id));
            match merged {
                Some((_, bytes)) => Ok(Some(bytes.clone())),
                None => self.countable(entry),
            }
        };
        self.hunks_between(path, then, now, &content)
    }

    fn hunks_between(
        &self,
        path: &WorkspacePath,
        before: &Entry,
        after: &Entry,
        content: &dyn Fn(&Entry) -> Result<Option<Vec<u8>>>,
    ) -> Result<FileDiff> {
        let (shown, path_b64) = path_text(path);
        let same = before == after;
        let mut diff = FileDiff {
            schema: SCHEMA,
            path: shown,
            path_b64,
            change_type: if same { "same" } else { change_type(before, after, false) }.to_owned(),
            from: None,
            before: entry_view(before),
            after: entry_view(after),
            before_at: None,
            after_at: None,
            inserted: 0,
            deleted: 0,
            binary: false,
            why: None,
            hunks: Vec::new(),
            partial: false,
        };
        let plain = |entry: &Entry| !matches!(entry, Entry::Repository(_) | Entry::Unknown(_));
        if before.same_content(after) {
            return Ok(diff);
        }
        if before.is_secret() || after.is_secret() {
            diff.why = Some("the content is secret and is not shown here".to_owned());
        } else if !plain(before) || !plain(after) {
            diff.why = Some("it is not a file that has lines".to_owned());
        } else if let (Some(old), Some(new)) = (content(before)?, content(after)?) {
            add_hunks(&mut diff, &old, &new);
        } else {
            diff.why = Some("it is too large to compare by lines".to_owned());
        }
        Ok(diff)
    }
}

fn add_hunks(diff: &mut FileDiff, old: &[u8], new: &[u8]) {
    if text::is_binary(old) || text::is_binary(new) {
        diff.binary = true;
        diff.why = Some("the content is not text".to_owned());
        return;
    }
    let counts = text::counts(old, new);
    (diff.inserted, diff.deleted) = (counts.inserted, counts.deleted);
    let (old_lines, new_lines) = (text::lines(old), text::lines(new));
    let mut room = Room { lines: LINES_MOST, bytes: BYTES_MOST, short: false };
    for (index, group) in text::hunks(old, new).iter().enumerate() {
        if room.is_full() {
            room.short = true;
            break;
        }
        diff.hunks.extend(hunk(index, group, &old_lines, &new_lines, &mut room));
    }
    diff.partial = room.short;
}

/// How much may still be given, and whether something was left out.
struct Room {
    lines: usize,
    bytes: usize,
    short: bool,
}

impl Room {
    fn is_full(&self) -> bool {
        self.lines == 0 || self.bytes == 0
    }

    fn add(&mut self, out: &mut Vec<String>, sign: char, lines: &[&[u8]]) {
        for line in lines {
            if self.is_full() {
                self.short = true;
                return;
            }
            let ended = line.ends_with(b"\n");
            let bare = line.strip_suffix(b"\n").unwrap_or(line);
            let mut text = String::from(sign);
            text.push_str(&String::from_utf8_lossy(&bare[..bare.len().min(LINE_MOST)]));
            if bare.len() > LINE_MOST {
                self.short = true;
                text.push_str(&format!("\u{2026} ({} bytes more)", bare.len() - LINE_MOST));
            }
            self.lines -= 1;
            self.bytes = self.bytes.saturating_sub(text.len());
            out.push(text);
            if !ended {
                out.push("\\ No newline at end of file".to_owned());
            }
        }
    }
}

fn hunk(
    index: usize,
    group: &[LineChange],
    old: &[&[u8]],
    new: &[&[u8]],
    room: &mut Room,
) -> Option<HunkView> {
    let (first, last) = (group.first()?, group.last()?);
    let lead = first.before.start.min(CONTEXT);
    let trail = (u32::try_from(old.len()).unwrap_or(u32::MAX) - last.before.end).min(CONTEXT);
    let old_range = first.before.start - lead..last.before.end + trail;
    let new_range = first.after.start - lead..last.after.end + trail;
    let mut lines = Vec::new();
    let mut position = old_range.start;
    for change in group {
        room.add(&mut lines, ' ', &old[position as usize..change.before.start as usize]);
        let (gone, come) = (&change.before, &change.after);
        room.add(&mut lines, '-', &old[gone.start as usize..gone.end as usize]);
        room.add(&mut lines, '+', &new[come.start as usize..come.end as usize]);
        position = change.before.end;
    }
    room.add(&mut lines, ' ', &old[position as usize..old_range.end as usize]);
    Some(HunkView {
        number: index as u64 + 1,
        old_start: u64::from(old_range.start) + 1,
        old_lines: u64::from(old_range.end - old_range.start),
        new_start: u64::from(new_range.start) + 1,
        new_lines: u64::from(new_range.end - new_range.start),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff() -> FileDiff {
        let entry = entry_view(&Entry::Absent);
        FileDiff {
            schema: SCHEMA,
            path: String::new(),
            path_b64: None,
            change_type: String::new(),
            from: None,
            before: entry.clone(),
            after: entry,
            before_at: None,
            after_at: None,
            inserted: 0,
            deleted: 0,
            binary: false,
            why: None,
            hunks: Vec::new(),
            partial: false,
        }
    }

    #[test]
    fn hunks_are_those_of_a_patch() {
        let mut found = diff();
        add_hunks(&mut found, b"a\nb\nc\nd\ne\nf\ng\nh\n", b"a\nb\nc\nd\nX\nf\ng\nh");
        assert_eq!((found.inserted, found.deleted, found.partial), (2, 2, false));
        let [hunk] = &found.hunks[..] else { panic!("{:?}", found.hunks) };
        assert_eq!((hunk.number, hunk.old_start, hunk.old_lines), (1, 2, 7));
        let words = " b| c| d|-e|+X| f| g|-h|+h|\\ No newline at end of file";
        assert_eq!(hunk.lines.join("|"), words);
    }

    #[test]
    fn long_lines_and_many_lines_are_cut_and_said_to_be() {
        let mut found = diff();
        add_hunks(&mut found, b"", &[b'x'; 1 << 20]);
        assert!(found.partial);
        assert!(found.hunks[0].lines[0].len() < 2 * LINE_MOST);
        let mut found = diff();
        add_hunks(&mut found, b"", "y\n".repeat(LINES_MOST + 10).as_bytes());
        assert!(found.partial);
        assert_eq!(found.hunks[0].lines.len(), LINES_MOST);
        assert_eq!(found.hunks[0].new_lines, LINES_MOST as u64 + 10);
    }

    #[test]
    fn what_is_not_text_has_no_hunks() {
        let mut found = diff();
        add_hunks(&mut found, b"a\0", b"b\0");
        assert!(found.binary && found.hunks.is_empty() && found.why.is_some());
    }
}
