// A scratch workspace made by a scripted agent run, a server for it, and a browser.

import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import zlib from "node:zlib";

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export class World {
  constructor(chronicle, tools) {
    this.chronicle = path.resolve(chronicle);
    this.tools = path.resolve(tools);
    this.scratch = fs.mkdtempSync(path.join(os.tmpdir(), "chronicle-web."));
    this.root = path.join(this.scratch, "shop");
    fs.mkdirSync(this.root);
    this.env = { ...process.env, HOME: this.scratch, CHRONICLE_HOME: path.join(this.scratch, "home"), CHRONICLE_WATCH: "off" };
    this.servers = [];
  }

  /** Runs the command; with text, gives it on stdin. */
  run(words, input) {
    const done = spawnSync(this.chronicle, ["-C", this.root, ...words], { env: this.env, input, encoding: "utf8" });
    if (done.status !== 0) throw new Error(`chronicle ${words.join(" ")}: ${done.stderr}`);
    return done.stdout;
  }

  write(name, content) {
    const at = path.join(this.root, name);
    fs.mkdirSync(path.dirname(at), { recursive: true });
    fs.writeFileSync(at, content);
  }

  read(name) {
    const at = path.join(this.root, name);
    return fs.existsSync(at) ? fs.readFileSync(at, "utf8") : null;
  }

  /** One event of an agent's hook, as the agent sends it. */
  hook(event, more) {
    const said = { hook_event_name: event, session_id: "claude-1", cwd: this.root, transcript_path: "", ...more };
    this.run(["hook", "claude-code"], JSON.stringify(said));
  }

  /** A turn of the agent: each step is a tool, its input, and what it does. */
  agent(prompt, steps, session = "claude-1") {
    this.hook("UserPromptSubmit", { prompt, session_id: session });
    steps.forEach(([tool, input, work, more], number) => {
      const call = { tool_name: tool, tool_input: input, tool_use_id: `${session}-${prompt}-${number}`, session_id: session, ...more };
      this.hook("PreToolUse", call);
      work();
      this.hook("PostToolUse", { ...call, tool_response: {} });
    });
    this.hook("Stop", { session_id: session });
  }

  /** A turn without hooks. */
  turn(session, prompt, work) {
    this.run(["turn", "start", "--session", session, "--prompt", prompt]);
    work();
    this.run(["turn", "end", "--session", session]);
  }

  /** Starts a server, and waits until it listens. */
  async serve(...words) {
    const server = spawn(this.chronicle, ["-C", this.root, "web", "--json", "--no-open", ...words], { env: this.env, stdio: ["ignore", "pipe", "inherit"] });
    this.servers.push(server);
    const lines = readline.createInterface({ input: server.stdout });
    for await (const line of lines) return { process: server, ...JSON.parse(line) };
    throw new Error("the server did not start");
  }

  token(ready, right = "rewind") {
    return fs.readFileSync(ready[`${right}_token`], "utf8").trim();
  }

  /** Asks the API beside the page. */
  async ask(ready, route, body) {
    const headers = { Authorization: `Bearer ${this.token(ready)}` };
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(`http://${ready.address}/api/v1${route}`, { headers, method: body ? "POST" : "GET", body: body && JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${route}: ${await answer.text()}`);
    return answer.json();
  }

  async browser() {
    const { chromium } = createRequire(path.join(this.tools, "x.js"))("playwright-core");
    const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
    return chromium.launch({ executablePath, args: FLAGS });
  }

  axe() {
    return fs.readFileSync(path.join(this.tools, "node_modules/axe-core/axe.min.js"), "utf8");
  }

  end() {
    this.servers.forEach((server) => server.kill("SIGKILL"));
    fs.rmSync(this.scratch, { recursive: true, force: true });
  }
}

function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(zlib.crc32 ? zlib.crc32(body) : crc(body), body.length + 4);
  return out;
}

function crc(bytes) {
  let rest = 0xffffffff;
  for (const byte of bytes) {
    rest ^= byte;
    for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  }
  return (rest ^ 0xffffffff) >>> 0;
}

/** A picture as PNG: a disc of one colour on another. */
export function picture([disc, ground], size = 160) {
  const rows = Array.from({ length: size }, (_, y) => {
    const row = Buffer.alloc(1 + size * 3);
    for (let x = 0; x < size; x += 1) Buffer.from(Math.hypot(x - size / 2, y - size / 2) < size / 3 ? disc : ground).copy(row, 1 + x * 3);
    return row;
  });
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size, 0);
  head.writeUInt32BE(size, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const parts = [chunk("IHDR", head), chunk("IDAT", zlib.deflateSync(Buffer.concat(rows))), chunk("IEND", Buffer.alloc(0))];
  return Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]), ...parts]);
}

/** The run that the suite and the screenshots stand on. */
export function shop(world) {
  const steps = (change = (n) => `    return x + ${n}`) => Array.from({ length: 40 }, (_, n) => `def step_${n}(x):\n${change(n)}\n\n`).join("\n");
  world.write("README.md", "# Shop\n\nA small shop.\n");
  world.write("src/main.py", 'import sys\n\n\ndef main():\n    print("hello")\n\n\nmain()\n');
  world.write("src/cart.py", steps());
  world.write("logo.png", picture([[214, 90, 82], [250, 240, 230]]));
  world.write("data.bin", Buffer.from([0, 1, 2, 3]));
  world.run(["init"]);
  const file = (name) => ({ file_path: path.join(world.root, name) });
  world.agent("Greet people by their name, and add users", [
    ["Edit", file("src/main.py"), () => world.write("src/main.py", 'import sys\nfrom users import User\n\n\ndef main(name="world"):\n    print(f"hello {User(name).name}")\n\n\nif __name__ == "__main__":\n    main(*sys.argv[1:])\n')],
    ["Write", file("src/users.py"), () => world.write("src/users.py", 'class User:\n    """A person who buys things."""\n\n    def __init__(self, name):\n        self.name = name\n')],
  ]);
  world.agent("Fix the refund, rename the readme, and give the logo a new colour", [
    ["Edit", file("src/cart.py"), () => world.write("src/cart.py", steps((n) => (n === 3 ? "    return x + 333" : n === 30 ? "    return x - 30  # refund" : `    return x + ${n}`)))],
    ["Bash", { command: "mv README.md docs.md; chmod +x src/main.py" }, () => {
      fs.renameSync(path.join(world.root, "README.md"), path.join(world.root, "docs.md"));
      fs.chmodSync(path.join(world.root, "src/main.py"), 0o755);
      world.write("logo.png", picture([[42, 106, 140], [226, 240, 235]]));
      world.write("data.bin", Buffer.from([0, 9, 9, 9, 9]));
    }],
  ]);
  world.agent("Write the tests, with a helper", [
    ["Write", file("tests/test_cart.py"), () => world.write("tests/test_cart.py", "from cart import step_1\n\n\ndef test_step():\n    assert step_1(1) == 2\n"), { agent_id: "test-writer" }],
  ]);
  world.run(["run", "--", "sh", "-c", "date > build.log"]);
  world.write("notes.txt", "remember the milk\n");
  world.run(["settle"]);
  world.turn("codex-7", "Plan the winter sale", () => world.write("docs/sale.md", "# Winter sale\n\n- 20 % on everything that is warm\n"));
  world.agent("Make five files", [1, 2, 3, 4, 5].map((n) => ["Write", file(`gen/file${n}.txt`), () => world.write(`gen/file${n}.txt`, `line ${n}\n`.repeat(n))]));
}

/** A turn whose prompt, names and contents try to be more than text. */
export function hostile(world) {
  world.turn("mallory", '<script>alert("prompt")</script> \u202e reversed', () => {
    world.write("<img src=x onerror=alert(1)>.html", "<script>alert(1)</script>\n<img src=x onerror=alert(2)>\n");
    world.write("evil\u202egnp.txt", "right \u202e to left \u200b zero\n\u001b[31mred\u001b[0m\n<b>bold</b>\n");
    world.write("nul.txt", Buffer.from("a\0b\n"));
    world.write("long.txt", `${"x".repeat(1_000_000)}\nshort\n`);
    fs.writeFileSync(Buffer.concat([Buffer.from(`${world.root}/bad`), Buffer.from([0xff, 0xfe]), Buffer.from(".txt")]), Buffer.from([0x6f, 0x64, 0x64, 0xff, 0x0a]));
  });
}
