// Configs with where each value comes from; those that were set first, the rest on demand.

import { badge, fill, h, tick } from "./dom.js";

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: ["set on the topic", "good"],
  DYNAMIC_BROKER_CONFIG: ["set on the broker, while it ran", "info"],
  DYNAMIC_DEFAULT_BROKER_CONFIG: ["set for all brokers, while they ran", "info"],
  STATIC_BROKER_CONFIG: ["in the broker's file", "info"],
  DEFAULT_CONFIG: ["default", "quiet"],
  DYNAMIC_GROUP_CONFIG: ["set on the group", "good"],
};

const source = (name) => SOURCES[name] ?? [name.toLowerCase().replaceAll("_", " "), "quiet"];

/** The table of configs; `change(entry)` makes a button for those that can be changed. */
export function configTable(configs, change) {
  const set = configs.filter((entry) => !entry.default).length;
  const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter configs" });
  filter.dataset.filter = "";
  const all = tick(`also the ${configs.length - set} at their defaults`, !set);
  const rows = h("tbody");
  const none = h("p", { class: "empty", hidden: true }, "No config fits.");
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = configs.filter(
      (entry) => (all.input.checked || !entry.default || words.length) && words.every((word) => entry.name.includes(word)),
    );
    none.hidden = shown.length > 0;
    fill(rows, shown.map((entry) => row(entry, change)));
  };
  filter.addEventListener("input", draw);
  all.input.addEventListener("change", draw);
  draw();
  return [
    h("div", { class: "bar" }, filter, all.element),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Configs" },
      h(
        "table",
        { "aria-label": "Configs" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["Config", "Value", "Where from", change ? "Change" : null]
              .filter(Boolean)
              .map((title) => h("th", { scope: "col" }, title)),
          ),
        ),
        rows,
      ),
      none,
    ),
  ];
}

function row(entry, change) {
  const [text, kind] = source(entry.source);
  const others = entry.synonyms.filter((synonym) => synonym.source !== entry.source);
  const told = others.length
    ? h(
        "details",
        null,
        h("summary", null, badge(text, kind)),
        h(
          "ul",
          { class: "synonyms" },
          others.map((synonym) =>
            h("li", null, h("code", null, `${synonym.name}=${synonym.value ?? ""}`), ` ${source(synonym.source)[0]}`),
          ),
        ),
      )
    : badge(text, kind);
  const value = entry.sensitive ? h("span", { class: "quiet" }, "hidden") : (entry.value ?? h("span", null, "–"));
  return h(
    "tr",
    null,
    h("td", { class: "mono" }, entry.name),
    h("td", { class: "mono wrap" }, value === "" ? h("span", { class: "quiet" }, "empty") : value),
    h("td", null, told),
    change ? h("td", null, change(entry)) : null,
  );
}
