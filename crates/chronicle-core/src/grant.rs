//! The operator's word for what takes protection away.
//!
//! Whoever runs as the agents' user can read every key of that user. What must not be theirs to do
//! needs a text that is signed with a key which that user cannot read: for one workspace, one kind
//! of act, and a time.

use std::path::Path;

use ed25519_dalek::SigningKey;
use jiff::Timestamp;

use crate::base64;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::head::{self, PublicKey};
use crate::id::{Epoch, Time, WorkspaceId, from_hex, random_bytes, to_hex};
use crate::key::KeySource;

const ORIGIN: &str = "chronicle-grant/1 ";

/// What an operator may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Dropping old history, as often as the rules say until the grant ends.
    Prune,
    /// Removing content for good, once.
    Forget,
    /// Accepting settings that protect less, once.
    Config,
    /// Protecting a root no longer, once.
    Roots,
    /// Deleting a workspace's history, once.
    Purge,
    /// Naming another operator, once.
    Operator,
}

impl Act {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Prune, Self::Forget, Self::Config, Self::Roots, Self::Purge, Self::Operator];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Prune => "prune",
            Self::Forget => "forget",
            Self::Config => "config",
            Self::Roots => "roots",
            Self::Purge => "purge",
            Self::Operator => "operator",
        }
    }

    /// What is done, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Prune => "prune history",
            Self::Forget => "forget content",
            Self::Config => "accept settings that protect less",
            Self::Roots => "protect a root no longer",
            Self::Purge => "delete a history",
            Self::Operator => "name another operator",
        }
    }

    /// Whether a grant holds for more than one act.
    pub(crate) fn stands(self) -> bool {
        self == Self::Prune
    }
}

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// In which workspace.
    pub workspace: WorkspaceId,
    /// In which life of its log.
    pub epoch: Epoch,
    /// What.
    pub act: Act,
    /// Until when.
    pub until: Time,
    /// So that no two are the same.
    pub nonce: [u8; 16],
    /// The operator's key.
    pub key: PublicKey,
}

/// A grant and the signature over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedGrant {
    /// What is signed.
    pub grant: Grant,
    signature: [u8; 64],
}

impl Grant {
    fn text(&self) -> String {
        let until = Timestamp::from_nanosecond(i128::from(self.until.0)).unwrap_or_default();
        format!(
            "{ORIGIN}{}/{}\nact {}\nuntil {until}\nnonce {}\nkey {}\n",
            self.workspace.hex(),
            self.epoch.hex(),
            self.act.word(),
            to_hex(&self.nonce),
            self.key.text(),
        )
    }

    /// Signs it; the key in it becomes the signer's.
    pub fn sign(mut self, key: &SigningKey) -> SignedGrant {
        self.key = PublicKey(key.verifying_key().to_bytes());
        let signature = head::sign(key, &self.text());
        SignedGrant { grant: self, signature }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (workspace, epoch) = lines.next()?.strip_prefix(ORIGIN)?.split_once('/')?;
        let act = lines.next()?.strip_prefix("act ")?;
        let until: Timestamp = lines.next()?.strip_prefix("until ")?.parse().ok()?;
        let nonce = from_hex(lines.next()?.strip_prefix("nonce ")?)?;
        let key = base64::decode_fixed(lines.next()?.strip_prefix("key ")?)?;
        let grant = Self {
            workspace: workspace.parse().ok()?,
            epoch: epoch.parse().ok()?,
            act: Act::ALL.into_iter().find(|known| known.word() == act)?,
            until: Time(i64::try_from(until.as_nanosecond()).ok()?),
            nonce,
            key: PublicKey(key),
        };
        // One grant has one text.
        (grant.text() == text).then_some(grant)
    }
}

impl SignedGrant {
    /// The text: lines, a blank one, the signature.
    pub fn text(&self) -> String {
        head::note(&self.grant.text(), self.grant.key, &self.signature)
    }

    /// Reads exactly one grant; `None` for anything else, and for a signature that the key in it did
    /// not make.
    pub fn parse(text: &str) -> Option<Self> {
        let (lines, last) = text.split_once("\n\n")?;
        let grant = Grant::parse(&format!("{lines}\n"))?;
        let signature = head::signature(last, grant.key)?;
        let good = head::is_signed(grant.key, &grant.text(), &signature);
        good.then_some(Self { grant, signature })
    }
}

/// The operator's key, in a file that the agents' user should not be able to read.
pub struct OperatorKey(SigningKey);

impl OperatorKey {
    /// The key in a file.
    pub fn open(path: &Path) -> Result<Self> {
        let key = KeySource::File(path.to_owned()).load()?;
        key.map(Self).ok_or_else(|| Error::Key(format!("there is no key in {}", path.display())))
    }

    /// The same, made now if there is no such file.
    pub fn open_or_make(path: &Path) -> Result<Self> {
        KeySource::File(path.to_owned()).load_or_make().map(Self)
    }

    /// The half that workspaces are told.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Allows an act in a workspace, named as `WORKSPACE/EPOCH`, for so many days.
    pub fn grant(&self, log: &str, act: Act, days: u32) -> Result<SignedGrant> {
        let named = log
            .split_once('/')
            .and_then(|(workspace, epoch)| Some((workspace.parse().ok()?, epoch.parse().ok()?)));
        let Some((workspace, epoch)) = named else {
            return Err(Error::Usage(format!(
                "{log:?} names no workspace: see chronicle operator show"
            )));
        };
        let second = 1_000_000_000;
        let until = SystemClock.now().0 / second + i64::from(days) * 86_400;
        let until = Time(until.saturating_mul(second));
        let (nonce, key) = (random_bytes(), self.public());
        Ok(Grant { workspace, epoch, act, until, nonce, key }.sign(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_grant_can_change() {
        let grant = Grant {
            workspace: WorkspaceId([1; 16]),
            epoch: Epoch([2; 16]),
            act: Act::Forget,
            until: Time(1_700_000_000_000_000_000),
            nonce: [3; 16],
            key: PublicKey([0; 32]),
        };
        let signed = grant.sign(&SigningKey::from_bytes(&[7; 32]));
        let text = signed.text();
        assert_eq!(SignedGrant::parse(&text), Some(signed));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let read = String::from_utf8(bytes).ok().and_then(|text| SignedGrant::parse(&text));
            assert_eq!(read, None, "byte {at}");
            assert_eq!(text.get(..at).and_then(SignedGrant::parse), None);
        }
    }
}
