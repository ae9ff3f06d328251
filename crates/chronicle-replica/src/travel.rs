//! Which paths may travel at all, whatever a filter says.

use chronicle_core::WorkspacePath;

/// Names that no peer may put anything under: metadata of repositories, and our own.
const AT_HOME: [&str; 4] = [".git", ".jj", ".chronicle", ".hg"];

/// Whether a path may be named by a peer: inside the workspace, not its root, and nothing that some
/// file system would take for a repository's metadata.
pub fn may_travel(path: &WorkspacePath) -> bool {
    !path.is_root()
        && !path.is_outside()
        && !path.as_bytes().split(|byte| *byte == b'/').any(stays_home)
}

/// Whether a name is, or on some file system becomes, one that stays home.
fn stays_home(name: &[u8]) -> bool {
    // Everything that can become such a name begins with a dot, an ignored character, or is short for it.
    if name.first().is_some_and(u8::is_ascii_alphanumeric) {
        return is_short_name(name);
    }
    let Ok(text) = std::str::from_utf8(name) else { return false };
    let plain: String = text
        .chars()
        .filter(|c| !is_ignored(*c))
        .flat_map(char::to_lowercase)
        .collect();
    // Windows drops trailing dots and spaces, and what follows a colon names a stream.
    let plain = plain.split(':').next().unwrap_or(&plain).trim_end_matches(['.', ' ']);
    AT_HOME.contains(&plain)
}

/// `GIT~1`: what Windows calls `.git` for old programs.
fn is_short_name(name: &[u8]) -> bool {
    name.len() >= 5 && name[..4].eq_ignore_ascii_case(b"git~") && name[4].is_ascii_digit()
}

/// Characters that HFS+ leaves out when it compares names.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_metadata_somewhere_stays_home() {
        let twins = [
            ".git", "a/.git/config", ".GIT", ".Git/hooks/x", ".g\u{200c}it", "\u{feff}.git", ".git.", ".git ",
            "git~1", "GIT~2", ".jj", ".chronicle/x", ".git::$INDEX_ALLOCATION", ".hg",
        ];
        for twin in twins {
            assert!(!may_travel(&WorkspacePath::new(twin).expect("a path")), "{twin:?}");
        }
        for plain in [".gitignore", "git", ".github/x", "a.git", "git~", "\u{e4}/b", ".gi"] {
            assert!(may_travel(&WorkspacePath::new(plain).expect("a path")), "{plain:?}");
        }
    }

    #[test]
    fn the_root_and_what_lies_outside_do_not_travel() {
        assert!(!may_travel(&WorkspacePath::root()));
        assert!(!may_travel(&WorkspacePath::new("/etc/passwd").expect("a path")));
    }
}
