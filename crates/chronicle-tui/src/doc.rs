//! A patch or a file's content as lines, of which only those that are seen are worked out.

use std::collections::HashMap;

/// The longest line in which words are compared.
const LONGEST: usize = 2_000;
/// The most words of a line that are compared.
const WORDS: usize = 300;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    Plain,
    Heading,
    Hunk,
    Added,
    Removed,
    Note,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: LineKind,
    /// Without the sign of a patch.
    pub(crate) text: String,
    /// The line that took its place, or whose place it took.
    pub(crate) partner: Option<u32>,
    /// The numbers of the line before and after, from 1; 0 for none.
    pub(crate) numbers: (u32, u32),
}

/// Lines to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Doc {
    pub(crate) lines: Vec<Line>,
    pub(crate) inserted: u64,
    pub(crate) deleted: u64,
}

/// Where one stands in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DocView {
    pub(crate) doc: Doc,
    pub(crate) top: usize,
    pub(crate) left: usize,
}

impl DocView {
    pub(crate) fn new(doc: Doc) -> Self {
        Self { doc, top: 0, left: 0 }
    }

    /// The next or the one before of the places where changes begin.
    pub(crate) fn hunk(&mut self, forward: bool, height: usize) {
        let is_hunk = |index: &usize| self.doc.lines[*index].kind == LineKind::Hunk;
        let found = match forward {
            true => (self.top + 1..self.doc.lines.len()).find(is_hunk),
            false => (0..self.top.min(self.doc.lines.len())).rev().find(is_hunk),
        };
        if let Some(top) = found {
            self.top = top.min(self.doc.lines.len().saturating_sub(height.max(1)));
        }
    }
}

impl Doc {
    /// The lines of a unified patch.
    pub(crate) fn of_patch(patch: &str) -> Self {
        let mut doc = Self::default();
        let (mut old, mut new) = (0, 0);
        let mut in_hunk = false;
        for line in patch.split_terminator('\n') {
            let (sign, rest) = match line.chars().next() {
                Some(sign @ ('+' | '-' | ' ' | '\\')) if in_hunk => (sign, &line[1..]),
                Some('@') => ('@', line),
                _ => ('h', line),
            };
            let (kind, numbers) = match sign {
                '@' => {
                    (old, new) = hunk_start(line);
                    in_hunk = true;
                    (LineKind::Hunk, (0, 0))
                }
                '+' => (LineKind::Added, (0, step(&mut new))),
                '-' => (LineKind::Removed, (step(&mut old), 0)),
                ' ' => (LineKind::Plain, (step(&mut old), step(&mut new))),
                '\\' => (LineKind::Note, (0, 0)),
                _ => (LineKind::Heading, (0, 0)),
            };
            doc.inserted += u64::from(kind == LineKind::Added);
            doc.deleted += u64::from(kind == LineKind::Removed);
            doc.lines.push(Line { kind, text: rest.to_owned(), partner: None, numbers });
        }
        doc.pair();
        doc
    }

    /// The lines of a text.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut number = 1;
        let lines = text.split_terminator('\n').map(|line| Line {
            kind: LineKind::Plain,
            text: line.to_owned(),
            partner: None,
            numbers: (0, step(&mut number)),
        });
        Self { lines: lines.collect(), ..Self::default() }
    }

    /// Words of ours about something that has no lines.
    pub(crate) fn of_note(text: &str) -> Self {
        let line = |text: &str| Line {
            kind: LineKind::Note,
            text: text.to_owned(),
            partner: None,
            numbers: (0, 0),
        };
        Self { lines: text.lines().map(line).collect(), ..Self::default() }
    }

    /// Puts removed lines beside the added ones that follow them.
    fn pair(&mut self) {
        let mut index = 0;
        while index < self.lines.len() {
            let run = |from: usize, kind| {
                self.lines[from..].iter().take_while(|line| line.kind == kind).count()
            };
            let removed = run(index, LineKind::Removed);
            let added = run(index + removed, LineKind::Added);
            for offset in 0..removed.min(added) {
                let (old, new) = (index + offset, index + removed + offset);
                self.lines[old].partner = u32::try_from(new).ok();
                self.lines[new].partner = u32::try_from(old).ok();
            }
            index += (removed + added).max(1);
        }
    }

    /// The parts of a line that its partner has not, as ranges of bytes.
    pub(crate) fn changed_words(&self, index: usize) -> Vec<std::ops::Range<usize>> {
        let line = &self.lines[index];
        let Some(partner) = line.partner.and_then(|at| self.lines.get(at as usize)) else {
            return Vec::new();
        };
        if line.text.len() > LONGEST || partner.text.len() > LONGEST {
            return Vec::new();
        }
        only_in(&line.text, &partner.text)
    }

    /// How many columns the numbers of lines need.
    pub(crate) fn number_width(&self) -> usize {
        let most = self.lines.iter().rev().map(|line| line.numbers.0.max(line.numbers.1));
        most.take(200).max().unwrap_or(0).max(1).to_string().len().max(3)
    }
}

fn step(number: &mut u32) -> u32 {
    *number = number.saturating_add(1);
    *number - 1
}

/// `@@ -2,7 +4,7 @@` begins at 2 and 4.
fn hunk_start(line: &str) -> (u32, u32) {
    let number = |sign: char| {
        let rest = line.split(sign).nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    (number('-').unwrap_or(0), number('+').unwrap_or(0))
}

/// The words of a line: letters and digits together, everything else alone.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words: Vec<(usize, &str)> = Vec::new();
    let mut begin = None;
    for (at, c) in text.char_indices() {
        if c.is_alphanumeric() || c == '_' {
            begin.get_or_insert(at);
            continue;
        }
        if let Some(from) = begin.take() {
            words.push((from, &text[from..at]));
        }
        words.push((at, &text[at..at + c.len_utf8()]));
    }
    if let Some(from) = begin {
        words.push((from, &text[from..]));
    }
    words
}

/// What the first line has and the second has not; nothing if hardly anything is the same.
fn only_in(text: &str, other: &str) -> Vec<std::ops::Range<usize>> {
    let (ours, theirs) = (words(text), words(other));
    if ours.len() > WORDS || theirs.len() > WORDS {
        return Vec::new();
    }
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut number = |word| {
        let next = known.len();
        *known.entry(word).or_insert(next)
    };
    let a: Vec<usize> = ours.iter().map(|(_, word)| number(*word)).collect();
    let b: Vec<usize> = theirs.iter().map(|(_, word)| number(*word)).collect();
    let mut longest = vec![vec![0_u16; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = match a[i] == b[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    // Two lines with little in common are simply two lines.
    if usize::from(longest[0][0]) * 3 < a.len().max(b.len()) {
        return Vec::new();
    }
    let (mut i, mut j) = (0, 0);
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    while i < a.len() {
        if j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j < b.len() && longest[i][j + 1] >= longest[i + 1][j] {
            j += 1;
        } else {
            let (from, word) = ours[i];
            match ranges.last_mut().filter(|last| last.end == from) {
                Some(last) => last.end = from + word.len(),
                None => ranges.push(from..from + word.len()),
            }
            i += 1;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_becomes_lines_with_numbers_and_partners() {
        let doc = Doc::of_patch("diff a/x b/x\n--- a/x\n@@ -2,2 +2,3 @@\n a\n-b c\n+b d\n+-- x\n");
        let told: Vec<_> =
            doc.lines.iter().map(|line| (line.kind, &line.text[..], line.numbers)).collect();
        assert_eq!(
            told,
            [
                (LineKind::Heading, "diff a/x b/x", (0, 0)),
                (LineKind::Heading, "--- a/x", (0, 0)),
                (LineKind::Hunk, "@@ -2,2 +2,3 @@", (0, 0)),
                (LineKind::Plain, "a", (2, 2)),
                (LineKind::Removed, "b c", (3, 0)),
                (LineKind::Added, "b d", (0, 3)),
                (LineKind::Added, "-- x", (0, 4)),
            ]
        );
        assert_eq!((doc.inserted, doc.deleted), (2, 1));
        assert_eq!(doc.lines[4].partner, Some(5));
        assert_eq!(doc.changed_words(4).first(), Some(&(2..3)));
        assert!(doc.changed_words(6).is_empty());
    }

    #[track_caller]
    fn check_words(text: &str, other: &str, expected: &[&str]) {
        let found: Vec<_> = only_in(text, other).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_that_only_one_side_has_are_marked() {
        check_words("let x = 80;", "let x = 8080;", &["80"]);
        check_words("let x = 8080;", "let x = 80;", &["8080"]);
        check_words("same", "same", &[]);
        check_words("entirely different here", "42", &[]);
        check_words("f(a, b)", "f(a)", &[", b"]);
        check_words("grün é漢", "grün é字", &["é漢"]);
    }

    #[test]
    fn hunks_are_found_both_ways() {
        let doc = Doc::of_patch("@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n");
        let mut view = DocView::new(doc);
        view.hunk(true, 2);
        assert_eq!(view.top, 3);
        view.hunk(false, 2);
        assert_eq!(view.top, 0);
    }
}
