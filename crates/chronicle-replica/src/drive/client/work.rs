//! What a replica's session wants of its workspace.

use std::path::Path;

use chronicle_core::replica::{Item, Listing, Place, Version, Write, resync_step, stays_home};
use chronicle_core::{
    ContentStorage, Error, HashedTree, Home, ObjectId, Piece, Result, Seq, Touches, Workspace,
    WorkspacePath,
};

use super::super::given::Giving;
use super::super::incoming::Incoming;
use super::super::merges::Merges;
use super::super::rules::{RuleFile, text};
use super::super::syncing::Syncing;
use super::lazy::{Lazy, Owed};
use crate::filter::Filters;
use crate::limits::INLINE_MAX;
use crate::sandbox::{ApplyPush, Batch, Begin, Effect, Event};
use crate::wire::{Direction, PushItem, ReplicaId, SentWrite, Welcome};

/// The replica's workspace, for its session.
pub struct SandboxWork {
    pub(super) workspace: Workspace,
    rules: RuleFile,
    pub(super) incoming: Incoming,
    giving: Giving,
    /// The host's rules, in addition to the own.
    theirs: Filters,
    filters: Filters,
    own: (Vec<u8>, Vec<u8>),
    /// The own tree, while it is compared with the host's.
    tree: Option<HashedTree>,
    folds: bool,
    merges: Merges,
    place: Option<Place>,
    /// Where the own log ended at the last look.
    head: Seq,
    syncing: Syncing,
    /// What is fetched for who reads files, and what the host asks for that is at the host.
    pub(super) lazy: Lazy,
}

impl SandboxWork {
    /// The replica that this workspace is: it must be one.
    pub fn new(workspace: Workspace, home: &Home) -> Result<Self> {
        let below = home.path().join("workspaces").join(workspace.id().hex()).join("incoming");
        Incoming::clean(&below);
        let rules = RuleFile::of(home, workspace.id());
        let place = workspace.replica_state()?.and_then(|state| state.applied);
        let lazy = Lazy::new(workspace.is_lazy()?);
        let mut work = Self {
            workspace,
            rules,
            incoming: Incoming::new(&below, 0),
            giving: Giving::default(),
            theirs: Filters::default(),
            filters: Filters::default(),
            own: Default::default(),
            tree: None,
            folds: false,
            merges: Merges::default(),
            place,
            head: Seq(0),
            syncing: Syncing::default(),
            lazy,
        };
        let rules = work.read_rules()?;
        work.set_rules(rules);
        Ok(work)
    }

    /// What is durable, for a session that begins.
    pub fn begin(&self, token: Vec<u8>) -> Result<Begin> {
        let not_one = || Error::Usage("The directory is no replica".to_owned());
        let state = self.workspace.replica_state()?.ok_or_else(not_one)?;
        let (push_rules, write_back_rules) = self.own.clone();
        Ok(Begin {
            replica: ReplicaId(state.id.0),
            name: state.name,
            token,
            workspace: Some(state.of),
            place: state.applied,
            answered: if state.under_way { state.batch.saturating_sub(1) } else { state.batch },
            folds_names: false,
            push_rules,
            write_back_rules,
        })
    }

    pub(super) fn touches(&self) -> Result<Touches> {
        self.workspace.hear()
    }

    pub(super) fn root(&self) -> &Path {
        self.workspace.root()
    }

    pub(super) fn place(&self) -> Option<Place> {
        self.place
    }

    /// Brings what changed on the disk into the log; says whether the log has grown since the last look, also by what
    /// others recorded: a rewind, a hook, a conflict that somebody decided.
    pub(super) fn look(&mut self) -> Result<bool> {
        self.workspace.settle()?;
        let head = self.workspace.replica_place()?.head.seq;
        Ok(std::mem::replace(&mut self.head, head) != head)
    }

    /// Has what pushes wrote synced, meanwhile.
    pub(super) fn sync_on(&mut self) -> Result<()> {
        self.syncing.go_on(&mut self.workspace)
    }

    /// The same at the end, all of it.
    pub(super) fn sync_all(&mut self) -> Result<()> {
        self.syncing.finish(&mut self.workspace)
    }

    fn read_rules(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let settings = self.workspace.current_settings()?.replication;
        let path = self.rules.path().to_owned();
        let added =
            self.rules.read().map_err(|source| Error::Io { action: "read", path, source })?;
        let of = |direction| text(&settings, &added, direction);
        Ok((of(Direction::Push), of(Direction::WriteBack)))
    }

    fn set_rules(&mut self, rules: (Vec<u8>, Vec<u8>)) {
        self.filters.push.replace(&rules.0);
        self.filters.write_back.replace(&rules.1);
        (self.own, self.tree) = (rules, None);
    }

    /// The own rules, if they are others than before.
    pub(super) fn changed_rules(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let rules = self.read_rules().ok().filter(|rules| *rules != self.own)?;
        self.set_rules(rules.clone());
        Some(rules)
    }

    pub(super) fn welcomed(&mut self, welcome: &Welcome) {
        self.folds = welcome.folds_names;
    }

    /// What concerns the workspace; every effect that is answered has its event.
    pub(super) fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        Some(match effect {
            Effect::HasContents { id, mut objects } => {
                // What cannot be told is asked for: that costs time only.
                let _ = self.lacking(&mut objects);
                Event::Lacking { id, objects }
            }
            Effect::WhichContents { id, wants } => {
                Event::Lacking { id, objects: self.needed(&wants) }
            }
            Effect::PutContent { object, bytes } => {
                Event::ContentPut(object, self.incoming.keep(&object, bytes).is_ok())
            }
            Effect::PutPieces { object, size, pieces } => {
                let made = self.put_pieces(&object, size, &pieces).unwrap_or(false);
                Event::ContentPut(object, made)
            }
            Effect::ApplyPush(push) => {
                let id = push.id;
                match self.apply(push) {
                    Ok(()) => Event::Applied { id },
                    Err(error) => Event::NotApplied { id, words: error.to_string() },
                }
            }
            Effect::NextBatch { id, most } => {
                // A log that cannot be read now is read when there is more in it.
                Event::Batch { id, batch: self.next_batch(most).unwrap_or(None) }
            }
            Effect::Answered { id, batch, verdicts } => {
                self.workspace.answered(batch, &verdicts, &self.incoming).ok()?;
                self.end_lending();
                Event::AnswerKept {
                    id,
                    more: self.merges.merge(&mut self.workspace) || self.has_more(),
                }
            }
            Effect::Renumber { id, last } => {
                self.workspace.renumber_batch(last).ok()?;
                Event::Renumbered { id }
            }
            Effect::ReadContent(run) if self.is_at_host(&run.wanted.object) => {
                return self.owe(Owed::Run(run));
            }
            Effect::ReadManifest(wanted) if self.is_at_host(&wanted.object) => {
                return self.owe(Owed::Manifest(wanted));
            }
            Effect::ReadContent(run) => {
                let contents = self.workspace.replica_contents().ok();
                let bytes = contents.and_then(|contents| self.giving.run(contents, &run).ok());
                Event::ContentRead(run, bytes)
            }
            Effect::ReadManifest(wanted) => {
                let contents = self.workspace.replica_contents().ok();
                let read = |contents| self.giving.manifest(contents, &wanted.object).ok();
                let manifest = contents.and_then(read);
                Event::ManifestRead(wanted, manifest)
            }
            Effect::CompareTree { id, path, shown, entries } => {
                let nodes = entries.unwrap_or_default();
                let (items, descend) = self.compare(Listing { path, nodes }, shown).ok()?;
                Event::Compared { id, items, descend }
            }
            Effect::Filter(set) => {
                self.theirs.of(set.direction).replace(&set.rules);
                return None;
            }
            _ => return None,
        })
    }

    /// Leaves those that are not here.
    fn lacking(&mut self, objects: &mut Vec<ObjectId>) -> Result<()> {
        let contents = self.workspace.replica_contents()?;
        objects.retain(|object| {
            let came = self.incoming.exists(object).unwrap_or(false);
            !came && !self.giving.has(contents, object).unwrap_or(false)
        });
        Ok(())
    }

    fn put_pieces(&mut self, object: &ObjectId, size: u64, pieces: &[Piece]) -> Result<bool> {
        let contents = self.workspace.replica_contents()?;
        let (incoming, giving) = (&self.incoming, &mut self.giving);
        let parts = pieces.iter().map(|piece| match incoming.exists(&piece.id)? {
            true => incoming.get(&piece.id),
            false => giving.piece(contents, &piece.id),
        });
        let made = incoming.assemble(object, size, parts)?;
        for piece in pieces {
            incoming.delete(&piece.id)?;
        }
        Ok(made)
    }

    /// Applies a push, or what comparing trees found.
    fn apply(&mut self, push: ApplyPush) -> Result<()> {
        let mut items = Vec::with_capacity(push.items.len());
        for PushItem { item, inline, stored } in push.items {
            if let (Some(object), Some(bytes)) = (item.version.object(), inline) {
                self.incoming.keep_inline(&object, bytes, stored);
            }
            items.push(item);
        }
        let Some(to) = push.advance.or(self.place) else { return Ok(()) };
        let (workspace, incoming) = (&mut self.workspace, &self.incoming);
        let report = match push.resync {
            false => workspace.apply_push(&items, to, incoming, self.folds)?,
            true => workspace.apply_resync(&items, to, incoming, self.folds)?,
        };
        (self.place, self.tree) = (Some(to), None);
        // What is not put there now may be when the host has answered: no push says it again.
        let left = report.left.iter().filter_map(|left| left.item.version.object()).collect();
        if self.lazy.is_idle() {
            self.incoming.keep_only(&left);
        }
        self.merges.merge(&mut self.workspace);
        Ok(())
    }

    fn next_batch(&mut self, most: usize) -> Result<Option<Batch>> {
        let (own, host) = (&self.filters, &self.theirs);
        let passes = |path: &WorkspacePath, is_directory: bool| {
            let filtered = |filters: &Filters| filters.write_back.is_filtered(path, is_directory);
            !filtered(own) && !filtered(host)
        };
        let batch = self.workspace.journal_batch(most, &passes)?;
        let Some(batch) = batch else { return Ok(None) };
        let contents = self.workspace.replica_contents()?;
        let inline = |object: Option<ObjectId>, size: u64| {
            object.filter(|_| size <= INLINE_MAX as u64).and_then(|it| contents.get(&it).ok())
        };
        let with_content = |write: Write| {
            let size = match &write.after {
                Version::File { size, .. } => *size,
                _ => 0,
            };
            let inline = inline(write.after.object(), size);
            SentWrite { write, inline }
        };
        let writes = batch.writes.into_iter().map(with_content).collect();
        Ok(Some(Batch { number: batch.number, writes }))
    }

    /// Whether the log may say more than what is answered.
    fn has_more(&self) -> bool {
        let state = self.workspace.replica_state().ok().flatten();
        let head = self.workspace.replica_place().ok();
        match (state, head) {
            (Some(state), Some(place)) => state.mark < place.head.seq,
            _ => true,
        }
    }

    /// What differs in one directory, from what the host has there.
    fn compare(&mut self, theirs: Listing, shown: Seq) -> Result<(Vec<Item>, Vec<WorkspacePath>)> {
        let head = self.workspace.replica_place()?.head;
        if self.tree.as_ref().is_none_or(|tree| tree.at != head) {
            let (own, host) = (&self.filters, &self.theirs);
            let passes = |path: &WorkspacePath, is_directory: bool| {
                let filtered = |filters: &Filters| filters.push.is_filtered(path, is_directory);
                !stays_home(path) && !filtered(own) && !filtered(host)
            };
            self.tree = Some(self.workspace.tree_for_replica(&passes)?);
        }
        let Some(tree) = &self.tree else { return Ok(Default::default()) };
        let step = resync_step(tree, &[theirs], shown);
        Ok((step.items, step.ask))
    }
}
