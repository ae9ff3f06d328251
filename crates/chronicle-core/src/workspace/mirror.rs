//! What a place outside the home needs in order to hold this history too.
//!
//! The log is the queue: what is after the record up to which a place has everything is what still has to
//! go there. So nothing is written when something is captured, and nothing can be forgotten.

use std::collections::HashSet;

use super::views::timestamp;
use super::{Workspace, key};
use crate::catalog::{Catalog, LocalState, Log};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::id::{Epoch, ObjectId, Seq, Time, WorkspaceId};
use crate::known::Part;
use crate::lock::Lock;
use crate::mirror::{Segment, Standing};
use crate::record::{Head, Kind, Sealed};
use crate::store::{CODEC_SEALED, ContentStorage, pack_object};
use crate::view::MirrorView;

/// Records that are read at a time.
const RECORDS: usize = 256;

/// Which log this is, and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The life of its log.
    pub epoch: Epoch,
    /// The end of the log.
    pub head: Head,
    /// The end of the first capture.
    pub baseline: Seq,
}

/// An object in the form in which it can lie on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alone {
    /// As a whole.
    Whole(Vec<u8>),
    /// As the list of its pieces, which are objects themselves.
    Pieces(Vec<u8>, Vec<ObjectId>),
}

/// Held by the one process that brings a history elsewhere.
pub struct Pushing(#[expect(dead_code, reason = "it is there to be held")] Lock);

/// How far a place outside has this history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mirrored {
    /// The place, as people name it.
    pub place: String,
    /// The life of the log that it has.
    pub epoch: [u8; 16],
    /// Up to which record.
    pub seq: Seq,
    /// When it last had everything.
    pub time: Time,
    /// How often in a row it could not be reached.
    pub failures: u32,
    /// Before then it is not tried again by itself.
    pub next: Time,
    /// Why it could not be reached.
    pub error: String,
}

impl Workspace {
    /// Which log this is, and where it ends.
    pub fn position(&self) -> Result<Position> {
        Ok(Position {
            workspace: self.id,
            epoch: self.catalog.epoch(),
            head: self.catalog.head()?,
            baseline: self.baseline_end()?,
        })
    }

    /// The link of one record, as the chain has it.
    pub fn link_at(&self, seq: Seq) -> Result<Head> {
        Ok(Head { seq, link: self.catalog.link(seq)? })
    }

    /// Records after a position up to another, about so many bytes of them and at least one.
    pub fn segment(&self, after: Seq, last: Seq, bytes: usize) -> Result<Segment> {
        let _one_moment = self.catalog.reading()?;
        let mut records: Vec<Sealed> = Vec::new();
        let (mut length, mut at) = (0, after);
        'reading: while at < last {
            let read = self.catalog.read(at, RECORDS)?;
            if read.is_empty() {
                return Err(Error::missing_record(at.next()));
            }
            for sealed in read.into_iter().take_while(|sealed| sealed.seq <= last) {
                length += 64 + sealed.leaf.len() + sealed.body.len();
                if length > bytes && !records.is_empty() {
                    break 'reading;
                }
                at = sealed.seq;
                records.push(sealed);
            }
        }
        Ok(Segment { workspace: self.id, after: self.link_at(after)?, records })
    }

    /// The contents that the records after a position up to another name, each once.
    pub fn objects_between(&self, after: Seq, last: Seq) -> Result<Vec<ObjectId>> {
        let (mut at, mut seen, mut objects) = (after, HashSet::new(), Vec::new());
        while at < last {
            let records = self.catalog.read(at, RECORDS)?;
            let Some(end) = records.last() else { break };
            at = end.seq;
            for sealed in records.iter().take_while(|sealed| sealed.seq <= last) {
                let named = crate::sweep::named_in(&self.catalog, sealed)?;
                let sides = named.iter().flat_map(|change| [&change.before, &change.after]);
                // A clone that nobody has read follows with the record that says what it is.
                let whole = sides.filter(|side| side.pending().is_none());
                objects.extend(whole.filter_map(Entry::object).filter(|id| seen.insert(*id)));
                for id in resolved_in(sealed)? {
                    if self.has_content(&id)? && seen.insert(id) {
                        objects.push(id);
                    }
                }
            }
        }
        Ok(objects)
    }

    /// Whether a record after this one took history away, so that older ones are not what they were.
    pub fn was_rewritten_after(&self, seq: Seq) -> Result<bool> {
        let newest = |kind| Ok::<_, Error>(self.catalog.of_kind(kind)?.last().copied());
        let takings = [newest(Kind::Prune)?, newest(Kind::Forget)?];
        Ok(takings.into_iter().flatten().any(|taking| taking > seq))
    }

    /// What stands in the workspace by the last record, if the records alone do not tell it.
    ///
    /// `has` is the moment of which the place has it already.
    pub fn standing(&self, has: Option<Seq>) -> Result<Option<Standing>> {
        let dropped = self.catalog.dropped_up_to()?;
        if dropped == Seq(0) || has.is_some_and(|has| has >= dropped) {
            return Ok(None);
        }
        let _one_moment = self.catalog.reading()?;
        let mut standing = Standing { seq: self.catalog.head()?.seq, ..Standing::default() };
        let table = self.catalog.known_table()?;
        let directories: HashSet<_> = table.rows.keys().chain(table.newer.keys()).collect();
        for path in directories {
            let damaged = |source| Error::Record { seq: Seq(0), source };
            let directory = table.directory(path).map_err(damaged)?;
            let own = directory.own.into_iter().map(|own| (path.clone(), own));
            let names = directory.names.into_iter().map(|(name, known)| (path.join(&name), known));
            for (path, known) in own.chain(names) {
                if known.part != Part::Significant {
                    let neutral = known.part == Part::Neutral;
                    standing.entries.insert(path, (known.entry, neutral));
                }
            }
        }
        Ok(Some(standing))
    }

    /// Whether an object is in this home, and not only in the store behind it.
    pub fn has_content(&self, id: &ObjectId) -> Result<bool> {
        self.objects()?.exists(id)
    }

    /// Brings an object back from the store behind this home's; tells whether it is here now.
    pub fn bring_near(&self, id: &ObjectId) -> Result<bool> {
        let mut reader = self.objects()?.reader(id)?;
        std::io::copy(&mut reader, &mut std::io::sink())
            .map_err(|error| Error::Corrupt { object: *id, why: error.to_string() })?;
        drop(reader);
        self.has_content(id)
    }

    /// The names of the pieces that an object is kept in; none if it is kept whole.
    pub fn pieces_of(&self, id: &ObjectId) -> Result<Vec<ObjectId>> {
        self.store.pieces_of(id)
    }

    /// An object in the form in which it can lie anywhere, without what it stands on here.
    pub fn alone(&self, id: &ObjectId) -> Result<Alone> {
        if let Some((manifest, pieces)) = self.store.manifest_of(id)? {
            return Ok(Alone::Pieces(manifest, pieces));
        }
        let row = self.catalog.object(id)?.filter(|stored| stored.first() == Some(&CODEC_SEALED));
        if let Some(sealed) = row {
            return Ok(Alone::Whole(sealed));
        }
        if let Ok(Some(stored)) = self.store.stored_alone(id) {
            return Ok(Alone::Whole(stored));
        }
        Ok(Alone::Whole(pack_object(&self.objects()?.get(id)?)))
    }

    /// How far a place outside has this history, as far as anybody here was told.
    pub fn mirrored(&self) -> Result<Option<Mirrored>> {
        let bytes = self.catalog.state(key::MIRRORED)?;
        // What cannot be read says that nothing is there: then it is sent again.
        Ok(bytes.and_then(|bytes| Mirrored::decode(&bytes).ok()))
    }

    /// The same, in words.
    pub(super) fn mirror_view(&self) -> Result<Option<MirrorView>> {
        let Some(mirrored) = self.mirrored()? else { return Ok(None) };
        let (head, said) = (self.catalog.head()?.seq, |time: Time| time.0 != 0);
        // Of another life nothing counts: all of this one has to go there.
        let same_life = mirrored.epoch == self.catalog.epoch().0;
        let seq = if same_life { mirrored.seq } else { Seq(0) };
        Ok(Some(MirrorView {
            place: mirrored.place,
            seq: seq.0,
            behind: head.0.saturating_sub(seq.0),
            pushed_at: said(mirrored.time).then(|| timestamp(mirrored.time)),
            failures: mirrored.failures,
            next_try: said(mirrored.next).then(|| timestamp(mirrored.next)),
            error: (!mirrored.error.is_empty()).then_some(mirrored.error),
        }))
    }

    /// Lets only one process at a time bring this history elsewhere; `None` if one is at it.
    pub fn begin_push(&self) -> Result<Option<Pushing>> {
        Ok(Lock::try_take(&self.directory().join("push.lock"))?.map(Pushing))
    }

    /// Remembers how far a place outside has this history.
    pub fn set_mirrored(&self, mirrored: &Mirrored) -> Result<()> {
        self.catalog.set_state(key::MIRRORED, &mirrored.encode())
    }
}

/// What the clones that a record resolves turned out to be.
fn resolved_in(sealed: &Sealed) -> Result<Vec<ObjectId>> {
    let record = crate::sweep::opened(sealed)?.filter(|record| record.kind == Kind::Resolve);
    let changes = record.map(|record| record.changes).unwrap_or_default();
    Ok(changes.iter().filter_map(|change| change.after.object()).collect())
}

impl Mirrored {
    /// Up to which record a place has the present life of a log.
    pub(crate) fn up_to(catalog: &Catalog, place: &str) -> Result<Seq> {
        let bytes = catalog.state(key::MIRRORED)?;
        let said = bytes.and_then(|bytes| Self::decode(&bytes).ok());
        let same = |said: &Self| said.place == place && said.epoch == catalog.epoch().0;
        Ok(said.filter(same).map_or(Seq(0), |said| said.seq))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.bytes(self.place.as_bytes());
        out.fixed(&self.epoch);
        out.int(self.seq.0);
        out.signed(self.time.0);
        out.int(u64::from(self.failures));
        out.signed(self.next.0);
        out.bytes(self.error.as_bytes());
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let mirrored = Self {
            place: input.text()?,
            epoch: input.array()?,
            seq: Seq(input.int()?),
            time: Time(input.signed()?),
            failures: input.int32()?,
            next: Time(input.signed()?),
            error: input.text()?,
        };
        input.end()?;
        Ok(mirrored)
    }
}
