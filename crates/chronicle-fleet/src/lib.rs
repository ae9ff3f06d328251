//! The log that several hosts share, in PostgreSQL.
//!
//! One row per record with its canonical bytes, numbered without gaps by locking the row that says where the log ends.
//! Everything blocks: the runtime that the network needs is inside, so nothing here may be called from within another
//! one. The server is believed to keep what it said that it has, and nothing else: bytes are compared with the chain
//! when they are read.

mod address;
mod fault;
mod log;
mod schema;

pub use address::Address;
pub use log::PostgresLog;

/// The format of this crate: the tables of a shared log.
pub const FORMATS: &[chronicle_core::Format] = &[chronicle_core::format(
    "shared log",
    "`version` of the table `format`",
    1,
    schema::VERSION as u64,
)];
