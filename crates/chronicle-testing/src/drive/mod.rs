//! Drives a real workspace through the library and compares it with what must stand there.
//!
//! Three properties: exact rewinds of any work, the rules among several authors, and filters that
//! never cost a file. Each is a function of a seed; a failure tells the whole story of its case.
//! In all of them an operation is now and then done by a process that is killed in the middle.

mod child;
mod exact;
mod play;
mod world;

pub use child::obey;
pub use exact::{exact, filters};
pub use play::rules;
pub use world::deaths;

use chronicle_core::{RewindKind, RewindRequest};

/// What went wrong in one case, with everything that led to it.
pub type Story = String;

type Result<T = (), E = Story> = std::result::Result<T, E>;

/// One case of a property.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Decides everything that happens in it.
    pub seed: u64,
    /// The test of this binary that does nothing but call [`obey`] when it is asked to, and in how
    /// many of a hundred operations it is.
    pub kills: Option<(&'static str, usize)>,
}

fn rewind_to(target: &str, exact: bool) -> RewindRequest {
    RewindRequest { exact, ..RewindRequest::new(RewindKind::Rewind { target: target.to_owned() }) }
}
