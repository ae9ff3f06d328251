// Keys: one table for the whole page, one for what is shown, and the help that lists both.

import { el, fill } from "./dom.js";

let own = [];
let everywhere = [];
let waiting = null;

const isTyping = (target) => target.closest?.("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]");

/** Keys that always count: `[keys, words, work]`. */
export function always(list) {
  everywhere = list;
}

/** Keys of what is shown. */
export function here(list) {
  own = list;
}

function find(pressed) {
  return [...own, ...everywhere].find(([keys]) => keys.split(", ").includes(pressed));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const dialog = document.querySelector("dialog[open]");
  if (event.key === "Escape" && isTyping(event.target)) {
    event.target.blur();
    return;
  }
  if (isTyping(event.target) || dialog) return;
  const pressed = waiting ? `${waiting} ${event.key}` : event.key;
  waiting = null;
  const found = find(pressed);
  if (found) {
    // A button or link that has the focus is pressed by Enter, whatever else Enter means.
    const pressable = event.target.closest?.("a, button, summary, input, select");
    // Just after a dialog was closed the focus is still on its button.
    if (event.key === "Enter" && pressable && !pressable.closest("dialog:not([open])")) return;
    event.preventDefault();
    found[2](event);
  } else if ([...own, ...everywhere].some(([keys]) => keys.startsWith(`${event.key} `))) {
    waiting = event.key;
    setTimeout(() => {
      waiting = null;
    }, 1500);
  }
});

/** Shows which keys there are. */
export function help() {
  let dialog = document.getElementById("help");
  if (!dialog) {
    dialog = el("dialog", { id: "help", "aria-labelledby": "help-title" });
    document.body.append(dialog);
  }
  const rows = (list) => list.map(([keys, words]) => el("div", { class: "key-row" }, el("dt", null, keys.split(", ").map((key) => [el("kbd", null, key), " "])), el("dd", null, words)));
  fill(
    dialog,
    el("h2", { id: "help-title" }, "Keys"),
    own.length ? [el("h3", null, "Here"), el("dl", null, rows(own))] : null,
    el("h3", null, "Everywhere"),
    el("dl", null, rows(everywhere)),
    el("form", { method: "dialog" }, el("button", { class: "button", autofocus: true }, "Close")),
  );
  dialog.showModal();
}
