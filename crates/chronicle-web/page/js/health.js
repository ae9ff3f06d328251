// How the workspace and its history stand.

import { el, fill } from "./dom.js";
import { ago, bytes, count, number, wholeTime } from "./format.js";
import { visible } from "./text.js";

const fact = (words, ...value) => el("div", { class: "fact" }, el("dt", null, words), el("dd", null, value));

function card(title, good, ...children) {
  const state = good === null ? "" : good ? "good" : "bad";
  return el("section", { class: `card health-card ${state}` }, el("h2", null, el("span", { class: "lamp", role: "img", "aria-label": good === null ? "for information" : good ? "in order" : "needs attention" }), title), children);
}

export async function show(context) {
  const { api, main } = context;
  fill(main, el("div", { class: "head" }, el("h1", null, "Health")), el("p", { class: "quiet", role: "status" }, "Looking\u2026"));
  let timer = null;
  const draw = async () => {
    const health = await api.health();
    if (!context.isShown()) return;
    const { status } = health;
    fill(main, el("div", { class: "health" },
      el("div", { class: "head" }, el("h1", null, "Health"), el("p", { class: "quiet" }, el("span", { class: "path" }, visible(status.workspace)))),
      el("div", { class: "cards" }, protection(status), verification(health, context, draw), room(health), retention(health), watching(status), heads(status), replicas(health), checkpoints(health), waiting(status))));
    if (health.verification.state === "running") timer = setTimeout(() => draw().catch(() => {}), 500);
  };
  await draw();
  return () => clearTimeout(timer);
}

function protection(status) {
  return card("Protection", status.unprotected_files === 0 && !status.pending_config.length,
    el("dl", null,
      fact("Protected", count(status.protected_files, "file")),
      fact("Not protected", count(status.unprotected_files, "file")),
      fact("Changed since the last turn", count(status.changes.length, "path")),
      fact("Open turns", status.open_turns.length ? status.open_turns.map((turn) => [`Turn ${turn.number} `, visible(turn.session ?? "")]) : "none")),
    status.unprotected.length ? el("details", null, el("summary", null, "Which are not protected, and why"), el("ul", { class: "plain" }, status.unprotected.map((item) => el("li", null, el("span", { class: "path" }, visible(item.path)), " ", el("span", { class: "quiet" }, visible(item.reason)))))) : null,
    status.pending_config.length ? el("p", { class: "problem" }, "Settings wait for ", el("code", null, "chronicle config accept"), ": ", status.pending_config.map((line) => [visible(line), " "])) : null,
    status.filtered.length ? el("details", null, el("summary", null, `${count(status.filtered.length, "path")} kept out by filters`), el("ul", { class: "plain" }, status.filtered.slice(0, 200).map((path) => el("li", { class: "path" }, visible(path))))) : null);
}

function verification({ verification: state, status }, context, draw) {
  const good = state.state === "verified" ? true : state.state === "failed" ? false : null;
  const run = (deep) => context.api.verify(deep).then(draw).catch(context.failed);
  return card("Chain", good,
    el("dl", null,
      fact("Records", number(status.head_seq)),
      fact("Verified here", state.state === "never" ? "not since the server started" : state.state === "running" ? el("progress", { max: String(state.total || 1), value: String(state.done), "aria-label": "Verifying" }) : state.state === "verified" ? `all ${number(state.report.records)} records, ${count(state.report.objects, "object")}${state.report.objects_read ? `, ${number(state.report.objects_read)} read back` : ""}` : el("span", { class: "problem" }, visible(state.problem))),
      fact("Last link", el("code", { title: status.head_hash }, status.head_hash.slice(0, 16)))),
    context.mayRewind && state.state !== "running" ? el("p", { class: "actions" }, el("button", { class: "button small", onclick: () => run(false) }, "Verify"), el("button", { class: "button small", onclick: () => run(true) }, "Verify, and read all contents back")) : null);
}

function room(health) {
  const { status } = health;
  const used = status.store_bytes + status.catalog_bytes;
  return card("Room", health.excess_bytes === 0,
    health.budget_bytes ? el("meter", { min: "0", max: String(health.budget_bytes), value: String(used), high: String(health.budget_bytes * 0.85), "aria-label": "How much of the budget is used" }) : null,
    el("dl", null,
      fact("Contents", bytes(status.store_bytes)),
      fact("Catalog", bytes(status.catalog_bytes)),
      fact("Budget", health.budget_bytes ? bytes(health.budget_bytes) : "a quarter of the disk"),
      health.excess_bytes ? fact("Should go", bytes(health.excess_bytes)) : null));
}

function retention({ retention: plan }) {
  const nothing = !plan.dropped_records && !plan.merged_records;
  return card("Retention", null,
    el("dl", null,
      fact("Pruning now would", nothing ? "change nothing" : `drop ${count(plan.dropped_records, "record")}, merge ${number(plan.merged_records)}`),
      fact("Oldest moment", plan.oldest_kept_at ? wholeTime(plan.oldest_kept_at) : "the beginning")));
}

function watching(status) {
  return card("Watcher and mount", status.mount_problem ? false : null,
    el("dl", null, fact("Watcher", visible(status.watcher)), status.mount_problem ? fact("Mount", el("span", { class: "problem" }, visible(status.mount_problem))) : null, status.roots.length ? fact("Further roots", status.roots.map((root) => el("div", { class: "path" }, visible(root)))) : null));
}

function heads(status) {
  const behind = status.witnesses.some((witness) => witness.problem);
  return card("Signed heads", status.head_problem || behind ? false : status.signed_size ? true : null,
    el("dl", null,
      fact("Signed up to", status.signed_size ? `record ${number(status.signed_size)}` : "nothing yet"),
      status.head_problem ? fact("Problem", visible(status.head_problem)) : null,
      status.witnesses.map((witness) => fact(`Witness (${witness.kind})`, visible(witness.place), witness.problem ? el("span", { class: "problem" }, " ", visible(witness.problem)) : ` ${number(witness.behind)} behind`)),
      status.mirror ? fact("Bucket", visible(status.mirror.place), ` ${number(status.mirror.behind)} behind`, status.mirror.error ? el("span", { class: "problem" }, " ", visible(status.mirror.error)) : null) : null));
}

function replicas(health) {
  return card("Replicas and conflicts", health.conflicts.length ? false : health.replicas.length ? health.replicas.every((replica) => replica.behind === 0 && !replica.conflicts) : null,
    health.replicas.length
      ? el("table", { class: "facts" }, el("thead", null, el("tr", null, ["Name", "Behind", "Conflicts", "Seen"].map((words) => el("th", { scope: "col" }, words)))), el("tbody", null, health.replicas.map((replica) => el("tr", null, el("td", null, visible(replica.name)), el("td", null, count(replica.behind, "record")), el("td", null, number(replica.conflicts)), el("td", null, ago(replica.seen_at))))))
      : el("p", { class: "quiet" }, "No replica was ever heard of."),
    health.conflicts.length ? el("ul", { class: "plain" }, health.conflicts.map((item) => el("li", null, el("span", { class: "path" }, visible(item.path)), " ", el("span", { class: "quiet" }, visible(item.reason))))) : null);
}

function checkpoints(health) {
  return card("Checkpoints", null, health.checkpoints.length
    ? el("dl", null, health.checkpoints.map((note) => fact(visible(note.summary ?? note.action ?? `Record ${note.seq}`), ago(note.timestamp), note.parts.flatMap((part) => [", ", ...visible(part)]))))
    : el("p", { class: "quiet" }, "No checkpoint was made."));
}

function waiting(status) {
  const items = [
    status.active_transaction ? ["Transaction", status.active_transaction.id.slice(-12)] : null,
    status.open_intents ? ["Actions under way", number(status.open_intents)] : null,
    status.redoable ? ["Rewinds that can be redone", number(status.redoable)] : null,
    ...status.isolated.map((run) => [`Isolated run ${run.short_id}`, `${run.state}: ${run.summary}`]),
    status.pins.length ? ["Pinned moments", status.pins.join(", ")] : null,
  ].filter(Boolean);
  return card("Open ends", null, items.length ? el("dl", null, items.map(([words, value]) => fact(words, visible(value)))) : el("p", { class: "quiet" }, "Nothing waits for anybody."));
}
