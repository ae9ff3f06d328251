//! Patterns for commands: `git push !stash !--dry-run`.
//!
//! The first word is the program, by its name without directories. Every further one must be among the
//! arguments, in this order, with anything between them. A word with `!` must not be there: an option
//! nowhere, any other not before the last of those that must. `a|b` is either, `*` is any text. A pattern
//! that begins with `~` is words of the whole line, one behind the other, whatever stands between them.

/// Whether a command fits a pattern.
pub(super) fn fits(pattern: &str, words: &[String]) -> bool {
    let mut parts = pattern.split_ascii_whitespace();
    let (Some(program), Some((first, arguments))) = (parts.next(), words.split_first()) else {
        return false;
    };
    let name = program_name(first);
    if !program.split('|').any(|one| one_fits(program_name(one), name)) {
        return false;
    }
    let mut last = 0;
    let wanted = || parts.clone().filter(|part| !part.starts_with('!'));
    for part in wanted() {
        match arguments[last..].iter().position(|word| either(part, word)) {
            Some(at) => last += at + 1,
            None => return false,
        }
    }
    let end = if wanted().next().is_none() { arguments.len() } else { last };
    let forbidden = |part: &str| {
        let looked_at = if part.starts_with('-') { arguments } else { &arguments[..end] };
        looked_at.iter().any(|word| either(part, word))
    };
    !parts.clone().filter_map(|part| part.strip_prefix('!')).any(forbidden)
}

/// The words of a pattern that is about the whole text of a line.
pub(super) fn in_text(pattern: &str) -> Option<&str> {
    pattern.strip_prefix('~')
}

/// Whether the words of a text pattern stand one behind the other in a line.
pub(super) fn fits_text(pattern: &str, line: &str) -> bool {
    let wanted: Vec<&str> = pattern.split_ascii_whitespace().collect();
    let found: Vec<&str> = line.split(|c: char| !is_of_word(c)).filter(|w| !w.is_empty()).collect();
    let fits = |run: &[&str]| run.iter().zip(&wanted).all(|(word, part)| either(part, word));
    !wanted.is_empty() && found.windows(wanted.len()).any(fits)
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a name fits one of some patterns.
pub(super) fn fits_name(pattern: &str, name: &str) -> bool {
    either(pattern, name)
}

/// What is wrong with a pattern that somebody wrote.
pub(super) fn problem(pattern: &str) -> Option<&'static str> {
    let first = pattern.split_ascii_whitespace().next().unwrap_or_default();
    let nothing = first.trim_start_matches(['~', '!', '*', '|']).is_empty();
    if pattern.len() > 500 {
        Some("is longer than 500 bytes")
    } else if nothing || first.starts_with('!') {
        Some("names no program")
    } else if pattern.chars().any(char::is_control) {
        Some("has a control character in it")
    } else {
        None
    }
}

/// A program by its name: without its directories, its version and `.exe`.
pub(super) fn program_name(word: &str) -> &str {
    // A scope's mark is at the beginning, a version's is not.
    let version = word.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let word = match version {
        Some(at) if !word[at..].contains('/') => &word[..at],
        _ => word,
    };
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    name.strip_suffix(".exe").unwrap_or(name)
}

fn either(part: &str, word: &str) -> bool {
    part.split('|').any(|one| one_fits(one, word))
}

fn one_fits(pattern: &str, word: &str) -> bool {
    // Letters behind one dash are options of their own; behind two they are one name.
    if pattern.starts_with('-') && !pattern.starts_with("--") && word.starts_with("--") {
        return false;
    }
    let exact = pattern.starts_with('-');
    let same = |a: u8, b: u8| if exact { a == b } else { a.eq_ignore_ascii_case(&b) };
    glob(pattern.as_bytes(), word.as_bytes(), &same)
}

/// Whether a text fits a pattern in which `*` is any text; in time of both lengths.
fn glob(pattern: &[u8], text: &[u8], same: &dyn Fn(u8, u8) -> bool) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p).is_some_and(|byte| same(*byte, text[t])) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, line: &str, expected: bool) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(fits(pattern, &words), expected, "{pattern}: {line}");
    }

    #[test]
    fn words_fit_in_order_with_others_between() {
        check("git push", "git push", true);
        check("git push", "/usr/bin/git -C x push origin main", true);
        check("git push", "git.exe push", true);
        check("git push", "git pull", false);
        check("git push", "gitk push", false);
        check("git push", "push git", false);
        check("dropdb", "dropdb app", true);
        check("prisma migrate reset", "prisma@5.1 migrate reset --force", true);
        check("prisma migrate reset", "prisma reset migrate", false);
        check("a|b x|y", "b 1 y", true);
        check("rails db:drop*", "bin/rails DB:DROP:all", true);
        check("./deploy.sh", "../x/deploy.sh prod", true);
        check("tool !check", "tool check", false);
    }

    #[test]
    fn what_must_not_be_there() {
        let push = "git push !stash !--dry-run";
        check(push, "git stash push", false);
        check(push, "git push origin stash", true);
        check(push, "git push --dry-run", false);
        check(push, "git --dry-run push", false);
    }

    #[test]
    fn options_of_one_letter_come_together_and_keep_their_case() {
        let post = "curl -*X|--request POST";
        check(post, "curl -X POST u", true);
        check(post, "curl -sX POST u", true);
        check(post, "curl --request post u", true);
        check(post, "curl -x POST u", false);
        check("curl -*d", "curl --compressed u", false);
        check("curl -*d", "curl -sd x u", true);
    }

    #[test]
    fn text_fits_across_what_separates_words() {
        assert!(fits_text("drop table|database", "psql -c 'DROP\n TABLE/**/users'"));
        assert!(fits_text("drop table", "x = 'drop/* */table'"));
        assert!(!fits_text("drop table", "drop the table"));
        assert!(!fits_text("drop table", "drop tables"));
        assert!(!fits_text("", "drop"));
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for bad in ["", "  ", "~", "!x", "*", "* x", "a\tb\u{7}", &"x".repeat(501)] {
            assert!(problem(bad).is_some(), "{bad}");
        }
        for good in ["git push", "~drop table", "mcp__mail__*"] {
            assert_eq!(problem(good), None, "{good}");
        }
    }
}
