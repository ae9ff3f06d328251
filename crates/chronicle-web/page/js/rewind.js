// Taking back as a flow: the exact plan, what to leave out, conflicts with both sides, the result.

import * as diffs from "./diff.js";
import { el, fill, say } from "./dom.js";
import { bytes, count, number } from "./format.js";
import { here } from "./keys.js";
import { VirtualList } from "./list.js";
import { address } from "./router.js";
import { pathNodes, plain, visible } from "./text.js";

const WORDS = { rewind: "Rewind", rollback: "Roll back", undo: "Undo", redo: "Redo" };
const ROW = 40;

const exact = (step) => (step.path_b64 ? { path_b64: step.path_b64 } : { path: step.path });
const sizeWords = (entry) => (entry.kind === "file" ? bytes(entry.size) : entry.kind === "absent" ? "nothing" : entry.kind);

/** What happens to a path, in a word. */
function effect(step, kind) {
  if (kind === "delete") return ["deleted", "will be deleted"];
  if (kind === "merge") return ["renamed", "will be written, with later work merged in"];
  if (step.now.kind === "absent") return ["created", "will come back"];
  if (step.now.hash && step.now.hash === step.then.hash) return ["mode", "will get its mode back"];
  return ["modified", "will be written"];
}

export async function show(context) {
  const { api, id, main, where } = context;
  const request = { kind: where.given.kind ?? "undo", target: where.given.target };
  if (where.given.path_b64) request.paths_b64 = [where.given.path_b64];
  else if (where.given.path) request.paths = [where.given.path];
  if (!context.mayRewind) {
    fill(main, el("section", { class: "card empty" }, el("h1", null, "Nothing can be changed from here"), el("p", null, "You may only look. Sign in with the rewind token, or start chronicle web without --read-only.")));
    return undefined;
  }
  const head = el("div", { class: "head" },
    el("p", { class: "crumbs" }, el("a", { href: address(id, "timeline") }, "Timeline"), " / ", WORDS[request.kind]),
    el("h1", null, WORDS[request.kind], "\u2026"));
  const body = el("div", { class: "taking-back" }, el("p", { class: "quiet", role: "status" }, "Looking at the workspace, and planning\u2026"));
  fill(main, head, body);

  let whole = null;
  let plan = null;
  const left = new Set();
  const hunks = new Map();
  const known = new Map();
  let way = "stop";

  const steps = (of) => [...of.write.map((step) => ({ ...step, what: "write" })), ...of.merge.map((step) => ({ ...step, what: "merge" })), ...of.delete.map((step) => ({ ...step, what: "delete" }))].sort((a, b) => (a.path < b.path ? -1 : 1));

  /** The request for what is chosen now. */
  async function chosen() {
    const all = steps(whole);
    const taken = all.filter((step) => !left.has(step.path));
    const asked = { ...request, on_conflict: way };
    if (hunks.size) {
      asked.hunks = [];
      for (const step of taken) {
        const numbers = hunks.get(step.path) ?? (await hunksOf(step)).map((hunk) => hunk.number);
        const set = Array.isArray(numbers) ? numbers : [...numbers];
        if (set.length) asked.hunks.push({ ...exact(step), numbers: set });
      }
      delete asked.paths;
      delete asked.paths_b64;
    } else if (left.size) {
      asked.paths = taken.filter((step) => !step.path_b64).map((step) => step.path);
      asked.paths_b64 = taken.filter((step) => step.path_b64).map((step) => step.path_b64);
    }
    return asked;
  }

  async function hunksOf(step) {
    if (!known.has(step.path)) known.set(step.path, await api.planFile(whole.plan_id, exact(step)));
    return known.get(step.path).hunks;
  }

  async function replan() {
    const taken = steps(whole).filter((step) => !left.has(step.path));
    if (!taken.length && !whole.conflict.length) {
      plan = null;
      return draw();
    }
    body.classList.add("waiting");
    try {
      plan = await api.plan(await chosen());
    } catch (error) {
      plan = null;
      return draw(error);
    } finally {
      body.classList.remove("waiting");
    }
    return draw();
  }

  function draw(error) {
    const all = steps(whole);
    const taken = plan ? steps(plan) : [];
    const willBe = new Map(taken.map((step) => [step.path, step]));
    const list = new VirtualList({ label: "What is taken back", className: "steps-list", height: () => ROW, render: (index) => stepRow(all[index], willBe) });
    list.node.style.setProperty("--room", `${all.length * ROW + 8}px`);
    const blocked = plan && plan.conflict.length && way === "stop";
    const apply = el("button", { class: "button primary", onclick: confirm, disabled: !plan || blocked || (!taken.length && !plan.keep.length) }, taken.length ? `${WORDS[request.kind]} ${count(taken.length, "path")}` : blocked ? "Choose a side first" : "Nothing to do");
    fill(head.querySelector("h1"), WORDS[request.kind], ": ", visible(whole.resolved_target));
    fill(body,
      error ? el("p", { class: "problem", role: "alert" }, error.message, error.hint ? el("span", { class: "hint" }, ` ${error.hint}`) : null) : null,
      el("p", { class: "lead" }, taken.length ? ["This is exactly what happens: ", summary(plan), ". Whatever stands there now is in the store, so that this can be taken back, too."] : all.length ? "Nothing is chosen." : blocked ? "Nothing is done before you choose a side." : "Nothing has to change: the workspace is already there."),
      conflicts(),
      all.length ? el("section", { class: "card" },
        el("div", { class: "row-head" },
          el("label", null, el("input", { type: "checkbox", checked: left.size === 0, onchange: (event) => { left.clear(); hunks.clear(); if (!event.target.checked) all.forEach((step) => left.add(step.path)); replan(); } }), ` All ${count(all.length, "path")}`),
          el("span", { class: "gap" }), hunks.size ? el("span", { class: "badge" }, "by hunks") : null),
        list.node) : null,
      notes(plan ?? whole),
      el("p", { class: "actions" }, apply, el("a", { class: "button", href: address(id, "timeline") }, "Leave everything as it is"), plan ? el("span", { class: "quiet" }, "Plan ", el("code", null, plan.plan_id.slice(-12))) : null));
    requestAnimationFrame(() => list.set(all.length));
    body.apply = apply;
  }

  function stepRow(step, willBe) {
    const on = !left.has(step.path);
    const [name, words] = effect(step, step.what);
    const some = hunks.get(step.path);
    return el("div", { class: `step${on ? "" : " out"}`, role: "listitem" },
      el("label", { class: "pick" }, el("input", { type: "checkbox", checked: on, "aria-label": plain(step.path), onchange: (event) => { if (event.target.checked) left.delete(step.path); else left.add(step.path); hunks.delete(step.path); replan(); } })),
      el("span", { class: `change ${name}` }, words),
      el("span", { class: "path" }, pathNodes(step.path, [step.now.kind, step.then.kind].includes("directory"))),
      some ? el("span", { class: "badge" }, `${count(some.size, "hunk")}`) : null,
      on && !willBe.has(step.path) && plan ? el("span", { class: "badge warn" }, "left out") : null,
      el("span", { class: "quiet sizes" }, `${sizeWords(step.now)} \u2192 ${sizeWords(step.then)}`),
      el("button", { class: "button small", onclick: () => look(step) }, "Look"));
  }

  /** Shows what happens to one file, and lets hunks be chosen. */
  async function look(step) {
    const dialog = el("dialog", { class: "look", "aria-label": `What happens to ${plain(step.path)}` });
    const view = el("div", { class: "diff" });
    const numbers = new Set();
    document.body.append(dialog);
    const done = el("button", { class: "button primary" }, "Done");
    fill(dialog, el("div", { class: "diff-title" }, el("h2", { class: "path" }, pathNodes(step.path)), el("span", { class: "gap" }), done),
      el("p", { class: "quiet" }, "From what it will be to what it is: green lines go, red lines come back."), view);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
    try {
      const all = await hunksOf(step);
      const before = hunks.get(step.path);
      all.forEach((hunk) => (!before || before.has(hunk.number)) && numbers.add(hunk.number));
      const choosable = all.length > 1 && step.what !== "delete" && step.now.kind === "file" && step.then.kind === "file";
      await diffs.show(view, api, known.get(step.path), { choose: choosable ? { has: (hunk) => numbers.has(hunk), set: (hunk, on) => (on ? numbers.add(hunk) : numbers.delete(hunk)) } : null, sides: ["Will be", "Is"] });
      done.addEventListener("click", () => {
        dialog.close();
        if (!choosable) return;
        if (numbers.size === all.length) hunks.delete(step.path);
        else if (numbers.size === 0) {
          hunks.delete(step.path);
          left.add(step.path);
        } else {
          hunks.set(step.path, numbers);
          left.delete(step.path);
        }
        replan();
      });
    } catch (error) {
      fill(view, el("p", { class: "problem" }, error.message));
      done.addEventListener("click", () => dialog.close());
    }
  }

  function conflicts() {
    const list = whole.conflict;
    if (!list.length) return null;
    const radio = (value, words) => el("label", { class: "radio" }, el("input", { type: "radio", name: "way", value, checked: way === value, onchange: () => { way = value; replan(); } }), ` ${words}`);
    return el("section", { class: "card conflict" },
      el("h2", null, `${count(list.length, "path")} in conflict`),
      el("p", null, "Later work changed the same thing. Choose which side counts; the other stays in the history."),
      el("fieldset", null, el("legend", { class: "unseen" }, "What happens to conflicts"), radio("stop", "Do nothing at all"), radio("keep_mine", "Keep the work that is there"), radio("replace", "Take the target\u2019s side")),
      el("ul", { class: "plain" }, list.slice(0, 50).map((item) => el("li", null, el("span", { class: "path" }, pathNodes(item.path)), el("span", { class: "quiet" }, ` ${item.what}: ${sizeWords(item.mine)} here, ${sizeWords(item.then)} then `), el("button", { class: "button small", onclick: () => look({ ...item, now: item.mine, what: "delete" }) }, "Both sides")))));
  }

  function notes(of) {
    const part = (items, words, warn) => (items.length ? el("details", { class: warn ? "warn" : "", open: warn || null }, el("summary", null, `${words} (${number(items.length)})`), el("ul", { class: "plain" }, items.slice(0, 200).map((item) => el("li", null, el("span", { class: "path" }, visible(item.path ?? item)), item.reason ? el("span", { class: "quiet" }, " ", visible(item.reason)) : null)))) : null);
    return [
      part(of.runs_by_itself, "Some tool runs these by itself: look at them", true),
      part(of.irreversible, "Cannot be taken back", true),
      part(of.git, "Repositories", of.moves_head),
      part(of.unknown, "Not known, so left alone"),
      part(of.shared, "Made by several, so left alone"),
      part(of.keep, "Stay as they are"),
      part(of.stale_output, "Output that is newer than its source now"),
    ];
  }

  async function confirm() {
    const dialog = el("dialog", { class: "ask", "aria-labelledby": "ask-title" });
    const yes = el("button", { class: "button primary", id: "go", onclick: () => { dialog.close(); apply(); } }, `${WORDS[request.kind]} now`);
    fill(dialog, el("h2", { id: "ask-title" }, `${WORDS[request.kind]} ${count(steps(plan).length, "path")}?`), el("p", null, summary(plan), "."), el("p", { class: "quiet" }, "If anything changed since this plan was made, nothing is done. Afterwards it can be undone."), el("p", { class: "actions" }, yes, el("button", { class: "button", onclick: () => dialog.close() }, "No")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    yes.focus();
  }

  async function apply() {
    const applied = plan;
    fill(body, el("p", { class: "quiet", role: "status" }, "Working\u2026"));
    let report;
    try {
      report = await api.apply(applied.plan_id);
    } catch (error) {
      plan = null;
      whole = await api.plan({ ...request }).catch(() => whole);
      plan = whole;
      known.clear();
      return draw(error);
    }
    return result(report, WORDS[request.kind]);
  }

  function result(report, word) {
    const failed = new Map(report.unexpected.map((item) => [item.path, item.reason]));
    const all = steps(report.plan);
    const list = new VirtualList({
      label: "What was done", className: "steps-list", height: () => ROW,
      render: (index) => {
        const step = all[index];
        const why = failed.get(step.path);
        return el("div", { class: `step${why ? " failed" : ""}`, role: "listitem" }, el("span", { class: "tick", "aria-hidden": "true" }, why ? "\u2717" : "\u2713"), el("span", { class: `change ${effect(step, step.what)[0]}` }, why ? "not done" : step.what === "delete" ? "deleted" : "written"), el("span", { class: "path" }, pathNodes(step.path)), why ? el("span", { class: "problem" }, visible(why)) : null);
      },
    });
    list.node.style.setProperty("--room", `${all.length * ROW + 8}px`);
    const undo = el("button", { class: "button primary", onclick: () => takeBack(undo, report) }, "Undo this");
    fill(head.querySelector("h1"), report.changed ? `${word}: done` : "Nothing had to change");
    fill(body,
      el("p", { class: "lead", role: "status" }, report.partial ? "Done, except for what is listed." : `${count(report.changed, "path")} changed.`),
      report.aside.length ? el("section", { class: "card" }, el("h2", null, "Moved aside instead of deleted"), el("ul", { class: "plain" }, report.aside.map(([from, to]) => el("li", null, visible(from), " \u2192 ", visible(to))))) : null,
      all.length ? el("section", { class: "card" }, list.node) : null,
      el("p", { class: "actions" }, report.id ? undo : null, el("a", { class: "button", href: address(id, "timeline") }, "To the timeline")));
    requestAnimationFrame(() => list.set(all.length));
    say(`${word}: ${count(report.changed, "path")} changed`);
    undo.focus();
  }

  /** Takes the rewind itself back: a plan again, and exactly that. */
  async function takeBack(button, report) {
    button.disabled = true;
    try {
      const kind = request.kind === "redo" || report.undone ? { kind: "undo", target: report.id } : { kind: "redo" };
      const back = await api.plan(kind);
      result(await api.apply(back.plan_id), "Undone");
    } catch (error) {
      button.disabled = false;
      button.after(el("p", { class: "problem", role: "alert" }, error.message, error.hint ? ` ${error.hint}` : null));
    }
  }

  here([["Enter", "Go on", () => body.apply && !body.apply.disabled && confirm()]]);
  whole = await api.plan(request);
  if (!context.isShown()) return undefined;
  plan = whole;
  draw();
  return undefined;
}

/** A plan in one sentence. */
function summary(plan) {
  const parts = [plan.write.length && `${number(plan.write.length)} written`, plan.merge.length && `${number(plan.merge.length)} merged`, plan.delete.length && `${number(plan.delete.length)} deleted`].filter(Boolean);
  return parts.length ? parts.join(", ") : "nothing";
}
