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
mod bucket;
mod error;
mod format;
mod index;
mod known;
mod options;
mod pack;
mod patience;
mod random;
mod seal;
mod store;
mod writer;

pub use bucket::{Bucket, ConditionalPut, Listed, MULTIPART};
pub use error::{Cause, RemoteError, Result};
pub use options::BucketOptions;
pub use pack::{CONTENT_MAX, PACK_FULL};
pub use patience::Patience;
pub use seal::RemoteKey;
pub use store::RemoteStore;
pub use writer::{RemotePackWriter, Written};
