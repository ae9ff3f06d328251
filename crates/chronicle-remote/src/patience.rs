//! How often and how long something is tried again.

use std::time::{Duration, Instant};

use crate::random::random_bytes;

/// The bounds of trying again: whichever is reached first ends it.
#[derive(Debug, Clone)]
pub struct Patience {
    /// How often it is tried, the first time included.
    pub attempts: u32,
    /// The pause after the first failure; each further one is up to twice as long.
    pub first_pause: Duration,
    /// The longest pause that is made unasked.
    pub longest_pause: Duration,
    /// The time after which nothing is tried again.
    pub total: Duration,
    /// How long one request may take, beyond what its length needs.
    pub request: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 8,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            total: Duration::from_secs(120),
            request: Duration::from_secs(30),
        }
    }
}

/// A line that carries less than this many bytes in a second counts as dead.
const SLOWEST: u64 = 128 << 10;

impl Patience {
    /// How long a request with so many bytes in it may take.
    pub(crate) fn for_length(&self, length: u64) -> Duration {
        self.request + Duration::from_secs(length / SLOWEST)
    }
}

/// One thing that is tried until it succeeds or patience ends.
pub(crate) struct Attempts<'a> {
    patience: &'a Patience,
    begun: Instant,
    made: u32,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(patience: &'a Patience) -> Self {
        Self { patience, begun: Instant::now(), made: 0 }
    }

    /// How many failed.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    /// Counts a failure and says how long to wait before the next attempt; `None`: no more.
    pub(crate) fn pause(&mut self, asked: Option<Duration>) -> Option<Duration> {
        self.made += 1;
        let own = pause(self.patience, self.made, u16::from_le_bytes(random_bytes()));
        let pause = asked.map_or(own, |asked| asked.max(own));
        let in_time = self.begun.elapsed() + pause <= self.patience.total;
        (self.made < self.patience.attempts && in_time).then_some(pause)
    }
}

/// Between half of the pause and all of it, so that those who failed together do not return together.
fn pause(patience: &Patience, failures: u32, dice: u16) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1).min(20));
    let longest = patience.first_pause.saturating_mul(doubled).min(patience.longest_pause);
    longest / 2 + (longest / 2).mul_f64(f64::from(dice) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_uneven() {
        let patience = Patience::default();
        let whole = |failures| pause(&patience, failures, u16::MAX).as_millis();
        assert_eq!([1, 2, 3, 8, 99].map(whole), [100, 200, 400, 10_000, 10_000]);
        assert_eq!(pause(&patience, 1, 0).as_millis(), 50);
    }

    #[test]
    fn attempts_end_by_number_and_by_time() {
        let patience = Patience { attempts: 3, ..Patience::default() };
        let mut attempts = Attempts::new(&patience);
        assert!(attempts.pause(None).is_some());
        assert!(attempts.pause(Some(Duration::from_secs(5))) >= Some(Duration::from_secs(5)));
        assert_eq!(attempts.pause(None), None);

        let patience = Patience::default();
        let mut attempts = Attempts::new(&patience);
        assert_eq!(
            attempts.pause(Some(Duration::from_secs(3600))),
            None,
            "more than there is time"
        );
    }
}
