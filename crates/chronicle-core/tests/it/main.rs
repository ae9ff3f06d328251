//! The library through its public face, on real directories: one module per job.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

mod effects;
mod family;
mod lazy;
mod limits;
mod log;
mod pool;
mod pool_others;
mod property;
mod replica;
mod replica_crash;
mod replica_power;
mod retention;
mod store;
