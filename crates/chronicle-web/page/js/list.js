// A long list of which only what can be seen is there.

import { el } from "./dom.js";

const BEYOND = 12;

/** Rows of known heights in an element that scrolls. */
export class VirtualList {
  /**
   * `height(index)` and `render(index)` tell of rows; `scroller` is the element that scrolls, by
   * default the list's own.
   */
  constructor({ height, render, label, scroller, role = "list", className = "" }) {
    Object.assign(this, { height, render });
    this.spacer = el("div", { class: "rows", role, "aria-label": label });
    this.node = el("div", { class: `scroll ${className}`, tabindex: "0", "aria-label": label, role: "region" }, this.spacer);
    this.scroller = scroller ?? this.node;
    this.shown = new Map();
    this.tops = new Float64Array(1);
    this.length = 0;
    this.waiting = false;
    this.scroller.addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon()).observe(this.node);
  }

  /** Says how many rows there are; those that are shown are made anew. */
  set(length) {
    this.length = length;
    this.tops = new Float64Array(length + 1);
    for (let index = 0; index < length; index += 1) this.tops[index + 1] = this.tops[index] + this.height(index);
    this.spacer.style.height = `${this.tops[length]}px`;
    for (const node of this.shown.values()) node.remove();
    this.shown.clear();
    this.draw();
  }

  /** Makes one row anew. */
  renew(index) {
    this.shown.get(index)?.remove();
    this.shown.delete(index);
    this.soon();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  /** The row at a height. */
  at(top) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= top) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw() {
    const offset = this.scroller === this.node ? 0 : this.node.offsetTop - this.scroller.offsetTop;
    const top = Math.max(0, this.scroller.scrollTop - offset);
    const view = this.scroller.clientHeight || window.innerHeight;
    const first = Math.max(0, this.at(top) - BEYOND);
    const last = Math.min(this.length, this.at(top + view) + 1 + BEYOND);
    for (const [index, node] of this.shown) {
      if (index < first || index >= last) {
        node.remove();
        this.shown.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (this.shown.has(index)) continue;
      const node = this.render(index);
      node.style.setProperty("--top", `${this.tops[index]}px`);
      node.style.setProperty("--height", `${this.tops[index + 1] - this.tops[index]}px`);
      node.classList.add("row");
      this.shown.set(index, node);
      const after = this.next(index);
      if (after) this.spacer.insertBefore(node, after);
      else this.spacer.append(node);
    }
    this.drawn?.(first, last);
  }

  /** The row behind, so that the order for whoever reads by ear is that of the list. */
  next(index) {
    let found = null;
    for (const key of this.shown.keys()) if (key > index && (found === null || key < found)) found = key;
    return found === null ? null : this.shown.get(found);
  }

  /** Brings a row into sight. */
  reveal(index, where = "nearest") {
    if (index < 0 || index >= this.length) return;
    const [top, bottom] = [this.tops[index], this.tops[index + 1]];
    const view = this.scroller.clientHeight;
    if (where === "start") this.scroller.scrollTop = top;
    else if (where === "center") this.scroller.scrollTop = top - (view - (bottom - top)) / 2;
    else if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (bottom > this.scroller.scrollTop + view) this.scroller.scrollTop = bottom - view;
    this.draw();
  }
}
