//! One connection, as its host sees it.

use std::time::Duration;

use super::{Effect, Event};
use crate::limits::Limits;

/// The host's side of one connection.
#[derive(Debug)]
pub struct HostSession {
    _limits: Limits,
}

impl HostSession {
    /// A session for somebody who has just connected.
    pub fn new(limits: Limits) -> Self {
        Self { _limits: limits }
    }

    /// Takes what happened and says what to do. `now` is the time since any moment, by a clock that also goes on while
    /// the machine sleeps; it may jump.
    pub fn handle(&mut self, _event: Event, _now: Duration) -> Vec<Effect> {
        Vec::new()
    }
}
