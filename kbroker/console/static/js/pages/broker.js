// One broker: its log directories, and its configs with where each value comes from.

import { get } from "../api.js";
import { configTable } from "../configs.js";
import { badge, fill, h, table } from "../dom.js";
import { bytes, number } from "../format.js";

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
            ],
            told.directories,
          ),
    ),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Configs"),
      told.configs_problem
        ? h("p", { class: "quiet" }, `They cannot be seen: ${told.configs_problem}`)
        : configTable(told.configs),
    ),
  );
}
