//! Chronicle for models: the undo layer as an MCP server, over stdio or HTTP on loopback.
//!
//! A model can list, search and compare freely. What changes the workspace it can only do with the
//! id of a plan that this same process showed it before, and only to its own session's work; the
//! plan itself says whose work it touches, so no way of naming a moment leads around that.
//!
//! This is a crate of its own so that neither the core nor the path of the hooks knows a runtime.

mod answer;
mod arguments;
mod http;
mod own;
mod previews;
mod reading;
mod refusal;
mod schema;
mod serve;
mod server;
mod taking_back;
mod token;
mod tools;
mod who;
mod words;

pub use http::{NotLoopback, loopback};
pub use serve::{ServeError, serve_http, serve_stdio};
pub use server::{Options, Server};
pub use who::{GivenSessions, SessionsOfParents, WhoAmI};
