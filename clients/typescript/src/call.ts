// One request as a value, and what answers mean.

import type { Problem } from "./shapes.js";

/** What else may be said with a request. */
export interface More {
  /** Ends the request. */
  signal?: AbortSignal;
  /** A retry with the same key is answered the same; by default each request has its own. */
  idempotencyKey?: string;
  /** Of a content: its first byte, and its last or null for all that follow. */
  part?: [number, number | null];
}

/** What is asked. */
export interface Call {
  method: "GET" | "POST" | "DELETE";
  path: string[];
  query?: Record<string, string | number | boolean | undefined>;
  body?: object;
  /** Whether it changes something. */
  changes?: boolean;
  more: More;
}

/** Where a log ends now. */
export interface Head {
  schema: number;
  head_seq: number;
}

/** A file's bytes while they come. */
export interface Content {
  /** How many there are. */
  size: number;
  /** The bytes as they come. */
  stream: ReadableStream<Uint8Array>;
  /** All of them. */
  bytes(): Promise<Uint8Array>;
}

/** A request as it is sent. */
export interface Sent {
  method: string;
  target: string;
  headers: Record<string, string>;
  body: string | undefined;
  signal: AbortSignal | undefined;
}

/** Who carries requests: `fetch`, or a socket. */
export type Transport = (sent: Sent) => Promise<Response>;

/** The server did not do it, and says why. */
export class Refused extends Error {
  readonly status: number;
  /** A stable word. */
  readonly code: string;
  /** The next step. */
  readonly hint: string | null;
  readonly causes: string[];

  constructor(status: number, problem: Partial<Problem>) {
    super([problem.title ?? `The server answered ${status}`, ...(problem.causes ?? [])].join(": "));
    this.name = "Refused";
    this.status = status;
    this.code = problem.code ?? "io";
    this.hint = problem.hint ?? null;
    this.causes = problem.causes ?? [];
  }
}

/** Nobody answered, or the answer broke off. */
export class Unreachable extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = "Unreachable";
  }
}

function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A call as it is sent; whatever changes something has a key, so that asking again does nothing twice. */
export function send(call: Call, token: string | undefined): Sent {
  const pairs = Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined);
  const search = pairs.length ? `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}` : "";
  const headers: Record<string, string> = { "X-Chronicle": "1" };
  if (token !== undefined) headers["Authorization"] = `Bearer ${token}`;
  if (call.body !== undefined) headers["Content-Type"] = "application/json";
  if (call.changes) headers["Idempotency-Key"] = call.more.idempotencyKey ?? newKey();
  if (call.more.part) headers["Range"] = `bytes=${call.more.part[0]}-${call.more.part[1] ?? ""}`;
  return {
    method: call.method,
    target: `/api/v1/${call.path.map(encodeURIComponent).join("/")}${search}`,
    headers,
    body: call.body === undefined ? undefined : JSON.stringify(call.body),
    signal: call.more.signal,
  };
}
