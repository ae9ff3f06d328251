//! Chronicle's content in a bucket.
//!
//! Objects travel in immutable packs with an index each, below one prefix of a bucket that speaks S3.
//! What is written can be sealed with a key that never leaves this machine. Everything blocks: the
//! runtime that the network needs is inside, so nothing here may be called from within another one.
//!
//! ```
//! use chronicle_core::{ContentStorage, ObjectId};
//! use chronicle_remote::{Bucket, RemoteKey, RemoteStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In earnest: Bucket::open("s3://bucket/prefix", &BucketOptions::from_environment())?
//! let bucket = Bucket::memory()?;
//! let store = RemoteStore::connect(bucket, Some(RemoteKey::derive(&[7; 32])))?;
//! let id = ObjectId::of(b"content");
//! store.put(&id, b"content")?;
//! assert_eq!(store.get(&id)?, b"content");
//! # Ok(())
//! # }
//! ```

mod answer;
mod blob;
mod bucket;
mod collect;
mod error;
mod fetch;
mod format;
mod index;
mod keys;
mod known;
mod lazy;
mod log_head;
mod many;
mod options;
mod pack;
mod patience;
mod pieces;
mod push;
mod random;
mod reseal;
mod seal;
mod store;
mod writer;

pub use bucket::{Bucket, ConditionalPut, Listed, MULTIPART};
pub use collect::Collected;
pub use error::{Cause, RemoteError, Result};
pub use fetch::Fetched;
pub use lazy::LazyStore;
pub use log_head::LogHead;
pub use options::BucketOptions;
pub use pack::{CONTENT_MAX, PACK_FULL};
pub use patience::Patience;
pub use push::{PushOptions, Pushed};
pub use seal::RemoteKey;
pub use store::RemoteStore;
pub use writer::{RemotePackWriter, Written};

/// The format of a place in a bucket.
pub const PLACE: chronicle_core::Format =
    chronicle_core::format("place in a bucket", "object `format`", 1, format::VERSION);

/// The formats of this crate, in the order of docs/format.md.
pub const FORMATS: &[chronicle_core::Format] = &[
    PLACE,
    chronicle_core::format("pack in a bucket", "bytes 8 to 11", 1, pack::VERSION as u64),
    chronicle_core::format("its index", "bytes 8 to 11", 1, index::VERSION as u64),
    chronicle_core::format("head of a log", "`chr-log1`", 1, (log_head::MAGIC[7] - b'0') as u64),
];

/// The version of the place that a bucket's URL names, if it is one; nothing is made, and no key is needed.
pub fn version_of(bucket: &Bucket) -> Result<Option<u64>> {
    format::version(bucket)
}
