//! How a workspace stands.

use super::Workspace;
use super::compare::{differs, forget_origins};
use super::views::{kept, why_text};
use crate::catalog::{LocalState, Log, Open};
use crate::entry::{Entry, Why};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::known::Part;
use crate::path::WorkspacePath;
use crate::record::Kind;
use crate::room::disk_usage;
use crate::view::{KeptView, SCHEMA, Status};

/// How many unprotected paths are named one by one.
const NAMED: usize = 100;

impl Workspace {
    /// How the workspace stands: what changed, what is protected, what is open, how large it is.
    pub fn status(&mut self) -> Result<Status> {
        match self.settle() {
            // A mount could not record either: that is what is asked about.
            Err(Error::OverBudget { .. }) if self.mount_problem().is_some() => {}
            settled => drop(settled?),
        }
        let head = self.catalog.head()?;
        let mut changes = Vec::new();
        let mut changed = self.between(self.last_end()?, Seq(u64::MAX))?;
        forget_origins(&mut changed);
        for (path, between) in changed {
            if differs(&between) {
                changes.push(self.diff_change(&path, &between, false)?);
            }
        }
        let turns = self.turns()?;
        let protection = self.protection()?;
        let unfilled = self.unfilled()?;
        let transaction = self.active_transaction()?;
        let pins = self.catalog.of_kind(Kind::Pin)?;
        Ok(Status {
            schema: SCHEMA,
            workspace: self.root.display().to_string(),
            workspace_id: self.id.hex(),
            home: self.home.path().display().to_string(),
            head_seq: head.seq.0,
            head_hash: head.link.hex(),
            changes,
            open_turns: turns.iter().filter(|turn| turn.end_seq.is_none()).cloned().collect(),
            last_turn: turns
                .into_iter()
                .filter(|turn| turn.end_seq.is_some())
                .max_by_key(|turn| turn.end_seq),
            active_transaction: transaction.map(|id| self.transaction(&id)).transpose()?,
            open_intents: self.catalog.open_things(Open::Intent)?.len() as u64,
            protected_files: protection.protected,
            unprotected_files: protection.unprotected,
            unprotected: protection.named,
            filtered: self.filtered_paths()?,
            pending_config: self.pending_config()?,
            store_bytes: disk_usage(&self.home.store()),
            catalog_bytes: disk_usage(&self.directory()),
            watcher: self.watcher_words(),
            redoable: self.redoable()?.len() as u64,
            pins: pins
                .into_iter()
                .filter_map(|seq| self.read_header(seq).ok()?.labels.name)
                .collect(),
            roots: self.roots().iter().map(|root| root.display().to_string()).collect(),
            signed_size: self.catalog.newest_head()?.map_or(0, |row| row.size),
            head_problem: self.catalog.head_problem()?,
            witnesses: self.hand_over(self.patience)?,
            mirror: self.mirror_view()?,
            isolated: self.isolated_runs()?,
            mount_problem: self.mount_problem(),
            files_not_here: unfilled.files,
            bytes_not_here: unfilled.bytes,
            effects: self.effects_since(self.last_end()?)?,
        })
    }

    fn protection(&self) -> Result<Protection> {
        let mut protection = Protection::default();
        let table = self.catalog.known_table()?;
        let directories: std::collections::BTreeSet<_> =
            table.rows.keys().chain(table.newer.keys()).collect();
        for directory in directories {
            let Ok(known) = table.directory(directory) else { continue };
            for (name, known) in &known.names {
                match known.entry {
                    Entry::File(_) if known.part != Part::Significant => protection.protected += 1,
                    Entry::Unknown(why) if why != Why::Filtered => {
                        protection.add(&directory.join(name), self.unprotected_words(why));
                    }
                    _ => {}
                }
            }
        }
        Ok(protection)
    }

    /// Why something is not protected; of a key that cannot be used, what is wrong with it.
    fn unprotected_words(&self, why: Why) -> String {
        let usable = || self.home.secrets().key_or_make().map(drop);
        match if why == Why::NoKey { usable() } else { Ok(()) } {
            Err(error) => error.to_string(),
            Ok(()) => why_text(why).to_owned(),
        }
    }
}

#[derive(Default)]
struct Protection {
    protected: u64,
    unprotected: u64,
    named: Vec<KeptView>,
}

impl Protection {
    fn add(&mut self, path: &WorkspacePath, why: String) {
        self.unprotected += 1;
        if self.named.len() < NAMED {
            self.named.push(kept(path, why));
        }
    }
}
