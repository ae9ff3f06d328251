//! One world: a host, sandboxes, links that do everything links do, and power that fails.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::{Epoch, ObjectId, Seq};
use chronicle_replica::filter::{DirectionalFilter, Filters};
use chronicle_replica::wire::{Frame, decode, encode};
use chronicle_replica::{HostSession, Limits, SandboxSession, host, sandbox};
use chronicle_testing::dice::Dice;

use super::Mutation;
use super::disk;
use super::host::Host;
use super::oracle::Oracle;
use super::replica::Replica;
use super::store::Fuse;
use super::telling::{brief, held, kind, name, work};

const MS: Duration = Duration::from_millis(1);
/// People, faults and crashes happen until then.
const TROUBLE: Duration = Duration::from_secs(20);
/// By then everything is quiet, or it never will be.
const END: Duration = Duration::from_secs(600);
const STEPS: usize = 60_000;

/// Something that will happen.
#[derive(Debug)]
enum Due {
    Edit(Option<usize>),
    Look(Option<usize>),
    Crash(Option<usize>),
    Boot(Option<usize>),
    Partition(usize),
    Heal(usize),
    Prune,
    Restore,
    Rebirth(usize),
    Freeze(usize),
    Thaw(usize),
    ClockJump,
    ToHost(usize, Vec<u8>),
    ToSandbox(usize, Vec<u8>),
    LinkDown(usize, bool),
    Connect(usize, u32),
    HostWork(usize, u32, Box<host::Effect>),
    SandboxWork(usize, u32, Box<sandbox::Effect>),
    HostTick(usize, Duration),
    SandboxTick(usize, u32, Duration),
}

/// A connection between a sandbox and the host.
struct Link {
    sandbox: usize,
    births: u8,
    /// Whether each side still has it.
    host_end: Option<HostSession>,
    sandbox_end: bool,
    /// When the last frame each way arrives.
    up: Duration,
    down: Duration,
    timer: Duration,
}

/// A sandbox with its process, if it runs.
struct Box_ {
    replica: Replica,
    session: Option<SandboxSession>,
    life: u32,
    link: Option<usize>,
    cut: bool,
    births: u8,
    timer: Duration,
    /// A copy of the whole machine, by the end of its log.
    frozen: Option<(Seq, super::replica::Kept)>,
}

pub struct World {
    now: Duration,
    skew: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    dues: BTreeMap<u64, Due>,
    next: u64,
    dice: Dice,
    host: Host,
    host_up: bool,
    host_life: u32,
    links: BTreeMap<usize, Link>,
    next_link: usize,
    boxes: Vec<Box_>,
    oracle: Oracle,
    limits: Arc<Limits>,
    mutation: Mutation,
    serial: u64,
    faults: usize,
    trace: Option<String>,
    pub steps: usize,
    /// What has happened here at all.
    pub seen: std::collections::BTreeSet<&'static str>,
}

impl World {
    pub fn new(seed: u64, mutation: Mutation, traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let filters = Arc::new(Filters::default());
        if dice.chance(30) {
            for filter in [&filters.push, &filters.write_back] {
                DirectionalFilter::replace(filter, b"*.tmp\n");
            }
        }
        let limits = Limits {
            heartbeat: 500 * MS,
            silence: 2000 * MS,
            patience: 800 * MS,
            backoff_least: 20 * MS,
            backoff_most: 1000 * MS,
            push_parts: 2,
            fill_parts: 3,
            fetches: 3,
            ..Limits::default()
        };
        let count = dice.between(1, 5);
        let boxes = (0..count).map(|number| Box_ {
            replica: Replica::new(number, 0, filters.clone()),
            session: None,
            life: 0,
            link: None,
            cut: false,
            births: 0,
            timer: Duration::ZERO,
            frozen: None,
        });
        let mut world = Self {
            now: Duration::ZERO,
            skew: Duration::ZERO,
            queue: BinaryHeap::new(),
            dues: BTreeMap::new(),
            next: 0,
            boxes: boxes.collect(),
            host: Host::new(filters, mutation),
            host_up: true,
            host_life: 0,
            links: BTreeMap::new(),
            next_link: 0,
            oracle: Oracle::default(),
            limits: Arc::new(limits),
            mutation,
            serial: 0,
            faults: *dice.pick(&[0, 2, 5, 10]),
            trace: traced.then(String::new),
            steps: 0,
            seen: std::collections::BTreeSet::new(),
            dice,
        };
        world.plan();
        world
    }

    /// What will happen to this world.
    fn plan(&mut self) {
        for _ in 0..self.dice.between(3, 10) {
            self.work_on(None);
        }
        self.host.store.disk.sync();
        self.host.store.look();
        for number in 0..self.boxes.len() {
            self.at_random(Due::Boot(Some(number)), TROUBLE / 8);
        }
        let everybody = self.boxes.len();
        for _ in 0..self.dice.between(5, 25) {
            let who = self.dice.below(everybody + 1).checked_sub(1);
            self.at_random(Due::Edit(who), TROUBLE);
        }
        if self.faults > 0 {
            for _ in 0..self.dice.below(5) {
                let who = self.dice.below(everybody + 1).checked_sub(1);
                self.at_random(Due::Crash(who), TROUBLE);
            }
            for _ in 0..self.dice.below(3) {
                let who = self.dice.below(everybody);
                self.at_random(Due::Partition(who), TROUBLE);
            }
            let rare = [
                (Due::Prune, 30),
                (Due::Restore, 8),
                (Due::Rebirth(self.dice.below(everybody)), 10),
                (Due::ClockJump, 15),
            ];
            if self.dice.chance(15) {
                let who = self.dice.below(everybody);
                self.at_random(Due::Freeze(who), TROUBLE);
                self.at_random(Due::Thaw(who), TROUBLE);
            }
            for (due, percent) in rare {
                if self.dice.chance(percent) {
                    self.at_random(due, TROUBLE);
                }
            }
        }
    }

    fn at_random(&mut self, due: Due, within: Duration) {
        let time = within.mul_f64(self.dice.below(1000) as f64 / 1000.0);
        self.at(time, due);
    }

    fn at(&mut self, time: Duration, due: Due) {
        self.next += 1;
        self.queue.push(Reverse((time, self.next)));
        self.dues.insert(self.next, due);
    }

    fn soon(&mut self, most_ms: u32, due: Due) {
        let delay = MS * u32::try_from(self.dice.below(most_ms as usize + 1)).unwrap_or(1);
        self.at(self.now + delay, due);
    }

    fn tell(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>9.3} {}", self.now.as_secs_f64(), words());
        }
    }

    /// Runs to the end; says what is wrong, or the digest of everything.
    pub fn run(&mut self) -> Result<ObjectId, String> {
        while let Some(Reverse((time, number))) = self.queue.pop() {
            let due = self.dues.remove(&number).expect("each is there once");
            self.now = self.now.max(time);
            self.steps += 1;
            if self.now > TROUBLE && self.is_quiet() {
                return self.check();
            }
            if self.steps > STEPS || self.now > END {
                return Err(self.fail(&format!("it does not come to rest: {}", self.restless())));
            }
            self.happen(due);
            if let Some(words) = self.oracle.wrong.first().cloned() {
                return Err(self.fail(&words));
            }
        }
        Err(self.fail("nothing happens any more"))
    }

    pub fn fail(&self, words: &str) -> String {
        format!("{words}\n{}", self.trace.as_deref().unwrap_or(""))
    }

    fn restless(&self) -> String {
        let state = |one: &Box_| {
            let session = one
                .session
                .as_ref()
                .map(|session| (session.place(), session.host_place(), session.is_idle()));
            format!("{session:?} link {:?} cut {}", one.link, one.cut)
        };
        let all: Vec<_> = self.boxes.iter().map(state).collect();
        format!("host at {:?}, {all:?}", self.host.place())
    }

    fn in_trouble(&self) -> bool {
        self.now <= TROUBLE
    }

    fn clock(&self) -> Duration {
        self.now + self.skew
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Edit(who) => self.edit(who),
            Due::Look(who) => self.look(who),
            Due::Crash(who) => self.crash(who),
            Due::Boot(who) => self.boot(who),
            Due::Partition(who) => {
                self.tell(|| format!("sandbox {who} is cut off"));
                self.boxes[who].cut = true;
                self.soon(4000, Due::Heal(who));
            }
            Due::Heal(who) => self.boxes[who].cut = false,
            Due::Prune => {
                self.host.oldest = self.host.store.head();
                self.tell(|| "the host prunes its log".to_owned());
            }
            Due::Restore => self.restore(),
            Due::Rebirth(who) => self.rebirth(who),
            Due::Freeze(who) => {
                let store = &self.boxes[who].replica.store;
                self.boxes[who].frozen = Some((store.head(), store.durable.clone()));
            }
            Due::Thaw(who) => self.thaw(who),
            Due::ClockJump => self.wake_from_sleep(),
            Due::ToHost(link, bytes) => self.arrive_at_host(link, &bytes),
            Due::ToSandbox(link, bytes) => self.arrive_at_sandbox(link, &bytes),
            Due::LinkDown(link, at_host) => self.link_down(link, at_host),
            Due::Connect(who, life) => self.connect(who, life),
            Due::HostWork(link, life, effect) => self.host_work(link, life, *effect),
            Due::SandboxWork(who, life, effect) => self.sandbox_work(who, life, *effect),
            Due::HostTick(link, time) => {
                if self.links.get(&link).is_some_and(|link| link.timer == time) {
                    self.host_event(link, host::Event::Tick);
                }
            }
            Due::SandboxTick(who, life, time) => {
                if self.boxes[who].life == life && self.boxes[who].timer == time {
                    self.sandbox_event(who, sandbox::Event::Tick);
                }
            }
        }
    }

    /// An hour goes by while everybody sleeps.
    fn wake_from_sleep(&mut self) {
        self.tell(|| "everybody sleeps for an hour".to_owned());
        self.skew += Duration::from_secs(3600);
        let links: Vec<_> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.host_event(link, host::Event::Tick));
        (0..self.boxes.len()).for_each(|who| self.sandbox_event(who, sandbox::Event::Tick));
    }

    // --- people ------------------------------------------------------------------------------

    fn edit(&mut self, who: Option<usize>) {
        let up = who.map_or(self.host_up, |who| self.boxes[who].session.is_some());
        if up {
            self.work_on(who);
            self.soon(300, Due::Look(who));
        }
    }

    fn work_on(&mut self, who: Option<usize>) {
        let (dice, serial) = (&mut self.dice, &mut self.serial);
        let words = match who {
            None => work(&mut self.host.store, serial, dice, &mut self.oracle),
            Some(who) => work(&mut self.boxes[who].replica.store, serial, dice, &mut self.oracle),
        };
        self.tell(|| format!("{}: {words}", name(who)));
    }

    fn look(&mut self, who: Option<usize>) {
        match who {
            None if self.host_up && self.host.store.look() => self.log_grew(),
            Some(who)
                if self.boxes[who].session.is_some() && self.boxes[who].replica.store.look() =>
            {
                self.sandbox_event(who, sandbox::Event::LocalChanges);
            }
            _ => {}
        }
    }

    fn log_grew(&mut self) {
        let place = self.host.place();
        let links: Vec<_> = self.links.keys().copied().collect();
        for link in links {
            self.host_event(link, host::Event::LogGrew(place));
        }
    }

    // --- power -------------------------------------------------------------------------------

    fn crash(&mut self, who: Option<usize>) {
        self.tell(|| format!("{} crashes", name(who)));
        match who {
            None => {
                self.host_up = false;
                self.host_life += 1;
                let lost = self.host.store.crash(&mut self.dice);
                lost.iter().for_each(|(path, version)| self.oracle.made(path, version));
                let links: Vec<_> = self.links.keys().copied().collect();
                for link in links {
                    self.drop_host_end(link);
                }
            }
            Some(who) => {
                let one = &mut self.boxes[who];
                one.session = None;
                one.life += 1;
                let lost = one.replica.store.crash(&mut self.dice);
                lost.iter().for_each(|(path, version)| self.oracle.made(path, version));
                if let Some(link) = self.boxes[who].link.take() {
                    self.drop_sandbox_end(link);
                }
            }
        }
        self.soon(1500, Due::Boot(who));
    }

    fn boot(&mut self, who: Option<usize>) {
        match who {
            None => {
                if !self.host_up {
                    self.host.store.open();
                    self.host.store.look();
                    self.host_up = true;
                }
            }
            Some(who) => {
                let random = self.dice.roll();
                let one = &mut self.boxes[who];
                if one.session.is_some() {
                    return;
                }
                one.replica.store.careless = self.mutation == Mutation::RecordBeforeSync;
                one.replica.store.open();
                self.oracle.woke_up(who, one.replica.store.durable.place);
                one.replica.store.look();
                one.session =
                    Some(SandboxSession::new(one.replica.begin(), self.limits.clone(), random));
                self.sandbox_event(who, sandbox::Event::Start);
            }
        }
    }

    fn restore(&mut self) {
        if !self.host_up {
            return;
        }
        self.crash(None);
        let at = Seq(self.dice.below(self.host.store.head().0 as usize + 1) as u64);
        let life = u8::try_from(self.host_life % 200).unwrap_or(0) + 2;
        self.host.store.open();
        let kept = super::host::Kept::default();
        self.host.store = self.host.store.restored(at, Epoch([life; 16]), kept);
        self.host.oldest = Seq(0);
        self.oracle.restored();
        self.tell(|| format!("the host comes back as it was at {}", at.0));
    }

    fn rebirth(&mut self, who: usize) {
        self.crash(Some(who));
        self.tell(|| format!("sandbox {who} is born again"));
        let one = &mut self.boxes[who];
        one.births += 1;
        one.frozen = None;
        one.replica = Replica::new(who, one.births, one.replica.filters.clone());
        self.oracle.reborn(who);
    }

    /// A machine goes on from a copy of before: what it wrote after that never was, for it.
    fn thaw(&mut self, who: usize) {
        let Some((at, kept)) = self.boxes[who].frozen.take() else { return };
        self.crash(Some(who));
        self.tell(|| format!("sandbox {who} goes on from a copy of before"));
        let one = &mut self.boxes[who];
        one.births += 1;
        one.replica.store.open();
        let epoch = one.replica.store.epoch;
        one.replica.store = one.replica.store.restored(at, epoch, kept);
        self.oracle.reborn(who);
        // What it has not sent yet, or sent and forgot, it means again.
        for write in one.replica.unanswered() {
            self.oracle.made(&write.path, &write.after);
        }
    }

    // --- links -------------------------------------------------------------------------------

    fn connect(&mut self, who: usize, life: u32) {
        let one = &self.boxes[who];
        if one.life != life {
            return;
        }
        if !self.host_up || one.cut {
            return self.sandbox_event(who, sandbox::Event::LinkLost("nobody there".to_owned()));
        }
        self.next_link += 1;
        let host_end = Some(HostSession::new(self.limits.clone()));
        let births = self.boxes[who].births;
        let link = Link {
            sandbox: who,
            births,
            host_end,
            sandbox_end: true,
            up: self.now,
            down: self.now,
            timer: Duration::ZERO,
        };
        self.links.insert(self.next_link, link);
        self.boxes[who].link = Some(self.next_link);
        let number = self.next_link;
        self.host_event(number, host::Event::Tick);
        self.sandbox_event(who, sandbox::Event::Connected);
    }

    /// Puts a frame on its way: late, twice, or never.
    fn send(&mut self, link: usize, frame: &Frame, up: bool) {
        let Some(who) = self.links.get(&link).map(|link| link.sandbox) else { return };
        self.tell(|| format!("sandbox {who} {} {}", if up { "->" } else { "<-" }, brief(frame)));
        self.seen.insert(kind(frame));
        let faulty = self.in_trouble();
        if self.boxes[who].cut || faulty && self.dice.chance(self.faults / 2) {
            return self.tell(|| "        lost".to_owned());
        }
        let copies = if faulty && self.dice.chance(self.faults / 2) { 2 } else { 1 };
        let bytes = encode(frame)[4..].to_vec();
        for _ in 0..copies {
            let delay = MS * u32::try_from(self.dice.between(1, 20)).unwrap_or(1);
            let jumps = faulty && self.dice.chance(self.faults);
            let Some(there) = self.links.get_mut(&link) else { return };
            let last = if up { &mut there.up } else { &mut there.down };
            let mut time = self.now + delay;
            if !jumps {
                time = time.max(*last);
                *last = time;
            }
            let due = if up {
                Due::ToHost(link, bytes.clone())
            } else {
                Due::ToSandbox(link, bytes.clone())
            };
            self.at(time, due);
        }
    }

    fn arrive_at_host(&mut self, link: usize, bytes: &[u8]) {
        let frame = decode(bytes).expect("what was encoded decodes");
        if let (Frame::Ack(ack), Some(there)) = (&frame, self.links.get(&link))
            && let Some(place) = ack.up_to
            && there.births == self.boxes[there.sandbox].births
        {
            self.oracle.acked(there.sandbox, place);
        }
        self.host_event(link, host::Event::Frame(frame));
    }

    fn arrive_at_sandbox(&mut self, link: usize, bytes: &[u8]) {
        let Some(who) =
            self.links.get(&link).filter(|link| link.sandbox_end).map(|link| link.sandbox)
        else {
            return;
        };
        if self.boxes[who].link == Some(link) {
            let frame = decode(bytes).expect("what was encoded decodes");
            self.sandbox_event(who, sandbox::Event::Frame(frame));
        }
    }

    fn drop_host_end(&mut self, link: usize) {
        let Some(there) = self.links.get_mut(&link) else { return };
        if there.host_end.take().is_some() {
            // Now and then nobody is told.
            if self.dice.chance(80) {
                let time = self.now.max(self.links[&link].down) + 5 * MS;
                self.at(time, Due::LinkDown(link, false));
            }
        }
        self.forget(link);
    }

    fn drop_sandbox_end(&mut self, link: usize) {
        let Some(there) = self.links.get_mut(&link) else { return };
        there.sandbox_end = false;
        if self.dice.chance(80) {
            let time = self.now.max(self.links[&link].up) + 5 * MS;
            self.at(time, Due::LinkDown(link, true));
        }
        self.forget(link);
    }

    fn forget(&mut self, link: usize) {
        if self.links.get(&link).is_some_and(|link| link.host_end.is_none() && !link.sandbox_end) {
            self.links.remove(&link);
        }
    }

    fn link_down(&mut self, link: usize, at_host: bool) {
        let Some(there) = self.links.get_mut(&link) else { return };
        if at_host {
            there.host_end = None;
            return self.forget(link);
        }
        let who = there.sandbox;
        there.sandbox_end = false;
        self.forget(link);
        if self.boxes[who].link == Some(link) {
            self.boxes[who].link = None;
            self.sandbox_event(who, sandbox::Event::LinkLost("the link broke".to_owned()));
        }
    }

    // --- sessions ----------------------------------------------------------------------------

    fn host_event(&mut self, link: usize, event: host::Event) {
        let clock = self.clock();
        let Some(session) = self.links.get_mut(&link).and_then(|link| link.host_end.as_mut())
        else {
            return;
        };
        let effects = session.handle(event, clock);
        for effect in effects {
            match effect {
                host::Effect::Send(frame) => self.send(link, &frame, false),
                host::Effect::SetTimer(time) => {
                    let time = time.saturating_sub(self.skew).max(self.now);
                    if let Some(there) = self.links.get_mut(&link) {
                        there.timer = time;
                    }
                    self.at(time, Due::HostTick(link, time));
                }
                host::Effect::Close(words) => {
                    self.tell(|| format!("the host closes link {link}: {words}"));
                    self.drop_host_end(link);
                }
                host::Effect::Progress(_) | host::Effect::Filter(_) => {}
                effect => self.soon(10, Due::HostWork(link, self.host_life, Box::new(effect))),
            }
        }
    }

    fn fuse(&mut self) -> Fuse {
        let blows = self.in_trouble() && self.dice.chance(self.faults / 2);
        Fuse(blows.then(|| self.dice.below(8)))
    }

    fn host_work(&mut self, link: usize, life: u32, effect: host::Effect) {
        if life != self.host_life || !self.host_up {
            return;
        }
        let Some(who) = self.links.get(&link).map(|link| link.sandbox) else { return };
        let id = self.boxes[who].replica.id;
        let before = self.host.store.head();
        let mut fuse = self.fuse();
        let events = self.host.carry_out(who, id, effect, &mut fuse, &mut self.oracle);
        let Ok(events) = events else { return self.crash(None) };
        if self.host.store.head() != before {
            self.log_grew();
        }
        for event in events {
            self.host_event(link, event);
        }
    }

    fn sandbox_event(&mut self, who: usize, event: sandbox::Event) {
        let clock = self.clock();
        let Some(session) = &mut self.boxes[who].session else { return };
        let effects = session.handle(event, clock);
        let life = self.boxes[who].life;
        for effect in effects {
            match effect {
                sandbox::Effect::Send(frame) => {
                    if let Some(link) = self.boxes[who].link {
                        self.send(link, &frame, true);
                    }
                }
                sandbox::Effect::Connect => self.soon(10, Due::Connect(who, life)),
                sandbox::Effect::Disconnect(words) => {
                    self.tell(|| format!("sandbox {who} hangs up: {words}"));
                    if let Some(link) = self.boxes[who].link.take() {
                        self.drop_sandbox_end(link);
                    }
                }
                sandbox::Effect::SetTimer(time) => {
                    let time = time.saturating_sub(self.skew).max(self.now);
                    self.boxes[who].timer = time;
                    self.at(time, Due::SandboxTick(who, life, time));
                }
                sandbox::Effect::ApplyPush(push) if self.mutation == Mutation::AckBeforeDurable => {
                    let id = push.id;
                    self.soon(
                        200,
                        Due::SandboxWork(who, life, Box::new(sandbox::Effect::ApplyPush(push))),
                    );
                    self.sandbox_event(who, sandbox::Event::Applied { id });
                }
                effect => self.soon(10, Due::SandboxWork(who, life, Box::new(effect))),
            }
        }
    }

    fn sandbox_work(&mut self, who: usize, life: u32, effect: sandbox::Effect) {
        if self.boxes[who].life != life {
            return;
        }
        let mut fuse = self.fuse();
        let one = &mut self.boxes[who];
        match one.replica.carry_out(effect, &mut fuse, &mut self.oracle) {
            Ok(events) => events.into_iter().for_each(|event| self.sandbox_event(who, event)),
            Err(_) => self.crash(Some(who)),
        }
    }

    // --- the end -----------------------------------------------------------------------------

    fn is_quiet(&self) -> bool {
        let place = Some(self.host.place());
        let idle = |one: &Box_| {
            one.session
                .as_ref()
                .is_some_and(|session| session.is_idle() && session.place() == place)
        };
        let waits =
            |due: &Due| matches!(due, Due::HostTick(..) | Due::SandboxTick(..) | Due::LinkDown(..));
        self.host_up && self.boxes.iter().all(idle) && self.dues.values().all(waits)
    }

    fn check(&mut self) -> Result<ObjectId, String> {
        let expected = self.host.visible();
        let mut all = String::new();
        for number in 0..self.boxes.len() {
            let one = &self.boxes[number];
            let found = one.replica.visible();
            let held = held(&one.replica);
            let wrong =
                disk::differing(&expected, &found).into_iter().find(|path| !held.contains(path));
            if let Some(path) = wrong {
                let (there, here) = (disk::at(&expected, &path), disk::at(&found, &path));
                self.oracle.wrong.push(format!(
                    "sandbox {number} has {here:?} at {path} and the host {there:?}"
                ));
            }
            let found: Vec<_> =
                one.replica.store.durable.conflicts.iter().map(|it| it.write.clone()).collect();
            let _ = write!(all, "{:?}{}", one.replica.store.known, found.len());
            self.oracle.check_conflicts(number, &found);
        }
        self.oracle.check_log(&self.host.store.rows);
        let _ = write!(all, "{:?}{:?}{}", self.host.store.known, self.host.place(), self.steps);
        match self.oracle.wrong.first() {
            Some(words) => Err(self.fail(words)),
            None => Ok(ObjectId::of(all.as_bytes())),
        }
    }
}
