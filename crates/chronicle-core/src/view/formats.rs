//! Which formats a program knows and a home is in, as callers see it.

use serde::Serialize;

/// Whether a program can take something over that was written, the worst last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeVerdict {
    /// It is as this program writes it.
    #[default]
    Current,
    /// It is older, and read and written as it is.
    Older,
    /// It is older, and will be changed when it is first used; older programs cannot use it from then on.
    Migrates,
    /// It cannot be read, by this program or any other.
    Damaged,
    /// A newer program wrote it: this one leaves it alone.
    Newer,
}

/// A format, and which of its versions a program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Format {
    /// What it is the format of.
    pub name: &'static str,
    /// Where its number stands.
    pub place: &'static str,
    /// The oldest version that is read.
    pub oldest: u64,
    /// The newest version that is read; what is new is written in it.
    pub newest: u64,
}

/// The versions of one format that were found.
#[derive(Debug, Clone, Serialize)]
pub struct FormatFound {
    /// The format.
    #[serde(flatten)]
    pub format: Format,
    /// The versions, rising.
    pub found: Vec<u64>,
    /// How many files or records have one.
    pub count: u64,
    /// What that means for this program.
    pub verdict: UpgradeVerdict,
    /// What is wrong, in words.
    pub problems: Vec<String>,
}

/// One workspace of a home that is looked at before another program takes it over.
#[derive(Debug, Clone, Serialize)]
pub struct UpgradeWorkspace {
    /// Its id.
    pub id: String,
    /// Its directory; none is registered for one that was only brought here.
    pub root: Option<String>,
    /// What is to be expected.
    pub verdict: UpgradeVerdict,
    /// Whether this program reads it.
    pub reads: bool,
    /// Whether this program goes on with it.
    pub writes: bool,
    /// How many records it has; 0 in a catalog that is newer.
    pub records: u64,
    /// The formats that it is in.
    pub formats: Vec<FormatFound>,
    /// What was begun and not finished: better finished by the program that began it.
    pub unfinished: Vec<String>,
    /// What works with it now, and has to be ended before the program is exchanged.
    pub running: Vec<String>,
    /// How many bytes its catalog takes.
    pub catalog_bytes: u64,
}

/// What would happen if this program took a home over.
#[derive(Debug, Clone, Serialize)]
pub struct UpgradeReport {
    /// The version of this shape.
    pub schema: u32,
    /// The version of this program.
    pub program: &'static str,
    /// The home.
    pub home: String,
    /// What is to be expected, the worst of all below.
    pub verdict: UpgradeVerdict,
    /// What all workspaces share.
    pub formats: Vec<FormatFound>,
    /// Each workspace.
    pub workspaces: Vec<UpgradeWorkspace>,
    /// The home's bucket, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<FormatFound>,
    /// How many bytes the migrations may need while they run.
    pub bytes_needed: u64,
    /// How many bytes are free where the home lies.
    pub bytes_free: u64,
}

impl UpgradeReport {
    /// Whether there is room for the migrations.
    pub fn has_room(&self) -> bool {
        self.bytes_needed <= self.bytes_free
    }
}
