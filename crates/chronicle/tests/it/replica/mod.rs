//! Replication with the real program: a host, replicas, sockets, kills, and those who mean harm.
#![allow(clippy::print_stderr, reason = "what was skipped and what differs is told")]

mod filters;
mod fleet;
mod hostile;
mod kills;
mod lazy;
mod links;
mod many;
mod peer;
mod scene;
mod walk;
mod websocket;
