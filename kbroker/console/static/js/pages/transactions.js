// Transactions: those that are open first, since when, and what they hold up.

import { get, post, session } from "../api.js";
import { confirmByName } from "../dialog.js";
import { badge, fill, h, link, problem, refill, table, tick, toast } from "../dom.js";
import { duration, moment, number, plural } from "../format.js";
import { href } from "../router.js";

const KINDS = { Ongoing: "warn", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good" };

export async function show(main, params, scope) {
  const count = h("span", { class: "quiet", role: "status" });
  const body = h("div", { class: "card grow" });
  const filter = h("input", { type: "search", placeholder: "Filter by id", "aria-label": "Filter transactions by id" });
  filter.dataset.filter = "";
  const open = tick("open only", false);
  const load = async () => {
    try {
      const told = await get("transactions", { filter: filter.value, open: open.input.checked }, scope.signal);
      fill(count, told.total === told.all ? plural(told.all, "transactional id") : `${number(told.total)} of ${number(told.all)}`);
      refill(body, drawTable(told, load));
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
    body,
  );
  await load();
  scope.every(4000, load);
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
      { title: "Time-out", number: true, cell: (t) => (t.timeout === null ? "–" : duration(t.timeout)) },
      {
        title: "Partitions",
        class: "mono wrap",
        cell: (t) => t.partitions.map((name, index) => [index ? ", " : "", partitionLink(name)]),
      },
      { title: "Producer id", number: true, cell: (t) => String(t.producer) },
      { title: "Coordinator", number: true, cell: (t) => t.coordinator },
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
    { empty: "There are no transactions." },
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
