//! What time it is: the system's, or a test's.

use crate::id::Time;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Time;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Time(now.tv_sec * 1_000_000_000 + now.tv_nsec)
    }
}
