//! One line of an ignore file, compiled, with git's own meaning to the byte.
//!
//! Names are bytes and so are patterns. Matching takes time proportional to pattern times name,
//! whatever the pattern, since ignore files come with workspaces that nobody vouches for.

/// One line of an ignore file, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Whether it takes something back in (`!`).
    pub(super) negative: bool,
    only_directories: bool,
    /// Whether it has no slash and so fits a name at any depth.
    any_depth: bool,
    shape: Shape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// No wildcard.
    Exact(Vec<u8>),
    /// One star, then no further wildcard.
    Suffix(Vec<u8>),
    /// Text without a slash, then one star, of a name at any depth.
    Prefix(Vec<u8>),
    /// Text without a slash between two stars, of a name at any depth.
    Contains(Vec<u8>),
    /// Everything below a directory: text, then `/**`.
    Below(Vec<u8>),
    /// Text up to the first wildcard, then the rest.
    Glob(Vec<u8>, Vec<Token>),
    /// It is malformed and fits nothing.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// One byte but a slash.
    Any,
    /// One of these bytes; a slash never is.
    Set(Box<[bool; 256]>),
    /// Any bytes but slashes.
    Star,
    /// Any bytes.
    Through,
    /// Go on here, or after the next two tokens: `**/` is this, `Through` and a slash.
    Optional,
}

/// The lines of an ignore file that are patterns, without their ends and trailing spaces.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.split(|byte| *byte == b'\n').map(trim).filter(|line| !line.is_empty() && line[0] != b'#')
}

fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Git handles lines as C strings.
    let line = line.split(|byte| *byte == 0).next().unwrap_or(line);
    let (mut end, mut at) = (0, 0);
    while at < line.len() {
        match line[at] {
            b' ' => at += 1,
            b'\\' if at + 1 == line.len() => return line,
            b'\\' => {
                at += 2;
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    &line[..end]
}

impl Pattern {
    /// Compiles a line as an ignore file has it; `None` for a comment or an empty one.
    pub fn parse(line: &[u8]) -> Option<Self> {
        lines(line).next().map(Self::new)
    }

    /// Whether it takes something back in (`!`).
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Compiles one of [`lines`].
    pub(super) fn new(line: &[u8]) -> Self {
        let (negative, line) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (only_directories, line) = match line.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let any_depth = !line.contains(&b'/');
        let line = line.strip_prefix(b"/").unwrap_or(line);
        Self { negative, only_directories, any_depth, shape: Shape::new(line, any_depth) }
    }

    /// Whether it fits a path relative to the directory of its file.
    pub fn fits(&self, path: &[u8], is_directory: bool) -> bool {
        if self.only_directories && !is_directory {
            return false;
        }
        let name = if self.any_depth { base_name(path) } else { path };
        match &self.shape {
            Shape::Exact(text) => name == text,
            Shape::Suffix(text) if self.any_depth => name.ends_with(text),
            Shape::Suffix(text) => {
                name.strip_suffix(&text[..]).is_some_and(|rest| !rest.contains(&b'/'))
            }
            Shape::Prefix(text) => name.starts_with(text),
            Shape::Contains(text) => name.windows(text.len()).any(|part| part == text),
            Shape::Below(text) => {
                name.strip_prefix(&text[..]).is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
            }
            Shape::Glob(prefix, tokens) => {
                name.strip_prefix(&prefix[..]).is_some_and(|rest| tokens_fit(tokens, rest))
            }
            Shape::Never => false,
        }
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn is_wildcard(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

impl Shape {
    fn new(line: &[u8], any_depth: bool) -> Self {
        // Git compares the text before the first wildcard by itself, so that what follows
        // begins a pattern of its own: `a**/b` means `a`, then `**/b`.
        let Some(start) = line.iter().position(|byte| is_wildcard(*byte)) else {
            return if line.is_empty() { Self::Never } else { Self::Exact(line.to_vec()) };
        };
        let (prefix, rest) = line.split_at(start);
        match rest.strip_prefix(b"*") {
            Some(text) if prefix.is_empty() && !text.iter().any(|byte| is_wildcard(*byte)) => {
                Self::Suffix(text.to_vec())
            }
            _ if any_depth && prefix.is_empty() && is_between_stars(rest) => {
                Self::Contains(rest[1..rest.len() - 1].to_vec())
            }
            _ if any_depth && rest == b"*" => Self::Prefix(prefix.to_vec()),
            _ if rest == b"**" && prefix.len() > 1 && prefix.ends_with(b"/") => {
                Self::Below(prefix[..prefix.len() - 1].to_vec())
            }
            _ => compile(rest).map_or(Self::Never, |tokens| Self::Glob(prefix.to_vec(), tokens)),
        }
    }
}

/// Whether this is `*text*` and nothing in the text means anything else.
fn is_between_stars(pattern: &[u8]) -> bool {
    let inner = pattern.strip_prefix(b"*").and_then(|rest| rest.strip_suffix(b"*"));
    inner.is_some_and(|text| !text.is_empty() && !text.iter().any(|byte| is_wildcard(*byte)))
}

/// Turns a pattern into tokens; `None` if it is malformed.
fn compile(pattern: &[u8]) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(byte) = pattern.get(at) {
        at += 1;
        match byte {
            b'?' => tokens.push(Token::Any),
            b'*' => at = compile_stars(pattern, at - 1, &mut tokens),
            b'[' => {
                let (set, end) = compile_set(pattern, at)?;
                tokens.push(Token::Set(set));
                at = end;
            }
            b'\\' => {
                tokens.push(Token::Byte(*pattern.get(at)?));
                at += 1;
            }
            other => tokens.push(Token::Byte(*other)),
        }
    }
    Some(tokens)
}

/// Compiles a run of stars; answers where the pattern goes on.
fn compile_stars(pattern: &[u8], start: usize, tokens: &mut Vec<Token>) -> usize {
    let run = pattern[start..].iter().take_while(|byte| **byte == b'*').count();
    let (end, rest) = (start + run, &pattern[start + run..]);
    let alone = start == 0 || pattern[start - 1] == b'/';
    if run == 1 || !alone {
        tokens.push(Token::Star);
    } else if rest.first() == Some(&b'/') {
        tokens.extend([Token::Optional, Token::Through, Token::Byte(b'/')]);
        return end + 1;
    } else if rest.is_empty() || rest.starts_with(b"\\/") {
        tokens.push(Token::Through);
    } else {
        tokens.push(Token::Star);
    }
    end
}

/// Compiles the set that begins after `[`; answers where the pattern goes on.
fn compile_set(pattern: &[u8], start: usize) -> Option<(Box<[bool; 256]>, usize)> {
    let mut set = Box::new([false; 256]);
    let mut at = start;
    let negated = matches!(pattern.get(at)?, b'!' | b'^');
    at += usize::from(negated);
    let mut previous = None;
    loop {
        let byte = *pattern.get(at)?;
        at += 1;
        previous = match byte {
            b'\\' => {
                let escaped = *pattern.get(at)?;
                at += 1;
                set[usize::from(escaped)] = true;
                Some(escaped)
            }
            b'-' if previous.is_some() && pattern.get(at).is_some_and(|next| *next != b']') => {
                at += usize::from(pattern[at] == b'\\');
                let (low, high) = (previous.unwrap_or(byte), *pattern.get(at)?);
                at += 1;
                (low..=high).for_each(|member| set[usize::from(member)] = true);
                None
            }
            b'[' if pattern.get(at) == Some(&b':') => {
                let length = pattern[at + 1..].iter().position(|byte| *byte == b']')?;
                let class = &pattern[at + 1..at + 1 + length];
                if let Some(name) = class.strip_suffix(b":") {
                    let contains = class_named(name)?;
                    (0..=255).filter(contains).for_each(|byte| set[usize::from(byte)] = true);
                    at += length + 2;
                    None
                } else {
                    set[usize::from(b'[')] = true;
                    Some(b'[')
                }
            }
            other => {
                set[usize::from(other)] = true;
                Some(other)
            }
        };
        if *pattern.get(at)? == b']' {
            break;
        }
    }
    set.iter_mut().for_each(|member| *member ^= negated);
    set[usize::from(b'/')] = false;
    Some((set, at + 1))
}

fn class_named(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, 0x20..=0x7e),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

/// Follows all ways through the tokens at once, a byte at a time.
fn tokens_fit(tokens: &[Token], text: &[u8]) -> bool {
    let mut now = vec![false; tokens.len() + 1];
    let mut next = now.clone();
    now[0] = true;
    pass_empty(tokens, &mut now);
    for byte in text {
        next.fill(false);
        for (at, token) in tokens.iter().enumerate().filter(|(at, _)| now[*at]) {
            match token {
                Token::Star if *byte != b'/' => next[at] = true,
                Token::Through => next[at] = true,
                Token::Byte(wanted) if wanted == byte => next[at + 1] = true,
                Token::Any if *byte != b'/' => next[at + 1] = true,
                Token::Set(set) if set[usize::from(*byte)] => next[at + 1] = true,
                _ => {}
            }
        }
        pass_empty(tokens, &mut next);
        if !next.contains(&true) {
            return false;
        }
        std::mem::swap(&mut now, &mut next);
    }
    now[tokens.len()]
}

/// Adds the places that are reached without a byte; they all lie ahead.
fn pass_empty(tokens: &[Token], places: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if !places[at] {
            continue;
        }
        match token {
            Token::Star | Token::Through => places[at + 1] = true,
            Token::Optional => {
                places[at + 1] = true;
                places[at + 3] = true;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, fitting: &str, others: &str) {
        let line = lines(pattern.as_bytes()).next().expect("a pattern");
        let pattern = Pattern::new(line);
        let fits =
            |path: &str| pattern.fits(path.trim_end_matches('/').as_bytes(), path.ends_with('/'));
        for path in fitting.split_whitespace() {
            assert!(fits(path), "{path} should fit {pattern:?}");
        }
        for path in others.split_whitespace() {
            assert!(!fits(path), "{path} should not fit {pattern:?}");
        }
    }

    #[test]
    fn name_without_slash_fits_at_any_depth() {
        check("target", "target target/ a/target", "targets atarget target/a");
        check("target/", "target/ a/target/", "target");
        check("*.o", "a.o b/c.o .o", "a.c a.o/x");
    }

    #[test]
    fn slash_anchors() {
        check("/build", "build", "a/build");
        check("a/b", "a/b", "x/a/b a/b/c");
        check("a/*.o", "a/x.o", "a/b/x.o b/a/x.o");
    }

    #[test]
    fn two_stars_cross_directories() {
        check("**/x", "x a/x a/b/x", "ax a/bx");
        check("a/**", "a/b a/b/c", "a b/a/c");
        check("a/**/b", "a/b a/x/b a/x/y/b", "a/xb ab");
        check("x**y", "xy xay a/xby", "xa/y");
    }

    #[test]
    fn common_shapes_mean_what_globs_mean() {
        check("a*", "a ab x/ab", "ba a/b");
        check("*a*", "a bab x/ab/", "b a/b");
        check("a/b/**", "a/b/c a/b/c/d", "a/b a/bc x/a/b/c");
        check("a*/", "ab/", "ab");
    }

    #[test]
    fn sets_ranges_and_escapes() {
        check("[a-c]x", "ax cx", "dx -x");
        check("[!a-c]x", "dx -x", "ax x");
        check("[]-]", "] -", "a");
        check("[[:digit:][:upper:]_]", "7 Q _", "q :");
        check("[a\\]]", "a ]", "\\");
        check("\\*", "*", "a");
        check("?", "a", "ab \u{e4}");
        check("{a,b}", "{a,b}", "a b");
    }

    #[test]
    fn malformed_patterns_fit_nothing() {
        check("[a", "", "[a a");
        check("a\\", "", "a a\\");
        check("[[:nope:]]", "", "n : [");
        check("/", "", "a/");
    }

    #[test]
    fn hostile_pattern_takes_no_time() {
        let pattern = Pattern::new("*a".repeat(100).as_bytes());
        let name = "a".repeat(250) + "b";
        assert!(!pattern.fits(name.as_bytes(), false));
    }

    #[test]
    fn lines_end_where_git_ends_them() {
        let text = b"\xef\xbb\xbfa \r\n#c\n\nb\\ \n \nd\t\ne\\\\ \n";
        let found: Vec<_> = lines(text).collect();
        assert_eq!(found, [&b"a"[..], b"b\\ ", b"d\t", b"e\\\\"]);
    }
}
