//! The seam between the protocol and those who know how a thing is frozen, read back and restored.
//!
//! A driver does no planning of its own. The protocol says when; the driver says how, for one part at a
//! time, and notes what it did in words that it can read again after a crash, in another process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use chronicle_core::ObjectId;

use crate::contents::Contents;
use crate::error::{Error, Problem, Result};
use crate::part::{Parameters, Part};

/// Knows how one mechanism freezes, keeps and restores parts.
///
/// The order of calls is the protocol's:
///
/// - **create**: [`prepare`](Self::prepare) every part; [`freeze`](Capture::freeze) every part;
///   [`boundary`](Capture::boundary) of every part; [`thaw`](Capture::thaw) every part, whatever
///   happened; [`capture`](Capture::capture) every part, whose bytes may follow now. If anything fails,
///   what was captured is [`discard`](Self::discard)ed.
/// - **verify**: [`verify`](Self::verify) reads everything back and changes nothing.
/// - **restore**: [`gate`](Self::gate) every part; [`halt`](Self::halt); the present is captured;
///   [`restore`](Self::restore) beside; the commit point; [`swap`](Self::swap); [`check`](Self::check); and
///   [`clear`](Self::clear), [`resume`](Self::resume). If anything fails behind the commit point:
///   [`swap_back`](Self::swap_back), `clear`, `resume`.
///
/// Everything from `restore` on may be called again after a crash at any place, in a new process, with
/// the same [`Restoration`] and [`Staged`], and then does what is still missing. Nothing that people see
/// changes before `swap`, and nothing is ever removed but what the driver made itself, and in `clear`
/// what `present` holds.
pub trait Driver: Send + Sync {
    /// Its name in `chronicle.lock` and for `--driver`.
    fn name(&self) -> &'static str;

    /// The version of what it keeps; one that is newer than this is refused.
    fn version(&self) -> u32;

    /// Whether it can take this part where it lies.
    fn detect(&self, part: &Part) -> Result<Fit>;

    /// Everything that can be done before the freeze, so that the freeze is short. Changes nothing.
    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>>;

    /// Reads back everything that was captured, without restoring it.
    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()>;

    /// Whether a restore could begin, and every reason why not. Changes nothing.
    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>>;

    /// Makes sure that nobody uses the part from now on until `resume`, as by stopping a server; refuses
    /// where that is not its to do.
    fn halt(&self, _restoration: &Restoration<'_>) -> Result<()> {
        Ok(())
    }

    /// Writes what was captured beside its place, durably.
    fn restore(&self, restoration: &Restoration<'_>) -> Result<Staged>;

    /// Brings what was staged into its place, and what stood there out of it, which is kept.
    fn swap(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()>;

    /// Takes a swap back, also half of one, also one that never began.
    fn swap_back(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()>;

    /// Whether what stands there after the swap is what was captured.
    fn check(&self, restoration: &Restoration<'_>) -> Result<()>;

    /// Removes what is no longer needed: staging, and what stood there before if `present` holds exactly
    /// that. Otherwise it stays, and is named.
    fn clear(&self, restoration: &Restoration<'_>, staged: &Staged, end: End)
    -> Result<Vec<Aside>>;

    /// Lets go of what `halt` took hold of, as by starting a server again.
    fn resume(&self, _restoration: &Restoration<'_>) -> Result<()> {
        Ok(())
    }

    /// Removes what the driver keeps outside the content store; doing it twice is no error.
    fn discard(&self, captured: &Captured, site: &Site<'_>) -> Result<()>;
}

/// One part on its way into a checkpoint. Dropping it thaws the part.
pub trait Capture {
    /// Quiesces the part: afterwards everything that was acknowledged before is in it.
    fn freeze(&mut self, limit: &Deadline) -> Result<()>;

    /// Fixes what will be captured. Called once, when every part is frozen.
    fn boundary(&mut self, limit: &Deadline) -> Result<()>;

    /// Lets the part go on. Called whatever happened, at any time, more than once.
    fn thaw(&mut self) -> Result<()>;

    /// Brings in the bytes, as they were at the boundary.
    fn capture(&mut self) -> Result<Captured>;
}

/// What a driver can do for a part where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It can take it; the lower the rank, the shorter the freeze.
    Fits {
        /// 0: the kernel snapshots; 10: blocks are shared; 20: bytes are read.
        rank: u32,
        /// Why, or on what terms, in words.
        why: String,
    },
    /// It cannot, and this is why.
    Not(String),
}

/// Where a driver works.
#[derive(Clone, Copy)]
pub struct Site<'s> {
    /// The content store.
    pub contents: &'s Contents<'s>,
    /// A directory of this workspace's home for what drivers keep besides, made when it is needed.
    pub place: &'s Path,
    /// The checkpoint, or the restore, in hexadecimal; in names that belong to it alone.
    pub id: &'s str,
    /// What the newest checkpoint holds of the same part, if there is one.
    pub previous: Option<&'s Captured>,
}

/// What a driver kept of a part. Everything that it needs to find it again is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    /// The driver.
    pub driver: String,
    /// The version of what it keeps.
    pub version: u32,
    /// Nothing stood there. Restoring that moves away what stands there then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// The hash of everything that was captured, as the driver defines it: equal for equal parts.
    #[serde(with = "crate::words::hex_id")]
    pub digest: ObjectId,
    /// The exact revision: a commit, a position in a write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// How many bytes the part has.
    pub bytes: u64,
    /// Whatever else the driver needs.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// The contents that it needs in the store, not pieces of them; kept out of the lock file, which names
    /// their list.
    #[serde(skip)]
    pub objects: Vec<ObjectId>,
    /// What people should know about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One part on its way back.
#[derive(Clone, Copy)]
pub struct Restoration<'r> {
    /// The part and its place now.
    pub part: &'r Part,
    /// What the checkpoint holds of it.
    pub captured: &'r Captured,
    /// What the checkpoint of the present holds of it, once that is made.
    pub present: Option<&'r Captured>,
    /// Where the driver works; its id is the restore's.
    pub site: Site<'r>,
}

/// What a driver needs to know, in any later process, about what it put beside.
pub type Staged = Parameters;

/// How a restore ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// What was captured stands there.
    New,
    /// What stood there before stands there.
    Old,
}

/// Something that was left beside the part, because nothing else holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Aside {
    /// Where it is: a path, or a database.
    pub at: String,
    /// Why it was not removed.
    pub why: String,
}

/// When the freeze must be over.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline so far from now.
    pub fn after(span: Duration) -> Self {
        Self(Instant::now() + span)
    }

    /// How much is left; nothing once it has passed.
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Fails once it has passed.
    pub fn check(&self, doing: &str) -> Result<()> {
        match self.left().is_zero() {
            true => Err(Error::FreezeLimit(doing.to_owned())),
            false => Ok(()),
        }
    }
}

/// Where things of one restore lie beside a path: on its file system, under a name that says whose they are
/// and that no look at a workspace sees.
pub fn beside(target: &Path, what: &str, id: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    target.with_file_name(format!(".chronicle-staging-{what}-{name}-{id}"))
}

impl Captured {
    /// The objects that parameters of this kind of name hold.
    pub(crate) fn objects_named(&self, prefix: &str) -> impl Iterator<Item = Result<ObjectId>> {
        let named = self.parameters.iter().filter(move |(name, _)| name.starts_with(prefix));
        named.map(|(name, text)| {
            let bad = || {
                let why = format!("the lock file's {name} is no hash");
                Problem::new("missing_parameter", why, "Restore another checkpoint").into()
            };
            text.parse().map_err(|()| bad())
        })
    }
}
