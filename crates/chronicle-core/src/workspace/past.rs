//! The whole tree at a moment, directory by directory, for whoever browses it.

use std::collections::BTreeMap;
use std::io::Write;

use super::Workspace;
use crate::catalog::{LocalState, Log};
use crate::entry::{Entry, Why};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::path::WorkspacePath;
use crate::store::ContentStorage;

impl Workspace {
    /// The position that a target names, if it can still be reached.
    pub fn position_of(&self, target: &str) -> Result<Seq> {
        Ok(self.moment(target)?.seq)
    }

    /// The position of the last record.
    pub fn last_position(&self) -> Result<Seq> {
        Ok(self.catalog.head()?.seq)
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
