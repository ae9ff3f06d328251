// One file's difference: side by side or in one column, with colours, word marks, and hunks to choose.

import { el, fill } from "./dom.js";
import { bytes, CHANGES, count } from "./format.js";
import { language, pieces } from "./highlight.js";
import { VirtualList } from "./list.js";
import { visible } from "./text.js";
import { differing } from "./words.js";

const LINE = 21;
const HEAD = 34;

/** Whether lines stand side by side. */
export const layout = {
  get split() {
    return localStorage.getItem("diff") !== "unified" && window.innerWidth > 900;
  },
  toggle() {
    localStorage.setItem("diff", layout.split ? "unified" : "split");
  },
};

/** The rows of a difference: heads of hunks, and lines `{ kind, old, new, a, b }`. */
export function rowsOf(diff, split) {
  const rows = [];
  for (const hunk of diff.hunks) {
    rows.push({ hunk });
    let [old, now] = [hunk.old_start, hunk.new_start];
    let gone = [];
    let come = [];
    const flush = () => {
      for (let at = 0; at < Math.max(gone.length, come.length); at += 1) {
        const [a, b] = [gone[at], come[at]];
        const marks = a && b ? { other: a && b } : {};
        if (split) rows.push({ kind: "both", a, b, ...marks });
      }
      if (!split) {
        gone.forEach((a, at) => rows.push({ kind: "gone", a, twin: come[at] }));
        come.forEach((b, at) => rows.push({ kind: "come", b, twin: gone[at] }));
      }
      gone = [];
      come = [];
    };
    for (const line of hunk.lines) {
      const text = line.slice(1);
      if (line[0] === "-") gone.push({ at: old++, text });
      else if (line[0] === "+") come.push({ at: now++, text });
      else if (line[0] === "\\") (come.at(-1) ?? gone.at(-1) ?? {}).open = true;
      else {
        flush();
        rows.push({ kind: "same", a: { at: old++, text }, b: { at: now++, text } });
      }
    }
    flush();
  }
  return rows;
}

/** A line as nodes: colours, and marks where it differs from its twin. */
function content(text, lang, ranges) {
  const nodes = [];
  let at = 0;
  let range = 0;
  for (const [kind, piece] of pieces(text, lang)) {
    let rest = piece;
    while (rest) {
      while (ranges && range < ranges.length && ranges[range][1] <= at) range += 1;
      const near = ranges?.[range];
      const inside = near && near[0] <= at;
      const end = near ? (inside ? near[1] : near[0]) : Infinity;
      const part = rest.slice(0, Math.max(1, Math.min(rest.length, end - at)));
      rest = rest.slice(part.length);
      at += part.length;
      const classes = [kind && `t-${kind}`, inside && "differs"].filter(Boolean).join(" ");
      nodes.push(classes ? el("span", { class: classes }, visible(part)) : visible(part));
    }
  }
  return nodes.flat();
}

function cell(side, kind, lang, ranges) {
  if (!side) return [el("span", { class: "no" }), el("span", { class: "code none" })];
  return [
    el("span", { class: "no" }, side.at),
    el("span", { class: `code ${kind}` }, el("span", { class: "sign", "aria-hidden": "true" }, kind === "gone" ? "\u2212" : kind === "come" ? "+" : " "), content(side.text, lang, ranges), side.open ? el("span", { class: "mark", title: "No line end at the end of the file" }, "no line end") : null),
  ];
}

function lineRow(row, split, lang) {
  const twin = row.kind === "both" ? row.a && row.b && differing(row.a.text, row.b.text)
    : row.kind === "gone" && row.twin ? differing(row.a.text, row.twin.text)
      : row.kind === "come" && row.twin ? differing(row.twin.text, row.b.text) : null;
  const words = row.kind === "same" ? "" : row.kind === "gone" || (row.a && !row.b) ? "Removed" : row.kind === "come" || !row.a ? "Added" : "Changed";
  const node = el("div", { class: `line ${row.kind}${split ? " two" : ""}`, role: "listitem", "aria-label": words ? `${words}: ${(row.b ?? row.a).text.slice(0, 200)}` : null });
  if (split) {
    node.append(...cell(row.a, row.kind === "same" ? "same" : "gone", lang, twin?.[0]), ...cell(row.b, row.kind === "same" ? "same" : "come", lang, twin?.[1]));
  } else {
    node.append(el("span", { class: "no" }, row.a?.at ?? ""), el("span", { class: "no" }, row.b?.at ?? ""), cell(row.b ?? row.a, row.kind, lang, row.kind === "gone" ? twin?.[0] : twin?.[1])[1]);
  }
  return node;
}

/** The lines of a difference; `choose` makes hunks choosable: `{ has(number), set(number, on) }`. */
export function lines(diff, choose) {
  const split = layout.split;
  const lang = language(diff.path);
  const rows = rowsOf(diff, split);
  const longest = Math.min(400, Math.max(20, ...rows.map((row) => Math.max(row.a?.text.length ?? 0, row.b?.text.length ?? 0)).slice(0, 20000)));
  const list = new VirtualList({
    label: `Difference of ${diff.path}`, className: "diff-lines",
    height: (index) => (rows[index].hunk ? HEAD : LINE),
    render: (index) => (rows[index].hunk ? hunkHead(rows[index].hunk, choose) : lineRow(rows[index], split, lang)),
  });
  list.node.style.setProperty("--longest", String(longest));
  list.node.classList.toggle("split", split);
  const room = rows.reduce((sum, row) => sum + (row.hunk ? HEAD : LINE), 0);
  list.node.style.setProperty("--room", `${room + 18}px`);
  requestAnimationFrame(() => list.set(rows.length));
  list.hunks = rows.map((row, index) => (row.hunk ? index : -1)).filter((index) => index >= 0);
  return list;
}

function hunkHead(hunk, choose) {
  const words = `Lines ${hunk.new_start}\u2013${hunk.new_start + Math.max(0, hunk.new_lines - 1)}`;
  return el("div", { class: "hunk", role: "listitem" },
    choose
      ? el("label", null, el("input", { type: "checkbox", checked: choose.has(hunk.number), onchange: (event) => choose.set(hunk.number, event.target.checked) }), ` Hunk ${hunk.number}: `, words)
      : el("span", null, `@@ \u2212${hunk.old_start},${hunk.old_lines} +${hunk.new_start},${hunk.new_lines} @@`));
}

const IMAGES = [["image/png", [0x89, 0x50, 0x4e, 0x47]], ["image/jpeg", [0xff, 0xd8, 0xff]], ["image/gif", [0x47, 0x49, 0x46, 0x38]], ["image/webp", [0x52, 0x49, 0x46, 0x46]], ["image/bmp", [0x42, 0x4d]]];
const IMAGE_MOST = 16 << 20;

async function picture(api, item, at, entry, words) {
  const box = el("figure", { class: "picture" }, el("figcaption", null, words, entry.size === undefined ? null : el("span", { class: "quiet" }, ` ${bytes(entry.size)}`)));
  if (entry.kind !== "file" || !at || entry.size > IMAGE_MOST) {
    box.append(el("p", { class: "quiet" }, entry.kind === "absent" ? "was not there" : "is not shown"));
    return box;
  }
  const data = await api.image({ ...item, at });
  const head = new Uint8Array(data.slice(0, 8));
  const kind = IMAGES.find(([, magic]) => magic.every((byte, index) => head[index] === byte))?.[0];
  if (!kind) {
    box.append(el("p", { class: "quiet" }, "is no picture that can be shown"));
    return box;
  }
  const url = URL.createObjectURL(new Blob([data], { type: kind }));
  const image = el("img", { src: url, alt: words });
  image.addEventListener("load", () => {
    box.firstChild.append(el("span", { class: "quiet" }, `, ${image.naturalWidth} \u00d7 ${image.naturalHeight}`));
    URL.revokeObjectURL(url);
  });
  box.append(image);
  return box;
}

function facts(diff) {
  const row = (words, entry) => el("tr", null, el("th", { scope: "row" }, words), el("td", null, entry.kind), el("td", null, entry.size === undefined ? "" : bytes(entry.size)), el("td", null, entry.mode ?? ""), el("td", null, entry.hash ? el("code", { title: entry.hash }, entry.hash.slice(0, 12)) : entry.target ? visible(entry.target) : visible(entry.why ?? "")));
  return el("table", { class: "facts" },
    el("thead", null, el("tr", null, ["", "Kind", "Size", "Mode", "Content"].map((words) => el("th", { scope: "col" }, words || el("span", { class: "unseen" }, "Side"))))),
    el("tbody", null, row("Before", diff.before), row("After", diff.after)));
}

/** Everything about one file's difference, in an element. `item` names the file, `sides` what the sides are called. */
export async function show(box, api, diff, { item, choose, sides = ["Before", "After"] } = {}) {
  const mode = diff.before.mode !== diff.after.mode && diff.before.mode && diff.after.mode;
  const bar = el("div", { class: "diff-bar" },
    el("span", { class: `change ${diff.change_type}` }, (CHANGES[diff.change_type] ?? ["?", diff.change_type])[1]),
    diff.from ? el("span", null, "from ", el("span", { class: "path" }, visible(diff.from))) : null,
    mode ? el("span", { class: "quiet" }, `mode ${diff.before.mode} \u2192 ${diff.after.mode}`) : null,
    diff.inserted || diff.deleted ? el("span", { class: "counts" }, el("span", { class: "n created" }, `+${diff.inserted}`), el("span", { class: "n deleted" }, `\u2212${diff.deleted}`)) : null,
    diff.partial ? el("span", { class: "badge warn" }, "not all lines are shown") : null);
  fill(box, bar);
  if (diff.hunks.length) {
    const list = lines(diff, choose);
    box.append(list.node);
    return list;
  }
  if (diff.binary && item && diff.before_at !== undefined) {
    const [before, after] = await Promise.all([
      picture(api, diff.from ? { path: diff.from } : item, diff.before_at, diff.before, sides[0]),
      picture(api, item, diff.after_at, diff.after, sides[1]),
    ]);
    if (before.querySelector("img") || after.querySelector("img")) box.append(el("div", { class: "pictures" }, before, after));
  }
  box.append(
    diff.why ? el("p", { class: "quiet" }, `No lines are shown: ${diff.why}.`) : diff.change_type === "same" ? el("p", { class: "quiet" }, "Nothing differs.") : el("p", { class: "quiet" }, "The content is the same."),
    facts(diff));
  return null;
}

/** Inserted and deleted as a bar of ten. */
export function bar(inserted, deleted) {
  const total = inserted + deleted;
  if (!total) return null;
  const filled = Math.min(10, Math.max(1, Math.ceil(Math.log2(total + 1))));
  const plus = inserted ? Math.max(1, Math.round((inserted / total) * filled)) : 0;
  const cells = Array.from({ length: 10 }, (_, at) => el("i", { class: at < plus ? "plus" : at < filled ? "minus" : "" }));
  return el("span", { class: "bar", role: "img", "aria-label": `${count(inserted, "line")} added, ${count(deleted, "line")} removed` }, cells);
}
