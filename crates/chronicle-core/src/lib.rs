//! Chronicle: the undo layer for AI agents.
//!
//! This crate captures the state of a workspace before anything is destroyed, keeps it in a
//! content-addressed store and a tamper-evident log, and takes any of it back exactly.
//! Everything blocks; nothing here knows a terminal or a network.
//!
//! A harness says what it is about to do, does it, and can take it back:
//!
//! ```
//! use chronicle_core::{
//!     DiffRequest, Home, InitOptions, RewindKind, RewindRequest, SnapshotRequest, Workspace,
//!     WorkspacePath,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! let directory = scratch.path().join("workspace");
//! std::fs::create_dir(&directory)?;
//! std::fs::write(directory.join("config.yaml"), "port: 8080\n")?;
//!
//! // History lies in a home of its own, outside the workspace.
//! let home = Home::at(&scratch.path().join("home"));
//! let (mut workspace, _) = Workspace::init(&home, &directory, &InitOptions::default())?;
//!
//! // Before the action: what it will touch.
//! let snapshot = workspace.snapshot(&SnapshotRequest {
//!     action: "write_file".to_owned(),
//!     paths: vec![WorkspacePath::new("config.yaml")?],
//!     ..SnapshotRequest::default()
//! })?;
//! assert_eq!(snapshot.files_backed_up, ["config.yaml"]);
//!
//! // The action, and what became of it.
//! std::fs::write(directory.join("config.yaml"), "port: 80\n")?;
//! workspace.settle()?;
//! let diff = workspace.diff(&DiffRequest::default())?;
//! assert_eq!((diff.files_changed, diff.insertions, diff.deletions), (1, 1, 1));
//!
//! // And back.
//! let rollback = RewindRequest::new(RewindKind::Rollback { id: snapshot.id });
//! workspace.rewind(&rollback, &mut |plan| plan.conflict.is_empty())?;
//! assert_eq!(std::fs::read(directory.join("config.yaml"))?, b"port: 8080\n");
//! workspace.verify(true, &|_, _| ())?;
//! # Ok(())
//! # }
//! ```

mod apply;
mod base64;
mod catalog;
mod chain;
mod clock;
mod codec;
mod entry;
mod error;
mod export;
pub mod failpoint;
mod filter;
mod formats;
mod fs;
#[cfg(test)]
mod fuzz;
mod git;
mod grant;
mod head;
mod home;
mod id;
mod isolated;
mod journal;
mod key;
mod known;
mod lock;
mod look;
mod merge;
pub mod merkle;
pub mod mirror;
mod objects;
mod path;
mod placeholder;
mod plan;
mod process;
mod record;
pub mod replica;
mod repository;
mod retention;
mod room;
mod secret;
mod settings;
mod share;
mod shell;
pub mod shown;
mod skim;
mod store;
mod sweep;
mod text;
mod view;
mod watch;
mod witness;
mod workspace;

pub use base64::{decode as from_base64, encode as to_base64};
pub use catalog::{Log, MemoryLog, link_after, open_next, seal_all, sqlite_log};
pub use clock::{Clock, SystemClock};
pub use codec::{DecodeError, Decoder, Encoder, FORMAT_VERSION};
pub use entry::{Author, Change, Entry, Evidence};
pub use error::{Error, Finding, Result, Stop};
pub use failpoint::ALL as FAILPOINTS;
pub use filter::Pattern as IgnorePattern;
pub use formats::{FORMATS, format};
pub use git::command as git_command;
pub use grant::{Act, Grant, OperatorKey, SignedGrant};
pub use head::{Anchor, PublicKey, SignedHead, TreeHead};
pub use home::Home;
pub use id::{
    Epoch, LeafHash, LinkHash, ObjectId, PlanId, ReplicaId, Seq, SnapshotId, Time, TransactionId,
    WorkspaceId, to_hex,
};
pub use isolated::tell_first_process;
pub use key::KeySource;
pub use path::{InvalidPath, WorkspacePath, escape};
pub use placeholder::Placeholder;
pub use plan::OnConflict;
pub use process::Process;
pub use record::{Checkpointed, Head, Kind, Labels, Record, Sealed};
pub use retention::Policy;
pub use room::usual_floor;
pub use settings::{
    CheckpointCommand, CheckpointPart, CheckpointSettings, CheckpointWhen, EffectSettings,
    ReplicationSettings, SecretSettings, Settings,
};
pub use store::{
    CODEC_SEALED, Cached, ChunkManifest, ContentStorage, Encrypting, Intake, LARGE_OBJECT,
    LocalStore, MemoryStore, Piece, PooledCache, Retries, Retrying, Row, SealedStorage,
    TieredStore, Verified, cut_into_pieces, pack_object, pack_version, unpack_object,
    unpacked_length,
};
pub use text::patch as text_patch;
pub use view::{
    BlameRun, BlameView, CheckpointNote, EffectView, FileDiff, HunkView, TimelineEntry,
    TimelinePage, TreeEntry, TreeView,
};
pub use view::{
    ConflictView, Diff, DiffChange, DoctorFinding, DoctorReport, EntryView, ExportReport,
    FileChange, ForgetReport, ForgottenView, GcReport, GrepMatch, HeadView, IsolatedView,
    Iteration, KeptView, LostContent, MirrorView, PlanStep, PlanView, ProofView, PruneReport,
    RejectedView, ReplicaView, RewindReport, SCHEMA, SnapshotMetadata, Status, Transaction,
    TurnView, VerifyReport, WitnessView,
};
pub use view::{Format, FormatFound, UpgradeReport, UpgradeVerdict, UpgradeWorkspace};
pub use watch::{DirectoryHandle, WATCHER, WatchEnd, WatchOptions};
pub use witness::{Place, Witness};
pub use workspace::{
    Alone, Arrival, Call, CallEnd, CallStart, CheckpointGuard, CheckpointRecord, CheckpointWanted,
    CommitRequest, Deed, DiffRequest, ExportRequest, FilteredChoice, FoldReport, Forgettable,
    GitChoice, HistorySize, InitOptions, InitReport, IsolatedCounts, IsolatedRun, KnownNames,
    LogQuery, Mirrored, MountLog, MountPlace, NewCheckpoint, News, Position, Progress, Prompt,
    Pushing, RewindKind, RewindRequest, RunTicket, SavedAs, SettleReport, SnapshotRequest,
    TimelineQuery, Touch, Touches, TurnRequest, VerifyRequest, WitnessPatience, Workspace,
    encode_contents,
};
pub use workspace::{
    Answer, Answered, Conflict, HashedTree, HostPlace, JournalBatch, PushChanges, PushLimits,
    PushReport, ReplicaNews, ReplicaRow, ReplicaState, Resolution, Unfilled, Unsynced, WriteBack,
};
pub use workspace::{
    ChangesOf, FileSpan, FileVersion, LineStat, Outline, SnapshotBrief, Stretch, StretchView,
    exact_path, view_of,
};
