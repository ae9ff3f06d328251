// A file's lines with where they come from.

import { el } from "./dom.js";
import { ago, wholeTime } from "./format.js";
import { language, pieces } from "./highlight.js";
import { VirtualList } from "./list.js";
import { address } from "./router.js";
import { plain, visible } from "./text.js";

const LINE = 21;

/** The lines of a text; with `blame`, each run says which turn brought it. */
export function blamed(context, text, blame) {
  const lang = language(text.path);
  const origins = [];
  for (const run of blame?.runs ?? []) for (let at = 0; at < run.lines; at += 1) origins.push(at === 0 ? run : null);
  const shade = new Map();
  for (const run of blame?.runs ?? []) if (!shade.has(run.seq)) shade.set(run.seq, shade.size % 6);
  let last = null;
  const runOf = origins.map((run) => (last = run ?? last));
  const origin = (index) => {
    const run = origins[index];
    if (!run) return "";
    const words = run.turn ? `turn ${run.turn}` : run.author === "person" ? "a person" : run.seq ? run.author ?? "" : "the beginning";
    const link = run.turn ? address(context.id, "turn", String(run.turn)) : run.snapshot ? address(context.id, "action", run.snapshot) : null;
    const title = [run.action_summary, run.timestamp && wholeTime(run.timestamp)].filter(Boolean).join(", ");
    return [link ? el("a", { href: link, title: plain(title) }, visible(words)) : words, run.timestamp ? el("span", { class: "quiet" }, ` ${ago(run.timestamp)}`) : null];
  };
  const list = new VirtualList({
    label: `Lines of ${text.path}`, className: "text-lines",
    height: () => LINE,
    render: (index) => el("div", { class: "line", role: "listitem" },
      blame ? el("span", { class: `origin shade${shade.get(runOf[index]?.seq) ?? 0}${origins[index] ? " begins" : ""}` }, origin(index)) : null,
      el("span", { class: "no" }, index + 1),
      el("span", { class: "code" }, pieces(text.lines[index], lang).map(([kind, part]) => (kind ? el("span", { class: `t-${kind}` }, visible(part)) : visible(part))))),
  });
  list.node.style.setProperty("--longest", String(Math.min(400, Math.max(20, ...text.lines.slice(0, 20000).map((line) => line.length)))));
  list.node.style.setProperty("--room", `${text.lines.length * LINE + 18}px`);
  requestAnimationFrame(() => list.set(text.lines.length));
  return list;
}
