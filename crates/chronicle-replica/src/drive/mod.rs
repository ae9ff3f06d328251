//! The drivers: links, clocks and threads around the state machines.
//!
//! Everything that waits for a peer is a task of a small runtime; everything that touches a workspace is done by one
//! thread that owns it, which blocks as `chronicle-core` does. Queues between them are bounded.

mod client;
mod clock;
mod connection;
mod given;
mod host;
mod incoming;
mod link;
mod merges;
mod metrics;
#[cfg(any(feature = "otel", test))]
mod otlp;
mod rules;
mod server;
mod syncing;
mod tls;
mod tokens;
mod unix;
mod websocket;

pub use client::{
    Asked, ClientOptions, End, NotFetched, SandboxWork, Target, Told, ask, ask_to_fetch, run,
};
pub use clock::wall_ns;
pub use host::SharedSlot;
pub use metrics::Trace;
pub use rules::{RuleFile, Rules, text as rules_text};
pub use server::{Listening, ServerError, ServerOptions, Stop, serve};
pub use tls::{Identity, Trust};
pub use tokens::{Right, TokenError, TokenRow, Tokens};
pub use websocket::Url;
