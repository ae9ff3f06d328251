//! Runs the server until its client goes away: the only place that makes a runtime.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::http::{self, NotLoopback, loopback};
use crate::server::{Options, Server};
use crate::token;

/// How many calls work at once; core's own threads come on top.
const CALLS_MOST: usize = 8;
/// How long work that nobody waits for any more may take at the end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Why the server could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not loopback.
    #[error(transparent)]
    NotLoopback(#[from] NotLoopback),
    /// The runtime could not start.
    #[error("Could not start the server")]
    Runtime(#[source] std::io::Error),
    /// The client did not speak the protocol.
    #[error("Could not talk to the client: {0}")]
    Client(String),
    /// The address is taken, or may not be.
    #[error("Could not listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The token's file is not there and cannot be made, or is open to others.
    #[error("Could not use the token in {}", .0.display())]
    Token(PathBuf, #[source] std::io::Error),
}

/// Serves the client at the other end of stdin and stdout until it goes away.
pub fn serve_stdio(options: Options) -> Result<(), ServeError> {
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let running = match Server::new(options).serve(stdio_pipes()).await {
            Ok(running) => running,
            // A client that goes away before it said anything wanted nothing.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(ServeError::Client(error.to_string())),
        };
        running.waiting().await.map_err(|error| ServeError::Client(error.to_string()))?;
        Ok(())
    });
    runtime.shutdown_timeout(LAST_PATIENCE);
    served
}

/// Serves clients over HTTP on a loopback address until the process ends.
///
/// `ready` is told the address that they connect to, and the file with the token that they need.
pub fn serve_http(
    options: Options,
    address: SocketAddr,
    ready: impl FnOnce(&str, &Path),
) -> Result<(), ServeError> {
    let address = loopback(address)?;
    let file = token::path(&options.home);
    let secret =
        token::read_or_make(&file).map_err(|source| ServeError::Token(file.clone(), source))?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let failed = |source| ServeError::Listen(address, source);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        ready(&format!("http://{bound}{}", http::PATH), &file);
        http::serve(Server::new(options), listener, &secret).await.map_err(failed)
    })
}

/// One thread for the conversation, and a few for the work.
fn runtime() -> Result<Runtime, ServeError> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(CALLS_MOST);
    builder.build().map_err(ServeError::Runtime)
}
