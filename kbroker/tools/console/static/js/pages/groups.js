// Groups of every type.

import { get, getWanted } from "../api.js";
import { badge, fill, h, link, problem, refill, table, tick } from "../dom.js";
import { duration, number, plural } from "../format.js";
import { sparkLine } from "../charts.js";
import { href, note } from "../router.js";

// That a group is stable says nothing of whether it reads.
export const STATE_KINDS = { Stable: "quiet", Empty: "quiet", Dead: "bad" };

const PROGRESS = {
  "caught-up": ["caught up", "quiet"],
  lagging: ["lagging", "good"],
  unknown: ["watching …", "quiet"],
  "no-member": ["no members", "quiet"],
  "never-committed": ["never committed", "warn"],
  "stuck-in-part": ["stuck in part", "warn"],
  stuck: ["stuck", "bad"],
};

/** How a group is in a word, and since when; a link to the reasons if somebody has to look at it. */
export function progress(group, now) {
  const [word, kind] = PROGRESS[group.kind];
  if (!group.needs_attention) return group.kind === "caught-up" || group.kind === "unknown" ? word : badge(word, kind);
  const told = badge(group.since === null ? word : `${word} for ${duration(now - group.since)}`, kind);
  return link(told, href("group", { group: group.group }), { "aria-label": `Why ${group.group} is ${word}` });
}

/** What is not known of lags, where there are too many groups, or too many committed offsets. */
export const notAsked = (told) =>
  told.asked < told.groups ? `Of ${number(told.groups)} groups ${number(told.asked)} were asked for their lags.` : null;

export async function show(main, params, scope) {
  const count = h("span", { class: "quiet", role: "status" });
  const body = h("div", { class: "card grow" });
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter groups by name" });
  filter.dataset.filter = "";
  filter.value = params.filter ?? "";
  const stuck = tick("only those that need attention", params.stuck === "true");
  let lags = new Map();
  let now = 0;
  let left = null;
  const lagOf = (name) => lags.get(name);
  const loadLags = async () => {
    try {
      const told = await get("groups/lags", {}, scope.signal);
      lags = new Map(told.rows.map((row) => [row.group, row]));
      now = told.now;
      left = notAsked(told);
    } catch {
      // Offsets may not be seen: the list is shown without them.
    }
  };
  const load = async () => {
    note("groups", { filter: filter.value, stuck: stuck.input.checked });
    try {
      const [told] = await Promise.all([getWanted("groups", () => ({ filter: filter.value }), scope.signal), loadLags()]);
      const all = told.total === told.all ? plural(told.all, "group") : `${number(told.total)} of ${number(told.all)}`;
      fill(count, all, told.total > told.rows.length ? `, ${number(told.rows.length)} shown: filter by name` : "", left && `. ${left}`);
      refill(
        body,
        table(
          "Groups",
          [
            { title: "Group", class: "name", cell: (g) => link(g.group || "(empty)", href("group", { group: g.group })) },
            { title: "Type", class: "minor", cell: (g) => g.type || "–" },
            { title: "State", class: "minor", cell: (g) => badge(g.state || "unknown", STATE_KINDS[g.state] ?? "warn") },
            { title: "Members", number: true, class: "minor", cell: (g) => number(lagOf(g.group)?.members) },
            { title: "Lag", number: true, cell: (g) => number(lagOf(g.group)?.lag) },
            { title: "Trend", class: "minor", cell: (g) => sparkLine(lagOf(g.group)?.course) ?? "–" },
            { title: "Progress", cell: (g) => (lagOf(g.group) ? progress(lagOf(g.group), now) : "–") },
          ],
          stuck.input.checked ? told.rows.filter((g) => lagOf(g.group)?.needs_attention) : told.rows,
          { empty: stuck.input.checked ? "No group needs attention." : filter.value ? "No group fits." : "There are no groups yet: one begins with its first member." },
        ),
      );
    } catch (error) {
      if (error.name !== "AbortError") fill(body, problem(error, load));
    }
  };
  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  });
  stuck.input.addEventListener("change", load);
  scope.onEnd(() => clearTimeout(timer));
  fill(
    main,
    h("div", { class: "page-head" }, h("h1", null, "Groups")),
    h("div", { class: "bar" }, filter, stuck.element, h("div", { class: "spacer" }), count),
    body,
  );
  await load();
  scope.every(5000, load);
}
