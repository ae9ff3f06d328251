// Every operation of the API. Made by clients/generate.py from docs/openapi.json. Do not edit.

import type { Call, Content, Head, More } from "./call.js";
import type { Anything, BlameView, Diff, FileDiff, GrepPage, Health, HistoryPage, PlanBody, PlanView, RewindReport, SessionView, SettleReport, SignIn, SnapshotBody, SnapshotMetadata, SnapshotPage, Status, TextView, TimelineEntry, TimelinePage, TreeView, TurnBody, TurnView, Verification, VerifyBody, Workspaces } from "./shapes.js";

/** Every operation; a client says how they are sent. */
export abstract class Operations {
  protected abstract ask<T>(call: Call): Promise<T>;
  protected abstract content(call: Call): Promise<Content>;
  protected abstract listen(call: Call): AsyncIterable<Head>;

  /** Do exactly what a plan says, or nothing. */
  applyPlan(workspace: string, plan: string, more: More = {}): Promise<RewindReport> {
    return this.ask<RewindReport>({ method: "POST", path: ["workspaces", String(workspace), "plans", String(plan), "apply"], changes: true, more });
  }

  /** Which change brought each line. */
  blame(workspace: string, query: { path?: string | undefined; path_b64?: string | undefined; at?: string | undefined } = {}, more: More = {}): Promise<BlameView> {
    return this.ask<BlameView>({ method: "GET", path: ["workspaces", String(workspace), "blame"], query, more });
  }

  /** What differs between two moments, or what a turn or snapshot did. */
  diff(workspace: string, query: { from?: string | undefined; to?: string | undefined; of?: string | undefined; path?: string | undefined; path_b64?: string | undefined; after?: string | undefined; after_b64?: string | undefined; limit?: number | undefined; patch?: boolean | undefined } = {}, more: More = {}): Promise<Diff> {
    return this.ask<Diff>({ method: "GET", path: ["workspaces", String(workspace), "diff"], query, more });
  }

  /** Close a turn. */
  endTurn(workspace: string, body: TurnBody = {}, more: More = {}): Promise<TurnView> {
    return this.ask<TurnView>({ method: "POST", path: ["workspaces", String(workspace), "turns", "end"], body, changes: true, more });
  }

  /** A stream of `head` events: the log ends there now. */
  events(workspace: string, more: More = {}): AsyncIterable<Head> {
    return this.listen({ method: "GET", path: ["workspaces", String(workspace), "events"], more });
  }

  /** One file's bytes at a moment; takes Range. */
  fileContent(workspace: string, query: { path?: string | undefined; path_b64?: string | undefined; at?: string | undefined } = {}, more: More = {}): Promise<Content> {
    return this.content({ method: "GET", path: ["workspaces", String(workspace), "content"], query, more });
  }

  /** How one file differs, as hunks of lines. */
  fileDiff(workspace: string, query: { from?: string | undefined; to?: string | undefined; of?: string | undefined; path?: string | undefined; path_b64?: string | undefined } = {}, more: More = {}): Promise<FileDiff> {
    return this.ask<FileDiff>({ method: "GET", path: ["workspaces", String(workspace), "diff", "file"], query, more });
  }

  /** One file's versions, newest first, across renames. */
  fileHistory(workspace: string, query: { path?: string | undefined; path_b64?: string | undefined; before?: number | undefined; limit?: number | undefined } = {}, more: More = {}): Promise<HistoryPage> {
    return this.ask<HistoryPage>({ method: "GET", path: ["workspaces", String(workspace), "history"], query, more });
  }

  /** One file's lines at a moment, as far as they go. */
  fileText(workspace: string, query: { path?: string | undefined; path_b64?: string | undefined; at?: string | undefined } = {}, more: More = {}): Promise<TextView> {
    return this.ask<TextView>({ method: "GET", path: ["workspaces", String(workspace), "text"], query, more });
  }

  /** One action by any unique part of its id. */
  getSnapshot(workspace: string, snapshot: string, more: More = {}): Promise<SnapshotMetadata> {
    return this.ask<SnapshotMetadata>({ method: "GET", path: ["workspaces", String(workspace), "snapshots", String(snapshot)], more });
  }

  /** One turn by its number. */
  getTurn(workspace: string, turn: number, more: More = {}): Promise<TimelineEntry> {
    return this.ask<TimelineEntry>({ method: "GET", path: ["workspaces", String(workspace), "turns", String(turn)], more });
  }

  /** Lines in every version of every file, deleted ones too. */
  grep(workspace: string, query: { pattern: string | undefined; literal?: boolean | undefined; any_case?: boolean | undefined; glob?: string | undefined; limit?: number | undefined }, more: More = {}): Promise<GrepPage> {
    return this.ask<GrepPage>({ method: "GET", path: ["workspaces", String(workspace), "grep"], query, more });
  }

  /** Status, room, retention, verification, replicas and conflicts. */
  health(workspace: string, more: More = {}): Promise<Health> {
    return this.ask<Health>({ method: "GET", path: ["workspaces", String(workspace), "health"], more });
  }

  /** Actions with their changes, newest first. */
  listSnapshots(workspace: string, query: { before?: number | undefined; limit?: number | undefined; turn?: number | undefined; session?: string | undefined; path?: string | undefined; path_b64?: string | undefined } = {}, more: More = {}): Promise<SnapshotPage> {
    return this.ask<SnapshotPage>({ method: "GET", path: ["workspaces", String(workspace), "snapshots"], query, more });
  }

  /** The workspaces of the home. */
  listWorkspaces(more: More = {}): Promise<Workspaces> {
    return this.ask<Workspaces>({ method: "GET", path: ["workspaces"], more });
  }

  /** This document. */
  openapi(more: More = {}): Promise<Anything> {
    return this.ask<Anything>({ method: "GET", path: ["openapi.json"], more });
  }

  /** Plan a rewind, rollback, undo or redo; changes no file. */
  plan(workspace: string, body: PlanBody, more: More = {}): Promise<PlanView> {
    return this.ask<PlanView>({ method: "POST", path: ["workspaces", String(workspace), "plans"], body, changes: true, more });
  }

  /** What a plan does to one file, as hunks that can be chosen. */
  planFile(workspace: string, plan: string, query: { path?: string | undefined; path_b64?: string | undefined } = {}, more: More = {}): Promise<FileDiff> {
    return this.ask<FileDiff>({ method: "GET", path: ["workspaces", String(workspace), "plans", String(plan), "file"], query, more });
  }

  /** Record what changed since the last look. */
  settle(workspace: string, more: More = {}): Promise<SettleReport> {
    return this.ask<SettleReport>({ method: "POST", path: ["workspaces", String(workspace), "settle"], changes: true, more });
  }

  /** Exchange the code of a link, once, or a token for a cookie. */
  signIn(body: SignIn, more: More = {}): Promise<SessionView> {
    return this.ask<SessionView>({ method: "POST", path: ["session"], body, more });
  }

  /** Forget the cookie. */
  signOut(more: More = {}): Promise<void> {
    return this.ask<void>({ method: "DELETE", path: ["session"], more });
  }

  /** Open a turn. */
  startTurn(workspace: string, body: TurnBody = {}, more: More = {}): Promise<TurnView> {
    return this.ask<TurnView>({ method: "POST", path: ["workspaces", String(workspace), "turns"], body, changes: true, more });
  }

  /** How the workspace stands; looks at it first. */
  status(workspace: string, more: More = {}): Promise<Status> {
    return this.ask<Status>({ method: "GET", path: ["workspaces", String(workspace), "status"], more });
  }

  /** Save what an action is about to touch, before it starts. */
  takeSnapshot(workspace: string, body: SnapshotBody, more: More = {}): Promise<SnapshotMetadata> {
    return this.ask<SnapshotMetadata>({ method: "POST", path: ["workspaces", String(workspace), "snapshots"], body, changes: true, more });
  }

  /** Turns, and what happened outside of them, newest first. */
  timeline(workspace: string, query: { before?: number | undefined; limit?: number | undefined; session?: string | undefined; tool?: string | undefined; path?: string | undefined; path_b64?: string | undefined } = {}, more: More = {}): Promise<TimelinePage> {
    return this.ask<TimelinePage>({ method: "GET", path: ["workspaces", String(workspace), "timeline"], query, more });
  }

  /** What stood directly in a directory at a moment. */
  tree(workspace: string, query: { path?: string | undefined; path_b64?: string | undefined; at?: string | undefined; after?: string | undefined; limit?: number | undefined } = {}, more: More = {}): Promise<TreeView> {
    return this.ask<TreeView>({ method: "GET", path: ["workspaces", String(workspace), "tree"], query, more });
  }

  /** How the last verification of this server stands. */
  verification(workspace: string, more: More = {}): Promise<Verification> {
    return this.ask<Verification>({ method: "GET", path: ["workspaces", String(workspace), "verify"], more });
  }

  /** Verify the history, in the background. */
  verify(workspace: string, body: VerifyBody = {}, more: More = {}): Promise<Verification> {
    return this.ask<Verification>({ method: "POST", path: ["workspaces", String(workspace), "verify"], body, changes: true, more });
  }

  /** Who asks, and what that one may do. */
  who(more: More = {}): Promise<SessionView> {
    return this.ask<SessionView>({ method: "GET", path: ["session"], more });
  }
}
