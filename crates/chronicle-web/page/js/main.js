// The frame: who asks, which workspace, which page; and what all pages share.

import * as api from "./api.js";
import { el, fill, say } from "./dom.js";
import { always, help, here } from "./keys.js";
import { address, go, note, read } from "./router.js";
import { plain, visible } from "./text.js";

const PAGES = {
  timeline: () => import("./timeline.js"),
  turn: () => import("./turn.js"),
  action: () => import("./turn.js"),
  file: () => import("./file.js"),
  search: () => import("./search.js"),
  health: () => import("./health.js"),
  rewind: () => import("./rewind.js"),
};

const top = document.getElementById("top");
const main = document.getElementById("main");
const state = { right: "look", workspaces: [], id: null, live: null, leave: null, listening: null, heard: new Set(), head: 0 };

// --- light and dark ---------------------------------------------------------------------------

function theme(next) {
  const now = next ?? localStorage.getItem("theme");
  if (now) document.documentElement.dataset.theme = now;
  if (next) localStorage.setItem("theme", next);
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
  say(dark ? "Light" : "Dark");
}

// --- signing in -------------------------------------------------------------------------------

async function enter() {
  const code = /^#code=([0-9a-f]+)$/.exec(location.hash)?.[1];
  if (code) {
    // Gone from the address before anything else happens.
    note("#/");
    try {
      state.right = (await api.signIn(code)).right;
    } catch (error) {
      return askForToken(error);
    }
  } else {
    try {
      state.right = (await api.who()).right;
    } catch (error) {
      return error.status === 401 ? askForToken(null) : failed(error);
    }
  }
  state.workspaces = (await api.workspaces()).workspaces;
  show();
}

function askForToken(error) {
  fill(top, el("span", { class: "brand" }, "Chronicle"));
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const wrong = el("p", { class: "problem", role: "alert" }, error ? [error.message, ". ", error.hint] : null);
  const send = async (event) => {
    event.preventDefault();
    try {
      state.right = (await api.signIn(field.value.trim())).right;
      state.workspaces = (await api.workspaces()).workspaces;
      show();
    } catch (refused) {
      fill(wrong, refused.message);
    }
  };
  fill(
    main,
    el("section", { class: "sign-in card" },
      el("h1", null, "Who is there?"),
      el("p", null, "Open the link that ", el("code", null, "chronicle web"), " printed; it counts once. Or paste a token: the content of ", el("code", null, "web/look-token"), " or ", el("code", null, "web/rewind-token"), " in Chronicle\u2019s home."),
      el("form", { onsubmit: send }, el("label", { for: "token" }, "Token"), field, el("button", { class: "button primary" }, "Sign in")),
      wrong,
    ),
  );
  field.focus();
}

/** Says what went wrong, honestly, where the page would be. */
function failed(error) {
  fill(
    main,
    el("section", { class: "card failure", role: "alert" },
      el("h1", null, error.message),
      error.detail ? el("p", null, error.detail) : null,
      error.hint ? el("p", { class: "hint" }, error.hint) : null,
      error.code ? el("p", { class: "quiet" }, "Code ", el("code", null, error.code)) : null,
      el("button", { class: "button", onclick: () => location.reload() }, "Try again"),
    ),
  );
}

// --- the frame --------------------------------------------------------------------------------

function frame(where) {
  const link = (page, words) => el("a", { href: address(state.id, page), "aria-current": where.page === page || (page === "timeline" && ["turn", "action"].includes(where.page)) ? "page" : null }, words);
  const choose = el("select", { "aria-label": "Workspace", class: "choose", onchange: (event) => go(address(event.target.value, "timeline")) });
  for (const item of state.workspaces) {
    const option = el("option", { value: item.id }, plain(item.root.split("/").pop() || item.root));
    option.title = plain(item.root);
    option.selected = item.id === state.id;
    choose.append(option);
  }
  state.dot = el("span", { class: "live", role: "img", "aria-label": "Waiting for the server" });
  fill(
    top,
    el("a", { class: "brand", href: address(state.id, "timeline"), "aria-label": "Chronicle, to the timeline" }, el("img", { src: "/icon.svg", alt: "", width: "22", height: "22" }), el("span", { class: "brand-name" }, "Chronicle")),
    choose,
    el("nav", { "aria-label": "Pages" }, link("timeline", "Timeline"), link("search", "Search"), link("health", "Health")),
    el("span", { class: "gap" }),
    state.right === "look" ? el("span", { class: "badge", title: "Nothing can be changed from here" }, "read only") : null,
    state.dot,
    el("button", { class: "icon", onclick: toggleTheme, "aria-label": "Light or dark", title: "Light or dark (t)" }, "\u25d0"),
    el("button", { class: "icon", onclick: help, "aria-label": "Keys", title: "Keys (?)" }, "?"),
  );
  shine();
}

function shine() {
  if (!state.dot) return;
  state.dot.classList.toggle("on", state.live === true);
  state.dot.classList.toggle("off", state.live === false);
  const words = state.live ? "Live: what happens is shown at once" : state.live === false ? "The server is away" : "Connecting";
  state.dot.setAttribute("aria-label", words);
  state.dot.title = words;
}

function listen() {
  state.listening?.();
  state.head = 0;
  state.listening = state.api.events((news) => {
    state.live = news.live;
    shine();
    if (news.head_seq === undefined || news.head_seq === state.head) return;
    const first = state.head === 0;
    state.head = news.head_seq;
    if (!first) for (const heard of state.heard) heard(news.head_seq);
  });
}

async function show() {
  const where = read();
  const known = state.workspaces.find((item) => item.id === where.workspace);
  if (!known) {
    const first = state.workspaces.find((item) => item.here) ?? state.workspaces[0];
    if (!first) return nothingAdopted();
    note(address(first.id, "timeline"));
    return show();
  }
  if (state.id !== known.id) {
    state.id = known.id;
    state.api = api.workspace(known.id);
    // The stream begins when the page stands: first what is to be seen.
    setTimeout(listen, 0);
  }
  state.leave?.();
  state.leave = null;
  state.heard.clear();
  here([]);
  frame(where);
  document.title = `${plain(known.root.split("/").pop())} \u2013 Chronicle`;
  const shown = (state.showing = Symbol("page"));
  try {
    const page = await (PAGES[where.page] ?? PAGES.timeline)().catch(() => {
      throw api.unreachable();
    });
    if (state.showing !== shown) return;
    const context = {
      api: state.api,
      id: known.id,
      root: known.root,
      mayRewind: state.right === "rewind",
      where,
      main,
      onNews: (heard) => state.heard.add(heard),
      isShown: () => state.showing === shown,
      failed: (error) => {
        if (error.name !== "AbortError" && state.showing === shown) failed(error);
      },
    };
    state.leave = (await page.show(context)) ?? null;
  } catch (error) {
    if (error.status === 401) return askForToken(null);
    if (error.name !== "AbortError") failed(error);
  }
}

function nothingAdopted() {
  fill(top, el("span", { class: "brand" }, "Chronicle"));
  fill(
    main,
    el("section", { class: "card empty" },
      el("h1", null, "No workspace yet"),
      el("p", null, "Adopt a directory, and everything below it can be taken back from then on:"),
      el("pre", null, "cd your/project\nchronicle init"),
      el("button", { class: "button", onclick: () => location.reload() }, "Look again"),
    ),
  );
}

always([
  ["g t", "Timeline", () => go(address(state.id, "timeline"))],
  ["g s, /", "Search every version", () => go(address(state.id, "search"))],
  ["g h", "Health", () => go(address(state.id, "health"))],
  ["g b", "Back", () => history.back()],
  ["t", "Light or dark", toggleTheme],
  ["?", "These keys", help],
]);

theme();
window.addEventListener("hashchange", () => {
  if (/^#code=/.test(location.hash)) location.reload();
  else if (state.api || state.workspaces.length) show();
});
enter().catch(failed);

export { visible };
