//! The thread of one workspace: messages in, sessions asked, effects carried out, one after the other.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use chronicle_core::replica::Place;
use chronicle_core::{Home, Touch, Touches, WatchOptions, Workspace, WorkspaceId};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::super::clock;
use super::super::connection::{Delivery, is_violation};
use super::super::metrics::{Metrics, Trace};
use super::super::rules::RuleFile;
use super::super::tokens::Tokens;
use super::follow::{SharedSlot, take_out};
use super::peers::{Arrival, Peer, Peers};
use super::work::HostWork;
use crate::filter::Filters;
use crate::host::{Effect, Event, HostSession};
use crate::limits::Limits;

/// Messages that wait for the thread of one workspace; each peer has only a few among them.
const INBOX: usize = 1024;
/// How often somebody looks where no watcher tells what is touched.
const BLIND_ROUND: Duration = Duration::from_secs(1);
/// How often rules and tokens are looked at again, and a watcher is asked for that is missing.
const ROUND: Duration = Duration::from_secs(2);
/// How long what was touched is left to settle: most writers are done by then.
const SETTLE: Duration = Duration::from_micros(200);
/// How long somebody who goes on writing is waited for: what he writes then goes in one push, which is synced once.
const BURST: Duration = Duration::from_millis(25);
/// How long a watcher of this process waits for somebody to ask before it ends: for ever.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What may be new: a path was touched.
const TOUCHED: u8 = 1;
/// What may be new: somebody committed.
const COMMITTED: u8 = 2;

/// What may be new: another host committed to the shared log, which is asked as often as this.
const FOLLOW: u8 = 4;
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// What the thread is told.
pub(super) enum Message {
    Arrived(Box<Arrival>),
    Reading(u64, AbortHandle),
    Frame(u64, Delivery),
    Gone(u64, io::Error),
    /// What is new is in the flags that are shared with who heard it.
    News,
    /// It is time to look around.
    Round,
    Stop,
}

/// What a host's thread is started with.
#[derive(Clone)]
pub struct HostOptions {
    /// The home.
    pub home: Home,
    /// The workspace's root.
    pub root: PathBuf,
    /// What a session allows.
    pub limits: Arc<Limits>,
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
    /// Where events are written down.
    pub trace: Trace,
    /// The log that it shares with other hosts, if it does.
    pub shared: Option<SharedSlot>,
}

/// A workspace's thread, for those who bring connections.
#[derive(Clone)]
pub struct HostHandle {
    /// Which workspace replicas know it as.
    pub workspace: WorkspaceId,
    /// Which workspace of this machine it is, for which tokens are.
    pub own: WorkspaceId,
    to: mpsc::Sender<Message>,
}

impl HostHandle {
    /// Hands over somebody who has said his first word; false if the thread has ended.
    pub async fn arrive(&self, arrival: Arrival) -> bool {
        self.to.send(Message::Arrived(Box::new(arrival))).await.is_ok()
    }

    /// Tells how reading from a peer can be ended.
    pub async fn reading(&self, peer: u64, reader: AbortHandle) {
        let _ = self.to.send(Message::Reading(peer, reader)).await;
    }

    /// Hands over a frame of a peer, or that he is gone; false if the thread has ended.
    pub async fn deliver(&self, peer: u64, delivery: io::Result<Delivery>) -> bool {
        let message = match delivery {
            Ok(delivery) => Message::Frame(peer, delivery),
            Err(error) => Message::Gone(peer, error),
        };
        self.to.send(message).await.is_ok()
    }

    /// Lets the thread end, with a goodbye to everybody.
    pub async fn stop(&self) {
        let _ = self.to.send(Message::Stop).await;
    }

    /// Waits until the thread has ended.
    pub async fn ended(&self) {
        self.to.closed().await;
    }
}

/// Opens a workspace and starts its thread.
pub fn start(options: HostOptions, runtime: &Handle) -> chronicle_core::Result<HostHandle> {
    let workspace = Workspace::open(&options.home, &options.root)?;
    let own = workspace.id();
    let (to, from) = mpsc::channel(INBOX);
    let news = Arc::new(AtomicU8::new(0));
    start_watching(&options, &workspace, &to, &news)?;
    let actor = Actor::new(options, workspace, from, Arc::clone(&news))?;
    let id = actor.work.id();
    if actor.work.is_following() {
        start_following(to.clone(), news, own)?;
    }
    let runtime = runtime.clone();
    std::thread::Builder::new()
        .name(format!("host-{}", &id.hex()[..8]))
        .spawn(move || actor.run(&runtime))
        .map_err(|source| chronicle_core::Error::Io {
            action: "start a thread for",
            path: PathBuf::from(id.hex()),
            source,
        })?;
    Ok(HostHandle { workspace: id, own, to })
}

/// Asks the workspace's thread to look at the shared log now and then, for as long as it lives.
fn start_following(
    to: mpsc::Sender<Message>,
    news: Arc<AtomicU8>,
    id: WorkspaceId,
) -> chronicle_core::Result<()> {
    let follow = move || {
        while !to.is_closed() {
            if news.fetch_or(FOLLOW, Ordering::AcqRel) == 0
                && to.blocking_send(Message::News).is_err()
            {
                return;
            }
            std::thread::sleep(FOLLOW_EVERY);
        }
    };
    let spawned = std::thread::Builder::new().name("follow".to_owned()).spawn(follow);
    spawned.map(drop).map_err(|source| chronicle_core::Error::Io {
        action: "start a thread for",
        path: PathBuf::from(id.hex()),
        source,
    })
}

/// Starts the watcher, unless another process has one, and the thread that hears it.
fn start_watching(
    options: &HostOptions,
    workspace: &Workspace,
    to: &mpsc::Sender<Message>,
    news: &Arc<AtomicU8>,
) -> chronicle_core::Result<()> {
    let touches = workspace.hear()?;
    let (to, news) = (to.clone(), Arc::clone(news));
    let (home, root) = (options.home.clone(), options.root.clone());
    let spawned = std::thread::Builder::new()
        .name("hear".to_owned())
        .spawn(move || hear(touches, &home, &root, &to, &news));
    spawned.map(drop).map_err(|source| chronicle_core::Error::Io {
        action: "start a thread for",
        path: workspace.root().to_owned(),
        source,
    })
}

/// Tells the workspace's thread what may be new, for as long as it lives.
fn hear(
    mut touches: Touches,
    home: &Home,
    root: &std::path::Path,
    to: &mpsc::Sender<Message>,
    news: &AtomicU8,
) {
    while !to.is_closed() {
        if !touches.find_watcher() {
            start_watcher(home.clone(), root.to_owned());
        }
        let touch = touches.wait(if touches.is_watched() { ROUND } else { BLIND_ROUND });
        let bits = match touch {
            // Where nobody tells, everything may have been touched.
            _ if !touches.is_watched() => TOUCHED | COMMITTED,
            Touch { touched, committed } => {
                (if touched { TOUCHED } else { 0 }) | (if committed { COMMITTED } else { 0 })
            }
        };
        if bits == 0 {
            if to.blocking_send(Message::Round).is_err() {
                return;
            }
            continue;
        }
        // What comes while a look is asked for and not begun, that look sees.
        if news.fetch_or(bits, Ordering::AcqRel) == 0 {
            if bits & TOUCHED != 0 && touches.settle(SETTLE, BURST).committed {
                news.fetch_or(COMMITTED, Ordering::AcqRel);
            }
            if to.blocking_send(Message::News).is_err() {
                return;
            }
        }
    }
}

/// A watcher in a thread of this process; ends at once if another process has one.
fn start_watcher(home: Home, root: PathBuf) {
    let watch = move || {
        let options = WatchOptions { idle: FOR_EVER, ..WatchOptions::default() };
        let _ = Workspace::watch(&home, &root, &options);
    };
    // Without it everything works, only slower.
    let _ = std::thread::Builder::new().name("watch".to_owned()).spawn(watch);
}

pub(super) struct Actor {
    pub(super) options: HostOptions,
    pub(super) work: HostWork,
    pub(super) peers: Peers,
    from: mpsc::Receiver<Message>,
    news: Arc<AtomicU8>,
    pub(super) filters: Arc<Filters>,
    rules: RuleFile,
    pub(super) tokens: Tokens,
    tokens_seen: Option<(i64, i64, u64)>,
    pub(super) place: Place,
    /// The log grew by what a session wanted.
    grown: bool,
    stopping: bool,
    /// When others' changes to rules and tokens were last looked for.
    rounded: Duration,
}

impl Actor {
    fn new(
        options: HostOptions,
        workspace: Workspace,
        from: mpsc::Receiver<Message>,
        news: Arc<AtomicU8>,
    ) -> chronicle_core::Result<Self> {
        let rules = RuleFile::of(&options.home, workspace.id());
        let tokens = Tokens::of(&options.home);
        let shared = options.shared.as_ref().and_then(take_out);
        let mut work = HostWork::new(workspace, &options.home, shared);
        work.look()?;
        let place = work.place()?;
        let tokens_seen = tokens.changed_at();
        let mut actor = Self {
            options,
            work,
            peers: Peers::default(),
            from,
            news,
            filters: Arc::default(),
            rules,
            tokens,
            tokens_seen,
            place,
            grown: false,
            stopping: false,
            rounded: clock::now(),
        };
        actor.read_rules();
        Ok(actor)
    }

    fn run(mut self, runtime: &Handle) {
        let metrics = Arc::clone(&self.options.metrics);
        metrics.workspaces.fetch_add(1, Ordering::Relaxed);
        while !(self.stopping && self.peers.len() == 0) {
            let message = runtime.block_on(self.next());
            match message {
                Some(Some(message)) => self.message(message),
                Some(None) => break,
                None => {}
            }
            for peer in self.peers.due(clock::now()) {
                self.event(peer, Event::Tick);
            }
            if std::mem::take(&mut self.grown) {
                self.tell_growth();
            }
            // However much there is to do in between.
            if clock::now().saturating_sub(self.rounded) >= ROUND {
                self.round();
            }
        }
        metrics.workspaces.fetch_sub(1, Ordering::Relaxed);
    }

    /// The next message, or `None` when a session's time has come.
    async fn next(&mut self) -> Option<Option<Message>> {
        let wait = match self.peers.next_timer() {
            Some(at) => at.saturating_sub(clock::now()).min(ROUND),
            None => ROUND,
        };
        tokio::time::timeout(wait, self.from.recv()).await.ok()
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Arrived(arrival) => self.arrived(*arrival),
            Message::Reading(peer, reader) => match self.peers.get_mut(peer) {
                Some(peer) => peer.reader = Some(reader),
                None => reader.abort(),
            },
            Message::Frame(peer, delivery) => {
                if let Some(peer) = self.peers.get_mut(peer) {
                    peer.received += delivery.length as u64;
                }
                let Delivery { frame, .. } = delivery;
                self.event(peer, Event::Frame(frame));
            }
            Message::Gone(peer, error) => self.gone(peer, &error),
            Message::News => self.news(),
            Message::Round => {}
            Message::Stop => self.stop(),
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        let Arrival { peer, first, outbox, came } = arrival;
        let session = HostSession::new(Arc::clone(&self.options.limits));
        let new = Peer::new(session, outbox, came, self.work.offers());
        self.peers.insert(peer, new);
        self.event(peer, Event::Frame(first));
    }

    fn gone(&mut self, peer: u64, error: &io::Error) {
        if is_violation(error) {
            Metrics::add(&self.options.metrics.violations, 1);
            self.event(peer, Event::Garbage(error.to_string()));
        }
        if let Some(gone) = self.peers.remove(peer) {
            self.work.forget(peer, &gone);
            self.trace("gone", peer, &gone, json!({ "why": error.to_string() }));
        }
    }

    /// Looks at what was touched, and tells the sessions if the log has grown.
    fn news(&mut self) {
        // Before the look: what comes from now on needs another.
        let news = self.news.swap(0, Ordering::AcqRel);
        if news & TOUCHED != 0 {
            match self.work.look() {
                Ok(true) => Metrics::add(&self.options.metrics.recorded, 1),
                Ok(false) => {}
                Err(error) => self.trouble("look", &error.to_string()),
            }
        }
        if let Err(error) = self.work.follow() {
            self.trouble("follow", &error.to_string());
        }
        self.tell_growth();
    }

    fn tell_growth(&mut self) {
        match self.work.place() {
            Ok(place) if place != self.place => {
                self.place = place;
                for peer in self.peers.numbers() {
                    self.event(peer, Event::LogGrew(place));
                }
            }
            Ok(_) => {}
            Err(error) => self.trouble("head", &error.to_string()),
        }
    }

    /// What is looked at now and then: rules and tokens that others may have changed.
    fn round(&mut self) {
        self.rounded = clock::now();
        self.read_rules();
        self.tell_growth();
        if let Err(error) = self.work.sync_on() {
            self.trouble("sync", &error.to_string());
        }
        let seen = self.tokens.changed_at();
        if std::mem::replace(&mut self.tokens_seen, seen) != seen {
            self.dismiss_revoked();
        }
    }

    fn read_rules(&mut self) {
        let read = self.work.rules(&self.rules);
        let Ok((push, write_back)) = read else { return };
        if push == self.filters.push.rules() && write_back == self.filters.write_back.rules() {
            return;
        }
        let filters = Filters::default();
        filters.push.replace(&push);
        filters.write_back.replace(&write_back);
        self.filters = Arc::new(filters);
        self.work.set_filters(Arc::clone(&self.filters));
        // Whether less is kept out cannot be seen from the lines: comparing trees costs the difference.
        for peer in self.peers.numbers() {
            self.event(peer, Event::FiltersChanged { wider: true });
        }
    }

    /// Those whose token is gone must go too.
    fn dismiss_revoked(&mut self) {
        let Ok(rows) = self.tokens.list() else { return };
        for number in self.peers.numbers() {
            let Some(peer) = self.peers.get(number) else { continue };
            let revoked = |token: &String| !rows.iter().any(|row| row.name == *token);
            if peer.token.as_ref().is_some_and(revoked) {
                self.event(number, Event::Dismiss("Its token was revoked".to_owned()));
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        for peer in self.peers.numbers() {
            self.event(peer, Event::Dismiss("The host's server ends".to_owned()));
        }
        // Who is not gone by now has no session that could say goodbye.
        for peer in self.peers.numbers() {
            self.peers.remove(peer);
        }
    }

    /// Tells a session what happened, and carries out what it wants until it wants nothing more.
    fn event(&mut self, peer: u64, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(found) = self.peers.get_mut(peer) else { return };
            for effect in found.session.handle(event, clock::now()) {
                events.extend(self.effect(peer, effect));
            }
        }
    }

    /// Carries out one effect; what comes back at once is told to the session.
    fn effect(&mut self, number: u64, effect: Effect) -> Vec<Event> {
        if matches!(
            effect,
            Effect::ReadLog(_)
                | Effect::ReadTree(_)
                | Effect::ReadContent { .. }
                | Effect::ReadManifest { .. }
                | Effect::Lacking { .. }
                | Effect::PutContent { .. }
                | Effect::PutPieces { .. }
        ) {
            let Some(peer) = self.peers.get(number) else { return Vec::new() };
            return self.work.carry_out(number, peer, effect);
        }
        self.own_effect(number, effect).into_iter().collect()
    }

    /// What does not concern the workspace, and batches.
    fn own_effect(&mut self, number: u64, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Send(frame) => {
                let peer = self.peers.get(number)?;
                if !peer.outbox.send(&frame) {
                    self.close(number, "it does not read what it is sent");
                }
                None
            }
            Effect::Admit(hello) => Some(self.admit(number, &hello)),
            Effect::Progress(place) => {
                let peer = self.peers.get_mut(number)?;
                peer.place = place;
                let replica = peer.replica?;
                self.work.note(replica, self.peers.get(number)?, false);
                None
            }
            Effect::Filter(set) => {
                self.peers.get_mut(number)?.set_rules(set.direction, &set.rules);
                None
            }
            Effect::SetTimer(at) => {
                self.peers.set_timer(number, at);
                None
            }
            Effect::Close(words) => {
                self.close(number, &words);
                None
            }
            Effect::TakeWrites(writes) => {
                let peer = self.peers.get(number)?;
                let taken = self.work.take_writes(number, peer, writes, &self.options.metrics);
                // Everybody else hears of it when this session has been answered.
                self.grown = true;
                Some(Event::WritesTaken(taken))
            }
            _ => None,
        }
    }

    pub(super) fn close(&mut self, number: u64, words: &str) {
        if let Some(peer) = self.peers.remove(number) {
            self.work.forget(number, &peer);
            self.trace("closed", number, &peer, json!({ "why": words }));
        }
    }

    fn trace(&self, event: &str, number: u64, peer: &Peer, mut fields: serde_json::Value) {
        if self.options.trace.is_on() {
            fields["peer"] = json!(number);
            fields["name"] = json!(peer.name);
            fields["seconds"] = json!((clock::now() - peer.since).as_secs_f64());
            self.options.trace.event(event, clock::wall_ns(), fields);
        }
    }

    fn trouble(&self, what: &str, why: &str) {
        self.options.trace.event("trouble", clock::wall_ns(), json!({ "what": what, "why": why }));
    }
}
