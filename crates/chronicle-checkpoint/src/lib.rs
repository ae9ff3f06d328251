//! Checkpoints: code and data at one instant, and back.
//!
//! The protocol is here, and drivers that know how one kind of thing is frozen, read back and restored.
//! What stands in the workspace itself is captured and rewound by `chronicle-core`. Everything blocks.

mod contents;
mod create;
mod declare;
mod driver;
pub mod drivers;
mod durable;
mod error;
mod exchange;
mod freeze;
mod gate;
mod kept;
mod lockfile;
mod part;
mod programs;
mod recover;
mod restore;
mod schema;
mod tree;
mod tree_write;
mod words;

pub use contents::Contents;
pub use create::{CreateRequest, Created, create};
pub use declare::{Plan, as_toml, detect};
pub use driver::{
    Aside, Capture, Captured, Deadline, Driver, End, Fit, Restoration, Site, Staged, beside,
};
pub use error::{Context, Error, Problem, Result, sentence};
pub use exchange::{Exchange, Identify};
pub use gate::{Answer, Which};
pub use kept::{PartDifference, Verified, compare, drop_all, find, load, lock_text, verify};
pub use lockfile::{LockFile, LockedPart};
pub use part::{Parameters, Part, PartKind, is_name};
pub use recover::{Recovered, is_left, recover};
pub use restore::{RestoreRequest, Restored, answers, restore, restore_to};

/// The formats of this crate, in the order of docs/format.md.
pub const FORMATS: &[chronicle_core::Format] = &[
    chronicle_core::format("lock of a checkpoint", "`version`", 1, lockfile::VERSION as u64),
    chronicle_core::format("tree of a directory", "first line, `chronicle tree 1`", 1, 1),
];
