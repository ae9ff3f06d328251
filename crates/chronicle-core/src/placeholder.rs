//! What stands for a file of a lazy replica whose content is still at the host.
//!
//! It is a symbolic link that leads nowhere and names the content. Whoever meets it without knowing gets an error
//! instead of wrong bytes: it cannot be opened, read, mapped or written through, by nobody, and nobody can
//! take it for an empty file or for zeros.

use crate::id::ObjectId;

/// How the target of every placeholder begins; no such directory is ever made.
const PREFIX: &[u8] = b"chr-away/";
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
/// Digits of an object's name and of a mode. Up to 59 bytes file systems keep a target in the inode itself.
const NAME: usize = 43;
const MODE: usize = 2;

/// A file whose content is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placeholder {
    /// Its content, which the host has.
    pub object: ObjectId,
    /// How long that is.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

impl Placeholder {
    /// The target of the link that stands for it.
    pub fn target(&self) -> Vec<u8> {
        let mut out = PREFIX.to_vec();
        for at in 0..NAME {
            let bits =
                (0..6).map(|bit| u8::from(bit_of(&self.object.0, at * 6 + bit)) << (5 - bit));
            out.push(DIGITS[usize::from(bits.sum::<u8>())]);
        }
        let mode = self.mode & 0o7777;
        out.extend([mode >> 6, mode & 0o77].map(|digit| DIGITS[digit as usize]));
        let mut rest = self.size;
        while rest > 0 {
            out.push(DIGITS[(rest % 64) as usize]);
            rest /= 64;
        }
        out
    }

    /// The file that a link stands for; `None` if it is any other link.
    pub fn parse(target: &[u8]) -> Option<Self> {
        let digits = target.strip_prefix(PREFIX)?;
        let value = |digit: &u8| DIGITS.iter().position(|it| it == digit).map(|at| at as u64);
        let values: Vec<u64> = digits.iter().map(value).collect::<Option<_>>()?;
        let (name, rest) = values.split_at_checked(NAME)?;
        let (mode, size) = rest.split_at_checked(MODE)?;
        let mut object = [0; 32];
        for bit in 0..256 {
            let set = (name[bit / 6] >> (5 - bit % 6)) & 1;
            object[bit / 8] |= (set as u8) << (7 - bit % 8);
        }
        let mode = mode.iter().fold(0, |mode, digit| mode << 6 | *digit as u32);
        let more = |size: u64, digit: &u64| size.checked_mul(64)?.checked_add(*digit);
        let size = size.iter().rev().try_fold(0, more)?;
        let found = Self { object: ObjectId(object), size, mode };
        // One file has one placeholder.
        (found.target() == target).then_some(found)
    }
}

fn bit_of(bytes: &[u8; 32], bit: usize) -> bool {
    bytes.get(bit / 8).is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_read_back_as_it_was_written() {
        for size in [0, 1, 63, 64, 4096, 1 << 29, u64::MAX] {
            let object = ObjectId::of(&size.to_le_bytes());
            let written = Placeholder { object, size, mode: 0o1755 };
            let target = written.target();
            assert_eq!(Placeholder::parse(&target), Some(written));
            assert!(size >= 1 << 30 || target.len() < 60, "it fits into an inode");
        }
    }

    #[test]
    fn other_links_are_no_placeholders() {
        let target = Placeholder { object: ObjectId([7; 32]), size: 5, mode: 0o644 }.target();
        assert!(target.starts_with(b"chr-away/"));
        let longer = [&target[..], b"0"].concat();
        let cut = &target[..target.len() - 3];
        let mut odd = target.clone();
        odd[9 + 42] = b'_';
        for other in [&b"chr-away/"[..], b"a", b"", &longer, cut, &target[1..], &odd] {
            assert_eq!(Placeholder::parse(other), None, "{}", other.escape_ascii());
        }
        assert!(Placeholder::parse(&[&target[..], b"/x"].concat()).is_none());
    }
}
