//! `WorkspacePath`: where something is, relative to the workspace, as bytes.
//!
//! The only path type above `fs`. It holds no `..`, no `.`, no empty component and no NUL, so
//! joining it to a root can never leave that root. A path that begins with `/` lies outside the
//! workspace, under a further root that somebody named as protected.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest path that is accepted, as in the kernel.
pub(crate) const PATH_MAX: usize = 4096;
/// The longest name that is accepted, as in the kernel.
pub(crate) const NAME_MAX: usize = 255;

/// A normalised path: relative to the workspace, or absolute under a further root.
///
/// Ordered by bytes, so that everything below `d` is the range from `d/` to `d0`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WorkspacePath(Vec<u8>);

/// Why bytes are not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// It has a component `.`, `..` or an empty one.
    #[error("Path {0:?} is not in its plain form")]
    NotNormal(String),
    /// It has a NUL byte, or is longer than the kernel allows.
    #[error("Path {0:?} cannot exist")]
    Impossible(String),
}

impl WorkspacePath {
    /// The workspace's own directory.
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks that bytes are a plain path and wraps them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, InvalidPath> {
        let bytes = bytes.into();
        let shown = || String::from_utf8_lossy(&bytes).into_owned();
        if bytes.len() > PATH_MAX || bytes.contains(&0) {
            return Err(InvalidPath::Impossible(shown()));
        }
        let inner = bytes.strip_prefix(b"/").unwrap_or(&bytes);
        for name in inner.split(|byte| *byte == b'/') {
            if inner.is_empty() && bytes.is_empty() {
                break;
            }
            if matches!(name, b"" | b"." | b"..") {
                return Err(InvalidPath::NotNormal(shown()));
            }
            if name.len() > NAME_MAX {
                return Err(InvalidPath::Impossible(shown()));
            }
        }
        Ok(Self(bytes))
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for the standard library.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Whether this is the workspace's own directory.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this lies under a further root, outside the workspace.
    pub fn is_outside(&self) -> bool {
        self.0.first() == Some(&b'/')
    }

    /// The path of an entry in this directory.
    ///
    /// The name must come from a directory listing or another path: one that could not be a name
    /// is a bug.
    pub fn join(&self, name: &[u8]) -> Self {
        assert!(
            !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0),
            "BUG: {name:?} is not a name"
        );
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    /// This path's place under another prefix: `a/b/c` moved from `a` to `x` is `x/b/c`.
    pub fn rebase(&self, from: &Self, to: &Self) -> Option<Self> {
        if self == from {
            return Some(to.clone());
        }
        let rest = if from.is_root() {
            &self.0[..]
        } else {
            self.0.strip_prefix(&from.0[..])?.strip_prefix(b"/")?
        };
        let mut bytes = to.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(rest);
        Some(Self(bytes))
    }

    /// The directory that holds this entry; the workspace's root and a further root's top have none.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(0) => None,
            Some(end) => Some(Self(self.0[..end].to_vec())),
            None => Some(Self::root()),
        }
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b'/').next().unwrap_or(&[])
    }

    /// The directories above this entry, nearest first, ending with the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// Whether this path is the other or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        if other.is_root() {
            return !self.is_outside();
        }
        self.0
            .strip_prefix(&other.0[..])
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    }

    /// How many components the path has.
    pub fn depth(&self) -> usize {
        if self.is_root() {
            0
        } else {
            1 + self.0[1..].iter().filter(|byte| **byte == b'/').count()
        }
    }

    /// The path under a directory of the real file system.
    pub fn under(&self, root: &Path) -> PathBuf {
        root.join(self.as_path())
    }

    /// The path as UTF-8, if it is.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { Cow::Borrowed(".") } else { escape(&self.0) }.as_ref())
    }
}

impl fmt::Debug for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes hostile bytes safe to show: control characters, direction marks and bytes that are not
/// UTF-8 become escapes; everything else stays as it is.
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    let plain = |c: char| !c.is_control() && !is_direction_mark(c) && c != '\\';
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(plain)
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                _ if plain(c) => shown.push(c),
                _ => shown.extend(c.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Cow::Owned(shown)
}

/// Characters that change the order in which a terminal shows the others, or are invisible.
pub(crate) fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).unwrap()
    }

    #[test]
    fn only_plain_paths_are_accepted() {
        for good in ["", "a", "a/b", "/etc/hosts", "..a", "a..", "-", " "] {
            assert!(WorkspacePath::new(good).is_ok(), "{good:?}");
        }
        for bad in ["/", "a/", "a//b", ".", "..", "a/..", "a/../b", "./a", "a\0b", "//a"] {
            assert!(WorkspacePath::new(bad).is_err(), "{bad:?}");
        }
        assert!(WorkspacePath::new("x".repeat(256)).is_err());
    }

    #[test]
    fn a_prefix_of_a_name_is_not_a_directory() {
        assert!(path("out/x").is_within(&path("out")));
        assert!(path("out").is_within(&path("out")));
        assert!(!path("out-evil").is_within(&path("out")));
        assert!(path("x").is_within(&WorkspacePath::root()));
        assert!(!path("/etc/hosts").is_within(&WorkspacePath::root()));
    }

    #[test]
    fn parents_end_at_the_root() {
        let all: Vec<_> = path("a/b/c").ancestors().map(|p| p.to_string()).collect();
        assert_eq!(all, ["a/b", "a", "."]);
        assert_eq!(path("/etc").parent(), None);
        assert_eq!(path("a/b/c").depth(), 3);
    }

    #[test]
    fn rebase_moves_a_subtree() {
        assert_eq!(path("a/b/c").rebase(&path("a"), &path("x")), Some(path("x/b/c")));
        assert_eq!(path("a").rebase(&path("a"), &path("x")), Some(path("x")));
        assert_eq!(path("ab").rebase(&path("a"), &path("x")), None);
    }

    #[test]
    fn hostile_names_are_shown_harmless() {
        assert_eq!(escape(b"plain \xc3\xa4"), "plain ä");
        assert_eq!(escape(b"\x1b[2J\xff\n"), "\\u{1b}[2J\\xff\\n");
        assert_eq!(escape("a\u{202e}b".as_bytes()), "a\\u{202e}b");
    }
}
