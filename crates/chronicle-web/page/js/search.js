// Lines in every version of every file, as you type.

import { el, fill, later } from "./dom.js";
import { count } from "./format.js";
import { here } from "./keys.js";
import { VirtualList } from "./list.js";
import { address, fileAddress, go, note } from "./router.js";
import { pathNodes, visible } from "./text.js";

const ROW = 30;
const PATH = 40;
const MOST = 500;

/** A line with what was searched for marked, where it is plain text. */
function marked(line, words, anyCase) {
  if (!words) return visible(line);
  const at = anyCase ? line.toLowerCase().indexOf(words.toLowerCase()) : line.indexOf(words);
  if (at < 0) return visible(line);
  return [visible(line.slice(0, at)), el("mark", null, visible(line.slice(at, at + words.length))), visible(line.slice(at + words.length))];
}

export async function show(context) {
  const { api, id, main, where } = context;
  const given = { q: where.given.q ?? "", glob: where.given.glob ?? "", regex: where.given.regex === "true", exactCase: where.given.case === "true" };
  let control = new AbortController();
  let rows = [];
  let chosen = -1;
  const field = el("input", { id: "q", type: "search", value: given.q, placeholder: "What are you looking for?", spellcheck: "false", autocomplete: "off", oninput: later(160, search) });
  const glob = el("input", { type: "search", value: given.glob, placeholder: "*.rs, src/**", spellcheck: "false", oninput: later(250, search) });
  const regex = el("input", { type: "checkbox", checked: given.regex, onchange: search });
  const exactCase = el("input", { type: "checkbox", checked: given.exactCase, onchange: search });
  const said = el("p", { class: "quiet", role: "status" });
  const open = (row) => go(fileAddress(id, { path: row.match.path }, { seq: row.match.last_seen }));
  const list = new VirtualList({
    label: "Lines found", className: "found",
    height: (index) => (rows[index].path ? PATH : ROW),
    render: (index) => {
      const row = rows[index];
      if (row.path) return el("div", { role: "listitem" }, el("h2", { class: "found-path path" }, pathNodes(row.path)));
      const { match } = row;
      return el("div", { role: "listitem" }, el("a", { class: `match${index === chosen ? " chosen" : ""}`, href: fileAddress(id, { path: match.path }, { seq: match.last_seen }) },
        el("code", null, marked(match.line.slice(0, 400), regex.checked ? "" : field.value, !exactCase.checked)),
        match.present ? null : el("span", { class: "badge" }, match.removed_by_turn ? `removed in turn ${match.removed_by_turn}` : "not there any more"),
        match.first_turn ? el("span", { class: "quiet" }, `since turn ${match.first_turn}`) : null));
    },
  });
  const hint = el("section", { class: "card empty" }, el("h2", null, "Every version, deleted files too"), el("p", null, "A line that was there for one minute in one turn is found. Secrets are not searched."));
  fill(main, el("div", { class: "search" },
    el("div", { class: "head" }, el("h1", null, "Search"),
      el("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        el("label", { class: "field wide" }, el("span", null, "Text"), field),
        el("label", { class: "field" }, el("span", null, "Paths"), glob),
        el("label", { class: "check" }, regex, " Regular expression"),
        el("label", { class: "check" }, exactCase, " Match case")),
      said),
    hint, list.node));
  list.node.hidden = true;

  async function search() {
    control.abort();
    control = new AbortController();
    const pattern = field.value;
    note(address(id, "search", "", { q: pattern, glob: glob.value, regex: regex.checked || "", case: exactCase.checked || "" }));
    if (!pattern.trim()) {
      rows = [];
      list.set(0);
      list.node.hidden = true;
      hint.hidden = false;
      fill(said);
      return;
    }
    fill(said, "Searching\u2026");
    try {
      const page = await api.grep({ pattern, literal: !regex.checked, any_case: !exactCase.checked, glob: glob.value.trim(), limit: MOST }, control.signal);
      rows = [];
      chosen = -1;
      let path = null;
      for (const match of page.matches) {
        if (match.path !== path) rows.push({ path: (path = match.path) });
        rows.push({ match });
      }
      hint.hidden = page.matches.length > 0;
      fill(hint, el("h2", null, "Nothing found"), el("p", null, page.more ? "It took too long to search everything: name paths to search less." : "No version of any file has this."));
      list.node.hidden = !page.matches.length;
      list.set(rows.length);
      list.node.scrollTop = 0;
      fill(said, page.matches.length ? `${count(page.matches.length, "line")}${page.more ? ", and more" : ""}` : "");
    } catch (error) {
      if (error.name !== "AbortError") fill(said, el("span", { class: "problem" }, error.message));
    }
  }

  const move = (by) => {
    let index = chosen;
    do index += by; while (rows[index]?.path);
    if (!rows[index]) return;
    const old = chosen;
    chosen = index;
    list.renew(old);
    list.renew(index);
    list.reveal(index);
  };
  here([
    ["/", "Search", () => field.select()],
    ["j, ArrowDown", "Next", () => move(1)],
    ["k, ArrowUp", "Previous", () => move(-1)],
    ["Enter, o", "Open", () => rows[chosen] && open(rows[chosen])],
  ]);
  field.focus();
  if (given.q) await search();
  return () => control.abort();
}
