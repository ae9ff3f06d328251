//! One connection, as its host sees it: who is let in, what is pushed, what is asked for.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::replica::{Place, Version};
use chronicle_core::{ObjectId, Piece, Seq, WorkspacePath};

use super::write_back::Incoming;
use super::{Admission, Effect, Event, LogPart, LogRead, ReadLog, TreeRead};
use crate::filter::Filters;
use crate::limits::{ASKED_MAX, INLINE_TOGETHER, Limits, RULES_MAX};
use crate::parts::{gather, item_length, node_length};
use crate::serve::Serving;
use crate::wire::{
    Ack, CatchupRequest, Direction, Fetch, FilterSet, Frame, FullResyncRequired, Goodbye,
    Heartbeat, Push, Refused, RefusedCode, ResyncReason, Run, TreeListing, TreeRequest, Versions,
    Wanted, Welcome,
};

/// Objects that may be on offer at once; then nothing more is pushed until something is acknowledged.
const OFFERED_MAX: usize = 64 << 10;
/// A peer may ask again for what it has asked for already, so often.
const ASKED_AGAIN: usize = 4;

/// The host's side of one connection.
#[derive(Debug)]
pub struct HostSession {
    pub(super) limits: Arc<Limits>,
    phase: Phase,
    /// When the last frame came, when the last one went, and when the timer is due.
    heard: Option<Duration>,
    said: Duration,
    timer: Duration,
}

#[derive(Debug)]
enum Phase {
    Greeting,
    /// Somebody who says to be here.
    Admitting(Option<Place>),
    Live(Box<Live>),
    Closed,
}

/// What a session knows of a replica that was let in.
#[derive(Debug)]
pub(super) struct Live {
    head: Place,
    pub(super) may_write: bool,
    filters: Arc<Filters>,
    acked: Option<Place>,
    /// Everything up to here was sent, or need not be; none for who has nothing.
    sent: Option<Seq>,
    /// It had nothing, and was not sent everything yet.
    filling: bool,
    /// A push of which not all parts were made.
    pushing: Option<Pushing>,
    window: VecDeque<Sent>,
    offered: HashSet<ObjectId>,
    reading: bool,
    /// The answer that is being waited for is to a question of before.
    stale: bool,
    /// The replica compares trees, and was told that they are at least this old.
    resync: Option<Option<Seq>>,
    listing: usize,
    serving: Serving,
    pub(super) incoming: Option<Box<Incoming>>,
    pub(super) next_id: u64,
}

#[derive(Debug)]
struct Pushing {
    from: Option<Seq>,
    to: Place,
    part: u32,
    after: WorkspacePath,
    /// Bytes of contents that went with it.
    inline: usize,
}

/// A part of a push that was not acknowledged.
#[derive(Debug)]
struct Sent {
    to: Seq,
    part: u32,
}

/// Why a link is closed.
pub(super) struct Fault(pub(super) String);

pub(super) type Done = Result<(), Fault>;

pub(super) fn fault(words: impl Into<String>) -> Fault {
    Fault(words.into())
}

impl HostSession {
    /// A session for somebody who has just connected.
    pub fn new(limits: Arc<Limits>) -> Self {
        let (said, timer) = (Duration::ZERO, Duration::ZERO);
        Self { limits, phase: Phase::Greeting, heard: None, said, timer }
    }

    /// How far the replica is, as far as it has said.
    pub fn acked(&self) -> Option<Place> {
        match &self.phase {
            Phase::Live(live) => live.acked,
            _ => None,
        }
    }

    /// Takes what happened and says what to do. `now` is the time since any moment, by a clock that also goes on while
    /// the machine sleeps; it may jump.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Effect> {
        let mut out = Vec::new();
        let first = self.heard.is_none();
        if first || matches!(event, Event::Frame(_)) {
            self.heard = Some(now);
        }
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Closed => return out,
            Phase::Greeting => self.greet(event, &mut out),
            Phase::Admitting(place) => self.admit(event, place, &mut out),
            Phase::Live(mut live) => match self.live(&mut live, event, now, &mut out) {
                Ok(()) => self.phase = Phase::Live(live),
                Err(Fault(words)) => close(words, &mut out),
            },
        }
        self.watch_time(now, &mut out);
        out
    }

    fn greet(&mut self, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Frame(Frame::Hello(hello)) => {
                self.phase = Phase::Admitting(hello.place);
                out.push(Effect::Admit(Box::new(hello)));
            }
            Event::Frame(Frame::ForeignHello(theirs)) => refuse(foreign(theirs), out),
            Event::Frame(_) | Event::Garbage(_) => {
                let words =
                    "this is a host of Chronicle, and what came first was no greeting of a replica";
                refuse(refused(RefusedCode::Protocol, words), out);
            }
            Event::Dismiss(words) => refuse(refused(RefusedCode::Busy, &words), out),
            _ => self.phase = Phase::Greeting,
        }
    }

    fn admit(&mut self, event: Event, place: Option<Place>, out: &mut Vec<Effect>) {
        match event {
            Event::Admitted(admission) => self.welcome(admission, place, out),
            Event::Denied(refused) => refuse(refused, out),
            Event::Dismiss(words) => refuse(refused(RefusedCode::Busy, &words), out),
            Event::Frame(_) | Event::Garbage(_) => {
                let words = "a replica says nothing more before it is let in";
                refuse(refused(RefusedCode::Protocol, words), out);
            }
            _ => self.phase = Phase::Admitting(place),
        }
    }

    fn welcome(&mut self, admission: Admission, replica: Option<Place>, out: &mut Vec<Effect>) {
        let Admission { workspace, place, may_write, folds_names, filters } = admission;
        let milliseconds = self.limits.heartbeat.as_millis();
        out.push(Effect::Send(Frame::Welcome(Welcome {
            version: crate::NEWEST_VERSION,
            features: 0,
            workspace,
            place,
            may_write,
            folds_names,
            heartbeat_ms: u32::try_from(milliseconds).unwrap_or(u32::MAX),
            fetches: u32::try_from(self.limits.fetches).unwrap_or(u32::MAX),
            batch_writes: u32::try_from(self.limits.batch_writes).unwrap_or(u32::MAX),
        })));
        let mut live = Box::new(Live::new(place, may_write, filters));
        live.tell_filters(out);
        live.go_on_from(replica, out);
        live.read_more(&self.limits, out);
        self.phase = Phase::Live(live);
    }

    fn live(&self, live: &mut Live, event: Event, now: Duration, out: &mut Vec<Effect>) -> Done {
        match event {
            Event::Frame(frame) => self.frame(live, frame, now, out)?,
            Event::Garbage(words) | Event::Dismiss(words) => return Err(fault(words)),
            Event::LogGrew(place) => live.grew(place)?,
            Event::LogRead(read) => live.log_read(read, out)?,
            Event::TreeRead(read) => live.tree_read(read, out),
            Event::ContentRead(run, bytes) => {
                out.push(Effect::Send(live.serving.content(&run, bytes)))
            }
            Event::ManifestRead(wanted, found) => live.manifest_read(&wanted, found, out),
            Event::FiltersChanged { wider } => live.filters_changed(wider, out),
            Event::Lacking { .. } | Event::ContentPut(..) | Event::WritesTaken(_) | Event::Tick => {
                self.go_on_taking(live, event, now, out)?;
            }
            Event::Admitted(_) | Event::Denied(_) => {}
        }
        live.read_more(&self.limits, out);
        Ok(())
    }

    fn frame(&self, live: &mut Live, frame: Frame, now: Duration, out: &mut Vec<Effect>) -> Done {
        let most = self.limits.fetches * ASKED_AGAIN;
        match frame {
            Frame::Ack(ack) => live.acked(ack, out),
            Frame::CatchupRequest(CatchupRequest { since }) => {
                live.catch_up(since, out);
                Ok(())
            }
            Frame::Heartbeat(_) => Ok(()),
            Frame::TreeRequest(TreeRequest { paths }) => live.list(paths, out),
            Frame::Fetch(Fetch { runs }) => live.give(runs, most, out),
            Frame::ManifestRequest(wanted) => live.give_pieces(wanted, most, out),
            Frame::FilterSet(set) => {
                out.push(Effect::Filter(set));
                Ok(())
            }
            Frame::WriteBack(part) => self.take_part(live, part, out),
            Frame::Content(_) | Frame::Manifest(_) | Frame::Missing(_) => {
                self.take_content(live, frame, now, out)
            }
            Frame::Goodbye(Goodbye { words }) => Err(fault(format!("the replica left: {words}"))),
            Frame::Hello(_)
            | Frame::ForeignHello(_)
            | Frame::Welcome(_)
            | Frame::Refused(_)
            | Frame::Push(_)
            | Frame::WriteBackResult(_)
            | Frame::FullResyncRequired(_)
            | Frame::TreeListing(_) => Err(fault("a replica never sends such a frame now")),
        }
    }

    /// Gives up on who is silent, shows that we are there, and says when to look again.
    fn watch_time(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let heard = self.heard.unwrap_or(now).min(now);
        let silence = match self.phase {
            Phase::Closed => return,
            Phase::Greeting => self.limits.patience,
            Phase::Admitting(_) | Phase::Live(_) => self.limits.silence,
        };
        if now - heard >= silence {
            self.phase = Phase::Closed;
            close(format!("nothing came for {} seconds", (now - heard).as_secs()), out);
            return;
        }
        if out.iter().any(|effect| matches!(effect, Effect::Send(_))) {
            self.said = now;
        }
        let mut next = heard + silence;
        if let Phase::Live(live) = &self.phase {
            if now.saturating_sub(self.said) >= self.limits.heartbeat || self.said > now {
                let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                let place = Some(live.head);
                out.push(Effect::Send(Frame::Heartbeat(Heartbeat { place, now_ms })));
                self.said = now;
            }
            next = next.min(self.said + self.limits.heartbeat);
            next =
                live.incoming.as_ref().and_then(|it| it.deadline()).map_or(next, |at| next.min(at));
        }
        if next < self.timer || self.timer <= now {
            self.timer = next;
            out.push(Effect::SetTimer(next));
        }
    }
}

impl Live {
    fn new(head: Place, may_write: bool, filters: Arc<Filters>) -> Self {
        Self {
            head,
            may_write,
            filters,
            acked: None,
            sent: None,
            filling: false,
            pushing: None,
            window: VecDeque::new(),
            offered: HashSet::new(),
            reading: false,
            stale: false,
            resync: None,
            listing: 0,
            serving: Serving::default(),
            incoming: None,
            next_id: 0,
        }
    }

    /// Begins where the replica says it is, or tells it to compare trees.
    fn go_on_from(&mut self, place: Option<Place>, out: &mut Vec<Effect>) {
        (self.pushing, self.acked) = (None, place);
        self.window.clear();
        self.offered.clear();
        self.stale = self.reading;
        self.resync = None;
        self.filling = place.is_none();
        match place {
            None => self.sent = None,
            Some(place) if place.epoch == self.head.epoch && place.seq <= self.head.seq => {
                self.sent = Some(place.seq);
                out.push(Effect::Progress(Some(place)));
            }
            // A replica that knows more than the log has is one of another life, whatever it calls it.
            Some(_) => self.require_resync(ResyncReason::Epoch, out),
        }
    }

    fn require_resync(&mut self, why: ResyncReason, out: &mut Vec<Effect>) {
        self.resync = Some(None);
        self.pushing = None;
        self.window.clear();
        self.stale = self.reading;
        let place = self.head;
        out.push(Effect::Send(Frame::FullResyncRequired(FullResyncRequired { why, place })));
    }

    /// Makes the next part of a push, if the replica has room for it.
    fn read_more(&mut self, limits: &Limits, out: &mut Vec<Effect>) {
        let most = if self.filling { limits.fill_parts } else { limits.push_parts };
        let room = self.window.len() < most && self.offered.len() < OFFERED_MAX;
        let behind = self.pushing.is_some() || self.sent < Some(self.head.seq);
        if self.reading || self.resync.is_some() || !room || !behind {
            return;
        }
        self.reading = true;
        out.push(Effect::ReadLog(match &self.pushing {
            None => ReadLog { from: self.sent, going_on: None },
            Some(it) => ReadLog { from: it.from, going_on: Some((it.to, it.after.clone())) },
        }));
    }

    fn grew(&mut self, place: Place) -> Done {
        if place.epoch != self.head.epoch {
            return Err(fault("the workspace's log has begun another life: connect again"));
        }
        self.head.seq = self.head.seq.max(place.seq);
        Ok(())
    }

    fn log_read(&mut self, read: LogRead, out: &mut Vec<Effect>) -> Done {
        self.reading = false;
        if std::mem::take(&mut self.stale) {
            return Ok(());
        }
        match read {
            LogRead::Failed(words) => Err(fault(words)),
            LogRead::TooOld(place) => {
                self.grew(place)?;
                self.require_resync(ResyncReason::TooOld, out);
                Ok(())
            }
            LogRead::Part(part) => self.push(part, out),
        }
    }

    /// Sends what was read, in as many parts as it needs.
    fn push(&mut self, mut read: LogPart, out: &mut Vec<Effect>) -> Done {
        self.grew(read.to)?;
        let begun = self.pushing.take().map(|it| (it.from, it.part, it.inline));
        let (from, first, mut inline) = begun.unwrap_or((self.sent, 0, 0));
        let (to, more) = (read.to, read.more && !read.items.is_empty());
        if first == 0 && !more && Some(to.seq) <= from {
            self.sent = Some(to.seq);
            return Ok(());
        }
        let after = read.items.last().map(|item| item.item.path.clone());
        for item in &mut read.items {
            // What takes room there is what comes out of it.
            inline += if item.has_content() { file_length(&item.item.version) } else { 0 };
            item.inline.take_if(|_| inline > INLINE_TOGETHER);
            item.stored.take_if(|_| inline > INLINE_TOGETHER);
        }
        let objects = read.items.iter().filter(|item| !item.has_content());
        self.offered.extend(objects.filter_map(|item| object_of(&item.item.version)));
        let mut part = first;
        let mut runs = gather(read.items, item_length).into_iter().peekable();
        while let Some(items) = runs.next() {
            let last = !more && runs.peek().is_none();
            self.window.push_back(Sent { to: to.seq, part });
            let from = from.unwrap_or(Seq(0));
            let push = Push { epoch: to.epoch, from, to: to.seq, part, last, items };
            out.push(Effect::Send(Frame::Push(push)));
            part += 1;
        }
        match after.filter(|_| more) {
            Some(after) => self.pushing = Some(Pushing { from, to, part, after, inline }),
            None => {
                self.sent = Some(to.seq);
                self.filling &= to.seq < self.head.seq;
            }
        }
        Ok(())
    }

    fn acked(&mut self, ack: Ack, out: &mut Vec<Effect>) -> Done {
        if let Some(place) = ack.up_to {
            self.check_ack(place)?;
            if self.acked.is_none_or(|acked| acked.epoch != place.epoch || acked.seq < place.seq) {
                self.acked = Some(place);
                out.push(Effect::Progress(Some(place)));
            }
            if self.resync.is_some_and(|told| told.is_some()) && place.epoch == self.head.epoch {
                self.resync = None;
                self.sent = Some(place.seq);
            }
        }
        let up_to = ack.up_to.map_or(Seq(0), |place| place.seq);
        let next = self.window.iter().map(|sent| sent.to).find(|to| *to > up_to);
        self.window
            .retain(|sent| sent.to > up_to && !(Some(sent.to) == next && sent.part < ack.parts));
        if self.window.is_empty() && self.pushing.is_none() {
            self.offered = HashSet::new();
        }
        Ok(())
    }

    /// An acknowledgement of what was never sent is a lie, and nothing is believed after that.
    fn check_ack(&self, place: Place) -> Done {
        if place.epoch != self.head.epoch {
            return Err(fault("an acknowledgement is of another life of the log"));
        }
        let told = self.resync.flatten().unwrap_or(Seq(0));
        let pushed = self.window.iter().map(|sent| sent.to).max().max(self.sent).unwrap_or(Seq(0));
        if place.seq > told.max(pushed) {
            return Err(fault(format!("record {} was acknowledged and never sent", place.seq.0)));
        }
        Ok(())
    }

    fn catch_up(&mut self, since: Option<Place>, out: &mut Vec<Effect>) {
        let seq = since.map(|place| place.seq);
        let epoch = since.is_none_or(|place| place.epoch == self.head.epoch);
        let begun = self.pushing.is_some() || !self.window.is_empty();
        // Already reading just that; beginning again would never end where reading takes long.
        if self.reading && !self.stale && !begun && epoch && seq == self.sent {
            return;
        }
        self.go_on_from(since, out);
    }

    fn list(&mut self, paths: Vec<WorkspacePath>, out: &mut Vec<Effect>) -> Done {
        self.listing += paths.len();
        if self.listing > ASKED_MAX * ASKED_AGAIN {
            return Err(fault("too many directories are asked for at once"));
        }
        if !paths.is_empty() {
            out.push(Effect::ReadTree(paths));
        }
        Ok(())
    }

    fn tree_read(&mut self, read: TreeRead, out: &mut Vec<Effect>) {
        self.listing = self.listing.saturating_sub(1);
        if let Some(told) = &mut self.resync {
            *told = Some(told.map_or(read.place.seq, |seq| seq.max(read.place.seq)));
        }
        let TreeRead { path, place, entries } = read;
        let found = entries.is_some();
        let parts = gather(entries.unwrap_or_default(), node_length);
        let count = parts.len();
        for (part, entries) in parts.into_iter().enumerate() {
            let (path, last) = (path.clone(), part + 1 == count);
            let part = u32::try_from(part).expect("BUG: a listing has far fewer parts");
            out.push(Effect::Send(Frame::TreeListing(TreeListing {
                path,
                place,
                part,
                last,
                found,
                entries,
            })));
        }
    }

    fn give(&mut self, runs: Vec<Run>, most: usize, out: &mut Vec<Effect>) -> Done {
        self.serving
            .asked(runs.len(), most)
            .map_err(|_| fault("too much content is asked for at once"))?;
        for run in runs {
            let offered = self.offered.contains(&run.wanted.object);
            out.push(Effect::ReadContent { run, offered });
        }
        Ok(())
    }

    fn give_pieces(&mut self, wanted: Wanted, most: usize, out: &mut Vec<Effect>) -> Done {
        self.serving.asked(1, most).map_err(|_| fault("too much content is asked for at once"))?;
        let offered = self.offered.contains(&wanted.object);
        out.push(Effect::ReadManifest { wanted, offered });
        Ok(())
    }

    fn manifest_read(
        &mut self,
        wanted: &Wanted,
        found: Option<(u64, Vec<Piece>)>,
        out: &mut Vec<Effect>,
    ) {
        let frames = self.serving.manifest(wanted.object, found);
        out.extend(frames.into_iter().map(Effect::Send));
    }

    fn filters_changed(&mut self, wider: bool, out: &mut Vec<Effect>) {
        self.tell_filters(out);
        if wider {
            self.require_resync(ResyncReason::Filters, out);
        }
    }

    /// Tells the host's own rules; none are the rule where nothing was ever told.
    fn tell_filters(&self, out: &mut Vec<Effect>) {
        for direction in [Direction::Push, Direction::WriteBack] {
            let rules = self.filters.of(direction).rules();
            // Rules that are too long to tell hold all the same.
            if rules.len() > RULES_MAX {
                continue;
            }
            out.push(Effect::Send(Frame::FilterSet(FilterSet { direction, rules })));
        }
    }
}

fn file_length(version: &Version) -> usize {
    match version {
        Version::File { size, .. } => usize::try_from(*size).unwrap_or(usize::MAX),
        _ => 0,
    }
}

/// The object that a version's content is.
pub(super) fn object_of(version: &Version) -> Option<ObjectId> {
    if let Version::File { object, .. } = version { Some(*object) } else { None }
}

fn refused(code: RefusedCode, words: &str) -> Refused {
    Refused { code, versions: Versions::OURS, words: words.to_owned() }
}

fn foreign(theirs: Versions) -> Refused {
    let Versions { oldest, newest } = Versions::OURS;
    let older = theirs.newest < oldest;
    let which = if older { "sandbox" } else { "host" };
    let words = format!(
        "the sandbox speaks versions {} to {} of the protocol and the host {oldest} to {newest}: install a newer \
         Chronicle on the {which}",
        theirs.oldest, theirs.newest
    );
    refused(RefusedCode::Version, &words)
}

fn refuse(refused: Refused, out: &mut Vec<Effect>) {
    let words = format!("refused: {}", refused.words);
    out.push(Effect::Send(Frame::Refused(refused)));
    out.push(Effect::Close(words));
}

fn close(words: String, out: &mut Vec<Effect>) {
    let mut told = words.clone();
    while told.len() > crate::limits::WORDS_MAX {
        told.pop();
    }
    out.push(Effect::Send(Frame::Goodbye(Goodbye { words: told })));
    out.push(Effect::Close(words));
}
