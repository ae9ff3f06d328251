//! What stands at a path, as far as it travels: from an entry and back, and as canonical bytes.

use super::Version;
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::entry::{Entry, File, Meta, Symlink};
use crate::id::{ObjectId, Time};
use crate::{merge, text};

/// Permission bits that travel: all but setuid and setgid.
const MODE_BITS: u32 = 0o1777;
/// The longest target of a symbolic link, as in the kernel.
const TARGET_MAX: usize = 4095;
/// An attribute that gives rights to content; it does not outlive that content.
const CAPABILITY: &[u8] = b"security.capability";

/// Whose a thing becomes that did not exist before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Version {
    /// What an entry is, as far as it travels; `None` if it is not known or never travels, so that nothing may
    /// be put in its place.
    pub fn of(entry: &Entry) -> Option<Self> {
        Some(match entry {
            Entry::Absent => Self::Absent,
            Entry::File(file) if !file.secret && !file.pending => Self::File {
                object: file.object,
                size: file.size,
                mode: file.meta.mode & MODE_BITS,
                mtime_ns: file.meta.mtime_ns,
            },
            Entry::Directory(meta) => Self::Directory { mode: meta.mode & MODE_BITS },
            Entry::Symlink(link) => Self::Symlink { target: link.target.clone() },
            _ => return None,
        })
    }

    /// What the other side is told of an entry: what never travels is not there for it. `None` if there is
    /// nothing to tell, because it is not known or secret.
    pub fn told(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Special(_) | Entry::Repository(_) => Some(Self::Absent),
            _ => Self::of(entry),
        }
    }

    /// The entry to write: owner and attributes of what stands there, or else this owner.
    ///
    /// Capabilities do not stay with other content, and times of links and directories are not theirs to set.
    pub fn entry(&self, stands: &Entry, owner: Owner, now: Time) -> Entry {
        let meta = |mode, mtime_ns| {
            let known = stands.meta();
            let attributes = known.map(|meta| meta.xattrs.clone()).unwrap_or_default();
            Meta {
                mode,
                uid: known.map_or(owner.uid, |meta| meta.uid),
                gid: known.map_or(owner.gid, |meta| meta.gid),
                mtime_ns,
                xattrs: attributes.into_iter().filter(|(name, _)| name != CAPABILITY).collect(),
            }
        };
        let time = || match stands.meta() {
            Some(meta) if !matches!(stands, Entry::File(_)) => meta.mtime_ns,
            _ => now.0,
        };
        match self {
            Self::Absent => Entry::Absent,
            Self::File { object, size, mode, mtime_ns } => Entry::File(File {
                object: *object,
                secret: false,
                pending: false,
                size: *size,
                sparse: false,
                link: None,
                meta: meta(*mode, *mtime_ns),
            }),
            Self::Directory { mode } => Entry::Directory(meta(*mode, time())),
            Self::Symlink { target } => {
                Entry::Symlink(Symlink { target: target.clone(), meta: meta(0o777, time()) })
            }
        }
    }

    /// Whether both are the same for everybody but a clock.
    pub fn same_value(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { object: a, size: b, mode: c, .. },
                Self::File { object: x, size: y, mode: z, .. },
            ) => (a, b, c) == (x, y, z),
            _ => self == other,
        }
    }

    /// Whether something stands there.
    pub fn is_present(&self) -> bool {
        *self != Self::Absent
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }

    /// The content that is needed to write it.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Self::File { object, .. } => Some(*object),
            _ => None,
        }
    }

    /// The kind, in one word of the glossary.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::File { .. } => "file",
            Self::Directory { .. } => "directory",
            Self::Symlink { .. } => "symlink",
        }
    }

    /// The hash of the value: times do not count.
    pub fn hash(&self) -> ObjectId {
        let mut out = Encoder::default();
        self.encode_value(&mut out);
        ObjectId::of(&out.0)
    }

    /// Writes it, without a file's time.
    fn encode_value(&self, out: &mut Encoder) {
        match self {
            Self::Absent => out.byte(0),
            Self::File { object, size, mode, .. } => {
                out.byte(1);
                out.fixed(&object.0);
                out.int(*size);
                out.int(u64::from(*mode));
            }
            Self::Directory { mode } => {
                out.byte(2);
                out.int(u64::from(*mode));
            }
            Self::Symlink { target } => {
                out.byte(3);
                out.bytes(target);
            }
        }
    }

    /// Writes it.
    pub fn encode(&self, out: &mut Encoder) {
        self.encode_value(out);
        if let Self::File { mtime_ns, .. } = self {
            out.signed(*mtime_ns);
        }
    }

    /// Reads one; everything that no writer writes is refused.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match input.byte()? {
            0 => Self::Absent,
            1 => Self::File {
                object: ObjectId(input.array()?),
                size: decode_size(input)?,
                mode: decode_mode(input)?,
                mtime_ns: input.signed()?,
            },
            2 => Self::Directory { mode: decode_mode(input)? },
            3 => Self::Symlink { target: decode_target(input)? },
            _ => return Err(DecodeError::Malformed("a version has an unknown kind")),
        })
    }
}

/// A length that a file can have.
fn decode_size(input: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    let size = input.int()?;
    match i64::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(DecodeError::Malformed("a file is larger than a file can be")),
    }
}

fn decode_mode(input: &mut Decoder<'_>) -> Result<u32, DecodeError> {
    match input.int32()? {
        mode if mode & !MODE_BITS == 0 => Ok(mode),
        _ => Err(DecodeError::Malformed("a version has permission bits that never travel")),
    }
}

fn decode_target(input: &mut Decoder<'_>) -> Result<Vec<u8>, DecodeError> {
    match input.bytes()? {
        target if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) => {
            Err(DecodeError::Malformed("a symbolic link points to what cannot be"))
        }
        target => Ok(target.to_vec()),
    }
}

/// Merges three texts by lines; `None` if one is no text or two changed the same lines.
pub fn merge_conflict(base: &[u8], mine: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let sides = [base, mine, theirs];
    if sides.iter().any(|bytes| text::is_binary(bytes) || bytes.len() as u64 > merge::TEXT_LIMIT) {
        return None;
    }
    merge::merge_text(base, mine, theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Special, SpecialKind, Why};
    use crate::fuzz;

    fn file(mode: u32) -> File {
        let meta = Meta { mode, uid: 1, gid: 2, mtime_ns: 3, xattrs: vec![] };
        let object = ObjectId::of(b"x");
        File { object, secret: false, pending: false, size: 1, sparse: true, link: None, meta }
    }

    fn samples() -> Vec<Version> {
        vec![
            Version::Absent,
            Version::of(&Entry::File(file(0o644))).unwrap(),
            Version::Directory { mode: 0o1777 },
            Version::Symlink { target: b"../x".to_vec() },
        ]
    }

    #[test]
    fn owners_and_special_bits_stay_home() {
        let version = Version::of(&Entry::File(file(0o6755))).unwrap();
        assert_eq!(
            version,
            Version::File { object: ObjectId::of(b"x"), size: 1, mode: 0o755, mtime_ns: 3 }
        );
        let owner = Owner { uid: 7, gid: 8 };
        let made = version.entry(&Entry::Absent, owner, Time(9));
        assert_eq!(made.meta().map(|meta| (meta.uid, meta.gid, meta.mode)), Some((7, 8, 0o755)));
        let over = version.entry(&Entry::File(file(0o6600)), owner, Time(9));
        assert_eq!(over.meta().map(|meta| (meta.uid, meta.gid, meta.mode)), Some((1, 2, 0o755)));
    }

    #[test]
    fn capabilities_do_not_stay_with_other_content() {
        let mut stands = file(0o755);
        stands.meta.xattrs = vec![(CAPABILITY.to_vec(), vec![1]), (b"user.note".to_vec(), vec![2])];
        let put = samples()[1].entry(&Entry::File(stands), Owner { uid: 0, gid: 0 }, Time(0));
        assert_eq!(put.meta().unwrap().xattrs, [(b"user.note".to_vec(), vec![2])]);
    }

    #[test]
    fn what_never_travels_is_no_version_and_is_told_as_absent() {
        let fifo = Entry::Special(Special { kind: SpecialKind::Fifo, meta: Meta::default() });
        assert_eq!((Version::of(&fifo), Version::told(&fifo)), (None, Some(Version::Absent)));
        let unknown = Entry::Unknown(Why::Unreadable);
        assert_eq!((Version::of(&unknown), Version::told(&unknown)), (None, None));
        let secret = Entry::File(File { secret: true, ..file(0o600) });
        assert_eq!((Version::of(&secret), Version::told(&secret)), (None, None));
    }

    #[test]
    fn times_do_not_count() {
        let [mut early, late] = [samples()[1].clone(), samples()[1].clone()];
        if let Version::File { mtime_ns, .. } = &mut early {
            *mtime_ns = -5;
        }
        assert!(early != late && early.same_value(&late) && early.hash() == late.hash());
        assert!(!early.same_value(&Version::Absent));
    }

    #[test]
    fn mutated_versions() {
        let encode = |version: &Version| {
            let mut out = Encoder::default();
            version.encode(&mut out);
            out.0
        };
        let samples: Vec<_> = samples().iter().map(encode).collect();
        fuzz::target("version", &samples, |input| {
            let mut rest = Decoder(input);
            let Ok(version) = Version::decode(&mut rest) else { return false };
            assert_eq!(encode(&version), input[..input.len() - rest.0.len()], "not canonical");
            true
        });
    }

    #[test]
    fn only_clean_merges_of_text_are_made() {
        let merged = merge_conflict(b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n");
        assert_eq!(merged.as_deref(), Some(&b"A\nb\nC\n"[..]));
        assert_eq!(merge_conflict(b"a\n", b"b\n", b"c\n"), None);
        assert_eq!(merge_conflict(b"a\0\nb\nc\n", b"A\0\nb\nc\n", b"a\0\nb\nC\n"), None);
    }
}
