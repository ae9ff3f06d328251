//! The shared log on a real server.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod contract;
mod kills;
mod server;
mod tampering;
