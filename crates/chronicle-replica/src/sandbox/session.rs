//! A replica's work over all its links.

use std::time::Duration;

use super::{Begin, Effect, Event};
use crate::limits::Limits;

/// A sandbox's side.
#[derive(Debug)]
pub struct SandboxSession {
    _begin: Begin,
    _limits: Limits,
}

impl SandboxSession {
    /// A session that begins with what is durable; `random` spreads the times at which many come back.
    pub fn new(begin: Begin, limits: Limits, _random: u64) -> Self {
        Self { _begin: begin, _limits: limits }
    }

    /// Takes what happened and says what to do. `now` is the time since any moment, by a clock that also goes on while
    /// the machine sleeps; it may jump.
    pub fn handle(&mut self, _event: Event, _now: Duration) -> Vec<Effect> {
        Vec::new()
    }
}
