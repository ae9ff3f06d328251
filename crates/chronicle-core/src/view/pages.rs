//! Shapes for whoever looks at history page by page: the timeline, one file's difference, its lines'
//! origins, and a directory at a moment.

use schemars::JsonSchema;
use serde::Serialize;

use super::{EntryView, TurnView};

/// A page of the timeline, newest first.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TimelinePage {
    /// The version of this shape.
    pub schema: u32,
    /// The last record of the log.
    pub head_seq: u64,
    /// What happened; each turn and each action outside of every turn once.
    pub entries: Vec<TimelineEntry>,
    /// Where the next page begins; missing at the end. A page may be short, or empty, and still have a next.
    pub next: Option<u64>,
}

/// A turn, or an action outside of every turn.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct TimelineEntry {
    /// `turn`, `action` or `rewind`.
    pub kind: String,
    /// The position of its first record.
    pub seq: u64,
    /// The position of its last record until now.
    pub last_seq: u64,
    /// When it began, RFC 3339.
    pub timestamp: String,
    /// The turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnView>,
    /// The snapshot, of an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The part of its id that people type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_id: Option<String>,
    /// Of an action: `write_file`, `shell`, `external`, `rewind`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_type: Option<String>,
    /// Of an action, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The session's key.
    pub session: Option<String>,
    /// The agents that took part.
    pub agents: Vec<String>,
    /// Their sub-agents.
    pub sub_agents: Vec<String>,
    /// The tools that were used.
    pub tools: Vec<String>,
    /// Whose changes there are: session keys, `person`, `chronicle` or `shared`.
    pub authors: Vec<String>,
    /// How many actions it is made of.
    pub snapshots: u64,
    /// How many changes created something.
    pub created: u64,
    /// How many changed content.
    pub modified: u64,
    /// How many deleted something.
    pub deleted: u64,
    /// How many moved something.
    pub renamed: u64,
    /// How many changed the mode alone.
    pub mode: u64,
    /// The first few of the paths.
    pub paths: Vec<String>,
    /// How many of the changes were taken back.
    pub taken_back: u64,
    /// Whether it goes on: the turn has not ended, or the action's outcome is not recorded.
    pub open: bool,
    /// Whether every capture in it saw everything.
    pub complete: bool,
    /// Whether it has more records than were counted.
    pub partial: bool,
}

/// How one file differs between two moments, line by line.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FileDiff {
    /// The version of this shape.
    pub schema: u32,
    /// Where.
    pub path: String,
    /// The exact bytes in base64, where `path` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// `created`, `modified`, `deleted`, `renamed`, `mode`, or `same`.
    pub change_type: String,
    /// Where it was moved from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What stood there.
    pub before: EntryView,
    /// What stands there after.
    pub after: EntryView,
    /// A moment at which `before` stood there.
    pub before_at: Option<String>,
    /// A moment at which `after` stands there.
    pub after_at: Option<String>,
    /// Lines added.
    pub inserted: u64,
    /// Lines removed.
    pub deleted: u64,
    /// Whether the content is not text.
    pub binary: bool,
    /// Why there are no lines, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The hunks, as a patch has them.
    pub hunks: Vec<HunkView>,
    /// Whether lines were left out or cut because there are too many or they are too long.
    pub partial: bool,
}

/// One hunk of a difference.
#[derive(Debug, Clone, Serialize, JsonSchema, PartialEq, Eq)]
pub struct HunkView {
    /// Its number in the file, from 1: what taking back by hunks names.
    pub number: u64,
    /// Its first line before, from 1.
    pub old_start: u64,
    /// How many lines it has before.
    pub old_lines: u64,
    /// Its first line after, from 1.
    pub new_start: u64,
    /// How many lines it has after.
    pub new_lines: u64,
    /// The lines, each behind ` `, `-` or `+`; one that begins with `\` says that the line end is missing.
    pub lines: Vec<String>,
}

/// Where the lines of a file come from.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BlameView {
    /// The version of this shape.
    pub schema: u32,
    /// Where.
    pub path: String,
    /// Neighbouring lines with the same origin, in order; they cover the file.
    pub runs: Vec<BlameRun>,
    /// Whether older versions were left out: their lines count as the oldest one's.
    pub partial: bool,
}

/// Neighbouring lines that one change brought.
#[derive(Debug, Clone, Serialize, JsonSchema, PartialEq, Eq)]
pub struct BlameRun {
    /// The first line, from 1.
    pub first: u64,
    /// How many lines.
    pub lines: u64,
    /// The record; 0 for what stood there when the history begins.
    pub seq: u64,
    /// The snapshot.
    pub snapshot: Option<String>,
    /// The turn's number.
    pub turn: Option<u64>,
    /// `person`, `chronicle`, `shared`, or the session's key.
    pub author: Option<String>,
    /// When, RFC 3339.
    pub timestamp: Option<String>,
    /// What the action was.
    pub action_summary: Option<String>,
}

/// What the log says about a checkpoint: that it was made, or what became of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CheckpointNote {
    /// The record.
    pub seq: u64,
    /// When, RFC 3339.
    pub timestamp: String,
    /// What happened to it.
    pub action: Option<String>,
    /// The same in words.
    pub summary: Option<String>,
    /// What it holds beside the workspace's files, each as its kind and name; empty where its lock file cannot be read.
    pub parts: Vec<String>,
}

/// What stood in a directory at a moment.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TreeView {
    /// The version of this shape.
    pub schema: u32,
    /// The directory; empty for the workspace's own.
    pub path: String,
    /// The moment: just after this record.
    pub seq: u64,
    /// What stood there, by name.
    pub entries: Vec<TreeEntry>,
    /// Whether there is more behind the last name.
    pub more: bool,
}

/// One name in a directory.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TreeEntry {
    /// The name.
    pub name: String,
    /// The whole path.
    pub path: String,
    /// Its exact bytes in base64, where `path` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// What stood there.
    pub entry: EntryView,
}
