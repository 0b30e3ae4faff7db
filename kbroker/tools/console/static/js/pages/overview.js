// The overview: is the cluster well, and its groups and transactions; if not, what is wrong, since when, and what helps.

import { get } from "../api.js";
import { trend } from "../charts.js";
import { badge, fill, h, link, problem, refill, table } from "../dom.js";
import { bytes, bytesRate, clock, duration, moment, number, plural, rate } from "../format.js";
import { href, hrefOfFinding } from "../router.js";
import { notAsked, progress } from "./groups.js";

export async function show(main, params, scope) {
  const status = h("div", { role: "status" }, h("p", { class: "quiet" }, "Asking the cluster …"));
  const troubles = h("div");
  const behind = h("div");
  const health = h("section", { "aria-labelledby": "health-title" }, status, troubles);
  const rest = h("div", { class: "stack halves" });
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
    // The one sentence at the top is about both: it waits for the slower answer, the parts below do not.
    const asked = get("groups/lags", {}, scope.signal).catch((error) => ({ rows: [], problem: error }));
    try {
      const told = await get("overview", { fresh }, scope.signal);
      fill(at, `as of ${clock(told.now)}`);
      drawTroubles(troubles, told);
      drawRest(rest, told);
      const lags = await asked;
      const judged = judge(told, lags);
      const text = JSON.stringify(judged);
      // Who hears the page is told only of what has changed.
      if (text !== drawn) drawStatus(status, judged);
      drawn = text;
      drawBehind(behind, lags);
    } catch (error) {
      if (error.name === "AbortError") return;
      drawn = "";
      fill(status, problem(error, () => load(true)));
      fill(troubles);
    }
  };
  await load(false);
  scope.every(5000, () => load(false));
}

/** Well, in need of attention (somebody waits for records), or broken (the cluster itself): a kind, a title, a sentence. */
function judge(told, lags) {
  const hung = told.troubles.filter((trouble) => trouble.kind === "hanging-transactions").length;
  const wrong = told.troubles_count - hung;
  const isBroken = told.troubles.some((trouble) => trouble.severity === "error" && trouble.kind !== "hanging-transactions");
  const count = (...kinds) => lags.rows.filter((group) => kinds.includes(group.kind)).length;
  const [stuck, never] = [count("stuck", "stuck-in-part"), count("never-committed")];
  const needing = [
    stuck ? `${plural(stuck, "group is", "groups are")} stuck` : null,
    never ? `${plural(never, "group has", "groups have")} never committed` : null,
    hung ? `${plural(hung, "transaction hangs", "transactions hang")}` : null,
  ].filter(Boolean).join(", ");
  const watched = count("unknown");
  const unseen = lags.problem
    ? `Groups could not be judged: ${lags.problem.message}`
    : [watched ? `${plural(watched, "lagging group is", "lagging groups are")} being watched: a few seconds tell whether one is stuck.` : null, notAsked(lags)].filter(Boolean).join(" ");
  if (wrong) return [isBroken ? "bad" : "warn", `${plural(wrong, "thing is", "things are")} wrong`, [needing, unseen].filter(Boolean).join(". ")];
  const calm = `Every partition has a leader, and every replica is in sync on ${plural(told.brokers.length, "broker")}.`;
  if (needing) return ["warn", `The brokers are well, ${needing}`, [calm, unseen].filter(Boolean).join(" ")];
  return ["good", "The cluster is well", `${calm} ${unseen || "No group is stuck."}`];
}

function drawStatus(status, [kind, title, text]) {
  fill(
    status,
    h(
      "div",
      { class: `health ${kind}` },
      h("span", { class: "mark", "aria-hidden": "true" }, kind === "good" ? "✓" : "!"),
      h("div", null, h("h2", { id: "health-title" }, title), text ? h("p", null, text) : null),
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

const MOST_BEHIND = 8;

/** The groups with records that wait, those that need attention first. Where nobody is in the group its program has ended: those are counted. */
function drawBehind(box, told) {
  const rank = (group) => (group.needs_attention ? 0 : 1);
  const left = told.rows.filter((group) => group.kind === "no-member");
  const rows = told.rows
    .filter((group) => group.needs_attention || (group.waiting && group.kind !== "no-member"))
    .sort((a, b) => rank(a) - rank(b) || b.lag - a.lag);
  const notes = [
    rows.length > MOST_BEHIND ? link(`and ${plural(rows.length - MOST_BEHIND, "more group")}`, "#/groups") : null,
    left.length ? link(`${plural(left.length, "group")} without members, for which ${plural(left.reduce((sum, g) => sum + g.waiting, 0), "record")} wait`, "#/groups") : null,
  ].filter(Boolean);
  refill(
    box,
    rows.length || notes.length
      ? h(
          "section",
          { class: "card" },
          h("h2", null, "Lagging groups"),
          rows.length
            ? table("Lagging groups", [
                { title: "Group", class: "name", cell: (g) => link(g.group, href("group", { group: g.group })) },
                { title: "Lag", number: true, cell: (g) => number(g.lag) },
                { title: "Progress", cell: (g) => progress(g, told.now) },
                { title: "Why", class: "why", cell: (g) => g.reasons.map((reason) => why(reason)) },
              ], rows.slice(0, MOST_BEHIND), { isStacked: true })
            : null,
          notes.map((each) => h("p", { class: "quiet" }, each)),
        )
      : null,
  );
}

/** A reason in one sentence, and the first place where more of it is seen. */
function why(reason) {
  const to = reason.links.find((each) => each.kind !== "client");
  return [reason.text, to ? [" ", link(to.text, hrefOfFinding(to))] : null];
}

function drawTrouble(trouble, now) {
  const since = trouble.exact
    ? [`for ${duration(now - trouble.since)}`, `since ${moment(trouble.since, { millis: false })}`]
    : [`for at least ${duration(now - trouble.since)}`, "there when first looked"];
  const kind = trouble.severity === "error" && trouble.kind !== "hanging-transactions" ? "bad" : "warn";
  return h(
    "li",
    { class: kind },
    h("div", null, badge(trouble.severity, kind)),
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
      tile("Controller", controller, told.controller_epoch === null ? null : `epoch ${told.controller_epoch}`),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Brokers"),
      table(
        "Brokers",
        [
          { title: "Broker", cell: (b) => link(String(b.id), href("broker", { id: b.id }), { class: "strong" }) },
          { title: "Address", class: "mono wrap", cell: (b) => b.address },
          { title: "State", cell: brokerState },
          { title: "Rack", cell: (b) => b.rack ?? "–" },
          { title: "Leads", number: true, cell: (b) => number(b.leads) },
          { title: "Replicas", number: true, cell: (b) => number(b.replicas) },
          {
            title: "Under-replicated",
            number: true,
            cell: (b) => (b.out_of_sync ? h("span", { class: "warn-text" }, number(b.out_of_sync)) : "0"),
          },
          { title: "On disk", number: true, cell: (b) => bytes(b.size) },
        ],
        told.brokers,
      ),
    ),
    told.traffic.length
      ? h(
          "section",
          { class: "card course" },
          h("h2", null, "Traffic"),
          h("div", null, trend("Traffic", [
            { title: "Records / s", points: told.traffic.map(([at, , records]) => [at, records]), shown: rate },
            { title: "Bytes / s", points: told.traffic.map(([at, size]) => [at, size]), shown: bytesRate },
          ])),
        )
      : null,
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
