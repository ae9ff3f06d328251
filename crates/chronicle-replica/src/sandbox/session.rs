//! A replica's work over all its links: connecting, being let in, noticing that nobody is there any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::Seq;
use chronicle_core::replica::Place;

use super::demand::Demand;
use super::pull::Pulling;
use super::resync::Resync;
use super::write_back::{Answering, UnderWay};
use super::{Begin, Effect, Event};
use crate::limits::{Limits, RULES_MAX};
use crate::serve::Serving;
use crate::wire::{
    BARE_PUSHES, Direction, FilterSet, Frame, Goodbye, Heartbeat, Hello, Push, PushItem, Refused,
    Versions, Welcome,
};

/// Attempts after which waits are long: where somebody was refused, coming back soon is of no use.
const LATE_ATTEMPT: u32 = 6;

/// A sandbox's side.
#[derive(Debug)]
pub struct SandboxSession {
    pub(super) begin: Begin,
    pub(super) limits: Arc<Limits>,
    random: u64,
    phase: Phase,
    attempts: u32,
    next_id: u64,
    timer: Duration,
    /// What was asked to be applied and was not answered: it goes on whatever happens to links.
    pub(super) applying: Option<Applying>,
    pub(super) batch: Option<UnderWay>,
    /// A question about batches that was not answered: what to send, or to keep an answer.
    pub(super) asked: Option<Asked>,
    /// The log may have more to send.
    pub(super) dirty: bool,
    /// Contents come when they are read.
    pub(super) lazy: bool,
}

#[derive(Debug)]
enum Phase {
    /// Not begun.
    Still,
    /// Stopped.
    Over,
    /// No link until then.
    Waiting(Duration),
    /// A link, or a welcome, should be there soon.
    Connecting(Duration),
    Greeting(Duration),
    Live(Box<Live>),
}

/// What was asked to be made durable.
#[derive(Debug)]
pub(super) struct Applying {
    pub(super) id: u64,
    pub(super) advance: Option<Place>,
}

/// A question about batches.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Next(u64),
    Keep(u64, u64),
    Renumber(u64),
}

/// What a session knows while a link is up.
#[derive(Debug)]
pub(super) struct Live {
    since: Duration,
    heard: Duration,
    said: Duration,
    /// Where the host's log ends, as far as it has said.
    pub(super) host: Place,
    pub(super) may_write: bool,
    pub(super) fetches: usize,
    pub(super) batch_writes: usize,
    pub(super) queue: VecDeque<Push>,
    /// Items in it.
    pub(super) queued: usize,
    pub(super) pulling: Option<Pulling>,
    /// Contents that somebody waits for who reads a file.
    pub(super) demand: Option<Box<Demand>>,
    pub(super) parts: Option<Parts>,
    /// When something of a push, or of a resync, last went on.
    pub(super) progress: Duration,
    pub(super) tries: u32,
    pub(super) resync: Option<Box<Resync>>,
    pub(super) serving: Serving,
    pub(super) answering: Answering,
}

/// A push of which parts have come, and not the last.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) from: Seq,
    pub(super) to: Seq,
    pub(super) next: u32,
    pub(super) items: Vec<PushItem>,
    /// Bytes of contents that came with them.
    pub(super) inline: usize,
}

/// Why a link is given up.
pub(super) struct Fault(pub(super) String);

pub(super) type Done = Result<(), Fault>;

pub(super) fn fault(words: impl Into<String>) -> Fault {
    Fault(words.into())
}

impl SandboxSession {
    /// A session that begins with what is durable; `random` spreads the times at which many come back.
    pub fn new(begin: Begin, limits: Arc<Limits>, random: u64) -> Self {
        Self {
            begin,
            limits,
            random: random | 1,
            phase: Phase::Still,
            attempts: 0,
            next_id: 0,
            timer: Duration::ZERO,
            applying: None,
            batch: None,
            asked: None,
            dirty: true,
            lazy: false,
        }
    }

    /// The same for a replica whose contents come when they are read: pushes come without them.
    pub fn lazily(self, lazy: bool) -> Self {
        Self { lazy, ..self }
    }

    /// How far the host's log is applied, durably.
    pub fn place(&self) -> Option<Place> {
        self.begin.place
    }

    /// Where the host's log ends, as far as it has said; none without a link.
    pub fn host_place(&self) -> Option<Place> {
        self.live().map(|live| live.host)
    }

    /// Whether trees are being compared.
    pub fn is_resyncing(&self) -> bool {
        self.live().is_some_and(|live| live.resync.is_some())
    }

    /// Whether nothing is left to do in either direction, as far as is known here.
    pub fn is_idle(&self) -> bool {
        let quiet =
            self.applying.is_none() && self.batch.is_none() && self.asked.is_none() && !self.dirty;
        let level = |live: &Live| {
            live.queue.is_empty()
                && live.pulling.is_none()
                && live.resync.is_none()
                && Some(live.host) == self.begin.place
        };
        quiet && self.live().is_some_and(level)
    }

    pub(super) fn live_mut(&mut self) -> Option<&mut Live> {
        if let Phase::Live(live) = &mut self.phase { Some(live) } else { None }
    }

    fn live(&self) -> Option<&Live> {
        if let Phase::Live(live) = &self.phase { Some(live) } else { None }
    }

    /// Takes what happened and says what to do. `now` is the time since any moment, by a clock that also goes on while
    /// the machine sleeps; it may jump.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::Start if matches!(self.phase, Phase::Still) => self.connect(now, &mut out),
            Event::Start | Event::Tick => {}
            Event::Stop => self.stop(&mut out),
            Event::Connected => self.greet(now, &mut out),
            Event::LinkLost(_) => self.link_lost(now),
            Event::Garbage(words) => self.hang_up(&words, now, &mut out),
            Event::Frame(Frame::Goodbye(Goodbye { words })) => {
                let words = format!("the host left: {words}");
                self.wait(now);
                out.push(Effect::Disconnect(words));
            }
            Event::Frame(frame) if matches!(self.phase, Phase::Greeting(_)) => {
                self.greeted(frame, now, &mut out);
            }
            Event::LocalChanges => self.dirty = true,
            Event::FiltersChanged { push_rules, write_back_rules } => {
                (self.begin.push_rules, self.begin.write_back_rules) =
                    (push_rules, write_back_rules);
                self.with_live(now, &mut out, |session, live, out| {
                    session.filters_changed(live, now, out)
                });
            }
            Event::Resync => {
                self.with_live(now, &mut out, |_, live, _| live.begin_resync(live.host, now));
            }
            Event::Applied { id } => self.applied(id, now, &mut out),
            Event::NotApplied { id, .. } => self.not_applied(id, now),
            Event::Batch { id, batch } => self.got_batch(id, batch),
            Event::AnswerKept { id, more } => self.answer_kept(id, more),
            Event::Renumbered { id } => self.renumbered(id),
            event => self.with_live(now, &mut out, |session, live, out| {
                session.live_event(live, event, now, out)
            }),
        }
        self.with_live(now, &mut out, |session, live, out| session.go_on(live, now, out));
        self.watch_time(now, &mut out);
        out
    }

    /// Does something with the link, if there is one; what is wrong with it ends it.
    fn with_live(
        &mut self,
        now: Duration,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Self, &mut Live, &mut Vec<Effect>) -> Done,
    ) {
        if !matches!(self.phase, Phase::Live(_)) {
            return;
        }
        let Phase::Live(mut live) = std::mem::replace(&mut self.phase, Phase::Still) else {
            return;
        };
        let done = act(self, &mut live, out);
        self.phase = Phase::Live(live);
        if let Err(Fault(words)) = done {
            self.hang_up(&words, now, out);
        }
    }

    fn live_event(
        &mut self,
        live: &mut Live,
        event: Event,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        match event {
            Event::Frame(frame) => self.frame(live, frame, now, out),
            Event::Demand(wants) => {
                self.demand(live, wants, now);
                Ok(())
            }
            Event::Lacking { id, objects } if live.is_of_demand(id) => {
                self.demand_lacking(live, &objects, now, out)
            }
            Event::Lacking { id, objects } => self.lacking(live, id, &objects, now, out),
            Event::ContentPut(object, kept) => {
                self.demand_put(live, object, kept, now, out)?;
                self.content_put(live, object, kept, now, out)
            }
            Event::Compared { id, items, descend } => {
                live.compared(id, items, descend, now);
                Ok(())
            }
            Event::ContentRead(run, bytes) => {
                out.push(Effect::Send(live.serving.content(&run, bytes)));
                Ok(())
            }
            Event::ManifestRead(wanted, found) => {
                let frames = live.serving.manifest(wanted.object, found);
                out.extend(frames.into_iter().map(Effect::Send));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn frame(
        &mut self,
        live: &mut Live,
        frame: Frame,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        live.heard = now;
        match frame {
            Frame::Push(push) => self.take_push(live, push, out),
            Frame::Heartbeat(Heartbeat { place, .. }) => self.heartbeat(live, place, out),
            Frame::FullResyncRequired(required) => live.begin_resync(required.place, now),
            Frame::TreeListing(listing) => live.listed(listing, now),
            Frame::WriteBackResult(result) => self.take_result(live, result, out),
            Frame::Fetch(fetch) => self.give(live, fetch.runs, out),
            Frame::ManifestRequest(wanted) => self.give_pieces(live, wanted, out),
            Frame::Content(_) | Frame::Manifest(_) if live.is_demanded(&frame) => {
                self.take_demanded(live, frame, now, out)
            }
            Frame::Content(_) | Frame::Manifest(_) => self.take_content(live, frame, now, out),
            Frame::Missing(object) => {
                live.demand_missing(object, now);
                self.take_content(live, frame, now, out)
            }
            Frame::FilterSet(set) => {
                out.push(Effect::Filter(set));
                Ok(())
            }
            // A link that repeats may repeat this.
            Frame::Welcome(_) => Ok(()),
            Frame::Hello(_)
            | Frame::ForeignHello(_)
            | Frame::Refused(_)
            | Frame::Ack(_)
            | Frame::WriteBack(_)
            | Frame::CatchupRequest(_)
            | Frame::TreeRequest(_)
            | Frame::Goodbye(_) => Err(fault("a host never sends such a frame now")),
        }
    }

    /// Whatever is possible now.
    fn go_on(&mut self, live: &mut Live, now: Duration, out: &mut Vec<Effect>) -> Done {
        self.go_on_demanding(live, now, out)?;
        self.go_on_pulling(live, now, out)?;
        self.go_on_resyncing(live, now, out)?;
        self.go_on_sending(live, now, out)
    }

    /// A number for an effect that is answered.
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn connect(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.phase = Phase::Connecting(now);
        out.push(Effect::Connect);
    }

    fn greet(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Connecting(_)) {
            return;
        }
        self.phase = Phase::Greeting(now);
        let Begin { replica, name, token, workspace, place, answered, folds_names, .. } =
            self.begin.clone();
        let versions = Versions::OURS;
        let features = if self.lazy { BARE_PUSHES } else { 0 };
        out.push(Effect::Send(Frame::Hello(Hello {
            versions,
            features,
            token,
            workspace,
            replica,
            name,
            place,
            answered,
            folds_names,
        })));
    }

    fn greeted(&mut self, frame: Frame, now: Duration, out: &mut Vec<Effect>) {
        match frame {
            Frame::Welcome(welcome) => match self.check_welcome(&welcome) {
                Ok(()) => self.welcomed(welcome, now, out),
                Err(Fault(words)) => self.hang_up(&words, now, out),
            },
            Frame::Refused(refused) => self.refused(refused, now, out),
            _ => self.hang_up("the host said something else than whether it lets us in", now, out),
        }
    }

    /// A host that answers for another workspace would have this one filled with it.
    fn check_welcome(&self, welcome: &Welcome) -> Done {
        if self.begin.workspace.is_some_and(|known| known != welcome.workspace) {
            return Err(fault("this is a replica of another workspace than the host's"));
        }
        let spoken = Versions::OURS.oldest..=Versions::OURS.newest;
        if !spoken.contains(&welcome.version) {
            return Err(fault(
                "the host wants to speak a version of the protocol that was not offered",
            ));
        }
        Ok(())
    }

    fn welcomed(&mut self, welcome: Welcome, now: Duration, out: &mut Vec<Effect>) {
        self.begin.workspace = Some(welcome.workspace);
        self.phase = Phase::Live(Box::new(Live::new(&welcome, &self.limits, now)));
        out.push(Effect::Welcomed(welcome));
        self.tell_filters(false, out);
    }

    fn refused(&mut self, refused: Refused, now: Duration, out: &mut Vec<Effect>) {
        self.attempts = self.attempts.max(LATE_ATTEMPT);
        let words = format!("the host does not let this replica in: {}", refused.words);
        out.push(Effect::Refused(refused));
        self.wait(now);
        out.push(Effect::Disconnect(words));
    }

    fn filters_changed(&mut self, live: &mut Live, now: Duration, out: &mut Vec<Effect>) -> Done {
        self.tell_filters(true, out);
        // What is let through now was never pushed.
        live.begin_resync(live.host, now)
    }

    /// Tells this side's rules; none are the rule where nothing was ever told.
    fn tell_filters(&self, also_none: bool, out: &mut Vec<Effect>) {
        let both = [
            (Direction::Push, &self.begin.push_rules),
            (Direction::WriteBack, &self.begin.write_back_rules),
        ];
        // Rules that are too long to tell hold here all the same.
        let told = |rules: &[u8]| rules.len() <= RULES_MAX && (also_none || !rules.is_empty());
        for (direction, rules) in both.into_iter().filter(|(_, rules)| told(rules)) {
            out.push(Effect::Send(Frame::FilterSet(FilterSet { direction, rules: rules.clone() })));
        }
    }

    fn stop(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Live(_) | Phase::Greeting(_)) {
            let words = "the replica stops".to_owned();
            out.push(Effect::Send(Frame::Goodbye(Goodbye { words: words.clone() })));
            out.push(Effect::Disconnect(words));
        }
        self.phase = Phase::Over;
        out.push(Effect::Ended);
    }

    fn link_lost(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Connecting(_) | Phase::Greeting(_) | Phase::Live(_)) {
            self.wait(now);
        }
    }

    /// Says why, closes the link and comes back later.
    fn hang_up(&mut self, words: &str, now: Duration, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::Still | Phase::Over | Phase::Waiting(_) => return,
            Phase::Live(_) => {
                out.push(Effect::Send(Frame::Goodbye(Goodbye { words: short(words) })))
            }
            Phase::Connecting(_) | Phase::Greeting(_) => {}
        }
        self.wait(now);
        out.push(Effect::Disconnect(words.to_owned()));
    }

    /// No link for a while: longer each time, and not all at once.
    fn wait(&mut self, now: Duration) {
        // A link that was let in and ended at once is no reason to come back at once.
        if self.live().is_some_and(|live| is_over(live.since, self.limits.backoff_most, now)) {
            self.attempts = 0;
        }
        let doubled = self.limits.backoff_least.saturating_mul(1 << self.attempts.min(20));
        let most = doubled.min(self.limits.backoff_most);
        self.attempts += 1;
        let nanoseconds = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let half = Duration::from_nanos(nanoseconds / 2);
        self.phase =
            Phase::Waiting(now + half + Duration::from_nanos(self.roll() % (nanoseconds / 2 + 1)));
    }

    fn roll(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Comes back when it is time, gives up on who is silent, shows that we are there, and says when to look again.
    fn watch_time(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let (patience, silence) = (self.limits.patience, self.limits.silence);
        match &self.phase {
            Phase::Still | Phase::Over => return,
            // After a jump back of the clock it would be waited for ever.
            Phase::Waiting(until)
                if now >= *until || *until > now + 2 * self.limits.backoff_most =>
            {
                self.connect(now, out);
            }
            Phase::Connecting(since) | Phase::Greeting(since) if is_over(*since, patience, now) => {
                self.hang_up("the host does not answer", now, out);
            }
            Phase::Live(live) if is_over(live.heard, silence, now) => {
                self.hang_up("nothing was heard of the host for too long", now, out);
            }
            _ => {}
        }
        self.show_life(now, out);
        let next = match &self.phase {
            Phase::Still | Phase::Over => return,
            Phase::Waiting(until) => *until,
            Phase::Connecting(since) | Phase::Greeting(since) => *since + patience,
            Phase::Live(live) => self.next_deadline(live),
        };
        if next < self.timer || self.timer <= now {
            self.timer = next.max(now);
            out.push(Effect::SetTimer(self.timer));
        }
    }

    fn show_life(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let (place, heartbeat) = (self.begin.place, self.limits.heartbeat);
        let Phase::Live(live) = &mut self.phase else { return };
        if out.iter().any(|effect| matches!(effect, Effect::Send(_))) {
            live.said = now;
        }
        if is_over(live.said, heartbeat, now) {
            let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            out.push(Effect::Send(Frame::Heartbeat(Heartbeat { place, now_ms })));
            live.said = now;
        }
    }

    fn next_deadline(&self, live: &Live) -> Duration {
        let mut next = (live.heard + self.limits.silence).min(live.said + self.limits.heartbeat);
        if self.is_waiting_for_host(live) {
            next = next.min(live.progress + self.limits.patience);
        }
        if let Some(at) = live.demand.as_ref().and_then(|demand| demand.deadline()) {
            next = next.min(at);
        }
        if let Some(at) = live.answering.sent {
            next = next.min(at + self.limits.patience);
        }
        next
    }
}

/// Whether so much time has gone by; a clock that went back has lost count, and then it has.
pub(super) fn is_over(since: Duration, time: Duration, now: Duration) -> bool {
    now < since || now - since >= time
}

fn short(words: &str) -> String {
    words.chars().take(crate::limits::WORDS_MAX / 4).collect()
}

impl Live {
    /// When the host was last heard of.
    pub(super) fn heard(&self) -> Duration {
        self.heard
    }

    fn new(welcome: &Welcome, limits: &Limits, now: Duration) -> Self {
        let batch_writes = usize::try_from(welcome.batch_writes).unwrap_or(usize::MAX);
        let fetches = usize::try_from(welcome.fetches).unwrap_or(usize::MAX);
        Self {
            since: now,
            heard: now,
            said: now,
            host: welcome.place,
            may_write: welcome.may_write,
            fetches: fetches.min(limits.fetches),
            batch_writes: batch_writes.min(limits.batch_writes).max(1),
            queue: VecDeque::new(),
            queued: 0,
            pulling: None,
            demand: None,
            parts: None,
            progress: now,
            tries: 0,
            resync: None,
            serving: Serving::default(),
            answering: Answering::default(),
        }
    }
}
