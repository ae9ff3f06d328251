// The page where it matters most: a newcomer's first minutes, other people's pages, and much of everything.
//
// usage: limits.mjs CHRONICLE TOOLS [SCREENSHOTS]; TURNS says how many turns there are.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import path from "node:path";
import { Suite } from "./suite.mjs";

const TURNS = Number(process.env.TURNS ?? 300);

const suite = await Suite.begin("limits", (world) => {
  world.write("README.md", "# Shop\n");
  world.run(["init"]);
});
const { world, page, context, ready, id } = suite;
const test = (name, work) => suite.test(name, work);
const pause = (wait) => new Promise((done) => setTimeout(done, wait));
const head = async () => (await world.ask(ready, `/workspaces/${id}/timeline?limit=1`)).head_seq;

/** Scrolls an element from its top to its end, a frame at a time; how long frames took, and how many nodes there were. */
const scrolled = (selector, steps) => page.evaluate(async ([selector, steps]) => {
  const list = document.querySelector(selector);
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const times = [];
  let nodes = 0;
  list.scrollTop = 0;
  await frame();
  for (let step = 1; step <= steps; step += 1) {
    const begun = performance.now();
    list.scrollTop = ((list.scrollHeight - list.clientHeight) / steps) * step;
    await frame();
    times.push(performance.now() - begun);
    nodes = Math.max(nodes, document.querySelectorAll("*").length);
  }
  times.sort((a, b) => a - b);
  return { median: times[times.length >> 1], worst: times.at(-1), nodes };
}, [selector, steps]);

function smooth(what, found) {
  console.log(`note: ${what}: ${found.nodes} nodes, frames of ${found.median.toFixed(1)} ms, the slowest ${found.worst.toFixed(1)} ms`);
  assert(found.nodes < 2500, `${what}: ${found.nodes} nodes`);
  assert(found.median < 50, `${what}: ${found.median} ms a frame`);
  assert(found.worst < 500, `${what}: ${found.worst} ms for a frame`);
}

await test("a_newcomer_sees_the_turn_appear_takes_two_of_five_files_back_and_undoes_that", async () => {
  await page.goto(ready.link);
  await page.waitForSelector(".empty");
  assert.match(await page.locator(".empty").innerText(), /chronicle install/);
  await suite.auditBoth("nothing happened yet");
  await page.waitForSelector(".live.on");
  // The agent works in another window, one file after the other, while the page is looked at.
  world.hook("UserPromptSubmit", { prompt: "Make five pages" });
  await page.waitForSelector(".entry .badge.now");
  for (const number of [1, 2, 3, 4, 5]) {
    const call = { tool_name: "Write", tool_input: { file_path: path.join(world.root, `page${number}.md`) }, tool_use_id: `c${number}` };
    world.hook("PreToolUse", call);
    world.write(`page${number}.md`, `# Page ${number}\n`);
    world.hook("PostToolUse", { ...call, tool_response: {} });
    await page.waitForFunction((count) => document.querySelector(".entry .n.created")?.innerText === `+${count}`, number);
  }
  world.hook("Stop", {});
  await page.waitForFunction(() => document.querySelector(".entry") && !document.querySelector(".badge.now"));
  await page.click(".entry >> text=Make five pages");
  await page.click("text=Undo this turn");
  await page.waitForSelector(".step");
  assert.equal(await page.locator(".step").count(), 5);
  await page.locator(".row-head input").uncheck();
  await page.waitForSelector("text=Nothing is chosen");
  for (const name of ["page2.md", "page4.md"]) {
    await page.locator(".step", { hasText: name }).locator("input").check();
    await page.waitForFunction((name) => [...document.querySelectorAll(".step:not(.out)")].some((row) => row.innerText.includes(name)) && !document.querySelector(".taking-back.waiting"), name);
  }
  await page.click("text=Undo 2 paths");
  await page.click("#go");
  await page.waitForSelector("text=2 paths changed");
  const there = () => [1, 2, 3, 4, 5].filter((number) => world.read(`page${number}.md`) === `# Page ${number}\n`);
  assert.deepEqual(there(), [1, 3, 5]);
  await page.click("text=Undo this");
  await page.waitForFunction(() => document.querySelector("h1").innerText.includes("Undone"));
  assert.deepEqual(there(), [1, 2, 3, 4, 5]);
});

await test("another_page_can_neither_read_nor_change_anything", async () => {
  // Another port of the same machine is the same site: the browser sends it our cookie.
  const wanted = `http://${ready.address}/api/v1/workspaces/${id}`;
  const script = `
    const said = [];
    const tried = [
      fetch("${wanted}/timeline", { credentials: "include" }).then((r) => r.text()),
      fetch("${wanted}/settle", { method: "POST", credentials: "include", headers: { "X-Chronicle": "1" } }).then((r) => r.text()),
      fetch("${wanted}/settle", { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }).then((r) => r.type + r.status),
      fetch("${wanted}/plans", { method: "POST", mode: "no-cors", credentials: "include", headers: { "Content-Type": "text/plain" }, body: '{"kind":"undo"}' }).then((r) => r.type + r.status),
    ];
    Promise.allSettled(tried).then((all) => { document.title = JSON.stringify(all.map((it) => it.value ?? "refused")); });`;
  const form = `<form id="f" method="post" target="hidden" action="${wanted}/settle"><input name="a"></form><iframe name="hidden"></iframe><iframe src="http://${ready.address}/"></iframe><script src="${wanted}/timeline"></script>`;
  const evil = http.createServer((_, answer) => answer.writeHead(200, { "Content-Type": "text/html" }).end(`${form}<script>${script};document.getElementById("f").submit()</script>`));
  await once(evil.listen(0, "127.0.0.1"), "listening");
  const before = await head();
  world.write("README.md", "# Shop, changed\n");
  const other = await context.newPage();
  await other.bringToFront();
  const refused = [];
  other.on("response", (response) => response.url().startsWith(`http://${ready.address}/api`) && refused.push(response.status()));
  await other.goto(`http://127.0.0.1:${evil.address().port}/`);
  await other.waitForFunction(() => document.title.startsWith("["));
  assert.deepEqual(JSON.parse(await other.title()), ["refused", "refused", "refused", "refused"]);
  await pause(300);
  assert(refused.length && refused.every((status) => status === 403), String(refused));
  assert.equal(await head(), before, "nothing was recorded for the other page");
  await other.close();
  evil.close();
  await page.bringToFront();
  // The same words from our own page count.
  const own = await page.evaluate(async (where) => (await fetch(where, { method: "POST", headers: { "X-Chronicle": "1" } })).status, `${wanted}/settle`);
  assert.equal(own, 200);
  assert((await head()) > before);
});

await test("what_gets_into_the_page_by_mistake_still_does_not_run", async () => {
  suite.trouble.length = 0;
  const ran = await page.evaluate(async () => {
    document.body.insertAdjacentHTML("beforeend", "<div id=bad><img src=x onerror='window.ran=1'><a href='javascript:window.ran=2'>x</a><iframe srcdoc='<script>parent.ran=3</script>'></iframe></div>");
    const script = document.createElement("script");
    script.textContent = "window.ran = 4";
    document.body.append(script);
    document.querySelector("#bad a").click();
    await new Promise((done) => setTimeout(done, 300));
    document.getElementById("bad").remove();
    return window.ran ?? null;
  });
  assert.equal(ran, null);
  assert(suite.trouble.some((words) => words.includes("Content Security Policy")), "the policy spoke");
  suite.trouble.length = 0;
});

await test("many_turns_stay_smooth", async () => {
  const begun = Date.now();
  const at = `/workspaces/${id}/turns`;
  for (let number = 2; number < TURNS; number += 1) {
    await world.ask(ready, at, { session: `s${number % 7}`, prompt: `Turn the ${number}th stone, and look what is below it` });
    await world.ask(ready, `${at}/end`, { session: `s${number % 7}` });
  }
  console.log(`note: ${TURNS} turns were made in ${((Date.now() - begun) / 1000).toFixed(1)} s`);
  await suite.go("timeline", ".entry");
  await page.waitForFunction(() => !document.querySelector(".summary").innerText.includes("so far"), null, { timeout: 60000 });
  smooth(`a timeline of ${TURNS} turns`, await scrolled(".timeline-list", 60));
  await page.waitForSelector(".entry >> text=Make five pages");
  await page.keyboard.press("G");
  await page.keyboard.press("g");
  await page.keyboard.press("g");
  await page.waitForFunction(() => document.querySelector(".timeline-list").scrollTop < 100);
  // The map leads back to the beginning.
  const box = await page.locator(".minimap svg").boundingBox();
  await page.mouse.click(box.x + 3, box.y + 20);
  await page.waitForFunction(() => document.querySelector(".timeline-list").scrollTop > 5000);
});

await test("five_thousand_files_and_fifty_thousand_lines_stay_smooth", async () => {
  world.turn("bulk", "Write five thousand files and a long one", () => {
    for (let n = 0; n < 5000; n += 1) world.write(`many/${Math.floor(n / 100)}/f${n}.txt`, `${n}\n`);
    world.write("long.py", Array.from({ length: 50_000 }, (_, n) => `value_${n} = ${n}\n`).join(""));
  });
  const { number } = (await world.ask(ready, `/workspaces/${id}/timeline?limit=1`)).entries[0].turn;
  await suite.go(`turn/${number}?file=long.py`, ".file");
  await page.waitForFunction(() => document.querySelector(".pane-head").innerText.includes("5,0"), null, { timeout: 20000 });
  await page.waitForSelector(".diff-lines .line", { timeout: 20000 });
  smooth("a diff of 50,000 lines", await scrolled(".diff-lines", 60));
  await page.waitForFunction(() => document.querySelector(".diff-lines").innerText.includes("value_49999"));
  smooth("a list of 5,000 files", await scrolled(".files", 60));
  await suite.go(`rewind?kind=undo&target=turn:${number}`, ".step");
  smooth("a plan for 5,000 files", await scrolled(".steps-list", 60));
});

await suite.end();
