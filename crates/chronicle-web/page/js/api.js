// The API: one function for each thing that is asked, and one kind of error.

/** A refusal, with the words of the server. */
export class Refused extends Error {
  constructor(problem, status) {
    super(problem.title ?? "The server gave no answer that can be read");
    this.code = problem.code ?? "io";
    this.hint = problem.hint ?? null;
    this.detail = problem.detail ?? "";
    this.status = status;
  }
}

/** Nobody answers. */
export const unreachable = () => new Refused({ title: "The server cannot be reached", code: "unreachable", hint: "Is chronicle web still running?" }, 0);

const BASE = "/api/v1";

function query(given) {
  const pairs = Object.entries(given ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? "?" + new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])) : "";
}

/** What nobody else chooses, for retries that must not do anything twice. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function ask(method, path, { body, key, signal } = {}) {
  const headers = { "X-Chronicle": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(BASE + path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Its words are missing; its status is not.
  }
  throw new Refused(problem, response.status);
}

/** Does something that changes; where the answer is lost, asks once more under the same key. */
async function change(path, body) {
  const key = newKey();
  try {
    return await ask("POST", path, { body, key });
  } catch (error) {
    if (error.code !== "unreachable") throw error;
    return ask("POST", path, { body, key });
  }
}

export const signIn = (code) => ask("POST", "/session", { body: { code } });
export const signOut = () => ask("DELETE", "/session");
export const who = () => ask("GET", "/session");
export const workspaces = () => ask("GET", "/workspaces");

/** Everything about one workspace. */
export function workspace(id) {
  const at = `/workspaces/${id}`;
  const get = (name, given, signal) => ask("GET", `${at}/${name}${query(given)}`, { signal });
  return {
    id,
    timeline: (given, signal) => get("timeline", given, signal),
    turn: (number) => get(`turns/${number}`),
    snapshots: (given, signal) => get("snapshots", given, signal),
    snapshot: (snapshot) => get(`snapshots/${snapshot}`),
    diff: (given, signal) => get("diff", given, signal),
    fileDiff: (given, signal) => get("diff/file", given, signal),
    history: (given, signal) => get("history", given, signal),
    text: (given, signal) => get("text", given, signal),
    blame: (given, signal) => get("blame", given, signal),
    tree: (given, signal) => get("tree", given, signal),
    grep: (given, signal) => get("grep", given, signal),
    health: () => get("health"),
    verification: () => get("verify"),
    verify: (deep) => change(`${at}/verify`, { deep }),
    plan: (body) => change(`${at}/plans`, body),
    planFile: (plan, given) => get(`plans/${plan}/file`, given),
    apply: (plan) => change(`${at}/plans/${plan}/apply`),
    async image(given, signal) {
      const response = await fetch(BASE + `${at}/content${query(given)}`, { headers: { "X-Chronicle": "1" }, signal });
      if (!response.ok) throw new Refused(await response.json().catch(() => ({})), response.status);
      return response.arrayBuffer();
    },
    contentUrl: (given) => BASE + `${at}/content${query(given)}`,
    events: (heard) => events(`${at}/events`, heard),
  };
}

/** Names a path of the API: exactly, where its text is not exact. */
export const pathOf = (item) => (item.path_b64 ? { path_b64: item.path_b64 } : { path: item.path });

/** Hears the end of the log until told to stop; goes on by itself when the server was away. */
function events(path, heard) {
  let stopped = false;
  const control = new AbortController();
  (async () => {
    while (!stopped) {
      try {
        const response = await fetch(BASE + path, { headers: { "X-Chronicle": "1" }, signal: control.signal });
        if (!response.ok) throw new Error(String(response.status));
        heard({ live: true });
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          text += value;
          let end;
          while ((end = text.indexOf("\n\n")) >= 0) {
            const data = text.slice(0, end).split("\n").find((line) => line.startsWith("data: "));
            text = text.slice(end + 2);
            if (data) heard({ live: true, ...JSON.parse(data.slice(6)) });
          }
        }
      } catch {
        // Said below.
      }
      if (!stopped) {
        heard({ live: false });
        await new Promise((done) => setTimeout(done, 2000));
      }
    }
  })();
  return () => {
    stopped = true;
    control.abort();
  };
}
