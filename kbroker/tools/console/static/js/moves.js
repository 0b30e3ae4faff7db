// Partitions that move to other brokers: planned, seen before it is done, done, followed, cancelled.

import { get, getWanted, post, session } from "./api.js";
import { openForm } from "./dialog.js";
import { field, fill, h, problem, table, tick, toast } from "./dom.js";
import { bytes, number, plural } from "./format.js";
import { go } from "./router.js";

/** The moves of a topic that are under way, or nothing. */
export function movesUnderWay(topic) {
  const moving = topic.partitions.filter((each) => each.moving);
  if (!moving.length) return null;
  return h(
    "section",
    { class: "card" },
    h("h2", null, `${plural(moving.length, "partition")} moving`),
    table(
      "Moves under way",
      [
        { title: "Partition", number: true, cell: (p) => h("span", { class: "strong" }, p.partition) },
        { title: "Copied", cell: (p) => p.moving.adding.map((each) => copied(p, each)) },
        { title: "Leaves", cell: (p) => (p.moving.removing.length ? `broker ${p.moving.removing.join(", ")}` : "none") },
      ],
      moving,
    ),
    session.writes
      ? h("div", { class: "bar" }, h("button", { type: "button", class: "danger", onclick: () => cancel(topic) }, "Cancel the moves"))
      : null,
  );
}

function copied(partition, added) {
  if (partition.isr.includes(added.broker)) return h("div", null, `broker ${added.broker}: in sync`);
  if (added.size === null || added.size === undefined || !partition.size) return h("div", null, `broker ${added.broker}: copies`);
  const label = `Broker ${added.broker}: copied part of partition ${partition.partition}`;
  return h(
    "div",
    null,
    `broker ${added.broker}: ${bytes(added.size)} of ${bytes(partition.size)} `,
    h("progress", { max: partition.size, value: Math.min(added.size, partition.size), "aria-label": label }),
  );
}

function cancel(topic) {
  openForm("Cancel the moves", {
    danger: true,
    action: "Cancel the moves",
    fields: [h("p", null, "The partitions keep the replicas that they had. What has been copied is deleted.")],
    send: async () => {
      toast((await post("topic/move/cancel", { name: topic.name })).done);
      window.dispatchEvent(new HashChangeEvent("hashchange"));
    },
  });
}

/** A form for moves, unless the page is left before the brokers are known. */
export async function movePartitions(topic, scope) {
  let told;
  try {
    told = await get("overview", {}, scope.signal);
  } catch (error) {
    if (error.name !== "AbortError") toast(`The brokers are not known: ${error.message}`, "bad");
    return;
  }
  const held = new Set(topic.partitions.flatMap((each) => each.replicas));
  const brokers = told.brokers.map((broker) => ({
    id: broker.id,
    ...tick(`broker ${broker.id}${broker.rack ? ` (rack ${broker.rack})` : ""}${broker.fenced ? ", fenced" : ""}`, held.has(broker.id) && !broker.fenced, {
      disabled: broker.fenced,
    }),
  }));
  const partitions = h("input", { type: "text", placeholder: "all", spellcheck: "false" });
  const replicas = h("input", { type: "number", min: 1, max: brokers.length, required: true });
  replicas.value = topic.replicas;
  const preview = h("div", { class: "stack", role: "status" });
  let plan = null;
  const forget = () => {
    plan = null;
    fill(preview);
  };
  for (const input of [partitions, replicas, ...brokers.map((each) => each.input)]) input.addEventListener("input", forget);
  const asked = () => {
    const chosen = brokers.filter((each) => each.input.checked).map((each) => each.id);
    return { name: topic.name, partitions: partitions.value, brokers: chosen.join(","), replicas: replicas.value };
  };
  const look = async () => {
    try {
      plan = await getWanted("topic/move", asked);
      fill(preview, drawPlan(plan));
    } catch (error) {
      if (error.name === "AbortError") return;
      plan = null;
      fill(preview, problem(error));
    }
  };
  openForm("Move partitions", {
    wide: true,
    action: "Move",
    fields: [
      h("p", null, "The new replicas copy what there is, at full speed, and leave the old ones in place until they are in sync."),
      h("fieldset", { class: "ticks" }, h("legend", null, "To these brokers"), brokers.map((each) => each.element)),
      h("div", { class: "bar from-above" }, field("Replicas of each", replicas), field("Partitions", partitions, "such as 0,2,5-7")),
      h("div", { class: "bar" }, h("button", { type: "button", onclick: look }, "Preview")),
      preview,
    ],
    send: async () => {
      if (!plan) throw new Error("Look at the preview first: what it shows is what is done.");
      if (!plan.rows.length) throw new Error("There is nothing to move.");
      const of = (part) => Object.fromEntries(plan.rows.map((row) => [row.partition, row[part].join(",")]));
      toast((await post("topic/move", { name: topic.name, before: of("before"), after: of("after") })).done);
      go("topic", { name: topic.name, tab: "partitions" });
      window.dispatchEvent(new HashChangeEvent("hashchange"));
    },
  });
}

function drawPlan(plan) {
  const size = plan.bytes === null ? "" : `, ${bytes(plan.bytes)} to be copied`;
  return [
    h("p", null, `${plural(plan.rows.length, "partition")} would change${size}; ${number(plan.unchanged)} would not.`),
    plan.rows.length
      ? table(
          "What would move",
          [
            { title: "Partition", number: true, cell: (r) => r.partition },
            { title: "Replicas now", cell: (r) => r.before.join(", ") },
            { title: "Then", cell: (r) => h("span", { class: "strong" }, r.after.join(", ")) },
            { title: "Copied to", cell: (r) => r.new.join(", ") || "nobody" },
            { title: "Bytes", number: true, cell: (r) => bytes(r.bytes) },
          ],
          plan.rows,
        )
      : null,
  ];
}
