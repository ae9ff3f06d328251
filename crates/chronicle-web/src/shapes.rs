//! Shapes of the API that are no shapes of the library: lists, pages, and what requests say.

use chronicle_core::{
    CheckpointNote, EntryView, GrepMatch, Iteration, PruneReport, RejectedView, ReplicaView,
    SnapshotMetadata, Status, VerifyReport,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Right;

/// The workspaces of the home.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Workspaces {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// Each workspace, by directory.
    pub(crate) workspaces: Vec<WorkspaceItem>,
}

/// One workspace.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WorkspaceItem {
    /// Its id, as paths of the API name it.
    pub(crate) id: String,
    /// Its directory.
    pub(crate) root: String,
    /// Whether the server was started in it.
    pub(crate) here: bool,
    /// Whether the directory is there.
    pub(crate) present: bool,
}

/// Who asks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionView {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// What this caller may do.
    pub(crate) right: Right,
}

/// How a browser signs in.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// The code of a link, which counts once, or a token.
    pub(crate) code: String,
}

/// A page of snapshots, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SnapshotPage {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// The snapshots.
    pub(crate) snapshots: Vec<SnapshotMetadata>,
    /// Where the next page begins; missing at the end.
    pub(crate) next: Option<u64>,
}

/// A page of one file's versions, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HistoryPage {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// The versions.
    pub(crate) iterations: Vec<Iteration>,
    /// Whether there are older ones: ask again with `before` the seq of the last.
    pub(crate) more: bool,
}

/// Lines of every version that fit a pattern.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GrepPage {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// The lines, by path.
    pub(crate) matches: Vec<GrepMatch>,
    /// Whether there are more, or the search took too long to see everything.
    pub(crate) more: bool,
}

/// A file as text, as far as it goes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TextView {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// Where.
    pub(crate) path: String,
    /// The moment: just after this record.
    pub(crate) seq: u64,
    /// What stood there.
    pub(crate) entry: EntryView,
    /// Its lines, without their ends; bytes that are not UTF-8 are replaced.
    pub(crate) lines: Vec<String>,
    /// Whether the content is not text.
    pub(crate) binary: bool,
    /// Whether lines were left out or cut.
    pub(crate) partial: bool,
}

/// How a workspace and its history stand.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// As `chronicle status` says.
    pub(crate) status: Status,
    /// Bytes that the home may take, where they are set; otherwise a quarter of its file system.
    pub(crate) budget_bytes: Option<u64>,
    /// Bytes that should leave the home because it is nearly full; 0 if it is not.
    pub(crate) excess_bytes: u64,
    /// What pruning by the rules would drop and merge now.
    pub(crate) retention: PruneReport,
    /// The last verification that this server did.
    pub(crate) verification: Verification,
    /// The replicas that were ever heard of.
    pub(crate) replicas: Vec<ReplicaView>,
    /// Writes of this replica that its host did not take.
    pub(crate) conflicts: Vec<RejectedView>,
    /// What the log says about checkpoints, newest first, as far as it goes.
    pub(crate) checkpoints: Vec<CheckpointNote>,
}

/// How a verification stands.
#[derive(Clone, Default, Serialize, JsonSchema)]
pub(crate) struct Verification {
    /// `never`, `running`, `verified` or `failed`.
    pub(crate) state: String,
    /// How much of it is done.
    pub(crate) done: u64,
    /// How much there is to do.
    pub(crate) total: u64,
    /// What was found in order.
    pub(crate) report: Option<VerifyReport>,
    /// What was not, in words.
    pub(crate) problem: Option<String>,
}

/// What to verify.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VerifyBody {
    /// Read all contents back, too.
    pub(crate) deep: bool,
}

/// What an action is about to do.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotBody {
    /// The kind of action: `write_file`, `delete_file`, `move_file`, ...
    pub(crate) action: String,
    /// The paths that it will touch.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// The same as exact bytes in base64.
    #[serde(default)]
    pub(crate) paths_b64: Vec<String>,
    /// Where a move or copy goes.
    #[serde(default)]
    pub(crate) to: Option<String>,
    /// The action in words.
    #[serde(default)]
    pub(crate) summary: Option<String>,
    /// The agent's tool.
    #[serde(default)]
    pub(crate) tool: Option<String>,
    /// The agent's own name for the call.
    #[serde(default)]
    pub(crate) call_id: Option<String>,
    /// The session's key.
    #[serde(default)]
    pub(crate) session: Option<String>,
    /// The agent's own name for the turn.
    #[serde(default)]
    pub(crate) turn_key: Option<String>,
    /// Which agent.
    #[serde(default)]
    pub(crate) agent: Option<String>,
}

/// Names a turn.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TurnBody {
    /// The agent's own name for the turn.
    pub(crate) key: Option<String>,
    /// The session's key.
    pub(crate) session: Option<String>,
    /// The prompt; its first line is kept.
    pub(crate) prompt: Option<String>,
    /// Which agent.
    pub(crate) agent: Option<String>,
}

/// What is to be taken back.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlanKind {
    /// Bring the workspace, or a part, to a moment.
    Rewind,
    /// One snapshot's files, or a transaction, to before it.
    Rollback,
    /// One action or turn, keeping what came later.
    Undo,
    /// Bring back what the newest of these took.
    Redo,
}

/// What happens where both sides changed the same thing.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConflictWay {
    /// Nothing is done at all.
    #[default]
    Stop,
    /// The work that is there stays.
    KeepMine,
    /// The target's side counts.
    Replace,
}

/// What happens to repositories.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GitWay {
    /// They stay as they are.
    Keep,
    /// They go back too.
    Restore,
}

/// Hunks of one file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HunksBody {
    /// The file.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The same as exact bytes in base64.
    #[serde(default)]
    pub(crate) path_b64: Option<String>,
    /// Numbers from 1, as the plan's file shows them.
    pub(crate) numbers: Vec<u32>,
}

/// What to plan.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanBody {
    /// What is done.
    pub(crate) kind: PlanKind,
    /// The moment, the snapshot or the turn; an undo without one takes the newest turn, a redo has none.
    #[serde(default)]
    pub(crate) target: Option<String>,
    /// Only these paths and what is below them.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// The same as exact bytes in base64.
    #[serde(default)]
    pub(crate) paths_b64: Vec<String>,
    /// Only these hunks; with them, only files that are named here are touched.
    #[serde(default)]
    pub(crate) hunks: Vec<HunksBody>,
    /// What happens where both sides changed the same thing.
    #[serde(default)]
    pub(crate) on_conflict: ConflictWay,
    /// Keep nothing of what others did.
    #[serde(default)]
    pub(crate) exact: bool,
    /// Take back this session's work.
    #[serde(default)]
    pub(crate) session: Option<String>,
    /// Take back all agents' work.
    #[serde(default)]
    pub(crate) all_sessions: bool,
    /// Take back what several could have made.
    #[serde(default)]
    pub(crate) take_shared: bool,
    /// What happens to repositories.
    #[serde(default)]
    pub(crate) git: Option<GitWay>,
    /// Give restored files the present time.
    #[serde(default)]
    pub(crate) touch: bool,
}
