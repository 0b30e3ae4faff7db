// Transactions: those that are open first, since when, and what they hold up.

import { getWanted, post, session } from "../api.js";
import { confirmByName } from "../dialog.js";
import { badge, fill, h, link, problem, refill, table, tick, toast } from "../dom.js";
import { clock, duration, moment, number, plural } from "../format.js";
import { href, note } from "../router.js";

const KINDS = { Ongoing: "warn", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good" };

export async function show(main, params, scope) {
  const count = h("span", { class: "quiet", role: "status" });
  const body = h("div", { class: "card grow" });
  const filter = h("input", { type: "search", placeholder: "Filter by id", "aria-label": "Filter transactions by id" });
  filter.dataset.filter = "";
  filter.value = params.filter ?? "";
  const open = tick("open only", params.open === "true");
  const gaps = h("div", { role: "status" });
  const seen = new Course();
  const course = h("div");
  const load = async () => {
    note("transactions", { filter: filter.value, open: open.input.checked });
    try {
      const words = filter.value;
      const told = await getWanted("transactions", () => ({ filter: filter.value }), scope.signal);
      const rows = open.input.checked ? told.rows.filter((row) => row.open) : told.rows;
      const fits = open.input.checked ? rows.length : told.total;
      fill(count, fits === told.all ? plural(told.all, "transactional id") : `${number(fits)} of ${number(told.all)}`);
      refill(gaps, told.missing.length ? h("p", { class: "note" }, `Some may be missing: ${told.missing.join("; ")}.`) : null);
      refill(body, drawTable({ ...told, rows }, load));
      if (seen.take(told, words)) drawCourse(course, seen.events);
    } catch (error) {
      if (error.name !== "AbortError") fill(body, problem(error, load));
    }
  };
  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  });
  open.input.addEventListener("change", load);
  scope.onEnd(() => clearTimeout(timer));
  fill(
    main,
    h("div", { class: "page-head" }, h("h1", null, "Transactions")),
    h("div", { class: "bar" }, filter, open.element, h("div", { class: "spacer" }), count),
    h(
      "p",
      { class: "quiet" },
      "Readers of committed records stop at the first record of an open transaction. One that its coordinator has",
      " forgotten is on the tab Groups of its topic.",
    ),
    gaps,
    body,
    course,
  );
  await load();
  scope.every(1000, load);
}

const ENDS = {
  CompleteCommit: ["has committed", "good"],
  CompleteAbort: ["has aborted", "bad"],
  PrepareCommit: ["commits: markers are written", "warn"],
  PrepareAbort: ["aborts: markers are written", "warn"],
  Ongoing: ["has begun", "warn"],
};

/** What has happened to transactions since the page was opened, as far as it has looked in time. */
class Course {
  events = [];
  #known = null;
  #words = "";

  /** The answer to a look for ids with these words; true if something has happened since the one before. */
  take(told, words) {
    const before = this.#words === words ? this.#known : null;
    this.#known = new Map(told.rows.map((row) => [row.id, row]));
    this.#words = words;
    if (before === null) return false;
    // Where not all ids are told, one that has ended long ago may come among them.
    const isNews = (row) => before.has(row.id) || row.open || told.total === told.rows.length;
    const events = told.rows.filter((row) => row.state in ENDS && row.state !== before.get(row.id)?.state && isNews(row)).map((row) => {
      const last = before.get(row.id);
      const since = last?.since ?? null;
      return {
        at: told.now,
        id: row.id,
        state: row.state,
        took: row.open || since === null ? null : told.now - since,
        partitions: row.partitions.length ? row.partitions : (last?.partitions ?? []),
      };
    });
    this.events = [...events, ...this.events].slice(0, 50);
    return events.length > 0;
  }
}

function drawCourse(box, events) {
  refill(
    box,
    h(
      "section",
      { class: "card" },
      h("h2", null, "Seen since this page was opened"),
      h(
        "p",
        { class: "quiet" },
        "It looks once a second: a transaction that is shorter may begin and end unseen.",
        session.explorer ? [" “Watch” shows each of its requests."] : null,
      ),
      table(
        "Seen since this page was opened",
        [
          { title: "Time", cell: (e) => clock(e.at) },
          { title: "Transactional id", class: "name mono", cell: (e) => e.id },
          { title: "What", cell: (e) => badge(...ENDS[e.state]) },
          { title: "Was open for", number: true, cell: (e) => (e.took === null ? "–" : duration(e.took)) },
          { title: "Partitions", class: "mono wrap", cell: (e) => e.partitions.map((name, index) => [index ? ", " : "", partitionLink(name)]) },
        ],
        events,
      ),
    ),
  );
}

function drawTable(told, again) {
  return table(
    "Transactions",
    [
      { title: "Transactional id", class: "name mono", cell: (t) => t.id },
      { title: "State", cell: (t) => badge(t.state, KINDS[t.state] ?? "quiet") },
      {
        title: "Open for",
        number: true,
        cell: (t) =>
          t.since === null ? "–" : h("span", { title: `since ${moment(t.since)}` }, duration(told.now - t.since)),
      },
      { title: "Time-out", number: true, class: "minor", cell: (t) => (t.timeout === null ? "–" : duration(t.timeout)) },
      {
        title: "Partitions",
        class: "mono wrap why",
        cell: (t) => t.partitions.map((name, index) => [index ? ", " : "", partitionLink(name)]),
      },
      { title: "Producer id", number: true, class: "minor", cell: (t) => String(t.producer) },
      { title: "Coordinator", number: true, class: "minor", cell: (t) => t.coordinator },
      session.explorer
        ? {
            title: "Protocol",
            cell: (t) =>
              link("Watch", href("explorer", { filter: t.id }), { "aria-label": `Watch the requests of ${t.id} as they happen` }),
          }
        : null,
      session.writes
        ? {
            title: "Change",
            cell: (t) =>
              t.state === "Ongoing"
                ? h("button", { type: "button", class: "danger", "aria-label": `Abort ${t.id}`, onclick: () => abort(t, again) }, "Abort")
                : null,
          }
        : null,
    ].filter(Boolean),
    told.rows,
    { empty: "There are no transactions.", isStacked: true },
  );
}

function partitionLink(name) {
  const at = name.lastIndexOf("-");
  return link(name, href("topic", { name: name.slice(0, at), partitions: name.slice(at + 1) }));
}

function abort(row, again) {
  confirmByName(
    "Abort the transaction",
    row.id,
    "What it has written is never seen by readers of committed records, and its producer is fenced.",
    "Abort",
    async (typed) => {
      toast((await post("transaction/abort", { id: row.id, confirm: typed })).done);
      again();
    },
  );
}
