//! The verb of the page and its API.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::logging::LoggingArgs;

/// Show the timeline, turns and files in a browser, and take back from there
///
/// Serves the page and the API under /api/v1 on this machine, and opens the browser with a link that
/// counts once. Programs use the socket, or a token from the home's directory web.
#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// Listen on this address; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Listen at this Unix socket too, for your own programs, without a token
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Let nobody change anything
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Do not open a browser, only print the link
    #[arg(long)]
    pub(crate) no_open: bool,
    /// A further name by which browsers may call this server; may be given several times
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// Allow an address that other machines reach: whoever is on the way reads everything
    #[arg(long)]
    pub(crate) expose: bool,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}
