// A file through time: a scrubber over its versions, its lines and where they come from.

import { blamed } from "./blame.js";
import * as diffs from "./diff.js";
import { el, fill, later, say } from "./dom.js";
import { ago, bytes, CHANGES, count, wholeTime } from "./format.js";
import { here } from "./keys.js";
import { address, note } from "./router.js";
import { pathNodes, plain, visible } from "./text.js";

export async function show(context) {
  const { api, id, main, where } = context;
  const item = where.given.path_b64 ? { path_b64: where.given.path_b64 } : { path: where.given.path ?? "" };
  const path = where.given.path ?? "";
  const control = new AbortController();
  const { iterations, more } = await api.history({ ...item, limit: 1000 }, control.signal);
  if (!context.isShown()) return undefined;
  const versions = iterations.slice().reverse();
  const crumbs = el("p", { class: "crumbs" }, el("a", { href: address(id, "timeline") }, "Timeline"), " / File");
  if (!versions.length) {
    fill(main, el("div", { class: "head" }, crumbs, el("h1", { class: "path" }, pathNodes(path))), el("section", { class: "card empty" }, el("h2", null, "No version is recorded"), el("p", null, "Nothing in the history tells of this path.")));
    return undefined;
  }
  let at = versions.length - 1;
  if (where.given.seq) {
    const wanted = versions.findLastIndex((version) => version.seq <= Number(where.given.seq));
    if (wanted >= 0) at = wanted;
  }
  let mode = where.given.show ?? "lines";
  const scrub = el("input", { type: "range", min: "0", max: String(versions.length - 1), value: String(at), "aria-label": "Version", class: "scrub", oninput: (event) => { at = Number(event.target.value); tell(); load(); } });
  scrub.value = String(at);
  const told = el("div", { class: "version", role: "status" });
  const view = el("div", { class: "diff" });
  const tabs = el("div", { class: "tabs", role: "group", "aria-label": "What is shown" });
  const step = (by) => {
    at = Math.max(0, Math.min(versions.length - 1, at + by));
    scrub.value = String(at);
    tell();
    load();
  };
  fill(main, el("div", { class: "file-page" },
    el("div", { class: "head" }, crumbs, el("h1", { class: "path" }, pathNodes(path || versions.at(-1).path)),
      el("p", { class: "quiet" }, `${count(versions.length, "version")}${more ? " (older ones are left out)" : ""}, from ${wholeTime(versions[0].timestamp)} to ${wholeTime(versions.at(-1).timestamp)}`)),
    el("div", { class: "scrubber card" },
      el("div", { class: "scrub-row" }, el("button", { class: "button small", onclick: () => step(-1), "aria-label": "Older version" }, "\u2190"), scrub, el("button", { class: "button small", onclick: () => step(1), "aria-label": "Newer version" }, "\u2192")),
      told),
    tabs, view));

  function setTabs() {
    const tab = (name, words) => el("button", { class: "tab", "aria-pressed": String(mode === name), onclick: () => { mode = name; setTabs(); load(); } }, words);
    fill(tabs, tab("lines", "Lines and their origin"), tab("change", "What this version changed"));
  }

  function tell() {
    const version = versions[at];
    const { change } = version;
    const link = version.turn ? address(id, "turn", String(version.turn)) : address(id, "action", version.snapshot);
    const back = address(id, "rewind", "", { kind: "rewind", target: `seq:${version.seq}`, ...item, path });
    fill(told,
      el("strong", null, `Version ${at + 1} of ${versions.length}`),
      el("span", { class: `change ${change.change_type}` }, (CHANGES[change.change_type] ?? ["", change.change_type])[1]),
      el("a", { href: link, title: plain(version.action_summary) }, version.turn ? `Turn ${version.turn}` : visible(version.action_summary || "action")),
      el("span", { class: "quiet" }, visible(change.author), ` \u00b7 ${ago(version.timestamp)} \u00b7 ${wholeTime(version.timestamp)}`, change.after.size === undefined ? null : ` \u00b7 ${bytes(change.after.size)}`, version.path !== path ? [" \u00b7 then ", visible(version.path)] : null),
      change.live ? null : el("span", { class: "badge" }, "taken back"),
      context.mayRewind && at < versions.length - 1 ? el("a", { class: "button small", href: back }, "Bring the file back to this\u2026") : null);
    note(address(id, "file", "", { ...item, path, seq: version.seq, show: mode }));
    say(`Version ${at + 1}, ${change.change_type}`);
  }

  let asked = 0;
  const load = later(60, async () => {
    const version = versions[at];
    const mine = (asked += 1);
    view.classList.add("waiting");
    const then = version.path === path || !path ? item : { path: version.path };
    try {
      if (mode === "change") {
        const diff = await api.fileDiff({ of: version.snapshot, ...then }, control.signal);
        if (mine === asked) await diffs.show(view, api, diff, { item: then });
      } else if (version.change.after.kind === "absent") {
        fill(view, el("p", { class: "quiet" }, "The file was not there any more."));
      } else {
        const moment = { ...then, at: `seq:${version.seq}` };
        const text = await api.text(moment, control.signal);
        const blame = text.binary ? null : await api.blame(moment, control.signal).catch(() => null);
        if (mine !== asked) return;
        if (text.binary) fill(view, el("p", { class: "quiet" }, `The content is not text (${bytes(text.entry.size)}).`), el("p", null, el("a", { class: "button", href: api.contentUrl(moment), download: "" }, "Download it")));
        else fill(view, text.partial ? el("p", { class: "quiet" }, "Long lines, or the end of the file, are left out.") : null, text.lines.length ? blamed(context, text, blame).node : el("p", { class: "quiet" }, "The file is empty."));
      }
    } catch (error) {
      if (mine === asked && error.name !== "AbortError") fill(view, el("p", { class: "problem" }, error.message, error.hint ? ` \u2014 ${error.hint}` : null));
    }
    view.classList.remove("waiting");
  });

  here([
    ["h, ArrowLeft, [", "Older version", () => step(-1)],
    ["l, ArrowRight, ]", "Newer version", () => step(1)],
    ["b", "Lines, or what changed", () => { mode = mode === "lines" ? "change" : "lines"; setTabs(); load(); }],
    ["d", "Side by side or one column", () => { diffs.layout.toggle(); load(); }],
  ]);
  setTabs();
  tell();
  load();
  return () => control.abort();
}
