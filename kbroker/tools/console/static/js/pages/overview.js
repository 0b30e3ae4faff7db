// The overview: is the cluster well, and if not, what is wrong, since when, and what helps.

import { get } from "../api.js";
import { badge, fill, h, link, problem, refill, table } from "../dom.js";
import { bytes, bytesRate, clock, duration, moment, number, plural, rate } from "../format.js";
import { href, hrefOfFinding } from "../router.js";
import { STATE_KINDS, advances, notAsked } from "./groups.js";

export async function show(main, params, scope) {
  const status = h("div", { role: "status" }, h("p", { class: "quiet" }, "Asking the cluster …"));
  const troubles = h("div");
  const behind = h("div");
  const health = h("section", { "aria-labelledby": "health-title" }, status, troubles);
  const rest = h("div", { class: "stack" });
  const at = h("span", { class: "quiet" });
  const refresh = h("button", { type: "button", onclick: () => load(true) }, "Refresh");
  fill(
    main,
    h("div", { class: "page-head" }, h("h1", null, "Overview"), h("div", { class: "spacer" }), at, refresh),
    health,
    behind,
    rest,
  );
  let drawn = "";
  const load = async (fresh) => {
    try {
      const told = await get("overview", { fresh }, scope.signal);
      fill(at, `as of ${clock(told.now)}`);
      const text = JSON.stringify([told.troubles.map((trouble) => trouble.key), told.brokers.length]);
      // Who hears the page is told only of what has changed.
      if (text !== drawn) drawStatus(status, told);
      drawn = text;
      drawTroubles(troubles, told);
      drawRest(rest, told);
    } catch (error) {
      if (error.name === "AbortError") return;
      drawn = "";
      fill(status, problem(error, () => load(true)));
      fill(troubles);
    }
  };
  const loadBehind = async () => {
    try {
      drawBehind(behind, await get("groups/lags", {}, scope.signal));
    } catch {
      // Groups may not be seen, or are loaded just now: then nothing is said of them.
    }
  };
  await Promise.all([load(false), loadBehind()]);
  scope.every(5000, () => load(false));
  scope.every(5000, loadBehind);
}

function drawStatus(status, told) {
  const errors = told.troubles.filter((trouble) => trouble.severity === "error").length;
  const kind = !told.troubles_count ? "good" : errors ? "bad" : "warn";
  const title = !told.troubles_count
    ? "The cluster is well"
    : `${plural(told.troubles_count, "thing is", "things are")} wrong`;
  const calm = `Every partition has a leader, and every replica is in sync on ${plural(told.brokers.length, "broker")}.`;
  fill(
    status,
    h(
      "div",
      { class: `health ${kind}` },
      h("span", { class: "mark", "aria-hidden": "true" }, kind === "good" ? "✓" : "!"),
      h("div", null, h("h2", { id: "health-title" }, title), told.troubles_count ? null : h("p", null, calm)),
    ),
  );
}

function drawTroubles(box, told) {
  refill(
    box,
    told.troubles.length
      ? h("ul", { class: "troubles" }, told.troubles.map((trouble) => drawTrouble(trouble, told.now)))
      : null,
    told.troubles_count > told.troubles.length
      ? h("p", { class: "quiet" }, `and ${number(told.troubles_count - told.troubles.length)} more of the same kinds`)
      : null,
  );
}

const MOST_BEHIND = 5;

/** The groups with records that wait: stuck ones first, and those without members, whose programs have ended, last. */
function drawBehind(box, told) {
  const rank = (group) => (group.stuck_since === null ? 1 : group.state === "Empty" ? 2 : 0);
  const rows = told.rows.filter((group) => group.waiting).sort((a, b) => rank(a) - rank(b) || b.lag - a.lag);
  const silent = notAsked(told);
  if (!rows.length) {
    refill(box, silent ? h("p", { class: "quiet" }, silent) : null);
    return;
  }
  const left = rows.length - MOST_BEHIND;
  refill(
    box,
    h(
      "section",
      { class: "card" },
      h("h2", null, "Lagging groups"),
      table("Lagging groups", [
          { title: "Group", class: "name", cell: (g) => link(g.group, href("group", { group: g.group })) },
          { title: "State", cell: (g) => badge(g.state || "unknown", STATE_KINDS[g.state] ?? "warn") },
          { title: "Lag", number: true, cell: (g) => plural(g.lag, "record") },
          { title: "Progress", cell: (g) => advances(g, told.now) },
        ], rows.slice(0, MOST_BEHIND)),
      left > 0 ? h("p", null, link(`and ${plural(left, "more group")}`, "#/groups")) : null,
      silent ? h("p", { class: "quiet" }, silent) : null,
    ),
  );
}

function drawTrouble(trouble, now) {
  const since = trouble.exact
    ? [`for ${duration(now - trouble.since)}`, `since ${moment(trouble.since, { millis: false })}`]
    : [`for at least ${duration(now - trouble.since)}`, "there when first looked"];
  return h(
    "li",
    { class: trouble.severity === "error" ? "bad" : "warn" },
    h("div", null, badge(trouble.severity, trouble.severity === "error" ? "bad" : "warn")),
    h(
      "div",
      null,
      h("p", null, trouble.links.length ? link(trouble.text, hrefOfFinding(trouble.links[0])) : trouble.text),
      h("p", { class: "quiet" }, trouble.advice),
    ),
    h("div", { class: "since" }, since.map((line) => h("div", null, line))),
  );
}

const tile = (name, value, note) =>
  h("div", { class: "tile" }, h("dt", null, name), h("dd", null, value, note ? h("small", null, note) : null));

function drawRest(rest, told) {
  const controller =
    told.controller === null ? "not told" : told.controller < 0 ? "none" : `node ${told.controller}`;
  refill(
    rest,
    h(
      "dl",
      { class: "tiles" },
      tile("Brokers", number(told.brokers.length)),
      tile("Topics", number(told.topics), told.internal_topics ? `and ${told.internal_topics} internal` : null),
      tile("Partitions", number(told.partitions)),
      tile("Data, one copy", bytes(told.size)),
      tile("Records a second", rate(told.records_rate), told.bytes_rate === null ? null : `${bytesRate(told.bytes_rate)}/s`),
      tile("Active controller", controller, told.controller_epoch === null ? null : `epoch ${told.controller_epoch}`),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Brokers"),
      table(
        "Brokers",
        [
          { title: "Broker", cell: (b) => link(String(b.id), href("broker", { id: b.id }), { class: "strong" }) },
          { title: "Address", class: "mono", cell: (b) => b.address },
          { title: "State", cell: brokerState },
          { title: "Rack", cell: (b) => b.rack ?? "–" },
          { title: "Leads", number: true, cell: (b) => number(b.leads) },
          { title: "Replicas", number: true, cell: (b) => number(b.replicas) },
          {
            title: "Not in sync",
            number: true,
            cell: (b) => (b.out_of_sync ? h("span", { class: "warn-text" }, number(b.out_of_sync)) : "0"),
          },
          { title: "On disk", number: true, cell: (b) => bytes(b.size) },
        ],
        told.brokers,
      ),
    ),
    told.busiest.length
      ? h(
          "section",
          { class: "card" },
          h("h2", null, "Busiest topics"),
          table(
            "Busiest topics",
            [
              { title: "Topic", class: "name", cell: (t) => link(t.name, href("topic", { name: t.name })) },
              { title: "Records / s", number: true, cell: (t) => rate(t.records_rate) },
              { title: "Bytes / s", number: true, cell: (t) => bytesRate(t.bytes_rate) },
            ],
            told.busiest,
          ),
        )
      : null,
    h(
      "section",
      { class: "card" },
      h("h2", null, "Metadata quorum"),
      told.quorum_problem
        ? h("p", { class: "quiet" }, `It cannot be seen: ${told.quorum_problem}`)
        : table(
            "Metadata quorum",
            [
              { title: "Node", cell: (node) => h("span", { class: "strong" }, node.id) },
              {
                title: "Role",
                cell: (node) => badge(node.role, node.role === "leader" ? "good" : "quiet"),
              },
              { title: "End offset", number: true, cell: (node) => number(node.end_offset) },
              { title: "Behind", number: true, cell: (node) => number(node.behind) },
              {
                title: "Last caught up",
                number: true,
                cell: (node) =>
                  node.role === "leader"
                    ? "–"
                    : node.caught_up === null
                      ? "never"
                      : `${duration(told.now - node.caught_up)} ago`,
              },
            ],
            told.quorum,
          ),
    ),
    h(
      "p",
      { class: "quiet small" },
      `Cluster ${told.cluster_id ?? "without an id"}`,
      told.metadata_version ? `, metadata.version ${told.metadata_version}` : null,
    ),
  );
}

function brokerState(broker) {
  return [
    broker.fenced ? badge("fenced", "bad") : badge("serves", "good"),
    broker.controller ? [" ", badge("active controller")] : null,
  ];
}
