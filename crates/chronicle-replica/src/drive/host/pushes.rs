//! What is pushed, read from the log once for all replicas that are to have the same.

use std::collections::HashMap;
use std::sync::Arc;

use chronicle_core::replica::{Item, Place, Tree, Version};
use chronicle_core::{
    ContentStorage, HashedTree, ObjectId, PushLimits, Result, Seq, WorkspacePath,
};

use super::follow::Source;
use super::peers::Peer;
use super::work::View;
use crate::host::{LogPart, LogRead, ReadLog, TreeRead};
use crate::limits::{GATHERED, INLINE_MAX};
use crate::wire::PushItem;

/// What is read of the log at once; a push is not longer, and the next begins where it ends.
///
/// A replica holds the contents that come inside of one in memory until it is applied.
const LIMITS: PushLimits =
    PushLimits { items: 50_000, bytes: 24 << 20, content: INLINE_MAX as u64 };
/// Reads that are kept: replicas are mostly at the same place.
const KEPT: usize = 8;
/// Bytes of an item on the wire besides its path, its target and its content.
const ITEM_LENGTH: usize = 80;
/// Files up to this size are compressed together in the store, so that none has a form of its own.
const TOGETHER_MOST: u64 = 3 << 10;
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
        source: &mut Source<'_>,
        wanted: &ReadLog,
        view: &View<'_>,
        class: Class,
    ) -> LogRead {
        match self.part(source, wanted, view, class) {
            Ok(read) => read,
            Err(error) => LogRead::Failed(error.to_string()),
        }
    }

    fn part(
        &mut self,
        source: &mut Source<'_>,
        wanted: &ReadLog,
        view: &View<'_>,
        class: Class,
    ) -> Result<LogRead> {
        let head = source.head()?;
        let Some((to, items)) = self.items(source, wanted, head, view, class)? else {
            return Ok(LogRead::TooOld(head));
        };
        let (to, after) = match &wanted.going_on {
            Some((to, after)) => (*to, Some(after)),
            None => (to, None),
        };
        let begin = after.map_or(0, |after| items.partition_point(|item| item.path <= *after));
        let (mut part, mut length) = (Vec::new(), 0);
        let contents = source.contents()?;
        for item in &items[begin..] {
            let new = match view.bare {
                true => PushItem { item: item.clone(), inline: None, stored: None },
                false => with_content(item, &contents),
            };
            let more = ITEM_LENGTH + item.path.as_bytes().len() + new.content_length();
            if length + more > GATHERED && !part.is_empty() {
                break;
            }
            length += more;
            self.offer(class, &item.version);
            part.push(new);
        }
        let more = begin + part.len() < items.len();
        Ok(LogRead::Part(LogPart { to, items: part, more }))
    }

    fn offer(&mut self, class: Class, version: &Version) {
        if let Some(object) = version.object() {
            self.give(class, object);
        }
    }

    /// Remembers that replicas of a class may name an object as their own.
    pub(super) fn give(&mut self, class: Class, object: ObjectId) {
        if self.given.len() > GIVEN_MOST {
            // Whoever names one of these sends its bytes again.
            self.given.clear();
        }
        self.offers += 1;
        self.given.insert((class, object), self.offers);
    }

    /// What changed, from the last reads or from the log; `None` if the log does not reach back.
    fn items(
        &mut self,
        source: &mut Source<'_>,
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
        let read = source.changes(wanted.from, LIMITS, &passes)?;
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
        source: &Source<'_>,
        path: WorkspacePath,
        view: &View<'_>,
        class: Class,
    ) -> TreeRead {
        let read = self.hashed(source, view, class).map(|tree| (tree.at, tree.nodes(&path)));
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
        source: &Source<'_>,
        view: &View<'_>,
        class: Class,
    ) -> Result<&HashedTree> {
        let head = source.head()?;
        let fresh = self.tree.as_ref().is_some_and(|(of, at, _)| *of == class && *at == head);
        if !fresh {
            let passes = |path: &WorkspacePath, is_directory: bool| view.passes(path, is_directory);
            let tree = source.tree(&passes)?;
            self.tree = Some((class, head, tree));
        }
        Ok(&self.tree.as_ref().expect("it was just made").2)
    }
}

/// An item with its content, if that is short: as the store has it, if that is shorter.
fn with_content(item: &Item, contents: &dyn ContentStorage) -> PushItem {
    let mut new = PushItem { item: item.clone(), inline: None, stored: None };
    let Version::File { object, size, .. } = &item.version else { return new };
    if *size > INLINE_MAX as u64 {
        return new;
    }
    if *size > TOGETHER_MOST {
        let stored = contents.stored(object).ok().flatten();
        new.stored = stored.filter(|stored| (stored.len() as u64) < *size);
    }
    if new.stored.is_none() {
        new.inline = contents.get(object).ok();
    }
    new
}
