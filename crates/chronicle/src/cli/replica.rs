//! The verbs of replication.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::logging::LoggingArgs;

/// Serve workspaces to replicas, on a Unix socket or over WebSocket
///
/// Every change is pushed to all replicas as soon as it is in the log, and what they write comes back.
/// Whoever connects on the socket as the same user needs no token; all others show one that `chronicle
/// token create` made. With --log several hosts serve one workspace, each from a directory of its own, and any of
/// them takes a replica of another over (see docs/fleet.md). Ends on SIGTERM and SIGINT.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The workspaces; by default the one around the current directory
    #[arg(value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// Listen at this Unix socket
    #[arg(long, value_name = "PATH", required_unless_present = "ws")]
    pub(crate) socket: Option<PathBuf>,
    /// Let this user connect to the socket too, with a token; may be given several times
    #[arg(long = "allow-uid", value_name = "UID", requires = "socket")]
    pub(crate) allow_uid: Vec<u32>,
    /// Listen for WebSockets on this address; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) ws: Option<SocketAddr>,
    /// A name by which clients may call this server; may be given several times
    #[arg(long = "host", value_name = "NAME", requires = "ws")]
    pub(crate) hosts: Vec<String>,
    /// The certificate with its chain, PEM: speak wss
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let other machines connect without TLS: whoever is on the way reads everything
    #[arg(long)]
    pub(crate) without_tls: bool,
    /// Share the log with other hosts: postgres://USER@HOST/DATABASE; contents go to this home's bucket
    #[arg(long, value_name = "URL")]
    pub(crate) log: Option<String>,
    /// Follow the shared log of this workspace, whose id another host's serve printed
    #[arg(long, value_name = "ID", requires = "log")]
    pub(crate) join: Option<String>,
    /// Serve metrics for Prometheus on this loopback address
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Append a line of JSON for each event to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The older name of what serve does
    #[arg(long, hide = true)]
    pub(crate) replication: bool,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}

/// Make a directory a replica of a host's workspace, and keep it one
///
/// An empty or new DIR is filled; one that is a replica already goes on where it was. What is written in DIR
/// goes back to the host; what the host does not take becomes a conflict (see `chronicle conflicts`).
/// Connects again, for ever, when the link is lost.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The host's Unix socket
    #[arg(
        long,
        visible_alias = "connect",
        value_name = "PATH",
        required_unless_present = "ws",
        conflicts_with = "ws"
    )]
    pub(crate) socket: Option<PathBuf>,
    /// The host's URL: ws://NAME:PORT or wss://NAME:PORT
    #[arg(long, visible_alias = "ws-connect", value_name = "URL")]
    pub(crate) ws: Option<String>,
    /// The file with the token; otherwise CHRONICLE_TOKEN_FILE or CHRONICLE_TOKEN of the environment
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Believe only the certificates in this file, PEM
    #[arg(long, value_name = "FILE", requires = "ws")]
    pub(crate) ca: Option<PathBuf>,
    /// What people call this replica; by default the machine's name and the directory's
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The workspace's id, where the host serves several
    #[arg(long, value_name = "ID")]
    pub(crate) workspace: Option<String>,
    /// End when both sides are equal
    #[arg(long)]
    pub(crate) once: bool,
    /// Bring the tree at once, and the content of a file when somebody first reads it
    ///
    /// Files whose content is not here yet stand in DIR as links that lead nowhere; work in a mount of it, where they are
    /// files. What is lazy once stays so; `chronicle fetch` brings everything.
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Mount DIR here as soon as its tree is there, and unmount it at the end
    #[arg(long, value_name = "MOUNTPOINT", requires = "lazy", conflicts_with = "once")]
    pub(crate) mount: Option<PathBuf>,
    /// Append a line of JSON for each event to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}

/// What to fetch.
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Files and directories; without any, everything
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// What can be done about conflicts.
#[derive(Debug, Subcommand)]
pub(crate) enum ConflictsVerb {
    /// List the writes that the host did not take
    List,
    /// Show one: what it was made on, what was written here, what stands at the host
    Show(ConflictArgs),
    /// Write this replica's version again, over what stands at the host
    KeepMine(ConflictArgs),
    /// Leave what stands at the host; this replica's version stays in the log
    TakeTheirs(ConflictArgs),
    /// Merge both by lines and write that; where they clash, with marks
    Merge(ConflictArgs),
    /// Send it again as it was, if the host stands where it was made by now
    Retry(ConflictArgs),
}

/// Which conflict.
#[derive(Debug, Args)]
pub(crate) struct ConflictArgs {
    /// Its number in the list, or its path
    #[arg(value_name = "ID|PATH")]
    pub(crate) which: String,
}

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token for this workspace and print it, this once
    Create(TokenCreateArgs),
    /// List the tokens of this home
    List,
    /// Refuse its bearer from now on
    Revoke(TokenRevokeArgs),
}

/// Which token is made.
#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// What people call it
    pub(crate) name: String,
    /// What its bearer may do
    #[arg(long, value_enum, value_name = "RIGHT", default_value_t = RightChoice::WriteBack)]
    pub(crate) right: RightChoice,
    /// Write it to this new file, 0600, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// What a bearer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RightChoice {
    /// Be filled and kept up to date
    Read,
    /// Send writes back as well
    WriteBack,
}

/// Which token.
#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    /// Its name
    pub(crate) name: String,
}

/// What can be done with the filters of replication.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterVerb {
    /// Print which of the given paths are filtered, as git check-ignore --no-index does
    ///
    /// Exit 0 if one of them is, 1 if none is. Rules come from --rules, or from the workspace.
    Check(FilterCheckArgs),
    /// List the rules of both directions, and where each comes from
    List,
    /// Add a rule for this workspace, as a line of .gitignore; the last one that fits decides
    Add(FilterRuleArgs),
    /// Remove a rule that was added
    Remove(FilterRuleArgs),
}

/// Which paths are checked, by which rules.
#[derive(Debug, Args)]
pub(crate) struct FilterCheckArgs {
    /// The paths
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Read paths from stdin, one per line
    #[arg(long, conflicts_with = "paths", required_unless_present = "paths")]
    pub(crate) stdin: bool,
    /// Paths in and out end with NUL
    #[arg(short = 'z', requires = "stdin")]
    pub(crate) nul: bool,
    /// Which way
    #[arg(long, value_enum, value_name = "WAY", default_value_t = DirectionChoice::Push)]
    pub(crate) direction: DirectionChoice,
    /// Only the rules of this file; may be given several times, the last rule that fits decides
    #[arg(long = "rules", value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
}

/// Which rule.
#[derive(Debug, Args)]
pub(crate) struct FilterRuleArgs {
    /// The rule
    #[arg(value_name = "RULE", allow_hyphen_values = true)]
    pub(crate) rule: String,
    /// Which way; both if it is not said
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) direction: Option<DirectionChoice>,
}

/// Which way something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionChoice {
    /// From the host to its replicas
    Push,
    /// From a replica to its host
    WriteBack,
}
