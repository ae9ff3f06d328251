//! Checkpoints as the log has them: which there are, what they hold, and what of it must stay.
//!
//! How things outside the workspace are frozen and restored is not known here.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use super::{PATIENCE, Workspace};
use crate::base64;
use crate::catalog::{Batch, Catalog};
use crate::codec;
use crate::error::{Error, Result};
use crate::head::{self, PublicKey};
use crate::home::private_directory;
use crate::id::{LinkHash, ObjectId, Seq, SnapshotId, Time};
use crate::key::KeySource;
use crate::lock::Lock;
use crate::record::{Checkpointed, Kind, Labels, Record};
use crate::store::{ContentStorage, Intake, LocalStore};

/// What makes a list of contents one.
const CONTENTS: &[u8] = b"chronicle contents 1\n";
/// The actions of records about checkpoints.
const MADE: &str = "checkpoint";
const DROPPED: &str = "drop_checkpoint";
const RESTORED: &str = "restore";
/// How long another process is waited for that may be about to end.
const A_MOMENT: Duration = Duration::from_millis(500);

/// Held by the one process that makes or restores a checkpoint.
pub struct CheckpointGuard(#[expect(dead_code, reason = "it is there to be held")] Lock);

/// A checkpoint as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Its id.
    pub id: SnapshotId,
    /// Its record.
    pub seq: Seq,
    /// The record's link in the chain.
    pub link: LinkHash,
    /// When it was made.
    pub time: Time,
    /// The name that people gave it.
    pub name: Option<String>,
    /// What it is, in words.
    pub summary: String,
    /// The state of the workspace that belongs to it: just after this record.
    pub moment: Seq,
    /// What it holds.
    pub holds: Checkpointed,
    /// It was dropped: what it held may be gone.
    pub dropped: bool,
}

/// A checkpoint that is about to be recorded.
#[derive(Debug, Clone)]
pub struct NewCheckpoint {
    /// Its id.
    pub id: SnapshotId,
    /// The name that people gave it.
    pub name: Option<String>,
    /// What it is, in words.
    pub summary: String,
    /// The state of the workspace that belongs to it.
    pub moment: Seq,
    /// What it holds; all of it is durable.
    pub holds: Checkpointed,
}

/// The bytes of a list of contents.
pub fn encode_contents(ids: &HashSet<ObjectId>) -> Vec<u8> {
    let mut sorted: Vec<_> = ids.iter().collect();
    sorted.sort_unstable();
    let mut bytes = CONTENTS.to_vec();
    sorted.into_iter().for_each(|id| bytes.extend_from_slice(&id.0));
    bytes
}

fn decode_contents(list: &ObjectId, bytes: &[u8]) -> Result<Vec<ObjectId>> {
    let ids = bytes.strip_prefix(CONTENTS).filter(|ids| ids.len() % 32 == 0);
    let ids = ids.ok_or_else(|| Error::Corrupt {
        object: *list,
        why: "it is no list of contents".to_owned(),
    })?;
    Ok(ids.chunks_exact(32).filter_map(ObjectId::from_slice).collect())
}

/// Everything that the checkpoints of a log need; a list that is not here at all came from elsewhere, and
/// what it names did not come with it.
pub(crate) fn contents_of(catalog: &Catalog, store: &LocalStore) -> Result<HashSet<ObjectId>> {
    let mut needed = HashSet::new();
    for checkpoint in read_all(catalog)?.into_iter().filter(|checkpoint| !checkpoint.dropped) {
        let Checkpointed { lock, contents } = checkpoint.holds;
        if store.exists(&contents)? {
            needed.extend(decode_contents(&contents, &store.get(&contents)?)?);
            needed.extend([lock, contents]);
        }
    }
    Ok(needed)
}

fn read_all(catalog: &Catalog) -> Result<Vec<CheckpointRecord>> {
    let mut all: Vec<CheckpointRecord> = Vec::new();
    for seq in catalog.of_kind(Kind::Checkpoint)? {
        let sealed = catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
        let header = codec::decode_header(&sealed.leaf);
        let Record { labels, time, .. } = header.map_err(|source| Error::Record { seq, source })?;
        match (labels.action.as_deref(), labels.snapshot, labels.intent) {
            (Some(MADE), Some(id), _) => {
                let (Some(holds), Some(moment)) = (labels.checkpoint, labels.target) else {
                    continue;
                };
                let summary = labels.summary.unwrap_or_default();
                let (name, link, dropped) = (labels.name, sealed.link, false);
                let made =
                    CheckpointRecord { id, seq, link, time, name, summary, moment, holds, dropped };
                all.push(made);
            }
            (Some(DROPPED), _, Some(id)) => {
                all.iter_mut().filter(|it| it.id == id).for_each(|it| it.dropped = true);
            }
            _ => {}
        }
    }
    Ok(all)
}

impl Workspace {
    /// Every checkpoint that was ever made, the oldest first.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointRecord>> {
        read_all(&self.catalog)
    }

    /// The contents that a checkpoint needs, by its own list.
    pub fn checkpoint_contents(&self, list: &ObjectId) -> Result<Vec<ObjectId>> {
        decode_contents(list, &self.store.get(list)?)
    }

    /// The home's content store, opened for whoever takes in or reads much beside the workspace.
    pub fn content_store(&self) -> Result<LocalStore> {
        self.home.open_store()
    }

    /// Begins to take content in for a checkpoint, within the limits; durable once it is finished, and
    /// kept for as long as the intake lives.
    pub fn checkpoint_intake<'s>(&self, store: &'s LocalStore) -> Result<Intake<'s>> {
        store.intake()?.within(self.home.path(), self.limits()?).in_packs()
    }

    /// Where drivers and an unfinished restore keep what is theirs, made if it is not there.
    pub fn checkpoint_place(&self) -> Result<PathBuf> {
        let place = self.checkpoint_directory();
        private_directory(&place)?;
        Ok(place)
    }

    /// The same, whether or not it is there.
    pub fn checkpoint_directory(&self) -> PathBuf {
        self.directory().join("checkpoints")
    }

    /// The only process that may make or restore a checkpoint now; `None` if there is another.
    pub fn checkpoint_guard(&self) -> Result<Option<CheckpointGuard>> {
        // A program that is just being started may hold what its parent has let go of.
        match Lock::take(&self.directory().join("checkpoint.lock"), A_MOMENT) {
            Err(Error::Busy(_)) => Ok(None),
            lock => Ok(Some(CheckpointGuard(lock?))),
        }
    }

    /// Records a checkpoint whose contents are all durable: from here on it exists.
    pub fn record_checkpoint(&mut self, new: &NewCheckpoint) -> Result<CheckpointRecord> {
        let labels = Labels {
            snapshot: Some(new.id),
            action: Some(MADE.to_owned()),
            summary: Some(new.summary.clone()),
            name: new.name.clone(),
            target: Some(new.moment),
            checkpoint: Some(new.holds),
            ..Labels::default()
        };
        self.append_about_checkpoints(labels)?;
        let found = self.checkpoints()?.into_iter().rfind(|made| made.id == new.id);
        found.ok_or_else(|| Error::UnknownTarget(new.id.to_string()))
    }

    /// Records that a checkpoint is no longer kept.
    pub fn drop_checkpoint(&mut self, id: SnapshotId, why: &str) -> Result<()> {
        self.append_about_checkpoints(Labels {
            action: Some(DROPPED.to_owned()),
            summary: Some(format!("drop checkpoint {}: {why}", id.short())),
            intent: Some(id),
            ..Labels::default()
        })
    }

    /// Records that everything was brought to a checkpoint.
    pub fn note_restore(&mut self, id: SnapshotId, words: &str) -> Result<()> {
        self.append_about_checkpoints(Labels {
            action: Some(RESTORED.to_owned()),
            summary: Some(words.to_owned()),
            intent: Some(id),
            ..Labels::default()
        })
    }

    fn append_about_checkpoints(&mut self, labels: Labels) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let records = vec![self.record(Kind::Checkpoint, labels)];
        self.commit_signed(Batch { records, ..Batch::default() }).map(drop)
    }

    /// Signs a text with the key that signs heads: the key and the signature, in words; `None` where no
    /// key is to be had.
    pub fn sign(&self, text: &str) -> Result<Option<(PublicKey, String)>> {
        if matches!(self.home.key(), KeySource::None) {
            return Ok(None);
        }
        let key = self.home.key().load_or_make()?;
        let signature = base64::encode(&head::sign(&key, text));
        Ok(Some((PublicKey(key.verifying_key().to_bytes()), signature)))
    }

    /// The key that signs this workspace's heads, once one did.
    pub fn signing_key(&self) -> Result<Option<PublicKey>> {
        self.catalog.pinned_key()
    }
}

impl PublicKey {
    /// Whether this key signed a text.
    pub fn signed(&self, text: &str, signature: &str) -> bool {
        let signature = base64::decode(signature).and_then(|bytes| bytes.try_into().ok());
        signature.is_some_and(|signature| head::is_signed(*self, text, &signature))
    }
}
