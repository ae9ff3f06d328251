//! Lines of text: what differs between two versions, as counts, hunks and patches.
//!
//! Works on bytes in memory and never fails: content that is too large to compare line by line is
//! compared coarsely instead. Merging three versions is in `merge`.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput, Token};

use crate::path::WorkspacePath;

/// How far into content a NUL byte makes it binary.
const BINARY_PREFIX: usize = 8 * 1024;
/// Lines of context around a change, as `diff -u` prints them.
const CONTEXT: u32 = 3;
/// Above this many lines in all, comparing can take quadratic time: lines that occur once are
/// matched first, and only what lies between them is compared.
const PLAIN_LINES: usize = 10_000;
/// Above this many lines in all, what lies between two matched lines is one change.
const GAP_LINES: usize = 4_000;

/// A range of lines that another range of lines replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineChange {
    /// The lines before, from 0.
    pub before: Range<u32>,
    /// The lines after, from 0.
    pub after: Range<u32>,
}

/// How many lines were added and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// Lines that only the version after has.
    pub inserted: u64,
    /// Lines that only the version before has.
    pub deleted: u64,
}

/// Whether content is not text: a NUL byte near its beginning, as git decides it.
pub fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, &bytes[..bytes.len().min(BINARY_PREFIX)]).is_some()
}

/// The lines of a text, each with its line end.
pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(|| {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let (line, tail) = rest.split_at(end);
        rest = tail;
        (!line.is_empty()).then_some(line)
    })
    .collect()
}

fn count_lines(bytes: &[u8]) -> usize {
    let open_end = !matches!(bytes.last(), None | Some(b'\n'));
    memchr::memchr_iter(b'\n', bytes).count() + usize::from(open_end)
}

/// How many lines differ.
pub fn counts(before: &[u8], after: &[u8]) -> LineCounts {
    if before.is_empty() || after.is_empty() {
        let count = |bytes| u64::try_from(count_lines(bytes)).unwrap_or(u64::MAX);
        return LineCounts { inserted: count(after), deleted: count(before) };
    }
    let mut sum = LineCounts::default();
    for change in changes(before, after) {
        sum.inserted += u64::from(change.after.end - change.after.start);
        sum.deleted += u64::from(change.before.end - change.before.start);
    }
    sum
}

/// The ranges of lines that differ, in order; two of them never touch.
pub fn changes(before: &[u8], after: &[u8]) -> Vec<LineChange> {
    if before == after {
        return Vec::new();
    }
    let input = InternedInput::new(before, after);
    if input.before.len() + input.after.len() > PLAIN_LINES {
        return anchored_changes(&input.before, &input.after, input.interner.num_tokens());
    }
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    diff.hunks().map(|hunk| LineChange { before: hunk.before, after: hunk.after }).collect()
}

/// The same for many lines: time grows with their number, whatever they are.
fn anchored_changes(before: &[Token], after: &[Token], tokens: u32) -> Vec<LineChange> {
    let mut changes = Vec::new();
    let (mut old, mut new) = (0, 0);
    let end = (before.len(), after.len());
    for (old_end, new_end) in anchors(before, after, tokens).into_iter().chain([end]) {
        gap_changes(&before[old..old_end], &after[new..new_end], (old, new), &mut changes);
        (old, new) = (old_end + 1, new_end + 1);
    }
    changes
}

/// Pairs of lines that occur once on each side, as many as stand in the same order on both.
fn anchors(before: &[Token], after: &[Token], tokens: u32) -> Vec<(usize, usize)> {
    let once = |lines: &[Token]| {
        let mut places = vec![None; tokens as usize];
        let mut count = vec![0_u8; tokens as usize];
        for (index, token) in lines.iter().enumerate() {
            places[token.0 as usize] = Some(index);
            count[token.0 as usize] = count[token.0 as usize].saturating_add(1);
        }
        places.into_iter().zip(count).map(|(place, count)| place.filter(|_| count == 1)).collect()
    };
    let (old, new): (Vec<Option<usize>>, Vec<Option<usize>>) = (once(before), once(after));
    let pair = |token: &Token| old[token.0 as usize].zip(new[token.0 as usize]);
    longest_rising(&before.iter().filter_map(pair).collect::<Vec<_>>())
}

/// The longest part of the pairs, ordered by the first number, in which the second rises too.
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut ends: Vec<usize> = Vec::new();
    let mut previous = vec![usize::MAX; pairs.len()];
    for (index, pair) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < pair.1);
        if length > 0 {
            previous[index] = ends[length - 1];
        }
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let last = ends.last().copied();
    let chain =
        std::iter::successors(last, |index| Some(previous[*index]).filter(|i| *i != usize::MAX));
    let mut rising: Vec<_> = chain.map(|index| pairs[index]).collect();
    rising.reverse();
    rising
}

/// The changes between two matched lines, which begin at `offset` on the two sides.
fn gap_changes(
    before: &[Token],
    after: &[Token],
    offset: (usize, usize),
    changes: &mut Vec<LineChange>,
) {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[head..], &after[head..]);
    let same_end = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b);
    let tail = same_end.count();
    let (before, after) = (&before[..before.len() - tail], &after[..after.len() - tail]);
    let number = |count: usize| u32::try_from(count).expect("the interner counts lines in 32 bits");
    let (old, new) = (number(offset.0 + head), number(offset.1 + head));
    if before.is_empty() && after.is_empty() {
        return;
    }
    if before.len() <= 1 || after.len() <= 1 || before.len() + after.len() > GAP_LINES {
        let range = |start: u32, tokens: &[Token]| start..start + number(tokens.len());
        changes.push(LineChange { before: range(old, before), after: range(new, after) });
        return;
    }
    let mut diff = Diff::default();
    diff.compute_with(Algorithm::Myers, before, after, 0);
    changes.extend(diff.hunks().map(|hunk| LineChange {
        before: hunk.before.start + old..hunk.before.end + old,
        after: hunk.after.start + new..hunk.after.end + new,
    }));
}

/// The changes grouped as a patch with three lines of context shows them: one group per `@@`.
pub fn hunks(before: &[u8], after: &[u8]) -> Vec<Vec<LineChange>> {
    let mut groups: Vec<Vec<LineChange>> = Vec::new();
    for change in changes(before, after) {
        let near = |last: &LineChange| change.before.start - last.before.end <= 2 * CONTEXT;
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(near) => group.push(change),
            _ => groups.push(vec![change]),
        }
    }
    groups
}

/// The text after, with the chosen hunks of `hunks(before, after)` as they were before.
///
/// `None` if one of the numbers names no hunk.
pub fn take_back(before: &[u8], after: &[u8], chosen: &[usize]) -> Option<Vec<u8>> {
    let hunks = hunks(before, after);
    if chosen.iter().any(|index| *index >= hunks.len()) {
        return None;
    }
    let (old, new) = (lines(before), lines(after));
    let (mut text, mut position) = (Vec::with_capacity(after.len()), 0);
    let taken = hunks.iter().enumerate().filter(|(index, _)| chosen.contains(index));
    for change in taken.flat_map(|(_, group)| group) {
        text.extend(new[position..change.after.start as usize].concat());
        text.extend(old[change.before.start as usize..change.before.end as usize].concat());
        position = change.after.end as usize;
    }
    text.extend(new[position..].concat());
    Some(text)
}

/// The unified patch of one file, with its two header lines; empty if nothing differs.
///
/// A side without a path is a file that is not there. Binary content is only said to differ.
pub fn unified(
    old: Option<&WorkspacePath>,
    new: Option<&WorkspacePath>,
    before: &[u8],
    after: &[u8],
) -> Vec<u8> {
    let label = |prefix: &str, path: Option<&WorkspacePath>| match path {
        Some(path) => format!("{prefix}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (old, new) = (label("a", old), label("b", new));
    if before == after {
        return Vec::new();
    }
    if is_binary(before) || is_binary(after) {
        return format!("Binary files {old} and {new} differ\n").into_bytes();
    }
    let mut out = format!("--- {old}\n+++ {new}\n").into_bytes();
    out.extend(patch(before, after));
    out
}

/// The hunks of a unified patch, without header lines.
pub fn patch(before: &[u8], after: &[u8]) -> Vec<u8> {
    let (old, new) = (lines(before), lines(after));
    let mut out = Vec::new();
    for group in hunks(before, after) {
        write_hunk(&mut out, &group, &old, &new);
    }
    out
}

fn write_hunk(out: &mut Vec<u8>, group: &[LineChange], old: &[&[u8]], new: &[&[u8]]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let lead = first.before.start.min(CONTEXT);
    let trail = (old.len() as u32 - last.before.end).min(CONTEXT);
    let old_range = first.before.start - lead..last.before.end + trail;
    let new_range = first.after.start - lead..last.after.end + trail;
    let header = format!("@@ -{} +{} @@\n", range_words(&old_range), range_words(&new_range));
    out.extend_from_slice(header.as_bytes());
    let mut position = old_range.start;
    for change in group {
        write_lines(out, b' ', &old[position as usize..change.before.start as usize]);
        write_lines(out, b'-', &old[change.before.start as usize..change.before.end as usize]);
        write_lines(out, b'+', &new[change.after.start as usize..change.after.end as usize]);
        position = change.before.end;
    }
    write_lines(out, b' ', &old[position as usize..old_range.end as usize]);
}

/// A range as patches write it: from 1, the line before it if it is empty, no count if that is 1.
fn range_words(range: &Range<u32>) -> String {
    match range.end - range.start {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    }
}

fn write_lines(out: &mut Vec<u8>, sign: u8, lines: &[&[u8]]) {
    for line in lines {
        out.push(sign);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"abc"` is a text with the lines `a`, `b` and `c`; a final `!` leaves the last line open.
    fn text(letters: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            letters.trim_end_matches('!').bytes().flat_map(|letter| [letter, b'\n']).collect();
        if letters.ends_with('!') {
            bytes.pop();
        }
        bytes
    }

    #[track_caller]
    fn check_patch(before: &str, after: &str, expected: &str) {
        let patch = patch(&text(before), &text(after));
        assert_eq!(String::from_utf8(patch).unwrap().replace('\n', "|"), expected);
    }

    #[test]
    fn patches_look_like_those_of_diff() {
        check_patch("abc", "abc", "");
        check_patch("abcdefgh", "abcdXfgh", "@@ -2,7 +2,7 @@| b| c| d|-e|+X| f| g| h|");
        check_patch("", "a", "@@ -0,0 +1 @@|+a|");
        check_patch("a", "", "@@ -1 +0,0 @@|-a|");
        check_patch("ab", "aXb", "@@ -1,2 +1,3 @@| a|+X| b|");
    }

    #[test]
    fn an_open_last_line_is_said() {
        let open = "\\ No newline at end of file|";
        check_patch("a!", "a", &format!("@@ -1 +1 @@|-a|{open}+a|"));
        check_patch("ab!", "Xb!", &format!("@@ -1,2 +1,2 @@|-a|+X| b|{open}"));
    }

    #[test]
    fn changes_close_together_share_a_hunk() {
        check_patch(
            "abcdefghij",
            "Xbcdefghij".replace('h', "Y").as_str(),
            "@@ -1,10 +1,10 @@|-a|+X| b| c| d| e| f| g|-h|+Y| i| j|",
        );
        assert_eq!(hunks(&text("abcdefghij"), &text("XbcdefghYj")).len(), 2);
    }

    #[test]
    fn counts_are_what_people_expect() {
        let check = |before: &str, after: &str, inserted, deleted| {
            let expected = LineCounts { inserted, deleted };
            assert_eq!(counts(&text(before), &text(after)), expected, "{before} {after}");
        };
        check("", "", 0, 0);
        check("", "abc", 3, 0);
        check("abc!", "", 0, 3);
        check("abc", "aXc", 1, 1);
        check("abc!", "abc", 1, 1);
    }

    #[test]
    fn binary_is_a_nul_near_the_beginning() {
        assert!(is_binary(b"a\0b"));
        assert!(!is_binary("ä\n".as_bytes()));
        let mut late = vec![b'x'; BINARY_PREFIX];
        late.push(0);
        assert!(!is_binary(&late));
        let path = WorkspacePath::new("x").unwrap();
        let said = unified(None, Some(&path), b"", b"\0");
        assert_eq!(said, b"Binary files /dev/null and b/x differ\n");
        assert!(unified(Some(&path), Some(&path), b"a", b"b").starts_with(b"--- a/x\n+++ b/x\n@@"));
    }

    #[test]
    fn chosen_hunks_go_back_and_others_stay() {
        let (before, after) = (text("abcdefghijklm"), text("aXcdefghijkYm"));
        let back = |chosen: &[usize]| take_back(&before, &after, chosen);
        assert_eq!(back(&[]), Some(after.clone()));
        assert_eq!(back(&[0]), Some(text("abcdefghijkYm")));
        assert_eq!(back(&[1]), Some(text("aXcdefghijklm")));
        assert_eq!(back(&[0, 1]), Some(before.clone()));
        assert_eq!(back(&[2]), None);
    }

    /// Lines of numbers below a million, most of them the same on both sides.
    fn numbered(count: usize, other: impl Fn(usize) -> bool) -> Vec<u8> {
        let line = |i| if other(i) { format!("other {}\n", i % 100) } else { format!("{i}\n") };
        (0..count).flat_map(|i| line(i).into_bytes()).collect()
    }

    fn rebuild(before: &[u8], after: &[u8]) -> Vec<u8> {
        let (old, new) = (lines(before), lines(after));
        let (mut text, mut position) = (Vec::new(), 0);
        for change in changes(before, after) {
            text.extend(old[position..change.before.start as usize].concat());
            text.extend(new[change.after.start as usize..change.after.end as usize].concat());
            position = change.before.end as usize;
        }
        text.extend(old[position..].concat());
        text
    }

    #[test]
    fn many_lines_are_matched_by_those_that_occur_once() {
        let (before, after) = (numbered(30_000, |i| i % 7 == 3), numbered(30_000, |i| i % 5 == 2));
        assert!(rebuild(&before, &after) == after, "the changes lead from one to the other");
        assert_eq!(changes(&before, &numbered(30_000, |i| i % 7 == 3 || i == 20_000)).len(), 1);
        let found = counts(&before, &after);
        assert!(found.inserted < 9_000 && found.deleted < 9_000, "{found:?}");
    }

    #[test]
    fn repetitive_texts_are_compared_in_reasonable_time() {
        let few = |modulus: usize| -> Vec<u8> {
            (0..200_000).flat_map(|i: usize| [b'a' + (i * i % modulus % 7) as u8, b'\n']).collect()
        };
        let same = |count: usize| b"\n".repeat(count);
        for (before, after) in [(few(10_007), few(9_973)), (same(200_000), same(50_000))] {
            assert!(rebuild(&before, &after) == after);
        }
        assert_eq!(changes(&same(200_000), &same(200_001)).len(), 1);
    }
}
