//! `chronicle.lock`: what a checkpoint is, for people and for the gate. See `docs/lock.md`.

use std::collections::{BTreeMap, HashSet};

use chronicle_core::{ObjectId, PublicKey, Workspace};
use serde::{Deserialize, Serialize};

use crate::driver::Captured;
use crate::error::{Problem, Result};
use crate::part::PartKind;

/// The version of the lock file that this code writes and reads.
pub const VERSION: u32 = 1;
/// Where the signature begins; everything before it is signed.
const SIGNATURE: &str = "\n[signature]\n";
const OTHER: &str = "Restore another checkpoint: chronicle checkpoint list";

/// A checkpoint, as its lock file says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockFile {
    /// The version of this file.
    pub version: u32,
    /// The checkpoint's id.
    pub id: String,
    /// The name that people gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was made.
    pub created: String,
    /// The version of Chronicle that made it.
    pub made_by: String,
    /// The workspace.
    pub workspace: String,
    /// Its directory.
    pub root: String,
    /// The state of the workspace's files: just after this record of its log.
    pub moment: u64,
    /// That record's link in the chain.
    pub link: String,
    /// How long everything stood still, in milliseconds.
    pub freeze_ms: u64,
    /// The list of all contents that it needs.
    #[serde(with = "crate::words::hex_id")]
    pub contents: ObjectId,
    /// Digests of lock files and artefacts, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The parts, code first.
    #[serde(rename = "part", default)]
    pub parts: Vec<LockedPart>,
}

/// One part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPart {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: PartKind,
    /// Where it lay: below the workspace, or absolute.
    pub path: String,
    /// The revision of its schema: the tool and the migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// What the driver kept.
    pub captured: Captured,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    key: String,
    signature: String,
}

impl LockFile {
    /// The part of this name.
    pub fn part(&self, name: &str) -> Option<&LockedPart> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// The text, signed where a key is to be had.
    pub fn text(&self, workspace: &Workspace) -> Result<String> {
        let body = toml::to_string(self)
            .map_err(|error| Problem::new("bad_lock", error.to_string(), "This is a bug"))?;
        let body =
            format!("# A checkpoint of Chronicle; docs/lock.md says what this means.\n{body}");
        let Some((key, signature)) = workspace.sign(&body)? else { return Ok(body) };
        Ok(format!("{body}{SIGNATURE}key = \"{}\"\nsignature = \"{signature}\"\n", key.text()))
    }

    /// Reads the text; a signature must fit it, and be of the key that signs this workspace's heads.
    pub fn parse(text: &str, signer: Option<&PublicKey>) -> Result<Self> {
        let (body, signature) = match text.split_once(SIGNATURE) {
            Some((body, signature)) => (body, Some(signature)),
            None => (text, None),
        };
        let bad = |code, why: String| Problem::new(code, why, OTHER);
        let read: Self = toml::from_str(body).map_err(|error| {
            let version = body.lines().find_map(|line| line.strip_prefix("version = "));
            let newer =
                version.and_then(|text| text.parse::<u32>().ok()).filter(|it| *it > VERSION);
            match newer {
                Some(newer) => too_new(newer),
                None => {
                    bad("bad_lock", format!("the lock file cannot be read: {}", error.message()))
                }
            }
        })?;
        if read.version > VERSION {
            return Err(too_new(read.version).into());
        }
        match (signature, signer) {
            (None, None) => {}
            (None, Some(_)) => {
                let why = "the lock file is not signed, and this workspace's history is".to_owned();
                return Err(bad("lock_unsigned", why).into());
            }
            (Some(signature), signer) => check_signature(body, signature, signer)?,
        }
        Ok(read)
    }

    /// Everything that the drivers say they need, and what names it.
    pub fn needs(parts: &[LockedPart]) -> HashSet<ObjectId> {
        parts.iter().flat_map(|part| part.captured.objects.iter().copied()).collect()
    }
}

fn too_new(version: u32) -> Problem {
    let why = format!("the lock file has version {version}, and this Chronicle reads {VERSION}");
    Problem::new("newer_lock", why, "Use the version of Chronicle that made it, or a later one")
}

fn check_signature(body: &str, text: &str, signer: Option<&PublicKey>) -> Result<()> {
    let bad = |code, why: &str| Err(Problem::new(code, why, OTHER).into());
    let Ok(Signature { key, signature }) = toml::from_str(text) else {
        return bad("bad_signature", "the signature of the lock file cannot be read");
    };
    let Some(key) = PublicKey::parse(&key) else {
        return bad("bad_signature", "the key in the lock file is none");
    };
    if !key.signed(body, &signature) {
        return bad("lock_edited", "the lock file was changed after it was signed");
    }
    match signer.is_none_or(|signer| *signer == key) {
        true => Ok(()),
        false => bad("other_key", "the lock file was signed with a key that is not this home's"),
    }
}
