//! Replication between one host and many sandboxes.
//!
//! `wire` is what travels, byte by byte (see `docs/protocol.md`). `host` and `sandbox` are state machines: an event
//! and the time in, effects out. They do no I/O and read no clock; whoever drives them sends frames, calls
//! the workspace, and reports. What is decided about files is decided in `chronicle_core::replica`.

pub mod drive;
pub mod fetch;
pub mod filter;
pub mod host;
pub mod limits;
mod parts;
pub mod sandbox;
mod serve;
pub mod shared;
pub mod wire;

pub use filter::{DirectionalFilter, FilterPattern, Filters};
pub use host::HostSession;
pub use limits::Limits;
pub use sandbox::SandboxSession;
pub use shared::{SharedContents, SharedLog};
pub use wire::{Frame, Framer, WireError};

/// The oldest version of the protocol that this program speaks.
pub const OLDEST_VERSION: u16 = 1;
/// The newest version of the protocol that this program speaks.
pub const NEWEST_VERSION: u16 = 1;

/// The format of this crate: the protocol.
pub const FORMATS: &[chronicle_core::Format] = &[chronicle_core::format(
    "protocol of replication",
    "the handshake, both sides say theirs",
    OLDEST_VERSION as u64,
    NEWEST_VERSION as u64,
)];
