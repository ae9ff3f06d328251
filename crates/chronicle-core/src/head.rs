//! Signed heads: what a log was at one size, in a text that people can paste; pure.
//!
//! The text is a signed note as C2SP describes it, over a checkpoint of the Merkle tree with some
//! lines more. It carries the key that signed it, so that a witness that has never heard of a
//! workspace can still tell a head from noise; whose key it should be is for the reader to know.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::base64;
use crate::id::{Epoch, LinkHash, Time, WorkspaceId, from_hex};
use crate::merkle::Hash;

/// The first word of a head: what it is and the version of its form.
const ORIGIN: &str = "chronicle/1 ";
/// How a signature line begins: a dash, and the name of the key.
const SIGNATURE: &str = "\u{2014} chronicle ";
/// The name of a key for its four-byte mark, and the number of Ed25519 in signed notes.
const KEY_MARK: &[u8] = b"chronicle\n\x01";
/// Where a git repository keeps the heads that were handed over to it.
pub(crate) const NOTES_REF: &str = "refs/notes/chronicle";

/// The public half of the key that signs heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// The key as people see it.
    pub fn text(&self) -> String {
        base64::encode(&self.0)
    }

    /// Reads what `text` writes.
    pub fn parse(text: &str) -> Option<Self> {
        base64::decode_fixed(text.trim()).map(Self)
    }

    /// The mark that tells keys apart in a signature line.
    fn mark(&self) -> [u8; 4] {
        let hash = Sha256::new().chain_update(KEY_MARK).chain_update(self.0).finalize();
        [hash[0], hash[1], hash[2], hash[3]]
    }
}

/// Signs the lines of a note.
pub(crate) fn sign(key: &SigningKey, lines: &str) -> [u8; 64] {
    key.sign(lines.as_bytes()).to_bytes()
}

/// A whole note: its lines, a blank one, the signature.
pub(crate) fn note(lines: &str, key: PublicKey, signature: &[u8; 64]) -> String {
    let signature = [&key.mark()[..], signature].concat();
    format!("{lines}\n{SIGNATURE}{}\n", base64::encode(&signature))
}

/// The signature in the last line of a note, if it says that this key made it.
pub(crate) fn signature(last: &str, key: PublicKey) -> Option<[u8; 64]> {
    let line = last.strip_prefix(SIGNATURE)?.strip_suffix('\n')?;
    let bytes: [u8; 68] = base64::decode_fixed(line)?;
    let (mark, signature) = bytes.split_at(4);
    (mark == key.mark()).then(|| signature.try_into().ok())?
}

/// Whether a key signed the lines of a note.
pub(crate) fn is_signed(key: PublicKey, lines: &str, signature: &[u8; 64]) -> bool {
    VerifyingKey::from_bytes(&key.0)
        .and_then(|key| key.verify_strict(lines.as_bytes(), &Signature::from_bytes(signature)))
        .is_ok()
}

/// What a log was when it had this many records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHead {
    /// The workspace whose log it is.
    pub workspace: WorkspaceId,
    /// The life of that log.
    pub epoch: Epoch,
    /// How many records it had.
    pub size: u64,
    /// The root of the Merkle tree over them.
    pub root: Hash,
    /// The link of the last of them.
    pub link: LinkHash,
    /// When the head was made.
    pub time: Time,
    /// The size of the head before it; 0 for the first. So that none can be left out unnoticed.
    pub after: u64,
    /// The key that signs it.
    pub key: PublicKey,
}

/// A head and the signature over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    /// What is signed.
    pub head: TreeHead,
    signature: [u8; 64],
}

impl TreeHead {
    /// The bytes that are signed: every line up to the blank one.
    fn text(&self) -> String {
        let time = Timestamp::from_nanosecond(i128::from(self.time.0)).unwrap_or_default();
        format!(
            "{ORIGIN}{}/{}\n{}\n{}\nlink {}\ntime {time}\nafter {}\nkey {}\n",
            self.workspace.hex(),
            self.epoch.hex(),
            self.size,
            base64::encode(&self.root),
            self.link.hex(),
            self.after,
            self.key.text(),
        )
    }

    /// Signs it; the key in it becomes the signer's.
    pub fn sign(mut self, key: &SigningKey) -> SignedHead {
        self.key = PublicKey(key.verifying_key().to_bytes());
        let signature = sign(key, &self.text());
        SignedHead { head: self, signature }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (workspace, epoch) = lines.next()?.strip_prefix(ORIGIN)?.split_once('/')?;
        let size = lines.next()?.parse().ok()?;
        let root = base64::decode_fixed(lines.next()?)?;
        let link = from_hex(lines.next()?.strip_prefix("link ")?)?;
        let time: Timestamp = lines.next()?.strip_prefix("time ")?.parse().ok()?;
        let after = lines.next()?.strip_prefix("after ")?.parse().ok()?;
        let key = base64::decode_fixed(lines.next()?.strip_prefix("key ")?)?;
        let head = Self {
            workspace: workspace.parse().ok()?,
            epoch: epoch.parse().ok()?,
            size,
            root,
            link: LinkHash(link),
            time: Time(i64::try_from(time.as_nanosecond()).ok()?),
            after,
            key: PublicKey(key),
        };
        // One head has one text.
        (head.text() == text).then_some(head)
    }
}

impl SignedHead {
    /// The text: lines, a blank one, the signature.
    pub fn text(&self) -> String {
        note(&self.head.text(), self.head.key, &self.signature)
    }

    /// Reads exactly one head; `None` for anything that [`SignedHead::text`] does not write, and for
    /// a signature that the key in it did not make.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).filter(Self::is_signed)
    }

    /// The same, with a signature that is still to be checked: that is what costs time.
    fn read(text: &str) -> Option<Self> {
        let (note, last) = text.split_once("\n\n")?;
        let head = TreeHead::parse(&format!("{note}\n"))?;
        Some(Self { signature: signature(last, head.key)?, head })
    }

    /// Whether the key in it made the signature.
    pub(crate) fn is_signed(&self) -> bool {
        is_signed(self.head.key, &self.head.text(), &self.signature)
    }

    /// Every head of a workspace in a text that may hold anything else besides, in their order,
    /// with signatures that are still to be checked.
    ///
    /// The first that is signed decides whose word counts: whoever can only append cannot make
    /// another key's heads count.
    pub(crate) fn find_all(text: &str, workspace: WorkspaceId) -> Vec<Self> {
        let mut found = Vec::new();
        let starts = text.match_indices(ORIGIN).map(|(at, _)| at);
        for start in starts.filter(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n') {
            let rest = &text[start..];
            let end = rest.find(SIGNATURE).and_then(|at| Some(at + rest[at..].find('\n')? + 1));
            found.extend(end.and_then(|end| Self::read(&rest[..end])));
        }
        found.retain(|signed| signed.head.workspace == workspace);
        let first = found.iter().position(Self::is_signed).unwrap_or(found.len());
        found.drain(..first);
        let key = found.first().map(|signed| signed.head.key);
        found.retain(|signed| Some(signed.head.key) == key);
        found
    }

    /// The newest of such heads that is signed.
    pub(crate) fn newest_of(mut heads: Vec<Self>) -> Option<Self> {
        heads.sort_by_key(|signed| signed.head.size);
        heads.into_iter().rev().find(Self::is_signed)
    }
}

/// What a history is compared with: a head that somebody noted elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// A signed head.
    Signed(Box<SignedHead>),
    /// Only how many records there were, and the root of the tree over them.
    Root {
        /// How many records.
        size: u64,
        /// The root.
        root: Hash,
    },
}

impl Anchor {
    /// Reads a head's text, or `SIZE:ROOT` with the root in hexadecimal or base64.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((size, root)) = text.trim().split_once(':')
            && let Ok(size) = size.parse()
        {
            let root = from_hex(root).or_else(|| base64::decode_fixed(root))?;
            return Some(Self::Root { size, root });
        }
        let whole = format!("{}\n", text.trim());
        SignedHead::parse(&whole).map(|signed| Self::Signed(Box::new(signed)))
    }

    /// How many records there were.
    pub fn size(&self) -> u64 {
        match self {
            Self::Signed(signed) => signed.head.size,
            Self::Root { size, .. } => *size,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn signed(seed: u8, size: u64) -> SignedHead {
        let head = TreeHead {
            workspace: WorkspaceId([1; 16]),
            epoch: Epoch([2; 16]),
            size,
            root: [3; 32],
            link: LinkHash([4; 32]),
            time: Time(1_700_000_000_123_000_000),
            after: size - 1,
            key: PublicKey([0; 32]),
        };
        head.sign(&SigningKey::from_bytes(&[seed; 32]))
    }

    #[test]
    fn a_head_is_a_text_that_can_be_pasted() {
        let text = signed(7, 12).text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], format!("chronicle/1 {}/{}", "01".repeat(16), "02".repeat(16)));
        assert_eq!(lines[1], "12");
        assert_eq!(lines[4], "time 2023-11-14T22:13:20.123Z");
        assert_eq!((lines[5], lines[7]), ("after 11", ""));
        assert!(lines[8].starts_with("\u{2014} chronicle "), "{text}");
        assert_eq!(SignedHead::parse(&text), Some(signed(7, 12)));
    }

    #[test]
    fn no_byte_of_it_can_change() {
        let text = signed(7, 12).text();
        for at in 0..text.len() {
            for flip in [1, 2, 0x20] {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= flip;
                let read = String::from_utf8(bytes).ok().and_then(|text| SignedHead::parse(&text));
                assert_eq!(read, None, "byte {at}");
            }
            assert_eq!(text.get(..at).and_then(SignedHead::parse), None);
        }
        assert_eq!(SignedHead::parse(&format!("{text}\n")), None);
    }

    #[test]
    fn the_newest_is_found_among_anything() {
        let (one, two, stranger) = (signed(7, 3), signed(7, 9), signed(8, 50));
        let torn = &signed(7, 70).text()[..90];
        let text = format!("noise\n{}\n{torn}\n{}{}", one.text(), two.text(), stranger.text());
        let newest = |id| SignedHead::newest_of(SignedHead::find_all(&text, WorkspaceId([id; 16])));
        assert_eq!(newest(1), Some(two));
        assert_eq!(newest(9), None);
    }

    #[test]
    fn an_anchor_is_a_head_or_a_size_and_a_root() {
        let head = signed(7, 12);
        let root = Anchor::Root { size: 12, root: [3; 32] };
        assert_eq!(Anchor::parse(&head.text()), Some(Anchor::Signed(Box::new(head))));
        assert_eq!(Anchor::parse(&format!("12:{}", "03".repeat(32))), Some(root.clone()));
        assert_eq!(Anchor::parse(&format!("12:{}\n", base64::encode(&[3; 32]))), Some(root));
        assert_eq!(Anchor::parse("12:abc"), None);
        assert_eq!(Anchor::parse("nothing"), None);
    }
}
