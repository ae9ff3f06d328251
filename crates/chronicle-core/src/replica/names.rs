//! Which names never travel, and which the other side could take for one another.

use icu_normalizer::DecomposingNormalizerBorrowed;

use crate::path::WorkspacePath;

/// Names of repositories' metadata, in lower case.
const METADATA: [&[u8]; 2] = [b".git", b".jj"];

/// Whether a path never travels, whatever stands there: it is a root, lies outside the workspace, or is a
/// repository's metadata, under any spelling that a file system could take for it.
pub fn stays_home(path: &WorkspacePath) -> bool {
    path.is_root()
        || path.is_outside()
        || path.as_bytes().split(|byte| *byte == b'/').any(is_metadata)
}

fn is_metadata(name: &[u8]) -> bool {
    let is = |name: &[u8]| METADATA.iter().any(|known| name.eq_ignore_ascii_case(known));
    if name.is_ascii() {
        // What NTFS makes of `.git`, and takes for it.
        return is(name) || name.eq_ignore_ascii_case(b"git~1");
    }
    match std::str::from_utf8(name) {
        Ok(text) => is(visible(text).as_bytes()),
        Err(_) => false,
    }
}

/// The text without the characters that HFS+ ignores in names.
fn visible(text: &str) -> String {
    let ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    text.chars().filter(|c| !ignored(*c)).collect()
}

/// A name as a side sees it that does not tell case and Unicode form apart.
pub fn folded(name: &[u8]) -> Vec<u8> {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let Ok(text) = std::str::from_utf8(name) else { return name.to_vec() };
    let decompose = DecomposingNormalizerBorrowed::new_nfd();
    let lower: String = decompose.normalize(text).chars().flat_map(char::to_lowercase).collect();
    decompose.normalize(&lower).into_owned().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, stays: bool) {
        assert_eq!(stays_home(&WorkspacePath::new(path).unwrap()), stays, "{path}");
    }

    #[test]
    fn metadata_stays_home_under_every_spelling() {
        for path in [
            ".git",
            "a/.git/config",
            ".GIT/hooks/x",
            "b/.jj",
            "git~1/x",
            ".g\u{200c}it/x",
            "",
            "/etc/x",
        ] {
            check(path, true);
        }
        for path in [".gitignore", ".github/x", "git", "a/git~2", "\u{200c}git"] {
            check(path, false);
        }
    }

    #[test]
    fn names_fold_by_case_and_form() {
        assert_eq!(folded("\u{c9}t\u{e9}".as_bytes()), folded("e\u{301}TE\u{301}".as_bytes()));
        assert_eq!(folded(b"README"), b"readme");
        assert_ne!(folded(b"a"), folded(b"b"));
        assert_eq!(folded(b"\xffA"), b"\xffA");
    }
}
