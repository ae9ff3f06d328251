//! Files of a lazy replica that somebody reads: their contents are fetched once, whoever waits, and put in place together.

use std::collections::HashMap;
use std::time::Duration;

use chronicle_core::{ObjectId, WorkspacePath};
use serde_json::json;

use super::super::super::clock;
use super::super::ask::{Fetched, NotFetched, Reader};
use super::super::lazy::{Needs, failure};
use super::Actor;
use crate::fetch::Want;
use crate::sandbox::Event;

/// How long a reader waits for a link that is not there. Who comes later than that after it was lost hears it at once.
const LINK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a reader waits while a link is there and nothing comes over it.
const STILL: Duration = Duration::from_secs(60);
/// So many contents are put in place together at most, and so many bytes.
const TOGETHER: usize = 256;
const BYTES_TOGETHER: u64 = 64 << 20;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Readers {
    waiting: HashMap<ObjectId, Waiting>,
    /// Contents that are here and not in place.
    ready: Vec<ObjectId>,
    /// What must be asked for, again or for the first time.
    ask: Vec<Want>,
    /// When something last came.
    moved: Duration,
    /// Since when there is no link.
    down: Option<Duration>,
}

struct Waiting {
    want: Want,
    /// Another path under which the host may have it.
    other: Option<WorkspacePath>,
    readers: Vec<Reader>,
    since: Duration,
}

impl Readers {
    /// When somebody has waited long enough.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| self.end_of(waiting)).min()
    }

    fn end_of(&self, waiting: &Waiting) -> Duration {
        match self.down {
            Some(since) => since + LINK_PATIENCE,
            None => waiting.since.max(self.moved) + STILL,
        }
    }

    /// A content came.
    pub(super) fn came(&mut self, object: &ObjectId) {
        self.moved = clock::now();
        if self.waiting.contains_key(object) {
            self.ready.push(*object);
        }
    }
}

impl Actor<'_, '_> {
    /// Somebody reads a file.
    pub(super) fn read(&mut self, reader: Reader) {
        let now = clock::now();
        let (want, other) = match self.work.needs(&reader.path) {
            Ok(Needs::Nothing) => return tell(&reader, Ok(())),
            Ok(Needs::Placing(object)) => {
                self.readers.ready.push(object);
                (Want { object, size: 0, path: reader.path.clone(), base: None }, None)
            }
            Ok(Needs::Fetching(want, other)) => (want, other),
            Err(error) => {
                let (errno, words) = failure(&error);
                return tell(&reader, Err(NotFetched { errno, words }));
            }
        };
        let object = want.object;
        if let Some(waiting) = self.readers.waiting.get_mut(&object) {
            return waiting.readers.push(reader);
        }
        self.demand(want, other, vec![reader], now);
    }

    fn demand(
        &mut self,
        want: Want,
        other: Option<WorkspacePath>,
        readers: Vec<Reader>,
        since: Duration,
    ) {
        let object = want.object;
        self.work.lazy.demanded.insert(object);
        if !self.readers.ready.contains(&object) {
            self.readers.ask.push(want.clone());
        }
        self.readers.waiting.insert(object, Waiting { want, other, readers, since });
    }

    /// A link is there: what somebody waits for is asked for over it.
    pub(super) fn ask_again(&mut self) {
        let ready = &self.readers.ready;
        let waiting = self.readers.waiting.iter().filter(|(object, _)| !ready.contains(object));
        self.readers.ask = waiting.map(|(_, waiting)| waiting.want.clone()).collect();
    }

    /// The host does not give it, at least not under that path.
    pub(super) fn not_to_be_had(&mut self, object: &ObjectId) {
        let Some(waiting) = self.readers.waiting.get_mut(object) else { return };
        if let Some(path) = waiting.other.take() {
            waiting.want.path = path;
            let want = waiting.want.clone();
            return self.readers.ask.push(want);
        }
        let words = |path: &WorkspacePath| {
            format!(
                "The host does not give content {} of {path}: it is pruned or damaged there, or not \
                 for this replica",
                object.hex()
            )
        };
        self.end(object, &|path| Err(NotFetched::io(words(path))));
    }

    /// Whatever is possible now for those who wait; called after everything that happens.
    pub(super) fn serve_readers(&mut self) {
        if !self.work.is_lazy() {
            return;
        }
        let now = clock::now();
        match self.linked {
            true => self.readers.down = None,
            false => drop(self.readers.down.get_or_insert(now)),
        }
        for want in self.work.owed() {
            self.demand(want, None, Vec::new(), now);
        }
        let ask = std::mem::take(&mut self.readers.ask);
        if !ask.is_empty() && self.linked {
            self.event(Event::Demand(ask));
        }
        // What comes in a moment is put in place with it.
        if self.readers.ready.len() >= TOGETHER || self.from.is_empty() {
            self.place_ready();
        }
        self.give_up(now);
    }

    fn place_ready(&mut self) {
        while !self.readers.ready.is_empty() {
            let mut bytes = 0;
            let fits = |object: &&ObjectId| {
                let waiting = self.readers.waiting.get(*object);
                bytes += waiting.map_or(0, |waiting| waiting.want.size);
                bytes <= BYTES_TOGETHER
            };
            let count = self.readers.ready.iter().take(TOGETHER).take_while(fits).count().max(1);
            let objects: Vec<_> = self.readers.ready.drain(..count).collect();
            let paths: Vec<_> = objects.iter().flat_map(|object| self.paths(object)).collect();
            match self.work.put_in_place(&paths) {
                Ok(()) => objects.iter().for_each(|object| self.end(object, &|_| Ok(()))),
                // One of them may be to blame.
                Err(_) => objects.iter().for_each(|object| self.place_one(object)),
            }
            self.trace("fetched", json!({ "contents": objects.len(), "paths": paths.len() }));
        }
    }

    fn place_one(&mut self, object: &ObjectId) {
        let paths = self.paths(object);
        match self.work.put_in_place(&paths) {
            Ok(()) => self.end(object, &|_| Ok(())),
            Err(error) => {
                let (errno, words) = failure(&error);
                self.end(object, &|_| Err(NotFetched { errno, words: words.clone() }));
            }
        }
    }

    fn paths(&self, object: &ObjectId) -> Vec<WorkspacePath> {
        let waiting = self.readers.waiting.get(object);
        let readers = waiting.map_or(&[][..], |waiting| &waiting.readers);
        let mut paths: Vec<_> = readers.iter().map(|reader| reader.path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Nobody waits for it any more.
    fn end(&mut self, object: &ObjectId, what: &dyn Fn(&WorkspacePath) -> Fetched) {
        let Some(waiting) = self.readers.waiting.remove(object) else { return };
        for reader in &waiting.readers {
            tell(reader, what(&reader.path));
        }
        for event in self.work.give_owed(object) {
            self.event(event);
        }
        self.work.forget(object);
    }

    fn give_up(&mut self, now: Duration) {
        let over = |waiting: &Waiting| now >= self.readers.end_of(waiting);
        let late = self.readers.waiting.iter().filter(|(_, waiting)| over(waiting));
        let late: Vec<_> = late.map(|(object, _)| *object).collect();
        let why = match self.readers.down {
            Some(_) => "there is no link to the host now",
            None => "the host does not send it",
        };
        for object in late {
            self.end(&object, &|path| {
                Err(NotFetched::io(format!("{path} is not here yet, and {why}")))
            });
        }
    }
}

fn tell(reader: &Reader, fetched: Fetched) {
    // Who went away need not hear it.
    let _ = reader.reply.try_send(fetched);
}
