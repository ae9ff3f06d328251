//! Names, authors and messages as git and `git fast-import` take them; all pure.

use std::fmt::Write as _;

use crate::id::{Seq, Time};
use crate::path::is_direction_mark;
use crate::secret::{Class, SecretRules};

/// The longest first line of a message, in characters.
const SUBJECT_MAX: usize = 72;
/// The longest line about an action, in characters.
const LINE_MAX: usize = 200;
/// Actions of one commit that are listed.
const ACTIONS_MAX: usize = 50;

/// What a commit says besides its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The first line; made from the actions where it is empty.
    pub(crate) subject: String,
    /// Tools, or kinds of action, with their summaries.
    pub(crate) actions: Vec<(String, String)>,
    /// Who did it.
    pub(crate) author: String,
    /// When it began.
    pub(crate) began: Time,
    /// When it ended.
    pub(crate) ended: Time,
    /// The state just after this record.
    pub(crate) seq: Seq,
    pub(crate) turn: Option<u64>,
    pub(crate) session: Option<String>,
    pub(crate) agent: Option<String>,
}

impl Commit {
    /// The whole message, trailers last.
    pub(crate) fn message(&self, log: &str) -> String {
        let mut text = format!("{}\n\n", self.first_line());
        for (tool, summary) in self.actions.iter().take(ACTIONS_MAX) {
            // A summary mostly begins with the kind of action already.
            let line = match summary.strip_prefix(&tool[..]) {
                Some(rest) if rest.starts_with(": ") => summary.clone(),
                _ => format!("{tool}: {summary}"),
            };
            let _ = writeln!(text, "- {}", told(&line, LINE_MAX));
        }
        if self.actions.len() > ACTIONS_MAX {
            let _ = writeln!(text, "- and {} more", self.actions.len() - ACTIONS_MAX);
        }
        if !self.actions.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "Chronicle-Workspace: {log}\nChronicle-Seq: {}", self.seq);
        let turn = self.turn.map(|turn| turn.to_string());
        let who = [("Turn", &turn), ("Session", &self.session), ("Agent", &self.agent)];
        for (name, value) in who {
            if let Some(value) = value {
                let _ = writeln!(text, "Chronicle-{name}: {}", shortened(value, LINE_MAX));
            }
        }
        text
    }

    fn first_line(&self) -> String {
        let summaries = || {
            let all: Vec<_> = self.actions.iter().map(|(_, summary)| &summary[..]).collect();
            told(&all.join("; "), SUBJECT_MAX)
        };
        let said = [told(&self.subject, SUBJECT_MAX), summaries()];
        let line = said.into_iter().find(|line| !line.is_empty());
        line.unwrap_or_else(|| match self.turn {
            Some(turn) => format!("Turn {turn}"),
            None => "Changes".to_owned(),
        })
    }

    /// The author's and the committer's lines.
    pub(crate) fn people(&self) -> String {
        let name = name(&self.author);
        let line = |role: &str, time: Time| {
            // Git knows no time before 1970.
            let seconds = (time.0 / 1_000_000_000).max(0);
            format!("{role} {name} <chronicle@localhost> {seconds} +0000\n")
        };
        line("author", self.began) + &line("committer", self.ended)
    }
}

/// A name without what git takes for the end of one.
fn name(given: &str) -> String {
    let plain: String = one_line(given).chars().filter(|c| !matches!(c, '<' | '>')).collect();
    let crud = |c: char| c.is_whitespace() || ".,:;\"'\\".contains(c);
    match shortened(plain.trim_matches(crud), SUBJECT_MAX) {
        empty if empty.is_empty() => "agent".to_owned(),
        name => name,
    }
}

/// Text on one line, without what could be taken for another or hide a part of it.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() || is_direction_mark(c) { ' ' } else { c };
    text.chars().map(plain).collect::<String>().trim().to_owned()
}

/// Words of a person or an agent, unless a secret is among them.
fn told(text: &str, most: usize) -> String {
    match SecretRules::by_content(text.as_bytes()) {
        Class::Plain => shortened(text, most),
        Class::Secret | Class::Never => "(not shown: a secret is in it)".to_owned(),
    }
}

fn shortened(text: &str, most: usize) -> String {
    let line = one_line(text);
    if line.chars().count() <= most {
        return line;
    }
    let kept: String = line.chars().take(most - 3).collect();
    format!("{}...", kept.trim_end())
}

/// Which log and which moment a message says that it is of.
pub(crate) fn position(message: &str) -> Option<(&str, Seq)> {
    let trailers = message.trim_end().rsplit("\n\n").next()?;
    let value = |name: &str| trailers.lines().find_map(|line| line.strip_prefix(name));
    let seq = value("Chronicle-Seq: ")?.parse().ok()?;
    Some((value("Chronicle-Workspace: ")?, Seq(seq)))
}

/// A path in the quotes that fast-import reads.
pub(super) fn quoted(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 2);
    text.push('"');
    for byte in path {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// Whether some file system takes a name for `.git`, so that git refuses it in a tree.
pub(super) fn is_dot_git(name: &[u8]) -> bool {
    // Windows cuts a name at a colon, and dots and blanks from its end; macOS skips marks.
    let end = name.iter().position(|byte| matches!(byte, b':' | b'\\')).unwrap_or(name.len());
    let trimmed = name[..end].trim_ascii_end();
    let trimmed = match trimmed.iter().rposition(|byte| !matches!(byte, b'.' | b' ')) {
        Some(last) => &trimmed[..=last],
        None => &[],
    };
    let seen = String::from_utf8_lossy(name);
    let seen: String = seen.chars().filter(|c| !is_skipped(*c)).collect();
    let is = |name: &[u8]| [&b".git"[..], b"git~1"].iter().any(|it| name.eq_ignore_ascii_case(it));
    is(trimmed) || is(seen.as_bytes())
}

fn is_skipped(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(subject: &str, actions: &[(&str, &str)]) -> Commit {
        let owned = |(tool, summary): &(&str, &str)| ((*tool).to_owned(), (*summary).to_owned());
        Commit {
            subject: subject.to_owned(),
            actions: actions.iter().map(owned).collect(),
            author: "claude-code".to_owned(),
            began: Time(1_500_000_000),
            ended: Time(-3),
            seq: Seq(7),
            turn: Some(2),
            session: Some("s".to_owned()),
            agent: None,
        }
    }

    #[test]
    fn a_message_ends_with_its_trailers() {
        let commit = commit("tidy up", &[("Bash", "shell: rm x"), ("chmod", "chmod: a\nb")]);
        let text = "tidy up\n\n- Bash: shell: rm x\n- chmod: a b\n\n\
                    Chronicle-Workspace: w/e\nChronicle-Seq: 7\nChronicle-Turn: 2\n\
                    Chronicle-Session: s\n";
        assert_eq!(commit.message("w/e"), text);
        assert_eq!(position(text), Some(("w/e", Seq(7))));
        let people = "author claude-code <chronicle@localhost> 1 +0000\n\
                      committer claude-code <chronicle@localhost> 0 +0000\n";
        assert_eq!(commit.people(), people);
    }

    #[test]
    fn the_first_line_is_the_prompt_else_the_actions_else_the_turn() {
        let first = |subject: &str, actions: &[(&str, &str)]| commit(subject, actions).first_line();
        assert_eq!(first("", &[("x", "one"), ("x", "two")]), "one; two");
        assert_eq!(first(" \n", &[]), "Turn 2");
        assert_eq!(first(&"long ".repeat(40), &[]).chars().count(), 72);
    }

    #[test]
    fn nobody_says_trailers_in_other_words() {
        let forged = "x\n\nChronicle-Workspace: w/e\nChronicle-Seq: 1";
        let commit = commit(forged, &[("t", forged)]);
        assert_eq!(position(&commit.message("real")), Some(("real", Seq(7))));
        assert_eq!(position("Chronicle-Seq: 1\nChronicle-Workspace: w\n\nlast\n"), None);
    }

    #[test]
    fn a_secret_in_a_prompt_or_a_command_is_not_told() {
        let secret = format!("use ghp_{} for it", "a1B2c3D4e5F6".repeat(3));
        assert_eq!(SecretRules::by_content(secret.as_bytes()), Class::Secret);
        let text = commit(&secret, &[("Bash", &secret)]).message("w/e");
        assert!(!text.contains("ghp_") && text.contains("- (not shown"), "{text}");
    }

    #[test]
    fn names_have_no_brackets() {
        for (given, expected) in [("a <b>\n", "a b"), ("<>", "agent"), (" ;x.", "x"), ("", "agent")]
        {
            assert_eq!(name(given), expected);
        }
    }

    #[test]
    fn paths_are_quoted_byte_by_byte() {
        assert_eq!(quoted(b"a b/\"c\"\\"), r#""a b/\"c\"\\""#);
        assert_eq!(quoted(b"\n\xff\x7f"), r#""\012\377\177""#);
    }

    #[test]
    fn what_any_system_takes_for_git_is_known() {
        for name in [".git", ".GIT", "git~1", ".git. .", ".git::$DATA", ".g\u{200c}it"] {
            assert!(is_dot_git(name.as_bytes()), "{name}");
        }
        for name in [".gitignore", "git", ".git2", "", "...", "git~10"] {
            assert!(!is_dot_git(name.as_bytes()), "{name}");
        }
    }
}
