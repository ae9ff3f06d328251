// A client of Chronicle, the undo layer for AI agents: every operation of its API as a method.

import { Refused, send, Unreachable } from "./call.js";
import type { Call, Content, Head, Transport } from "./call.js";
import { Operations } from "./operations.js";
import type { Problem } from "./shapes.js";

export { Refused, Unreachable } from "./call.js";
export type { Content, Head, More, Sent, Transport } from "./call.js";
export type * from "./shapes.js";

/** Where a server of `chronicle web` is: its address, or who carries requests to it. */
export interface Options {
  /** Like `http://127.0.0.1:8765`; a page of the server itself needs none. */
  address?: string;
  /** The token for looking or for rewinding. */
  token?: string;
  /** Instead of an address: `unixSocket(path)` from `chronicle-client/unix`, or something of your own. */
  transport?: Transport;
}

function byFetch(address: string): Transport {
  const base = address.replace(/\/+$/, "");
  return ({ method, target, headers, body, signal }) => fetch(base + target, { method, headers, body: body ?? null, signal: signal ?? null });
}

const isAborted = (error: unknown) => error instanceof Error && error.name === "AbortError";

/** A server of `chronicle web`. */
export class Chronicle extends Operations {
  readonly #transport: Transport;
  readonly #token: string | undefined;

  constructor({ address = "", token, transport }: Options = {}) {
    super();
    this.#transport = transport ?? byFetch(address);
    this.#token = token;
  }

  /** The id of the workspace with this root, or of the one in which the server was started. */
  async workspaceAt(root?: string): Promise<string> {
    const { workspaces } = await this.listWorkspaces();
    const found = workspaces.find((item) => (root === undefined ? item.here : item.root === root));
    if (!found) throw new Refused(404, { code: "no_workspace", title: `${root ?? "The server's directory"} is no workspace`, hint: "Adopt the directory with: chronicle init" });
    return found.id;
  }

  /** Asks; once more if nobody answered and nothing can be done twice. */
  async #send(call: Call): Promise<Response> {
    const sent = send(call, this.#token);
    const again = call.method === "GET" || call.changes === true;
    for (let last = !again; ; last = true) {
      try {
        const response = await this.#transport(sent);
        if (response.ok) return response;
        throw new Refused(response.status, (await response.json().catch(() => ({}))) as Partial<Problem>);
      } catch (error) {
        if (error instanceof Refused || isAborted(error)) throw error;
        if (last) throw new Unreachable("The server did not answer", error);
      }
    }
  }

  protected async ask<T>(call: Call): Promise<T> {
    const response = await this.#send(call);
    return (response.status === 204 ? undefined : await response.json()) as T;
  }

  protected async content(call: Call): Promise<Content> {
    const response = await this.#send(call);
    const size = Number(response.headers.get("content-length"));
    const stream = response.body ?? new Response("").body!;
    return { size, stream, bytes: async () => new Uint8Array(await new Response(stream).arrayBuffer()) };
  }

  protected async *listen(call: Call): AsyncIterable<Head> {
    const control = new AbortController();
    const signal = call.more.signal ? AbortSignal.any([call.more.signal, control.signal]) : control.signal;
    const response = await this.#send({ ...call, more: { ...call.more, signal } });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const lines = (text + value).split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6)) as Head;
      }
    } finally {
      control.abort();
      await reader.cancel().catch(() => {});
    }
  }
}
