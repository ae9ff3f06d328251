//! What is pushed, read from the log once for all replicas that are to have the same.

use std::collections::HashMap;
use std::sync::Arc;

use chronicle_core::replica::{Item, Place, Tree, Version};
use chronicle_core::{HashedTree, ObjectId, PushLimits, Result, Seq, Workspace, WorkspacePath};

use super::peers::Peer;
use super::work::View;
use crate::host::{LogPart, LogRead, ReadLog, TreeRead};
use crate::limits::{GATHERED, INLINE_MAX};
use crate::wire::PushItem;

/// What is read of the log at once; a push is not longer, and the next begins where it ends.
const LIMITS: PushLimits = PushLimits { items: 20_000, bytes: 8 << 20 };
/// Reads that are kept: replicas are mostly at the same place.
const KEPT: usize = 8;
/// Bytes of an item on the wire besides its path, its target and its content.
const ITEM_LENGTH: usize = 80;
/// Objects that are remembered as given.
const GIVEN_MOST: usize = 4 << 20;

/// What filters a replica has, as a number: those of the same class get the same.
pub(super) type Class = u64;

/// What was read last, and what was given to whom.
#[derive(Default)]
pub(super) struct Pushes {
    kept: Vec<Kept>,
    tree: Option<(Class, Place, HashedTree)>,
    /// When each object was last offered to a class, as a number that only grows.
    given: HashMap<(Class, ObjectId), u64>,
    offers: u64,
}

/// A part of the log that was read.
struct Kept {
    class: Class,
    from: Option<Seq>,
    head: Place,
    to: Place,
    items: Arc<Vec<Item>>,
}

impl Pushes {
    /// Forgets what was read, since other paths go now.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
        self.tree = None;
    }

    /// A number for now: what is offered later was offered after it.
    pub(super) fn now(&self) -> u64 {
        self.offers
    }

    /// Whether an object was offered to replicas like this one since this one came.
    pub(super) fn gave(&self, object: &ObjectId, peer: &Peer) -> bool {
        self.given.get(&(peer.class(), *object)).is_some_and(|at| *at > peer.offers)
    }

    /// The next part of what changed after a record.
    pub(super) fn read(
        &mut self,
        workspace: &mut Workspace,
        wanted: &ReadLog,
        view: &View<'_>,
        class: Class,
    ) -> LogRead {
        match self.part(workspace, wanted, view, class) {
            Ok(read) => read,
            Err(error) => LogRead::Failed(error.to_string()),
        }
    }

    fn part(
        &mut self,
        workspace: &mut Workspace,
        wanted: &ReadLog,
        view: &View<'_>,
        class: Class,
    ) -> Result<LogRead> {
        let head = workspace.replica_place()?.head;
        let Some((to, items)) = self.items(workspace, wanted, head, view, class)? else {
            return Ok(LogRead::TooOld(head));
        };
        let (to, after) = match &wanted.going_on {
            Some((to, after)) => (*to, Some(after)),
            None => (to, None),
        };
        let begin = after.map_or(0, |after| items.partition_point(|item| item.path <= *after));
        let (mut part, mut length) = (Vec::new(), 0);
        let contents = workspace.replica_contents()?;
        for item in &items[begin..] {
            let inline = match &item.version {
                Version::File { object, size, .. } if *size <= INLINE_MAX as u64 => {
                    contents.get(object).ok()
                }
                _ => None,
            };
            let more =
                ITEM_LENGTH + item.path.as_bytes().len() + inline.as_ref().map_or(0, Vec::len);
            if length + more > GATHERED && !part.is_empty() {
                break;
            }
            length += more;
            self.offer(class, &item.version);
            part.push(PushItem { item: item.clone(), inline });
        }
        let more = begin + part.len() < items.len();
        Ok(LogRead::Part(LogPart { to, items: part, more }))
    }

    fn offer(&mut self, class: Class, version: &Version) {
        if let Some(object) = version.object() {
            if self.given.len() > GIVEN_MOST {
                // Whoever names one of these sends its bytes again.
                self.given.clear();
            }
            self.offers += 1;
            self.given.insert((class, object), self.offers);
        }
    }

    /// What changed, from the last reads or from the log; `None` if the log does not reach back.
    fn items(
        &mut self,
        workspace: &mut Workspace,
        wanted: &ReadLog,
        head: Place,
        view: &View<'_>,
        class: Class,
    ) -> Result<Option<(Place, Arc<Vec<Item>>)>> {
        let fits = |kept: &&Kept| {
            let same = kept.class == class && kept.from == wanted.from;
            match &wanted.going_on {
                Some((to, _)) => same && kept.to == *to,
                None => same && kept.head == head,
            }
        };
        if let Some(kept) = self.kept.iter().find(fits) {
            return Ok(Some((kept.to, Arc::clone(&kept.items))));
        }
        let passes = |path: &WorkspacePath, is_directory: bool| view.passes(path, is_directory);
        let after = wanted.from.unwrap_or_default();
        let read = workspace.changes_for_replica(after, LIMITS, &passes)?;
        let Some(mut changes) = read else { return Ok(None) };
        if wanted.from.is_none() {
            // Who has nothing need not hear of what is gone.
            changes.items.retain(|item| item.version.is_present());
        }
        let items = Arc::new(changes.items);
        if self.kept.len() >= KEPT {
            self.kept.remove(0);
        }
        let (from, to) = (wanted.from, changes.to);
        self.kept.push(Kept { class, from, head, to, items: Arc::clone(&items) });
        Ok(Some((to, items)))
    }

    /// What is in a directory, with hashes of what is below.
    pub(super) fn tree(
        &mut self,
        workspace: &Workspace,
        path: WorkspacePath,
        view: &View<'_>,
        class: Class,
    ) -> TreeRead {
        let read = self.hashed(workspace, view, class).map(|tree| (tree.at, tree.nodes(&path)));
        match read {
            Ok((place, entries)) => TreeRead { path, place, entries: Some(entries) },
            // Nobody takes what could not be read for empty: the place is one that no log has.
            Err(_) => {
                let nowhere = Place { epoch: chronicle_core::Epoch([0; 16]), seq: Seq(0) };
                TreeRead { path, place: nowhere, entries: None }
            }
        }
    }

    fn hashed(
        &mut self,
        workspace: &Workspace,
        view: &View<'_>,
        class: Class,
    ) -> Result<&HashedTree> {
        let head = workspace.replica_place()?.head;
        let fresh = self.tree.as_ref().is_some_and(|(of, at, _)| *of == class && *at == head);
        if !fresh {
            let passes = |path: &WorkspacePath, is_directory: bool| view.passes(path, is_directory);
            let tree = workspace.tree_for_replica(&passes)?;
            self.tree = Some((class, head, tree));
        }
        Ok(&self.tree.as_ref().expect("it was just made").2)
    }
}
