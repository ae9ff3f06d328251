//! Chronicle for browsers and programs: a page, and the HTTP API under `/api/v1` that it stands on.
//!
//! Everything here looks at a workspace or asks core to change it; nothing knows how capture or
//! rewind work. Core blocks, so each request works on a thread of its own, on a workspace opened for
//! it, and no lock outlives an answer.
//!
//! This is a crate of its own so that neither the core nor the path of the hooks knows a runtime.

mod access;
mod answer;
mod answers;
mod call;
mod events;
mod files;
mod gate;
mod health;
mod looking;
mod openapi;
mod page;
mod problem;
mod recording;
mod route;
mod routes;
mod serve;
mod shapes;
mod site;
mod taking_back;
mod token;

pub use openapi::document as openapi;
pub use serve::{Options, Ready, ServeError, serve};
