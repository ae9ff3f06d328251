//! The mount as programs see it: every test mounts a directory for real.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod attributes;
mod content;
mod lazy;
mod many_files;
mod names;
mod open_files;
mod order;
mod outside;
mod past;
mod refused;
mod suites;
mod world;
