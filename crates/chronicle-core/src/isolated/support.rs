//! Whether a workspace can lie below a layer here, as far as that can be told beforehand.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The type that the kernel gives an overlay.
const OVERLAY: i64 = 0x794c_7630;

/// Why a workspace cannot be isolated with a layer in this home, in words.
///
/// `None` says only that nothing is known against it: the kernel has the last word.
pub(crate) fn hindrance(root: &Path, home: &Path) -> Option<String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(home).starts_with(real(root)) {
        return Some("the home lies inside the workspace, and a layer cannot".to_owned());
    }
    if is_overlay(home) {
        return Some("the home lies on an overlay itself, which cannot hold a layer".to_owned());
    }
    if let Some(inner) = mount_below(root) {
        let inner = String::from_utf8_lossy(&inner).into_owned();
        return Some(format!("another file system is mounted in it, at {inner}"));
    }
    None
}

/// Whether a directory lies on an overlay.
pub(crate) fn is_overlay(path: &Path) -> bool {
    #[expect(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    #[expect(trivial_numeric_casts, reason = "the types differ between architectures")]
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type as i64 == OVERLAY)
}

/// Whether this process may only use marks that users may set: all but root of the whole machine.
pub(crate) fn uses_user_xattrs() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !(whole && rustix::process::geteuid().is_root())
}

/// A mount strictly below a directory: the layer would hide it.
fn mount_below(root: &Path) -> Option<Vec<u8>> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    below(&mounts, root.as_os_str().as_bytes())
}

fn below(mounts: &[u8], root: &[u8]) -> Option<Vec<u8>> {
    let points = mounts
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4).map(unescape));
    let root = root.strip_suffix(b"/").unwrap_or(root);
    points.into_iter().find(|point| {
        point.strip_prefix(root).is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
    })
}

/// The kernel writes blanks and backslashes in octal.
fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut at) = (Vec::with_capacity(word.len()), 0);
    while at < word.len() {
        let octal = word.get(at + 1..at + 4).filter(|_| word[at] == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(word[at]);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_below_count() {
        let mounts = b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:1 / /a\\040b/c rw - ext4 a rw\n";
        assert_eq!(below(mounts, b"/a b"), Some(b"/a b/c".to_vec()));
        assert_eq!(below(mounts, b"/a b/c"), None);
        assert_eq!(below(mounts, b"/a"), None);
        assert_eq!(below(b"nonsense\n", b"/a"), None);
    }
}
