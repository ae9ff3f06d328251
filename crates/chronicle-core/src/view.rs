//! What callers and `--json` see: plain values made from records, documented in `docs/json.md`.

mod effects;
mod formats;
mod pages;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

pub use effects::EffectView;
pub use formats::{Format, FormatFound, UpgradeReport, UpgradeVerdict, UpgradeWorkspace};
pub use pages::{
    BlameRun, BlameView, CheckpointNote, FileDiff, HunkView, TimelineEntry, TimelinePage,
    TreeEntry, TreeView,
};

/// The version of the JSON shapes; fields are only ever added.
pub const SCHEMA: u32 = 1;

/// One action: what it was, and what it changed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SnapshotMetadata {
    /// The version of this shape.
    pub schema: u32,
    /// The snapshot's id.
    pub id: String,
    /// The part of it that people type.
    pub short_id: String,
    /// The position of its first record.
    pub seq: u64,
    /// When, RFC 3339.
    pub timestamp: String,
    /// `write_file`, `shell`, `external`, `rewind`, ...
    pub action_type: String,
    /// In words: `write_file: main.go`.
    pub action_summary: String,
    /// The paths that stood there before and are in the store.
    pub files_backed_up: Vec<String>,
    /// The session's key.
    pub session: Option<String>,
    /// The turn's number.
    pub turn: Option<u64>,
    /// The agent's own name for the turn.
    pub turn_key: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The agent's tool.
    pub tool: Option<String>,
    /// The agent's own name for the call.
    pub call_id: Option<String>,
    /// The transaction it belongs to.
    pub transaction_id: Option<String>,
    /// The link before its first record.
    pub previous_hash: String,
    /// The link of its last record.
    pub hash: String,
    /// Whether the capture saw everything it should have seen.
    pub complete: bool,
    /// Whether the action's outcome is recorded yet.
    pub open: bool,
    /// What it changed.
    pub changes: Vec<FileChange>,
    /// What it called that cannot be taken back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectView>,
}

/// One changed path.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FileChange {
    /// Where; bytes that are not UTF-8 are escaped.
    pub path: String,
    /// The exact bytes in base64, where `path` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// `created`, `modified`, `deleted`, `renamed` or `mode`.
    pub change_type: String,
    /// Where it was moved from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `person`, `chronicle`, `shared`, or the session's key.
    pub author: String,
    /// The sessions that could have made a `shared` change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
    /// How the author is known.
    pub evidence: String,
    /// Whether it is in effect, or was taken back.
    pub live: bool,
    /// What stood there.
    pub before: EntryView,
    /// What stands there now.
    pub after: EntryView,
    /// Lines added, of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inserted: Option<u64>,
    /// Lines removed, of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
    /// Whether the content is not text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
}

/// What stands at a path.
#[derive(Debug, Clone, Serialize, JsonSchema, PartialEq, Eq)]
pub struct EntryView {
    /// `file`, `directory`, `symlink`, `special`, `repository`, `absent` or `unknown`.
    pub kind: String,
    /// The content's BLAKE3 hash; of secret content, a keyed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Whether the content is secret: kept sealed, and never shown unasked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// Length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits, octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Where a symbolic link points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The difference between two moments.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Diff {
    /// The version of this shape.
    pub schema: u32,
    /// The moment it starts from, in words.
    pub from_snapshot: String,
    /// The moment it ends at; empty for the present.
    pub to_snapshot: String,
    /// When it was computed, RFC 3339.
    pub timestamp: String,
    /// What differs, by path.
    pub changes: Vec<DiffChange>,
    /// How many paths differ.
    pub files_changed: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether only a part was looked into, because of the request's limits: some of `changes`, and
    /// their lines, or some patches are missing.
    pub partial: bool,
}

/// One path that differs between two moments.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DiffChange {
    /// Where.
    pub path: String,
    /// The exact bytes in base64, where `path` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// `created`, `modified`, `deleted`, `renamed` or `mode`.
    pub change_type: String,
    /// Where it was moved from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The content before.
    pub before_hash: Option<String>,
    /// The content after.
    pub after_hash: Option<String>,
    /// Length after.
    pub size_bytes: u64,
    /// Lines added.
    pub inserted: u64,
    /// Lines removed.
    pub deleted: u64,
    /// Whether the content is not text.
    pub binary: bool,
    /// What stood there.
    pub before: EntryView,
    /// What stands there now.
    pub after: EntryView,
    /// The unified patch, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

/// What a rewind, rollback, undo or redo will do: the preview is this value.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PlanView {
    /// The version of this shape.
    pub schema: u32,
    /// Names the plan, for `--plan`.
    pub plan_id: String,
    /// The moment it goes to, in words.
    pub resolved_target: String,
    /// Paths that will be written.
    pub write: Vec<PlanStep>,
    /// Paths that will be deleted.
    pub delete: Vec<PlanStep>,
    /// Paths that will be written with kept work merged in.
    pub merge: Vec<PlanStep>,
    /// Paths that stay as they are, and why.
    pub keep: Vec<KeptView>,
    /// Paths where both sides changed the same thing.
    pub conflict: Vec<ConflictView>,
    /// Paths of which the state at the target is not known.
    pub unknown: Vec<KeptView>,
    /// What happens to repositories.
    pub git: Vec<KeptView>,
    /// What was called since then and cannot be taken back: the command or tool, and when.
    pub irreversible: Vec<KeptView>,
    /// Shared changes that stay unless they are taken too.
    pub shared: Vec<KeptView>,
    /// Whose work is taken back or brought back: session keys, `person` or `shared`.
    pub authors: Vec<String>,
    /// How long ago the target is, in seconds.
    pub span_seconds: u64,
    /// Whether a repository's HEAD moves.
    pub moves_head: bool,
    /// Filtered output that is newer than a restored source, which builds will take for fresh.
    pub stale_output: Vec<String>,
    /// What comes back that some tool runs by itself: hooks, agents' settings, `.envrc`.
    pub runs_by_itself: Vec<String>,
}

/// One path of a plan.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PlanStep {
    /// Where.
    pub path: String,
    /// The exact bytes in base64, where `path` is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// What stands there now.
    pub now: EntryView,
    /// What will stand there.
    pub then: EntryView,
}

/// One path with words about it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct KeptView {
    /// Where.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// One conflict.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConflictView {
    /// Where.
    pub path: String,
    /// What both sides changed: content, kind, mode, owner, attributes.
    pub what: String,
    /// The side of the work that would be kept.
    pub mine: EntryView,
    /// The side of the target.
    pub then: EntryView,
}

/// What a rewind, rollback, undo or redo did.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RewindReport {
    /// The version of this shape.
    pub schema: u32,
    /// The snapshot that the rewind itself is, if it changed anything.
    pub id: Option<String>,
    /// The plan that was applied.
    pub plan: PlanView,
    /// Paths that a concurrent writer changed meanwhile, or that could not be done, and why.
    pub unexpected: Vec<KeptView>,
    /// What was moved aside instead of deleted: from, to.
    pub aside: Vec<(String, String)>,
    /// How many paths changed.
    pub changed: u64,
    /// Whether something was left that the person should look at (exit 4).
    pub partial: bool,
}

/// One version of one file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Iteration {
    /// The version of this shape.
    pub schema: u32,
    /// The snapshot that made it.
    pub snapshot: String,
    /// Its position.
    pub seq: u64,
    /// When, RFC 3339.
    pub timestamp: String,
    /// The path it had then.
    pub path: String,
    /// The turn's number.
    pub turn: Option<u64>,
    /// What the action was.
    pub action_summary: String,
    /// The change itself.
    pub change: FileChange,
}

/// One line found in history.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GrepMatch {
    /// The version of this shape.
    pub schema: u32,
    /// Where.
    pub path: String,
    /// The line, escaped where it is not text.
    pub line: String,
    /// The first record that had it.
    pub first_seen: u64,
    /// The last moment at which it was there.
    pub last_seen: u64,
    /// Whether it is there now.
    pub present: bool,
    /// What removed it: the snapshot's short id.
    pub removed_by: Option<String>,
    /// The turn that removed it.
    pub removed_by_turn: Option<u64>,
    /// The turn that brought it.
    pub first_turn: Option<u64>,
}

/// One turn.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TurnView {
    /// Its number in this workspace.
    pub number: u64,
    /// The agent's own name for it.
    pub key: Option<String>,
    /// The session's key.
    pub session: Option<String>,
    /// The first line of the prompt.
    pub prompt: Option<String>,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended; missing while it is open.
    pub ended_at: Option<String>,
    /// The first record.
    pub start_seq: u64,
    /// The last record; missing while it is open.
    pub end_seq: Option<u64>,
}

/// Several actions as one.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Transaction {
    /// The version of this shape.
    pub schema: u32,
    /// Its id.
    pub id: String,
    /// `active`, `committed` or `rolled_back`.
    pub status: String,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Its snapshots.
    pub snapshots: Vec<String>,
}

/// How a workspace stands.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Status {
    /// The version of this shape.
    pub schema: u32,
    /// The workspace's directory.
    pub workspace: String,
    /// Its id.
    pub workspace_id: String,
    /// Where its history lies.
    pub home: String,
    /// The last record.
    pub head_seq: u64,
    /// The last record's link.
    pub head_hash: String,
    /// What changed since the last turn ended (or since the first look), not yet recorded included.
    pub changes: Vec<DiffChange>,
    /// The open turns.
    pub open_turns: Vec<TurnView>,
    /// The last ended turn.
    pub last_turn: Option<TurnView>,
    /// The active transaction; one without a living owner is said to be abandoned.
    pub active_transaction: Option<Transaction>,
    /// Actions announced and not yet settled.
    pub open_intents: u64,
    /// Files whose content is in the store.
    pub protected_files: u64,
    /// Files that are not, and why.
    pub unprotected: Vec<KeptView>,
    /// How many files are not protected in all.
    pub unprotected_files: u64,
    /// Directories that filters keep out.
    pub filtered: Vec<String>,
    /// Narrower filters that wait for `chronicle config accept`.
    pub pending_config: Vec<String>,
    /// Bytes that the store takes on disk.
    pub store_bytes: u64,
    /// Bytes that this workspace's catalog takes on disk.
    pub catalog_bytes: u64,
    /// `off`: no watcher runs.
    pub watcher: String,
    /// Rewinds that `redo` can bring back.
    pub redoable: u64,
    /// The names of pinned moments.
    pub pins: Vec<String>,
    /// Further roots.
    pub roots: Vec<String>,
    /// How many records the newest signed head is about; 0 if there is none.
    pub signed_size: u64,
    /// Why the last head could not be signed.
    pub head_problem: Option<String>,
    /// How the witnesses stand.
    pub witnesses: Vec<WitnessView>,
    /// How far a bucket has this history.
    pub mirror: Option<MirrorView>,
    /// Isolated runs that wait for a decision, or go on.
    pub isolated: Vec<IsolatedView>,
    /// Why what a mount saw could not be brought into the log the last time; it is kept in the mount's journal.
    pub mount_problem: Option<String>,
    /// Files of a lazy replica whose content is still at the host.
    pub files_not_here: u64,
    /// How long they are together.
    pub bytes_not_here: u64,
    /// What was called since the last turn ended, or ever, and cannot be taken back.
    pub effects: Vec<EffectView>,
}

/// How far a bucket has a history.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MirrorView {
    /// The place, as a URL.
    pub place: String,
    /// Up to which record.
    pub seq: u64,
    /// How many records are waiting to go there.
    pub behind: u64,
    /// When it last had everything; `None` if it never did.
    pub pushed_at: Option<String>,
    /// How often in a row it could not be reached.
    pub failures: u32,
    /// Before then it is not tried again by itself.
    pub next_try: Option<String>,
    /// Why it could not be reached.
    pub error: Option<String>,
}

/// What `prune` dropped and merged, or would.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PruneReport {
    /// The version of this shape.
    pub schema: u32,
    /// Nothing was changed: this is what would be.
    pub dry_run: bool,
    /// Records of which only the hash stays.
    pub dropped_records: u64,
    /// Records that became one with their neighbours.
    pub merged_records: u64,
    /// Changes that stand for the merged records.
    pub merged_changes: u64,
    /// Snapshots that cannot be named any more.
    pub dropped_snapshots: u64,
    /// The moment just after this record is the oldest that can be reached.
    pub oldest_kept_seq: u64,
    /// When the first thing after that moment happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_kept_at: Option<String>,
    /// Bytes of content that were freed.
    pub freed_bytes: u64,
}

impl PruneReport {
    /// In few words.
    pub fn words(&self) -> String {
        format!(
            "{} records dropped, {} merged into {} changes",
            self.dropped_records, self.merged_records, self.merged_changes
        )
    }

    /// Whether nothing went.
    pub fn is_empty(&self) -> bool {
        self.dropped_records == 0 && self.merged_records == 0
    }
}

/// What was forgotten, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct ForgetReport {
    /// The version of this shape.
    pub schema: u32,
    /// Nothing was changed: this is what would be.
    pub dry_run: bool,
    /// Contents that are gone.
    pub objects: u64,
    /// Changes that say less.
    pub changes: u64,
    /// Where they were.
    pub paths: Vec<ForgottenView>,
    /// Of a dry run: paths that hold it now, which must change first.
    pub still_there: Vec<String>,
    /// Of a dry run: other workspaces that need it, by their roots.
    pub needed_elsewhere: Vec<String>,
}

/// A path at which something was forgotten.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct ForgottenView {
    /// Where.
    pub path: String,
    /// The records that say less of it.
    pub seqs: Vec<u64>,
}

/// What was exported to a git repository, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct ExportReport {
    /// The version of this shape.
    pub schema: u32,
    /// Nothing was written: this is what would be.
    pub dry_run: bool,
    /// The repository.
    pub repository: String,
    /// The ref.
    pub git_ref: String,
    /// The commit that it names now; missing after a dry run.
    pub commit: Option<String>,
    /// The commit that it named before, if it was there.
    pub previous: Option<String>,
    /// Commits of the whole history.
    pub commits: u64,
    /// Those among them that the ref did not have yet.
    pub new_commits: u64,
    /// Paths that are in none of them, by the reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Turns that are open, which follow when they have ended.
    pub open_turns: Vec<u64>,
}

/// What garbage collection took away.
#[derive(Debug, Clone, Serialize)]
pub struct GcReport {
    /// The version of this shape.
    pub schema: u32,
    /// Objects that something needs.
    pub objects_kept: u64,
    /// Objects that nothing needed.
    pub objects_gone: u64,
    /// Bytes that they took.
    pub freed_bytes: u64,
    /// How many packs are fewer, since small ones became one.
    pub packs_joined: u64,
}

/// What `doctor` found, and what it put right.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DoctorReport {
    /// The version of this shape.
    pub schema: u32,
    /// Nothing was changed: this is what was found.
    pub dry_run: bool,
    /// Nothing is out of order, or everything was put right.
    pub sound: bool,
    /// Records in the log.
    pub records: u64,
    /// Objects that were read back.
    pub objects: u64,
    /// What was out of order.
    pub findings: Vec<DoctorFinding>,
    /// Objects that are lost for good.
    pub lost_objects: u64,
    /// Which paths and snapshots named them.
    pub lost: Vec<LostContent>,
}

/// One thing that was out of order.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorFinding {
    /// What kind of thing, in one word.
    pub code: &'static str,
    /// What it is, for people.
    pub words: String,
    /// Whether it was put right.
    pub repaired: bool,
    /// What to do about it, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Content that is lost, at one place that names it.
#[derive(Debug, Clone, Serialize)]
pub struct LostContent {
    /// The object.
    pub object: String,
    /// The path.
    pub path: String,
    /// The path's bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// The record.
    pub seq: u64,
    /// Whether it is what stood there `before` or `after` the change.
    pub side: &'static str,
    /// The snapshot that the record is a part of.
    pub snapshot: Option<String>,
    /// Its short form.
    pub short_id: Option<String>,
    /// What the action was.
    pub summary: Option<String>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// What `verify` found in order.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VerifyReport {
    /// The version of this shape.
    pub schema: u32,
    /// Records whose links were recomputed.
    pub records: u64,
    /// Objects that records name and the store has.
    pub objects: u64,
    /// Objects that were read back.
    pub objects_read: u64,
    /// Secret objects that are there and could not be read back, for want of their key.
    pub objects_not_read: u64,
    /// Objects that were taken away here because another store has them.
    pub objects_away: u64,
    /// The head that was reached.
    pub head_hash: String,
    /// The root of the Merkle tree over all records, in base64.
    pub root: String,
    /// Signed heads that were checked.
    pub heads: u64,
    /// The witnesses that were asked, and how far each has seen.
    pub witnesses: Vec<WitnessView>,
    /// The size of the head that was given with `--anchor`, and that fits.
    pub anchored: Option<u64>,
}

/// A signed head.
#[derive(Debug, Clone, Serialize)]
pub struct HeadView {
    /// The version of this shape.
    pub schema: u32,
    /// The workspace's id.
    pub workspace_id: String,
    /// The life of its log.
    pub epoch: String,
    /// How many records it is about.
    pub size: u64,
    /// The root of the Merkle tree over them, in base64.
    pub root: String,
    /// The link of the last of them.
    pub link: String,
    /// When it was made, RFC 3339.
    pub timestamp: String,
    /// The size of the head before it, or 0.
    pub after: u64,
    /// The public key that signed it, in base64.
    pub key: String,
    /// The signed text itself.
    pub note: String,
}

/// A proof about the Merkle tree.
#[derive(Debug, Clone, Serialize)]
pub struct ProofView {
    /// The version of this shape.
    pub schema: u32,
    /// The record that it is about, or the size of the older tree.
    pub from: u64,
    /// The size of the tree.
    pub size: u64,
    /// The record's leaf hash, in base64; missing where it is about an older tree.
    pub leaf_hash: Option<String>,
    /// The hashes, in base64, in the order in which they are used.
    pub proof: Vec<String>,
}

/// How a witness stands.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WitnessView {
    /// `file` or `git`.
    pub kind: String,
    /// Where it is.
    pub place: String,
    /// How many records the newest head is about that it has; 0 if it has none.
    pub size: u64,
    /// How many records are newer than that.
    pub behind: u64,
    /// Why it could not be given the newest head.
    pub problem: Option<String>,
}

/// A run whose work lies on a layer over the workspace.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct IsolatedView {
    /// The version of this shape.
    pub schema: u32,
    /// Its id; also that of the snapshot that a commit makes.
    pub id: String,
    /// The part that people type.
    pub short_id: String,
    /// The command in words.
    pub summary: String,
    /// `running`, `ended`, `killed`, `damaged`, or `committed` where only what was left out remains.
    pub state: String,
    /// The command's exit status, once it has ended.
    pub status: Option<u8>,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// The head of the log when it started.
    pub start_seq: u64,
    /// The session whose work it is.
    pub session: String,
    /// The turn it was started in, if one was open.
    pub turn: Option<u64>,
    /// The directory that holds what the command wrote.
    pub layer: String,
}

/// A replica of a workspace, as its host knows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReplicaView {
    /// The version of this shape.
    pub schema: u32,
    /// Its id.
    pub id: String,
    /// Its name: the session in whose name its writes are recorded.
    pub name: String,
    /// The record up to which it has everything, durably; `None` before its first acknowledgement, or if that was of another
    /// life of the log.
    pub acknowledged: Option<u64>,
    /// How many records are newer than that.
    pub behind: u64,
    /// When it was last heard of, RFC 3339.
    pub seen_at: String,
    /// Bytes sent to it.
    pub sent_bytes: u64,
    /// Bytes got from it.
    pub received_bytes: u64,
    /// The number of its last batch of writes.
    pub last_batch: u64,
    /// Writes of it that were not taken and that nobody decided about, as it said.
    pub conflicts: u64,
}

/// A write of a replica that its host did not take.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RejectedView {
    /// The version of this shape.
    pub schema: u32,
    /// Its id; of the first of a batch, also that of the snapshot that says so.
    pub id: String,
    /// The part that people type.
    pub short_id: String,
    /// Where.
    pub path: String,
    /// Why, as a stable word: `changed`, `parent`, `not_empty`, `group`, `filtered`, `not_allowed`, `folded`, `unknown`.
    pub code: String,
    /// The same for people.
    pub reason: String,
    /// What it was made on: `absent`, `file`, `directory` or `symlink`.
    pub base_kind: String,
    /// What it put there.
    pub mine_kind: String,
    /// What stands there for the host, if it told.
    pub theirs_kind: Option<String>,
    /// The content of these, of files.
    pub base_object: Option<String>,
    /// The content that it put there.
    pub mine_object: Option<String>,
    /// The host's content.
    pub theirs_object: Option<String>,
    /// The host's record that put its version there.
    pub host_seq: u64,
    /// When the answer came, RFC 3339.
    pub answered_at: String,
    /// Whether the three merge by lines without a clash.
    pub mergeable: bool,
}
