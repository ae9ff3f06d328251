"""The shapes of the API.

Made by clients/generate.py from docs/openapi.json. Do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Anything = dict[str, Any]


class BlameRun(TypedDict):
    """Neighbouring lines that one change brought."""

    action_summary: str | None
    """What the action was."""
    author: str | None
    """`person`, `chronicle`, `shared`, or the session's key."""
    first: int
    """The first line, from 1."""
    lines: int
    """How many lines."""
    seq: int
    """The record; 0 for what stood there when the history begins."""
    snapshot: str | None
    """The snapshot."""
    timestamp: str | None
    """When, RFC 3339."""
    turn: int | None
    """The turn's number."""


class BlameView(TypedDict):
    """Where the lines of a file come from."""

    partial: bool
    """Whether older versions were left out: their lines count as the oldest one's."""
    path: str
    """Where."""
    runs: list[BlameRun]
    """Neighbouring lines with the same origin, in order; they cover the file."""
    schema: int
    """The version of this shape."""


class CheckpointNote(TypedDict):
    """What the log says about a checkpoint: that it was made, or what became of it."""

    action: str | None
    """What happened to it."""
    parts: list[str]
    """What it holds beside the workspace's files, each as its kind and name; empty where its lock file cannot be read."""
    seq: int
    """The record."""
    summary: str | None
    """The same in words."""
    timestamp: str
    """When, RFC 3339."""


class ConflictView(TypedDict):
    """One conflict."""

    mine: EntryView
    """The side of the work that would be kept."""
    path: str
    """Where."""
    then: EntryView
    """The side of the target."""
    what: str
    """What both sides changed: content, kind, mode, owner, attributes."""

ConflictWay = Literal["stop", "keep_mine", "replace"]
"""What happens where both sides changed the same thing."""


class Diff(TypedDict):
    """The difference between two moments."""

    changes: list[DiffChange]
    """What differs, by path."""
    deletions: int
    """Lines removed."""
    files_changed: int
    """How many paths differ."""
    from_snapshot: str
    """The moment it starts from, in words."""
    insertions: int
    """Lines added."""
    partial: bool
    """Whether only a part was looked into, because of the request's limits: some of `changes`, and their lines, or some patches are missing."""
    schema: int
    """The version of this shape."""
    timestamp: str
    """When it was computed, RFC 3339."""
    to_snapshot: str
    """The moment it ends at; empty for the present."""


# One path that differs between two moments.
DiffChange = TypedDict(
    "DiffChange",
    {
        "after": "EntryView",  # What stands there now.
        "after_hash": "str | None",  # The content after.
        "before": "EntryView",  # What stood there.
        "before_hash": "str | None",  # The content before.
        "binary": "bool",  # Whether the content is not text.
        "change_type": "str",  # `created`, `modified`, `deleted`, `renamed` or `mode`.
        "deleted": "int",  # Lines removed.
        "from": NotRequired["str | None"],  # Where it was moved from.
        "inserted": "int",  # Lines added.
        "patch": NotRequired["str | None"],  # The unified patch, where it was asked for.
        "path": "str",  # Where.
        "path_b64": NotRequired["str | None"],  # The exact bytes in base64, where `path` is not exact.
        "size_bytes": "int",  # Length after.
    },
)


class EffectView(TypedDict):
    """A command or tool that was called and does what nothing here can take back."""

    agent: str | None
    """The agent."""
    kind: str
    """`outside`: it reached something outside; `data`: it changes data beside the files."""
    note: NotRequired[str | None]
    """More about it: the checkpoint that was made before it, or why none was."""
    rule: str
    """The rule by which it is one."""
    seq: int
    """The position of its record."""
    session: str | None
    """The session's key."""
    snapshot: str | None
    """The snapshot of the call."""
    timestamp: str
    """When it was called, RFC 3339."""
    tool: str | None
    """The agent's tool."""
    turn: int | None
    """The turn's number."""
    what: str
    """The command, or the tool's name."""


class EntryView(TypedDict):
    """What stands at a path."""

    hash: NotRequired[str | None]
    """The content's BLAKE3 hash; of secret content, a keyed one."""
    kind: str
    """`file`, `directory`, `symlink`, `special`, `repository`, `absent` or `unknown`."""
    mode: NotRequired[str | None]
    """Permission bits, octal."""
    secret: NotRequired[bool]
    """Whether the content is secret: kept sealed, and never shown unasked."""
    size: NotRequired[int | None]
    """Length in bytes."""
    target: NotRequired[str | None]
    """Where a symbolic link points."""
    why: NotRequired[str | None]
    """Why it is not known."""


# One changed path.
FileChange = TypedDict(
    "FileChange",
    {
        "after": "EntryView",  # What stands there now.
        "author": "str",  # `person`, `chronicle`, `shared`, or the session's key.
        "before": "EntryView",  # What stood there.
        "binary": NotRequired["bool"],  # Whether the content is not text.
        "candidates": NotRequired["list[str]"],  # The sessions that could have made a `shared` change.
        "change_type": "str",  # `created`, `modified`, `deleted`, `renamed` or `mode`.
        "deleted": NotRequired["int | None"],  # Lines removed, of text.
        "evidence": "str",  # How the author is known.
        "from": NotRequired["str | None"],  # Where it was moved from.
        "inserted": NotRequired["int | None"],  # Lines added, of text.
        "live": "bool",  # Whether it is in effect, or was taken back.
        "path": "str",  # Where; bytes that are not UTF-8 are escaped.
        "path_b64": NotRequired["str | None"],  # The exact bytes in base64, where `path` is not exact.
    },
)


# How one file differs between two moments, line by line.
FileDiff = TypedDict(
    "FileDiff",
    {
        "after": "EntryView",  # What stands there after.
        "after_at": "str | None",  # A moment at which `after` stands there.
        "before": "EntryView",  # What stood there.
        "before_at": "str | None",  # A moment at which `before` stood there.
        "binary": "bool",  # Whether the content is not text.
        "change_type": "str",  # `created`, `modified`, `deleted`, `renamed`, `mode`, or `same`.
        "deleted": "int",  # Lines removed.
        "from": NotRequired["str | None"],  # Where it was moved from.
        "hunks": "list[HunkView]",  # The hunks, as a patch has them.
        "inserted": "int",  # Lines added.
        "partial": "bool",  # Whether lines were left out or cut because there are too many or they are too long.
        "path": "str",  # Where.
        "path_b64": NotRequired["str | None"],  # The exact bytes in base64, where `path` is not exact.
        "schema": "int",  # The version of this shape.
        "why": NotRequired["str | None"],  # Why there are no lines, in words.
    },
)

GitWay = Literal["keep", "restore"]
"""What happens to repositories."""


class GrepMatch(TypedDict):
    """One line found in history."""

    first_seen: int
    """The first record that had it."""
    first_turn: int | None
    """The turn that brought it."""
    last_seen: int
    """The last moment at which it was there."""
    line: str
    """The line, escaped where it is not text."""
    path: str
    """Where."""
    present: bool
    """Whether it is there now."""
    removed_by: str | None
    """What removed it: the snapshot's short id."""
    removed_by_turn: int | None
    """The turn that removed it."""
    schema: int
    """The version of this shape."""


class GrepPage(TypedDict):
    """Lines of every version that fit a pattern."""

    matches: list[GrepMatch]
    """The lines, by path."""
    more: bool
    """Whether there are more, or the search took too long to see everything."""
    schema: int
    """The version of this shape."""


class Health(TypedDict):
    """How a workspace and its history stand."""

    budget_bytes: int | None
    """Bytes that the home may take, where they are set; otherwise a quarter of its file system."""
    checkpoints: list[CheckpointNote]
    """What the log says about checkpoints, newest first, as far as it goes."""
    conflicts: list[RejectedView]
    """Writes of this replica that its host did not take."""
    excess_bytes: int
    """Bytes that should leave the home because it is nearly full; 0 if it is not."""
    replicas: list[ReplicaView]
    """The replicas that were ever heard of."""
    retention: PruneReport
    """What pruning by the rules would drop and merge now."""
    schema: int
    """The version of this shape."""
    status: Status
    """As `chronicle status` says."""
    verification: Verification
    """The last verification that this server did."""


class HistoryPage(TypedDict):
    """A page of one file's versions, newest first."""

    iterations: list[Iteration]
    """The versions."""
    more: bool
    """Whether there are older ones: ask again with `before` the seq of the last."""
    schema: int
    """The version of this shape."""


class HunkView(TypedDict):
    """One hunk of a difference."""

    lines: list[str]
    """The lines, each behind ` `, `-` or `+`; one that begins with `\\` says that the line end is missing."""
    new_lines: int
    """How many lines it has after."""
    new_start: int
    """Its first line after, from 1."""
    number: int
    """Its number in the file, from 1: what taking back by hunks names."""
    old_lines: int
    """How many lines it has before."""
    old_start: int
    """Its first line before, from 1."""


class HunksBody(TypedDict):
    """Hunks of one file."""

    numbers: list[int]
    """Numbers from 1, as the plan's file shows them."""
    path: NotRequired[str | None]
    """The file."""
    path_b64: NotRequired[str | None]
    """The same as exact bytes in base64."""


class IsolatedView(TypedDict):
    """A run whose work lies on a layer over the workspace."""

    id: str
    """Its id; also that of the snapshot that a commit makes."""
    layer: str
    """The directory that holds what the command wrote."""
    schema: int
    """The version of this shape."""
    session: str
    """The session whose work it is."""
    short_id: str
    """The part that people type."""
    start_seq: int
    """The head of the log when it started."""
    started_at: str
    """When it started, RFC 3339."""
    state: str
    """`running`, `ended`, `killed`, `damaged`, or `committed` where only what was left out remains."""
    status: int | None
    """The command's exit status, once it has ended."""
    summary: str
    """The command in words."""
    turn: int | None
    """The turn it was started in, if one was open."""


class Iteration(TypedDict):
    """One version of one file."""

    action_summary: str
    """What the action was."""
    change: FileChange
    """The change itself."""
    path: str
    """The path it had then."""
    schema: int
    """The version of this shape."""
    seq: int
    """Its position."""
    snapshot: str
    """The snapshot that made it."""
    timestamp: str
    """When, RFC 3339."""
    turn: int | None
    """The turn's number."""


class KeptView(TypedDict):
    """One path with words about it."""

    path: str
    """Where."""
    reason: str
    """Why."""


class MirrorView(TypedDict):
    """How far a bucket has a history."""

    behind: int
    """How many records are waiting to go there."""
    error: str | None
    """Why it could not be reached."""
    failures: int
    """How often in a row it could not be reached."""
    next_try: str | None
    """Before then it is not tried again by itself."""
    place: str
    """The place, as a URL."""
    pushed_at: str | None
    """When it last had everything; `None` if it never did."""
    seq: int
    """Up to which record."""


class PlanBody(TypedDict):
    """What to plan."""

    all_sessions: NotRequired[bool]
    """Take back all agents' work."""
    exact: NotRequired[bool]
    """Keep nothing of what others did."""
    git: NotRequired[GitWay | None]
    """What happens to repositories."""
    hunks: NotRequired[list[HunksBody]]
    """Only these hunks; with them, only files that are named here are touched."""
    kind: PlanKind
    """What is done."""
    on_conflict: NotRequired[ConflictWay]
    """What happens where both sides changed the same thing."""
    paths: NotRequired[list[str]]
    """Only these paths and what is below them."""
    paths_b64: NotRequired[list[str]]
    """The same as exact bytes in base64."""
    session: NotRequired[str | None]
    """Take back this session's work."""
    take_shared: NotRequired[bool]
    """Take back what several could have made."""
    target: NotRequired[str | None]
    """The moment, the snapshot or the turn; an undo without one takes the newest turn, a redo has none."""
    touch: NotRequired[bool]
    """Give restored files the present time."""

PlanKind = Literal["rewind", "rollback", "undo", "redo"]
"""What is to be taken back."""


class PlanStep(TypedDict):
    """One path of a plan."""

    now: EntryView
    """What stands there now."""
    path: str
    """Where."""
    path_b64: NotRequired[str | None]
    """The exact bytes in base64, where `path` is not exact."""
    then: EntryView
    """What will stand there."""


class PlanView(TypedDict):
    """What a rewind, rollback, undo or redo will do: the preview is this value."""

    authors: list[str]
    """Whose work is taken back or brought back: session keys, `person` or `shared`."""
    conflict: list[ConflictView]
    """Paths where both sides changed the same thing."""
    delete: list[PlanStep]
    """Paths that will be deleted."""
    git: list[KeptView]
    """What happens to repositories."""
    irreversible: list[KeptView]
    """What was called since then and cannot be taken back: the command or tool, and when."""
    keep: list[KeptView]
    """Paths that stay as they are, and why."""
    merge: list[PlanStep]
    """Paths that will be written with kept work merged in."""
    moves_head: bool
    """Whether a repository's HEAD moves."""
    plan_id: str
    """Names the plan, for `--plan`."""
    resolved_target: str
    """The moment it goes to, in words."""
    runs_by_itself: list[str]
    """What comes back that some tool runs by itself: hooks, agents' settings, `.envrc`."""
    schema: int
    """The version of this shape."""
    shared: list[KeptView]
    """Shared changes that stay unless they are taken too."""
    span_seconds: int
    """How long ago the target is, in seconds."""
    stale_output: list[str]
    """Filtered output that is newer than a restored source, which builds will take for fresh."""
    unknown: list[KeptView]
    """Paths of which the state at the target is not known."""
    write: list[PlanStep]
    """Paths that will be written."""


class Problem(TypedDict):
    """What a client reads (RFC 9457), with the fields of the command's errors."""

    causes: list[str]
    """The causes, nearest first."""
    code: str
    """A stable word: that of the command, or one of `docs/web.md`."""
    detail: NotRequired[str]
    """The causes in one line, nearest first."""
    hint: str | None
    """The next step."""
    schema: int
    """The version of this shape."""
    status: int
    """The status of the answer."""
    title: str
    """What went wrong, with the thing it went wrong with."""
    type: str
    """`urn:chronicle:error:` and the code."""


class PruneReport(TypedDict):
    """What `prune` dropped and merged, or would."""

    dropped_records: int
    """Records of which only the hash stays."""
    dropped_snapshots: int
    """Snapshots that cannot be named any more."""
    dry_run: bool
    """Nothing was changed: this is what would be."""
    freed_bytes: int
    """Bytes of content that were freed."""
    merged_changes: int
    """Changes that stand for the merged records."""
    merged_records: int
    """Records that became one with their neighbours."""
    oldest_kept_at: NotRequired[str | None]
    """When the first thing after that moment happened."""
    oldest_kept_seq: int
    """The moment just after this record is the oldest that can be reached."""
    schema: int
    """The version of this shape."""


class RejectedView(TypedDict):
    """A write of a replica that its host did not take."""

    answered_at: str
    """When the answer came, RFC 3339."""
    base_kind: str
    """What it was made on: `absent`, `file`, `directory` or `symlink`."""
    base_object: str | None
    """The content of these, of files."""
    code: str
    """Why, as a stable word: `changed`, `parent`, `not_empty`, `group`, `filtered`, `not_allowed`, `folded`, `unknown`."""
    host_seq: int
    """The host's record that put its version there."""
    id: str
    """Its id; of the first of a batch, also that of the snapshot that says so."""
    mergeable: bool
    """Whether the three merge by lines without a clash."""
    mine_kind: str
    """What it put there."""
    mine_object: str | None
    """The content that it put there."""
    path: str
    """Where."""
    reason: str
    """The same for people."""
    schema: int
    """The version of this shape."""
    short_id: str
    """The part that people type."""
    theirs_kind: str | None
    """What stands there for the host, if it told."""
    theirs_object: str | None
    """The host's content."""


class ReplicaView(TypedDict):
    """A replica of a workspace, as its host knows it."""

    acknowledged: int | None
    """The record up to which it has everything, durably; `None` before its first acknowledgement, or if that was of another life of the log."""
    behind: int
    """How many records are newer than that."""
    conflicts: int
    """Writes of it that were not taken and that nobody decided about, as it said."""
    id: str
    """Its id."""
    last_batch: int
    """The number of its last batch of writes."""
    name: str
    """Its name: the session in whose name its writes are recorded."""
    received_bytes: int
    """Bytes got from it."""
    schema: int
    """The version of this shape."""
    seen_at: str
    """When it was last heard of, RFC 3339."""
    sent_bytes: int
    """Bytes sent to it."""


class RewindReport(TypedDict):
    """What a rewind, rollback, undo or redo did."""

    aside: list[list[str]]
    """What was moved aside instead of deleted: from, to."""
    changed: int
    """How many paths changed."""
    id: str | None
    """The snapshot that the rewind itself is, if it changed anything."""
    partial: bool
    """Whether something was left that the person should look at (exit 4)."""
    plan: PlanView
    """The plan that was applied."""
    schema: int
    """The version of this shape."""
    unexpected: list[KeptView]
    """Paths that a concurrent writer changed meanwhile, or that could not be done, and why."""

Right = Literal["look", "rewind"]
"""What somebody may do."""


class SessionView(TypedDict):
    """Who asks."""

    right: Right
    """What this caller may do."""
    schema: int
    """The version of this shape."""


class SettleReport(TypedDict):
    """What a settle recorded."""

    changes: int
    """How many paths changed."""
    complete: bool
    """Whether everything could be seen."""
    problems: list[KeptView]
    """What could not be seen, and why."""
    snapshots: list[SnapshotMetadata]
    """The snapshots that got an outcome."""
    watched: bool
    """Whether the watcher said where to look; otherwise everything was looked at."""


class SignIn(TypedDict):
    """How a browser signs in."""

    code: str
    """The code of a link, which counts once, or a token."""


class SnapshotBody(TypedDict):
    """What an action is about to do."""

    action: str
    """The kind of action: `write_file`, `delete_file`, `move_file`, ..."""
    agent: NotRequired[str | None]
    """Which agent."""
    call_id: NotRequired[str | None]
    """The agent's own name for the call."""
    paths: NotRequired[list[str]]
    """The paths that it will touch."""
    paths_b64: NotRequired[list[str]]
    """The same as exact bytes in base64."""
    session: NotRequired[str | None]
    """The session's key."""
    summary: NotRequired[str | None]
    """The action in words."""
    to: NotRequired[str | None]
    """Where a move or copy goes."""
    tool: NotRequired[str | None]
    """The agent's tool."""
    turn_key: NotRequired[str | None]
    """The agent's own name for the turn."""


class SnapshotMetadata(TypedDict):
    """One action: what it was, and what it changed."""

    action_summary: str
    """In words: `write_file: main.go`."""
    action_type: str
    """`write_file`, `shell`, `external`, `rewind`, ..."""
    agent: str | None
    """The agent."""
    call_id: str | None
    """The agent's own name for the call."""
    changes: list[FileChange]
    """What it changed."""
    complete: bool
    """Whether the capture saw everything it should have seen."""
    effects: NotRequired[list[EffectView]]
    """What it called that cannot be taken back."""
    files_backed_up: list[str]
    """The paths that stood there before and are in the store."""
    hash: str
    """The link of its last record."""
    id: str
    """The snapshot's id."""
    open: bool
    """Whether the action's outcome is recorded yet."""
    previous_hash: str
    """The link before its first record."""
    schema: int
    """The version of this shape."""
    seq: int
    """The position of its first record."""
    session: str | None
    """The session's key."""
    short_id: str
    """The part of it that people type."""
    timestamp: str
    """When, RFC 3339."""
    tool: str | None
    """The agent's tool."""
    transaction_id: str | None
    """The transaction it belongs to."""
    turn: int | None
    """The turn's number."""
    turn_key: str | None
    """The agent's own name for the turn."""


class SnapshotPage(TypedDict):
    """A page of snapshots, newest first."""

    next: int | None
    """Where the next page begins; missing at the end."""
    schema: int
    """The version of this shape."""
    snapshots: list[SnapshotMetadata]
    """The snapshots."""


class Status(TypedDict):
    """How a workspace stands."""

    active_transaction: Transaction | None
    """The active transaction; one without a living owner is said to be abandoned."""
    bytes_not_here: int
    """How long they are together."""
    catalog_bytes: int
    """Bytes that this workspace's catalog takes on disk."""
    changes: list[DiffChange]
    """What changed since the last turn ended (or since the first look), not yet recorded included."""
    effects: list[EffectView]
    """What was called since the last turn ended, or ever, and cannot be taken back."""
    files_not_here: int
    """Files of a lazy replica whose content is still at the host."""
    filtered: list[str]
    """Directories that filters keep out."""
    head_hash: str
    """The last record's link."""
    head_problem: str | None
    """Why the last head could not be signed."""
    head_seq: int
    """The last record."""
    home: str
    """Where its history lies."""
    isolated: list[IsolatedView]
    """Isolated runs that wait for a decision, or go on."""
    last_turn: TurnView | None
    """The last ended turn."""
    mirror: MirrorView | None
    """How far a bucket has this history."""
    mount_problem: str | None
    """Why what a mount saw could not be brought into the log the last time; it is kept in the mount's journal."""
    open_intents: int
    """Actions announced and not yet settled."""
    open_turns: list[TurnView]
    """The open turns."""
    pending_config: list[str]
    """Narrower filters that wait for `chronicle config accept`."""
    pins: list[str]
    """The names of pinned moments."""
    protected_files: int
    """Files whose content is in the store."""
    redoable: int
    """Rewinds that `redo` can bring back."""
    roots: list[str]
    """Further roots."""
    schema: int
    """The version of this shape."""
    signed_size: int
    """How many records the newest signed head is about; 0 if there is none."""
    store_bytes: int
    """Bytes that the store takes on disk."""
    unprotected: list[KeptView]
    """Files that are not, and why."""
    unprotected_files: int
    """How many files are not protected in all."""
    watcher: str
    """`off`: no watcher runs."""
    witnesses: list[WitnessView]
    """How the witnesses stand."""
    workspace: str
    """The workspace's directory."""
    workspace_id: str
    """Its id."""


class TextView(TypedDict):
    """A file as text, as far as it goes."""

    binary: bool
    """Whether the content is not text."""
    entry: EntryView
    """What stood there."""
    lines: list[str]
    """Its lines, without their ends; bytes that are not UTF-8 are replaced."""
    partial: bool
    """Whether lines were left out or cut."""
    path: str
    """Where."""
    schema: int
    """The version of this shape."""
    seq: int
    """The moment: just after this record."""


class TimelineEntry(TypedDict):
    """A turn, or an action outside of every turn."""

    action_type: NotRequired[str | None]
    """Of an action: `write_file`, `shell`, `external`, `rewind`, ..."""
    agents: list[str]
    """The agents that took part."""
    authors: list[str]
    """Whose changes there are: session keys, `person`, `chronicle` or `shared`."""
    complete: bool
    """Whether every capture in it saw everything."""
    created: int
    """How many changes created something."""
    deleted: int
    """How many deleted something."""
    kind: str
    """`turn`, `action` or `rewind`."""
    last_seq: int
    """The position of its last record until now."""
    mode: int
    """How many changed the mode alone."""
    modified: int
    """How many changed content."""
    open: bool
    """Whether it goes on: the turn has not ended, or the action's outcome is not recorded."""
    partial: bool
    """Whether it has more records than were counted."""
    paths: list[str]
    """The first few of the paths."""
    renamed: int
    """How many moved something."""
    seq: int
    """The position of its first record."""
    session: str | None
    """The session's key."""
    short_id: NotRequired[str | None]
    """The part of its id that people type."""
    snapshot: NotRequired[str | None]
    """The snapshot, of an action."""
    snapshots: int
    """How many actions it is made of."""
    sub_agents: list[str]
    """Their sub-agents."""
    summary: NotRequired[str | None]
    """Of an action, in words."""
    taken_back: int
    """How many of the changes were taken back."""
    timestamp: str
    """When it began, RFC 3339."""
    tools: list[str]
    """The tools that were used."""
    turn: NotRequired[TurnView | None]
    """The turn."""


class TimelinePage(TypedDict):
    """A page of the timeline, newest first."""

    entries: list[TimelineEntry]
    """What happened; each turn and each action outside of every turn once."""
    head_seq: int
    """The last record of the log."""
    next: int | None
    """Where the next page begins; missing at the end. A page may be short, or empty, and still have a next."""
    schema: int
    """The version of this shape."""


class Transaction(TypedDict):
    """Several actions as one."""

    finished_at: str | None
    """When it ended."""
    id: str
    """Its id."""
    schema: int
    """The version of this shape."""
    snapshots: list[str]
    """Its snapshots."""
    started_at: str
    """When it started, RFC 3339."""
    status: str
    """`active`, `committed` or `rolled_back`."""


class TreeEntry(TypedDict):
    """One name in a directory."""

    entry: EntryView
    """What stood there."""
    name: str
    """The name."""
    path: str
    """The whole path."""
    path_b64: NotRequired[str | None]
    """Its exact bytes in base64, where `path` is not exact."""


class TreeView(TypedDict):
    """What stood in a directory at a moment."""

    entries: list[TreeEntry]
    """What stood there, by name."""
    more: bool
    """Whether there is more behind the last name."""
    path: str
    """The directory; empty for the workspace's own."""
    schema: int
    """The version of this shape."""
    seq: int
    """The moment: just after this record."""


class TurnBody(TypedDict):
    """Names a turn."""

    agent: NotRequired[str | None]
    """Which agent."""
    key: NotRequired[str | None]
    """The agent's own name for the turn."""
    prompt: NotRequired[str | None]
    """The prompt; its first line is kept."""
    session: NotRequired[str | None]
    """The session's key."""


class TurnView(TypedDict):
    """One turn."""

    end_seq: int | None
    """The last record; missing while it is open."""
    ended_at: str | None
    """When it ended; missing while it is open."""
    key: str | None
    """The agent's own name for it."""
    number: int
    """Its number in this workspace."""
    prompt: str | None
    """The first line of the prompt."""
    session: str | None
    """The session's key."""
    start_seq: int
    """The first record."""
    started_at: str
    """When it started, RFC 3339."""


class Verification(TypedDict):
    """How a verification stands."""

    done: int
    """How much of it is done."""
    problem: str | None
    """What was not, in words."""
    report: VerifyReport | None
    """What was found in order."""
    state: str
    """`never`, `running`, `verified` or `failed`."""
    total: int
    """How much there is to do."""


class VerifyBody(TypedDict):
    """What to verify."""

    deep: NotRequired[bool]
    """Read all contents back, too."""


class VerifyReport(TypedDict):
    """What `verify` found in order."""

    anchored: int | None
    """The size of the head that was given with `--anchor`, and that fits."""
    head_hash: str
    """The head that was reached."""
    heads: int
    """Signed heads that were checked."""
    objects: int
    """Objects that records name and the store has."""
    objects_away: int
    """Objects that were taken away here because another store has them."""
    objects_not_read: int
    """Secret objects that are there and could not be read back, for want of their key."""
    objects_read: int
    """Objects that were read back."""
    records: int
    """Records whose links were recomputed."""
    root: str
    """The root of the Merkle tree over all records, in base64."""
    schema: int
    """The version of this shape."""
    witnesses: list[WitnessView]
    """The witnesses that were asked, and how far each has seen."""


class WitnessView(TypedDict):
    """How a witness stands."""

    behind: int
    """How many records are newer than that."""
    kind: str
    """`file` or `git`."""
    place: str
    """Where it is."""
    problem: str | None
    """Why it could not be given the newest head."""
    size: int
    """How many records the newest head is about that it has; 0 if it has none."""


class WorkspaceItem(TypedDict):
    """One workspace."""

    here: bool
    """Whether the server was started in it."""
    id: str
    """Its id, as paths of the API name it."""
    present: bool
    """Whether the directory is there."""
    root: str
    """Its directory."""


class Workspaces(TypedDict):
    """The workspaces of the home."""

    schema: int
    """The version of this shape."""
    workspaces: list[WorkspaceItem]
    """Each workspace, by directory."""
