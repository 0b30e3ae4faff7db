// One topic: its records, partitions, configs, groups and log, a tab each.

import { showAnalysis } from "../analysis.js";
import { get, post, session } from "../api.js";
import { trend } from "../charts.js";
import { changeConfig, configTable } from "../configs.js";
import { confirmByName, openForm } from "../dialog.js";
import { badge, field, fill, h, link, menu, problem, refill, table, tick, toast } from "../dom.js";
import { bytes, bytesRate, duration, moment, number, plural, rate as perSecond } from "../format.js";
import { go, href } from "../router.js";
import { showLog } from "../log.js";
import { movePartitions, movesUnderWay } from "../moves.js";
import { produceRecord } from "../produce.js";
import { importRecords, takeCopy } from "../record_copies.js";
import { showRecords } from "../records.js";
import { topicName } from "./topics.js";

const TABS = { records: "Records", partitions: "Partitions", configs: "Configs", groups: "Groups", log: "Log", analysis: "Analysis" };
const STATES = { ok: ["in sync", "good"], "under-replicated": ["under-replicated", "warn"], offline: ["no leader", "bad"] };

export async function show(main, params, scope) {
  const tab = params.tab in TABS ? params.tab : "records";
  const topic = await get("topic", { name: params.name }, scope.signal);
  const body = h("div", { class: "stack grow" });
  fill(
    main,
    h("nav", { class: "crumbs", "aria-label": "You are here" }, h("a", { href: "#/topics" }, "Topics")),
    h(
      "div",
      { class: "page-head" },
      h("h1", { class: "mono" }, topic.name),
      badge(...STATES[topic.state]),
      topic.internal ? badge("internal") : null,
      h("span", { class: "quiet" }, summary(topic)),
      h("div", { class: "spacer" }),
      session.writes ? actions(topic, scope) : null,
    ),
    h(
      "nav",
      { class: "tabs", "aria-label": "Parts of the topic" },
      Object.entries(TABS).map(([key, title]) =>
        h("a", { href: href("topic", { name: topic.name, tab: key }), "aria-current": key === tab ? "page" : null }, title),
      ),
    ),
    body,
  );
  try {
    await { records: showRecords, partitions, configs, groups, log: showLog, analysis: showAnalysis }[tab](body, topic, scope, params);
  } catch (error) {
    if (error.name !== "AbortError") fill(body, problem(error));
  }
}

function summary(topic) {
  const known = topic.partitions.every((each) => each.end !== null);
  const records = known ? topic.partitions.reduce((sum, each) => sum + each.end - each.start, 0) : null;
  const size = topic.no_sizes ? null : topic.partitions.reduce((sum, each) => sum + (each.size ?? 0), 0);
  return [
    plural(topic.partitions.length, "partition"),
    plural(topic.replicas, "replica"),
    `${number(records)} records`,
    bytes(size),
  ].join(" · ");
}

function actions(topic, scope) {
  const button = (text, action, kind) => h("button", { type: "button", class: kind, onclick: action }, text);
  const reload = () => topic.reload?.();
  return h(
    "div",
    { class: "buttons" },
    button("Produce", () => produceRecord(topic, reload), "primary"),
    menu(
      "Actions",
      button("Import", () => importRecords(topic.name, reload)),
      button("Add partitions", () => addPartitions(topic)),
      button("Move partitions", () => movePartitions(topic, scope)),
      button("Copy", () => copyTopic(topic)),
      button("Empty", () => empty(topic), "danger"),
      button("Recreate", () => recreate(topic), "danger"),
      button("Delete", () => remove(topic), "danger"),
    ),
  );
}

function remove(topic) {
  confirmByName("Delete the topic", topic.name, "Its records are gone for good, for everybody.", "Delete", async (typed) => {
    toast((await post("topic/delete", { name: topic.name, confirm: typed })).done);
    go("topics");
  });
}

const drawAnew = () => window.dispatchEvent(new HashChangeEvent("hashchange"));

function empty(topic) {
  const warning = "All records that are in it now are gone for good. The topic, its configs and its offsets stay: the next record comes at the end.";
  confirmByName("Empty the topic", topic.name, warning, "Empty", async (typed) => {
    toast((await post("topic/empty", { name: topic.name, confirm: typed })).done);
    drawAnew();
  });
}

function recreate(topic) {
  const warning =
    "It is deleted with all records, and created with the same partitions, replicas and configs. Offsets begin at 0: groups that have committed others may need a reset.";
  confirmByName("Recreate the topic", topic.name, warning, "Recreate", async (typed) => {
    toast((await post("topic/recreate", { name: topic.name, confirm: typed })).done);
    drawAnew();
  });
}

/** Another topic like this one, perhaps with its records. */
function copyTopic(topic) {
  const name = topicName();
  name.value = `${topic.name}-copy`;
  const records = tick("with the records that are there now", false);
  openForm(`Copy ${topic.name}`, {
    action: "Copy",
    fields: [
      h("p", null, `The new topic gets ${plural(topic.partitions.length, "partition")}, ${plural(topic.replicas, "replica")} and the configs that are set here.`),
      field("Name", name),
      records.element,
    ],
    send: async () => {
      const entries = await get("topic/configs", { name: topic.name });
      const own = entries.filter((each) => each.source === "DYNAMIC_TOPIC_CONFIG").map((each) => [each.name, each.value]);
      await post("topic/create", { name: name.value, partitions: topic.partitions.length, replicas: topic.replicas, configs: Object.fromEntries(own) });
      if (records.input.checked) takeCopy(await post("copies/replay", { topic: topic.name, to: name.value, from: "earliest", keep_partitions: true }));
      toast(`topic ${name.value} is created`);
      go("topic", { name: name.value });
    },
  });
}

function addPartitions(topic) {
  const total = h("input", { type: "number", min: topic.partitions.length + 1, required: true });
  total.value = topic.partitions.length + 1;
  openForm("Add partitions", {
    action: "Add",
    fields: [
      h("p", null, "Keys go to other partitions from then on, and partitions cannot be taken away again."),
      field("Partitions in all", total),
    ],
    send: async () => {
      toast((await post("topic/partitions", { name: topic.name, total: total.value })).done);
      drawAnew();
    },
  });
}

function partitions(body, topic, scope) {
  const before = new Map();
  const draw = (told, seconds) =>
    refill(
      body,
      movesUnderWay(told),
      told.traffic.length > 1
        ? h(
            "section",
            { class: "card course" },
            h("h2", null, "Traffic"),
            h("div", null, trend("Traffic", [
              { title: "Records / s", points: told.traffic.map(([at, , records]) => [at, records]), shown: perSecond },
              { title: "Bytes / s", points: told.traffic.map(([at, size]) => [at, size]), shown: bytesRate },
            ])),
          )
        : null,
      told.no_sizes ? h("p", { class: "quiet" }, `Sizes cannot be seen: ${told.no_sizes}`) : null,
      h(
        "div",
        { class: "card" },
        table(
          "Partitions",
          [
            { title: "Partition", number: true, cell: (p) => h("span", { class: "strong" }, p.partition) },
            { title: "Leader", number: true, cell: (p) => p.leader ?? badge("none", "bad") },
            { title: "Replicas", cell: (p) => replicas(p) },
            { title: "Start offset", number: true, class: "minor", cell: (p) => number(p.start) },
            { title: "End offset", number: true, cell: (p) => number(p.end) },
            { title: "Records / s", number: true, cell: (p) => rate(before.get(p.partition), p.end, seconds) },
            { title: "Size", number: true, cell: (p) => bytes(p.size) },
            {
              title: "Look",
              class: "minor",
              cell: (p) =>
                link("Records", href("topic", { name: topic.name, partitions: p.partition }), {
                  "aria-label": `Records of partition ${p.partition}`,
                }),
            },
          ],
          told.partitions,
        ),
      ),
    );
  const remember = (told) => told.partitions.forEach((each) => before.set(each.partition, each.end));
  draw(topic, 0);
  remember(topic);
  let last = performance.now();
  scope.every(3000, async () => {
    try {
      const told = await get("topic", { name: topic.name, traffic: true }, scope.signal);
      const now = performance.now();
      draw(told, (now - last) / 1000);
      remember(told);
      last = now;
    } catch {
      // The next look may succeed; what was seen last stays.
    }
  });
}

function rate(before, end, seconds) {
  if (!seconds || before === undefined || before === null || end === null) return "…";
  return number(Math.round((end - before) / seconds));
}

function replicas(partition) {
  return partition.replicas.map((id, index) => {
    const inSync = partition.isr.includes(id);
    const damage = partition.damage.filter((each) => each.broker === id);
    return [
      index ? ", " : "",
      inSync ? String(id) : h("span", { class: "warn-text", title: "not in sync" }, `${id} (not in sync)`),
      damage.map((each) =>
        h("span", { class: "warn-text", title: each.reason }, ` (damaged: offsets ${each.start} to ${each.end - 1} are missing)`),
      ),
    ];
  });
}

async function configs(body, topic, scope) {
  const told = await get("topic/configs", { name: topic.name }, scope.signal);
  const change = (entry) =>
    changeConfig(entry, {
      own: entry.source.startsWith("DYNAMIC_TOPIC"),
      send: async (value, operation) => {
        toast((await post("topic/config", { name: topic.name, config: entry.name, value, operation })).done);
        await configs(body, topic, scope);
      },
    });
  fill(body, h("div", { class: "card" }, configTable(told, session.writes ? change : null)));
}

async function groups(body, topic, scope) {
  fill(body, h("p", { class: "quiet" }, "Asking every group for its offsets …"));
  const told = await get("topic/groups", { name: topic.name }, scope.signal);
  fill(
    body,
    await held(topic, scope),
    told.groups > told.asked
      ? h("p", { class: "quiet" }, `${number(told.asked)} of ${number(told.groups)} groups were asked.`)
      : null,
    h(
      "div",
      { class: "card" },
      table(
        "Groups with offsets of this topic",
        [
          { title: "Group", class: "name", cell: (g) => link(g.group, href("group", { group: g.group })) },
          { title: "State", cell: (g) => badge(g.state || "unknown") },
          { title: "Partitions", number: true, cell: (g) => number(g.partitions) },
          { title: "Lag", number: true, cell: (g) => number(g.lag) },
        ],
        told.rows,
        { empty: "No group has committed offsets of this topic." },
      ),
    ),
  );
}

/** Open transactions that keep readers of committed records from going on. */
async function held(topic, scope) {
  let told;
  try {
    told = await get("topic/held", { topic: topic.name }, scope.signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null; // producers may not be seen, or not be served: then nothing is claimed of them
  }
  if (!told.rows.length) return null;
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Held up by open transactions"),
    h("p", { class: "quiet" }, "Readers of committed records do not get beyond “Readable to” until these have ended."),
    table(
      "Open transactions",
      [
        { title: "Partition", number: true, cell: (r) => r.partition },
        { title: "Readable to", number: true, cell: (r) => number(r.stable) },
        { title: "End offset", number: true, cell: (r) => number(r.end) },
        {
          title: "Transaction",
          class: "mono",
          cell: (r) =>
            r.transaction === null
              ? h("span", { class: "warn-text" }, "no coordinator tells of it")
              : link(r.transaction, href("transactions", { filter: r.transaction })),
        },
        { title: "Open for", number: true, cell: (r) => (r.since === null ? "–" : duration(told.now - r.since)) },
        { title: "Producer id", number: true, cell: (r) => String(r.producer) },
        { title: "Begins at", number: true, cell: (r) => number(r.start) },
        { title: "Last write", cell: (r) => moment(r.last) },
        {
          title: "Change",
          cell: (r) =>
            session.writes
              ? h("button", { type: "button", class: "danger", onclick: () => abortHeld(topic.name, r) }, "Abort")
              : null,
        },
      ],
      told.rows,
    ),
  );
}

function abortHeld(name, row) {
  openForm("Abort a transaction in one partition", {
    danger: true,
    action: "Abort",
    fields: [
      h(
        "p",
        null,
        "This is for a transaction that its coordinator has forgotten. One that is still open belongs on the page",
        " Transactions: there it is aborted in all its partitions.",
      ),
      h("p", null, `Partition ${row.partition}, from offset ${number(row.start)}, producer ${row.producer}.`),
    ],
    send: async () => {
      const body = { topic: name, partition: row.partition, start: row.start };
      toast((await post("topic/abort-hanging", body)).done);
      drawAnew();
    },
  });
}
