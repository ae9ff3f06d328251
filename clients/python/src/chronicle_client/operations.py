"""Every operation of the API, for callers that wait and for those that await.

Made by clients/generate.py from docs/openapi.json. Do not edit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import shapes
from .call import Call, Head
from .content import AsyncContent, Content


class Operations:
    """Operations that wait for their answer."""

    def _ask(self, call: Call) -> Any:
        raise NotImplementedError

    def _content(self, call: Call) -> Content:
        raise NotImplementedError

    def _events(self, call: Call) -> Iterator[Head]:
        raise NotImplementedError

    def apply_plan(self, workspace: str, plan: str, *, idempotency_key: str | None = None) -> shapes.RewindReport:
        """Do exactly what a plan says, or nothing."""
        answer: shapes.RewindReport = self._ask(Call("POST", ("workspaces", str(workspace), "plans", str(plan), "apply",), changes=True, key=idempotency_key))
        return answer

    def blame(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None) -> shapes.BlameView:
        """Which change brought each line."""
        answer: shapes.BlameView = self._ask(Call("GET", ("workspaces", str(workspace), "blame",), query={"path": path, "path_b64": path_b64, "at": at}))
        return answer

    def diff(self, workspace: str, *, from_: str | None = None, to: str | None = None, of: str | None = None, path: str | None = None, path_b64: str | None = None, after: str | None = None, after_b64: str | None = None, limit: int | None = None, patch: bool | None = None) -> shapes.Diff:
        """What differs between two moments, or what a turn or snapshot did."""
        answer: shapes.Diff = self._ask(Call("GET", ("workspaces", str(workspace), "diff",), query={"from": from_, "to": to, "of": of, "path": path, "path_b64": path_b64, "after": after, "after_b64": after_b64, "limit": limit, "patch": patch}))
        return answer

    def end_turn(self, workspace: str, *, agent: str | None = None, key: str | None = None, prompt: str | None = None, session: str | None = None, idempotency_key: str | None = None) -> shapes.TurnView:
        """Close a turn."""
        answer: shapes.TurnView = self._ask(Call("POST", ("workspaces", str(workspace), "turns", "end",), body={"agent": agent, "key": key, "prompt": prompt, "session": session}, changes=True, key=idempotency_key))
        return answer

    def events(self, workspace: str) -> Iterator[Head]:
        """A stream of `head` events: the log ends there now."""
        return self._events(Call("GET", ("workspaces", str(workspace), "events",)))

    def file_content(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None, part: tuple[int, int | None] | None = None) -> Content:
        """One file's bytes at a moment; takes Range."""
        return self._content(Call("GET", ("workspaces", str(workspace), "content",), query={"path": path, "path_b64": path_b64, "at": at}, part=part))

    def file_diff(self, workspace: str, *, from_: str | None = None, to: str | None = None, of: str | None = None, path: str | None = None, path_b64: str | None = None) -> shapes.FileDiff:
        """How one file differs, as hunks of lines."""
        answer: shapes.FileDiff = self._ask(Call("GET", ("workspaces", str(workspace), "diff", "file",), query={"from": from_, "to": to, "of": of, "path": path, "path_b64": path_b64}))
        return answer

    def file_history(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, before: int | None = None, limit: int | None = None) -> shapes.HistoryPage:
        """One file's versions, newest first, across renames."""
        answer: shapes.HistoryPage = self._ask(Call("GET", ("workspaces", str(workspace), "history",), query={"path": path, "path_b64": path_b64, "before": before, "limit": limit}))
        return answer

    def file_text(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None) -> shapes.TextView:
        """One file's lines at a moment, as far as they go."""
        answer: shapes.TextView = self._ask(Call("GET", ("workspaces", str(workspace), "text",), query={"path": path, "path_b64": path_b64, "at": at}))
        return answer

    def get_snapshot(self, workspace: str, snapshot: str) -> shapes.SnapshotMetadata:
        """One action by any unique part of its id."""
        answer: shapes.SnapshotMetadata = self._ask(Call("GET", ("workspaces", str(workspace), "snapshots", str(snapshot),)))
        return answer

    def get_turn(self, workspace: str, turn: int) -> shapes.TimelineEntry:
        """One turn by its number."""
        answer: shapes.TimelineEntry = self._ask(Call("GET", ("workspaces", str(workspace), "turns", str(turn),)))
        return answer

    def grep(self, workspace: str, *, pattern: str, literal: bool | None = None, any_case: bool | None = None, glob: str | None = None, limit: int | None = None) -> shapes.GrepPage:
        """Lines in every version of every file, deleted ones too."""
        answer: shapes.GrepPage = self._ask(Call("GET", ("workspaces", str(workspace), "grep",), query={"pattern": pattern, "literal": literal, "any_case": any_case, "glob": glob, "limit": limit}))
        return answer

    def health(self, workspace: str) -> shapes.Health:
        """Status, room, retention, verification, replicas and conflicts."""
        answer: shapes.Health = self._ask(Call("GET", ("workspaces", str(workspace), "health",)))
        return answer

    def list_snapshots(self, workspace: str, *, before: int | None = None, limit: int | None = None, turn: int | None = None, session: str | None = None, path: str | None = None, path_b64: str | None = None) -> shapes.SnapshotPage:
        """Actions with their changes, newest first."""
        answer: shapes.SnapshotPage = self._ask(Call("GET", ("workspaces", str(workspace), "snapshots",), query={"before": before, "limit": limit, "turn": turn, "session": session, "path": path, "path_b64": path_b64}))
        return answer

    def list_workspaces(self) -> shapes.Workspaces:
        """The workspaces of the home."""
        answer: shapes.Workspaces = self._ask(Call("GET", ("workspaces",)))
        return answer

    def openapi(self) -> shapes.Anything:
        """This document."""
        answer: shapes.Anything = self._ask(Call("GET", ("openapi.json",)))
        return answer

    def plan(self, workspace: str, *, kind: shapes.PlanKind, all_sessions: bool | None = None, exact: bool | None = None, git: shapes.GitWay | None = None, hunks: list[shapes.HunksBody] | None = None, on_conflict: shapes.ConflictWay | None = None, paths: list[str] | None = None, paths_b64: list[str] | None = None, session: str | None = None, take_shared: bool | None = None, target: str | None = None, touch: bool | None = None, idempotency_key: str | None = None) -> shapes.PlanView:
        """Plan a rewind, rollback, undo or redo; changes no file."""
        answer: shapes.PlanView = self._ask(Call("POST", ("workspaces", str(workspace), "plans",), body={"kind": kind, "all_sessions": all_sessions, "exact": exact, "git": git, "hunks": hunks, "on_conflict": on_conflict, "paths": paths, "paths_b64": paths_b64, "session": session, "take_shared": take_shared, "target": target, "touch": touch}, changes=True, key=idempotency_key))
        return answer

    def plan_file(self, workspace: str, plan: str, *, path: str | None = None, path_b64: str | None = None) -> shapes.FileDiff:
        """What a plan does to one file, as hunks that can be chosen."""
        answer: shapes.FileDiff = self._ask(Call("GET", ("workspaces", str(workspace), "plans", str(plan), "file",), query={"path": path, "path_b64": path_b64}))
        return answer

    def settle(self, workspace: str, *, idempotency_key: str | None = None) -> shapes.SettleReport:
        """Record what changed since the last look."""
        answer: shapes.SettleReport = self._ask(Call("POST", ("workspaces", str(workspace), "settle",), changes=True, key=idempotency_key))
        return answer

    def sign_in(self, *, code: str) -> shapes.SessionView:
        """Exchange the code of a link, once, or a token for a cookie."""
        answer: shapes.SessionView = self._ask(Call("POST", ("session",), body={"code": code}))
        return answer

    def sign_out(self) -> None:
        """Forget the cookie."""
        self._ask(Call("DELETE", ("session",)))

    def start_turn(self, workspace: str, *, agent: str | None = None, key: str | None = None, prompt: str | None = None, session: str | None = None, idempotency_key: str | None = None) -> shapes.TurnView:
        """Open a turn."""
        answer: shapes.TurnView = self._ask(Call("POST", ("workspaces", str(workspace), "turns",), body={"agent": agent, "key": key, "prompt": prompt, "session": session}, changes=True, key=idempotency_key))
        return answer

    def status(self, workspace: str) -> shapes.Status:
        """How the workspace stands; looks at it first."""
        answer: shapes.Status = self._ask(Call("GET", ("workspaces", str(workspace), "status",)))
        return answer

    def take_snapshot(self, workspace: str, *, action: str, agent: str | None = None, call_id: str | None = None, paths: list[str] | None = None, paths_b64: list[str] | None = None, session: str | None = None, summary: str | None = None, to: str | None = None, tool: str | None = None, turn_key: str | None = None, idempotency_key: str | None = None) -> shapes.SnapshotMetadata:
        """Save what an action is about to touch, before it starts."""
        answer: shapes.SnapshotMetadata = self._ask(Call("POST", ("workspaces", str(workspace), "snapshots",), body={"action": action, "agent": agent, "call_id": call_id, "paths": paths, "paths_b64": paths_b64, "session": session, "summary": summary, "to": to, "tool": tool, "turn_key": turn_key}, changes=True, key=idempotency_key))
        return answer

    def timeline(self, workspace: str, *, before: int | None = None, limit: int | None = None, session: str | None = None, tool: str | None = None, path: str | None = None, path_b64: str | None = None) -> shapes.TimelinePage:
        """Turns, and what happened outside of them, newest first."""
        answer: shapes.TimelinePage = self._ask(Call("GET", ("workspaces", str(workspace), "timeline",), query={"before": before, "limit": limit, "session": session, "tool": tool, "path": path, "path_b64": path_b64}))
        return answer

    def tree(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None, after: str | None = None, limit: int | None = None) -> shapes.TreeView:
        """What stood directly in a directory at a moment."""
        answer: shapes.TreeView = self._ask(Call("GET", ("workspaces", str(workspace), "tree",), query={"path": path, "path_b64": path_b64, "at": at, "after": after, "limit": limit}))
        return answer

    def verification(self, workspace: str) -> shapes.Verification:
        """How the last verification of this server stands."""
        answer: shapes.Verification = self._ask(Call("GET", ("workspaces", str(workspace), "verify",)))
        return answer

    def verify(self, workspace: str, *, deep: bool | None = None, idempotency_key: str | None = None) -> shapes.Verification:
        """Verify the history, in the background."""
        answer: shapes.Verification = self._ask(Call("POST", ("workspaces", str(workspace), "verify",), body={"deep": deep}, changes=True, key=idempotency_key))
        return answer

    def who(self) -> shapes.SessionView:
        """Who asks, and what that one may do."""
        answer: shapes.SessionView = self._ask(Call("GET", ("session",)))
        return answer


class AsyncOperations:
    """The same to be awaited."""

    async def _ask(self, call: Call) -> Any:
        raise NotImplementedError

    async def _content(self, call: Call) -> AsyncContent:
        raise NotImplementedError

    def _events(self, call: Call) -> AsyncIterator[Head]:
        raise NotImplementedError

    async def apply_plan(self, workspace: str, plan: str, *, idempotency_key: str | None = None) -> shapes.RewindReport:
        """Do exactly what a plan says, or nothing."""
        answer: shapes.RewindReport = await self._ask(Call("POST", ("workspaces", str(workspace), "plans", str(plan), "apply",), changes=True, key=idempotency_key))
        return answer

    async def blame(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None) -> shapes.BlameView:
        """Which change brought each line."""
        answer: shapes.BlameView = await self._ask(Call("GET", ("workspaces", str(workspace), "blame",), query={"path": path, "path_b64": path_b64, "at": at}))
        return answer

    async def diff(self, workspace: str, *, from_: str | None = None, to: str | None = None, of: str | None = None, path: str | None = None, path_b64: str | None = None, after: str | None = None, after_b64: str | None = None, limit: int | None = None, patch: bool | None = None) -> shapes.Diff:
        """What differs between two moments, or what a turn or snapshot did."""
        answer: shapes.Diff = await self._ask(Call("GET", ("workspaces", str(workspace), "diff",), query={"from": from_, "to": to, "of": of, "path": path, "path_b64": path_b64, "after": after, "after_b64": after_b64, "limit": limit, "patch": patch}))
        return answer

    async def end_turn(self, workspace: str, *, agent: str | None = None, key: str | None = None, prompt: str | None = None, session: str | None = None, idempotency_key: str | None = None) -> shapes.TurnView:
        """Close a turn."""
        answer: shapes.TurnView = await self._ask(Call("POST", ("workspaces", str(workspace), "turns", "end",), body={"agent": agent, "key": key, "prompt": prompt, "session": session}, changes=True, key=idempotency_key))
        return answer

    def events(self, workspace: str) -> AsyncIterator[Head]:
        """A stream of `head` events: the log ends there now."""
        return self._events(Call("GET", ("workspaces", str(workspace), "events",)))

    async def file_content(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None, part: tuple[int, int | None] | None = None) -> AsyncContent:
        """One file's bytes at a moment; takes Range."""
        return await self._content(Call("GET", ("workspaces", str(workspace), "content",), query={"path": path, "path_b64": path_b64, "at": at}, part=part))

    async def file_diff(self, workspace: str, *, from_: str | None = None, to: str | None = None, of: str | None = None, path: str | None = None, path_b64: str | None = None) -> shapes.FileDiff:
        """How one file differs, as hunks of lines."""
        answer: shapes.FileDiff = await self._ask(Call("GET", ("workspaces", str(workspace), "diff", "file",), query={"from": from_, "to": to, "of": of, "path": path, "path_b64": path_b64}))
        return answer

    async def file_history(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, before: int | None = None, limit: int | None = None) -> shapes.HistoryPage:
        """One file's versions, newest first, across renames."""
        answer: shapes.HistoryPage = await self._ask(Call("GET", ("workspaces", str(workspace), "history",), query={"path": path, "path_b64": path_b64, "before": before, "limit": limit}))
        return answer

    async def file_text(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None) -> shapes.TextView:
        """One file's lines at a moment, as far as they go."""
        answer: shapes.TextView = await self._ask(Call("GET", ("workspaces", str(workspace), "text",), query={"path": path, "path_b64": path_b64, "at": at}))
        return answer

    async def get_snapshot(self, workspace: str, snapshot: str) -> shapes.SnapshotMetadata:
        """One action by any unique part of its id."""
        answer: shapes.SnapshotMetadata = await self._ask(Call("GET", ("workspaces", str(workspace), "snapshots", str(snapshot),)))
        return answer

    async def get_turn(self, workspace: str, turn: int) -> shapes.TimelineEntry:
        """One turn by its number."""
        answer: shapes.TimelineEntry = await self._ask(Call("GET", ("workspaces", str(workspace), "turns", str(turn),)))
        return answer

    async def grep(self, workspace: str, *, pattern: str, literal: bool | None = None, any_case: bool | None = None, glob: str | None = None, limit: int | None = None) -> shapes.GrepPage:
        """Lines in every version of every file, deleted ones too."""
        answer: shapes.GrepPage = await self._ask(Call("GET", ("workspaces", str(workspace), "grep",), query={"pattern": pattern, "literal": literal, "any_case": any_case, "glob": glob, "limit": limit}))
        return answer

    async def health(self, workspace: str) -> shapes.Health:
        """Status, room, retention, verification, replicas and conflicts."""
        answer: shapes.Health = await self._ask(Call("GET", ("workspaces", str(workspace), "health",)))
        return answer

    async def list_snapshots(self, workspace: str, *, before: int | None = None, limit: int | None = None, turn: int | None = None, session: str | None = None, path: str | None = None, path_b64: str | None = None) -> shapes.SnapshotPage:
        """Actions with their changes, newest first."""
        answer: shapes.SnapshotPage = await self._ask(Call("GET", ("workspaces", str(workspace), "snapshots",), query={"before": before, "limit": limit, "turn": turn, "session": session, "path": path, "path_b64": path_b64}))
        return answer

    async def list_workspaces(self) -> shapes.Workspaces:
        """The workspaces of the home."""
        answer: shapes.Workspaces = await self._ask(Call("GET", ("workspaces",)))
        return answer

    async def openapi(self) -> shapes.Anything:
        """This document."""
        answer: shapes.Anything = await self._ask(Call("GET", ("openapi.json",)))
        return answer

    async def plan(self, workspace: str, *, kind: shapes.PlanKind, all_sessions: bool | None = None, exact: bool | None = None, git: shapes.GitWay | None = None, hunks: list[shapes.HunksBody] | None = None, on_conflict: shapes.ConflictWay | None = None, paths: list[str] | None = None, paths_b64: list[str] | None = None, session: str | None = None, take_shared: bool | None = None, target: str | None = None, touch: bool | None = None, idempotency_key: str | None = None) -> shapes.PlanView:
        """Plan a rewind, rollback, undo or redo; changes no file."""
        answer: shapes.PlanView = await self._ask(Call("POST", ("workspaces", str(workspace), "plans",), body={"kind": kind, "all_sessions": all_sessions, "exact": exact, "git": git, "hunks": hunks, "on_conflict": on_conflict, "paths": paths, "paths_b64": paths_b64, "session": session, "take_shared": take_shared, "target": target, "touch": touch}, changes=True, key=idempotency_key))
        return answer

    async def plan_file(self, workspace: str, plan: str, *, path: str | None = None, path_b64: str | None = None) -> shapes.FileDiff:
        """What a plan does to one file, as hunks that can be chosen."""
        answer: shapes.FileDiff = await self._ask(Call("GET", ("workspaces", str(workspace), "plans", str(plan), "file",), query={"path": path, "path_b64": path_b64}))
        return answer

    async def settle(self, workspace: str, *, idempotency_key: str | None = None) -> shapes.SettleReport:
        """Record what changed since the last look."""
        answer: shapes.SettleReport = await self._ask(Call("POST", ("workspaces", str(workspace), "settle",), changes=True, key=idempotency_key))
        return answer

    async def sign_in(self, *, code: str) -> shapes.SessionView:
        """Exchange the code of a link, once, or a token for a cookie."""
        answer: shapes.SessionView = await self._ask(Call("POST", ("session",), body={"code": code}))
        return answer

    async def sign_out(self) -> None:
        """Forget the cookie."""
        await self._ask(Call("DELETE", ("session",)))

    async def start_turn(self, workspace: str, *, agent: str | None = None, key: str | None = None, prompt: str | None = None, session: str | None = None, idempotency_key: str | None = None) -> shapes.TurnView:
        """Open a turn."""
        answer: shapes.TurnView = await self._ask(Call("POST", ("workspaces", str(workspace), "turns",), body={"agent": agent, "key": key, "prompt": prompt, "session": session}, changes=True, key=idempotency_key))
        return answer

    async def status(self, workspace: str) -> shapes.Status:
        """How the workspace stands; looks at it first."""
        answer: shapes.Status = await self._ask(Call("GET", ("workspaces", str(workspace), "status",)))
        return answer

    async def take_snapshot(self, workspace: str, *, action: str, agent: str | None = None, call_id: str | None = None, paths: list[str] | None = None, paths_b64: list[str] | None = None, session: str | None = None, summary: str | None = None, to: str | None = None, tool: str | None = None, turn_key: str | None = None, idempotency_key: str | None = None) -> shapes.SnapshotMetadata:
        """Save what an action is about to touch, before it starts."""
        answer: shapes.SnapshotMetadata = await self._ask(Call("POST", ("workspaces", str(workspace), "snapshots",), body={"action": action, "agent": agent, "call_id": call_id, "paths": paths, "paths_b64": paths_b64, "session": session, "summary": summary, "to": to, "tool": tool, "turn_key": turn_key}, changes=True, key=idempotency_key))
        return answer

    async def timeline(self, workspace: str, *, before: int | None = None, limit: int | None = None, session: str | None = None, tool: str | None = None, path: str | None = None, path_b64: str | None = None) -> shapes.TimelinePage:
        """Turns, and what happened outside of them, newest first."""
        answer: shapes.TimelinePage = await self._ask(Call("GET", ("workspaces", str(workspace), "timeline",), query={"before": before, "limit": limit, "session": session, "tool": tool, "path": path, "path_b64": path_b64}))
        return answer

    async def tree(self, workspace: str, *, path: str | None = None, path_b64: str | None = None, at: str | None = None, after: str | None = None, limit: int | None = None) -> shapes.TreeView:
        """What stood directly in a directory at a moment."""
        answer: shapes.TreeView = await self._ask(Call("GET", ("workspaces", str(workspace), "tree",), query={"path": path, "path_b64": path_b64, "at": at, "after": after, "limit": limit}))
        return answer

    async def verification(self, workspace: str) -> shapes.Verification:
        """How the last verification of this server stands."""
        answer: shapes.Verification = await self._ask(Call("GET", ("workspaces", str(workspace), "verify",)))
        return answer

    async def verify(self, workspace: str, *, deep: bool | None = None, idempotency_key: str | None = None) -> shapes.Verification:
        """Verify the history, in the background."""
        answer: shapes.Verification = await self._ask(Call("POST", ("workspaces", str(workspace), "verify",), body={"deep": deep}, changes=True, key=idempotency_key))
        return answer

    async def who(self) -> shapes.SessionView:
        """Who asks, and what that one may do."""
        answer: shapes.SessionView = await self._ask(Call("GET", ("session",)))
        return answer
