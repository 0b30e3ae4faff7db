// Groups of every type.

import { get, getWanted } from "../api.js";
import { badge, fill, h, link, problem, refill, table } from "../dom.js";
import { duration, number, plural } from "../format.js";
import { sparkLine } from "../lag_chart.js";
import { href, note } from "../router.js";

export const STATE_KINDS = { Stable: "good", Empty: "quiet", Dead: "bad" };

/** Whether a group is caught up, lagging or stuck. */
export function advances(group, now) {
  if (!group.waiting) return "caught up";
  if (group.stuck_since === null) return group.advances ? badge("lagging", "good") : "watching …";
  const since = `for ${duration(now - group.stuck_since)}`;
  const told = group.advances ? badge(`stuck in part ${since}`, "warn") : badge(`stuck ${since}`, "bad");
  return link(told, href("group", { group: group.group }), {
    "aria-label": `Why ${group.group} is stuck`,
  });
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
    note("groups", { filter: filter.value });
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
            { title: "Type", cell: (g) => g.type || "–" },
            { title: "State", cell: (g) => badge(g.state || "unknown", STATE_KINDS[g.state] ?? "warn") },
            { title: "Protocol", cell: (g) => g.protocol || "–" },
            { title: "Lag", number: true, cell: (g) => number(lagOf(g.group)?.lag) },
            { title: "Course", cell: (g) => sparkLine(lagOf(g.group)?.course) ?? "–" },
            { title: "Progress", cell: (g) => (lagOf(g.group) ? advances(lagOf(g.group), now) : "–") },
          ],
          told.rows,
          { empty: filter.value ? "No group fits." : "There are no groups yet: one begins with its first member." },
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
  scope.onEnd(() => clearTimeout(timer));
  fill(
    main,
    h("div", { class: "page-head" }, h("h1", null, "Groups")),
    h("div", { class: "bar" }, filter, h("div", { class: "spacer" }), count),
    body,
  );
  await load();
  scope.every(5000, load);
}
