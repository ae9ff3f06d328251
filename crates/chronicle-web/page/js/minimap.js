// When how much happened: bars by time, to jump to.

import { el, svg } from "./dom.js";
import { count, wholeTime } from "./format.js";

const BARS = 120;

/** A map of the loaded part of the timeline; `jump` is told the position that was pointed at. */
export function minimap(jump) {
  const picture = svg("svg", { viewBox: `0 0 ${BARS} 24`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const ends = [el("span", null), el("span", null)];
  const node = el("div", { class: "minimap", role: "img", "aria-label": "When how much happened" }, picture, el("div", { class: "ends", "aria-hidden": "true" }, ends));
  let bars = [];
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const at = Math.min(BARS - 1, Math.floor(((event.clientX - box.left) / box.width) * BARS));
    for (let index = at; index >= 0; index -= 1) {
      if (bars[index]?.seq) return jump(bars[index].seq);
    }
    return undefined;
  });
  return {
    node,
    set(entries) {
      node.hidden = entries.length < 2;
      if (node.hidden) return;
      const times = entries.map((entry) => Date.parse(entry.timestamp));
      const [newest, oldest] = [times[0], times.at(-1)];
      const width = Math.max(1, newest - oldest);
      bars = Array.from({ length: BARS }, () => ({ agent: 0, person: 0, rewind: 0, seq: 0 }));
      entries.forEach((entry, index) => {
        const bar = bars[Math.min(BARS - 1, Math.max(0, Math.floor(((times[index] - oldest) / width) * BARS)))];
        bar[entry.kind === "rewind" ? "rewind" : entry.turn ? "agent" : "person"] += 1;
        bar.seq = Math.max(bar.seq, entry.seq);
      });
      const most = Math.max(...bars.map((bar) => bar.agent + bar.person + bar.rewind), 1);
      const shapes = [];
      bars.forEach((bar, index) => {
        let top = 24;
        for (const who of ["agent", "person", "rewind"]) {
          if (!bar[who]) continue;
          const height = Math.max(1.2, (Math.sqrt(bar[who]) / Math.sqrt(most)) * 22);
          top -= height;
          shapes.push(svg("rect", { x: index + 0.12, y: Math.max(0, top), width: 0.76, height, class: who }));
        }
      });
      picture.replaceChildren(...shapes);
      ends[0].textContent = wholeTime(oldest);
      ends[1].textContent = wholeTime(newest);
      node.setAttribute("aria-label", `${count(entries.length, "event")} from ${wholeTime(oldest)} to ${wholeTime(newest)}`);
    },
  };
}
