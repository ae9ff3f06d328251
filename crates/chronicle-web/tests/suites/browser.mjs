// The page in a real browser: every flow, on a workspace made by a scripted agent run.
//
// usage: browser.mjs CHRONICLE TOOLS [SCREENSHOTS]
// TOOLS has playwright-core and axe-core in node_modules.

import assert from "node:assert/strict";
import path from "node:path";
import { Suite } from "./suite.mjs";
import { hostile, shop } from "./world.mjs";

const suite = await Suite.begin("browser", shop);
const { world, page, browser, context, ready, id, trouble } = suite;
const test = (name, work) => suite.test(name, work);
const go = (where, sign) => suite.go(where, sign);
const shoot = (name) => suite.shoot(name);
const text = (selector) => page.locator(selector).first().innerText();

await test("a_link_signs_in_once_and_leaves_the_address", async () => {
  await page.goto(ready.link);
  await page.waitForSelector(".entry");
  assert(!page.url().includes("code="), page.url());
  const cookies = await context.cookies();
  assert(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Strict"), JSON.stringify(cookies));
  const other = await browser.newContext();
  const second = await other.newPage();
  await second.goto(ready.link);
  await second.waitForSelector(".sign-in");
  assert.match(await second.locator(".sign-in").innerText(), /used before/);
  await second.fill("#token", world.token(ready, "look"));
  await second.click("text=Sign in");
  await second.waitForSelector(".entry");
  assert.match(await second.locator(".top").innerText(), /read only/);
  await second.goto(`http://${ready.address}/#/${id}/turn/1`);
  await second.waitForSelector(".file");
  assert.equal(await second.locator("text=Undo this turn").count(), 0);
  await other.close();
});

await test("the_timeline_tells_who_did_what", async () => {
  await go("timeline", ".entry");
  const words = await text(".timeline-list");
  for (const wanted of ["Make five files", "Greet people by their name", "notes.txt", "Turn 1"]) assert(words.includes(wanted), wanted);
  assert.equal(await page.locator(".entry.person").count(), 1);
  assert((await page.locator(".entry.agent").count()) >= 4);
  assert.match(words, /Edit, Write|Write/);
  assert((await page.locator(".minimap rect").count()) > 1);
  assert.equal(await page.locator(".entry.sub").count(), 1);
  assert.equal(await page.locator(".entry.shell").count(), 1);
  await shoot("timeline");
  await page.emulateMedia({ colorScheme: "dark" });
  await shoot("timeline-dark");
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 360, height: 740 });
  await shoot("timeline-360");
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.fill("input[name=path]", "notes.txt");
  await page.waitForFunction(() => document.querySelectorAll(".entry").length === 1);
  await page.fill("input[name=path]", "");
  await page.fill("input[name=session]", "codex-7");
  await page.waitForFunction(() => document.querySelectorAll(".entry").length === 1);
  await page.fill("input[name=session]", "");
  await page.fill("input[name=tool]", "Bash");
  await page.waitForFunction(() => document.querySelectorAll(".entry").length === 1);
  await page.fill("input[name=tool]", "nothing");
  await page.waitForSelector(".empty");
  await suite.auditBoth("nothing fits");
  await page.fill("input[name=tool]", "");
  await page.waitForFunction(() => document.querySelectorAll(".entry").length > 3);
});

await test("keys_lead_everywhere", async () => {
  await go("timeline", ".entry");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  assert.match(await text(".entry.chosen"), /Make five files/);
  await page.keyboard.press("?");
  assert.match(await text("#help"), /Light or dark/);
  await suite.auditBoth("help");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#help", { state: "hidden" });
  await page.keyboard.press("Enter");
  await page.waitForSelector(".file");
  await page.keyboard.press("j");
  await page.waitForSelector(".file.chosen");
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.waitForSelector(".health-card");
  await page.keyboard.press("/");
  await page.waitForSelector("#q:focus");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.waitForSelector(".entry");
});

await test("what_an_agent_does_appears_within_two_seconds", async () => {
  await go("timeline", ".entry");
  await page.waitForSelector(".live.on");
  world.agent("Live from the agent", [["Write", { file_path: path.join(world.root, "live.txt") }, () => world.write("live.txt", "now\n")]]);
  const begun = Date.now();
  await page.waitForFunction(() => document.querySelector(".entry .words")?.textContent.includes("Live from the agent"), null, { timeout: 5000 });
  const took = Date.now() - begun;
  console.log(`note: a turn appeared ${took} ms after its last hook`);
  assert(took < 2000, String(took));
});

await test("a_turn_shows_its_files_and_how_they_differ", async () => {
  await go("turn/2?file=src/cart.py", ".diff-lines .line");
  await shoot("turn");
  const words = await text(".files");
  for (const wanted of ["cart.py", "docs.md", "logo.png", "main.py"]) assert(words.includes(wanted), wanted);
  assert((await page.locator(".differs").count()) >= 2);
  assert((await page.locator(".t-keyword").count()) > 2);
  assert.equal(await page.locator(".line.two").count() > 0, true);
  await page.keyboard.press("d");
  await page.waitForSelector(".line.gone");
  assert.equal(await page.locator(".line.two").count(), 0);
  await page.keyboard.press("d");
  await page.waitForSelector(".line.two");
  await page.locator(".file", { hasText: "docs.md" }).click();
  await page.waitForFunction(() => document.querySelector(".diff-bar")?.innerText.includes("renamed"));
  assert.match(await text(".diff-bar"), /README\.md/);
  await page.locator(".file", { hasText: "main.py" }).click();
  await page.waitForFunction(() => document.querySelector(".diff-bar")?.innerText.includes("0755"));
  await page.locator(".file", { hasText: "logo.png" }).click();
  await page.waitForFunction(() => [...document.querySelectorAll(".picture img")].filter((image) => image.naturalWidth === 160).length === 2);
  await shoot("images");
  await suite.auditBoth("images");
  await page.locator(".file", { hasText: "data.bin" }).click();
  await page.waitForFunction(() => document.querySelector(".facts")?.innerText.includes("5 bytes"));
  await page.locator("summary", { hasText: "step by step" }).click();
  await page.waitForSelector(".steps li");
});

await test("hostile_names_and_contents_are_only_text", async () => {
  hostile(world);
  await go(`turn/${await suite.turn("<script>")}`, ".file");
  assert.match(await text("h1"), /<script>alert\("prompt"\)<\/script> RLO reversed/);
  const names = await text(".files");
  for (const wanted of ["<img src=x onerror=alert(1)>.html", "bad\\xff\\xfe.txt", "long.txt"]) assert(names.includes(wanted), `${wanted} in ${names}`);
  const files = page.locator(".file");
  for (let number = 0; number < (await files.count()); number += 1) {
    await files.nth(number).click();
    await page.waitForFunction((index) => document.querySelectorAll(".file")[index].classList.contains("chosen") && !document.querySelector(".waiting"), number);
  }
  await page.locator(".file", { hasText: "evil" }).click();
  await page.waitForSelector(".diff-lines .mark");
  const marks = await page.locator(".diff-lines .mark").allInnerTexts();
  for (const wanted of ["RLO", "ZWSP", "ESC"]) assert(marks.includes(wanted), `${wanted} in ${marks}`);
  await shoot("hostile");
  const bidi = await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.body.innerText));
  assert.equal(bidi, false);
  assert.equal(await page.locator("main img[src='x'], main script, main b").count(), 0);
  await page.locator(".file", { hasText: "long.txt" }).click();
  await page.waitForFunction(() => document.querySelector(".diff-bar")?.innerText.includes("not all lines"));
  await page.locator(".file", { hasText: "bad" }).click();
  await page.waitForSelector("text=Through time");
  await page.waitForFunction(() => document.querySelector(".diff-title")?.innerText.includes("bad"));
  await page.click("text=Through time");
  await page.waitForSelector(".text-lines .line");
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.waitForSelector(".entry");
  assert.deepEqual(trouble, []);
});

await test("a_file_is_scrubbed_through_time", async () => {
  await go("file?path=src/main.py", ".text-lines .line");
  assert.match(await text(".version"), /Version 3 of 3/);
  assert.match(await text(".text-lines"), /turn 1/);
  await shoot("file");
  await page.keyboard.press("h");
  await page.waitForFunction(() => document.querySelector(".version").innerText.includes("Version 2 of 3"));
  await page.locator(".scrub").fill("0");
  await page.waitForFunction(() => document.querySelector(".version").innerText.includes("Version 1 of 3") && !document.querySelector(".text-lines")?.innerText.includes("argv"));
  await page.click("text=What this version changed");
  await page.locator(".scrub").fill("1");
  await page.waitForSelector(".diff-lines .line");
  assert.match(await text(".version"), /Bring the file back/);
});

await test("two_of_five_files_go_back_and_come_again", async () => {
  await go(`turn/${await suite.turn("five files")}`, ".file");
  await page.click("text=Undo this turn");
  await page.waitForSelector(".step");
  await shoot("rewind");
  for (const keep of ["file3.txt", "file4.txt", "file5.txt"]) {
    await page.locator(".step", { hasText: keep }).locator("input").uncheck();
    await page.waitForFunction((name) => [...document.querySelectorAll(".step.out")].some((row) => row.innerText.includes(name)) && !document.querySelector(".taking-back.waiting"), keep);
  }
  const folder = page.locator(".step").filter({ has: page.locator("input[aria-label='gen']") });
  if (await folder.count()) {
    await folder.locator("input").uncheck();
    await page.waitForFunction(() => !document.querySelector(".taking-back.waiting"));
  }
  await page.waitForFunction(() => /Undo 2 paths/.test(document.querySelector(".actions .primary")?.innerText ?? ""));
  await page.locator(".actions .primary").click();
  await page.waitForSelector("dialog.ask");
  assert.equal(world.read("gen/file1.txt"), "line 1\n", "nothing happens before it is confirmed");
  await page.click("#go");
  await page.waitForSelector("text=Undo this");
  assert.deepEqual([1, 2, 3, 4, 5].map((n) => world.read(`gen/file${n}.txt`) !== null), [false, false, true, true, true]);
  await shoot("result");
  await suite.auditBoth("a result");
  await page.click("text=Undo this");
  await page.waitForFunction(() => document.querySelector("h1").innerText.includes("Undone"));
  assert.deepEqual([1, 2, 3, 4, 5].map((n) => world.read(`gen/file${n}.txt`)), [1, 2, 3, 4, 5].map((n) => `line ${n}\n`.repeat(n)));
});

await test("one_hunk_of_two_goes_back", async () => {
  await go("rewind?kind=undo&target=turn:2&path=src/cart.py", ".step");
  await page.locator(".step", { hasText: "cart.py" }).locator("text=Look").click();
  await page.waitForSelector("dialog.look .hunk input");
  assert.equal(await page.locator("dialog.look .hunk input").count(), 2);
  await suite.auditBoth("hunks");
  await shoot("hunks");
  await page.locator("dialog.look .hunk input").nth(0).uncheck();
  await page.click("dialog.look >> text=Done");
  await page.waitForSelector(".step >> text=1 hunk");
  await page.waitForFunction(() => !document.querySelector(".taking-back.waiting") && !document.querySelector(".actions .primary").disabled);
  await page.locator(".actions .primary").click();
  await page.click("#go");
  await page.waitForSelector("text=Undo this");
  const now = world.read("src/cart.py");
  assert(now.includes("x + 333") && now.includes("return x + 30\n") && !now.includes("refund"), "only the second hunk");
});

await test("a_conflict_shows_both_sides_and_waits", async () => {
  world.turn("codex-7", "Change the notes", () => world.write("notes.txt", "remember the bread\n"));
  const number = (await world.ask(ready, `/workspaces/${id}/timeline?limit=1`)).entries[0].turn.number;
  world.write("notes.txt", "remember the cheese\n");
  world.run(["settle"]);
  await go(`rewind?kind=undo&target=turn:${number}`, ".conflict");
  assert.equal(await page.locator(".actions .primary").isDisabled(), true);
  await shoot("conflict");
  await suite.auditBoth("a conflict");
  await page.click("text=Both sides");
  await page.waitForSelector("dialog.look .line");
  assert.match(await text("dialog.look"), /cheese/);
  await page.click("dialog.look >> text=Done");
  await page.check("input[value=replace]");
  await page.waitForFunction(() => document.querySelector(".actions .primary")?.disabled === false);
  await page.locator(".actions .primary").click();
  await page.click("#go");
  await page.waitForSelector("text=Undo this");
  assert.equal(world.read("notes.txt"), "remember the milk\n");
});

await test("search_finds_what_is_gone", async () => {
  await go("search", "#q");
  await page.locator("#q").pressSequentially("the bre");
  await page.waitForSelector(".match >> text=bread");
  await shoot("search");
  assert.match(await text(".match"), /removed|not there/);
  await page.fill("#q", "step_(3|30)\\(");
  await page.check("text=Regular expression");
  await page.waitForFunction(() => document.querySelectorAll(".match").length === 2);
  await page.fill("#q", "(");
  await page.waitForSelector(".problem");
  await page.fill("#q", "zebra in nobody's file");
  await page.uncheck("text=Regular expression");
  await page.waitForSelector("text=Nothing found");
  trouble.length = 0;
});

await test("health_tells_how_it_stands", async () => {
  await go("health", ".health-card");
  await page.click("text=read all contents back");
  await page.waitForFunction(() => /all \d+ records/.test(document.body.innerText), null, { timeout: 15000 });
  await shoot("health");
  assert.match(await text(".cards"), /Protected/);
});

await test("everything_fits_in_360_pixels_and_axe_finds_nothing", async () => {
  const places = { timeline: ".entry", "turn/2?file=src/cart.py": ".diff-lines .line", "file?path=src/main.py": ".text-lines .line", "search?q=step_1": ".match", health: ".health-card", "rewind?kind=undo&target=turn:1": ".actions" };
  for (const [where, sign] of Object.entries(places)) {
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width: 1280, height: 800 });
      await go(where, sign);
      await suite.audit(`${where} ${scheme}`);
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 360, height: 740 });
    await go(where, sign);
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector("main").scrollWidth]);
    assert(wide.every((width) => width <= 360), `${where} is ${wide} wide`);
    await suite.audit(`${where} at 360`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
});

await test("a_server_that_goes_away_is_told_of_and_comes_back", async () => {
  await go("timeline", ".live.on");
  ready.process.kill("SIGKILL");
  await page.waitForSelector(".live.off", { timeout: 10000 });
  await page.click("nav >> text=Health");
  await page.waitForSelector("text=cannot be reached");
  // Another life of the server, at the same place: whoever was signed in says who he is once more.
  const again = await world.serve("--listen", ready.address);
  await page.waitForTimeout(2500);
  await page.reload();
  await page.waitForSelector(".sign-in");
  await suite.auditBoth("signing in");
  await page.goto(again.link);
  await page.waitForSelector(".entry");
  await page.waitForSelector(".live.on");
});

await test("the_page_needs_nobody_but_its_server", async () => {
  assert.deepEqual([...suite.hosts], [ready.address]);
  const secrets = [world.token(ready, "look"), world.token(ready, "rewind")];
  for (const address of suite.addresses) {
    assert(secrets.every((secret) => !address.includes(secret)), address);
    assert(!/[?&]code=/.test(address), address);
  }
});

await suite.end();
