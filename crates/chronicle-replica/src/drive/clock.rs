//! The two clocks of a driver: one that goes on while the machine sleeps, and the wall's.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine started, sleep included.
pub fn now() -> Duration {
    of(ClockId::Boottime)
}

/// Nanoseconds since 1970.
pub fn wall_ns() -> i64 {
    i64::try_from(of(ClockId::Realtime).as_nanos()).unwrap_or(i64::MAX)
}

fn of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
