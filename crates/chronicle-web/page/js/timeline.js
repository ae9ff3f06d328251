// The timeline: turns and what happened outside of them, live, newest first.

import { el, fill, later, say } from "./dom.js";
import { ago, clockTime, count, dayName, number, WHO, wholeTime, whoClass } from "./format.js";
import { here } from "./keys.js";
import { VirtualList } from "./list.js";
import { minimap } from "./minimap.js";
import { address, go, note } from "./router.js";
import { pathNodes, plain, visible } from "./text.js";

const FIRST_PAGE = 100;
const NEXT_PAGE = 500;
const ENTRIES_MOST = 50000;
const ROW = 74;
const DAY = 40;

/** Where an entry is shown by itself. */
export function entryAddress(id, entry) {
  return entry.turn ? address(id, "turn", String(entry.turn.number)) : address(id, "action", entry.snapshot);
}

/** How many of which changes, in few signs. */
export function changeCounts(entry) {
  const part = (value, sign, name, words) => (value ? el("span", { class: `n ${name}`, title: `${number(value)} ${words}` }, sign, number(value)) : null);
  return el("span", { class: "counts" },
    part(entry.created, "+", "created", "created"),
    part(entry.modified, "~", "modified", "modified"),
    part(entry.renamed, "\u2192", "renamed", "renamed"),
    part(entry.mode, "x", "mode", "modes"),
    part(entry.deleted, "\u2212", "deleted", "deleted"));
}

function title(entry) {
  if (entry.turn) return entry.turn.prompt || `Turn ${entry.turn.number}`;
  if (entry.action_type === "external") return "Edited outside of any turn";
  return entry.summary || entry.action_type || "Something happened";
}

function row(id, entry, index, chosen) {
  const who = whoClass(entry);
  const taken = entry.taken_back > 0;
  const total = entry.created + entry.modified + entry.deleted + entry.renamed + entry.mode;
  const names = entry.paths.slice(0, 3).map((path, at) => [at ? ", " : null, el("span", { class: "path" }, visible(path))]);
  const session = entry.session && entry.session !== "run" ? entry.session : null;
  const author = entry.sub_agents[0] ?? entry.agents[0] ?? session ?? WHO[who];
  return el("a", {
    class: `entry ${who}${taken && entry.taken_back >= total ? " gone" : ""}${index === chosen ? " chosen" : ""}`,
    href: entryAddress(id, entry), "data-seq": entry.seq,
  },
  el("span", { class: "when" }, el("time", { datetime: entry.timestamp, title: wholeTime(entry.timestamp) }, clockTime(entry.timestamp))),
  el("span", { class: "dot", "aria-hidden": "true" }),
  el("span", { class: "what" },
    el("span", { class: "title" },
      entry.turn ? el("span", { class: "tag" }, `Turn ${entry.turn.number}`) : el("span", { class: "tag" }, WHO[who]),
      el("span", { class: "words", title: plain(title(entry)) }, visible(title(entry))),
      entry.open ? el("span", { class: "badge now" }, "working") : null,
      taken ? el("span", { class: "badge" }, entry.taken_back >= total ? "taken back" : "partly taken back") : null,
      entry.complete ? null : el("span", { class: "badge warn", title: "A capture saw only a part" }, "incomplete")),
    el("span", { class: "more" },
      entry.turn || author !== WHO[who] ? el("span", { class: "who" }, visible(author)) : null,
      entry.tools.length ? el("span", { class: "tools" }, visible(entry.tools.slice(0, 3).join(", "))) : null,
      names.length ? el("span", { class: "paths" }, names, total > 3 ? ` and ${number(total - Math.min(3, entry.paths.length))} more` : null) : el("span", { class: "paths" }, "no files changed"))),
  changeCounts(entry));
}

export async function show(context) {
  const { api, id, main } = context;
  const filters = { ...context.where.given };
  const control = new AbortController();
  let entries = [];
  let rows = [];
  let chosen = -1;
  let next = null;
  let complete = false;

  const list = new VirtualList({
    label: "Timeline", className: "timeline-list",
    height: (index) => (rows[index].day ? DAY : ROW),
    render: (index) => (rows[index].day
      ? el("div", { role: "listitem" }, el("h2", { class: "day" }, rows[index].day))
      : el("div", { role: "listitem" }, row(id, rows[index].entry, index, chosen))),
  });
  const map = minimap((seq) => {
    const index = rows.findIndex((item) => item.entry && item.entry.seq <= seq);
    list.reveal(index < 0 ? rows.length - 1 : index, "start");
  });
  const summary = el("p", { class: "quiet summary", role: "status" });
  const field = (name, words, kind = "search") => el("label", { class: "field" }, el("span", null, words), el("input", { type: kind, name, value: filters[name] ?? "", oninput: later(250, refilter), spellcheck: "false", autocomplete: "off" }));
  const form = el("form", { class: "filters", role: "search", "aria-label": "Filter the timeline", onsubmit: (event) => event.preventDefault() },
    field("path", "Path"), field("session", "Session"), field("tool", "Tool"));
  const page = el("div", { class: "timeline" }, el("div", { class: "head" }, el("h1", null, "Timeline"), summary, form), map.node, list.node);
  fill(main, page);

  function refilter() {
    for (const input of form.querySelectorAll("input")) filters[input.name] = input.value.trim();
    note(address(id, "timeline", "", filters));
    load().catch(context.failed);
  }

  const given = (more) => ({ path: filters.path, session: filters.session, tool: filters.tool, ...more });

  function arrange() {
    const seq = rows[chosen]?.entry?.seq;
    rows = [];
    let day = null;
    for (const entry of entries) {
      const name = dayName(entry.timestamp);
      if (name !== day) rows.push({ day: name });
      day = name;
      rows.push({ entry });
    }
    chosen = seq === undefined ? -1 : rows.findIndex((item) => item.entry?.seq === seq);
    const empty = page.querySelector(".empty");
    if (!entries.length && complete && !empty) page.append(nothing(filters));
    else if (entries.length) empty?.remove();
    list.set(rows.length);
    map.set(entries);
    const turns = entries.filter((entry) => entry.turn).length;
    fill(summary, entries.length ? `${count(turns, "turn")}, ${count(entries.length - turns, "other event")}${complete ? "" : " so far"}` : complete ? "" : "Looking\u2026");
  }

  let loading = 0;
  async function load() {
    const mine = (loading += 1);
    const first = await api.timeline(given({ limit: FIRST_PAGE }), control.signal);
    if (mine !== loading) return;
    ({ entries, next } = first);
    complete = next === null;
    arrange();
    while (next !== null && entries.length < ENTRIES_MOST) {
      await new Promise((done) => ("requestIdleCallback" in window ? requestIdleCallback(done, { timeout: 200 }) : setTimeout(done, 30)));
      const more = await api.timeline(given({ before: next, limit: NEXT_PAGE }), control.signal);
      if (mine !== loading) return;
      entries = entries.concat(more.entries);
      next = more.next;
      complete = next === null;
      arrange();
    }
  }

  // What is new is put before what is there; what may have changed is what is still open or newest.
  const renew = async () => {
    const news = await api.timeline(given({ limit: FIRST_PAGE }), control.signal);
    const oldest = news.entries.at(-1)?.seq ?? 0;
    const before = entries[0]?.seq ?? 0;
    entries = news.entries.concat(news.next === null ? [] : entries.filter((entry) => entry.seq < oldest));
    arrange();
    const fresh = news.entries.filter((entry) => entry.seq > before);
    if (fresh.length) say(`New: ${plain(title(fresh[0]))}`);
  };
  let renewing = Promise.resolve();
  context.onNews(() => {
    renewing = renewing.then(renew).catch(() => {});
  });

  const move = (by) => {
    let index = chosen;
    do index += by; while (rows[index] && rows[index].day);
    if (!rows[index]) return;
    const old = chosen;
    chosen = index;
    list.renew(old);
    list.renew(index);
    list.reveal(index);
    say(plain(title(rows[index].entry)));
  };
  const chosenEntry = () => rows[chosen]?.entry;
  here([
    ["j, ArrowDown", "Next", () => move(1)],
    ["k, ArrowUp", "Previous", () => move(-1)],
    ["Enter, o", "Open", () => chosenEntry() && go(entryAddress(id, chosenEntry()))],
    ["G", "To the oldest", () => { chosen = rows.length; move(-1); }],
    ["g g", "To the newest", () => { chosen = 0; list.reveal(0); move(rows[0]?.day ? 1 : 0); }],
    ["f", "Filter", () => form.querySelector("input").focus()],
    ...(context.mayRewind ? [["u", "Undo this", () => chosenEntry()?.turn && go(address(id, "rewind", "", { kind: "undo", target: `turn:${chosenEntry().turn.number}` }))]] : []),
  ]);
  await load();
  return () => control.abort();
}

function nothing(filters) {
  const filtered = filters.path || filters.session || filters.tool;
  return el("section", { class: "card empty" },
    el("h2", null, filtered ? "Nothing fits" : "Nothing happened yet"),
    filtered
      ? el("p", null, "No turn and no action fits these filters.")
      : [el("p", null, "As soon as an agent works here, its turns appear by themselves. To connect one:"), el("pre", null, "chronicle install claude-code"), el("p", null, "Or record a single command:"), el("pre", null, "chronicle run -- make")]);
}

export { ago, pathNodes };
