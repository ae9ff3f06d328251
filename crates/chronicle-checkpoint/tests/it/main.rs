//! Checkpoints as a whole: real repositories, databases and directories.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod contract;
mod damage;
mod damage_data;
mod damage_store;
mod database;
mod harness;
mod harness_drivers;
mod harness_jj;
mod kill;
mod load;
mod postgres;
mod protocol;
mod scene;
mod words;
