//! Work that several threads share: each has a stack of its own and gives half of it away when
//! another waits, so that the lock is taken a few times per walk and not per directory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The tasks that are nobody's yet.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    /// How many workers wait; a hint that is read without the lock.
    waiting: AtomicUsize,
    workers: usize,
}

struct State<T> {
    tasks: Vec<T>,
    waiting: usize,
    ended: bool,
}

impl<T> Queue<T> {
    /// A queue for so many workers.
    pub(super) fn new(tasks: Vec<T>, workers: usize) -> Self {
        let state = Mutex::new(State { tasks, waiting: 0, ended: false });
        Self { state, wake: Condvar::new(), waiting: AtomicUsize::new(0), workers }
    }

    /// The next task: the worker's own newest, else somebody else's; `None` when all is done.
    pub(super) fn next(&self, own: &mut Vec<T>) -> Option<T> {
        if own.len() > 1 && self.waiting.load(Ordering::Relaxed) > 0 {
            self.share(own);
        }
        own.pop().or_else(|| self.take(own))
    }

    /// Ends the others if the worker that holds this panics: they would wait for it for ever.
    pub(super) fn guard(&self) -> Guard<'_, T> {
        Guard(self)
    }

    /// Makes every worker stop after its present task.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.tasks.clear();
        self.wake.notify_all();
    }

    /// Gives the older half away: those tasks are nearer to the root and hold more work.
    fn share(&self, own: &mut Vec<T>) {
        let mut state = self.lock();
        if state.ended {
            own.clear();
        } else if state.waiting > 0 {
            state.tasks.extend(own.drain(..own.len() / 2));
            self.wake.notify_all();
        }
    }

    fn take(&self, own: &mut Vec<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if !state.tasks.is_empty() {
                let half = state.tasks.len() / 2;
                own.extend(state.tasks.drain(half..));
                return own.pop();
            }
            state.waiting += 1;
            if state.waiting == self.workers {
                state.ended = true;
                self.wake.notify_all();
                return None;
            }
            self.waiting.store(state.waiting, Ordering::Relaxed);
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            self.waiting.store(state.waiting, Ordering::Relaxed);
        }
    }

    /// A worker that panicked ends the whole look anyway; the tasks themselves are never torn.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's part in a queue.
pub(super) struct Guard<'q, T>(&'q Queue<T>);

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_and_every_task_it_makes_is_done_once() {
        let (queue, sum) = (Queue::new(vec![12_u64], 3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    while let Some(depth) = queue.next(&mut own) {
                        sum.fetch_add(1, Ordering::Relaxed);
                        own.extend(
                            depth.checked_sub(1).map(|less| [less; 2]).into_iter().flatten(),
                        );
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), (1 << 13) - 1);
    }

    #[test]
    fn a_stopped_queue_ends_its_workers() {
        let queue = Queue::new(vec![1, 2, 3], 2);
        let mut own = Vec::new();
        assert!(queue.next(&mut own).is_some());
        queue.stop();
        own.clear();
        assert_eq!(queue.next(&mut own), None);
    }
}
