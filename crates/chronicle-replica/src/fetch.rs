//! Getting contents over a link: which, in what order, how many at once. The same on both sides.
//!
//! Short objects come whole. Of long ones the list of pieces comes first, then only the pieces that are not here.
//! Whatever comes is compared with its name before anything else happens to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chronicle_core::{ObjectId, Piece, WorkspacePath};

use crate::limits::{ASKED_MAX, Limits, PIECE_MAX};
use crate::wire::{Content, Fetch, Frame, Manifest, Run, Wanted};

/// No object has more pieces than one for so many bytes, and one more.
const BYTES_PER_PIECE: u64 = 4 << 10;
/// How often it is asked again before the link is given up.
const TRIES: u32 = 3;

/// An object that is not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Which.
    pub object: ObjectId,
    /// Its length.
    pub size: u64,
    /// A path at which it stands there.
    pub path: WorkspacePath,
    /// What stood at the path before, whose pieces may be here.
    pub base: Option<ObjectId>,
}

/// What a fetch wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this.
    Send(Frame),
    /// Which of these pieces are not here?
    Check {
        /// Pieces of one object.
        pieces: Vec<ObjectId>,
        /// The object whose pieces may be here.
        base: Option<ObjectId>,
    },
    /// Keep these bytes, which are what their name says.
    Put(ObjectId, Vec<u8>),
    /// Make an object of pieces that are here.
    Assemble {
        /// Its name.
        object: ObjectId,
        /// Its length.
        size: u64,
        /// Its pieces.
        pieces: Vec<Piece>,
    },
}

/// Why a fetch cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The peer said what is not so.
    #[error("{0}")]
    Lie(String),
    /// The peer does not answer.
    #[error("contents were asked for {TRIES} times and did not come")]
    Stalled,
    /// It could not be kept here.
    #[error("the content {0} could not be kept")]
    NotKept(String),
}

/// Objects on their way here.
#[derive(Debug, Default)]
pub struct Fetcher {
    waiting: VecDeque<Want>,
    /// Runs that are not asked for yet, and the name that their bytes must have.
    runs: VecDeque<(Run, ObjectId)>,
    asked: BTreeMap<(ObjectId, u64), (Run, ObjectId)>,
    putting: BTreeSet<ObjectId>,
    large: Option<Large>,
    missing: Vec<ObjectId>,
    window: usize,
    object_max: u64,
    patience: Duration,
    progress: Duration,
    tries: u32,
}

/// A long object on its way here; one at a time.
#[derive(Debug)]
struct Large {
    want: Want,
    pieces: Vec<Piece>,
    told: u64,
    stage: Stage,
    /// Pieces that are not here yet.
    left: BTreeSet<ObjectId>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Listing,
    Checking,
    Fetching,
    Assembling,
}

impl Fetcher {
    /// Begins to fetch these; `window` requests may be under way.
    pub fn new(wants: Vec<Want>, window: usize, limits: &Limits, now: Duration) -> Self {
        let mut seen = BTreeSet::new();
        let waiting = wants.into_iter().filter(|want| seen.insert(want.object)).collect();
        Self {
            waiting,
            window: window.max(1),
            object_max: limits.object_max,
            patience: limits.patience,
            progress: now,
            ..Self::default()
        }
    }

    /// One more object to fetch; nothing if it is on its way.
    pub fn want(&mut self, want: Want) {
        let is_it = |other: &ObjectId| *other == want.object;
        let under_way = self.waiting.iter().any(|other| is_it(&other.object))
            || self.runs.iter().any(|(run, _)| is_it(&run.wanted.object))
            || self.asked.values().any(|(run, _)| is_it(&run.wanted.object))
            || self.putting.iter().any(is_it)
            || self.large.as_ref().is_some_and(|large| is_it(&large.want.object));
        if !under_way {
            self.waiting.push_back(want);
        }
    }

    /// Whether this run was asked for and did not come yet.
    pub fn asks(&self, object: &ObjectId, offset: u64) -> bool {
        self.asked.contains_key(&(*object, offset))
    }

    /// Whether the pieces of this object were asked for and did not come yet.
    pub fn lists(&self, object: &ObjectId) -> bool {
        let is_it = |large: &Large| large.stage == Stage::Listing && large.want.object == *object;
        self.large.as_ref().is_some_and(is_it)
    }

    /// The objects that could not be had since this was last asked.
    pub fn take_missing(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.missing)
    }

    /// Whether everything is here that can be had.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty()
            && self.runs.is_empty()
            && self.asked.is_empty()
            && self.putting.is_empty()
            && self.large.is_none()
    }

    /// Objects that could not be had.
    pub fn missing(&self) -> &[ObjectId] {
        &self.missing
    }

    /// When to ask again, if nothing comes until then.
    pub fn deadline(&self) -> Option<Duration> {
        (!self.is_done()).then(|| self.progress + self.patience)
    }

    /// Asks for as much as may be under way.
    pub fn pump(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut runs = Vec::new();
        while self.asked.len() + self.putting.len() < self.window {
            if let Some((run, name)) = self.runs.pop_front() {
                runs.push(run.clone());
                self.asked.insert((run.wanted.object, run.offset), (run, name));
            } else if !self.begin_next(&mut steps) {
                break;
            }
        }
        steps.extend(fetches(runs));
        steps
    }

    /// Begins with one more object, if that is possible now.
    fn begin_next(&mut self, steps: &mut Vec<Step>) -> bool {
        let is_large = |want: &Want| want.size > u64::from(PIECE_MAX);
        let busy = self.large.is_some();
        let Some(at) = self.waiting.iter().position(|want| !(busy && is_large(want))) else {
            return false;
        };
        let want = self.waiting.remove(at).expect("BUG: it was just found");
        if want.size > self.object_max {
            self.missing.push(want.object);
        } else if is_large(&want) {
            steps.push(Step::Send(Frame::ManifestRequest(wanted(&want))));
            self.large = Some(Large::new(want));
        } else if want.size == 0 {
            self.begin_empty(&want, steps);
        } else {
            let length = u32::try_from(want.size).unwrap_or(PIECE_MAX);
            self.runs.push_back((Run { wanted: wanted(&want), offset: 0, length }, want.object));
        }
        true
    }

    /// Nothing needs no asking.
    fn begin_empty(&mut self, want: &Want, steps: &mut Vec<Step>) {
        if want.object == ObjectId::of(b"") {
            self.putting.insert(want.object);
            steps.push(Step::Put(want.object, Vec::new()));
        } else {
            self.missing.push(want.object);
        }
    }

    /// Takes a run of content. What was not asked for, or came before, is nothing.
    pub fn content(&mut self, content: Content, now: Duration) -> Result<Vec<Step>, Trouble> {
        let Some((run, name)) = self.asked.remove(&(content.object, content.offset)) else {
            return Ok(Vec::new());
        };
        self.went_on(now);
        if content.bytes.len() != run.length as usize {
            return Err(Trouble::Lie(format!(
                "{} bytes of content {} were asked for and {} came",
                run.length,
                run.wanted.object.hex(),
                content.bytes.len()
            )));
        }
        if ObjectId::of(&content.bytes) != name {
            let words =
                format!("the content that came as {} is not what its name says", name.hex());
            return Err(Trouble::Lie(words));
        }
        self.putting.insert(name);
        Ok(vec![Step::Put(name, content.bytes)])
    }

    /// Takes a list of pieces, or a part of it.
    pub fn manifest(&mut self, manifest: Manifest, now: Duration) -> Result<Vec<Step>, Trouble> {
        let fits = |large: &&mut Large| {
            large.stage == Stage::Listing
                && large.want.object == manifest.object
                && large.pieces.len() == manifest.first as usize
        };
        let Some(large) = self.large.as_mut().filter(fits) else { return Ok(Vec::new()) };
        self.progress = now;
        self.tries = 0;
        large.take(&manifest)?;
        if !manifest.last {
            return Ok(Vec::new());
        }
        large.check()
    }

    /// Takes which of the pieces are not here.
    pub fn lacking(&mut self, lacking: &[ObjectId], now: Duration) -> Vec<Step> {
        self.went_on(now);
        let Some(large) = self.large.as_mut().filter(|large| large.stage == Stage::Checking) else {
            return Vec::new();
        };
        let runs = large.runs(lacking);
        self.runs.extend(runs);
        self.assemble_if_whole();
        self.assembling()
    }

    /// Takes whether something was kept.
    pub fn put(
        &mut self,
        object: ObjectId,
        kept: bool,
        now: Duration,
    ) -> Result<Vec<Step>, Trouble> {
        if !self.putting.remove(&object) {
            return Ok(Vec::new());
        }
        self.went_on(now);
        if self.large.as_ref().is_some_and(|large| large.want.object == object) {
            self.large = None;
            return if kept { Ok(Vec::new()) } else { Err(lie_about_pieces(object)) };
        }
        if !kept {
            return Err(Trouble::NotKept(object.hex()));
        }
        if let Some(large) = &mut self.large {
            large.left.remove(&object);
        }
        self.assemble_if_whole();
        Ok(self.assembling())
    }

    fn assemble_if_whole(&mut self) {
        if let Some(large) = &mut self.large
            && large.stage == Stage::Fetching
            && large.left.is_empty()
        {
            large.stage = Stage::Assembling;
        }
    }

    fn assembling(&mut self) -> Vec<Step> {
        let Some(large) = self.large.as_mut().filter(|large| large.stage == Stage::Assembling)
        else {
            return Vec::new();
        };
        if !self.putting.insert(large.want.object) {
            return Vec::new();
        }
        let pieces = std::mem::take(&mut large.pieces);
        vec![Step::Assemble { object: large.want.object, size: large.want.size, pieces }]
    }

    /// The peer cannot give an object.
    pub fn missing_there(&mut self, object: ObjectId, now: Duration) {
        let asked = self.asked.len();
        self.asked.retain(|_, (run, _)| run.wanted.object != object);
        let is_large = self
            .large
            .as_ref()
            .is_some_and(|large| large.want.object == object && large.stage != Stage::Assembling);
        if is_large {
            self.large = None;
            self.runs.retain(|(run, _)| run.wanted.object != object);
        }
        if is_large || self.asked.len() != asked {
            self.went_on(now);
            self.missing.push(object);
        }
    }

    /// Asks again for what does not come.
    pub fn tick(&mut self, now: Duration) -> Result<Vec<Step>, Trouble> {
        let listing = self.large.as_ref().is_some_and(|large| large.stage == Stage::Listing);
        if self.asked.is_empty() && !listing {
            self.progress = now;
            return Ok(Vec::new());
        }
        if now.saturating_sub(self.progress) < self.patience {
            return Ok(Vec::new());
        }
        self.progress = now;
        self.tries += 1;
        if self.tries >= TRIES {
            return Err(Trouble::Stalled);
        }
        let mut steps = fetches(self.asked.values().map(|(run, _)| run.clone()).collect());
        if let Some(large) = self.large.as_mut().filter(|_| listing) {
            (large.pieces, large.told) = (Vec::new(), 0);
            steps.push(Step::Send(Frame::ManifestRequest(wanted(&large.want))));
        }
        Ok(steps)
    }

    fn went_on(&mut self, now: Duration) {
        self.progress = now;
        self.tries = 0;
    }
}

impl Large {
    fn new(want: Want) -> Self {
        let (pieces, left) = (Vec::new(), BTreeSet::new());
        Self { want, pieces, told: 0, stage: Stage::Listing, left }
    }

    /// Takes a part of the list; one that cannot add up is refused at once.
    fn take(&mut self, manifest: &Manifest) -> Result<(), Trouble> {
        let told = manifest.pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        self.told += told;
        let most = self.want.size / BYTES_PER_PIECE + 1;
        let count = (self.pieces.len() + manifest.pieces.len()) as u64;
        let wrong = manifest.size != self.want.size || self.told > self.want.size || count > most;
        if wrong || manifest.last && self.told != self.want.size {
            return Err(lie_about_pieces(self.want.object));
        }
        self.pieces.extend_from_slice(&manifest.pieces);
        Ok(())
    }

    /// Asks which pieces are here.
    fn check(&mut self) -> Result<Vec<Step>, Trouble> {
        let mut lengths = BTreeMap::new();
        for piece in &self.pieces {
            if *lengths.entry(piece.id).or_insert(piece.length) != piece.length {
                return Err(lie_about_pieces(self.want.object));
            }
        }
        self.stage = Stage::Checking;
        Ok(vec![Step::Check { pieces: lengths.into_keys().collect(), base: self.want.base }])
    }

    /// The runs that bring what is not here, each piece once.
    fn runs(&mut self, lacking: &[ObjectId]) -> Vec<(Run, ObjectId)> {
        self.left = lacking.iter().copied().collect();
        self.stage = Stage::Fetching;
        let (mut open, mut offset, mut runs) = (self.left.clone(), 0, Vec::new());
        for piece in &self.pieces {
            if open.remove(&piece.id) {
                let run = Run { wanted: wanted(&self.want), offset, length: piece.length };
                runs.push((run, piece.id));
            }
            offset += u64::from(piece.length);
        }
        self.left.retain(|piece| !open.contains(piece));
        runs
    }
}

fn lie_about_pieces(object: ObjectId) -> Trouble {
    Trouble::Lie(format!("the pieces of {} do not make it", object.hex()))
}

fn wanted(want: &Want) -> Wanted {
    Wanted { object: want.object, path: want.path.clone() }
}

fn fetches(runs: Vec<Run>) -> Vec<Step> {
    let frame = |runs: &[Run]| Step::Send(Frame::Fetch(Fetch { runs: runs.to_vec() }));
    runs.chunks(ASKED_MAX).map(frame).collect()
}

#[cfg(test)]
mod tests;
