//! The thread of a replica: what the link, the disk and the clock say goes to the session, and what it wants is done.

mod readers;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronicle_core::replica::{Place, Verdict};
use chronicle_core::{Home, Touch, Touches, WatchOptions, Workspace};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::super::clock;
use super::super::connection::{Delivery, Outbox, is_violation, start_reading, start_writing};
use super::super::link::Room;
use super::super::metrics::{Metrics, Trace};
use super::super::server::Stop;
use super::ask::{self, Reader};
use super::dial::Target;
use super::work::SandboxWork;
use crate::sandbox::{Effect, Event, SandboxSession};
use crate::wire::{RefusedCode, Welcome};
use readers::Readers;

/// Bytes that frames of the host may take that are not handled yet.
const ROOM: usize = 32 << 20;
const INBOX: usize = 64;
/// Frames of the host that wait while a push is written.
const AHEAD: usize = 16;
/// How often somebody looks where no watcher tells what is touched.
const BLIND_ROUND: Duration = Duration::from_secs(1);
const ROUND: Duration = Duration::from_secs(2);
/// How long what was touched is left to settle.
const SETTLE: Duration = Duration::from_micros(200);
/// How often it is looked whether a first fill is over.
const FILL_ROUND: Duration = Duration::from_millis(5);
/// So many paths of one push are synced while the next one is written.
const WORTH_A_SYNC: u64 = 2048;
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// How long the goodbye may take.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// What a replica is run with.
pub struct ClientOptions {
    /// The home.
    pub home: Home,
    /// Where the host is.
    pub target: Target,
    /// End when both sides are equal.
    pub once: bool,
    /// Where events are written down.
    pub trace: Trace,
}

/// What a person may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The host let this replica in.
    Welcome {
        /// Whether it may write back.
        may_write: bool,
        /// How many records the host is ahead; `None` if everything must be compared or filled.
        behind: Option<u64>,
    },
    /// The link was lost; it is tried again.
    Lost(String),
    /// The host does not let it in.
    Refused(String),
    /// Some of what the host has was put here.
    Applied {
        /// Paths so far since it was connected.
        paths: u64,
        /// Bytes that came so far.
        bytes: u64,
    },
    /// Both sides have the same.
    Equal,
    /// So many writes were not taken by the host.
    Rejected(u64),
    /// Something did not work, and is tried again.
    Trouble(String),
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// Both sides are equal, and that was asked for.
    Equal,
    /// The host does not let it in, and somebody waits for the end.
    Refused,
}

enum Message {
    Connected(u64, Outbox, AbortHandle),
    NotConnected(u64, io::Error),
    Frame(u64, Delivery),
    Gone(u64, io::Error),
    /// Something was touched.
    News,
    /// It is time to look around.
    Round,
    /// Somebody reads a file whose content may be at the host.
    Read(Reader),
    Stop,
}

/// Keeps a replica up to date until it is told to stop, or is equal and that was asked for.
pub fn run(
    options: ClientOptions,
    work: SandboxWork,
    session: SandboxSession,
    stop: &Stop,
    tell: &mut dyn FnMut(Told),
) -> io::Result<End> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (to, from) = mpsc::channel(INBOX);
    let (news, filling) = (Arc::new(AtomicBool::new(false)), Arc::default());
    start_hearing(&options, &work, &to, &news, &filling)?;
    if work.is_lazy() {
        let to = to.clone();
        let hear = move |reader| to.blocking_send(Message::Read(reader)).is_ok();
        ask::listen(&work.asked_in(), hear)?;
    }
    let (stopping, stop) = (to.clone(), stop.clone());
    runtime.spawn(async move {
        stop.stopped().await;
        let _ = stopping.send(Message::Stop).await;
    });
    let actor = Actor {
        options,
        work,
        session,
        runtime: &runtime,
        metrics: Arc::default(),
        room: Room::new(ROOM),
        to,
        from,
        news,
        filling,
        link: 0,
        outbox: None,
        reader: None,
        timer: None,
        target: None,
        place: None,
        quiet: false,
        looked: false,
        applied: 0,
        equal: false,
        end: None,
        rounded: clock::now(),
        linked: false,
        readers: Readers::default(),
        tell,
    };
    let end = actor.run();
    runtime.shutdown_timeout(LAST_PATIENCE);
    Ok(end)
}

fn start_hearing(
    options: &ClientOptions,
    work: &SandboxWork,
    to: &mpsc::Sender<Message>,
    news: &Arc<AtomicBool>,
    filling: &Arc<AtomicBool>,
) -> io::Result<()> {
    let touches = work.touches().map_err(io::Error::other)?;
    let (to, news, filling) = (to.clone(), Arc::clone(news), Arc::clone(filling));
    filling.store(work.place().is_none(), Ordering::Release);
    let (home, root) = (options.home.clone(), work.root().to_owned());
    let hear = move || {
        // Whatever is written while an empty replica is filled is seen by the first look after that.
        while filling.load(Ordering::Acquire) && !to.is_closed() {
            std::thread::sleep(FILL_ROUND);
        }
        hear(touches, &home, &root, &to, &news);
    };
    std::thread::Builder::new().name("hear".to_owned()).spawn(hear).map(drop)
}

/// Tells the replica's thread that something may be new, for as long as it lives.
fn hear(
    mut touches: Touches,
    home: &Home,
    root: &std::path::Path,
    to: &mpsc::Sender<Message>,
    news: &AtomicBool,
) {
    let mut watched = false;
    while !to.is_closed() {
        if !touches.find_watcher() {
            let (home, root) = (home.clone(), root.to_owned());
            let options = WatchOptions { idle: FOR_EVER, ..WatchOptions::default() };
            let watch = move || drop(Workspace::watch(&home, &root, &options));
            // Without it everything works, only slower.
            let _ = std::thread::Builder::new().name("watch".to_owned()).spawn(watch);
        }
        // What was touched between the last look and the watcher's first moment nobody tells: one more look is due.
        let begun = touches.is_watched() && !std::mem::replace(&mut watched, touches.is_watched());
        let is_new = begun || {
            let touch = touches.wait(if touches.is_watched() { ROUND } else { BLIND_ROUND });
            touch != Touch::default() || !touches.is_watched()
        };
        watched &= touches.is_watched();
        let message = match is_new {
            false => Message::Round,
            true if news.swap(true, Ordering::AcqRel) => continue,
            true => {
                std::thread::sleep(SETTLE);
                Message::News
            }
        };
        if to.blocking_send(message).is_err() {
            return;
        }
    }
}

struct Actor<'r, 't> {
    options: ClientOptions,
    work: SandboxWork,
    session: SandboxSession,
    runtime: &'r Runtime,
    metrics: Arc<Metrics>,
    room: Room,
    to: mpsc::Sender<Message>,
    from: mpsc::Receiver<Message>,
    news: Arc<AtomicBool>,
    /// An empty replica is filled: nobody watches the tree and nobody looks at it until then.
    filling: Arc<AtomicBool>,
    /// Which link is the present one: what an older one says counts no more.
    link: u64,
    outbox: Option<Outbox>,
    reader: Option<AbortHandle>,
    timer: Option<Duration>,
    /// How far the host was known to be.
    target: Option<Place>,
    /// How far its log is applied here.
    place: Option<Place>,
    /// There was nothing to send when it was last asked.
    quiet: bool,
    /// The disk was looked at since the link was made.
    looked: bool,
    applied: u64,
    equal: bool,
    end: Option<End>,
    /// When others' changes to rules were last looked for.
    rounded: Duration,
    /// The host has let us in over the present link.
    linked: bool,
    readers: Readers,
    tell: &'t mut dyn FnMut(Told),
}

impl Actor<'_, '_> {
    fn run(mut self) -> End {
        let end = self.run_on();
        if let Err(error) = self.work.sync_all() {
            (self.tell)(Told::Trouble(error.to_string()));
        }
        end
    }

    fn run_on(&mut self) -> End {
        self.place = self.work.place();
        self.event(Event::Start);
        loop {
            if let Some(end) = self.end {
                return end;
            }
            match self.next() {
                Some(Some(message)) => self.message(message),
                Some(None) => return End::Stopped,
                None => {
                    self.timer.take_if(|at| *at <= clock::now());
                    self.event(Event::Tick);
                }
            }
            self.serve_readers();
            self.tell_if_equal();
            // However much there is to do in between.
            if clock::now().saturating_sub(self.rounded) >= ROUND {
                self.rounded = clock::now();
                self.read_rules();
                self.sync_on();
            }
        }
    }

    /// The next message, or `None` when the session's time has come.
    fn next(&mut self) -> Option<Option<Message>> {
        let from = &mut self.from;
        match self.timer.into_iter().chain(self.readers.deadline()).min() {
            Some(at) => {
                let wait = at.saturating_sub(clock::now());
                self.runtime.block_on(async { tokio::time::timeout(wait, from.recv()).await.ok() })
            }
            None => Some(self.runtime.block_on(from.recv())),
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Connected(link, outbox, reader) if link == self.link => {
                (self.outbox, self.reader) = (Some(outbox), Some(reader));
                self.looked = false;
                self.applied = 0;
                self.event(Event::Connected);
                self.look();
            }
            Message::Connected(_, _, reader) => reader.abort(),
            Message::NotConnected(link, error) if link == self.link => {
                self.lost(format!("Could not connect to {}: {error}", self.options.target.words()));
            }
            Message::Frame(link, delivery) if link == self.link => {
                let Delivery { frame, .. } = delivery;
                self.event(Event::Frame(frame));
            }
            Message::Gone(link, error) if link == self.link => {
                if is_violation(&error) {
                    self.event(Event::Garbage(error.to_string()));
                }
                self.lost(format!("The link is gone: {error}"));
            }
            Message::NotConnected(..) | Message::Frame(..) | Message::Gone(..) => {}
            Message::News => self.look(),
            Message::Round => {}
            Message::Read(reader) => self.read(reader),
            Message::Stop => {
                self.end = Some(End::Stopped);
                self.event(Event::Stop);
            }
        }
    }

    fn lost(&mut self, words: String) {
        self.hang_up();
        self.filled();
        (self.tell)(Told::Lost(words.clone()));
        self.trace("lost", json!({ "why": words }));
        self.event(Event::LinkLost(words));
    }

    /// From now on local work is looked for.
    fn filled(&mut self) {
        if self.filling.swap(false, Ordering::AcqRel) && !self.options.once {
            self.look();
        }
    }

    fn hang_up(&mut self) {
        self.link += 1;
        self.linked = false;
        self.outbox = None;
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }

    /// Brings local work into the log; the session sends it.
    fn look(&mut self) {
        // Before the look: what comes from now on needs another.
        self.news.store(false, Ordering::Release);
        match self.work.look() {
            Ok(changed) => {
                self.looked = true;
                if changed {
                    self.quiet = false;
                    self.event(Event::LocalChanges);
                }
            }
            Err(error) => (self.tell)(Told::Trouble(error.to_string())),
        }
    }

    fn sync_on(&mut self) {
        if let Err(error) = self.work.sync_on() {
            (self.tell)(Told::Trouble(error.to_string()));
        }
    }

    fn read_rules(&mut self) {
        if let Some((push_rules, write_back_rules)) = self.work.changed_rules() {
            self.event(Event::FiltersChanged { push_rules, write_back_rules });
        }
    }

    /// Tells the session what happened, and carries out what it wants until it wants nothing more.
    fn event(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.session.handle(event, clock::now()) {
                events.extend(self.effect(effect));
            }
        }
    }

    fn effect(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Connect => self.connect(),
            Effect::Send(frame) => {
                let sent = self.outbox.as_ref().is_some_and(|outbox| outbox.send(&frame));
                if !sent && self.outbox.is_some() {
                    self.hang_up();
                    return Some(Event::LinkLost("The host does not read".to_owned()));
                }
            }
            Effect::Welcomed(welcome) => self.welcomed(&welcome),
            Effect::Refused(refused) => {
                (self.tell)(Told::Refused(refused.words.clone()));
                let lasting = refused.code != RefusedCode::Busy;
                if self.options.once && lasting {
                    self.end = Some(End::Refused);
                }
            }
            Effect::SetTimer(at) => self.timer = Some(at),
            Effect::NotToBeHad(object) => self.not_to_be_had(&object),
            Effect::Disconnect(words) => {
                self.trace("disconnect", json!({ "why": words }));
                self.hang_up();
            }
            Effect::Ended => self.end = self.end.or(Some(End::Stopped)),
            other => return self.carry_out(other),
        }
        None
    }

    /// What concerns the workspace; notes on the way what tells whether both sides are equal.
    fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        let applying = match &effect {
            Effect::ApplyPush(push) => Some((push.items.len() as u64, push.advance)),
            _ => None,
        };
        if let Effect::Answered { verdicts, .. } = &effect {
            self.note_verdicts(verdicts);
        }
        let event = self.work.carry_out(effect)?;
        match (&event, applying) {
            (Event::Applied { .. }, Some((paths, advance))) => {
                self.applied += paths;
                self.place = advance.or(self.place);
                let bytes = self.metrics.bytes_in.load(Ordering::Relaxed);
                let seq = self.place.map(|place| place.seq.0);
                self.trace("applied", json!({ "paths": paths, "seq": seq }));
                if paths >= WORTH_A_SYNC {
                    self.sync_on();
                }
                (self.tell)(Told::Applied { paths: self.applied, bytes });
            }
            (Event::NotApplied { words, .. }, _) => (self.tell)(Told::Trouble(words.clone())),
            (Event::ContentPut(object, true), _) => self.readers.came(object),
            (Event::Batch { batch, .. }, _) => self.quiet = batch.is_none(),
            (Event::AnswerKept { more, .. }, _) => self.quiet = !more,
            _ => {}
        }
        Some(event)
    }

    /// The host's log is at least as far as its answers say.
    fn note_verdicts(&mut self, verdicts: &[Verdict]) {
        let seqs = verdicts.iter().map(|verdict| match verdict {
            Verdict::Accepted(seq) | Verdict::Rejected { seq, .. } => *seq,
        });
        if let (Some(target), Some(seq)) = (&mut self.target, seqs.max()) {
            target.seq = target.seq.max(seq);
        }
        let rejected = |verdict: &&Verdict| matches!(verdict, Verdict::Rejected { .. });
        let rejected = verdicts.iter().filter(rejected).count() as u64;
        if rejected > 0 {
            (self.tell)(Told::Rejected(rejected));
        }
    }

    fn welcomed(&mut self, welcome: &Welcome) {
        self.work.welcomed(welcome);
        self.linked = true;
        self.ask_again();
        self.target = Some(welcome.place);
        (self.equal, self.quiet) = (false, !welcome.may_write);
        let behind = self.place.filter(|place| place.epoch == welcome.place.epoch);
        let behind = behind.map(|place| welcome.place.seq.0.saturating_sub(place.seq.0));
        (self.tell)(Told::Welcome { may_write: welcome.may_write, behind });
        self.trace("welcome", json!({ "behind": behind }));
    }

    fn tell_if_equal(&mut self) {
        let reached = match (self.target, self.place) {
            (Some(target), Some(place)) => place.epoch == target.epoch && place.seq >= target.seq,
            _ => false,
        };
        if reached {
            self.filled();
        }
        let equal = reached && self.quiet && self.looked && self.outbox.is_some();
        if equal && !self.equal {
            (self.tell)(Told::Equal);
            if self.options.once {
                self.end = Some(End::Equal);
                self.event(Event::Stop);
            }
        }
        self.equal = equal;
    }

    fn connect(&mut self) {
        self.hang_up();
        let (link, to, room) = (self.link, self.to.clone(), self.room.clone());
        let (target, metrics) = (self.options.target.clone(), Arc::clone(&self.metrics));
        self.runtime.spawn(async move {
            let message = match target.dial(&room).await {
                Err(error) => Message::NotConnected(link, error),
                Ok((from, sender)) => {
                    let outbox = start_writing(sender, Arc::clone(&metrics));
                    let deliver = to.clone();
                    let reader = start_reading(from, AHEAD, metrics, move |delivery| {
                        let to = deliver.clone();
                        let message = match delivery {
                            Ok(delivery) => Message::Frame(link, delivery),
                            Err(error) => Message::Gone(link, error),
                        };
                        async move { to.send(message).await.is_ok() }
                    });
                    Message::Connected(link, outbox, reader)
                }
            };
            let _ = to.send(message).await;
        });
    }

    fn trace(&self, event: &str, fields: serde_json::Value) {
        self.options.trace.event(event, clock::wall_ns(), fields);
    }
}
