// Saves a file before it is written, compares, and rolls back.
//
// usage: example.mjs DIRECTORY (--socket PATH | ADDRESS TOKEN_FILE); DIRECTORY is a workspace of the server.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { Chronicle, Refused } from "chronicle-client";
import { unixSocket } from "chronicle-client/unix";

const [directory, first, second] = process.argv.slice(2);
const file = path.join(directory, "greeting.txt");
const chronicle = first === "--socket"
  ? new Chronicle({ transport: unixSocket(second) })
  : new Chronicle({ address: `http://${first}`, token: fs.readFileSync(second, "utf8").trim() });

fs.writeFileSync(file, "hello\n");
const workspace = await chronicle.workspaceAt(fs.realpathSync(directory));
await chronicle.settle(workspace);

const saved = await chronicle.takeSnapshot(workspace, { action: "write_file", paths: ["greeting.txt"], session: "example" });
fs.writeFileSync(file, "HELLO\n");
await chronicle.settle(workspace);

const diff = await chronicle.diff(workspace, { of: saved.id, patch: true });
console.log(diff.changes[0].patch);
const before = await chronicle.fileContent(workspace, { path: "greeting.txt", at: `before:${saved.id}` }, { part: [1, 3] });
assert.equal(Buffer.from(await before.bytes()).toString(), "ell");

const plan = await chronicle.plan(workspace, { kind: "rollback", target: saved.id });
const done = await chronicle.applyPlan(workspace, plan.plan_id);
assert.deepEqual([done.changed, fs.readFileSync(file, "utf8")], [1, "hello\n"]);
await assert.rejects(chronicle.applyPlan(workspace, plan.plan_id), (error) => error instanceof Refused && error.code === "plan_outdated");

for await (const head of chronicle.events(workspace)) {
  if (head.head_seq > saved.seq) break;
}
console.log("rolled back:", fs.readFileSync(file, "utf8").trim());
