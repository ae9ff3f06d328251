//! What secrets look like: armoured private keys, and the tokens of well-known services.
//!
//! All files up to a size are searched, so one pass looks for all beginnings at once (7 GB a second
//! here: 100,000 files of 4 KiB take a twentieth of one); only where one is found is more asked. Words that merely tell of secrets, as documents do, are none.

use std::sync::OnceLock;

use aho_corasick::packed::Searcher;
use memchr::memmem;

/// A beginning, and what must follow it.
struct Shape {
    start: &'static [u8],
    /// Bytes that may follow.
    letters: fn(u8) -> bool,
    /// How many of them must, at least.
    least: usize,
}

const fn token(start: &'static str, letters: fn(u8) -> bool, least: usize) -> Shape {
    Shape { start: start.as_bytes(), letters, least }
}

const SHAPES: [Shape; 15] = [
    token("PRIVATE KEY", |_| true, 5),
    token("AKIA", is_upper, 16),
    token("AIzaSy", is_word, 33),
    token("ghp_", is_alphanumeric, 36),
    token("gho_", is_alphanumeric, 36),
    token("ghs_", is_alphanumeric, 36),
    token("github_pat_", is_word, 40),
    token("glpat-", is_word, 20),
    token("sk-ant-", is_word, 24),
    token("sk-proj-", is_word, 40),
    token("sk_live_", is_alphanumeric, 20),
    token("xoxb-", is_word, 24),
    token("xoxp-", is_word, 24),
    token("npm_", is_alphanumeric, 36),
    token("pypi-AgE", is_word, 50),
];

/// Their places in the list: these two need a look at what stands around them.
const ARMOUR: usize = 0;
const AWS: usize = 1;

fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Whether anything in these bytes looks like a secret.
pub(super) fn holds_secret(bytes: &[u8]) -> bool {
    static SEARCHER: OnceLock<Option<Searcher>> = OnceLock::new();
    let starts = || Searcher::new(SHAPES.iter().map(|shape| shape.start));
    match SEARCHER.get_or_init(starts) {
        Some(searcher) => searcher.find_iter(bytes).any(|found| {
            let shape = found.pattern().as_usize();
            fits(&SHAPES[shape], shape, bytes, found.start())
        }),
        // This processor has no fast way to look for all at once.
        None => SHAPES.iter().enumerate().any(|(number, shape)| {
            memmem::find_iter(bytes, shape.start).any(|at| fits(shape, number, bytes, at))
        }),
    }
}

fn fits(shape: &Shape, number: usize, bytes: &[u8], at: usize) -> bool {
    let rest = &bytes[at + shape.start.len()..];
    let follows =
        rest.len() >= shape.least && rest[..shape.least].iter().all(|b| (shape.letters)(*b));
    follows
        && match number {
            ARMOUR => is_armour(&bytes[..at], rest),
            AWS => has_secret_beside(bytes),
            // The middle of a longer word is no beginning.
            _ => at == 0 || !is_word(bytes[at - 1]),
        }
}

/// `-----BEGIN ... PRIVATE KEY-----` (or `KEY BLOCK-----`), and a line of the key after it.
fn is_armour(before: &[u8], after: &[u8]) -> bool {
    let line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or(before);
    let after = after.strip_prefix(b" BLOCK").unwrap_or(after);
    let Some(body) = after.strip_prefix(b"-----") else { return false };
    // In a string of a program the line's end is written as two characters.
    let key = body.iter().filter(|byte| byte.is_ascii_alphanumeric()).take(4).count();
    memmem::find(line, b"-----BEGIN ").is_some() && key == 4
}

/// An access key's id is public; the secret that belongs to it is not.
fn has_secret_beside(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"ecret").is_some() || memmem::find(bytes, b"ECRET").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: bool) {
        assert_eq!(holds_secret(text.as_bytes()), expected, "{text}");
        let slow = SHAPES.iter().enumerate().any(|(number, shape)| {
            let bytes = text.as_bytes();
            memmem::find_iter(bytes, shape.start).any(|at| fits(shape, number, bytes, at))
        });
        assert_eq!(slow, expected, "{text}");
    }

    #[test]
    fn keys_and_tokens_are_found() {
        check("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n", true);
        check("k = \"-----BEGIN RSA PRIVATE KEY-----\\nMIIE\"", true);
        check("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOY\n", true);
        let letters = "0123456789abcdefghijABCDEFGHIJ0123456789abcdefghij";
        for start in ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-ant-", "sk-proj-"] {
            check(&format!("token = \"{start}{letters}\"\n"), true);
        }
        for start in ["sk_live_", "xoxb-", "xoxp-", "npm_", "pypi-AgE", "AIzaSy"] {
            check(&format!("{start}{letters}\n"), true);
        }
        check("id = AKIA0123456789ABCDEF\naws_secret_access_key = x", true);
    }

    #[test]
    fn talk_of_secrets_is_none() {
        check("", false);
        check("a PRIVATE KEY is kept in a file", false);
        check("look for `-----BEGIN PRIVATE KEY-----`", false);
        check("-----BEGIN PUBLIC KEY-----\nMIIE\n", false);
        check("id = AKIA0123456789ABCDEF", false);
        check("prefixes: ghp_ gho_ sk-ant- xoxb- npm_", false);
        check("pnpm_workspace_settings_for_every_member_of_it", false);
        check("risk-ant-hill-with-a-very-long-name-that-goes-on", false);
    }
}
