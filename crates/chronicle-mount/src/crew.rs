//! Who answers requests: one thread as a rule, others only while it is held up.
//!
//! Nearly every request comes from somebody who waits for its answer. Threads that take turns then cost more than they
//! bring: each turn wakes another core, and what the last one had in its cache is fetched again. So all but one rest,
//! and one of those that rest keeps watch.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// How often whoever keeps watch looks, while there are requests.
const TICK: Duration = Duration::from_millis(1);
/// So many looks without a request, and it sleeps until there is one.
const QUIET: u32 = 20;
/// So many more looks at which requests were waiting than others, and it helps.
const WAITING: u32 = 4;
/// How long it helps before it looks again whether that is needed.
const STINT: Duration = Duration::from_millis(50);

/// How long the next request is waited for before sleeping.
const LINGER: Duration = Duration::from_micros(60);
/// A gap that long between two questions means that somebody else ran on this core.
const PREEMPTED: Duration = Duration::from_micros(8);
/// How often in a row that can have been right until once more makes it no likelier.
const HOPE: i32 = 16;
/// For how many requests it is given up, and how many times that at most.
const PROBE: i32 = 256;
const DESPAIR: i32 = 64;

/// The threads that answer requests.
#[derive(Debug)]
pub(crate) struct Crew {
    /// Where requests come from; asked only whether some are waiting.
    connection: Option<OwnedFd>,
    /// How many threads there are, and how many of these have answered something by now.
    size: usize,
    met: AtomicUsize,
    /// Threads that wait for requests or answer them, and those that answer one.
    on_duty: AtomicUsize,
    busy: AtomicUsize,
    answered: AtomicU64,
    /// Whose the last request was, and how often that was somebody else than before.
    asker: AtomicU32,
    askers: AtomicU32,
    /// Whoever keeps watch sleeps until it is woken.
    asleep: AtomicBool,
    /// Until when, in microseconds since the beginning, more than one is wanted.
    wanted_until: AtomicU64,
    /// How likely it is that the next request comes at once; below zero it is not tried for a while.
    hope: AtomicI32,
    /// There are cores that nobody else wants.
    is_roomy: AtomicBool,
    despair: AtomicI32,
    begun: Instant,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody who rests keeps watch.
    watched: bool,
    /// How many of those who rest are asked to come.
    called: usize,
    over: bool,
    seats: Vec<Arc<Seat>>,
}

thread_local! {
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// Ends with its thread, which ends with the mount; those who rest must hear of it.
struct Member {
    crew: Arc<Crew>,
    seat: Arc<Seat>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crew.dismiss();
    }
}

/// One of the threads, as others see it.
#[derive(Debug)]
struct Seat {
    thread: i32,
    busy: AtomicBool,
}

impl Seat {
    /// Whether it waits for something within a request. One that only gets no core would not be helped by another
    /// that needs one too.
    fn is_held_up(&self) -> bool {
        let path = format!("/proc/self/task/{}/stat", self.thread);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let state = text.rsplit(") ").next().and_then(|rest| rest.chars().next());
        self.busy.load(Ordering::Relaxed) && matches!(state, Some('S' | 'D'))
    }
}

/// A request that is being answered.
pub(crate) struct Duty<'a>(&'a Crew);

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        set_busy(false);
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        self.0.answered.fetch_add(1, Ordering::Relaxed);
        if self.0.on_duty.load(Ordering::Relaxed) > 1 {
            self.0.rest_if_too_many();
        } else {
            self.0.linger();
        }
    }
}

/// How many threads of the whole machine want a core, over the last few looks.
struct Load {
    file: Option<std::fs::File>,
    /// In eighths.
    wanting: u64,
    cores: u64,
}

impl Load {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let file = std::fs::File::open("/proc/loadavg").ok();
        Self { file, wanting: (cores + 2) * 8, cores }
    }

    /// Whether whoever asks and whoever answers can each have a core. This look is one of those counted.
    fn is_low(&mut self) -> bool {
        let mut room = [0; 64];
        let Some(file) = &self.file else { return false };
        let length = file.read_at(&mut room, 0).unwrap_or(0);
        let wanting = std::str::from_utf8(&room[..length])
            .ok()
            .and_then(|text| text.split(' ').nth(3)?.split('/').next()?.parse::<u64>().ok());
        self.wanting = self.wanting * 7 / 8 + wanting.unwrap_or(u64::from(u32::MAX));
        self.cores > 1 && self.wanting * 4 <= (self.cores * 4 + 3) * 8
    }
}

fn set_busy(busy: bool) {
    MEMBER.with_borrow(|member| {
        if let Some(member) = member {
            member.seat.busy.store(busy, Ordering::Relaxed);
        }
    });
}

impl Crew {
    /// So many threads, all of which wait for requests.
    pub(crate) fn new(size: usize, connection: Option<OwnedFd>) -> Arc<Self> {
        Arc::new(Self {
            connection,
            size,
            met: AtomicUsize::new(0),
            on_duty: AtomicUsize::new(size),
            busy: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            asker: AtomicU32::new(0),
            askers: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            wanted_until: AtomicU64::new(0),
            hope: AtomicI32::new(0),
            is_roomy: AtomicBool::new(false),
            despair: AtomicI32::new(1),
            begun: Instant::now(),
            state: Mutex::default(),
            bell: Condvar::new(),
        })
    }

    /// This thread has a request. It may rest when what this returns is dropped, so the answer must be out by then.
    pub(crate) fn enter(self: &Arc<Self>, asker: u32) -> Duty<'_> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        // What the kernel asks by itself is nobody's.
        if asker != 0 && self.asker.swap(asker, Ordering::Relaxed) != asker {
            self.askers.fetch_add(1, Ordering::Relaxed);
        }
        if self.met.load(Ordering::Relaxed) < self.size {
            self.meet();
        }
        set_busy(true);
        if self.asleep.load(Ordering::SeqCst) {
            self.wake_watch();
        }
        Duty(self)
    }

    /// Stays awake for a moment if the next request usually comes by then: to be woken costs both sides more.
    fn linger(&self) {
        if !self.is_roomy.load(Ordering::Relaxed) {
            return;
        }
        let hope = self.hope.load(Ordering::Relaxed);
        if hope < 0 {
            self.hope.store(hope + 1, Ordering::Relaxed);
            return;
        }
        let begun = Instant::now();
        let mut before = Duration::ZERO;
        while !self.has_requests() {
            let now = begun.elapsed();
            if now > LINGER || now - before > PREEMPTED {
                self.hope.store(self.less_hope(hope), Ordering::Relaxed);
                return;
            }
            before = now;
        }
        self.hope.store((hope + 1).min(HOPE), Ordering::Relaxed);
        if hope == HOPE {
            self.despair.store(1, Ordering::Relaxed);
        }
    }

    /// After a disappointment. Whoever asks may wait for this very core; then it is tried ever more rarely.
    fn less_hope(&self, hope: i32) -> i32 {
        if hope > 3 {
            return hope - 4;
        }
        let despair = self.despair.load(Ordering::Relaxed);
        self.despair.store((despair * 2).min(DESPAIR), Ordering::Relaxed);
        -PROBE * despair
    }

    /// This thread is about to wait for something: others must answer meanwhile.
    pub(crate) fn will_wait(&self) {
        let mut state = self.state();
        if self.on_duty.load(Ordering::Relaxed) < self.size {
            state.called += 1;
            self.asleep.store(false, Ordering::SeqCst);
            self.bell.notify_all();
        }
    }

    /// Until every thread has answered something nobody rests: one that never did would not tell of the end.
    fn meet(self: &Arc<Self>) {
        MEMBER.with_borrow_mut(|member| {
            if member.is_none() {
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                let seat = Arc::new(Seat { thread, busy: AtomicBool::new(true) });
                self.state().seats.push(Arc::clone(&seat));
                *member = Some(Member { crew: Arc::clone(self), seat });
                self.met.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    fn wake_watch(&self) {
        let _state = self.state();
        self.asleep.store(false, Ordering::SeqCst);
        self.bell.notify_all();
    }

    fn dismiss(&self) {
        self.state().over = true;
        self.bell.notify_all();
    }

    fn rest_if_too_many(&self) {
        if self.met.load(Ordering::Relaxed) < self.size || self.is_more_wanted() {
            return;
        }
        let mut state = self.state();
        if state.over || self.on_duty.load(Ordering::Relaxed) <= 1 + state.called {
            return;
        }
        self.on_duty.fetch_sub(1, Ordering::SeqCst);
        while !state.over && state.called == 0 {
            state = if state.watched { self.wait(state) } else { self.watch(state) };
        }
        state.called = state.called.saturating_sub(1);
        self.on_duty.fetch_add(1, Ordering::SeqCst);
    }

    /// Looks until somebody has to come.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.watched = true;
        let (mut quiet, mut waiting, mut load) = (0, 0, Load::new());
        let mut before = self.answered.load(Ordering::Relaxed);
        let mut askers = self.askers.load(Ordering::Relaxed);
        while !state.over && state.called == 0 {
            state = if quiet < QUIET { self.tick(state) } else { self.sleep(state) };
            let now = self.answered.load(Ordering::Relaxed);
            let all_busy = self.busy.load(Ordering::SeqCst) >= self.on_duty.load(Ordering::Relaxed);
            let held_up = || state.seats.iter().filter(|seat| seat.is_held_up()).count();
            let is_held_up = all_busy
                && now == before
                && held_up() >= self.on_duty.load(Ordering::Relaxed)
                && now == self.answered.load(Ordering::Relaxed);
            // What one process asks is hardly ever asked at once.
            let asked = std::mem::replace(&mut askers, self.askers.load(Ordering::Relaxed));
            let is_full = all_busy && askers.wrapping_sub(asked) > 1;
            let has_more = is_full && self.has_requests();
            waiting = if has_more { waiting + 1 } else { u32::saturating_sub(waiting, 1) };
            // Those who help have enough to do.
            let is_worth_it = is_full && self.on_duty.load(Ordering::Relaxed) > 1;
            if waiting >= WAITING || is_worth_it {
                self.wanted_until.store(self.now() + STINT.as_micros() as u64, Ordering::Relaxed);
            }
            if is_held_up || waiting >= WAITING {
                state.called += 1;
            }
            self.is_roomy.store(load.is_low(), Ordering::Relaxed);
            quiet = if now == before && !all_busy { quiet + 1 } else { 0 };
            before = now;
        }
        state.watched = false;
        // Another of those who rest takes over.
        self.bell.notify_all();
        state
    }

    fn tick<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.bell.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until there is a request.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.asleep.store(true, Ordering::SeqCst);
        // Whoever came before that has not seen it. He may want the lock that is held here, so it is let go.
        if self.busy.load(Ordering::SeqCst) > 0 {
            self.asleep.store(false, Ordering::SeqCst);
            return self.tick(state);
        }
        while self.asleep.load(Ordering::SeqCst) && !state.over && state.called == 0 {
            state = self.wait(state);
        }
        self.asleep.store(false, Ordering::SeqCst);
        state
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.bell.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn has_requests(&self) -> bool {
        let Some(connection) = &self.connection else { return false };
        let mut ready = [PollFd::new(connection, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
    }

    fn is_more_wanted(&self) -> bool {
        let until = self.wanted_until.load(Ordering::Relaxed);
        until > 0 && self.now() < until
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Whoever keeps watch must not keep the lock from one who answers, while another waits for requests.
    #[test]
    fn who_is_about_to_wait_is_not_held_up_by_who_keeps_watch() {
        let crew = Crew::new(3, None);
        let (told, heard) = channel();
        for number in 0..3 {
            let (crew, told) = (Arc::clone(&crew), told.clone());
            std::thread::spawn(move || {
                // Not by answering something: whoever is the last to end that may rest already.
                crew.meet();
                set_busy(false);
                while crew.met.load(Ordering::Relaxed) < crew.size {
                    std::thread::yield_now();
                }
                match number {
                    // Rests at the end of it, and keeps watch.
                    0 => drop(crew.enter(1)),
                    1 => {
                        while !crew.state().watched {
                            std::thread::yield_now();
                        }
                        let duty = crew.enter(2);
                        std::thread::sleep(TICK * (2 * QUIET));
                        crew.will_wait();
                        let _ = told.send(());
                        drop(duty);
                    }
                    // As if it waited for a request.
                    _ => {
                        let mut state = crew.state();
                        while !state.over {
                            state = crew.wait(state);
                        }
                    }
                }
            });
        }
        heard.recv_timeout(Duration::from_secs(20)).expect("it is held up");
        crew.dismiss();
    }
}
