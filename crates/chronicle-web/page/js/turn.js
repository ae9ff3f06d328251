// A turn or an action: its files, and how each differs.

import { pathOf } from "./api.js";
import * as diffs from "./diff.js";
import { add, el, fill, later, say } from "./dom.js";
import { CHANGES, count, number, span, WHO, wholeTime, whoClass } from "./format.js";
import { here } from "./keys.js";
import { VirtualList } from "./list.js";
import { address, fileAddress, go, note } from "./router.js";
import { pathNodes, plain, visible } from "./text.js";

const FILES_PAGE = 500;
const ROW = 34;

/** The row of a changed file. */
function fileRow(change, isChosen, choose) {
  const [letter, words] = CHANGES[change.change_type] ?? ["?", change.change_type];
  return el("button", { class: `file${isChosen ? " chosen" : ""}`, role: "option", "aria-selected": String(isChosen), tabindex: "-1", title: plain(change.path), onclick: choose },
    el("span", { class: `letter ${change.change_type}`, title: words, "aria-label": words }, letter),
    el("span", { class: "path" }, pathNodes(change.path, [change.before.kind, change.after.kind].includes("directory"))),
    change.binary ? el("span", { class: "quiet" }, "binary") : el("span", { class: "counts" }, change.inserted ? el("span", { class: "n created" }, `+${number(change.inserted)}`) : null, change.deleted ? el("span", { class: "n deleted" }, `\u2212${number(change.deleted)}`) : null),
    diffs.bar(change.inserted, change.deleted));
}

async function head(context, of) {
  const { api, id, where, mayRewind } = context;
  if (where.page === "turn") {
    const entry = await api.turn(where.part);
    const { turn } = entry;
    const undo = address(id, "rewind", "", { kind: "undo", target: of });
    const back = address(id, "rewind", "", { kind: "rewind", target: `before:${of}` });
    return {
      entry,
      node: el("div", { class: "head" },
        el("p", { class: "crumbs" }, el("a", { href: address(id, "timeline") }, "Timeline"), " / ", `Turn ${turn.number}`),
        el("h1", null, visible(turn.prompt || `Turn ${turn.number}`)),
        el("p", { class: "quiet" },
          el("span", { class: `who-mark ${whoClass(entry)}` }, visible(entry.sub_agents[0] ?? entry.agents[0] ?? turn.session ?? "agent")),
          ` \u00b7 ${wholeTime(turn.started_at)}`,
          turn.ended_at ? ` \u00b7 took ${span(turn.started_at, turn.ended_at)}` : " \u00b7 still working",
          entry.tools.length ? [" \u00b7 ", visible(entry.tools.join(", "))] : null,
          entry.taken_back ? el("span", { class: "badge" }, `${count(entry.taken_back, "change")} taken back`) : null),
        mayRewind && entry.paths.length ? el("p", { class: "actions" },
          el("a", { class: "button primary", href: undo }, "Undo this turn\u2026"),
          el("a", { class: "button", href: back }, "Rewind to before it\u2026")) : null),
    };
  }
  const snapshot = await api.snapshots({ limit: 1 }).then(() => api.snapshot(where.part));
  const rewound = snapshot.action_type === "rewind";
  const undo = rewound ? { kind: "undo", target: snapshot.id } : { kind: "rollback", target: snapshot.id };
  return {
    entry: snapshot,
    node: el("div", { class: "head" },
      el("p", { class: "crumbs" }, el("a", { href: address(id, "timeline") }, "Timeline"), " / ", snapshot.short_id),
      el("h1", null, visible(snapshot.action_summary || snapshot.action_type)),
      el("p", { class: "quiet" }, el("span", { class: `who-mark ${rewound ? "rewind" : snapshot.session ? "agent" : "person"}` }, visible(snapshot.agent ?? snapshot.session ?? (rewound ? WHO.rewind : WHO.person))), ` \u00b7 ${wholeTime(snapshot.timestamp)}`),
      mayRewind && snapshot.changes.length ? el("p", { class: "actions" }, el("a", { class: "button primary", href: address(id, "rewind", "", undo) }, rewound ? "Take this rewind back\u2026" : "Roll this back\u2026")) : null),
  };
}

/** The actions of a turn, for who wants to know in which order. */
function actions(context, of) {
  const box = el("div", { class: "steps" });
  const load = async () => {
    const page = await context.api.snapshots({ turn: of, limit: 100 });
    const steps = page.snapshots.slice().reverse();
    fill(box, steps.length ? el("ol", null, steps.map((step) => el("li", null, el("a", { href: address(context.id, "action", step.id) }, visible(step.action_summary || step.action_type)), el("span", { class: "quiet" }, step.tool ? [" \u00b7 ", visible(step.tool)] : null, ` \u00b7 ${count(step.changes.length, "file")}`)))) : el("p", { class: "quiet" }, "No single actions are recorded."), page.next ? el("p", { class: "quiet" }, "Older ones are left out.") : null);
  };
  const details = el("details", { class: "what-happened" }, el("summary", null, "What happened, step by step"), box);
  details.addEventListener("toggle", () => details.open && !box.firstChild && load().catch((error) => fill(box, error.message)));
  return details;
}

export async function show(context) {
  const { api, id, main, where } = context;
  const of = where.page === "turn" ? `turn:${where.part}` : where.part;
  const control = new AbortController();
  let files = [];
  let shown = [];
  let chosen = -1;
  let current = null;

  const { entry, node } = await head(context, of);
  if (!context.isShown()) return undefined;
  const total = el("p", { class: "quiet" });
  const filter = el("input", { type: "search", "aria-label": "Filter files", placeholder: "Filter files", oninput: later(120, () => arrange()), spellcheck: "false" });
  const list = new VirtualList({ label: "Changed files", className: "files", role: "listbox", height: () => ROW, render: (index) => fileRow(shown[index], index === chosen, () => choose(index)) });
  const view = el("div", { class: "diff", "aria-live": "off" });
  const title = el("div", { class: "diff-title" });
  const switcher = el("button", { class: "button small", onclick: () => toggle() });
  const split = el("div", { class: "two-panes" },
    el("section", { class: "pane list-pane", "aria-label": "Files" }, el("div", { class: "pane-head" }, total, filter), list.node),
    el("section", { class: "pane diff-pane", "aria-label": "Difference" }, title, view));
  fill(main, el("div", { class: "turn" }, node, where.page === "turn" ? actions(context, where.part) : null, split));
  switcher.textContent = diffs.layout.split ? "One column" : "Side by side";

  function toggle() {
    diffs.layout.toggle();
    switcher.textContent = diffs.layout.split ? "One column" : "Side by side";
    if (chosen >= 0) choose(chosen);
  }

  function arrange() {
    const words = filter.value.trim().toLowerCase();
    const kept = shown[chosen]?.path;
    shown = words ? files.filter((change) => change.path.toLowerCase().includes(words)) : files;
    chosen = shown.findIndex((change) => change.path === kept);
    list.set(shown.length);
  }

  let asked = 0;
  async function choose(index) {
    const change = shown[index];
    if (!change) return;
    const old = chosen;
    chosen = index;
    list.renew(old);
    list.renew(index);
    list.reveal(index);
    note(address(id, where.page, where.part, { file: change.path }));
    fill(title, el("h2", { class: "path" }, pathNodes(change.path)), el("span", { class: "gap" }),
      el("a", { class: "button small", href: fileAddress(id, change) }, "Through time"), switcher);
    const mine = (asked += 1);
    view.classList.add("waiting");
    try {
      const diff = await api.fileDiff({ of, ...pathOf(change) }, control.signal);
      if (mine !== asked) return;
      current = await diffs.show(view, api, diff, { item: pathOf(change) });
    } catch (error) {
      if (mine === asked && error.name !== "AbortError") fill(view, el("p", { class: "problem" }, error.message, error.hint ? ` \u2014 ${error.hint}` : null));
    }
    view.classList.remove("waiting");
    say(`${plain(change.path)}, ${change.change_type}`);
  }

  async function load() {
    files = [];
    let after = {};
    for (;;) {
      const page = await api.diff({ of, limit: FILES_PAGE, ...after }, control.signal);
      if (!context.isShown()) return;
      files = files.concat(page.changes);
      const [plus, minus] = [files.reduce((sum, it) => sum + it.inserted, 0), files.reduce((sum, it) => sum + it.deleted, 0)];
      fill(total, `${count(page.files_changed, "file")}`, add(el("span", { class: "counts" }), [el("span", { class: "n created" }, `+${number(plus)}`), el("span", { class: "n deleted" }, `\u2212${number(minus)}`)]));
      arrange();
      if (chosen < 0 && !current && files.length) {
        const wanted = files.findIndex((change) => change.path === where.given.file);
        choose(Math.max(0, wanted));
      }
      const last = page.changes.at(-1);
      if (!page.partial || !last) break;
      after = last.path_b64 ? { after_b64: last.path_b64 } : { after: last.path };
    }
    if (!files.length) fill(view, el("p", { class: "quiet" }, "No file is different because of this."));
  }

  const hunk = (by) => {
    if (!current) return;
    const top = current.node.scrollTop;
    const places = current.hunks.map((index) => current.tops[index]);
    const next = by > 0 ? places.find((place) => place > top + 2) : places.findLast((place) => place < top - 2);
    if (next !== undefined) current.node.scrollTop = next;
  };
  here([
    ["j, ArrowDown", "Next file", () => choose(Math.min(shown.length - 1, chosen + 1))],
    ["k, ArrowUp", "Previous file", () => choose(Math.max(0, chosen - 1))],
    ["n", "Next hunk", () => hunk(1)],
    ["p", "Previous hunk", () => hunk(-1)],
    ["d", "Side by side or one column", toggle],
    ["Enter, o", "This file through time", () => shown[chosen] && go(fileAddress(id, shown[chosen]))],
    ["f", "Filter files", () => filter.focus()],
    ...(context.mayRewind ? [["u", "Undo", () => node.querySelector("a.primary")?.click()]] : []),
  ]);
  if (entry.open) context.onNews(() => load().catch(() => {}));
  await load();
  return () => control.abort();
}
