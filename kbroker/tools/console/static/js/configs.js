// Configs with where each value comes from; those that were set first, the rest on demand.

import { openForm } from "./dialog.js";
import { badge, field, fill, h, select, tick, toast } from "./dom.js";
import { inUnits } from "./format.js";

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: ["set on the topic", "good"],
  DYNAMIC_BROKER_CONFIG: ["set on the broker, while it ran", "info"],
  DYNAMIC_DEFAULT_BROKER_CONFIG: ["set for all brokers, while they ran", "info"],
  STATIC_BROKER_CONFIG: ["in the broker's file", "info"],
  DEFAULT_CONFIG: ["default", "quiet"],
  DYNAMIC_GROUP_CONFIG: ["set on the group", "good"],
};

const source = (name) => SOURCES[name] ?? [name.toLowerCase().replaceAll("_", " "), "quiet"];

const UNITS = [
  [".ms", "Milliseconds, or with a unit: 90s, 12h, 7d"],
  [".bytes", "Bytes, or with a unit: 512KiB, 1GiB"],
];

/** A field for a value of a config: a choice where there are few, and otherwise what may be written. */
export function valueInput(entry) {
  const words = entry.type === "boolean" ? ["true", "false"] : entry.type === "string" && /^\[[^.[\]]+\]$/.test(entry.valid) ? entry.valid.slice(1, -1).split(", ") : null;
  if (words) return select(words.map((word) => [word, word]), entry.value ?? "");
  const input = h("input", { type: entry.sensitive ? "password" : "text", spellcheck: "false", autocomplete: "off" });
  input.value = entry.value ?? "";
  return input;
}

/** Change a config: what it is for, what it takes, what it would be otherwise. `send(value, operation)` does it. */
export function changeConfig(entry, { send, own, fields = [] }) {
  const value = valueInput(entry);
  const say = (text) => [text ?? "–", text && inUnits(entry.name, text) ? ` (${inUnits(entry.name, text)})` : ""].join("") || "empty";
  const facts = [
    ["Now", entry.sensitive ? "hidden" : say(entry.value)],
    ["Default", entry.sensitive ? "hidden" : say(entry.default_value)],
    ["Type", entry.type],
    ["Takes", entry.valid],
  ];
  const dialog = openForm(`Change ${entry.name}`, {
    action: "Set",
    fields: [
      entry.documentation ? h("p", { class: "documentation", tabindex: "0" }, entry.documentation.replace(/<[^>]*>/g, "")) : null,
      h("dl", { class: "facts" }, facts.filter(([, text]) => text).map(([name, text]) => h("div", null, h("dt", null, name), h("dd", { class: "mono" }, text)))),
      field("Value", value, UNITS.find(([end]) => entry.name.endsWith(end))?.[1]),
      ...fields,
    ],
    send: () => send(value.value, "set"),
    extra: own
      ? h("button", { type: "button", onclick: () => send("", "delete").then(() => dialog.close(), (error) => toast(error.message, "bad")) }, "Back to its default")
      : null,
  });
}

/** The table of configs; `change(entry)` is called for one that is to be changed. */
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
        { "aria-label": "Configs", class: "stacked" },
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
  const units = entry.sensitive ? "" : inUnits(entry.name, entry.value);
  return h(
    "tr",
    null,
    h("td", { class: "mono", title: entry.documentation }, entry.name),
    h("td", { class: "mono wrap" }, value === "" ? h("span", { class: "quiet" }, "empty") : value, units ? h("span", { class: "quiet" }, ` (${units})`) : null),
    h("td", { class: "why" }, told),
    change
      ? h("td", null, entry.read_only ? null : h("button", { type: "button", class: "plain", "aria-label": `Change ${entry.name}`, onclick: () => change(entry) }, "Change"))
      : null,
  );
}
