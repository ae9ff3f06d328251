// What the suites in a browser share: a world with a server, a page that is signed in, tests with names.

import assert from "node:assert/strict";
import path from "node:path";
import { World } from "./world.mjs";

const [chronicle, tools, pictures] = process.argv.slice(2);

export class Suite {
  /** Makes a world, serves it, and signs a browser in; whatever the page complains of is in `trouble`. */
  static async begin(name, make) {
    const suite = new Suite();
    Object.assign(suite, { name, passed: 0, failed: 0, trouble: [], hosts: new Set(), addresses: [] });
    suite.world = new World(chronicle, tools);
    make(suite.world);
    suite.ready = await suite.world.serve();
    suite.id = (await suite.world.ask(suite.ready, "/workspaces")).workspaces.find((item) => item.here).id;
    suite.browser = await suite.world.browser();
    suite.context = await suite.browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", reducedMotion: "reduce" });
    suite.page = await suite.context.newPage();
    suite.page.setDefaultTimeout(15000);
    suite.watch(suite.page);
    return suite;
  }

  watch(page) {
    page.on("dialog", (dialog) => {
      this.trouble.push(`a dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("pageerror", (error) => this.trouble.push(`an error: ${error.message}`));
    page.on("console", (message) => message.type() === "error" && !/401|404|409/.test(message.text()) && this.trouble.push(`the console: ${message.text()}`));
    page.on("request", (request) => {
      this.addresses.push(request.url());
      if (!/^(blob|data|about):/.test(request.url())) this.hosts.add(new URL(request.url()).host);
    });
  }

  async test(name, work) {
    try {
      await work();
      this.passed += 1;
      console.log(`test ${this.name}::${name} ... ok`);
    } catch (error) {
      this.failed += 1;
      console.log(`test ${this.name}::${name} ... FAILED\n${error.stack}`);
      if (pictures) await this.page.screenshot({ path: path.join(pictures, `failed-${name}.png`) }).catch(() => {});
    }
  }

  async go(where, sign) {
    await this.page.goto("about:blank");
    await this.page.goto(`http://${this.ready.address}/#/${this.id}/${where}`);
    if (sign) await this.page.waitForSelector(sign);
  }

  /** The number of the newest turn with these words in its prompt. */
  async turn(words) {
    const { entries } = await this.world.ask(this.ready, `/workspaces/${this.id}/timeline?limit=500`);
    return entries.find((entry) => entry.turn?.prompt?.includes(words)).turn.number;
  }

  async shoot(name) {
    if (!pictures) return;
    await this.page.waitForTimeout(300);
    await this.page.screenshot({ path: path.join(pictures, `${name}.png`) });
  }

  /** Nothing that axe finds wrong, as the page stands. */
  async audit(where) {
    await this.page.evaluate(this.world.axe());
    const found = await this.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const words = found.violations.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary?.split("\n")[1] ?? ""}`).join(" | ")}`);
    assert.deepEqual(words, [], where);
  }

  /** The same in both themes. */
  async auditBoth(where) {
    for (const scheme of ["dark", "light"]) {
      await this.page.emulateMedia({ colorScheme: scheme });
      await this.audit(`${where} ${scheme}`);
    }
  }

  async end() {
    await this.browser.close();
    this.world.end();
    console.log(`test result: ${this.failed ? "FAILED" : "ok"}. ${this.passed} passed; ${this.failed} failed`);
    process.exit(this.failed ? 1 : 0);
  }
}
