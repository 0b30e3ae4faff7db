// A topic's analysis: how large its records are, which lack keys or values, which keys repeat; over a range.

import { query } from "./api.js";
import { field, fill, h, problem, refill, select, table } from "./dom.js";
import { bytes, duration, moment, number, plural, withZone } from "./format.js";
import { note } from "./router.js";

const RANGES = [["", "all records"], ["-1h", "the last hour"], ["-24h", "the last day"], ["-7d", "the last 7 days"], ["times", "from … to …"], ["offset", "from an offset on"]];

export function showAnalysis(body, topic, scope, params) {
  const range = select(RANGES, params.range ?? "");
  const [since, until] = [0, 1].map(() => h("input", { type: "datetime-local", step: "1" }));
  const at = h("input", { type: "number", min: 0, value: 0 });
  const partitions = h("input", { type: "text", placeholder: "all", spellcheck: "false", size: 10 });
  partitions.value = params.partitions ?? "";
  const [sinceField, untilField, atField] = [field("Since", since), field("Until", until), field("Offset", at)];
  const button = h("button", { type: "submit", class: "primary" }, "Analyse");
  const outcome = h("div", { class: "stack" }, h("p", { class: "empty" }, "Every record of the range is read once. It can be stopped, and tells what it has seen so far."));
  let source = null;
  const stop = () => {
    source?.close();
    source = null;
    fill(button, "Analyse");
  };
  const adjust = () => {
    sinceField.hidden = untilField.hidden = range.value !== "times";
    atField.hidden = range.value !== "offset";
  };
  range.addEventListener("change", adjust);
  adjust();
  scope.onEnd(stop);
  const times = () => (range.value === "times" ? { since: since.value && withZone(since.value), until: until.value && withZone(until.value) } : range.value === "offset" ? { from: "offset", at: at.value || "0" } : { since: range.value });
  const start = () => {
    note("topic", { name: topic.name, tab: "analysis", range: range.value, partitions: partitions.value });
    fill(button, "Stop");
    fill(outcome, h("p", { class: "quiet", role: "status" }, "Beginning …"));
    source = new EventSource(query("topic/analysis", { topic: topic.name, from: "earliest", partitions: partitions.value, ...times() }));
    const told = (event) => JSON.parse(event.data);
    source.addEventListener("progress", (event) => draw(outcome, told(event), false));
    source.addEventListener("done", (event) => {
      stop();
      draw(outcome, told(event), true);
    });
    source.addEventListener("trouble", (event) => {
      stop();
      fill(outcome, problem(new Error(told(event).error), start));
    });
    source.addEventListener("error", async () => {
      if (!source) return;
      const { url } = source;
      stop();
      // What was refused is told in JSON, which an event source keeps to itself.
      const answer = await fetch(url, { signal: AbortSignal.timeout(3000) }).then((each) => (each.ok ? null : each.json()), () => null);
      fill(outcome, problem(new Error(answer?.error ?? "the answer has broken off"), start));
    });
  };
  fill(
    body,
    h(
      "form",
      { class: "card records-form open", onsubmit: (event) => (event.preventDefault(), source ? stop() : start()) },
      h("div", { class: "bar fields" }, field("Records", range), sinceField, untilField, atField, field("Partitions", partitions), h("div", { class: "buttons" }, button)),
    ),
    outcome,
  );
}

const share = (part, all) => (all ? `${((100 * part) / all).toLocaleString("en", { maximumFractionDigits: 1 })} %` : "–");

function draw(box, told, isDone) {
  const records = told.partitions.reduce((sum, each) => sum + each.records, 0);
  const sum = (name) => told.partitions.reduce((total, each) => total + each[name], 0);
  const [nullKeys, nullValues, back] = ["null_keys", "null_values", "back_in_time"].map(sum);
  const withKey = told.keys.count;
  const progress = h("progress", { max: Math.max(told.of_offsets, 1), value: isDone && !told.of_offsets ? 1 : told.offsets, "aria-label": "Offsets read" });
  refill(
    box,
    h("div", { class: "bar", role: "status" }, progress, `${isDone ? "Done: " : ""}${plural(records, "record")} in ${number(told.offsets)} of ${plural(told.of_offsets, "offset")}, ${duration(told.milliseconds)}`),
    told.notes.map((each) => h("p", { class: "note" }, each)),
    records === 0
      ? h("p", { class: "empty" }, isDone ? "There are no records in this range." : "None so far.")
      : [
          h(
            "div",
            { class: "card" },
            facts([
              ["Records", number(records)],
              ["Keys and values", bytes(told.keys.sum + told.values.sum)],
              ["From", moment(told.times[0], { millis: false })],
              ["To", moment(told.times[1], { millis: false })],
              ["Older than the one before", `${number(back)} (${share(back, records)})`],
              ["With headers", `${number(told.headers.count)} (${share(told.headers.count, records)}), ${bytes(told.headers.sum)}`],
            ]),
          ),
          h(
            "div",
            { class: "pair" },
            part("Keys", told.keys, [
              ["Null", `${number(nullKeys)} (${share(nullKeys, records)})`],
              ["Empty", number(told.empty_keys)],
              ["Different", `${number(told.different)}${told.unknown ? " and more" : ""}`],
              ["Repeat an earlier one", `${number(told.repeated)} (${share(told.repeated, withKey)})${told.unknown ? `; of ${number(told.unknown)} it is not known` : ""}`],
            ]),
            part("Values", told.values, [["Null (tombstones)", `${number(nullValues)} (${share(nullValues, records)})`]]),
          ),
          h(
            "div",
            { class: "card" },
            table(
              "Partitions",
              [
                { title: "Partition", number: true, cell: (p) => h("span", { class: "strong" }, p.partition) },
                { title: "Records", number: true, cell: (p) => number(p.records) },
                { title: "Share", number: true, cell: (p) => share(p.records, records) },
                { title: "Bytes", number: true, cell: (p) => bytes(p.bytes) },
                { title: "Null keys", number: true, class: "minor", cell: (p) => number(p.null_keys) },
                { title: "Null values", number: true, class: "minor", cell: (p) => number(p.null_values) },
              ],
              told.partitions,
            ),
          ),
        ],
  );
}

const facts = (rows) => h("dl", { class: "facts" }, rows.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text))));

function part(title, sizes, rows) {
  return h(
    "section",
    { class: "card" },
    h("h2", null, title),
    facts([...rows, ["Size", sizes.count ? `${bytes(sizes.smallest)} to ${bytes(sizes.largest)}, ${bytes(Math.round(sizes.sum / sizes.count))} on average` : "–"]]),
    table(
      `Sizes of ${title.toLowerCase()}`,
      [
        { title: "Smaller than", number: true, cell: ([below]) => bytes(below) },
        { title: "Records", number: true, cell: ([, count]) => number(count) },
        { title: "Share", cell: ([, count]) => h("span", null, h("progress", { max: sizes.count, value: count, "aria-label": `Share: ${share(count, sizes.count)}` }), ` ${share(count, sizes.count)}`) },
      ],
      sizes.buckets,
      { empty: "There are none." },
    ),
  );
}
