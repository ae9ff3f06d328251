//! A command line as the simple commands in it, the way a shell would cut it; nothing is expanded.
//!
//! Quotes, escapes, comments, operators, redirections, here-documents and substitutions are read. What
//! a substitution runs is a command of its own, and stands in the word around it as `$()`.

/// Substitutions inside one another are read down to here.
const DEPTH: usize = 24;

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Simple {
    /// Its words without their quotes.
    pub(super) words: Vec<String>,
    /// The values that are assigned before it.
    pub(super) assigned: Vec<String>,
    /// The texts that it is given on its standard input.
    pub(super) fed: Vec<String>,
}

/// Everything that was found in a line.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The simple commands, those in substitutions before the ones around them.
    pub(super) commands: Vec<Simple>,
    /// Something was nested too deeply to be read.
    pub(super) gave_up: bool,
}

/// Words that come before a command and are none.
const KEYWORDS: &[&str] =
    &["!", "{", "coproc", "do", "elif", "else", "if", "then", "time", "until", "while"];

/// Reads a line.
pub(super) fn read(text: &str) -> Line {
    let mut line = Line::default();
    Reader { bytes: text.as_bytes(), at: 0, depth: 0, line: &mut line }.list(None);
    line
}

struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
    depth: usize,
    line: &'t mut Line,
}

/// A here-document whose text has not come yet: the word that ends it, and whether tabs are cut.
struct Awaited {
    end: Vec<u8>,
    tabs: bool,
    /// The command that it goes to: its place among those found, once that is known.
    of: Option<usize>,
}

/// A command while it is read.
#[derive(Default)]
struct Open {
    simple: Simple,
    awaited: Vec<Awaited>,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &[u8]) -> bool {
        self.bytes[self.at.min(self.bytes.len())..].starts_with(text)
    }

    /// Reads commands up to an unquoted end, which is passed over, or to the end of the text. The
    /// parentheses between come in pairs.
    fn list(&mut self, end: Option<u8>) {
        let (mut open, mut awaited, mut inside) = (Open::default(), Vec::new(), 0usize);
        while let Some(byte) = self.peek(0) {
            match byte {
                _ if Some(byte) == end && inside == 0 => {
                    self.at += 1;
                    break;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\\' if self.peek(1) == Some(b'\n') => self.at += 2,
                b'\n' => {
                    self.at += 1;
                    self.close(&mut open, &mut awaited);
                    self.documents(&mut awaited);
                }
                b';' | b'|' | b'&' | b'(' | b')' => {
                    inside = match byte {
                        b'(' => inside + 1,
                        b')' => inside.saturating_sub(1),
                        _ => inside,
                    };
                    self.at += 1;
                    self.close(&mut open, &mut awaited);
                }
                b'#' => self.skip_to_end_of_line(),
                b'<' | b'>' => self.redirection(&mut open),
                _ => self.add_word(&mut open),
            }
        }
        self.close(&mut open, &mut awaited);
        self.documents(&mut awaited);
    }

    fn close(&mut self, open: &mut Open, awaited: &mut Vec<Awaited>) {
        let Open { simple, awaited: new } = std::mem::take(open);
        if simple == Simple::default() && new.is_empty() {
            return;
        }
        let of = Some(self.line.commands.len());
        awaited.extend(new.into_iter().map(|one| Awaited { of, ..one }));
        self.line.commands.push(simple);
    }

    fn skip_to_end_of_line(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// The texts of the here-documents that a line announced.
    fn documents(&mut self, awaited: &mut Vec<Awaited>) {
        for Awaited { end, tabs, of } in awaited.drain(..) {
            let mut text = Vec::new();
            while self.at < self.bytes.len() {
                let rest = &self.bytes[self.at..];
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let line = &rest[..length];
                self.at = (self.at + length + 1).min(self.bytes.len());
                let indented = line.iter().take_while(|byte| tabs && **byte == b'\t').count();
                if line[indented..] == end[..] {
                    break;
                }
                text.extend_from_slice(&line[indented..]);
                text.push(b'\n');
            }
            if let Some(simple) = of.and_then(|of| self.line.commands.get_mut(of)) {
                simple.fed.push(string(text));
            }
        }
    }

    fn redirection(&mut self, open: &mut Open) {
        // `2>` is no word.
        let glued = self.at > 0 && self.bytes[self.at - 1].is_ascii_digit();
        let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
        if glued && open.simple.words.last().is_some_and(is_number) {
            open.simple.words.pop();
        }
        if self.starts_with(b"<<<") {
            self.at += 3;
            self.blanks();
            let word = self.word();
            open.simple.fed.push(word);
        } else if self.starts_with(b"<<") {
            self.at += 2;
            let tabs = self.peek(0) == Some(b'-');
            self.at += usize::from(tabs);
            self.blanks();
            let end = self.word().into_bytes();
            open.awaited.push(Awaited { end, tabs, of: None });
        } else {
            self.at += 1;
            while matches!(self.peek(0), Some(b'>' | b'&' | b'|')) {
                self.at += 1;
            }
            if self.peek(0) == Some(b'(') {
                // What it runs is read as the commands that it is.
                return self.substitution();
            }
            self.blanks();
            self.word();
        }
    }

    fn blanks(&mut self) {
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn add_word(&mut self, open: &mut Open) {
        let begin = self.at;
        let word = self.word();
        if self.at == begin {
            // Nothing that a word can begin with: never stand still.
            self.at += 1;
            return;
        }
        let bare = &self.bytes[begin..self.at];
        if !open.simple.words.is_empty() {
            return open.simple.words.push(word);
        }
        if KEYWORDS.iter().any(|keyword| keyword.as_bytes() == bare) {
            return;
        }
        match word.split_once('=') {
            Some((name, value)) if is_name(name) => open.simple.assigned.push(value.to_owned()),
            _ => open.simple.words.push(word),
        }
    }

    /// A word, from here to the next blank or operator.
    fn word(&mut self) -> String {
        let mut out = Vec::new();
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'|' | b'&' | b'(' | b')' | b'<' | b'>' => {
                    break;
                }
                b'\\' => self.escaped(&mut out),
                b'\'' => self.single_quoted(&mut out),
                b'"' => self.double_quoted(&mut out),
                b'$' if self.peek(1) == Some(b'\'') => self.with_escapes(&mut out),
                b'$' if self.peek(1) == Some(b'(') => self.substituted(&mut out),
                b'`' => self.backquoted(&mut out),
                _ => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
        string(out)
    }

    fn escaped(&mut self, out: &mut Vec<u8>) {
        if let Some(byte) = self.peek(1).filter(|byte| *byte != b'\n') {
            out.push(byte);
        }
        self.at = (self.at + 2).min(self.bytes.len());
    }

    fn single_quoted(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == b'\'' {
                return;
            }
            out.push(byte);
        }
    }

    /// `$'...'`: only what ends it or breaks a line is told apart.
    fn with_escapes(&mut self, out: &mut Vec<u8>) {
        self.at += 2;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            match byte {
                b'\'' => return,
                b'\\' => {
                    let Some(next) = self.peek(0) else { return };
                    self.at += 1;
                    out.push(match next {
                        b'n' => b'\n',
                        b't' => b'\t',
                        other => other,
                    });
                }
                _ => out.push(byte),
            }
        }
    }

    fn double_quoted(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return;
                }
                b'\\' if matches!(self.peek(1), Some(b'"' | b'\\' | b'$' | b'`' | b'\n')) => {
                    self.escaped(out);
                }
                b'$' if self.peek(1) == Some(b'(') => self.substituted(out),
                b'`' => self.backquoted(out),
                _ => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn substituted(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        self.substitution();
        out.extend_from_slice(b"$()");
    }

    /// `(...)`: its commands are commands of the line.
    fn substitution(&mut self) {
        self.at += 1;
        if self.depth >= DEPTH {
            self.line.gave_up = true;
            self.at = self.bytes.len();
            return;
        }
        self.depth += 1;
        self.list(Some(b')'));
        self.depth -= 1;
    }

    fn backquoted(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        let mut inner = Vec::new();
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            match byte {
                b'`' => break,
                b'\\' if matches!(self.peek(0), Some(b'`' | b'\\' | b'$')) => {
                    inner.extend(self.peek(0));
                    self.at += 1;
                }
                _ => inner.push(byte),
            }
        }
        out.extend_from_slice(b"$()");
        if self.depth >= DEPTH {
            self.line.gave_up = true;
            return;
        }
        Reader { bytes: &inner, at: 0, depth: self.depth + 1, line: self.line }.list(None);
    }
}

fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('+').unwrap_or(text);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Cut only at ASCII, so that it is text where the line was.
fn string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands as `word word|word word`.
    #[track_caller]
    fn check(text: &str, expected: &[&[&str]]) {
        let line = read(text);
        let words: Vec<_> = line.commands.iter().map(|one| &one.words[..]).collect();
        assert_eq!(words, expected, "{text}");
        assert!(!line.gave_up, "{text}");
    }

    #[test]
    fn operators_cut_and_quotes_join() {
        check("", &[]);
        check("git push", &[&["git", "push"]]);
        check("  git   push\t--force ", &[&["git", "push", "--force"]]);
        check("a;b&&c||d|e&f\ng", &[&["a"], &["b"], &["c"], &["d"], &["e"], &["f"], &["g"]]);
        check("a |& b", &[&["a"], &["b"]]);
        check("(a; b)", &[&["a"], &["b"]]);
        check("{ a; }", &[&["a"], &["}"]]);
        check("g'i't pu\\sh", &[&["git", "push"]]);
        check("echo 'a && b; c'", &[&["echo", "a && b; c"]]);
        check("echo \"a \\\" b\" c", &[&["echo", "a \" b", "c"]]);
        check("a \\\n b", &[&["a", "b"]]);
        check("a # b && c\nd", &[&["a"], &["d"]]);
        check("a b#c", &[&["a", "b#c"]]);
        check("x $'a\\'b'", &[&["x", "a'b"]]);
        check("if a; then b; else c; fi", &[&["a"], &["b"], &["c"], &["fi"]]);
        check("! a && time b", &[&["a"], &["b"]]);
        check("echo 'not closed", &[&["echo", "not closed"]]);
        check("echo ünï; ß", &[&["echo", "ünï"], &["ß"]]);
    }

    #[test]
    fn assignments_come_before_a_command_and_are_none() {
        check("A=1 B='x y' git push", &[&["git", "push"]]);
        check("a B=1", &[&["a", "B=1"]]);
        check("./x=y z", &[&["./x=y", "z"]]);
        assert_eq!(read("A=1 B='x y'").commands[0].assigned, ["1", "x y"]);
    }

    #[test]
    fn redirections_are_no_words() {
        check("a > b c 2>&1", &[&["a", "c"]]);
        check("a 2>/dev/null >>x b <y", &[&["a", "b"]]);
        check("a 12 > b", &[&["a", "12"]]);
        check("diff <(git push) x", &[&["git", "push"], &["diff", "x"]]);
    }

    #[test]
    fn substitutions_are_commands_of_their_own() {
        check("git -C $(pwd) push", &[&["pwd"], &["git", "-C", "$()", "push"]]);
        check("echo \"x $(a \"b c\" | d) y\"", &[&["a", "b c"], &["d"], &["echo", "x $() y"]]);
        check("a `b \\`c\\``", &[&["c"], &["b", "$()"], &["a", "$()"]]);
        check("a ${X:-$(b)}", &[&["b"], &["a", "${X:-$()}"]]);
        check("a $((1 + 2)) b", &[&["1", "+", "2"], &["a", "$()", "b"]]);
    }

    #[test]
    fn what_is_fed_is_kept_with_its_command() {
        let line = read("bash <<'EOF' && x\ngit push\nEOF\ny <<-E\n\tz\n\tE\nsh <<< 'a b'");
        let fed: Vec<_> =
            line.commands.iter().map(|one| (&one.words[0][..], &one.fed[..])).collect();
        let of = |text: &str| vec![text.to_owned()];
        let expected =
            [("bash", of("git push\n")), ("x", vec![]), ("y", of("z\n")), ("sh", of("a b"))];
        assert_eq!(fed, expected.each_ref().map(|(word, fed)| (*word, &fed[..])));
    }

    #[test]
    fn what_is_nested_too_deeply_is_said() {
        let text = format!("{}a{}", "$(".repeat(100), ")".repeat(100));
        assert!(read(&text).gave_up);
    }

    #[test]
    fn mutated_lines() {
        let samples: Vec<Vec<u8>> = [
            "A=1 git -C $(pwd) push && sh -c \"a `b` $'x'\" <<-EOF | (c; d)\n\tx\nEOF\n2>&1 <(e)",
            "if x; then ssh h 'a; b' # c\nfi",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
        crate::fuzz::target("line", &samples, |input| {
            let Ok(text) = std::str::from_utf8(input) else { return false };
            read(text);
            true
        });
    }
}
