//! A host's driver: one thread per workspace in use, which owns it and carries out what the sessions want.

mod actor;
mod admit;
mod follow;
mod peers;
mod pushes;
mod work;

pub use actor::{HostHandle, HostOptions, start};
pub use follow::SharedSlot;
pub use peers::{Arrival, Came};
