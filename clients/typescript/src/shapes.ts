// The shapes of the API. Made by clients/generate.py from docs/openapi.json. Do not edit.

export type Anything = Record<string, unknown>;

/** Neighbouring lines that one change brought. */
export interface BlameRun {
  /** What the action was. */
  action_summary: string | null;
  /** `person`, `chronicle`, `shared`, or the session's key. */
  author: string | null;
  /** The first line, from 1. */
  first: number;
  /** How many lines. */
  lines: number;
  /** The record; 0 for what stood there when the history begins. */
  seq: number;
  /** The snapshot. */
  snapshot: string | null;
  /** When, RFC 3339. */
  timestamp: string | null;
  /** The turn's number. */
  turn: number | null;
}

/** Where the lines of a file come from. */
export interface BlameView {
  /** Whether older versions were left out: their lines count as the oldest one's. */
  partial: boolean;
  /** Where. */
  path: string;
  /** Neighbouring lines with the same origin, in order; they cover the file. */
  runs: Array<BlameRun>;
  /** The version of this shape. */
  schema: number;
}

/** What the log says about a checkpoint: that it was made, or what became of it. */
export interface CheckpointNote {
  /** What happened to it. */
  action: string | null;
  /** What it holds beside the workspace's files, each as its kind and name; empty where its lock file cannot be read. */
  parts: Array<string>;
  /** The record. */
  seq: number;
  /** The same in words. */
  summary: string | null;
  /** When, RFC 3339. */
  timestamp: string;
}

/** One conflict. */
export interface ConflictView {
  /** The side of the work that would be kept. */
  mine: EntryView;
  /** Where. */
  path: string;
  /** The side of the target. */
  then: EntryView;
  /** What both sides changed: content, kind, mode, owner, attributes. */
  what: string;
}

/** What happens where both sides changed the same thing. */
export type ConflictWay = "stop" | "keep_mine" | "replace";

/** The difference between two moments. */
export interface Diff {
  /** What differs, by path. */
  changes: Array<DiffChange>;
  /** Lines removed. */
  deletions: number;
  /** How many paths differ. */
  files_changed: number;
  /** The moment it starts from, in words. */
  from_snapshot: string;
  /** Lines added. */
  insertions: number;
  /** Whether only a part was looked into, because of the request's limits: some of `changes`, and their lines, or some patches are missing. */
  partial: boolean;
  /** The version of this shape. */
  schema: number;
  /** When it was computed, RFC 3339. */
  timestamp: string;
  /** The moment it ends at; empty for the present. */
  to_snapshot: string;
}

/** One path that differs between two moments. */
export interface DiffChange {
  /** What stands there now. */
  after: EntryView;
  /** The content after. */
  after_hash: string | null;
  /** What stood there. */
  before: EntryView;
  /** The content before. */
  before_hash: string | null;
  /** Whether the content is not text. */
  binary: boolean;
  /** `created`, `modified`, `deleted`, `renamed` or `mode`. */
  change_type: string;
  /** Lines removed. */
  deleted: number;
  /** Where it was moved from. */
  from?: string | null;
  /** Lines added. */
  inserted: number;
  /** The unified patch, where it was asked for. */
  patch?: string | null;
  /** Where. */
  path: string;
  /** The exact bytes in base64, where `path` is not exact. */
  path_b64?: string | null;
  /** Length after. */
  size_bytes: number;
}

/** A command or tool that was called and does what nothing here can take back. */
export interface EffectView {
  /** The agent. */
  agent: string | null;
  /** `outside`: it reached something outside; `data`: it changes data beside the files. */
  kind: string;
  /** More about it: the checkpoint that was made before it, or why none was. */
  note?: string | null;
  /** The rule by which it is one. */
  rule: string;
  /** The position of its record. */
  seq: number;
  /** The session's key. */
  session: string | null;
  /** The snapshot of the call. */
  snapshot: string | null;
  /** When it was called, RFC 3339. */
  timestamp: string;
  /** The agent's tool. */
  tool: string | null;
  /** The turn's number. */
  turn: number | null;
  /** The command, or the tool's name. */
  what: string;
}

/** What stands at a path. */
export interface EntryView {
  /** The content's BLAKE3 hash; of secret content, a keyed one. */
  hash?: string | null;
  /** `file`, `directory`, `symlink`, `special`, `repository`, `absent` or `unknown`. */
  kind: string;
  /** Permission bits, octal. */
  mode?: string | null;
  /** Whether the content is secret: kept sealed, and never shown unasked. */
  secret?: boolean;
  /** Length in bytes. */
  size?: number | null;
  /** Where a symbolic link points. */
  target?: string | null;
  /** Why it is not known. */
  why?: string | null;
}

/** One changed path. */
export interface FileChange {
  /** What stands there now. */
  after: EntryView;
  /** `person`, `chronicle`, `shared`, or the session's key. */
  author: string;
  /** What stood there. */
  before: EntryView;
  /** Whether the content is not text. */
  binary?: boolean;
  /** The sessions that could have made a `shared` change. */
  candidates?: Array<string>;
  /** `created`, `modified`, `deleted`, `renamed` or `mode`. */
  change_type: string;
  /** Lines removed, of text. */
  deleted?: number | null;
  /** How the author is known. */
  evidence: string;
  /** Where it was moved from. */
  from?: string | null;
  /** Lines added, of text. */
  inserted?: number | null;
  /** Whether it is in effect, or was taken back. */
  live: boolean;
  /** Where; bytes that are not UTF-8 are escaped. */
  path: string;
  /** The exact bytes in base64, where `path` is not exact. */
  path_b64?: string | null;
}

/** How one file differs between two moments, line by line. */
export interface FileDiff {
  /** What stands there after. */
  after: EntryView;
  /** A moment at which `after` stands there. */
  after_at: string | null;
  /** What stood there. */
  before: EntryView;
  /** A moment at which `before` stood there. */
  before_at: string | null;
  /** Whether the content is not text. */
  binary: boolean;
  /** `created`, `modified`, `deleted`, `renamed`, `mode`, or `same`. */
  change_type: string;
  /** Lines removed. */
  deleted: number;
  /** Where it was moved from. */
  from?: string | null;
  /** The hunks, as a patch has them. */
  hunks: Array<HunkView>;
  /** Lines added. */
  inserted: number;
  /** Whether lines were left out or cut because there are too many or they are too long. */
  partial: boolean;
  /** Where. */
  path: string;
  /** The exact bytes in base64, where `path` is not exact. */
  path_b64?: string | null;
  /** The version of this shape. */
  schema: number;
  /** Why there are no lines, in words. */
  why?: string | null;
}

/** What happens to repositories. */
export type GitWay = "keep" | "restore";

/** One line found in history. */
export interface GrepMatch {
  /** The first record that had it. */
  first_seen: number;
  /** The turn that brought it. */
  first_turn: number | null;
  /** The last moment at which it was there. */
  last_seen: number;
  /** The line, escaped where it is not text. */
  line: string;
  /** Where. */
  path: string;
  /** Whether it is there now. */
  present: boolean;
  /** What removed it: the snapshot's short id. */
  removed_by: string | null;
  /** The turn that removed it. */
  removed_by_turn: number | null;
  /** The version of this shape. */
  schema: number;
}

/** Lines of every version that fit a pattern. */
export interface GrepPage {
  /** The lines, by path. */
  matches: Array<GrepMatch>;
  /** Whether there are more, or the search took too long to see everything. */
  more: boolean;
  /** The version of this shape. */
  schema: number;
}

/** How a workspace and its history stand. */
export interface Health {
  /** Bytes that the home may take, where they are set; otherwise a quarter of its file system. */
  budget_bytes: number | null;
  /** What the log says about checkpoints, newest first, as far as it goes. */
  checkpoints: Array<CheckpointNote>;
  /** Writes of this replica that its host did not take. */
  conflicts: Array<RejectedView>;
  /** Bytes that should leave the home because it is nearly full; 0 if it is not. */
  excess_bytes: number;
  /** The replicas that were ever heard of. */
  replicas: Array<ReplicaView>;
  /** What pruning by the rules would drop and merge now. */
  retention: PruneReport;
  /** The version of this shape. */
  schema: number;
  /** As `chronicle status` says. */
  status: Status;
  /** The last verification that this server did. */
  verification: Verification;
}

/** A page of one file's versions, newest first. */
export interface HistoryPage {
  /** The versions. */
  iterations: Array<Iteration>;
  /** Whether there are older ones: ask again with `before` the seq of the last. */
  more: boolean;
  /** The version of this shape. */
  schema: number;
}

/** One hunk of a difference. */
export interface HunkView {
  /** The lines, each behind ` `, `-` or `+`; one that begins with `\` says that the line end is missing. */
  lines: Array<string>;
  /** How many lines it has after. */
  new_lines: number;
  /** Its first line after, from 1. */
  new_start: number;
  /** Its number in the file, from 1: what taking back by hunks names. */
  number: number;
  /** How many lines it has before. */
  old_lines: number;
  /** Its first line before, from 1. */
  old_start: number;
}

/** Hunks of one file. */
export interface HunksBody {
  /** Numbers from 1, as the plan's file shows them. */
  numbers: Array<number>;
  /** The file. */
  path?: string | null;
  /** The same as exact bytes in base64. */
  path_b64?: string | null;
}

/** A run whose work lies on a layer over the workspace. */
export interface IsolatedView {
  /** Its id; also that of the snapshot that a commit makes. */
  id: string;
  /** The directory that holds what the command wrote. */
  layer: string;
  /** The version of this shape. */
  schema: number;
  /** The session whose work it is. */
  session: string;
  /** The part that people type. */
  short_id: string;
  /** The head of the log when it started. */
  start_seq: number;
  /** When it started, RFC 3339. */
  started_at: string;
  /** `running`, `ended`, `killed`, `damaged`, or `committed` where only what was left out remains. */
  state: string;
  /** The command's exit status, once it has ended. */
  status: number | null;
  /** The command in words. */
  summary: string;
  /** The turn it was started in, if one was open. */
  turn: number | null;
}

/** One version of one file. */
export interface Iteration {
  /** What the action was. */
  action_summary: string;
  /** The change itself. */
  change: FileChange;
  /** The path it had then. */
  path: string;
  /** The version of this shape. */
  schema: number;
  /** Its position. */
  seq: number;
  /** The snapshot that made it. */
  snapshot: string;
  /** When, RFC 3339. */
  timestamp: string;
  /** The turn's number. */
  turn: number | null;
}

/** One path with words about it. */
export interface KeptView {
  /** Where. */
  path: string;
  /** Why. */
  reason: string;
}

/** How far a bucket has a history. */
export interface MirrorView {
  /** How many records are waiting to go there. */
  behind: number;
  /** Why it could not be reached. */
  error: string | null;
  /** How often in a row it could not be reached. */
  failures: number;
  /** Before then it is not tried again by itself. */
  next_try: string | null;
  /** The place, as a URL. */
  place: string;
  /** When it last had everything; `None` if it never did. */
  pushed_at: string | null;
  /** Up to which record. */
  seq: number;
}

/** What to plan. */
export interface PlanBody {
  /** Take back all agents' work. */
  all_sessions?: boolean;
  /** Keep nothing of what others did. */
  exact?: boolean;
  /** What happens to repositories. */
  git?: GitWay | null;
  /** Only these hunks; with them, only files that are named here are touched. */
  hunks?: Array<HunksBody>;
  /** What is done. */
  kind: PlanKind;
  /** What happens where both sides changed the same thing. */
  on_conflict?: ConflictWay;
  /** Only these paths and what is below them. */
  paths?: Array<string>;
  /** The same as exact bytes in base64. */
  paths_b64?: Array<string>;
  /** Take back this session's work. */
  session?: string | null;
  /** Take back what several could have made. */
  take_shared?: boolean;
  /** The moment, the snapshot or the turn; an undo without one takes the newest turn, a redo has none. */
  target?: string | null;
  /** Give restored files the present time. */
  touch?: boolean;
}

/** What is to be taken back. */
export type PlanKind = "rewind" | "rollback" | "undo" | "redo";

/** One path of a plan. */
export interface PlanStep {
  /** What stands there now. */
  now: EntryView;
  /** Where. */
  path: string;
  /** The exact bytes in base64, where `path` is not exact. */
  path_b64?: string | null;
  /** What will stand there. */
  then: EntryView;
}

/** What a rewind, rollback, undo or redo will do: the preview is this value. */
export interface PlanView {
  /** Whose work is taken back or brought back: session keys, `person` or `shared`. */
  authors: Array<string>;
  /** Paths where both sides changed the same thing. */
  conflict: Array<ConflictView>;
  /** Paths that will be deleted. */
  delete: Array<PlanStep>;
  /** What happens to repositories. */
  git: Array<KeptView>;
  /** What was called since then and cannot be taken back: the command or tool, and when. */
  irreversible: Array<KeptView>;
  /** Paths that stay as they are, and why. */
  keep: Array<KeptView>;
  /** Paths that will be written with kept work merged in. */
  merge: Array<PlanStep>;
  /** Whether a repository's HEAD moves. */
  moves_head: boolean;
  /** Names the plan, for `--plan`. */
  plan_id: string;
  /** The moment it goes to, in words. */
  resolved_target: string;
  /** What comes back that some tool runs by itself: hooks, agents' settings, `.envrc`. */
  runs_by_itself: Array<string>;
  /** The version of this shape. */
  schema: number;
  /** Shared changes that stay unless they are taken too. */
  shared: Array<KeptView>;
  /** How long ago the target is, in seconds. */
  span_seconds: number;
  /** Filtered output that is newer than a restored source, which builds will take for fresh. */
  stale_output: Array<string>;
  /** Paths of which the state at the target is not known. */
  unknown: Array<KeptView>;
  /** Paths that will be written. */
  write: Array<PlanStep>;
}

/** What a client reads (RFC 9457), with the fields of the command's errors. */
export interface Problem {
  /** The causes, nearest first. */
  causes: Array<string>;
  /** A stable word: that of the command, or one of `docs/web.md`. */
  code: string;
  /** The causes in one line, nearest first. */
  detail?: string;
  /** The next step. */
  hint: string | null;
  /** The version of this shape. */
  schema: number;
  /** The status of the answer. */
  status: number;
  /** What went wrong, with the thing it went wrong with. */
  title: string;
  /** `urn:chronicle:error:` and the code. */
  type: string;
}

/** What `prune` dropped and merged, or would. */
export interface PruneReport {
  /** Records of which only the hash stays. */
  dropped_records: number;
  /** Snapshots that cannot be named any more. */
  dropped_snapshots: number;
  /** Nothing was changed: this is what would be. */
  dry_run: boolean;
  /** Bytes of content that were freed. */
  freed_bytes: number;
  /** Changes that stand for the merged records. */
  merged_changes: number;
  /** Records that became one with their neighbours. */
  merged_records: number;
  /** When the first thing after that moment happened. */
  oldest_kept_at?: string | null;
  /** The moment just after this record is the oldest that can be reached. */
  oldest_kept_seq: number;
  /** The version of this shape. */
  schema: number;
}

/** A write of a replica that its host did not take. */
export interface RejectedView {
  /** When the answer came, RFC 3339. */
  answered_at: string;
  /** What it was made on: `absent`, `file`, `directory` or `symlink`. */
  base_kind: string;
  /** The content of these, of files. */
  base_object: string | null;
  /** Why, as a stable word: `changed`, `parent`, `not_empty`, `group`, `filtered`, `not_allowed`, `folded`, `unknown`. */
  code: string;
  /** The host's record that put its version there. */
  host_seq: number;
  /** Its id; of the first of a batch, also that of the snapshot that says so. */
  id: string;
  /** Whether the three merge by lines without a clash. */
  mergeable: boolean;
  /** What it put there. */
  mine_kind: string;
  /** The content that it put there. */
  mine_object: string | null;
  /** Where. */
  path: string;
  /** The same for people. */
  reason: string;
  /** The version of this shape. */
  schema: number;
  /** The part that people type. */
  short_id: string;
  /** What stands there for the host, if it told. */
  theirs_kind: string | null;
  /** The host's content. */
  theirs_object: string | null;
}

/** A replica of a workspace, as its host knows it. */
export interface ReplicaView {
  /** The record up to which it has everything, durably; `None` before its first acknowledgement, or if that was of another life of the log. */
  acknowledged: number | null;
  /** How many records are newer than that. */
  behind: number;
  /** Writes of it that were not taken and that nobody decided about, as it said. */
  conflicts: number;
  /** Its id. */
  id: string;
  /** The number of its last batch of writes. */
  last_batch: number;
  /** Its name: the session in whose name its writes are recorded. */
  name: string;
  /** Bytes got from it. */
  received_bytes: number;
  /** The version of this shape. */
  schema: number;
  /** When it was last heard of, RFC 3339. */
  seen_at: string;
  /** Bytes sent to it. */
  sent_bytes: number;
}

/** What a rewind, rollback, undo or redo did. */
export interface RewindReport {
  /** What was moved aside instead of deleted: from, to. */
  aside: Array<Array<string>>;
  /** How many paths changed. */
  changed: number;
  /** The snapshot that the rewind itself is, if it changed anything. */
  id: string | null;
  /** Whether something was left that the person should look at (exit 4). */
  partial: boolean;
  /** The plan that was applied. */
  plan: PlanView;
  /** The version of this shape. */
  schema: number;
  /** Paths that a concurrent writer changed meanwhile, or that could not be done, and why. */
  unexpected: Array<KeptView>;
}

/** What somebody may do. */
export type Right = "look" | "rewind";

/** Who asks. */
export interface SessionView {
  /** What this caller may do. */
  right: Right;
  /** The version of this shape. */
  schema: number;
}

/** What a settle recorded. */
export interface SettleReport {
  /** How many paths changed. */
  changes: number;
  /** Whether everything could be seen. */
  complete: boolean;
  /** What could not be seen, and why. */
  problems: Array<KeptView>;
  /** The snapshots that got an outcome. */
  snapshots: Array<SnapshotMetadata>;
  /** Whether the watcher said where to look; otherwise everything was looked at. */
  watched: boolean;
}

/** How a browser signs in. */
export interface SignIn {
  /** The code of a link, which counts once, or a token. */
  code: string;
}

/** What an action is about to do. */
export interface SnapshotBody {
  /** The kind of action: `write_file`, `delete_file`, `move_file`, ... */
  action: string;
  /** Which agent. */
  agent?: string | null;
  /** The agent's own name for the call. */
  call_id?: string | null;
  /** The paths that it will touch. */
  paths?: Array<string>;
  /** The same as exact bytes in base64. */
  paths_b64?: Array<string>;
  /** The session's key. */
  session?: string | null;
  /** The action in words. */
  summary?: string | null;
  /** Where a move or copy goes. */
  to?: string | null;
  /** The agent's tool. */
  tool?: string | null;
  /** The agent's own name for the turn. */
  turn_key?: string | null;
}

/** One action: what it was, and what it changed. */
export interface SnapshotMetadata {
  /** In words: `write_file: main.go`. */
  action_summary: string;
  /** `write_file`, `shell`, `external`, `rewind`, ... */
  action_type: string;
  /** The agent. */
  agent: string | null;
  /** The agent's own name for the call. */
  call_id: string | null;
  /** What it changed. */
  changes: Array<FileChange>;
  /** Whether the capture saw everything it should have seen. */
  complete: boolean;
  /** What it called that cannot be taken back. */
  effects?: Array<EffectView>;
  /** The paths that stood there before and are in the store. */
  files_backed_up: Array<string>;
  /** The link of its last record. */
  hash: string;
  /** The snapshot's id. */
  id: string;
  /** Whether the action's outcome is recorded yet. */
  open: boolean;
  /** The link before its first record. */
  previous_hash: string;
  /** The version of this shape. */
  schema: number;
  /** The position of its first record. */
  seq: number;
  /** The session's key. */
  session: string | null;
  /** The part of it that people type. */
  short_id: string;
  /** When, RFC 3339. */
  timestamp: string;
  /** The agent's tool. */
  tool: string | null;
  /** The transaction it belongs to. */
  transaction_id: string | null;
  /** The turn's number. */
  turn: number | null;
  /** The agent's own name for the turn. */
  turn_key: string | null;
}

/** A page of snapshots, newest first. */
export interface SnapshotPage {
  /** Where the next page begins; missing at the end. */
  next: number | null;
  /** The version of this shape. */
  schema: number;
  /** The snapshots. */
  snapshots: Array<SnapshotMetadata>;
}

/** How a workspace stands. */
export interface Status {
  /** The active transaction; one without a living owner is said to be abandoned. */
  active_transaction: Transaction | null;
  /** How long they are together. */
  bytes_not_here: number;
  /** Bytes that this workspace's catalog takes on disk. */
  catalog_bytes: number;
  /** What changed since the last turn ended (or since the first look), not yet recorded included. */
  changes: Array<DiffChange>;
  /** What was called since the last turn ended, or ever, and cannot be taken back. */
  effects: Array<EffectView>;
  /** Files of a lazy replica whose content is still at the host. */
  files_not_here: number;
  /** Directories that filters keep out. */
  filtered: Array<string>;
  /** The last record's link. */
  head_hash: string;
  /** Why the last head could not be signed. */
  head_problem: string | null;
  /** The last record. */
  head_seq: number;
  /** Where its history lies. */
  home: string;
  /** Isolated runs that wait for a decision, or go on. */
  isolated: Array<IsolatedView>;
  /** The last ended turn. */
  last_turn: TurnView | null;
  /** How far a bucket has this history. */
  mirror: MirrorView | null;
  /** Why what a mount saw could not be brought into the log the last time; it is kept in the mount's journal. */
  mount_problem: string | null;
  /** Actions announced and not yet settled. */
  open_intents: number;
  /** The open turns. */
  open_turns: Array<TurnView>;
  /** Narrower filters that wait for `chronicle config accept`. */
  pending_config: Array<string>;
  /** The names of pinned moments. */
  pins: Array<string>;
  /** Files whose content is in the store. */
  protected_files: number;
  /** Rewinds that `redo` can bring back. */
  redoable: number;
  /** Further roots. */
  roots: Array<string>;
  /** The version of this shape. */
  schema: number;
  /** How many records the newest signed head is about; 0 if there is none. */
  signed_size: number;
  /** Bytes that the store takes on disk. */
  store_bytes: number;
  /** Files that are not, and why. */
  unprotected: Array<KeptView>;
  /** How many files are not protected in all. */
  unprotected_files: number;
  /** `off`: no watcher runs. */
  watcher: string;
  /** How the witnesses stand. */
  witnesses: Array<WitnessView>;
  /** The workspace's directory. */
  workspace: string;
  /** Its id. */
  workspace_id: string;
}

/** A file as text, as far as it goes. */
export interface TextView {
  /** Whether the content is not text. */
  binary: boolean;
  /** What stood there. */
  entry: EntryView;
  /** Its lines, without their ends; bytes that are not UTF-8 are replaced. */
  lines: Array<string>;
  /** Whether lines were left out or cut. */
  partial: boolean;
  /** Where. */
  path: string;
  /** The version of this shape. */
  schema: number;
  /** The moment: just after this record. */
  seq: number;
}

/** A turn, or an action outside of every turn. */
export interface TimelineEntry {
  /** Of an action: `write_file`, `shell`, `external`, `rewind`, ... */
  action_type?: string | null;
  /** The agents that took part. */
  agents: Array<string>;
  /** Whose changes there are: session keys, `person`, `chronicle` or `shared`. */
  authors: Array<string>;
  /** Whether every capture in it saw everything. */
  complete: boolean;
  /** How many changes created something. */
  created: number;
  /** How many deleted something. */
  deleted: number;
  /** `turn`, `action` or `rewind`. */
  kind: string;
  /** The position of its last record until now. */
  last_seq: number;
  /** How many changed the mode alone. */
  mode: number;
  /** How many changed content. */
  modified: number;
  /** Whether it goes on: the turn has not ended, or the action's outcome is not recorded. */
  open: boolean;
  /** Whether it has more records than were counted. */
  partial: boolean;
  /** The first few of the paths. */
  paths: Array<string>;
  /** How many moved something. */
  renamed: number;
  /** The position of its first record. */
  seq: number;
  /** The session's key. */
  session: string | null;
  /** The part of its id that people type. */
  short_id?: string | null;
  /** The snapshot, of an action. */
  snapshot?: string | null;
  /** How many actions it is made of. */
  snapshots: number;
  /** Their sub-agents. */
  sub_agents: Array<string>;
  /** Of an action, in words. */
  summary?: string | null;
  /** How many of the changes were taken back. */
  taken_back: number;
  /** When it began, RFC 3339. */
  timestamp: string;
  /** The tools that were used. */
  tools: Array<string>;
  /** The turn. */
  turn?: TurnView | null;
}

/** A page of the timeline, newest first. */
export interface TimelinePage {
  /** What happened; each turn and each action outside of every turn once. */
  entries: Array<TimelineEntry>;
  /** The last record of the log. */
  head_seq: number;
  /** Where the next page begins; missing at the end. A page may be short, or empty, and still have a next. */
  next: number | null;
  /** The version of this shape. */
  schema: number;
}

/** Several actions as one. */
export interface Transaction {
  /** When it ended. */
  finished_at: string | null;
  /** Its id. */
  id: string;
  /** The version of this shape. */
  schema: number;
  /** Its snapshots. */
  snapshots: Array<string>;
  /** When it started, RFC 3339. */
  started_at: string;
  /** `active`, `committed` or `rolled_back`. */
  status: string;
}

/** One name in a directory. */
export interface TreeEntry {
  /** What stood there. */
  entry: EntryView;
  /** The name. */
  name: string;
  /** The whole path. */
  path: string;
  /** Its exact bytes in base64, where `path` is not exact. */
  path_b64?: string | null;
}

/** What stood in a directory at a moment. */
export interface TreeView {
  /** What stood there, by name. */
  entries: Array<TreeEntry>;
  /** Whether there is more behind the last name. */
  more: boolean;
  /** The directory; empty for the workspace's own. */
  path: string;
  /** The version of this shape. */
  schema: number;
  /** The moment: just after this record. */
  seq: number;
}

/** Names a turn. */
export interface TurnBody {
  /** Which agent. */
  agent?: string | null;
  /** The agent's own name for the turn. */
  key?: string | null;
  /** The prompt; its first line is kept. */
  prompt?: string | null;
  /** The session's key. */
  session?: string | null;
}

/** One turn. */
export interface TurnView {
  /** The last record; missing while it is open. */
  end_seq: number | null;
  /** When it ended; missing while it is open. */
  ended_at: string | null;
  /** The agent's own name for it. */
  key: string | null;
  /** Its number in this workspace. */
  number: number;
  /** The first line of the prompt. */
  prompt: string | null;
  /** The session's key. */
  session: string | null;
  /** The first record. */
  start_seq: number;
  /** When it started, RFC 3339. */
  started_at: string;
}

/** How a verification stands. */
export interface Verification {
  /** How much of it is done. */
  done: number;
  /** What was not, in words. */
  problem: string | null;
  /** What was found in order. */
  report: VerifyReport | null;
  /** `never`, `running`, `verified` or `failed`. */
  state: string;
  /** How much there is to do. */
  total: number;
}

/** What to verify. */
export interface VerifyBody {
  /** Read all contents back, too. */
  deep?: boolean;
}

/** What `verify` found in order. */
export interface VerifyReport {
  /** The size of the head that was given with `--anchor`, and that fits. */
  anchored: number | null;
  /** The head that was reached. */
  head_hash: string;
  /** Signed heads that were checked. */
  heads: number;
  /** Objects that records name and the store has. */
  objects: number;
  /** Objects that were taken away here because another store has them. */
  objects_away: number;
  /** Secret objects that are there and could not be read back, for want of their key. */
  objects_not_read: number;
  /** Objects that were read back. */
  objects_read: number;
  /** Records whose links were recomputed. */
  records: number;
  /** The root of the Merkle tree over all records, in base64. */
  root: string;
  /** The version of this shape. */
  schema: number;
  /** The witnesses that were asked, and how far each has seen. */
  witnesses: Array<WitnessView>;
}

/** How a witness stands. */
export interface WitnessView {
  /** How many records are newer than that. */
  behind: number;
  /** `file` or `git`. */
  kind: string;
  /** Where it is. */
  place: string;
  /** Why it could not be given the newest head. */
  problem: string | null;
  /** How many records the newest head is about that it has; 0 if it has none. */
  size: number;
}

/** One workspace. */
export interface WorkspaceItem {
  /** Whether the server was started in it. */
  here: boolean;
  /** Its id, as paths of the API name it. */
  id: string;
  /** Whether the directory is there. */
  present: boolean;
  /** Its directory. */
  root: string;
}

/** The workspaces of the home. */
export interface Workspaces {
  /** The version of this shape. */
  schema: number;
  /** Each workspace, by directory. */
  workspaces: Array<WorkspaceItem>;
}
