//! The command line as types: every verb, option and help text, and nothing that acts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::agent::Agent;

mod bucket;
mod checkpoint;
mod isolated;
mod logging;
mod mount;
mod operator;
mod replica;
mod tui;
mod upgrade;
mod web;

pub(crate) use mount::{MountArgs, UnmountArgs};
pub(crate) use operator::{GrantArgs, OperatorVerb, RequireArgs, UseArgs};
pub(crate) use replica::{
    ConflictArgs, ConflictsVerb, ConnectArgs, DirectionChoice, FetchArgs, FilterCheckArgs,
    FilterRuleArgs, FilterVerb, RightChoice, ServeArgs, TokenCreateArgs, TokenRevokeArgs,
    TokenVerb,
};

pub(crate) use logging::{LogFormat, LoggingArgs};
pub(crate) use tui::TuiArgs;
pub(crate) use upgrade::UpgradeCheckArgs;
pub(crate) use web::WebArgs;

pub(crate) use checkpoint::{
    CheckpointCreateArgs, CheckpointDiffArgs, CheckpointPruneArgs, CheckpointRestoreArgs,
    CheckpointShowArgs, CheckpointVerb, CheckpointVerifyArgs,
};
pub(crate) use isolated::{IsolatedCommitArgs, IsolatedDiffArgs, IsolatedVerb, IsolationArgs};

pub(crate) use bucket::{
    BucketPlaceArgs, BucketSetArgs, BucketVerb, CloneArgs, EvictArgs, RekeyArgs,
};

/// What stands below the list of verbs.
const AFTER_HELP: &str = "\
    A TARGET names a moment: a snapshot id (just before its action), turn:N (just after turn N; \
    turn:-1 is the last that ended), start, seq:N, a time (2h, 30m, RFC 3339) or a pin; before:X \
    and after:X say it outright.\n\n\
    Exit status: 0 done, 1 failed, 2 usage, 3 stopped with nothing changed, 4 done except the \
    listed paths, 10 no workspace, 11 busy, 12 verification failed, 13 cannot be isolated here, \
    125 run itself failed, 130 cancelled. For changed and grep 1 is an answer, and failing is 5.\n\n\
    Environment: CHRONICLE_HOME (where history lies, ~/.chronicle), CHRONICLE=off (changing \
    commands do nothing), CHRONICLE_KEY_FILE or CHRONICLE_KEY (what signs heads, \
    ~/.config/chronicle/head.key), CHRONICLE_TOKEN_FILE or CHRONICLE_TOKEN (what lets a replica in), \
    CHRONICLE_TRACE (a file for events of replication), NO_COLOR.";

/// See, search, prove and take back whatever agents do to a workspace
#[derive(Debug, Parser)]
#[command(
    name = "chronicle",
    version,
    max_term_width = 100,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct Global {
    /// Work in the workspace that holds this directory, as if started there
    #[arg(short = 'C', value_name = "DIR", global = true, display_order = 90)]
    pub(crate) directory: Option<PathBuf>,
    /// Print JSON: one object, or one per line for log, history and grep
    #[arg(long, global = true, display_order = 91)]
    pub(crate) json: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Init(InitArgs),
    Hook(HookArgs),
    /// Show what changed since the last turn, and how the workspace is protected
    Status,
    Snapshot(SnapshotArgs),
    /// Record what changed since the last look
    Settle,
    /// Open or close a turn of the conversation
    #[command(subcommand)]
    Turn(TurnVerb),
    /// Open a transaction: several actions as one
    Begin,
    Commit(CommitArgs),
    Rollback(RollbackArgs),
    Run(RunArgs),
    /// Decide about runs whose work was kept away from the workspace
    #[command(subcommand)]
    Isolated(IsolatedVerb),
    /// Freeze code and data as one, and bring both back as one
    ///
    /// A checkpoint holds the workspace, the exact commit of every repository, and the databases and
    /// directories that chronicle.toml declares or that are found.
    #[command(subcommand)]
    Checkpoint(CheckpointVerb),
    Log(LogArgs),
    Show(ShowArgs),
    Diff(DiffArgs),
    Changed(ChangedArgs),
    Rewind(RewindArgs),
    Undo(UndoArgs),
    Redo(RedoArgs),
    History(HistoryArgs),
    Cat(CatArgs),
    Grep(GrepArgs),
    Pin(PinArgs),
    Prune(PruneArgs),
    Forget(ForgetArgs),
    Export(ExportArgs),
    /// Keep histories and contents in a bucket that speaks S3 too
    #[command(subcommand)]
    Bucket(BucketVerb),
    /// Send this workspace's history, or what is new of it, to the bucket
    Push,
    /// Take over what the bucket has of this workspace's history and this home has not
    Pull,
    Clone(CloneArgs),
    /// Free the content that no workspace of the home needs any more
    Gc,
    Verify(VerifyArgs),
    Doctor(DoctorArgs),
    UpgradeCheck(UpgradeCheckArgs),
    Head(HeadArgs),
    /// Hand signed heads over to places outside the home, so that lost history is noticed
    #[command(subcommand)]
    Witness(WitnessVerb),
    Watch(WatchArgs),
    Mount(MountArgs),
    Unmount(UnmountArgs),
    Serve(ServeArgs),
    Connect(ConnectArgs),
    /// Bring contents of a lazy replica that are not here yet
    ///
    /// `chronicle connect` must be running for it. Afterwards the files can be read without the host.
    Fetch(FetchArgs),
    /// List the replicas of this workspace: how far each is behind, and what it sent
    Replicas,
    /// Decide about writes of this replica that the host did not take
    #[command(subcommand)]
    Conflicts(ConflictsVerb),
    /// Make, list and revoke what lets replicas in
    #[command(subcommand)]
    Token(TokenVerb),
    /// Say which paths do not travel between a host and its replicas
    #[command(subcommand)]
    Filter(FilterVerb),
    /// Give somebody else than the agents' user the say over what takes protection away
    #[command(subcommand)]
    Operator(OperatorVerb),
    /// Show or accept the workspace's settings
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Protect files and directories outside the workspace too
    #[command(subcommand)]
    Roots(RootsVerb),
    Tui(TuiArgs),
    Mcp(McpArgs),
    Web(WebArgs),
    Install(InstallArgs),
    Uninstall(UninstallArgs),
    Demo(DemoArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Adopt a directory: everything below it can be taken back from now on
///
/// Nothing is written into the directory. Interrupted, it goes on where it stopped. Without DIR it
/// is the directory given by -C, else the top of the repository around the current directory, else
/// the current directory.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The directory to adopt
    pub(crate) dir: Option<PathBuf>,
}

/// Hear an agent's event on stdin, capture, and answer in its dialect
///
/// Installed by `chronicle install`; nobody types it. Exits 2 only to stop an action on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct HookArgs {
    /// claude-code, codex, gemini, opencode, cursor, copilot or cline
    #[arg(value_name = "AGENT")]
    pub(crate) agent: String,
    /// Where history lies, if it is not where it usually does
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Stop an action whose files cannot be saved first
    #[arg(long)]
    pub(crate) strict: bool,
    /// How long it may take, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) budget: Option<u64>,
}

/// Save the present state of paths before an action changes them
///
/// Prints the snapshot's id. What happens to the paths belongs to this action until the next
/// settle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct SnapshotArgs {
    /// What is about to happen: write_file, delete_file, move_file, copy_file, make_dir, chmod, ...
    #[arg(long, value_name = "TYPE", required = true)]
    pub(crate) action: String,
    /// A path that is about to change; may be given several times
    #[arg(long = "path", value_name = "P", allow_hyphen_values = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Where it is about to be moved or copied to
    #[arg(long, value_name = "P2", allow_hyphen_values = true)]
    pub(crate) to: Option<PathBuf>,
    /// The action in words; made from the type and the path otherwise
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) summary: Option<String>,
    /// The agent's own name for the turn
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) turn_key: Option<String>,
    /// The conversation
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// The transaction it belongs to
    #[arg(long, value_name = "ID")]
    pub(crate) transaction: Option<String>,
    /// The agent
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) agent: Option<String>,
    /// The agent's tool
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) tool: Option<String>,
    /// The agent's own name for the call
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) call_id: Option<String>,
}

/// What can be said about a turn.
#[derive(Debug, Subcommand)]
pub(crate) enum TurnVerb {
    /// Look first, so that earlier changes are not the agent's, then open a turn
    Start(TurnArgs),
    /// Record what changed and close the turn
    End(TurnArgs),
}

/// Which turn.
#[derive(Debug, Args)]
pub(crate) struct TurnArgs {
    /// The agent's own name for the turn
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    /// The conversation
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// What the person asked; its first line is kept
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// The agent
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) agent: Option<String>,
}

/// Close a transaction and keep what it did
#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// The transaction; the active one if it is not named
    pub(crate) id: Option<String>,
}

/// Bring one snapshot's files, or a whole transaction, back to before it
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// A snapshot or a transaction
    #[arg(required_unless_present = "plan")]
    pub(crate) id: Option<String>,
    /// Only these paths
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: TakingBackArgs,
}

/// Run a command and record everything it did as one snapshot
///
/// The command gets a terminal of its own, so that it cannot type into yours. Its exit status,
/// signals and job control pass through. Outside a turn, a run is a turn of its own; at a terminal,
/// where it may be a conversation, every pause begins another.
///
/// With --isolated the command works on a layer of its own over the workspace: it sees the workspace
/// at its usual path, and nothing of it changes until its work is committed.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) isolation: IsolationArgs,
    /// Let it work in a mount over the workspace, so that every change is in the log before it happens
    #[arg(long, conflicts_with = "isolated")]
    pub(crate) mount: bool,
    /// What it is for; the command itself otherwise
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) summary: Option<String>,
    /// After so long without a change a new turn begins; 0 for never [default: 30 at a terminal]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) pause: Option<u64>,
    /// The command and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

/// List the snapshots, newest first, grouped by turn
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Only this turn
    #[arg(long, value_name = "N")]
    pub(crate) turn: Option<u64>,
    /// Only this conversation
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Only what touched this path, or anything below it
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(crate) path: Option<PathBuf>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// Show one snapshot and what it changed
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The snapshot
    pub(crate) id: String,
    /// Show the lines too
    #[arg(long)]
    pub(crate) patch: bool,
}

/// Compare two moments, or a moment with the present
///
/// Without a TARGET: since the last turn ended. A word that names a moment is a TARGET, any other
/// word is a PATH; after -- all are paths.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Up to two moments, then paths
    #[arg(value_name = "TARGET|PATH")]
    pub(crate) words: Vec<OsString>,
    /// A line per file with its added and removed lines (the default)
    #[arg(long, conflicts_with_all = ["patch", "name_only"])]
    pub(crate) stat: bool,
    /// The changed lines themselves
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) patch: bool,
    /// Only the names
    #[arg(long)]
    pub(crate) name_only: bool,
    /// Only these paths
    #[arg(value_name = "PATH", last = true)]
    pub(crate) paths: Vec<PathBuf>,
}

/// Tell whether anything changed: exit 0 if nothing did, 1 if something did
#[derive(Debug, Args)]
pub(crate) struct ChangedArgs {
    /// Since this moment; since the last turn ended otherwise
    pub(crate) target: Option<String>,
}

/// What the commands that take back have in common.
#[derive(Debug, Clone, Args)]
pub(crate) struct TakingBackArgs {
    /// Print the plan and its id, change nothing
    #[arg(long, conflicts_with = "plan")]
    pub(crate) dry_run: bool,
    /// Apply exactly this plan of an earlier dry run
    #[arg(long, value_name = "ID")]
    pub(crate) plan: Option<String>,
    /// What to do where kept work and the target both changed the same thing
    #[arg(long, value_enum, value_name = "WAY", default_value_t = ConflictWay::Stop)]
    pub(crate) on_conflict: ConflictWay,
    /// What to do with changes that several could have made
    #[arg(long, value_enum, value_name = "WAY", default_value_t = SharedWay::Keep)]
    pub(crate) shared: SharedWay,
    /// What to do with repositories when it is not clear
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) git: Option<GitWay>,
    /// Only these hunks of a file, numbered as in diff --patch, from 1
    #[arg(long = "hunk", value_name = "PATH:N[,N]", allow_hyphen_values = true)]
    pub(crate) hunks: Vec<OsString>,
    /// Give restored files the present time, so that builds see them as new
    #[arg(long)]
    pub(crate) touch: bool,
    /// Wait while the workspace is busy
    #[arg(long)]
    pub(crate) wait: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// How a conflict is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConflictWay {
    /// Stop before the first change
    Stop,
    /// Keep the work that is there
    KeepMine,
    /// Replace it by the target's
    Replace,
}

/// What happens to shared changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SharedWay {
    /// Take them back too
    Take,
    /// Keep them, and list them
    Keep,
}

/// What happens to repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GitWay {
    /// Leave them as they are
    Keep,
    /// Bring them back with the files
    Restore,
}

/// What happens to what filters keep out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FilteredWay {
    /// Bring it too
    Bring,
    /// Leave it behind
    Leave,
}

/// Bring the workspace, or some paths, back to a moment, and keep what others did since
#[derive(Debug, Args)]
pub(crate) struct RewindArgs {
    /// The moment
    #[arg(required_unless_present = "plan")]
    pub(crate) target: Option<String>,
    /// Only these paths
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Keep nothing, whoever made it: exactly the state of that moment
    #[arg(long)]
    pub(crate) exact: bool,
    /// Take back this conversation's changes only
    #[arg(long, value_name = "K", conflicts_with = "all_sessions", allow_hyphen_values = true)]
    pub(crate) session: Option<String>,
    /// Take back all agents' changes
    #[arg(long)]
    pub(crate) all_sessions: bool,
    /// Write into a new or empty directory where the workspace was, and bind it anew
    #[arg(long)]
    pub(crate) recreate_root: bool,
    #[command(flatten)]
    pub(crate) options: TakingBackArgs,
}

/// Take back one action or turn and keep what came later
///
/// Bare, it is the newest agent's turn with changes in effect; again, the one before.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// A snapshot or turn:N, then paths; any other word is a path
    #[arg(value_name = "ID|turn:N|PATH")]
    pub(crate) words: Vec<OsString>,
    #[command(flatten)]
    pub(crate) options: TakingBackArgs,
}

/// Bring back what the newest rewind, rollback or undo took back
#[derive(Debug, Args)]
pub(crate) struct RedoArgs {
    #[command(flatten)]
    pub(crate) options: TakingBackArgs,
}

/// List every version of one file, newest first, across renames
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The file
    pub(crate) path: PathBuf,
}

/// Print one file as it was
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The file
    pub(crate) path: PathBuf,
    /// The moment; the present otherwise
    #[arg(long, value_name = "TARGET")]
    pub(crate) at: Option<String>,
}

/// Search every version of every file: where a line was first seen, and what removed it
///
/// Exit 0 if there is a match, 1 if there is none. Secrets are not searched.
#[derive(Debug, Args)]
pub(crate) struct GrepArgs {
    /// A regular expression
    pub(crate) pattern: String,
    /// Only paths that match
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    pub(crate) path: Option<String>,
}

/// Give a moment a name and keep it from ever being pruned
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// The moment
    pub(crate) target: String,
    /// Its name
    pub(crate) name: String,
}

/// Drop history that the rules no longer keep, and free its content
///
/// What stays is set in chronicle.toml: the newest turns whole, then a moment an hour, a day, a week,
/// and nothing older than the limits. Pins, recent sessions and what redo needs always stay. It runs by
/// itself once a day.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Only say what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Remove content for good: a secret that should never have been kept
///
/// Every record that names the content says "forgotten" from then on, one more record tells of it, and
/// the content goes from the store and the catalog. History still verifies. Nothing brings it back.
/// Content that still stands in the workspace is refused: change or remove the file first.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// A path, with all that ever stood at it or below; or 12 or more digits of a content's hash
    #[arg(value_name = "PATH|OBJECT")]
    pub(crate) what: PathBuf,
    /// Only the version that stood there at this moment
    #[arg(long, value_name = "TARGET")]
    pub(crate) at: Option<String>,
    /// Only say what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Write the history as commits into a git repository, for review
///
/// One commit per turn, and one for what each look found outside of turns, oldest first, each with the
/// whole workspace at that moment. The ref is one of its own: no branch is ever touched. Exporting again
/// adds to it what was done since. Secrets and what was forgotten or kept out are in no commit.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The repository
    #[arg(long, value_name = "REPO", required = true)]
    pub(crate) git: PathBuf,
    /// A name below refs/chronicle/
    #[arg(value_name = "REF")]
    pub(crate) name: String,
    /// Only say what would be written
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Prove that history is whole: its chain, its signed heads, what witnesses saw, its content
///
/// Names what was done and the first bad record. That the newest part was cut off, or everything put
/// back to an older copy, only a witness or an anchor can tell.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Read every object back too
    #[arg(long)]
    pub(crate) deep: bool,
    /// Compare with a head noted earlier: a file with it, its text, or SIZE:ROOT
    #[arg(long, value_name = "HEAD", allow_hyphen_values = true)]
    pub(crate) anchor: Option<OsString>,
}

/// Say what is out of order in history and content, and put right what can be
///
/// Finishes or discards an interrupted rewind, makes lost indexes anew, drops what killed processes left,
/// puts damaged content aside and takes it in again where a file still has it. Says for every path and
/// snapshot what is lost for good. It guesses nothing and deletes nothing but leftovers.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Only look
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Print the signed head of everything recorded so far, to be kept elsewhere
///
/// Give it to `verify --anchor` later: whatever was cut off, put back or made anew since does not
/// fit it. Every turn's end makes one too.
#[derive(Debug, Args)]
pub(crate) struct HeadArgs {
    /// Print the proof that this record is in it instead
    #[arg(long, value_name = "SEQ", conflicts_with = "since")]
    pub(crate) prove: Option<u64>,
    /// Print the proof that it goes on from the head of this size instead
    #[arg(long, value_name = "SIZE")]
    pub(crate) since: Option<u64>,
}

/// What can be done with witnesses.
#[derive(Debug, Subcommand)]
pub(crate) enum WitnessVerb {
    /// Hand heads over to a file or a git repository from now on, for every workspace of the home
    Add(WitnessArgs),
    /// List the witnesses and how far each has seen
    List,
    /// Hand nothing over to it any more; it keeps what it has
    Remove(WitnessArgs),
}

/// Which witness.
#[derive(Debug, Args)]
pub(crate) struct WitnessArgs {
    /// What it is
    #[arg(value_enum)]
    pub(crate) kind: WitnessKind,
    /// The file, best another user's or on another medium; or the repository
    pub(crate) path: PathBuf,
}

/// The kinds of witnesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WitnessKind {
    /// A file that heads are appended to
    File,
    /// A git repository, which keeps them as a note
    Git,
}

/// What can be done with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Let settings take effect that protect less than before (on a terminal)
    Accept(AcceptArgs),
    /// Show what is kept out, and what waits to be accepted
    Show,
}

/// How settings are accepted.
#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What can be done with further roots.
#[derive(Debug, Subcommand)]
pub(crate) enum RootsVerb {
    /// Protect a file or directory outside the workspace
    Add(RootArgs),
    /// List the workspace's further roots
    List,
    /// Protect it no longer; its history stays
    Remove(RootArgs),
}

/// Which root.
#[derive(Debug, Args)]
pub(crate) struct RootArgs {
    /// The file or directory
    pub(crate) path: PathBuf,
}

/// Serve this workspace to a model as an MCP server, over stdin and stdout
///
/// The model can look at everything. It can take back only its own session's work, and only by a
/// plan that it has previewed.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Serve over HTTP on this loopback address instead; port 0 takes a free one
    ///
    /// Clients need the bearer token in the file that is named on stderr.
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<std::net::SocketAddr>,
    /// The model's conversation, where no hook tells it; may be given several times
    #[arg(long = "session", value_name = "K", allow_hyphen_values = true)]
    pub(crate) sessions: Vec<String>,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}

/// Plug Chronicle into an agent, so that every turn of it can be taken back
///
/// Adds hooks to the agent's own settings, keeps everything else in them, and shows the difference
/// first. Then the project around the current directory is adopted, if there is one. See
/// docs/agents.md for each agent's files, events and limits.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The agent
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) level: LevelArgs,
    /// Block the agent's action when what it would destroy cannot be saved
    #[arg(long)]
    pub(crate) strict: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Take back what install did to an agent's settings; the history stays
///
/// The settings become byte for byte what they were. If somebody changed them since, only
/// Chronicle's own entries go.
#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// The agent
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) level: LevelArgs,
    /// Delete this workspace's history too, for ever (on a terminal)
    #[arg(long)]
    pub(crate) purge: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Whose settings.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(crate) struct LevelArgs {
    /// Your own settings, for every project (the default)
    #[arg(long)]
    pub(crate) user: bool,
    /// Your own settings for this project, which nobody commits
    #[arg(long)]
    pub(crate) project: bool,
    /// The project's committed settings; nothing happens to those who have no chronicle
    #[arg(long)]
    pub(crate) shared: bool,
}

/// Watch Chronicle take back a wrecked workspace, in a scratch directory
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave the scratch directory for a closer look
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Print the completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages into a directory
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory
    pub(crate) dir: PathBuf,
}

/// Watch the workspace, so that looks cost the number of changes and not of files
///
/// Agents' hooks start a watcher by themselves; it ends when nobody has asked it for half an hour.
/// Without it everything works, only slower. CHRONICLE_WATCH=off keeps it from being started. With
/// CAP_SYS_ADMIN it also sees which processes write, so that whose a change is needs no guess.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Stay in this process instead of starting one in the background
    #[arg(long)]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}
