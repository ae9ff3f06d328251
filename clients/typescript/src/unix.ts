// Requests over the socket of `chronicle web --socket PATH`, in Node.

import { request } from "node:http";
import { Readable } from "node:stream";
import type { Transport } from "./call.js";

/** Carries requests to a Unix socket. */
export function unixSocket(socketPath: string): Transport {
  return ({ method, target, headers, body, signal }) =>
    new Promise((answer, fail) => {
      const length = method === "GET" ? {} : { "Content-Length": String(Buffer.byteLength(body ?? "")) };
      const sent = request({ socketPath, method, path: target, headers: { Host: "localhost", ...headers, ...length }, ...(signal ? { signal } : {}) }, (got) => {
        const status = got.statusCode ?? 500;
        const named = Object.entries(got.headers).map(([name, value]): [string, string] => [name, String(value)]);
        const bodiless = status === 204;
        if (bodiless) got.resume();
        answer(new Response(bodiless ? null : (Readable.toWeb(got) as ReadableStream<Uint8Array>), { status, headers: named }));
      });
      sent.on("error", fail);
      sent.end(body);
    });
}
