// The frame around the pages: navigation, theme, keys, and which page is shown.

import { loadSession, post, session } from "./api.js";
import { closeDialogs, openDialog } from "./dialog.js";
import { fill, h, menu, problem } from "./dom.js";
import { plural } from "./format.js";
import { findCopies, forgetCopies } from "./record_copies.js";
import { Scope, go, parse } from "./router.js";

// A page is a line here and a module with `show(main, params, scope)`. Those without a key are reached from others,
// and those that are not offered have no link.
const PAGES = {
  overview: { title: "Overview", key: "o", load: () => import("./pages/overview.js") },
  topics: { title: "Topics", key: "t", load: () => import("./pages/topics.js") },
  topic: { title: "Topic", under: "topics", load: () => import("./pages/topic.js") },
  groups: { title: "Groups", key: "g", load: () => import("./pages/groups.js") },
  group: { title: "Group", under: "groups", load: () => import("./pages/group.js") },
  subjects: { title: "Schemas", key: "s", offered: () => session.registry, load: () => import("./pages/subjects.js") },
  subject: { title: "Subject", under: "subjects", load: () => import("./pages/subject.js") },
  transactions: { title: "Transactions", key: "x", load: () => import("./pages/transactions.js") },
  tables: { title: "Tables", key: "b", offered: () => session.tables, load: () => import("./pages/tables.js") },
  access: { title: "Access", key: "a", load: () => import("./pages/access.js") },
  clients: { title: "Clients", key: "c", offered: () => session.explorer, load: () => import("./pages/clients.js") },
  explorer: { title: "Protocol", key: "p", offered: () => session.explorer, load: () => import("./pages/explorer.js") },
  faults: { title: "Faults", key: "f", offered: () => session.faults, load: () => import("./pages/faults.js") },
  broker: { title: "Broker", under: "overview", load: () => import("./pages/broker.js") },
};

const main = document.getElementById("main");
let scope = new Scope();
let isFirst = true;

const hasLink = (page) => page.key && (!page.offered || page.offered());

function drawSide(current) {
  const own = PAGES[current]?.under ?? current;
  const links = Object.entries(PAGES)
    .filter(([, page]) => hasLink(page))
    .map(([path, page]) =>
      h("li", null, h("a", { href: `#/${path}`, "aria-current": path === own ? "page" : null }, page.title)),
    );
  fill(
    document.getElementById("side"),
    h("div", { class: "brand" }, h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }), "kbroker console"),
    session.clusters.length ? clusterSwitch(own) : null,
    session.sign_in ? null : h("nav", { "aria-label": "Pages" }, h("ul", null, links)),
    h(
      "div",
      { class: "side-foot" },
      h("div", { class: "where", title: "Where the console asks the cluster" }, session.bootstrap.split(",").map((each) => h("div", null, each))),
      h(
        "div",
        { class: `mode ${session.writes ? "writes" : ""}` },
        session.writes ? "changes are allowed" : "read-only",
      ),
      session.user ? h("div", { class: "user" }, "signed in as ", h("strong", null, session.user)) : null,
      h(
        "div",
        { class: "side-buttons" },
        h("button", { type: "button", class: "plain", onclick: nextTheme, id: "theme" }, themeText()),
        h("button", { type: "button", class: "plain", onclick: showKeys, "aria-keyshortcuts": "?" }, "Keys"),
        session.signed_in ? h("button", { type: "button", class: "plain", onclick: signOut }, "Sign out") : null,
      ),
    ),
  );
  // On a phone the pages are a row that is wider than it.
  document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

/** Leads to the same page of another cluster, each with whether it can be reached. */
function clusterSwitch(page) {
  const links = session.clusters.map(({ name, path }) => {
    const state = h("span", { class: "quiet small" }, "asking …");
    const place = h("a", { href: `${path}#/${hasLink(PAGES[page] ?? {}) ? page : ""}`, "aria-current": name === session.cluster ? "true" : null }, h("strong", null, name), state);
    return { path, state, place };
  });
  const made = menu(session.cluster, links.map((each) => each.place));
  made.classList.add("cluster");
  made.firstChild.setAttribute("aria-label", `Cluster: ${session.cluster}`);
  made.lastChild.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    for (const { path, state } of links) {
      fetch(`${path}api/reach`, { credentials: "same-origin" })
        .then(async (answer) => [answer.status, await answer.json()])
        .then(([status, told]) => fill(state, status === 401 ? "sign in there" : (told.error ?? plural(told.brokers, "broker"))), () => fill(state, "the console does not answer"));
    }
  });
  return made;
}

// --- Theme ---------------------------------------------------------------------------------------------------------

const themeText = () => `Theme: ${document.documentElement.dataset.theme ?? "auto"}`;

function nextTheme() {
  const root = document.documentElement;
  const next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem("theme", next);
    else localStorage.removeItem("theme");
  } catch {
    // Then it lasts as long as this page.
  }
  document.getElementById("theme").textContent = themeText();
}

// --- Keys ----------------------------------------------------------------------------------------------------------

let waiting = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing) return;
  if (waiting) {
    waiting = false;
    const found = Object.entries(PAGES).find(([, page]) => page.key === event.key);
    if (found) {
      event.preventDefault();
      go(found[0]);
    }
    return;
  }
  if (event.key === "g") {
    waiting = true;
    setTimeout(() => (waiting = false), 1500);
  } else if (event.key === "/") {
    const filter = main.querySelector("[data-filter]");
    if (filter) {
      event.preventDefault();
      filter.focus();
      filter.select();
    }
  } else if (event.key === "?") showKeys();
});

function showKeys() {
  const keys = [
    ...Object.values(PAGES)
      .filter(hasLink)
      .map((page) => [`g ${page.key}`, page.title]),
    ["/", "to the filter of the page"],
    ["↑ ↓", "from row to row"],
    ["Enter", "open the row, or apply the filter"],
    ["Escape", "leave a field, close a dialog"],
    ["?", "this list"],
  ];
  openDialog("Keys", () =>
    h(
      "dl",
      { class: "keys" },
      keys.map(([key, text]) => [h("dt", null, key.split(" ").map((part) => h("kbd", null, part))), h("dd", null, text)]),
    ),
  );
}

// --- Pages ---------------------------------------------------------------------------------------------------------

async function show() {
  if (!session.sign_in && location.hash === "#main") return;
  if (session.sign_in && main.querySelector("form.sign-in")) return; // somebody may have begun to fill it in
  scope.end();
  scope = new Scope();
  const mine = scope;
  const { path, params } = parse(location.hash);
  const page = PAGES[path];
  // Until the next page is drawn the last one is still there to be seen, but nothing is done with it: the address has
  // another topic's name already.
  for (const part of main.children) part.inert = true;
  drawSide(path);
  try {
    if (session.sign_in) {
      forgetCopies();
      const signIn = await import("./pages/sign_in.js");
      if (mine.over) return;
      signIn.show(main, start);
      document.title = "Sign in – kbroker console";
    } else if (page) {
      document.title = [params.name ?? params.group ?? params.to ?? page.title, session.cluster, "kbroker console"].filter(Boolean).join(" – ");
      const module = await page.load();
      if (mine.over) return;
      await module.show(main, params, mine);
    } else fill(main, h("h1", null, "Nothing here"), h("p", null, "There is no page of that name. "));
  } catch (error) {
    if (error.name === "AbortError" || mine.over) return;
    fill(main, h("h1", null, page?.title ?? "Console"), problem(error, show));
  }
  if (!mine.over && !isFirst) focusHeading();
  isFirst = false;
}

/** After another page is shown the focus is at its heading, for the keyboard and for who hears the page. */
function focusHeading() {
  if (main.contains(document.activeElement)) return;
  const heading = main.querySelector("h1");
  if (heading) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
  window.scrollTo(0, 0);
}

async function signOut() {
  Object.assign(session, await post("sign-out"));
  show();
}

async function start() {
  try {
    await loadSession();
  } catch (error) {
    drawSide("");
    fill(main, h("h1", null, "kbroker console"), problem(error, start));
    return;
  }
  if (session.writes && !session.sign_in) findCopies();
  await show();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  closeDialogs();
  show();
});
window.addEventListener("signed-out", start);
start();
