//! Tests of the whole crate, in one binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
#![allow(missing_docs, reason = "tests")]

mod filter;
mod hostile;
mod machines;
mod shared;
mod sim;
