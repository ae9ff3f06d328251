//! Reading what was only cloned while somebody waited: its content gets its hash, and the clone goes.

use std::fs::File;
use std::io::Read;

use super::Workspace;
use crate::catalog::{Batch, DirectoryUpdate, Durability, LocalState, PendingClone};
use crate::entry::{self, Author, Change, Entry, Evidence, Meta};
use crate::error::Result;
use crate::failpoint;
use crate::id::ObjectId;
use crate::record::{Kind, Labels};

impl Workspace {
    /// Reads every clone that nobody has read yet; needs the lock.
    ///
    /// One that cannot be read stays what it is: whoever asks for it hears that it is missing or
    /// damaged, and everything else goes on.
    pub(super) fn resolve_clones(&mut self) -> Result<()> {
        for clone in self.catalog.pending_clones()? {
            self.resolve_clone(&clone)?;
        }
        Ok(())
    }

    fn resolve_clone(&mut self, clone: &PendingClone) -> Result<()> {
        let Some(file) = self.store.open_clone(&clone.name)? else {
            return self.catalog.give_up(&clone.name);
        };
        // Room was taken for it when it was made.
        let mut intake = self.store.intake()?;
        let mut source = Source { file, failed: false };
        let taken = intake.take_stream(&mut source);
        if source.failed {
            return self.catalog.give_up(&clone.name);
        }
        let (object, size) = taken?;
        if size != clone.size {
            return self.catalog.give_up(&clone.name);
        }
        let (objects, hold) = (intake.finish()?, Some(intake.hold()));
        drop(intake);
        let mut record = self.record(Kind::Resolve, Labels::default());
        record.changes.push(resolution(clone, object));
        let known = self.known_as(clone, object)?.into_iter().collect();
        let records = vec![record];
        let batch = Batch { records, objects, known, hold, ..Batch::default() };
        failpoint::hit("resolve_before_commit");
        self.commit_batch(batch, Durability::PowerCut)?;
        failpoint::hit("resolve_after_commit");
        self.store.remove_clone(&clone.name)
    }

    /// What is known of the path from now on, if the clone still is what is known of it.
    fn known_as(&self, clone: &PendingClone, object: ObjectId) -> Result<Option<DirectoryUpdate>> {
        let Some(mut known) = self.catalog.known(&clone.path)? else { return Ok(None) };
        match &mut known.entry {
            Entry::File(file) if file.pending && file.object == clone.name => {
                (file.object, file.pending) = (object, false);
            }
            _ => return Ok(None),
        }
        let path = &clone.path;
        let update = match path.parent().filter(|_| !self.tops().contains(path)) {
            Some(parent) => DirectoryUpdate {
                path: parent,
                names: vec![(path.name().to_vec(), Some(known))],
                ..DirectoryUpdate::default()
            },
            None => DirectoryUpdate {
                path: path.clone(),
                own: Some(known),
                ..DirectoryUpdate::default()
            },
        };
        Ok(Some(update))
    }
}

/// The change that says which content a clone was; it is none of the workspace.
fn resolution(clone: &PendingClone, object: ObjectId) -> Change {
    let file = |object, pending| {
        Entry::File(entry::File {
            object,
            secret: false,
            pending,
            size: clone.size,
            sparse: false,
            link: None,
            meta: Meta::default(),
        })
    };
    Change {
        path: clone.path.clone(),
        before: file(clone.name, true),
        after: file(object, false),
        from: None,
        author: Author::Chronicle,
        evidence: Evidence::Own,
        neutral: false,
    }
}

/// A clone that remembers its own failure, to tell it from a failure of the store.
struct Source {
    file: File,
    failed: bool,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.file.read(buffer).inspect_err(|error| {
            self.failed |= error.kind() != std::io::ErrorKind::Interrupted;
        })
    }
}
