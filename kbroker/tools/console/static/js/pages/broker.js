// One broker: what it leads, its log directories, and its configs with where each value comes from.

import { get, post, session } from "../api.js";
import { changeConfig, configTable } from "../configs.js";
import { badge, field, fill, h, link, select, table, toast } from "../dom.js";
import { bytes, moment, number, plural } from "../format.js";
import { href } from "../router.js";

export async function show(main, params, scope) {
  const told = await get("broker", { id: params.id }, scope.signal);
  fill(
    main,
    h("nav", { class: "crumbs", "aria-label": "You are here" }, h("a", { href: "#/overview" }, "Overview")),
    h("div", { class: "page-head" }, h("h1", null, `Broker ${told.id}`)),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Log directories"),
      told.directories_problem
        ? h("p", { class: "quiet" }, `They cannot be seen: ${told.directories_problem}`)
        : table(
            "Log directories",
            [
              { title: "Directory", class: "mono", cell: (d) => [d.path, d.error ? [" ", badge("failed", "bad")] : null] },
              { title: "Replicas", number: true, cell: (d) => number(d.partitions) },
              { title: "Size", number: true, cell: (d) => bytes(d.size) },
              { title: "Free", number: true, cell: (d) => bytes(d.free) },
              { title: "Volume", number: true, cell: (d) => bytes(d.volume) },
              { title: "Verified", cell: (d) => verified(d.scrub) },
            ],
            told.directories,
          ),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Partitions"),
      h("p", { class: "quiet" }, `It leads ${plural(told.leads, "partition")}, and has ${plural(told.replicas, "replica")}.`),
      table(
        "Partitions",
        [
          { title: "Topic", class: "name", cell: (t) => link(t.topic, href("topic", { name: t.topic, tab: "partitions" })) },
          { title: "Leads", number: true, cell: (t) => number(t.leads.length) },
          { title: "Leads partitions", class: "mono wrap", cell: (t) => ranges(t.leads) },
          { title: "Replicas", number: true, cell: (t) => number(t.replicas) },
          { title: "Under-replicated here", class: "mono wrap", cell: (t) => (t.out_of_sync.length ? h("span", { class: "warn-text" }, ranges(t.out_of_sync)) : "–") },
        ],
        told.topics,
        { empty: "It has no replicas." },
      ),
      told.topics_count > told.topics.length
        ? h("p", { class: "quiet" }, `and ${plural(told.topics_count - told.topics.length, "more topic")}`)
        : null,
    ),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Configs"),
      told.configs_problem
        ? h("p", { class: "quiet" }, `They cannot be seen: ${told.configs_problem}`)
        : configTable(told.configs, session.writes ? (entry) => change(entry, told.id, () => show(main, params, scope)) : null),
    ),
  );
}

/** Change a config while the broker runs, of this one or of all. */
function change(entry, id, again) {
  const isCommon = entry.source === "DYNAMIC_DEFAULT_BROKER_CONFIG";
  const where = select([[String(id), `broker ${id} alone`], ["", "all brokers"]], isCommon ? "" : String(id));
  changeConfig(entry, {
    own: isCommon || entry.source === "DYNAMIC_BROKER_CONFIG",
    fields: [field("For", where, "Of one that holds for all brokers, some may have a value of their own.")],
    send: async (value, operation) => {
      toast((await post("broker/config", { broker: where.value, config: entry.name, value, operation })).done);
      await again();
    },
  });
}

/** Numbers in order as people write them: 0–3, 7. */
function ranges(numbers) {
  const found = [];
  for (const each of numbers) {
    const last = found.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else found.push([each, each]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ") || "–";
}

/** How far the scrubber is in a directory. */
function verified(scrub) {
  if (!scrub) return "–";
  const done = scrub.share < 1 ? `${Math.floor(scrub.share * 100)} %` : moment(scrub.ended_ms || null, { millis: false });
  return [done, scrub.damaged ? [" ", badge(`${scrub.damaged} damaged`, "bad")] : null];
}
