//! Chronicle's content in a bucket.
//!
//! Everything blocks: the runtime that the network needs is inside, so nothing here may be called from
//! within another one.

mod answer;
mod bucket;
mod error;
mod options;
mod patience;
mod random;

pub use bucket::{Bucket, ConditionalPut, Listed, MULTIPART};
pub use error::{Cause, RemoteError, Result};
pub use options::BucketOptions;
pub use patience::Patience;
