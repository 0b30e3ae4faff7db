// A record that is written by hand: a new one, or one of the topic once more with changes.

import { get, post, session } from "./api.js";
import { openForm } from "./dialog.js";
import { field, fill, h, select, tick, toast } from "./dom.js";
import { pairs } from "./pages/topics.js";

/** A part of a record is changed as text: bytes, what is cut and what a schema has decoded stay as they are. */
const isText = (part) => !part || part.kind === "null" || (["text", "json"].includes(part.kind) && !part.cut && !part.schema);
const AS_IT_IS = "no text: it is sent as it is";

/** The choice of a subject and version by which a part is encoded; a skeleton comes into an empty `input`. */
function schemaChoice(part, topic, input, again) {
  const subject = select([["", "none: as text"]], "", { "aria-label": `Schema of the ${part}` });
  const version = select([["latest", "latest"]], "latest", { "aria-label": `Version of the ${part}'s schema` });
  const message = select([], "", { "aria-label": `Message of the ${part}'s schema` });
  const trouble = h("p", { class: "form-trouble", role: "status" });
  let skeleton = "";
  const wanted = () => ({ subject: subject.value, version: version.value, message: message.value });
  const draw = async ({ changed } = {}) => {
    version.hidden = !subject.value;
    message.hidden = !subject.value || message.options.length < 2;
    fill(trouble);
    const isOurs = input.value === skeleton;
    if (!subject.value) {
      if (isOurs) input.value = skeleton = "";
      return;
    }
    try {
      if (changed === subject) {
        const { versions } = await get("subject", { subject: subject.value });
        fill(version, ["latest", ...versions.reverse()].map((each) => h("option", { value: each }, each)));
      }
      if (changed !== message) fill(message);
      const told = await get("schema/skeleton", wanted());
      if (!message.options.length) fill(message, told.messages.map((each) => h("option", { value: each }, each)));
      message.hidden = message.options.length < 2;
      if (!input.value || isOurs) {
        input.value = skeleton = told.text;
        input.dispatchEvent(new Event("input"));
      }
    } catch (error) {
      fill(trouble, error.message);
    }
  };
  for (const each of [subject, version, message]) each.addEventListener("change", () => draw({ changed: each }));
  draw();
  const element = h("div", { class: "bar schema-choice" }, h("span", { class: "quiet" }, "Schema"), subject, version, message);
  if (session.registry && !input.disabled) {
    get("subjects", { names: true }).then(
      ({ names }) => {
        const own = names.filter((each) => each.startsWith(`${topic.name}-`));
        fill(subject, h("option", { value: "" }, "none: as text"), [...own, ...names.filter((each) => !own.includes(each))].map((each) => h("option", { value: each }, each)));
        // What other programs of this topic do is done here, too.
        if (!again && names.includes(`${topic.name}-${part}`)) {
          subject.value = `${topic.name}-${part}`;
          draw({ changed: subject });
        }
      },
      (error) => fill(trouble, error.message),
    );
  }
  return {
    element: session.registry && !input.disabled ? [element, trouble] : null,
    given: () => (subject.value ? Object.fromEntries(Object.entries(wanted()).map(([name, value]) => [`${part}_${name}`, value])) : {}),
  };
}

/** Produce a record; `again` is one to begin with, of which all that is not changed is sent byte by byte. */
export function produceRecord(topic, done, again) {
  const key = h("textarea", { rows: session.registry ? 3 : 1, spellcheck: "false", disabled: !isText(again?.key) });
  const value = h("textarea", { rows: 8, spellcheck: "false", disabled: !isText(again?.value) });
  const noKey = tick("no key", !again || again.key.kind === "null", { disabled: key.disabled });
  const noValue = tick("null: a tombstone", again?.value.kind === "null", { disabled: value.disabled });
  const lines = again?.headers.map(([name, part]) => `${name}=${part.text}`) ?? [];
  const plain = !again || (again.headers.every(([name, part]) => part.kind === "text" && !part.cut && !/[=\n]/.test(name) && !/\n|^\s|\s$/.test(part.text))
    && new Set(again.headers.map(([name]) => name)).size === lines.length && !again.more_headers);
  const headers = h("textarea", { rows: 2, spellcheck: "false", placeholder: "name=value", disabled: !plain });
  const partition = select(
    [["", "by its key"], ...topic.partitions.map((each) => [String(each.partition), String(each.partition)])],
    again ? String(again.partition) : "",
  );
  if (again) {
    key.value = key.disabled ? AS_IT_IS : again.key.text;
    value.value = value.disabled ? AS_IT_IS : again.value.text;
    headers.value = headers.disabled ? AS_IT_IS : lines.join("\n");
  }
  key.addEventListener("input", () => (noKey.input.checked = !key.value));
  value.addEventListener("input", () => (noValue.input.checked = false));
  const [keySchema, valueSchema] = [schemaChoice("key", topic, key, again), schemaChoice("value", topic, value, again)];
  const parts = () => ({ key: [key.value, noKey.input.checked], value: [value.value, noValue.input.checked], headers: [headers.value] });
  const before = parts();
  openForm(again ? "Send again with changes" : "Produce a record", {
    wide: true,
    action: again ? "Send" : "Produce",
    fields: [
      again ? h("p", { class: "quiet" }, "A new record at the end of the topic. What is not changed is sent byte by byte.") : null,
      keySchema.element,
      field("Key", key),
      noKey.element,
      valueSchema.element,
      field("Value", value),
      noValue.element,
      field("Headers", headers, "A line each: name=value"),
      field("Partition", partition),
    ],
    send: async () => {
      const now = parts();
      const kept = again ? Object.keys(now).filter((part) => String(now[part]) === String(before[part])) : [];
      const told = await post("records/produce", {
        topic: topic.name,
        key: key.value,
        key_null: noKey.input.checked,
        value: value.value,
        value_null: noValue.input.checked,
        headers: kept.includes("headers") ? {} : pairs(headers.value),
        partition: partition.value,
        ...keySchema.given(),
        ...valueSchema.given(),
        ...(kept.length ? { kept: kept.join(","), of_partition: again.partition, of_offset: again.offset } : {}),
      });
      toast(told.done);
      done?.();
    },
  });
}
