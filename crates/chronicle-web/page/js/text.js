// Hostile text made harmless to read: what has no shape of its own is shown as a mark.

import { el } from "./dom.js";

// Controls but tab, bidirectional controls, zero-width and other invisible characters.
const UNSEEN =
  /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

const NAMES = new Map([
  ["\u0000", "NUL"], ["\u001b", "ESC"], ["\r", "CR"], ["\n", "LF"], ["\b", "BS"],
  ["\u202e", "RLO"], ["\u202d", "LRO"], ["\u202a", "LRE"], ["\u202b", "RLE"], ["\u202c", "PDF"],
  ["\u2066", "LRI"], ["\u2067", "RLI"], ["\u2068", "FSI"], ["\u2069", "PDI"], ["\u200b", "ZWSP"],
  ["\u200d", "ZWJ"], ["\u200e", "LRM"], ["\u200f", "RLM"], ["\ufeff", "BOM"],
]);

function mark(character) {
  const code = "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return el("span", { class: "mark", title: `${code}, a character that cannot be seen` }, NAMES.get(character) ?? code);
}

/** Text as nodes, with a mark for each character that cannot be seen. */
export function visible(text) {
  text = String(text ?? "");
  UNSEEN.lastIndex = 0;
  if (!UNSEEN.test(text)) return [text];
  UNSEEN.lastIndex = 0;
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > end) nodes.push(text.slice(end, found.index));
    nodes.push(mark(found[0]));
    end = found.index + found[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

/** The same for attributes such as titles, where there are no elements. */
export function plain(text) {
  return String(text ?? "").replace(UNSEEN, (character) => `\u2039${NAMES.get(character) ?? "U+" + character.codePointAt(0).toString(16).toUpperCase()}\u203a`);
}

/** A path with its directory set back. */
export function pathNodes(path, isDirectory = false) {
  const cut = path.lastIndexOf("/") + 1;
  return [
    cut ? el("span", { class: "dir" }, visible(path.slice(0, cut))) : null,
    el("span", { class: "name" }, visible(path.slice(cut) || path), isDirectory ? "/" : null),
  ];
}
