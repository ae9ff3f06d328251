//! What Chronicle's own tests stand on: real directories, random work, and a model of the rules.
//!
//! Nothing here is shipped. Failures panic with the path or the seed, since a test has nobody to
//! return an error to.
#![allow(clippy::missing_panics_doc, reason = "everything here is for tests, which panic to fail")]

pub mod application;
pub mod clients;
pub mod contract;
pub mod dice;
pub mod drive;
pub mod env;
pub mod fault_contract;
pub mod faulty;
pub mod fuzz;
pub mod garage;
pub mod git;
pub mod load;
pub mod log_contract;
pub mod lossy;
pub mod model;
pub mod moto;
pub mod mounted;
pub mod postgres;
pub mod rules;
pub mod shared;
pub mod strace;
pub mod tree;
pub mod work;
