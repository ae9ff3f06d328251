//! The files of a repository's metadata that go back together, as one object.
//!
//! A bundle is canonical bytes (see `docs/format.md`); what two bundles mean to each other is
//! decided in `value`.

use crate::codec::{DecodeError, Decoder, Encoder};

/// The version of the bundle's form.
pub(crate) const BUNDLE_VERSION: u8 = 1;
/// Permission bits, with setuid, setgid and sticky.
const MODE_MAX: u32 = 0o7777;

/// The significant and carried files of one metadata directory, ordered by their paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bundle {
    /// The files.
    pub files: Vec<BundleFile>,
}

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFile {
    /// Its path relative to the metadata directory.
    pub inner: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// What it is.
    pub kind: BundleKind,
}

/// What a file of a bundle is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleKind {
    /// A regular file with this content.
    File(Vec<u8>),
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
}

impl BundleKind {
    /// The content or the target.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::File(bytes) | Self::Symlink(bytes) => bytes,
        }
    }
}

impl Bundle {
    /// A bundle of these files, in any order.
    pub fn new(mut files: Vec<BundleFile>) -> Self {
        files.sort_by(|a, b| a.inner.cmp(&b.inner));
        Self { files }
    }

    /// The file at a path relative to the metadata directory.
    pub fn get(&self, inner: &[u8]) -> Option<&BundleFile> {
        let at = self.files.binary_search_by(|file| file.inner[..].cmp(inner)).ok()?;
        Some(&self.files[at])
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.byte(BUNDLE_VERSION);
        out.int(self.files.len() as u64);
        for file in &self.files {
            out.bytes(&file.inner);
            out.byte(u8::from(matches!(file.kind, BundleKind::Symlink(_))));
            out.int(u64::from(file.mode));
            out.int(u64::from(file.uid));
            out.int(u64::from(file.gid));
            out.signed(file.mtime_ns);
            out.bytes(file.kind.bytes());
        }
        out.0
    }

    /// Reads canonical bytes, and nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        match input.byte()? {
            BUNDLE_VERSION => {}
            newer if newer > BUNDLE_VERSION => return Err(DecodeError::Newer(newer)),
            _ => return Err(DecodeError::Malformed("a bundle has no version")),
        }
        let count = input.count()?;
        let mut files: Vec<BundleFile> = Vec::new();
        for _ in 0..count {
            let file = decode_file(&mut input)?;
            if files.last().is_some_and(|last| last.inner >= file.inner) {
                return Err(DecodeError::Malformed("files of a bundle are out of order"));
            }
            files.push(file);
        }
        input.end()?;
        let bundle = Self { files };
        bundle.check_nesting()?;
        Ok(bundle)
    }

    /// Checks that no file lies below another.
    fn check_nesting(&self) -> Result<(), DecodeError> {
        let above = |inner: &[u8]| {
            let slashes = memchr::memchr_iter(b'/', inner).collect::<Vec<_>>();
            slashes.into_iter().any(|end| self.get(&inner[..end]).is_some())
        };
        match self.files.iter().any(|file| above(&file.inner)) {
            true => Err(DecodeError::Malformed("a file of a bundle lies below another")),
            false => Ok(()),
        }
    }
}

fn decode_file(input: &mut Decoder<'_>) -> Result<BundleFile, DecodeError> {
    let path = input.path()?;
    if path.is_root() || path.is_outside() {
        return Err(DecodeError::Malformed("a file of a bundle lies outside of it"));
    }
    let is_symlink = match input.byte()? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Malformed("a file of a bundle has an unknown kind")),
    };
    let (mode, uid, gid) = (input.int32()?, input.int32()?, input.int32()?);
    if mode > MODE_MAX {
        return Err(DecodeError::Malformed("a file of a bundle has an impossible mode"));
    }
    let mtime_ns = input.signed()?;
    let bytes = input.bytes()?.to_vec();
    let kind = if is_symlink { BundleKind::Symlink(bytes) } else { BundleKind::File(bytes) };
    Ok(BundleFile { inner: path.as_bytes().to_vec(), mode, uid, gid, mtime_ns, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"HEAD=x hooks/a>target"`: files with content and links.
    fn bundle(text: &str) -> Bundle {
        let file = |word: &str| {
            let (inner, kind) = match word.split_once('=') {
                Some((inner, content)) => (inner, BundleKind::File(content.into())),
                None => {
                    let (inner, target) = word.split_once('>').expect("a file or a link");
                    (inner, BundleKind::Symlink(target.into()))
                }
            };
            BundleFile { inner: inner.into(), mode: 0o644, uid: 1, gid: 2, mtime_ns: -3, kind }
        };
        Bundle { files: text.split_whitespace().map(file).collect() }
    }

    #[track_caller]
    fn check_refused(text: &str) {
        let bytes = bundle(text).encode();
        assert!(Bundle::decode(&bytes).is_err(), "{text}");
    }

    #[test]
    fn bytes_go_there_and_back() {
        for text in ["", "HEAD=x", "HEAD=x hooks/a>../b refs/heads/main=1"] {
            let one = bundle(text);
            assert_eq!(Bundle::decode(&one.encode()), Ok(one));
        }
    }

    #[test]
    fn unsafe_or_unordered_files_are_refused() {
        for text in ["b=1 a=1", "a=1 a=1", "../a=1", "/etc/x=1", "a//b=1", "=1", "a=1 a-b=1 a/b=1"]
        {
            check_refused(text);
        }
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let good = bundle("HEAD=x hooks/a>../b refs/heads/main=1").encode();
        for end in 0..good.len() {
            assert!(Bundle::decode(&good[..end]).is_err());
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x2f, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Ok(read) = Bundle::decode(&bad) {
                    assert_eq!(read.encode(), bad);
                }
            }
        }
    }

    #[test]
    fn mutated_bundles() {
        let samples = ["HEAD=x hooks/a>target index=y", "", "refs/heads/main=0123"];
        let samples = samples.map(|text| bundle(text).encode());
        crate::fuzz::target("bundle", &samples, |input| {
            let Ok(bundle) = Bundle::decode(input) else { return false };
            assert_eq!(bundle.encode(), input, "not canonical");
            let _ = bundle.identity();
            true
        });
    }
}
