#!/usr/bin/env node
// Measures the page and its API: a timeline of 10,000 turns, and a snapshot over the socket beside one as a process.
//
// usage: bench/web.mjs [TURNS], after `cargo build --release -p chronicle` and a run of ./test, which installs
// what drives the browser. Rewrites its table in docs/performance.md.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { World } from "../crates/chronicle-web/tests/suites/world.mjs";

const top = path.join(path.dirname(fileURLToPath(import.meta.url)), "..");
const turns = Number(process.argv[2] ?? 10000);
const world = new World(path.join(top, "target/release/chronicle"), path.join(top, "target/tools/web"));
const socket = path.join(world.scratch, "socket");

const middle = (times) => times.sort((a, b) => a - b)[times.length >> 1];
const most = (times) => Math.max(...times);
const memory = (pid, name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;

/** Asks over one connection that stays open. */
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
function ask(ready, route, body) {
  return new Promise((done, fail) => {
    const headers = { Authorization: `Bearer ${world.token(ready)}` };
    if (body) Object.assign(headers, { "Content-Type": "application/json" });
    const request = http.request(`http://${ready.address}/api/v1${route}`, { agent, method: body ? "POST" : "GET", headers }, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("end", () => (answer.statusCode === 200 ? done(JSON.parse(Buffer.concat(pieces))) : fail(new Error(Buffer.concat(pieces).toString()))));
    });
    request.on("error", fail);
    request.end(body && JSON.stringify(body));
  });
}

async function timed(rounds, work) {
  const times = [];
  for (let round = 0; round < rounds; round += 1) {
    const begun = performance.now();
    await work();
    times.push(performance.now() - begun);
  }
  return times;
}

for (let n = 0; n < 100; n += 1) world.write(`src/file${n}.txt`, `${n}\n`.repeat(50));
world.run(["init"]);
const ready = await world.serve("--socket", socket);
const { id } = (await ask(ready, "/workspaces")).workspaces[0];
for (let n = 0; n < turns; n += 1) {
  const session = `s${n % 5}`;
  await ask(ready, `/workspaces/${id}/turns`, { session, agent: "claude-code", prompt: `Turn the ${n}th stone, and look what is below it` });
  world.write(`src/file${n % 100}.txt`, `${n}\n`.repeat(50));
  await ask(ready, `/workspaces/${id}/turns/end`, { session });
}

const rows = [];
const row = (what, value, bound, unit, digits = 0) => rows.push(`| ${what} | ${value.toFixed(digits)} ${unit} | ${bound ? `${bound} ${unit}` : ""} | ${bound ? (value <= bound ? "holds" : "**misses**") : ""} |`);

const page = `/workspaces/${id}/timeline?limit=100`;
await timed(5, () => ask(ready, page));
const answers = await timed(50, () => ask(ready, page));
row("a page of 100 turns, the newest", middle(answers), 20, "ms", 1);
const { next } = await ask(ready, `/workspaces/${id}/timeline?limit=500`);
const older = await timed(30, () => ask(ready, `${page}&before=${Math.max(2, Math.floor(next / 2))}`));
row("the same from the middle", middle(older), 20, "ms", 1);

const browser = await world.browser();
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
const first = await context.newPage();
await first.goto(ready.link);
await first.waitForSelector(".entry");
const paints = [];
const stands = [];
const nodes = [];
for (let round = 0; round < 9; round += 1) {
  const tab = await context.newPage();
  await tab.addInitScript(() => {
    new MutationObserver((_, watcher) => {
      if (!document.querySelector(".entry")) return;
      watcher.disconnect();
      requestAnimationFrame(() => setTimeout(() => { window.stood = performance.now(); }, 0));
    }).observe(document, { childList: true, subtree: true });
  });
  await tab.goto(`http://${ready.address}/#/${id}/timeline`);
  await tab.waitForFunction(() => window.stood && performance.getEntriesByName("first-contentful-paint").length);
  const [paint, stood] = await tab.evaluate(() => [performance.getEntriesByName("first-contentful-paint")[0].startTime, window.stood]);
  await tab.waitForFunction(() => !document.querySelector(".summary").innerText.includes("so far"), null, { timeout: 60000 });
  nodes.push(await tab.evaluate(() => document.querySelectorAll("*").length));
  paints.push(paint);
  stands.push(stood);
  await tab.close();
}
await browser.close();
row("first paint of the page", middle(paints), 300, "ms");
row("the newest turns are on the screen", middle(stands), 300, "ms");
row("nodes in the document once all turns are loaded", most(nodes), 2500, "nodes");
row("memory of the server, at most", memory(ready.process.pid, "VmHWM"), 100, "MB");

const script = `
import statistics, subprocess, sys, time
sys.path.insert(0, ${JSON.stringify(path.join(top, "clients/python/src"))})
from chronicle_client import Chronicle
def middle(rounds, work):
    times = []
    for _ in range(rounds):
        begun = time.perf_counter(); work(); times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)
quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
with Chronicle(socket=${JSON.stringify(socket)}) as chronicle:
    save = lambda: chronicle.take_snapshot(${JSON.stringify(id)}, action="write_file", paths=["src/file1.txt"], session="bench")
    save()
    words = [${JSON.stringify(world.chronicle)}, "-C", ${JSON.stringify(world.root)}, "snapshot", "--action", "write_file", "--session", "bench", "--path", "src/file1.txt"]
    found = [middle(200, save), middle(60, lambda: subprocess.run(words, **quiet)), middle(60, lambda: subprocess.run(["/bin/true"], **quiet))]
print(*found)
`;
const hooks = spawnSync("python3", ["-c", script], { env: world.env, encoding: "utf8" });
if (hooks.status !== 0) throw new Error(hooks.stderr);
const [wire, spawned, bare] = hooks.stdout.trim().split(" ").map(Number);
row("a snapshot of a known file: the Python client over the socket", wire, null, "ms", 2);
row("the same by starting `chronicle snapshot` from Python", spawned, null, "ms", 2);
row("starting `/bin/true` from Python", bare, null, "ms", 2);
world.end();

const date = new Date().toISOString().slice(0, 10);
const table = [`Taken ${date}, with ${turns.toLocaleString("en")} turns in the history.`, "", "| what | measured | at most | |", "|---|---|---|---|", ...rows].join("\n");
console.log(table);
const file = path.join(top, "docs/performance.md");
const text = fs.readFileSync(file, "utf8");
fs.writeFileSync(file, text.replace(/(<!-- web:begin -->)[^]*(<!-- web:end -->)/, `$1\n\n${table}\n\n$2`));
