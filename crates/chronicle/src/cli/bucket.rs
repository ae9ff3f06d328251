//! The words about buckets.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done with the bucket of a home.
#[derive(Debug, Subcommand)]
pub(crate) enum BucketVerb {
    Set(BucketSetArgs),
    /// Show which bucket is set
    Show,
    /// Send nothing there any more; what is there stays
    Forget,
    /// List the histories that are there
    List,
    /// Take away what no history there needs: doomed by one call, gone by the next
    Gc,
    Evict(EvictArgs),
    Rekey(RekeyArgs),
}

/// Send every workspace's history to a bucket from now on
///
/// Credentials are taken from the usual AWS_* variables whenever something is sent, and never kept. What
/// is sent is sealed with the key in FILE, which is made if it is not there: keep a copy of it elsewhere.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("seal").required(true).args(["key", "plain"]))]
pub(crate) struct BucketSetArgs {
    /// s3://BUCKET/PREFIX
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) place: BucketPlaceArgs,
    /// Only when somebody says push, not at the end of every turn
    #[arg(long)]
    pub(crate) manual: bool,
}

/// Where a bucket is and how it is sealed.
#[derive(Debug, Args)]
pub(crate) struct BucketPlaceArgs {
    /// The server, such as `https://s3.example.org`; without one it is AWS
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The region
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// The file with the key that seals it
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// It is not sealed: whoever can read the bucket reads everything
    #[arg(long, conflicts_with = "key")]
    pub(crate) plain: bool,
    /// Speak unencrypted HTTP with a server that is not this machine
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// A directory for copies of what is fetched, which homes and users of this machine may share
    ///
    /// Everybody in its group can read what is there. It must belong to you or to root, with mode 2770 for a
    /// group; where it is not there it is made for you alone.
    #[arg(long, value_name = "DIR")]
    pub(crate) pool: Option<PathBuf>,
    /// How long the pool may get; 4 GiB where it is not said
    #[arg(long, value_name = "BYTES", requires = "pool")]
    pub(crate) pool_bytes: Option<u64>,
}

/// Take contents away here that the bucket has
///
/// What stands in a workspace stays, and so do secrets. Whatever is needed later is read from the bucket.
#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// About so many bytes; without it, as many as can be
    #[arg(long)]
    pub(crate) bytes: Option<u64>,
}

/// Exchange the key that seals the bucket, and write everything anew with the new one
#[derive(Debug, Args)]
pub(crate) struct RekeyArgs {
    /// The file with the new key, which is made if it is not there
    #[arg(value_name = "FILE")]
    pub(crate) key: PathBuf,
}

/// Bring a history from a bucket into an empty directory: a lost machine on a fresh one
///
/// Log, chain and all contents come, everything is checked, and the directory becomes what the
/// workspace was. Interrupted, say it again.
#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// s3://BUCKET/PREFIX
    pub(crate) url: String,
    /// An empty directory, or one that is not there yet
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) place: BucketPlaceArgs,
    /// Which of several histories: a part of its id, or the name of its directory
    #[arg(long, value_name = "ID")]
    pub(crate) workspace: Option<String>,
}
