//! The server as clients see it: JSON-RPC lines in and out, on real workspaces in a scratch home.
#![allow(missing_docs, clippy::unwrap_used)]

mod bounds;
mod http;
mod own;
mod protocol;
mod reading;
mod support;
mod taking_back;
mod tools;
