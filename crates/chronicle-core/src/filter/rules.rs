//! Ignore files: the list of patterns in one, and how two versions of `.chronicleignore` compare.
//!
//! Everything here is text in, answer out; which files are read and when is decided elsewhere.

use std::path::Path;

use super::pattern::{self, Pattern};
use super::read::read_small;
use crate::error::Result;
use crate::path::escape;

/// The most line pairs that are compared one by one; larger files simply differ.
const COMPARED_MAX: usize = 4_000_000;

/// What people say about which paths count: the text of `.chronicleignore`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterRules {
    /// Lines as in `.gitignore`; `!` takes in what would be kept out by default.
    pub ignore: Vec<u8>,
}

impl FilterRules {
    /// Reads the workspace's file; none, a link or one beyond all measure is no rules.
    pub fn read(workspace: &Path) -> Result<Self> {
        let ignore = read_small(&workspace.join(".chronicleignore"))?.unwrap_or_default();
        Ok(Self { ignore })
    }
}

/// Whether anything that the accepted rules let in could be kept out by the current ones.
///
/// Where this is false and the rules differ, the current ones can be accepted without asking.
pub fn is_narrower(accepted: &FilterRules, current: &FilterRules) -> bool {
    let old: Vec<_> = pattern::lines(&accepted.ignore).collect();
    let new: Vec<_> = pattern::lines(&current.ignore).collect();
    old != new && (old.len() * new.len() > COMPARED_MAX || !is_widened(&old, &new))
}

/// Whether the new lines are the old ones without some exclusions and with more `!` lines.
fn is_widened(old: &[&[u8]], new: &[&[u8]]) -> bool {
    // reachable[j]: the old lines so far can have become the first j new ones.
    let mut reachable = vec![false; new.len() + 1];
    reachable[0] = true;
    let insert = |reachable: &mut Vec<bool>| {
        for (at, line) in new.iter().enumerate() {
            reachable[at + 1] |= reachable[at] && line.starts_with(b"!");
        }
    };
    insert(&mut reachable);
    for line in old {
        let dropped = !line.starts_with(b"!");
        let mut next: Vec<_> = reachable.iter().map(|reached| *reached && dropped).collect();
        for (at, kept) in new.iter().enumerate() {
            next[at + 1] |= reachable[at] && kept == line;
        }
        insert(&mut next);
        reachable = next;
    }
    reachable[new.len()]
}

/// The lines that wait for acceptance: `+` would keep out more, `-` no longer takes in.
pub fn pending(accepted: &FilterRules, current: &FilterRules) -> Vec<String> {
    if !is_narrower(accepted, current) {
        return Vec::new();
    }
    let old: Vec<_> = pattern::lines(&accepted.ignore).collect();
    let new: Vec<_> = pattern::lines(&current.ignore).collect();
    let added = new.iter().filter(|line| !line.starts_with(b"!") && !old.contains(line));
    let removed = old.iter().filter(|line| line.starts_with(b"!") && !new.contains(line));
    let mut lines: Vec<_> = added.map(|line| format!("+ {}", escape(line))).collect();
    lines.extend(removed.map(|line| format!("- {}", escape(line))));
    if lines.is_empty() {
        lines.push("the order of the rules".to_owned());
    }
    lines
}

/// What a list of patterns says about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Silent,
    Out,
    In,
}

/// The patterns of one ignore file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatternList(Vec<Pattern>);

impl PatternList {
    pub(crate) fn new(text: &[u8]) -> Self {
        Self(pattern::lines(text).map(Pattern::new).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the last pattern that fits says about a path relative to the file's directory.
    pub(super) fn verdict(&self, path: &[u8], is_directory: bool) -> Verdict {
        match self.0.iter().rev().find(|pattern| pattern.fits(path, is_directory)) {
            None => Verdict::Silent,
            Some(pattern) if pattern.negative => Verdict::In,
            Some(_) => Verdict::Out,
        }
    }

    /// Whether a path or a directory above it is out; below such a one nothing can be taken in.
    pub(crate) fn covers(&self, path: &[u8], is_directory: bool) -> bool {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        above
            .map(|(end, _)| (&path[..end], true))
            .chain([(path, is_directory)])
            .any(|(part, is_directory)| self.verdict(part, is_directory) == Verdict::Out)
    }
}

/// Whether an ignore file says nothing but "everything here".
pub(super) fn ignores_everything(text: &[u8]) -> bool {
    let mut lines = pattern::lines(text).peekable();
    lines.peek().is_some() && lines.all(|line| matches!(line, b"*" | b"**" | b"/*" | b"/**"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lines: &str) -> FilterRules {
        FilterRules { ignore: lines.replace(' ', "\n").into_bytes() }
    }

    #[track_caller]
    fn check(accepted: &str, current: &str, expected: &[&str]) {
        assert_eq!(pending(&rules(accepted), &rules(current)), expected);
        assert_eq!(is_narrower(&rules(accepted), &rules(current)), !expected.is_empty());
    }

    #[test]
    fn keeping_out_more_is_pending() {
        check("", "*.log", &["+ *.log"]);
        check("a b", "a c b", &["+ c"]);
        check("!a", "", &["- !a"]);
        check("a !a", "!a a", &["the order of the rules"]);
    }

    #[test]
    fn taking_in_more_is_not() {
        check("a b", "a b", &[]);
        check("a b", "b", &[]);
        check("a", "!b a !c", &[]);
        check("a !b", "!b", &[]);
        check("a", "#comment a", &[]);
    }

    #[test]
    fn last_fitting_line_decides() {
        let list = PatternList::new(b"*.log\n!keep.log\n/out/\n!/out/keep\n");
        assert_eq!(list.verdict(b"a/x.log", false), Verdict::Out);
        assert_eq!(list.verdict(b"a/keep.log", false), Verdict::In);
        assert_eq!(list.verdict(b"x", false), Verdict::Silent);
        assert!(list.covers(b"out/keep", false));
    }

    #[test]
    fn mutated_patterns() {
        let samples = [
            "# comment\n/target/\n!keep\n*.o\n**/cache/**\n[a-z]?*\\*\n",
            "*a*a*a*a*a*a*a*a*a*b\n[[:alpha:]!]x\n",
        ];
        let samples = samples.map(|text| text.as_bytes().to_vec());
        let paths: [&[u8]; 4] =
            [b"target", b"a/b/cache/c.o", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", b"\xff/x"];
        crate::fuzz::target("ignore", &samples, |input| {
            let list = PatternList::new(input);
            let out = paths.iter().filter(|path| list.covers(path, false)).count();
            ignores_everything(input) || out > 0
        });
    }
}
