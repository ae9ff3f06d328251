//! Tests through the public interface: in memory, against a server of our own, and against moto.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod contract;
mod environment;
mod faults;
mod garage;
mod history;
mod moto;
mod packs;
mod refusals;
mod sealed;
mod server;
mod shared;
mod trouble;
mod wire;
