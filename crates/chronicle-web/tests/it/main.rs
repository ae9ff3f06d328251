//! The API over real sockets, on real workspaces.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod document;
mod gate;
mod looking;
mod recording;
mod support;
mod taking_back;
