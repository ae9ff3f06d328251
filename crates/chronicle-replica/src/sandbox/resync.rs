//! Comparing trees with the host, from the top down: only directories that differ are asked for.
//!
//! What differs is applied like a push, at once. The host may change meanwhile: each directory is told as it is at the first
//! answer's moment or later, and that moment is where the replica is afterwards, so that whatever changed since comes
//! by an ordinary push.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chronicle_core::WorkspacePath;
use chronicle_core::replica::{Item, Node, Place};

use super::Effect;
use super::pull::Pulled;
use super::session::{Done, Live, SandboxSession, fault};
use crate::limits::{ASKED_MAX, HELD_MAX};
use crate::wire::{Frame, PushItem, TreeListing, TreeRequest};

/// Directories that may be on their way at once.
const WINDOW: usize = 64;

/// A comparison under way.
#[derive(Debug)]
pub(super) struct Resync {
    /// The first moment that was told.
    place: Option<Place>,
    to_ask: VecDeque<WorkspacePath>,
    /// Asked for, and what has come of each.
    asked: BTreeMap<WorkspacePath, Vec<Node>>,
    next_parts: BTreeMap<WorkspacePath, u32>,
    /// Complete, and to be compared.
    complete: VecDeque<(WorkspacePath, Place, Vec<Node>)>,
    comparing: BTreeSet<u64>,
    items: Vec<PushItem>,
    over: bool,
}

impl Resync {
    fn new() -> Self {
        Self {
            place: None,
            to_ask: VecDeque::from([WorkspacePath::root()]),
            asked: BTreeMap::new(),
            next_parts: BTreeMap::new(),
            complete: VecDeque::new(),
            comparing: BTreeSet::new(),
            items: Vec::new(),
            over: false,
        }
    }

    /// Whether everything that differs was handed over to be applied.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Asks again for whatever has not come.
    pub(super) fn ask_again(&mut self) {
        self.next_parts.clear();
        self.to_ask.extend(std::mem::take(&mut self.asked).into_keys());
    }

    fn is_compared(&self) -> bool {
        self.to_ask.is_empty()
            && self.asked.is_empty()
            && self.complete.is_empty()
            && self.comparing.is_empty()
    }
}

impl Live {
    /// Begins to compare trees; one that is under way goes on.
    pub(super) fn begin_resync(&mut self, place: Place, now: Duration) -> Done {
        if place.epoch != self.host.epoch {
            return Err(fault("the host's log has begun another life"));
        }
        self.host.seq = self.host.seq.max(place.seq);
        if self.resync.as_ref().is_none_or(|resync| resync.over) {
            self.clear_queue();
            (self.pulling, self.parts) = (None, None);
            self.resync = Some(Box::new(Resync::new()));
            self.progress = now;
        }
        Ok(())
    }

    /// Takes a part of a listing. What was not asked for is nothing.
    pub(super) fn listed(&mut self, listing: TreeListing, now: Duration) -> Done {
        if listing.place.epoch != self.host.epoch {
            return Err(fault("a listing is of another life of the host's log"));
        }
        let Some(resync) = &mut self.resync else { return Ok(()) };
        let Some(entries) = resync.asked.get_mut(&listing.path) else { return Ok(()) };
        let next = resync.next_parts.entry(listing.path.clone()).or_insert(0);
        if *next != listing.part {
            return Ok(());
        }
        if let (Some(last), Some(first)) = (entries.last(), listing.entries.first())
            && first.name <= last.name
        {
            return Err(fault("a listing is not in order"));
        }
        *next += 1;
        entries.extend(listing.entries);
        if entries.len() > HELD_MAX || resync.items.len() > HELD_MAX {
            return Err(fault("a tree differs by more than can be held at once"));
        }
        self.progress = now;
        resync.place = Some(resync.place.map_or(listing.place, |place| place.min(listing.place)));
        if listing.last {
            let entries = resync.asked.remove(&listing.path).unwrap_or_default();
            resync.next_parts.remove(&listing.path);
            // Where there is no such directory any more, there is nothing in it.
            resync.complete.push_back((listing.path, listing.place, entries));
        }
        Ok(())
    }

    /// Takes how a directory differs.
    pub(super) fn compared(
        &mut self,
        id: u64,
        items: Vec<Item>,
        descend: Vec<WorkspacePath>,
        now: Duration,
    ) {
        let Some(resync) = self.resync.as_mut().filter(|resync| resync.comparing.contains(&id))
        else {
            return;
        };
        self.progress = now;
        resync.comparing.remove(&id);
        resync.items.extend(items.into_iter().map(|item| PushItem {
            item,
            inline: None,
            stored: None,
        }));
        resync.to_ask.extend(descend);
    }
}

impl SandboxSession {
    /// Goes on with the comparison, as far as that is possible now.
    pub(super) fn go_on_resyncing(
        &mut self,
        live: &mut Live,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let busy = live.pulling.is_some() || self.applying.is_some();
        let Some(resync) = live.resync.as_mut().filter(|resync| !resync.over && !busy) else {
            return Ok(());
        };
        while let Some((path, place, entries)) = resync.complete.pop_front() {
            let id = self.id();
            resync.comparing.insert(id);
            out.push(Effect::CompareTree { id, path, shown: place.seq, entries: Some(entries) });
        }
        ask(resync, out);
        let Some(place) = resync.place.filter(|_| resync.is_compared()) else { return Ok(()) };
        resync.over = true;
        let items = std::mem::take(&mut resync.items);
        let (shown, advance) = (place.seq, Some(place));
        self.begin_items(live, Pulled { items, shown, advance, resync: true }, now, out)?;
        self.go_on_pulling(live, now, out)
    }
}

/// Asks for as many directories as may be on their way.
fn ask(resync: &mut Resync, out: &mut Vec<Effect>) {
    let room = WINDOW.min(ASKED_MAX).saturating_sub(resync.asked.len()).min(resync.to_ask.len());
    let paths: Vec<_> = resync.to_ask.drain(..room).collect();
    if paths.is_empty() {
        return;
    }
    resync.asked.extend(paths.iter().map(|path| (path.clone(), Vec::new())));
    out.push(Effect::Send(Frame::TreeRequest(TreeRequest { paths })));
}
