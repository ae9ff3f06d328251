//! Chronicle: the undo layer for AI agents.
//!
//! This crate captures the state of a workspace before anything is destroyed, keeps it in a
//! content-addressed store and a tamper-evident log, and takes any of it back exactly.

mod chain;
mod clock;
mod codec;
mod entry;
mod error;
mod id;
mod known;
mod path;
mod record;
mod view;
