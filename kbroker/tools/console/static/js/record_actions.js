// What can be done with one record: a link to it, a copy, a file, the same once more, a group that does not get it.

import { get, getWanted, post, query, session } from "./api.js";
import { openForm } from "./dialog.js";
import { copyText, field, fill, h, problem, select, toast } from "./dom.js";
import { number, plural, utc } from "./format.js";
import { produceRecord } from "./produce.js";
import { hrefOfFinding } from "./router.js";

export function recordActions(topic, record, scope) {
  const { partition, offset } = record;
  const place = { topic: topic.name, partition, offset };
  const button = (text, action) => h("button", { type: "button", onclick: action }, text);
  const address = new URL(hrefOfFinding({ kind: "record", ...place }), location.href);
  return h(
    "div",
    { class: "buttons" },
    button("Copy link", () => copyText(address.href)),
    button("Copy as JSON", () => copyText(JSON.stringify(asJson(place, record), null, 2))),
    record.value.kind === "null" ? null : h("a", { class: "button", href: query("record/value", place), download: "" }, "Download value"),
    session.writes && !record.masked ? button("Send again", () => produceRecord(topic, topic.reload, record)) : null,
    session.writes ? button("Skip for a group", () => skip(place, scope)) : null,
  );
}

/** A record for another program: what is JSON is part of the document. */
function asJson(place, record) {
  const part = (shown) => (shown.kind === "null" ? null : shown.kind === "binary" ? { hex: shown.hex } : shown.kind === "json" && !shown.cut ? JSON.parse(shown.text) : shown.text);
  return {
    ...place,
    timestamp: utc(record.timestamp),
    key: part(record.key),
    value: part(record.value),
    headers: record.headers.map(([name, value]) => [name, part(value)]),
  };
}

/** Put one group behind a record, after it was seen what that means. */
async function skip({ topic, partition, offset }, scope) {
  let groups;
  try {
    const told = await get("topic/groups", { name: topic, partition }, scope.signal);
    groups = told.rows.filter((each) => each.offset !== null);
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, "bad");
    return;
  }
  if (!groups.length) {
    toast(`No group has committed an offset in partition ${partition}: none comes to this record.`, "bad");
    return;
  }
  // A group that stands at the record is the one that is meant; those before it come to it later.
  const distance = (each) => (each.offset > offset ? Infinity : offset - each.offset);
  groups.sort((one, other) => distance(one) - distance(other));
  const group = select(groups.map((each) => [each.group, `${each.group}: its next offset is ${number(each.offset)}`]), groups[0].group);
  const preview = h("div", { class: "stack", role: "status" });
  const asked = () => ({ group: group.value, topic, partitions: String(partition), to: "offset", offset: offset + 1 });
  let plan = null;
  const look = async () => {
    plan = null;
    try {
      const { rows, refusal } = await getWanted("group/reset", asked, scope.signal);
      const [row] = rows;
      plan = { ...row, refusal };
      fill(
        preview,
        row.change > 0
          ? h("p", null, `${group.value} goes on at offset ${number(row.new)} instead of ${number(row.current)}: it does not get this record.`)
          : h("p", { class: "note" }, `${group.value} is beyond this record already: there is nothing to skip.`),
        row.change > 1 ? h("p", { class: "note" }, `${plural(row.change - 1, "offset")} before it would be skipped, too.`) : null,
        refusal ? h("p", { class: "form-trouble" }, refusal) : null,
      );
    } catch (error) {
      if (error.name !== "AbortError") fill(preview, problem(error));
    }
  };
  group.addEventListener("input", look);
  await look();
  openForm(`Skip offset ${number(offset)} of ${topic}-${partition}`, {
    action: "Skip",
    fields: [field("Group", group), preview],
    send: async () => {
      if (!(plan?.change > 0)) throw new Error("This group does not come to the record.");
      toast((await post("group/reset", asked())).done);
    },
  });
}
