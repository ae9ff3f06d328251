// Numbers, sizes and times in words.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const grouped = new Intl.NumberFormat();

export const clockTime = (at) => clock.format(new Date(at));
export const dayName = (at) => day.format(new Date(at));
export const wholeTime = (at) => whole.format(new Date(at));
export const number = (value) => grouped.format(value ?? 0);
export const count = (value, one, many = one + "s") => `${number(value)} ${value === 1 ? one : many}`;

/** How long ago, in few words. */
export function ago(at) {
  const seconds = Math.max(0, (Date.now() - new Date(at).getTime()) / 1000);
  if (seconds < 45) return "just now";
  for (const [span, size] of [["minute", 60], ["hour", 3600], ["day", 86400], ["week", 604800], ["month", 2629800]].reverse()) {
    if (seconds >= size) return count(Math.round(seconds / size), span) + " ago";
  }
  return "1 minute ago";
}

/** How long something took. */
export function span(from, to) {
  const seconds = Math.max(0, Math.round((new Date(to) - new Date(from)) / 1000));
  if (seconds < 1) return "less than a second";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "unknown";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? value.toFixed(value < 10 ? 1 : 0) : value} ${units[unit]}`;
}

/** Who somebody is, for the colour of his mark. */
export function whoClass(entry) {
  if (entry.kind === "rewind") return "rewind";
  if (entry.sub_agents?.length) return "sub";
  if (entry.kind === "turn" && entry.session !== "run") return "agent";
  if (entry.session === "run" || entry.action_type === "shell") return "shell";
  if (entry.authors?.includes("person") || entry.action_type === "external") return "person";
  return entry.session ? "agent" : "person";
}

export const WHO = { agent: "Agent", sub: "Sub-agent", person: "Person", shell: "Shell", rewind: "Rewind" };

export const CHANGES = {
  created: ["A", "created"], modified: ["M", "modified"], deleted: ["D", "deleted"],
  renamed: ["R", "renamed"], mode: ["X", "mode changed"], same: ["=", "unchanged"],
};
