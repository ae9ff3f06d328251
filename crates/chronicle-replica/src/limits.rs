//! How much a peer may ask for, and how long anybody waits.

use std::time::Duration;

/// The longest frame, without its length: a piece of content and what stands around it.
pub const FRAME_MAX: usize = (1 << 20) + (64 << 10);
/// The longest run of content in one frame, and the longest piece of an object.
pub const PIECE_MAX: u32 = 1 << 20;
/// Contents up to this length travel inside what names them.
pub const INLINE_MAX: usize = 4 << 10;
/// Items, writes or listed entries are gathered into a frame until it has about so many bytes.
pub const GATHERED: usize = 512 << 10;
/// Pieces of a manifest that one frame tells.
pub const PIECES_PER_FRAME: usize = 16 << 10;
/// Bytes of inline contents in one push; what is beyond is fetched.
pub const INLINE_TOGETHER: usize = 40 << 20;
/// Items of one push, entries of one listing, or differences of two trees that anybody holds at once.
pub const HELD_MAX: usize = 4 << 20;
/// The longest words that a peer may send.
pub const WORDS_MAX: usize = 1 << 10;
/// The longest rules of a filter that a peer may send.
pub const RULES_MAX: usize = 64 << 10;
/// The longest token.
pub const TOKEN_MAX: usize = 256;
/// The longest name of a replica.
pub const NAME_MAX: usize = 255;
/// Objects or directories that one frame asks for.
pub const ASKED_MAX: usize = 256;

/// What one session allows itself and its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// After so long without a frame a heartbeat is sent.
    pub heartbeat: Duration,
    /// After so long without a frame the link is given up.
    pub silence: Duration,
    /// After so long without an answer it is asked again.
    pub patience: Duration,
    /// The first wait before connecting again; it doubles.
    pub backoff_least: Duration,
    /// The longest wait before connecting again.
    pub backoff_most: Duration,
    /// Parts of pushes that may be unacknowledged.
    pub push_parts: usize,
    /// The same for a replica that has nothing yet: the next push comes while one is written.
    pub fill_parts: usize,
    /// Requests for content that may be under way.
    pub fetches: usize,
    /// The longest object that is taken.
    pub object_max: u64,
    /// Writes in one batch.
    pub batch_writes: usize,
    /// Bytes of paths, targets and inline contents in one batch.
    pub batch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            silence: Duration::from_secs(35),
            patience: Duration::from_secs(15),
            backoff_least: Duration::from_millis(100),
            backoff_most: Duration::from_secs(30),
            push_parts: 4,
            fill_parts: 16,
            fetches: 32,
            object_max: 1 << 40,
            batch_writes: 10_000,
            batch_bytes: 16 << 20,
        }
    }
}
