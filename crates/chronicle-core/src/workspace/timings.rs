//! How long the steps of a command took, for the benchmark.

use std::time::Instant;

/// Tells on standard error how long each step took, if `CHRONICLE_TIMINGS` asks for it.
pub(super) struct Timings {
    since: Option<Instant>,
}

impl Timings {
    pub(super) fn start() -> Self {
        Self { since: std::env::var_os("CHRONICLE_TIMINGS").map(|_| Instant::now()) }
    }

    /// Tells how long the step that just ended took.
    #[expect(clippy::print_stderr, reason = "it speaks only when a benchmark asks")]
    pub(super) fn step(&mut self, name: &str) {
        if let Some(since) = &mut self.since {
            eprintln!("timing {name} {}", since.elapsed().as_micros());
            *since = Instant::now();
        }
    }
}
