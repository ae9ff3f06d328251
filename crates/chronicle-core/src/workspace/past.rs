//! The whole tree at a moment, directory by directory, for whoever browses it.

use std::collections::BTreeMap;
use std::io::Write;

use super::Workspace;
use super::views::{entry_view, path_text, timestamp};
use crate::catalog::{LocalState, Log};
use crate::codec;
use crate::entry::{Entry, Why};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::path::{WorkspacePath, escape};
use crate::record::Kind;
use crate::store::ContentStorage;
use crate::view::{CheckpointNote, EntryView, SCHEMA, TreeEntry, TreeView};

impl From<&Entry> for EntryView {
    fn from(entry: &Entry) -> Self {
        entry_view(entry)
    }
}

impl Workspace {
    /// The position that a target names, if it can still be reached.
    pub fn position_of(&self, target: &str) -> Result<Seq> {
        Ok(self.moment(target)?.seq)
    }

    /// The position of the last record.
    pub fn last_position(&self) -> Result<Seq> {
        Ok(self.catalog.head()?.seq)
    }

    /// What the log says about checkpoints, oldest first.
    pub fn checkpoint_notes(&self) -> Result<Vec<CheckpointNote>> {
        let read = |seq: Seq| {
            let sealed = self.catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
            let record = codec::decode_header(&sealed.leaf);
            let record = record.map_err(|source| Error::Record { seq, source })?;
            let lock = record.labels.checkpoint.map(|holds| self.objects()?.get(&holds.lock));
            let parts = lock.and_then(Result::ok).map(|lock| parts_of(&lock)).unwrap_or_default();
            let (action, summary) = (record.labels.action, record.labels.summary);
            let timestamp = timestamp(record.time);
            Ok(CheckpointNote { seq: seq.0, timestamp, action, summary, parts })
        };
        self.catalog.of_kind(Kind::Checkpoint)?.into_iter().map(read).collect()
    }

    /// What stood directly in a directory just after a record, by name; nothing if it was none.
    ///
    /// Costs what the directory holds and the records that touched it since.
    pub fn directory_at(
        &self,
        moment: Seq,
        directory: &WorkspacePath,
    ) -> Result<BTreeMap<Vec<u8>, Entry>> {
        let mut standing = BTreeMap::new();
        if let Some(known) = self.catalog.known_directory(directory)? {
            standing.extend(known.names.into_iter().map(|(name, known)| (name, known.entry)));
        }
        for seq in self.catalog.touching(directory)?.into_iter().rev() {
            if seq <= moment {
                break;
            }
            for change in self.read_record(seq)?.changes.into_iter().rev() {
                if change.path.parent().as_ref() != Some(directory) || change.path.is_root() {
                    continue;
                }
                // Before anybody had seen it, it was what it was when it was first seen.
                let then = match change.before {
                    Entry::Unknown(Why::NotSeen) => change.after,
                    before => before,
                };
                standing.insert(change.path.name().to_vec(), then);
            }
        }
        standing.retain(|_, entry| entry.is_present() && !entry.is_unknown());
        Ok(standing)
    }

    /// A page of what stood directly in a directory at a moment, by name: what is behind a name.
    pub fn tree_view(
        &self,
        moment: Seq,
        directory: &WorkspacePath,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<TreeView> {
        let standing = self.directory_at(moment, directory)?;
        let mut left = standing.into_iter().filter(|(name, _)| after.is_none_or(|a| &name[..] > a));
        let entries = left.by_ref().take(most).map(|(name, entry)| {
            let (path, path_b64) = path_text(&directory.join(&name));
            let name = escape(&name).into_owned();
            TreeEntry { name, path, path_b64, entry: entry_view(&entry) }
        });
        let entries = entries.collect();
        let (schema, seq) = (SCHEMA, moment.0);
        let path = if directory.is_root() { String::new() } else { directory.to_string() };
        Ok(TreeView { schema, path, seq, entries, more: left.next().is_some() })
    }

    /// What stood at a path just after a record.
    pub fn entry_just_after(&self, moment: Seq, path: &WorkspacePath) -> Result<Entry> {
        self.entry_at(path, moment)
    }

    /// Writes the content of a file of the past; secret content is refused.
    pub fn write_past(
        &self,
        path: &WorkspacePath,
        entry: &Entry,
        out: &mut dyn Write,
    ) -> Result<()> {
        let Entry::File(file) = entry else {
            return Err(Error::Usage(format!("{path} was no file")));
        };
        if file.secret {
            return Err(Error::Secret(path.clone()));
        }
        let object = file.object;
        let mut content = self.objects()?.reader(&object)?;
        std::io::copy(&mut content, out)
            .map(drop)
            .map_err(|source| Error::Corrupt { object, why: source.to_string() })
    }
}

/// The parts that a checkpoint's lock file names; whatever else is in it is for those who restore.
fn parts_of(lock: &[u8]) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Part {
        name: String,
        kind: String,
    }
    #[derive(serde::Deserialize)]
    struct Lock {
        #[serde(default)]
        part: Vec<Part>,
    }
    let text = std::str::from_utf8(lock).unwrap_or_default();
    let lock: Lock = toml::from_str(text).unwrap_or(Lock { part: Vec::new() });
    lock.part.into_iter().map(|part| format!("{} {}", part.kind, part.name)).collect()
}
